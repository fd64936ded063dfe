//===- amx_pack.h - Operands of AMX, packed slice by slice ------*- C++ -*-===//
//
// For amx.cpp alone. A tile register of A holds 16 rows, 32 deep in k, one of B
// 32 k of 16 columns; a word of either holds two of k.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_AMX_PACK_H
#define TRAINC_CPU_AMX_PACK_H

#include "cpu/indices.h"

#include <stdint.h>

namespace {
using trainc::Indices;
using trainc::Sequence;

typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef uint32_t Words __attribute__((vector_size(64), aligned(2)));
typedef uint16_t Halves __attribute__((vector_size(32), aligned(2)));

/// Rows of A and columns of B in registers, k of a multiplication, rows of a
/// tile register, its bytes.
constexpr int64_t side = 32, step = 32, half = 16, tileBytes = 1024;
constexpr int64_t tileFloats = tileBytes / 4;

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// How many bf16 numbers a number of type T (bf16 as uint16_t) is the sum of.
template <typename T> constexpr int64_t pieces = sizeof(T) == 4 ? 3 : 1;
/// Bytes of `side` rows or columns, `step` deep.
template <typename T> constexpr int64_t panelStep = 2 * pieces<T> * tileBytes;

template <int Step, bool High, int... I>
Words merge(Words x, Words y, Sequence<I...>) {
  return __builtin_shufflevector(x, y,
                                 (High ? (I & Step ? 16 + I : I + Step)
                                       : (I & Step ? 16 + I - Step : I))...);
}

/// Transposes 16 x 16 words: the halves of size Step of each pair change
/// places, then those of half the size.
template <int Step>
__attribute__((always_inline)) inline void transpose(Words *v) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; ++i) {
    if (i & Step)
      continue;
    Words x = v[i], y = v[i + Step];
    v[i] = merge<Step, false>(x, y, Indices<16>());
    v[i + Step] = merge<Step, true>(x, y, Indices<16>());
  }
  if constexpr (Step > 1)
    transpose<Step / 2>(v);
}

/// Transposes 16 x 16 words, which are `ld` numbers from row to row.
template <typename T> void flip(const T *from, int64_t ld, Words *to) {
  Words v[16];
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; ++i)
    v[i] = reinterpret_cast<const Words &>(from[i * ld]);
  transpose<8>(v);
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; ++i)
    to[i] = v[i];
}

/// One operand: rows of A or columns of B.
template <typename T> struct Operand {
  const T *data;
  int64_t ld, count, depth;
  bool alongK; // consecutive numbers are of one row or column, else of one k
  bool isB;

  /// Numbers from one row or column to the next, and from one k to the next.
  int64_t unit() const { return alongK ? ld : 1; }
  int64_t deep() const { return alongK ? 1 : ld; }
  /// Whether 16 x 16 words are to be transposed: a tile of A has a row per row,
  /// one of B a row per two of k.
  bool flipped() const { return alongK == isB; }

  /// Squares of a tile of f32 to transpose.
  int flips() const { return flipped() ? 2 : 0; }

  int slicesOfTile() const;
};

/// Rows of a tile that a slice splits: few, so that AMX's next products come soon.
constexpr int64_t splitRows = 2;

template <> inline int Operand<float>::slicesOfTile() const {
  return half / splitRows + flips();
}
template <> inline int Operand<uint16_t>::slicesOfTile() const { return 1; }

/// Packs up to `side` rows or columns, some k deep: per step of k the two tiles
/// of each piece. What is missing is 0.
template <typename T> class Packer {
public:
  /// From row or column `first` and `k` on, up to `end` and `depth` deep. What
  /// is packed after it starts `jump` numbers from where this would go on.
  void begin(const Operand<T> &operand, int64_t first, int64_t end, int64_t k,
             int64_t depth, int64_t jump, char *to) {
    x = operand;
    x.data += first * x.unit() + k * x.deep();
    x.count = least(end - first, side);
    x.depth = least(x.depth - k, depth);
    this->jump = jump;
    this->to = to;
    tile = 0;
    tiles = ceilDiv(x.depth, step) * 2;
    phase = 0;
  }

  bool pending() const { return tile < tiles; }

  /// A part of a tile: some 100 instructions at most.
  void slice() {
    if (phase == 0)
      locate();
    run(to + tile / 2 * panelStep<T> + tile % 2 * tileBytes);
    if (++phase == x.slicesOfTile()) {
      phase = 0;
      ++tile;
    }
  }

  /// All that is left, without the cost of slices.
  void finish() {
    while (phase != 0)
      slice();
    for (; pending(); ++tile) {
      locate();
      runTile(to + tile / 2 * panelStep<T> + tile % 2 * tileBytes);
    }
  }

private:
  /// Where the tile's numbers are, or a copy filled up with 0.
  void locate() {
    int64_t first = tile % 2 * half, k = tile / 2 * step;
    int64_t rows = least(x.count - first, half);
    int64_t columns = least(x.depth - k, step);
    from = x.data + first * x.unit() + k * x.deep();
    ld = x.ld;
    later = from + step * x.deep() + (tile + 2 < tiles ? 0 : jump);
    if (rows < half || columns < step) {
      __builtin_memset(edge, 0, sizeof edge);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          edge[x.alongK ? r * step + c : c * half + r] =
              from[r * x.unit() + c * x.deep()];
      from = edge;
      ld = x.alongK ? step : half;
    }
  }

  /// Does slice `phase` of a tile.
  void run(char *tile);
  /// Does all slices of a tile.
  void runTile(char *tile);
  /// Of f32: transposes one of a tile's two squares, splits rows of both.
  void flipSquare(int square);
  void splitSquares(int64_t first, int64_t rows, char *tile);
  /// From a tile's first square to its second one.
  int64_t second() const { return x.alongK ? half : half * ld; }

  Operand<T> x;
  int64_t jump, tile = 0, tiles = 0;
  int phase = 0;
  char *to;
  const T *from, *later; // the tile's numbers, and those to prefetch
  int64_t ld;
  T edge[half * step];
  Words flat[2 * half];
};

