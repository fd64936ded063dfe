//===- train.h - The training loop ------------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_TRAIN_H
#define TRAINC_RUN_TRAIN_H

#include "model.h"

namespace trainc::run {

/// trainc-run --steps N: trains, reports, saves. Returns false if a signal
/// ended it early.
bool train(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_TRAIN_H
