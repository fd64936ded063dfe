//===- Numerics.h - numerics.def as operations ------------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_NUMERICS_H
#define TRAINC_DIALECT_NN_NUMERICS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNBuilders.h"

namespace trainc {

#include "trainc/numerics.def"

namespace nn {

/// The arithmetic of numerics.def, and more, as `arith` and `math` operations on numbers
/// of one float type, or vectors of them.
struct Arithmetic {
  using Value = mlir::Value;
  using Order = mlir::arith::CmpFPredicate;

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type type;

  bool isF64() const { return mlir::getElementTypeOrSelf(type).isF64(); }

  Value number(double value) const {
    return splatConstant(b, loc, type, value);
  }
#define TRAINC_ARITHMETIC(name, Op)                                            \
  template <typename... Values> Value name(Values... values) const {           \
    return Op::create(b, loc, values...);                                      \
  }
  TRAINC_ARITHMETIC(add, mlir::arith::AddFOp)
  TRAINC_ARITHMETIC(sub, mlir::arith::SubFOp)
  TRAINC_ARITHMETIC(mul, mlir::arith::MulFOp)
  TRAINC_ARITHMETIC(div, mlir::arith::DivFOp)
  TRAINC_ARITHMETIC(neg, mlir::arith::NegFOp)
  TRAINC_ARITHMETIC(abs, mlir::math::AbsFOp)
  TRAINC_ARITHMETIC(fma, mlir::math::FmaOp) // x y + z, rounded once
  TRAINC_ARITHMETIC(floor, mlir::math::FloorOp)
  TRAINC_ARITHMETIC(ceil, mlir::math::CeilOp)
  TRAINC_ARITHMETIC(trunc, mlir::math::TruncOp)
  TRAINC_ARITHMETIC(roundEven, mlir::math::RoundEvenOp)
  TRAINC_ARITHMETIC(copySign, mlir::math::CopySignOp)
  TRAINC_ARITHMETIC(sqrt, mlir::math::SqrtOp)
  TRAINC_ARITHMETIC(exp, mlir::math::ExpOp)
  TRAINC_ARITHMETIC(log, mlir::math::LogOp)
  TRAINC_ARITHMETIC(tanh, mlir::math::TanhOp)
  TRAINC_ARITHMETIC(sin, mlir::math::SinOp)
  TRAINC_ARITHMETIC(cos, mlir::math::CosOp)
  TRAINC_ARITHMETIC(erf, mlir::math::ErfOp)
  TRAINC_ARITHMETIC(compare, mlir::arith::CmpFOp)
  TRAINC_ARITHMETIC(select, mlir::arith::SelectOp)
  TRAINC_ARITHMETIC(both, mlir::arith::AndIOp)
  TRAINC_ARITHMETIC(either, mlir::arith::OrIOp)
  TRAINC_ARITHMETIC(addInt, mlir::arith::AddIOp)
  TRAINC_ARITHMETIC(andInt, mlir::arith::AndIOp)
  TRAINC_ARITHMETIC(orInt, mlir::arith::OrIOp)
  TRAINC_ARITHMETIC(shiftLeft, mlir::arith::ShLIOp)
  TRAINC_ARITHMETIC(shiftRight, mlir::arith::ShRUIOp)
#undef TRAINC_ARITHMETIC

  /// Of f32 integers of 32 bits, of f64 of 64.
  mlir::Type integerType() const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(type);
    mlir::Type integer = b.getIntegerType(isF64() ? 64 : 32);
    return vector ? vector.clone(integer) : integer;
  }
  Value integer(int32_t value) const {
    return splatConstant(b, loc, integerType(), value);
  }
  Value toInt(Value x) const {
    return mlir::arith::FPToSIOp::create(b, loc, integerType(), x);
  }
  Value toFloat(Value x) const {
    return mlir::arith::SIToFPOp::create(b, loc, type, x);
  }
  Value bitsOf(Value x) const {
    return mlir::arith::BitcastOp::create(b, loc, integerType(), x);
  }
  Value fromBits(Value x) const {
    return mlir::arith::BitcastOp::create(b, loc, type, x);
  }
  Value equalInt(Value x, Value y) const {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::eq,
                                       x, y);
  }
};

} // namespace nn
} // namespace trainc

#endif // TRAINC_DIALECT_NN_NUMERICS_H
