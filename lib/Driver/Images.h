//===- Images.h - The kernels of GPUs as images -----------------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_IMAGES_H
#define TRAINC_LIB_DRIVER_IMAGES_H

#include "Cache.h"
#include "Tables.h"
#include "trainc/Pipelines/Pipelines.h"
#include "trainc/Target/GPU/Serialize.h"
#include <set>

namespace trainc {

/// What code of GPUs is made for, and with what.
struct ImageOptions {
  /// For the emulator, and these architectures.
  bool emulated = false;
  std::set<unsigned> archs;
  /// If there are architectures.
  std::optional<Toolkit> toolkit;
  unsigned optimize = 3;
};

/// From `names` of architectures (sm_90, ..., and host for the emulator) and the
/// toolkit in `path` or, if that is empty, where it usually is. None and a message
/// otherwise.
std::optional<ImageOptions> chooseImages(llvm::ArrayRef<std::string> names,
                                         llvm::StringRef path,
                                         unsigned optimize, std::string &error);

/// Makes the images of the kernels of `module`, which is in form 4 of CUDA.
/// Diagnostics if that fails.
llvm::LogicalResult makeImages(mlir::ModuleOp module,
                               const ImageOptions &options,
                               std::vector<ImageRow> &images);

/// The images of a module's kernels in a cache, all of them under one key. Those for
/// the emulator are not kept: they tell the kernels' places in the source.
class CachedImages {
public:
  /// `module` is in form 3 of CUDA; `cache` may be null.
  CachedImages(mlir::ModuleOp module, const PipelineOptions &pipeline,
               const ImageOptions &options, Cache *cache);

  /// Takes images from the cache and gives the kernels of `module` the attributes that
  /// lowering gave to them; false if there are none.
  bool load(std::vector<ImageRow> &images);
  /// Puts them there; the module is in form 4.
  void store(llvm::ArrayRef<ImageRow> images);

private:
  mlir::ModuleOp module;
  const ImageOptions &options;
  Cache *cache;
  Cache::Key key;
};

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_IMAGES_H
