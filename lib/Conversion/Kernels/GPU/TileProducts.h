//===- TileProducts.h - Products of tiles in shared memory ------*- C++ -*-===//
//
// A warp has 16 rows of a block's own matrices; their products with a tile, which
// all warps of the block share, stand in the layout of the results of mma.m16n8:
// of every 8 columns a lane has columns 2 (lane % 4) and the next one of rows
// lane / 4 and lane / 4 + 8.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_GPU_TILEPRODUCTS_H
#define TRAINC_LIB_CONVERSION_KERNELS_GPU_TILEPRODUCTS_H

#include "Threads.h"

namespace trainc {

/// Rows of a warp.
inline constexpr int64_t kWarpRows = 16;

/// What a lane has of 16 rows: four numbers of every 8 columns, two of its first row
/// and then two of its second.
using Fragment = llvm::SmallVector<mlir::Value>;

/// The sizes of what a block multiplies.
struct TileSizes {
  /// Rows of the block and of a tile, and elements of a row at once.
  int64_t rows = 0, tile = 0, width = 0;
  /// Bytes of an element in the memory of the block, and of the compute type.
  int64_t storedBytes, computeBytes;
  bool tensor; // tensor cores do the products

  /// Of elements of type `element`; rows, tile and width are to be set.
  explicit TileSizes(mlir::Type element);

  int64_t threads() const { return rows / kWarpRows * kWarp; }
  /// Elements from one row to the next: no two of 8 rows begin in the same banks.
  int64_t stride() const { return width + 16 / storedBytes; }
  int64_t weightStride() const { return tile + 16 / computeBytes; }
};

/// Rows in the memory of a block, from element `start` (null: the first one) on.
struct TileRows {
  TileRows(mlir::Value memref, mlir::Value start = {})
      : memref(memref), start(start) {}
  mlir::Value memref, start;
};

struct TileProducts {
  /// Of elements of type `element`; `accumulates` says whether `accumulate` is used.
  TileProducts(ThreadBuilder &t, TileSizes sizes, mlir::Type element,
               bool accumulates);

  TileSizes sizes;
  mlir::Type stored, compute;
  mlir::Value lane, warp;
  /// The lane's first row in the block, and its first column of 8.
  mlir::Value row, column;

  Fragment zeros(ThreadBuilder &t, int64_t columns);
  /// The warp's rows of `own` as left operands of tensor cores.
  Fragment load(ThreadBuilder &t, const TileRows &own);
  /// sums[row, i] + sum over d of own[row, d] tile[i, d].
  Fragment multiply(ThreadBuilder &t, const TileRows &own, const TileRows &tile,
                    mlir::ValueRange sums);
  /// The same with what `load` gave.
  Fragment multiplyLoaded(ThreadBuilder &t, llvm::ArrayRef<mlir::Value> own,
                          const TileRows &tile, mlir::ValueRange sums);
  /// sums[row, d] + sum over i of weights[row, i] tile[i, d].
  Fragment accumulate(ThreadBuilder &t, mlir::ValueRange weights,
                      const TileRows &tile, mlir::ValueRange sums);

private:
  /// Where the weights of a block stand from lane to lane.
  mlir::Value weightMemory;

  Fragment multiplyAdds(ThreadBuilder &t, const TileRows &own,
                        const TileRows &tile, mlir::ValueRange sums);
  Fragment accumulateAdds(ThreadBuilder &t, mlir::ValueRange weights,
                          const TileRows &tile, mlir::ValueRange sums);
  /// `left` gives the left operand of elements from some one on.
  Fragment multiplyMatrices(
      ThreadBuilder &t, const TileRows &tile, mlir::ValueRange sums,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(int64_t)> left);
  Fragment accumulateMatrices(ThreadBuilder &t, mlir::ValueRange weights,
                              const TileRows &tile, mlir::ValueRange sums);
  /// The element `at` behind the first one of rows.
  mlir::Value elementOf(ThreadBuilder &t, const TileRows &rows,
                        mlir::Value at) {
    return rows.start ? t.add(rows.start, at) : at;
  }
  mlir::Value pointerToOwn(ThreadBuilder &t, const TileRows &own);
  /// The lane's pointer for `loadMatrices` of 16 x 16 elements; those to the right
  /// come second or, if `columnsFirst`, those below.
  mlir::Value matrixPointer(ThreadBuilder &t, const TileRows &rows,
                            bool columnsFirst);
  /// Four matrices of 8 x 8 elements, as operands of mma.sync.
  llvm::SmallVector<mlir::Value> loadMatrices(ThreadBuilder &t,
                                              mlir::Value pointer, int64_t row,
                                              int64_t column, bool transposed);
  /// The type of two elements in a register.
  mlir::Type pairType() const;
  /// sums[at..at+4] += left right.
  void multiplyMatrix(ThreadBuilder &t, llvm::ArrayRef<mlir::Value> left,
                      llvm::ArrayRef<mlir::Value> right,
                      llvm::MutableArrayRef<mlir::Value> sums);
};

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_TILEPRODUCTS_H
