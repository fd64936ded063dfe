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
#define TRAINC_ABI_VERSION 12

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

/// Collectives of a rank that are started and not yet waited for, at most.
#define TRAINC_MAX_IN_FLIGHT 32

typedef enum trainc_back_end {
#define TRAINC_BACK_END(NAME, number) TRAINC_BACK_END_##NAME = number,
#include "trainc/step_abi.def"
} trainc_back_end;

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

typedef enum trainc_convolution {
#define TRAINC_CONVOLUTION(NAME, number) TRAINC_CONVOLUTION_##NAME = number,
#include "trainc/step_abi.def"
} trainc_convolution;

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

/// A phase of a collective: all of it at once, or its start and, with the same operands, what
/// waits for its end, in the order of such starts. Between the two nothing writes what it reads
/// or touches what it writes.
enum {
  TRAINC_COLLECTIVE_WHOLE = 0,
  TRAINC_COLLECTIVE_START = 1,
  TRAINC_COLLECTIVE_WAIT = 2
};

enum { TRAINC_ENTRY_STEP = 0, TRAINC_ENTRY_EVAL = 1 };

// The structs: see step_abi_structs.def, which says what their members are.
typedef enum trainc_struct {
#define TRAINC_STRUCT(name, bytes) TRAINC_STRUCT_##name,
#include "trainc/step_abi_structs.def"
  TRAINC_NUM_STRUCTS
} trainc_struct;

typedef struct trainc_descriptor trainc_descriptor;

#define TRAINC_STRUCT(name, bytes) typedef struct trainc_##name {
#define TRAINC_END(name)                                                       \
  }                                                                            \
  trainc_##name;
#define TRAINC_U32(member) uint32_t member;
#define TRAINC_I32(member) int32_t member;
#define TRAINC_U64(member) uint64_t member;
#define TRAINC_I64(member) int64_t member;
#define TRAINC_F64(member) double member;
#define TRAINC_STRING(member) const char *member;
#define TRAINC_NUMBERS(type, member, count) const type *member;
#define TRAINC_STRINGS(member, count) const char *const *member;
#define TRAINC_TABLE(name, member, count) const trainc_##name *member;
#define TRAINC_NEXT(name, member) const trainc_##name *member;
#define TRAINC_LISTS(name, member, count) trainc_##name member[count];
#define TRAINC_POINTER(type, member) type member;
#include "trainc/step_abi_structs.def"

#ifdef __cplusplus
#define TRAINC_STATIC_ASSERT static_assert
#else
#define TRAINC_STATIC_ASSERT _Static_assert
#endif
#define TRAINC_STRUCT(name, bytes)                                             \
  TRAINC_STATIC_ASSERT(sizeof(trainc_##name) == bytes,                         \
                       "trainc_" #name " is not of " #bytes " bytes");
#include "trainc/step_abi_structs.def"
#undef TRAINC_STATIC_ASSERT

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
