//===- nccl_waiting.cpp - Waiting for GPUs, and giving up -----------------===//

#include "cuda/nccl_internals.h"

using namespace trainc;
using namespace trainc::cuda;

/// Time between looks at the peers; between questions to NCCL, which grow to the second.
static constexpr uint64_t lookNs = 5 * msNs, askNs = 10 * msNs,
                          mostAskNs = secondNs;
/// What a peer has done before it is gone may still arrive.
static constexpr uint64_t arrivalNs = 200 * msNs;

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

/// The first collective that is not known to be done, or as many as there are.
static size_t findUnfinished(const Communicator &c) {
  size_t first = c.pending.size();
  for (uint32_t place = 0; place < maxPlaces; ++place) {
    // All up to the one of the present mark are done. If a graph was launched again
    // before anybody waited, that is the first launch: rather too few than too many.
    uint32_t mark = c.progress[place];
    if (mark == c.stale[place])
      mark = 0;
    size_t begin = 0;
    for (size_t i = 0; mark && i < c.pending.size(); ++i)
      if (c.pending[i].place == place && c.pending[i].mark == mark) {
        begin = i + 1;
        while (begin < c.pending.size() && c.pending[begin].place == place &&
               c.pending[begin].mark == mark)
          ++begin; // they were enqueued together
        break;
      }
    while (begin < c.pending.size() && c.pending[begin].place != place)
      ++begin;
    first = begin < first ? begin : first;
  }
  return first;
}

/// "all_reduce 'norm', collective 17 of ranks 0 1 2, 8 bytes"
static void appendSite(Text &text, const Site &site) {
  text.format("%s '%s', collective %llu of ranks", collectiveName(site.kind),
              site.label, print(site.number));
  uint32_t size = groupSize(*site.group), shown = size < 16 ? size : 16;
  for (uint32_t i = 0; i < shown; ++i)
    text.format(" %u", groupRank(*site.group, i));
  if (shown < size)
    text.format(" and %u more", size - shown);
  text.format(", %llu bytes", print(site.bytes));
}

static void appendPeers(Text &text, const Communicator &c, const Group &group) {
  uint32_t shown = 0;
  for (uint32_t i = 0; i < groupSize(group); ++i) {
    if (i == groupIndex(group) || shown == 8)
      continue;
    text.append(shown++ ? ", " : "; peers: ");
    appendRank(text, *c.host, groupRank(group, i));
  }
  if (groupSize(group) > shown + 1)
    text.format(" and %u more", groupSize(group) - shown - 1);
}

/// "; enqueued: 17, by rank 1: 16"
static void appendEnqueued(Text &text, const Communicator &c,
                           const Group &group) {
  text.format("; enqueued: %llu", print(enqueued(c)));
  for (uint32_t i = 0, shown = 0; i < groupSize(group) && shown < 8; ++i) {
    const Rank &rank = c.host->peers[groupRank(group, i)];
    if (!rank.shares)
      continue;
    text.format(", by rank %u: %llu", groupRank(group, i),
                print(rank.control->enqueued.load(std::memory_order_acquire)));
    ++shown;
  }
}

/// "waiting for a step: all_reduce 'norm', ..., on CUDA device 0 (H100), has waited
/// 1.5 s; peers: 1 (host a, pid 4711, alive); enqueued: 17, by rank 1: 14; 3 more behind
/// it"
static void describe(void *context, Text &text) {
  auto &c = *static_cast<Communicator *>(context);
  size_t first = findUnfinished(c);
  const Site *site = c.calling                  ? c.calling
                     : first < c.pending.size() ? &c.pending[first]
                                                : nullptr;
  text.format("%s: ", c.waitingFor);
  if (site)
    appendSite(text, *site);
  else
    text.append("work behind all collectives");
  text.format(", on CUDA device %d (%s), has waited %.1f s", c.device.ordinal,
              c.device.name,
              static_cast<double>(nowNs() - c.host->waitBegin) /
                  static_cast<double>(secondNs));
  const Group &group = site ? *site->group : *worldGroup(*c.host);
  appendPeers(text, c, group);
  appendEnqueued(text, c, group);
  if (!c.calling && first + 1 < c.pending.size())
    text.format("; %zu more behind it", c.pending.size() - first - 1);
}

