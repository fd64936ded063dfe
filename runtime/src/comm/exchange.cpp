//===- exchange.cpp - Moving the data of collectives ----------------------===//
//
// Members on this host read each other's windows, or ring, themselves; members on
// other hosts send and receive messages. Both meet in one sum, which takes a
// pointer per member, in the group's order.
//
//===----------------------------------------------------------------------===//

#include "comm/internals.h"
#include "cpu/kernels.h"

using namespace trainc;

/// Elements and bytes that a thread takes at a time.
static constexpr uint64_t tileBytes = 256 << 10;

/// Copies of at least so many bytes leave the caches alone.
static constexpr uint64_t streamedBytes = 4 << 20;

namespace {
/// A range of elements.
struct Piece {
  uint64_t begin, count;
};
} // namespace

/// What of the range belongs to a member.
static Piece pieceOf(const Operation &operation, uint32_t member) {
  uint64_t count = operation.call.count, n = operation.group->size();
  if (operation.call.kind != TRAINC_ALL_REDUCE)
    return {member * (count / n), count / n};
  uint64_t step = alignUp((count + n - 1) / n, 64); // whole cache lines
  uint64_t begin = member * step < count ? member * step : count;
  return {begin, count - begin < step ? count - begin : step};
}

/// Part `index` of a piece that goes in parts of `part` elements.
static Piece partOf(Piece piece, uint64_t index, uint64_t part) {
  uint64_t begin = index * part < piece.count ? index * part : piece.count;
  uint64_t left = piece.count - begin;
  return {piece.begin + begin, left < part ? left : part};
}

//===----------------------------------------------------------------------===//
// Sums and copies, on the pool
//===----------------------------------------------------------------------===//

static void runTiles(Pool *pool, TileFn function, void *argument,
                     uint64_t tiles) {
  DefaultFloats floats;
  if (pool && tiles > 1)
    return pool->run(function, argument, static_cast<int64_t>(tiles));
  for (uint64_t i = 0; i < tiles; ++i)
    function(argument, static_cast<int64_t>(i), 0);
}

static SumFn sumOf(uint32_t dtype) {
  switch (dtype) {
  case TRAINC_F64:
    return kernels().sumF64;
  case TRAINC_BF16:
    return kernels().sumBf16;
  case TRAINC_F16:
    return kernels().sumF16;
  default:
    return kernels().sumF32;
  }
}

namespace {
struct SumTask {
  SumFn function;
  const void *const *sources;
  uint32_t number;
  uint64_t size, count, tile; // bytes of an element; elements
  char *to;
};
struct CopyTask {
  const char *from;
  char *to;
  uint64_t bytes;
  bool streamed;
};
} // namespace

static void sumTile(void *argument, int64_t tile, unsigned) {
  const SumTask &task = *static_cast<SumTask *>(argument);
  Piece part = partOf({0, task.count}, static_cast<uint64_t>(tile), task.tile);
  const void *few[16] = {};
  const void **sources = task.number <= 16
                             ? few
                             : static_cast<const void **>(reallocate(
                                   nullptr, task.number * sizeof(void *)));
  for (uint32_t i = 0; i < task.number; ++i)
    sources[i] =
        static_cast<const char *>(task.sources[i]) + part.begin * task.size;
  task.function(sources, task.number, task.to + part.begin * task.size,
                static_cast<int64_t>(part.count));
  if (sources != few)
    free(sources);
}

static void sumAll(Pool *pool, uint32_t dtype, const Array<const void *> &from,
                   char *to, uint64_t count) {
  uint64_t size = trainc_dtype_size(dtype), tile = tileBytes / size;
  SumTask task = {sumOf(dtype),
                  from.data(),
                  static_cast<uint32_t>(from.size()),
                  size,
                  count,
                  tile,
                  to};
  runTiles(pool, sumTile, &task, (count + tile - 1) / tile);
}

