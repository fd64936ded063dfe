//===- TrainOps.h - Operations of the train dialect -------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINOPS_H
#define TRAINC_DIALECT_TRAIN_TRAINOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "trainc/Dialect/NN/NNOps.h"

#include "trainc/Dialect/Train/TrainDialect.h.inc"
#include "trainc/Dialect/Train/TrainEnums.h.inc"
#define GET_OP_CLASSES
#include "trainc/Dialect/Train/TrainOps.h.inc"

namespace trainc::train {

/// What the arenas of a plan hold; see arenaName.
inline constexpr llvm::StringLiteral kMasterArena = "arena.master";
inline constexpr llvm::StringLiteral kComputeArena = "arena.compute";
inline constexpr llvm::StringLiteral kGradientArena = "arena.grad";
inline constexpr llvm::StringLiteral kMergedArena = "arena.merged";
inline constexpr llvm::StringLiteral kBufferArena = "arena.buffer";
inline constexpr llvm::StringLiteral kScalarArena = "arena.scalars";
inline constexpr llvm::StringLiteral kConstantArena = "arena.constants";

/// What the arena of an optimizer's state holds.
std::string stateRole(llvm::StringRef state);

/// The arena of parameters, gradients or states of one element type, such as
/// `arena.master.f32`; of those of which ranks that differ in `axes` have different
/// parts, such as `arena.master.f32.model`; gradients of each window have their own.
std::string arenaName(llvm::StringRef role, mlir::Type element, ParamOp param);

/// Elements per block of the norm (train.square_sum).
inline constexpr int64_t kNormBlock = 4096;

/// Whether `op` is a collective.
bool isCollective(mlir::Operation *op);

/// The operand that collective `op` changes in place; null if its result stands
/// elsewhere.
mlir::Value getInPlaceOperand(mlir::Operation *op);

/// The scalar of the plan that holds this rank's position along an axis of the mesh.
std::string meshScalar(llvm::StringRef axis);

/// `@arena[@slice]`.
mlir::SymbolRefAttr sliceRef(mlir::MLIRContext *context, llvm::StringRef arena,
                             llvm::StringRef slice);

/// Parses the attribute dictionary that ends an op (after `attributes`, or bare)
/// and checks those attributes that are the op's own.
mlir::ParseResult parseAttributes(mlir::OpAsmParser &parser,
                                  mlir::OperationState &result,
                                  bool keyword = true);

/// The first train.step of a module; a diagnostic and null if there is none, or if what
/// its steps train or their clauses do not fit together.
StepOp getStep(mlir::ModuleOp module);

/// The first step that trains what `step` does: they share a window.
StepOp getFirstOfWindow(StepOp step);

/// The name of the window of `step`; null for that of the module's first step.
mlir::StringAttr getWindow(StepOp step);

/// The name of a scalar that each window has.
std::string windowScalar(mlir::StringAttr window, llvm::StringRef name);

/// The mesh of a module, or null.
MeshOp getMesh(mlir::ModuleOp module);

/// The axes of more than one rank over which the step's losses, weights and gradients
/// are sums; null if there are none.
mlir::ArrayAttr getReducedAxes(StepOp step);

/// How many terms `loss` is a sum of: as many as the targets of the losses that it is
/// computed from; 1 if there are none.
int64_t countLossTerms(mlir::Value loss);

/// Which ranks exchange what an arena with slices of parameters has: those that differ
/// in axes over which gradients are sums, and along which the parameters are not in
/// parts. Pieces of buckets are for the ranks along the last such axis, if possible one
/// along which no parameter is in parts; none if there is no such axis.
struct Exchange {
  mlir::ArrayAttr pieceAxes, otherAxes;
  int64_t pieces;
};
Exchange getExchange(StepOp step, ArenaOp arena);

/// `[host, data], []`: a list of axes per dimension.
mlir::ParseResult parseSplit(mlir::OpAsmParser &parser, mlir::ArrayAttr &split);
void printSplit(mlir::OpAsmPrinter &p, mlir::Operation *op,
                mlir::ArrayAttr split);

/// Checks that `split`, of a tensor of type `type`, is lists of distinct axes of the
/// module's mesh, one per dimension at most; `tag` is the constraint.
llvm::LogicalResult verifySplit(mlir::Operation *op, mlir::Attribute split,
                                mlir::Type type, llvm::StringRef tag);

/// Checks that `name`, which an artifact has as a C string, is UTF-8 and has no zero byte;
/// `tag` is the constraint.
llvm::LogicalResult verifyName(mlir::Operation *op, llvm::StringRef name,
                               llvm::StringRef tag);
llvm::LogicalResult verifyNames(mlir::Operation *op, mlir::ArrayAttr names,
                                llvm::StringRef tag);

/// The value of `names[i] == name` in `values`, or null.
mlir::Attribute lookupHyper(mlir::ArrayAttr names, mlir::ArrayAttr values,
                            llvm::StringRef name);

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINOPS_H
