//===- racing_artifact.c - Kernels whose workgroups are not independent ---===//
//
// Each entry launches one kernel over 8 workgroups, with one fault or, in `good_...`,
// none. For `trainc-run --check-workgroups`.
//
// %cc -shared -nostdlib -fPIC -O1 -I runtime/include racing_artifact.c -o racing.so
//
//===----------------------------------------------------------------------===//
#include "../../Runtime/Inputs/struct_bytes.h"
#include "trainc/step_abi.h"
#include <string.h>

enum { SCALARS, WORKSPACE, NUM_ARENAS };
enum { TILES = 8, ROW = 40, COUNT = TILES * ROW };

static const trainc_functions *functions;

#define KERNEL(name)                                                           \
  static void name(void *const *args, int64_t tile, void *scratch)
// Operands: x is read, y written, z read and written; the rows of the workgroup.
#define X ((const float *)args[0])
#define Y ((float *)args[1])
#define Z ((float *)args[2])
#define FOR_ROW(i) for (int64_t i = tile * ROW; i < (tile + 1) * ROW; ++i)

KERNEL(good_rows) {
  float *sums = scratch;
  FOR_ROW(i) sums[i % ROW] = X[i];
  FOR_ROW(i) Y[i] = sums[i % ROW] + 1;
  FOR_ROW(i) Z[i] += Y[i];
}
/// Reads rows of z that nobody writes, and writes its own with what they hold.
KERNEL(good_same) {
  int64_t last = (TILES - 1) * ROW;
  for (int i = 0; i < ROW && tile < TILES - 1; ++i)
    Z[tile * ROW + i] = 0 * Z[last + i] + Z[tile * ROW + i];
}
KERNEL(different) {
  FOR_ROW(i) Y[i] = X[i];
  Y[COUNT] = X[tile];
}
KERNEL(equal) {
  FOR_ROW(i) Y[i] = X[i];
  Y[COUNT + 3] = 7;
}
/// Zeros are added to what another workgroup adds to.
KERNEL(scatter) {
  FOR_ROW(i) Z[i] += X[i];
  Z[tile < 4 ? 11 : 200] += 0 * X[tile];
}
KERNEL(reads) {
  FOR_ROW(i) Y[i] = X[i];
  FOR_ROW(i) Z[i] = X[i] + (tile == 5 ? Y[2 * ROW + 7] : 0);
}
KERNEL(reads_in_place) {
  FOR_ROW(i) Z[i] = 2 * Z[i] + (tile == 3 ? Z[6 * ROW + 1] : 0);
}
/// Partial sums, which the last workgroup adds.
KERNEL(partial) {
  float sum = 0;
  FOR_ROW(i) sum += X[i];
  Y[tile] = sum;
  for (int i = 0; i < TILES && tile == TILES - 1; ++i)
    Y[TILES] = (i ? Y[TILES] : 0) + Y[i];
}
KERNEL(scratch_before) {
  FOR_ROW(i) Y[i] = X[i] + (tile == 2 ? ((float *)scratch)[5] : 0);
}
KERNEL(before) { FOR_ROW(i) Y[i] += X[i]; }
KERNEL(past_end) {
  FOR_ROW(i) Y[i] = X[i];
  if (tile == 6)
    Y[COUNT + 4] = 1;
}
KERNEL(reads_past_end) {
  FOR_ROW(i) Y[i] = X[i] + (tile == 6 ? X[COUNT + 100] : 0);
}
KERNEL(writes_read) {
  FOR_ROW(i) Y[i] = X[i];
  if (tile == 4)
    ((float *)args[0])[9] = 1;
}
KERNEL(nowhere) {
  FOR_ROW(i) Y[i] = X[i];
  if (tile == 1)
    *(volatile float *)16 = 1;
}

#define KERNELS(K)                                                             \
  K(good_rows)                                                                 \
  K(good_same)                                                                 \
  K(different)                                                                 \
  K(equal)                                                                     \
  K(scatter)                                                                   \
  K(reads)                                                                     \
  K(reads_in_place)                                                            \
  K(partial)                                                                   \
  K(scratch_before)                                                            \
  K(before) K(past_end) K(reads_past_end) K(writes_read) K(nowhere)
