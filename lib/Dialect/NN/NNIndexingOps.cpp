//===- NNIndexingOps.cpp - Slices, pads, gathers --------------------------===//
//
// The ops of NNShapeOps.td that choose elements by index. Each decomposes into
// one linalg.generic over the result that computes where its element comes
// from, so that it is one parallel nest of loops.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// Builds a tensor of `type`, `build` being given an element's indices.
static Value buildByIndex(
    OpBuilder &b, Location loc, RankedTensorType type,
    llvm::function_ref<Value(OpBuilder &, MutableArrayRef<Value>)> build) {
  Value empty =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  AffineMap identity = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(),
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, loc, type, ValueRange(), empty, identity, iterators,
      [&](OpBuilder &body, Location, ValueRange) {
        SmallVector<Value> indices;
        for (int64_t dim = 0; dim < type.getRank(); ++dim)
          indices.push_back(linalg::IndexOp::create(body, loc, dim));
        Value element = build(body, indices);
        linalg::YieldOp::create(body, loc, element);
      });
  return generic.getResult(0);
}

static Value indexConstant(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

/// `index` moved into [0, size).
static Value clampIndex(OpBuilder &b, Location loc, Value index, int64_t size) {
  index = arith::MaxSIOp::create(b, loc, index, indexConstant(b, loc, 0));
  return arith::MinSIOp::create(b, loc, index, indexConstant(b, loc, size - 1));
}

static bool isFloatTensor(Value value) {
  return isa<FloatType>(getTensorType(value).getElementType());
}

/// Whether both have one rank and equal sizes in all dimensions but `dim`.
static bool matchesExcept(RankedTensorType lhs, RankedTensorType rhs,
                          int64_t dim) {
  if (lhs.getRank() != rhs.getRank())
    return false;
  for (int64_t i = 0; i < lhs.getRank(); ++i)
    if (i != dim && lhs.getDimSize(i) != rhs.getDimSize(i))
      return false;
  return true;
}

//===----------------------------------------------------------------------===//
// SliceOp
//===----------------------------------------------------------------------===//

SmallVector<int64_t> SliceOp::getAllStrides() {
  if (getStrides())
    return SmallVector<int64_t>(*getStrides());
  return SmallVector<int64_t>(getSizes().size(), 1);
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *,
                                        std::optional<Location> loc,
                                        Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  for (int64_t size : adaptor.getSizes())
    if (size < 1)
      return emitOptionalError(
          loc, "'nn.slice' op expects sizes of at least 1 (C2), got ", size);
  types.push_back(RankedTensorType::get(
      adaptor.getSizes(), getTensorType(adaptor.getInput()).getElementType()));
  return success();
}

LogicalResult SliceOp::verify() {
  RankedTensorType input = getTensorType(getInput());
  size_t rank = input.getRank();
  SmallVector<int64_t> strides = getAllStrides();
  if (getOffsets().size() != rank || getSizes().size() != rank ||
      strides.size() != rank)
    return emitOpError(
               "expects one offset, size and stride per dimension (C1), "
               "got ")
           << getOffsets().size() << ", " << getSizes().size() << " and "
           << strides.size() << " for " << input;
  for (size_t i = 0; i < rank; ++i) {
    int64_t offset = getOffsets()[i], size = getSizes()[i];
    // Divides rather than multiplies, which might overflow.
    if (offset < 0 || strides[i] < 1 || offset >= input.getDimSize(i) ||
        size - 1 > (input.getDimSize(i) - 1 - offset) / strides[i])
      return emitOpError("expects elements within the input (C2), got offset ")
             << offset << ", size " << size << " and stride " << strides[i]
             << " in dimension " << i << " of " << input;
  }
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  // All elements along each dimension, in a slice that is valid.
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}

FailureOr<SmallVector<Value>> SliceOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  SmallVector<int64_t> strides = getAllStrides();
  Value result = buildByIndex(
      b, loc, getTensorType(getResult()),
      [&](OpBuilder &body, MutableArrayRef<Value> indices) -> Value {
        for (auto [i, index] : llvm::enumerate(indices)) {
          if (strides[i] != 1)
            index = arith::MulIOp::create(body, loc, index,
                                          indexConstant(body, loc, strides[i]));
          if (getOffsets()[i] != 0)
            index = arith::AddIOp::create(
                body, loc, index, indexConstant(body, loc, getOffsets()[i]));
        }
        return tensor::ExtractOp::create(body, loc, getInput(), indices);
      });
  return SmallVector<Value>{result};
}

