//===- nccl.cpp - Communicators of GPUs -----------------------------------===//

#include "core/ranks.h"
#include "cuda/nccl_internals.h"

using namespace trainc;
using namespace trainc::cuda;

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

Joined *trainc::cuda::find(const Communicator &c, const Group *group) {
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
