//===- comm.cpp - Bandwidth of collectives on one host --------------------===//
//
// What it takes to reduce_scatter and to all_gather f32, beside copying as many
// bytes as a rank's piece on all ranks at once. The ways take turns; medians are
// printed, in milliseconds. Starts its ranks itself, or is started by mpirun; "plain"
// exchanges through MPI only.
//
//   clang++-22 -std=c++20 -O2 -Iruntime/src -Iruntime/include bench/comm.cpp
//     build/lib/libtrainc_runtime.a -ldl -lm -pthread -o build/bench/comm
//   build/bench/comm [RANKS [MILLIONS OF ELEMENTS [THREADS [ROUNDS]]]]
//   mpirun -np 2 build/bench/comm 2 124 1 9 plain
//
//===----------------------------------------------------------------------===//

#include "comm/comm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace trainc;

static void check(trainc_status status) {
  if (!status)
    return;
  fprintf(stderr, "comm: %s\n", trainc_last_error());
  exit(1);
}

static double milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 +
         static_cast<double>(now.tv_nsec) * 1e-6;
}

static double median(std::vector<double> &times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Way {
  const char *name;
  uint64_t bytes; // of memory that a rank reads and writes
  std::vector<double> times = {};
};

static void copy(Pool &pool, void *to, const void *from, uint64_t bytes) {
  struct Copy {
    char *to;
    const char *from;
    uint64_t bytes, threads;
  } task = {static_cast<char *>(to), static_cast<const char *>(from), bytes,
            pool.size()};
  pool.run(
      [](void *argument, int64_t tile, unsigned) {
        auto &c = *static_cast<Copy *>(argument);
        uint64_t part = c.bytes / c.threads,
                 begin = static_cast<uint64_t>(tile) * part;
        memcpy(c.to + begin, c.from + begin, part);
      },
      &task, pool.size());
}

static void runRank(trainc_comm_options options, uint64_t count,
                    unsigned threads, int rounds) {
  trainc_comm *comm;
  trainc_comm_info info;
  check(trainc_comm_create(&options, &comm));
  check(trainc_comm_get_info(comm, &info));
  uint32_t rank = info.rank, ranks = info.ranks;
  count = count / ranks * ranks;
  Pool pool;
  check(pool.start(threads, false, nullptr, nullptr));
  Window *window;
  check(createWindow(*comm, count * 4, &window));
  auto *data = reinterpret_cast<float *>(window->data);
  for (uint64_t i = 0; i < count; ++i)
    data[i] = static_cast<float>(i % 1000 + rank);
  collapseWindow(*window);
  uint64_t piece = count / ranks * 4;
  std::vector<char> from(piece, 1), to(piece, 2);

  Way ways[] = {{"copy of a piece", 2 * piece},
                {"reduce_scatter", (ranks + 1) * piece},
                {"all_gather", 2 * (ranks - 1) * piece},
                {"all_reduce", (3 * ranks - 1) * piece}};
  Collective call;
  call.group = worldGroup(*comm);
  call.count = count;
  call.window = window;
  for (int round = -1; round < rounds; ++round)
    for (int way = 0; way < 4; ++way) {
      check(trainc_comm_barrier(comm));
      double begin = milliseconds();
      if (way == 0) {
        copy(pool, to.data(), from.data(), piece);
      } else {
        call.kind = way == 1   ? TRAINC_REDUCE_SCATTER
                    : way == 2 ? TRAINC_ALL_GATHER
                               : TRAINC_ALL_REDUCE;
        check(run(*comm, call, &pool));
      }
      check(trainc_comm_barrier(comm)); // the slowest counts
      if (round >= 0)
        ways[way].times.push_back(milliseconds() - begin);
    }
  if (rank == 0)
    for (Way &way : ways) {
      double time = median(way.times);
      printf("%-16s %8.1f ms  (%.1f to %.1f)  %6.1f GB/s of a rank's memory\n",
             way.name, time, way.times.front(), way.times.back(),
             static_cast<double>(way.bytes) / time * 1e-6);
    }
  float value = 1;
  call.kind = TRAINC_ALL_REDUCE;
  call.window = nullptr;
  call.count = 1;
  call.data = &value;
  constexpr int calls = 2000;
  double begin = milliseconds();
  for (int i = 0; i < calls; ++i)
    check(run(*comm, call, nullptr));
  if (rank == 0)
    printf("all_reduce of 4 bytes: %.1f us\n",
           (milliseconds() - begin) * 1e3 / calls);
  trainc_comm_destroy(comm);
}

int main(int argc, char **argv) {
  auto argument = [&](int i, long fallback) {
    return argc > i ? atol(argv[i]) : fallback;
  };
  auto ranks = static_cast<uint32_t>(argument(1, 2));
  auto count = static_cast<uint64_t>(argument(2, 124)) * 1000000;
  auto threads = static_cast<unsigned>(argument(3, 1));
  int rounds = static_cast<int>(argument(4, 9));
  trainc_comm_options options = {};
  options.size = sizeof(options);
  if (getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK")) {
    bool plain = argc > 5 && !strcmp(argv[5], "plain");
    options.flags = plain ? TRAINC_COMM_NO_WINDOW : 0;
    runRank(options, count, threads, rounds);
    return 0;
  }
  char folder[] = "/tmp/trainc-comm-XXXXXX";
  if (!mkdtemp(folder))
    return 1;
  std::string meeting = std::string("file:") + folder;
  options.bootstrap = meeting.c_str();
  options.ranks = ranks;
  for (; options.rank < ranks; ++options.rank)
    if (fork() == 0) {
      runRank(options, count, threads, rounds);
      return 0;
    }
  int failed = 0, status;
  while (wait(&status) > 0)
    failed |= status;
  if (system(("rm -r " + std::string(folder)).c_str()))
    return 1;
  return failed != 0;
}
