//===- vector_gemm.h - Product of f32 or f64 matrices, one thread -*- C++ -*-===//
//
// For kernels.cpp alone, which is compiled per processor level.
//
// Panels of B (blockDepth x columns of a register tile) are packed one after the
// other, each while the tiles of the panel before it multiply: a tile copies
// some rows of the next panel and prefetches those of the one after. Of a transposed
// A, of one that is multiplied with many columns, and of any where there are registers
// for rows of it, blocks (blockRows x blockDepth) are packed once and stay in the second
// level cache, of which rows far apart share few sets; else A is read where it stands.
// The register tile is Rows x 2 vectors: per step of k two loads of B and one broadcast of
// A per row. The order of Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", ACM TOMS 34 (2008).
//
// Elements of A and B that are stored in a narrower type are widened as they are packed, of
// A always.
//
// An element of C is summed over k in order, from 0 in each block of k, and the
// blocks are added in order, with fused multiply-adds throughout. Blocks of k are cut
// by k alone, on every CPU alike: so are its bits.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_VECTOR_GEMM_H
#define TRAINC_CPU_VECTOR_GEMM_H

#include "cpu/indices.h"
#include "cpu/kernels.h"
#include "cpu/sums.h"
#include "cpu/transpose.h"

namespace {

using trainc::Indices;
using trainc::Sequence;

/// The product for vectors of `Lanes` elements, and register tiles of `Rows` rows. With
/// PacksA every A is packed, and read by vectors of 16 bytes.
template <typename T, int Lanes, int Rows, bool PacksA = false,
          typename Stored = T, T (*Widen)(Stored) = same<T>>
struct VectorGemm : Transposes<T, Lanes> {
  typedef Transposes<T, Lanes> Base;
  using Base::least, Base::load, Base::store, Base::transpose,
      Base::transposeRows;
  using typename Base::Vector;
  static_assert(Rows <= Lanes);
  static constexpr bool widens = sizeof(Stored) < sizeof(T);
  typedef trainc::Product<T, Stored> Product;
  typedef T Scalars __attribute__((vector_size(16), aligned(sizeof(T))));
  static constexpr int Columns = 2 * Lanes;
  static constexpr int64_t blockRows = 480, blockDepth = 256;
  static_assert(blockRows % (4 * Rows) == 0 && blockDepth % Lanes == 0);
  static constexpr int scalars = 16 / sizeof(T); // of Scalars

  static Vector widened(const Stored *from) {
    if constexpr (!widens)
      return load(from);
    Vector value;
#pragma clang loop unroll(full)
    for (int i = 0; i < Lanes; ++i)
      value[i] = Widen(from[i]);
    return value;
  }

  //===--------------------------------------------------------------------===//
  // Packing
  //===--------------------------------------------------------------------===//

  struct Panel {
    const Stored *from;
    int64_t columns, depth;
    bool transposed;

    /// Steps of k that are packed at once.
    int64_t step() const { return transposed ? Lanes : 1; }
    int64_t units() const { return (depth + step() - 1) / step(); }
  };

  /// Packs units [first, end) of a panel of B.
  static void packB(const Panel &b, int64_t ld, int64_t first, int64_t end,
                    T *to) {
    if (b.transposed)
      return packTransposed(b, ld, first, end, to);
    const Stored *from = b.from + first * ld;
    to += first * Columns;
    for (int64_t p = first; p < end; ++p, from += ld, to += Columns) {
      if (b.columns == Columns) {
        store(widened(from), to);
        store(widened(from + Lanes), to + Lanes);
        continue;
      }
      for (int64_t j = 0; j < Columns; ++j)
        to[j] = j < b.columns ? Widen(from[j]) : T(0);
    }
  }

