//===- EpilogueKernels.h - What follows a product, apart from it *- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_GPU_EPILOGUEKERNELS_H
#define TRAINC_LIB_CONVERSION_KERNELS_GPU_EPILOGUEKERNELS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace trainc {

/// Adds the kernel `name` (step_abi.h: trainc_epilogue_bf16,
/// trainc_column_sums_bf16_f32, ...) to a module of kernels. An error if there is none.
mlir::LogicalResult addEpilogueKernel(mlir::gpu::GPUModuleOp target,
                                      mlir::StringRef name);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_EPILOGUEKERNELS_H
