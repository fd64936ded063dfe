//===- Threads.h - Code of a thread of a GPU --------------------*- C++ -*-===//
//
// What the emitters of kernels for GPUs share. As for CPUs an emitter turns a
// train.kernel into a function on memrefs and a tile index; here a tile is a block
// of threads, and the function is the code of one thread.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_GPU_THREADS_H
#define TRAINC_LIB_CONVERSION_KERNELS_GPU_THREADS_H

#include "Common/KernelEmitter.h"

namespace trainc {

/// Threads that run in step and exchange registers.
inline constexpr int64_t kWarp = 32;

/// Counters at the begin of what a kernel's blocks share, which is zero before the
/// first launch: a kernel leaves its counters at zero.
inline constexpr int64_t kCounters = 1 << 14;

/// The type in which elements of `value` are computed.
inline mlir::Type computeTypeOf(mlir::Value value) {
  return nn::getComputeType(nn::getTensorType(value).getElementType());
}

/// Elements that a thread loads at once: 16 bytes of the narrowest type, at most 8; if
/// `dividing`, fewer where rows do not divide into such.
int64_t chooseLanes(const KernelFunction &function, const IterationSpace &space,
                    bool dividing = true);

/// The code of one thread of a block of `threads`.
struct ThreadBuilder : LoopBuilder {
  ThreadBuilder(mlir::OpBuilder &b, mlir::Location loc, int64_t threads)
      : LoopBuilder{b, loc}, threads(threads) {}
  int64_t threads;

  /// Tells that blocks are launched with so many threads, of which so many at least
  /// are to have registers on a multiprocessor at once (0: whatever fits).
  void setLaunch(KernelFunction &function, int64_t resident = 0);
  /// The number of this thread in its block.
  mlir::Value thread();
  /// All threads of the block arrive before one goes on.
  void barrier();
  /// What the thread whose number differs in the bits of `mask` has for `value`;
  /// all threads of the warp take part.
  mlir::Value shuffle(mlir::Value value, int64_t mask);
  /// `value` combined over the `count` consecutive threads that this one is among, a
  /// power of two up to a warp; each of them has the result.
  mlir::Value combineThreads(nn::ReduceKind kind, mlir::Value value,
                             int64_t count = kWarp);
  /// `value` combined over the block; every thread has the result.
  mlir::Value combineBlock(nn::ReduceKind kind, mlir::Value value);
  /// Memory of `count` elements that the block shares, not initialized.
  mlir::Value shared(mlir::Type element, int64_t count);
  /// Runs `body` where `condition` holds.
  void when(mlir::Value condition,
            llvm::function_ref<void(ThreadBuilder &)> body);
  mlir::Value less(mlir::Value x, mlir::Value y);
  /// Memory of `count` elements that all blocks of the launch share, behind the
  /// counters. Not initialized.
  mlir::Value shareAmongBlocks(KernelFunction &function, mlir::Type element,
                               int64_t count);
  /// Runs `body` in that one of `count` blocks with this `number` which gets here
  /// last: it sees what all of them have written.
  void whenLast(KernelFunction &function, mlir::Value number, int64_t count,
                llvm::function_ref<void(ThreadBuilder &)> body);
};

/// Emit the body, set the attribute `threads`, and return the number of blocks.
int64_t emitRowsOnGPU(KernelFunction &function, const IterationSpace &space);
int64_t emitColumnsOnGPU(KernelFunction &function, const IterationSpace &space);
int64_t emitEmbeddingOnGPU(KernelFunction &function, nn::EmbeddingOp op);
int64_t emitEmbeddingGradOnGPU(KernelFunction &function,
                               nn::EmbeddingGradOp op);
/// Nothing, and no code, if rows do not stay whole.
std::optional<int64_t> emitPadOnGPU(KernelFunction &function, nn::PadOp op);
/// A convolution or a gradient of one; nothing, and no code, if `op` is none or has a
/// bias or coordinates beyond 32 bits.
std::optional<int64_t> emitConvolutionOnGPU(KernelFunction &function,
                                            mlir::Operation *op);
/// An attention or its gradient.
int64_t emitAttentionOnGPU(KernelFunction &function, mlir::Operation *op);
/// Norm and what follows from it, or updates (see train-merge-launches); nothing, and
/// no code, if `ops` are neither.
std::optional<int64_t> emitSegmentsOnGPU(KernelFunction &function,
                                         llvm::ArrayRef<mlir::Operation *> ops);
int64_t emitSquareSumOnGPU(KernelFunction &function, train::SquareSumOp op);
int64_t emitSumBlocksOnGPU(KernelFunction &function, train::SumBlocksOp op);

/// Divides the loops of a generic kernel (see GenericKernel.h) among threads; sets the
/// attributes `threads` and `tiles`.
llvm::LogicalResult distribute(mlir::func::FuncOp function);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_THREADS_H