Watch::Watch(Communicator &communicator, const char *what)
    : communicator(communicator) {
  {
    Lock lock(communicator);
    communicator.waitingFor = what;
  }
  beginWatch(*communicator.host, communicator.host->deadline, describe,
             &communicator);
}

Watch::~Watch() { endWatch(*communicator.host); }

//===----------------------------------------------------------------------===//
// Giving up
//===----------------------------------------------------------------------===//

/// Ends all of NCCL. An abort may hang, too: the watchdog waits for it no longer than
/// for a call after its deadline.
void trainc::cuda::abortAll(Communicator &c) {
  if (c.aborted)
    return;
  c.aborted = true;
  {
    Lock lock(c);
    c.waitingFor = "aborting NCCL";
  }
  beginWatch(*c.host, 0, describe, &c);
  if (c.destroyGraphs)
    c.destroyGraphs(c.graphs);
  for (Joined *joined : c.groups)
    if (joined->comm)
      c.nccl->ncclCommAbort(joined->comm);
  endWatch(*c.host);
}

void trainc::cuda::setGraphs(Communicator &c, void (*destroy)(void *context),
                             void *context) {
  c.destroyGraphs = destroy;
  c.graphs = context;
}

/// Aborts after a failure of the host's communicator, whose text stays.
static trainc_status abortAfter(Communicator &c, trainc_status status) {
  Text text;
  text.append(trainc_last_error());
  abortAll(c);
  return fail(status, "%s", text.c_str());
}

/// Within a Watch. `status` is returned.
static trainc_status giveUp(Communicator &c, trainc_status status,
                            const char *reason) {
  trainc::giveUp(*c.host, nullptr, reason);
  return abortAfter(c, status);
}

trainc_status trainc::cuda::failNccl(Communicator &c, ncclComm_t comm,
                                     const char *call, ncclResult_t result) {
  const char *last = c.nccl->ncclGetLastError(comm);
  Text reason;
  reason.format("NCCL failed: %s: %s", call,
                c.nccl->ncclGetErrorString(result));
  if (last && *last)
    reason.format(" (%s)", last);
  return giveUp(c, TRAINC_COMM_FAILED, reason.c_str());
}

trainc_status trainc::cuda::failDevice(Communicator &c, const char *call,
                                       CUresult result) {
  failCall(call, result);
  Text reason;
  reason.format("CUDA device %d (%s) failed: %s", c.device.ordinal,
                c.device.name, trainc_last_error());
  return giveUp(c, TRAINC_DEVICE_FAILED, reason.c_str());
}

//===----------------------------------------------------------------------===//
// Polling
//===----------------------------------------------------------------------===//

bool trainc::cuda::findDead(const trainc_comm &host, uint32_t &rank) {
  for (rank = 0; rank < host.ranks; ++rank) {
    const Rank &peer = host.peers[rank];
    if (peer.shares && isDead(peer) &&
        peer.control->state.load(std::memory_order_acquire) != CLOSED)
      return true;
  }
  return false;
}

/// Has a rank of this host died or given up?
static bool isAnyGone(const trainc_comm &host) {
  uint32_t dead;
  bool gone = findDead(host, dead);
  for (const Rank &peer : host.peers)
    gone = gone || (peer.shares && peer.control->state.load(
                                       std::memory_order_acquire) == GAVE_UP);
  return gone;
}

