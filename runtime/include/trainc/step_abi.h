//===- step_abi.h - What a compiled training step looks like ----*- C -*-===//
//
// A compiled artifact (shared library or object) exports one constant,
// `<module>_descriptor`; a shared library also exports it under the name
// `trainc_descriptor`. All of it is tables: persistent and transient arenas, the
// tensors that live in them, scalars, and per entry the lists of commands over
// planned memory. The runtime (runtime.h) executes the commands. An artifact has
// no undefined symbols: what its kernels call is in the function table whose
// address the runtime stores at open.
//
// C11; alone includable. All pointers in a descriptor are to constant data of
// the artifact, valid while it is loaded, except `functions`.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_STEP_ABI_H
#define TRAINC_STEP_ABI_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRAINC_ABI_MAGIC UINT64_C(0x3143544E49415254) /* "TRAINTC1" */
#define TRAINC_ABI_VERSION 10

typedef enum trainc_dtype {
#define TRAINC_DTYPE(NAME, number, bytes, text) TRAINC_##NAME = number,
#include "trainc/step_abi.def"
} trainc_dtype;

typedef enum trainc_role {
#define TRAINC_ROLE(NAME, number, text) TRAINC_ROLE_##NAME = number,
#include "trainc/step_abi.def"
} trainc_role;

typedef enum trainc_command_kind {
#define TRAINC_COMMAND(NAME, number) TRAINC_COMMAND_##NAME = number,
#include "trainc/step_abi.def"
} trainc_command_kind;

typedef enum trainc_target {
#define TRAINC_TARGET(NAME, number, text) TRAINC_TARGET_##NAME = number,
#include "trainc/step_abi.def"
} trainc_target;

typedef enum trainc_image_kind {
#define TRAINC_IMAGE(NAME, number) TRAINC_IMAGE_##NAME = number,
#include "trainc/step_abi.def"
} trainc_image_kind;

typedef enum trainc_provider {
#define TRAINC_PROVIDER(NAME, number) TRAINC_PROVIDER_##NAME = number,
#include "trainc/step_abi.def"
} trainc_provider;

typedef enum trainc_rate {
#define TRAINC_RATE(NAME, number, text, flops) TRAINC_RATE_##NAME = number,
#include "trainc/step_abi.def"
  TRAINC_NUM_RATES
} trainc_rate;

typedef enum trainc_epilogue {
#define TRAINC_EPILOGUE(NAME, number) TRAINC_EPILOGUE_##NAME = number,
#include "trainc/step_abi.def"
} trainc_epilogue;

typedef enum trainc_bias_gradient {
#define TRAINC_BIAS_GRADIENT(NAME, number) TRAINC_BIAS_GRADIENT_##NAME = number,
#include "trainc/step_abi.def"
} trainc_bias_gradient;

typedef enum trainc_list_kind {
#define TRAINC_LIST(NAME, number) TRAINC_LIST_##NAME = number,
#include "trainc/step_abi.def"
  TRAINC_NUM_LISTS
} trainc_list_kind;

typedef enum trainc_init_kind {
#define TRAINC_INIT(NAME, number) TRAINC_INIT_##NAME = number,
#include "trainc/step_abi.def"
} trainc_init_kind;

enum { TRAINC_SCALAR_SETTABLE = 1, TRAINC_SCALAR_PERSISTENT = 2 };

/// Those of window w are scalars w * TRAINC_NUM_FIXED_SCALARS + TRAINC_SCALAR_NAME. Names
/// of windows but the first begin with the name of its first step and a dot.
typedef enum trainc_fixed_scalar {
#define TRAINC_SCALAR(NAME, index, text, init, flags)                          \
  TRAINC_SCALAR_##NAME = index,
#include "trainc/step_abi.def"
  TRAINC_NUM_FIXED_SCALARS
} trainc_fixed_scalar;

/// Functions that generated code calls; `size` is sizeof of the table. Only
/// reference code allocates: what the compiler fuses needs no buffers.
typedef struct trainc_functions {
  uint64_t size;
#define TRAINC_MATH1(name) double (*name)(double);
#define TRAINC_MATH2(name) double (*name)(double, double);
#include "trainc/step_abi.def"
  void *(*allocate)(uint64_t bytes); /* aborts if there is no memory */
  void (*release)(void *buffer);
} trainc_functions;

/// A kernel computes tile `tile` of `command.tiles`; tiles are independent of
/// each other and may run on any thread in any order. On a GPU a tile is a block of
/// `threads` threads of the kernel of that name in an image, whose parameters are the
/// addresses of the operands and, if it has scratch, that of the scratch. args[i] is the address of
/// the command's i-th operand; scratch points to the kernel's `scratch_bytes`,
/// aligned to 64, whose content is undefined. None of these overlap.
typedef void (*trainc_kernel_fn)(void *const *args, int64_t tile,
                                 void *scratch);

