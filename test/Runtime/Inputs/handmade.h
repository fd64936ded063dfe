//===- handmade.h - A step written by hand ----------------------*- C -*-===//
//
// What the compiler would make of a linear classifier: 32 examples of 24 features
// in 10 classes, bf16 compute copy of the weight, momentum, global finite check,
// windows of 3 micro-steps. Its tables and kernels are plain C, so that the
// runtime is tested without the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef HANDMADE_H
#define HANDMADE_H

#include "struct_bytes.h"
#include "trainc/runtime.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32, FEATURES = 24, CLASSES = 10, WINDOW_SIZE = 3 };
enum { WEIGHTS = FEATURES * CLASSES, HALF_ROWS = ROWS / 2 };

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("%s:%d: %s\n  %s\n", __FILE__, __LINE__, #condition,              \
             trainc_last_error());                                             \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#define OK(call) CHECK((call) == TRAINC_OK)
/// As OK, of a call that fails, with its message printed.
#define EXPECT(call, status)                                                   \
  do {                                                                         \
    CHECK((call) == (status));                                                 \
    printf("%s: %s\n", trainc_status_name(status), trainc_last_error());       \
  } while (0)

// Arenas.
enum { MASTER, COMPUTE, GRADIENT, STATE, BUFFER, SCALARS, WORKSPACE };

// Offsets. The bias follows the weight on a new 256-byte line, in f32.
enum {
  BIAS_OFFSET = (WEIGHTS * 4 + 255) / 256 * 256,
  FLAT_BYTES = BIAS_OFFSET + 256,
  LOGITS_OFFSET = 0,
  ERROR_OFFSET = ROWS * CLASSES * 4,
  PARTIAL_OFFSET = 2 * ROWS * CLASSES * 4,
  WORKSPACE_BYTES = PARTIAL_OFFSET + 256
};
enum { SCALAR_LR = TRAINC_NUM_FIXED_SCALARS, NUM_SCALARS };

static const trainc_functions *functions;

/// Softmax cross entropy of half of the rows: logits, labels -> error, partial
/// sums of (loss, weight). The row's exponentials stand in scratch.
static void loss_kernel(void *const *args, int64_t tile, void *scratch) {
  const float *logits = (const float *)args[0] + tile * HALF_ROWS * CLASSES;
  const int32_t *labels = (const int32_t *)args[1] + tile * HALF_ROWS;
  float *error = (float *)args[2] + tile * HALF_ROWS * CLASSES;
  double *partial = (double *)args[3] + 2 * tile;
  partial[0] = partial[1] = 0;
  for (int i = 0; i < HALF_ROWS; ++i, logits += CLASSES, error += CLASSES) {
    float most = logits[0], sum = 0, *exponentials = scratch;
    for (int j = 1; j < CLASSES; ++j)
      most = logits[j] > most ? logits[j] : most;
    for (int j = 0; j < CLASSES; ++j)
      sum += exponentials[j] = (float)functions->exp(logits[j] - most);
    int counts = labels[i] >= 0;
    for (int j = 0; j < CLASSES; ++j)
      error[j] = counts ? exponentials[j] / sum - (j == labels[i]) : 0;
    partial[0] +=
        counts ? (float)functions->log(sum) + most - logits[labels[i]] : 0;
    partial[1] += counts;
  }
}

/// Sums the partial sums into the scalars and the error into the bias gradient.
static void sum_kernel(double *scalars, const double *partial,
                       const float *error, float *bias, int first) {
  scalars[TRAINC_SCALAR_MICRO_LOSS] = partial[0] + partial[2];
  scalars[TRAINC_SCALAR_MICRO_WEIGHT] = partial[1] + partial[3];
  double keep = first ? 0 : 1;
  scalars[TRAINC_SCALAR_LOSS_SUM] = keep * scalars[TRAINC_SCALAR_LOSS_SUM] +
                                    scalars[TRAINC_SCALAR_MICRO_LOSS];
  scalars[TRAINC_SCALAR_WEIGHT_SUM] = keep * scalars[TRAINC_SCALAR_WEIGHT_SUM] +
                                      scalars[TRAINC_SCALAR_MICRO_WEIGHT];
  for (int j = 0; j < CLASSES; ++j) {
    float sum = first ? 0 : bias[j];
    for (int i = 0; i < ROWS; ++i)
      sum += error[i * CLASSES + j];
    bias[j] = sum;
  }
}
static void sum_first(void *const *args, int64_t tile, void *scratch) {
  (void)tile, (void)scratch;
  sum_kernel(args[0], args[1], args[2], args[3], 1);
}
static void sum_next(void *const *args, int64_t tile, void *scratch) {
  (void)tile, (void)scratch;
  sum_kernel(args[0], args[1], args[2], args[3], 0);
}

