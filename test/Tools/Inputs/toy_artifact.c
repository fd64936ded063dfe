//===- toy_artifact.c - An artifact written by hand -----------------------===//
//
// Softmax regression by gradient descent with momentum, as the compiler would
// describe it, so that trainc-run is tested without the compiler.
//
// %cc -shared -nostdlib -fPIC -O1 -I runtime/include [-D...] toy_artifact.c -o toy.so
//   CHARS          tokens i32[4,8] in place of x f32[8,4]: a bigram model; the eval
//                  'momentum' writes text by the momentum of its parameters
//   BATCH=n        examples of a batch, if they are no tokens
//   ACCUMULATE=k   micro-steps of a window
//   MASK_WEIGHTS   an input 'weights'; no target is ignored
//   MASK_NONE      nothing can be masked
//   ALSO=n         targets 2 and 4 are indices below n, too, of which none is ignored
//   FEATURES="f"   processor features that are asked for
//   ABI=n          ABI version
//
//===----------------------------------------------------------------------===//
#include "../../Runtime/Inputs/struct_bytes.h"
#include "trainc/step_abi.h"

#ifndef ACCUMULATE
#define ACCUMULATE 1
#endif
#ifndef FEATURES
#define FEATURES ""
#endif
#ifndef ABI
#define ABI TRAINC_ABI_VERSION
#endif
#ifndef BATCH
#define BATCH 8
#endif
#ifdef CHARS
enum { F = 128, C = 128, B = 4, T = 8, EVAL_B = 3 };
typedef int32_t feature;
#else
enum { F = 4, C = 3, B = BATCH, T = 1, EVAL_B = 5 };
typedef float feature;
#endif
#if defined(MASK_WEIGHTS) || defined(MASK_NONE)
#define HAS_IGNORE 0
#else
#define HAS_IGNORE 1
#endif
#ifdef MASK_WEIGHTS
#define NUM_INPUTS 3
#else
#define NUM_INPUTS 2
#endif

enum {
  ROWS = B * T,
  PARAMETERS = F * C + C, // w [F, C], then b [C]
  LR = TRAINC_NUM_FIXED_SCALARS,
  POISON, // the update in which the forward pass makes a NaN
  NUM_SCALARS
};
enum { SCALARS, MASTER, GRADIENT, MOMENTUM, WORKSPACE, NUM_ARENAS };

static const trainc_functions *functions;

