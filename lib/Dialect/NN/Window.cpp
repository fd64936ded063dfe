//===- Window.cpp - Windows over planes -----------------------------------===//
#include "trainc/Dialect/NN/Window.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "trainc/Dialect/NN/NNBuilders.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Geometry
//===----------------------------------------------------------------------===//

FailureOr<Window> nn::makeWindow(std::optional<Location> loc, StringRef name,
                                 ArrayRef<int64_t> size,
                                 OptionalNumbers strides,
                                 ArrayRef<int64_t> defaultStrides,
                                 OptionalNumbers padding,
                                 OptionalNumbers dilations) {
  static constexpr int64_t ones[] = {1, 1}, zeros[] = {0, 0, 0, 0};
  auto check = [&](StringRef what, ArrayRef<int64_t> numbers, size_t count,
                   int64_t least) -> LogicalResult {
    if (numbers.size() == count && llvm::all_of(numbers, [&](int64_t number) {
          return number >= least && number <= INT32_MAX;
        }))
      return success();
    return emitOptionalError(loc, "'", name, "' op expects ", what, " of ",
                             count, " numbers of at least ", least,
                             " and below 2^31 (C2), got [", numbers, "]");
  };
  ArrayRef<int64_t> stride = strides.value_or(defaultStrides);
  ArrayRef<int64_t> pad = padding.value_or(zeros);
  ArrayRef<int64_t> dilation = dilations.value_or(ones);
  if (failed(check("a window", size, 2, 1)) ||
      failed(check("strides", stride, 2, 1)) ||
      failed(check("padding", pad, 4, 0)) ||
      failed(check("dilations", dilation, 2, 1)))
    return failure();
  return Window{{size[0], size[1]},
                {stride[0], stride[1]},
                {pad[0], pad[2]},
                {pad[1], pad[3]},
                {dilation[0], dilation[1]}};
}

