//===- collective.cpp - Starting collectives and waiting for them ---------===//

#include "comm/internals.h"
#include <stddef.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

static bool hasRanks(const Group &group, const uint32_t *ranks,
                     uint32_t count) {
  if (group.size() != count)
    return false;
  for (uint32_t i = 0; i < count; ++i)
    if (group.members[i].rank != ranks[i])
      return false;
  return true;
}

const Group *trainc::findGroup(const Comm &comm, const uint32_t *ranks,
                               uint32_t count) {
  for (const Group *group : comm.groups)
    if (hasRanks(*group, ranks, count))
      return group;
  return nullptr;
}

trainc_status trainc::createGroup(Comm &comm, const uint32_t *ranks,
                                  uint32_t count, const Group **out_group) {
  uint32_t same = 0, index = count;
  if (comm.groups.size() == maxGroups)
    return fail(TRAINC_INVALID_ARGUMENT,
                "a communicator has at most %u groups of ranks", maxGroups);
  for (uint32_t i = 0; i < count; ++i) {
    bool twice = false;
    for (uint32_t j = 0; j < i; ++j)
      twice |= ranks[j] == ranks[i];
    if (ranks[i] >= comm.ranks || twice)
      return fail(TRAINC_INVALID_ARGUMENT,
                  "group of ranks: rank %u %s, of %u ranks in all", ranks[i],
                  twice ? "is there twice" : "does not exist", comm.ranks);
    if (ranks[i] == comm.rank)
      index = i;
  }
  if (index == count)
    return fail(TRAINC_INVALID_ARGUMENT,
                "rank %u makes a group that it is not in", comm.rank);
  for (const Group *other : comm.groups)
    same += hasRanks(*other, ranks, count);

  auto *group = create<Group>();
  if (!comm.rings) {
    group->ownRing = static_cast<char *>(aligned_alloc(4096, ringBytes));
    if (!group->ownRing) {
      destroy(group);
      return fail(TRAINC_OUT_OF_MEMORY,
                  "cannot allocate %llu bytes for a group",
                  static_cast<unsigned long long>(ringBytes));
    }
  }
  group->key =
      hashBytes(UINT64_C(0xCBF29CE484222325), ranks, count * sizeof(uint32_t));
  group->key = hashBytes(group->key, &same, sizeof(same)) | 1; // never 0
  group->index = index;
  group->slot = static_cast<uint32_t>(comm.groups.size());
  group->anyShared = group->anyRemote = false;
  for (uint32_t i = 0; i < count; ++i) {
    const Rank &rank = comm.peers[ranks[i]];
    bool isMe = ranks[i] == comm.rank;
    Member member = {ranks[i], rank.shares, !isMe && !rank.shares,
                     isMe ? &comm.control->groups[group->slot] : nullptr,
                     !isMe        ? nullptr
                     : comm.rings ? comm.rings + group->slot * ringBytes
                                  : group->ownRing};
    group->anyShared |= member.shares;
    group->anyRemote |= member.remote;
    group->members.push(member);
  }
  comm.groups.push(group);
  comm.control->groups[group->slot].key.store(group->key,
                                              std::memory_order_release);
  *out_group = group;
  return TRAINC_OK;
}

bool trainc::findBlock(Comm &comm, Group &group, uint32_t index) {
  Member &member = group.members[index];
  Control *control = comm.peers[member.rank].control;
  for (uint32_t slot = 0; slot < maxGroups && !member.block; ++slot) {
    if (control->groups[slot].key.load(std::memory_order_acquire) != group.key)
      continue;
    member.ring =
        reinterpret_cast<char *>(control) + ringOffset + slot * ringBytes;
    member.block = &control->groups[slot];
  }
  return member.block;
}

const Group *trainc::worldGroup(const Comm &comm) { return comm.groups[0]; }
uint32_t trainc::groupSize(const Group &group) { return group.size(); }
uint32_t trainc::groupIndex(const Group &group) { return group.index; }
uint32_t trainc::groupRank(const Group &group, uint32_t index) {
  return group.members[index].rank;
}