// Compilers make calls of loops; an artifact has no undefined symbols.
__attribute__((visibility("hidden"))) void *memset(void *to, int value,
                                                   unsigned long size) {
  for (volatile char *next = to; size--; ++next)
    *next = (char)value;
  return to;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static void logits(const float *p, const feature *x, float *out) {
  for (int c = 0; c < C; ++c) {
    out[c] = p[F * C + c];
#ifdef CHARS
    out[c] += p[*x * C + c];
#else
    for (int f = 0; f < F; ++f)
      out[c] += x[f] * p[f * C + c];
#endif
  }
}

static void softmax(float *x) {
  float best = x[0], sum = 0;
  for (int c = 1; c < C; ++c)
    best = x[c] > best ? x[c] : best;
  for (int c = 0; c < C; ++c)
    sum += x[c] = (float)functions->exp(x[c] - best);
  for (int c = 0; c < C; ++c)
    x[c] /= sum;
}

#ifdef CHARS
#define ROW(x, i) ((x) + (i))
#else
#define ROW(x, i) ((x) + (i) * F)
#endif

/// args: parameters, x, y, weights or null, gradient of the logits, scalars.
static void forward(void *const *args, int accumulate) {
  const int32_t *y = args[2];
  const float *weights = NUM_INPUTS == 3 ? args[3] : 0;
  float *d = args[NUM_INPUTS + 1];
  double *scalars = args[NUM_INPUTS + 2], loss = 0, count = 0;
  for (int i = 0; i < ROWS; ++i) {
    float *row = d + i * C;
    float weight = y[i] == -100 ? 0 : weights ? weights[i / T] : 1;
    logits(args[0], ROW((const feature *)args[1], i), row);
    softmax(row);
    if (weight != 0) {
      loss -= weight * functions->log(row[y[i]]);
      row[y[i]] -= 1;
    }
    for (int c = 0; c < C; ++c)
      row[c] *= weight;
    count += weight;
  }
  if (scalars[POISON] == scalars[TRAINC_SCALAR_UPDATE] + 1)
    d[4] = (float)functions->log(-1);
  scalars[TRAINC_SCALAR_MICRO_LOSS] = loss;
  scalars[TRAINC_SCALAR_MICRO_WEIGHT] = count;
  scalars[TRAINC_SCALAR_LOSS_SUM] =
      loss + (accumulate ? scalars[TRAINC_SCALAR_LOSS_SUM] : 0);
  scalars[TRAINC_SCALAR_WEIGHT_SUM] =
      count + (accumulate ? scalars[TRAINC_SCALAR_WEIGHT_SUM] : 0);
}

/// args: x, gradient of the logits, gradients of the parameters.
static void backward(void *const *args, int accumulate) {
  float *g = args[2];
  for (int i = 0; i < PARAMETERS && !accumulate; ++i)
    g[i] = 0;
  for (int i = 0; i < ROWS; ++i) {
    const feature *x = ROW((const feature *)args[0], i);
    const float *d = (const float *)args[1] + i * C;
    for (int c = 0; c < C; ++c) {
#ifdef CHARS
      g[*x * C + c] += d[c];
#else
      for (int f = 0; f < F; ++f)
        g[f * C + c] += x[f] * d[c];
#endif
      g[F * C + c] += d[c];
    }
  }
}

static void forwardFirst(void *const *args, int64_t tile, void *scratch) {
  forward(args, 0);
}
static void forwardNext(void *const *args, int64_t tile, void *scratch) {
  forward(args, 1);
}
static void backwardFirst(void *const *args, int64_t tile, void *scratch) {
  backward(args, 0);
}
static void backwardNext(void *const *args, int64_t tile, void *scratch) {
  backward(args, 1);
}

/// args: parameters, gradients, momentum, scalars.
static void update(void *const *args, int64_t tile, void *scratch) {
  float *p = args[0], *g = args[1], *m = args[2];
  double *scalars = args[3], sum = 0;
  double scale = 1 / scalars[TRAINC_SCALAR_WEIGHT_SUM];
  for (int i = 0; i < PARAMETERS; ++i)
    sum += (double)g[i] * g[i];
  double norm = functions->pow(sum, 0.5) * scale;
  scalars[TRAINC_SCALAR_GRAD_NORM] = norm;
  scalars[TRAINC_SCALAR_FINITE] = norm - norm == 0;
  if (norm - norm != 0) {
    scalars[TRAINC_SCALAR_SKIPPED] += 1;
    return;
  }
  scalars[TRAINC_SCALAR_UPDATE] += 1;
  for (int i = 0; i < PARAMETERS; ++i) {
    m[i] = 0.9f * m[i] + g[i] * (float)scale;
    p[i] -= (float)scalars[LR] * m[i];
  }
}

/// args: parameters, x, y, weights or null, loss, correct, count.
static void evaluate(void *const *args, int64_t tile, void *scratch) {
  const int32_t *y = args[2];
  const float *weights = NUM_INPUTS == 3 ? args[3] : 0;
  float *loss = args[NUM_INPUTS + 1], *correct = args[NUM_INPUTS + 2];
  float *count = args[NUM_INPUTS + 3];
  *loss = *correct = *count = 0;
  for (int i = 0; i < EVAL_B * T; ++i) {
    float row[C];
    float weight = y[i] == -100 ? 0 : weights ? weights[i / T] : 1;
    if (weight == 0)
      continue;
    logits(args[0], ROW((const feature *)args[1], i), row);
    softmax(row);
    int best = 0;
    for (int c = 1; c < C; ++c)
      best = row[c] > row[best] ? c : best;
    *loss -= weight * (float)functions->log(row[y[i]]);
    *correct += best == y[i] ? weight : 0;
    *count += weight;
  }
}

/// args: parameters, x, logits.
static void predict(void *const *args, int64_t tile, void *scratch) {
  for (int i = 0; i < EVAL_B * T; ++i)
    logits(args[0], ROW((const feature *)args[1], i), (float *)args[2] + i * C);
}

enum {
  FORWARD_FIRST,
  FORWARD_NEXT,
  BACKWARD_FIRST,
  BACKWARD_NEXT,
  UPDATE,
  EVALUATE,
  PREDICT,
  NUM_KERNELS
};
static const trainc_kernel kernels[NUM_KERNELS] = {
    {"forward_first", forwardFirst, 0},
    {"forward_next", forwardNext, 0},
    {"backward_first", backwardFirst, 0},
    {"backward_next", backwardNext, 0},
    {"update", update, 0},
    {"evaluate", evaluate, 0},
    {"predict", predict, 0},
};

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

static const trainc_arena arenas[NUM_ARENAS] = {
    {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, NUM_SCALARS * 8, 0},
    {"parameters", TRAINC_ROLE_MASTER, TRAINC_F32, PARAMETERS * 4, 0},
    {"gradients", TRAINC_ROLE_GRADIENT, TRAINC_F32, PARAMETERS * 4, 0},
    {"momentum", TRAINC_ROLE_STATE, TRAINC_F32, PARAMETERS * 4, 0},
    {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, ROWS * C * 4, 0},
};

static const int64_t wDims[] = {F, C}, bDims[] = {C};
#define W(state, role, arena, kind, b)                                         \
  {"w",   state, role, TRAINC_F32, 2, arena, 0, F * C * 4,                     \
   wDims, 0,     0,    kind,       0, b,     0}
#define BIAS(state, role, arena)                                               \
  {"b",   state, role, TRAINC_F32,           1, arena, F * C * 4, C * 4,       \
   bDims, 0,     0,    TRAINC_INIT_CONSTANT, 0, 0,     0}
static const trainc_tensor tensors[] = {
    W(0, TRAINC_ROLE_MASTER, MASTER, TRAINC_INIT_NORMAL, 0.1),
    BIAS(0, TRAINC_ROLE_MASTER, MASTER),
    W(0, TRAINC_ROLE_GRADIENT, GRADIENT, TRAINC_INIT_CONSTANT, 0),
    BIAS(0, TRAINC_ROLE_GRADIENT, GRADIENT),
    W("m", TRAINC_ROLE_STATE, MOMENTUM, TRAINC_INIT_CONSTANT, 0),
    BIAS("m", TRAINC_ROLE_STATE, MOMENTUM),
};

static const trainc_scalar scalars[NUM_SCALARS] = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) {text, init, flags, 0},
#include "trainc/step_abi.def"
    {"lr", 0.1, TRAINC_SCALAR_SETTABLE, 0},
    {"poison", 0, TRAINC_SCALAR_SETTABLE, 0},
};

