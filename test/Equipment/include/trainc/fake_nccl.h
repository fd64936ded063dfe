//===- fake_nccl.h - NCCL between processes of one host ---------*- C++ -*-===//
//
// libtrainc_fake_nccl.so has the functions of libnccl that the runtime calls, over the
// emulated devices of libtrainc_fake_cuda.so: TRAINC_LIBNCCL=libtrainc_fake_nccl.so
// makes the runtime use it. It is for tests.
//
// Collectives are work of the driver of tests: done late, in the order of streams and
// events, recorded by captures, done again by each launch of a graph. They go through
// memory that the processes share, by pieces; a process whose peers have not come goes
// on with other work. Sums are ((x0 + x1) + x2) + ... in the order of ranks, bf16 and
// f16 in f32, rounded after each addition.
//
// Communicators are not blocking, and no other kind is made: what is begun is not there
// before ncclCommGetAsyncError has been asked several times, and until then the
// communicator refuses everything else. Collectives are in their stream only then.
//
// Refused or found
//   - calls without a context, with a communicator that is not there, was aborted, is
//     in progress or belongs to another context
//   - ranges outside of one allocation; source and target that overlap, other than in
//     place: target = source + rank x piece (ReduceScatter), source = target + rank x
//     piece (AllGather), target = source (AllReduce, Broadcast)
//   - a collective that streams and events do not put behind the last one of the
//     device, of whatever communicator: two at once may wait for each other for ever
//   - ranks that do not do the same: kind, count, type and root; memory that is
//     registered on some ranks only, or at different places: a fault of the device
//   - a communicator that is destroyed without ncclCommFinalize, or with memory
//     registered
// As with NCCL, neither ncclCommFinalize nor ncclCommAbort comes to an end while there
// are graphs with collectives of the communicator.
//
// What tests set in the environment. RANK is that in the first communicator of the
// process. WHERE is "init", "register", "finalize", "abort", or a number: the
// collective of that number, from 0, among those that the process calls (for REFUSE
// and STUCK) or does (for the others), in all communicators.
//   TRAINC_FAKE_NCCL_REFUSE=RANK:WHERE:ERROR   the call returns this ncclResult_t
//   TRAINC_FAKE_NCCL_STUCK=RANK:WHERE          the call does not return
//   TRAINC_FAKE_NCCL_FAIL=RANK:WHERE:ERROR     it is never done, and
//                                              ncclCommGetAsyncError says ERROR
//   TRAINC_FAKE_NCCL_HANG=RANK:WHERE           it is never done
//   TRAINC_FAKE_NCCL_DELAY=RANK:WHERE:SECONDS  it begins so much later
//   TRAINC_FAKE_NCCL_DIE=RANK:WHERE            the process is killed
//   TRAINC_FAKE_NCCL_VERSION=NUMBER            at first 22809
//
// One thread at a time; ncclCommGetAsyncError is no exception.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_FAKE_NCCL_H
#define TRAINC_FAKE_NCCL_H

#include "trainc/emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What is there, and what was done since the process began.
typedef struct trainc_fake_nccl_counts {
  uint64_t communicators, registrations;
  uint64_t calls;      // of collectives
  uint64_t done[4];    // as ncclReduceScatter, AllReduce, AllGather, Broadcast
  uint64_t registered; // of those done: in memory that was registered
  uint64_t aborts, polls;
} trainc_fake_nccl_counts;

TRAINC_EMU_EXPORT void
trainc_fake_nccl_get_counts(trainc_fake_nccl_counts *out_counts);

#ifdef __cplusplus
}
#endif

#endif
