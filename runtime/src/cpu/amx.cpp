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
// Registers hold 32 x 32 sums, 32 rows of A and 32 columns of B. Sums start at
// 0 in every block of at most 512 of k and are added to C then, in order. So an
// element of C depends on its row of A', its column of B' and k alone, however
// the product is cut.
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
typedef uint16_t Halves __attribute__((vector_size(32)));

/// Rows of A and columns of B in registers, k of a multiplication, bytes of a
/// tile register, pieces of a number.
constexpr int64_t side = 32, step = 32, tileBytes = 1024, pieces = 3;
/// Most rows of A and k of a packed block: 1.1 MB.
constexpr int64_t blockRows = 384, blockDepth = 512;
/// Bytes of `side` rows or columns, `step` deep.
constexpr int64_t panelStep = 2 * pieces * tileBytes;

struct Pieces {
  Words of[pieces]; // in the upper halves
};

Pieces split(Floats x) {
  Words high = reinterpret_cast<Words &>(x) & 0xFFFF0000u;
  Floats rest = x - reinterpret_cast<Floats &>(high);
  Words middle = reinterpret_cast<Words &>(rest);
  middle = (middle + 0x7FFFu + ((middle >> 16) & 1u)) & 0xFFFF0000u;
  Floats low = rest - reinterpret_cast<Floats &>(middle);
  return {{high, middle, reinterpret_cast<Words &>(low)}};
}

template <int Step, bool High, int... I>
Words merge(Words x, Words y, Sequence<I...>) {
  return __builtin_shufflevector(x, y,
                                 (High ? (I & Step ? 16 + I : I + Step)
                                       : (I & Step ? 16 + I - Step : I))...);
}

/// Transposes 16 x 16 words: the halves of size Step of each pair change
/// places, then those of half the size.
template <int Step> void transpose(Words *v) {
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

Floats load(const float *from) {
  return *reinterpret_cast<const Floats *>(from);
}

/// 16 rows or columns, 32 deep, as tiles: to[piece]. `alongK`: consecutive
/// floats are of one row, else of one k. A tile of A has a row per row and
/// pairs of k in it; one of B has a row per pair of k and pairs of columns in
/// it.
void packTile(const float *from, int64_t ld, bool alongK, bool isB, char *to,
              int64_t pieceStride) {
  Words block[pieces][16];
  for (int i = 0; i < 16; ++i) {
    if (alongK) {
      Pieces x = split(load(from + i * ld)),
             y = split(load(from + i * ld + 16));
      for (int p = 0; p < pieces; ++p) {
        Halves halves[2] = {__builtin_convertvector(x.of[p] >> 16, Halves),
                            __builtin_convertvector(y.of[p] >> 16, Halves)};
        __builtin_memcpy(&block[p][i], halves, 64);
      }
    } else {
      Pieces x = split(load(from + 2 * i * ld)),
             y = split(load(from + (2 * i + 1) * ld));
      for (int p = 0; p < pieces; ++p)
        block[p][i] = (x.of[p] >> 16) | (y.of[p] & 0xFFFF0000u);
    }
  }
  for (int p = 0; p < pieces; ++p) {
    if (alongK == isB)
      transpose<8>(block[p]);
    __builtin_memcpy(to + p * pieceStride, block[p], tileBytes);
  }
}

/// Packs `count` rows of A or columns of B, `depth` deep, to panels of `side`:
/// per step of k the two tiles of each piece. What is missing is 0.
void pack(const float *from, int64_t ld, bool alongK, bool isB, int64_t count,
          int64_t depth, char *to) {
  int64_t unit = alongK ? ld : 1, deep = alongK ? 1 : ld;
  for (int64_t i = 0; i < count; i += side)
    for (int64_t k = 0; k < depth; k += step, to += panelStep)
      for (int64_t half = 0; half < 2; ++half) {
        int64_t first = i + half * 16;
        int64_t rows = count - first < 16 ? count - first : 16;
        int64_t columns = depth - k < step ? depth - k : step;
        char *tile = to + half * tileBytes;
        const float *at = from + first * unit + k * deep;
        if (rows == 16 && columns == step) {
          packTile(at, ld, alongK, isB, tile, 2 * tileBytes);
          continue;
        }
        float edge[16 * step] = {};
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            edge[alongK ? r * step + c : c * 16 + r] = at[r * unit + c * deep];
        packTile(edge, alongK ? step : 16, alongK, isB, tile, 2 * tileBytes);
      }
}

/// C, 32 x 32, = `steps` steps of k of a product. A register is loaded again as
/// soon as its last product is under way, two products before the next one that
/// needs it.
void multiplyBlock(const char *a, const char *b, int64_t steps, float *c,
                   int64_t ldc) {
  int64_t stride = ldc * 4;
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
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
  int64_t fetched = 0;
  for (; steps > 0; --steps) {
    for (int i = 0; i < 4 && fetched < side; ++i, ++fetched) {
      __builtin_prefetch(c + fetched * ldc, 1);
      __builtin_prefetch(c + fetched * ldc + 16, 1);
    }
    thenA(a + piece);        // low * high
    thenB(b + piece);        // middle * high
    thenA(a);                // middle * middle
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
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, c + 16 * ldc, stride);
  _tile_stored(3, c + 16 * ldc + 16, stride);
}

/// A whole number of units, so that as few pieces as can be, of at most `most`,
/// are about equal.
int64_t evenPiece(int64_t size, int64_t most, int64_t unit) {
  int64_t count = (size + most - 1) / most;
  int64_t piece = count ? (size + count - 1) / count : 1;
  return (piece + unit - 1) / unit * unit;
}
} // namespace