/// Norm and finite flag of the averaged gradient.
static void norm_kernel(void *const *args, int64_t tile, void *scratch) {
  (void)tile, (void)scratch;
  double *scalars = args[0];
  const float *gradient = args[1];
  double sum = 0, scale = 1 / scalars[TRAINC_SCALAR_WEIGHT_SUM];
  for (int i = 0; i < FLAT_BYTES / 4; ++i)
    sum += scale * gradient[i] * scale * gradient[i];
  int finite = isfinite(sum);
  scalars[TRAINC_SCALAR_GRAD_NORM] = sqrt(sum);
  scalars[TRAINC_SCALAR_FINITE] = finite;
  scalars[TRAINC_SCALAR_READ_SCALE] = scale;
  scalars[finite ? TRAINC_SCALAR_UPDATE : TRAINC_SCALAR_SKIPPED] += 1;
}

/// Momentum on a quarter of the flat arenas, and the bf16 copy of the weight.
static void update_kernel(void *const *args, int64_t tile, void *scratch) {
  (void)scratch;
  const double *scalars = args[0];
  const float *gradient = args[1];
  float *parameter = args[2], *momentum = args[3];
  uint16_t *copy = args[4];
  int quarter = FLAT_BYTES / 16, begin = (int)tile * quarter;
  float lr = (float)scalars[SCALAR_LR];
  float scale = (float)scalars[TRAINC_SCALAR_READ_SCALE];
  if (scalars[TRAINC_SCALAR_FINITE] == 0)
    return;
  for (int i = begin; i < begin + quarter; ++i) {
    momentum[i] = 0.9f * momentum[i] + scale * gradient[i];
    parameter[i] -= lr * momentum[i];
    if (i < WEIGHTS) {
      uint32_t bits;
      memcpy(&bits, &parameter[i], 4);
      copy[i] = (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    }
  }
}

/// Adds 1 to the buffer that counts micro-steps.
static void count_kernel(void *const *args, int64_t tile, void *scratch) {
  (void)tile, (void)scratch;
  ++*(int64_t *)args[0];
}

#define OPERAND(base, access, offset, bytes, type)                             \
  {base, access, offset, bytes, TRAINC_##type, 0}
#define INPUT_X 7
#define INPUT_Y 8
#define OUTPUT_LOGITS 8 /* the eval has one input */

static const trainc_operand forward_operands[] = {
    OPERAND(INPUT_X, TRAINC_READ, 0, ROWS * FEATURES * 4, F32),
    OPERAND(MASTER, TRAINC_READ, 0, WEIGHTS * 4, F32),
    OPERAND(WORKSPACE, TRAINC_WRITE, LOGITS_OFFSET, ROWS * CLASSES * 4, F32),
    OPERAND(MASTER, TRAINC_READ, BIAS_OFFSET, CLASSES * 4, F32)};
static const trainc_operand eval_operands[] = {
    OPERAND(INPUT_X, TRAINC_READ, 0, ROWS * FEATURES * 4, F32),
    OPERAND(MASTER, TRAINC_READ, 0, WEIGHTS * 4, F32),
    OPERAND(OUTPUT_LOGITS, TRAINC_WRITE, 0, ROWS * CLASSES * 4, F32),
    OPERAND(MASTER, TRAINC_READ, BIAS_OFFSET, CLASSES * 4, F32)};
static const trainc_operand loss_operands[] = {
    OPERAND(WORKSPACE, TRAINC_READ, LOGITS_OFFSET, ROWS * CLASSES * 4, F32),
    OPERAND(INPUT_Y, TRAINC_READ, 0, ROWS * 4, I32),
    OPERAND(WORKSPACE, TRAINC_WRITE, ERROR_OFFSET, ROWS * CLASSES * 4, F32),
    OPERAND(WORKSPACE, TRAINC_WRITE, PARTIAL_OFFSET, 32, F64)};
static const trainc_operand sum_operands[] = {
    OPERAND(SCALARS, TRAINC_READ | TRAINC_WRITE, 0, NUM_SCALARS * 8, F64),
    OPERAND(WORKSPACE, TRAINC_READ, PARTIAL_OFFSET, 32, F64),
    OPERAND(WORKSPACE, TRAINC_READ, ERROR_OFFSET, ROWS * CLASSES * 4, F32),
    OPERAND(GRADIENT, TRAINC_READ | TRAINC_WRITE, BIAS_OFFSET, CLASSES * 4,
            F32)};
static const trainc_operand gradient_operands[] = {
    OPERAND(INPUT_X, TRAINC_READ, 0, ROWS * FEATURES * 4, F32),
    OPERAND(WORKSPACE, TRAINC_READ, ERROR_OFFSET, ROWS * CLASSES * 4, F32),
    OPERAND(GRADIENT, TRAINC_READ | TRAINC_WRITE, 0, WEIGHTS * 4, F32)};
static const trainc_operand count_operands[] = {
    OPERAND(BUFFER, TRAINC_READ | TRAINC_WRITE, 0, 8, I64)};
static const trainc_operand apply_operands[] = {
    OPERAND(SCALARS, TRAINC_READ | TRAINC_WRITE, 0, NUM_SCALARS * 8, F64),
    OPERAND(GRADIENT, TRAINC_READ, 0, FLAT_BYTES, F32),
    OPERAND(MASTER, TRAINC_READ | TRAINC_WRITE, 0, FLAT_BYTES, F32),
    OPERAND(STATE, TRAINC_READ | TRAINC_WRITE, 0, FLAT_BYTES, F32),
    OPERAND(COMPUTE, TRAINC_WRITE, 0, WEIGHTS * 2, BF16)};

#define GEMM_DETAIL(ta, tb, acc, bias, m, n, k, lda, ldb, ldc, tm, tn)         \
  {                                                                            \
      TRAINC_F32, TRAINC_F32, TRAINC_F32, ta, tb, acc, bias, 0,   0,           \
      0,          0,          0,          m,  n,  k,   lda,  ldb, ldc,         \
      1,          0,          0,          0,  tm, tn,  0}
static const trainc_gemm_detail forward_detail = GEMM_DETAIL(
    0, 0, 0, 1, ROWS, CLASSES, FEATURES, FEATURES, CLASSES, CLASSES, 12, 7);
static const trainc_gemm_detail gradient_first = GEMM_DETAIL(
    1, 0, 0, 0, FEATURES, CLASSES, ROWS, FEATURES, CLASSES, CLASSES, 10, 10);
static const trainc_gemm_detail gradient_next = GEMM_DETAIL(
    1, 0, 1, 0, FEATURES, CLASSES, ROWS, FEATURES, CLASSES, CLASSES, 10, 10);

// clang-format off
static const trainc_kernel kernels[] = {
    {"loss", loss_kernel, CLASSES * 4, 0, 0}, {"sum_first", sum_first, 0, 0, 0},
    {"sum_next", sum_next, 0, 0, 0},          {"norm", norm_kernel, 0, 0, 0},
    {"update", update_kernel, 0, 0, 0},       {"count", count_kernel, 0, 0, 0}};

// A large `flops` sends the tiles to the threads, however little they do.
#define BUSY 1000000
#define LAUNCH(kernel, tiles, count, operands, label)                          \
  {TRAINC_COMMAND_LAUNCH, kernel, tiles, count, 0, operands, NULL, label,      \
   "handmade.mlir:1:1", BUSY}
#define GEMM(count, operands, detail, label)                                   \
  {TRAINC_COMMAND_GEMM, 0, 0, count, 0, operands, &detail, label,              \
   "handmade.mlir:1:1", BUSY}

static const trainc_command first_list[] = {
    GEMM(4, forward_operands, forward_detail, "nn.linear"),
    LAUNCH(0, 2, 4, loss_operands, "nn.cross_entropy"),
    LAUNCH(1, 1, 4, sum_operands, "sum"),
    GEMM(3, gradient_operands, gradient_first, "nn.linear gradient"),
    LAUNCH(5, 1, 1, count_operands, "count")};
static const trainc_command next_list[] = {
    GEMM(4, forward_operands, forward_detail, "nn.linear"),
    LAUNCH(0, 2, 4, loss_operands, "nn.cross_entropy"),
    LAUNCH(2, 1, 4, sum_operands, "sum"),
    GEMM(3, gradient_operands, gradient_next, "nn.linear gradient"),
    LAUNCH(5, 1, 1, count_operands, "count")};
static const trainc_command apply_list[] = {
    LAUNCH(3, 1, 2, apply_operands, "train.norm"),
    LAUNCH(4, 4, 5, apply_operands, "train.update")};
static const trainc_command eval_list[] = {
    GEMM(4, eval_operands, forward_detail, "nn.linear")};

static const int64_t x_dims[] = {ROWS, FEATURES}, y_dims[] = {ROWS};
static const int64_t weight_dims[] = {FEATURES, CLASSES}, bias_dims[] = {CLASSES};
static const int64_t logits_dims[] = {ROWS, CLASSES};
static const trainc_port step_inputs[] = {
    {"x", TRAINC_F32, 2, x_dims, ROWS *FEATURES * 4, NULL, 0},
    {"y", TRAINC_I32, 1, y_dims, ROWS * 4, NULL, 0}};
static const trainc_port eval_outputs[] = {
    {"logits", TRAINC_F32, 2, logits_dims, ROWS *CLASSES * 4, NULL, 0}};
static const trainc_index_check step_checks[] = {{1, 1, 0, CLASSES, -100, 0, 0, 0, 0}};

static const trainc_entry entries[] = {
    {"step", TRAINC_ENTRY_STEP, WINDOW_SIZE, 2, 0, 1, 0, step_inputs, NULL,
     step_checks, {{5, first_list}, {5, next_list}, {2, apply_list}},
     WORKSPACE_BYTES},
    {"eval", TRAINC_ENTRY_EVAL, 0, 1, 1, 0, 0, step_inputs, eval_outputs, NULL,
     {{1, eval_list}, {0, NULL}, {0, NULL}}, 0}};

static const float table_values[2] = {1.5f, -2.5f};
static const int64_t table_dims[] = {2};
static const trainc_arena arenas[] = {
    {"parameters", TRAINC_ROLE_MASTER, TRAINC_F32, FLAT_BYTES, 0, 0, NULL},
    {"compute", TRAINC_ROLE_COMPUTE, TRAINC_BF16, 1024, 0, 0, NULL},
    {"gradients", TRAINC_ROLE_GRADIENT, TRAINC_F32, FLAT_BYTES, 0, 0, NULL},
    {"states", TRAINC_ROLE_STATE, TRAINC_F32, FLAT_BYTES, 0, 0, NULL},
    {"buffers", TRAINC_ROLE_BUFFER, TRAINC_I64, 256, 0, 0, NULL},
    {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, 256, 0, 0, NULL},
    {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, WORKSPACE_BYTES, 0, 0, NULL}};

#define TENSOR(name, state, role, type, rank, arena, offset, bytes, dims, init,  \
               a, b, data)                                                     \
  {name, state, TRAINC_ROLE_##role, TRAINC_##type, rank, arena, offset, bytes, \
   dims, NULL, 0, TRAINC_INIT_##init, a, b, data}
static const trainc_tensor tensors[] = {
    TENSOR("fc.weight", NULL, MASTER, F32, 2, MASTER, 0, WEIGHTS * 4, weight_dims,
           NORMAL, 0, 0.5, NULL),
    TENSOR("fc.bias", NULL, MASTER, F32, 1, MASTER, BIAS_OFFSET, CLASSES * 4,
           bias_dims, UNIFORM, -1, 1, NULL),
    TENSOR("fc.weight", NULL, COMPUTE, BF16, 2, COMPUTE, 0, WEIGHTS * 2,
           weight_dims, CONSTANT, 0, 0, NULL),
    TENSOR("table", NULL, COMPUTE, F16, 1, COMPUTE, 512, 4, table_dims, CONSTANT,
           0.1, 0, NULL), // frozen: it has no master
    TENSOR("fc.weight", NULL, GRADIENT, F32, 2, GRADIENT, 0, WEIGHTS * 4,
           weight_dims, CONSTANT, 0, 0, NULL),
    TENSOR("fc.bias", NULL, GRADIENT, F32, 1, GRADIENT, BIAS_OFFSET, CLASSES * 4,
           bias_dims, CONSTANT, 0, 0, NULL),
    TENSOR("fc.weight", "m", STATE, F32, 2, STATE, 0, WEIGHTS * 4, weight_dims,
           CONSTANT, 0, 0, NULL),
    TENSOR("fc.bias", "m", STATE, F32, 1, STATE, BIAS_OFFSET, CLASSES * 4,
           bias_dims, CONSTANT, 0.25, 0, NULL),
    TENSOR("steps", NULL, BUFFER, I64, 0, BUFFER, 0, 8, NULL, CONSTANT, 7, 0,
           NULL),
    TENSOR("levels", NULL, BUFFER, F32, 1, BUFFER, 8, 8, table_dims, DATA, 0, 0,
           table_values)};
enum { NUM_TENSORS = sizeof(tensors) / sizeof(tensors[0]) };

static const trainc_scalar scalars[] = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) {text, init, flags, 0},
#include "trainc/step_abi.def"
    {"lr", 0.1, TRAINC_SCALAR_SETTABLE | TRAINC_SCALAR_PERSISTENT, 0}};
