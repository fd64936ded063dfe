//===- amx.cpp - Products of f32 matrices by AMX --------------------------===//
//
// An f32 number is the sum of three bf16 numbers: its upper eight bits of
// significand, the next eight, rounded, and the rest, which fits exactly. Of
// the nine products of two such sums the six largest are taken; what is left
// out is below 2^-24 of the product. AMX multiplies bf16 exactly and sums in
// f32, 32 terms of k at a time, so that a result is as close to the true one as
// a chain of f32 multiply-adds (test/Runtime/amx.cpp measures both). Subnormal
// pieces count as 0, and an infinity gives NaN.
//
// Registers hold 32 x 32 sums, 32 rows of A and 32 columns of B. One operand is
// resident: a block of it is packed once and stays in the second level cache.
// The other streams by in panels of 32 rows or columns, in chunks of k that fit
// the first level cache. While the registers multiply, a few instructions after
// every twelve products, the next chunk is packed and the sums of the block
// before are written to C: AMX works beside the vector units.
//
// Sums start at 0 in every block of at most 384 of k and are added to C then,
// in order. So an element of C depends on its row of A', its column of B' and k
// alone, however the product is cut and whichever operand is resident.
//
//===----------------------------------------------------------------------===//
#include "cpu/amx.h"
#include "cpu/features.h"
#include "cpu/indices.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace trainc;

namespace {
typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef uint32_t Words __attribute__((vector_size(64), aligned(4)));

/// Rows of A and columns of B in registers, k of a multiplication, rows of a
/// tile register, its bytes, pieces of a number.
constexpr int64_t side = 32, step = 32, half = 16, tileBytes = 1024, pieces = 3;
constexpr int64_t tileFloats = tileBytes / 4;
/// Most rows or columns and k of the resident block (884 KB), k of a chunk.
constexpr int64_t blockSide = 384, blockDepth = 384, chunkDepth = 128;
/// Bytes of `side` rows or columns, `step` deep, and of a chunk; floats of the
/// sums of a panel.
constexpr int64_t panelStep = 2 * pieces * tileBytes;
constexpr int64_t chunkBytes = chunkDepth / step * panelStep;
constexpr int64_t panelSums = side * side;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// A whole number of units, so that as few pieces as can be, of at most `most`,
/// are about equal.
int64_t evenPiece(int64_t size, int64_t most, int64_t unit) {
  int64_t count = ceilDiv(size, most);
  int64_t piece = count ? ceilDiv(size, count) : 1;
  return ceilDiv(piece, unit) * unit;
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

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

/// One operand: rows of A or columns of B.
struct Operand {
  const float *data;
  int64_t ld, count, depth;
  bool alongK; // consecutive floats are of one row or column, else of one k
  bool isB;

  /// Floats from one row or column to the next, and from one k to the next.
  int64_t unit() const { return alongK ? ld : 1; }
  int64_t deep() const { return alongK ? 1 : ld; }
  /// Whether 16 x 16 floats are to be transposed: a tile of A has a row per
  /// row, one of B a row per k.
  bool flipped() const { return alongK == isB; }
};

/// Packs up to `side` rows or columns, some k deep: per step of k the two tiles
/// of each piece. A word of a tile holds k and k + 16, of A and of B alike.
/// What is missing is 0.
class Packer {
public:
  /// From row or column `first` and `k` on, up to `end` and `depth` deep. What
  /// is packed after it starts `jump` floats from where this would go on.
  void begin(const Operand &operand, int64_t first, int64_t end, int64_t k,
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

  /// A quarter or a half of a tile.
  void slice() {
    if (phase == 0)
      locate();
    if (x.flipped() && phase < 2) {
      for (int64_t i = 0; i < half; ++i)
        __builtin_prefetch(later + phase * second + i * ld, 0, 1);
      flip(from + phase * second, flat + phase * tileFloats);
      ++phase;
      return;
    }
    int64_t i = phase % 2 * half / 2;
    char *at = to + tile / 2 * panelStep + tile % 2 * tileBytes;
    if (x.flipped()) {
      split(flat, flat + tileFloats, half, i, at);
    } else {
      for (int64_t j = i; j < i + half / 2; ++j) {
        __builtin_prefetch(later + j * ld, 0, 1);
        __builtin_prefetch(later + second + j * ld, 0, 1);
      }
      split(from, from + second, ld, i, at);
    }
    if (++phase == (x.flipped() ? 4 : 2)) {
      phase = 0;
      ++tile;
    }
  }

  void finish() {
    while (pending())
      slice();
  }

private:
  /// Where the tile's floats are, in two squares, or a copy filled up with 0.
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
    second = x.alongK ? half : half * ld;
  }

  void flip(const float *square, float *out) const {
    Words v[16];
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; ++i)
      v[i] = reinterpret_cast<const Words &>(square[i * ld]);
    transpose<8>(v);
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; ++i)
      reinterpret_cast<Words &>(out[16 * i]) = v[i];
  }

