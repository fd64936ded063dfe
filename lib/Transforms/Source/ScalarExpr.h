//===- ScalarExpr.h - Scalar formulas as expressions ------------*- C++ -*-===//
//
// Lets the formulas of optimizers and schedules read as such: a Scalar is a
// value of float or i1 type, its operators build arith and math ops where the
// builder stands. A number on either side becomes a constant of the other's
// type.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_TRANSFORMS_SOURCE_SCALAREXPR_H
#define TRAINC_LIB_TRANSFORMS_SOURCE_SCALAREXPR_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::train {

struct Scalar {
  mlir::ImplicitLocOpBuilder *builder;
  mlir::Value value;

  mlir::Type type() const { return value.getType(); }
  Scalar constant(double number) const {
    return {builder, mlir::arith::ConstantOp::create(
                         *builder, builder->getFloatAttr(type(), number))};
  }
  /// The value extended or rounded to `type`.
  Scalar as(mlir::Type to) const {
    if (to == type())
      return *this;
    if (to.getIntOrFloatBitWidth() > type().getIntOrFloatBitWidth())
      return {builder, mlir::arith::ExtFOp::create(*builder, to, value)};
    return {builder, mlir::arith::TruncFOp::create(*builder, to, value)};
  }
};

template <typename Op> Scalar apply(Scalar a, Scalar b) {
  return {a.builder, Op::create(*a.builder, a.value, b.value)};
}
template <typename Op> Scalar apply(Scalar a) {
  return {a.builder, Op::create(*a.builder, a.value)};
}

#define TRAINC_SCALAR_BINARY(NAME, OP)                                         \
  inline Scalar NAME(Scalar a, Scalar b) { return apply<OP>(a, b); }           \
  inline Scalar NAME(Scalar a, double b) { return NAME(a, a.constant(b)); }    \
  inline Scalar NAME(double a, Scalar b) { return NAME(b.constant(a), b); }
TRAINC_SCALAR_BINARY(operator+, mlir::arith::AddFOp)
TRAINC_SCALAR_BINARY(operator-, mlir::arith::SubFOp)
TRAINC_SCALAR_BINARY(operator*, mlir::arith::MulFOp)
TRAINC_SCALAR_BINARY(operator/, mlir::arith::DivFOp)
TRAINC_SCALAR_BINARY(max, mlir::arith::MaximumFOp)
TRAINC_SCALAR_BINARY(min, mlir::arith::MinimumFOp)
TRAINC_SCALAR_BINARY(pow, mlir::math::PowFOp)
#undef TRAINC_SCALAR_BINARY

inline Scalar operator-(Scalar a) { return apply<mlir::arith::NegFOp>(a); }
inline Scalar sqrt(Scalar a) { return apply<mlir::math::SqrtOp>(a); }
inline Scalar abs(Scalar a) { return apply<mlir::math::AbsFOp>(a); }
inline Scalar cos(Scalar a) { return apply<mlir::math::CosOp>(a); }
inline Scalar floor(Scalar a) { return apply<mlir::math::FloorOp>(a); }

/// a * b + c, rounded once.
inline Scalar fma(Scalar a, Scalar b, Scalar c) {
  return {a.builder,
          mlir::math::FmaOp::create(*a.builder, a.value, b.value, c.value)};
}

#define TRAINC_SCALAR_COMPARE(NAME, PREDICATE)                                 \
  inline Scalar NAME(Scalar a, Scalar b) {                                     \
    return {a.builder, mlir::arith::CmpFOp::create(                            \
                           *a.builder, mlir::arith::CmpFPredicate::PREDICATE,  \
                           a.value, b.value)};                                 \
  }                                                                            \
  inline Scalar NAME(Scalar a, double b) { return NAME(a, a.constant(b)); }
TRAINC_SCALAR_COMPARE(operator<, OLT)
TRAINC_SCALAR_COMPARE(operator<=, OLE)
TRAINC_SCALAR_COMPARE(operator>, OGT)
TRAINC_SCALAR_COMPARE(operator>=, OGE)
TRAINC_SCALAR_COMPARE(operator==, OEQ)
#undef TRAINC_SCALAR_COMPARE

inline Scalar operator||(Scalar a, Scalar b) {
  return apply<mlir::arith::OrIOp>(a, b);
}

inline Scalar select(Scalar condition, Scalar a, Scalar b) {
  return {a.builder, mlir::arith::SelectOp::create(*a.builder, condition.value,
                                                   a.value, b.value)};
}
inline Scalar select(Scalar condition, double a, Scalar b) {
  return select(condition, b.constant(a), b);
}
inline Scalar select(Scalar condition, Scalar a, double b) {
  return select(condition, a, a.constant(b));
}

} // namespace trainc::train

#endif // TRAINC_LIB_TRANSFORMS_SOURCE_SCALAREXPR_H