  static void packTransposed(const Panel &b, int64_t ld, int64_t first,
                             int64_t end, T *to) {
    for (int64_t p = first * Lanes; p < end * Lanes && p < b.depth; p += Lanes)
      for (int64_t half = 0; half < Columns; half += Lanes) {
        Vector v[Lanes];
        int64_t depth = b.depth - p < Lanes ? b.depth - p : Lanes;
        if (half + Lanes <= b.columns && depth == Lanes) {
          const Stored *from = b.from + half * ld + p;
#pragma clang loop unroll(full)
          for (int i = 0; i < Lanes; ++i) {
            v[i] = widened(from + i * ld);
            __builtin_prefetch(from + (i + Columns) * ld, 0, 2); // the next one
          }
        } else {
          for (int i = 0; i < Lanes; ++i) {
            v[i] = Vector{};
            for (int64_t q = 0; half + i < b.columns && q < depth; ++q)
              v[i][q] = Widen(b.from[(half + i) * ld + p + q]);
          }
        }
        transpose(v);
#pragma clang loop unroll(full)
        for (int i = 0; i < Lanes; ++i)
          store(v[i], to + (p + i) * Columns + half);
      }
  }

  /// Elements from one packed panel of A to the next, with room for what packing
  /// writes behind a panel.
  static constexpr int64_t panelElements = Rows * blockDepth + 2 * Lanes;

  /// Packs `rows` x `depth` of A from `a`: panels of Rows of the product's rows.
  static void packA(const Product &x, const Stored *a, int64_t rows,
                    int64_t depth, T *to) {
    if (!x.transposeA)
      return packRows(x, a, rows, depth, to);
    // Four panels at a time: writing more streams is slow.
    constexpr int64_t group = 4 * Rows, distance = 12;
    for (int64_t i = 0; i < rows; i += group, to += 4 * panelElements) {
      // Panels of which whole vectors may be read.
      int64_t whole = rows - i < Lanes ? 0 : (rows - i - Lanes) / Rows + 1;
      for (int64_t p = 0; p < depth; ++p) {
        const Stored *from = a + p * x.lda + i;
        T *column = to + p * Rows;
        for (int64_t j = 0; j < group; j += Lanes)
          __builtin_prefetch(from + distance * x.lda + j);
        if (whole >= 4) {
          for (int64_t j = 0; j < 4; ++j)
            store(widened(from + j * Rows), column + j * panelElements);
          continue;
        }
        for (int64_t j = 0; j < whole; ++j)
          store(widened(from + j * Rows), column + j * panelElements);
        for (int64_t j = whole * Rows; i + j < rows && j < group; ++j)
          column[j / Rows * panelElements + j % Rows] = Widen(from[j]);
      }
    }
  }

  /// Packs Lanes steps of k of Rows rows of A, `ld` elements apart, the last step first if
  /// `reversed`. Behind the rows of the last one it writes up to a vector.
  static void packPart(const Stored *from, int64_t ld, bool reversed, T *to) {
    Vector v[Lanes] = {};
#pragma clang loop unroll(full)
    for (int r = 0; r < Rows; ++r)
      v[r] = widened(from + r * ld);
    transpose(v);
    if (reversed)
#pragma clang loop unroll(full)
      for (int q = 0; q < Lanes; ++q)
        store(v[Lanes - 1 - q], to + q * Rows);
    else
#pragma clang loop unroll(full)
      for (int q = 0; q < Lanes; ++q)
        store(v[q], to + q * Rows);
  }

  /// The same as packA of an A that is not transposed.
  static void packRows(const Product &x, const Stored *a, int64_t rows,
                       int64_t depth, T *to) {
    for (int64_t i = 0; i < rows; i += Rows, to += panelElements) {
      int64_t count = least(rows - i, Rows), p = 0;
      const Stored *from = a + i * x.lda;
      for (; count == Rows && p + Lanes <= depth; p += Lanes)
        packPart(from + p, x.lda, /*reversed=*/false, to + p * Rows);
      for (; p < depth; ++p)
        for (int64_t r = 0; r < count; ++r)
          to[p * Rows + r] = Widen(from[r * x.lda + p]);
    }
  }

