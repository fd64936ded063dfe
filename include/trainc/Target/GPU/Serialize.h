//===- Serialize.h - GPU modules as code for NVIDIA GPUs --------*- C++ -*-===//
#ifndef TRAINC_TARGET_GPU_SERIALIZE_H
#define TRAINC_TARGET_GPU_SERIALIZE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <optional>
#include <string>

namespace mlir {
class DialectRegistry;
namespace gpu {
class GPUModuleOp;
} // namespace gpu
} // namespace mlir

namespace trainc {

/// A CUDA toolkit: ptxas, and libdevice's functions.
struct Toolkit {
  std::string path;
  unsigned major = 0, minor = 0;
  /// What ptxas says of itself.
  std::string version;

  /// The newest version of PTX that it and LLVM know, as LLVM's feature.
  std::string ptxFeature() const;
};

/// Where a toolkit has ptxas, and libdevice.
inline constexpr llvm::StringLiteral kAssembler = "bin/ptxas";
inline constexpr llvm::StringLiteral kDevice = "nvvm/libdevice/libdevice.10.bc";

/// Finds the toolkit in `path` or, if that is empty, where CUDA_HOME, CUDA_PATH,
/// /usr/local/cuda and the ptxas in PATH say. None and a message if it is missing, not
/// whole, or older than 12.0.
std::optional<Toolkit> findToolkit(llvm::StringRef path, std::string &error);

/// The number of an architecture: 90 for "sm_90". None and a message if code cannot be
/// made for it (expects sm_80 and later ones that LLVM knows), or not by `toolkit`.
std::optional<unsigned> parseArch(llvm::StringRef arch, std::string &error);
llvm::LogicalResult checkArch(unsigned arch, const Toolkit &toolkit,
                              std::string &error);

/// What `serializeModule` and `emulateModule` need.
void registerGPUTranslations(mlir::DialectRegistry &registry);

/// Makes a cubin for sm_`arch` from a module of the LLVM and NVVM dialects; `ptx` gets
/// the text that it was assembled from. Emits an error otherwise.
llvm::LogicalResult serializeModule(mlir::gpu::GPUModuleOp module,
                                    unsigned arch, const Toolkit &toolkit,
                                    unsigned optimize, std::string &cubin,
                                    std::string &ptx);

} // namespace trainc

#endif // TRAINC_TARGET_GPU_SERIALIZE_H