enum { TRAINC_READ = 1, TRAINC_WRITE = 2 };

/// One operand of a command: `bytes` bytes at base[base] + offset. Bases are
/// numbered: the arenas of the descriptor, then the entry's inputs, then its
/// outputs.
typedef struct trainc_operand {
  uint32_t base;
  uint32_t access; /* TRAINC_READ | TRAINC_WRITE */
  uint64_t offset;
  uint64_t bytes;
  uint32_t dtype;
  uint32_t reserved;
} trainc_operand;

/// LAUNCH: kernel `kernel` over `tiles` tiles; no detail.
/// GEMM: operands A, B, C and then, as far as the detail has them, the bias, the
/// auxiliary matrix and the bias gradient; detail trainc_gemm_detail.
/// FILL: one operand, every byte set to 0; no detail.
/// COPY: operands source, target of equal bytes; no detail.
/// REDUCE_SCATTER, ALL_REDUCE, ALL_GATHER: one operand, changed in place, or source
/// and target; detail trainc_collective_detail.
typedef struct trainc_command {
  uint32_t kind;
  uint32_t kernel;
  int64_t tiles;
  uint32_t num_operands;
  uint32_t rate; /* trainc_rate; 0 of collectives */
  const trainc_operand *operands;
  const void *detail;
  const char *label;    /* what it computes: op names, for profiles */
  const char *location; /* file:line:column of the source op */
  int64_t flops;        /* arithmetic of the definition, 2 per multiply-add */
} trainc_command;

/// C = A' B' (+ C if accumulate) (+ bias), row major, over a batch of
/// batch[0] x batch[1] products. A' is m x k (stored k x m if transpose_a),
/// B' is k x n (stored n x k if transpose_b); ld* are the row strides of the
/// stored matrices and stride_* those of the batch, all in elements. bias has n
/// elements of C's type and is added to each row. Accumulation is in f32 (f64 if
/// C is f64). C is cut into tiles of tile_m x tile_n, which depend on shape only.
///
/// Of one product that does not accumulate:
/// `epilogue` changes C. With gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))),
///   GELU       C = gelu(A' B' (+ bias)); the auxiliary matrix, if has_aux, gets what
///              gelu is taken of;
///   GELU_GRAD  C = (A' B') * gelu'(auxiliary matrix); no bias, has_aux is 1.
/// The auxiliary matrix is m x n of C's type with row stride ldc. On a processor what
/// an epilogue starts from is rounded to C's type first.
/// On a GPU only, `bias_gradient` is one more result of C's type, without a bias:
///   A  m elements, the sums of A' over k; with transpose_a;
///   B  n elements, the sums of B' over k; without transpose_b;
///   C  n elements, the sums of the columns of C; with GELU_GRAD.
/// An image of an artifact with such products has kernels for these parts alone, for
/// where no library has an algorithm for the whole (T, F: as "bf16"):
///   trainc_epilogue_T(C, bias, auxiliary matrix, rows, columns, row stride, how), of
///     256 threads, one for each element of C; how: 1 adds the bias, 2 keeps that in the
///     auxiliary matrix, 4 takes gelu, 8 multiplies by the slope of gelu;
///   trainc_column_sums_F_T(matrix, sums, rows, columns, row stride), a block of 1024
///     threads for 32 columns.
/// A and B have no epilogue. f64 has no gelu. On a GPU A and B have the same type: C's,
/// or bf16 or f16 with C in f32.
typedef struct trainc_gemm_detail {
  uint32_t a_type, b_type, c_type;
  uint32_t transpose_a, transpose_b, accumulate, has_bias;
  uint32_t provider; /* trainc_provider; the same one for equal details */
  uint32_t epilogue; /* trainc_epilogue */
  uint32_t has_aux;
  uint32_t bias_gradient; /* trainc_bias_gradient */
  uint32_t reserved;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  int64_t batch[2];
  int64_t stride_a[2], stride_b[2], stride_c[2];
  int64_t tile_m, tile_n;
} trainc_gemm_detail;

/// A phase of a collective. Those that are started apart are waited for in the order of
/// their starts, by commands with the same operands; between the two nothing touches
/// these.
enum {
  TRAINC_COLLECTIVE_WHOLE = 0,
  TRAINC_COLLECTIVE_START = 1,
  TRAINC_COLLECTIVE_WAIT = 2
};

