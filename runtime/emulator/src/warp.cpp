//===- warp.cpp - Barriers and warp operations ----------------------------===//
#include "calls.h"
#include "machine.h"

using namespace trainc::emu;

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// After a barrier of some threads, each knows what all of them did and knew.
static void orderThreads(trainc_emu &device, uint32_t number) {
  Launch &launch = device.launch;
  uint32_t now = ++device.now;
  uint32_t known[kMaxThreads / kWarp] = {};
  uint32_t warps[kMaxThreads / kWarp] = {}; // lanes that take part
  for (uint32_t i = 0; i < launch.threads; ++i) {
    const Thread &thread = device.threads[i];
    if (thread.state != State::Barrier || thread.barrier != number)
      continue;
    warps[i / kWarp] |= 1u << i % kWarp;
    for (uint32_t w = 0; w < launch.warps; ++w)
      if (thread.warps[w] > known[w])
        known[w] = thread.warps[w];
  }
  for (uint32_t w = 0; w < launch.warps; ++w) {
    uint32_t lanes = launch.threads - w * kWarp;
    if (warps[w] == (lanes >= kWarp ? ~0u : (1u << lanes) - 1))
      known[w] = now;
  }
  for (uint32_t i = 0; i < launch.threads; ++i) {
    Thread &thread = device.threads[i];
    if (thread.state != State::Barrier || thread.barrier != number)
      continue;
    memcpy(thread.warps, known, sizeof(known));
    for (uint32_t lane = 0; lane < kWarp; ++lane)
      if (warps[i / kWarp] >> lane & 1)
        thread.lanes[lane] = now;
    thread.stamp = now;
  }
}

/// All threads of a warp execute the same bar.sync, or none. Those that wait were
/// compared with each other, so the last of them stands for all.
static void checkAligned(Thread &thread, uint32_t number) {
  trainc_emu &device = *machine;
  Thread *&last = device.atBarrier[thread.index / kWarp];
  const Thread *peer = last;
  last = &thread;
  if (!peer || peer->state != State::Barrier ||
      (peer->barrier == number && peer->site == thread.site))
    return;
  beginFault(TRAINC_EMU_BAD_BARRIER,
             "barrier that threads of a warp reach at different places");
  say(device, "  this thread is at barrier %u; ", number);
  sayThread(device, peer->index);
  say(device, " waits at barrier %u, elsewhere in the code\n", peer->barrier);
  endFault();
}

uint32_t trainc_emu_barrier(uint32_t how, uint32_t aligned, uint32_t number,
                            uint32_t threads, uint32_t value) {
  trainc_emu &device = *machine;
  Launch &launch = device.launch;
  Thread &thread = *device.current;
  bool all = threads == UINT32_MAX;
  uint32_t expected = all ? launch.threads : threads;
  if (number >= kBarriers) {
    beginFault(TRAINC_EMU_BAD_BARRIER, "barrier that does not exist");
    say(device, "  its number is %u, of %u\n", number, kBarriers);
    endFault();
  }
  if (!all && (threads % kWarp || threads == 0 || threads > launch.threads)) {
    beginFault(TRAINC_EMU_BAD_BARRIER, "barrier of a wrong number of threads");
    say(device, "  barrier %u of %u threads; a block has %u, a warp 32\n",
        number, threads, launch.threads);
    endFault();
  }
  thread.site = __builtin_return_address(0);
  if (aligned)
    checkAligned(thread, number);
  Barrier &barrier = device.barriers[number];
  if (barrier.arrived == 0) {
    barrier.expected = expected;
    barrier.how = how;
    barrier.sum = 0;
  } else if (barrier.expected != expected || barrier.how != how) {
    beginFault(TRAINC_EMU_BAD_BARRIER, "barrier at which threads disagree");
    say(device,
        "  barrier %u: this thread waits for %u threads, others for %u%s\n",
        number, expected, barrier.expected,
        barrier.how != how ? ", or reduces differently" : "");
    endFault();
  }
  ++device.counts.barriers;
  barrier.sum += value != 0;
  thread.state = State::Barrier;
  thread.barrier = number;
  if (++barrier.arrived < expected) {
    suspend();
    return device.barriers[number].result;
  }
  switch (how) {
  case TRAINC_EMU_BARRIER_AND:
    barrier.result = barrier.sum == expected;
    break;
  case TRAINC_EMU_BARRIER_OR:
    barrier.result = barrier.sum != 0;
    break;
  default:
    barrier.result = barrier.sum;
  }
  barrier.arrived = 0;
  if (expected == launch.threads) {
    launch.barrierStamp = ++device.now;
    for (uint32_t i = 0; i < launch.threads; ++i) {
      device.threads[i].stamp = device.now;
      makeReady(device.threads[i]);
    }
  } else {
    orderThreads(device, number);
    for (uint32_t i = 0; i < launch.threads; ++i)
      if (device.threads[i].state == State::Barrier &&
          device.threads[i].barrier == number)
        makeReady(device.threads[i]);
  }
  // The last one goes on at once.
  device.ready[thread.index / kWarp] &= ~(1u << thread.index % kWarp);
  return barrier.result;
}