static const char *const groups[] = {"momentum"};

#if defined(__aarch64__)
#define PROCESSOR "aarch64-linux-gnu", "generic", "+neon"
#else
#define PROCESSOR "x86_64-linux-gnu", "x86-64", "+64bit,+sse2"
#endif
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const trainc_descriptor trainc_descriptor_handmade = {
    TRAINC_ABI_MAGIC, TRAINC_ABI_VERSION, TRAINC_NUM_STRUCTS, struct_bytes,
    "handmade", "by hand", PROCESSOR,
    1, 2, 0, 7, NUM_TENSORS, NUM_SCALARS, 1, 2, 6, SCALARS, WORKSPACE, 0, 1,
    arenas, tensors, scalars, groups, entries, kernels, &functions, NULL,
    TRAINC_TARGET_CPU, 0, NULL, NULL, 0};

/// Reproducible examples; batch `number` of any count of them.
static inline void make_batch(unsigned number, float *x, int32_t *y) {
  uint32_t state = 12345u + 977u * number;
  for (int i = 0; i < ROWS; ++i) {
    state = state * 1664525u + 1013904223u;
    y[i] = (int32_t)((state >> 16) % CLASSES);
    for (int j = 0; j < FEATURES; ++j) {
      state = state * 1664525u + 1013904223u;
      x[i * FEATURES + j] = (float)(state >> 8) / 16777216.0f + (j == y[i]);
    }
  }
}

