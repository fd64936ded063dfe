// Products by AMX: no farther from sums in f64 than a chain of f32
// multiply-adds, for all transposes, odd sizes, more than one block, biases and
// accumulation; and a part of a product has the bits of the whole.
//
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "cpu/amx.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

using trainc::AmxProduct;

static void check(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                  bool accumulate, bool bias) {
  int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
  auto a = random_values((ta ? k : m) * lda),
       b = random_values((tb ? n : k) * ldb), before = random_values(m * ldc),
       added = random_values(n);
  auto c = before, parts = before;
  void *scratch = aligned_alloc(64, trainc::amxScratch);
  AmxProduct whole = {ta,
                      tb,
                      accumulate,
                      m,
                      n,
                      k,
                      lda,
                      ldb,
                      ldc,
                      a.data(),
                      b.data(),
                      c.data(),
                      bias ? added.data() : nullptr,
                      scratch};
  trainc::amxMultiply(whole);
  double error = 0, chain_error = 0, size = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      auto at = static_cast<size_t>(i * ldc + j);
      double sum = accumulate ? static_cast<double>(before[at]) : 0;
      float chain = accumulate ? before[at] : 0;
      for (int64_t p = 0; p < k; ++p) {
        float x = a[static_cast<size_t>(ta ? p * lda + i : i * lda + p)];
        float y = b[static_cast<size_t>(tb ? j * ldb + p : p * ldb + j)];
        sum += static_cast<double>(x) * y;
        chain = fmaf(x, y, chain);
      }
      if (bias) {
        sum += static_cast<double>(added[static_cast<size_t>(j)]);
        chain += added[static_cast<size_t>(j)];
      }
      error += (c[at] - sum) * (c[at] - sum);
      chain_error += (chain - sum) * (chain - sum);
      size += sum * sum;
    }
  // Both round the result once at least.
  double least = 0x1p-24 * sqrt(size);
  if (!(sqrt(error) <=
        (sqrt(chain_error) > least ? sqrt(chain_error) : least))) {
    printf("%ld x %ld x %ld, transpose %d %d, accumulate %d, bias %d: error "
           "%g, of "
           "multiply-adds %g, of %g\n",
           m, n, k, ta, tb, accumulate, bias, sqrt(error), sqrt(chain_error),
           sqrt(size));
    exit(1);
  }
  for (int64_t i = 0; i < m; i += 29)
    for (int64_t j = 0; j < n; j += 37) {
      AmxProduct part = whole;
      part.m = m - i < 29 ? m - i : 29;
      part.n = n - j < 37 ? n - j : 37;
      part.a += ta ? i : i * lda;
      part.b += tb ? j * ldb : j;
      part.c = parts.data() + i * ldc + j;
      part.bias = bias ? added.data() + j : nullptr;
      trainc::amxMultiply(part);
    }
  // Neither touches what is between the rows.
  if (memcmp(c.data(), parts.data(), c.size() * sizeof(float))) {
    printf("%ld x %ld x %ld, transpose %d %d: a part differs\n", m, n, k, ta,
           tb);
    exit(1);
  }
  free(scratch);
}

int main() {
  if (!trainc::haveAmx()) {
    printf("this processor has no AMX\n");
    return 0;
  }
  const int64_t sizes[][3] = {{64, 64, 64},  {33, 45, 70},   {100, 40, 1030},
                              {400, 70, 96}, {1, 130, 2048}, {90, 1, 512}};
  for (auto &s : sizes)
    for (int flags = 0; flags < 16; ++flags)
      check(s[0], s[1], s[2], flags & 1, flags & 2, flags & 4, flags & 8);
  return 0;
}
