// The three command lists, windows and flushes, stops, evals, observers, and everything
// that a caller can get wrong before a step runs.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"

static char order[256];

static int note(void *context, const trainc_event *event) {
  (void)context;
  if (!event->end) {
    char text[16];
    snprintf(text, sizeof text, "%u.%u ", event->list, event->index);
    strcat(order, text);
  }
  return 0;
}
static int stop(void *context, const trainc_event *event) {
  (void)context;
  return event->list == TRAINC_LIST_APPLY;
}

/// The scalar of the kernels' own bookkeeping.
static double scalar(trainc_trainer *trainer, const char *name) {
  double value;
  OK(trainc_get_scalar(trainer, name, &value));
  return value;
}

static void test_windows(trainc_trainer *t) {
  trainc_step_result r;
  float x[ROWS * FEATURES];
  int32_t y[ROWS];
  make_batch(0, x, y);
  OK(trainc_bind_input(t, 0, 0, x, sizeof x));
  OK(trainc_bind_input_shaped(t, 0, 1, y, TRAINC_I32, 1, y_dims));
  OK(trainc_set_observer(t, note, NULL));
  for (int i = 0; i < 4; ++i) {
    OK(trainc_step(t, 0, &r));
    printf(
        "step %d: closed %u updated %u micro_step %u update %llu weight %g\n",
        i, r.closed, r.updated, r.micro_step, (unsigned long long)r.update,
        r.weight);
  }
  // CHECK: step 0: closed 0 updated 0 micro_step 1 update 0 weight 32
  // CHECK: step 1: closed 0 updated 0 micro_step 2 update 0 weight 32
  // CHECK: step 2: closed 1 updated 1 micro_step 0 update 1 weight 32
  // CHECK: step 3: closed 0 updated 0 micro_step 1 update 1 weight 32
  CHECK(scalar(t, "window") == 3 && r.window_weight == 32);
  printf("order %s\n", order);
  // CHECK: order 0.0 0.1 0.2 0.3 0.4 1.0 1.1 1.2 1.3 1.4 1.0 1.1 1.2 1.3 1.4 2.0 2.1 0.0 0.1 0.2 0.3 0.4
  OK(trainc_set_observer(t, NULL, NULL));

  const void *logits;
  double before = scalar(t, "micro_step");
  OK(trainc_bind_input(t, 1, 0, x, sizeof x));
  OK(trainc_eval(t, 1));
  OK(trainc_output_data(t, 1, 0, &logits));
  float own[ROWS * CLASSES];
  OK(trainc_bind_output(t, 1, 0, own, sizeof own));
  OK(trainc_eval(t, 1));
  CHECK(memcmp(own, logits, sizeof own) == 0);
  CHECK(scalar(t, "micro_step") == before);

  OK(trainc_flush(t, &r));
  printf("flush: closed %u updated %u update %llu window %g\n", r.closed,
         r.updated, (unsigned long long)r.update, scalar(t, "window"));
  // CHECK: flush: closed 1 updated 1 update 2 window 1
  OK(trainc_flush(t, &r));
  CHECK(!r.closed && r.update == 2);

  // A window whose gradient is not finite is skipped, the next is clean.
  x[5] = NAN;
  OK(trainc_step(t, 0, NULL));
  x[5] = 0;
  OK(trainc_step(t, 0, NULL));
  OK(trainc_step(t, 0, &r));
  printf("nan: closed %u updated %u finite %u skipped %llu\n", r.closed,
         r.updated, r.finite, (unsigned long long)r.skipped);
  // CHECK: nan: closed 1 updated 0 finite 0 skipped 1
  for (int i = 0; i < 3; ++i)
    OK(trainc_step(t, 0, &r));
  CHECK(r.updated && r.finite && isfinite(r.loss));
}

/// A request to stop is told by the next result that closes a window, and by no other.
static void test_stop(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 0);
  trainc_step_result r;
  run_steps(t, 0, WINDOW_SIZE);
  OK(trainc_save(t, "state.safetensors"));
  OK(trainc_request_stop(t));
  OK(trainc_load(t, "state.safetensors"));
  for (int i = 0; i < WINDOW_SIZE; ++i)
    OK(trainc_step(t, 0, NULL));
  printf("stops");
  for (int i = 0; i < 3 * WINDOW_SIZE + 1; ++i) {
    OK(trainc_step(t, 0, &r));
    printf(" %u", r.stop);
    if (i == WINDOW_SIZE)
      OK(trainc_request_stop(t));
  }
  OK(trainc_request_stop(t));
  OK(trainc_flush(t, &r));
  printf(", flush %u", r.stop);
  run_steps(t, 0, WINDOW_SIZE - 1);
  OK(trainc_flush(t, &r));
  printf(" %u\n", r.stop);
  // CHECK: stops 0 0 1 0 0 1 0 0 0 0, flush 1 0
  trainc_trainer_destroy(t);
}

