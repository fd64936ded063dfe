//===- target.h - What a trainer runs on ------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_TARGET_H
#define TRAINC_CORE_TARGET_H

#include "core/trainer.h"
#include "cuda/executor.h"

namespace trainc {

/// The artifact's tables for `target` (trainc_target), or null.
const trainc_descriptor *findTarget(const trainc_artifact &artifact,
                                    uint32_t target);

/// Chooses among the artifact's targets as options.device says, and opens the GPU that
/// is chosen. Sets the trainer's tables, GPU, place and notice. Several ranks choose
/// together.
trainc_status chooseTarget(trainc_trainer *trainer,
                           const trainc_trainer_options &options);

/// A failure to use the GPU: adds to the error what else could be done.
trainc_status failDevice(const trainc_artifact &artifact, trainc_status status);

} // namespace trainc

#endif // TRAINC_CORE_TARGET_H