/// Gives up if a peer has.
static trainc_status checkOthers(Communicator &c) {
  uint32_t dead;
  if (trainc_status status = checkPeers(*c.host, nullptr))
    return abortAfter(c, status);
  if (!findDead(*c.host, dead))
    return TRAINC_OK;
  Text reason;
  reason.format("rank %u is dead", dead);
  return giveUp(c, TRAINC_COMM_FAILED, reason.c_str());
}

/// Within a Watch: asks `ask` until it sets `done` or fails; gives up at the deadline,
/// or when a peer is gone.
template <typename Ask> static trainc_status poll(Communicator &c, Ask ask) {
  constexpr uint64_t spinNs = 50 * 1000;
  double deadline = c.host->deadline * static_cast<double>(secondNs);
  uint64_t goneAt = UINT64_MAX; // a peer
  for (uint64_t nextLook = lookNs;;) {
    // The time is taken before the answer: a late look is not a late device.
    uint64_t passed = watchedNs(*c.host);
    bool done = false;
    TRAINC_TRY(ask(passed, done));
    if (done)
      return TRAINC_OK;
    if (passed >= nextLook) {
      nextLook = passed + lookNs;
      if (goneAt == UINT64_MAX && isAnyGone(*c.host))
        goneAt = passed;
      if (goneAt == UINT64_MAX || passed - goneAt >= arrivalNs)
        TRAINC_TRY(checkOthers(c));
    }
    if (static_cast<double>(passed) >= deadline) {
      Text reason;
      reason.format("nothing within %g s", c.host->deadline);
      return giveUp(c, TRAINC_COMM_FAILED, reason.c_str());
    }
    if (passed > spinNs)
      sleepNs(passed / 8 < msNs ? passed / 8 : msNs);
  }
}

trainc_status trainc::cuda::settle(Communicator &c, const Joined &joined,
                                   const char *call, ncclResult_t result) {
  if (result == ncclSuccess)
    return TRAINC_OK;
  if (result != ncclInProgress)
    return failNccl(c, joined.comm, call, result);
  return poll(c, [&](uint64_t, bool &done) {
    ncclResult_t now = ncclSuccess;
    ncclResult_t asked = c.nccl->ncclCommGetAsyncError(joined.comm, &now);
    if (asked != ncclSuccess)
      return failNccl(c, joined.comm, "ncclCommGetAsyncError", asked);
    if (now != ncclSuccess && now != ncclInProgress)
      return failNccl(c, joined.comm, call, now);
    done = now == ncclSuccess;
    return TRAINC_OK;
  });
}

/// Within a Watch: has NCCL found an error meanwhile?
static trainc_status askAll(Communicator &c) {
  for (const Joined *joined : c.groups) {
    ncclResult_t now = ncclSuccess;
    ncclResult_t asked = c.nccl->ncclCommGetAsyncError(joined->comm, &now);
    if (asked != ncclSuccess || (now != ncclSuccess && now != ncclInProgress))
      return failNccl(c, joined->comm, "ncclCommGetAsyncError",
                      asked != ncclSuccess ? asked : now);
  }
  return TRAINC_OK;
}

trainc_status trainc::cuda::waitFor(Communicator &c, CUevent event,
                                    uint64_t upTo, const char *what) {
  TRAINC_TRY(checkUsable(*c.host));
  Current current(c.device);
  TRAINC_TRY(current.status());
  Watch watch(c, what);
  uint64_t nextAsk = askNs;
  TRAINC_TRY(poll(c, [&](uint64_t passed, bool &done) {
    CUresult result = c.device.driver->cuEventQuery(event);
    done = result == CUDA_SUCCESS;
    if (!done && result != CUDA_ERROR_NOT_READY)
      return failDevice(c, "cuEventQuery", result);
    if (done || passed < nextAsk)
      return TRAINC_OK;
    nextAsk = passed + (passed < mostAskNs ? passed : mostAskNs);
    return askAll(c);
  }));
  Lock lock(c);
  retire(c, upTo);
  return TRAINC_OK;
}
