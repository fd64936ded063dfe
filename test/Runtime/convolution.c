// CONVOLUTION commands against sums in f64: the three kinds, all back ends that this CPU has,
// types, groups, strides, dilations, paddings, planes that are smaller and larger than a
// block of outputs, 1 x 1 windows; what must be refused; threads. The bits of our own code, of
// which the test prints a hash, are those of every CPU. With an argument the test takes an
// emulator little time: it computes what the hash is of, and nothing else
// (convolution-aarch64.test).
//
// RUN: %cc -std=c11 -O1 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t | FileCheck %S/Inputs/convolution.txt
// RUN: env TRAINC_AVX2_ONLY=1 %t | FileCheck %S/Inputs/convolution.txt

#include "values.h"

typedef trainc_convolution_detail Detail;

/// Elements of the input, the weight and the output.
static void count(const Detail *d, int64_t elements[3]) {
  elements[0] = d->batch * d->groups * d->channels * d->height * d->width;
  elements[1] =
      d->groups * d->outputs * d->channels * d->window_h * d->window_w;
  elements[2] = d->batch * d->groups * d->outputs * d->out_h * d->out_w;
}

/// Which of them are the operands and the result; of an unknown kind any.
static const int places[4][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}, {0, 1, 2}};

/// The command as the eval of an artifact with the operands as inputs and the result in
/// a buffer; what opening it gives.
static char report[1 << 12]; // of the last one's memory
static trainc_status run(const Detail *d, unsigned threads, char *const in[2],
                         char *result) {
  int64_t elements[3], dims[3];
  uint64_t bytes[3];
  count(d, elements);
  for (int i = 0; i < 3; ++i) {
    dims[i] = elements[places[d->kind][i]];
    bytes[i] = (uint64_t)dims[i] * size_of(i == 2 ? d->result_type : d->type);
  }
  trainc_arena run_arenas[] = {
      {"c", TRAINC_ROLE_BUFFER, d->result_type, bytes[2], 0, 0, NULL},
      {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, 256, 0, 0, NULL},
      {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, 0, 0, 0, NULL}};
  trainc_tensor run_tensors[] = {TENSOR("c", NULL, BUFFER, F32, 1, 0, 0,
                                        bytes[2], &dims[2], CONSTANT, 0, 0,
                                        NULL)};
  run_tensors[0].dtype = d->result_type;
  trainc_port ports[] = {{"a", d->type, 1, &dims[0], bytes[0], NULL, 0},
                         {"b", d->type, 1, &dims[1], bytes[1], NULL, 0}};
  uint32_t access = d->accumulate ? TRAINC_READ | TRAINC_WRITE : TRAINC_WRITE;
  const trainc_operand operands[] = {
      {3, TRAINC_READ, 0, bytes[0], d->type, 0},
      {4, TRAINC_READ, 0, bytes[1], d->type, 0},
      {0, access, 0, bytes[2], d->result_type, 0}};
  trainc_command command = GEMM(3, operands, *d, "convolution");
  command.kind = TRAINC_COMMAND_CONVOLUTION;
  trainc_entry entry = {"run", TRAINC_ENTRY_EVAL, 0, 2, 0, 0, 0, ports, NULL,
                        NULL,  {{1, &command}},   0};
  trainc_descriptor descriptor = trainc_descriptor_handmade;
  descriptor.num_arenas = 3;
  descriptor.arenas = run_arenas;
  descriptor.num_tensors = 1;
  descriptor.tensors = run_tensors;
  descriptor.num_entries = 1;
  descriptor.entries = &entry;
  descriptor.num_kernels = 0;
  descriptor.scalar_arena = 1;
  descriptor.workspace_arena = 2;
  trainc_artifact *artifact;
  trainc_status status =
      trainc_artifact_open_descriptor(&descriptor, &artifact);
  if (status != TRAINC_OK)
    return status;
  trainc_trainer *trainer = make_trainer(artifact, threads, 0);
  void *memory;
  OK(trainc_tensor_data(trainer, 0, &memory));
  memcpy(memory, result, bytes[2]);
  for (uint32_t i = 0; i < 2; ++i)
    OK(trainc_bind_input(trainer, 0, i, in[i], bytes[i]));
  OK(trainc_eval(trainer, 0));
  const char *text;
  OK(trainc_memory_report(trainer, &text));
  snprintf(report, sizeof report, "%s", text);
  memcpy(result, memory, bytes[2]);
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  return TRAINC_OK;
}

