//===- Gemm.h - Which back end computes a GEMM, in which tiles --*- C++ -*-===//
#ifndef TRAINC_ANALYSIS_GEMM_H
#define TRAINC_ANALYSIS_GEMM_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// What decides how GEMMs are computed on a target.
struct GemmTarget {
  bool gpu = false;
  /// Of a GPU: factors of f32 may be rounded to 10 bits behind the point.
  bool tf32 = false;
  /// Instructions of a CPU: vectors with fused multiply-add (AVX2, NEON), those of 16 f32,
  /// products of bf16, tile registers.
  bool vector = true, avx512 = false, bf16 = false, amx = false;
  /// AVX-512 is two operations of 256 bits each.
  bool doublePumped = false;
  /// Our own vector code computes all: there is no library, or it would give other bits.
  bool own = false;
  /// AMX may multiply f32 as sums of bf16 GEMMs.
  bool splitF32 = true;
  /// CPUs that share a GEMM of oneDNN, or a convolution, at most: into so many tiles it is cut.
  int64_t cores = 32;
};

/// How `gemm` is computed: by its shape, its types and the target alone, from
/// measurements (bench/results/gemm.md).
train::GemmPlanAttr planGemm(train::GemmOp gemm, const GemmTarget &target);

/// How `convolution` is computed, likewise.
train::ConvolutionPlanAttr planConvolution(train::ConvolutionOp convolution,
                                           const GemmTarget &target);

} // namespace trainc

#endif // TRAINC_ANALYSIS_GEMM_H
