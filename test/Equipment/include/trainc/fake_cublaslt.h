//===- fake_cublaslt.h - cuBLASLt over the driver of tests ------*- C++ -*-===//
//
// libtrainc_fake_cublaslt.so has the functions of libcublasLt that the runtime calls,
// for devices of libtrainc_fake_cuda.so: TRAINC_LIBCUBLASLT=libtrainc_fake_cublaslt.so
// makes the runtime use it. It is for tests.
//
// A product is work in its stream (fake_cuda.h): the host computes it when its turn has
// come, in f32 (f64 of f64; TF32 rounds the factors), in the order of k. Before it does, it fills what its
// algorithm needs of the workspace with not-a-numbers.
//
// Refused, as by cuBLASLt or by what its documentation says of cublasLtMatmul(): calls
// without a context; handles that are not, or no longer, there; attributes of other
// sizes; shapes, batches and leading dimensions that do not fit; types that are not in
// the tables; an epilogue without its vector or its auxiliary matrix, with one whose
// leading dimension is too short or no multiple of 8; bias gradients of A transposed,
// or of B not transposed. And what would compute something else or nothing at all: an algorithm
// that was not chosen for this operation and these matrices, addresses that are less
// aligned than it was told, a workspace that is too small or not aligned to 256 bytes,
// matrices that are not of one allocation, results that overlap operands or the
// workspace. cublasLtGetStatusString tells the last refusal.
//
// An algorithm needs a workspace as large as it may be, up to 1 MiB.
//
// What tests set in the environment
//   TRAINC_FAKE_CUBLASLT_FAIL  create: there is no handle; heuristic: the choice of an
//                              algorithm fails; empty: it finds none; matmul: products
//                              are refused
//   TRAINC_FAKE_CUBLASLT_REFUSE  epilogues for which there is no algorithm: bias,
//                              gelu_aux_bias, dgelu_bgrad, bgrada, ..., with commas
//                              between them, or all
//
// Thread-safe as cuBLASLt: descriptors are not shared by threads.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_FAKE_CUBLASLT_H
#define TRAINC_FAKE_CUBLASLT_H

#include "trainc/emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What is there, and what was done since the process began.
typedef struct trainc_fake_cublaslt_counts {
  uint64_t handles, operations, layouts, preferences; // not destroyed
  uint64_t heuristics;                                // choices of an algorithm
  uint64_t products;                                  // put into streams
} trainc_fake_cublaslt_counts;

TRAINC_EMU_EXPORT void
trainc_fake_cublaslt_get_counts(trainc_fake_cublaslt_counts *out_counts);

#ifdef __cplusplus
}
#endif

#endif // TRAINC_FAKE_CUBLASLT_H