static void copyTile(void *argument, int64_t tile, unsigned) {
  const CopyTask &task = *static_cast<CopyTask *>(argument);
  Piece part = partOf({0, task.bytes}, static_cast<uint64_t>(tile), tileBytes);
  if (task.streamed)
    kernels().stream(task.to + part.begin, task.from + part.begin, part.count);
  else
    memcpy(task.to + part.begin, task.from + part.begin, part.count);
}

static void copyAll(Pool *pool, const void *from, void *to, uint64_t bytes,
                    bool streamed) {
  if (!bytes || from == to)
    return;
  CopyTask task = {static_cast<const char *>(from), static_cast<char *>(to),
                   bytes, streamed};
  runTiles(pool, copyTile, &task, (bytes + tileBytes - 1) / tileBytes);
}

//===----------------------------------------------------------------------===//
// Ranges in windows
//===----------------------------------------------------------------------===//

/// Where a member's range is; null: on another host.
static const char *rangeOf(const Operation &operation, uint32_t member) {
  const Window &window = *operation.call.window;
  if (member == operation.group->index)
    return window.data + operation.call.offset;
  const char *peer = window.peers[operation.group->members[member].rank];
  return peer ? peer + operation.call.offset : nullptr;
}

/// The rounds of messages in which the longest of the pieces goes.
static uint64_t countRounds(uint64_t longest, uint64_t part) {
  return (longest + part - 1) / part;
}

/// Sends everybody its part of the range, asks for all parts of mine.
static trainc_status postReduce(Comm &comm, Operation &operation,
                                uint64_t round, uint64_t part, uint64_t size) {
  Group &group = *operation.group;
  const char *range = rangeOf(operation, group.index);
  Piece mine = partOf(pieceOf(operation, group.index), round, part);
  for (uint32_t i = 0; i < group.size(); ++i) {
    if (!group.members[i].remote)
      continue;
    auto number = static_cast<uint32_t>(round);
    char *to = stagingFor(comm, group, number, i);
    if (!to)
      return giveUp(comm, &operation, "no memory for messages");
    TRAINC_TRY(receiveFrom(comm, operation, number, i, to, mine.count * size));
    Piece theirs = partOf(pieceOf(operation, i), round, part);
    TRAINC_TRY(sendTo(comm, operation, number, i, range + theirs.begin * size,
                      theirs.count * size));
  }
  return TRAINC_OK;
}

/// My piece becomes the sum of all members' pieces.
static trainc_status reduce(Comm &comm, Operation &operation, Pool *pool) {
  Group &group = *operation.group;
  uint32_t dtype = operation.call.dtype;
  uint64_t size = trainc_dtype_size(dtype);
  Piece piece = pieceOf(operation, group.index);
  uint64_t part = group.anyRemote ? messageBytes(group) / size : piece.count;
  if (!part)
    return TRAINC_OK;
  uint64_t rounds = countRounds(
      group.anyRemote ? pieceOf(operation, 0).count : piece.count, part);
  Array<const void *> sources;
  sources.resize(group.size());
  if (group.anyRemote)
    for (uint64_t i = 0; i < rounds && i < maxRounds; ++i)
      TRAINC_TRY(postReduce(comm, operation, i, part, size));
  for (uint64_t round = 0; round < rounds; ++round) {
    auto number = static_cast<uint32_t>(round);
    if (group.anyRemote)
      TRAINC_TRY(finishRound(comm, operation, number));
    Piece mine = partOf(piece, round, part);
    for (uint32_t i = 0; i < group.size(); ++i) {
      const char *range = rangeOf(operation, i);
      sources[i] = range ? range + mine.begin * size
                         : stagingFor(comm, group, number, i);
    }
    char *to = operation.call.window->data + operation.call.offset;
    sumAll(pool, dtype, sources, to + mine.begin * size, mine.count);
    if (group.anyRemote && round + maxRounds < rounds)
      TRAINC_TRY(postReduce(comm, operation, round + maxRounds, part, size));
  }
  return TRAINC_OK;
}