/// Whether a back end multiplies this type, and this CPU has it. VECTOR widens narrow types,
/// and has groups of one channel and one output in all types.
static int is_there(uint32_t type, uint32_t back_end, int depthwise) {
  int single = type == TRAINC_F32, brain = type == TRAINC_BF16;
  switch (back_end) {
  case TRAINC_BACK_END_OPENBLAS:
    return 1;
  case TRAINC_BACK_END_ONEDNN:
    return single || (brain && has(" avx512_bf16"));
  case TRAINC_BACK_END_VECTOR:
    return type != TRAINC_F64 || depthwise;
  case TRAINC_BACK_END_AMX:
    return (single || brain) && has(" amx_bf16");
  }
  return 0;
}

/// The sums, and those of sizes, by the definition.
static void define(const Detail *d, const char *a, const char *b, double *sums,
                   double *sizes) {
  int64_t g_count = d->groups, o_count = d->outputs, c_count = d->channels;
  for (int64_t n = 0; n < d->batch; ++n)
    for (int64_t go = 0; go < g_count * o_count; ++go)
      for (int64_t c = 0; c < c_count; ++c)
        for (int64_t p = 0; p < d->out_h; ++p)
          for (int64_t q = 0; q < d->out_w; ++q)
            for (int64_t i = 0; i < d->window_h; ++i)
              for (int64_t j = 0; j < d->window_w; ++j) {
                int64_t y = p * d->stride_h + i * d->dilation_h - d->low_h;
                int64_t x = q * d->stride_w + j * d->dilation_w - d->low_w;
                if (y < 0 || y >= d->height || x < 0 || x >= d->width)
                  continue;
                int64_t gc = go / o_count * c_count + c;
                int64_t at[3] = {
                    ((n * g_count * c_count + gc) * d->height + y) * d->width +
                        x,
                    ((go * c_count + c) * d->window_h + i) * d->window_w + j,
                    ((n * g_count * o_count + go) * d->out_h + p) * d->out_w +
                        q};
                const int *place = places[d->kind];
                double term = get(d->type, a, at[place[0]]) *
                              get(d->type, b, at[place[1]]);
                sums[at[place[2]]] += term;
                sizes[at[place[2]]] += fabs(term);
              }
}

static void compare(const Detail *d) {
  int64_t elements[3];
  count(d, elements);
  const int *place = places[d->kind];
  char *in[2];
  for (int i = 0; i < 2; ++i) {
    uint64_t bytes = (uint64_t)elements[place[i]] * size_of(d->type);
    in[i] = malloc(bytes);
    fill(d->type, in[i], bytes);
  }
  int64_t number = elements[place[2]];
  uint64_t bytes = (uint64_t)number * size_of(d->result_type);
  char *result = malloc(bytes), *more = malloc(bytes);
  double *sums = calloc((size_t)number, sizeof(double));
  double *sizes = calloc((size_t)number, sizeof(double));
  memset(result, 0xFF, bytes); // NaN everywhere: it must be overwritten
  if (d->accumulate)
    fill(d->result_type, result, bytes);
  memcpy(more, result, bytes);
  for (int64_t i = 0; d->accumulate && i < number; ++i)
    sizes[i] = fabs(sums[i] = get(d->result_type, result, i));
  define(d, in[0], in[1], sums, sizes);
  OK(run(d, 1, in, result));
  OK(run(d, 3, in, more));
  CHECK(memcmp(result, more, bytes) == 0);
  double epsilon = d->result_type == TRAINC_F64    ? 1e-15
                   : d->result_type == TRAINC_F32  ? 1e-6
                   : d->result_type == TRAINC_BF16 ? 0x1p-8 * 1.01
                                                   : 0x1p-11 * 1.01;
  double wide = d->type == TRAINC_F64 ? 1e-15 : 1e-6;
  for (int64_t i = 0; i < number; ++i)
    if (!(fabs(get(d->result_type, result, i) - sums[i]) <=
          epsilon * fabs(sums[i]) + wide * (sizes[i] + 1))) {
      printf(
          "kind %u, back end %u, types %u %u: batch %d, groups %d, %d to %d, "
          "%d x %d, window %d x %d: element %d is %g, expected %g\n",
          d->kind, d->back_end, d->type, d->result_type, (int)d->batch,
          (int)d->groups, (int)d->channels, (int)d->outputs, (int)d->height,
          (int)d->width, (int)d->window_h, (int)d->window_w, (int)i,
          get(d->result_type, result, i), sums[i]);
      exit(1);
    }
  free(in[0]), free(in[1]), free(result), free(more), free(sums), free(sizes);
}

