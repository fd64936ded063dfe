//===- ranks.h - A trainer that is one of several -----------------*- C++ -*-===//
//
// What a trainer needs when its artifact is compiled for a mesh: where it stands in
// the mesh, which part of each tensor it has, memory that its peers read, and the
// collectives of its command lists.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_RANKS_H
#define TRAINC_CORE_RANKS_H

#include "comm/comm.h"
#include "core/kinds.h"
#include "core/status.h"

namespace trainc {

/// Elements [first, first + count) of a tensor, or of the part of it that is this
/// rank's (parts.h), which it has at `data`.
struct Part {
  uint64_t first, count;
  char *data;
};

/// The place of a trainer in the mesh of its artifact.
class Ranks {
public:
  /// Checks that the mesh has as many ranks as the communicator (null: one).
  trainc_status place(trainc_comm *comm, const trainc_descriptor &descriptor);
  /// Checks that all of them have the same artifact and seed.
  trainc_status join(uint64_t seed) const;

  /// Whether there are peers.
  bool any() const { return comm != nullptr; }
  void swap(Ranks &other);
  trainc_comm *communicator() const { return comm; }
  uint32_t coordinate(uint32_t axis) const { return coordinates[axis]; }
  /// The ranks that differ in `axes` alone.
  trainc_status find(uint32_t axes, const Group **out_group) const;
  /// The number of a rank, or of this one, among them, and how many they are.
  uint32_t indexIn(uint32_t axes, uint32_t rank) const;
  uint32_t indexIn(uint32_t axes) const { return indexIn(axes, rank()); }
  uint32_t countIn(uint32_t axes) const;

  /// This rank among all, and how many there are.
  uint32_t rank() const { return comm ? groupIndex(*worldGroup(*comm)) : 0; }
  uint32_t size() const { return comm ? groupSize(*worldGroup(*comm)) : 1; }
  /// agreeOutcome of all ranks. Without peers: `status`.
  trainc_status agree(trainc_status status) const;

private:
  struct Known {
    uint32_t axes;
    const Group *group;
  };

  const trainc_descriptor *d = nullptr;
  trainc_comm *comm = nullptr;
  Array<uint32_t> coordinates;
  mutable Array<Known> groups; // made when they are first asked for
};

/// Small exchanges between all ranks, under a name for reports: the `bytes` bytes of
/// every rank, in their order, and those of the first for all.
trainc_status gatherBytes(trainc_comm &comm, const char *label,
                          const void *data, uint64_t bytes, void *all);
trainc_status broadcastBytes(trainc_comm &comm, const char *label, void *data,
                             uint64_t bytes);

/// TRAINC_OK if `status` is so on every rank of `comm`; else an error on every rank.
trainc_status agreeOutcome(trainc_comm &comm, trainc_status status);

/// Checks that all ranks of `comm` have the same `value` of `what`.
trainc_status agree(trainc_comm &comm, const char *what, uint64_t value);

} // namespace trainc

#endif // TRAINC_CORE_RANKS_H
