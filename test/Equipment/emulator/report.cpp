//===- report.cpp - What faults say ---------------------------------------===//
#include "machine.h"
#include <stdarg.h>
#include <stdio.h>

using namespace trainc::emu;

static void sayList(trainc_emu &device, const char *format, va_list list) {
  size_t used = strlen(device.report);
  vsnprintf(device.report + used, sizeof(device.report) - used, format, list);
}

void trainc::emu::say(trainc_emu &device, const char *format, ...) {
  va_list list;
  va_start(list, format);
  sayList(device, format, list);
  va_end(list);
}

trainc_emu_status trainc::emu::refuse(trainc_emu &device,
                                      trainc_emu_status status,
                                      const char *format, ...) {
  device.report[0] = 0;
  va_list list;
  va_start(list, format);
  sayList(device, format, list);
  va_end(list);
  return device.status = status;
}

void trainc::emu::sayThread(trainc_emu &device, uint32_t index) {
  const uint32_t *block = device.launch.block;
  say(device, "thread (%u,%u,%u)", index % block[0],
      index / block[0] % block[1], index / block[0] / block[1]);
}

void trainc::emu::sayBlock(trainc_emu &device, uint32_t place) {
  uint32_t index = device.launch.order[place];
  const uint32_t *grid = device.launch.grid;
  say(device, "block (%u,%u,%u)", index % grid[0], index / grid[0] % grid[1],
      index / grid[0] / grid[1]);
}

static void sayWhere(trainc_emu &device) {
  const uint32_t *at = device.launch.blockIndex;
  say(device, "  kernel %s, block (%u,%u,%u)", device.launch.kernel->name,
      at[0], at[1], at[2]);
}

void trainc::emu::beginFault(trainc_emu_status status, const char *title) {
  trainc_emu &device = *machine;
  device.status = status;
  device.report[0] = 0;
  say(device, "%s\n", title);
  sayWhere(device);
  say(device, ", ");
  sayThread(device, device.current->index);
  if (device.site)
    say(device, ", at %s", device.launch.module->image->sites[device.site]);
  say(device, "\n");
}

void trainc::emu::endFault() {
  trainc_emu &device = *machine;
  // Nobody switches back: the block is given up.
  trainc_emu_switch(&device.current->stackPointer, device.scheduler);
  abort();
}

/// Says where `address` is, seen from one that a variable or allocation begins at.
static void sayOffset(trainc_emu &device, const char *kind, const char *name,
                      uint64_t size, int64_t offset) {
  if (offset < 0)
    say(device, "%lld bytes before %s '%s' of %llu bytes",
        static_cast<long long>(-offset), kind, name,
        static_cast<unsigned long long>(size));
  else if (static_cast<uint64_t>(offset) < size)
    say(device, "byte %lld of %s '%s' of %llu bytes",
        static_cast<long long>(offset), kind, name,
        static_cast<unsigned long long>(size));
  else
    say(device, "%llu bytes behind %s '%s' of %llu bytes",
        static_cast<unsigned long long>(offset - size), kind, name,
        static_cast<unsigned long long>(size));
}

/// The distance of an address from a range; 0 inside.
static uint64_t distance(uint64_t address, uint64_t base, uint64_t bytes) {
  if (address < base)
    return base - address;
  return address < base + bytes ? 0 : address - (base + bytes) + 1;
}

static void sayShared(trainc_emu &device, uintptr_t address) {
  const trainc_emu_image *image = device.launch.module->image;
  uint64_t offset = address - device.sharedRegion.base;
  const trainc_emu_variable *best = nullptr;
  uint64_t nearest = UINT64_MAX, size = 0;
  for (uint32_t i = 0; i < image->shared_count; ++i) {
    const trainc_emu_variable &variable = image->shared[i];
    uint64_t bytes =
        variable.bytes ? variable.bytes : device.launch.dynamicBytes;
    uint64_t away = distance(offset, variable.offset, bytes);
    if (away < nearest) {
      nearest = away;
      best = &variable;
      size = bytes;
    }
  }
  if (best)
    sayOffset(device, "shared variable", best->name, size,
              static_cast<int64_t>(offset - best->offset));
  else
    say(device, "shared memory, of which the kernel has none");
}

void trainc::emu::sayAddress(trainc_emu &device, uintptr_t address,
                             size_t bytes) {
  say(device, "  %zu bytes at 0x%llx: ", bytes,
      static_cast<unsigned long long>(address));
  const Region &shared = device.sharedRegion;
  if (address - shared.base < shared.bytes) {
    sayShared(device, address);
    say(device, "\n");
    return;
  }
  const Region *best = nullptr;
  uint64_t nearest = UINT64_MAX;
  for (size_t i = 0; i < device.regions.size; ++i) {
    const Region &region = device.regions[i];
    uint64_t away = distance(address, region.base, region.bytes);
    if (away < nearest) {
      nearest = away;
      best = &region;
    }
  }
  if (best && nearest < (1u << 20))
    sayOffset(
        device,
        best->kind == RegionKind::Variable ? "module variable" : "allocation",
        best->name, best->bytes, static_cast<int64_t>(address - best->base));
  else
    say(device, "near no allocation");
  say(device, "\n");
}

static void sayState(trainc_emu &device, const Thread &thread) {
  switch (thread.state) {
  case State::New:
  case State::Ready:
    say(device, "can run");
    break;
  case State::Barrier:
    say(device, "waits at the barrier");
    break;
  case State::Warp:
    say(device, "waits at %s with mask 0x%08x", thread.lane->name,
        thread.lane->mask);
    break;
  case State::Exited:
    say(device, "has exited");
    break;
  }
}

static bool sameState(const Thread &a, const Thread &b) {
  if (a.state != b.state)
    return false;
  return a.state != State::Warp || (a.lane->operation == b.lane->operation &&
                                    a.lane->mask == b.lane->mask);
}

void trainc::emu::sayThreads(trainc_emu &device) {
  constexpr int kMost = 12;
  uint32_t count = device.launch.threads;
  int lines = 0;
  for (uint32_t first = 0; first < count;) {
    uint32_t last = first;
    while (last + 1 < count &&
           sameState(device.threads[first], device.threads[last + 1]))
      ++last;
    if (++lines > kMost) {
      say(device, "  ...\n");
      return;
    }
    if (first == last)
      say(device, "  thread %u of the block ", first);
    else
      say(device, "  each of threads %u to %u of the block ", first, last);
    sayState(device, device.threads[first]);
    say(device, "\n");
    first = last + 1;
  }
}

void trainc::emu::reportDeadlock(trainc_emu &device) {
  const Thread *waiting = nullptr;
  for (uint32_t i = 0; i < device.launch.threads; ++i) {
    const Thread &thread = device.threads[i];
    // A warp operation that cannot happen is the cause of barriers that do not.
    if (thread.state == State::Warp) {
      waiting = &thread;
      break;
    }
    if (thread.state == State::Barrier && !waiting)
      waiting = &thread;
  }
  device.status = TRAINC_EMU_DEADLOCK;
  device.report[0] = 0;
  if (waiting->state == State::Warp)
    say(device, "%s whose mask names a thread that never arrives\n",
        waiting->lane->name);
  else
    say(device, "barrier that some threads never reach\n");
  sayWhere(device);
  say(device, ", ");
  sayThread(device, waiting->index);
  say(device, "\n");
  if (waiting->state == State::Barrier) {
    say(device, "  %u of %u threads arrived\n", device.arrived,
        device.launch.threads);
  }
  sayThreads(device);
}
