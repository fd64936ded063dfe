// Thread counts, the caller's pool, and two trainers at once give the same bits.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "handmade.h"
#include <pthread.h>
#include <xmmintrin.h>

enum { STEPS = 200 };

/// A caller's pool that starts a thread per call of the function.
typedef struct Part {
  void (*function)(void *, int64_t);
  void *argument;
  int64_t index;
} Part;
static void *run_part(void *part) {
  Part *p = part;
  p->function(p->argument, p->index);
  return NULL;
}
static int most = 0;
static void parallel_for(void *context, void (*function)(void *, int64_t),
                         void *argument, int64_t count) {
  pthread_t threads[16];
  Part parts[16];
  ++*(int *)context;
  most = count > most ? (int)count : most;
  for (int i = 0; i < count; ++i) {
    parts[i] = (Part){function, argument, i};
    CHECK(pthread_create(&threads[i], NULL, run_part, &parts[i]) == 0);
  }
  for (int i = 0; i < count; ++i)
    pthread_join(threads[i], NULL);
}

typedef struct Training {
  trainc_artifact *artifact;
  trainc_trainer *trainer;
  unsigned seed;
} Training;
static void *train(void *training) {
  Training *t = training;
  t->trainer = make_trainer(t->artifact, 2, t->seed);
  run_steps(t->trainer, 0, STEPS);
  return NULL;
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  trainc_trainer *one = make_trainer(artifact, 1, 7);
  run_steps(one, 0, STEPS);
  for (unsigned threads = 2; threads <= 4; ++threads) {
    trainc_trainer *more = make_trainer(artifact, threads, 7);
    CHECK(trainc_trainer_threads(more) == threads);
    run_steps(more, 0, STEPS);
    CHECK(same_state(one, more));
    trainc_trainer_destroy(more);
  }

  // The caller's floating-point settings do not reach the step.
  float x[ROWS * FEATURES];
  int32_t y[ROWS];
  trainc_trainer *odd = make_trainer(artifact, 2, 7);
  OK(trainc_bind_input(odd, 0, 0, x, sizeof x));
  OK(trainc_bind_input(odd, 0, 1, y, sizeof y));
  for (unsigned i = 0; i < STEPS; ++i) {
    make_batch(i, x, y);
    unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040 | 0x6000); // flush denormals, round toward zero
    OK(trainc_step(odd, 0, NULL));
    CHECK((_mm_getcsr() & 0xE040) == 0xE040);
    _mm_setcsr(saved);
  }
  CHECK(same_state(one, odd));

  int calls = 0;
  trainc_trainer_options options = {.size = sizeof options,
                                    .threads = 3,
                                    .seed = 7,
                                    .parallel_for = parallel_for,
                                    .parallel_context = &calls};
  trainc_trainer *theirs;
  OK(trainc_trainer_create(artifact, &options, &theirs));
  run_steps(theirs, 0, STEPS);
  CHECK(same_state(one, theirs) && calls > STEPS && most == 3);

  options = (trainc_trainer_options){.size = sizeof options,
                                     .threads = 2,
                                     .seed = 7,
                                     .flags = TRAINC_TRAINER_PIN_THREADS};
  trainc_trainer *pinned;
  OK(trainc_trainer_create(artifact, &options, &pinned));
  run_steps(pinned, 0, STEPS);
  CHECK(same_state(one, pinned));

  // Two trainers of one artifact in two threads, against each alone.
  Training a = {artifact, NULL, 7}, b = {artifact, NULL, 8};
  pthread_t first, second;
  CHECK(pthread_create(&first, NULL, train, &a) == 0);
  CHECK(pthread_create(&second, NULL, train, &b) == 0);
  pthread_join(first, NULL);
  pthread_join(second, NULL);
  trainc_trainer *alone = make_trainer(artifact, 1, 8);
  run_steps(alone, 0, STEPS);
  CHECK(same_state(a.trainer, one));
  CHECK(same_state(b.trainer, alone));
  CHECK(!same_state(a.trainer, b.trainer));

  trainc_trainer *all[] = {one,       odd,       theirs, pinned,
                           a.trainer, b.trainer, alone};
  for (int i = 0; i < 7; ++i)
    trainc_trainer_destroy(all[i]);
  trainc_artifact_close(artifact);
  return 0;
}
