// Converting a state takes no more memory than the larger of both states and 1 MiB:
// random layouts by the trainer's account, one large tensor by the system's. What a
// memory limit refuses is refused before anything changes.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "handmade.h"
#include <sys/resource.h>

enum { MAX_TENSORS = 40, MAX_ARENAS = 20, PAGE = 4096, MEBIBYTE = 1 << 20 };
enum { SCALAR_ARENA = 0, WORKSPACE_ARENA = 1, FIRST_ARENA = 2 };

/// Tensors without a layout.
static uint32_t count;
static char names[MAX_TENSORS][8];
static int64_t sizes[MAX_TENSORS];
static uint32_t roles[MAX_TENSORS];

/// An artifact that lays them out and has no entries.
struct layout {
  trainc_arena arenas[MAX_ARENAS];
  trainc_tensor tensors[MAX_TENSORS];
  trainc_descriptor descriptor;
  trainc_artifact *artifact;
};

static uint64_t random_state = 7;
static uint32_t below(uint32_t limit) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % limit;
}

static void make_tensors(void) {
  static const uint32_t limits[] = {20, 3000, 30000, 300000};
  count = 1 + below(MAX_TENSORS);
  for (uint32_t i = 0; i < count; ++i) {
    static const uint32_t kinds[] = {TRAINC_ROLE_MASTER, TRAINC_ROLE_GRADIENT,
                                     TRAINC_ROLE_BUFFER};
    snprintf(names[i], sizeof names[i], "t%u", i);
    roles[i] = kinds[below(3)];
    sizes[i] = below(limits[below(4)]);
  }
}

/// Arenas are keyed by role and type; tensor i has one of the types
/// [first, first + types).
static void make_layout(struct layout *l, uint32_t first, uint32_t types,
                        int shuffled) {
  uint32_t order[MAX_TENSORS], num_arenas = FIRST_ARENA;
  memset(l, 0, sizeof *l);
  l->arenas[SCALAR_ARENA] = (trainc_arena){
      "scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, NUM_SCALARS * 8, 0, 0, NULL};
  l->arenas[WORKSPACE_ARENA] = (trainc_arena){
      "workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, below(3) * 5000, 0, 0,
      NULL};
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t j = shuffled ? below(i + 1) : i;
    order[i] = order[j];
    order[j] = i;
  }
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t tensor = order[i], dtype = first + below(types), arena;
    for (arena = FIRST_ARENA; arena < num_arenas; ++arena)
      if (l->arenas[arena].role == roles[tensor] &&
          l->arenas[arena].dtype == dtype)
        break;
    if (arena == num_arenas)
      l->arenas[num_arenas++] =
          (trainc_arena){"arena", roles[tensor], dtype, 0, 0, 0, NULL};
    uint64_t offset = (l->arenas[arena].bytes + 63) / 64 * 64;
    uint64_t bytes = (uint64_t)sizes[tensor] * trainc_dtype_size(dtype);
    l->tensors[tensor] = (trainc_tensor){.name = names[tensor],
                                         .role = roles[tensor],
                                         .dtype = dtype,
                                         .rank = 1,
                                         .arena = arena,
                                         .offset = offset,
                                         .bytes = bytes,
                                         .dims = &sizes[tensor]};
    l->arenas[arena].bytes = offset + bytes;
  }
  l->descriptor = trainc_descriptor_handmade;
  l->descriptor.num_arenas = num_arenas;
  l->descriptor.num_tensors = count;
  l->descriptor.num_entries = 0;
  l->descriptor.scalar_arena = SCALAR_ARENA;
  l->descriptor.workspace_arena = WORKSPACE_ARENA;
  l->descriptor.arenas = l->arenas;
  l->descriptor.tensors = l->tensors;
  OK(trainc_artifact_open_descriptor(&l->descriptor, &l->artifact));
}

/// Values that every floating type holds; never 0.
static float value(uint32_t tensor, int64_t i) {
  return (float)(1 + (tensor * 31 + (uint64_t)i) % 199);
}