#define NUMBER(name) NUMBER_##name,
enum { KERNELS(NUMBER) NUM_KERNELS };
#define ROW_OF_KERNEL(name) {#name, name, ROW * 4},
static const trainc_kernel kernels[] = {KERNELS(ROW_OF_KERNEL)};

enum { X_BYTES = COUNT * 4, Y_BYTES = COUNT * 4 + 16, Z_BYTES = COUNT * 4 };
enum { WORKSPACE_BYTES = 2048 + 2048 };
static const trainc_operand operands[] = {
    {NUM_ARENAS, TRAINC_READ, 0, X_BYTES, TRAINC_F32},
    {WORKSPACE, TRAINC_WRITE, 0, Y_BYTES, TRAINC_F32},
    {WORKSPACE, TRAINC_READ | TRAINC_WRITE, 2048, Z_BYTES, TRAINC_F32}};
#define COMMAND(name)                                                          \
  {TRAINC_COMMAND_LAUNCH,                                                      \
   NUMBER_##name,                                                              \
   TILES,                                                                      \
   3,                                                                          \
   0,                                                                          \
   operands,                                                                   \
   0,                                                                          \
   #name,                                                                      \
   "racing.mlir:1:1",                                                          \
   0},
static const trainc_command commands[] = {KERNELS(COMMAND)};

/// Two operands in the same place.
static const trainc_operand overlapping[] = {
    {NUM_ARENAS, TRAINC_READ, 0, X_BYTES, TRAINC_F32},
    {WORKSPACE, TRAINC_WRITE, 768, Y_BYTES, TRAINC_F32},
    {WORKSPACE, TRAINC_READ | TRAINC_WRITE, 2048, Z_BYTES, TRAINC_F32}};
static const trainc_command overlap = {TRAINC_COMMAND_LAUNCH,
                                       NUMBER_good_rows,
                                       TILES,
                                       3,
                                       0,
                                       overlapping,
                                       0,
                                       "overlap",
                                       "racing.mlir:2:1",
                                       0};

static const int64_t dims[] = {TILES, ROW};
static const trainc_port input = {"x", TRAINC_F32, 2, dims, X_BYTES};

#define ENTRY(name, command)                                                   \
  {name,                                                                       \
   TRAINC_ENTRY_STEP,                                                          \
   1,                                                                          \
   1,                                                                          \
   0,                                                                          \
   0,                                                                          \
   0,                                                                          \
   &input,                                                                     \
   0,                                                                          \
   0,                                                                          \
   {{1, command}, {1, command}, {1, command}},                                 \
   WORKSPACE_BYTES},
#define KERNEL_ENTRY(name) ENTRY(#name, &commands[NUMBER_##name])
static const trainc_entry entries[] = {KERNELS(KERNEL_ENTRY)
                                           ENTRY("overlap", &overlap)};

static const trainc_scalar scalars[] = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) {text, init, flags, 0},
#include "trainc/step_abi.def"
};
static const trainc_arena arenas[] = {
    {"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, TRAINC_NUM_FIXED_SCALARS * 8,
     0},
    {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, WORKSPACE_BYTES, 0},
};

extern const trainc_descriptor descriptor __asm__("trainc_descriptor");
const trainc_descriptor descriptor = {
    .magic = TRAINC_ABI_MAGIC,
    .abi_version = TRAINC_ABI_VERSION,
    .num_structs = TRAINC_NUM_STRUCTS,
    .struct_bytes = struct_bytes,
    .name = "racing",
    .compiler = "by hand",
    .triple = "x86_64-unknown-linux-gnu",
    .cpu = "x86-64",
    .features = "",
    .num_arenas = NUM_ARENAS,
    .num_scalars = TRAINC_NUM_FIXED_SCALARS,
    .num_entries = sizeof(entries) / sizeof(*entries),
    .num_kernels = NUM_KERNELS,
    .scalar_arena = SCALARS,
    .workspace_arena = WORKSPACE,
    .num_windows = 1,
    .arenas = arenas,
    .scalars = scalars,
    .entries = entries,
    .kernels = kernels,
    .functions = &functions,
};
