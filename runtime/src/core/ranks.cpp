//===- ranks.cpp - A trainer that is one of several -----------------------===//

#include "core/ranks.h"
#include <time.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Small exchanges
//===----------------------------------------------------------------------===//

static Collective ofBytes(trainc_comm &comm, trainc_collective_kind kind,
                          const char *label, void *data, uint64_t bytes) {
  Collective collective;
  collective.kind = kind;
  collective.group = worldGroup(comm);
  collective.dtype = TRAINC_U8;
  collective.count = bytes;
  collective.data = data;
  collective.label = label;
  return collective;
}

trainc_status trainc::gatherBytes(trainc_comm &comm, const char *label,
                                  const void *data, uint64_t bytes, void *all) {
  Collective gather =
      ofBytes(comm, TRAINC_ALL_GATHER, label, const_cast<void *>(data), bytes);
  gather.target = all;
  return run(comm, gather, nullptr);
}

trainc_status trainc::broadcastBytes(trainc_comm &comm, const char *label,
                                     void *data, uint64_t bytes) {
  return run(comm, ofBytes(comm, TRAINC_BROADCAST, label, data, bytes),
             nullptr);
}

//===----------------------------------------------------------------------===//
// Agreement
//===----------------------------------------------------------------------===//

trainc_status trainc::agree(trainc_comm &comm, const char *what,
                            uint64_t value) {
  uint32_t size = groupSize(*worldGroup(comm));
  Array<uint64_t> all;
  all.resize(size);
  TRAINC_TRY(gatherBytes(comm, what, &value, sizeof(value), all.data()));
  Text others;
  for (uint32_t i = 1; i < size; ++i)
    if (all[i] != all[0])
      others.format("%s%u", others.size() ? ", " : "", i);
  if (!others.size())
    return TRAINC_OK;
  return fail(TRAINC_MISMATCH,
              "ranks differ in %s: rank 0 has %016llx, other values are on "
              "rank %s; this is rank %u with %016llx",
              what, static_cast<unsigned long long>(all[0]), others.c_str(),
              groupIndex(*worldGroup(comm)),
              static_cast<unsigned long long>(value));
}

trainc_status trainc::agreeOutcome(trainc_comm &comm, trainc_status status) {
  struct Outcome {
    uint64_t status;
    char text[248];
  } mine = {};
  mine.status = status;
  Text own; // peers get the beginning of it
  own.append(status != TRAINC_OK ? trainc_last_error() : "");
  snprintf(mine.text, sizeof(mine.text), "%s", own.c_str());
  Array<Outcome> all;
  all.resize(groupSize(*worldGroup(comm)));
  trainc_status gathered =
      gatherBytes(comm, "outcome", &mine, sizeof(mine), all.data());
  if (status != TRAINC_OK)
    return fail(status, "%s", own.c_str());
  TRAINC_TRY(gathered);
  for (uint32_t i = 0; i < all.size(); ++i)
    if (all[i].status != TRAINC_OK)
      return fail(static_cast<trainc_status>(all[i].status), "rank %u: %s", i,
                  all[i].text);
  return TRAINC_OK;
}

trainc_status trainc_comm_agree(trainc_comm *comm, const char *what,
                                uint64_t value) {
  return comm ? trainc::agree(*comm, what, value) : TRAINC_OK;
}

trainc_status trainc_comm_all_gather(trainc_comm *comm, const void *data,
                                     uint64_t bytes, void *out_all) {
  return gatherBytes(*comm, "all_gather", data, bytes, out_all);
}

/// The median of the times that the collective took.
static trainc_status measure(trainc_comm *comm, const Collective &measured,
                             double *out_seconds) {
  constexpr int count = 7;
  double sorted[count];
  for (int i = 0; i < count; ++i) {
    TRAINC_TRY(trainc_comm_barrier(comm));
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    TRAINC_TRY(run(*comm, measured, nullptr));
    TRAINC_TRY(fence(*comm));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = static_cast<double>(end.tv_sec - begin.tv_sec) +
                     1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
    int at = i;
    for (; at > 0 && sorted[at - 1] > seconds; --at)
      sorted[at] = sorted[at - 1];
    sorted[at] = seconds;
  }
  *out_seconds = sorted[count / 2];
  return TRAINC_OK;
}