static const char *const groups[] = {"sgd"};

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

#ifdef CHARS
#define X "tokens"
#define Y "targets"
#define X_PORT(dims, rows) {X, TRAINC_I32, 2, dims, (rows) * T * 4}
#define Y_RANK 2
static const int64_t xDims[] = {B, T}, evalXDims[] = {EVAL_B, T};
static const int64_t logitsDims[] = {EVAL_B, T, C};
#define X_TYPE TRAINC_I32
#define X_ROW (T * 4)
#else
#define X "x"
#define Y "y"
#define X_PORT(dims, rows) {X, TRAINC_F32, 2, dims, (rows) * F * 4}
#define Y_RANK 1
static const int64_t xDims[] = {B, F}, evalXDims[] = {EVAL_B, F};
static const int64_t logitsDims[] = {EVAL_B, C};
#define X_TYPE TRAINC_F32
#define X_ROW (F * 4)
#endif
static const int64_t yDims[] = {B, T}, evalYDims[] = {EVAL_B, T};

static const trainc_port stepInputs[] = {
    X_PORT(xDims, B),
    {Y, TRAINC_I32, Y_RANK, yDims, ROWS * 4},
    {"weights", TRAINC_F32, 1, yDims, B * 4},
};
static const trainc_port evalInputs[] = {
    X_PORT(evalXDims, EVAL_B),
    {Y, TRAINC_I32, Y_RANK, evalYDims, EVAL_B * T * 4},
    {"weights", TRAINC_F32, 1, evalYDims, EVAL_B * 4},
};
static const trainc_port evalOutputs[] = {
    {"loss", TRAINC_F32, 0, 0, 4},
    {"correct", TRAINC_F32, 0, 0, 4},
    {"count", TRAINC_F32, 0, 0, 4},
};
static const trainc_port predictOutputs[] = {
    {"logits", TRAINC_F32, Y_RANK + 1, logitsDims, EVAL_B * T * C * 4},
};

