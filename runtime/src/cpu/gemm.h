//===- gemm.h - Products of matrices, cut into tiles ------------*- C++ -*-===//
//
// A plan says how one GEMM command is computed by the back end that its detail names
// (the compiler's choice: lib/Analysis/Gemm.cpp): in which tiles, with how much scratch.
// Results depend on the detail and on the version of the library, never on the number
// of threads or of CPUs:
//
//   VECTOR    vector_gemm.h, with the same bits on every CPU; the tiles are for the threads
//             (bits do not depend on them). bf16 and f16 are widened as they are packed,
//             and summed as f32 is; a bf16 or f16 with another type as OPENBLAS does
//   AMX       amx.h; likewise; where k is cut is in the detail
//   ONEDNN    one-thread calls on the detail's tiles; without oneDNN as OPENBLAS
//   OPENBLAS  likewise; bf16 and f16 widened to f32 piece by piece, multiplied as f32,
//             rounded once
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_GEMM_H
#define TRAINC_CPU_GEMM_H

#include "core/status.h"

namespace trainc {

/// Why a processor cannot run such a product; null if it can.
const char *refuseProduct(const trainc_gemm_detail &detail);

struct GemmPlan;

/// A plan for that many threads.
trainc_status createGemmPlan(const trainc_gemm_detail &detail, unsigned threads,
                             GemmPlan **out_plan);
void destroyGemmPlan(GemmPlan *plan);

/// Tiles of all products of the batch, as the detail has them; INT64_MAX if
/// they are too many to count.
int64_t gemmTileCount(const trainc_gemm_detail &detail);
/// And as the plan has them.
int64_t gemmTileCount(const GemmPlan *plan);

/// Bytes of scratch for one running tile, aligned to 64.
uint64_t gemmScratch(const GemmPlan *plan);
bool usesOpenBlas(const GemmPlan *plan);

const trainc_gemm_detail &gemmDetail(const GemmPlan *plan);

/// Computes one tile; args are A, B, C and the bias. `partial` has
/// gemmPartialBytes(). False if a library failed.
bool runGemmTile(const GemmPlan *plan, void *const *args, int64_t tile,
                 void *scratch, void *partial);

/// Bytes, aligned to 64, of what is to be added to C when all tiles are done: the
/// product of the second half of k, if the plan cuts k. Else 0.
uint64_t gemmPartialBytes(const GemmPlan *plan);
/// In how many pieces it is added.
int64_t gemmPartialPieces(const GemmPlan *plan);
void addGemmPartial(const GemmPlan *plan, void *const *args,
                    const void *partial, int64_t piece);

} // namespace trainc

#endif // TRAINC_CPU_GEMM_H
