//===- exchange.cpp - Collectives of the NCCL of tests --------------------===//

#include "comm/waiting.h"
#include "core/convert.h"
#include "fake.h"
#include <sched.h>
#include <signal.h>
#include <unistd.h>

using namespace trainc;
using namespace trainc::cuda;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

uint64_t trainc::cuda::sizeOf(ncclDataType_t type) {
  switch (static_cast<unsigned>(type)) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclFloat64:
    return 8;
  }
  return 0;
}

const char *trainc::cuda::nameOf(Kind kind) {
  static const char *const names[] = {"ncclReduceScatter", "ncclAllReduce",
                                      "ncclAllGather", "ncclBroadcast"};
  return names[static_cast<unsigned>(kind)];
}

/// Sums `count` elements of all sources in their order, rounded to the type after each
/// addition, as rings do.
template <typename T, typename Wide, typename Widen, typename Narrow>
static void sum(const char *const *sources, int number, char *to,
                uint64_t count, Widen widen, Narrow narrow) {
  for (uint64_t i = 0; i < count; ++i) {
    auto element = [&](int source) {
      T value;
      memcpy(&value, sources[source] + i * sizeof(T), sizeof(T));
      return static_cast<Wide>(widen(value));
    };
    Wide total = element(0);
    T result = narrow(total);
    for (int source = 1; source < number; ++source) {
      result = narrow(total + element(source));
      total = static_cast<Wide>(widen(result));
    }
    memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
}

static void sumOf(ncclDataType_t type, const char *const *sources, int number,
                  char *to, uint64_t count) {
  auto same = [](auto value) { return value; };
  switch (static_cast<unsigned>(type)) {
  case ncclInt8:
  case ncclUint8:
    return sum<uint8_t, unsigned>(
        sources, number, to, count, same,
        [](unsigned value) { return static_cast<uint8_t>(value); });
  case ncclInt32:
    return sum<uint32_t, uint32_t>(sources, number, to, count, same, same);
  case ncclInt64:
    return sum<uint64_t, uint64_t>(sources, number, to, count, same, same);
  case ncclFloat16:
    return sum<uint16_t, float>(sources, number, to, count, f16ToF32, f32ToF16);
  case ncclBfloat16:
    return sum<uint16_t, float>(sources, number, to, count, bf16ToF32,
                                f32ToBf16);
  case ncclFloat32:
    return sum<float, float>(sources, number, to, count, same, same);
  case ncclFloat64:
    return sum<double, double>(sources, number, to, count, same, same);
  }
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

/// Elements that each rank offers in all.
static uint64_t offeredBy(const Operation &op) {
  return op.kind == Kind::ReduceScatter
             ? op.count * static_cast<uint64_t>(op.comm->ranks)
             : op.count;
}

static uint64_t pieceOf(const Operation &op) {
  uint64_t left = offeredBy(op) - op.at, most = slotBytes / sizeOf(op.type);
  return left < most ? left : most;
}

template <typename T = char> static T *pointer(uint64_t address) {
  return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}

static void offer(Operation &op) {
  ncclComm_t comm = op.comm;
  Place &mine = comm->place(comm->rank);
  uint64_t size = sizeOf(op.type), slot = comm->pieces % 2;
  mine.descriptors[slot] = {op.number, op.kind, op.type,       op.root,
                            op.count,  op.at,   op.registered, op.offset};
  if (op.kind != Kind::Broadcast || op.root == comm->rank)
    memcpy(mine.slots[slot], pointer(op.from + op.at * size),
           pieceOf(op) * size);
  mine.offered.store(comm->pieces + 1, std::memory_order_release);
  op.offered = true;
}

static void appendDescriptor(Text &text, int rank, const Descriptor &one) {
  auto number = [](uint64_t value) {
    return static_cast<unsigned long long>(value);
  };
  text.format("rank %d does %s of %llu elements of type %u, root %d, element "
              "%llu, as number %llu",
              rank, nameOf(one.kind), number(one.count),
              static_cast<unsigned>(one.type), one.root, number(one.begin),
              number(one.operation));
  if (one.registered)
    text.format(", registered (%llu, at %llu)", number(one.registered),
                number(one.offset));
}

/// All ranks have offered a piece of the same.
static bool isSame(const Operation &op, char *report, uint64_t reportBytes) {
  const ncclComm_t comm = op.comm;
  uint64_t slot = comm->pieces % 2;
  const Descriptor &mine = comm->place(comm->rank).descriptors[slot];
  for (int i = 0; i < comm->ranks; ++i) {
    const Descriptor &other = comm->place(i).descriptors[slot];
    if (mine.operation == other.operation && mine.kind == other.kind &&
        mine.type == other.type && mine.root == other.root &&
        mine.count == other.count && mine.begin == other.begin &&
        mine.registered == other.registered && mine.offset == other.offset)
      continue;
    Text text;
    text.append("ranks of a communicator differ: ");
    appendDescriptor(text, comm->rank, mine);
    text.append("; ");
    appendDescriptor(text, i, other);
    snprintf(report, reportBytes, "%s", text.c_str());
    return false;
  }
  return true;
}

/// Does what the collective does to what this rank gets of the piece.
static void take(const Operation &op) {
  const ncclComm_t comm = op.comm;
  uint64_t size = sizeOf(op.type), count = pieceOf(op), slot = comm->pieces % 2;
  auto rank = static_cast<uint64_t>(comm->rank);
  const char *sources[maxRanks];
  for (int i = 0; i < comm->ranks; ++i)
    sources[i] = comm->place(i).slots[slot];
  switch (op.kind) {
  case Kind::AllReduce:
    return sumOf(op.type, sources, comm->ranks, pointer(op.to + op.at * size),
                 count);
  case Kind::ReduceScatter: {
    uint64_t begin = rank * op.count, end = begin + op.count;
    uint64_t first = op.at > begin ? op.at : begin;
    uint64_t last = op.at + count < end ? op.at + count : end;
    if (first >= last)
      return;
    for (int i = 0; i < comm->ranks; ++i)
      sources[i] += (first - op.at) * size;
    return sumOf(op.type, sources, comm->ranks,
                 pointer(op.to + (first - begin) * size), last - first);
  }
  case Kind::AllGather:
    for (int i = 0; i < comm->ranks; ++i)
      memcpy(
          pointer(op.to + (static_cast<uint64_t>(i) * op.count + op.at) * size),
          sources[i], count * size);
    return;
  case Kind::Broadcast:
    memcpy(pointer(op.to + op.at * size), sources[op.root], count * size);
    return;
  }
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

static void begin(Operation &op) {
  uint64_t number = fakeNccl.performed++;
  double value = 0;
  op.begun = true;
  op.number = op.comm->operations++;
  if (hasFault(Fault::Die, nullptr, number))
    kill(getpid(), SIGKILL);
  if (hasFault(Fault::Fail, nullptr, number, &value)) {
    op.comm->failure = static_cast<ncclResult_t>(static_cast<unsigned>(value));
    snprintf(fakeNccl.error, sizeof(fakeNccl.error), "%s failed as asked for",
             nameOf(op.kind));
    op.stuck = true;
  }
  op.stuck |= hasFault(Fault::Hang, nullptr, number);
  if (hasFault(Fault::Delay, nullptr, number, &value))
    op.notBefore =
        nowNs() + static_cast<uint64_t>(value * static_cast<double>(secondNs));
}

/// Have all ranks reached `number` by this counter? Lets others run meanwhile, but not
/// for long.
template <typename Counter>
static bool await(const ncclComm_t comm, Counter counter, uint64_t number) {
  for (int tries = 0; tries < 20; ++tries) {
    bool all = true;
    for (int i = 0; i < comm->ranks; ++i)
      all = all && counter(comm->place(i)) >= number;
    if (all)
      return true;
    sched_yield();
  }
  return false;
}

int trainc::cuda::perform(void *operation, char *report, uint64_t reportBytes) {
  auto &op = *static_cast<Operation *>(operation);
  ncclComm_t comm = op.comm;
  if (comm->aborted)
    return TRAINC_FAKE_CUDA_DONE;
  if (!op.begun)
    begin(op);
  if (op.stuck || nowNs() < op.notBefore)
    return TRAINC_FAKE_CUDA_AGAIN;
  auto offered = [](const Place &place) {
    return place.offered.load(std::memory_order_acquire);
  };
  auto taken = [](const Place &place) {
    return place.taken.load(std::memory_order_acquire);
  };
  do {
    if (!op.offered) {
      // The slot is that of the piece before the last.
      if (comm->pieces > 1 && !await(comm, taken, comm->pieces - 1))
        return TRAINC_FAKE_CUDA_AGAIN;
      offer(op);
    }
    if (!await(comm, offered, comm->pieces + 1))
      return TRAINC_FAKE_CUDA_AGAIN;
    if (!isSame(op, report, reportBytes))
      return TRAINC_FAKE_CUDA_FAILED;
    take(op);
    op.at += pieceOf(op);
    op.offered = false;
    ++comm->pieces;
    comm->place(comm->rank)
        .taken.store(comm->pieces, std::memory_order_release);
  } while (op.at < offeredBy(op));
  ++fakeNccl.counts.done[static_cast<unsigned>(op.kind)];
  fakeNccl.counts.registered += op.registered != 0;
  return TRAINC_FAKE_CUDA_DONE;
}
