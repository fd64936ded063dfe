//===- CutParts.h - This rank's parts of whole values -----------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PARTITION_CUTPARTS_H
#define TRAINC_LIB_TRANSFORMS_PARTITION_CUTPARTS_H

#include "Parts.h"
#include "mlir/IR/Remarks.h"
#include <map>

namespace trainc::parts {

/// What this rank has of a value.
struct Local {
  mlir::Value value;
  Layout layout;
};

/// `value` as an attribute of a float type, else `whole`.
mlir::Attribute getNumber(mlir::Type element, double value, int64_t whole);

/// What fills up a part in which a pointwise `op` takes an operand; null if it may be
/// anything finite.
mlir::Attribute getPointwiseFill(mlir::Operation &op, mlir::Type element);

/// Says what was done to a value, of `type` on one rank.
void remarkOn(mlir::Location loc, llvm::StringRef what, mlir::Type type,
              mlir::ArrayAttr axes);

/// Builds what depends on this rank's position in the mesh: parts of whole values, where
/// `b` stands, and positions at the start of `body`.
class Cutter {
public:
  Cutter(const Grid &grid, mlir::OpBuilder &b,
         llvm::DenseMap<mlir::Value, Local> &locals)
      : grid(grid), b(b), locals(locals) {}

  /// Sets those of `operands` that are null to this rank's parts of what the global `op`
  /// takes, split as `splits` says.
  void cutOperands(mlir::Operation &op, llvm::ArrayRef<Split> splits,
                   llvm::MutableArrayRef<mlir::Value> operands);
  /// This rank's part of what it has of a value, along the dimensions that are not split
  /// as `split` says; these are whole.
  mlir::Value cutWhole(const Local &whole, const Split &split);
  /// Gives what draws a part of a tensor of type `whole` the places of its elements
  /// there; returns its result.
  mlir::Value placeDraws(nn::RandomOpInterface op, mlir::RankedTensorType whole,
                         const Split &split);

  /// Gives an attention that draws the places of its scores in those of the `global` one;
  /// `split` is that of its lse.
  mlir::LogicalResult placeScores(nn::RandomOpInterface op,
                                  mlir::Operation &global, const Split &split);

  /// Says of which rows of the whole table the part of an embedding is.
  void placeRows(nn::EmbeddingOp op, nn::EmbeddingOp global,
                 const DimSplit &split);

  /// This rank's part of a value whose dimension `dim` is `size` in the whole, with
  /// `fill` where the part has no elements of it.
  mlir::Value fillUp(mlir::Value value, int64_t dim, int64_t size,
                     const DimSplit &split, mlir::Attribute fill);

  /// The block of the entry.
  mlir::Block *body = nullptr;
  int64_t numCut = 0;

private:
  using Key = std::pair<void *, std::vector<unsigned>>;

  static Key keyOf(mlir::Value value, const Split &split);
  mlir::Value cut(mlir::Value global, const Split &split);
  mlir::Value cutPointwise(nn::PointwiseOpInterface op, mlir::OpResult global,
                           const Split &split);
  mlir::Value takePart(mlir::Value value, int64_t dim, const DimSplit &split);
  mlir::Value getIndex(llvm::ArrayRef<unsigned> axes, mlir::Location loc);
  mlir::Value getOffset(llvm::ArrayRef<unsigned> axes, int64_t stride,
                        mlir::Location loc);

  const Grid &grid;
  mlir::OpBuilder &b;
  llvm::DenseMap<mlir::Value, Local> &locals;
  /// Positions over axes, made once.
  llvm::DenseMap<mlir::Attribute, mlir::Value> indices;
  /// What cut made for the operands of one op.
  std::map<Key, mlir::Value> cuts;
};

} // namespace trainc::parts

#endif // TRAINC_LIB_TRANSFORMS_PARTITION_CUTPARTS_H
