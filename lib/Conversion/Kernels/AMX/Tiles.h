//===- Tiles.h - Products by tile registers ---------------------*- C++ -*-===//
//
// A tile register of AMX holds 16 rows of 64 bytes: of A 16 rows of 32 bf16, of
// B 16 rows of 16 words, of C 16 x 16 floats. A word holds two bf16 numbers of
// consecutive k; where k is no dimension of memory, any pairs will do that are
// the same in A and B.
//
// An f32 number is three bf16 pieces, high, middle and low; six of the nine
// products of two are summed (runtime/src/cpu/x86/amx.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_AMX_TILES_H
#define TRAINC_LIB_CONVERSION_KERNELS_AMX_TILES_H

#include "Common/KernelEmitter.h"

namespace trainc {

/// Rows of a tile, and words or floats of each; k of a product of tiles; bytes of
/// a row and of all.
inline constexpr int64_t kTileSide = 16, kTileDepth = 32, kTileRow = 64,
                         kTileBytes = 1024;
/// Pieces of an f32 number.
inline constexpr int64_t kPieces = 3;

/// Which types attention multiplies by tile registers (AMX) where they pay; f32 as sums
/// of bf16 products.
enum class Tiles { None, BF16, All };

/// A grid of tiles in memory, all of them whole.
struct TileGrid {
  mlir::Value address; // of the first tile, an i64
  int64_t stride;      // bytes from one row of a tile to the next
  int64_t across;      // from one tile to the next along m or n
  int64_t deeper;      // the same along k
  int64_t piece = 0;   // to the next piece of the same numbers; 0 in bf16
};

/// The address of element `at` of `memref`, as an i64.
mlir::Value addressOf(LoopBuilder &l, mlir::Value memref, mlir::Value at);

/// Makes all registers whole tiles, which holds until releaseTiles. Takes kTileSide
/// words of scratch.
void configureTiles(LoopBuilder &l, mlir::Value memref);
void releaseTiles(LoopBuilder &l);

/// C = A B or, if it accumulates, C += A B: `rows` x `columns` tiles, `steps` deep.
/// C is row-major: its rows of floats are `c.stride` bytes apart.
void multiplyTiles(LoopBuilder &l, TileGrid a, TileGrid b, TileGrid c,
                   int64_t rows, int64_t columns, int64_t steps,
                   bool accumulate);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_AMX_TILES_H
