// GEMM commands against sums in f64: all back ends that this CPU has, transposes, batches,
// odd sizes, tiles that do not divide, biases, accumulation, types; and threads bit by
// bit.
//
// RUN: %cc -std=c11 -O1 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t
// RUN: env OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=7 %t f32
// RUN: env TRAINC_AVX2_ONLY=1 %t

#include "values.h"

typedef struct Case {
  uint32_t a, b, c;
  int64_t m, n, k, batch, shares_b, tile_m, tile_n;
} Case;

enum { most = 3 };

/// `number` commands, as the eval of an artifact with the A, B and the bias as inputs
/// and the C in a buffer, one after the other.
static void run(const Case *s, int bias, unsigned threads,
                const char *const in[3], char *c, uint64_t c_bytes,
                const trainc_gemm_detail *detail, const uint64_t bytes[3],
                int number) {
  uint64_t all_a = (uint64_t)number * bytes[0];
  uint64_t all_c = (uint64_t)number * c_bytes;
  trainc_arena run_arenas[] = {
      {"c", TRAINC_ROLE_BUFFER, s->c, all_c, 0, 0, NULL},
      {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, 256, 0, 0, NULL},
      {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, 0, 0, 0, NULL}};
  int64_t dims[4] = {
      (int64_t)(all_a / size_of(s->a)), (int64_t)(bytes[1] / size_of(s->b)),
      (int64_t)(bytes[2] / size_of(s->c)), (int64_t)(all_c / size_of(s->c))};
  trainc_tensor run_tensors[] = {TENSOR("c", NULL, BUFFER, F32, 1, 0, 0, all_c,
                                        &dims[3], CONSTANT, 0, 0, NULL)};
  run_tensors[0].dtype = s->c;
  trainc_port ports[] = {{"a", s->a, 1, &dims[0], all_a, NULL, 0},
                         {"b", s->b, 1, &dims[1], bytes[1], NULL, 0},
                         {"bias", s->c, 1, &dims[2], bytes[2], NULL, 0}};
  trainc_operand operands[most][4];
  trainc_command commands[most];
  for (int i = 0; i < number; ++i) {
    const trainc_operand four[] = {
        {3, TRAINC_READ, i * bytes[0], bytes[0], s->a, 0},
        {4, TRAINC_READ, 0, bytes[1], s->b, 0},
        {0, TRAINC_WRITE, i * c_bytes, c_bytes, s->c, 0},
        {5, TRAINC_READ, 0, bytes[2], s->c, 0}};
    memcpy(operands[i], four, sizeof four);
    commands[i] =
        (trainc_command)GEMM(bias ? 4 : 3, operands[i], *detail, "gemm");
  }
  trainc_entry entry = {"run",
                        TRAINC_ENTRY_EVAL,
                        0,
                        3,
                        0,
                        0,
                        0,
                        ports,
                        NULL,
                        NULL,
                        {{(uint64_t)number, commands}},
                        0};
  trainc_descriptor d = trainc_descriptor_handmade;
  d.num_arenas = 3;
  d.arenas = run_arenas;
  d.num_tensors = 1;
  d.tensors = run_tensors;
  d.num_entries = 1;
  d.entries = &entry;
  d.num_kernels = 0;
  d.scalar_arena = 1;
  d.workspace_arena = 2;
  trainc_artifact *artifact;
  OK(trainc_artifact_open_descriptor(&d, &artifact));
  trainc_trainer *trainer = make_trainer(artifact, threads, 0);
  void *memory;
  OK(trainc_tensor_data(trainer, 0, &memory));
  memcpy(memory, c, all_c);
  for (uint32_t i = 0; i < 3; ++i)
    OK(trainc_bind_input(trainer, 0, i, in[i], i ? bytes[i] : all_a));
  OK(trainc_eval(trainer, 0));
  memcpy(c, memory, all_c);
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
}

/// Whether a back end multiplies these types, and this CPU has it.
static int is_there(const Case *s, uint32_t back_end) {
  int single = s->a == TRAINC_F32 && s->b == TRAINC_F32 && s->c == TRAINC_F32;
  int brain = s->a == TRAINC_BF16 && s->b == TRAINC_BF16;
  switch (back_end) {
  case TRAINC_BACK_END_OPENBLAS:
    return 1;
  case TRAINC_BACK_END_ONEDNN:
    return s->k && (single || (brain && has(" avx512_bf16")));
  case TRAINC_BACK_END_VECTOR:
    return single;
  case TRAINC_BACK_END_AMX:
    return s->k && (single || brain) && has(" amx_bf16");
  }
  return 0;
}