namespace {
/// A gather: where each member's piece is in its range and goes here.
struct Gather {
  const char *mine; // my piece
  char *to;         // of member 0
  uint64_t size;
};
} // namespace

static Piece placeOf(const Operation &operation, uint32_t member) {
  if (operation.call.target)
    return {member * operation.call.count, operation.call.count};
  return pieceOf(operation, member);
}

static trainc_status postGather(Comm &comm, Operation &operation,
                                const Gather &gather, uint64_t round,
                                uint64_t part) {
  Group &group = *operation.group;
  Piece whole = placeOf(operation, group.index);
  Piece mine = partOf({0, whole.count}, round, part);
  for (uint32_t i = 0; i < group.size(); ++i) {
    if (!group.members[i].remote)
      continue;
    auto number = static_cast<uint32_t>(round);
    Piece theirs = partOf(placeOf(operation, i), round, part);
    TRAINC_TRY(receiveFrom(comm, operation, number, i,
                           gather.to + theirs.begin * gather.size,
                           theirs.count * gather.size));
    TRAINC_TRY(sendTo(comm, operation, number, i,
                      gather.mine + mine.begin * gather.size,
                      mine.count * gather.size));
  }
  return TRAINC_OK;
}

/// All pieces become those of their members.
static trainc_status gather(Comm &comm, Operation &operation, Pool *pool) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  Gather gather = {nullptr, static_cast<char *>(call.target),
                   trainc_dtype_size(call.dtype)};
  if (!gather.to)
    gather.to = call.window->data + call.offset;
  auto pieceAt = [&](uint32_t member) -> const char * {
    const char *range = rangeOf(operation, member);
    if (!range || call.target)
      return range;
    return range + pieceOf(operation, member).begin * gather.size;
  };
  gather.mine = pieceAt(group.index);
  uint64_t part = messageBytes(group) / gather.size;
  uint64_t rounds =
      group.anyRemote ? countRounds(placeOf(operation, 0).count, part) : 0;
  for (uint64_t i = 0; i < rounds && i < maxRounds; ++i)
    TRAINC_TRY(postGather(comm, operation, gather, i, part));
  // Each begins with another member, so that not all read the same memory.
  for (uint32_t i = 0; i < group.size(); ++i) {
    uint32_t member = (group.index + i) % group.size();
    Piece to = placeOf(operation, member);
    if (!group.members[member].remote)
      copyAll(pool, pieceAt(member), gather.to + to.begin * gather.size,
              to.count * gather.size, operation.bytes >= streamedBytes);
  }
  for (uint64_t round = 0; round < rounds; ++round) {
    TRAINC_TRY(finishRound(comm, operation, static_cast<uint32_t>(round)));
    if (round + maxRounds < rounds)
      TRAINC_TRY(postGather(comm, operation, gather, round + maxRounds, part));
  }
  return TRAINC_OK;
}

static trainc_status broadcast(Comm &comm, Operation &operation, Pool *pool) {
  Group &group = *operation.group;
  uint32_t root = operation.call.root;
  char *range = operation.call.window->data + operation.call.offset;
  if (root != group.index && group.members[root].shares) {
    copyAll(pool, rangeOf(operation, root), range, operation.bytes,
            operation.bytes >= streamedBytes);
    return TRAINC_OK;
  }
  uint64_t part = messageBytes(group);
  uint64_t rounds = group.anyRemote ? countRounds(operation.bytes, part) : 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    auto number = static_cast<uint32_t>(round);
    if (round >= maxRounds)
      TRAINC_TRY(finishRound(comm, operation, number));
    Piece bytes = partOf({0, operation.bytes}, round, part);
    if (root != group.index) {
      TRAINC_TRY(receiveFrom(comm, operation, number, root, range + bytes.begin,
                             bytes.count));
      continue;
    }
    for (uint32_t i = 0; i < group.size(); ++i)
      if (group.members[i].remote)
        TRAINC_TRY(sendTo(comm, operation, number, i, range + bytes.begin,
                          bytes.count));
  }
  for (uint32_t i = 0; i < maxRounds; ++i)
    TRAINC_TRY(finishRound(comm, operation, i));
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Ranges anywhere, through the ring
//===----------------------------------------------------------------------===//

