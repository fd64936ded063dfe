// Opening artifacts: from a shared library, of another ABI, for another processor,
// damaged; and the memory limit.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_runtime -lm -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -w -O1 -fno-math-errno -shared -nostdlib -fPIC -DLIBRARY -I%runtime_include -I%S/Inputs %s -o step.so
// RUN: cp step.so second.so && cp step.so third.so
// RUN: %cc -shared -fPIC -x c /dev/null -o other.so
// RUN: head -c 6000 step.so > cut.so
// RUN: printf 'text of some length, which is certainly no library at all, not at all' > text.so
// RUN: %t | FileCheck %s

#include "handmade.h"

#ifdef LIBRARY
// The symbol has the name of the type, which C cannot say directly.
extern const trainc_descriptor exported __asm__("trainc_descriptor")
    __attribute__((alias("trainc_descriptor_handmade"), visibility("default")));
#else

static void test_limit(trainc_artifact *a) {
  trainc_trainer *t;
  trainc_memory memory;
  const char *report;
  trainc_trainer_options options = {.size = sizeof options, .threads = 1};
  OK(trainc_trainer_create(a, &options, &t));
  OK(trainc_memory_use(t, &memory));
  CHECK(memory.total == memory.persistent + memory.workspace + memory.scratch);
  CHECK(memory.persistent == 6 * 4096 && memory.workspace == 4096);
  OK(trainc_memory_report(t, &report));
  puts(report);
  // CHECK: 4096 parameters: parameters
  // CHECK: 4096 activations and workspace: workspace
  // CHECK: 4096 scratch of running tiles
  // CHECK: 32768 in all
  trainc_trainer_destroy(t);

  options.memory_limit = memory.total;
  OK(trainc_trainer_create(a, &options, &t));
  const void *data;
  EXPECT(trainc_output_data(t, 1, 0, &data), TRAINC_OUT_OF_MEMORY);
  // CHECK: TRAINC_OUT_OF_MEMORY: artifact 'handmade' needs 36864 bytes; memory_limit is 32768; trainc --memory-limit makes artifacts that need less
  trainc_trainer_destroy(t);
  options.memory_limit = memory.total - 1;
  EXPECT(trainc_trainer_create(a, &options, &t), TRAINC_OUT_OF_MEMORY);
  // CHECK: TRAINC_OUT_OF_MEMORY: artifact 'handmade' needs 32768 bytes, 36864 with outputs that are not bound; memory_limit is 32767; trainc --memory-limit makes artifacts that need less
  options.size = 7;
  EXPECT(trainc_trainer_create(a, &options, &t), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: trainer options: expected a size of 8 to {{[0-9]+}}, got 7
  options.size = sizeof options + 8;
  EXPECT(trainc_trainer_create(a, &options, &t), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: trainer options: expected a size of 8 to
  // Of a program whose header ends with `flags`: without the limit.
  options.size = offsetof(trainc_trainer_options, memory_limit);
  OK(trainc_trainer_create(a, &options, &t));
  trainc_trainer_destroy(t);
}

static void refuse(trainc_descriptor d, trainc_status status) {
  trainc_artifact *a;
  EXPECT(trainc_artifact_open_descriptor(&d, &a), status);
}

static void test_descriptors(void) {
  trainc_descriptor d = trainc_descriptor_handmade;
  d.abi_version = 99;
  refuse(d, TRAINC_ABI_MISMATCH);
  // CHECK: TRAINC_ABI_MISMATCH: artifact 'handmade' has ABI version 99, this runtime (0.1.0) needs 12
  d = trainc_descriptor_handmade;
  d.magic = 1;
  refuse(d, TRAINC_ABI_MISMATCH);
  // CHECK: TRAINC_ABI_MISMATCH: 'linked artifact' is no trainc artifact
  d = trainc_descriptor_handmade;
  d.target = 7;
  refuse(d, TRAINC_UNSUPPORTED);
  // CHECK: TRAINC_UNSUPPORTED{{:}} artifact 'handmade' is for target 7, which this runtime (0.1.0) does not know
  d = trainc_descriptor_handmade;
  d.features = "+sse2,avx512-of-the-future,,+cx8,tail";
  refuse(d, TRAINC_UNSUPPORTED);
  // CHECK: TRAINC_UNSUPPORTED{{:}} artifact 'handmade' is for processor 'x86-64' and needs avx512-of-the-future,tail, which this one (

  trainc_entry changed[2] = {entries[0], entries[1]};
  trainc_command commands[5];
  memcpy(commands, first_list, sizeof commands);
  changed[0].lists[0].commands = commands;
  d = trainc_descriptor_handmade;
  d.entries = changed;
  changed[0].window = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: step 'step' is of a window that is not there
  changed[0].window = 0;
  d.num_windows = 2;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: {{[0-9]+}} scalars in an arena of {{[0-9]+}} bytes
  d.num_windows = 1;
  d.divisor = 3;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: sums of gradients divided by 3
  d.divisor = 8;
  trainc_port input = step_inputs[0];
  input.gradient = 1;
  changed[0].inputs = &input;
  changed[0].num_inputs = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: input or output 'x' of entry 'step' is no gradient
  changed[0].inputs = step_inputs;
  changed[0].num_inputs = 2;
  trainc_operand operands[4];
  memcpy(operands, loss_operands, sizeof operands);
  commands[1].operands = operands;
  operands[2].offset = WORKSPACE_BYTES - 8;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: an operand of 'nn.cross_entropy' in entry 'step' is outside its memory
  operands[2].offset = ERROR_OFFSET;
  operands[1].access = TRAINC_WRITE;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: an operand of 'nn.cross_entropy' in entry 'step' is outside its memory
  operands[1].access = TRAINC_READ;
  trainc_gemm_detail detail = forward_detail;
  commands[0].detail = &detail;
  detail.m = ROWS + 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: a matrix of gemm 'nn.linear' is larger than its operand
  detail.m = ROWS;
  // What only GPUs have.
  detail.back_end = TRAINC_BACK_END_CUBLASLT_TF32;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it is one for GPUs
  detail.back_end = TRAINC_BACK_END_CUBLASLT_TF32 + 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it has an unknown back end
  detail.back_end = TRAINC_BACK_END_VECTOR;
  detail.split_k = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': its sums are cut, and it is none that AMX cuts
  detail.split_k = 0;
  detail.back_end = TRAINC_BACK_END_OPENBLAS;
  // Epilogues.
  detail.epilogue = TRAINC_EPILOGUE_MULTIPLY + 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it has an unknown epilogue
  detail.epilogue = TRAINC_EPILOGUE_GELU_GRAD;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it has the derivative of gelu, and a bias or no auxiliary matrix
  detail.epilogue = TRAINC_EPILOGUE_GELU_AND_SLOPE;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it keeps or reads a slope, and is not f32 or has no auxiliary matrix
  detail.epilogue = TRAINC_EPILOGUE_MULTIPLY;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it keeps or reads a slope, and is not f32 or has no auxiliary matrix
  detail.epilogue = TRAINC_EPILOGUE_GELU;
  detail.accumulate = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear': it has an epilogue, and is a batch or accumulates
  detail.accumulate = 0;
  detail.has_aux = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: gemm 'nn.linear' has no detail or other operands
  detail.epilogue = detail.has_aux = 0;
  commands[3].kind = 77;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: command kind 77 in entry 'step'
  commands[3].kind = TRAINC_COMMAND_GEMM;
  commands[3].rate = TRAINC_NUM_RATES;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: 'nn.linear gradient' in entry 'step' has an unknown rate
  commands[3].rate = TRAINC_RATE_F32;

  trainc_tensor twice[NUM_TENSORS];
  memcpy(twice, tensors, sizeof twice);
  twice[1].name = "fc.weight";
  d.tensors = twice;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: two tensors or scalars are 'fc.weight' in a checkpoint
  twice[1] = tensors[1];
  twice[6].offset = FLAT_BYTES;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' does not lie in an arena
  twice[6] = tensors[6];
  // Over an axis that is not there, and in blocks that do not divide.
  static const trainc_split over[2] = {{1, 1}, {0, 1}},
                            blocks[2] = {{0, 1}, {0, 1000}};
  for (int i = 0; i < 2; ++i) {
    twice[0].splits = i ? blocks : over;
    refuse(d, TRAINC_DATA_CORRUPT);
  }
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' is split in a way that is not there
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' is split in a way that is not there
  twice[0] = tensors[0];
  trainc_artifact *a;
  OK(trainc_artifact_open_descriptor(&d, &a));
  trainc_artifact_close(a);
}

/// Tables that are missing, sizes whose product overflows, launches of no tiles.
static void test_damage(void) {
  trainc_descriptor d = trainc_descriptor_handmade;
  d.tensors = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: it has no table of tensors
  d = trainc_descriptor_handmade;
  d.groups = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: it has no table of groups
  d = trainc_descriptor_handmade;
  trainc_tensor other[NUM_TENSORS];
  memcpy(other, tensors, sizeof other);
  d.tensors = other;
  other[0].dims = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' does not lie in an arena
  other[0].dims = weight_dims;
  other[0].rank = 65;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' does not lie in an arena
  other[0].rank = 2;
  other[0].group = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' does not lie in an arena
  d = trainc_descriptor_handmade;
  trainc_entry changed[2] = {entries[0], entries[1]};
  d.entries = changed;
  changed[0].checks = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: entry 'step' lacks a table
  trainc_index_check checks[] = {step_checks[0]};
  changed[0].checks = checks;
  checks[0].begin = 1; // behind the end
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: index check 0 of entry 'step'
  checks[0].rows = 2;
  checks[0].stride = UINT64_MAX;
  checks[0].run = 1;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: index check 0 of entry 'step'
  changed[0].checks = step_checks;
  changed[0].lists[1].commands = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: entry 'step' lacks a table
  changed[0].lists[1].commands = next_list;
  trainc_command commands[5];
  memcpy(commands, first_list, sizeof commands);
  changed[0].lists[0].commands = commands;
  commands[1].operands = NULL;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: 'nn.cross_entropy' in entry 'step' has no operands
  commands[1].operands = loss_operands;
  trainc_operand operands[4];
  memcpy(operands, loss_operands, sizeof operands);
  commands[1].operands = operands;
  operands[3].offset += 4;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: an operand of 'nn.cross_entropy' in entry 'step' is outside its memory
  commands[1].operands = loss_operands;
  commands[4].kind = TRAINC_COMMAND_ALL_REDUCE;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: collective 'count' in an artifact of one rank
  commands[4] = first_list[4];

  // Launches of no tiles, alone and in a job with a large one, on threads.
  commands[1].tiles = commands[4].tiles = 0;
  trainc_artifact *a;
  trainc_trainer *t;
  trainc_trainer_options options = {.size = sizeof options, .threads = 2};
  OK(trainc_artifact_open_descriptor(&d, &a));
  OK(trainc_trainer_create(a, &options, &t));
  run_steps(t, 0, 3);
  trainc_trainer_destroy(t);
  trainc_artifact_close(a);

  trainc_kernel large[6];
  memcpy(large, kernels, sizeof large);
  large[0].scratch_bytes = UINT64_C(1) << 60;
  d = trainc_descriptor_handmade;
  d.kernels = large;
  options.threads = 16;
  OK(trainc_artifact_open_descriptor(&d, &a));
  EXPECT(trainc_trainer_create(a, &options, &t), TRAINC_OUT_OF_MEMORY);
  // CHECK: TRAINC_OUT_OF_MEMORY: cannot allocate 1152921504606846976 bytes of scratch for each of 16 threads
  options.threads = 4097;
  EXPECT(trainc_trainer_create(a, &options, &t), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: trainer options: expected at most 4096 threads, got 4097
  trainc_artifact_close(a);
  trainc_arena more[8];
  memcpy(more, arenas, sizeof more);
  more[0].bytes = more[1].bytes = INT64_MAX / 4 - 4096;
  d = trainc_descriptor_handmade;
  d.arenas = more;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: arena 1
}

/// A split that names an axis again: its parts are more than can be counted.
static void test_splits(void) {
  static const trainc_axis axes[] = {{"data", 256}};
  static const trainc_split again[2] = {{0x0101010101010101, 1}, {0, 1}};
  trainc_descriptor d = trainc_descriptor_handmade;
  trainc_tensor changed[NUM_TENSORS];
  memcpy(changed, tensors, sizeof changed);
  changed[0].splits = again;
  d.axes = axes;
  d.num_axes = 1;
  d.tensors = changed;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: tensor 'fc.weight' is split in a way that is not there
}

/// Collectives that are started apart.
static void test_phases(void) {
  static const trainc_axis axes[] = {{"data", 2}};
  trainc_descriptor d = trainc_descriptor_handmade;
  d.axes = axes;
  d.num_axes = 1;
  trainc_entry changed[2] = {entries[0], entries[1]};
  d.entries = changed;
  trainc_collective_detail details[2] = {
      {1, 0, TRAINC_F32, TRAINC_COLLECTIVE_START, 0},
      {1, 0, TRAINC_F32, TRAINC_COLLECTIVE_WAIT, 0}};
  static const trainc_operand bucket[2] = {
      OPERAND(GRADIENT, TRAINC_READ | TRAINC_WRITE, 0, 1024, F32),
      OPERAND(GRADIENT, TRAINC_READ | TRAINC_WRITE, 1024, 256, F32)};
  trainc_command list[40];
  for (int i = 0; i < 40; ++i)
    list[i] = (trainc_command){.kind = TRAINC_COMMAND_ALL_REDUCE,
                               .num_operands = 1,
                               .operands = bucket,
                               .detail = &details[0],
                               .label = "bucket"};
  list[1].detail = &details[1];
  changed[0].accumulate = 1;
  changed[0].lists[0].commands = list;
  changed[0].lists[0].count = 2;
  trainc_artifact *a;
  OK(trainc_artifact_open_descriptor(&d, &a));
  trainc_artifact_close(a);
  list[1].operands = &bucket[1];
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: collective 'bucket' of entry 'step' waits for what was not started next
  list[1].operands = bucket;
  changed[0].lists[0].count = 3;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: collective 'bucket' of entry 'step' is started and not waited for
  changed[0].lists[0].count = 40;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: entry 'step' starts more than 32 collectives before it waits for one
  // The update waits for what the micro-step of a window of one started, and for no other.
  trainc_command apply[3] = {apply_list[0], apply_list[1], list[1]};
  changed[0].lists[0].count = 1;
  changed[0].lists[2].commands = apply;
  changed[0].lists[2].count = 3;
  OK(trainc_artifact_open_descriptor(&d, &a));
  trainc_artifact_close(a);
  changed[0].accumulate = 2;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: collective 'bucket' of entry 'step' is started and not waited for
  changed[0].accumulate = 1;
  details[0].phase = TRAINC_COLLECTIVE_WHOLE;
  refuse(d, TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: the artifact is damaged: collective 'bucket' of entry 'step' waits for what was not started next
}

static void test_libraries(void) {
  trainc_artifact *a;
  uint32_t index;
  EXPECT(trainc_artifact_open("absent.so", &a), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: cannot open './absent.so': No such file or directory
  EXPECT(trainc_artifact_open("text.so", &a), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: './text.so' is no shared library for x86-64
  EXPECT(trainc_artifact_open("cut.so", &a), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: './cut.so' is truncated
  EXPECT(trainc_artifact_open("other.so", &a), TRAINC_ABI_MISMATCH);
  // CHECK: TRAINC_ABI_MISMATCH: './other.so' is no trainc artifact: it has no trainc_descriptor
  OK(trainc_artifact_open("step.so", &a));
  OK(trainc_artifact_find_entry(a, NULL, &index));
  CHECK(index == 0);
  OK(trainc_artifact_find_entry(a, "eval", &index));
  CHECK(index == 1);
  OK(trainc_artifact_find_input(a, 0, "y", &index));
  CHECK(index == 1);
  OK(trainc_artifact_find_output(a, 1, "logits", &index));
  CHECK(index == 0);
  EXPECT(trainc_artifact_find_entry(a, "train", &index), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: artifact 'handmade' has no entry 'train'
  trainc_trainer *library = make_trainer(a, 1, 0);
  trainc_artifact *linked = open_handmade();
  trainc_trainer *own = make_trainer(linked, 1, 0);
  trainc_artifact_close(a);
  trainc_artifact_close(linked);
  run_steps(library, 0, 9);
  run_steps(own, 0, 9);
  CHECK(same_state(library, own));
  trainc_trainer_destroy(library);
  trainc_trainer_destroy(own);
}

/// Files that take the place of one that is loaded are loaded, each once.
static void test_replaced(void) {
  const char *paths[] = {"step.so", "second.so", "third.so"};
  trainc_artifact *artifacts[3], *again;
  for (int i = 0; i < 3; ++i) {
    CHECK(i == 0 || !rename(paths[i], "step.so"));
    OK(trainc_artifact_open("step.so", &artifacts[i]));
    OK(trainc_artifact_open("step.so", &again));
    CHECK(trainc_artifact_descriptor(again) ==
          trainc_artifact_descriptor(artifacts[i]));
    trainc_artifact_close(again);
    for (int j = 0; j < i; ++j)
      CHECK(trainc_artifact_descriptor(artifacts[i]) !=
            trainc_artifact_descriptor(artifacts[j]));
  }
  for (int i = 0; i < 3; ++i)
    trainc_artifact_close(artifacts[i]);
}

int main(void) {
  CHECK(strcmp(trainc_version(), TRAINC_VERSION_STRING) == 0);
  trainc_artifact *artifact = open_handmade();
  test_limit(artifact);
  test_descriptors();
  test_damage();
  test_splits();
  test_phases();
  test_libraries();
  test_replaced();
  puts(trainc_runtime_info());
  // CHECK: trainc 0.1.0, {{.*}} processors, OpenBLAS {{[0-9.]+}} ({{[A-Za-z]+}} kernels), oneDNN
  trainc_artifact_close(artifact);
  return 0;
}
#endif