static void compare(const Case *s, uint32_t back_end, int ta, int tb,
                    int accumulate, int bias) {
  int64_t rows_a = ta ? s->k : s->m, lda = (ta ? s->m : s->k) + 3;
  int64_t rows_b = tb ? s->n : s->k, ldb = (tb ? s->k : s->n) + 1;
  int64_t ldc = s->n + 2;
  trainc_gemm_detail g = {.a_type = s->a,
                          .b_type = s->b,
                          .c_type = s->c,
                          .transpose_a = (uint32_t)ta,
                          .transpose_b = (uint32_t)tb,
                          .accumulate = (uint32_t)accumulate,
                          .has_bias = (uint32_t)bias,
                          .back_end = back_end,
                          .m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .lda = lda,
                          .ldb = ldb,
                          .ldc = ldc,
                          .batch = s->batch,
                          .tile_m = s->tile_m,
                          .tile_n = s->tile_n};
  if (back_end == TRAINC_BACK_END_AMX && ta && !tb && !bias &&
      s->c == TRAINC_F32 && s->batch == 1 && s->k > 128)
    g.split_k = s->k / 2 / 32 * 32;
  g.stride_a = rows_a * lda;
  g.stride_b = s->shares_b ? 0 : rows_b * ldb;
  g.stride_c = s->m * ldc + 8;
  uint64_t bytes[3] = {
      (uint64_t)(g.stride_a * s->batch + 1) * size_of(s->a),
      (uint64_t)(rows_b * ldb * (s->shares_b ? 1 : s->batch) + 1) *
          size_of(s->b),
      (uint64_t)(s->n + 1) * size_of(s->c)};
  uint64_t c_bytes = (uint64_t)(g.stride_c * s->batch + 8) * size_of(s->c);
  char *a = malloc(bytes[0]), *b = malloc(bytes[1]), *x = malloc(bytes[2]);
  char *c = malloc(c_bytes), *before = malloc(c_bytes), *more = malloc(c_bytes);
  fill(s->a, a, bytes[0]);
  fill(s->b, b, bytes[1]);
  fill(s->c, x, bytes[2]);
  if (accumulate)
    fill(s->c, before, c_bytes);
  else
    memset(before, 0xFF, c_bytes); // NaN everywhere: it must be overwritten
  memcpy(c, before, c_bytes);
  memcpy(more, before, c_bytes);
  const char *in[3] = {a, b, x};
  run(s, bias, 1, in, c, c_bytes, &g, bytes, 1);
  run(s, bias, 3, in, more, c_bytes, &g, bytes, 1);
  CHECK(memcmp(c, more, c_bytes) == 0);

  double epsilon = s->c == TRAINC_F64    ? 1e-15
                   : s->c == TRAINC_F32  ? 1e-6
                   : s->c == TRAINC_BF16 ? 0x1p-8 * 1.01
                                         : 0x1p-11 * 1.01;
  for (int64_t p = 0; p < s->batch; ++p)
    for (int64_t i = 0; i < s->m; ++i)
      for (int64_t j = 0; j < s->n; ++j) {
        int64_t at = p * g.stride_c + i * ldc + j;
        double sum = accumulate ? get(s->c, before, at) : 0, size = fabs(sum);
        for (int64_t l = 0; l < s->k; ++l) {
          double term =
              get(s->a, a, p * g.stride_a + (ta ? l * lda + i : i * lda + l)) *
              get(s->b, b, p * g.stride_b + (tb ? j * ldb + l : l * ldb + j));
          sum += term;
          size += fabs(term);
        }
        sum += bias ? get(s->c, x, j) : 0;
        double error = fabs(get(s->c, c, at) - sum);
        double wide = s->c == TRAINC_F64 ? 1e-15 : 1e-6;
        if (!(error <= epsilon * fabs(sum) + wide * (size + 1))) {
          printf("back end %u, types %u %u %u, %d x %d x %d, transpose %d %d, "
                 "accumulate %d, bias %d, [%d, %d]: %g, expected %g\n",
                 back_end, s->a, s->b, s->c, (int)s->m, (int)s->n, (int)s->k,
                 ta, tb, accumulate, bias, (int)i, (int)j, get(s->c, c, at),
                 sum);
          exit(1);
        }
        // What is between the rows is untouched.
        memcpy(c + at * (int64_t)size_of(s->c),
               before + at * (int64_t)size_of(s->c), size_of(s->c));
      }
  CHECK(memcmp(c, before, c_bytes) == 0);
  free(a), free(b), free(x), free(c), free(before), free(more);
}

