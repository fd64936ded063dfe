//===- ConvolutionBlock.h - Convolutions by tiles, on a GPU -----*- C++ -*-===//
//
// Convolutions as products of matrices. The columns of one side (see nn.im2col) are
// nowhere in memory: the threads of a block gather a tile of them at a time. While a
// tile is multiplied, the next one is on its way to registers.
//
// The result, and the gradient of the input: the rows of a block are pixels, and its
// columns channels. The gradient of the weight: rows are elements of a window of all
// channels, and sums are over pixels. Each block has a run of those; the block that
// ends last adds up the runs, in their order.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_GPU_CONVOLUTIONBLOCK_H
#define TRAINC_LIB_CONVERSION_KERNELS_GPU_CONVOLUTIONBLOCK_H

#include "Threads.h"
#include "TileProducts.h"
#include <array>

namespace trainc::convolution {

using Pair = std::array<int64_t, 2>; // along the height and the width

/// A convolution from planes of size `input` to planes of size `output`.
struct Shape {
  int64_t batch, groups;
  int64_t channels, outputs; // of a group
  Pair input, output, window, stride, low, dilation;

  int64_t taps() const { return window[0] * window[1]; }
};

/// What windows see. Along a dimension, element k of the window of pixel p is
/// element (p step + k tapStep + shift) / divisor of the plane, if that is one.
struct Windows {
  mlir::Value memref;
  int64_t channels; // of a group
  Pair size, step, tapStep, shift, divisor;

  int64_t plane() const { return size[0] * size[1]; }
};

/// Tables by element of a window of all channels: its row and column from the
/// pixel's, and its offset from the pixel's place.
struct Tables {
  mlir::Value rows, columns, offsets;
};

/// An element of a window of all channels, of the block's pixels.
struct WindowElement {
  mlir::Value row, column, offset;
};

/// Of a pixel: its row and column times the step, and its place in the first channel.
struct Pixel {
  mlir::Value row, column, place;
};

struct ConvolutionEmitter {
  /// Of products with `columns` columns.
  ConvolutionEmitter(KernelFunction &function, ThreadBuilder &t, const Shape &c,
                     mlir::Type element, int64_t columns);

  KernelFunction &function;
  mlir::Location loc;
  const Shape c;
  mlir::Type element;
  TileSizes sizes;
  TileProducts products;
  mlir::Value own, tile;
  /// Elements of a vector of 16 bytes, and vectors of a row.
  int64_t lanes, ofRow;

  static TileSizes choose(mlir::Type element, int64_t columns);
  int64_t emitPixels(ThreadBuilder &t, const Windows &windows,
                     mlir::Value weight, bool isTransposed, int64_t outputs,
                     Pair size, mlir::Value result);
  int64_t emitWeights(ThreadBuilder &t, const Windows &windows,
                      mlir::Value grad, mlir::Value result,
                      std::optional<int64_t> examples);

private:
  Tables makeTables(LoopBuilder &l, const Windows &windows, int64_t count);
  WindowElement lookUpElement(LoopBuilder &l, const Tables &tables,
                              mlir::Value at);
  Pixel locate(LoopBuilder &l, const Windows &windows, mlir::Value example,
               mlir::Value group, mlir::Value row, mlir::Value column);
  mlir::Value gather(LoopBuilder &l, const Windows &windows, const Pixel &pixel,
                     const WindowElement &at, mlir::Value where);
  mlir::Value loadWhere(LoopBuilder &l, mlir::Value memref, mlir::Value at,
                        mlir::Value where);
  mlir::Value loadVectorWhere(LoopBuilder &l, mlir::Value memref,
                              mlir::Value at, mlir::Value where);
  mlir::Value pack(LoopBuilder &l, llvm::ArrayRef<mlir::Value> scalars) {
    return mlir::vector::FromElementsOp::create(
        l.b, loc, mlir::VectorType::get({lanes}, element), scalars);
  }
  /// Stores a vector in a row of a tile.
  void storeShared(LoopBuilder &l, mlir::Value vector, mlir::Value memref,
                   mlir::Value row, mlir::Value column);
  /// Runs `body` with the row and the first element of each vector of a tile with
  /// `rows` rows that is this thread's, and with the number of the round.
  void forVectors(
      ThreadBuilder &t, int64_t rows,
      llvm::function_ref<void(mlir::Value row, mlir::Value at, int64_t round)>
          body);
  /// The sums over elements begin, ... below end: `load` gives the vectors, from an
  /// element on, which `store` stores in the tiles.
  Fragment multiplyTiles(
      ThreadBuilder &t, mlir::Value begin, mlir::Value end,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(ThreadBuilder &,
                                                        mlir::Value)>
          load,
      llvm::function_ref<void(ThreadBuilder &, mlir::ValueRange)> store);
  mlir::Value select(LoopBuilder &l, mlir::Value condition, mlir::Value x,
                     mlir::Value y) {
    return mlir::arith::SelectOp::create(l.b, loc, condition, x, y);
  }
  mlir::Value both(LoopBuilder &l, mlir::Value x, mlir::Value y) {
    return mlir::arith::AndIOp::create(l.b, loc, x, y);
  }
  mlir::Value toI32(LoopBuilder &l, mlir::Value x) {
    return mlir::arith::IndexCastOp::create(l.b, loc, l.b.getI32Type(), x);
  }
  mlir::Value toIndex(LoopBuilder &l, mlir::Value x) {
    return mlir::arith::IndexCastOp::create(l.b, loc, l.b.getIndexType(), x);
  }
  mlir::Value addI32(LoopBuilder &l, mlir::Value x, mlir::Value y) {
    return mlir::arith::AddIOp::create(l.b, loc, x, y);
  }
};

} // namespace trainc::convolution

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_CONVOLUTIONBLOCK_H
