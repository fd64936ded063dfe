//===- transpose.h - Transposing with vectors -------------------*- C++ -*-===//
//
// Compiled per processor level.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_TRANSPOSE_H
#define TRAINC_CPU_TRANSPOSE_H

#include "cpu/indices.h"

#include <stdint.h>

namespace {

using trainc::Indices;
using trainc::Sequence;

/// With vectors of `Lanes` elements.
template <typename T, int Lanes> struct Transposes {
  typedef T Vector
      __attribute__((vector_size(sizeof(T) * Lanes), aligned(sizeof(T))));

  static Vector load(const T *from) {
    return *reinterpret_cast<const Vector *>(from);
  }
  static void store(Vector value, T *to) {
    *reinterpret_cast<Vector *>(to) = value;
  }
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  template <int Step, int... I>
  static void exchange(Vector *v, Sequence<I...>) {
    for (int i = 0; i < Lanes; ++i) {
      if (i & Step)
        continue;
      Vector x = v[i], y = v[i + Step];
      v[i] =
          __builtin_shufflevector(x, y, ((I & Step) ? Lanes + I - Step : I)...);
      v[i + Step] =
          __builtin_shufflevector(x, y, ((I & Step) ? Lanes + I : I + Step)...);
    }
  }
  /// Transposes Lanes vectors.
  template <int Step = Lanes / 2> static void transpose(Vector *v) {
    exchange<Step>(v, Indices<Lanes>());
    if constexpr (Step > 1)
      transpose<Step / 2>(v);
  }

  /// Transposes from `rows` x `columns` elements to as many rows of `to` as `from` has
  /// columns, with the bias of each of those columns (null: none).
  static void transposeRows(int64_t rows, int64_t columns, const T *from,
                            int64_t ld, const T *bias, T *to, int64_t ldTo) {
    for (int64_t i = 0; i < rows; i += Lanes)
      for (int64_t j = 0; j < columns; j += Lanes) {
        int64_t height = least(rows - i, Lanes),
                width = least(columns - j, Lanes);
        const T *source = from + i * ld + j;
        T *target = to + j * ldTo + i;
        if (height < Lanes || width < Lanes) {
          for (int64_t q = 0; q < width; ++q)
            for (int64_t p = 0; p < height; ++p)
              target[q * ldTo + p] =
                  bias ? source[p * ld + q] + bias[i + p] : source[p * ld + q];
          continue;
        }
        Vector v[Lanes];
#pragma clang loop unroll(full)
        for (int p = 0; p < Lanes; ++p)
          v[p] = load(source + p * ld);
        transpose(v);
#pragma clang loop unroll(full)
        for (int q = 0; q < Lanes; ++q)
          store(bias ? v[q] + load(bias + i) : v[q], target + q * ldTo);
      }
  }
};

} // namespace

#endif // TRAINC_CPU_TRANSPOSE_H