/// A collective of the ranks that differ in `axes` of the mesh alone (bit i: axis i),
/// in their order; all of them run the same collectives in the same order. A range
/// has one equal piece for each of them.
///
/// REDUCE_SCATTER, in place: this rank's piece becomes the sum ((x0 + x1) + x2) + ...
/// over the ranks; the other pieces are undefined afterwards. With a target, that becomes
/// it. ALL_REDUCE: the whole operand becomes the sum or, with `piece_axes`, the one piece
/// of this rank among those that differ in piece_axes. ALL_GATHER, in place: each piece becomes what
/// its rank has there; with a target: the sources of all ranks, one after another.
/// bf16 and f16 are added in f32 and rounded once.
typedef struct trainc_collective_detail {
  uint32_t axes, piece_axes;
  uint32_t dtype;
  uint32_t phase; /* TRAINC_COLLECTIVE_* */
} trainc_collective_detail;

typedef struct trainc_kernel {
  const char *name;
  trainc_kernel_fn function; /* null for a GPU */
  /* Of a running tile; on a GPU of all tiles together: zeros before the first
     launch of any kernel, and then what kernels, one after the other, have left. */
  uint64_t scratch_bytes;
  uint32_t threads; /* of a block on a GPU; else 0 */
  uint32_t reserved;
} trainc_kernel;

/// All kernels of an artifact for GPUs of one architecture: CUBIN for devices of
/// compute capability arch / 10 and the same major, from arch % 10 on; PTX, text for
/// those from `arch` on; HOST, a shared library for the emulator. A driver knows what
/// toolkits of its major release have made, PTX of its release and those before.
typedef struct trainc_image {
  uint32_t kind;    /* trainc_image_kind */
  uint32_t arch;    /* 80, 90, 100, ...; 0 for HOST */
  uint32_t toolkit; /* 13000: of CUDA 13.0; 0 for HOST */
  uint32_t reserved;
  uint64_t bytes;
  const void *data;
} trainc_image;

/// Contiguous memory of the trainer. Persistent arenas keep their content from
/// call to call and start as zeros; the WORKSPACE arena is shared by all entries
/// and undefined between calls. CONSTANT arenas are filled from `data` once.
///
/// An arena with buckets is cut into ranges of whole tensors and padding. Of a bucket
/// of several pieces a rank has one only: the piece of its number among the ranks that
/// differ in `piece_axes` alone. Tensors' offsets are those of the arena with all
/// pieces; `bytes` is what a rank has.
typedef struct trainc_bucket {
  uint64_t first, bytes; /* in the arena with all pieces */
  uint64_t local;        /* where it, or this rank's piece of it, begins */
  uint64_t pieces;       /* 1: a rank has all of it */
} trainc_bucket;

typedef struct trainc_arena {
  const char *name;
  uint32_t role;
  uint32_t dtype;
  uint64_t bytes;
  const void *data;
  uint32_t num_buckets; /* 0: one range that a rank has whole */
  uint32_t piece_axes;  /* bit i: axis i of the mesh */
  const trainc_bucket *buckets;
} trainc_arena;

/// An axis of the mesh that an artifact is compiled for. Ranks are numbered row-major:
/// those that differ in the last axis alone follow each other.
typedef struct trainc_axis {
  const char *name;
  uint64_t size;
} trainc_axis;

/// How a dimension is cut among ranks: into `blocks` ranges of equal size, and each of
/// these into a part for each rank along `axes`: a byte for each, axis + 1, the slowest in
/// the lowest byte. Of a range of n elements and p parts, part i has those from
/// i * ceil(n / p) on, ceil(n / p) of them or as many as there are.
typedef struct trainc_split {
  uint64_t axes; /* 0: every rank has all of it */
  uint64_t blocks;
} trainc_split;

/// A logical tensor in an arena: row major, at `offset` bytes. Parameters,
/// gradients and states of one parameter share `name`; `state` is the state's
/// name, else null. This table is the whole truth about layout: checkpoints and
/// access by name go through it.
///
/// With `splits`, one for each dimension, a rank has a part only: `dims` are those of the
/// whole, `bytes` those of a part. Where a part has fewer elements than others there are
/// zeros in their place.
typedef struct trainc_tensor {
  const char *name;
  const char *state;
  uint32_t role;
  uint32_t dtype;
  uint32_t rank;
  uint32_t arena;
  uint64_t offset;
  uint64_t bytes;
  const int64_t *dims;
  const trainc_split *splits; /* null: whole on every rank */
  int32_t group; /* index into groups; -1: no optimizer (frozen, buffer) */
  uint32_t init; /* trainc_init_kind */
  double init_a, init_b;
  const void *init_data;
} trainc_tensor;

