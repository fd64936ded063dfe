//===- ForwardWrites.h - Reads of what a list has written -------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_FORWARDWRITES_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_FORWARDWRITES_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// A read after a write of the same slice is the value written, and the last write of a
/// slice the only one. Writes then stand at the end: whatever is not written in place is
/// copied there. Fails with an error where a list reads what it has written by another name.
mlir::LogicalResult forwardWrites(train::ListOp list,
                                  mlir::SymbolTable &symbols);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_FORWARDWRITES_H
