// Products of matrices on a real GPU.
//
// REQUIRES: cuda-device, cublaslt
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUBLASLT=%cublaslt %t

#include "products.h"

int main() {
  Bench bench;
  testShapes(bench);
  testBatches(bench);
  testEpilogues(bench);
  testGraph(bench);
  // TF32 where it is asked for.
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 128, 128, 256);
  g.back_end = TRAINC_BACK_END_CUBLASLT_TF32;
  bench.check(g);
}