/// One f64 of the scalar block.
typedef struct trainc_scalar {
  const char *name;
  double init;
  uint32_t flags;
  uint32_t reserved;
} trainc_scalar;

/// An input or output of an entry: dense row major. With several ranks `dims` are
/// those of this rank's part; splits[i] says over which axes of the mesh dimension i is
/// cut, a byte for each, axis + 1, the slowest in the lowest byte.
typedef struct trainc_port {
  const char *name;
  uint32_t dtype;
  uint32_t rank;
  const int64_t *dims;
  uint64_t bytes;
  const uint64_t *splits; /* null: whole on every rank */
} trainc_port;

/// Values of integer input `input` must lie in [low, high) or, if has_ignore,
/// equal `ignore`. The runtime checks this before any command of the entry runs.
typedef struct trainc_index_check {
  uint32_t input;
  uint32_t has_ignore;
  int64_t low, high, ignore;
} trainc_index_check;

typedef struct trainc_command_list {
  uint64_t count;
  const trainc_command *commands;
} trainc_command_list;

enum { TRAINC_ENTRY_STEP = 0, TRAINC_ENTRY_EVAL = 1 };

/// A step: the host runs `first` for the first micro-step of a window, `next` for
/// the others, and `apply` after the accumulate-th (or at a flush). An eval runs
/// `first`.
typedef struct trainc_entry {
  const char *name;
  uint32_t kind;
  uint32_t accumulate;
  uint32_t num_inputs, num_outputs, num_checks;
  uint32_t
      window; /* of a step: those of one window train the same parameters */
  const trainc_port *inputs;
  const trainc_port *outputs;
  const trainc_index_check *checks;
  trainc_command_list lists[3];
  uint64_t workspace_bytes;
} trainc_entry;

/// The step, compiled for one target. An artifact may hold several, of which each has
/// its own commands and kernels, and all have the same state, entries and schedule.
typedef struct trainc_descriptor trainc_descriptor;
struct trainc_descriptor {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t size; /* sizeof(trainc_descriptor) */
  const char *name;
  const char *compiler; /* "trainc 0.1.0" */
  const char *triple;
  const char *cpu;
  /// Processor features that the code needs, LLVM's names separated by commas.
  const char *features;
  uint64_t plan_hash;  /* of the tables and the code of kernels */
  uint64_t state_hash; /* of parameters, states and groups: what a state fits */
  uint64_t
      schedule_hash; /* of all collectives in their order; 0: there are none */
  uint32_t num_arenas, num_tensors, num_scalars, num_groups, num_entries,
      num_kernels;
  uint32_t scalar_arena;    /* index of the arena of the scalar block */
  uint32_t workspace_arena; /* index of the WORKSPACE arena */
  uint32_t num_axes;        /* of the mesh; 0: one rank */
  uint32_t num_windows;     /* at least 1 */
  const trainc_arena *arenas;
  const trainc_tensor *tensors;
  const trainc_scalar *scalars;
  const char *const *groups; /* names */
  const trainc_entry *entries;
  const trainc_kernel *kernels;
  const trainc_functions **functions; /* written by the runtime at open */
  const trainc_axis *axes;
  uint32_t target; /* trainc_target */
  uint32_t num_images;
  const trainc_image *images;
  const trainc_descriptor *next; /* the same step for another target, or null */
};

/// A shared library that trainc has linked has a note in a PT_NOTE segment: name "trainc",
/// type TRAINC_NOTE_CHECKSUM, 8 bytes little endian. They are trainc_checksum of the file,
/// from its size on, with these 8 bytes as zeros. The runtime refuses a file with another
/// one before it loads it. Libraries that others link of objects have no note.
#define TRAINC_NOTE_NAME "trainc"
enum { TRAINC_NOTE_CHECKSUM = 1 };

/// The checksum of some more bytes: of little-endian words of 8 bytes, the last one filled
/// up with zeros. A change within one word is always seen.
static inline uint64_t trainc_checksum(uint64_t sum, const void *data,
                                       uint64_t bytes) {
  const unsigned char *next = (const unsigned char *)data;
  for (; bytes; next += 8) {
    uint64_t word = 0, size = bytes < 8 ? bytes : 8;
    if (size == 8)
      memcpy(&word, next, 8);
    else
      memcpy(&word, next, size);
    sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    sum = sum << 29 | sum >> 35;
    bytes -= size;
  }
  return sum;
}

#ifdef __cplusplus
}
#endif

#endif // TRAINC_STEP_ABI_H
