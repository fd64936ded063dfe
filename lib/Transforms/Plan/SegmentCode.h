//===- SegmentCode.h - Code of scalars and code of elements -----*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PLAN_SEGMENTCODE_H
#define TRAINC_LIB_TRANSFORMS_PLAN_SEGMENTCODE_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// A region on elements, of which an op on segments is made. Its arguments are
/// elements of arrays, then scalars, then elements of tensors with one per
/// segment, then the element's index; they are added in this order.
struct ElementCode {
  mlir::Region region;
  mlir::Block *block;
  llvm::SmallVector<mlir::Value> arrays, each;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> scalars; // of each member
  /// By array: where its segments are; none if it is read from an arena.
  llvm::SmallVector<llvm::SmallVector<int64_t>> places;
  mlir::Value index;

  ElementCode() : block(&region.emplaceBlock()) {}

  mlir::Value addArray(mlir::Value array,
                       llvm::ArrayRef<int64_t> segmentPlaces = {}) {
    arrays.push_back(array);
    places.emplace_back(segmentPlaces);
    return addArgument(array);
  }
  mlir::Value addScalar(llvm::ArrayRef<mlir::Value> ofMembers) {
    scalars.emplace_back(ofMembers);
    return addArgument(ofMembers.front());
  }
  mlir::Value addEach(mlir::Value tensor) {
    each.push_back(tensor);
    return addArgument(tensor);
  }
  mlir::Value addIndex(mlir::Location loc) {
    auto type = mlir::IntegerType::get(loc.getContext(), 64);
    return index = block->addArgument(type, loc);
  }
  bool isScalar(mlir::Value value) const {
    auto argument = llvm::dyn_cast<mlir::BlockArgument>(value);
    return argument && argument.getArgNumber() >= arrays.size() &&
           argument.getArgNumber() < arrays.size() + scalars.size();
  }
  /// At the end of the region, which is of no op yet.
  mlir::OpBuilder builder() {
    mlir::OpBuilder b(arrays.front().getContext());
    b.setInsertionPointToEnd(block);
    return b;
  }

private:
  mlir::Value addArgument(mlir::Value value) {
    mlir::Type type =
        nn::getComputeType(nn::getTensorType(value).getElementType());
    return block->addArgument(type, value.getLoc());
  }
};

/// The parts of an op on segments.
struct Segments {
  llvm::SmallVector<mlir::Value> uniforms, grouped;
  llvm::SmallVector<int64_t> lengths, groups;
  mlir::ArrayAttr offsets;
  std::unique_ptr<mlir::Region> region = std::make_unique<mlir::Region>();
};

/// Divides `code` into what depends on scalars alone, computed at `b` per
/// member, and the rest. Segments are the parameters of the members, one after
/// the other.
Segments splitCode(mlir::OpBuilder &b, mlir::Location loc, ElementCode &code,
                   llvm::ArrayRef<llvm::SmallVector<train::ParamOp>> params,
                   mlir::SymbolTable &symbols);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_PLAN_SEGMENTCODE_H
