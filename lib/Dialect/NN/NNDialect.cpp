//===- NNDialect.cpp - The nn dialect and what its ops share --------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectImplementation.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/APSInt.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;

#include "trainc/Dialect/NN/NNDialect.cpp.inc"
#include "trainc/Dialect/NN/NNEnums.cpp.inc"
#include "trainc/Dialect/NN/NNInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "trainc/Dialect/NN/NNOps.cpp.inc"

void nn::NNDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "trainc/Dialect/NN/NNOps.cpp.inc"
      >();
}

Operation *nn::NNDialect::materializeConstant(OpBuilder &builder,
                                              Attribute value, Type type,
                                              Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  if (!elements || elements.getType() != type)
    return nullptr;
  return nn::ConstantOp::create(builder, loc, type, elements);
}

bool nn::isLegalTensor(Type type) {
  auto tensor = dyn_cast_or_null<RankedTensorType>(type);
  if (!tensor || tensor.getEncoding())
    return false;
  int64_t room = kMaxElements;
  for (int64_t size : tensor.getShape()) {
    if (size < 1 || size > room) // a dynamic size is negative
      return false;
    room /= size;
  }
  return true;
}

bool nn::isLegalElement(Type type) {
  return type.isF64() || type.isF32() || type.isBF16() || type.isF16() ||
         type.isSignlessInteger(1) || type.isSignlessInteger(8) ||
         type.isSignlessInteger(16) || type.isSignlessInteger(32) ||
         type.isSignlessInteger(64);
}

bool nn::isElements(Attribute value) {
  auto resource = dyn_cast<DenseResourceElementsAttr>(value);
  if (!resource)
    return isa<DenseElementsAttr, SparseElementsAttr>(value);
  ShapedType type = resource.getType();
  return isLegalTensor(type) && isLegalElement(type.getElementType()) &&
         static_cast<int64_t>(resource.getData().size()) == countBytes(type);
}

DenseElementsAttr nn::getDense(Attribute value) {
  if (!isElements(value))
    return {};
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    ShapedType type = resource.getType();
    ArrayRef<char> bytes = resource.getData();
    if (!type.getElementType().isInteger(1))
      return DenseElementsAttr::getFromRawBuffer(type, bytes);
    return DenseElementsAttr::get(
        type, SmallVector<bool>(bytes.begin(), bytes.end()));
  }
  if (auto sparse = dyn_cast<SparseElementsAttr>(value)) {
    if (isa<FloatType>(sparse.getElementType()))
      return DenseElementsAttr::get(
          sparse.getType(), llvm::to_vector(sparse.getValues<APFloat>()));
    return DenseElementsAttr::get(sparse.getType(),
                                  llvm::to_vector(sparse.getValues<APInt>()));
  }
  return cast<DenseElementsAttr>(value);
}

int64_t nn::getElementBytes(Type type) {
  return llvm::divideCeil(type.getIntOrFloatBitWidth(), 8);
}

int64_t nn::countBytes(ShapedType type) {
  return type.getNumElements() * getElementBytes(type.getElementType());
}

int64_t nn::countBytes(Value value) {
  return countBytes(cast<ShapedType>(value.getType()));
}

int64_t nn::countBytes(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values)
    if (auto type = dyn_cast<ShapedType>(value.getType()))
      bytes += countBytes(type);
  return bytes;
}

Type nn::getComputeType(Type type) {
  if (type.isBF16() || type.isF16())
    return Float32Type::get(type.getContext());
  return type;
}

static TypedAttr numberAttr(Type elementType, double value) {
  if (auto floatType = dyn_cast<FloatType>(elementType))
    return FloatAttr::get(floatType, value);
  // 2^63, which an integer of 64 bits may have been rounded to, becomes 2^63 - 1.
  llvm::APSInt whole(64, /*isUnsigned=*/false);
  bool exact;
  llvm::APFloat(value).convertToInteger(whole, llvm::APFloat::rmTowardZero,
                                        &exact);
  return IntegerAttr::get(elementType, whole.getExtValue());
}

