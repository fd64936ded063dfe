//===- Parts.h - Which part of a tensor each rank has -----------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PARTITION_PARTS_H
#define TRAINC_LIB_TRANSFORMS_PARTITION_PARTS_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::parts {

/// Axes of the mesh, by number.
using Axes = llvm::SmallVector<unsigned, 2>;
/// How a dimension is split: each of its `blocks` equal ranges over the axes, the slowest
/// first.
struct DimSplit {
  Axes axes;
  int64_t blocks = 1;

  bool isWhole() const { return axes.empty(); }
  bool operator==(const DimSplit &other) const {
    return axes == other.axes && (isWhole() || blocks == other.blocks);
  }
  bool operator!=(const DimSplit &other) const { return !(*this == other); }
};
/// How each dimension of a tensor is split.
using Split = llvm::SmallVector<DimSplit>;

/// The axes of the mesh that have more than one rank.
struct Grid {
  explicit Grid(train::MeshOp mesh);

  llvm::SmallVector<mlir::StringAttr> names;
  llvm::SmallVector<int64_t> sizes;

  /// How many ranks differ in `axes` alone.
  int64_t count(llvm::ArrayRef<unsigned> axes) const;
  Axes all() const;
  mlir::ArrayAttr toAttr(llvm::ArrayRef<unsigned> axes) const;
  /// What `split` and `blocks`, verified attributes or null, say of a tensor of this
  /// rank.
  Split read(mlir::Attribute split, int64_t rank,
             mlir::DenseI64ArrayAttr blocks = {}) const;
  /// The axes alone.
  mlir::ArrayAttr write(const Split &split) const;
  /// `split([host, data], [])` or, with blocks, `split([], [model]) blocks [1, 3]`.
  std::string print(const Split &split) const;
  /// The size of a part of a dimension: where it does not come out even, the last parts
  /// are filled up.
  int64_t getPartSize(int64_t size, const DimSplit &split) const;
  bool isUneven(int64_t size, const DimSplit &split) const {
    return size / split.blocks % count(split.axes) != 0;
  }
  /// The type of a part of a tensor.
  mlir::RankedTensorType getLocalType(mlir::RankedTensorType type,
                                      const Split &split) const;
};

/// How a tensor lies on the ranks.
struct Layout {
  Split split;
  /// Ascending: the tensor is the sum of those of the ranks that differ in these.
  Axes partial;

  bool isWhole() const;
};

/// Adds `more` to ascending `axes`.
void insertSorted(Axes &axes, llvm::ArrayRef<unsigned> more);

/// Those of `axes` that are not among `others`.
Axes without(llvm::ArrayRef<unsigned> axes, llvm::ArrayRef<unsigned> others);

/// How one op is done in parts.
struct Plan {
  std::vector<Split> operands, results;
  /// Over which something is split, over which the results are sums, and over which what
  /// the parts result in is to be reduced.
  Axes used, summed, joined;
};

/// The factor of a dimension that is more than 1, of one that is split unevenly.
unsigned getOnlyFactor(const nn::ShardingRule &rule,
                       llvm::ArrayRef<unsigned> factors);

/// The operand whose zeros are what fills up parts of `factor`, a sum; none if zeros of no
/// operand count nothing.
std::optional<unsigned> findWeights(const nn::ShardingRule &rule,
                                    unsigned factor);

/// Plans an op by its rule and by what its operands are split over; those that are whole
/// along a dimension may get a split there. `problem` says why it cannot be done.
llvm::FailureOr<Plan> planParts(const Grid &grid, const nn::ShardingRule &rule,
                                llvm::ArrayRef<Split> operands,
                                std::string &problem);

} // namespace trainc::parts

#endif // TRAINC_LIB_TRANSFORMS_PARTITION_PARTS_H
