//===- pool.h - Running tiles on threads ------------------------*- C++ -*-===//
//
// A pool of threads of which the caller is one. Each thread has an equal share of
// a job's tiles, in order: where commands follow each other along the rows of
// a tensor, a thread finds in its caches what it wrote before. It claims them
// one chunk at a time, then takes those at the end of others' shares. Of a job in
// parts each has a share of every part, in the parts' order. Nothing a
// tile computes may depend on which thread runs it. Idle workers spin for a
// while, then sleep in the kernel.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_POOL_H
#define TRAINC_CPU_POOL_H

#include "core/status.h"
#include "cpu/processor.h"
#include <atomic>
#include <pthread.h>

namespace trainc {

/// `worker` is below Pool::size() and held by one thread at a time.
typedef void (*TileFn)(void *argument, int64_t tile, unsigned worker);

class Pool {
public:
  /// Tiles of one function that run together with others.
  struct Part {
    void *argument;
    int64_t count; // 0 or more, below 2^31
    bool whole;    // in one piece: there is little to do
  };
  static constexpr unsigned mostParts = 6;

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
    const Part part = {argument, count, false};
    run(function, &part, 1);
  }
  /// The same for up to mostParts parts, all of whose tiles are independent.
  void run(TileFn function, const Part *parts, unsigned numParts) {
    if (threads > 1)
      return dispatch(function, parts, numParts);
    for (unsigned i = 0; i < numParts; ++i)
      for (int64_t tile = 0; tile < parts[i].count; ++tile)
        function(parts[i].argument, tile, 0);
  }

private:
  struct Worker {
    Pool *pool;
    pthread_t thread;
    unsigned index;
    int processor; // -1: not bound
  };

  void dispatch(TileFn function, const Part *parts, unsigned numParts);
  void runCaller(uint64_t job, int64_t chunks);
  uint32_t runShares(uint64_t job, unsigned worker);
  void work(const Worker &worker);
  void stop();

  unsigned threads = 1;
  int spins = 0;
  trainc_parallel_for_fn parallelFor = nullptr;
  void *context = nullptr;
  Array<Worker *> workers;
  std::atomic<bool> stopping{false};

  /// How many of a thread's chunks are claimed: the job << 16 | from the front
  /// << 8 | from the back. Of an earlier job: none of this one.
  struct alignas(64) Share {
    std::atomic<uint64_t> claimed{0};
  };
  Share *shares = nullptr; // by thread

  // The job. Written by the caller while no chunk is unfinished, after its number
  // in `next` and before `epoch`. Who then finds the same number has read it
  // whole. A job of one part is in one cache line, which each worker fetches.
  alignas(64) std::atomic<uint64_t> next{0};
  std::atomic<TileFn> function{nullptr};
  std::atomic<uint32_t> epoch{0}; // of `next`; futex word of the workers
  std::atomic<uint32_t> numParts{0};
  struct {
    std::atomic<void *> argument{nullptr};
    std::atomic<int64_t> count{0}, chunk{1};
  } parts[mostParts];
  alignas(64) std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint32_t> done{0}; // chunks; futex word of the caller
  std::atomic<uint32_t> callerSleeps{0};
};

} // namespace trainc

#endif // TRAINC_CPU_POOL_H
