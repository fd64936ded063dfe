//===- DecomposeWhole.h - Simpler operations on global shapes ---*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H
#define TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H

#include "mlir/IR/Operation.h"

namespace trainc::parts {

/// Replaces `op`, which is of global shapes, by simpler nn ops, of which each has a rule
/// of its own for parts; with `needsGradients` by such that have gradients. False, and
/// nothing is changed, if it has no such form.
bool decomposeWhole(mlir::Operation &op, bool needsGradients);

} // namespace trainc::parts

#endif // TRAINC_TRANSFORMS_PARTITION_DECOMPOSEWHOLE_H
