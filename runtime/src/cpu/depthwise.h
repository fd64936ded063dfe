//===- depthwise.h - Convolutions of one channel to one output --*- C++ -*-===//
//
// Where every group has one channel and one output, a convolution is no GEMM: each plane
// is seen through its own window. A plane is copied with its padding around it, one copy for
// each remainder by the strides, so that an output is a sum of elements at places that are
// the same for all outputs; these are summed up in vectors over all rows at once. Types of 2
// bytes are widened with the copy, and results rounded once.
//
// By instructions of AVX2 (back end VECTOR); in f32, or f64 of f64.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_DEPTHWISE_H
#define TRAINC_CPU_DEPTHWISE_H

#include "core/status.h"
#include "cpu/columns.h"

namespace trainc {

/// Whether `detail` is computed here.
bool isDepthwise(const trainc_convolution_detail &detail);

/// A part of a result whose elements see the same taps of the weight: all of it or, of the
/// gradient of an input, every stride-th row and column from (y, x) on.
struct Phase {
  Windows h, w; // of the planes that are seen
  int64_t y, x;
  int64_t tapH, tapW;         // the first tap of the weight
  int64_t tapStepH, tapStepW; // from one to the next
  size_t places;              // in ConvolutionPlan::places
  int64_t taps() const { return h.taps * w.taps; }
};

struct Depthwise;

/// `phases` are all of the detail; they are kept. Null where windows reach so far that a copy
/// of a plane with its padding would be too large, or leave gaps between what they see.
Depthwise *createDepthwise(const trainc_convolution_detail &detail,
                           const Array<Phase> &phases);
void destroyDepthwise(Depthwise *plan);
int64_t depthwiseTileCount(const Depthwise *plan);
uint64_t depthwiseScratch(const Depthwise *plan);
void runDepthwiseTile(const Depthwise *plan, void *const *args, int64_t tile,
                      void *scratch);

} // namespace trainc

#endif // TRAINC_CPU_DEPTHWISE_H
