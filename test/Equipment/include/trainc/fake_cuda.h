//===- fake_cuda.h - A CUDA driver whose devices are emulated -------------===//
//
// libtrainc_fake_cuda.so has the functions of libcuda that the runtime calls, over
// the emulator: TRAINC_LIBCUDA=libtrainc_fake_cuda.so makes the runtime use it. It is
// for tests.
//
// Work on streams is done as late as possible: nothing runs before somebody asks for
// it (cuStreamQuery, cuEventQuery) or waits for it (cuMemFree, cuMemFreeHost, the
// destruction of a stream, the unloading of a module), and then only what is asked
// for and what that comes after, in an order that the seed chooses among all that
// streams and events allow. A query does one piece of work and says that the rest is
// not ready. So what is read too early, or overwritten too early, is wrong here
// every time. Graphs are launched as what was captured, with its order and no more.
//
// Memory of the device cannot be touched by the host: it is not mapped between two
// pieces of work. At first it holds not-a-numbers.
//
// Refused, as by the driver: calls without a context; the default stream; handles that are not, or no
// longer, there; ranges outside of one allocation; host memory that is not pinned
// (which a driver would accept, and be slow); launches whose grid, block or function
// does not fit; images for other devices; during a capture, calls that the driver
// forbids, work that leaves the capture, an end that leaves work unjoined. A fault
// that the emulator finds is an error of every later call. cuGetErrorString tells
// the last refusal.
//
// Images are shared libraries for the emulator, whatever kind the artifact says.
//
// What tests set in the environment
//   TRAINC_FAKE_CUDA_ARCH     compute capability, at first 90
//   TRAINC_FAKE_CUDA_DEVICES  at first 1
//   TRAINC_FAKE_CUDA_MEMORY   bytes of a device, at first 1 GiB
//   TRAINC_FAKE_CUDA_SEED     of the order of work, at first 0: the order of the calls;
//                             -1: what was called last comes first
//   TRAINC_FAKE_CUDA_DRIVER   the driver's release, at first 13000: of CUDA 13.0
//   TRAINC_FAKE_CUDA_FAIL     what is refused: endcapture, instantiate, launch, each
//                             alone (all of them) or as endcapture:3 (the third one in
//                             the process); several with commas between them
//   TRAINC_FAKE_CUDA_LATE     1: trainc_emu_set_late_stores
//   TRAINC_FAKE_CUDA_HANG     1: no work is ever done
//   TRAINC_FAKE_CUDA_STUCK    the launch of a graph of this number, from 1, does not
//                             return
//
// Thread-safe: one call after the other.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_FAKE_CUDA_H
#define TRAINC_FAKE_CUDA_H

#include "trainc/emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What is there, and what was done since the process began.
typedef struct trainc_fake_cuda_counts {
  uint64_t contexts; // retained and not released
  uint64_t allocations, pinned, streams, events, modules, graphs, executables;
  uint64_t pending; // pieces of work that were not done
  uint64_t launches, copies, fills, graph_launches, calls;
  uint64_t event_waits; // of a stream for an event
  uint64_t queries;     // of streams and events
} trainc_fake_cuda_counts;

TRAINC_EMU_EXPORT void
trainc_fake_cuda_get_counts(trainc_fake_cuda_counts *out_counts);

/// The bytes of a device, from now on.
TRAINC_EMU_EXPORT void trainc_fake_cuda_set_memory(uint64_t bytes);

/// 1: from now on no work is done; 0: work goes on.
TRAINC_EMU_EXPORT void trainc_fake_cuda_set_hang(int hangs);

/// What the last call that failed found; valid until the next one. Runtimes know
/// the driver of tests by this symbol.
TRAINC_EMU_EXPORT const char *trainc_fake_cuda_report(void);

//===----------------------------------------------------------------------===//
// For other libraries of tests, whose work goes into streams too
//===----------------------------------------------------------------------===//

/// Compute capability of the device of this thread's context; 0 if there is none.
TRAINC_EMU_EXPORT uint32_t trainc_fake_cuda_current_arch(void);

/// The CUcontext of this thread, or null.
TRAINC_EMU_EXPORT void *trainc_fake_cuda_context(void);

/// The allocation of the thread's context that has all of these bytes; 0: none has.
TRAINC_EMU_EXPORT uint64_t trainc_fake_cuda_base(uint64_t address,
                                                 uint64_t bytes);

/// Memory of the device.
typedef struct trainc_fake_cuda_range {
  uint64_t address, bytes;
} trainc_fake_cuda_range;

enum {
  TRAINC_FAKE_CUDA_DONE = 0,
  /// Not yet, say because another process has not come: it is called again later, and
  /// other work that is not behind it goes on.
  TRAINC_FAKE_CUDA_AGAIN = 1,
  TRAINC_FAKE_CUDA_FAILED = 2, // an error of every later call, with the report
  TRAINC_FAKE_CUDA_MAX_LANES = 4
};

/// A piece of work that the host does.
typedef struct trainc_fake_cuda_call {
  const char *name; // for reports; it must stay
  /// Is called at its turn, with the ranges mapped, and must not call the driver.
  int (*function)(void *data, char *report, uint64_t report_bytes);
  /// Copied now, and once more for each launch of a graph.
  const void *data;
  uint64_t data_bytes;
  /// All that it touches. Each is of one allocation, now and when it is done.
  const trainc_fake_cuda_range *ranges;
  uint32_t num_ranges;
  /// 0, or less than MAX_LANES: no two pieces of work of one lane may be done at the
  /// same time. One that streams and events do not put behind the one before it is
  /// refused.
  uint32_t lane;
  /// Whose it is; see trainc_fake_cuda_recorded. May be null.
  const void *owner;
} trainc_fake_cuda_call;

/// Puts the work behind the stream's, or into its capture. A CUresult.
TRAINC_EMU_EXPORT unsigned
trainc_fake_cuda_enqueue(void *stream, const trainc_fake_cuda_call *call);

/// Pieces of work of an owner in captures and in graphs that are there, launched or not.
TRAINC_EMU_EXPORT uint64_t trainc_fake_cuda_recorded(const void *owner);

#ifdef __cplusplus
}
#endif

#endif
