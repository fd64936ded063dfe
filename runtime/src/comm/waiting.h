//===- waiting.h - Clocks, limits and shared counters -----------*- C++ -*-===//
#ifndef TRAINC_COMM_WAITING_H
#define TRAINC_COMM_WAITING_H

#include "core/status.h"
#include <atomic>
#include <time.h>

namespace trainc {

constexpr uint64_t secondNs = 1000 * 1000 * 1000, msNs = 1000 * 1000;

inline uint64_t nowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * secondNs +
         static_cast<uint64_t>(now.tv_nsec);
}
inline void sleepNs(uint64_t ns) {
  timespec time = {static_cast<time_t>(ns / secondNs),
                   static_cast<long>(ns % secondNs)};
  nanosleep(&time, nullptr);
}

/// Until when a wait may last, and what else ends it.
struct Limit {
  uint64_t end = 0; // nowNs
  double seconds = 0;
  /// Not TRAINC_OK: give up. May be null.
  trainc_status (*check)(void *context) = nullptr;
  void *context = nullptr;

  bool isOver() const { return nowNs() >= end; }
  trainc_status giveUp() const { return check ? check(context) : TRAINC_OK; }
};

/// A counter in shared memory: one rank writes it, its host's ranks wait for it.
struct alignas(64) Counter {
  std::atomic<uint32_t> value, waiters;
};

inline bool hasReached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}
inline bool hasReached(const Counter &counter, uint32_t target) {
  return hasReached(counter.value.load(std::memory_order_acquire), target);
}

/// Publishes all that this thread has written before.
void publish(Counter &counter, uint32_t value);

/// Sleeps at most `ns` while the counter is `seen`.
void sleepOn(Counter &counter, uint32_t seen, uint64_t ns);

} // namespace trainc

#endif // TRAINC_COMM_WAITING_H
