//===- NNOps.h - Operations of the nn dialect -------------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_NNOPS_H
#define TRAINC_DIALECT_NN_NNOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "trainc/Dialect/NN/ShardingRule.h"

namespace trainc::nn {
/// See KernelPrimitive in NNDialect.td.
template <typename ConcreteType>
class KernelPrimitive
    : public mlir::OpTrait::TraitBase<ConcreteType, KernelPrimitive> {};

/// Most elements of a tensor.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

/// Whether `type` is a ranked tensor of static shape with 1 to 2^40 elements (so
/// that offsets of all tensors of a step fit 64 bits) and without encoding.
bool isLegalTensor(mlir::Type type);

/// Whether elements may have this type: f64, f32, bf16, f16, i8 to i64, i1.
bool isLegalElement(mlir::Type type);
} // namespace trainc::nn

#include "trainc/Dialect/NN/NNDialect.h.inc"
#include "trainc/Dialect/NN/NNEnums.h.inc"
#include "trainc/Dialect/NN/NNInterfaces.h.inc"
#define GET_OP_CLASSES
#include "trainc/Dialect/NN/NNOps.h.inc"

namespace trainc::nn {

/// The type in which elements of `type` are computed: f32 for bf16 and f16, else
/// `type` itself.
mlir::Type getComputeType(mlir::Type type);

/// Whether `value` lists the elements of a tensor: `dense`, `sparse`, or a
/// `dense_resource` with the bytes of all elements, one of each i1.
bool isElements(mlir::Attribute value);

/// The elements that `value` lists, as `dense`; null if it lists none.
mlir::DenseElementsAttr getDense(mlir::Attribute value);

/// Bytes that an element of `type` takes in memory.
int64_t getElementBytes(mlir::Type type);

/// Arithmetic of attention, or of its gradient, with 2 per multiply-add: two products of
/// each query with the keys, five in the gradient, and half of them if causal. 0 of
/// other ops.
double countAttentionFlops(mlir::Operation *op);

/// Arithmetic of a convolution, or of one of its gradients, with 2 per multiply-add: the
/// same for all three, and on all targets. 0 of other ops.
double countConvolutionFlops(mlir::Operation *op);

/// A constant of `type`, a number or a vector of numbers, filled with `value`.
mlir::Value splatConstant(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Type type, double value);

/// A rank-0 `nn.constant` of element type `elementType`.
mlir::Value scalarConstant(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::Type elementType, double value);

/// The NumPy broadcast of the shapes, or failure.
llvm::FailureOr<llvm::SmallVector<int64_t>>
broadcastShapes(llvm::ArrayRef<llvm::ArrayRef<int64_t>> shapes);

/// Sums `value` over the dimensions along which a tensor of shape `shape` was
/// broadcast to it, and returns it in that shape: the gradient of broadcasting.
mlir::Value sumToShape(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// `value` with its elements converted to `elementType`; itself if they are.
mlir::Value castTo(mlir::OpBuilder &builder, mlir::Location loc,
                   mlir::Value value, mlir::Type elementType);

/// `value` in shape `shape`; itself if it has it.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// `sum` + `value`. A gradient of an embedding that has no user takes the sum as
/// its init, and is erased.
mlir::Value addTo(mlir::OpBuilder &b, mlir::Location loc, mlir::Value sum,
                  mlir::Value value);

/// An id of an embedding as the index of one of `rows` rows, counted from row `first`,
/// an i64, if given.
mlir::Value idAsRow(mlir::OpBuilder &b, mlir::Location loc, mlir::Value id,
                    int64_t rows, mlir::Value first = {});

/// Whether index `row` is in [0, rows).
mlir::Value isRow(mlir::OpBuilder &b, mlir::Location loc, mlir::Value row,
                  int64_t rows);

/// The row-major index of each element of a tensor of shape `shape`, as i64; with
/// `strides`, those of the tensor of which it is a part, the index there from the part's
/// first element on.
mlir::Value buildElementIndex(mlir::OpBuilder &b, mlir::Location loc,
                              llvm::ArrayRef<int64_t> shape,
                              llvm::ArrayRef<int64_t> strides = {});

/// What a random word depends on: whole numbers as i64, see nn.dropout.
struct RandomCounter {
  mlir::Value index, seed, update, microStep, site;
};

/// The word of 32 random bits, as i64, that nn.dropout draws for an element.
mlir::Value buildRandomWord(mlir::OpBuilder &b, mlir::Location loc,
                            const RandomCounter &counter);

/// The words of the four elements with indices 4 group to 4 group + 3, where group is
/// counter.index: i64, or vectors of them if group is one; the others are numbers.
std::array<mlir::Value, 4> buildRandomWords(mlir::OpBuilder &b,
                                            mlir::Location loc,
                                            const RandomCounter &counter);

/// How many of the 2^32 words are below the share `p` of them: floor(p 2^32 + 1/2).
uint64_t getDrawThreshold(double p);

/// The scores of an attention: of each head of q, `group` of which share a head of k and
/// v, queries in rows and keys in columns.
struct ScoreShape {
  int64_t batch, kvHeads, group, rows, columns;
};

/// Those of an attention or its gradients, packed or not.
ScoreShape getScoreShape(mlir::Operation *attention);

/// The strides of the index by which scores draw: of the batch, of heads of k and v, of
/// the heads of a group, and of queries. That of keys is 1.
llvm::SmallVector<int64_t> getScoreStrides(const ScoreShape &shape);

/// The neutral element of a reduction, of `type`, a number or a vector of numbers.
mlir::Value reductionNeutral(mlir::OpBuilder &builder, mlir::Location loc,
                             ReduceKind kind, mlir::Type type);

/// One step of a reduction on numbers or vectors of numbers.
mlir::Value reductionCombine(mlir::OpBuilder &builder, mlir::Location loc,
                             ReduceKind kind, mlir::Value lhs, mlir::Value rhs);

inline mlir::RankedTensorType getTensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_NNOPS_H