/// Elements of a piece (of the range, for AllReduce and Broadcast) that a slot
/// takes: it has room for what all members read of it.
static uint64_t chunkElements(const Operation &operation) {
  uint64_t elements = slotBytes / trainc_dtype_size(operation.call.dtype);
  return operation.call.kind == TRAINC_REDUCE_SCATTER
             ? elements / operation.group->size()
             : elements;
}

/// What is cut into chunks.
static uint64_t chunkedElements(const Operation &operation) {
  const Collective &call = operation.call;
  bool inPieces = call.kind == TRAINC_REDUCE_SCATTER ||
                  (call.kind == TRAINC_ALL_GATHER && !call.target);
  return inPieces ? call.count / operation.group->size() : call.count;
}

uint32_t trainc::countChunks(const Operation &operation) {
  uint64_t chunk = chunkElements(operation);
  return static_cast<uint32_t>((chunkedElements(operation) + chunk - 1) /
                               chunk);
}

static char *slotOf(char *ring, uint32_t chunk) {
  return ring + chunk % ringSlots * slotBytes;
}

bool trainc::isSlotFree(const Operation &operation, uint32_t chunk) {
  // This rank reads its own slot, too.
  for (const Member &member : operation.group->members)
    if (!member.remote && (!member.block || !hasReached(member.block->taken,
                                                        chunk + 1 - ringSlots)))
      return false;
  return true;
}

void trainc::stageChunk(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  uint64_t size = trainc_dtype_size(call.dtype);
  uint64_t part = chunkElements(operation), n = group.size();
  Piece now = partOf({0, chunkedElements(operation)}, operation.staged, part);
  uint32_t chunk = operation.firstChunk + operation.staged;
  char *slot = slotOf(group.members[group.index].ring, chunk);
  const char *data = static_cast<const char *>(call.data);
  if (call.kind == TRAINC_REDUCE_SCATTER) {
    for (uint64_t i = 0; i < n; ++i)
      memcpy(slot + i * part * size,
             data + (i * (call.count / n) + now.begin) * size,
             now.count * size);
  } else if (call.kind != TRAINC_BROADCAST || call.root == group.index) {
    bool inPlace = call.kind == TRAINC_ALL_GATHER && !call.target;
    uint64_t first = inPlace ? group.index * (call.count / n) : 0;
    memcpy(slot, data + (first + now.begin) * size, now.count * size);
  }
  ++operation.staged;
  group.staged = chunk + 1;
  publish(comm.control->groups[group.slot].staged, chunk + 1);
}

/// Sends what is in my slot to remote members and receives theirs.
static trainc_status swapChunk(Comm &comm, Operation &operation, Piece now,
                               const char *slot) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  uint64_t size = trainc_dtype_size(call.dtype), bytes = now.count * size;
  uint64_t blocks =
      call.kind == TRAINC_REDUCE_SCATTER ? chunkElements(operation) * size : 0;
  bool isBroadcast = call.kind == TRAINC_BROADCAST;
  for (uint32_t i = 0; i < group.size(); ++i) {
    if (!group.members[i].remote)
      continue;
    if (!isBroadcast || call.root == i) {
      char *to = stagingFor(comm, group, 0, i);
      if (!to)
        return giveUp(comm, &operation, "no memory for messages");
      TRAINC_TRY(receiveFrom(comm, operation, 0, i, to, bytes));
    }
    if (!isBroadcast || call.root == group.index)
      TRAINC_TRY(sendTo(comm, operation, 0, i, slot + i * blocks, bytes));
  }
  return finishRound(comm, operation, 0);
}

