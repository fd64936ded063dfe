//===- gelu.h - Gelu and its slope ------------------------------*- C++ -*-===//
//
// The bits of the compiler's own kernels: nn.gelu `tanh` and its gradient
// (NNPointwiseMath.cpp), with MLIR's polynomials for tanh
// (test/Integration/gelu-epilogues.py compares). For one number or a vector of
// them. Local to the file that includes it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_GELU_H
#define TRAINC_CPU_GELU_H

namespace {

template <typename V> V fma(V x, V y, V z) {
  return __builtin_elementwise_fma(x, y, z);
}
/// x c0 + c1, (x c0 + c1) x + c2, and so on.
template <typename V, typename... Coefficients>
V polynomial(V x, V sum, Coefficients... rest) {
  ((sum = fma(x, sum, V{} + rest)), ...);
  return sum;
}

/// A quotient of polynomials of degrees 13 and 6 in [-8, 8], the argument itself
/// near 0: as in Eigen's generic_fast_tanh_float.
template <typename V> V tanhOf(V argument) {
  constexpr float bound = 7.99881172180175781f, tiny = 0.0004f;
  V x = argument >= V{} + bound ? V{} + bound : argument;
  x = x <= V{} - bound ? V{} - bound : x;
  V square = x * x;
  V upper = x * polynomial(square, V{} - 2.76076847742355e-16f,
                           2.00018790482477e-13f, -8.60467152213735e-11f,
                           5.12229709037114e-08f, 1.48572235717979e-05f,
                           6.37261928875436e-04f, 4.89352455891786e-03f);
  V lower =
      polynomial(square, V{} + 1.19825839466702e-06f, 1.18534705686654e-04f,
                 2.26843463243900e-03f, 4.89352518554385e-03f);
  return __builtin_elementwise_abs(argument) < V{} + tiny ? x : upper / lower;
}

constexpr double sqrtTwoOverPi = 0.79788456080286535588, geluCubic = 0.044715;

/// tanh(sqrt(2/pi) (x + 0.044715 x^3)).
template <typename V> V geluTanh(V x) {
  V factor = fma(x * x, V{} + static_cast<float>(sqrtTwoOverPi * geluCubic),
                 V{} + static_cast<float>(sqrtTwoOverPi));
  return tanhOf(x * factor);
}

/// x/2 (1 + t), t as above.
template <typename V> V gelu(V x, V t) {
  V half = x * 0.5f;
  return fma(half, t, half);
}
template <typename V> V gelu(V x) { return gelu(x, geluTanh(x)); }

/// The derivative of gelu, (1 + t)/2 + x t'/2.
template <typename V> V geluSlope(V x, V t) {
  V half = V{} + 0.5f;
  V inner = fma(x * x, V{} + static_cast<float>(3 * sqrtTwoOverPi * geluCubic),
                V{} + static_cast<float>(sqrtTwoOverPi));
  V slope = fma(-t, t, V{} + 1.0f) * inner;
  return fma(half * x, slope, fma(half, t, half));
}
template <typename V> V geluSlope(V x) { return geluSlope(x, geluTanh(x)); }

} // namespace

#endif // TRAINC_CPU_GELU_H
