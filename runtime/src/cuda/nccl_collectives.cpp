//===- nccl_collectives.cpp - Handing collectives over to NCCL ------------===//

#include "cuda/nccl_internals.h"

using namespace trainc;
using namespace trainc::cuda;

/// Collectives that reports know of.
static constexpr size_t maxKnown = 1 << 16;

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
  c.host->control->enqueued.store(enqueued(c), std::memory_order_release);
}

void trainc::cuda::retire(Communicator &c, uint64_t upTo) {
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

namespace {
/// While this lives, reports may be about a collective that is enqueued.
struct Calling {
  Communicator &c;

  ~Calling() { set(nullptr); }
  void set(const Site *site) {
    Lock lock(c);
    c.calling = site;
  }
};
} // namespace

/// Within a Watch.
static trainc_status callAll(Communicator &c, const DeviceCollective *calls,
                             const Site *sites, uint32_t count, CUstream stream,
                             Calling &calling) {
  if (count > 1)
    c.nccl->ncclGroupStart();
  for (uint32_t i = 0; i < count; ++i) {
    calling.set(&sites[i]);
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
  Calling calling = {c};
  TRAINC_TRY(callAll(c, collectives, sites.data(), count, stream, calling));
  CUresult result = c.device.driver->cuMemcpyDtoHAsync(
      const_cast<uint32_t *>(c.progress + place),
      c.marks + c.nextMark * sizeof(uint32_t), sizeof(uint32_t), stream);
  if (result != CUDA_SUCCESS)
    return failDevice(c, "cuMemcpyDtoHAsync", result);
  c.nextMark = c.nextMark % (maxMarks - 1) + 1;
  Lock lock(c);
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

uint64_t trainc::cuda::enqueued(const Communicator &c) {
  return c.retired + c.pending.size();
}
