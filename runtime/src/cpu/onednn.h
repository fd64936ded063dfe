//===- onednn.h - oneDNN's matmul, opened at run time -----------*- C++ -*-===//
#ifndef TRAINC_CPU_ONEDNN_H
#define TRAINC_CPU_ONEDNN_H

#include "core/status.h"

namespace trainc {

/// One product of fixed sizes: the meaning of trainc_gemm_detail, without
/// batch.
struct MatmulShape {
  uint32_t aType, bType, cType;
  bool transposeA, transposeB, accumulate, bias;
  int64_t m, n, k, lda, ldb, ldc;
};

class Matmul;

/// Opens oneDNN (libdnnl.so.2) on the first call. False if it is not there, or
/// not of a version whose interface this is.
bool haveOneDnn();

/// C = A' B' (+ C), row major, in one thread. Needs haveOneDnn.
bool runOneDnnSgemm(bool transposeA, bool transposeB, int64_t m, int64_t n,
                    int64_t k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, bool accumulate, float *c, int64_t ldc);

/// Generates the code of a product that runs in one thread.
trainc_status createMatmul(const MatmulShape &shape, Matmul **out_matmul);
void destroyMatmul(Matmul *matmul);

/// Bytes that a running product needs, aligned to 64.
uint64_t matmulScratch(const Matmul *matmul);

/// May run in several threads at once, each with its own scratch.
bool runMatmul(const Matmul *matmul, const void *a, const void *b, void *c,
               const void *bias, void *scratch);

/// Version, or that it is not loaded.
void appendOneDnn(Text &text);

} // namespace trainc

#endif // TRAINC_CPU_ONEDNN_H