Value nn::splatConstant(OpBuilder &builder, Location loc, Type type,
                        double value) {
  TypedAttr number = numberAttr(getElementTypeOrSelf(type), value);
  if (auto shaped = dyn_cast<ShapedType>(type))
    number = DenseElementsAttr::get(shaped, Attribute(number));
  return arith::ConstantOp::create(builder, loc, number);
}

Value nn::guardDivisor(OpBuilder &b, Location loc, Value lhs, Value rhs,
                       bool isSigned) {
  Type type = rhs.getType();
  auto isNumber = [&](Value value, double number) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, value,
                                 splatConstant(b, loc, type, number));
  };
  Value isBad = isNumber(rhs, 0);
  if (isSigned) {
    unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    double least = -std::ldexp(1.0, static_cast<int>(width) - 1);
    Value isMinusOne = isNumber(rhs, -1), isLeast = isNumber(lhs, least);
    Value overflows = arith::AndIOp::create(b, loc, isMinusOne, isLeast);
    isBad = arith::OrIOp::create(b, loc, isBad, overflows);
  }
  Value one = splatConstant(b, loc, type, 1);
  return arith::SelectOp::create(b, loc, isBad, one, rhs);
}

Value nn::scalarConstant(OpBuilder &builder, Location loc, Type elementType,
                         double value) {
  auto type = RankedTensorType::get({}, elementType);
  auto elements =
      DenseElementsAttr::get(type, Attribute(numberAttr(elementType, value)));
  return nn::ConstantOp::create(builder, loc, type, elements);
}

FailureOr<SmallVector<int64_t>>
nn::broadcastShapes(ArrayRef<ArrayRef<int64_t>> shapes) {
  size_t rank = 0;
  for (ArrayRef<int64_t> shape : shapes)
    rank = std::max(rank, shape.size());
  SmallVector<int64_t> result(rank, 1);
  for (ArrayRef<int64_t> shape : shapes) {
    size_t offset = rank - shape.size();
    for (auto [i, size] : llvm::enumerate(shape)) {
      int64_t &out = result[offset + i];
      if (size == out || size == 1)
        continue;
      if (out != 1)
        return failure();
      out = size;
    }
  }
  return result;
}

Value nn::castTo(OpBuilder &builder, Location loc, Value value,
                 Type elementType) {
  if (getTensorType(value).getElementType() == elementType)
    return value;
  return nn::CastOp::create(builder, loc, value, elementType);
}

Value nn::castUnrounded(OpBuilder &builder, Location loc, Value value,
                        Type elementType) {
  if (getTensorType(value).getElementType() == elementType)
    return value;
  return nn::CastOp::create(builder, loc, value, elementType,
                            /*unrounded=*/true);
}

Value nn::getUnwidened(CastOp cast) {
  auto producer = cast.getInput().getDefiningOp<CastOp>();
  if (!producer)
    return {};
  auto narrow =
      dyn_cast<FloatType>(getTensorType(producer.getInput()).getElementType());
  auto wide = dyn_cast<FloatType>(producer.getType());
  bool isBack =
      narrow == cast.getType() && wide && narrow.getWidth() < wide.getWidth();
  return isBack ? producer.getInput() : Value();
}

Value nn::reshapeTo(OpBuilder &builder, Location loc, Value value,
                    ArrayRef<int64_t> shape) {
  RankedTensorType type = getTensorType(value);
  if (type.getShape() == shape)
    return value;
  return nn::ReshapeOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()), value);
}

Value nn::sumToShape(OpBuilder &builder, Location loc, Value value,
                     ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = getTensorType(value).getShape();
  if (from == shape)
    return value;
  SmallVector<int64_t> dims;
  size_t offset = from.size() - shape.size();
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1 && (i < offset || shape[i - offset] == 1))
      dims.push_back(i);
  if (!dims.empty())
    value = nn::ReduceOp::create(builder, loc, nn::ReduceKind::sum, value, dims,
                                 /*keep=*/true);
  return reshapeTo(builder, loc, value, shape);
}
