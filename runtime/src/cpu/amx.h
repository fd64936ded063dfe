//===- amx.h - Products of f32 and bf16 matrices by AMX ---------*- C++ -*-===//
#ifndef TRAINC_CPU_AMX_H
#define TRAINC_CPU_AMX_H

#include "trainc/step_abi.h"

#include <stdint.h>

namespace trainc {

/// C = A' B' (+ C if accumulate) (+ bias on each row), row major: as
/// trainc_gemm_detail, without a batch. A and B are f32 and so is C, or A and B
/// are bf16 and C is bf16 or f32; the bias and the auxiliary matrix are as C.
struct AmxProduct {
  uint32_t ab_type, c_type, epilogue;
  bool transposeA, transposeB, accumulate;
  int64_t m, n, k;
  int64_t lda, ldb, ldc; // elements from row to row of the stored matrices
  const void *a, *b;
  void *c;
  const void *bias; // null: none
  void *aux;        // with an epilogue, with row stride ldc; null: none
  void *scratch;    // amxScratch() bytes, aligned to 64
};

/// Whether this process may use AMX for bf16.
bool haveAmx();

/// The product, on the calling thread, if haveAmx().
void amxMultiply(const AmxProduct &product);
uint64_t amxScratch(uint32_t c_type, int64_t k);

/// The time that it takes per multiply-add, with what it packs; 1 would be
/// without.
double amxCost(double m, double n);

} // namespace trainc

#endif // TRAINC_CPU_AMX_H
