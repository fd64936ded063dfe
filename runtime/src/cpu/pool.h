//===- pool.h - Running tiles on threads ------------------------*- C++ -*-===//
//
// A pool of threads of which the caller is one. Tiles of a job are claimed one
// chunk at a time from an atomic counter; nothing a tile computes may depend on
// which thread runs it. Idle workers spin for a while, then sleep in the
// kernel.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_POOL_H
#define TRAINC_CPU_POOL_H

#include "core/status.h"
#include <atomic>
#include <pthread.h>

namespace trainc {

/// `worker` is below Pool::size() and held by one thread at a time.
typedef void (*TileFn)(void *argument, int64_t tile, unsigned worker);

/// While alive, this thread computes in the default floating-point environment
/// (nearest even, denormals kept), whatever the program has set.
class DefaultFloats {
public:
  DefaultFloats() : saved(__builtin_ia32_stmxcsr()) {
    if (saved != 0x1F80)
      __builtin_ia32_ldmxcsr(0x1F80);
  }
  ~DefaultFloats() {
    if (saved != 0x1F80)
      __builtin_ia32_ldmxcsr(saved);
  }
  DefaultFloats(const DefaultFloats &) = delete;
  DefaultFloats &operator=(const DefaultFloats &) = delete;

private:
  unsigned saved;
};

class Pool {
public:
  ~Pool() { stop(); }

  /// `threads` with the caller's. With `parallelFor`, starts none and runs
  /// tiles through it, at most `threads` at a time.
  trainc_status start(unsigned threads, bool pin,
                      trainc_parallel_for_fn parallelFor, void *context);

  unsigned size() const { return threads; }

  /// Calls function(argument, tile, worker) for each tile in [0, count), and
  /// returns when all have returned. count < 2^31.
  void run(TileFn function, void *argument, int64_t count) {
    if (count == 1)
      return function(argument, 0, 0);
    if (threads == 1) {
      for (int64_t tile = 0; tile < count; ++tile)
        function(argument, tile, 0);
      return;
    }
    dispatch(function, argument, count);
  }

private:
  struct Worker {
    Pool *pool;
    pthread_t thread;
    unsigned index;
    int processor; // -1: not bound
  };

  void dispatch(TileFn function, void *argument, int64_t count);
  void runCaller(int64_t chunks);
  bool claim(unsigned worker);
  void work(const Worker &worker);
  void stop();

  unsigned threads = 1;
  int spins = 0;
  trainc_parallel_for_fn parallelFor = nullptr;
  void *context = nullptr;
  Array<Worker *> workers;
  std::atomic<bool> stopping{false};

  // The job. Written by the caller while no chunk is unfinished; a claim is
  // good only if `ticket` still has the epoch under which the job was read.
  alignas(64) std::atomic<uint64_t> ticket{0}; // epoch << 32 | next chunk
  std::atomic<TileFn> function{nullptr};
  std::atomic<void *> argument{nullptr};
  std::atomic<int64_t> count{0}, chunk{1};
  alignas(64) std::atomic<uint32_t> epoch{0}; // futex word of the workers
  std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint32_t> done{0}; // chunks; futex word of the caller
  std::atomic<uint32_t> callerSleeps{0};
};

} // namespace trainc

#endif // TRAINC_CPU_POOL_H