//===----------------------------------------------------------------------===//
// Where lanes meet
//===----------------------------------------------------------------------===//

[[noreturn]] static void faultMask(const Lane &lane, const char *what,
                                   uint32_t other, const char *state) {
  trainc_emu &device = *machine;
  char title[160];
  title[0] = 0;
  strncat(title, lane.name, 40);
  strncat(title, " whose mask ", 20);
  strncat(title, what, 90);
  beginFault(TRAINC_EMU_BAD_MASK, title);
  say(device, "  mask 0x%08x; lane %u%s\n", lane.mask, other, state);
  endFault();
}

/// After an operation that orders, each lane knows what all lanes of the mask did
/// and knew.
static void orderLanes(Thread *warp, uint32_t mask) {
  trainc_emu &device = *machine;
  uint32_t now = ++device.now;
  uint32_t lanes[kWarp] = {}, warps[kMaxThreads / kWarp] = {};
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Thread &thread = warp[__builtin_ctz(rest)];
    for (uint32_t i = 0; i < kWarp; ++i) {
      lanes[i] = thread.lanes[i] > lanes[i] ? thread.lanes[i] : lanes[i];
      warps[i] = thread.warps[i] > warps[i] ? thread.warps[i] : warps[i];
    }
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    lanes[__builtin_ctz(rest)] = now;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Thread &thread = warp[__builtin_ctz(rest)];
    memcpy(thread.lanes, lanes, sizeof(lanes));
    memcpy(thread.warps, warps, sizeof(warps));
    thread.stamp = now;
  }
}

/// Finds the lanes that wait for this one. False if some wait at another place.
static bool gather(const Lane &lane, const Thread *warp, uint32_t self,
                   Lane **lanes) {
  trainc_emu &device = *machine;
  bool complete = true;
  for (uint32_t rest = lane.mask & ~(1u << self); rest; rest &= rest - 1) {
    uint32_t other = static_cast<uint32_t>(__builtin_ctz(rest));
    Lane *theirs = warp[other].lane;
    lanes[other] = theirs;
    bool same =
        theirs->operation == lane.operation && theirs->mask == lane.mask;
    if (same && theirs->detail == lane.detail)
      continue;
    complete = false;
    // Each waits for the other at another place: neither can ever go on.
    if (theirs->mask >> self & 1) {
      beginFault(TRAINC_EMU_BAD_MASK, "warp operation at which lanes disagree");
      say(device, "  this lane is at %s with mask 0x%08x\n", lane.name,
          lane.mask);
      say(device, "  lane %u is at %s with mask 0x%08x%s\n", other,
          theirs->name, theirs->mask, same ? ", of another kind" : "");
      endFault();
    }
  }
  return complete;
}

