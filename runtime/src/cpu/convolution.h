//===- convolution.h - Convolutions as sums of GEMMs ------------*- C++ -*-===//
//
// A convolution is cut into blocks of outputs, of some rows of a plane or of some whole
// examples. The windows of a block are copied as columns (columns.h), some channels at a
// time, so that they are in the second level cache when a GEMM multiplies them with the
// weight, or, for the gradient of the weight, with the gradient of the output. Where windows
// are single elements next to each other, planes are such columns. The gradient of the
// input is a convolution for each remainder of its rows and columns by the strides, with
// those taps of the weight that meet outputs there.
//
// Windows of 3 x 3 with strides of 1 take fewer products (winograd_convolution.h), other large
// planes are multiplied without columns, by our own GEMM (window_convolution.h), and groups of
// one channel and one output are no GEMMs (depthwise.h).
//
// What is summed in a block depends on the detail alone, and so do the bits, as those of GEMMs
// do (gemm.h). Of libraries so does all of the cut; our own products are cut for the threads.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_CONVOLUTION_H
#define TRAINC_CPU_CONVOLUTION_H

#include "core/status.h"

namespace trainc {

/// Why a processor cannot run such a convolution, or its sizes do not fit together; null if
/// it can.
const char *refuseConvolution(const trainc_convolution_detail &detail);

/// Bytes of the two operands and of the result of one that is not refused.
void convolutionBytes(const trainc_convolution_detail &detail,
                      uint64_t out_bytes[3]);

struct ConvolutionPlan;

/// A plan for that many threads.
trainc_status createConvolutionPlan(const trainc_convolution_detail &detail,
                                    unsigned threads,
                                    ConvolutionPlan **out_plan);
void destroyConvolutionPlan(ConvolutionPlan *plan);

const trainc_convolution_detail &convolutionDetail(const ConvolutionPlan *plan);
int64_t convolutionTileCount(const ConvolutionPlan *plan);
/// Bytes of scratch for one running tile, aligned to 64.
uint64_t convolutionScratch(const ConvolutionPlan *plan);

/// Computes one tile; args are the operands and the result. False if a library failed.
bool runConvolutionTile(const ConvolutionPlan *plan, void *const *args,
                        int64_t tile, void *scratch);

} // namespace trainc

#endif // TRAINC_CPU_CONVOLUTION_H
