// Every tile of all parts of a job runs once, whatever the threads and their order;
// a job may begin while threads that came late still look at the one before. A
// thread runs its own share before others'. Parts, and whole jobs, may have no tiles.
//
// RUN: %cxx -std=c++20 -O1 -g -Wall -Wextra -Werror -fsanitize=thread -I%runtime_src -I%runtime_include %s %runtime_src/cpu/pool.cpp %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "cpu/pool.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

using namespace trainc;

namespace {
constexpr int64_t most = 3000;

struct Part {
  std::atomic<int> runs[most];
  std::atomic<unsigned> wrongWorkers;
  unsigned threads;
};

int failures = 0;

void runOne(void *argument, int64_t tile, unsigned worker) {
  Part &part = *static_cast<Part *>(argument);
  part.runs[tile].fetch_add(1, std::memory_order_relaxed);
  if (worker >= part.threads)
    part.wrongWorkers.fetch_add(1);
  for (int64_t i = tile % 7 * 20; i > 0; --i) // uneven
    relax();
}

void check(Part &part, int64_t count, unsigned threads, int job) {
  for (int64_t tile = 0; tile < most; ++tile) {
    int runs = part.runs[tile].exchange(0, std::memory_order_relaxed);
    if (runs != (tile < count)) {
      printf("%u threads, job %d, %lld tiles: tile %lld ran %d times\n",
             threads, job, static_cast<long long>(count),
             static_cast<long long>(tile), runs);
      ++failures;
    }
  }
  failures += part.wrongWorkers.exchange(0) != 0;
}

void runJobs(unsigned threads, trainc_parallel_for_fn parallelFor, int jobs) {
  Pool pool;
  if (pool.start(threads, /*pin=*/false, parallelFor, nullptr) != TRAINC_OK)
    exit(1);
  static Part parts[Pool::mostParts];
  unsigned state = 1;
  auto random = [&](int64_t below) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % below;
  };
  for (int i = 0; i < jobs; ++i) {
    Pool::Part job[Pool::mostParts];
    // Half of the jobs have one part; mostly few tiles, where jobs follow each
    // other fastest.
    unsigned count = i % 2 ? 1 : 1 + random(Pool::mostParts);
    for (unsigned p = 0; p < count; ++p) {
      parts[p].threads = threads;
      int64_t tiles = 1 + random(i % 16 ? 40 : most);
      job[p] = {&parts[p], random(8) ? tiles : 0, random(4) == 0};
    }
    pool.run(runOne, job, count);
    for (unsigned p = 0; p < count; ++p)
      check(parts[p], job[p].count, threads, i);
  }
}

/// A caller's own loop, last index first.
void backwards(void *, void (*body)(void *, int64_t), void *argument,
               int64_t count) {
  while (count-- > 0)
    body(argument, count);
}

/// As many tiles as threads, none of which ends before all have begun.
void sharesAreKept(unsigned threads) {
  Pool pool;
  if (pool.start(threads, /*pin=*/false, nullptr, nullptr) != TRAINC_OK)
    exit(1);
  struct Meeting {
    unsigned threads;
    std::atomic<unsigned> begun, wrong;
  } meeting = {threads, {0}, {0}};
  for (int i = 0; i < 200; ++i) {
    meeting.begun = 0;
    pool.run(
        [](void *argument, int64_t tile, unsigned worker) {
          Meeting &meeting = *static_cast<Meeting *>(argument);
          meeting.wrong += worker != tile;
          ++meeting.begun;
          while (meeting.begun != meeting.threads)
            sched_yield();
        },
        &meeting, threads);
  }
  if (meeting.wrong != 0) {
    printf("%u threads: %u tiles ran on another's thread\n", threads,
           meeting.wrong.load());
    ++failures;
  }
}
} // namespace

int main() {
  for (unsigned threads : {2u, 3u, 5u, 16u})
    runJobs(threads, nullptr, 400);
  runJobs(1, nullptr, 20);
  runJobs(4, backwards, 200);
  sharesAreKept(2);
  sharesAreKept(5);
  return failures != 0;
}
