//===- gemm_plan.h - What a plan of a GEMM holds ----------------*- C++ -*-===//
//
// For gemm.cpp, which makes plans, and gemm_tile.cpp, which runs them.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_GEMM_PLAN_H
#define TRAINC_CPU_GEMM_PLAN_H

#include "cpu/gemm.h"
#include "cpu/kernels.h"
#include "cpu/onednn.h"
#include "cpu/openblas.h"

namespace trainc {

/// How a back end computes a product of given types.
enum GemmMethod : uint8_t {
  AMX,
  OWN,           // VECTOR, f32
  OWN_DOUBLE,    // VECTOR, f64
  OWN_HALF,      // VECTOR, factors of bf16 or f16
  SINGLE,        // OpenBLAS, f32
  SINGLE_ONEDNN, // f32
  DOUBLE,        // OpenBLAS, f64
  WIDEN, // bf16 and f16 as f32: OpenBLAS, and VECTOR if factors differ in type
  ONEDNN // bf16
};

struct GemmPlan {
  trainc_gemm_detail detail;
  GemmMethod method;
  const OpenBlas *blas; // null: none takes part
  int64_t tileM, tileN, tilesM, tilesN;
  bool unequalM, unequalN; // tiles, see beginOfTile
  int64_t split; // of k: what comes after it is a partial product; 0: none
  Matmul *matmuls[2][2]; // by edge in m and n
  uint64_t scratch;
};

/// Panels are widened this deep at a time.
constexpr int64_t widenDepth = 512;

/// The sums of a narrow C stand in a window of such rows, some bytes apart from a power
/// of two.
using NarrowProduct = Product<float, uint16_t>;
constexpr int64_t sumPitch = NarrowProduct::windowColumns + 16;

/// Where unequal tile `index` of `tiles` begins in `size`.
int64_t beginOfTile(int64_t size, int64_t tiles, int64_t index);

/// Floats of a widened piece, on its own cache lines.
inline uint64_t pieceFloats(int64_t rows, int64_t columns) {
  return alignUp(static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns),
                 16);
}

} // namespace trainc

#endif // TRAINC_CPU_GEMM_PLAN_H
