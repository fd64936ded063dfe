// Converting a state in place: what is converted and what is not, what is refused,
// and that a converted state is what a load of its checkpoint would give.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"

#define CONVERT(trainer, ...)                                                  \
  trainc_convert(trainer,                                                      \
                 &(trainc_convert_options){                                    \
                     .size = sizeof(trainc_convert_options), __VA_ARGS__})

static const trainc_tensor *held(trainc_trainer *t, uint32_t index) {
  const trainc_tensor *tensor;
  OK(trainc_tensor_get(t, index, &tensor));
  return tensor;
}

/// The element types of all tensors, as one digit each.
static const char *types(trainc_trainer *t) {
  static char text[NUM_TENSORS + 1];
  for (uint32_t i = 0; i < NUM_TENSORS; ++i)
    text[i] = (char)('0' + held(t, i)->dtype);
  return text;
}

/// What is left of the values of a tensor in another type.
static void round_tensor(trainc_trainer *t, uint32_t index, uint32_t dtype) {
  static double buffer[WEIGHTS];
  uint64_t count =
      tensors[index].bytes / trainc_dtype_size(tensors[index].dtype);
  uint64_t bytes = count * trainc_dtype_size(dtype);
  OK(trainc_tensor_read(t, index, dtype, buffer, bytes));
  OK(trainc_tensor_write(t, index, dtype, buffer, bytes));
}

/// Same bits as those of a trainer that nothing was done to.
static void unchanged(trainc_artifact *a, trainc_trainer *t) {
  trainc_trainer *same = make_trainer(a, 1, 3);
  run_steps(same, 0, 7);
  CHECK(same_state(t, same));
  trainc_trainer_destroy(same);
}

