//===- Parts.h - Which part of a tensor each rank has -----------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PARTS_H
#define TRAINC_LIB_TRANSFORMS_PARTS_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::parts {

/// Axes of the mesh, by number.
using Axes = llvm::SmallVector<unsigned, 2>;
/// The axes over which each dimension of a tensor is split, the slowest first.
using Split = llvm::SmallVector<Axes>;

/// The axes of the mesh that have more than one rank.
struct Grid {
  explicit Grid(train::MeshOp mesh);

  llvm::SmallVector<mlir::StringAttr> names;
  llvm::SmallVector<int64_t> sizes;

  /// How many ranks differ in `axes` alone.
  int64_t count(llvm::ArrayRef<unsigned> axes) const;
  Axes all() const;
  mlir::ArrayAttr toAttr(llvm::ArrayRef<unsigned> axes) const;
  /// What `split`, a verified attribute or null, says of a tensor of this rank.
  Split read(mlir::Attribute split, int64_t rank) const;
  mlir::ArrayAttr write(const Split &split) const;
  /// `split([host, data], [])`.
  std::string print(const Split &split) const;
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
  /// Over which something is split, and over which the results are sums.
  Axes used, summed;
};

/// Plans an op by its rule and by what its operands are split over; those that are whole
/// along a dimension may get a split there. `problem` says why it cannot be done.
llvm::FailureOr<Plan> planParts(const Grid &grid, const nn::ShardingRule &rule,
                                llvm::ArrayRef<Split> operands,
                                std::string &problem);

} // namespace trainc::parts

#endif // TRAINC_LIB_TRANSFORMS_PARTS_H
