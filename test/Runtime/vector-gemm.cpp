// Our own products of f32 and f64 against sums of more digits: each storage of A and B, odd
// sizes, more than one block, edges, accumulation, a bias. A part of a product has the bits
// of the whole, and one of factors in bf16 or f16 those of the widened factors. Each element
// of C is finished once, when it is complete. The bits, of which the test prints a hash, are
// those of every CPU. With an argument the test takes an emulator little time: the sums are
// left out, and of the sixteen forms of each size all but four are multiplied once, for the
// hash (vector-gemm-aarch64.test).
//
// DEFINE: %{flags} = -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs -lm -ldl -pthread
// RUN: %cxx %s %runtime_lib/libtrainc_runtime.a %{flags} -o %t
// RUN: %t | FileCheck %S/Inputs/vector-gemm.txt
// RUN: env TRAINC_AVX2_ONLY=1 %t | FileCheck %S/Inputs/vector-gemm.txt

#include "core/convert.h"
#include "core/hash.h"
#include "cpu/kernels.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <vector>

namespace {
struct Case {
  bool transposeA, transposeB, accumulate, bias;
  int64_t m, n, k;
};

/// Counts how often each element of C is finished, and adds 1 to it.
template <typename T> struct Finished {
  T *c;
  int64_t ldc;
  std::vector<int> counts;
};

[[noreturn]] void fail(const Case &x, const char *what) {
  printf("%ld x %ld x %ld, transposed %d %d, accumulate %d, bias %d: %s\n", x.m,
         x.n, x.k, x.transposeA, x.transposeB, x.accumulate, x.bias, what);
  exit(1);
}

size_t at(int64_t index) { return static_cast<size_t>(index); }

/// The tests of products of one type.
template <typename T> struct Test {
  typedef trainc::Product<T> Product;
  typedef std::conditional_t<sizeof(T) == 4, double, long double> Exact;
  bool brief; // for an emulator
  uint64_t hash = trainc::hashStart;

  static std::vector<T> values(int64_t count) {
    auto floats = random_values(count);
    return std::vector<T>(floats.begin(), floats.end());
  }

  static void multiply(const Product &product) {
    if constexpr (sizeof(T) == 4)
      trainc::kernels().multiplyF32(product);
    else
      trainc::kernels().multiplyF64(product);
  }
  static uint64_t scratchBytes() {
    const trainc::Kernels &kernels = trainc::kernels();
    return sizeof(T) == 4 ? kernels.multiplyScratchF32
                          : kernels.multiplyScratchF64;
  }

  static void finish(void *context, int64_t i, int64_t rows, int64_t j,
                     int64_t columns) {
    auto &finished = *static_cast<Finished<T> *>(context);
    for (int64_t r = i; r < i + rows; ++r)
      for (int64_t s = j; s < j + columns; ++s) {
        finished.c[r * finished.ldc + s] += 1;
        ++finished.counts[at(r * finished.ldc + s)];
      }
  }

  static void compare(const Case &x, const Product &p,
                      const std::vector<T> &before) {
    const double bar = sizeof(T) == 4 ? 1e-6 : 2e-15;
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t j = 0; j < x.n; ++j) {
        Exact sum = x.accumulate ? before[at(i * p.ldc + j)] : T(0);
        Exact size = fabsl(sum);
        sum += x.bias ? p.bias[j] : T(0);
        for (int64_t q = 0; q < x.k; ++q) {
          Exact a = p.a[x.transposeA ? q * p.lda + i : i * p.lda + q];
          Exact b = p.b[x.transposeB ? j * p.ldb + q : q * p.ldb + j];
          sum += a * b;
          size += fabsl(a * b);
        }
        Exact apart = fabsl(p.c[i * p.ldc + j] - sum);
        if (!(apart <= static_cast<Exact>(bar) * (size + 1)))
          fail(x, "wrong");
      }
  }

  /// Of `product` with factors that are rounded and stored as they are.
  template <uint16_t (*Narrow)(float), float (*Widen)(uint16_t)>
  static void checkNarrow(
      const Case &x, Product product, std::vector<T> a, std::vector<T> b,
      const std::vector<T> &before,
      void (*multiplyNarrow)(const trainc::Product<float, uint16_t> &)) {
    auto c = before, expected = before;
    auto narrowed = [](std::vector<T> &values) {
      std::vector<uint16_t> halves;
      for (T &value : values) {
        halves.push_back(Narrow(value));
        value = Widen(halves.back());
      }
      return halves;
    };
    auto narrowA = narrowed(a), narrowB = narrowed(b);
    product.a = a.data();
    product.b = b.data();
    product.c = expected.data();
    multiply(product);
    trainc::Product<float, uint16_t> narrow = {product.transposeA,
                                               product.transposeB,
                                               product.accumulate,
                                               product.m,
                                               product.n,
                                               product.k,
                                               product.lda,
                                               product.ldb,
                                               product.ldc,
                                               narrowA.data(),
                                               narrowB.data(),
                                               c.data(),
                                               product.bias,
                                               product.scratch,
                                               nullptr,
                                               nullptr};
    multiplyNarrow(narrow);
    if (memcmp(c.data(), expected.data(), c.size() * sizeof(T)))
      fail(x, "narrow factors give other bits");
    if (!x.accumulate)
      checkWindow(x, narrow, expected, multiplyNarrow);
  }