//===----------------------------------------------------------------------===//
// Start
//===----------------------------------------------------------------------===//

static bool isKnown(const Comm &comm, const Window *window) {
  for (const Window *known : comm.windows)
    if (known == window)
      return true;
  return false;
}

/// Refuses what no member can do.
static trainc_status checkRange(const Comm &comm, const Collective &call) {
  uint64_t size = trainc_dtype_size(call.dtype);
  uint32_t n = call.group->size();
  const char *label = call.label ? call.label : "";
  bool isSum =
      call.kind == TRAINC_REDUCE_SCATTER || call.kind == TRAINC_ALL_REDUCE;
  if (call.kind >= TRAINC_NUM_COLLECTIVES)
    return fail(TRAINC_INVALID_ARGUMENT, "collective '%s': of kind %d", label,
                static_cast<int>(call.kind));
  if (!size || (isSum && call.dtype > TRAINC_F16))
    return fail(TRAINC_INVALID_ARGUMENT, "collective '%s': elements of type %s",
                label, size ? trainc_dtype_name(call.dtype) : "unknown");
  if (call.count > UINT64_MAX / 16 / n)
    return fail(TRAINC_INVALID_ARGUMENT, "collective '%s': too many elements",
                label);
  if (call.root >= n)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': root %u in a group of %u", label, call.root,
                n);
  bool mayHaveTarget = call.kind == TRAINC_ALL_GATHER ||
                       (call.kind == TRAINC_REDUCE_SCATTER && call.data);
  if (call.target && !mayHaveTarget)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': only an all_gather, or a reduce_scatter of "
                "an address, has a target",
                label);
  bool inPieces = call.kind == TRAINC_REDUCE_SCATTER ||
                  (call.kind == TRAINC_ALL_GATHER && !call.target);
  if (inPieces && call.count % n)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': %llu elements in %u pieces", label,
                static_cast<unsigned long long>(call.count), n);
  if (!call.count)
    return TRAINC_OK;
  if (!call.window == !call.data)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': needs a window or an address", label);
  if (!call.window)
    return TRAINC_OK;
  uint64_t bytes = call.count * size;
  if (!isKnown(comm, call.window) || call.offset > call.window->bytes ||
      bytes > call.window->bytes - call.offset || call.offset % size)
    return fail(TRAINC_INVALID_ARGUMENT,
                "collective '%s': bytes %llu to %llu are not in the window, or "
                "not aligned",
                label, static_cast<unsigned long long>(call.offset),
                static_cast<unsigned long long>(call.offset + bytes));
  return TRAINC_OK;
}

static void describe(const Operation &operation, uint32_t sequence,
                     Descriptor &to) {
  const Collective &call = operation.call;
  to = {};
  to.group = operation.group->key;
  to.count = call.count;
  to.offset = call.offset;
  to.sequence = sequence;
  to.kind = call.kind;
  to.dtype = call.dtype;
  to.root = call.root;
  to.place = call.window ? call.window->number + 1 : 0;
  to.apart = call.target ? 1 : 0;
  to.batch = call.batch;
  snprintf(to.label, sizeof(to.label), "%s", call.label ? call.label : "");
  snprintf(to.entry, sizeof(to.entry), "%s", call.entry ? call.entry : "");
}

