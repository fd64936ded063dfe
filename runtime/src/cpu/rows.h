//===- rows.h - From sums to rows of a result -------------------*- C++ -*-===//
#ifndef TRAINC_CPU_ROWS_H
#define TRAINC_CPU_ROWS_H

#include "cpu/kernels.h"
#include "trainc/runtime.h"
#include <string.h>

namespace trainc {

/// `count` sums as elements of `dtype`: themselves or, of 2 bytes, rounded into `room`.
inline const char *narrowed(uint32_t dtype, const char *sums, int64_t count,
                            char *room) {
  if (trainc_dtype_size(dtype) != 2)
    return sums;
  auto narrow =
      dtype == TRAINC_BF16 ? kernels().narrowBf16 : kernels().narrowF16;
  narrow(1, count, reinterpret_cast<const float *>(sums), nullptr,
         reinterpret_cast<uint16_t *>(room), count);
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
