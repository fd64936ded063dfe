//===- Window.h - Windows over planes ---------------------------*- C++ -*-===//
//
// What convolution and pooling share: the geometry of windows over the planes
// of a tensor [N, C, H, W], and loops over a window inside a linalg.generic.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_DIALECT_NN_WINDOW_H
#define TRAINC_DIALECT_NN_WINDOW_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <array>
#include <optional>

namespace trainc::nn {

/// Along the height and the width.
struct Window {
  using Pair = std::array<int64_t, 2>;
  Pair size, stride, low, high, dilation;

  bool isPadded(int64_t d) const { return low[d] != 0 || high[d] != 0; }
};

using OptionalNumbers = std::optional<llvm::ArrayRef<int64_t>>;

/// The window with defaults filled in. What breaks (C2) is reported at `loc`
/// for the op `name`. Strides that are not given are `defaultStrides`.
mlir::FailureOr<Window>
makeWindow(std::optional<mlir::Location> loc, llvm::StringRef name,
           llvm::ArrayRef<int64_t> size, OptionalNumbers strides,
           llvm::ArrayRef<int64_t> defaultStrides, OptionalNumbers padding,
           OptionalNumbers dilations);

/// The numbers of outputs; what breaks (C1) or (C3) is reported as above.
mlir::FailureOr<Window::Pair> outputSizes(std::optional<mlir::Location> loc,
                                          llvm::StringRef name,
                                          const Window &window,
                                          mlir::RankedTensorType input);

/// An index and whether it is valid (null: always). An index that is not valid
/// is clamped, so that it can be read.
struct Place {
  mlir::Value index, valid;
};

/// Where element `k` of the window of `output` is in an input of `size`.
Place inputPlace(mlir::ImplicitLocOpBuilder &b, const Window &window, int64_t d,
                 mlir::Value output, mlir::Value k, int64_t size);

/// The output, of `size`, in whose window `input` is element `k`.
Place outputPlace(mlir::ImplicitLocOpBuilder &b, const Window &window,
                  int64_t d, mlir::Value input, mlir::Value k, int64_t size);

/// Both are valid; null if both always are.
mlir::Value bothValid(mlir::ImplicitLocOpBuilder &b, Place h, Place w);

/// Loops over the window's elements, in row-major order, carrying `values`.
llvm::SmallVector<mlir::Value>
loopOverWindow(mlir::ImplicitLocOpBuilder &b, const Window &window,
               mlir::ValueRange values,
               llvm::function_ref<llvm::SmallVector<mlir::Value>(
                   mlir::ImplicitLocOpBuilder &, mlir::Value i, mlir::Value j,
                   mlir::ValueRange values)>
                   body);

/// One parallel linalg.generic: `body` gives the element of each result, of its
/// compute type, from the element's indices.
llvm::SmallVector<mlir::Value>
buildElements(mlir::OpBuilder &b, mlir::Location loc, mlir::TypeRange types,
              llvm::function_ref<llvm::SmallVector<mlir::Value>(
                  mlir::ImplicitLocOpBuilder &, mlir::ValueRange indices)>
                  body);

/// The element at `indices`, in its compute type.
mlir::Value loadElement(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor,
                        mlir::ValueRange indices);

/// The element where `valid`, else 0; of its compute type.
mlir::Value loadOrZero(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor,
                       mlir::ValueRange indices, mlir::Value valid);

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_WINDOW_H