  /// Rows `first` and 7 more of a tile of each piece: words of one of `low` in
  /// the lower half, one of `high` in the upper.
  static void split(const float *low, const float *high, int64_t ld,
                    int64_t first, char *to) {
    constexpr uint32_t upper = 0xFFFF0000u, round = 0x8000u;
#pragma clang loop unroll(full)
    for (int64_t j = first; j < first + half / 2; ++j) {
      auto xs = reinterpret_cast<const Floats &>(low[j * ld]);
      auto ys = reinterpret_cast<const Floats &>(high[j * ld]);
#pragma clang loop unroll(full)
      for (int p = 0; p < pieces; ++p) {
        Words x = reinterpret_cast<Words &>(xs) + (p == 1 ? round : 0);
        Words y = reinterpret_cast<Words &>(ys) + (p == 1 ? round : 0);
        x &= upper;
        y &= upper;
        reinterpret_cast<Words &>(to[j * 64 + p * 2 * tileBytes]) =
            (x >> 16) | y;
        xs -= reinterpret_cast<Floats &>(x);
        ys -= reinterpret_cast<Floats &>(y);
      }
    }
  }

  Operand x;
  int64_t jump, tile = 0, tiles = 0;
  int phase = 0;
  char *to;
  const float *from, *later;
  int64_t ld, second; // floats from row to row and to the second square
  float edge[half * step];
  alignas(64) float flat[2 * tileFloats];
};

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// A rectangle of C.
struct Target {
  float *c;
  int64_t ldc, height, width;
  bool add;
  const float *bias;
};

/// Writes 32 x 32 sums, as four tiles, to C.
class Writer {
public:
  /// Prefetches `next` meanwhile, of as many rows.
  void begin(const Target &target, const float *sums, const float *next) {
    finish();
    x = target;
    this->sums = sums;
    this->next = next;
    row = 0;
  }

  bool pending() const { return row < x.height; }

  /// A quarter.
  void slice() {
    for (int64_t end = least(row + side / 4, x.height); row < end; ++row) {
      const float *from = sums + row / half * 2 * tileFloats + row % half * 16;
      float *to = x.c + row * x.ldc;
      __builtin_prefetch(next + row * x.ldc, 1, 1);
      __builtin_prefetch(next + row * x.ldc + half, 1, 1);
      if (x.width < side) {
        for (int64_t j = 0; j < x.width; ++j) {
          float sum = from[j / half * tileFloats + j % half];
          sum = x.add ? to[j] + sum : sum;
          to[j] = x.bias ? sum + x.bias[j] : sum;
        }
        continue;
      }
      for (int64_t j = 0; j < side; j += half, from += tileFloats) {
        Floats sum = reinterpret_cast<const Floats &>(*from);
        auto &at = reinterpret_cast<Floats &>(to[j]);
        if (x.add)
          sum = at + sum;
        if (x.bias)
          sum += reinterpret_cast<const Floats &>(x.bias[j]);
        at = sum;
      }
    }
  }

  void finish() {
    while (pending())
      slice();
  }

private:
  Target x = {};
  const float *sums, *next;
  int64_t row = 0;
};

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// What the vector units do while AMX multiplies.
struct Beside {
  Packer packer;
  Writer writer;

