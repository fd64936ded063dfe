//===- DecomposeWhole.h - Simpler operations on global shapes ---*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H
#define TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H

#include "Parts.h"

namespace trainc::parts {

/// Replaces `op`, which is of global shapes, by simpler nn ops, of which each has a rule
/// of its own for parts; with `needsGradients` by such that have gradients. False, and
/// nothing is changed, if it has no such form.
bool decomposeWhole(mlir::Operation &op, bool needsGradients);

/// Gives a loss whose terms lie in uneven parts, as `splits` says of its operands, weights
/// for each of them, ones if it has none: zeros will fill them up. False, and nothing is
/// changed, if it has them, or is none.
bool weighUneven(const Grid &grid, mlir::Operation &op,
                 llvm::ArrayRef<Split> splits);

} // namespace trainc::parts

#endif // TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H
