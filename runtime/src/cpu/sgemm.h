//===- sgemm.h - Product of f32 matrices, one thread ------------*- C++ -*-===//
//
// For kernels.cpp alone, which is compiled per processor level.
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
// depend on k alone, not on tiles, positions or the processor.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_SGEMM_H
#define TRAINC_CPU_SGEMM_H

#include "cpu/kernels.h"

namespace {

using trainc::Product;

/// The product for vectors of `Lanes` floats and register tiles of `Rows` rows.
template <int Lanes, int Rows> struct Sgemm {
  static_assert(Rows <= Lanes, "rows of a panel are transposed in one block");
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

  template <int... I> struct Sequence {};
  template <int N, int... I>
  struct MakeSequence : MakeSequence<N - 1, N - 1, I...> {};
  template <int... I> struct MakeSequence<0, I...> {
    using Type = Sequence<I...>;
  };
  template <int N> using Indices = typename MakeSequence<N>::Type;

  template <int Step, bool High, int... I>
  static Vector merge(Vector x, Vector y, Sequence<I...>) {
    return __builtin_shufflevector(
        x, y,
        (High ? (I & Step ? Lanes + I : I + Step)
              : (I & Step ? Lanes + I - Step : I))...);
  }

  /// Transposes Lanes vectors: the halves of size Step of each pair change
  /// places, then those of half the size.
  template <int Step> static void transposeStep(Vector *v) {
    for (int i = 0; i < Lanes; ++i) {
      if (i & Step)
        continue;
      Vector x = v[i], y = v[i + Step];
      v[i] = merge<Step, false>(x, y, Indices<Lanes>());
      v[i + Step] = merge<Step, true>(x, y, Indices<Lanes>());
    }
    if constexpr (Step > 1)
      transposeStep<Step / 2>(v);
  }

  /// to[p * stride + i] = from[i * ld + p] for i < rows <= Lanes and p < depth;
  /// i from rows to Lanes are 0, and written if `stride` leaves room or not:
  /// what stands behind a column of `to` must be written later.
  static void packTransposed(const float *from, int64_t ld, int64_t rows,
                             int64_t depth, float *to, int64_t stride) {
    int64_t p = 0;
    for (; p + Lanes <= depth; p += Lanes) {
      Vector block[Lanes];
      for (int i = 0; i < Lanes; ++i)
        block[i] = i < rows ? load(from + i * ld + p) : Vector{};
      transposeStep<Lanes / 2>(block);
      for (int i = 0; i < Lanes; ++i)
        store(block[i], to + (p + i) * stride);
    }
    for (; p < depth; ++p) {
      Vector column{};
      for (int i = 0; i < Lanes && i < rows; ++i)
        column[i] = from[i * ld + p];
      store(column, to + p * stride);
    }
  }

  /// Packs `depth` x `columns` of B from `b`.
  static void packB(const Product &x, const float *b, int64_t columns,
                    int64_t depth, float *to) {
    if (x.transposeB) {
      int64_t second = columns > Lanes ? columns - Lanes : 0;
      packTransposed(b, x.ldb, columns - second, depth, to, Columns);
      packTransposed(b + Lanes * x.ldb, x.ldb, second, depth, to + Lanes,
                     Columns);
      return;
    }
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

  /// Floats from one row to the next in a packed panel of A, and from one panel
  /// to the next; with room for what packing writes behind a panel of columns.
  static constexpr int64_t rowFloats = blockDepth + Lanes;
  static constexpr int64_t panelFloats = Rows * rowFloats;

  /// Packs `rows` x `depth` of A from `a` in panels of Rows rows: row after row
  /// or, if A is transposed, column after column.
  static void packA(const Product &x, const float *a, int64_t rows,
                    int64_t depth, float *to) {
    if (!x.transposeA) {
      for (int64_t i = 0; i < rows; ++i, a += x.lda) {
        float *row = to + i / Rows * panelFloats + i % Rows * rowFloats;
        int64_t p = 0;
        for (; p + Lanes <= depth; p += Lanes)
          store(load(a + p), row + p);
        for (; p < depth; ++p)
          row[p] = a[p];
      }
      return;
    }
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

  /// Where the lines of the next panel of B are that one tile prefetches: at
  /// `from` and `second` floats behind it, and every `stride` floats from
  /// there. Few at a time, as more would hold up the loads of this panel.
  struct Ahead {
    const float *from;
    int64_t second, stride, count;
  };

  /// C of `Count` rows and two vectors = A B, or += if `accumulate`, plus the
  /// bias (null: none).
  template <bool ByColumn, int Count>
  static void tile(int64_t depth, const float *a, const float *b, float *c,
                   int64_t ldc, bool accumulate, const float *bias,
                   Ahead ahead) {
    Vector sums[Count][2] = {};
    auto step = [&](int64_t steps) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int64_t p = 0; p < steps;
           ++p, a += ByColumn ? Rows : 1, b += Columns) {
        Vector left = load(b), right = load(b + Lanes);
#pragma clang loop unroll(full)
        for (int i = 0; i < Count; ++i) {
          Vector x = a[ByColumn ? i : i * rowFloats] - Vector{};
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
      __builtin_prefetch(ahead.from + ahead.second, 0, 2);
      ahead.from += ahead.stride;
      step(4);
    }
    for (; quads > 0; --quads)
      step(4);
    for (int64_t p = depth & ~3; p < depth; ++p)
      step(1);
    for (int j = 0; j < 2; ++j) {
      Vector added = bias ? load(bias + j * Lanes) : Vector{};
#pragma clang loop unroll(full)
      for (int i = 0; i < Count; ++i) {
        float *at = c + i * ldc + j * Lanes;
        Vector sum = sums[i][j];
        if (accumulate)
          sum += load(at);
        store(bias ? sum + added : sum, at);
      }
    }
  }

  using Tile = void (*)(int64_t, const float *, const float *, float *, int64_t,
                        bool, const float *, Ahead);
  template <int... I>
  static Tile tileOf(bool byColumn, int64_t count, Sequence<I...>) {
    static constexpr Tile tiles[2][Rows] = {{tile<false, I + 1>...},
                                            {tile<true, I + 1>...}};
    return tiles[byColumn][count - 1];
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

  /// The lines of panel `b` of B, `depth` deep, that tile `i` of `tiles` shall
  /// prefetch.
  static Ahead linesAhead(const Product &x, const float *b, int64_t depth,
                          int64_t i, int64_t tiles) {
    if (x.transposeB)
      return {b + 2 * i * x.ldb, x.ldb, Lanes,
              2 * i < Columns ? depth / Lanes : 0};
    int64_t share = (depth + tiles - 1) / tiles;
    int64_t left = depth - i * share;
    return {b + i * share * x.ldb, Lanes, x.ldb, left < share ? left : share};
  }

  /// Multiplies the packed block with a panel of B of `columns` columns; `next`
  /// is the panel after it (null: none).
  static void runPanel(const Product &x, int64_t rows, int64_t columns,
                       int64_t depth, const float *a, const float *b, float *c,
                       bool accumulate, const float *bias, const float *next,
                       int64_t nextDepth) {
    float edge[Rows * Columns], edgeBias[Columns];
    bool whole = columns == Columns;
    if (!whole && bias) {
      for (int64_t j = 0; j < Columns; ++j)
        edgeBias[j] = j < columns ? bias[j] : 0.0f;
      bias = edgeBias;
    }
    int64_t tiles = (rows + Rows - 1) / Rows;
    for (int64_t i = 0; i < tiles; ++i, a += panelFloats) {
      int64_t count = rows - i * Rows < Rows ? rows - i * Rows : Rows;
      Tile run = tileOf(x.transposeA, count, Indices<Rows>());
      float *to = c + i * Rows * x.ldc;
      Ahead ahead = {};
      if (next)
        ahead = linesAhead(x, next, nextDepth, i, tiles);
      if (whole) {
        run(depth, a, b, to, x.ldc, accumulate, bias, ahead);
        continue;
      }
      for (int64_t r = 0; accumulate && r < count; ++r)
        for (int64_t j = 0; j < Columns; ++j)
          edge[r * Columns + j] = j < columns ? to[r * x.ldc + j] : 0.0f;
      run(depth, a, b, edge, Columns, accumulate, bias, ahead);
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
    auto panel = [&](int64_t p, int64_t j) {
      return x.transposeB ? x.b + j * x.ldb + p : x.b + p * x.ldb + j;
    };
    int64_t group = blocks.depths * blocks.depth;
    for (int64_t first = 0; first == 0 || first < x.k; first += group) {
      int64_t end = x.k - first < group ? x.k : first + group;
      for (int64_t i = 0; i < x.m; i += blocks.rows) {
        int64_t rows = x.m - i < blocks.rows ? x.m - i : blocks.rows;
        float *a = packedA;
        for (int64_t p = first; p < end;
             p += blocks.depth, a += blocks.panels * panelFloats)
          packA(x, x.transposeA ? x.a + p * x.lda + i : x.a + i * x.lda + p,
                rows, depthAt(p), a);
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
                     p > 0 || x.accumulate,
                     nextP >= x.k && x.bias ? x.bias + j : nullptr,
                     any ? next : nullptr, depthAt(last ? first : nextP));
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
