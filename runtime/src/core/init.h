//===- init.h - Initial values ----------------------------------*- C++ -*-===//
//
// The definition is in runtime.h, at trainc_trainer_create.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_INIT_H
#define TRAINC_CORE_INIT_H

#include "trainc/step_abi.h"

namespace trainc {

/// Is the initial value of `tensor` what arenas start as?
bool startsAsZeros(const trainc_tensor &tensor);

/// Writes elements [begin, end) of the initial value of `tensor` to `data`, the
/// place of element `begin`.
void initialize(const trainc_tensor &tensor, uint64_t seed, void *data,
                uint64_t begin, uint64_t end);

} // namespace trainc

#endif // TRAINC_CORE_INIT_H
