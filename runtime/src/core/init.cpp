//===- init.cpp - Initial values ------------------------------------------===//
//
// Only +, -, *, / and sqrt of IEEE doubles are used, and this file is compiled
// without contraction to fused operations, so every machine gets the same bits.
//
//===----------------------------------------------------------------------===//

#include "core/init.h"
#include "core/convert.h"
#include "core/hash.h"
#include "trainc/runtime.h"
#include <string.h>

using namespace trainc;

namespace {
#include "trainc/numerics.def"

/// The arithmetic of numerics::philox.
struct Words {
  uint64_t mul(uint64_t x, uint32_t factor) const { return x * factor; }
  uint64_t high(uint64_t x) const { return x >> 32; }
  uint64_t low(uint64_t x) const { return static_cast<uint32_t>(x); }
  uint64_t add(uint64_t x, uint32_t term) const { return low(x + term); }
  uint64_t bitXor(uint64_t x, uint64_t y) const { return x ^ y; }
};
} // namespace

static double pinnedLog(double x) {
  uint64_t bits = bitCast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = bitCast<double>((bits & UINT64_C(0xFFFFFFFFFFFFF)) |
                             UINT64_C(0x3FF0000000000000));
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    ++exponent;
  }
  double s = (m - 1.0) / (m + 1.0);
  double square = s * s;
  double sum = 1.0 / 23.0;
  for (int n = 21; n >= 1; n -= 2)
    sum = sum * square + 1.0 / n;
  return exponent * 0.6931471805599453 + 2.0 * s * sum;
}

/// Polynomial with coefficients from the lowest power up.
static double polynomial(const double (&c)[8], double x) {
  double sum = c[7];
  for (int i = 6; i >= 0; --i)
    sum = sum * x + c[i];
  return sum;
}

/// AS 241, PPND16.
static double inverseNormal(double p) {
  static const double a[8] = {
      3.3871328727963666080e0,  1.3314166789178437745e+2,
      1.9715909503065514427e+3, 1.3731693765509461125e+4,
      4.5921953931549871457e+4, 6.7265770927008700853e+4,
      3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static const double b[8] = {1.0,
                              4.2313330701600911252e+1,
                              6.8718700749205790830e+2,
                              5.3941960214247511077e+3,
                              2.1213794301586595867e+4,
                              3.9307895800092710610e+4,
                              2.8729085735721942674e+4,
                              5.2264952788528545610e+3};
  static const double c[8] = {
      1.42343711074968357734e0,  4.63033784615654529590e0,
      5.76949722146069140550e0,  3.64784832476320460504e0,
      1.27045825245236838258e0,  2.41780725177450611770e-1,
      2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static const double d[8] = {1.0,
                              2.05319162663775882187e0,
                              1.67638483018380384940e0,
                              6.89767334985100004550e-1,
                              1.48103976427480074590e-1,
                              1.51986665636164571966e-2,
                              5.47593808499534494600e-4,
                              1.05075007164441684324e-9};
  static const double e[8] = {
      6.65790464350110377720e0,  5.46378491116411436990e0,
      1.78482653991729133580e0,  2.96560571828504891230e-1,
      2.65321895265761230930e-2, 1.24266094738807843860e-3,
      2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static const double f[8] = {1.0,
                              5.99832206555887937690e-1,
                              1.36929880922735805310e-1,
                              1.48753612908506148525e-2,
                              7.86869131145613259100e-4,
                              1.84631831751005468180e-5,
                              1.42151175831644588870e-7,
                              2.04426310338993978564e-15};
  double q = p - 0.5;
  if (__builtin_fabs(q) <= 0.425) {
    double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  double r = __builtin_sqrt(-pinnedLog(q < 0 ? p : 1.0 - p));
  double z = r <= 5.0 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                      : polynomial(e, r - 5.0) / polynomial(f, r - 5.0);
  return q < 0 ? -z : z;
}

static double draw(const trainc_tensor &tensor, double u) {
  constexpr double below = 0.022750131948179207; // P(z < -2)
  switch (tensor.init) {
  case TRAINC_INIT_UNIFORM:
    return tensor.init_a + (tensor.init_b - tensor.init_a) * u;
  case TRAINC_INIT_NORMAL:
    return tensor.init_a + tensor.init_b * inverseNormal(u);
  default:
    return tensor.init_a +
           tensor.init_b * inverseNormal(below + (1.0 - 2.0 * below) * u);
  }
}

bool trainc::startsAsZeros(const trainc_tensor &tensor) {
  return tensor.init == TRAINC_INIT_CONSTANT && tensor.init_a == 0.0 &&
         !__builtin_signbit(tensor.init_a);
}

void trainc::initialize(const trainc_tensor &tensor, uint64_t seed, void *data,
                        uint64_t begin, uint64_t end) {
  uint64_t size = trainc_dtype_size(tensor.dtype);
  if (tensor.init == TRAINC_INIT_DATA) {
    memcpy(data, static_cast<const char *>(tensor.init_data) + begin * size,
           (end - begin) * size);
    return;
  }
  if (tensor.init == TRAINC_INIT_CONSTANT) {
    for (uint64_t i = begin; i < end; ++i)
      storeElement(tensor.dtype, data, i - begin, tensor.init_a);
    return;
  }
  uint64_t hash = hashBytes(hashStart, tensor.name, strlen(tensor.name));
  constexpr Words w;
  uint64_t r[4] = {};
  for (uint64_t i = begin; i < end; ++i) {
    if (i == begin || i % 2 == 0) {
      uint64_t counter[] = {w.low(i / 2), w.high(i / 2), w.low(hash),
                            w.high(hash)};
      numerics::philox(w, counter, w.low(seed), w.high(seed));
      memcpy(r, counter, sizeof r);
    }
    uint64_t bits = i % 2 == 0 ? r[0] | r[1] << 32 : r[2] | r[3] << 32;
    double u = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
    storeElement(tensor.dtype, data, i - begin, draw(tensor, u));
  }
}
