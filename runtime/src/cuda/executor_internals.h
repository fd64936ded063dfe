//===- executor_internals.h - What a trainer has on a GPU -------*- C++ -*-===//
#ifndef TRAINC_CUDA_EXECUTOR_INTERNALS_H
#define TRAINC_CUDA_EXECUTOR_INTERNALS_H

#include "core/trainer.h"
#include "cuda/executor.h"
#include "cuda/products.h"
#include "cuda/streams.h"

namespace trainc::cuda {

/// Blocks of scalars that may be on their way to the device.
constexpr unsigned numScalarSlots = 4;

/// Work that is waited for by an event behind it.
struct Mark {
  CUevent event;
  uint64_t collectives; // enqueued before
};

/// Pinned memory that copies use.
struct Slot {
  char *data;
  Mark done;
};

/// What an entry has on the device, from its first run on.
struct EntryMemory {
  bool ready, sent; // inputs were copied once
  CUdeviceptr inputs, outputs;
  Slot slots[2]; // of inputs
  unsigned next;
  Slot results; // of outputs without a binding
  bool ran[TRAINC_NUM_LISTS];
  bool plain[TRAINC_NUM_LISTS]; // a capture has failed
  CUgraphExec graphs[TRAINC_NUM_LISTS];
  Recording *recordings[TRAINC_NUM_LISTS]; // of collectives in the graphs
};
struct Executor {
  Device *device = nullptr;
  CUmodule module = nullptr;
  Array<CUfunction> kernels;
  double timeout = 0;
  Streams streams;
  Communicator *communicator = nullptr; // null: there is no collective
  Array<CUdeviceptr> registered;        // with NCCL
  CUdeviceptr scratch = 0;
  Products *products = nullptr; // null: there is no product
  CUdeviceptr workspace = 0;    // of the running product
  Array<EntryMemory> entries;
  Array<void *> parameters; // of the launch that is handed over

  Array<double> scalars; // the host's copy
  Array<double> sent;    // what the device has of it, as far as the host knows
  bool changed = false;  // work was handed over that may write scalars
  Slot scalarSlots[numScalarSlots] = {};
  unsigned nextScalars = 0;
  Slot arrived = {};
  Mark idle = {};           // all work
  CUevent before = nullptr; // of a command that is observed
  Mark after = {};
  bool capturing = false;

  Array<CUdeviceptr> owned;
  Array<void *> pinned;
  uint64_t pinnedBytes = 0;
  /// Of a wait or a copy: nothing runs any more.
  trainc_status failed = TRAINC_OK;
  Text failure;
  bool hangs = false; // the device does not answer

  const Driver &driver() const { return *device->driver; }
};

inline CUdeviceptr deviceAddress(const void *address) {
  return reinterpret_cast<uintptr_t>(address);
}
inline char *hostPointer(CUdeviceptr address) {
  return reinterpret_cast<char *>(static_cast<uintptr_t>(address));
}

/// Has nothing failed so far?
trainc_status checkAlive(const Executor &executor);

/// Puts the mark behind all work so far, and waits for it.
trainc_status setMark(Executor &executor, Mark &mark);
trainc_status await(Executor &executor, const Mark &mark, const char *what);

/// Memory that the executor owns, in whole pages, as the trainer counts them.
trainc_status allocateOwned(trainc_trainer *trainer, uint64_t bytes,
                            const char *what, CUdeviceptr *out_address);
trainc_status allocateSlot(Executor &executor, uint64_t bytes, Slot *out_slot);

/// Forgets the graphs of an entry.
void dropGraphs(Executor &executor, EntryMemory &memory);
/// Forgets all of an Executor, the one that is captured, too.
void dropAllGraphs(void *executor);

/// Sends the scalars that the host has set.
trainc_status sendScalars(const trainc_trainer *trainer);

/// Copies what is bound to the device.
trainc_status sendInputs(trainc_trainer *trainer, uint32_t entry);

/// Copies outputs to the host: to bound memory at once, else when they are there.
trainc_status fetchOutputs(trainc_trainer *trainer, uint32_t entry);

/// Decides what a list does of collectives that are started apart.
void matchPhases(Array<BoundCommand> &list);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_EXECUTOR_INTERNALS_H