/// Commands that are independent run at once: `number` products of the same B, each
/// with an A and a C of its own. Each is what it is alone.
static void run_together(uint32_t back_end, int64_t m, int64_t n, int64_t k) {
  enum { number = most };
  const Case s = {TRAINC_F32, TRAINC_F32, TRAINC_F32, m, n, k, 1, 0, m, n};
  trainc_gemm_detail g = {.a_type = TRAINC_F32,
                          .b_type = TRAINC_F32,
                          .c_type = TRAINC_F32,
                          .transpose_a = 1,
                          .back_end = back_end,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = m,
                          .ldb = n,
                          .ldc = n,
                          .batch = 1,
                          .tile_m = m,
                          .tile_n = n};
  uint64_t bytes[3] = {(uint64_t)(m * k) * 4, (uint64_t)(k * n) * 4, 4};
  uint64_t c_bytes = (uint64_t)(m * n) * 4;
  char *a = malloc(number * bytes[0]), *b = malloc(bytes[1]), bias[4] = {0};
  char *alone = malloc(number * c_bytes), *all = malloc(number * c_bytes);
  fill(TRAINC_F32, a, number * bytes[0]);
  fill(TRAINC_F32, b, bytes[1]);
  memset(alone, 0xFF, number * c_bytes);
  for (int i = 0; i < number; ++i) {
    const char *in[3] = {a + i * bytes[0], b, bias};
    run(&s, 0, 1, in, alone + i * c_bytes, c_bytes, &g, bytes, 1);
  }
  for (unsigned threads = 2; threads <= 4; ++threads) {
    const char *in[3] = {a, b, bias};
    memset(all, 0xFF, number * c_bytes);
    run(&s, 0, threads, in, all, c_bytes, &g, bytes, number);
    CHECK(memcmp(alone, all, number * c_bytes) == 0);
  }
  free(a), free(b), free(alone), free(all);
}

int main(int argc, char **argv) {
  (void)argv;
  static const uint32_t types[][3] = {{TRAINC_F32, TRAINC_F32, TRAINC_F32},
                                      {TRAINC_F64, TRAINC_F64, TRAINC_F64},
                                      {TRAINC_BF16, TRAINC_BF16, TRAINC_F32},
                                      {TRAINC_BF16, TRAINC_BF16, TRAINC_BF16},
                                      {TRAINC_F16, TRAINC_F16, TRAINC_F16},
                                      {TRAINC_F16, TRAINC_F16, TRAINC_F32},
                                      {TRAINC_BF16, TRAINC_F32, TRAINC_BF16}};
  // m, n, k, batch, whether it shares B, tiles: ones, odd, above the tiles, above the small sizes, rows
  // and columns enough to be cut unequally for two threads.
  static const int64_t sizes[][7] = {
      {1, 1, 1, 1, 0, 4, 4},         {7, 13, 5, 6, 0, 4, 8},
      {7, 13, 5, 6, 1, 4, 8},        {33, 10, 65, 1, 0, 32, 32},
      {64, 96, 48, 2, 0, 64, 96},    {130, 67, 129, 1, 0, 48, 40},
      {3, 5, 1100, 1, 0, 2, 16},     {5, 70, 0, 1, 0, 4, 32},
      {100, 200, 530, 1, 0, 64, 96}, {64, 96, 256, 1, 0, 64, 96},
      {1040, 40, 48, 1, 0, 512, 40}, {40, 1040, 48, 1, 0, 40, 512}};
  int count = 0;
  size_t num_types = argc > 1 ? 1 : sizeof types / sizeof types[0];
  for (size_t t = 0; t < num_types; ++t)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i)
      for (int flags = 0; flags < 16; ++flags) {
        const int64_t *s = sizes[i];
        Case one = {types[t][0], types[t][1], types[t][2], s[0], s[1],
                    s[2],        s[3],        s[4],        s[5], s[6]};
        for (uint32_t back_end = 0; back_end < TRAINC_BACK_END_CUBLASLT;
             ++back_end)
          if (is_there(&one, back_end)) {
            compare(&one, back_end, flags & 1, flags >> 1 & 1, flags >> 2 & 1,
                    flags >> 3);
            ++count;
          }
      }
  const Case single = {TRAINC_F32, TRAINC_F32, TRAINC_F32, 1, 1, 1, 1, 0, 1, 1};
  for (uint32_t back_end = 0; back_end < TRAINC_BACK_END_CUBLASLT; ++back_end)
    if (is_there(&single, back_end)) {
      run_together(back_end, 64, 96, 256);
      run_together(back_end, 96, 40, 300);
    }
  // The environment of OpenBLAS must not choose the kernels, ours may.
  const char *info = trainc_runtime_info();
  printf("%d cases, %s\n", count, info);
  if (getenv("TRAINC_AVX2_ONLY"))
    CHECK(strstr(info, "Haswell"));
  else
    CHECK(!__builtin_cpu_supports("avx512bw") || !strstr(info, "Haswell"));
  return 0;
}
