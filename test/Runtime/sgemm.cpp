// Our own product against sums in f64: odd sizes, more than one block, edges,
// accumulation. A part of a product has the bits of the whole.
//
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "cpu/kernels.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

using trainc::Product;

static void check(int64_t m, int64_t n, int64_t k, bool accumulate) {
  const trainc::Kernels &kernels = trainc::kernels();
  int64_t lda = m + 3, ldb = n + 1, ldc = n + 2;
  auto a = random_values(k * lda), b = random_values(k * ldb),
       before = random_values(m * ldc);
  auto c = before, parts = before;
  void *scratch = aligned_alloc(64, (kernels.multiplyScratch + 63) / 64 * 64);
  Product whole = {accumulate, m,        n,        k,        lda,    ldb,
                   ldc,        a.data(), b.data(), c.data(), scratch};
  kernels.multiply(whole);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      auto at = static_cast<size_t>(i * ldc + j);
      double sum = accumulate ? before[at] : 0, size = fabs(sum);
      for (int64_t p = 0; p < k; ++p) {
        double term = static_cast<double>(a[static_cast<size_t>(p * lda + i)]) *
                      b[static_cast<size_t>(p * ldb + j)];
        sum += term;
        size += fabs(term);
      }
      if (!(fabs(c[at] - sum) <= 1e-6 * (size + 1))) {
        printf("%ld x %ld x %ld, accumulate %d, [%ld, %ld]: %g, expected %g\n",
               m, n, k, accumulate, i, j, c[at], sum);
        exit(1);
      }
    }
  for (int64_t i = 0; i < m; i += 29)
    for (int64_t j = 0; j < n; j += 37) {
      Product part = whole;
      part.m = m - i < 29 ? m - i : 29;
      part.n = n - j < 37 ? n - j : 37;
      part.a += i;
      part.b += j;
      part.c = parts.data() + i * ldc + j;
      kernels.multiply(part);
    }
  // Neither touches what is between the rows.
  if (memcmp(c.data(), parts.data(), c.size() * sizeof(float))) {
    printf("%ld x %ld x %ld: a part differs\n", m, n, k);
    exit(1);
  }
  free(scratch);
}

int main() {
  if (!trainc::kernels().multiply) {
    printf("this processor has no AVX-512\n");
    return 0;
  }
  const int64_t sizes[][3] = {{1, 1, 1},    {12, 32, 384},  {13, 33, 385},
                              {11, 40, 15}, {485, 70, 800}, {30, 100, 0},
                              {7, 5, 1000}, {500, 31, 64},  {64, 16, 3}};
  for (auto &s : sizes)
    for (bool accumulate : {false, true})
      check(s[0], s[1], s[2], accumulate);
  return 0;
}