/// `rows` rows from `first` on of a tile of each piece of f32 numbers: `low` in the
/// lower half of a word, `high` in the upper.
__attribute__((always_inline)) inline void split(const float *low,
                                                 const float *high, int64_t ld,
                                                 int64_t first, int64_t rows,
                                                 char *to) {
  constexpr uint32_t upper = 0xFFFF0000u, round = 0x8000u;
#pragma clang loop unroll_count(splitRows)
  for (int64_t j = first; j < first + rows; ++j) {
    auto xs = reinterpret_cast<const Floats &>(low[j * ld]);
    auto ys = reinterpret_cast<const Floats &>(high[j * ld]);
#pragma clang loop unroll(full)
    for (int p = 0; p < pieces<float>; ++p) {
      Words x = reinterpret_cast<Words &>(xs) + (p == 1 ? round : 0);
      Words y = reinterpret_cast<Words &>(ys) + (p == 1 ? round : 0);
      Words lower = x >> 16;
      // Else both become a permutation, of three operations.
      asm("" : "+v"(lower));
      x &= upper;
      y &= upper;
      reinterpret_cast<Words &>(to[j * 64 + p * 2 * tileBytes]) = lower | y;
      xs -= reinterpret_cast<Floats &>(x);
      ys -= reinterpret_cast<Floats &>(y);
    }
  }
}

/// A word holds k and k + 16: two squares of 16 x 16 floats.
template <> inline void Packer<float>::flipSquare(int square) {
  int64_t at = square * second();
  for (int64_t i = 0; i < half; ++i)
    __builtin_prefetch(later + at + i * ld, 0, 1);
  flip(from + at, ld, flat + square * half);
}

template <>
inline void Packer<float>::splitSquares(int64_t first, int64_t rows,
                                        char *tile) {
  if (x.flipped()) {
    auto *floats = reinterpret_cast<const float *>(flat);
    split(floats, floats + tileFloats, half, first, rows, tile);
    return;
  }
  for (int64_t j = first; j < first + rows; ++j) {
    __builtin_prefetch(later + j * ld, 0, 1);
    __builtin_prefetch(later + second() + j * ld, 0, 1);
  }
  split(from, from + second(), ld, first, rows, tile);
}

template <> inline void Packer<float>::run(char *tile) {
  if (phase < x.flips())
    flipSquare(phase);
  else
    splitSquares((phase - x.flips()) * splitRows, splitRows, tile);
}

template <> inline void Packer<float>::runTile(char *tile) {
  for (int i = 0; i < x.flips(); ++i)
    flipSquare(i);
  splitSquares(0, half, tile);
}

/// A word holds k and k + 1.
template <> inline void Packer<uint16_t>::run(char *tile) {
  auto *out = reinterpret_cast<Words *>(tile);
  if (x.alongK) {
    for (int64_t i = 0; i < half; ++i)
      __builtin_prefetch(later + i * ld, 0, 1);
    if (x.flipped())
      flip(from, ld, out);
    else
      for (int64_t i = 0; i < half; ++i)
        out[i] = reinterpret_cast<const Words &>(from[i * ld]);
    return;
  }
  Words v[half];
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < half; ++i) {
    const uint16_t *row = from + 2 * i * ld;
    __builtin_prefetch(later + 2 * i * ld, 0, 1);
    __builtin_prefetch(later + 2 * i * ld + ld, 0, 1);
    auto low = reinterpret_cast<const Halves &>(row[0]);
    auto high = reinterpret_cast<const Halves &>(row[ld]);
    v[i] = __builtin_convertvector(low, Words) |
           (__builtin_convertvector(high, Words) << 16);
  }
  if (x.flipped())
    transpose<8>(v);
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < half; ++i)
    out[i] = v[i];
}

template <> inline void Packer<uint16_t>::runTile(char *tile) { run(tile); }
} // namespace

#endif // TRAINC_CPU_AMX_PACK_H
