//===- CPUKernels.h - Kernels as loops of one workgroup ---------*- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_CPU_CPUKERNELS_H
#define TRAINC_LIB_CONVERSION_KERNELS_CPU_CPUKERNELS_H

#include "AMX/Tiles.h"
#include "Common/KernelEmitter.h"
#include "trainc/Analysis/Convolution.h"

namespace trainc {

/// Emit the body; return the number of tiles.
llvm::FailureOr<int64_t> emitRowKernel(KernelFunction &function,
                                       const IterationSpace &space);
llvm::FailureOr<int64_t> emitColumnKernel(KernelFunction &function,
                                          const IterationSpace &space);
int64_t emitSquareSum(KernelFunction &function, train::SquareSumOp op);
int64_t emitSegmentMap(KernelFunction &function, train::SegmentMapOp op);
int64_t emitSegmentSquareSum(KernelFunction &function,
                             train::SegmentSquareSumOp op);
int64_t emitSumBlocks(KernelFunction &function, train::SumBlocksOp op);

/// An attention or its gradient.
int64_t emitAttention(KernelFunction &function, mlir::Operation *op,
                      Tiles tiles);
llvm::FailureOr<int64_t> emitEmbeddingGrad(KernelFunction &function,
                                           nn::EmbeddingGradOp op);
int64_t emitSort(KernelFunction &function, nn::SortOp op);

/// A convolution or a gradient of it (not of the whole weight), of `shape`.
llvm::FailureOr<int64_t> emitConvolution(KernelFunction &function,
                                         mlir::Operation *op,
                                         const Convolution &shape);

/// A pooling or a gradient of one.
llvm::FailureOr<int64_t> emitPool(KernelFunction &function,
                                  mlir::Operation *op);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_CPU_CPUKERNELS_H
