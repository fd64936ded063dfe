//===- SegmentCode.h - Code of scalars and code of elements -----*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTCODE_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTCODE_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainLayout.h"

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

/// A #train.segments being made.
struct SegmentTable {
  llvm::SmallVector<int64_t> lengths, groups;
  llvm::SmallVector<llvm::SmallVector<int64_t>> offsets; // by array
  /// With shards: of each segment the parameter and its first element, and where the
  /// segments of each shard end, from 0 on.
  llvm::SmallVector<int64_t> owners, starts, shards;

  train::SegmentsAttr toAttr(mlir::Builder &b) const;
};

/// One segment for each of `params`, of the groups that are given, in all arrays of
/// `code`; with `shards` above 1 one for each part that lies in one shard, ordered by these.
SegmentTable makeTable(const ElementCode &code,
                       llvm::ArrayRef<train::ParamOp> params,
                       llvm::ArrayRef<int64_t> groups, int64_t shards,
                       train::Layouts &layouts);

/// What the ops on segments take beside arrays, and their region.
struct SplitCode {
  llvm::SmallVector<mlir::Value> uniforms, grouped;
  std::unique_ptr<mlir::Region> region = std::make_unique<mlir::Region>();
};

/// Divides `code` into what depends on scalars alone, computed at `b` for each of `members`,
/// and the rest.
SplitCode splitCode(mlir::OpBuilder &b, mlir::Location loc, ElementCode &code,
                    size_t members);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTCODE_H
