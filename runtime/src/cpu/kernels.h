//===- kernels.h - The runtime's own loops, per processor level -*- C++ -*-===//
//
// kernels.cpp is compiled once for each level of x86-64; `kernels()` is the table
// of the highest that this processor has. What a kernel computes depends on its
// sizes (and the level) only.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_KERNELS_H
#define TRAINC_CPU_KERNELS_H

#include <stdint.h>

namespace trainc {

/// Element (i, j) of a matrix is at data[i * row + j * column].
struct Matrix {
  const float *data;
  int64_t row, column;
};

struct Kernels {
  const char *level;
  /// C = A B (+ C); `scratch` has room for smallGemmScratch(k) bytes. B's columns
  /// or its rows are contiguous.
  void (*smallGemm)(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float *c,
                    int64_t ldc, bool accumulate, float *scratch);
  /// Widens a matrix of bf16 or f16 to dense f32.
  void (*widenBf16)(int64_t rows, int64_t columns, const uint16_t *from,
                    int64_t ld, float *to);
  void (*widenF16)(int64_t rows, int64_t columns, const uint16_t *from,
                   int64_t ld, float *to);
  /// Rounds a dense f32 matrix, plus the bias (null: none) on each row.
  void (*narrowBf16)(int64_t rows, int64_t columns, const float *from,
                     const uint16_t *bias, uint16_t *to, int64_t ld);
  void (*narrowF16)(int64_t rows, int64_t columns, const float *from,
                    const uint16_t *bias, uint16_t *to, int64_t ld);
  void (*addBiasF32)(int64_t rows, int64_t columns, const float *bias, float *c,
                     int64_t ld);
  void (*addBiasF64)(int64_t rows, int64_t columns, const double *bias, double *c,
                     int64_t ld);
};

/// Columns of the widest panel of B that smallGemm packs, on any level.
constexpr int64_t smallGemmColumns = 32;
inline uint64_t smallGemmScratch(int64_t k) {
  return static_cast<uint64_t>(k) * smallGemmColumns * sizeof(float);
}

const Kernels &kernels();

} // namespace trainc

#endif // TRAINC_CPU_KERNELS_H
