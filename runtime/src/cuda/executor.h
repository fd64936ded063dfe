//===- executor.h - Running command lists on a GPU --------------*- C++ -*-===//
//
// The part of a trainer that is on a GPU: memory, kernels, and the ways between the
// device and the host. Work is handed over in order and done later: commands on one
// stream, collectives that are started apart on a second one.
//
// - A list runs plainly the first time; the second run is captured into a graph, and
//   later ones launch that. With an observer every run is plain and waits for each
//   command.
// - Inputs are copied to one of two pinned slots, from there by the stream. The slot
//   is used again when its copy is done.
// - Scalars: the trainer's block is the host's copy. What differs from what the device
//   is known to have is sent before a list runs; settle() brings the device's back.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_EXECUTOR_H
#define TRAINC_CUDA_EXECUTOR_H

#include "cuda/device.h"

namespace trainc {
struct BoundCommand;
struct EntryState;
class Pages;
} // namespace trainc

namespace trainc::cuda {

struct Executor;

/// Opens device `ordinal`, and in it the image of the artifact's kernels that fits;
/// and cuBLASLt if the artifact multiplies matrices. No wait for the device may take longer than `timeout` seconds.
trainc_status openExecutor(int ordinal, const trainc_descriptor &descriptor,
                           double timeout, Executor **out_executor);

/// Waits for what is under way, and frees all. Null is allowed.
void closeExecutor(Executor *executor);

const Device &deviceOf(const Executor &executor);

/// Pinned memory of the host that it holds.
uint64_t stagingBytes(const Executor &executor);

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Allocates arenas and scratch: persistent ones are zero, constant ones filled.
trainc_status allocateArenas(trainc_trainer *trainer);

/// Opens NCCL for the collectives of all commands, and registers the arenas. All ranks
/// do it.
trainc_status joinRanks(trainc_trainer *trainer);

/// Lets NCCL use the arenas of collectives as they are, if it can. All ranks do it.
trainc_status registerArenas(trainc_trainer *trainer);

/// What is free on the device.
trainc_status freeMemory(Executor &executor, uint64_t *out_bytes);

/// Memory of an arena: persistent ones are zero.
trainc_status allocateArena(trainc_trainer *trainer, const trainc_arena &arena,
                            Pages &pages);
/// Frees it. Waits for all work.
trainc_status releaseArena(trainc_trainer *trainer, Pages &pages);

/// The addresses of arenas have changed: forgets graphs.
void forgetGraphs(Executor &executor);

/// The host's copy of the scalar block.
double *hostScalars(Executor &executor);

/// Keeps the reason of a failure after which the trainer is of no use; returns `status`.
trainc_status keep(Executor &executor, trainc_status status);

/// Waits until everything that was handed over is done.
trainc_status waitForWork(Executor &executor);

/// Copies from and to memory of the device, when all work is done.
trainc_status readMemory(Executor &executor, const void *from, void *to,
                         uint64_t bytes);
trainc_status writeMemory(Executor &executor, void *to, const void *from,
                          uint64_t bytes);

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// Finds the kernel, plans the product, or makes the events, of a command.
trainc_status bindCommand(trainc_trainer *trainer,
                          const trainc_command &command, BoundCommand &bound);

/// An input was bound to memory of the host or to where a gradient stands.
void bindInput(trainc_trainer *trainer, uint32_t entry, uint32_t index,
               const void *data, bool onDevice);

/// Gives the inputs and outputs of an entry memory of the device.
trainc_status prepareEntry(trainc_trainer *trainer, uint32_t entry);

/// Hands a list over; of inputs that it reads what is bound now. If outputs are bound,
/// waits until they are written.
trainc_status runList(trainc_trainer *trainer, uint32_t entry, uint32_t list);

/// Waits until the last run of the entry has written its outputs.
trainc_status outputData(trainc_trainer *trainer, uint32_t entry,
                         uint32_t index, const void **out_data);

/// Waits for all work, and brings the host's scalars up to date, but for those that
/// the host has set since.
trainc_status settle(const trainc_trainer *trainer);

/// The host has set a scalar, which counts even if its value is the old one.
void touchScalar(const trainc_trainer *trainer, uint32_t scalar);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_EXECUTOR_H