static void test_errors(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 0), *untouched = make_trainer(a, 1, 0);
  float x[ROWS * FEATURES], logits[ROWS * CLASSES];
  int32_t y[ROWS];
  uint32_t index;
  double value;
  make_batch(0, x, y);
  EXPECT(trainc_step(t, 0, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' of entry 'step' is not bound
  EXPECT(trainc_step(t, 1, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: entry 'eval' is an eval, not a step
  EXPECT(trainc_eval(t, 0), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: entry 'step' is a step, not an eval
  EXPECT(trainc_step(t, 7, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: artifact 'handmade' has 2 entries; no number 7
  EXPECT(trainc_bind_input(t, 0, 0, x, sizeof x - 4), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'x' of entry 'step' is 32x24xf32: expected 3072 bytes, got 3068
  EXPECT(trainc_bind_input(t, 0, 0, (char *)x + 1, sizeof x),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: the memory for 'x' of entry 'step' is not aligned to an element
  EXPECT(trainc_bind_input_shaped(t, 0, 1, y, TRAINC_I64, 1, y_dims),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'y' of entry 'step': expected 32xi32, got 32xi64
  EXPECT(trainc_bind_input_shaped(t, 0, 0, x, TRAINC_F32, 2, weight_dims),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' of entry 'step': expected 32x24xf32, got 24x10xf32
  EXPECT(trainc_bind_input(t, 0, 2, x, sizeof x), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: entry 'step' has 2 inputs; no number 2
  EXPECT(trainc_bind_output(t, 1, 0, logits, 8), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'logits' of entry 'eval' is 32x10xf32: expected 1280 bytes, got 8

  // An output where an input is read.
  const void *own;
  OK(trainc_output_data(t, 1, 0, &own));
  OK(trainc_bind_input(t, 1, 0, x, sizeof x));
  OK(trainc_bind_output(t, 1, 0, x + 8, sizeof logits));
  EXPECT(trainc_eval(t, 1), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' and output 'logits' of entry 'eval' overlap in memory; expected memory of its own for each
  OK(trainc_bind_output(t, 1, 0, NULL, 0));
  OK(trainc_eval(t, 1));
  OK(trainc_bind_input(t, 1, 0, (const float *)own - 8, sizeof x));
  EXPECT(trainc_eval(t, 1), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' and output 'logits' of entry 'eval' overlap in memory
  // An output, or an input, where the entry has a parameter.
  void *weight;
  OK(trainc_tensor_data(t, 0, &weight));
  OK(trainc_bind_input(t, 1, 0, x, sizeof x));
  OK(trainc_bind_output(t, 1, 0, weight, sizeof logits));
  EXPECT(trainc_eval(t, 1), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: output 'logits' of entry 'eval' lies in memory of the trainer that the entry uses; expected other memory
  OK(trainc_bind_input(t, 0, 0, weight, sizeof x));
  OK(trainc_bind_input(t, 0, 1, y, sizeof y));
  EXPECT(trainc_step(t, 0, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' of entry 'step' lies in memory of the trainer that the entry writes; expected other memory
  CHECK(same_state(t, untouched));
  OK(trainc_bind_output(t, 1, 0, logits, sizeof logits));
  OK(trainc_eval(t, 1));

  OK(trainc_bind_input(t, 0, 0, x, sizeof x));
  OK(trainc_bind_input(t, 0, 1, y, sizeof y));
  y[3] = -100; // ignored
  y[17] = 10;
  EXPECT(trainc_step(t, 0, NULL), TRAINC_OUT_OF_RANGE);
  // CHECK: TRAINC_OUT_OF_RANGE: input 'y' of entry 'step' has 10 at [17] (element 17); expected a value from 0 to 9 or -100
  CHECK(same_state(t, untouched));
  y[17] = 9;
  trainc_step_result r;
  OK(trainc_step(t, 0, &r));
  CHECK(r.weight == ROWS - 1);

  EXPECT(trainc_set_scalar(t, "update", 5), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'update' is computed by the step and cannot be set
  EXPECT(trainc_set_scalar(t, "lr", NAN), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'lr' cannot be nan: expected a finite number
  EXPECT(trainc_set_scalar(t, "seed", 0.5), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'seed' cannot be 0.5: expected an integer from 0 to 2^53 - 1
  EXPECT(trainc_set_scalar(t, "clip_limit", -1), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'clip_limit' cannot be -1: expected a positive number
  OK(trainc_set_scalar(t, "clip_limit", 0)); // as it is without a clip
  EXPECT(trainc_get_scalar(t, "none", &value), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: artifact 'handmade' has no scalar 'none'
  OK(trainc_set_scalar(t, "lr", 0.5));
  CHECK(scalar(t, "lr") == 0.5);

  EXPECT(trainc_artifact_find_tensor(a, TRAINC_ROLE_STATE, "fc.weight", "v",
                                     &index),
         TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: artifact 'handmade' has no tensor 'fc.weight/v' of role 3
  EXPECT(trainc_tensor_write(t, 2, TRAINC_BF16, x, WEIGHTS * 2),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: the compute copy of 'fc.weight' follows its parameter: write that
  EXPECT(trainc_tensor_read(t, 0, TRAINC_I32, x, WEIGHTS * 4),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: tensor 'fc.weight' is F32: cannot convert I32
  EXPECT(trainc_tensor_read(t, 0, TRAINC_F64, x, 8), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: tensor 'fc.weight' has 240 elements: expected 1920 bytes of F64, got 8

  OK(trainc_set_observer(t, stop, NULL));
  EXPECT(trainc_flush(t, NULL), TRAINC_CANCELLED);
  // CHECK: TRAINC_CANCELLED: the observer stopped entry 'step' at 'train.norm'
  EXPECT(trainc_step(t, 0, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: the last run or load of this trainer ended half-way; load a checkpoint first
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(untouched);
}

/// Numbers of a schedule that it divides by, and others of these names.
static void test_lengths(void) {
  trainc_scalar table[NUM_SCALARS + 4];
  memcpy(table, scalars, sizeof scalars);
  trainc_scalar *more = table + NUM_SCALARS;
  more[0] = (trainc_scalar){"rate", 0, 0, 0};
  more[1] = (trainc_scalar){"rate.steps", 9, TRAINC_SCALAR_SETTABLE, 0};
  more[2] = (trainc_scalar){"rate.size", 4, TRAINC_SCALAR_SETTABLE, 0};
  more[3] = (trainc_scalar){"momentum.steps", 4, TRAINC_SCALAR_SETTABLE, 0};
  table[TRAINC_SCALAR_CLIP_LIMIT].init = 1;
  trainc_descriptor d = trainc_descriptor_handmade;
  d.scalars = table;
  d.num_scalars = NUM_SCALARS + 4;
  trainc_artifact *a;
  OK(trainc_artifact_open_descriptor(&d, &a));
  trainc_trainer *t = make_trainer(a, 1, 0);
  EXPECT(trainc_set_scalar(t, "rate.steps", 0), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'rate.steps' cannot be 0: expected a positive number
  EXPECT(trainc_set_scalar(t, "rate.size", -2), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'rate.size' cannot be -2: expected a positive number
  EXPECT(trainc_set_scalar(t, "clip_limit", 0), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: scalar 'clip_limit' cannot be 0: expected a positive number
  CHECK(scalar(t, "rate.steps") == 9 && scalar(t, "clip_limit") == 1);
  OK(trainc_set_scalar(t, "rate.steps", 0.5));
  OK(trainc_set_scalar(t, "momentum.steps", -1));
  trainc_trainer_destroy(t);
  trainc_artifact_close(a);
}

/// Types narrow once, to nearest even; a written parameter reaches its copy.
static void test_tensors(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 2, 0);
  double wide[WEIGHTS], back[WEIGHTS];
  float narrow[WEIGHTS];
  uint16_t copy[WEIGHTS];
  uint32_t weight;
  OK(trainc_artifact_find_tensor(a, TRAINC_ROLE_MASTER, "fc.weight", NULL,
                                 &weight));
  for (int i = 0; i < WEIGHTS; ++i)
    wide[i] = 1.0 + i / 512.0;
  OK(trainc_tensor_write(t, weight, TRAINC_F64, wide, sizeof wide));
  OK(trainc_tensor_read(t, weight, TRAINC_F64, back, sizeof back));
  CHECK(memcmp(wide, back, sizeof wide) == 0);
  OK(trainc_tensor_read(t, 2, TRAINC_BF16, copy, sizeof copy));
  OK(trainc_tensor_read(t, 2, TRAINC_F32, narrow, sizeof narrow));
  for (int i = 0; i < WEIGHTS; ++i) {
    // bf16 has 7 bits of fraction: steps of 1/128 in [1, 2).
    float expected = (float)rint(wide[i] * 128) / 128;
    CHECK(narrow[i] == expected);
  }
  // 1 + 2^-11 + 2^-60 rounds up in f16; through f32 it would be a tie, to even.
  double tie[2] = {1.0 + 0x1p-11 + 0x1p-50, 65504.0};
  uint16_t half[2];
  OK(trainc_artifact_find_tensor(a, TRAINC_ROLE_MASTER, "table", NULL,
                                 &weight));
  OK(trainc_tensor_write(t, weight, TRAINC_F64, tie, sizeof tie));
  OK(trainc_tensor_read(t, weight, TRAINC_F16, half, sizeof half));
  CHECK(half[0] == 0x3C01 && half[1] == 0x7BFF);
  trainc_trainer_destroy(t);
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  trainc_trainer *trainer = make_trainer(artifact, 2, 0);
  test_windows(trainer);
  test_stop(artifact);
  test_errors(artifact);
  test_lengths();
  test_tensors(artifact);
  trainc_artifact_close(artifact); // the trainer keeps it
  CHECK(run_steps(trainer, 0, 300) < 1.0);
  trainc_trainer_destroy(trainer);
  trainc_trainer_destroy(NULL);
  trainc_artifact_close(NULL);
  puts("done");
  // CHECK: done
  return 0;
}
