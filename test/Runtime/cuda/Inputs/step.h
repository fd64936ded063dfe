//===- step.h - A step for two targets, written by hand ---------*- C++ -*-===//
//
// 1024 weights with momentum and a bf16 copy, windows of four micro-steps, an input
// that is checked, a buffer, a kernel with scratch, copies; an eval of two
// outputs; a step whose gradient is an input. Kernels of the processor are here, those
// of the GPU in step.mlir.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_TEST_CUDA_STEP_H
#define TRAINC_TEST_CUDA_STEP_H

#include "../../Inputs/struct_bytes.h"
#include "check.h"
#include "trainc/fake_cuda.h"
#include "trainc/runtime.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

constexpr int N = 1024, LABELS = 256, WINDOW = 4;
constexpr uint64_t BYTES = N * sizeof(float);
enum { MASTER, COMPUTE, GRADIENT, STATE, SCALARS, WORKSPACE, BUFFER, ARENAS };
enum { STEP, EVAL, PUSHED };
enum { T_MASTER, T_COMPUTE, T_GRADIENT, T_STATE, T_BUFFER, TENSORS };
enum { LR = TRAINC_NUM_FIXED_SCALARS, NUM_SCALARS };

// Kernels of the processor: 256 elements per tile.
inline void cpuError(void *const *a, int64_t tile, void *) {
  auto *x = (float *)a[0], *c = (float *)a[1], *w = (float *)a[2];
  for (int64_t i = 256 * tile; i < 256 * (tile + 1); ++i)
    ((float *)a[3])[i] = x[i] * c[i] - w[i];
}
inline void gradient(void *const *a, int64_t tile, bool first) {
  auto *e = (float *)a[0], *g = (float *)a[2];
  for (int64_t i = 256 * tile; i < 256 * (tile + 1); ++i) {
    float value = e[i] + (float)((int32_t *)a[1])[i % 256];
    g[i] = first ? value : g[i] + value;
  }
}
inline void cpuGradientFirst(void *const *a, int64_t tile, void *) {
  gradient(a, tile, true);
}
inline void cpuGradientNext(void *const *a, int64_t tile, void *) {
  gradient(a, tile, false);
}
inline void cpuLoss(void *const *a, int64_t, void *scratch) {
  auto *s = (double *)a[0], *sum = (double *)scratch;
  *sum = 0;
  for (int i = 0; i < N; ++i)
    *sum += (double)((float *)a[1])[i] * (double)((float *)a[1])[i];
  s[TRAINC_SCALAR_MICRO_LOSS] = *sum;
  s[TRAINC_SCALAR_MICRO_WEIGHT] = N;
  bool first = s[TRAINC_SCALAR_MICRO_STEP] == 0;
  s[TRAINC_SCALAR_LOSS_SUM] = (first ? 0 : s[TRAINC_SCALAR_LOSS_SUM]) + *sum;
  s[TRAINC_SCALAR_WEIGHT_SUM] = (first ? 0 : s[TRAINC_SCALAR_WEIGHT_SUM]) + N;
}
inline void cpuNorm(void *const *a, int64_t, void *) {
  auto *s = (double *)a[0];
  double sum = 0;
  for (int i = 0; i < N; ++i)
    sum += (double)((float *)a[1])[i] * (double)((float *)a[1])[i];
  bool finite = isfinite(sum);
  s[TRAINC_SCALAR_GRAD_NORM] = sum;
  s[TRAINC_SCALAR_FINITE] = finite;
  s[finite ? TRAINC_SCALAR_UPDATE : TRAINC_SCALAR_SKIPPED] += 1;
  s[TRAINC_SCALAR_LOSS_SCALE] *= 2;
  s[TRAINC_SCALAR_READ_SCALE] = 1 / s[TRAINC_SCALAR_WINDOW];
}
inline void cpuUpdate(void *const *a, int64_t tile, void *) {
  auto *s = (double *)a[0];
  auto *g = (float *)a[1], *w = (float *)a[2], *m = (float *)a[3];
  if (s[TRAINC_SCALAR_FINITE] == 0)
    return;
  for (int64_t i = 256 * tile; i < 256 * (tile + 1); ++i) {
    m[i] = m[i] * 0.5f + g[i] * (float)s[TRAINC_SCALAR_READ_SCALE];
    w[i] -= (float)s[LR] * m[i];
    uint32_t bits;
    memcpy(&bits, &w[i], 4);
    ((uint16_t *)a[4])[i] =
        (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
}
inline void cpuShow(void *const *a, int64_t tile, void *) {
  auto *x = (float *)a[0], *w = (float *)a[1];
  for (int64_t i = 256 * tile; i < 256 * (tile + 1); ++i) {
    ((float *)a[2])[i] = x[i] * w[i];
    ((float *)a[3])[i] = x[i] + w[i];
  }
}

enum { R = TRAINC_READ, W = TRAINC_WRITE, RW = R | W };
inline trainc_operand f32(uint32_t base, uint32_t access) {
  return {base, access, 0, BYTES, TRAINC_F32, 0};
}
const trainc_operand scalarBlock = {SCALARS, RW, 0, 256, TRAINC_F64, 0};
const trainc_operand labels = {ARENAS + 1, R, 0, LABELS * 4, TRAINC_I32, 0};

const trainc_operand errorOperands[] = {f32(ARENAS, R), f32(BUFFER, R),
                                        f32(MASTER, R), f32(WORKSPACE, W)};
const trainc_operand gradientOperands[] = {f32(WORKSPACE, R), labels,
                                           f32(GRADIENT, RW)};
const trainc_operand lossOperands[] = {scalarBlock, f32(WORKSPACE, R)};
const trainc_operand normOperands[] = {scalarBlock, f32(GRADIENT, R)};
const trainc_operand updateOperands[] = {
    scalarBlock,
    f32(GRADIENT, R),
    f32(MASTER, RW),
    f32(STATE, RW),
    {COMPUTE, W, 0, N * 2, TRAINC_BF16, 0}};
const trainc_operand showOperands[] = {f32(ARENAS, R), f32(MASTER, R),
                                       f32(ARENAS + 1, W), f32(ARENAS + 2, W)};
const trainc_operand keepOperands[] = {f32(ARENAS, R), f32(WORKSPACE, W)};
const trainc_operand copyOperands[] = {f32(ARENAS, R), f32(GRADIENT, W)};
const trainc_operand pushedLoss[] = {scalarBlock, f32(ARENAS, R)};

enum { K_ERROR, K_FIRST, K_NEXT, K_LOSS, K_NORM, K_UPDATE, K_SHOW, KERNELS };
const trainc_kernel cpuKernels[] = {
    {"error", cpuError, 0, 0, 0},
    {"gradient_first", cpuGradientFirst, 0, 0, 0},
    {"gradient_next", cpuGradientNext, 0, 0, 0},
    {"loss", cpuLoss, 8, 0, 0},
    {"norm", cpuNorm, 0, 0, 0},
    {"update", cpuUpdate, 0, 0, 0},
    {"show", cpuShow, 0, 0, 0}};
const trainc_kernel gpuKernels[] = {{"error", nullptr, 0, 256, 0},
                                    {"gradient_first", nullptr, 0, 256, 0},
                                    {"gradient_next", nullptr, 0, 256, 0},
                                    {"loss", nullptr, 8, 1, 0},
                                    {"norm", nullptr, 0, 1, 0},
                                    {"update", nullptr, 0, 256, 0},
                                    {"show", nullptr, 0, 256, 0}};

#define LAUNCH(kernel, tiles, operands)                                        \
  {TRAINC_COMMAND_LAUNCH,                                                      \
   kernel,                                                                     \
   tiles,                                                                      \
   sizeof(operands) / sizeof(*operands),                                       \
   0,                                                                          \
   operands,                                                                   \
   nullptr,                                                                    \
   #kernel,                                                                    \
   "step.h:1:1",                                                               \
   1}
#define MOVE(kind, count, operands)                                            \
  {TRAINC_COMMAND_##kind, 0, 0, count, 0, operands, nullptr, #kind,            \
   "step.h:1:1",          0}
const trainc_command firstList[] = {
    MOVE(COPY, 2, keepOperands), LAUNCH(K_ERROR, 4, errorOperands),
    LAUNCH(K_FIRST, 4, gradientOperands), LAUNCH(K_LOSS, 1, lossOperands)};
const trainc_command nextList[] = {LAUNCH(K_ERROR, 4, errorOperands),
                                   LAUNCH(K_NEXT, 4, gradientOperands),
                                   LAUNCH(K_LOSS, 1, lossOperands)};
const trainc_command applyList[] = {LAUNCH(K_NORM, 1, normOperands),
                                    LAUNCH(K_UPDATE, 4, updateOperands)};
const trainc_command evalList[] = {LAUNCH(K_SHOW, 4, showOperands)};
const trainc_command pushedList[] = {MOVE(COPY, 2, copyOperands),
                                     LAUNCH(K_LOSS, 1, pushedLoss)};

const int64_t dims[] = {N}, labelDims[] = {LABELS};
const trainc_port inputs[] = {
    {"x", TRAINC_F32, 1, dims, BYTES, nullptr, 0},
    {"y", TRAINC_I32, 1, labelDims, LABELS * 4, nullptr, 0}};
const trainc_port outputs[] = {{"a", TRAINC_F32, 1, dims, BYTES, nullptr, 0},
                               {"b", TRAINC_F32, 1, dims, BYTES, nullptr, 0}};
const trainc_port pushedInput = {"x",     TRAINC_F32,    1, dims, BYTES,
                                 nullptr, 1 + T_GRADIENT};
const trainc_index_check checks[] = {{1, 0, 0, 10, 0, 0, 0, 0, 0}};
const trainc_entry entries[] = {
    {"step",
     TRAINC_ENTRY_STEP,
     WINDOW,
     2,
     0,
     1,
     0,
     inputs,
     nullptr,
     checks,
     {{4, firstList}, {3, nextList}, {2, applyList}},
     BYTES},
    {"eval",
     TRAINC_ENTRY_EVAL,
     0,
     1,
     2,
     0,
     0,
     inputs,
     outputs,
     nullptr,
     {{1, evalList}, {0, nullptr}, {0, nullptr}},
     0},
    {"pushed",
     TRAINC_ENTRY_STEP,
     1,
     1,
     0,
     0,
     0,
     &pushedInput,
     nullptr,
     nullptr,
     {{2, pushedList}, {0, nullptr}, {2, applyList}},
     0}};

inline const float *factors() {
  static float values[N];
  for (int i = 0; i < N; ++i)
    values[i] = 1.0f + 0.125f * (float)(i % 7);
  return values;
}
const trainc_arena arenas[] = {
    {"parameters", TRAINC_ROLE_MASTER, TRAINC_F32, BYTES, 0, 0, nullptr},
    {"copies", TRAINC_ROLE_COMPUTE, TRAINC_BF16, N * 2, 0, 0, nullptr},
    {"gradients", TRAINC_ROLE_GRADIENT, TRAINC_F32, BYTES, 0, 0, nullptr},
    {"states", TRAINC_ROLE_STATE, TRAINC_F32, BYTES, 0, 0, nullptr},
    {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, 256, 0, 0, nullptr},
    {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, BYTES, 0, 0, nullptr},
    {"buffers", TRAINC_ROLE_BUFFER, TRAINC_F32, BYTES, 0, 0, nullptr}};

#define TENSOR(state, role, type, arena, bytes, init, a, b)                    \
  {"w",                                                                        \
   state,                                                                      \
   TRAINC_ROLE_##role,                                                         \
   TRAINC_##type,                                                              \
   1,                                                                          \
   arena,                                                                      \
   0,                                                                          \
   bytes,                                                                      \
   dims,                                                                       \
   nullptr,                                                                    \
   0,                                                                          \
   TRAINC_INIT_##init,                                                         \
   a,                                                                          \
   b,                                                                          \
   nullptr}
const trainc_tensor tensors[] = {
    TENSOR(nullptr, MASTER, F32, MASTER, BYTES, NORMAL, 0, 1),
    TENSOR(nullptr, COMPUTE, BF16, COMPUTE, N * 2, CONSTANT, 0, 0),
    TENSOR(nullptr, GRADIENT, F32, GRADIENT, BYTES, CONSTANT, 0, 0),
    TENSOR("m", STATE, F32, STATE, BYTES, CONSTANT, 0.25, 0),
    {"factors", nullptr, TRAINC_ROLE_BUFFER, TRAINC_F32, 1, BUFFER, 0, BYTES,
     dims, nullptr, -1, TRAINC_INIT_DATA, 0, 0, factors()}};
const trainc_scalar scalars[] = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) {text, init, flags, 0},
#include "trainc/step_abi.def"
    {"lr", 0.125, TRAINC_SCALAR_SETTABLE | TRAINC_SCALAR_PERSISTENT, 0}};
