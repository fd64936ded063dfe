// Descriptors with mutated tables: refused, or run without a bad access. The runtime is
// compiled with sanitizers. Arguments: count, seed.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -Wall -Wextra -Werror -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime_sanitized.a -lm -ldl -pthread -o fuzz
// RUN: ./fuzz 20000 1 | FileCheck %s
// CHECK: seed 1
// CHECK: {{[1-9][0-9]*}} accepted, {{[1-9][0-9]*}} refused

#include "handmade.h"

static uint64_t random_state;
static uint64_t next_random(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return random_state >> 33;
}
static long below(long limit) {
  return limit > 0 ? (long)(next_random() % (uint64_t)limit) : 0;
}

/// Every table, writable, and copied anew for each mutant.
static struct {
  trainc_descriptor d;
  trainc_arena arenas[8];
  trainc_tensor tensors[NUM_TENSORS];
  trainc_scalar scalars[NUM_SCALARS];
  trainc_entry entries[2];
  trainc_kernel kernels[6];
  trainc_port ports[3];
  trainc_index_check checks[1];
  trainc_command commands[13];
  trainc_operand operands[13][5];
  trainc_gemm_detail details[13];
  trainc_split splits[2];
  trainc_axis axes[2];
  trainc_bucket buckets[2];
  int64_t dims[3 + NUM_TENSORS][2];
  const char *groups[1];
} t;

static void copy_commands(trainc_command_list *list, unsigned *next) {
  trainc_command *first = &t.commands[*next];
  for (uint64_t i = 0; i < list->count; ++i, ++*next) {
    trainc_command *command = &t.commands[*next];
    *command = list->commands[i];
    memcpy(t.operands[*next], command->operands,
           command->num_operands * sizeof(trainc_operand));
    command->operands = t.operands[*next];
    if (command->detail) {
      memcpy(&t.details[*next], command->detail, sizeof(trainc_gemm_detail));
      command->detail = &t.details[*next];
    }
  }
  list->commands = list->count ? first : NULL;
}

static void copy_tables(void) {
  memset(&t, 0, sizeof t);
  t.d = trainc_descriptor_handmade;
  memcpy(t.arenas, arenas, sizeof arenas);
  memcpy(t.tensors, tensors, sizeof tensors);
  memcpy(t.scalars, scalars, sizeof scalars);
  memcpy(t.entries, entries, sizeof entries);
  memcpy(t.kernels, kernels, sizeof kernels);
  memcpy(t.ports, step_inputs, sizeof step_inputs);
  t.ports[2] = eval_outputs[0];
  t.checks[0] = step_checks[0];
  t.groups[0] = groups[0];
  memcpy(t.dims[0], x_dims, sizeof x_dims);
  t.dims[1][0] = ROWS;
  memcpy(t.dims[2], logits_dims, sizeof logits_dims);
  for (int i = 0; i < 3; ++i)
    t.ports[i].dims = t.dims[i];
  for (int i = 0; i < NUM_TENSORS; ++i) {
    for (uint32_t k = 0; k < tensors[i].rank; ++k)
      t.dims[3 + i][k] = tensors[i].dims[k];
    t.tensors[i].dims = t.dims[3 + i];
  }
  for (int i = 0; i < 2; ++i) {
    t.splits[i].blocks = 1;
    t.axes[i] = (trainc_axis){i ? "data" : "host", 1};
  }
  t.d.arenas = t.arenas;
  t.d.tensors = t.tensors;
  t.d.scalars = t.scalars;
  t.d.entries = t.entries;
  t.d.kernels = t.kernels;
  t.d.groups = t.groups;
  t.entries[0].inputs = t.entries[1].inputs = t.ports;
  t.entries[0].checks = t.checks;
  t.entries[1].outputs = &t.ports[2];
  unsigned next = 0;
  for (int e = 0; e < 2; ++e)
    for (int list = 0; list < TRAINC_NUM_LISTS; ++list)
      copy_commands(&t.entries[e].lists[list], &next);
  // Parts that the valid tables do not have.
  if (below(4) == 0) {
    t.d.axes = t.axes;
    t.d.num_axes = 2;
  }
  if (below(4) == 0)
    t.tensors[0].splits = t.splits;
  if (below(8) == 0) {
    t.buckets[0] = (trainc_bucket){0, FLAT_BYTES, 0, 1};
    t.arenas[MASTER].buckets = t.buckets;
    t.arenas[MASTER].num_buckets = 1;
  }
}

static const uint64_t numbers[] = {0,          1,
                                   2,          3,
                                   4,          7,
                                   8,          64,
                                   255,        256,
                                   4095,       4096,
                                   65536,      INT32_MAX,
                                   UINT32_MAX, UINT64_C(1) << 32,
                                   1u << 31,   UINT64_C(1) << 60,
                                   INT64_MAX,  UINT64_C(1) << 63,
                                   UINT64_MAX, UINT64_MAX - 7};

