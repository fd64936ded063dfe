//===- train.h - The training loop ------------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_TRAIN_H
#define TRAINC_RUN_TRAIN_H

#include "model.h"

namespace trainc::run {

/// How a training ended: all steps done; by a signal; or its updates were skipped, all
/// of them or too many in a row.
enum class Ending { Done, Stopped, Skipped };

/// trainc-run --steps N: trains, reports, saves.
Ending train(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_TRAIN_H