static const trainc_index_check checks[] = {
#ifdef ALSO
    {1, 0, 0, ALSO, 0, 2, 2, 2, 1},
#endif
    {1, HAS_IGNORE, 0, C, -100, 0, 0, 0, 0},
#ifdef CHARS
    {0, 0, 0, F, 0, 0, 0, 0, 0},
#endif
};
enum { NUM_CHECKS = sizeof(checks) / sizeof(*checks) };

#define OPERAND(base, access, bytes, type) {base, access, 0, bytes, type, 0}
#define READ_WRITE (TRAINC_READ | TRAINC_WRITE)
#define STATE(arena, access) OPERAND(arena, access, PARAMETERS * 4, TRAINC_F32)
#define SCALAR_BLOCK OPERAND(SCALARS, READ_WRITE, NUM_SCALARS * 8, TRAINC_F64)
#ifdef MASK_WEIGHTS
#define WEIGHTS(rows)                                                          \
  OPERAND(NUM_ARENAS + 2, TRAINC_READ, (rows) * 4, TRAINC_F32),
#else
#define WEIGHTS(rows)
#endif

static const trainc_operand forwardOperands[] = {
    STATE(MASTER, TRAINC_READ),
    OPERAND(NUM_ARENAS, TRAINC_READ, B *X_ROW, X_TYPE),
    OPERAND(NUM_ARENAS + 1, TRAINC_READ, ROWS * 4, TRAINC_I32),
    WEIGHTS(B) OPERAND(WORKSPACE, TRAINC_WRITE, ROWS * C * 4, TRAINC_F32),
    SCALAR_BLOCK};
static const trainc_operand backwardOperands[] = {
    OPERAND(NUM_ARENAS, TRAINC_READ, B *X_ROW, X_TYPE),
    OPERAND(WORKSPACE, TRAINC_READ, ROWS * C * 4, TRAINC_F32),
    STATE(GRADIENT, READ_WRITE)};
static const trainc_operand updateOperands[] = {
    STATE(MASTER, READ_WRITE), STATE(GRADIENT, TRAINC_READ),
    STATE(MOMENTUM, READ_WRITE), SCALAR_BLOCK};
static const trainc_operand evalOperands[] = {
    STATE(MASTER, TRAINC_READ),
    OPERAND(NUM_ARENAS, TRAINC_READ, EVAL_B *X_ROW, X_TYPE),
    OPERAND(NUM_ARENAS + 1, TRAINC_READ, EVAL_B * T * 4, TRAINC_I32),
    WEIGHTS(EVAL_B)
        OPERAND(NUM_ARENAS + NUM_INPUTS, TRAINC_WRITE, 4, TRAINC_F32),
    OPERAND(NUM_ARENAS + NUM_INPUTS + 1, TRAINC_WRITE, 4, TRAINC_F32),
    OPERAND(NUM_ARENAS + NUM_INPUTS + 2, TRAINC_WRITE, 4, TRAINC_F32)};
static const trainc_operand predictOperands[] = {
    STATE(MASTER, TRAINC_READ),
    OPERAND(NUM_ARENAS, TRAINC_READ, EVAL_B *X_ROW, X_TYPE),
    OPERAND(NUM_ARENAS + 1, TRAINC_WRITE, EVAL_B * T * C * 4, TRAINC_F32)};
#ifdef CHARS
static const trainc_operand momentumOperands[] = {
    STATE(MOMENTUM, TRAINC_READ),
    OPERAND(NUM_ARENAS, TRAINC_READ, EVAL_B *X_ROW, X_TYPE),
    OPERAND(NUM_ARENAS + 1, TRAINC_WRITE, EVAL_B * T * C * 4, TRAINC_F32)};