LogicalResult SliceOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  if (!isFloatTensor(getInput()))
    return success();
  RankedTensorType input = getTensorType(getInput());
  SmallVector<int64_t> interior = getAllStrides(), high;
  for (auto [i, stride] : llvm::enumerate(interior)) {
    int64_t end = getOffsets()[i] + (getSizes()[i] - 1) * stride + 1;
    high.push_back(input.getDimSize(i) - end);
    stride = getSizes()[i] > 1 ? stride - 1 : 0;
  }
  bool dense = llvm::all_of(interior, [](int64_t gap) { return gap == 0; });
  operandGrads[0] = PadOp::create(
      b, getLoc(), resultGrads[0], getOffsets(), high,
      dense ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(interior),
      APFloat(0.0));
  return success();
}

//===----------------------------------------------------------------------===//
// PadOp
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> stepsOf(std::optional<ArrayRef<int64_t>> interior,
                                    size_t rank) {
  SmallVector<int64_t> steps(rank, 1);
  if (interior)
    for (size_t i = 0; i < rank; ++i)
      steps[i] += (*interior)[i];
  return steps;
}

SmallVector<int64_t> PadOp::getSteps() {
  return stepsOf(getInterior(), getLow().size());
}

LogicalResult PadOp::inferReturnTypes(MLIRContext *,
                                      std::optional<Location> loc,
                                      Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  size_t rank = input.getRank();
  std::optional<ArrayRef<int64_t>> interior = adaptor.getInterior();
  for (ArrayRef<int64_t> counts : {adaptor.getLow(), adaptor.getHigh(),
                                   interior.value_or(adaptor.getLow())})
    if (counts.size() != rank || llvm::any_of(counts, [](int64_t count) {
          return count < 0 || count > kMaxElements;
        }))
      return emitOptionalError(loc,
                               "'nn.pad' op expects one low, high and interior "
                               "of 0 to 2^40 per dimension (C1), "
                               "got [",
                               counts, "] for ", input);
  if (!isLegalTensor(input))
    return emitOptionalError(
        loc, "'nn.pad' op expects an input with elements (C2), got ", input);
  SmallVector<int64_t> steps = stepsOf(interior, rank), shape;
  for (size_t i = 0; i < rank; ++i) {
    int64_t between;
    if (__builtin_mul_overflow(input.getDimSize(i) - 1, steps[i], &between) ||
        between > kMaxElements)
      return emitOptionalError(
          loc,
          "'nn.pad' op expects a result of at most 2^40 elements (C2), got "
          "interior ",
          steps[i] - 1, " for ", input);
    shape.push_back(adaptor.getLow()[i] + between + 1 + adaptor.getHigh()[i]);
  }
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

LogicalResult PadOp::verify() {
  double value = getValue().convertToDouble();
  Type element = getTensorType(getInput()).getElementType();
  double limit = std::ldexp(1.0, element.getIntOrFloatBitWidth() - 1);
  if (!isFloatTensor(getInput()) &&
      (value != std::floor(value) || value < -limit || value >= limit))
    return emitOpError("expects a whole value for integers (C3), got ")
           << value;
  return success();
}

OpFoldResult PadOp::fold(FoldAdaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}

FailureOr<SmallVector<Value>> PadOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType input = getTensorType(getInput());
  RankedTensorType type = getTensorType(getResult());
  SmallVector<int64_t> steps = getSteps();
  Value border = splatConstant(b, loc, type.getElementType(),
                               getValue().convertToDouble());
  Value result = buildByIndex(
      b, loc, type,
      [&](OpBuilder &body, MutableArrayRef<Value> indices) -> Value {
        using P = arith::CmpIPredicate;
        Value inside;
        auto require = [&](P predicate, Value lhs, Value rhs) {
          Value holds = arith::CmpIOp::create(body, loc, predicate, lhs, rhs);
          inside =
              inside ? arith::AndIOp::create(body, loc, inside, holds) : holds;
        };
        for (auto [i, index] : llvm::enumerate(indices)) {
          int64_t size = input.getDimSize(i);
          if (type.getDimSize(i) == size)
            continue;
          Value zero = indexConstant(body, loc, 0);
          index = arith::SubIOp::create(body, loc, index,
                                        indexConstant(body, loc, getLow()[i]));
          require(P::sge, index, zero);
          if (steps[i] != 1) {
            Value step = indexConstant(body, loc, steps[i]);
            Value rest = arith::RemSIOp::create(body, loc, index, step);
            require(P::eq, rest, zero);
            index = arith::DivSIOp::create(body, loc, index, step);
          }
          require(P::slt, index, indexConstant(body, loc, size));
          index = clampIndex(body, loc, index, size);
        }
        Value element =
            tensor::ExtractOp::create(body, loc, getInput(), indices);
        if (!inside)
          return element;
        return arith::SelectOp::create(body, loc, inside, element, border);
      });
  return SmallVector<Value>{result};
}

