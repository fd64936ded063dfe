//===- gelu.h - Gelu and its derivative -------------------------*- C++ -*-===//
//
// The definitions of numerics.def, which the compiler's own kernels have, too, for one
// f32 number or a vector of them. Local to the file that includes it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_GELU_H
#define TRAINC_CPU_GELU_H

namespace {
#include "trainc/numerics.def"

/// What numerics.def asks of arithmetic for tanh and gelu.
template <typename V> struct Arithmetic {
  enum class Order { OLT, UGT, ULT };

  V number(double x) const { return V{} + static_cast<float>(x); }
  V add(V x, V y) const { return x + y; }
  V mul(V x, V y) const { return x * y; }
  V div(V x, V y) const { return x / y; }
  V neg(V x) const { return -x; }
  V abs(V x) const { return __builtin_elementwise_abs(x); }
  V fma(V x, V y, V z) const { return __builtin_elementwise_fma(x, y, z); }
  auto compare(Order order, V x, V y) const {
    return order == Order::OLT   ? x < y
           : order == Order::UGT ? (x <= y) == 0
                                 : (x >= y) == 0;
  }
  template <typename Condition> V select(Condition condition, V x, V y) const {
    return condition ? x : y;
  }
  V tanh(V x) const { return numerics::f32::tanh(*this, x); }
};

/// tanh(sqrt(2/pi) (x + 0.044715 x^3)).
template <typename V> V geluTanh(V x) {
  return numerics::geluTanh(Arithmetic<V>(), x);
}

/// Gelu of x, of which t is as above.
template <typename V> V gelu(V x, V t) {
  return numerics::gelu(Arithmetic<V>(), x, t);
}
template <typename V> V gelu(V x) { return gelu(x, geluTanh(x)); }

/// The derivative of gelu.
template <typename V> V geluSlope(V x, V t) {
  return numerics::geluDerivative(Arithmetic<V>(), x, t);
}
template <typename V> V geluSlope(V x) { return geluSlope(x, geluTanh(x)); }

} // namespace

#endif // TRAINC_CPU_GELU_H
