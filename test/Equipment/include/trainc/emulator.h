//===- emulator.h - Runs GPU kernels on the CPU, and checks them ----------===//
//
// Executes images that the compiler makes from the very modules that become
// cubins. It is for tests: each thread of a block is a fiber, blocks run one after
// the other, everything on the calling thread.
//
// What is emulated
//   - Special registers of threads, blocks and lanes; grids and blocks of up to
//     three dimensions, up to 1024 threads; static and dynamic shared memory.
//   - bar.sync 0 of all threads.
//   - Warp operations where exactly the lanes of the mask meet: bar.warp.sync,
//     shfl.sync.bfly.
//   - mma.sync m16n8k16 of f16 and bf16 with f32 sums; ldmatrix m8n8 x1, x2, x4, plain
//     and transposed.
//   - cp.async of 16 bytes with zero fill: data arrive at the wait, not before.
//   - Atomics, loads and stores of any width, libdevice's functions by libm.
// What is not
//   - Clusters, TMA, mbarriers, wgmma, tcgen05, inline PTX, other barriers, other
//     operations of warps and shapes of products, clocks, textures, printf: what no
//     kernel of ours has. The compiler refuses them by name.
//   - Blocks at the same time: a block that waits for another never ends, and is
//     stopped by the limit of accesses.
//   - The rounding of approximate functions: TRAINC_EMULATOR_ULPS=2 in the environment
//     makes f32 functions that are not exact on GPUs wrong by up to so many units in the
//     last place. The order of sums inside of mma: here, of 8 exact products at a time,
//     cut off to f32. The cost of anything.
//   - Bounds of local memory (a thread's own arrays), of which there are 128 KiB.
//
// What is checked, each with a report that names kernel, block, thread, address, and
// the line of the access if the module has locations
//   - Access outside of registered allocations, of module variables and of shared
//     variables; writes to constants; addresses less aligned than the instruction
//     says; reads of shared memory that nothing wrote.
//   - Masks: a lane that does not name itself, names one that has exited, does not
//     exist or never arrives; lanes that meet with different masks or operations;
//     shuffles from lanes outside of the mask.
//   - Barriers that some threads never reach, exited ones included; that threads of a
//     warp reach at different places of the code.
//   - Data races between threads, on shared and on global memory: order comes from
//     barriers and, inside of a warp, from bar.warp.sync and shfl.sync only.
//     Atomics do not race with each other, but with plain accesses they do: a loop of
//     compare and swap begins with an atomic load. Of the reads of a place, the last
//     by each of two threads, and by one of another warp, are remembered: a write is
//     compared with these. Between blocks, atomics order nothing, whatever LLVM
//     calls them: of a block, what a thread did and what a barrier joined to it before
//     a fence of the device and an atomic is known to a thread that reads that place
//     by an atomic and fences then, and to its block behind the next barrier.
//   - Shared memory that a pending cp.async still writes.
// The first fault ends the launch.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_EMULATOR_H
#define TRAINC_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "trainc/Target/GPU/emulator_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAINC_EMU_EXPORT __attribute__((visibility("default")))

typedef enum trainc_emu_status {
  TRAINC_EMU_OK = 0,
  TRAINC_EMU_BAD_ARGUMENT = 1, // of the call: nothing ran
  TRAINC_EMU_BAD_IMAGE = 2,    // not an image, or of another version
  TRAINC_EMU_OUT_OF_MEMORY = 3,
  TRAINC_EMU_OUT_OF_BOUNDS = 10, // faults of kernels, from here on
  TRAINC_EMU_READ_ONLY = 11,
  TRAINC_EMU_MISALIGNED = 12,
  TRAINC_EMU_UNINITIALIZED = 13,
  TRAINC_EMU_BAD_MASK = 14,
  TRAINC_EMU_BAD_BARRIER = 15,
  TRAINC_EMU_DEADLOCK = 16,
  TRAINC_EMU_RACE = 17,
  TRAINC_EMU_PENDING_COPY = 18,
  TRAINC_EMU_LIMIT = 19,
} trainc_emu_status;

/// An emulated device: allocations, loaded images, the last report. One thread at a
/// time may use it; several devices may be used by several threads.
typedef struct trainc_emu trainc_emu;

/// A loaded image. Belongs to its device.
typedef struct trainc_emu_module trainc_emu_module;

/// What launches did since the device was made.
typedef struct trainc_emu_counts {
  uint64_t launches, blocks, threads;
  uint64_t accesses; // loads, stores and atomics
  uint64_t warp_operations;
  uint64_t barriers;
} trainc_emu_counts;

/// Makes a device; NULL when memory is short.
TRAINC_EMU_EXPORT trainc_emu *trainc_emu_create(void);

/// Frees a device and its modules. NULL is allowed.
TRAINC_EMU_EXPORT void trainc_emu_destroy(trainc_emu *device);

/// The order in which blocks and warps run: 0 (at first) is the natural one, any
/// other number a shuffled one.
TRAINC_EMU_EXPORT void trainc_emu_set_seed(trainc_emu *device, uint64_t seed);

/// Whether what a block stores stays unseen by other blocks until the launch ends,
/// unless a fence publishes it (at first not). Races between blocks are not reported
/// then, but make wrong results.
TRAINC_EMU_EXPORT void trainc_emu_set_late_stores(trainc_emu *device, int late);

/// The most accesses that one launch may make (at first 2^31).
TRAINC_EMU_EXPORT void trainc_emu_set_limit(trainc_emu *device,
                                            uint64_t accesses);

/// Says that kernels may access these bytes, which stay the caller's. `name` is
/// copied; reports use it. Fails if the bytes overlap an allocation.
TRAINC_EMU_EXPORT trainc_emu_status trainc_emu_register(trainc_emu *device,
                                                        void *address,
                                                        size_t bytes,
                                                        const char *name);

/// Takes that back; `address` is where the allocation begins.
TRAINC_EMU_EXPORT trainc_emu_status trainc_emu_unregister(trainc_emu *device,
                                                          void *address);

/// Loads an image from memory, which is not needed afterwards.
TRAINC_EMU_EXPORT trainc_emu_status
trainc_emu_load(trainc_emu *device, const void *image, size_t bytes,
                trainc_emu_module **out_module);

/// Unloads it. Its variables are gone, too.
TRAINC_EMU_EXPORT void trainc_emu_unload(trainc_emu_module *module);

/// The image's tables, for as long as the module is loaded.
TRAINC_EMU_EXPORT const trainc_emu_image *
trainc_emu_get_image(const trainc_emu_module *module);

/// A kernel by name, NULL if there is none.
TRAINC_EMU_EXPORT const trainc_emu_kernel *
trainc_emu_find(const trainc_emu_module *module, const char *name);

/// Runs a kernel of `module` to its end, or to its first fault. `arguments` has one
/// pointer per parameter. Equivalent to: cuLaunchKernel and a synchronization.
TRAINC_EMU_EXPORT trainc_emu_status trainc_emu_launch(
    trainc_emu *device, trainc_emu_module *module,
    const trainc_emu_kernel *kernel, const uint32_t grid[3],
    const uint32_t block[3], uint32_t dynamic_shared_bytes, void **arguments);

/// What the last call that failed found, in several lines; valid until the next.
TRAINC_EMU_EXPORT const char *trainc_emu_report(const trainc_emu *device);

TRAINC_EMU_EXPORT void trainc_emu_get_counts(const trainc_emu *device,
                                             trainc_emu_counts *out_counts);

#ifdef __cplusplus
}
#endif

#endif