#endif

#define LAUNCH(kernel, operands, label, line, flops)                           \
  {TRAINC_COMMAND_LAUNCH,                                                      \
   kernel,                                                                     \
   1,                                                                          \
   sizeof(operands) / sizeof(*operands),                                       \
   0,                                                                          \
   operands,                                                                   \
   0,                                                                          \
   label,                                                                      \
   "toy.mlir:" line,                                                           \
   flops}
static const trainc_command first[] = {
    LAUNCH(FORWARD_FIRST, forwardOperands, "nn.cross_entropy", "7:10",
           2 * ROWS * F * C),
    LAUNCH(BACKWARD_FIRST, backwardOperands, "nn.linear_backward", "6:10",
           2 * ROWS * F * C)};
static const trainc_command next[] = {
    LAUNCH(FORWARD_NEXT, forwardOperands, "nn.cross_entropy", "7:10",
           2 * ROWS * F * C),
    LAUNCH(BACKWARD_NEXT, backwardOperands, "nn.linear_backward", "6:10",
           2 * ROWS * F * C)};
static const trainc_command apply[] = {
    LAUNCH(UPDATE, updateOperands, "train.update", "4:3", 5 * PARAMETERS)};
static const trainc_command evalList[] = {
    LAUNCH(EVALUATE, evalOperands, "nn.cross_entropy", "12:10", 0)};
static const trainc_command predictList[] = {
    LAUNCH(PREDICT, predictOperands, "nn.linear", "16:10", 0)};
#ifdef CHARS
static const trainc_command momentumList[] = {
    LAUNCH(PREDICT, momentumOperands, "nn.linear", "20:10", 0)};
#endif

#define LIST(commands) {sizeof(commands) / sizeof(*commands), commands}
static const trainc_entry entries[] = {
    {"step",
     TRAINC_ENTRY_STEP,
     ACCUMULATE,
     NUM_INPUTS,
     0,
     NUM_CHECKS,
     0,
     stepInputs,
     0,
     checks,
     {LIST(first), LIST(next), LIST(apply)},
     ROWS * C * 4},
    {"predict",
     TRAINC_ENTRY_EVAL,
     1,
     1,
     1,
     0,
     0,
     evalInputs,
     predictOutputs,
     0,
     {LIST(predictList), {0, 0}, {0, 0}},
     0},
    {"eval",
     TRAINC_ENTRY_EVAL,
     1,
     NUM_INPUTS,
     3,
     NUM_CHECKS,
     0,
     evalInputs,
     evalOutputs,
     checks,
     {LIST(evalList), {0, 0}, {0, 0}},
     0},
#ifdef CHARS
    {"momentum",
     TRAINC_ENTRY_EVAL,
     1,
     1,
     1,
     0,
     0,
     evalInputs,
     predictOutputs,
     0,
     {LIST(momentumList), {0, 0}, {0, 0}},
     0},
#endif
};

extern const trainc_descriptor descriptor __asm__("trainc_descriptor");
const trainc_descriptor descriptor = {
    .magic = TRAINC_ABI_MAGIC,
    .abi_version = ABI,
    .num_structs = TRAINC_NUM_STRUCTS,
    .struct_bytes = struct_bytes,
    .name = "toy",
    .compiler = "by hand",
    .triple = "x86_64-unknown-linux-gnu",
    .cpu = "x86-64",
    .features = FEATURES,
    .plan_hash = 1,
    .state_hash = F,
    .num_arenas = NUM_ARENAS,
    .num_tensors = sizeof(tensors) / sizeof(*tensors),
    .num_scalars = NUM_SCALARS,
    .num_groups = 1,
    .num_entries = sizeof(entries) / sizeof(*entries),
    .num_kernels = NUM_KERNELS,
    .scalar_arena = SCALARS,
    .workspace_arena = WORKSPACE,
    .num_windows = 1,
    .arenas = arenas,
    .tensors = tensors,
    .scalars = scalars,
    .groups = groups,
    .entries = entries,
    .kernels = kernels,
    .functions = &functions,
};