static trainc_trainer *make_state(const struct layout *l) {
  trainc_trainer *t = make_trainer(l->artifact, 1, 0);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bytes = (uint64_t)sizes[i] * 4;
    float *values = malloc(bytes + 1);
    for (int64_t j = 0; j < sizes[i]; ++j)
      values[j] = value(i, j);
    OK(trainc_tensor_write(t, i, TRAINC_F32, values, bytes));
    free(values);
  }
  return t;
}

/// Is it the state of make_state, in the types of `l`, with zeros around the
/// tensors?
static void check_state(trainc_trainer *t, const struct layout *l) {
  uint64_t bytes[MAX_ARENAS] = {0}, nonzero[MAX_ARENAS] = {0};
  for (uint32_t i = 0; i < count; ++i) {
    const trainc_tensor *held;
    float *values = malloc((uint64_t)sizes[i] * 4 + 1);
    OK(trainc_tensor_get(t, i, &held));
    CHECK(!memcmp(held, &l->tensors[i], sizeof *held));
    OK(trainc_tensor_read(t, i, TRAINC_F32, values, (uint64_t)sizes[i] * 4));
    for (int64_t j = 0; j < sizes[i]; ++j)
      CHECK(values[j] == value(i, j));
    free(values);
    void *data;
    OK(trainc_tensor_data(t, i, &data));
    const char *arena = (const char *)data - held->offset;
    for (uint64_t j = 0;
         !bytes[held->arena] && j < l->arenas[held->arena].bytes; ++j)
      nonzero[held->arena] += arena[j] != 0;
    bytes[held->arena] = 1;
    for (uint64_t j = 0; j < held->bytes; ++j)
      nonzero[held->arena] -= ((const char *)data)[j] != 0;
  }
  for (uint32_t i = 0; i < MAX_ARENAS; ++i)
    CHECK(nonzero[i] == 0);
}

static trainc_memory memory(trainc_trainer *t) {
  trainc_memory use;
  OK(trainc_memory_use(t, &use));
  CHECK(use.total ==
        use.persistent + use.workspace + use.outputs + use.scratch);
  return use;
}

/// Converts with the memory that it needs, after a refusal with one byte less.
static void convert(trainc_trainer *t, const struct layout *from,
                    const struct layout *to, uint64_t slack) {
  trainc_trainer *unlimited = make_state(from);
  trainc_convert_options options = {.size = sizeof options,
                                    .artifact = to->artifact};
  OK(trainc_convert(unlimited, &options));
  uint64_t peak = memory(unlimited).peak, before = memory(t).total;
  trainc_trainer_destroy(unlimited);

  options.memory_limit = peak - 1;
  CHECK(trainc_convert(t, &options) == TRAINC_OUT_OF_MEMORY);
  check_state(t, from);
  CHECK(memory(t).total == before);
  options.memory_limit = peak;
  OK(trainc_convert(t, &options));
  check_state(t, to);
  uint64_t after = memory(t).total, most = before > after ? before : after;
  CHECK(memory(t).peak == peak && peak >= most);
  CHECK(peak <= most + MEBIBYTE + slack);
}

/// Types in both directions, and whether tensors of the two states have other
/// neighbours.
static void test_layouts(uint32_t first, uint32_t types, uint32_t to_first,
                         uint32_t to_types, int shuffled) {
  struct layout a, b;
  make_tensors();
  make_layout(&a, first, types, 0);
  make_layout(&b, to_first, to_types, shuffled);
  trainc_trainer *t = make_state(&a);
  uint64_t slack = shuffled ? count * 2 * PAGE : 0;
  convert(t, &a, &b, slack);
  convert(t, &b, &a, slack);
  trainc_trainer_destroy(t);
  trainc_artifact_close(a.artifact);
  trainc_artifact_close(b.artifact);
}

