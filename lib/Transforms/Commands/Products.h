//===- Products.h - Matrix products of a list -------------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H

#include "mlir/IR/Block.h"

namespace trainc {

/// Turns the products of a list into GEMMs. Before, casts to a wider type and back,
/// also those around a sum, are removed. Again, it does nothing.
void formProducts(mlir::Block &block);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_PRODUCTS_H
