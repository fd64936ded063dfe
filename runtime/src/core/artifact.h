//===- artifact.h - An opened artifact --------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_ARTIFACT_H
#define TRAINC_CORE_ARTIFACT_H

#include "core/status.h"
#include "core/tables.h"
#include <atomic>

namespace trainc {
struct LoadedFile;
}

/// Immutable after opening, but for the count of its users.
struct trainc_artifact {
  const trainc_descriptor *descriptor = nullptr; // in `tables` or `library`
  trainc::Tables tables;
  void *library = nullptr; // null: linked into the program
  trainc::LoadedFile *file = nullptr;
  trainc::Text path;
  std::atomic<uint32_t> users{1}; // trainc_artifact_open, trainers

  ~trainc_artifact();
};

namespace trainc {

void retain(trainc_artifact *artifact);
void release(trainc_artifact *artifact);

/// Checks, without loading it, that a shared library is a whole artifact of this ABI
/// with the checksum that it was written with, and that loading it runs no code and
/// needs nothing else.
trainc_status checkLibraryFile(const char *path);

/// Looks at the magic number and version that a descriptor begins with.
trainc_status checkAbi(const char *path, const trainc_descriptor &descriptor);

/// Checks every index, size and range of the tables, so that running them later
/// touches no byte outside the arenas, inputs and outputs.
trainc_status validate(const trainc_descriptor &descriptor);

/// The scalar that is `fixed` of a window.
inline uint32_t scalarOf(uint32_t window, uint32_t fixed) {
  return window * TRAINC_NUM_FIXED_SCALARS + fixed;
}

/// Which of a window's scalars it is; TRAINC_NUM_FIXED_SCALARS if of none.
inline uint32_t fixedOf(const trainc_descriptor &d, uint32_t scalar) {
  return scalar < d.num_windows * TRAINC_NUM_FIXED_SCALARS
             ? scalar % TRAINC_NUM_FIXED_SCALARS
             : static_cast<uint32_t>(TRAINC_NUM_FIXED_SCALARS);
}

/// Is it a sum over a window, of each rank until the window is closed?
inline bool isWindowSum(const trainc_descriptor &d, uint32_t scalar) {
  uint32_t fixed = fixedOf(d, scalar);
  return fixed == TRAINC_SCALAR_LOSS_SUM || fixed == TRAINC_SCALAR_WEIGHT_SUM;
}

/// Is the window of `scalar` open?
inline bool inWindowOf(uint32_t scalar, const double *scalars) {
  uint32_t window = scalar / TRAINC_NUM_FIXED_SCALARS;
  return scalars[scalarOf(window, TRAINC_SCALAR_MICRO_STEP)] > 0;
}

/// Is any window open?
inline bool inWindow(const trainc_descriptor &d, const double *scalars) {
  for (uint32_t window = 0; window < d.num_windows; ++window)
    if (scalars[scalarOf(window, TRAINC_SCALAR_MICRO_STEP)] > 0)
      return true;
  return false;
}

/// A, B, C and what the detail has beside them.
inline uint32_t gemmOperandCount(const trainc_gemm_detail &gemm) {
  return 3u + (gemm.has_bias ? 1 : 0) + (gemm.has_aux ? 1 : 0) +
         (gemm.bias_gradient ? 1 : 0);
}

/// Checks that `one` of the tables that follow `first` is the same step for another
/// target than those before it. Both are valid.
trainc_status validateChain(const trainc_descriptor &first,
                            const trainc_descriptor &one);

/// TRAINC_UNSUPPORTED if this processor lacks what the tables' code needs.
trainc_status checkProcessor(const trainc_artifact &artifact,
                             const trainc_descriptor &descriptor);

/// The entry or TRAINC_INVALID_ARGUMENT.
trainc_status getEntry(const trainc_artifact *artifact, uint32_t entry,
                       const trainc_entry **out_entry);

/// What `tensor` is called in a checkpoint; false if it is not part of one. The
/// parameter's own copy is its master, or the compute copy of a frozen one.
bool checkpointName(const trainc_descriptor &descriptor, uint32_t tensor,
                    Text &name);

/// The master of compute copy `tensor`, or null if it is frozen.
const trainc_tensor *findMaster(const trainc_tensor *tensors, size_t count,
                                const trainc_tensor &tensor);

/// Is `tensor` a compute copy of a master?
inline bool isCopy(const trainc_tensor *tensors, size_t count,
                   const trainc_tensor &tensor) {
  return tensor.role == TRAINC_ROLE_COMPUTE &&
         findMaster(tensors, count, tensor);
}

} // namespace trainc

#endif // TRAINC_CORE_ARTIFACT_H
