//===- sgemm.h - Product of a transposed f32 matrix, one thread -*- C++ -*-===//
//
// For kernels.cpp alone, which is compiled per processor level. C = A^T B is
// the product that gives the gradient of a weight.
//
// Blocks of A (blockRows x blockDepth) are packed once and stay in the second
// level cache while panels of B (blockDepth x columns of a register tile) are
// packed one after the other and multiplied with all of it; the next panel is
// prefetched meanwhile. The register tile is Rows x 2 vectors: per step of k
// two loads of B and one broadcast of A per row. The order of Goto and van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34
// (2008).
//
// An element of C is summed over k in order, from 0 in each block of k, and the
// blocks are added in order, with fused multiply-adds throughout: its bits
// depend on k alone, not on tiles or positions.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_SGEMM_H
#define TRAINC_CPU_SGEMM_H

#include "cpu/indices.h"
#include "cpu/kernels.h"

namespace {

using trainc::Indices;
using trainc::Product;
using trainc::Sequence;

/// The product for vectors of `Lanes` floats and register tiles of `Rows` rows.
template <int Lanes, int Rows> struct Sgemm {
  static_assert(Rows <= Lanes);
  typedef float Vector __attribute__((vector_size(4 * Lanes), aligned(4)));
  static constexpr int Columns = 2 * Lanes;
  static constexpr int64_t blockRows = 480, blockDepth = 384;
  static_assert(blockRows % (4 * Rows) == 0);

  static Vector load(const float *from) {
    return *reinterpret_cast<const Vector *>(from);
  }
  static void store(Vector value, float *to) {
    *reinterpret_cast<Vector *>(to) = value;
  }

  //===--------------------------------------------------------------------===//
  // Packing
  //===--------------------------------------------------------------------===//

  /// Packs `depth` x `columns` of B from `b`.
  static void packB(const Product &x, const float *b, int64_t columns,
                    int64_t depth, float *to) {
    for (int64_t p = 0; p < depth; ++p, b += x.ldb, to += Columns) {
      if (columns == Columns) {
        store(load(b), to);
        store(load(b + Lanes), to + Lanes);
        continue;
      }
      for (int64_t j = 0; j < Columns; ++j)
        to[j] = j < columns ? b[j] : 0.0f;
    }
  }

  /// Floats from one packed panel of A to the next, with room for what packing
  /// writes behind a panel.
  static constexpr int64_t panelFloats = Rows * blockDepth + 2 * Lanes;

  /// Packs `depth` x `rows` of A from `a`: panels of Rows of the product's
  /// rows.
  static void packA(const Product &x, const float *a, int64_t rows,
                    int64_t depth, float *to) {
    // Four panels at a time: writing more streams is slow.
    constexpr int64_t group = 4 * Rows, distance = 12;
    for (int64_t i = 0; i < rows; i += group, to += 4 * panelFloats) {
      bool whole = i + group - Rows + Lanes <= rows;
      for (int64_t p = 0; p < depth; ++p) {
        const float *from = a + p * x.lda + i;
        float *column = to + p * Rows;
        if (whole) {
          for (int64_t j = 0; j < group; j += Lanes)
            __builtin_prefetch(from + distance * x.lda + j);
          for (int64_t j = 0; j < 4; ++j)
            store(load(from + j * Rows), column + j * panelFloats);
          continue;
        }
        for (int64_t j = 0; i + j < rows && j < group; ++j)
          column[j / Rows * panelFloats + j % Rows] = from[j];
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Register tiles
  //===--------------------------------------------------------------------===//

  /// Rows of the next panel of B that one tile prefetches: few, as more would
  /// hold up the loads of this panel.
  struct Ahead {
    const float *from;
    int64_t stride, count;
  };

  /// C of `Count` rows and two vectors = A B, or += if `accumulate`.
  template <int Count>
  static void tile(int64_t depth, const float *a, const float *b, float *c,
                   int64_t ldc, bool accumulate, Ahead ahead) {
    Vector sums[Count][2] = {};
    auto step = [&](int64_t steps) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int64_t p = 0; p < steps; ++p, a += Rows, b += Columns) {
        Vector left = load(b), right = load(b + Lanes);
#pragma clang loop unroll(full)
        for (int i = 0; i < Count; ++i) {
          Vector x = a[i] - Vector{};
          sums[i][0] = __builtin_elementwise_fma(x, left, sums[i][0]);
          sums[i][1] = __builtin_elementwise_fma(x, right, sums[i][1]);
        }
      }
    };
    int64_t quads = depth / 4;
    for (int64_t i = 0; i < Count && quads > 0; ++i, --quads) {
      __builtin_prefetch(c + i * ldc, 1);
      __builtin_prefetch(c + i * ldc + Lanes, 1);
      step(4);
    }
    for (; ahead.count > 0 && quads > 0; --ahead.count, --quads) {
      __builtin_prefetch(ahead.from, 0, 2);
      __builtin_prefetch(ahead.from + Lanes, 0, 2);
      ahead.from += ahead.stride;
      step(4);
    }
    for (; quads > 0; --quads)
      step(4);
    for (int64_t p = depth & ~3; p < depth; ++p)
      step(1);
#pragma clang loop unroll(full)
    for (int i = 0; i < Count; ++i)
      for (int j = 0; j < 2; ++j) {
        float *at = c + i * ldc + j * Lanes;
        store(accumulate ? sums[i][j] + load(at) : sums[i][j], at);
      }
  }

  using Tile = void (*)(int64_t, const float *, const float *, float *, int64_t,
                        bool, Ahead);
  template <int... I> static Tile tileOf(int64_t count, Sequence<I...>) {
    static constexpr Tile tiles[] = {tile<I + 1>...};
    return tiles[count - 1];
  }

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  /// `size` in as few pieces of at most `most` as there can be, of equal size.
  static int64_t even(int64_t size, int64_t most) {
    int64_t pieces = (size + most - 1) / most;
    return pieces ? (size + pieces - 1) / pieces : 1;
  }

  static constexpr int64_t blockPanels = blockRows / Rows;

  /// How a product is cut: blocks of A have `rows` rows, in `panels` panels,
  /// and `depths` times `depth` of k, as many as the cache holds, so that C is
  /// written once if it can be.
  struct Blocks {
    int64_t rows, panels, depth, depths;
    explicit Blocks(const Product &x) {
      rows = (even(x.m, blockRows) + Rows - 1) / Rows * Rows;
      panels = (rows / Rows + 3) / 4 * 4; // packed by four
      depth = even(x.k, blockDepth);
      depths = blockPanels / panels;
      int64_t all = (x.k + depth - 1) / depth;
      depths = depths < all ? depths : all;
      depths = depths < 1 ? 1 : depths;
    }
  };

  static constexpr uint64_t scratchBytes =
      (blockPanels * panelFloats + blockDepth * Columns) * sizeof(float);

  /// What tile `i` of `tiles` prefetches of panel `b` of B, `depth` deep.
  static Ahead rowsAhead(const Product &x, const float *b, int64_t depth,
                         int64_t i, int64_t tiles) {
    int64_t share = (depth + tiles - 1) / tiles;
    int64_t left = depth - i * share;
    return {b + i * share * x.ldb, x.ldb, left < share ? left : share};
  }

  /// Multiplies the packed block with a panel of B of `columns` columns; `next`
  /// is the panel after it (null: none).
  static void runPanel(const Product &x, int64_t rows, int64_t columns,
                       int64_t depth, const float *a, const float *b, float *c,
                       bool accumulate, const float *next, int64_t nextDepth) {
    float edge[Rows * Columns];
    int64_t tiles = (rows + Rows - 1) / Rows;
    for (int64_t i = 0; i < tiles; ++i, a += panelFloats) {
      int64_t count = rows - i * Rows < Rows ? rows - i * Rows : Rows;
      Tile run = tileOf(count, Indices<Rows>());
      float *to = c + i * Rows * x.ldc;
      Ahead ahead = {};
      if (next)
        ahead = rowsAhead(x, next, nextDepth, i, tiles);
      if (columns == Columns) {
        run(depth, a, b, to, x.ldc, accumulate, ahead);
        continue;
      }
      for (int64_t r = 0; accumulate && r < count; ++r)
        for (int64_t j = 0; j < Columns; ++j)
          edge[r * Columns + j] = j < columns ? to[r * x.ldc + j] : 0.0f;
      run(depth, a, b, edge, Columns, accumulate, ahead);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t j = 0; j < columns; ++j)
          to[r * x.ldc + j] = edge[r * Columns + j];
    }
  }

  static void run(const Product &x) {
    const Blocks blocks(x);
    auto *packedB = static_cast<float *>(x.scratch);
    float *packedA = packedB + blocks.depth * Columns;
    auto depthAt = [&](int64_t p) {
      return x.k - p < blocks.depth ? x.k - p : blocks.depth;
    };
    auto panel = [&](int64_t p, int64_t j) { return x.b + p * x.ldb + j; };
    int64_t group = blocks.depths * blocks.depth;
    for (int64_t first = 0; first == 0 || first < x.k; first += group) {
      int64_t end = x.k - first < group ? x.k : first + group;
      for (int64_t i = 0; i < x.m; i += blocks.rows) {
        int64_t rows = x.m - i < blocks.rows ? x.m - i : blocks.rows;
        float *a = packedA;
        for (int64_t p = first; p < end;
             p += blocks.depth, a += blocks.panels * panelFloats)
          packA(x, x.a + p * x.lda + i, rows, depthAt(p), a);
        for (int64_t j = 0; j < x.n; j += Columns) {
          int64_t columns = x.n - j < Columns ? x.n - j : Columns;
          a = packedA;
          int64_t p = first;
          do { // once for k = 0: C must be written
            int64_t depth = depthAt(p), nextP = p + blocks.depth;
            packB(x, panel(p, j), columns, depth, packedB);
            bool last = nextP >= end;
            const float *next =
                panel(last ? first : nextP, last ? j + Columns : j);
            bool any = !last || j + Columns < x.n;
            runPanel(x, rows, columns, depth, a, packedB, x.c + i * x.ldc + j,
                     p > 0 || x.accumulate, any ? next : nullptr,
                     depthAt(last ? first : nextP));
            a += blocks.panels * panelFloats;
            p = nextP;
          } while (p < end);
        }
      }
    }
  }
};

} // namespace

#endif // TRAINC_CPU_SGEMM_H
