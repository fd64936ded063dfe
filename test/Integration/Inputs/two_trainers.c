// Two trainers of one artifact in two threads give the bits that each gives
// alone. usage: two_trainers STEP.so (two inputs, f32 and int32 class indices
// below 10)
#include "trainc/runtime.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 200 };

typedef struct {
  trainc_artifact *artifact;
  uint64_t seed;
  double losses[STEPS];
} run_t;

static void check(trainc_status status) {
  if (status == TRAINC_OK)
    return;
  fprintf(stderr, "two_trainers: %s\n", trainc_last_error());
  exit(1);
}

static void *train(void *argument) {
  run_t *run = argument;
  const trainc_entry *entry =
      trainc_artifact_descriptor(run->artifact)->entries;
  uint64_t x_bytes = entry->inputs[0].bytes, y_bytes = entry->inputs[1].bytes;
  float *x = malloc(x_bytes);
  int32_t *y = malloc(y_bytes);
  uint32_t random = 1;
  for (uint64_t i = 0; i < x_bytes / sizeof *x; ++i)
    x[i] = (float)((random = random * 1664525u + 1013904223u) >> 24) / 256;
  for (uint64_t i = 0; i < y_bytes / sizeof *y; ++i)
    y[i] = (int32_t)(i % 10);

  trainc_trainer_options options = {
      .size = sizeof options, .threads = 2, .seed = run->seed};
  trainc_trainer *trainer;
  check(trainc_trainer_create(run->artifact, &options, &trainer));
  check(trainc_bind_input(trainer, 0, 0, x, x_bytes));
  check(trainc_bind_input(trainer, 0, 1, y, y_bytes));
  for (int i = 0; i < STEPS; ++i) {
    trainc_step_result result;
    check(trainc_step(trainer, 0, &result));
    run->losses[i] = result.loss;
  }
  trainc_trainer_destroy(trainer);
  free(x), free(y);
  return NULL;
}

int main(int argc, char **argv) {
  trainc_artifact *artifact;
  if (argc != 2)
    return 2;
  check(trainc_artifact_open(argv[1], &artifact));
  static run_t alone[2], together[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) {
    alone[i].artifact = together[i].artifact = artifact;
    alone[i].seed = together[i].seed = (uint64_t)i;
    train(&alone[i]);
  }
  for (int i = 0; i < 2; ++i)
    pthread_create(&threads[i], NULL, train, &together[i]);
  for (int i = 0; i < 2; ++i) {
    pthread_join(threads[i], NULL);
    int equal =
        !memcmp(alone[i].losses, together[i].losses, sizeof alone[i].losses);
    printf("seed %d: loss %.4f to %.4f, %s\n", i, alone[i].losses[0],
           alone[i].losses[STEPS - 1], equal ? "same bits" : "other bits");
  }
  trainc_artifact_close(artifact);
  return 0;
}
