//===- result.cpp - What a step gives -------------------------------------===//

#include "core/match.h"
#include "core/trainer.h"
#include <math.h>

using namespace trainc;

static trainc_status giveResult(trainc_trainer *trainer, const double *scalars,
                                bool closed, double before,
                                trainc_step_result *out_result) {
  if (trainc_status status = settle(trainer)) {
    trainer->broken = true;
    return status;
  }
  trainc_step_result result = {};
  result.closed = closed;
  result.updated = closed && scalars[TRAINC_SCALAR_UPDATE] != before;
  auto mean = [](double sum, double weight) {
    return weight == 0 ? static_cast<double>(NAN) : sum / weight;
  };
  result.weight = scalars[TRAINC_SCALAR_MICRO_WEIGHT];
  result.loss = mean(scalars[TRAINC_SCALAR_MICRO_LOSS], result.weight);
  result.window_weight = scalars[TRAINC_SCALAR_WEIGHT_SUM];
  result.window_loss =
      mean(scalars[TRAINC_SCALAR_LOSS_SUM], result.window_weight);
  result.grad_norm = scalars[TRAINC_SCALAR_GRAD_NORM];
  result.clip_factor = scalars[TRAINC_SCALAR_CLIP_FACTOR];
  result.loss_scale = scalars[TRAINC_SCALAR_LOSS_SCALE];
  result.update = static_cast<uint64_t>(scalars[TRAINC_SCALAR_UPDATE]);
  result.skipped = static_cast<uint64_t>(scalars[TRAINC_SCALAR_SKIPPED]);
  result.micro_step = static_cast<uint32_t>(scalars[TRAINC_SCALAR_MICRO_STEP]);
  result.finite = scalars[TRAINC_SCALAR_FINITE] != 0;
  if (closed) {
    result.stop = static_cast<uint32_t>(scalars[TRAINC_SCALAR_STOP]);
    trainer->stopRequested = false;
  }
  *out_result = result;
  return TRAINC_OK;
}

/// Puts the artifact's loss scales in place of those that loaded windows came with, as
/// far as these are closed.
static void endScales(trainc_trainer *trainer) {
  const trainc_descriptor &d = *trainer->d;
  for (uint32_t window = 0; window < d.num_windows; ++window) {
    uint32_t scale = scalarOf(window, TRAINC_SCALAR_LOSS_SCALE);
    if (followsArtifact(d, scale) && !trainer->isSet[scale] &&
        !inWindowOf(scale, trainer->scalars) &&
        trainer->scalars[scale] != d.scalars[scale].init)
      setScalar(trainer, scale, d.scalars[scale].init);
  }
}

trainc_status trainc::endRun(trainc_trainer *trainer, const double *scalars,
                             bool closed, double before,
                             trainc_step_result *out_result) {
  if (out_result)
    TRAINC_TRY(giveResult(trainer, scalars, closed, before, out_result));
  endScales(trainer); // the result has those that were used
  return TRAINC_OK;
}
