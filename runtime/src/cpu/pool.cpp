//===- pool.cpp - Running tiles on threads --------------------------------===//

#include "cpu/pool.h"
#include "cpu/features.h"
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace trainc;

static void futexWait(std::atomic<uint32_t> &word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE,
          value, nullptr, nullptr, 0);
}
static void futexWake(std::atomic<uint32_t> &word, int waiters) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE,
          waiters, nullptr, nullptr, 0);
}

/// Enough to even out, few enough that claiming costs nothing.
static constexpr int64_t chunksPerThread = 32;
static_assert(chunksPerThread * Pool::mostParts < 256, "see Share");

/// About 1 ms of spinning on current processors. During a step a worker should
/// not fall asleep, not even while one thread runs a command alone: to wake it
/// takes 50 us. Between two steps it may.
static constexpr int idleSpins = 20000;

trainc_status Pool::start(unsigned count, bool pin,
                          trainc_parallel_for_fn callersFor,
                          void *callersContext) {
  threads = count;
  parallelFor = callersFor;
  context = callersContext;
  if (threads == 1)
    return TRAINC_OK;
  void *memory = aligned_alloc(alignof(Share), threads * sizeof(Share));
  if (!memory)
    return fail(TRAINC_OUT_OF_MEMORY, "no memory for %u threads", threads);
  shares = new (memory) Share[threads];
  if (parallelFor)
    return TRAINC_OK;
  // Spinning threads without a processor of their own only steal time.
  spins = threads <= availableProcessors() ? idleSpins : 0;

  cpu_set_t available;
  CPU_ZERO(&available);
  pin = pin && sched_getaffinity(0, sizeof(available), &available) == 0;
  int processor = -1;
  // The threads must not take signals that the program handles.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int error = 0;
  for (unsigned i = 0; i < threads; ++i) {
    if (pin) {
      do
        processor = (processor + 1) % CPU_SETSIZE;
      while (!CPU_ISSET(processor, &available));
    }
    if (i == 0)
      continue; // the caller's thread is the caller's to bind
    auto *worker = create<Worker>();
    *worker = {this, {}, i, pin ? processor : -1};
    error = pthread_create(
        &worker->thread, nullptr,
        [](void *argument) -> void * {
          auto *self = static_cast<Worker *>(argument);
          self->pool->work(*self);
          return nullptr;
        },
        worker);
    if (error) {
      destroy(worker);
      break;
    }
    workers.push(worker);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error) {
    size_t failing = workers.size() + 2; // the caller's is the first
    stop();
    return fail(TRAINC_OUT_OF_MEMORY, "cannot start thread %zu of %u: %s",
                failing, count, errnoText(error));
  }
  return TRAINC_OK;
}

void Pool::stop() {
  stopping.store(true, std::memory_order_relaxed);
  epoch.fetch_add(1, std::memory_order_release);
  futexWake(epoch, INT32_MAX);
  for (Worker *worker : workers) {
    pthread_join(worker->thread, nullptr);
    destroy(worker);
  }
  workers.clear();
  free(shares);
  shares = nullptr;
  threads = 1;
}

namespace {
/// A part of a job, in chunks of tiles.
struct Chunks {
  void *argument;
  int64_t tiles, chunk;

  int64_t count() const { return (tiles + chunk - 1) / chunk; }
  /// Where the share of a thread begins.
  int64_t share(int64_t thread, int64_t threads) const {
    return thread * count() / threads;
  }
  void run(TileFn function, int64_t index, unsigned worker) const {
    int64_t begin = index * chunk;
    int64_t end = begin + chunk < tiles ? begin + chunk : tiles;
    for (int64_t tile = begin; tile < end; ++tile)
      function(argument, tile, worker);
  }
};
} // namespace

