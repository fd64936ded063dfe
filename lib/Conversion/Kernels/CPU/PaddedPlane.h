//===- PaddedPlane.h - A plane with its padding in scratch ------*- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_CPU_PADDEDPLANE_H
#define TRAINC_LIB_CONVERSION_KERNELS_CPU_PADDEDPLANE_H

#include "Common/KernelEmitter.h"
#include "llvm/Support/MathExtras.h"
#include <array>

namespace trainc {

/// Rows of one plane with the padding around them, in the compute type, as windows at a
/// stride see them: a row holds first its elements 0, stride, 2 stride, ..., then 1, 1 +
/// stride, ..., so that those of neighboring windows are next to each other. Whole vectors
/// may be read from any of them on.
class PaddedPlane {
public:
  using Pair = std::array<int64_t, 2>;
  /// The plane has `size`, of which `rows` rows are there at a time.
  PaddedPlane(mlir::Location loc, mlir::Type element, Pair size, Pair low,
              Pair high, int64_t stride, int64_t rows, double padding = 0)
      : loc(loc), element(element), size(size), low(low), stride(stride),
        rows(rows), padding(padding),
        phase(llvm::divideCeil(size[1] + low[1] + high[1], stride)) {}

  void allocate(LoopBuilder &l, KernelFunction &function);
  /// Copies `plane` of `input`, from padded row `firstRow` on.
  void fill(LoopBuilder &l, mlir::Value input, mlir::Value plane,
            mlir::Value firstRow);

  /// Elements from row to row, and in all rows.
  int64_t rowElements() const { return phase * stride; }
  int64_t elements() const {
    return llvm::alignTo(rows * rowElements() + kLanes, kLanes);
  }
  /// From the first element of a row to column `column` of the window before which no
  /// column is.
  mlir::Value placeOf(LoopBuilder &l, mlir::Value column) const {
    return l.add(l.mul(l.mod(column, stride), phase), l.div(column, stride));
  }
  mlir::Value getMemref() const { return memref; }

private:
  void copyRow(LoopBuilder &l, mlir::Value input, mlir::Value from,
               mlir::Value to);

  mlir::Location loc;
  mlir::Type element;
  Pair size, low;
  int64_t stride, rows;
  double padding;
  int64_t phase; // elements of a row that are every stride-th
  mlir::Value memref;
};

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_CPU_PADDEDPLANE_H