/// To a type and back: an arena of its own, then the artifact's again.
static void test_types(void) {
  struct layout a;
  make_tensors();
  make_layout(&a, TRAINC_F32, 1, 0);
  trainc_trainer *t = make_state(&a);
  for (uint32_t what = 0; what < 8; ++what)
    for (const char *const *type = (const char *[]){"f64", "bf16", "f16", NULL};
         *type; ++type) {
      uint64_t before = memory(t).total;
      trainc_convert_options options = {
          .size = sizeof options, .dtype = *type, .what = what};
      OK(trainc_convert(t, &options));
      trainc_memory use = memory(t);
      uint64_t most = before > use.total ? before : use.total;
      CHECK(use.peak >= most && use.peak <= most + MEBIBYTE);
      options.dtype = "f32";
      OK(trainc_convert(t, &options));
      check_state(t, &a);
      CHECK(memory(t).total == before);
    }
  trainc_trainer_destroy(t);
  trainc_artifact_close(a.artifact);
}

static uint64_t status_bytes(const char *key) {
  char line[256];
  unsigned long long kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  CHECK(file);
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, key, strlen(key)))
      CHECK(sscanf(line + strlen(key), ": %llu kB", &kilobytes) == 1);
  fclose(file);
  CHECK(kilobytes);
  return kilobytes * 1024;
}

/// A tensor of 64 MiB and one of 16, as the system sees it.
static void test_resident(void) {
  struct layout layouts[3];
  static const uint32_t types[] = {TRAINC_F32, TRAINC_BF16, TRAINC_F64};
  count = 2;
  for (uint32_t i = 0; i < count; ++i) {
    snprintf(names[i], sizeof names[i], "t%u", i);
    roles[i] = TRAINC_ROLE_MASTER;
    sizes[i] = (i ? 4 : 16) * MEBIBYTE;
  }
  for (int i = 0; i < 3; ++i)
    make_layout(&layouts[i], types[i], 1, 0);
  trainc_trainer *t = make_state(&layouts[0]);

  // The system may refuse, too: addresses, before anything has changed.
  struct rlimit old, few;
  CHECK(getrlimit(RLIMIT_AS, &old) == 0);
  few = old;
  few.rlim_cur = status_bytes("VmSize") + 30 * MEBIBYTE;
  CHECK(setrlimit(RLIMIT_AS, &few) == 0);
  trainc_convert_options refused = {.size = sizeof refused,
                                    .artifact = layouts[1].artifact};
  CHECK(trainc_convert(t, &refused) == TRAINC_OUT_OF_MEMORY);
  CHECK(setrlimit(RLIMIT_AS, &old) == 0);
  check_state(t, &layouts[0]);

  for (int i = 1; i <= 6; ++i) {
    trainc_convert_options options = {.size = sizeof options,
                                      .artifact = layouts[i % 3].artifact};
    FILE *file = fopen("/proc/self/clear_refs", "w");
    CHECK(file && fputs("5", file) >= 0); // VmHWM starts again
    fclose(file);
    uint64_t before = status_bytes("VmRSS");
    OK(trainc_convert(t, &options));
    uint64_t after = status_bytes("VmRSS");
    uint64_t most = before > after ? before : after;
    CHECK(status_bytes("VmHWM") <= most + MEBIBYTE);
    // What the smaller state does not need is not resident either.
    uint64_t old = 20 * MEBIBYTE * trainc_dtype_size(types[(i - 1) % 3]);
    uint64_t new = 20 * MEBIBYTE * trainc_dtype_size(types[i % 3]);
    CHECK(after + old < before + new + 2 * MEBIBYTE &&
          before + new < after + old + 2 * MEBIBYTE);
  }
  check_state(t, &layouts[0]);
  trainc_trainer_destroy(t);
  for (int i = 0; i < 3; ++i)
    trainc_artifact_close(layouts[i].artifact);
}

int main(void) {
  // The numbers of the types: F32 0, F64 1, BF16 2, F16 3.
  for (int i = 0; i < 6; ++i) {
    test_layouts(TRAINC_F32, 1, TRAINC_BF16, 1, 0);
    test_layouts(TRAINC_F64, 1, TRAINC_F32, 1, i % 2);
    test_layouts(TRAINC_F32, 1, TRAINC_F32, 4, i % 2);
    test_layouts(TRAINC_F32, 4, TRAINC_F32, 4, i % 2);
    test_types();
  }
  test_resident();
  return 0;
}
