// What the programs share: trains on a batch that the program makes, prints each loss.
#include "trainc/runtime.h"
#include <stdio.h>

enum { kBatch = 32, kPixels = 64, kClasses = 10, kSteps = 200 };

static int failed(trainc_status status) {
  if (status != TRAINC_OK)
    fprintf(stderr, "%s\n", trainc_last_error());
  return status != TRAINC_OK;
}

static int train(trainc_artifact *artifact) {
  static float x[kBatch * kPixels];
  static int32_t y[kBatch];
  uint32_t state = 1;
  for (int i = 0; i < kBatch * kPixels; ++i)
    x[i] = (float)((state = state * 1664525u + 1013904223u) >> 24) / 256;
  for (int i = 0; i < kBatch; ++i)
    y[i] = i % kClasses;
  trainc_trainer *trainer;
  if (failed(trainc_trainer_create(artifact, NULL, &trainer)) ||
      failed(trainc_bind_input(trainer, 0, 0, x, sizeof x)) ||
      failed(trainc_bind_input(trainer, 0, 1, y, sizeof y)))
    return 1;
  for (int i = 0; i < kSteps; ++i) {
    trainc_step_result result;
    if (failed(trainc_step(trainer, 0, &result)))
      return 1;
    printf("%a\n", result.loss);
  }
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  return 0;
}