LogicalResult PadOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  if (!isFloatTensor(getInput()))
    return success();
  RankedTensorType input = getTensorType(getInput());
  SmallVector<int64_t> strides = getSteps();
  bool dense =
      llvm::all_of(strides, [](int64_t stride) { return stride == 1; });
  operandGrads[0] = SliceOp::create(
      b, getLoc(), resultGrads[0], getLow(), input.getShape(),
      dense ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(strides));
  return success();
}

//===----------------------------------------------------------------------===//
// ConcatOp
//===----------------------------------------------------------------------===//

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  if (adaptor.getInputs().empty())
    return emitOptionalError(loc, "'nn.concat' op expects at least one input");
  RankedTensorType first = getTensorType(adaptor.getInputs()[0]);
  uint64_t dim = adaptor.getDim();
  if (dim >= static_cast<uint64_t>(first.getRank()))
    return emitOptionalError(
        loc, "'nn.concat' op expects a dim within the rank (C1), got ",
        static_cast<int64_t>(dim), " for ", first);
  SmallVector<int64_t> shape(first.getShape());
  shape[dim] = 0;
  for (Value input : adaptor.getInputs()) {
    RankedTensorType type = getTensorType(input);
    if (type.getElementType() != first.getElementType() ||
        !matchesExcept(type, first, dim))
      return emitOptionalError(loc,
                               "'nn.concat' op expects equal element types and "
                               "sizes but along dim (C2), got ",
                               first, " and ", type);
    shape[dim] += type.getDimSize(dim);
  }
  types.push_back(RankedTensorType::get(shape, first.getElementType()));
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getInputs().size() == 1)
    return getInputs()[0];
  return {};
}

FailureOr<SmallVector<Value>> ConcatOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  int64_t dim = getDim();
  RankedTensorType type = getTensorType(getResult());
  if (type.getNumElements() == 0) {
    Value empty =
        tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
    return SmallVector<Value>{empty};
  }
  Value result = buildByIndex(
      b, loc, type, [&](OpBuilder &body, MutableArrayRef<Value> indices) {
        // From the first input on, each later one replaces what is before it
        // from its offset on.
        Value index = indices[dim], element;
        int64_t offset = 0;
        for (Value input : getInputs()) {
          int64_t size = getTensorType(input).getDimSize(dim);
          if (size == 0)
            continue;
          Value start = indexConstant(body, loc, offset);
          indices[dim] = clampIndex(
              body, loc, arith::SubIOp::create(body, loc, index, start), size);
          Value next = tensor::ExtractOp::create(body, loc, input, indices);
          if (element) {
            Value reached = arith::CmpIOp::create(
                body, loc, arith::CmpIPredicate::sge, index, start);
            next = arith::SelectOp::create(body, loc, reached, next, element);
          }
          element = next;
          offset += size;
        }
        return element;
      });
  return SmallVector<Value>{result};
}