const uint64_t trainc::amxScratch = static_cast<uint64_t>(
    (blockRows / side + 1) * (blockDepth / step) * panelStep);

void trainc::amxMultiply(const AmxProduct &x) {
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
  auto *packedB = static_cast<char *>(x.scratch);
  char *packedA = packedB + blockDepth / step * panelStep;
  int64_t depthPiece = evenPiece(x.k, blockDepth, step);
  int64_t rowPiece = evenPiece(x.m, blockRows, side);
  for (int64_t p = 0; p == 0 || p < x.k; p += depthPiece) {
    int64_t depth = x.k - p < depthPiece ? x.k - p : depthPiece;
    int64_t steps = (depth + step - 1) / step;
    bool fresh = p == 0 && !x.accumulate, last = p + depth >= x.k;
    for (int64_t i = 0; i < x.m; i += rowPiece) {
      int64_t rows = x.m - i < rowPiece ? x.m - i : rowPiece;
      pack(x.transposeA ? x.a + p * x.lda + i : x.a + i * x.lda + p, x.lda,
           !x.transposeA, false, rows, depth, packedA);
      for (int64_t j = 0; j < x.n; j += side) {
        int64_t columns = x.n - j < side ? x.n - j : side;
        pack(x.transposeB ? x.b + j * x.ldb + p : x.b + p * x.ldb + j, x.ldb,
             x.transposeB, true, columns, depth, packedB);
        for (int64_t r = 0; r < rows; r += side) {
          const char *a = packedA + r / side * steps * panelStep;
          float *c = x.c + (i + r) * x.ldc + j;
          int64_t height = rows - r < side ? rows - r : side;
          const float *bias = last && x.bias ? x.bias + j : nullptr;
          if (height == side && columns == side && fresh && !bias) {
            multiplyBlock(a, packedB, steps, c, x.ldc);
            continue;
          }
          float block[side * side];
          multiplyBlock(a, packedB, steps, block, side);
          for (int64_t y = 0; y < height; ++y)
            for (int64_t z = 0; z < columns; ++z) {
              float sum = block[y * side + z];
              sum = fresh ? sum : c[y * x.ldc + z] + sum;
              c[y * x.ldc + z] = bias ? sum + bias[z] : sum;
            }
        }
      }
    }
  }
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