static uint64_t hash = 14695981039346656037u; // FNV-1a

/// Adds what our own code makes of operands whose sums are not exact. They are quotients, as
/// libraries may differ in other functions.
static void add_to_hash(Detail d) {
  int64_t elements[3];
  count(&d, elements);
  char *in[2];
  for (int i = 0; i < 2; ++i) {
    int64_t number = elements[places[d.kind][i]];
    in[i] = malloc((size_t)number * size_of(d.type));
    for (int64_t at = 0; at < number; ++at) {
      double wide = (double)((at + 1) * 7919 % 1009 - 504) / (509 + 14 * i);
      float narrow = (float)wide;
      if (d.type == TRAINC_F64)
        memcpy(in[i] + 8 * at, &wide, 8);
      else if (d.type == TRAINC_F32)
        memcpy(in[i] + 4 * at, &narrow, 4);
      else // the bits of a bf16, which are a finite f16, too
        memcpy(in[i] + 2 * at, (char *)&narrow + 2, 2);
    }
  }
  uint64_t bytes =
      (uint64_t)elements[places[d.kind][2]] * size_of(d.result_type);
  char *result = malloc(bytes);
  OK(run(&d, 2, in, result));
  for (uint64_t i = 0; i < bytes; ++i)
    hash = (hash ^ (unsigned char)result[i]) * 1099511628211u;
  free(in[0]), free(in[1]), free(result);
}

static int64_t outputs(int64_t size, int64_t window, int64_t stride,
                       int64_t dilation, int64_t padding) {
  return (size + padding - dilation * (window - 1) - 1) / stride + 1;
}

/// The gradient of a weight does not depend on elements that no window sees.
static void leave_unseen_alone(int64_t groups, int64_t size, int64_t dilation) {
  enum { MOST = 64, WINDOW = 3, STRIDE = 2 };
  int64_t out = outputs(size, WINDOW, STRIDE, dilation, 0);
  Detail d = {.kind = TRAINC_CONVOLUTION_WEIGHT_GRADIENT,
              .back_end = TRAINC_BACK_END_VECTOR,
              .batch = 1,
              .groups = groups,
              .channels = 4 / groups,
              .outputs = 4 / groups,
              .height = size,
              .width = size,
              .out_h = out,
              .out_w = out,
              .window_h = WINDOW,
              .window_w = WINDOW,
              .stride_h = STRIDE,
              .stride_w = STRIDE,
              .dilation_h = dilation,
              .dilation_w = dilation,
              .tiles = 1};
  static float x[4 * MOST * MOST], grad[4 * MOST * MOST], found[2][4 * 4 * 9];
  char *in[2] = {(char *)x, (char *)grad};
  fill(TRAINC_F32, in[0], sizeof x);
  fill(TRAINC_F32, in[1], sizeof grad);
  int is_seen[MOST] = {0};
  for (int64_t p = 0; p < out; ++p)
    for (int64_t i = 0; i < WINDOW; ++i)
      is_seen[p * STRIDE + i * dilation] = 1;
  for (int i = 0; i < 2; ++i) {
    OK(run(&d, 1, in, (char *)found[i]));
    for (int64_t at = 0; at < 4 * size * size; ++at)
      if (!is_seen[at % size] || !is_seen[at / size % size])
        x[at] = INFINITY;
  }
  CHECK(memcmp(found[0], found[1], sizeof found[0]) == 0);
}

