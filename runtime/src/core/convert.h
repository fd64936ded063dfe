//===- convert.h - Converting between floating types ------------*- C++ -*-===//
//
// All narrowing is to nearest even, once: f64 to bf16 or f16 does not go
// through a rounded f32.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_CONVERT_H
#define TRAINC_CORE_CONVERT_H

#include "trainc/step_abi.h"
#include <stdint.h>
#include <string.h>

namespace trainc {

template <typename To, typename From> inline To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

inline float bf16ToF32(uint16_t bits) {
  return bitCast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t f32ToBf16(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? nan
                                                                : rounded);
}

inline float f16ToF32(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) // infinity, NaN (made quiet)
    return bitCast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13 |
                          (magnitude > 0x7C00 ? 0x400000u : 0u));
  // 2^112 moves the exponent's bias; the product is exact, denormals included.
  float scaled = bitCast<float>(magnitude << 13) * 0x1p112f;
  return bitCast<float>(sign | bitCast<uint32_t>(scaled));
}

inline uint16_t f32ToF16(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t result;
  if (magnitude > 0x7F800000)
    result = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  else if (magnitude >= 0x477FF000) // rounds to 2^16 or more
    result = 0x7C00;
  else if (magnitude < 0x38800000) // denormal: the sum rounds at 2^-24
    result = bitCast<uint32_t>(bitCast<float>(magnitude) + 0.5f) - 0x3F000000;
  else
    result = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  return static_cast<uint16_t>(sign | result);
}

/// To f32, inexact results made odd, so that rounding again to a type of at
/// most 22 bits of fraction gives the value rounded once.
inline float f64ToF32Odd(double value) {
  float nearest = static_cast<float>(value);
  uint32_t bits = bitCast<uint32_t>(nearest);
  if (value != value || static_cast<double>(nearest) == value)
    return nearest;
  if (__builtin_fabs(static_cast<double>(nearest)) > __builtin_fabs(value))
    --bits;
  return bitCast<float>(bits | 1);
}

inline bool isFloat(uint32_t dtype) { return dtype <= TRAINC_F16; }

/// One element of a floating type, as f64 (exact) and back (rounded).
inline double loadElement(uint32_t dtype, const void *data, uint64_t i) {
  switch (dtype) {
  case TRAINC_F32:
    return static_cast<const float *>(data)[i];
  case TRAINC_F64:
    return static_cast<const double *>(data)[i];
  case TRAINC_BF16:
    return bf16ToF32(static_cast<const uint16_t *>(data)[i]);
  default:
    return f16ToF32(static_cast<const uint16_t *>(data)[i]);
  }
}
inline void storeElement(uint32_t dtype, void *data, uint64_t i, double value) {
  switch (dtype) {
  case TRAINC_F32:
    static_cast<float *>(data)[i] = static_cast<float>(value);
    return;
  case TRAINC_F64:
    static_cast<double *>(data)[i] = value;
    return;
  case TRAINC_BF16:
    static_cast<uint16_t *>(data)[i] = f32ToBf16(f64ToF32Odd(value));
    return;
  default:
    static_cast<uint16_t *>(data)[i] = f32ToF16(f64ToF32Odd(value));
    return;
  }
}

/// Converts `count` elements; both types floating, or equal. No overlap.
void convert(uint32_t fromType, const void *from, uint32_t toType, void *to,
             uint64_t count);

} // namespace trainc

#endif // TRAINC_CORE_CONVERT_H
