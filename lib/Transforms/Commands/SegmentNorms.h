//===- SegmentNorms.h - Sums of squares of segments -------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H

#include "SegmentCode.h"

namespace trainc {

/// `loc` under the name that its kernel is to have.
mlir::Location named(mlir::Location loc, llvm::StringRef name);

/// Which ranks share segments, and which of the shards is this one's.
struct Sharding {
  mlir::ArrayAttr over; // null: none do
  int64_t shards = 1;
  mlir::Value shard;
};

/// Sums of squares of blocks of what `code` yields of `params`, of `members` groups; of this
/// rank's shard, if there are shards.
train::SegmentSquareSumOp sumSquares(mlir::OpBuilder &b, mlir::Location loc,
                                     ElementCode &code,
                                     llvm::ArrayRef<train::ParamOp> params,
                                     llvm::ArrayRef<int64_t> groups,
                                     size_t members, const Sharding &sharding,
                                     train::Layouts &layouts);

/// The sums that a train.sum_blocks adds.
class BlockSums {
public:
  explicit BlockSums(const Sharding &sharding) : sharding(sharding) {}

  /// Adds sums per parameter of result `blocks` of `op`; the number of the first.
  int64_t add(mlir::Value blocks, train::SegmentSquareSumOp op, size_t params);
  /// Adds them up; with shards, those of all ranks, which are gathered at once.
  mlir::ValueRange create(mlir::OpBuilder &b, mlir::Location loc,
                          llvm::ArrayRef<mlir::Attribute> sets,
                          llvm::ArrayRef<mlir::Type> types);

private:
  /// Blocks of a sum: `count` of input `source`, from `first` on in what a shard has.
  struct Range {
    int64_t source, shard, first, count, owner;
  };
  const Sharding &sharding;
  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<Range> ranges;
  int64_t sums = 0;
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H
