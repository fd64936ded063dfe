//===- nccl.h - Collectives between GPUs ------------------------*- C++ -*-===//
//
// A communicator of the ranks' GPUs. The ranks find each other by their trainc_comm,
// which stays what it is: for exchanges between hosts' memories, and to learn early
// that a peer is dead or has given up.
//
// All ranks enqueue the same collectives in the same order. On each rank every
// collective must come behind the one before it, on whatever stream and in whatever
// group: two at once may wait for each other for ever. streams.h does that.
//
// Bits: NCCL adds in an order of its own, and rounds bf16 and f16 on the way. A sum is
// the same on all ranks.
//
// What goes wrong (an error of NCCL or of the device, a deadline, a peer that is dead
// or gives up) is reported with the collective that is not done, the peers are told,
// all of NCCL is aborted, and the trainc_comm refuses everything from then on. The
// watchdog of the trainc_comm does it for calls that do not return.
//
// One thread at a time.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_NCCL_H
#define TRAINC_CUDA_NCCL_H

#include "comm/comm.h"
#include "cuda/device.h"

namespace trainc::cuda {

struct Communicator;

/// Opens NCCL and joins all ranks; all of them call it. `comm` null: one rank, alone.
/// TRAINC_UNSUPPORTED on all ranks if one has no NCCL. Device and comm must outlive it.
trainc_status openCommunicator(Device &device, trainc_comm *comm,
                               Communicator **out_communicator);

/// Everything that was enqueued must be done, unless the trainc_comm has failed, and
/// graphs with collectives must be destroyed: NCCL waits for that. Null is allowed.
void closeCommunicator(Communicator *communicator);

/// Has `destroy` called before NCCL is aborted, to destroy all graphs with collectives:
/// the abort waits for that, too. Within any function of this file that fails.
void setGraphs(Communicator &communicator, void (*destroy)(void *context),
               void *context);

/// Makes a group ready for collectives; its members call it, for the same groups in the
/// same order, outside of captures. Of all ranks: is ready already. Again: does nothing.
trainc_status joinGroup(Communicator &communicator, const Group *group);

/// Tells NCCL of memory that collectives of the groups joined so far will use, so that
/// it need not copy; all ranks call it, with memory of one layout, outside of captures.
/// It is on all ranks or on none: TRAINC_UNSUPPORTED says on every rank who could not,
/// and collectives work all the same.
trainc_status registerMemory(Communicator &communicator, CUdeviceptr address,
                             uint64_t bytes);
/// To be called before registered memory is freed. Other memory: does nothing.
trainc_status forgetMemory(Communicator &communicator, CUdeviceptr address);

/// As Collective of comm/comm.h, but of memory of the device, and without windows:
/// `count` elements at `data`. ReduceScatter and AllReduce may have a `target`, too,
/// which gets the sum of this member's piece, or the whole; `data` then stays.
struct DeviceCollective {
  trainc_collective_kind kind = TRAINC_ALL_REDUCE;
  const Group *group = nullptr; // null: all ranks
  uint32_t dtype = TRAINC_F32;  // sums: not of I16 and BOOL
  uint32_t root = 0;            // Broadcast: index in the group
  uint64_t count = 0;
  CUdeviceptr data = 0;
  CUdeviceptr target = 0; // 0: in place
  const char *label = nullptr;
};

/// Puts collectives behind the work of a stream, in one call of NCCL. Waits for no
/// device.
trainc_status enqueue(Communicator &communicator,
                      const DeviceCollective *collectives, uint32_t count,
                      CUstream stream);

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

/// How many collectives were enqueued, or launched by graphs.
uint64_t enqueued(const Communicator &communicator);

/// Waits until all work before the event's last record is done, at most for the
/// deadline of the trainc_comm. `upTo` is what enqueued() said when the event was
/// recorded behind all of that; less is allowed. Reports say that it was `what` that
/// was waited for.
trainc_status waitFor(Communicator &communicator, CUevent event, uint64_t upTo,
                      const char *what);

/// While this lives, calls of the driver are watched: if they do not return, the
/// watchdog reports it, and ends the process if the trainc_comm has TRAINC_COMM_EXIT.
/// Not around other functions of this file.
class Watch {
public:
  Watch(Communicator &communicator, const char *what);
  ~Watch();
  Watch(const Watch &) = delete;
  Watch &operator=(const Watch &) = delete;

private:
  Communicator &communicator;
};

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// A collective, as reports say it.
struct Site {
  trainc_collective_kind kind;
  const Group *group;
  uint64_t bytes;
  uint64_t number; // in its group
  uint32_t mark;   // what says that it is done
  uint32_t place;  // and where
  char label[72];
};

/// The collectives of a graph.
struct Recording {
  Array<Site> sites;
};

/// What is enqueued from now on is captured; null: not any more.
void record(Communicator &communicator, Recording *recording);

/// To be called before each launch of the graph.
void replay(Communicator &communicator, const Recording &recording);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_NCCL_H