void trainc::emu::meet(Lane &lane) {
  trainc_emu &device = *machine;
  Thread &thread = *device.current;
  uint32_t self = thread.index % kWarp, first = thread.index - self;
  uint32_t warpIndex = first / kWarp, others = lane.mask & ~(1u << self);
  uint32_t count = device.launch.threads - first;
  uint32_t exist = count >= kWarp ? ~0u : (1u << count) - 1;
  Thread *warp = device.threads + first;
  ++device.counts.warp_operations;
  if (!(lane.mask >> self & 1))
    faultMask(lane, "does not name the thread itself", self, " executes it");
  if (uint32_t absent = others & ~exist)
    faultMask(lane, "names a thread that does not exist",
              static_cast<uint32_t>(__builtin_ctz(absent)),
              " is beyond the block");
  if (uint32_t gone = others & device.exited[warpIndex])
    faultMask(lane, "names a thread that has exited",
              static_cast<uint32_t>(__builtin_ctz(gone)), " has exited");
  Lane *lanes[kWarp] = {};
  lanes[self] = &lane;
  thread.lane = &lane;
  thread.state = State::Warp;
  if (others & ~device.meeting[warpIndex] || !gather(lane, warp, self, lanes)) {
    device.meeting[warpIndex] |= 1u << self;
    suspend();
    return;
  }
  device.meeting[warpIndex] &= ~lane.mask;
  if (lane.orders)
    orderLanes(warp, lane.mask);
  lane.operation(lanes, lane.mask);
  for (uint32_t rest = lane.mask; rest; rest &= rest - 1)
    makeReady(warp[__builtin_ctz(rest)]);
  device.ready[warpIndex] &= ~(1u << self);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void trainc_emu_warp_sync(uint32_t mask) {
  Lane lane = makeLane([](Lane **, uint32_t) {}, "bar.warp.sync", mask, 0);
  lane.orders = true;
  meet(lane);
}

/// The lane that lane `self` reads, by the rules of shfl.sync: `c` holds the clamp
/// and, from bit 8, the mask that divides the warp into segments.
static uint32_t sourceLane(uint32_t mode, uint32_t self, uint32_t b, uint32_t c,
                           bool &inRange) {
  uint32_t clamp = c & 31, segments = c >> 8 & 31;
  uint32_t most = (self & segments) | (clamp & ~segments);
  uint32_t least = self & segments;
  uint32_t from = 0;
  b &= 31;
  switch (mode) {
  case TRAINC_EMU_SHUFFLE_UP:
    from = self - b;
    inRange = static_cast<int32_t>(from) >= static_cast<int32_t>(most);
    break;
  case TRAINC_EMU_SHUFFLE_DOWN:
    from = self + b;
    inRange = from <= most;
    break;
  case TRAINC_EMU_SHUFFLE_BFLY:
    from = self ^ b;
    inRange = from <= most;
    break;
  default:
    from = least | (b & ~segments);
    inRange = from <= most;
  }
  return inRange ? from : self;
}

static void shuffleLanes(Lane **lanes, uint32_t mask) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t self = static_cast<uint32_t>(__builtin_ctz(rest));
    Lane &lane = *lanes[self];
    bool inRange = false;
    uint32_t from = sourceLane(lane.detail, self, lane.b, lane.c, inRange);
    if (!(mask >> from & 1)) {
      // The report is of the lane that reads.
      machine->current =
          machine->current - machine->current->index % kWarp + self;
      faultMask(lane, "does not name the thread that is read", from,
                " is read");
    }
    lane.result = static_cast<uint32_t>(lanes[from]->value) |
                  static_cast<uint64_t>(inRange) << 32;
  }
}

uint64_t trainc_emu_shuffle(uint32_t mode, uint32_t mask, uint32_t value,
                            uint32_t b, uint32_t c) {
  static const char *const kNames[] = {"shfl.sync.idx", "shfl.sync.up",
                                       "shfl.sync.down", "shfl.sync.bfly"};
  Lane lane = makeLane(shuffleLanes, kNames[mode & 3], mask, mode);
  lane.orders = true;
  lane.value = value;
  lane.b = b;
  lane.c = c;
  meet(lane);
  return lane.result;
}