  __attribute__((noinline)) void slice() {
    if (writer.pending())
      writer.slice();
    else if (packer.pending())
      packer.slice();
  }
  void finish() {
    packer.finish();
    writer.finish();
  }
};

/// Sums, 32 x 32 in four tiles, = or += `steps` steps of k of a product. A
/// register is loaded again as soon as its last product is under way, two
/// products before the next one that needs it.
void multiply(const char *a, const char *b, int64_t steps, float *sums,
              bool fresh, Beside &beside) {
  if (fresh) {
    _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + tileFloats, 64);
    _tile_loadd(2, sums + 2 * tileFloats, 64);
    _tile_loadd(3, sums + 3 * tileFloats, 64);
  }
  constexpr int64_t piece = 2 * tileBytes;
  _tile_loadd(4, a + 2 * piece, 64);
  _tile_loadd(5, a + 2 * piece + tileBytes, 64);
  _tile_loadd(6, b, 64);
  _tile_loadd(7, b + tileBytes, 64);
  auto thenA = [](const char *next) __attribute__((always_inline)) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, next, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(5, next + tileBytes, 64);
  };
  auto thenB = [](const char *next) __attribute__((always_inline)) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, next, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, next + tileBytes, 64);
  };
  for (; steps > 0; --steps) {
    thenA(a + piece); // low * high
    thenB(b + piece); // middle * high
    thenA(a);         // middle * middle
    beside.slice();
    thenB(b + 2 * piece);    // high * middle
    thenB(b);                // high * low
    _tile_dpbf16ps(0, 4, 6); // high * high
    _tile_dpbf16ps(1, 4, 7);
    a += steps > 1 ? panelStep : 0;
    b += steps > 1 ? panelStep : 0;
    _tile_loadd(4, a + 2 * piece, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(5, a + 2 * piece + tileBytes, 64);
    _tile_loadd(7, b + tileBytes, 64);
    beside.slice();
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + tileFloats, 64);
  _tile_stored(2, sums + 2 * tileFloats, 64);
  _tile_stored(3, sums + 3 * tileFloats, 64);
}

/// Rows of C are written whole if A streams. But A and B are packed just once if
/// A fits the block, and the shorter operand should be resident.
bool streamsB(int64_t m, int64_t n) { return m <= blockSide && m < n; }

/// The product of one resident block with all of the stream.
class Block {
public:
  Block(const AmxProduct &product, bool streamsB)
      : x(product), streamsB(streamsB) {
    Operand a = {x.a, x.lda, x.m, x.k, !x.transposeA, false};
    Operand b = {x.b, x.ldb, x.n, x.k, x.transposeB, true};
    resident = streamsB ? a : b;
    stream = streamsB ? b : a;
    chunks[0] = static_cast<char *>(x.scratch);
    chunks[1] = chunks[0] + chunkBytes;
    sums = reinterpret_cast<float *>(chunks[1] + chunkBytes);
    held = reinterpret_cast<char *>(sums + blockSide / side * panelSums);
  }

  int64_t residentCount() const { return resident.count; }

