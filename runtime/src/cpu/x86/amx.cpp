//===- amx.cpp - Products of f32 and bf16 matrices by AMX -----------------===//
//
// AMX multiplies bf16 numbers exactly and sums in f32, 32 terms of k at a time.
//
// An f32 number is the sum of three bf16 numbers: its upper eight bits of
// significand, the next eight, rounded, and the rest, which fits exactly. Of
// the nine products of two such sums the six largest are taken; what is left
// out is below 2^-24 of the product. So a result is as close to the true one as
// a chain of f32 multiply-adds (test/Runtime/amx.cpp measures both). Subnormal
// numbers and pieces count as 0, and an infinity in f32 gives NaN.
//
// Registers hold 32 x 32 sums, 32 rows of A and 32 columns of B. One operand is
// resident: a block of it is packed once and stays in the second level cache.
// The other streams by in panels of 32 rows or columns, in chunks of k that fit
// the first level cache. While the registers multiply, a few instructions after
// each four to eight products, the next chunk is packed and the sums of the block
// before are written: AMX works beside the vector units.
//
// Sums start at 0 in every block of k and are added in f32, in order. So an
// element of C depends on its row of A', its column of B' and k alone, however
// the product is cut and whichever operand is resident.
//
//===----------------------------------------------------------------------===//
#include "cpu/amx.h"
#include "cpu/features.h"
#include "cpu/x86/amx_pack.h"
#include "cpu/x86/amx_write.h"
#include "cpu/x86/tiles.h"

#include <immintrin.h>

using namespace trainc;

