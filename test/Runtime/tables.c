// Artifacts whose structs have more or fewer members than this runtime's: they train to the
// same bits, unless they use a member that the runtime does not have.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_runtime -lm -o %t
// RUN: %t | FileCheck %s

#include "handmade.h"

static uint32_t sizes[TRAINC_NUM_STRUCTS];
static void follow_row(void *row, uint32_t number);

/// The rows with the sizes of `sizes`, and the tables that they lead to.
static const void *resized(const void *rows, uint64_t count, uint32_t number) {
  if (!rows || !count)
    return rows;
  uint64_t own = struct_bytes[number], size = sizes[number];
  char *all = calloc(count, size), *row = malloc(own);
  for (uint64_t i = 0; i < count; ++i) {
    memcpy(row, (const char *)rows + i * own, own);
    follow_row(row, number);
    memcpy(all + i * size, row, own < size ? own : size);
  }
  free(row);
  return all;
}

#define TRAINC_STRUCT(name, bytes)                                             \
  static void follow_##name(void *data) {                                      \
    trainc_##name *row = data;                                                 \
    (void)row;
#define TRAINC_END(name) }
#define TRAINC_TABLE(name, member, count)                                      \
  row->member = resized(row->member, row->count, TRAINC_STRUCT_##name);
#define TRAINC_NEXT(name, member)                                              \
  row->member = resized(row->member, 1, TRAINC_STRUCT_##name);
#define TRAINC_LISTS(name, member, count)                                      \
  for (int i = 0; i < count; ++i)                                              \
    follow_##name(&row->member[i]);
#include "trainc/step_abi_structs.def"

static void follow_whole_command(void *data) {
  trainc_command *command = data;
  follow_command(command);
  if (command->kind == TRAINC_COMMAND_GEMM)
    command->detail = resized(command->detail, 1, TRAINC_STRUCT_gemm_detail);
}

static void (*const followers[TRAINC_NUM_STRUCTS])(void *) = {
#define TRAINC_STRUCT(name, bytes) follow_##name,
#include "trainc/step_abi_structs.def"
};

static void follow_row(void *row, uint32_t number) {
  if (number == TRAINC_STRUCT_command)
    follow_whole_command(row);
  else
    followers[number](row);
}

/// Opens the tables with the sizes of `sizes`.
static trainc_status open_resized(trainc_artifact **out_artifact,
                                  const trainc_descriptor **out_tables) {
  trainc_descriptor d = trainc_descriptor_handmade;
  d.struct_bytes = sizes;
  const trainc_descriptor *tables = resized(&d, 1, TRAINC_STRUCT_descriptor);
  *out_tables = tables;
  return trainc_artifact_open_descriptor(tables, out_artifact);
}

static void trains_alike(void) {
  trainc_artifact *artifact, *own = open_handmade();
  const trainc_descriptor *tables;
  OK(open_resized(&artifact, &tables));
  trainc_trainer *a = make_trainer(artifact, 2, 7),
                 *b = make_trainer(own, 2, 7);
  double loss = run_steps(a, 0, 5);
  CHECK(loss == run_steps(b, 0, 5));
  CHECK(same_state(a, b));
  trainc_trainer_destroy(a), trainc_trainer_destroy(b);
  trainc_artifact_close(artifact), trainc_artifact_close(own);
}

int main(void) {
  trainc_artifact *artifact;
  const trainc_descriptor *tables;
  // One member more in each struct but that of the lists, which entries contain.
  for (uint32_t i = 0; i < TRAINC_NUM_STRUCTS; ++i)
    sizes[i] = struct_bytes[i] + (i == TRAINC_STRUCT_command_list ? 0 : 8);
  trains_alike();
  // Fewer: without the last members of those whose are 0.
  memcpy(sizes, struct_bytes, sizeof sizes);
  sizes[TRAINC_STRUCT_kernel] -= 8;
  sizes[TRAINC_STRUCT_command] -= 8;
  sizes[TRAINC_STRUCT_descriptor] = offsetof(trainc_descriptor, images);
  trains_alike();
  printf("trained alike\n");
  // CHECK: trained alike

  // A member that is not known and not 0.
  memcpy(sizes, struct_bytes, sizeof sizes);
  sizes[TRAINC_STRUCT_tensor] += 8;
  OK(open_resized(&artifact, &tables));
  trainc_artifact_close(artifact);
  char *row = (char *)tables->tensors + sizes[TRAINC_STRUCT_tensor];
  row[struct_bytes[TRAINC_STRUCT_tensor]] = 1;
  CHECK(trainc_artifact_open_descriptor(tables, &artifact) ==
        TRAINC_ABI_MISMATCH);
  printf("%s\n", trainc_last_error());
  // CHECK: artifact 'handmade' of by hand uses members of trainc_tensor that this runtime (0.1.0) does not have: use a newer runtime, or compile it again
  sizes[TRAINC_STRUCT_command_list] += 8;
  CHECK(trainc_artifact_open_descriptor(tables, &artifact) ==
        TRAINC_DATA_CORRUPT);
  printf("%s\n", trainc_last_error());
  // CHECK: the artifact is damaged: 'handmade' does not know the sizes of its tables
  return 0;
}
