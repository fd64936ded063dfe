//===- rows.h - From sums to rows of a result -------------------*- C++ -*-===//
#ifndef TRAINC_CPU_ROWS_H
#define TRAINC_CPU_ROWS_H

#include "cpu/kernels.h"
#include "trainc/runtime.h"
#include <string.h>

namespace trainc {

/// From dense sums to a matrix of a narrow type.
inline void narrowRows(uint32_t dtype, int64_t rows, int64_t columns,
                       const float *sums, char *to, int64_t ld) {
  auto narrow =
      dtype == TRAINC_BF16 ? kernels().narrowBf16 : kernels().narrowF16;
  narrow(rows, columns, sums, nullptr, reinterpret_cast<uint16_t *>(to), ld);
}

/// From a matrix of a narrow type to dense f32.
inline void widenRows(uint32_t dtype, int64_t rows, int64_t columns,
                      const char *from, int64_t ld, float *to) {
  auto widen = dtype == TRAINC_BF16 ? kernels().widenBf16 : kernels().widenF16;
  widen(rows, columns, reinterpret_cast<const uint16_t *>(from), ld, to);
}

/// The transpose of sums in f32 as elements of `dtype`; of 2 bytes by way of `room`.
inline void storeTransposed(uint32_t dtype, int64_t rows, int64_t columns,
                            const float *sums, int64_t ld, float *room,
                            char *to, int64_t ldTo) {
  bool narrows = trainc_dtype_size(dtype) == 2;
  kernels().transposeF32(rows, columns, sums, ld,
                         narrows ? room : reinterpret_cast<float *>(to),
                         narrows ? rows : ldTo);
  if (narrows)
    narrowRows(dtype, columns, rows, room, to, ldTo);
}

/// `count` sums as elements of `dtype`: themselves or, of 2 bytes, rounded into `room`.
inline const char *narrowed(uint32_t dtype, const char *sums, int64_t count,
                            char *room) {
  if (trainc_dtype_size(dtype) != 2)
    return sums;
  narrowRows(dtype, 1, count, reinterpret_cast<const float *>(sums), room,
             count);
  return room;
}

/// Copies elements of `dtype` to every stride-th place.
inline void copyApart(uint32_t dtype, const char *from, int64_t count,
                      int64_t stride, char *to) {
  auto copy = [&](auto zero) {
    auto *source = reinterpret_cast<const decltype(zero) *>(from);
    auto *target = reinterpret_cast<decltype(zero) *>(to);
    for (int64_t i = 0; i < count; ++i)
      target[i * stride] = source[i];
  };
  uint64_t size = trainc_dtype_size(dtype);
  if (stride == 1)
    memcpy(to, from, static_cast<uint64_t>(count) * size);
  else if (size == 2)
    copy(uint16_t(0));
  else if (size == 4)
    copy(uint32_t(0));
  else
    copy(uint64_t(0));
}

} // namespace trainc

#endif // TRAINC_CPU_ROWS_H