/// Fills in the next operation, and counts it in its group.
static trainc_status prepare(Comm &comm, const Collective &collective,
                             Operation &operation) {
  operation.call = collective;
  Collective &call = operation.call;
  if (call.kind == TRAINC_BARRIER) {
    call = Collective();
    call.group = collective.group;
    call.label = collective.label;
  } else {
    TRAINC_TRY(checkRange(comm, call));
  }
  if (!call.window)
    call.offset = 0;

  // The group is the communicator's, so it is not const for us.
  Group &group = const_cast<Group &>(*call.group);
  operation.group = &group;
  operation.bytes = call.count * trainc_dtype_size(call.dtype);
  operation.phase = Phase::ARRIVAL;
  for (Array<uint8_t> *flags : {&operation.heard, &operation.underWay}) {
    flags->clear();
    flags->resize(group.size());
  }
  describe(operation, group.started, operation.mine);
  call.label = call.entry = nullptr; // the caller's; those in `mine` are ours
  operation.chunks = call.window ? 0 : countChunks(operation);
  operation.firstChunk = group.chunks;
  operation.staged = 0;
  group.chunks += operation.chunks;
  operation.reduce = group.reduces;
  if (call.window) {
    group.reduces += call.kind == TRAINC_ALL_REDUCE && operation.bytes;
    group.offered = group.started + 1;
  }
  return TRAINC_OK;
}

static trainc_status announce(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  GroupBlock &block = comm.control->groups[group.slot];
  TRAINC_TRY(checkPeers(comm, &operation));
  // What can be staged now spares the peers waiting until this rank waits.
  if (operation.chunks && group.staged == operation.firstChunk &&
      isSlotFree(operation, operation.firstChunk))
    stageChunk(comm, operation);
  block.descriptors[group.started % keptDescriptors] = operation.mine;
  publish(block.arrived, ++group.started);
  return group.anyRemote ? greet(comm, operation) : TRAINC_OK;
}

/// When the pretended network will have brought the operation, behind what it has to
/// bring already.
static uint64_t enterNetwork(Comm &comm, const Operation &operation) {
  bool isOfPieces =
      operation.mine.kind == TRAINC_ALL_GATHER && operation.call.target;
  auto bytes = static_cast<double>(operation.bytes);
  if (isOfPieces)
    bytes *= operation.group->size();
  uint64_t now = nowNs();
  if (comm.networkIsFree < now)
    comm.networkIsFree = now;
  comm.networkIsFree += static_cast<uint64_t>(bytes / comm.bandwidth *
                                              static_cast<double>(secondNs));
  return comm.networkIsFree;
}

