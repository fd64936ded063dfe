//===- NNToLinalg.cpp - nn ops as linalg on tensors -----------------------===//
//
// This pass gives every nn op its definition in linalg, tensor and arith ops on
// tensors. Needs ops of static shapes, as the nn dialect has them; leaves no nn
// op.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/Transforms/DialectConversion.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

#define DEBUG_TYPE "nn-to-linalg"

namespace trainc {
#define GEN_PASS_DEF_NNTOLINALGPASS
#include "trainc/Conversion/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using utils::IteratorType;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static Value emptyTensor(OpBuilder &b, Location loc, RankedTensorType type) {
  return tensor::EmptyOp::create(b, loc, type.getShape(),
                                 type.getElementType());
}

/// A tensor of `type` filled with `number`.
static Value filledTensor(OpBuilder &b, Location loc, RankedTensorType type,
                          Value number) {
  return linalg::FillOp::create(b, loc, number, emptyTensor(b, loc, type))
      .getResult(0);
}

/// The number `value` extended or rounded to `type`, both floats or equal.
static Value convertNumber(OpBuilder &b, Location loc, Value value, Type type) {
  if (value.getType() == type)
    return value;
  if (value.getType().getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, loc, type, value);
  return arith::TruncFOp::create(b, loc, type, value);
}

/// How a tensor of shape `from` is read by loops over a shape that it
/// broadcasts to: at constant 0 along repeated dimensions.
static AffineMap broadcastMap(OpBuilder &b, ArrayRef<int64_t> from,
                              ArrayRef<int64_t> loops) {
  SmallVector<AffineExpr> indices;
  size_t offset = loops.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    bool repeated = from[i] == 1 && loops[offset + i] != 1;
    indices.push_back(repeated ? b.getAffineConstantExpr(0)
                               : b.getAffineDimExpr(offset + i));
  }
  return AffineMap::get(loops.size(), 0, indices, b.getContext());
}

using BuildElements =
    llvm::function_ref<void(OpBuilder &, ValueRange, SmallVectorImpl<Value> &)>;

/// A parallel linalg.generic over the shape of `types`. `build` computes an
/// element of each result from those of `inputs`, which are broadcast.
static linalg::GenericOp buildParallel(OpBuilder &b, Location loc,
                                       TypeRange types, ValueRange inputs,
                                       BuildElements build) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(types[0]).getShape();
  SmallVector<AffineMap> maps;
  for (Value input : inputs)
    maps.push_back(broadcastMap(b, nn::getTensorType(input).getShape(), shape));
  SmallVector<Value> outputs;
  for (Type type : types) {
    outputs.push_back(emptyTensor(b, loc, cast<RankedTensorType>(type)));
    maps.push_back(b.getMultiDimIdentityMap(shape.size()));
  }
  SmallVector<IteratorType> iterators(shape.size(), IteratorType::parallel);
  return linalg::GenericOp::create(
      b, loc, types, inputs, outputs, maps, iterators,
      [&](OpBuilder &body, Location, ValueRange args) {
        SmallVector<Value> results;
        build(body, args.take_front(inputs.size()), results);
        linalg::YieldOp::create(body, loc, results);
      });
}

/// `value` with its elements extended or rounded to `elementType`.
static Value convertElements(OpBuilder &b, Location loc, Value value,
                             Type elementType) {
  RankedTensorType type = nn::getTensorType(value).clone(elementType);
  if (type == value.getType())
    return value;
  return buildParallel(b, loc, TypeRange(type), value,
                       [&](OpBuilder &body, ValueRange args,
                           SmallVectorImpl<Value> &results) {
                         results.push_back(
                             convertNumber(body, loc, args[0], elementType));
                       })
      .getResult(0);
}

