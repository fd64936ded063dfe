//===- nccl.cpp - Collectives between GPUs --------------------------------===//
//
// Which collective is not done? Behind each one its stream copies a number, the mark,
// to memory of the host. Graphs do it, too, each time they are launched. So a report
// finds the first one whose mark has not come.
//
//===----------------------------------------------------------------------===//

#include "cuda/nccl.h"
#include "comm/internals.h"
#include "core/ranks.h"
#include "cuda/nccl_library.h"

using namespace trainc;
using namespace trainc::cuda;

/// Marks are the numbers below; 0 is none.
static constexpr uint32_t maxMarks = 4096;
/// Streams that have a place for their mark.
static constexpr uint32_t maxPlaces = 8;
/// Collectives that reports know of.
static constexpr size_t maxKnown = 1 << 16;

/// Time between looks at the peers; between questions to NCCL, which grow to the second.
static constexpr uint64_t lookNs = 5 * msNs, askNs = 10 * msNs,
                          mostAskNs = secondNs;
/// What a peer has done before it is gone may still arrive.
static constexpr uint64_t arrivalNs = 200 * msNs;

namespace {
struct Registered {
  CUdeviceptr address;
  void *handle;
};

/// A group with its communicator of NCCL.
struct Joined {
  const Group *group = nullptr;
  ncclComm_t comm = nullptr;
  uint64_t number = 0; // collectives
  Array<Registered> memory;
};
} // namespace

struct trainc::cuda::Communicator {
  const Device &device;
  const Nccl *nccl = nullptr;
  trainc_comm *host = nullptr;
  bool ownsHost = false, aborted = false;
  void (*destroyGraphs)(void *context) = nullptr;
  void *graphs = nullptr;
  Array<Joined *> groups;

  /// On the device: 0, 1, 2, ...
  CUdeviceptr marks = 0;
  uint32_t nextMark = 1;
  /// On the host: the last mark of each stream. One that was there when others were
  /// retired says nothing: graphs use their marks over and over.
  volatile uint32_t *progress = nullptr;
  uint32_t stale[maxPlaces] = {};
  CUstream places[maxPlaces] = {};

  // For reports: under the host communicator's mutex.
  const char *waitingFor = "";
  const Site *calling = nullptr; // what is enqueued just now
  Array<Site> pending;           // in the order in which they will be done
  uint64_t retired = 0;          // those before the first of `pending`
  Recording *recording = nullptr;

  explicit Communicator(const Device &device) : device(device) {}
};

namespace {
/// Holds the mutex of what reports read.
class Lock {
public:
  explicit Lock(const Communicator &c) : mutex(c.host->mutex) {
    pthread_mutex_lock(&mutex);
  }
  ~Lock() { pthread_mutex_unlock(&mutex); }
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

private:
  pthread_mutex_t &mutex;
};
} // namespace

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