trainc_status trainc::start(Comm &comm, const Collective &collective,
                            uint32_t *out_token) {
  TRAINC_TRY(checkUsable(comm));
  if (comm.started - comm.finished == maxPending)
    return fail(TRAINC_INVALID_ARGUMENT,
                "%u collectives are started and not waited for", maxPending);
  Operation &operation = comm.operations[comm.started % maxPending];
  TRAINC_TRY(prepare(comm, collective, operation));
  beginWait(comm, operation); // MPI is called: the watchdog is to look on
  trainc_status status = announce(comm, operation);
  endWait(comm);
  TRAINC_TRY(status);
  operation.due = comm.bandwidth > 0 ? enterNetwork(comm, operation) : 0;
  uint32_t token = comm.started++;
  if (out_token)
    *out_token = token;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Wait
//===----------------------------------------------------------------------===//

static void appendDescriptor(Text &text, const Descriptor &descriptor) {
  const char *type = trainc_dtype_name(descriptor.dtype);
  text.format("%s '%.*s' of %llu %s", collectiveName(descriptor.kind),
              static_cast<int>(sizeof(descriptor.label)), descriptor.label,
              static_cast<unsigned long long>(descriptor.count),
              type ? type : "?");
  if (descriptor.kind == TRAINC_BROADCAST)
    text.format(" from member %u", descriptor.root);
  if (descriptor.place)
    text.format(" at byte %llu of window %u",
                static_cast<unsigned long long>(descriptor.offset),
                descriptor.place - 1);
  if (descriptor.apart)
    text.append(" with a target");
  if (descriptor.entry[0])
    text.format(" in entry '%.*s'", static_cast<int>(sizeof(descriptor.entry)),
                descriptor.entry);
}

static trainc_status compare(Comm &comm, const Operation &operation,
                             uint32_t member, const Descriptor &theirs) {
  const Descriptor &mine = operation.mine;
  if (memcmp(&mine, &theirs, offsetof(Descriptor, entry)) == 0)
    return TRAINC_OK;
  Text reason;
  reason.format("rank %u does ", operation.group->members[member].rank);
  appendDescriptor(reason, theirs);
  if (theirs.group != mine.group)
    reason.append(" in another group");
  else if (theirs.sequence != mine.sequence)
    reason.format(" as collective %u", theirs.sequence);
  reason.format(" where rank %u does ", comm.rank);
  appendDescriptor(reason, mine);
  if (theirs.batch && mine.batch && theirs.batch != mine.batch)
    reason.append("; expected batches of one entry on all ranks");
  return giveUp(comm, &operation, reason.c_str());
}

/// Waits until all members have started this collective, and checks that it is
/// the same.
static trainc_status awaitArrivals(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  if (group.anyRemote) {
    TRAINC_TRY(awaitGreetings(comm, operation));
    for (uint32_t i = 0; i < group.size(); ++i)
      if (group.members[i].remote)
        TRAINC_TRY(compare(comm, operation, i, operation.theirs[i]));
  }
  uint32_t sequence = operation.mine.sequence;
  for (uint32_t i = 0; i < group.size(); ++i) {
    Member &member = group.members[i];
    if (!member.shares)
      continue;
    while (!member.block && !findBlock(comm, group, i))
      TRAINC_TRY(pause(comm, nullptr, 0));
    TRAINC_TRY(await(comm, member.block->arrived, sequence + 1));
    TRAINC_TRY(compare(comm, operation, i,
                       member.block->descriptors[sequence % keptDescriptors]));
  }
  return TRAINC_OK;
}

static trainc_status finishNext(Comm &comm, Pool *pool) {
  Operation &operation = comm.operations[comm.finished % maxPending];
  Group &group = *operation.group;
  operation.phase = Phase::ARRIVAL;
  beginWait(comm, operation);
  trainc_status status = checkPeers(comm, &operation);
  if (!status)
    status = awaitArrivals(comm, operation);
  if (!status)
    status = exchange(comm, operation, pool);
  if (!status && operation.due)
    status = awaitTime(comm, operation.due);
  endWait(comm);
  if (status)
    return status;
  publish(comm.control->groups[group.slot].finished,
          operation.mine.sequence + 1);
  ++comm.counts.collectives[operation.mine.kind];
  comm.counts.bytes[operation.mine.kind] += operation.bytes;
  ++comm.finished;
  return TRAINC_OK;
}

trainc_status trainc::wait(Comm &comm, uint32_t token, Pool *pool) {
  if (hasReached(token, comm.started))
    return fail(TRAINC_INVALID_ARGUMENT, "no collective has the token %u",
                token);
  while (!hasReached(comm.finished, token + 1)) {
    TRAINC_TRY(checkUsable(comm));
    TRAINC_TRY(finishNext(comm, pool));
  }
  return TRAINC_OK;
}

trainc_status trainc::run(Comm &comm, const Collective &collective,
                          Pool *pool) {
  uint32_t token;
  TRAINC_TRY(start(comm, collective, &token));
  return wait(comm, token, pool);
}

trainc_status trainc::fence(Comm &comm) {
  TRAINC_TRY(checkUsable(comm));
  if (comm.started != comm.finished)
    return fail(TRAINC_INVALID_ARGUMENT,
                "fence: %u collectives are started and not waited for",
                comm.started - comm.finished);
  Operation &operation = comm.fenceOperation;
  operation.phase = Phase::FENCE;
  for (Group *group : comm.groups) {
    if (!group->anyShared || !group->offered)
      continue;
    operation.group = group;
    beginWait(comm, operation);
    trainc_status status = checkPeers(comm, &operation);
    for (Member &member : group->members)
      if (member.shares && member.block && !status)
        status = await(comm, member.block->finished, group->offered);
    endWait(comm);
    TRAINC_TRY(status);
  }
  return TRAINC_OK;
}