static inline trainc_artifact *open_handmade(void) {
  trainc_artifact *artifact;
  OK(trainc_artifact_open_descriptor(&trainc_descriptor_handmade, &artifact));
  return artifact;
}

static inline trainc_trainer *make_trainer(trainc_artifact *artifact,
                                           unsigned threads, uint64_t seed) {
  trainc_trainer_options options = {
      .size = sizeof options, .threads = threads, .seed = seed};
  trainc_trainer *trainer;
  OK(trainc_trainer_create(artifact, &options, &trainer));
  return trainer;
}

/// Runs micro-steps [begin, end); returns the last loss.
static inline double run_steps(trainc_trainer *trainer, unsigned begin,
                               unsigned end) {
  static _Thread_local float x[ROWS * FEATURES];
  static _Thread_local int32_t y[ROWS];
  trainc_step_result result = {.loss = 0};
  OK(trainc_bind_input(trainer, 0, 0, x, sizeof x));
  OK(trainc_bind_input(trainer, 0, 1, y, sizeof y));
  for (unsigned i = begin; i < end; ++i) {
    make_batch(i, x, y);
    OK(trainc_step(trainer, 0, &result));
  }
  return result.loss;
}

/// Compares every tensor and persistent scalar of two trainers, bit by bit;
/// gradients count inside a window only.
static inline int same_state(trainc_trainer *a, trainc_trainer *b) {
  double micro_step;
  OK(trainc_get_scalar(a, "micro_step", &micro_step));
  for (uint32_t i = 0; i < NUM_TENSORS; ++i) {
    if (tensors[i].role == TRAINC_ROLE_GRADIENT && micro_step == 0)
      continue;
    void *left, *right;
    OK(trainc_tensor_data(a, i, &left));
    OK(trainc_tensor_data(b, i, &right));
    if (memcmp(left, right, tensors[i].bytes) != 0)
      return 0;
  }
  for (uint32_t i = 0; i < NUM_SCALARS; ++i) {
    double left, right;
    OK(trainc_get_scalar_at(a, i, &left));
    OK(trainc_get_scalar_at(b, i, &right));
    if ((scalars[i].flags & TRAINC_SCALAR_PERSISTENT) &&
        memcmp(&left, &right, 8) != 0)
      return 0;
  }
  return 1;
}

static inline void file_bytes(const char *path, char **data, long *size) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  *data = malloc((size_t)*size + 1);
  CHECK(fread(*data, 1, (size_t)*size, file) == (size_t)*size);
  fclose(file);
}
static inline void write_bytes(const char *path, const char *data, long size) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, (size_t)size, file) == (size_t)size);
  fclose(file);
}
/// Writes a safetensors file with this header and `bytes` zero bytes.
static inline void write_file(const char *path, const char *json, long bytes) {
  uint64_t size = strlen(json);
  char *data = calloc(1, 8 + size + (size_t)bytes);
  memcpy(data, &size, 8);
  memcpy(data + 8, json, size);
  write_bytes(path, data, (long)(8 + size) + bytes);
  free(data);
}
// clang-format on

#endif // HANDMADE_H
