//===- window_gemm.h - Products with windows of planes ----------*- C++ -*-===//
//
// For kernels.cpp alone, which is compiled per processor level.
//
// Row k of B is no row of a matrix but the elements behind a place in a plane, which is
// read where it stands: windows that overlap are one plane in the cache, and nothing is
// copied for each of their taps. A is packed in panels of the rows of a register tile. For
// the gradient of the weight it is A that is seen, and B, the gradients of the outputs, that
// is packed. The sums are those of vector_gemm.h, in the same order.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_WINDOW_GEMM_H
#define TRAINC_CPU_WINDOW_GEMM_H

#include "cpu/vector_gemm.h"

namespace {

using trainc::GradientPanels;
using trainc::WindowFactor;
using trainc::WindowGradient;
using trainc::WindowProduct;

template <int Lanes, int Rows, bool PacksA = false> struct WindowGemm {
  typedef VectorGemm<float, Lanes, Rows, PacksA> Gemm;
  typedef typename Gemm::Vector Vector;
  static constexpr int Columns = Gemm::Columns;
  static constexpr int64_t rows = Rows;
  static_assert(Columns <= trainc::windowColumns);

  template <int Count, int Vectors>
  static void tile(int64_t depth, const float *a, const int64_t *offsets,
                   const float *planes, float *c, int64_t ldc,
                   bool accumulate) {
    Vector sums[Count][Vectors] = {};
    auto factor = [&](int64_t at) __attribute__((always_inline)) -> float {
      if constexpr (!PacksA)
        return a[at];
      constexpr int scalars = Gemm::scalars;
      return reinterpret_cast<const typename Gemm::Scalars *>(
          a)[at / scalars][at % scalars];
    };
    auto step = [&](int64_t steps) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int64_t p = 0; p < steps; ++p) {
        const float *b = planes + offsets[p];
        Vector left = Gemm::load(b),
               right = Vectors > 1 ? Gemm::load(b + Lanes) : left;
#pragma clang loop unroll(full)
        for (int i = 0; i < Count; ++i) {
          Vector x = factor(p * Rows + i) - Vector{};
          sums[i][0] = __builtin_elementwise_fma(x, left, sums[i][0]);
          if constexpr (Vectors > 1)
            sums[i][1] = __builtin_elementwise_fma(x, right, sums[i][1]);
        }
      }
      a += steps * Rows;
      offsets += steps;
    };
    int64_t quads = depth / 4;
    for (int64_t i = 0; i < Count && quads > 0; ++i, --quads) {
      __builtin_prefetch(c + i * ldc, 1);
      __builtin_prefetch(c + i * ldc + Columns - 1, 1);
      step(4);
    }
    for (; quads > 0; --quads)
      step(4);
    for (int64_t p = depth & ~3; p < depth; ++p)
      step(1);
#pragma clang loop unroll(full)
    for (int i = 0; i < Count; ++i)
      for (int j = 0; j < Vectors; ++j) {
        float *at = c + i * ldc + j * Lanes;
        Gemm::store(accumulate ? sums[i][j] + Gemm::load(at) : sums[i][j], at);
      }
  }

  using Tile = void (*)(int64_t, const float *, const int64_t *, const float *,
                        float *, int64_t, bool);
  template <int... I>
  static Tile tileOf(int64_t count, int64_t columns, trainc::Sequence<I...>) {
    static constexpr Tile tiles[] = {tile<I + 1, 2>...};
    static constexpr Tile narrow[] = {tile<I + 1, 1>...};
    return (columns > Lanes ? tiles : narrow)[count - 1];
  }

  /// Columns [j, j + Columns) of a block of k from p on.
  static void runPanel(const WindowProduct &x, int64_t j, int64_t p,
                       int64_t depth) {
    for (int64_t i = 0; i < x.m; i += Rows) {
      int64_t count = Gemm::least(x.m - i, Rows);
      tileOf(count, x.n - j, trainc::Indices<Rows>())(
          depth, x.a + i / Rows * x.panel + p * Rows, x.offsets + p,
          x.planes + j, x.c + i * x.ldc + j, x.ldc, x.accumulate || p > 0);
    }
  }

  static void run(const WindowProduct &x) {
    int64_t depth = Gemm::depthOf(x.k);
    // Of an A that stays in the second level cache all of k first: C is there, too.
    bool fits = x.m * x.k <= Gemm::blockRows * Gemm::blockDepth;
    int64_t group = fits ? x.k : depth;
    for (int64_t begin = 0; begin < x.k; begin += group)
      for (int64_t j = 0; j < x.n; j += Columns)
        for (int64_t p = begin; p < begin + group && p < x.k; p += depth)
          runPanel(x, j, p, Gemm::least(x.k - p, depth));
  }

  /// From tap to tap, if these stand side by side, in either order; else 0.
  static int64_t stepOf(const WindowFactor &x) {
    int64_t step = x.taps > 1 ? x.places[1] - x.places[0] : 1;
    bool even = step == 1 || step == -1;
    for (int64_t t = 1; even && t < x.taps; ++t)
      even = x.places[t] - x.places[t - 1] == step;
    return even ? step : 0;
  }

  template <typename From, float (*Widen)(From)>
  static void pack(const WindowFactor &x) {
    typedef VectorGemm<float, Lanes, Rows, PacksA, From, Widen> Stored;
    auto *from = static_cast<const From *>(x.from);
    float *to = x.to;
    int64_t channels = x.channels, taps = x.taps, step = stepOf(x);
    if (step == 1 && x.channel == taps) { // one long row
      taps *= channels;
      channels = 1;
    }
    for (int64_t i = 0; i < x.rows; i += Rows) {
      int64_t count = Gemm::least(x.rows - i, Rows);
      for (int64_t c = 0; c < channels; ++c) {
        const From *row = from + i * x.row + c * x.channel;
        int64_t t = 0;
        for (; step && count == Rows && t + Lanes <= taps; t += Lanes) {
          int64_t first = x.places[0] + step * t;
          Stored::packPart(row + (step < 0 ? first - Lanes + 1 : first), x.row,
                           /*reversed=*/step < 0, to + t * Rows);
        }
        for (; t < taps; ++t) {
          const From *at = row + (step ? x.places[0] + step * t : x.places[t]);
          for (int64_t r = 0; r < count; ++r)
            to[t * Rows + r] = Widen(at[r * x.row]);
        }
        to += taps * Rows;
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Sums over outputs
  //===--------------------------------------------------------------------===//

  /// For `Count` rows of windows, and `Vectors` vectors of outputs.
  template <int Count, int Vectors>
  static void sumTile(const WindowGradient &x, const int64_t *offsets,
                      const float *b, float *c) {
    Vector sums[3 * Count][Vectors] = {};
    const float *a[Count];
    for (int g = 0; g < Count; ++g)
      a[g] = x.planes + offsets[3 * g];
    const int64_t columns[3] = {0, offsets[1] - offsets[0],
                                offsets[2] - offsets[0]};
    for (int64_t p = 0; p < x.rows; ++p) {
      for (int64_t q = 0; q < x.columns; ++q, b += Columns) {
        Vector left = Gemm::load(b),
               right = Vectors > 1 ? Gemm::load(b + Lanes) : left;
#pragma clang loop unroll(full)
        for (int i = 0; i < 3 * Count; ++i) {
          Vector seen = a[i / 3][columns[i % 3]] - Vector{};
          sums[i][0] = __builtin_elementwise_fma(seen, left, sums[i][0]);
          if constexpr (Vectors > 1)
            sums[i][1] = __builtin_elementwise_fma(seen, right, sums[i][1]);
        }
        // Opaque to the compiler, which would keep an address for each of them.
#pragma clang loop unroll(full)
        for (int g = 0; g < Count; ++g) {
          ++a[g];
          asm("" : "+r"(a[g]));
        }
      }
      for (int g = 0; g < Count; ++g)
        a[g] += x.pitch - x.columns;
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 3 * Count; ++i)
      for (int j = 0; j < Vectors; ++j) {
        float *at = c + i * x.ldc + j * Lanes;
        Gemm::store(x.accumulate ? sums[i][j] + Gemm::load(at) : sums[i][j],
                    at);
      }
  }

  using SumTile = void (*)(const WindowGradient &, const int64_t *,
                           const float *, float *);
  template <int... I>
  static SumTile sumTileOf(int64_t count, int64_t outputs,
                           trainc::Sequence<I...>) {
    static constexpr SumTile tiles[] = {sumTile<I + 1, 2>...};
    static constexpr SumTile narrow[] = {sumTile<I + 1, 1>...};
    return (outputs > Lanes ? tiles : narrow)[count - 1];
  }

  /// Elements of a panel of B.
  static int64_t panelElements(int64_t depth) {
    return (depth + Lanes - 1) / Lanes * Lanes * Columns;
  }

  static void sum(const WindowGradient &x) {
    constexpr int together = Rows / 3;
    const float *b = x.b;
    for (int64_t j = 0; j < x.outputs; j += Columns) {
      for (int64_t r = 0; r < x.rowsOfWindows; r += together) {
        int64_t count = Gemm::least(x.rowsOfWindows - r, together);
        sumTileOf(count, x.outputs - j, trainc::Indices<together>())(
            x, x.offsets + 3 * r, b, x.c + 3 * r * x.ldc + j);
      }
      b += panelElements(x.rows * x.columns);
    }
  }

  static void packGradients(const GradientPanels &x) {
    float *to = x.to;
    for (int64_t j = 0; j < x.columns; j += Columns) {
      typename Gemm::Panel panel = {x.from + j * x.ld,
                                    Gemm::least(x.columns - j, Columns),
                                    x.depth, /*transposed=*/true};
      Gemm::packB(panel, x.ld, 0, panel.units(), to);
      to += panelElements(x.depth);
    }
  }

  static void transposeRows(int64_t rows, int64_t columns, const float *from,
                            int64_t ld, float *to, int64_t ldTo) {
    Gemm::transposeRows(rows, columns, from, ld, nullptr, to, ldTo);
  }
};

} // namespace

#endif // TRAINC_CPU_WINDOW_GEMM_H
