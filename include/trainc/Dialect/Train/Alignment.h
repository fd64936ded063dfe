//===- Alignment.h - At which multiples of bytes memory stands --*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_ALIGNMENT_H
#define TRAINC_DIALECT_TRAIN_ALIGNMENT_H

#include <cstdint>

namespace trainc::train {

/// Of values in the workspace, and of slices of arenas unless another one is
/// asked for: as allocators of GPUs give it.
inline constexpr int64_t kBufferAlignment = 256;

/// Of tensors of so many bytes in memory of GPUs, at least: as far as kernels read at once.
inline constexpr int64_t kVectorAlignment = 16;

/// A cache line of a CPU: of scratch memory and of constants.
inline constexpr int64_t kCacheLine = 64;

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_ALIGNMENT_H