  //===--------------------------------------------------------------------===//
  // Register tiles
  //===--------------------------------------------------------------------===//

  /// What a tile does beside its products, a little every four steps of k, as more
  /// would hold up its loads: copies `count` rows of the next panel of B, prefetches
  /// as many of those that the next tile copies, and prefetches the next rows of A
  /// where these are read in place (null: not).
  struct Beside {
    const Stored *from, *later;
    T *to;
    int64_t ldb, count;
    const T *nextA;
  };

  /// How many rows a tile may copy: beside half of its steps, after those in which it
  /// prefetches C.
  static int64_t mostBeside(int64_t depth) {
    int64_t left = least(depth / 4 - Rows, depth / 8);
    return left > 0 ? left : 0;
  }

  /// C of `Count` rows and `Vectors` vectors = A B, or += if `accumulate`, + bias
  /// (null: none). Packed, `a` is a panel of A; else where its rows are, lda apart.
  template <int Count, bool Packed, int Vectors>
  static void tile(int64_t depth, const T *a, int64_t lda, const T *b, T *c,
                   int64_t ldc, bool accumulate, const T *bias,
                   const Beside &beside) {
    Vector sums[Count][Vectors] = {};
    // Rows of A in place: by a pointer to every third. These are opaque to the compiler,
    // which would load elements of several steps at once and spill them.
    constexpr int Pointers = (Count + 2) / 3;
    const T *rows[Pointers];
    for (int j = 0; j < Pointers; ++j)
      rows[j] = a + 3 * j * lda;
    // Of step p, the factor of row i.
    auto factor = [&](int64_t p, int i) __attribute__((always_inline)) -> T {
      if constexpr (!Packed)
        return rows[i / 3][i % 3 * lda];
      int64_t at = p * Rows + i;
      if constexpr (!PacksA)
        return a[at];
      return reinterpret_cast<const Scalars *>(a)[at / scalars][at % scalars];
    };
    auto step = [&](int64_t steps) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int64_t p = 0; p < steps; ++p, b += Columns) {
        Vector left = load(b), right = Vectors > 1 ? load(b + Lanes) : left;
#pragma clang loop unroll(full)
        for (int i = 0; i < Count; ++i) {
          Vector x = factor(p, i) - Vector{};
          sums[i][0] = __builtin_elementwise_fma(x, left, sums[i][0]);
          if constexpr (Vectors > 1)
            sums[i][1] = __builtin_elementwise_fma(x, right, sums[i][1]);
        }
        if constexpr (!Packed)
#pragma clang loop unroll(full)
          for (int j = 0; j < Pointers; ++j) {
            ++rows[j];
            asm("" : "+r"(rows[j]));
          }
      }
      a += steps * Rows;
    };
    int64_t quads = depth / 4;
    for (int64_t i = 0; i < Count && quads > 0; ++i, --quads) {
      __builtin_prefetch(c + i * ldc, 1);
      __builtin_prefetch(c + i * ldc + Columns - 1, 1);
      step(4);
    }
    const Stored *from = beside.from, *later = beside.later;
    T *to = beside.to;
    for (int64_t i = 0; i < beside.count; ++i, --quads) {
      store(widened(from), to);
      store(widened(from + Lanes), to + Lanes);
      __builtin_prefetch(later, 0, 2);
      __builtin_prefetch(later + Columns - 1, 0, 2);
      from += beside.ldb;
      later += beside.ldb;
      to += Columns;
      step(4);
    }
    if (!Packed && beside.nextA)
      for (int64_t i = 0; i < Rows; ++i)
        for (int64_t p = 0; p < depth && quads > 0; p += 32, --quads) {
          __builtin_prefetch(beside.nextA + i * lda + p);
          __builtin_prefetch(beside.nextA + i * lda + p + 16);
          step(4);
        }
    for (; quads > 0; --quads)
      step(4);
    for (int64_t p = depth & ~3; p < depth; ++p)
      step(1);
#pragma clang loop unroll(full)
    for (int i = 0; i < Count; ++i)
      for (int j = 0; j < Vectors; ++j) {
        T *at = c + i * ldc + j * Lanes;
        Vector value = sums[i][j];
        if (accumulate)
          value += load(at);
        if (bias)
          value += load(bias + j * Lanes);
        store(value, at);
      }
  }

  using Tile = void (*)(int64_t, const T *, int64_t, const T *, T *, int64_t,
                        bool, const T *, const Beside &);
  /// The tile of `count` rows; of one vector if `columns` fit into that.
  template <bool Packed, int... I>
  static Tile tileOf(int64_t count, int64_t columns, Sequence<I...>) {
    static constexpr Tile tiles[] = {tile<I + 1, Packed, 2>...};
    static constexpr Tile narrow[] = {tile<I + 1, Packed, 1>...};
    return (columns > Lanes ? tiles : narrow)[count - 1];
  }

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  /// `size` in as few pieces of at most `most` as there can be, of equal size.
  static int64_t even(int64_t size, int64_t most) {
    int64_t pieces = (size + most - 1) / most;
    return pieces ? (size + pieces - 1) / pieces : 1;
  }

  /// How deep blocks of k are.
  static int64_t depthOf(int64_t k) {
    return (even(k, blockDepth) + 3) / 4 * 4;
  }

  static constexpr int64_t blockPanels = blockRows / Rows;

  /// How a product is cut: blocks of A have `rows` rows, in `panels` panels,
  /// and `depths` times `depth` of k, as many as the cache holds, so that C is
  /// written once if it can be. `columns` of C are computed before the next ones: all,
  /// or those of a window, fewer if blocks have all of k: they are packed once then.
  struct Blocks {
    int64_t rows, panels, depth, depths, columns;
    explicit Blocks(const Product &x) {
      rows = even(x.m, x.window ? Product::windowRows : blockRows);
      rows = (rows + Rows - 1) / Rows * Rows;
      panels = (rows / Rows + 3) / 4 * 4; // packed by four
      depth = depthOf(x.k);
      depths = least(blockPanels / panels, (x.k + depth - 1) / depth);
      depths = depths < 1 ? 1 : depths;
      constexpr int64_t few = 128;
      bool whole = depths * depth >= x.k;
      columns = !x.window ? INT64_MAX : whole ? few : Product::windowColumns;
    }
  };

  /// A packed panel of B; what is packed transposed is a multiple of Lanes deep.
  static constexpr int64_t packedElements = blockDepth * Columns;
  static constexpr int64_t packedAll =
      2 * packedElements + blockPanels * panelElements;
  static constexpr uint64_t scratchBytes =
      (packedAll + blockRows * Columns) * sizeof(T);

  /// Where a panel of B is in the order of the work: in group `group` of blocks of
  /// k, for the block of rows from i on, the panel of columns from j on, from p on.
  struct Position {
    int64_t group, i, j, p;
  };

  static int64_t groupEnd(const Product &x, const Blocks &s,
                          const Position &at) {
    return least(at.group + s.depths * s.depth, x.k);
  }

  /// Goes on to the next panel: of a window, all of its k before the next one; false if
  /// there is none.
  static bool advance(const Product &x, const Blocks &s, Position &at) {
    int64_t end = groupEnd(x, s, at);
    at.p += s.depth;
    if (at.p < end)
      return true;
    at.p = at.group;
    int64_t first = at.j / s.columns * s.columns;
    at.j += Columns;
    if (at.j < least(first + s.columns, x.n))
      return true;
    if (x.window) {
      at.p = at.group = end < x.k ? end : 0;
      at.j = end < x.k ? first : at.j;
    }
    if (at.j < x.n)
      return true;
    at.j = 0;
    at.i += s.rows;
    if (at.i < x.m)
      return true;
    at.i = 0;
    at.p = at.group = end;
    return !x.window && at.group < x.k;
  }

  static Panel panelAt(const Product &x, const Blocks &s, const Position &at) {
    int64_t offset = x.transposeB ? at.j * x.ldb + at.p : at.p * x.ldb + at.j;
    return {x.b + offset, least(x.n - at.j, Columns),
            least(x.k - at.p, s.depth), x.transposeB};
  }

  /// Multiplies the block of A, `a`, with the panel `b`, and packs the next one
  /// (null: none) meanwhile.
  template <bool Packed>
  static void runPanel(const Product &x, const Blocks &s, const Position &at,
                       const T *a, const T *b, const Panel *next, T *nextB) {
    Panel panel = panelAt(x, s, at);
    int64_t rows = least(x.m - at.i, s.rows);
    // Of rows in place all tiles have about as many.
    int64_t each = Packed ? Rows : even(rows, Rows);
    int64_t tiles = (rows + each - 1) / each;
    int64_t units = next ? next->units() : 0;
    int64_t share = (units + tiles - 1) / tiles;
    int64_t toRows = Packed ? panelElements : each * x.lda;
    bool accumulate = at.p > 0 || x.accumulate;
    bool last = at.p + panel.depth >= x.k;
    const T *bias = last && x.bias ? x.bias + at.j : nullptr;
    T *c = x.c + (x.window ? at.j % s.columns : at.i * x.ldc + at.j);
    T edge[Rows * Columns], edgeBias[Columns];
    if (bias && panel.columns < Columns) {
      for (int64_t j = 0; j < Columns; ++j)
        edgeBias[j] = j < panel.columns ? bias[j] : T(0);
      bias = edgeBias;
    }
    const T *rowsOfA = a;
    for (int64_t i = 0; i < tiles; ++i, rowsOfA += toRows) {
      int64_t count = least(rows - i * each, each);
      Tile run = tileOf<Packed>(count, panel.columns, Indices<Rows>());
      Beside beside = {};
      beside.nextA = i + 1 < tiles ? rowsOfA + toRows : a;
      if (next) {
        int64_t first = least(i * share, units);
        int64_t end = least(first + share, units);
        if (!next->transposed && next->columns == Columns) {
          const Stored *from = next->from + first * x.ldb;
          int64_t copied = least(end - first, mostBeside(panel.depth));
          beside.from = from;
          beside.later = end + share <= units ? from + share * x.ldb : from;
          beside.to = nextB + first * Columns;
          beside.ldb = x.ldb;
          beside.count = copied;
          first += copied;
        }
        packB(*next, x.ldb, first, end, nextB);
      }
      T *to = c + i * each * x.ldc;
      if (panel.columns == Columns || panel.columns == Lanes) {
        run(panel.depth, rowsOfA, x.lda, b, to, x.ldc, accumulate, bias,
            beside);
        continue;
      }
      for (int64_t r = 0; accumulate && r < count; ++r)
        for (int64_t j = 0; j < Columns; ++j)
          edge[r * Columns + j] = j < panel.columns ? to[r * x.ldc + j] : T(0);
      run(panel.depth, rowsOfA, x.lda, b, edge, Columns, accumulate, bias,
          beside);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t j = 0; j < panel.columns; ++j)
          to[r * x.ldc + j] = edge[r * Columns + j];
    }
  }

  /// Tells that columns of C are complete, of some panels at once: as long pieces of
  /// rows as stay in the second level cache.
  static void finish(const Product &x, const Blocks &s, const Position &at) {
    constexpr int64_t elements = 1 << 16, fewest = 4;
    int64_t panels = elements / (least(x.m, s.rows) * Columns);
    int64_t together =
        x.window ? s.columns : (panels > fewest ? panels : fewest) * Columns;
    int64_t end = least(at.j + Columns, x.n);
    if (at.p + s.depth < x.k || (end % together && end != x.n))
      return;
    int64_t begin = (end - 1) / together * together;
    x.finish(x.context, at.i, least(x.m - at.i, s.rows), begin, end - begin);
  }

  //===--------------------------------------------------------------------===//
  // Few rows
  //===--------------------------------------------------------------------===//

  /// Whether the transpose of C is computed: A, of few rows, is packed in place of B, and
  /// B, whose rows are those of that product, read where it is.
  static bool isSwapped(const Product &x) {
    int64_t columns = x.m <= Lanes && Rows >= 8 ? Lanes : Columns;
    return !PacksA && x.transposeB && !x.transposeA && x.m <= columns &&
           4 * x.m >= 3 * columns && x.n >= 2 * x.m;
  }

  static void runSwapped(const Product &x) {
    T *result = static_cast<T *>(x.scratch) + packedAll;
    int64_t ld = x.m <= Lanes ? Lanes : Columns;
    for (int64_t j = 0; j < x.n; j += blockRows) {
      Product part = {};
      part.transposeB = true;
      part.accumulate = x.accumulate;
      part.m = least(x.n - j, blockRows);
      part.n = x.m;
      part.k = x.k;
      part.lda = x.ldb;
      part.ldb = x.lda;
      part.ldc = ld;
      part.a = x.b + j * x.ldb;
      part.b = x.a;
      part.c = result;
      part.scratch = x.scratch;
      T *c = x.c + j;
      if (x.accumulate)
        transposeRows(x.m, part.m, c, x.ldc, nullptr, result, ld);
      runInOrder(part);
      transposeRows(part.m, x.m, result, ld, x.bias ? x.bias + j : nullptr, c,
                    x.ldc);
      if (x.finish)
        x.finish(x.context, 0, x.m, j, part.m);
    }
  }

  static void run(const Product &x) {
    if constexpr (!widens)
      if (isSwapped(x))
        return runSwapped(x);
    runInOrder(x);
  }

  /// Whether blocks of A are packed.
  static bool packsBlocks(const Product &x) {
    constexpr int64_t many = 256; // columns that are worth it
    return PacksA || widens || x.transposeA || x.n >= many;
  }

  static void runInOrder(const Product &x) {
    const Blocks s(x);
    auto *buffers = static_cast<T *>(x.scratch);
    T *packedA = buffers + 2 * packedElements;
    Position at = {};
    Panel panel = panelAt(x, s, at);
    packB(panel, x.ldb, 0, panel.units(), buffers);
    const bool packs = packsBlocks(x);
    bool odd = false;
    for (bool more = true; more; odd = !odd) {
      if (packs && at.p == at.group && at.j % s.columns == 0 &&
          (at.j == 0 || s.depths * s.depth < x.k)) {
        T *to = packedA;
        for (int64_t p = at.group; p < groupEnd(x, s, at);
             p += s.depth, to += s.panels * panelElements)
          packA(x, x.a + (x.transposeA ? p * x.lda + at.i : at.i * x.lda + p),
                least(x.m - at.i, s.rows), least(x.k - p, s.depth), to);
      }
      Position next = at;
      more = advance(x, s, next);
      Panel nextPanel = panelAt(x, s, next);
      const Panel *following = more ? &nextPanel : nullptr;
      const T *b = buffers + (odd ? packedElements : 0);
      T *nextB = buffers + (odd ? 0 : packedElements);
      if (packs)
        runPanel<true>(x, s, at,
                       packedA + (at.p - at.group) / s.depth * s.panels *
                                     panelElements,
                       b, following, nextB);
      else if constexpr (!PacksA && !widens)
        runPanel<false>(x, s, at, x.a + at.i * x.lda + at.p, b, following,
                        nextB);
      if (x.finish)
        finish(x, s, at);
      at = next;
    }
  }
};

} // namespace

#endif // TRAINC_CPU_VECTOR_GEMM_H
