//===- comm.h - Collectives between ranks -----------------------*- C++ -*-===//
//
// What the trainer uses of a communicator: memory that peers of this host read
// directly (windows), groups of ranks, and collectives that are started and
// waited for. See runtime.h for what a communicator is, internals.h for how it
// is made.
//
// Bits: a sum is ((x0 + x1) + x2) + ... in the order of the group, bf16 and f16
// widened to f32 and rounded once, whichever way the data goes.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_COMM_COMM_H
#define TRAINC_COMM_COMM_H

#include "cpu/pool.h"
#include "trainc/runtime.h"

namespace trainc {

using Comm = trainc_comm;
struct Group;

/// Zeroed memory of this rank that the ranks of its host can read.
struct Window {
  char *data;               // null if bytes is 0
  uint64_t bytes;           // of this rank; others may have more or less
  const char *const *peers; // by rank; null: on another host, or no bytes
  uint32_t number;          // of windows that were made before
};

/// Makes a window; all ranks of the communicator call it, in the same order. If
/// it fails on one rank it fails on all, with the text of the first that failed.
/// The pages are taken when they are first touched. The communicator owns it.
trainc_status createWindow(Comm &comm, uint64_t bytes, Window **out_window);

/// Frees this rank's memory of a window and what it sees of its peers', who keep theirs
/// until they destroy it, too. Nothing of it may be pending. Null is allowed.
void destroyWindow(Comm &comm, Window *window);

/// Puts the pages of this rank's memory together to huge ones, where the system
/// can; those that were not touched are taken, too. Peers follow when they next
/// touch them. For windows that are filled, and read over and over.
void collapseWindow(const Window &window);

/// A group of at least one rank, without repetition, this one among them. The
/// members call it with the same list; groups of the same list in the same
/// order. Does not communicate. The communicator owns it; at most maxGroups.
trainc_status createGroup(Comm &comm, const uint32_t *ranks, uint32_t count,
                          const Group **out_group);
/// The first group of that list, or null.
const Group *findGroup(const Comm &comm, const uint32_t *ranks, uint32_t count);
/// All ranks.
const Group *worldGroup(const Comm &comm);
uint32_t groupSize(const Group &group);
/// This rank's place in the group.
uint32_t groupIndex(const Group &group);
uint32_t groupRank(const Group &group, uint32_t index);

constexpr uint32_t maxGroups = 64;

/// Collectives that may be started and not yet waited for.
constexpr uint32_t maxPending = TRAINC_MAX_IN_FLIGHT;

/// One collective of a group. All members start the same ones in the same order,
/// and two collectives with two ranks in common in the same order on both.
///
/// The range is `count` elements: at `offset` bytes of a window, the same on all
/// members, or at `data`, anywhere. A range in a window is read by the peers
/// themselves, at any time until they have waited too: see fence(). What is
/// anywhere is copied through a ring of shared memory by pieces; that is for
/// small ranges, and the memory is free again when the wait returns.
///
/// With n members the range has n pieces of count / n elements each, piece i
/// belonging to member i (n must divide the count, but for AllReduce).
///   ReduceScatter  piece i becomes the sum of all members' pieces i at member
///                  i; the other pieces are undefined afterwards. With `target`:
///                  that becomes it; of a range at `data` only
///   AllReduce      the range becomes the sum at all members
///   AllGather      piece i becomes that of member i at all members. With
///                  `target`: the range is this member's piece, of `count`
///                  elements, and target gets n x count
///   Broadcast      the range becomes that of member `root`
///   Barrier        no range. start() says "I am here", wait() returns when all
///                  have said so
struct Collective {
  trainc_collective_kind kind = TRAINC_BARRIER;
  const Group *group = nullptr;
  uint32_t dtype = TRAINC_F32; // sums: of floating point only
  uint32_t root = 0;           // Broadcast: index in the group
  uint64_t count = 0;
  const Window *window = nullptr;
  uint64_t offset = 0;
  void *data = nullptr;
  void *target = nullptr;
  const char *label = nullptr; // for reports: what is exchanged; or null
  const char *entry = nullptr; // for reports: in which entry; or null
  /// From 1 on the number of the entry of whose batch the range is made: all members are
  /// to say the same. 0: of any.
  uint32_t batch = 0;
};

/// Says that this rank's range is ready. Does not block. `out_token` may be null.
trainc_status start(Comm &comm, const Collective &collective,
                    uint32_t *out_token);

/// Returns when the range is as described. Collectives are waited for in the
/// order of their starts: those before `token` are waited for first. The work is
/// done by `pool`, or this thread if it is null.
trainc_status wait(Comm &comm, uint32_t token, Pool *pool);

/// start and wait.
trainc_status run(Comm &comm, const Collective &collective, Pool *pool);

/// Returns when no peer reads this rank's windows any more: to be called before
/// a range that was offered is written again, with nothing pending.
trainc_status fence(Comm &comm);

} // namespace trainc

#endif // TRAINC_COMM_COMM_H