  /// Rows or columns [first, first + count) of the resident operand, k in
  /// [p, p + depth).
  void run(int64_t first, int64_t count, int64_t p, int64_t depth) {
    this->first = first;
    this->count = count;
    this->p = p;
    this->depth = depth;
    steps = ceilDiv(depth, step);
    int64_t most = evenPiece(depth, chunkDepth, step);
    Packer &packer = beside.packer;
    for (int64_t r = 0; r < count; r += side) {
      packer.begin(resident, first + r, first + count, p, depth,
                   side * resident.unit() - steps * step * resident.deep(),
                   held + r / side * steps * panelStep);
      packer.finish();
    }
    char *now = chunks[0], *then = chunks[1];
    begin(0, 0, most, now);
    packer.finish();
    for (int64_t j = 0, q = 0; j < stream.count;) {
      bool last = q + most >= depth;
      int64_t nextJ = last ? j + side : j, nextQ = last ? 0 : q + most;
      if (nextJ < stream.count)
        begin(nextJ, nextQ, most, then);
      int64_t here = ceilDiv(least(depth - q, most), step);
      for (int64_t r = 0; r < count; r += side) {
        const char *panel = held + (r / side * steps + q / step) * panelStep;
        float *at = sums + r / side * panelSums;
        multiply(streamsB ? panel : now, streamsB ? now : panel, here, at,
                 q == 0, beside);
        if (last)
          write(j, r, at);
      }
      beside.finish();
      char *packed = then;
      then = now;
      now = packed;
      j = nextJ;
      q = nextQ;
    }
  }

private:
  /// Begins to pack the chunk at `j` of the stream and `q` of the block's k.
  void begin(int64_t j, int64_t q, int64_t most, char *to) {
    bool last = q + most >= depth;
    int64_t jump = side * stream.unit() - steps * step * stream.deep();
    beside.packer.begin(stream, j, stream.count, p + q, least(depth - q, most),
                        last ? jump : 0, to);
  }

  float *at(int64_t j, int64_t r) const {
    int64_t row = streamsB ? first + r : j, column = streamsB ? j : first + r;
    return x.c + row * x.ldc + column;
  }

  /// Begins to write the sums of panel `j` of the stream and `r` of the block.
  void write(int64_t j, int64_t r, const float *from) {
    int64_t height = least(streamsB ? count - r : stream.count - j, side);
    int64_t width = least(streamsB ? stream.count - j : count - r, side);
    bool ends = p + depth >= x.k;
    int64_t column = streamsB ? j : first + r;
    int64_t next = r + side, panel = j;
    if (next >= count) {
      next = 0;
      panel += side;
    }
    beside.writer.begin({at(j, r), x.ldc, height, width, p > 0 || x.accumulate,
                         ends && x.bias ? x.bias + column : nullptr},
                        from, at(panel, next));
  }

  AmxProduct x;
  bool streamsB;
  Operand resident, stream;
  char *chunks[2], *held;
  float *sums;
  int64_t first, count, p, depth, steps;
  Beside beside;
};
} // namespace

double trainc::amxCost(double m, double n) {
  // Multiply-adds that take as long as packing one number, first and beside.
  constexpr double first = 30, beside = 8;
  auto rows = static_cast<int64_t>(m), columns = static_cast<int64_t>(n);
  if (streamsB(rows, columns))
    return 1 + first / n + beside / m;
  return 1 + first / m +
         beside / n * static_cast<double>(ceilDiv(columns, blockSide));
}

const uint64_t trainc::amxScratch =
    static_cast<uint64_t>(2 * chunkBytes + blockSide / side * panelSums * 4 +
                          (blockSide / side) * (blockDepth / step) * panelStep);

void trainc::amxMultiply(const AmxProduct &x) {
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
  Block block(x, streamsB(x.m, x.n));
  int64_t depthPiece = evenPiece(x.k, blockDepth, step);
  int64_t piece = evenPiece(block.residentCount(), blockSide, side);
  for (int64_t p = 0; p < x.k; p += depthPiece)
    for (int64_t i = 0; i < block.residentCount(); i += piece)
      block.run(i, least(block.residentCount() - i, piece), p,
                least(x.k - p, depthPiece));
  _tile_release();
}

bool trainc::haveAmx() {
  // The kernel keeps the registers' state for a process that asks for it.
  constexpr long requestPermission = 0x1023, tileData = 18;
  static int known; // 0: not yet, 1: no, 2: yes
  int have = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (have == 0) {
    have = 2;
    constexpr const char *needed[] = {"amx-bf16", "amx-tile", "avx512f",
                                      "avx512bw", "avx512cd", "avx512dq",
                                      "avx512vl"};
    for (const char *feature : needed)
      if (!hasFeature(feature))
        have = 1;
    if (have == 2 && syscall(SYS_arch_prctl, requestPermission, tileData) != 0)
      have = 1;
    __atomic_store_n(&known, have, __ATOMIC_RELAXED);
  }
  return have == 2;
}
