//===- ranks.cpp - The ranks of a run -------------------------------------===//

#include "ranks.h"
#include "core/hash.h"
#include "meter.h"
#include "model.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>
#include <vector>

namespace trainc::run {

static trainc_comm *comm = nullptr;
static trainc_comm_info info = {};
static std::atomic<bool> isEnding = false;

trainc_comm *communicator() { return comm; }
uint32_t rank() { return info.rank; }
uint32_t ranks() { return comm ? info.ranks : 1; }

//===----------------------------------------------------------------------===//
// Where ranks run
//===----------------------------------------------------------------------===//

namespace {
/// What ranks tell each other.
struct Place {
  char host[64];
  uint32_t hostNumber;
  uint32_t pid;
  cpu_set_t processors;
};
} // namespace

static std::vector<Place> places;

static void findPlaces() {
  Place mine = {};
  gethostname(mine.host, sizeof(mine.host) - 1);
  mine.hostNumber = info.host;
  mine.pid = static_cast<uint32_t>(getpid());
  sched_getaffinity(0, sizeof(mine.processors), &mine.processors);
  places.resize(ranks());
  check(trainc_comm_all_gather(comm, &mine, sizeof(mine), places.data()));
}

/// "0-3,8".
static std::string processorsText(const cpu_set_t &set) {
  std::string text;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set))
      continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
      ++last;
    text +=
        format(last > i ? "%s%d-%d" : "%s%d", text.empty() ? "" : ",", i, last);
    i = last;
  }
  return text;
}

static void showPlaces() {
  for (uint32_t host = 0; host < info.hosts; ++host) {
    std::string text;
    for (uint32_t i = 0; i < places.size(); ++i)
      if (places[i].hostNumber == host)
        text += format("%s%u on %s", text.empty() ? "" : ", ", i,
                       processorsText(places[i].processors).c_str());
    for (const Place &place : places)
      if (place.hostNumber == host) {
        note("host %s: ranks and their processors: %s", place.host,
             text.c_str());
        break;
      }
  }
}

uint32_t defaultThreads() {
  if (!comm)
    return 0;
  const Place &mine = places[rank()];
  int sharing = 0;
  for (const Place &place : places) {
    cpu_set_t both;
    CPU_AND(&both, &place.processors, &mine.processors);
    sharing += place.hostNumber == mine.hostNumber && CPU_COUNT(&both) > 0;
  }
  return static_cast<uint32_t>(
      std::max(1, CPU_COUNT(&mine.processors) / std::max(1, sharing)));
}

//===----------------------------------------------------------------------===//
// Joining and leaving
//===----------------------------------------------------------------------===//

void agree(const char *what, uint64_t value) {
  if (comm)
    check(trainc_comm_agree(comm, what, value));
}

void joinRanks(const Options &options, int argc, char **argv) {
  trainc_comm_options settings = {};
  settings.size = sizeof(settings);
  settings.bootstrap = options.comm.empty() ? nullptr : options.comm.c_str();
  settings.deadline = options.deadline;
  settings.flags = TRAINC_COMM_EXIT;
  if (!options.window)
    settings.flags |= TRAINC_COMM_NO_WINDOW;
  settings.report = [](void *, const char *text) {
    if (isEnding)
      return;
    std::fprintf(stderr, "trainc-run: rank %u: %s\n", rank(), text);
  };
  trainc_comm *made;
  check(trainc_comm_create(&settings, &made));
  check(trainc_comm_get_info(made, &info));
  if (info.ranks == 1) {
    trainc_comm_destroy(made);
    info = {};
    return;
  }
  comm = made;
  uint64_t hash = hashStart;
  for (int i = 1; i < argc; ++i)
    hash = hashBytes(hash, argv[i], std::strlen(argv[i]) + 1);
  agree("the command line", hash);
  findPlaces();
  if (isFirst())
    showPlaces();
  else if (!std::freopen("/dev/null", "w", stdout))
    fail("cannot write to /dev/null");
}

void failTogether(const std::string &text,
                  void (*print)(const std::string &text)) {
  isEnding = true;
  timespec patience = {0, 500000000};
  if (!isFirst())
    nanosleep(&patience, nullptr);
  if (isFirst())
    print(text);
  else if (trainc_comm_check(comm) == TRAINC_OK)
    print("rank " + std::to_string(rank()) + ": " + text);
  trainc_comm_abort(comm, 1);
  std::_Exit(1);
}

void leaveRanks() {
  trainc_comm_destroy(comm);
  comm = nullptr;
}

std::string pathOfRank(const std::string &path) {
  if (!comm || path.empty())
    return path;
  size_t slash = path.rfind('/'), dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash))
    dot = path.size();
  return path.substr(0, dot) + ".rank" + std::to_string(rank()) +
         path.substr(dot);
}

//===----------------------------------------------------------------------===//
// Preflight
//===----------------------------------------------------------------------===//

void preflight(Model &model, const Options &options) {
  const trainc_descriptor &d = model.descriptor();
  std::string mesh;
  for (uint32_t i = 0; i < d.num_axes; ++i)
    mesh += format("%s%s = %llu", i ? ", " : "", d.axes[i].name,
                   static_cast<unsigned long long>(d.axes[i].size));
  std::printf("mesh: %s\n", mesh.empty() ? "one rank" : mesh.c_str());
  trainc_memory memory;
  check(trainc_memory_use(model.trainer(), &memory));
  std::printf("memory: %.1f MB per rank\n",
              static_cast<double>(memory.total) / 1e6);
  static const char *const names[] = {"reduce_scatter", "all_reduce",
                                      "all_gather", "broadcast"};
  uint64_t unit = sizeof(float) * ranks(); // as many elements for each rank
  uint64_t bytes = (64 << 20) / unit * unit;
  for (uint32_t kind = 0; comm && kind < std::size(names); ++kind) {
    double seconds;
    check(trainc_comm_measure(comm, static_cast<trainc_collective_kind>(kind),
                              bytes, &seconds));
    std::printf("%s: %.2f GB/s of the range, %.0f MiB\n", names[kind],
                static_cast<double>(bytes) / seconds / 1e9,
                static_cast<double>(bytes) / (1 << 20));
  }
  std::printf("rates: --bandwidth=%s\n", measureRates(model, options).c_str());
  std::printf("ready\n");
  std::fflush(stdout);
}

} // namespace trainc::run
