// Errors of an artifact of tokens.mlir leave the trainer as it was.
// usage: bad_input STEP.so GOOD.safetensors BAD.safetensors...
#include "trainc/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("line %d: %s\n  %s\n", __LINE__, #condition,                      \
             trainc_last_error());                                             \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#define OK(call) CHECK((call) == TRAINC_OK)
#define EXPECT(call, status)                                                   \
  do {                                                                         \
    CHECK((call) == (status));                                                 \
    printf("%s: %s\n", trainc_status_name(status), trainc_last_error());       \
  } while (0)

static int32_t tokens[8] = {0, 6, 3, 3, 1, 2, 5, 4};
static int32_t targets[8] = {0, 1, 2, 2, 1, 0, -100, 1};
static float points[32] = {0.5f, -1.0f, 0.25f};

static trainc_trainer *make_trainer(trainc_artifact *artifact) {
  trainc_trainer *t;
  trainc_trainer_options options = {.size = sizeof options, .threads = 2};
  OK(trainc_trainer_create(artifact, &options, &t));
  OK(trainc_bind_input(t, 0, 0, tokens, sizeof tokens));
  OK(trainc_bind_input(t, 0, 1, points, sizeof points));
  OK(trainc_bind_input(t, 0, 2, targets, sizeof targets));
  return t;
}

/// Compares what a checkpoint would hold, bit by bit.
static int same_state(trainc_trainer *a, trainc_trainer *b) {
  const trainc_descriptor *d =
      trainc_artifact_descriptor(trainc_trainer_artifact(a));
  for (uint32_t i = 0; i < d->num_tensors; ++i) {
    void *left, *right;
    OK(trainc_tensor_data(a, i, &left));
    OK(trainc_tensor_data(b, i, &right));
    if (memcmp(left, right, d->tensors[i].bytes))
      return 0;
  }
  for (uint32_t i = 0; i < d->num_scalars; ++i) {
    double left, right;
    OK(trainc_get_scalar_at(a, i, &left));
    OK(trainc_get_scalar_at(b, i, &right));
    if (memcmp(&left, &right, sizeof left))
      return 0;
  }
  return 1;
}

int main(int argc, char **argv) {
  trainc_artifact *artifact;
  CHECK(argc > 2);
  OK(trainc_artifact_open(argv[1], &artifact));

  // How much memory is needed is said before it is taken, and is enough.
  trainc_trainer *t = NULL;
  trainc_trainer_options options = {
      .size = sizeof options, .threads = 1, .memory_limit = 4096};
  EXPECT(trainc_trainer_create(artifact, &options, &t), TRAINC_OUT_OF_MEMORY);
  unsigned long long needed;
  CHECK(sscanf(strstr(trainc_last_error(), "needs "), "needs %llu", &needed) ==
        1);
  options.memory_limit = needed;
  OK(trainc_trainer_create(artifact, &options, &t));
  trainc_trainer_destroy(t);

  trainc_trainer *untouched = make_trainer(artifact);
  t = make_trainer(artifact);
  for (int i = 0; i < 3; ++i) {
    OK(trainc_step(t, 0, NULL));
    OK(trainc_step(untouched, 0, NULL));
  }

  // Sizes and element types.
  EXPECT(trainc_bind_input(t, 0, 1, points, sizeof points - 4),
         TRAINC_INVALID_ARGUMENT);
  EXPECT(
      trainc_bind_input_shaped(t, 0, 0, tokens, TRAINC_I64, 1, (int64_t[]){8}),
      TRAINC_INVALID_ARGUMENT);
  EXPECT(trainc_bind_input_shaped(t, 0, 1, points, TRAINC_F32, 2,
                                  (int64_t[]){4, 8}),
         TRAINC_INVALID_ARGUMENT);
  CHECK(same_state(t, untouched));

  // A token, then a class, outside of its range.
  tokens[5] = 7;
  EXPECT(trainc_step(t, 0, NULL), TRAINC_OUT_OF_RANGE);
  tokens[5] = -1;
  EXPECT(trainc_step(t, 0, NULL), TRAINC_OUT_OF_RANGE);
  tokens[5] = 2;
  targets[2] = 3;
  EXPECT(trainc_step(t, 0, NULL), TRAINC_OUT_OF_RANGE);
  targets[2] = 2;
  CHECK(same_state(t, untouched));

  // Checkpoints that do not fit or are damaged.
  for (int i = 3; i < argc; ++i) {
    trainc_status status = trainc_load(t, argv[i]);
    printf("%s: %s\n", trainc_status_name(status), trainc_last_error());
    CHECK(status != TRAINC_OK && same_state(t, untouched));
  }

  // All goes on as if nothing had happened.
  OK(trainc_step(t, 0, NULL));
  OK(trainc_step(untouched, 0, NULL));
  CHECK(same_state(t, untouched));
  OK(trainc_load(t, argv[2]));
  CHECK(!same_state(t, untouched));
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(untouched);
  trainc_artifact_close(artifact);
  puts("state untouched");
  return 0;
}