/// `value` in shape `shape`, by collapsing and expanding dimensions.
static Value reshapeTensor(OpBuilder &b, Location loc, Value value,
                           ArrayRef<int64_t> shape) {
  RankedTensorType from = nn::getTensorType(value);
  RankedTensorType to = from.clone(shape);
  if (from == to)
    return value;
  std::optional<SmallVector<ReassociationIndices>> groups;
  if (from.getRank() == 0 || to.getRank() == 0)
    groups.emplace();
  else if (from.getRank() != to.getRank())
    groups = getReassociationIndicesForReshape(from, to);
  if (groups && from.getRank() > to.getRank())
    return tensor::CollapseShapeOp::create(b, loc, to, value, *groups);
  if (groups)
    return tensor::ExpandShapeOp::create(b, loc, to, value, *groups);
  value = reshapeTensor(b, loc, value, from.getNumElements());
  return reshapeTensor(b, loc, value, shape);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Reduces `dims` of `value`, the loops running in the order of its dimensions,
/// from the identity element.
static Value reduceInOrder(OpBuilder &b, Location loc, nn::ReduceKind kind,
                           Value value, ArrayRef<int64_t> dims) {
  RankedTensorType type = nn::getTensorType(value);
  if (dims.empty())
    return value;
  SmallVector<IteratorType> iterators;
  SmallVector<AffineExpr> keptDims;
  SmallVector<int64_t> shape;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    bool reduced = llvm::is_contained(dims, dim);
    iterators.push_back(reduced ? IteratorType::reduction
                                : IteratorType::parallel);
    if (reduced)
      continue;
    keptDims.push_back(b.getAffineDimExpr(dim));
    shape.push_back(type.getDimSize(dim));
  }
  Value identity = nn::reductionIdentity(b, loc, kind, type.getElementType());
  Value init = filledTensor(b, loc, type.clone(shape), identity);
  AffineMap kept = AffineMap::get(type.getRank(), 0, keptDims, b.getContext());
  auto generic = linalg::GenericOp::create(
      b, loc, init.getType(), value, init,
      {b.getMultiDimIdentityMap(type.getRank()), kept}, iterators,
      [&](OpBuilder &body, Location, ValueRange args) {
        Value next = nn::reductionCombine(body, loc, kind, args[1], args[0]);
        linalg::YieldOp::create(body, loc, next);
      });
  return generic.getResult(0);
}

/// Part [offset, offset + size) of the last dimension.
static Value sliceLast(OpBuilder &b, Location loc, Value value, int64_t offset,
                       int64_t size) {
  RankedTensorType type = nn::getTensorType(value);
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> sizes =
      getAsIndexOpFoldResult(b.getContext(), type.getShape());
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1));
  offsets.back() = b.getIndexAttr(offset);
  sizes.back() = b.getIndexAttr(size);
  return tensor::ExtractSliceOp::create(b, loc, value, offsets, sizes, strides);
}

/// Reduces the last dimension of `value` through the lanes.
static Value reduceLanes(OpBuilder &b, Location loc, nn::ReduceKind kind,
                         Value value) {
  RankedTensorType type = nn::getTensorType(value);
  Type elementType = type.getElementType();
  SmallVector<int64_t> shape(type.getShape());
  int64_t chunks = llvm::divideCeil(shape.back(), nn::kLanes);
  if (shape.back() != chunks * nn::kLanes) {
    // A lane that lacks an element takes the identity: it changes nothing.
    Value identity = nn::reductionIdentity(b, loc, kind, elementType);
    SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(shape.size(), b.getIndexAttr(1));
    SmallVector<OpFoldResult> sizes =
        getAsIndexOpFoldResult(b.getContext(), shape);
    shape.back() = chunks * nn::kLanes;
    Value padded = filledTensor(b, loc, type.clone(shape), identity);
    value = tensor::InsertSliceOp::create(b, loc, value, padded, offsets, sizes,
                                          strides);
  }
  int64_t chunkDim = shape.size() - 1;
  shape.back() = chunks;
  shape.push_back(nn::kLanes);
  value = reshapeTensor(b, loc, value, shape);
  value = reduceInOrder(b, loc, kind, value, chunkDim);
  for (int64_t lanes = nn::kLanes / 2; lanes >= 1; lanes /= 2) {
    Value low = sliceLast(b, loc, value, 0, lanes);
    Value high = sliceLast(b, loc, value, lanes, lanes);
    auto halve = [&](OpBuilder &body, ValueRange args,
                     SmallVectorImpl<Value> &results) {
      results.push_back(
          nn::reductionCombine(body, loc, kind, args[0], args[1]));
    };
    value =
        buildParallel(b, loc, low.getType(), {low, high}, halve).getResult(0);
  }
  return reshapeTensor(b, loc, value, type.getShape().drop_back());
}

