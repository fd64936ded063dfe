//===- kernels.cpp - The runtime's own loops, per processor level ---------===//
//
// Compiled several times, with TRAINC_LEVEL 2, 3 or 4 and
// -march=x86-64-v<level>. Everything here is local to the file: an inline
// function shared with the other files could be linked in the version of the
// wrong level.
//
//===----------------------------------------------------------------------===//

#include "cpu/kernels.h"
#include "cpu/sgemm.h"

namespace {

inline uint32_t bitsOf(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
inline float floatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// The conversions of core/convert.h, in forms that vectorize.
inline float widenBf16(uint16_t half) {
  return floatOf(static_cast<uint32_t>(half) << 16);
}
inline uint16_t narrowBf16(float value) {
  uint32_t bits = bitsOf(value);
  uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? nan
                                                                : rounded);
}
inline float widenF16(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7FFF;
  uint32_t special = 0x7F800000 | (magnitude & 0x3FF) << 13 |
                     (magnitude > 0x7C00 ? 0x400000u : 0u);
  uint32_t finite = bitsOf(floatOf(magnitude << 13) * 0x1p112f);
  return floatOf(sign | (magnitude >= 0x7C00 ? special : finite));
}
inline uint16_t narrowF16(float value) {
  uint32_t bits = bitsOf(value);
  uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t normal =
      (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  uint32_t denormal = bitsOf(floatOf(magnitude) + 0.5f) - 0x3F000000;
  uint32_t nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  uint32_t result = magnitude < 0x38800000 ? denormal : normal;
  result = magnitude >= 0x477FF000 ? 0x7C00 : result;
  result = magnitude > 0x7F800000 ? nan : result;
  return static_cast<uint16_t>(sign | result);
}

template <float (*Widen)(uint16_t)>
void widenRows(int64_t rows, int64_t columns, const uint16_t *from, int64_t ld,
               float *to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * columns + j] = Widen(from[i * ld + j]);
}

template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
void narrowRows(int64_t rows, int64_t columns, const float *from,
                const uint16_t *bias, uint16_t *to, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i) {
    if (bias)
      for (int64_t j = 0; j < columns; ++j)
        to[i * ld + j] = Narrow(from[i * columns + j] + Widen(bias[j]));
    else
      for (int64_t j = 0; j < columns; ++j)
        to[i * ld + j] = Narrow(from[i * columns + j]);
  }
}

template <typename T>
void addBias(int64_t rows, int64_t columns, const T *bias, T *c, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * ld + j] += bias[j];
}

} // namespace

#define TRAINC_PASTE(a, b) a##b
#define TRAINC_TABLE(level) TRAINC_PASTE(kernelsV, level)

namespace trainc {
extern const Kernels TRAINC_TABLE(TRAINC_LEVEL);
const Kernels TRAINC_TABLE(TRAINC_LEVEL) = {
    TRAINC_LEVEL == 4   ? "x86-64-v4"
    : TRAINC_LEVEL == 3 ? "x86-64-v3"
                        : "x86-64-v2",
    widenRows<widenBf16>,
    widenRows<widenF16>,
    narrowRows<widenBf16, narrowBf16>,
    narrowRows<widenF16, narrowF16>,
    addBias<float>,
    addBias<double>,
#if TRAINC_LEVEL == 4
    Sgemm<16, 12>::run,
    Sgemm<16, 12>::scratchBytes,
#else
    nullptr,
    0,
#endif
};
} // namespace trainc