/// Takes what all members have in their slots.
static void takeChunk(Comm &comm, Operation &operation, Piece now,
                      uint32_t chunk) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  uint64_t size = trainc_dtype_size(call.dtype), n = group.size();
  uint64_t part = chunkElements(operation);
  auto source = [&](uint32_t member) -> const char * {
    const Member &m = group.members[member];
    return m.remote ? stagingFor(comm, group, 0, member)
                    : slotOf(m.ring, chunk);
  };
  char *data = static_cast<char *>(call.data);
  if (call.kind == TRAINC_BROADCAST) {
    if (call.root != group.index)
      memcpy(data + now.begin * size, source(call.root), now.count * size);
    return;
  }
  if (call.kind == TRAINC_ALL_GATHER) {
    uint64_t each = call.target ? call.count : call.count / n;
    char *to = call.target ? static_cast<char *>(call.target) : data;
    for (uint32_t i = 0; i < n; ++i)
      memcpy(to + (i * each + now.begin) * size, source(i), now.count * size);
    return;
  }
  Array<const void *> sources;
  for (uint32_t i = 0; i < n; ++i) {
    // A remote member has sent my block only.
    bool inBlocks =
        call.kind == TRAINC_REDUCE_SCATTER && !group.members[i].remote;
    sources.push(source(i) + (inBlocks ? group.index * part * size : 0));
  }
  bool isPiece = call.kind == TRAINC_REDUCE_SCATTER && !call.target;
  uint64_t first = isPiece ? group.index * (call.count / n) : 0;
  char *to = call.target ? static_cast<char *>(call.target) : data;
  sumAll(nullptr, call.dtype, sources, to + (first + now.begin) * size,
         now.count);
}

static trainc_status exchangeChunks(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  GroupBlock &block = comm.control->groups[group.slot];
  for (uint32_t i = 0; i < operation.chunks; ++i) {
    uint32_t chunk = operation.firstChunk + i;
    operation.chunk = chunk;
    if (operation.staged == i) {
      operation.phase = Phase::TAKING;
      for (Member &member : group.members)
        if (member.shares)
          TRAINC_TRY(await(comm, member.block->taken, chunk + 1 - ringSlots));
      stageChunk(comm, operation);
    }
    Piece now =
        partOf({0, chunkedElements(operation)}, i, chunkElements(operation));
    operation.phase = Phase::STAGING;
    if (group.anyRemote)
      TRAINC_TRY(swapChunk(comm, operation, now,
                           slotOf(group.members[group.index].ring, chunk)));
    for (uint32_t m = 0; m < group.size(); ++m)
      if (group.members[m].shares &&
          (call.kind != TRAINC_BROADCAST || call.root == m))
        TRAINC_TRY(await(comm, group.members[m].block->staged, chunk + 1));
    takeChunk(comm, operation, now, chunk);
    publish(block.taken, chunk + 1);
  }
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Kinds
//===----------------------------------------------------------------------===//

trainc_status trainc::exchange(Comm &comm, Operation &operation, Pool *pool) {
  Group &group = *operation.group;
  const Collective &call = operation.call;
  if (operation.chunks)
    return exchangeChunks(comm, operation);
  if (!operation.bytes)
    return TRAINC_OK;
  switch (call.kind) {
  case TRAINC_REDUCE_SCATTER:
    return reduce(comm, operation, pool);
  case TRAINC_ALL_GATHER:
    return gather(comm, operation, pool);
  case TRAINC_BROADCAST:
    return broadcast(comm, operation, pool);
  case TRAINC_ALL_REDUCE:
    TRAINC_TRY(reduce(comm, operation, pool));
    publish(comm.control->groups[group.slot].reduced, operation.reduce + 1);
    operation.phase = Phase::REDUCING;
    for (Member &member : group.members)
      if (member.shares)
        TRAINC_TRY(await(comm, member.block->reduced, operation.reduce + 1));
    return gather(comm, operation, pool);
  default:
    return TRAINC_OK;
  }
}