const char *const groups[] = {"momentum"};
inline const trainc_functions *functions;

inline trainc_descriptor describe(trainc_target target) {
  trainc_descriptor d = {};
  d.magic = TRAINC_ABI_MAGIC;
  d.abi_version = TRAINC_ABI_VERSION;
  d.num_structs = TRAINC_NUM_STRUCTS;
  d.struct_bytes = struct_bytes;
  d.name = "twice";
  d.compiler = "by hand";
  d.triple = d.cpu = "x86-64";
  d.features = "+sse2";
  d.plan_hash = 1 + target;
  d.state_hash = 2;
  d.num_arenas = ARENAS;
  d.num_tensors = TENSORS;
  d.num_scalars = NUM_SCALARS;
  d.num_groups = 1;
  d.num_entries = 3;
  d.num_kernels = KERNELS;
  d.scalar_arena = SCALARS;
  d.workspace_arena = WORKSPACE;
  d.num_windows = 1;
  d.arenas = arenas;
  d.tensors = tensors;
  d.scalars = scalars;
  d.groups = groups;
  d.entries = entries;
  d.kernels = target == TRAINC_TARGET_CPU ? cpuKernels : gpuKernels;
  d.functions = &functions;
  d.target = target;
  return d;
}

/// The tables for both targets, with an image from a file.
struct Tables {
  std::string bytes;
  trainc_image image = {};
  trainc_descriptor cpu = describe(TRAINC_TARGET_CPU);
  trainc_descriptor gpu = describe(TRAINC_TARGET_CUDA);