/// Runs chunks of the job until none is left to claim; returns how many.
uint32_t Pool::runShares(uint64_t job, unsigned worker) {
  TileFn jobFunction = function.load(std::memory_order_relaxed);
  unsigned count = numParts.load(std::memory_order_relaxed);
  Chunks chunks[mostParts];
  for (unsigned i = 0; i < count; ++i)
    chunks[i] = {parts[i].argument.load(std::memory_order_relaxed),
                 parts[i].count.load(std::memory_order_relaxed),
                 parts[i].chunk.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (next.load(std::memory_order_relaxed) != job)
    return 0; // it is over, and what was read may be a mixture
  uint32_t finished = 0;
  for (unsigned i = 0; i < threads; ++i) {
    unsigned owner = (worker + i) % threads;
    int64_t all = 0;
    for (unsigned p = 0; p < count; ++p)
      all +=
          chunks[p].share(owner + 1, threads) - chunks[p].share(owner, threads);
    std::atomic<uint64_t> &claimed = shares[owner].claimed;
    uint64_t old = claimed.load(std::memory_order_relaxed);
    while (true) {
      if (old >> 16 > job)
        return finished; // it is over
      uint64_t now = old >> 16 == job ? old : job << 16;
      int64_t front = now >> 8 & 255, back = now & 255;
      if (front + back == all)
        break;
      uint64_t then = now + (i == 0 ? 256 : 1);
      if (!claimed.compare_exchange_weak(old, then, std::memory_order_acq_rel))
        continue;
      old = then;
      // Which chunk of which part.
      int64_t index = i == 0 ? front : all - 1 - back;
      const Chunks *part = chunks;
      for (;; ++part) {
        int64_t begin = part->share(owner, threads);
        int64_t size = part->share(owner + 1, threads) - begin;
        if (index < size) {
          part->run(jobFunction, begin + index, worker);
          break;
        }
        index -= size;
      }
      ++finished;
    }
  }
  return finished;
}

void Pool::work(const Worker &worker) {
  DefaultFloats floats;
  if (worker.processor >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(worker.processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  uint32_t seen = 0;
  while (true) {
    uint32_t now = epoch.load(std::memory_order_acquire);
    for (int i = 0; now == seen && i < spins; ++i) {
      relax();
      now = epoch.load(std::memory_order_acquire);
    }
    if (now == seen) {
      // Before the kernel looks at `epoch`; dispatch() looks here after it wrote that.
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      futexWait(epoch, seen);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    seen = now;
    if (stopping.load(std::memory_order_relaxed))
      return;
    uint64_t job = next.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(job) != now)
      continue; // it is over
    if (uint32_t finished = runShares(job, worker.index)) {
      // What it wrote is there for who reads `done`. runCaller() does the reverse.
      done.fetch_add(finished, std::memory_order_seq_cst);
      if (callerSleeps.load(std::memory_order_seq_cst))
        futexWake(done, 1);
    }
  }
}

void Pool::dispatch(TileFn jobFunction, const Part *jobParts, unsigned count) {
  done.store(0, std::memory_order_relaxed);
  uint64_t job = next.load(std::memory_order_relaxed) + 1;
  next.store(job, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  function.store(jobFunction, std::memory_order_relaxed);
  numParts.store(count, std::memory_order_relaxed);
  int64_t chunks = 0, most = chunksPerThread * threads;
  for (unsigned i = 0; i < count; ++i) {
    int64_t tiles = jobParts[i].count;
    int64_t chunk = jobParts[i].whole ? tiles : (tiles + most - 1) / most;
    chunk += chunk == 0; // no tiles
    chunks += (tiles + chunk - 1) / chunk;
    parts[i].argument.store(jobParts[i].argument, std::memory_order_relaxed);
    parts[i].count.store(tiles, std::memory_order_relaxed);
    parts[i].chunk.store(chunk, std::memory_order_relaxed);
  }
  if (!chunks)
    return;

  if (parallelFor) {
    epoch.store(static_cast<uint32_t>(job), std::memory_order_release);
    parallelFor(
        context,
        [](void *argument, int64_t index) {
          DefaultFloats floats;
          auto *pool = static_cast<Pool *>(argument);
          pool->runShares(pool->next.load(std::memory_order_relaxed),
                          static_cast<unsigned>(index));
        },
        this, threads < chunks ? threads : chunks);
    return;
  }
  epoch.store(static_cast<uint32_t>(job), std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst))
    futexWake(epoch, chunks - 1 < INT32_MAX ? static_cast<int>(chunks - 1)
                                            : INT32_MAX);
  runCaller(job, chunks);
}

/// The caller's share of a job, and the wait for the others'.
void Pool::runCaller(uint64_t job, int64_t chunks) {
  uint32_t finished = runShares(job, 0);
  uint32_t all = static_cast<uint32_t>(chunks);
  uint32_t now = done.fetch_add(finished, std::memory_order_acq_rel) + finished;
  for (int i = 0; now != all && i < spins; ++i) {
    relax();
    now = done.load(std::memory_order_acquire);
  }
  while (now != all) {
    callerSleeps.store(1, std::memory_order_seq_cst);
    now = done.load(std::memory_order_seq_cst);
    if (now != all)
      futexWait(done, now);
    callerSleeps.store(0, std::memory_order_relaxed);
    now = done.load(std::memory_order_acquire);
  }
}