static unsigned long long print(uint64_t value) { return value; }

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
                print(rank.control->enqueued.load()));
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
static void abortAll(Communicator &c) {
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

static trainc_status failNccl(Communicator &c, ncclComm_t comm,
                              const char *call, ncclResult_t result) {
  const char *last = c.nccl->ncclGetLastError(comm);
  Text reason;
  reason.format("NCCL failed: %s: %s", call,
                c.nccl->ncclGetErrorString(result));
  if (last && *last)
    reason.format(" (%s)", last);
  return giveUp(c, TRAINC_COMM_FAILED, reason.c_str());
}

static trainc_status failDevice(Communicator &c, const char *call,
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

/// A rank of this host that has died. One that had destroyed its communicator before
/// has done its part of all that is under way.
static bool findDead(const trainc_comm &host, uint32_t &rank) {
  for (rank = 0; rank < host.ranks; ++rank) {
    const Rank &peer = host.peers[rank];
    if (peer.shares && isDead(peer) && peer.control->state.load() != CLOSED)
      return true;
  }
  return false;
}

/// Has a rank of this host died or given up?
static bool isAnyGone(const trainc_comm &host) {
  uint32_t dead;
  bool gone = findDead(host, dead);
  for (const Rank &peer : host.peers)
    gone = gone || (peer.shares && peer.control->state.load() == GAVE_UP);
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

/// Within a Watch: `call` on this communicator returned `result`; waits until it is
/// through with that.
static trainc_status settle(Communicator &c, const Joined &joined,
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

//===----------------------------------------------------------------------===//
// Opening and closing
//===----------------------------------------------------------------------===//

static trainc_status prepareMarks(Communicator &c, Device &device) {
  void *memory = nullptr;
  TRAINC_TRY(allocatePinned(device, maxPlaces * sizeof(uint32_t), &memory));
  memset(memory, 0, maxPlaces * sizeof(uint32_t));
  c.progress = static_cast<uint32_t *>(memory);
  TRAINC_TRY(allocate(device, maxMarks * sizeof(uint32_t), &c.marks));
  uint32_t numbers[maxMarks];
  for (uint32_t i = 0; i < maxMarks; ++i)
    numbers[i] = i;
  return upload(device, c.marks, numbers, sizeof(numbers));
}

static trainc_status open(Communicator &c, Device &device) {
  trainc_status status = openNccl(&c.nccl);
  if (status == TRAINC_OK)
    status = prepareMarks(c, device);
  TRAINC_TRY(agreeOutcome(*c.host, status));
  TRAINC_TRY(agree(*c.host, "the version of NCCL",
                   static_cast<uint64_t>(c.nccl->version)));
  if (!c.host->watched)
    TRAINC_TRY(startWatchdog(*c.host));
  return joinGroup(c, worldGroup(*c.host));
}

trainc_status trainc::cuda::openCommunicator(Device &device, trainc_comm *comm,
                                             Communicator **out_communicator) {
  *out_communicator = nullptr;
  trainc_comm_options alone = {};
  alone.size = sizeof(alone);
  alone.bootstrap = "self";
  trainc_comm *own = nullptr;
  if (!comm)
    TRAINC_TRY(trainc_comm_create(&alone, &own));
  void *memory = aligned_alloc(64, alignUp(sizeof(Communicator), 64));
  if (!memory)
    abort(); // as reallocate does
  auto *c = ::new (memory) Communicator(device);
  c->host = comm ? comm : own;
  c->ownsHost = own != nullptr;
  trainc_status status = open(*c, device);
  if (status == TRAINC_OK) {
    *out_communicator = c;
    return status;
  }
  Text text;
  text.append(trainc_last_error());
  closeCommunicator(c);
  return fail(status, "%s", text.c_str());
}

static trainc_status closeGroup(Communicator &c, Joined &joined) {
  Watch watch(c, "closing NCCL");
  const Nccl &nccl = *c.nccl;
  for (Registered one : joined.memory)
    TRAINC_TRY(settle(c, joined, "ncclCommDeregister",
                      nccl.ncclCommDeregister(joined.comm, one.handle)));
  joined.memory.clear();
  TRAINC_TRY(settle(c, joined, "ncclCommFinalize",
                    nccl.ncclCommFinalize(joined.comm)));
  ncclResult_t result = nccl.ncclCommDestroy(joined.comm);
  if (result != ncclSuccess)
    return failNccl(c, joined.comm, "ncclCommDestroy", result);
  joined.comm = nullptr;
  return TRAINC_OK;
}

void trainc::cuda::closeCommunicator(Communicator *communicator) {
  if (!communicator)
    return;
  Communicator &c = *communicator;
  {
    Current current(c.device);
    uint32_t dead;
    bool clean = !c.host->failure.size() && !findDead(*c.host, dead);
    for (Joined *joined : c.groups)
      if (clean && joined->comm)
        clean = closeGroup(c, *joined) == TRAINC_OK;
    if (!clean && c.nccl)
      abortAll(c);
  }
  for (Joined *joined : c.groups)
    destroy(joined);
  release(c.device, c.marks);
  releasePinned(c.device, const_cast<uint32_t *>(c.progress));
  if (c.ownsHost)
    trainc_comm_destroy(c.host);
  destroy(communicator);
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

static const Group *groupOf(const Communicator &c, const Group *group) {
  return group ? group : worldGroup(*c.host);
}

static Joined *find(const Communicator &c, const Group *group) {
  for (Joined *joined : c.groups)
    if (joined->group == groupOf(c, group))
      return joined;
  return nullptr;
}

/// Gives the members of a group the name under which they meet in NCCL.
static trainc_status shareId(Communicator &c, const Group &group,
                             ncclUniqueId &id) {
  if (groupIndex(group) == 0) {
    Watch watch(c, "starting NCCL");
    ncclResult_t result = c.nccl->ncclGetUniqueId(&id);
    if (result != ncclSuccess)
      return failNccl(c, nullptr, "ncclGetUniqueId", result);
  }
  Collective broadcast;
  broadcast.kind = TRAINC_BROADCAST;
  broadcast.group = &group;
  broadcast.dtype = TRAINC_U8;
  broadcast.count = sizeof(id);
  broadcast.data = &id;
  broadcast.label = "id of NCCL";
  return run(*c.host, broadcast, nullptr);
}

trainc_status trainc::cuda::joinGroup(Communicator &c, const Group *group) {
  if (find(c, group))
    return TRAINC_OK;
  group = groupOf(c, group);
  TRAINC_TRY(checkUsable(*c.host));
  ncclUniqueId id = {};
  TRAINC_TRY(shareId(c, *group, id));
  ncclConfig_t config = {};
  config.size = sizeof(config);
  config.magic = ncclConfigMagic;
  config.version = ncclOldest;
  config.blocking = 0;
  config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare =
      NCCL_CONFIG_UNDEF_INT;
  Current current(c.device);
  TRAINC_TRY(current.status());
  Watch watch(c, "starting NCCL");
  auto *joined = create<Joined>();
  joined->group = group;
  c.groups.push(joined);
  return settle(c, *joined, "ncclCommInitRankConfig",
                c.nccl->ncclCommInitRankConfig(
                    &joined->comm, static_cast<int>(groupSize(*group)), id,
                    static_cast<int>(groupIndex(*group)), &config));
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

static void *pointer(CUdeviceptr address) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

trainc_status trainc::cuda::forgetMemory(Communicator &c, CUdeviceptr address) {
  TRAINC_TRY(checkUsable(*c.host));
  Current current(c.device);
  TRAINC_TRY(current.status());
  Watch watch(c, "forgetting memory");
  for (Joined *joined : c.groups)
    for (size_t i = joined->memory.size(); i-- > 0;) {
      Registered one = joined->memory[i];
      if (one.address != address)
        continue;
      joined->memory[i] = joined->memory[joined->memory.size() - 1];
      joined->memory.resize(joined->memory.size() - 1);
      TRAINC_TRY(settle(c, *joined, "ncclCommDeregister",
                        c.nccl->ncclCommDeregister(joined->comm, one.handle)));
    }
  return TRAINC_OK;
}

/// A refusal leaves the communicators of NCCL as they were; other failures do not.
static trainc_status registerHere(Communicator &c, CUdeviceptr address,
                                  uint64_t bytes) {
  Current current(c.device);
  TRAINC_TRY(current.status());
  Watch watch(c, "registering memory");
  for (Joined *joined : c.groups) {
    Registered one = {address, nullptr};
    ncclResult_t result = c.nccl->ncclCommRegister(
        joined->comm, pointer(address), bytes, &one.handle);
    if (result != ncclSuccess && result != ncclInProgress)
      return fail(TRAINC_UNSUPPORTED, "NCCL registers no memory: %s (%s)",
                  c.nccl->ncclGetErrorString(result),
                  c.nccl->ncclGetLastError(joined->comm));
    TRAINC_TRY(settle(c, *joined, "ncclCommRegister", result));
    joined->memory.push(one);
  }
  return TRAINC_OK;
}

trainc_status trainc::cuda::registerMemory(Communicator &c, CUdeviceptr address,
                                           uint64_t bytes) {
  TRAINC_TRY(checkUsable(*c.host));
  if (bytes == 0)
    return fail(TRAINC_INVALID_ARGUMENT, "no memory to register");
  trainc_status status = registerHere(c, address, bytes);
  if (status == TRAINC_COMM_FAILED)
    return status;
  status = agreeOutcome(*c.host, status);
  if (status == TRAINC_OK || status == TRAINC_COMM_FAILED)
    return status;
  Text text;
  text.append(trainc_last_error());
  TRAINC_TRY(forgetMemory(c, address));
  return fail(status, "%s", text.c_str());
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

static bool isSum(trainc_collective_kind kind) {
  return kind == TRAINC_REDUCE_SCATTER || kind == TRAINC_ALL_REDUCE;
}

/// The type of NCCL; false if it has none in which it adds.
static bool findType(uint32_t dtype, ncclDataType_t &type) {
  switch (dtype) {
  case TRAINC_F32:
    type = ncclFloat32;
    return true;
  case TRAINC_F64:
    type = ncclFloat64;
    return true;
  case TRAINC_BF16:
    type = ncclBfloat16;
    return true;
  case TRAINC_F16:
    type = ncclFloat16;
    return true;
  case TRAINC_I8:
    type = ncclInt8;
    return true;
  case TRAINC_U8:
    type = ncclUint8;
    return true;
  case TRAINC_I32:
    type = ncclInt32;
    return true;
  case TRAINC_I64:
    type = ncclInt64;
    return true;
  }
  return false;
}

static trainc_status check(const Communicator &c,
                           const DeviceCollective &call) {
  const char *label = call.label ? call.label : "";
  uint64_t size = trainc_dtype_size(call.dtype);
  ncclDataType_t type;
  if (call.kind >= TRAINC_BARRIER)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': of kind %d, which GPUs have not", label,
                static_cast<int>(call.kind));
  if (!size || (isSum(call.kind) && !findType(call.dtype, type)))
    return fail(TRAINC_UNSUPPORTED, "collective '%s': NCCL adds no %s", label,
                size ? trainc_dtype_name(call.dtype) : "unknown type");
  if (!find(c, call.group))
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': of a group that was not joined", label);
  uint32_t n = groupSize(*groupOf(c, call.group));
  if (call.count > UINT64_MAX / 16 / n)
    return fail(TRAINC_INVALID_ARGUMENT, "collective '%s': too many elements",
                label);
  if (call.root >= n)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': root %u in a group of %u", label, call.root,
                n);
  bool inPieces = call.kind == TRAINC_REDUCE_SCATTER ||
                  (call.kind == TRAINC_ALL_GATHER && !call.target);
  if (inPieces && call.count % n)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': %llu elements in %u equal pieces", label,
                print(call.count), n);
  return TRAINC_OK;
}

static ncclResult_t callNccl(const Communicator &c, const Joined &joined,
                             const DeviceCollective &call, CUstream stream) {
  const Nccl &nccl = *c.nccl;
  uint64_t n = groupSize(*joined.group), index = groupIndex(*joined.group);
  uint64_t size = trainc_dtype_size(call.dtype), count = call.count;
  ncclDataType_t type;
  // What is moved, not added, may be of any type.
  if (!isSum(call.kind) || !findType(call.dtype, type)) {
    type = ncclUint8;
    count *= size;
    size = 1;
  }
  uint64_t piece = count / n * size;
  void *data = pointer(call.data);
  void *target = pointer(call.target ? call.target : call.data);
  switch (call.kind) {
  case TRAINC_REDUCE_SCATTER:
    if (!call.target)
      target = pointer(call.data + index * piece);
    return nccl.ncclReduceScatter(data, target, count / n, type, ncclSum,
                                  joined.comm, stream);
  case TRAINC_ALL_GATHER:
    if (!call.target)
      return nccl.ncclAllGather(pointer(call.data + index * piece), data,
                                count / n, type, joined.comm, stream);
    return nccl.ncclAllGather(data, target, count, type, joined.comm, stream);
  case TRAINC_BROADCAST:
    return nccl.ncclBroadcast(data, target, count, type,
                              static_cast<int>(call.root), joined.comm, stream);
  default:
    return nccl.ncclAllReduce(data, target, count, type, ncclSum, joined.comm,
                              stream);
  }
}

/// Where the stream's mark is. A stream that took the place of another one may get
/// its place.
static uint32_t placeOf(Communicator &c, CUstream stream) {
  uint32_t place = 0;
  while (place + 1 < maxPlaces && c.places[place] && c.places[place] != stream)
    ++place;
  c.places[place] = stream;
  return place;
}

static Site siteOf(const Communicator &c, const DeviceCollective &call,
                   uint32_t place) {
  Site site = {};
  site.kind = call.kind;
  site.group = groupOf(c, call.group);
  site.bytes = call.count * trainc_dtype_size(call.dtype);
  site.number = find(c, call.group)->number;
  site.mark = c.nextMark;
  site.place = place;
  snprintf(site.label, sizeof(site.label), "%s", call.label ? call.label : "");
  return site;
}

/// It will be done: behind all others.
static void push(Communicator &c, Site site) {
  site.number = find(c, site.group)->number++;
  ++c.host->counts.collectives[site.kind];
  c.host->counts.bytes[site.kind] += site.bytes;
  c.pending.push(site);
  c.host->control->enqueued.store(enqueued(c));
}

/// Those before `upTo` are done.
static void retire(Communicator &c, uint64_t upTo) {
  if (upTo <= c.retired)
    return;
  size_t count = upTo - c.retired, left = c.pending.size() - count;
  memmove(c.pending.data(), c.pending.data() + count, left * sizeof(Site));
  c.pending.resize(left);
  c.retired = upTo;
  for (uint32_t place = 0; place < maxPlaces; ++place) {
    if (!left) // no copy of a mark is on its way
      c.progress[place] = 0;
    c.stale[place] = c.progress[place];
  }
}

/// Within a Watch.
static trainc_status callAll(Communicator &c, const DeviceCollective *calls,
                             const Site *sites, uint32_t count,
                             CUstream stream) {
  if (count > 1)
    c.nccl->ncclGroupStart();
  for (uint32_t i = 0; i < count; ++i) {
    {
      Lock lock(c);
      c.calling = &sites[i];
    }
    const Joined &joined = *find(c, calls[i].group);
    ncclResult_t result = callNccl(c, joined, calls[i], stream);
    if (count == 1)
      return settle(c, joined, collectiveName(calls[i].kind), result);
    if (result != ncclSuccess && result != ncclInProgress)
      return failNccl(c, joined.comm, collectiveName(calls[i].kind), result);
  }
  ncclResult_t result = c.nccl->ncclGroupEnd();
  for (uint32_t i = 0; i < count; ++i)
    TRAINC_TRY(settle(c, *find(c, calls[i].group), "ncclGroupEnd", result));
  return TRAINC_OK;
}

trainc_status trainc::cuda::enqueue(Communicator &c,
                                    const DeviceCollective *collectives,
                                    uint32_t count, CUstream stream) {
  TRAINC_TRY(checkUsable(*c.host));
  for (uint32_t i = 0; i < count; ++i)
    TRAINC_TRY(check(c, collectives[i]));
  if (count == 0)
    return TRAINC_OK;
  Current current(c.device);
  TRAINC_TRY(current.status());
  uint32_t place = placeOf(c, stream);
  Array<Site> sites;
  for (uint32_t i = 0; i < count; ++i)
    sites.push(siteOf(c, collectives[i], place));
  Watch watch(c, "calling NCCL");
  TRAINC_TRY(callAll(c, collectives, sites.data(), count, stream));
  CUresult result = c.device.driver->cuMemcpyDtoHAsync(
      const_cast<uint32_t *>(c.progress + place),
      c.marks + c.nextMark * sizeof(uint32_t), sizeof(uint32_t), stream);
  if (result != CUDA_SUCCESS)
    return failDevice(c, "cuMemcpyDtoHAsync", result);
  c.nextMark = c.nextMark % (maxMarks - 1) + 1;
  Lock lock(c);
  c.calling = nullptr;
  for (const Site &site : sites) {
    if (c.recording)
      c.recording->sites.push(site);
    else
      push(c, site);
  }
  if (c.pending.size() > maxKnown)
    retire(c, c.retired + c.pending.size() / 2);
  return TRAINC_OK;
}

void trainc::cuda::record(Communicator &c, Recording *recording) {
  Lock lock(c);
  c.recording = recording;
}

void trainc::cuda::replay(Communicator &c, const Recording &recording) {
  Lock lock(c);
  for (const Site &site : recording.sites)
    push(c, site);
  if (c.pending.size() > maxKnown)
    retire(c, c.retired + c.pending.size() / 2);
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

uint64_t trainc::cuda::enqueued(const Communicator &c) {
  return c.retired + c.pending.size();
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