namespace {
/// Most rows or columns and k of the resident block (884 KB), k of a chunk (24
/// KB).
constexpr int64_t blockSide = 384;
template <typename T> constexpr int64_t blockDepth = 1152 / pieces<T>;
template <typename T> constexpr int64_t chunkDepth = 384 / pieces<T>;
/// The same bytes for all types.
constexpr int64_t chunkBytes = chunkDepth<float> / step * panelStep<float>;
constexpr int64_t heldBytes =
    blockSide / side * (blockDepth<float> / step) * panelStep<float>;
/// Floats of the sums of a panel.
constexpr int64_t panelSums = side * side;
/// Most of the stream that has sums beside C, if C does not hold f32.
constexpr int64_t streamPiece = 1344;

/// A whole number of units, so that as few pieces as can be, of at most `most`,
/// are about equal.
int64_t evenPiece(int64_t size, int64_t most, int64_t unit) {
  int64_t count = ceilDiv(size, most);
  int64_t piece = count ? ceilDiv(size, count) : 1;
  return ceilDiv(piece, unit) * unit;
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

/// What the vector units do while AMX multiplies.
template <typename T> struct Beside {
  Packer<T> packer;
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

/// The products of f32 numbers. A register is loaded again as soon as its last
/// product is under way, two products before the next one that needs it.
void multiplySteps(const char *a, const char *b, int64_t steps,
                   Beside<float> &beside) {
  constexpr int64_t piece = 2 * tileBytes, panelStep = ::panelStep<float>;
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
    beside.slice();
    thenB(b + piece); // middle * high
    thenA(a);         // middle * middle
    beside.slice();
    thenB(b + 2 * piece); // high * middle
    beside.slice();
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
}

/// The products of bf16 numbers.
void multiplySteps(const char *a, const char *b, int64_t steps,
                   Beside<uint16_t> &beside) {
  constexpr int64_t panelStep = ::panelStep<uint16_t>;
  for (int64_t i = 0; i < steps; ++i, a += panelStep, b += panelStep) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + tileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + tileBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    beside.slice();
  }
}

/// How often a step of k calls `slice`.
template <typename T> constexpr int64_t gaps = sizeof(T) == 4 ? 4 : 1;

/// Sums, 32 x 32 in four tiles, = or += `steps` steps of k of a product.
template <typename T>
void multiply(const char *a, const char *b, int64_t steps, float *sums,
              bool fresh, Beside<T> &beside) {
  if (fresh) {
    _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + tileFloats, 64);
    _tile_loadd(2, sums + 2 * tileFloats, 64);
    _tile_loadd(3, sums + 3 * tileFloats, 64);
  }
  multiplySteps(a, b, steps, beside);
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + tileFloats, 64);
  _tile_stored(2, sums + 2 * tileFloats, 64);
  _tile_stored(3, sums + 3 * tileFloats, 64);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Rows of C are written whole if A streams. But A and B are packed just once if
/// A fits the block, and the shorter operand should be resident.
bool streamsB(int64_t m, int64_t n) { return m <= blockSide && m < n; }

/// Whether sums of several blocks of k need room beside C.
bool needsRoom(bool brain, int64_t k) {
  return brain && k > blockDepth<uint16_t>;
}

/// One product.
template <typename T> class Multiplication {
public:
  explicit Multiplication(const AmxProduct &product)
      : x(product), brain(x.c_type == TRAINC_BF16),
        swapped(streamsB(x.m, x.n)) {
    auto *a = static_cast<const T *>(x.a), *b = static_cast<const T *>(x.b);
    Operand<T> ofA = {a, x.lda, x.m, x.k, !x.transposeA, false};
    Operand<T> ofB = {b, x.ldb, x.n, x.k, x.transposeB, true};
    resident = swapped ? ofA : ofB;
    stream = swapped ? ofB : ofA;
    chunks[0] = static_cast<char *>(x.scratch);
    chunks[1] = chunks[0] + chunkBytes;
    sums = reinterpret_cast<float *>(chunks[1] + chunkBytes);
    held = reinterpret_cast<char *>(sums + blockSide / side * panelSums);
    room = reinterpret_cast<float *>(held + heldBytes);
  }

  void run() {
    int64_t deepest = evenPiece(x.k, blockDepth<T>, step);
    int64_t most = evenPiece(resident.count, blockSide, side);
    int64_t longest = stream.count;
    if (needsRoom(brain, x.k))
      longest = evenPiece(stream.count, streamPiece, side);
    for (int64_t j = 0; j < stream.count; j += longest)
      for (int64_t i = 0; i < resident.count; i += most)
        for (int64_t p = 0; p < x.k; p += deepest)
          runBlock({i, least(i + most, resident.count)},
                   {j, least(j + longest, stream.count)},
                   {p, least(p + deepest, x.k)});
  }

private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  /// Multiplies some of the resident operand with some of the stream.
  void runBlock(Range rows, Range columns, Range depth) {
    this->rows = rows;
    this->columns = columns;
    this->depth = depth;
    steps = ceilDiv(depth.size(), step);
    deep = evenPiece(depth.size(), chunkDepth<T>, step);
    Packer<T> &packer = beside.packer;
    for (int64_t r = 0; r < rows.size(); r += side) {
      packer.begin(resident, rows.begin + r, rows.end, depth.begin,
                   depth.size(),
                   side * resident.unit() - steps * step * resident.deep(),
                   held + r / side * steps * panelStep<T>);
      packer.finish();
    }
    // Slices cost more than they hide where not even the writing fits beside.
    bool apart = Writer::slices(x.epilogue) >= steps * gaps<T>;
    char *now = chunks[0], *then = chunks[1];
    pack(columns.begin, 0, now);
    packer.finish();
    for (int64_t j = columns.begin, q = 0; j < columns.end;) {
      bool last = q + deep >= depth.size();
      int64_t nextJ = last ? j + side : j, nextQ = last ? 0 : q + deep;
      if (nextJ < columns.end)
        pack(nextJ, nextQ, then);
      if (apart)
        beside.finish();
      int64_t here = ceilDiv(least(depth.size() - q, deep), step);
      for (int64_t r = 0; r < rows.size(); r += side) {
        const char *panel = held + (r / side * steps + q / step) * panelStep<T>;
        float *at = sums + r / side * panelSums;
        multiply(swapped ? panel : now, swapped ? now : panel, here, at, q == 0,
                 beside);
        if (last)
          write(j, r, at);
        if (apart)
          beside.finish();
      }
      beside.finish();
      char *packed = then;
      then = now;
      now = packed;
      j = nextJ;
      q = nextQ;
    }
  }

  /// Begins to pack the chunk at `j` of the stream and `q` of the block's k.
  void pack(int64_t j, int64_t q, char *to) {
    bool last = q + deep >= depth.size();
    int64_t jump = side * stream.unit() - steps * step * stream.deep();
    beside.packer.begin(stream, j, columns.end, depth.begin + q,
                        least(depth.size() - q, deep), last ? jump : 0, to);
  }

  /// Where panel `j` of the stream and `r` of the block come together, in a
  /// matrix as C.
  Rectangle at(void *matrix, int64_t j, int64_t r) const {
    int64_t row = swapped ? rows.begin + r : j;
    int64_t column = swapped ? j : rows.begin + r;
    return Rectangle{matrix, x.ldc, brain}.at(row, column);
  }

  /// The same in C or in the room beside it.
  Rectangle at(bool inRoom, int64_t j, int64_t r) const {
    if (!inRoom)
      return at(x.c, j, r);
    return Rectangle{room, streamPiece, false}.at(r, j - columns.begin);
  }

  /// Begins to write the sums of panel `j` of the stream and `r` of the block.
  void write(int64_t j, int64_t r, const float *from) {
    int64_t ofBlock = least(rows.size() - r, side);
    int64_t ofStream = least(columns.end - j, side);
    bool first = depth.begin == 0, last = depth.end == x.k;
    bool between = needsRoom(brain, x.k), inRoom = between && !last;
    Target target = {};
    target.to = at(inRoom, j, r);
    target.height = swapped ? ofBlock : ofStream;
    target.width = swapped ? ofStream : ofBlock;
    if (!first)
      target.before = at(between, j, r);
    target.accumulate = x.accumulate && (between ? last : first);
    if (last && x.epilogue) {
      target.epilogue = x.epilogue;
      target.aux = at(x.aux, j, r);
    }
    if (last && x.bias)
      target.bias = Rectangle{const_cast<void *>(x.bias), 0, brain}.at(
          0, swapped ? j : rows.begin + r);
    int64_t next = r + side, panel = j;
    if (next >= rows.size()) {
      next = 0;
      panel += side;
    }
    beside.writer.begin(target, from, at(inRoom, panel, next));
  }

  AmxProduct x;
  bool brain, swapped; // C holds bf16; B streams
  Operand<T> resident, stream;
  char *chunks[2], *held;
  float *sums, *room;
  Range rows, columns, depth; // of the resident operand, the stream and k
  int64_t steps, deep;        // of the block; most k of a chunk
  Beside<T> beside;
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

uint64_t trainc::amxScratch(uint32_t c_type, int64_t k) {
  int64_t bytes = 2 * chunkBytes + blockSide / side * panelSums * 4 + heldBytes;
  if (needsRoom(c_type == TRAINC_BF16, k))
    bytes += blockSide * streamPiece * 4;
  return static_cast<uint64_t>(bytes);
}

void trainc::amxMultiply(const AmxProduct &x) {
  WholeTiles config;
  _tile_loadconfig(&config);
  if (x.ab_type == TRAINC_BF16)
    Multiplication<uint16_t>(x).run();
  else
    Multiplication<float>(x).run();
  _tile_release();
}

bool trainc::haveAmx() {
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
    __atomic_store_n(&known, have, __ATOMIC_RELAXED);
  }
  return have == 2;
}
