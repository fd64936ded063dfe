//===- Cost.h - Arithmetic, bytes and time of ops and commands --*- C++ -*-===//
//
// The one model of costs: what an op or a kernel computes and moves (nn::Work),
// and by which rate that takes how long (Rates.h). Reports, the descriptor and
// recomputation read it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_ANALYSIS_COST_H
#define TRAINC_ANALYSIS_COST_H

#include "trainc/Analysis/Rates.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// What `op` computes, by its own formula, else by its scalar function or its
/// decomposition; of a train.kernel the sum over its body. Bytes are those of
/// operands and results, of a kernel those of arguments and returned values:
/// all of each, also where an op reads some elements. An op that has no
/// definition yet, as a dropout without a site, computes nothing.
nn::Work workOf(mlir::Operation *op);

/// The unit whose peak bounds `op`; of a train.kernel, which has at most one op
/// that is not of vector units, that of this one.
nn::Unit unitOf(mlir::Operation *op);

/// The arithmetic in `work` that the rate of `unit` is of: of units that
/// multiply matrices those multiply-adds alone, beside which all else is
/// hidden; of vector units all of it, a function as ten operations.
double flopsOf(const nn::Work &work, nn::Unit unit);

/// The rate of a command that is not a collective, on `unit`, in elements of
/// `dtype`; in a list of kind "apply" if `update`.
trainc_rate rateOf(nn::Unit unit, trainc_dtype dtype, bool update);

/// Of a kernel of `ops` that moves `bytes`, with elements of type `element`.
Load loadOf(llvm::ArrayRef<mlir::Operation *> ops, double bytes,
            mlir::Type element);

/// Of a command on tensors.
Load loadOf(mlir::Operation *command, mlir::SymbolTable &symbols);

} // namespace trainc

#endif // TRAINC_ANALYSIS_COST_H
