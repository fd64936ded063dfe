// Trains while the program's own OpenMP threads work: of another thread all the
// time, of this one between steps. Prints each loss and saves the state.
//
//   openmp STEP.so STATE.safetensors STEPS alone|beside
#include "trainc/runtime.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTerms = 1 << 16, kClasses = 10 };

static atomic_int training = 1, regions;

static void check(trainc_status status) {
  if (status == TRAINC_OK)
    return;
  fprintf(stderr, "openmp: %s\n", trainc_last_error());
  exit(1);
}

/// A parallel region of all OpenMP threads.
static void work(void) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < kTerms; ++i)
    sum += 1.0 / (i + 1);
  if (sum < 11 || sum > 12)
    abort();
  atomic_fetch_add(&regions, 1);
}

static void *workBeside(void *unused) {
  while (atomic_load(&training))
    work();
  return unused;
}

/// Numbers that look random, the same in every run; classes if integers.
static void *makeInput(const trainc_port *port) {
  void *data = malloc(port->bytes);
  uint32_t state = 1;
  for (uint64_t i = 0; data && i < port->bytes / 4; ++i) {
    uint32_t draw = (state = state * 1664525u + 1013904223u) >> 8;
    if (port->dtype == TRAINC_F32)
      ((float *)data)[i] = (float)draw / (1 << 24);
    else
      ((int32_t *)data)[i] = (int32_t)(draw % kClasses);
  }
  return data;
}

int main(int argc, char **argv) {
  if (argc != 5 || (strcmp(argv[4], "alone") && strcmp(argv[4], "beside")))
    return fprintf(stderr, "usage: openmp STEP.so STATE STEPS alone|beside\n"),
           2;
  int steps = atoi(argv[3]), beside = !strcmp(argv[4], "beside");
  trainc_artifact *artifact;
  trainc_trainer *trainer;
  check(trainc_artifact_open(argv[1], &artifact));
  check(trainc_trainer_create(artifact, NULL, &trainer));
  const trainc_entry *entry = &trainc_artifact_descriptor(artifact)->entries[0];
  void *inputs[2];
  if (entry->num_inputs != 2)
    return fprintf(stderr, "openmp: expects a step of two inputs\n"), 1;
  for (uint32_t i = 0; i < 2; ++i) {
    const trainc_port *port = &entry->inputs[i];
    if (port->dtype != TRAINC_F32 && port->dtype != TRAINC_I32)
      return fprintf(stderr, "openmp: expects inputs of f32 and i32\n"), 1;
    if (!(inputs[i] = makeInput(port)))
      return fprintf(stderr, "openmp: no memory\n"), 1;
    check(trainc_bind_input(trainer, 0, i, inputs[i], port->bytes));
  }

  pthread_t thread;
  if (beside && pthread_create(&thread, NULL, workBeside, NULL))
    return fprintf(stderr, "openmp: no thread\n"), 1;
  for (int i = 0; i < steps; ++i) {
    trainc_step_result result;
    if (beside)
      work();
    check(trainc_step(trainer, 0, &result));
    printf("%a\n", result.loss);
  }
  atomic_store(&training, 0);
  if (beside)
    pthread_join(thread, NULL);
  fprintf(stderr, "%d parallel regions\n", atomic_load(&regions));
  check(trainc_save(trainer, argv[2]));
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  free(inputs[0]), free(inputs[1]);
  return 0;
}
