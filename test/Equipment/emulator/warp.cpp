//===- warp.cpp - Barriers and warp operations ----------------------------===//
#include "calls.h"
#include "machine.h"

using namespace trainc::emu;

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// All threads of a warp execute the same bar.sync, or none. Those that wait were
/// compared with each other, so the last of them stands for all.
static void checkAligned(Thread &thread) {
  trainc_emu &device = *machine;
  Thread *&last = device.atBarrier[thread.index / kWarp];
  const Thread *peer = last;
  last = &thread;
  if (!peer || peer->state != State::Barrier || peer->site == thread.site)
    return;
  beginFault(TRAINC_EMU_BAD_BARRIER,
             "barrier that threads of a warp reach at different places");
  say(device, "  ");
  sayThread(device, peer->index);
  say(device, " waits elsewhere in the code\n");
  endFault();
}

void trainc_emu_barrier() {
  trainc_emu &device = *machine;
  Launch &launch = device.launch;
  Thread &thread = *device.current;
  thread.site = __builtin_return_address(0);
  checkAligned(thread);
  ++device.counts.barriers;
  thread.state = State::Barrier;
  if (++device.arrived < launch.threads) {
    suspend();
    return;
  }
  device.arrived = 0;
  launch.barrierStamp = ++device.now;
  for (uint32_t i = 0; i < launch.threads; ++i) {
    device.threads[i].stamp = device.now;
    makeReady(device.threads[i]);
  }
  // The last one goes on at once.
  device.ready[thread.index / kWarp] &= ~(1u << thread.index % kWarp);
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
  uint32_t lanes[kWarp] = {};
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Thread &thread = warp[__builtin_ctz(rest)];
    for (uint32_t i = 0; i < kWarp; ++i)
      lanes[i] = thread.lanes[i] > lanes[i] ? thread.lanes[i] : lanes[i];
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    lanes[__builtin_ctz(rest)] = now;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Thread &thread = warp[__builtin_ctz(rest)];
    memcpy(thread.lanes, lanes, sizeof(lanes));
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

/// The lane that lane `self` reads, by the rules of shfl.sync.bfly: `clamp` has the
/// last lane and, from bit 8, the mask that divides the warp into segments.
static uint32_t sourceLane(uint32_t self, uint32_t apart, uint32_t clamp,
                           bool &inRange) {
  uint32_t segments = clamp >> 8 & 31;
  uint32_t most = (self & segments) | (clamp & 31 & ~segments);
  uint32_t from = self ^ (apart & 31);
  inRange = from <= most;
  return inRange ? from : self;
}

static void shuffleLanes(Lane **lanes, uint32_t mask) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t self = static_cast<uint32_t>(__builtin_ctz(rest));
    Lane &lane = *lanes[self];
    bool inRange = false;
    uint32_t from = sourceLane(self, lane.apart, lane.clamp, inRange);
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

uint64_t trainc_emu_shuffle(uint32_t mask, uint32_t value, uint32_t apart,
                            uint32_t clamp) {
  Lane lane = makeLane(shuffleLanes, "shfl.sync.bfly", mask, 0);
  lane.orders = true;
  lane.value = value;
  lane.apart = apart;
  lane.clamp = clamp;
  meet(lane);
  return lane.result;
}
