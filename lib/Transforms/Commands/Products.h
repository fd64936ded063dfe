//===- Products.h - Matrix products of a list -------------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Turns the products of a list into GEMMs, before any other pass looks at them: whether one adds
/// in place, or is rounded, is then the same whatever passes follow. What is read after it was
/// written is the value written, casts to a wider type and back are removed, and casts that are
/// `unrounded` take f32. Again, it does nothing. Fails with an error as forwardWrites does.
mlir::LogicalResult formProducts(train::ListOp list,
                                 mlir::SymbolTable &symbols);

/// Slices whose elements stand next to each other, from where buffers may begin on, become views
/// of what they are of.
void viewSlices(mlir::Block &block);

/// Products that are joined one behind the other are made where they stand in the whole.
void flattenConcats(mlir::Block &block);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
