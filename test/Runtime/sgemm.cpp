// Our own product against sums in f64: each storage of A and B, odd sizes, more than
// one block, edges, accumulation, a bias. A part of a product has the bits of the
// whole. Each element of C is finished once, when it is complete.
//
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t
// RUN: env TRAINC_AVX2_ONLY=1 %t

#include "cpu/kernels.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

using trainc::Product;

namespace {
struct Case {
  bool transposeA, transposeB, accumulate, bias;
  int64_t m, n, k;
};

/// Counts how often each element of C is finished, and adds 1 to it.
struct Finished {
  float *c;
  int64_t ldc;
  std::vector<int> counts;
};
} // namespace

static void finish(void *context, int64_t i, int64_t rows, int64_t j,
                   int64_t columns) {
  auto &finished = *static_cast<Finished *>(context);
  for (int64_t r = i; r < i + rows; ++r)
    for (int64_t s = j; s < j + columns; ++s) {
      finished.c[r * finished.ldc + s] += 1;
      ++finished.counts[static_cast<size_t>(r * finished.ldc + s)];
    }
}

[[noreturn]] static void fail(const Case &x, const char *what) {
  printf("%ld x %ld x %ld, transposed %d %d, accumulate %d, bias %d: %s\n", x.m,
         x.n, x.k, x.transposeA, x.transposeB, x.accumulate, x.bias, what);
  exit(1);
}

static void check(const Case &x) {
  const trainc::Kernels &kernels = trainc::kernels();
  int64_t m = x.m, n = x.n, k = x.k;
  int64_t lda = (x.transposeA ? m : k) + 3, ldb = (x.transposeB ? k : n) + 1;
  int64_t ldc = n + 2;
  auto a = random_values((x.transposeA ? k : m) * lda),
       b = random_values((x.transposeB ? n : k) * ldb),
       before = random_values(m * ldc), bias = random_values(n);
  auto c = before, parts = before, finished = before;
  void *scratch = aligned_alloc(64, (kernels.multiplyScratch + 63) / 64 * 64);
  Product whole = {x.transposeA,
                   x.transposeB,
                   x.accumulate,
                   m,
                   n,
                   k,
                   lda,
                   ldb,
                   ldc,
                   a.data(),
                   b.data(),
                   c.data(),
                   x.bias ? bias.data() : nullptr,
                   scratch,
                   nullptr,
                   nullptr};
  kernels.multiply(whole);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      auto at = static_cast<size_t>(i * ldc + j);
      double sum = x.accumulate ? before[at] : 0, size = fabs(sum);
      if (x.bias)
        sum += bias[static_cast<size_t>(j)];
      for (int64_t p = 0; p < k; ++p) {
        auto inA =
            static_cast<size_t>(x.transposeA ? p * lda + i : i * lda + p);
        auto inB =
            static_cast<size_t>(x.transposeB ? j * ldb + p : p * ldb + j);
        double term = static_cast<double>(a[inA]) * b[inB];
        sum += term;
        size += fabs(term);
      }
      if (!(fabs(c[at] - sum) <= 1e-6 * (size + 1)))
        fail(x, "wrong");
    }
  for (int64_t i = 0; i < m; i += 29)
    for (int64_t j = 0; j < n; j += 37) {
      Product part = whole;
      part.m = m - i < 29 ? m - i : 29;
      part.n = n - j < 37 ? n - j : 37;
      part.a += x.transposeA ? i : i * lda;
      part.b += x.transposeB ? j * ldb : j;
      part.bias += x.bias ? j : 0;
      part.c = parts.data() + i * ldc + j;
      kernels.multiply(part);
    }
  // Neither touches what is between the rows.
  if (memcmp(c.data(), parts.data(), c.size() * sizeof(float)))
    fail(x, "a part differs");

  Finished context = {finished.data(), ldc, std::vector<int>(c.size())};
  whole.c = finished.data();
  whole.finish = finish;
  whole.context = &context;
  kernels.multiply(whole);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      auto at = static_cast<size_t>(i * ldc + j);
      float expected = c[at] + (j < n ? 1.0f : 0.0f);
      if (context.counts[at] != (j < n) || finished[at] != expected)
        fail(x, "finished too early, or not once");
    }
  free(scratch);
}

int main() {
  if (!trainc::kernels().multiply) {
    printf("this processor has no AVX2\n");
    return 0;
  }
  const int64_t sizes[][3] = {{1, 1, 1},    {12, 32, 384},  {13, 33, 385},
                              {11, 40, 15}, {485, 70, 800}, {30, 100, 0},
                              {7, 5, 1000}, {500, 31, 64},  {64, 16, 3}};
  for (auto &s : sizes)
    for (int bits = 0; bits < 16; ++bits)
      check({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
             s[0], s[1], s[2]});
  return 0;
}