static uint64_t change(uint64_t value, int bits) {
  switch (below(5)) {
  case 0:
    return value ^ UINT64_C(1) << below(bits);
  case 1:
    return value + 1;
  case 2:
    return value - 1;
  case 3:
    return value * 2;
  default:
    return numbers[below(sizeof numbers / sizeof numbers[0])];
  }
}

#define LENGTH(array) ((long)(sizeof(array) / sizeof((array)[0])))
#define WORD(place) (*(uint32_t *)(place) = (uint32_t)change(*(place), 32))
#define LONG(place) (*(place) = change((uint64_t)*(place), 64))
/// How many rows there are is not written anywhere but here: it only shrinks.
#define COUNT(place) (*(place) -= *(place) ? 1 + (uint32_t)below(*(place)) : 0)
#define NONE(pointer) (*(pointer) = NULL)

static void mutate(void) {
  trainc_arena *arena = &t.arenas[below(LENGTH(t.arenas))];
  trainc_tensor *tensor = &t.tensors[below(LENGTH(t.tensors))];
  trainc_entry *entry = &t.entries[below(2)];
  trainc_kernel *kernel = &t.kernels[below(LENGTH(t.kernels))];
  trainc_port *port = &t.ports[below(LENGTH(t.ports))];
  trainc_command *command = &t.commands[below(LENGTH(t.commands))];
  trainc_operand *operand =
      &t.operands[command - t.commands][below(command->num_operands)];
  trainc_gemm_detail *gemm = &t.details[command - t.commands];
  trainc_command_list *list = &entry->lists[below(TRAINC_NUM_LISTS)];
  uint64_t one = (uint64_t)below(2);
  switch (below(48)) {
  case 0:
    WORD(&t.d.scalar_arena);
    break;
  case 1:
    WORD(&t.d.workspace_arena);
    break;
  case 2:
    COUNT(&t.d.num_arenas);
    break;
  case 3:
    COUNT(&t.d.num_tensors);
    break;
  case 4:
    COUNT(&t.d.num_scalars);
    break;
  case 5:
    COUNT(&t.d.num_entries);
    break;
  case 6:
    COUNT(&t.d.num_kernels);
    break;
  case 7:
    COUNT(&t.d.num_axes);
    break;
  case 8:
    LONG(&t.axes[one].size);
    break;
  case 9: {
    const void **pointers[] = {
        (const void **)&t.d.arenas,      (const void **)&t.d.tensors,
        (const void **)&t.d.scalars,     (const void **)&t.d.entries,
        (const void **)&t.d.kernels,     (const void **)&t.d.groups,
        (const void **)&t.d.name,        (const void **)&t.d.features,
        (const void **)&t.d.functions,   (const void **)&entry->name,
        (const void **)&entry->inputs,   (const void **)&entry->outputs,
        (const void **)&entry->checks,   (const void **)&list->commands,
        (const void **)&kernel->name,    (const void **)&port->name,
        (const void **)&port->dims,      (const void **)&command->operands,
        (const void **)&command->detail, (const void **)&command->label,
        (const void **)&tensor->name,    (const void **)&tensor->state,
        (const void **)&tensor->dims,    (const void **)&tensor->init_data,
        (const void **)&arena->name,     (const void **)&t.d.struct_bytes,
        (const void **)&arena->buckets,  (const void **)&t.groups[0]};
    NONE(pointers[below(LENGTH(pointers))]);
    break;
  }
  case 10:
    WORD(&arena->role);
    break;
  case 11:
    WORD(&arena->dtype);
    break;
  case 12:
  case 13:
    LONG(&arena->bytes);
    break;
  case 14:
    WORD(&arena->piece_axes);
    break;
  case 15:
    LONG(one ? &t.buckets[0].bytes : &t.buckets[0].pieces);
    break;
  case 16:
    WORD(&tensor->role);
    break;
  case 17:
    WORD(&tensor->dtype);
    break;
  case 18:
    tensor->rank = (uint32_t)below(3);
    break;
  case 19:
    WORD(&tensor->arena);
    break;
  case 20:
  case 21:
    LONG(&tensor->offset);
    break;
  case 22:
    LONG(&tensor->bytes);
    break;
  case 23:
    LONG((uint64_t *)&t.dims[below(LENGTH(t.dims))][one]);
    break;
  case 24:
    WORD((uint32_t *)&tensor->group);
    break;
  case 25:
    WORD(&tensor->init);
    break;
  case 26:
    LONG(one ? &t.splits[0].axes : &t.splits[1].blocks);
    break;
  case 27:
    WORD(&entry->kind);
    break;
  case 28:
    WORD(&entry->accumulate);
    break;
  case 29:
    COUNT(one ? &entry->num_inputs : &entry->num_checks);
    break;
  case 30:
    WORD(&t.checks[0].input);
    break;
  case 31:
    COUNT(&list->count);
    break;
  case 32:
    LONG(&kernel->scratch_bytes);
    break;
  case 33:
    WORD(&port->dtype);
    break;
  case 34:
    LONG(&port->bytes);
    break;
  case 35:
    WORD(&command->kind);
    break;
  case 36:
    WORD(&command->kernel);
    break;
  case 37:
    LONG((uint64_t *)&command->tiles);
    break;
  case 38:
    COUNT(&command->num_operands);
    break;
  case 39:
    WORD(&operand->base);
    break;
  case 40:
    LONG(&operand->offset);
    break;
  case 41:
    LONG(&operand->bytes);
    break;
  case 42:
    WORD(&operand->dtype);
    break;
  case 43:
    operand->access = (uint32_t)below(4);
    break;
  case 44: {
    uint32_t *words = &gemm->a_type;
    WORD(&words[below(12)]);
    break;
  }
  case 45:
    LONG(one ? &t.checks[0].begin : &t.checks[0].rows);
    break;
  case 46:
    LONG(one ? &t.checks[0].stride : &t.checks[0].run);
    break;
  default: {
    int64_t *sizes = &gemm->m;
    LONG((uint64_t *)&sizes[below(16)]);
    break;
  }
  }
}

