//===- amx.h - Products of f32 matrices by AMX ------------------*- C++ -*-===//
#ifndef TRAINC_CPU_AMX_H
#define TRAINC_CPU_AMX_H

#include <stdint.h>

namespace trainc {

/// C = A' B' (+ C if accumulate) (+ bias on each row) in f32, row major: as
/// trainc_gemm_detail, without a batch.
struct AmxProduct {
  bool transposeA, transposeB, accumulate;
  int64_t m, n, k;
  int64_t lda, ldb, ldc; // floats from row to row of the stored matrices
  const float *a, *b;
  float *c;
  const float *bias; // null: none
  void *scratch;     // amxScratch bytes, aligned to 64
};

/// Whether this process may use AMX for bf16.
bool haveAmx();

/// The product, on the calling thread, if haveAmx().
void amxMultiply(const AmxProduct &product);

/// The time that it takes per multiply-add, with what it packs; 1 would be
/// without.
double amxCost(double m, double n);
extern const uint64_t amxScratch;

} // namespace trainc

#endif // TRAINC_CPU_AMX_H