static void voteLanes(Lane **lanes, uint32_t mask) {
  uint32_t votes = 0, result = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t self = static_cast<uint32_t>(__builtin_ctz(rest));
    votes |= static_cast<uint32_t>(lanes[self]->value) << self;
  }
  switch (lanes[__builtin_ctz(mask)]->detail) {
  case TRAINC_EMU_VOTE_ALL:
    result = votes == mask;
    break;
  case TRAINC_EMU_VOTE_ANY:
    result = votes != 0;
    break;
  case TRAINC_EMU_VOTE_UNI:
    result = votes == mask || votes == 0;
    break;
  default:
    result = votes;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    lanes[__builtin_ctz(rest)]->result = result;
}

uint32_t trainc_emu_vote(uint32_t how, uint32_t mask, uint32_t predicate) {
  Lane lane = makeLane(voteLanes, "vote.sync", mask, how);
  lane.value = predicate != 0;
  meet(lane);
  return static_cast<uint32_t>(lane.result);
}

static void matchLanes(Lane **lanes, uint32_t mask) {
  uint32_t first = static_cast<uint32_t>(__builtin_ctz(mask));
  bool all = true;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Lane &lane = *lanes[__builtin_ctz(rest)];
    uint32_t same = 0;
    for (uint32_t others = mask; others; others &= others - 1)
      if (lanes[__builtin_ctz(others)]->value == lane.value)
        same |= others & (0u - others);
    lane.result = same;
    all = all && same == mask;
  }
  if (lanes[first]->detail == TRAINC_EMU_MATCH_ALL)
    for (uint32_t rest = mask; rest; rest &= rest - 1)
      lanes[__builtin_ctz(rest)]->result = all ? mask | uint64_t(1) << 32 : 0;
}

uint64_t trainc_emu_match(uint32_t how, uint32_t mask, uint64_t value) {
  Lane lane = makeLane(matchLanes, "match.sync", mask, how);
  lane.value = value;
  meet(lane);
  return lane.result;
}

static uint32_t combine(uint32_t how, uint32_t a, uint32_t b) {
  int32_t signedA = static_cast<int32_t>(a), signedB = static_cast<int32_t>(b);
  switch (how) {
  case TRAINC_EMU_REDUX_ADD:
    return a + b;
  case TRAINC_EMU_REDUX_UMIN:
    return a < b ? a : b;
  case TRAINC_EMU_REDUX_UMAX:
    return a > b ? a : b;
  case TRAINC_EMU_REDUX_MIN:
    return signedA < signedB ? a : b;
  case TRAINC_EMU_REDUX_MAX:
    return signedA > signedB ? a : b;
  case TRAINC_EMU_REDUX_AND:
    return a & b;
  case TRAINC_EMU_REDUX_OR:
    return a | b;
  default:
    return a ^ b;
  }
}

static void reduxLanes(Lane **lanes, uint32_t mask) {
  const Lane &first = *lanes[__builtin_ctz(mask)];
  uint32_t result = static_cast<uint32_t>(first.value);
  for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1)
    result = combine(first.detail, result,
                     static_cast<uint32_t>(lanes[__builtin_ctz(rest)]->value));
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    lanes[__builtin_ctz(rest)]->result = result;
}

uint32_t trainc_emu_redux(uint32_t how, uint32_t mask, uint32_t value) {
  Lane lane = makeLane(reduxLanes, "redux.sync", mask, how);
  lane.value = value;
  meet(lane);
  return static_cast<uint32_t>(lane.result);
}

static void electLane(Lane **lanes, uint32_t mask) {
  uint32_t elected = static_cast<uint32_t>(__builtin_ctz(mask));
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t self = static_cast<uint32_t>(__builtin_ctz(rest));
    lanes[self]->result = elected | static_cast<uint64_t>(self == elected)
                                        << 32;
  }
}

uint64_t trainc_emu_elect(uint32_t mask) {
  Lane lane = makeLane(electLane, "elect.sync", mask, 0);
  meet(lane);
  return lane.result;
}
