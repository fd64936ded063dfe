//===- Emulate.h - GPU modules as images for the emulator -------*- C++ -*-===//
#ifndef TRAINC_TARGET_GPU_EMULATE_H
#define TRAINC_TARGET_GPU_EMULATE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <string>

namespace mlir {
namespace gpu {
class GPUModuleOp;
} // namespace gpu
} // namespace mlir

namespace trainc {

/// Makes an image for the emulator (test/Equipment) from a module of the LLVM and
/// NVVM dialects, the one that is also made into a cubin: a shared library for
/// x86-64-v3 in which NVVM's operations are calls of the emulator, and a checked
/// access precedes each load and store. What the emulator lacks is an error that
/// names it. `out_image` gets the bytes.
llvm::LogicalResult emulateModule(mlir::gpu::GPUModuleOp module,
                                  std::string &out_image);

} // namespace trainc

#endif // TRAINC_TARGET_GPU_EMULATE_H
