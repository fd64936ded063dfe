//===- convert.h - Converting between types ---------------------*- C++ -*-===//
//
// All rounding is to nearest even, once: f64 to bf16 or f16 does not go
// through a rounded f32.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_CONVERT_H
#define TRAINC_CORE_CONVERT_H

#include "core/status.h"
#include <limits>

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

/// To the nearest integer of type T; NaN to 0.
template <typename T> inline T toInteger(double value) {
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  double nearest = __builtin_rint(value);
  return nearest != nearest ? 0
         : nearest <= low   ? std::numeric_limits<T>::min()
         : nearest >= high  ? std::numeric_limits<T>::max()
                            : static_cast<T>(nearest);
}

/// One element of an integer type.
inline int64_t integerAt(uint32_t dtype, const void *data, uint64_t i) {
  switch (dtype) {
  case TRAINC_I8:
    return static_cast<const int8_t *>(data)[i];
  case TRAINC_I16:
    return static_cast<const int16_t *>(data)[i];
  case TRAINC_I32:
    return static_cast<const int32_t *>(data)[i];
  case TRAINC_I64:
    return static_cast<const int64_t *>(data)[i];
  default: // BOOL, U8
    return static_cast<const uint8_t *>(data)[i];
  }
}

/// One element as f64 (exact, but for integers above 2^53) and back (rounded).
inline double loadElement(uint32_t dtype, const void *data, uint64_t i) {
  switch (dtype) {
  case TRAINC_F32:
    return static_cast<const float *>(data)[i];
  case TRAINC_F64:
    return static_cast<const double *>(data)[i];
  case TRAINC_BF16:
    return bf16ToF32(static_cast<const uint16_t *>(data)[i]);
  case TRAINC_F16:
    return f16ToF32(static_cast<const uint16_t *>(data)[i]);
  default:
    return static_cast<double>(integerAt(dtype, data, i));
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
  case TRAINC_F16:
    static_cast<uint16_t *>(data)[i] = f32ToF16(f64ToF32Odd(value));
    return;
  case TRAINC_I8:
    static_cast<int8_t *>(data)[i] = toInteger<int8_t>(value);
    return;
  case TRAINC_I16:
    static_cast<int16_t *>(data)[i] = toInteger<int16_t>(value);
    return;
  case TRAINC_I32:
    static_cast<int32_t *>(data)[i] = toInteger<int32_t>(value);
    return;
  case TRAINC_I64:
    static_cast<int64_t *>(data)[i] = toInteger<int64_t>(value);
    return;
  case TRAINC_BOOL:
    static_cast<uint8_t *>(data)[i] = value != 0;
    return;
  default: // U8
    static_cast<uint8_t *>(data)[i] = toInteger<uint8_t>(value);
    return;
  }
}

/// Converts `count` elements. Integers go by way of f64; what does not fit into
/// one becomes the nearest that does, NaN zero. No overlap.
void convert(uint32_t fromType, const void *from, uint32_t toType, void *to,
             uint64_t count);

/// A tensor is converted in pieces of at most so many bytes of either type.
constexpr uint64_t pieceBytes = 256 << 10;

/// Calls function(begin, count) for each piece, in order, while it returns
/// TRAINC_OK.
template <typename Function>
trainc_status forPieces(uint32_t fromType, uint32_t toType, uint64_t count,
                        Function function) {
  uint64_t from = trainc_dtype_size(fromType), to = trainc_dtype_size(toType);
  uint64_t piece = pieceBytes / (from > to ? from : to);
  for (uint64_t i = 0; i < count; i += piece)
    TRAINC_TRY(function(i, count - i < piece ? count - i : piece));
  return TRAINC_OK;
}

} // namespace trainc

#endif // TRAINC_CORE_CONVERT_H
