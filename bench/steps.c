//===- steps.c - Steps in a loop, as a C program runs them ----------------===//

#include "trainc/runtime.h"
#include <time.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef trainc_status (*step_function)(trainc_trainer *, uint32_t,
                                       trainc_step_result *);

/// The seconds that `count` calls of `step`, which is trainc_step, take with what is
/// bound to `entry`; negative if one fails.
double trainc_bench_steps(step_function step, trainc_trainer *trainer,
                          uint32_t entry, uint64_t count) {
  trainc_step_result result;
  double begin = seconds();
  for (uint64_t i = 0; i < count; ++i)
    if (step(trainer, entry, &result) != TRAINC_OK)
      return -1;
  return seconds() - begin;
}
