//===- SegmentNorms.h - Sums of squares of segments -------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H

#include "SegmentCode.h"

namespace trainc {

/// `loc` under the name that its kernel is to have.
mlir::Location named(mlir::Location loc, llvm::StringRef name);

/// The parameter that `ref`, a flat symbol, names.
train::ParamOp lookupParam(mlir::Attribute ref, mlir::SymbolTable &symbols);

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
  /// Adds sums per parameter of result `blocks` of `op`, those of all ranks; the number of
  /// the first.
  int64_t add(mlir::OpBuilder &b, mlir::Value blocks,
              train::SegmentSquareSumOp op, size_t params,
              const Sharding &sharding);
  mlir::ValueRange create(mlir::OpBuilder &b, mlir::Location loc,
                          llvm::ArrayRef<mlir::Attribute> sets,
                          llvm::ArrayRef<mlir::Type> types);

private:
  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<int64_t> sources, firsts, counts, owners;
  int64_t sums = 0;
  bool isSharded = false;
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTNORMS_H
