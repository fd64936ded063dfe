//===- halves.h - bf16 and f16 in loops that vectorize ----------*- C++ -*-===//
//
// The conversions of core/convert.h, without branches. Local to the file that includes
// it, and thereby to each version of kernels.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_HALVES_H
#define TRAINC_CPU_HALVES_H

#include <stdint.h>

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

} // namespace

#endif // TRAINC_CPU_HALVES_H