LogicalResult ConcatOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  if (!isFloatTensor(getResult()))
    return success();
  SmallVector<int64_t> offsets(getTensorType(getResult()).getRank(), 0);
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    RankedTensorType type = getTensorType(input);
    if (type.getNumElements() != 0)
      operandGrads[i] = SliceOp::create(b, getLoc(), resultGrads[0], offsets,
                                        type.getShape(), DenseI64ArrayAttr());
    offsets[getDim()] += type.getDimSize(getDim());
  }
  return success();
}

//===----------------------------------------------------------------------===//
// GatherOp and ScatterAddOp
//===----------------------------------------------------------------------===//

LogicalResult GatherOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  RankedTensorType indices = getTensorType(adaptor.getIndices());
  uint64_t dim = adaptor.getDim();
  if (dim >= static_cast<uint64_t>(input.getRank()))
    return emitOptionalError(
        loc, "'nn.gather' op expects a dim within the rank (C1), got ",
        static_cast<int64_t>(dim), " for ", input);
  if (!matchesExcept(input, indices, dim))
    return emitOptionalError(loc,
                             "'nn.gather' op expects equal sizes but along dim "
                             "(C2), got ",
                             input, " and ", indices);
  if (input.getNumElements() == 0)
    return emitOptionalError(
        loc, "'nn.gather' op expects an input with elements (C3), got ", input);
  types.push_back(indices.clone(input.getElementType()));
  return success();
}

FailureOr<SmallVector<Value>> GatherOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  int64_t dim = getDim();
  int64_t size = getTensorType(getInput()).getDimSize(dim);
  Value result = buildByIndex(
      b, loc, getTensorType(getResult()),
      [&](OpBuilder &body, MutableArrayRef<Value> indices) -> Value {
        Value index =
            tensor::ExtractOp::create(body, loc, getIndices(), indices);
        index =
            arith::IndexCastOp::create(body, loc, body.getIndexType(), index);
        indices[dim] = clampIndex(body, loc, index, size);
        return tensor::ExtractOp::create(body, loc, getInput(), indices);
      });
  return SmallVector<Value>{result};
}

LogicalResult GatherOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  if (isFloatTensor(getInput()))
    operandGrads[0] =
        ScatterAddOp::create(b, getLoc(), getInput().getType(), getIndices(),
                             resultGrads[0], getDim());
  return success();
}

LogicalResult ScatterAddOp::verify() {
  RankedTensorType indices = getTensorType(getIndices());
  RankedTensorType updates = getTensorType(getUpdates());
  RankedTensorType result = getTensorType(getResult());
  if (getDim() >= static_cast<uint64_t>(result.getRank()))
    return emitOpError("expects a dim within the rank (C1), got ")
           << static_cast<int64_t>(getDim()) << " for " << result;
  if (indices.getShape() != updates.getShape())
    return emitOpError("expects indices and updates of one shape (C2), got ")
           << indices << " and " << updates;
  if (!matchesExcept(updates, result, getDim()))
    return emitOpError("expects equal sizes but along dim (C3), got ")
           << updates << " and " << result;
  if (updates.getElementType() != result.getElementType())
    return emitOpError("expects equal element types (C4), got ")
           << updates << " and " << result;
  return success();
}

FailureOr<SmallVector<Value>> ScatterAddOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  int64_t dim = getDim();
  RankedTensorType result = getTensorType(getResult());
  // Shapes are those of the result with the updates' dimension k after dim.
  SmallVector<int64_t> shape(getTensorType(getUpdates()).getShape());
  shape.insert(shape.begin() + dim, 1);
  SmallVector<int64_t> iotaShape(shape.size(), 1);
  iotaShape[dim] = result.getDimSize(dim);

  bool isWide =
      result.getDimSize(dim) > std::numeric_limits<int32_t>::max() ||
      getTensorType(getIndices()).getElementType().getIntOrFloatBitWidth() > 32;
  Type indexType = isWide ? b.getI64Type() : b.getI32Type();
  auto number = [&](int64_t value) {
    return scalarConstant(b, loc, indexType, value);
  };
  Value indices = castTo(b, loc, getIndices(), indexType);
  indices = MaxOp::create(b, loc, indices, number(0));
  indices = MinOp::create(b, loc, indices, number(result.getDimSize(dim) - 1));
  Value place = IotaOp::create(
      b, loc, RankedTensorType::get(iotaShape, indexType), uint64_t(dim));
  Value isHere = CompareOp::create(b, loc, CompareKind::eq, place,
                                   reshapeTo(b, loc, indices, shape));
  Value zero = scalarConstant(b, loc, result.getElementType(), 0.0);
  Value terms = SelectOp::create(b, loc, isHere,
                                 reshapeTo(b, loc, getUpdates(), shape), zero);
  Value sum = ReduceOp::create(b, loc, ReduceKind::sum, terms, dim + 1, false);
  return SmallVector<Value>{sum};
}