FailureOr<Window::Pair> nn::outputSizes(std::optional<Location> loc,
                                        StringRef name, const Window &window,
                                        RankedTensorType input) {
  if (input.getRank() != 4 || llvm::is_contained(input.getShape(), 0))
    return emitOptionalError(loc, "'", name,
                             "' op expects an input of rank 4 without a size "
                             "0 (C1), got ",
                             input);
  Window::Pair result;
  for (int64_t d = 0; d < 2; ++d) {
    __int128 span = __int128(window.dilation[d]) * (window.size[d] - 1) + 1;
    __int128 room =
        __int128(input.getDimSize(2 + d)) + window.low[d] + window.high[d];
    if (span > room)
      return emitOptionalError(
          loc, "'", name,
          "' op expects a window that fits into the padded "
          "input (C3), got ",
          int64_t(span), " elements in ", int64_t(room), " along dimension ",
          2 + d, " of ", input);
    result[d] = int64_t((room - span) / window.stride[d]) + 1;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

static Value indexConstant(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

static Value addConstant(ImplicitLocOpBuilder &b, Value value, int64_t number) {
  if (number == 0)
    return value;
  return arith::AddIOp::create(b, value, indexConstant(b, number));
}

static Value timesConstant(ImplicitLocOpBuilder &b, Value value,
                           int64_t number) {
  if (number == 1)
    return value;
  return arith::MulIOp::create(b, value, indexConstant(b, number));
}

static Value compare(ImplicitLocOpBuilder &b, arith::CmpIPredicate predicate,
                     Value value, int64_t number) {
  return arith::CmpIOp::create(b, predicate, value, indexConstant(b, number));
}

static Value clamp(ImplicitLocOpBuilder &b, Value index, int64_t size) {
  index = arith::MaxSIOp::create(b, index, indexConstant(b, 0));
  return arith::MinSIOp::create(b, index, indexConstant(b, size - 1));
}

Place nn::inputPlace(ImplicitLocOpBuilder &b, const Window &window, int64_t d,
                     Value output, Value k, int64_t size) {
  Value index =
      arith::AddIOp::create(b, timesConstant(b, output, window.stride[d]),
                            timesConstant(b, k, window.dilation[d]));
  if (!window.isPadded(d))
    return {index, Value()};
  index = addConstant(b, index, -window.low[d]);
  Value valid =
      arith::AndIOp::create(b, compare(b, arith::CmpIPredicate::sge, index, 0),
                            compare(b, arith::CmpIPredicate::slt, index, size));
  return {clamp(b, index, size), valid};
}

Place nn::outputPlace(ImplicitLocOpBuilder &b, const Window &window, int64_t d,
                      Value input, Value k, int64_t size) {
  Value index = arith::SubIOp::create(b, addConstant(b, input, window.low[d]),
                                      timesConstant(b, k, window.dilation[d]));
  Value valid = compare(b, arith::CmpIPredicate::sge, index, 0);
  if (window.stride[d] != 1) {
    Value stride = indexConstant(b, window.stride[d]);
    Value rest = arith::RemSIOp::create(b, index, stride);
    valid = arith::AndIOp::create(
        b, valid, compare(b, arith::CmpIPredicate::eq, rest, 0));
    index = arith::DivSIOp::create(b, index, stride);
  }
  valid = arith::AndIOp::create(
      b, valid, compare(b, arith::CmpIPredicate::slt, index, size));
  return {clamp(b, index, size), valid};
}

Value nn::bothValid(ImplicitLocOpBuilder &b, Place h, Place w) {
  if (!h.valid || !w.valid)
    return h.valid ? h.valid : w.valid;
  return arith::AndIOp::create(b, h.valid, w.valid);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

SmallVector<Value>
nn::loopOverWindow(ImplicitLocOpBuilder &b, const Window &window,
                   ValueRange values,
                   function_ref<SmallVector<Value>(ImplicitLocOpBuilder &,
                                                   Value, Value, ValueRange)>
                       body) {
  Value zero = indexConstant(b, 0), one = indexConstant(b, 1);
  auto rows = scf::ForOp::create(
      b, zero, indexConstant(b, window.size[0]), one, values,
      [&](OpBuilder &rowBuilder, Location loc, Value i, ValueRange values) {
        ImplicitLocOpBuilder b(loc, rowBuilder);
        auto columns = scf::ForOp::create(
            b, zero, indexConstant(b, window.size[1]), one, values,
            [&](OpBuilder &inner, Location loc, Value j, ValueRange values) {
              ImplicitLocOpBuilder b(loc, inner);
              scf::YieldOp::create(b, body(b, i, j, values));
            });
        scf::YieldOp::create(b, columns.getResults());
      });
  return SmallVector<Value>(rows.getResults());
}

SmallVector<Value> nn::buildElements(
    OpBuilder &builder, Location loc, TypeRange types,
    function_ref<SmallVector<Value>(ImplicitLocOpBuilder &, ValueRange)> body) {
  SmallVector<Value> targets;
  for (Type type : types) {
    auto tensorType = cast<RankedTensorType>(type);
    targets.push_back(tensor::EmptyOp::create(
        builder, loc, tensorType.getShape(), tensorType.getElementType()));
  }
  int64_t rank = getTensorType(targets[0]).getRank();
  SmallVector<AffineMap> maps(types.size(),
                              builder.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, loc, types, ValueRange(), targets, maps, loops,
      [&](OpBuilder &inner, Location loc, ValueRange) {
        ImplicitLocOpBuilder b(loc, inner);
        SmallVector<Value> indices;
        for (int64_t i = 0; i < rank; ++i)
          indices.push_back(linalg::IndexOp::create(b, i));
        SmallVector<Value> elements = body(b, indices);
        for (auto [element, type] : llvm::zip_equal(elements, types)) {
          Type elementType = getElementTypeOrSelf(type);
          if (element.getType() != elementType)
            element = arith::TruncFOp::create(b, elementType, element);
        }
        linalg::YieldOp::create(b, elements);
      });
  return SmallVector<Value>(generic.getResults());
}

Value nn::loadElement(ImplicitLocOpBuilder &b, Value tensor,
                      ValueRange indices) {
  Value element = tensor::ExtractOp::create(b, tensor, indices);
  Type compute = getComputeType(element.getType());
  if (element.getType() == compute)
    return element;
  return arith::ExtFOp::create(b, compute, element);
}

Value nn::loadOrZero(ImplicitLocOpBuilder &b, Value tensor, ValueRange indices,
                     Value valid) {
  Value element = loadElement(b, tensor, indices);
  if (!valid)
    return element;
  Value zero = splatConstant(b, b.getLoc(), element.getType(), 0.0);
  return arith::SelectOp::create(b, valid, element, zero);
}
