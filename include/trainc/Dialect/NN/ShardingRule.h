//===- ShardingRule.h - Which dimensions are split alike --------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_SHARDINGRULE_H
#define TRAINC_DIALECT_NN_SHARDINGRULE_H

#include "mlir/IR/Operation.h"
#include <optional>

namespace trainc::nn {

/// What a factor of the dimensions of an op is to it.
enum class FactorKind {
  Parallel, ///< a part of the results is computed from this part of the operands
  Sum,      ///< the results are the sums of those of the parts
  Join, ///< the op, an nn.reduce, of the results of the parts gives those of all
  Whole, ///< each element needs all of it
};

/// How an op is done in parts. Each dimension of an operand or a result is a product
/// of factors, the first the slowest, and a factor is split alike wherever it stands.
/// A dimension without factors cannot be split. An operand or a result without a
/// factor has all that belongs to it on each part.
struct ShardingRule {
  struct Factor {
    int64_t size;
    FactorKind kind;
  };
  /// A dimension of an operand or of a result.
  struct Place {
    bool isResult;
    unsigned index;
    int64_t dim;
  };
  using Factors = llvm::SmallVector<unsigned, 2>;

  /// The rule of an op of which nothing can be split.
  explicit ShardingRule(mlir::Operation *op);

  static Place in(unsigned operand, int64_t dim) {
    return {false, operand, dim};
  }
  static Place out(unsigned result, int64_t dim) { return {true, result, dim}; }

  /// Appends one factor, the next faster one, to the dimensions `places`; without
  /// `size` of the size of the first of them.
  void share(FactorKind kind, llvm::ArrayRef<Place> places,
             std::optional<int64_t> size = std::nullopt);
  /// The same for dimensions [first, last) of all `values`, given as places of dimension
  /// 0: a factor for each.
  void shareDims(FactorKind kind, int64_t first, int64_t last,
                 llvm::ArrayRef<Place> values);

  int64_t getSize(Place place) const;
  llvm::SmallVector<Factors> &dimsOf(Place place) {
    return (place.isResult ? results : operands)[place.index];
  }

  mlir::Operation *op;
  llvm::SmallVector<Factor> factors;
  /// The factors of each dimension.
  llvm::SmallVector<llvm::SmallVector<Factors>> operands, results;
  /// Groups of operands in which the op is linear, in those of one group together: if
  /// each of them is a sum, the results are the sums of those of the terms.
  llvm::SmallVector<llvm::SmallVector<unsigned>> linear;
  /// An operand that makes terms of the sums along its factors count nothing where it is
  /// 0, as those in `linear` do.
  std::optional<unsigned> weights;
  /// Whether parts must be even: no number fills up what is missing of one.
  bool needsEven = false;
};

/// The rule of `op`: its own, or that of a pointwise op; none if it has none.
std::optional<ShardingRule> getShardingRule(mlir::Operation *op);

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_SHARDINGRULE_H