/// Whether the kernels, which know their tables, have what they were written for, and
/// nothing else writes the scalars: the runtime believes what is in them.
static int kernels_fit(void) {
  for (unsigned i = 0, next = 0; i < 2; ++i)
    for (int k = 0; k < TRAINC_NUM_LISTS; ++k) {
      const trainc_command_list *list = &entries[i].lists[k];
      for (uint64_t c = 0; c < list->count; ++c, ++next) {
        const trainc_command *now = &t.commands[next],
                             *was = &list->commands[c];
        for (uint32_t o = 0; o < now->num_operands; ++o)
          if (now->kind != TRAINC_COMMAND_LAUNCH &&
              now->operands[o].base == SCALARS)
            return 0;
        const trainc_gemm_detail *g = now->detail;
        if (now->kind == TRAINC_COMMAND_GEMM && g &&
            (double)g->m * (double)g->n * (double)(g->k + 1) *
                    (double)g->batch >
                1e7)
          return 0; // it would take long
        if (now->kind != TRAINC_COMMAND_LAUNCH)
          continue;
        if (was->kind != now->kind || was->kernel != now->kernel ||
            was->num_operands != now->num_operands || now->tiles > was->tiles ||
            memcmp(was->operands, now->operands,
                   was->num_operands * sizeof(trainc_operand)) ||
            t.kernels[now->kernel].scratch_bytes <
                kernels[now->kernel].scratch_bytes)
          return 0;
      }
    }
  return t.checks[0].input == 1 && t.entries[0].num_checks == 1 &&
         t.d.scalar_arena == SCALARS;
}

/// Makes a trainer, and runs what the runtime itself does.
static void use(trainc_artifact *artifact) {
  static _Alignas(64) char memory[1 << 16];
  trainc_trainer_options options = {.size = sizeof options,
                                    .threads = 1 + (uint32_t)below(2),
                                    .memory_limit = 64 << 20};
  trainc_trainer *trainer;
  if (trainc_trainer_create(artifact, &options, &trainer) != TRAINC_OK) {
    CHECK(trainc_last_error()[0]);
    return;
  }
  const trainc_descriptor *d = trainc_artifact_descriptor(artifact);
  memset(memory, 0, sizeof memory);
  trainc_step_result result;
  for (uint32_t e = 0; e < d->num_entries && kernels_fit(); ++e) {
    int bound = 1;
    for (uint32_t i = 0; i < d->entries[e].num_inputs; ++i)
      bound = bound && d->entries[e].inputs[i].bytes <= sizeof memory &&
              trainc_bind_input(trainer, e, i, memory,
                                d->entries[e].inputs[i].bytes) == TRAINC_OK;
    if (!bound)
      continue;
    if (d->entries[e].kind == TRAINC_ENTRY_EVAL)
      (void)trainc_eval(trainer, e);
    else
      for (int i = 0; i < 3; ++i)
        (void)trainc_step(trainer, e, &result);
  }
  if (below(64) == 0) // a save waits for the disk
    (void)trainc_save(trainer, "mutant.safetensors");
  trainc_trainer_destroy(trainer);
}

int main(int argc, char **argv) {
  long count = argc > 1 ? atol(argv[1]) : 1000, accepted = 0;
  random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)random_state);
  for (long i = 0; i < count; ++i) {
    trainc_artifact *artifact;
    copy_tables();
    for (long n = 1 + below(3); n > 0; --n)
      mutate();
    if (trainc_artifact_open_descriptor(&t.d, &artifact) != TRAINC_OK) {
      CHECK(trainc_last_error()[0]);
      continue;
    }
    ++accepted;
    use(artifact);
    trainc_artifact_close(artifact);
  }
  printf("%ld accepted, %ld refused\n", accepted, count - accepted);
  return 0;
}