static void refuse(Detail d, const char *expected) {
  char dummy[1 << 12] = {0}, *in[2] = {dummy, dummy};
  CHECK(run(&d, 1, in, dummy) != TRAINC_OK);
  CHECK(strstr(trainc_last_error(), expected));
}

int main(int argc, char **argv) {
  int brief = argc > 1;
  (void)argv;
  static const uint32_t types[][2] = {{TRAINC_F32, TRAINC_F32},
                                      {TRAINC_F64, TRAINC_F64},
                                      {TRAINC_BF16, TRAINC_F32},
                                      {TRAINC_BF16, TRAINC_BF16},
                                      {TRAINC_F16, TRAINC_F16}};
  // batch, groups, channels, outputs, height, width, window, stride, dilation, low, high,
  // each of both dimensions.
  static const int64_t cases[][16] = {
      // One element; a plane of one block; several rows of blocks; small planes together.
      {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
      {2, 1, 3, 5, 21, 23, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {1, 1, 17, 70, 40, 37, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {9, 1, 40, 130, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      // 1 x 1: in place, small, strided.
      {2, 1, 33, 66, 20, 21, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
      {5, 1, 12, 20, 5, 6, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
      {2, 1, 8, 20, 41, 42, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0},
      {3, 1, 8, 20, 9, 10, 1, 1, 3, 2, 1, 1, 0, 0, 0, 0},
      // Strides, also above the window; odd sizes, of which the last are not seen.
      {2, 1, 3, 16, 45, 50, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3},
      {2, 1, 6, 10, 19, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
      {2, 1, 6, 10, 19, 16, 2, 2, 3, 4, 1, 1, 0, 0, 0, 0},
      {1, 1, 2, 3, 60, 61, 3, 2, 1, 3, 1, 1, 2, 0, 1, 1},
      // Dilations, with strides that do and do not divide them; wide paddings.
      {2, 1, 4, 6, 20, 22, 3, 3, 1, 1, 2, 3, 2, 3, 2, 3},
      {2, 1, 4, 6, 20, 22, 3, 3, 2, 2, 2, 3, 2, 3, 2, 3},
      {1, 1, 4, 6, 20, 22, 3, 4, 4, 6, 2, 4, 5, 0, 2, 9},
      {1, 1, 2, 3, 5, 4, 3, 3, 1, 1, 1, 1, 6, 7, 6, 7},
      // Groups, one of them with a channel each.
      {2, 4, 3, 5, 12, 13, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {2, 8, 1, 1, 23, 20, 5, 5, 2, 2, 1, 1, 2, 2, 2, 2},
      {3, 2, 70, 66, 6, 6, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
      {3, 40, 1, 1, 7, 7, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3},
      {2, 5, 1, 1, 30, 41, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {2, 3, 1, 1, 14, 17, 3, 4, 2, 3, 2, 2, 0, 5, 3, 1},
      {1, 2, 1, 1, 9, 8, 2, 1, 3, 4, 1, 1, 0, 0, 0, 0},
      {2, 4, 1, 2, 9, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      // Windows of planes: groups, strides, dilations that strides do not divide, rows that
      // no output sees.
      {2, 2, 5, 17, 37, 40, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
      {1, 3, 2, 13, 70, 66, 3, 3, 3, 2, 2, 3, 2, 1, 3, 2},
      {2, 1, 3, 4, 50, 54, 2, 2, 3, 3, 1, 1, 0, 0, 0, 0},
      // Windows that reach too far, those of planes of one channel, too; a weight that is
      // packed in pieces.
      {1, 1, 40, 3, 20, 22, 2, 3, 1, 1, 300, 200, 150, 200, 150, 200},
      {2, 3, 1, 1, 6, 5, 3, 2, 1, 1, 5000, 4100, 5000, 0, 5000, 4100},
      // Windows of planes whose copies fit into the cache in some pieces of channels only.
      {1, 1, 40, 4, 4, 400, 3, 3, 1, 1, 12, 1, 12, 1, 12, 1},
      {1, 1, 550, 500, 31, 31, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0},
      // By Winograd's tiles: odd sizes, groups, many blocks, parts of rows, other paddings.
      {2, 1, 33, 70, 12, 13, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {3, 2, 40, 50, 9, 30, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
      {2, 1, 64, 64, 8, 8, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0},
      {1, 1, 32, 70, 29, 30, 3, 3, 1, 1, 1, 1, 2, 0, 1, 3},
      {1, 1, 130, 40, 10, 28, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (int64_t groups = 1; groups <= 4; groups *= 4) {
    leave_unseen_alone(groups, 64, 1);
    leave_unseen_alone(groups, 64,
                       3); // a column before the first tap of the odd ones
    leave_unseen_alone(groups, 9, 3); // columns between taps
  }
  int number = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
    for (size_t t = 0; t < sizeof types / sizeof types[0]; ++t)
      for (uint32_t kind = 0; kind < 3; ++kind)
        for (uint32_t back_end = 0; back_end < TRAINC_BACK_END_CUBLASLT;
             ++back_end)
          for (uint32_t accumulate = 0; accumulate < 2; ++accumulate) {
            const int64_t *s = cases[i];
            int is_wide =
                types[t][1] == TRAINC_F32 || types[t][1] == TRAINC_F64;
            int depthwise = s[1] > 1 && s[2] == 1 && s[3] == 1;
            int is_large = s[2] * s[3] > 1 << 18;
            int is_hashed = back_end == TRAINC_BACK_END_VECTOR && !accumulate;
            if (!is_there(types[t][0], back_end, depthwise) ||
                (is_large && (types[t][0] != TRAINC_F32 ||
                              back_end != TRAINC_BACK_END_VECTOR)) ||
                (brief && !is_hashed) ||
                (accumulate &&
                 !(is_wide && kind == TRAINC_CONVOLUTION_WEIGHT_GRADIENT)))
              continue;
            Detail d = {
                .kind = kind,
                .type = types[t][0],
                .result_type = types[t][1],
                .accumulate = accumulate,
                .back_end = back_end,
                .batch = s[0],
                .groups = s[1],
                .channels = s[2],
                .outputs = s[3],
                .height = s[4],
                .width = s[5],
                .out_h = outputs(s[4], s[6], s[8], s[10], s[12] + s[14]),
                .out_w = outputs(s[5], s[7], s[9], s[11], s[13] + s[15]),
                .window_h = s[6],
                .window_w = s[7],
                .stride_h = s[8],
                .stride_w = s[9],
                .dilation_h = s[10],
                .dilation_w = s[11],
                .low_h = s[12],
                .low_w = s[13],
                .tiles = 1 + number % 9};
            ++number;
            if (!brief)
              compare(&d);
            if (is_hashed)
              add_to_hash(d);
          }
  printf("%d cases\nhash %016llx\n", number, (unsigned long long)hash);
  if (brief)
    return 0;
  Detail d = {.batch = 1,
              .groups = 1,
              .channels = 1,
              .outputs = 1,
              .height = 1,
              .width = 1,
              .out_h = 1,
              .out_w = 1,
              .window_h = 1,
              .window_w = 1,
              .stride_h = 1,
              .stride_w = 1,
              .dilation_h = 1,
              .dilation_w = 1,
              .tiles = 1};
  double data[3] = {1, 1, 0};
  char *in[2] = {(char *)&data[0], (char *)&data[1]};
  Detail other = d;
  other.type = other.result_type = TRAINC_F64;
  OK(run(&other, 5, in, (char *)&data[2]));
  CHECK(strstr(report, "671088640  address space of OpenBLAS")); // of 5 threads
  other = d;
  other.kind = 3;
  refuse(other, "unknown kind");
  other = d;
  other.stride_w = 0;
  refuse(other, "a size is below 1");
  other = d;
  other.low_h = -1;
  refuse(other, "padding is below 0");
  other = d;
  other.accumulate = 1;
  refuse(other, "accumulates");
  other = d;
  other.type = TRAINC_BF16;
  other.result_type = TRAINC_F16;
  refuse(other, "neither");
  other = d;
  other.back_end = TRAINC_BACK_END_CUBLASLT;
  refuse(other, "GPUs");
  return 0;
}
