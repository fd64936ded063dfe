//===- winograd_convolution.h - Convolutions by fewer products --*- C++ -*-===//
//
// Convolutions with windows of 3 x 3 and strides of 1, by 16 products for 4 outputs in place of
// 36 (winograd.h): forward, gradient of the input and of the weight, in f32 or widened to it.
// Tiles of a block of rows are transformed for all channels, and multiplied with the
// transformed weight, which is made once for all blocks of a job.
//
// Sums over channels are in their order, those over tiles in blocks by shapes alone: bits do
// not depend on threads or processor level.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_WINOGRAD_CONVOLUTION_H
#define TRAINC_CPU_WINOGRAD_CONVOLUTION_H

#include "core/status.h"

namespace trainc {

struct ConvolutionPlan;
struct WinogradConvolution;

/// For a plan that is cut. Null if it is not worth it.
WinogradConvolution *createWinogradConvolution(const ConvolutionPlan &plan);
void destroyWinogradConvolution(WinogradConvolution *plan);
int64_t winogradConvolutionTileCount(const WinogradConvolution *plan);
uint64_t winogradConvolutionScratch(const WinogradConvolution *plan);
void runWinogradConvolutionTile(const WinogradConvolution *plan,
                                void *const *args, int64_t tile, void *scratch);

} // namespace trainc

#endif // TRAINC_CPU_WINOGRAD_CONVOLUTION_H
