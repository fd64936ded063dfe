// Products by AMX, for all transposes, odd sizes, more than one block, biases and
// accumulation. Of f32: no farther from sums in f64 than a chain of f32
// multiply-adds. Of bf16: as near as the result's type allows. A part of a product
// has the bits of the whole.
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

static float widened(float value) { return value; }
static float widened(uint16_t half) {
  uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

template <typename T> static std::vector<T> operand(int64_t count) {
  std::vector<T> values;
  for (float value : random_values(count)) {
    if constexpr (sizeof(T) == 2) {
      uint32_t bits;
      memcpy(&bits, &value, 4);
      values.push_back(static_cast<uint16_t>(bits >> 16));
    } else {
      values.push_back(value);
    }
  }
  return values;
}

/// A and B of type T, C of type R.
template <typename T, typename R>
static void check(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                  bool accumulate, bool bias) {
  constexpr uint32_t ab_type = sizeof(T) == 2 ? TRAINC_BF16 : TRAINC_F32;
  constexpr uint32_t c_type = sizeof(R) == 2 ? TRAINC_BF16 : TRAINC_F32;
  int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
  auto a = operand<T>((ta ? k : m) * lda), b = operand<T>((tb ? n : k) * ldb);
  auto before = operand<R>(m * ldc), added = operand<R>(n);
  auto c = before, parts = before;
  void *scratch = aligned_alloc(64, trainc::amxScratch(c_type, k));
  AmxProduct whole = {};
  whole.ab_type = ab_type, whole.c_type = c_type;
  whole.transposeA = ta, whole.transposeB = tb, whole.accumulate = accumulate;
  whole.m = m, whole.n = n, whole.k = k;
  whole.lda = lda, whole.ldb = ldb, whole.ldc = ldc;
  whole.a = a.data(), whole.b = b.data(), whole.c = c.data();
  whole.bias = bias ? added.data() : nullptr;
  whole.scratch = scratch;
  trainc::amxMultiply(whole);
  double error = 0, chain_error = 0, size = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      auto at = static_cast<size_t>(i * ldc + j);
      float chain = accumulate ? widened(before[at]) : 0;
      double sum = static_cast<double>(chain);
      for (int64_t p = 0; p < k; ++p) {
        float x =
            widened(a[static_cast<size_t>(ta ? p * lda + i : i * lda + p)]);
        float y =
            widened(b[static_cast<size_t>(tb ? j * ldb + p : p * ldb + j)]);
        sum += static_cast<double>(x) * y;
        chain = fmaf(x, y, chain);
      }
      if (bias) {
        sum += static_cast<double>(widened(added[static_cast<size_t>(j)]));
        chain += widened(added[static_cast<size_t>(j)]);
      }
      double result = static_cast<double>(widened(c[at]));
      error += (result - sum) * (result - sum);
      chain_error += (chain - sum) * (chain - sum);
      size += sum * sum;
    }
  // All round the result once at least.
  double allowed = (sizeof(R) == 2 ? 0x1p-8 : 0x1p-24) * sqrt(size);
  if (sizeof(R) == 4 && sqrt(chain_error) > allowed)
    allowed = sqrt(chain_error);
  if (!(sqrt(error) <= allowed)) {
    printf("%ld x %ld x %ld of %zu and %zu bytes, transpose %d %d, accumulate "
           "%d, bias %d: error %g, allowed %g, of %g\n",
           m, n, k, sizeof(T), sizeof(R), ta, tb, accumulate, bias, sqrt(error),
           allowed, sqrt(size));
    exit(1);
  }
  for (int64_t i = 0; i < m; i += 29)
    for (int64_t j = 0; j < n; j += 37) {
      AmxProduct part = whole;
      part.m = m - i < 29 ? m - i : 29;
      part.n = n - j < 37 ? n - j : 37;
      part.a = a.data() + (ta ? i : i * lda);
      part.b = b.data() + (tb ? j * ldb : j);
      part.c = parts.data() + i * ldc + j;
      part.bias = bias ? added.data() + j : nullptr;
      trainc::amxMultiply(part);
    }
  // Neither touches what is between the rows.
  if (memcmp(c.data(), parts.data(), c.size() * sizeof(R))) {
    printf("%ld x %ld x %ld of %zu and %zu bytes, transpose %d %d: a part "
           "differs\n",
           m, n, k, sizeof(T), sizeof(R), ta, tb);
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
                              {400, 70, 96}, {1, 130, 2600}, {90, 1, 512},
                              {500, 410, 40}};
  for (auto &s : sizes)
    for (int flags = 0; flags < 16; ++flags) {
      bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4,
           bias = flags & 8;
      check<float, float>(s[0], s[1], s[2], ta, tb, accumulate, bias);
      check<uint16_t, float>(s[0], s[1], s[2], ta, tb, accumulate, bias);
      check<uint16_t, uint16_t>(s[0], s[1], s[2], ta, tb, accumulate, bias);
    }
  // More of the stream than has sums beside C.
  check<uint16_t, uint16_t>(33, 1380, 1160, false, false, true, false);
  check<uint16_t, uint16_t>(1380, 420, 1160, true, true, false, true);
  return 0;
}
