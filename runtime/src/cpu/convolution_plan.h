//===- convolution_plan.h - What a plan of a convolution holds --*- C++ -*-===//
//
// For convolution.cpp, which makes plans, and convolution_tile.cpp, which runs them.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_CONVOLUTION_PLAN_H
#define TRAINC_CPU_CONVOLUTION_PLAN_H

#include "cpu/convolution.h"
#include "cpu/depthwise.h"
#include "cpu/gemm.h"
#include "cpu/window_convolution.h"
#include "cpu/winograd_convolution.h"

namespace trainc {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t piecesOf(int64_t size, int64_t each) {
  return size / each + (size % each != 0);
}

struct ConvolutionPlan {
  trainc_convolution_detail d;
  int64_t tiles; // that are wanted
  // Who computes it instead, if one.
  Depthwise *depthwise = nullptr;
  WindowConvolution *windows = nullptr;
  WinogradConvolution *winograd = nullptr;
  bool ofWeight, ofInput;    // which gradient, if one
  uint32_t wide;             // the type of sums
  bool widens;               // operands to f32, with their copies
  int64_t size, wideSize;    // bytes of an element: as multiplied, of sums
  int64_t storedSize;        // and of an operand
  int64_t rowsOfC;           // of a group
  int64_t channels;          // of a group of the planes whose windows are seen
  int64_t planes, planeSize; // of those planes: per example, elements
  int64_t taps;              // of the weight
  Array<Phase> phases;
  Array<int64_t> places; // of each phase's taps in a channel of the weight
  // Blocks of outputs, parts of the rows of C, and pieces of the channels.
  int64_t blockRows, rowBlocks, blockExamples, exampleBlocks, outputsOfBlock;
  int64_t partRows, parts, pieceChannels, pieces;
  int64_t cachedChannels; // at most as many in a piece: by shapes alone
  int64_t ldColumns,
      ldC;          // from one row of columns, of a block of C, to the next
  bool packsWeight; // for our own product, whose B is columns as they are
  Array<int64_t> offsets; // of rows of columns, for that
  // Where in the scratch what stands, in bytes.
  uint64_t ofA, ofC, ofRow, ofGemm, scratch;
  Array<GemmPlan *> products;

  /// A block of C is C itself, and its columns are the planes themselves.
  bool isDirect() const {
    return d.result_type == wide && blockExamples == 1 && phases.size() == 1 &&
           !packsWeight;
  }
  bool isInPlace() const;
  /// Factors stand in scratch in the order in which they are multiplied.
  bool copiesWeight() const { return ofInput && taps > 1 && !packsWeight; }
  bool copiesGrad() const { return ofWeight && (widens || blockExamples > 1); }
};

/// The product of a block, whose sizes and places are open.
trainc_gemm_detail productOf(const trainc_convolution_detail &d);

/// Packs what a phase's taps of the weight have between rows of a group's C and channels that
/// are summed (Kernels::packWindowsF32).
void packWeight(const ConvolutionPlan &plan, const Phase &phase,
                const char *weight, int64_t group, int64_t firstRow,
                int64_t rows, int64_t channel, int64_t channels, float *to);

/// Makes the plans of the products of a tile.
trainc_status planConvolutionTile(ConvolutionPlan &plan, int64_t index);

} // namespace trainc

#endif // TRAINC_CPU_CONVOLUTION_PLAN_H
