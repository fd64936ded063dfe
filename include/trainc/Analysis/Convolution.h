//===- Convolution.h - Convolutions as kernels of their own -----*- C++ -*-===//
#ifndef TRAINC_ANALYSIS_CONVOLUTION_H
#define TRAINC_ANALYSIS_CONVOLUTION_H

#include "trainc/Dialect/NN/NNOps.h"
#include <array>
#include <optional>

namespace trainc {

/// A convolution without groups, computed by blocks of rows of the output: the
/// columns of one block (see nn.im2col) are small enough to stay in the cache.
struct Convolution {
  using Pair = std::array<int64_t, 2>; // along the height and the width
  int64_t batch, channels, outputs;
  Pair input, window, output, stride, low, high, dilation;
  /// Output rows of a block.
  int64_t blockRows;

  int64_t taps() const { return window[0] * window[1]; }
  int64_t depth() const { return channels * taps(); }
};

/// The convolution that `op` computes if it is to be a kernel of its own on a CPU: f32
/// or f64, no groups and no bias, and sizes for which that is faster than a
/// train.convolution. A nn.conv2d_input_grad of stride 1 is the
/// convolution of the grad with the transposed weight, taps reversed. What it costs is
/// the same whoever computes it (Cost.h).
std::optional<Convolution> getConvolution(mlir::Operation *op);

} // namespace trainc

#endif // TRAINC_ANALYSIS_CONVOLUTION_H
