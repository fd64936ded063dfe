//===- ArenaLayout.h - An arena being filled --------------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PLAN_ARENALAYOUT_H
#define TRAINC_LIB_TRANSFORMS_PLAN_ARENALAYOUT_H

#include "trainc/Dialect/Train/TrainOps.h"
#include "llvm/Support/MathExtras.h"

namespace trainc {

/// An arena being filled, slice after slice.
struct ArenaLayout {
  ArenaLayout(llvm::StringRef name, llvm::StringRef role)
      : name(name), role(role) {}

  std::string name, role;
  llvm::SmallVector<mlir::Attribute> slices, types;
  llvm::SmallVector<int64_t> offsets;
  int64_t bytes = 0;

  /// The alignment is in bytes; train-coalesce may choose another.
  void add(mlir::StringAttr slice, mlir::RankedTensorType type,
           int64_t alignment = 64) {
    int64_t width = nn::getElementBytes(type.getElementType());
    bytes = llvm::alignTo(bytes, std::max(alignment, width));
    slices.push_back(mlir::FlatSymbolRefAttr::get(slice));
    types.push_back(mlir::TypeAttr::get(type));
    offsets.push_back(bytes);
    bytes += width * type.getNumElements();
  }
  train::ArenaOp create(mlir::OpBuilder &b, mlir::Location loc) {
    return train::ArenaOp::create(b, loc, name, role, bytes,
                                  b.getArrayAttr(slices), b.getArrayAttr(types),
                                  offsets);
  }
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_PLAN_ARENALAYOUT_H
