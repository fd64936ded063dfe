//===- window_convolution.h - Convolutions by windows of planes -*- C++ -*-===//
//
// A convolution of planes that are large enough: a block of rows is copied with its padding,
// a copy for each remainder of rows and columns by the strides, so that what a tap of the
// weight sees of a channel is a run of one copy. These runs are multiplied where they are
// (window_gemm.h). Zeros between rows are the padding of the row before and of the one after;
// what is computed there is dropped. The weight is packed once for all blocks of a tile, if
// it is not too large. So is computed the gradient of the input, and that of a weight with
// windows of three columns, as the transpose of a matrix, from gradients that are packed for
// each block.
//
// Sums are those of convolution.h, in the same order.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_WINDOW_CONVOLUTION_H
#define TRAINC_CPU_WINDOW_CONVOLUTION_H

#include "core/status.h"

namespace trainc {

struct ConvolutionPlan;
struct WindowConvolution;

/// For a plan that is cut. Null if it is not worth it.
WindowConvolution *createWindowConvolution(const ConvolutionPlan &plan);
void destroyWindowConvolution(WindowConvolution *plan);
int64_t windowConvolutionTileCount(const WindowConvolution *plan);
uint64_t windowConvolutionScratch(const WindowConvolution *plan);
void runWindowConvolutionTile(const WindowConvolution *plan, void *const *args,
                              int64_t tile, void *scratch);

} // namespace trainc

#endif // TRAINC_CPU_WINDOW_CONVOLUTION_H
