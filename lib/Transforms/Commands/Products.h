//===- Products.h - Matrix products of a list -------------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H

#include "mlir/IR/Block.h"

namespace trainc {

/// Turns the products of a list into GEMMs. Before, casts to a wider type and back,
/// also those around a sum, are removed. Again, it does nothing.
void formProducts(mlir::Block &block);

/// Slices whose elements stand next to each other, from where buffers may begin on, become views
/// of what they are of.
void viewSlices(mlir::Block &block);

/// Products that are joined one behind the other are made where they stand in the whole.
void flattenConcats(mlir::Block &block);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
