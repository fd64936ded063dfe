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

/// Makes the images of the kernels of `module`, which is in form 3 of CUDA, and sets the
/// attributes that lowering gives to these; nothing else of the module matters. The
/// cache, which may be null, has all images of a module's kernels under one key, but
/// for the emulator's: they tell the kernels' places in the source. `cached` says
/// whether they were there. Diagnostics if that fails.
llvm::LogicalResult compileImages(mlir::ModuleOp module,
                                  const PipelineOptions &pipeline,
                                  const ImageOptions &options, Cache *cache,
                                  std::vector<ImageRow> &images, bool &cached);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_IMAGES_H
