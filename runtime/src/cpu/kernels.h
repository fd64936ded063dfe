//===- kernels.h - The runtime's own loops, per processor level -*- C++ -*-===//
//
// kernels.cpp is compiled once for each level of instructions (level.h); `kernels()` is
// the table of the highest that this processor has. All compute the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_KERNELS_H
#define TRAINC_CPU_KERNELS_H

#include "cpu/columns.h"
#include "cpu/taps.h"

namespace trainc {

/// C = A B (+ C if accumulate) (+ bias), row major: A is m x k, B k x n, or stored
/// transposed. Elements of A and B are `Stored`, those of C and the sums T.
template <typename T, typename Stored = T> struct Product {
  bool transposeA, transposeB, accumulate;
  int64_t m, n, k;
  int64_t lda, ldb, ldc; // elements from row to row
  const Stored *a, *b;
  T *c;
  const T *bias; // of each column, or null
  void *scratch; // Kernels::multiplyScratch bytes of the type
  /// Called with each part of C, rows from i and columns from j on, when it is
  /// complete and mostly in the cache; or null.
  void (*finish)(void *context, int64_t i, int64_t rows, int64_t j,
                 int64_t columns);
  void *context;
  /// Of a narrow A and B: C is a window of windowRows x windowColumns, in which each part
  /// stands until `finish` is called with it. It may not accumulate.
  bool window = false;
  static constexpr int64_t windowRows = 240, windowColumns = 512;
};

/// C = A B (+ C if accumulate) in f32. C is m x n, of which whole vectors are read and
/// written; element (p, j) of B is planes[offsets[p] + j].
struct WindowProduct {
  bool accumulate;
  int64_t m, n, k, ldc;
  const float *a; // of WindowFactor, without the k before its first
  int64_t panel;  // elements from panel to panel of it
  const float *planes;
  const int64_t *offsets; // k of them
  float *c;
};

/// A as it is packed: panels of Kernels::windowRows rows, in which the elements of a
/// step of k stand together. Step k is of tap k % taps of channel k / taps.
struct WindowFactor {
  int64_t rows, channels, taps;
  int64_t row, channel;  // elements from one to the next
  const int64_t *places; // of the taps, in elements
  const void *from;
  float *to;
};

/// Sums of products with windows of three columns: C (+= if accumulate) is, for each row of a
/// window and its three columns, the sum over `rows` x `columns` outputs of what they see and
/// of B, the gradients there. Output (p, q) sees planes[offsets[r] + p pitch + q] in row r of C.
struct WindowGradient {
  bool accumulate;
  int64_t rowsOfWindows, outputs, rows, columns, pitch, ldc;
  const float *planes;
  const int64_t *offsets;
  const float *b; // of GradientPanels
  float *c;       // of which whole vectors are read and written
};

/// B as it is packed: `columns` rows of a matrix, `ld` elements apart, as panels of as many
/// columns as a register tile has, in depths of whole vectors.
struct GradientPanels {
  int64_t columns, depth, ld;
  const float *from;
  float *to;
};

/// What a product may read and write behind n columns.
constexpr int64_t windowColumns = 32;

/// A vector of channels of some rows of a plane, pixel by pixel, and what their tiles are
/// transformed to, or from: element (place, tile, channel). Tile (r, t) sees pixels from (2 r +
/// top, 2 t + left) on; what is not in `height` rows of `width` is 0, or not written.
struct WinogradTiles {
  int64_t height, width, top, left, rows, tiles;
  int64_t place, ld; // from place to place, from tile to tile
  float *pixels, *transformed;
};

/// `count` windows of a panel's columns: elements (window, tap, column) and (place, window,
/// column). With `reversed` the last tap is the first.
struct WinogradWeights {
  bool reversed;
  int64_t count, place;
  const float *from;
  float *to;
};

/// From element (place, channel, output) to (channel, tap, output); whole vectors.
struct WinogradGradients {
  int64_t channels, outputs, place, ld, ldTo;
  const float *from;
  float *to;
};

/// C = A B of row major A, and B in panels of columns; whole panels of C are written. Or, with
/// `transposed`, C (+)= A^T B of row major A and B.
struct WinogradProduct {
  bool transposed, accumulate;
  int64_t m, n, k, lda, ldb, ldc; // from panel to panel of B
  const float *a, *b;
  float *c;
};

typedef void (*SumFn)(const void *const *sources, unsigned number, void *to,
                      int64_t count);

struct Kernels {
  const char *level;
  /// Widens a matrix of bf16 or f16 to dense f32.
  void (*widenBf16)(int64_t rows, int64_t columns, const uint16_t *from,
                    int64_t ld, float *to);
  void (*widenF16)(int64_t rows, int64_t columns, const uint16_t *from,
                   int64_t ld, float *to);
  /// Rounds a dense f32 matrix, plus the bias (null: none) on each row.
  void (*narrowBf16)(int64_t rows, int64_t columns, const float *from,
                     const uint16_t *bias, uint16_t *to, int64_t ld);
  void (*narrowF16)(int64_t rows, int64_t columns, const float *from,
                    const uint16_t *bias, uint16_t *to, int64_t ld);
  void (*addBiasF32)(int64_t rows, int64_t columns, const float *bias, float *c,
                     int64_t ld);
  void (*addBiasF64)(int64_t rows, int64_t columns, const double *bias,
                     double *c, int64_t ld);
  /// C = gelu(C), and the auxiliary matrix (null: none) becomes the C before; or C
  /// *= the derivative of gelu at the auxiliary matrix. In f32, rounded once.
  void (*geluF32)(int64_t rows, int64_t columns, float *c, float *aux,
                  int64_t ld);
  void (*geluBf16)(int64_t rows, int64_t columns, uint16_t *c, uint16_t *aux,
                   int64_t ld);
  void (*geluF16)(int64_t rows, int64_t columns, uint16_t *c, uint16_t *aux,
                  int64_t ld);
  void (*geluGradF32)(int64_t rows, int64_t columns, float *c, float *aux,
                      int64_t ld);
  void (*geluGradBf16)(int64_t rows, int64_t columns, uint16_t *c,
                       uint16_t *aux, int64_t ld);
  void (*geluGradF16)(int64_t rows, int64_t columns, uint16_t *c, uint16_t *aux,
                      int64_t ld);
  /// C = gelu(C), and the auxiliary matrix becomes the derivative of gelu at the C before;
  /// or C *= the auxiliary matrix.
  void (*geluAndSlopeF32)(int64_t rows, int64_t columns, float *c, float *aux,
                          int64_t ld);
  void (*multiplyByF32)(int64_t rows, int64_t columns, float *c, float *aux,
                        int64_t ld);
  /// ((x0 + x1) + x2) + ... of `number` (at least 1) arrays, in f32 for bf16 and
  /// f16, rounded once. `to` may be one of them.
  SumFn sumF32, sumF64, sumBf16, sumF16;
  /// A copy past the caches; no overlap. Visible to other threads as a copy is.
  void (*stream)(void *to, const void *from, uint64_t bytes);
  /// Copies columns of elements of 2, 4 and 8 bytes, or widens them to f32.
  void (*columns2)(const Columns &);
  void (*columns4)(const Columns &);
  void (*columns8)(const Columns &);
  void (*columnsBf16)(const Columns &);
  void (*columnsF16)(const Columns &);
  /// Planes of each type, widened; and sums over taps (taps.h), null without fused multiply-add.
  void (*planeF32)(const PlaneCopy &);
  void (*planeF64)(const PlaneCopy &);
  void (*planeBf16)(const PlaneCopy &);
  void (*planeF16)(const PlaneCopy &);
  void (*tapSumsF32)(const Taps &, const void *weights, void *to) = nullptr;
  void (*tapSumsF64)(const Taps &, const void *weights, void *to) = nullptr;
  void (*tapDotsF32)(const Taps &, const void *factor, void *sums) = nullptr;
  void (*tapDotsF64)(const Taps &, const void *factor, void *sums) = nullptr;
  /// The product; null without fused multiply-add. An element of C depends on its row of A,
  /// its column of B and k alone, however the product is cut.
  void (*multiplyF32)(const Product<float> &) = nullptr;
  void (*multiplyF64)(const Product<double> &) = nullptr;
  void (*multiplyBf16)(const Product<float, uint16_t> &) = nullptr;
  void (*multiplyF16)(const Product<float, uint16_t> &) = nullptr;
  uint64_t multiplyScratchF32 = 0; // bytes; of bf16 and f16, too
  uint64_t multiplyScratchF64 = 0;
  /// The product with windows, and packing its A from each type (window_gemm.h); null without
  /// fused multiply-add.
  void (*multiplyWindows)(const WindowProduct &) = nullptr;
  void (*packWindowsF32)(const WindowFactor &) = nullptr;
  void (*packWindowsBf16)(const WindowFactor &) = nullptr;
  void (*packWindowsF16)(const WindowFactor &) = nullptr;
  void (*sumWindows)(const WindowGradient &) = nullptr;
  void (*packGradients)(const GradientPanels &) = nullptr;
  /// From rows x columns elements to as many rows as those have columns.
  void (*transposeF32)(int64_t rows, int64_t columns, const float *from,
                       int64_t ld, float *to, int64_t ldTo) = nullptr;
  int64_t windowRows = 0;
  /// Winograd's transforms (winograd.h).
  void (*winogradInputs)(const WinogradTiles &) = nullptr;
  void (*winogradOutputs)(const WinogradTiles &) = nullptr;
  void (*winogradGradients)(const WinogradTiles &) = nullptr;
  void (*winogradWeights)(const WinogradWeights &) = nullptr;
  void (*winogradWeightGradients)(const WinogradGradients &) = nullptr;
  void (*winogradMultiply)(const WinogradProduct &) = nullptr;
  int64_t winogradLanes = 0;
};

const Kernels &kernels();

} // namespace trainc

#endif // TRAINC_CPU_KERNELS_H