  explicit Tables(const char *path) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    char piece[4096];
    while (size_t count = fread(piece, 1, sizeof(piece), file))
      bytes.append(piece, count);
    fclose(file);
    image = {TRAINC_IMAGE_HOST, 0, 0, 0, bytes.size(), bytes.data()};
    gpu.num_images = 1;
    gpu.images = &image;
    gpu.next = &cpu;
  }
  Tables(const Tables &) = delete;

  trainc_artifact *open(const trainc_descriptor &first) const {
    trainc_artifact *artifact;
    OK(trainc_artifact_open_descriptor(&first, &artifact));
    return artifact;
  }
};

struct Trainer {
  trainc_trainer *t = nullptr;
  float x[N];
  int32_t y[LABELS];

  Trainer(trainc_artifact *artifact, const char *device, uint32_t flags = 0) {
    trainc_trainer_options options = {};
    options.size = sizeof(options);
    options.threads = 2;
    options.seed = 5;
    options.flags = flags;
    options.device = device;
    OK(trainc_trainer_create(artifact, &options, &t));
    bind();
  }
  ~Trainer() { trainc_trainer_destroy(t); }
  Trainer(const Trainer &) = delete;

  void bind() {
    OK(trainc_bind_input(t, STEP, 0, x, sizeof(x)));
    OK(trainc_bind_input(t, STEP, 1, y, sizeof(y)));
    OK(trainc_bind_input(t, EVAL, 0, x, sizeof(x)));
    OK(trainc_bind_input(t, PUSHED, 0, x, sizeof(x)));
  }
  /// Batch `number` of any count of them.
  void fill(unsigned number) {
    uint32_t state = 12345u + 977u * number;
    for (int i = 0; i < N; ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = (float)(state >> 8) / 16777216.0f;
      y[i % LABELS] = (int32_t)(state >> 16) % 10;
    }
  }
  trainc_step_result step(unsigned number) {
    trainc_step_result result;
    fill(number);
    OK(trainc_step(t, STEP, &result));
    return result;
  }
  /// Nobody waits for this one; what it reads is gone when it comes back.
  void stepAway(unsigned number) {
    fill(number);
    OK(trainc_step(t, STEP, nullptr));
    memset(x, 0xff, sizeof(x));
    memset(y, 0xff, sizeof(y));
  }
  double scalar(uint32_t index) const {
    double value;
    OK(trainc_get_scalar_at(t, index, &value));
    return value;
  }
  std::vector<char> tensor(uint32_t index) const {
    const trainc_tensor *tensor;
    OK(trainc_tensor_get(t, index, &tensor));
    std::vector<char> bytes(tensor->bytes);
    OK(trainc_tensor_read(t, index, tensor->dtype, bytes.data(), bytes.size()));
    return bytes;
  }
};

/// Bit by bit; gradients inside a window only.
inline bool sameState(const Trainer &a, const Trainer &b) {
  bool open = a.scalar(TRAINC_SCALAR_MICRO_STEP) != 0;
  for (uint32_t i = 0; i < TENSORS; ++i)
    if ((open || i != T_GRADIENT) && a.tensor(i) != b.tensor(i))
      return false;
  for (uint32_t i = 0; i < NUM_SCALARS; ++i) {
    double x = a.scalar(i), y = b.scalar(i);
    if (scalars[i].flags & TRAINC_SCALAR_PERSISTENT &&
        memcmp(&x, &y, sizeof(x)) != 0)
      return false;
  }
  return true;
}

inline bool sameResult(const trainc_step_result &a,
                       const trainc_step_result &b) {
  return !memcmp(&a, &b, sizeof(a));
}

inline trainc_fake_cuda_counts counts() {
  trainc_fake_cuda_counts result;
  trainc_fake_cuda_get_counts(&result);
  return result;
}

#endif
