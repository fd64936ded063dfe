//===- emulator_abi.h - What an image for the emulator is made of ---------===//
//
// An image is a shared library of x86-64 code that exports one symbol,
// `trainc_emu_image`, the struct of that name below. Written by the compiler
// (lib/Target/GPU), read by the emulator.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_EMULATOR_ABI_H
#define TRAINC_EMULATOR_ABI_H

#include <stdint.h>

#define TRAINC_EMU_ABI_VERSION 2u

/// Flags of an access. The alignment that the instruction promises is
/// 1 << (flags >> 4 & 15); the address space is flags >> 8.
enum {
  TRAINC_EMU_READ = 1,
  TRAINC_EMU_WRITE = 2,
  TRAINC_EMU_ATOMIC = 4,
};
#define TRAINC_EMU_FLAGS(how, log2_align, space)                               \
  ((how) | (log2_align) << 4 | (space) << 8)

/// Address spaces, by LLVM's numbers.
enum {
  TRAINC_EMU_GENERIC = 0,
  TRAINC_EMU_GLOBAL = 1,
  TRAINC_EMU_SHARED = 3,
  TRAINC_EMU_CONSTANT = 4,
  TRAINC_EMU_LOCAL = 5,
};

/// Numbers of special registers and of products.
enum {
#define TRAINC_EMU_SPECIAL(NAME, number, text)                                 \
  TRAINC_EMU_SPECIAL_##NAME = number,
#include "trainc/Target/GPU/emulator_abi.def"
#define TRAINC_EMU_MMA(NAME, number, text) TRAINC_EMU_MMA_##NAME = number,
#include "trainc/Target/GPU/emulator_abi.def"
};

/// A kernel. `run` takes pointers to the arguments, as cuLaunchKernel does.
typedef struct trainc_emu_kernel {
  const char *name;
  void (*run)(void **arguments);
  const uint32_t *parameter_bytes;
  uint32_t parameter_count;
  uint32_t shared_bytes;      // static, as a driver would report them
  uint32_t dynamic_shared;    // 1: uses shared memory that the launch sizes
  uint32_t max_threads;       // of a block; 0: not said
  uint32_t required_block[3]; // all 0: not said
  uint32_t reserved;
} trainc_emu_kernel;

/// A variable in shared memory (offset in the block's memory) or of the module
/// (address). A variable of 0 bytes in shared memory is the dynamic part.
typedef struct trainc_emu_variable {
  const char *name;
  void *address;
  uint64_t offset;
  uint64_t bytes;
  uint32_t constant;
  uint32_t reserved;
} trainc_emu_variable;

typedef struct trainc_emu_image {
  uint32_t version;
  uint32_t function_count;   // slots of the table
  const void *const **table; // where to write the table's address
  const trainc_emu_kernel *kernels;
  const trainc_emu_variable *shared;
  const trainc_emu_variable *globals;
  uint32_t kernel_count;
  uint32_t shared_count;
  uint32_t global_count;
  uint32_t site_count;
  /// Where accesses are in the source, as "file:line:column"; site 0 is unknown.
  const char *const *sites;
  /// Where dynamic shared memory begins: behind all variables. Gaps of
  /// TRAINC_EMU_GAP bytes follow each variable, so that an index that is off
  /// by a little lands on none.
  uint64_t dynamic_offset;
} trainc_emu_image;

#define TRAINC_EMU_GAP 128u

#endif