trainc_status trainc_comm_measure(trainc_comm *comm,
                                  trainc_collective_kind kind, uint64_t bytes,
                                  double *out_seconds) {
  Window *window = nullptr;
  TRAINC_TRY(createWindow(*comm, bytes, &window));
  memset(window->data, 0, bytes); // touches all pages
  Collective measured;
  measured.kind = kind;
  measured.group = worldGroup(*comm);
  measured.count = bytes / 4;
  measured.window = window;
  measured.label = "measurement";
  trainc_status status = measure(comm, measured, out_seconds);
  destroyWindow(*comm, window);
  return status;
}

//===----------------------------------------------------------------------===//
// The mesh
//===----------------------------------------------------------------------===//

trainc_status Ranks::place(trainc_comm *newComm,
                           const trainc_descriptor &descriptor) {
  d = &descriptor;
  uint64_t ranks = 1;
  Text mesh;
  for (uint32_t i = 0; i < d->num_axes; ++i) {
    ranks *= d->axes[i].size;
    mesh.format("%s%s = %llu", i ? ", " : "", d->axes[i].name,
                static_cast<unsigned long long>(d->axes[i].size));
  }
  uint32_t have = newComm ? groupSize(*worldGroup(*newComm)) : 1;
  if (ranks != have)
    return fail(TRAINC_MISMATCH,
                "artifact '%s' is compiled for %llu ranks (%s), there %s %u%s",
                d->name, static_cast<unsigned long long>(ranks),
                mesh.size() ? mesh.c_str() : "no mesh",
                have == 1 ? "is" : "are", have,
                newComm ? "" : ": the trainer has no communicator");
  if (ranks == 1)
    return TRAINC_OK;
  comm = newComm;
  uint32_t rest = groupIndex(*worldGroup(*comm));
  coordinates.resize(d->num_axes);
  for (uint32_t i = d->num_axes; i-- > 0;) {
    coordinates[i] = rest % static_cast<uint32_t>(d->axes[i].size);
    rest /= static_cast<uint32_t>(d->axes[i].size);
  }
  return TRAINC_OK;
}

trainc_status Ranks::join(uint64_t seed) const {
  if (!comm)
    return TRAINC_OK;
  TRAINC_TRY(
      trainc::agree(*comm, "the schedule of collectives", d->schedule_hash));
  TRAINC_TRY(trainc::agree(*comm, "the artifact", d->plan_hash));
  return trainc::agree(*comm, "the seed", seed);
}

trainc_status Ranks::agree(trainc_status status) const {
  return comm ? agreeOutcome(*comm, status) : status;
}

void Ranks::swap(Ranks &other) {
  trainc::swap(d, other.d);
  trainc::swap(comm, other.comm);
  coordinates.swap(other.coordinates);
  groups.swap(other.groups);
}

uint32_t Ranks::indexIn(uint32_t axes, uint32_t rank) const {
  uint32_t index = 0, factor = 1;
  for (uint32_t i = comm ? d->num_axes : 0; i-- > 0;) {
    uint32_t size = static_cast<uint32_t>(d->axes[i].size);
    if (axes >> i & 1) {
      index += rank % size * factor;
      factor *= size;
    }
    rank /= size;
  }
  return index;
}

uint32_t Ranks::countIn(uint32_t axes) const {
  uint32_t count = 1;
  for (uint32_t i = 0; comm && i < d->num_axes; ++i)
    if (axes >> i & 1)
      count *= static_cast<uint32_t>(d->axes[i].size);
  return count;
}

trainc_status Ranks::find(uint32_t axes, const Group **out_group) const {
  for (const Known &known : groups)
    if (known.axes == axes) {
      *out_group = known.group;
      return TRAINC_OK;
    }
  Array<uint32_t> members;
  uint32_t size = groupSize(*worldGroup(*comm));
  for (uint32_t rank = 0; rank < size; ++rank) {
    uint32_t rest = rank;
    bool member = true;
    for (uint32_t i = d->num_axes; i-- > 0;) {
      uint32_t at = rest % static_cast<uint32_t>(d->axes[i].size);
      rest /= static_cast<uint32_t>(d->axes[i].size);
      member = member && (axes >> i & 1 || at == coordinates[i]);
    }
    if (member)
      members.push(rank);
  }
  uint32_t count = static_cast<uint32_t>(members.size());
  // Trainers that follow each other share it.
  const Group *group = findGroup(*comm, members.data(), count);
  if (!group)
    TRAINC_TRY(createGroup(*comm, members.data(), count, &group));
  groups.push({axes, group});
  *out_group = group;
  return TRAINC_OK;
}
