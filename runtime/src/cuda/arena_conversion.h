//===- arena_conversion.h - Converting arenas of a GPU -----------*- C++ -*-===//
#ifndef TRAINC_CUDA_ARENA_CONVERSION_H
#define TRAINC_CUDA_ARENA_CONVERSION_H

#include "core/trainer.h"

namespace trainc::cuda {

/// An arena whose tensors get other types or places. It is made beside the old one, or,
/// if there is no room for both, where that was, whose content waits on the host.
struct ArenaMove {
  uint32_t arena;
  bool byHost;
};

struct ArenaPlan {
  Array<ArenaMove> moves;
  Account aside; // of memory that is not the device's
  Pages host;    // for the content of one arena at a time
};

/// What must be free to make an arena beside another one: runtime.h explains it.
uint64_t bytesToConvert(uint64_t bytes);

/// Decides for the arenas of `plan`, of the same numbers in the trainer's state and in
/// `after`, puts those that shrink first, and takes the host's memory. TRAINC_OUT_OF_MEMORY
/// if even one at a time is too large, for the device or for `limit` (0: none), or for the
/// host.
trainc_status planConversion(const trainc_trainer *trainer, const State &after,
                             uint64_t limit, ArenaPlan &plan);

/// Moves all tensors but compute copies. The arenas are then those of `after`; if
/// anything fails, the trainer's state is undefined, and nothing can be done with it.
trainc_status runConversion(trainc_trainer *trainer, State &after,
                            ArenaPlan &plan);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_ARENA_CONVERSION_H