  /// What finish copies out of a window of sums.
  struct Window {
    std::vector<T> sums, c;
    std::vector<int> counts;
    int64_t ld, ldc;
  };

  static void copyWindow(void *context, int64_t i, int64_t rows, int64_t j,
                         int64_t columns) {
    auto &window = *static_cast<Window *>(context);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t s = 0; s < columns; ++s) {
        size_t place = at((i + r) * window.ldc + j + s);
        window.c[place] = window.sums[at(r * window.ld + s)];
        ++window.counts[place];
      }
  }

  /// The sums of a window are those of the whole.
  static void checkWindow(
      const Case &x, trainc::Product<float, uint16_t> product,
      const std::vector<T> &expected,
      void (*multiplyNarrow)(const trainc::Product<float, uint16_t> &)) {
    int64_t ld = product.windowColumns + 16;
    Window window = {std::vector<T>(at(product.windowRows * ld)), expected,
                     std::vector<int>(expected.size()), ld, product.ldc};
    product.c = window.sums.data();
    product.ldc = ld;
    product.window = true;
    product.finish = copyWindow;
    product.context = &window;
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t j = 0; j < x.n; ++j)
        window.c[at(i * window.ldc + j)] = -1;
    multiplyNarrow(product);
    if (memcmp(window.c.data(), expected.data(), expected.size() * sizeof(T)))
      fail(x, "a window gives other bits");
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t j = 0; j < window.ldc; ++j)
        if (window.counts[at(i * window.ldc + j)] != (j < x.n))
          fail(x, "a part of a window finished too early, or not once");
  }

  /// `hashOnly`: multiplies once.
  void run(const Case &x, bool hashOnly) {
    int64_t m = x.m, n = x.n, k = x.k;
    int64_t lda = (x.transposeA ? m : k) + 3, ldb = (x.transposeB ? k : n) + 1;
    int64_t ldc = n + 2;
    auto a = values((x.transposeA ? k : m) * lda),
         b = values((x.transposeB ? n : k) * ldb), before = values(m * ldc),
         bias = values(n);
    auto c = before;
    void *scratch = aligned_alloc(64, (scratchBytes() + 63) / 64 * 64);
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
    multiply(whole);
    if (!brief)
      compare(x, whole, before);
    hash = trainc::hashBytes(hash, c.data(), c.size() * sizeof(T));
    if (!hashOnly)
      checkOthers(x, whole, before, a, b);
    free(scratch);
  }

  /// Parts of the product, narrow factors and finished elements.
  void checkOthers(const Case &x, Product whole, const std::vector<T> &before,
                   const std::vector<T> &a, const std::vector<T> &b) {
    const std::vector<T> c(whole.c, whole.c + before.size());
    auto parts = before, finished = before;
    for (int64_t i = 0; i < x.m; i += 29)
      for (int64_t j = 0; j < x.n; j += 37) {
        Product part = whole;
        part.m = x.m - i < 29 ? x.m - i : 29;
        part.n = x.n - j < 37 ? x.n - j : 37;
        part.a += x.transposeA ? i : i * whole.lda;
        part.b += x.transposeB ? j * whole.ldb : j;
        part.bias += x.bias ? j : 0;
        part.c = parts.data() + i * whole.ldc + j;
        multiply(part);
      }
    // Neither touches what is between the rows.
    if (memcmp(c.data(), parts.data(), c.size() * sizeof(T)))
      fail(x, "a part differs");

    if constexpr (sizeof(T) == 4) {
      const trainc::Kernels &kernels = trainc::kernels();
      checkNarrow<trainc::f32ToBf16, trainc::bf16ToF32>(x, whole, a, b, before,
                                                        kernels.multiplyBf16);
      checkNarrow<trainc::f32ToF16, trainc::f16ToF32>(x, whole, a, b, before,
                                                      kernels.multiplyF16);
    }

    Finished<T> context = {finished.data(), whole.ldc,
                           std::vector<int>(c.size())};
    whole.c = finished.data();
    whole.finish = finish;
    whole.context = &context;
    multiply(whole);
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t j = 0; j < whole.ldc; ++j) {
        size_t place = at(i * whole.ldc + j);
        T expected = c[place] + (j < x.n ? T(1) : T(0));
        if (context.counts[place] != (j < x.n) || finished[place] != expected)
          fail(x, "finished too early, or not once");
      }
  }

  void runAll() {
    const int64_t sizes[][3] = {
        {1, 1, 1},      {12, 32, 256},  {13, 33, 257},   {11, 40, 15},
        {485, 70, 800}, {30, 100, 0},   {7, 5, 1000},    {500, 31, 64},
        {64, 16, 3},    {16, 530, 600}, {31, 1000, 300}, {100, 520, 1100}};
    int size = 0;
    for (auto &s : sizes) {
      for (int bits = 0; bits < 16; ++bits) {
        // Each of the four storages with another pair of accumulation and bias.
        bool others = (bits >> 2) == ((bits + size) & 3);
        run({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
             s[0], s[1], s[2]},
            brief && !others);
      }
      ++size;
    }
  }
};
} // namespace

int main(int argc, char **) {
  if (!trainc::kernels().multiplyF32) {
    printf("this processor has no AVX2\n");
    return 0;
  }
  Test<float> singles = {.brief = argc > 1};
  Test<double> doubles = {.brief = argc > 1};
  singles.runAll();
  doubles.runAll();
  printf("f32 %016lx\nf64 %016lx\n", singles.hash, doubles.hash);
  return 0;
}