static void test_nothing(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 2, 3);
  void *before, *after;
  run_steps(t, 0, 7);
  OK(trainc_tensor_data(t, 0, &before));
  OK(trainc_convert(t, NULL));
  OK(CONVERT(t, ));
  OK(CONVERT(t, .device = "cpu", .blocking = 1, .what = TRAINC_CONVERT_STATES,
             .memory_limit = 1));
  // Already of that type, or integers that nobody asked for.
  OK(CONVERT(t, .dtype = "f32", .what = TRAINC_CONVERT_STATES));
  OK(CONVERT(t, .dtype = "f32", .what = TRAINC_CONVERT_BUFFERS));
  OK(trainc_tensor_data(t, 0, &after));
  CHECK(before == after);
  unchanged(a, t);

  EXPECT(CONVERT(t, .device = "gpu:0"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: a state cannot go to device 'gpu:0': expected 'cpu', where it is
  EXPECT(CONVERT(t, .dtype = "i32"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: a state cannot be converted to 'i32': expected f64, f32, bf16 or f16
  EXPECT(CONVERT(t, .dtype = "float"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: a state cannot be converted to 'float': expected
  EXPECT(CONVERT(t, .dtype = "bf16", .what = 16), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: convert options: expected what below 16, 0 or 1 for blocking and include_integers; got 16, 0 and 0
  EXPECT(CONVERT(t, .dtype = "bf16", .blocking = 2), TRAINC_INVALID_ARGUMENT);
  EXPECT(CONVERT(t, .dtype = "bf16", .artifact = a), TRAINC_INVALID_ARGUMENT);
  // CHECK: an artifact has types of its own: expected neither dtype nor what
  trainc_convert_options options = {.size = 7, .dtype = "bf16"};
  EXPECT(trainc_convert(t, &options), TRAINC_INVALID_ARGUMENT);
  EXPECT(CONVERT(t, .dtype = "f64", .memory_limit = 20000),
         TRAINC_OUT_OF_MEMORY);
  // CHECK: TRAINC_OUT_OF_MEMORY: the conversion needs {{[0-9]+}} bytes; memory_limit is 20000
  unchanged(a, t);
  trainc_trainer_destroy(t);
}

static void test_what(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3);
  puts(types(t));
  // CHECK: {{^}}0023000070
  OK(CONVERT(t, .dtype = "f64", .what = TRAINC_CONVERT_GRADIENTS));
  puts(types(t));
  // CHECK-NEXT: {{^}}0023110070
  OK(CONVERT(t, .dtype = "F16", .what = TRAINC_CONVERT_STATES));
  puts(types(t));
  // CHECK-NEXT: {{^}}0023113370
  OK(CONVERT(t, .dtype = "bf16",
             .what = TRAINC_CONVERT_PARAMETERS | TRAINC_CONVERT_BUFFERS));
  puts(types(t));
  // CHECK-NEXT: {{^}}2222113372
  OK(CONVERT(t, .dtype = "f64", .include_integers = 1));
  puts(types(t));
  // CHECK-NEXT: {{^}}1121111111
  double steps;
  OK(trainc_tensor_read(t, 8, TRAINC_F64, &steps, 8));
  CHECK(steps == 7);
  EXPECT(CONVERT(t, .artifact = a), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: the state of artifact 'handmade' does not fit artifact 'handmade':
  // CHECK-NEXT: mis-shaped: 'steps' is f64, expected i64
  CHECK(strcmp(types(t), "1121111111") == 0);
  OK(CONVERT(t, .artifact = a, .include_integers = 1));
  puts(types(t));
  // CHECK-NEXT: {{^}}0023000070
  int64_t integer;
  OK(trainc_tensor_read(t, 8, TRAINC_I64, &integer, 8));
  CHECK(integer == 7);
  trainc_trainer_destroy(t);
}

/// Inside a window: parameters to bf16 and back are parameters that were rounded.
static void test_round_trip(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 2, 3), *rounded = make_trainer(a, 1, 3);
  trainc_trainer *loaded = make_trainer(a, 1, 4),
                 *held_as = make_trainer(a, 1, 5);
  const char *position;
  run_steps(t, 0, 7);
  run_steps(rounded, 0, 7);
  for (uint32_t i = 0; i < 2; ++i)
    round_tensor(rounded, i, TRAINC_BF16);
  round_tensor(rounded, 3, TRAINC_BF16); // frozen
  OK(trainc_set_metadata(t, "position", "7"));
  OK(CONVERT(t, .dtype = "bf16", .what = TRAINC_CONVERT_PARAMETERS));
  CHECK(held(t, 0)->dtype == TRAINC_BF16 && held(t, 0)->bytes == WEIGHTS * 2);

  // It can do everything but run.
  uint16_t master[WEIGHTS], copy[WEIGHTS], *data;
  void *place;
  OK(trainc_tensor_read(t, 0, TRAINC_BF16, master, sizeof master));
  OK(trainc_tensor_read(t, 2, TRAINC_BF16, copy, sizeof copy));
  OK(trainc_tensor_data(t, 0, &place));
  data = place;
  CHECK(memcmp(master, copy, sizeof copy) == 0);
  CHECK(memcmp(master, data, sizeof copy) == 0);
  EXPECT(trainc_step(t, 0, NULL), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: tensor 'fc.weight' was converted to BF16, artifact 'handmade' computes with F32: convert the trainer back, or to another artifact
  CHECK(trainc_eval(t, 1) == TRAINC_MISMATCH);
  CHECK(trainc_flush(t, NULL) == TRAINC_MISMATCH);
  float value = 0.3f;
  float weight[WEIGHTS];
  OK(trainc_tensor_read(t, 0, TRAINC_F32, weight, sizeof weight));
  weight[5] = value;
  OK(trainc_tensor_write(t, 0, TRAINC_F32, weight, sizeof weight));
  OK(trainc_tensor_read(t, 2, TRAINC_F32, weight, sizeof weight));
  CHECK(weight[5] == 0.30078125f);
  OK(trainc_tensor_write(t, 0, TRAINC_BF16, master, sizeof master));

  // Its checkpoint has the new types; it loads into the old ones and the new.
  trainc_tensor_file *file;
  trainc_tensor_view view;
  OK(trainc_save(t, "bf16.safetensors"));
  OK(trainc_tensor_file_open("bf16.safetensors", &file));
  OK(trainc_tensor_file_find(file, "fc.bias", &view));
  CHECK(view.dtype == TRAINC_BF16);
  OK(trainc_tensor_file_find(file, "gradient/fc.bias", &view));
  CHECK(view.dtype == TRAINC_F32);
  trainc_tensor_file_close(file);
  OK(trainc_load(loaded, "bf16.safetensors"));
  OK(CONVERT(held_as, .dtype = "bf16", .what = TRAINC_CONVERT_PARAMETERS));
  OK(trainc_load(held_as, "bf16.safetensors"));
  CHECK(trainc_step(held_as, 0, NULL) == TRAINC_MISMATCH);
  OK(CONVERT(held_as, .artifact = a));

  OK(CONVERT(t, .artifact = a));
  CHECK(trainc_trainer_artifact(t) == a);
  OK(trainc_get_metadata(t, "position", &position));
  CHECK(strcmp(position, "7") == 0);
  // Inputs must be bound again.
  EXPECT(trainc_step(t, 0, NULL), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: input 'x' of entry 'step' is not bound
  CHECK(same_state(t, rounded) && same_state(t, loaded));
  CHECK(same_state(t, held_as));
  double loss = run_steps(rounded, 7, 20);
  CHECK(run_steps(t, 7, 20) == loss && run_steps(loaded, 7, 20) == loss);
  CHECK(same_state(t, rounded) && same_state(t, loaded));

  // With a type, what is bound stays bound, and states come back where they were.
  OK(CONVERT(t, .dtype = "f64", .what = TRAINC_CONVERT_STATES));
  OK(CONVERT(t, .dtype = "f32", .what = TRAINC_CONVERT_STATES));
  CHECK(same_state(t, rounded));
  loss = run_steps(rounded, 20, 24);
  CHECK(run_steps(t, 20, 24) == loss && same_state(t, rounded));
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(rounded);
  trainc_trainer_destroy(loaded);
  trainc_trainer_destroy(held_as);
}

/// Artifacts that the state does not fit, and one that it does.
static void test_artifacts(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3);
  run_steps(t, 0, 7);
  trainc_artifact *other;
  trainc_descriptor d = trainc_descriptor_handmade;
  trainc_tensor table[NUM_TENSORS];
  trainc_entry changed[2] = {entries[0], entries[1]};

  d.name = "other";
  d.tensors = table;
  memcpy(table, tensors, sizeof tensors);
  table[6].state = table[7].state = "v"; // another optimizer
  table[1].rank = 2;
  table[1].dims = (const int64_t[]){1, CLASSES};
  OK(trainc_artifact_open_descriptor(&d, &other));
  EXPECT(CONVERT(t, .artifact = other), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: the state of artifact 'handmade' does not fit artifact 'other':
  // CHECK-NEXT: mis-shaped: 'fc.bias' is 10xf32, expected 1x10xf32
  // CHECK-NEXT: missing: 'optimizer/fc.weight/v'
  // CHECK-NEXT: missing: 'optimizer/fc.bias/v'
  // CHECK: unexpected: 'optimizer/fc.weight/m'
  trainc_artifact_close(other);
  OK(trainc_save(t, "m.safetensors"));

  d.tensors = tensors;
  d.entries = changed;
  changed[0].accumulate = 1;
  OK(trainc_artifact_open_descriptor(&d, &other));
  EXPECT(CONVERT(t, .artifact = other), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: the state of artifact 'handmade' is 1 micro-steps into a window of 'step'; artifact 'other' has no such step with more
  trainc_artifact_close(other);
  CHECK(trainc_trainer_artifact(t) == a);
  unchanged(a, t);

  // The trainer keeps what it needs of the next artifact, and lets go of the last.
  changed[0].accumulate = WINDOW_SIZE;
  OK(trainc_artifact_open_descriptor(&d, &other));
  void *before, *after;
  OK(trainc_tensor_data(t, 6, &before));
  OK(CONVERT(t, .artifact = other));
  OK(trainc_tensor_data(t, 6, &after));
  CHECK(before == after); // an arena that is the same in both
  CHECK(trainc_trainer_artifact(t) == other);
  trainc_artifact_close(other);
  unchanged(a, t);
  trainc_trainer *same = make_trainer(a, 2, 3);
  run_steps(same, 0, 7);
  run_steps(same, 7, 12);
  run_steps(t, 7, 12);
  CHECK(same_state(t, same));
  trainc_trainer_destroy(same);
  trainc_trainer_destroy(t);
}

static int stop(void *context, const trainc_event *event) {
  (void)context;
  return event->end;
}

/// A trainer that was stopped half-way has no state to convert.
static void test_broken(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3);
  run_steps(t, 0, 6);
  OK(trainc_set_observer(t, stop, NULL));
  CHECK(trainc_step(t, 0, NULL) == TRAINC_CANCELLED);
  EXPECT(CONVERT(t, .dtype = "bf16"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: the last run or load of this trainer ended half-way; there is no state to convert
  trainc_trainer_destroy(t);
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  test_nothing(artifact);
  test_what(artifact);
  test_round_trip(artifact);
  test_artifacts(artifact);
  test_broken(artifact);
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