LogicalResult
ScatterAddOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                             SmallVectorImpl<Value> &operandGrads) {
  if (isFloatTensor(getUpdates()))
    operandGrads[1] =
        GatherOp::create(b, getLoc(), resultGrads[0], getIndices(), getDim());
  return success();
}

//===----------------------------------------------------------------------===//
// PartOp
//===----------------------------------------------------------------------===//

LogicalResult PartOp::inferReturnTypes(MLIRContext *,
                                       std::optional<Location> loc,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  uint64_t dim = adaptor.getDim();
  if (dim >= static_cast<uint64_t>(input.getRank()))
    return emitOptionalError(
        loc, "'nn.part' op expects a dim within the rank (C1), got ",
        static_cast<int64_t>(dim), " for ", input);
  int64_t count = adaptor.getCount();
  if (count < 1 || input.getDimSize(dim) % count != 0)
    return emitOptionalError(loc,
                             "'nn.part' op expects a count of at least 1 that "
                             "divides the size along dim (C2), got ",
                             count, " for ", input);
  SmallVector<int64_t> shape(input.getShape());
  shape[dim] /= count;
  types.push_back(input.clone(shape));
  return success();
}

FailureOr<SmallVector<Value>> PartOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType type = getTensorType(getResult());
  Value result = buildByIndex(
      b, loc, type,
      [&](OpBuilder &body, MutableArrayRef<Value> indices) -> Value {
        Value part =
            tensor::ExtractOp::create(body, loc, getIndex(), ValueRange());
        part = arith::IndexCastOp::create(body, loc, body.getIndexType(), part);
        part = clampIndex(body, loc, part, getCount());
        Value first = arith::MulIOp::create(
            body, loc, part,
            indexConstant(body, loc, type.getDimSize(getDim())));
        Value &index = indices[getDim()];
        index = arith::AddIOp::create(body, loc, first, index);
        return tensor::ExtractOp::create(body, loc, getInput(), indices);
      });
  return SmallVector<Value>{result};
}

LogicalResult PartOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  if (!isFloatTensor(getInput()))
    return success();
  // Each part is the gradient where it is the one that was taken, else 0.
  Location loc = getLoc();
  RankedTensorType input = getTensorType(getInput());
  int64_t dim = getDim(), count = getCount();
  SmallVector<int64_t> shape(getTensorType(getResult()).getShape());
  shape.insert(shape.begin() + dim, 1);
  SmallVector<int64_t> parts(shape.size(), 1);
  parts[dim] = count;
  Type i64 = b.getI64Type();
  Value index =
      MaxOp::create(b, loc, getIndex(), scalarConstant(b, loc, i64, 0));
  index = MinOp::create(b, loc, index, scalarConstant(b, loc, i64, count - 1));
  Value part = IotaOp::create(b, loc, RankedTensorType::get(parts, i64),
                              static_cast<uint64_t>(dim));
  Value isHere = CompareOp::create(b, loc, CompareKind::eq, part, index);
  Value zero = scalarConstant(b, loc, input.getElementType(), 0.0);
  Value all = SelectOp::create(b, loc, isHere,
                               reshapeTo(b, loc, resultGrads[0], shape), zero);
  operandGrads[0] = reshapeTo(b, loc, all, input.getShape());
  return success();
}