namespace {
struct ConvertReduce : OpConversionPattern<nn::ReduceOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(nn::ReduceOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    RankedTensorType type = nn::getTensorType(op.getInput());
    SmallVector<int64_t> dims;
    int64_t last = nn::splitReduction(op, dims);
    Value value = convertElements(b, loc, adaptor.getInput(),
                                  nn::getComputeType(type.getElementType()));
    if (last != type.getRank()) {
      SmallVector<int64_t> shape(type.getShape().take_front(last));
      shape.push_back(
          ShapedType::getNumElements(type.getShape().drop_front(last)));
      value = reshapeTensor(b, loc, value, shape);
      value = reduceLanes(b, loc, op.getKind(), value);
    }
    value = reduceInOrder(b, loc, op.getKind(), value, dims);
    value = convertElements(b, loc, value, type.getElementType());
    auto result = nn::getTensorType(op.getResult());
    b.replaceOp(op, reshapeTensor(b, loc, value, result.getShape()));
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Products of matrices
//===----------------------------------------------------------------------===//

struct ConvertMatmul : OpConversionPattern<nn::MatmulOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(nn::MatmulOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    auto type = nn::getTensorType(op.getResult());
    Type compute = nn::getComputeType(type.getElementType());
    // The loops: batch, row, contraction, column.
    int64_t batch = type.getRank() - 2, loops = batch + 3;
    int64_t row = batch, contraction = batch + 1, column = batch + 2;
    auto map = [&](bool hasBatch, int64_t first, int64_t second,
                   bool transposed) {
      SmallVector<AffineExpr> indices;
      for (int64_t dim = 0; hasBatch && dim < batch; ++dim)
        indices.push_back(b.getAffineDimExpr(dim));
      if (transposed)
        std::swap(first, second);
      indices.push_back(b.getAffineDimExpr(first));
      indices.push_back(b.getAffineDimExpr(second));
      return AffineMap::get(loops, 0, indices, b.getContext());
    };
    bool rhsHasBatch = nn::getTensorType(op.getRhs()).getRank() > 2;
    AffineMap maps[] = {
        map(true, row, contraction, op.getTransposeLhs()),
        map(rhsHasBatch, contraction, column, op.getTransposeRhs()),
        map(true, row, column, false)};
    SmallVector<IteratorType> iterators(loops, IteratorType::parallel);
    iterators[contraction] = IteratorType::reduction;
    Value zero = nn::splatConstant(b, loc, compute, 0.0);
    Value sum = filledTensor(b, loc, type.clone(compute), zero);
    sum = linalg::GenericOp::create(
              b, loc, sum.getType(), {adaptor.getLhs(), adaptor.getRhs()}, sum,
              maps, iterators,
              [&](OpBuilder &body, Location, ValueRange args) {
                Value lhs = convertNumber(body, loc, args[0], compute);
                Value rhs = convertNumber(body, loc, args[1], compute);
                Value next = math::FmaOp::create(body, loc, lhs, rhs, args[2]);
                linalg::YieldOp::create(body, loc, next);
              })
              .getResult(0);
    if (Value bias = adaptor.getBias())
      sum = buildParallel(b, loc, sum.getType(), {sum, bias},
                          [&](OpBuilder &body, ValueRange args,
                              SmallVectorImpl<Value> &results) {
                            Value term =
                                convertNumber(body, loc, args[1], compute);
                            results.push_back(arith::AddFOp::create(
                                body, loc, args[0], term));
                          })
                .getResult(0);
    b.replaceOp(op, convertElements(b, loc, sum, type.getElementType()));
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Pointwise ops, constants, shapes
//===----------------------------------------------------------------------===//

struct ConvertPointwise
    : OpInterfaceConversionPattern<nn::PointwiseOpInterface> {
  using OpInterfaceConversionPattern::OpInterfaceConversionPattern;

  LogicalResult matchAndRewrite(nn::PointwiseOpInterface op,
                                ArrayRef<Value> operands,
                                ConversionPatternRewriter &b) const override {
    Location loc = op->getLoc();
    auto build = [&](OpBuilder &body, ValueRange args,
                     SmallVectorImpl<Value> &results) {
      SmallVector<Value> wide;
      for (Value arg : args)
        wide.push_back(
            convertNumber(body, loc, arg, nn::getComputeType(arg.getType())));
      op.buildScalar(body, loc, wide, results);
      for (auto [result, type] : llvm::zip_equal(results, op->getResultTypes()))
        result = convertNumber(body, loc, result, getElementTypeOrSelf(type));
    };
    auto generic = buildParallel(b, loc, op->getResultTypes(), operands, build);
    b.replaceOp(op, generic);
    return success();
  }
};

struct ConvertConstant : OpConversionPattern<nn::ConstantOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(nn::ConstantOp op, OpAdaptor,
                                ConversionPatternRewriter &b) const override {
    b.replaceOpWithNewOp<arith::ConstantOp>(op, op.getType(),
                                            nn::getDense(op.getValue()));
    return success();
  }
};

struct ConvertIota : OpConversionPattern<nn::IotaOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(nn::IotaOp op, OpAdaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    auto type = nn::getTensorType(op.getResult());
    Type elementType = type.getElementType();
    auto build = [&](OpBuilder &body, ValueRange,
                     SmallVectorImpl<Value> &results) {
      Value index = linalg::IndexOp::create(body, loc, op.getDim());
      bool isFloat = isa<FloatType>(elementType);
      index = arith::IndexCastOp::create(
          body, loc, isFloat ? body.getI64Type() : elementType, index);
      if (isFloat) {
        Type compute = nn::getComputeType(elementType);
        index = arith::SIToFPOp::create(body, loc, compute, index);
        index = convertNumber(body, loc, index, elementType);
      }
      results.push_back(index);
    };
    b.replaceOp(op, buildParallel(b, loc, TypeRange(type), {}, build));
    return success();
  }
};

struct ConvertReshape : OpConversionPattern<nn::ReshapeOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(nn::ReshapeOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    auto shape = nn::getTensorType(op.getResult()).getShape();
    b.replaceOp(op, reshapeTensor(b, op.getLoc(), adaptor.getInput(), shape));
    return success();
  }
};

struct Decompose : OpInterfaceConversionPattern<nn::DecomposableOpInterface> {
  using OpInterfaceConversionPattern::OpInterfaceConversionPattern;

  /// A decomposition holds simpler ops, which may decompose in turn.
  void initialize() { setHasBoundedRewriteRecursion(); }

  LogicalResult matchAndRewrite(nn::DecomposableOpInterface op, ArrayRef<Value>,
                                ConversionPatternRewriter &b) const override {
    FailureOr<SmallVector<Value>> values = op.decompose(b);
    if (failed(values))
      return failure();
    b.replaceOp(op, *values);
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct NNToLinalg : trainc::impl::NNToLinalgPassBase<NNToLinalg> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    patterns.add<ConvertReduce, ConvertMatmul, ConvertPointwise,
                 ConvertConstant, ConvertIota, ConvertReshape, Decompose>(
        context);
    ConversionTarget target(*context);
    target.addIllegalDialect<nn::NNDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
