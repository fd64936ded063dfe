// What goes wrong between GPUs: an error, a refusal, a hang, a late or dead rank, a
// call that does not return, at the start of NCCL, the first collective and a late one,
// also in a graph. Every rank names the collective that is not done and why, aborts, and ends
// with a status other than 0 within the deadline and 5 seconds. And a library that is
// missing, too old, or there on one rank only; ranks that do not do the same.
//
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_nccl -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBNCCL=%runtime_lib/libtrainc_fake_nccl.so %t %runtime_lib

#include "Inputs/gpus.h"

constexpr uint64_t elements = 64, bytes = elements * sizeof(float);

static int numberOfCases = 0;

/// How a rank ends that a test lets fail: not as one that the watchdog ends.
constexpr int failed = 3;

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

/// A run of two ranks, one of which has a fault, in the background.
struct Case {
  std::string name, folder;
  double deadline, begin = 0;
  pid_t pids[2] = {};

  std::string textOf(uint32_t rank) const {
    std::string text;
    FILE *file =
        fopen((folder + "/report" + std::to_string(rank)).c_str(), "r");
    for (int c; file && (c = getc(file)) != EOF;)
      text += static_cast<char>(c);
    if (file)
      fclose(file);
    return text;
  }
};

static void writeReport(void *context, const char *text) {
  FILE *file = fopen(static_cast<const char *>(context), "a");
  fprintf(file, "%s\n", text);
  fclose(file);
}

/// Ends this rank; reports, too, what a function returned.
[[noreturn]] static void end(const std::string &path, trainc_status status) {
  if (status != TRAINC_OK) {
    std::string text = std::string("returned ") + trainc_status_name(status) +
                       " " + trainc_last_error();
    writeReport(const_cast<char *>(path.c_str()), text.c_str());
  }
  _exit(status == TRAINC_OK ? 0 : failed);
}

/// Starts two ranks that run function(rank, comm), with TRAINC_FAKE_NCCL_* as `faults`
/// says: "HANG=1:0".
template <typename Function>
static Case start(const std::string &name, double deadline,
                  const std::vector<std::string> &faults, Function function) {
  Case one;
  one.name = name;
  one.folder = "case" + std::to_string(numberOfCases++);
  one.deadline = deadline;
  one.begin = seconds();
  CHECK(system(("mkdir " + one.folder).c_str()) == 0);
  for (uint32_t rank = 0; rank < 2; ++rank)
    one.pids[rank] = startProcess([&] {
      for (const std::string &fault : faults) {
        size_t at = fault.find('=');
        setenv(("TRAINC_FAKE_NCCL_" + fault.substr(0, at)).c_str(),
               fault.c_str() + at + 1, 1);
      }
      std::string meeting = "file:" + one.folder + "/meet";
      std::string path = one.folder + "/report" + std::to_string(rank);
      trainc_comm_options options = rankOptions(rank, 2, meeting, deadline);
      options.flags = TRAINC_COMM_EXIT;
      options.report = writeReport;
      options.report_context = const_cast<char *>(path.c_str());
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      trainc_status status = function(rank, *comm);
      Text text;
      text.append(trainc_last_error());
      trainc_comm_destroy(comm);
      if (status)
        status = fail(status, "%s", text.c_str());
      end(path, status);
    });
  return one;
}

/// Waits for both ranks, whose statuses must be these, and whose reports must have
/// these texts.
static void finish(const Case &one, const int (&statuses)[2],
                   const std::vector<std::string> &texts0,
                   const std::vector<std::string> &texts1) {
  bool good = true;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    double left = one.begin + one.deadline + 5 - seconds();
    int status = finishProcess(one.pids[rank], left > 0 ? left : 0);
    std::string text = one.textOf(rank);
    if (status != statuses[rank]) {
      printf("%s: rank %u ended with %d, not %d, after %.1f s\n",
             one.name.c_str(), rank, status, statuses[rank],
             seconds() - one.begin);
      good = false;
    }
    for (const std::string &wanted : rank ? texts1 : texts0)
      if (text.find(wanted) == std::string::npos) {
        printf("%s: rank %u did not say: %s\n", one.name.c_str(), rank,
               wanted.c_str());
        good = false;
      }
    if (!good)
      printf("%s: rank %u said:\n%s", one.name.c_str(), rank, text.c_str());
  }
  if (!good)
    exit(1);
}

//===----------------------------------------------------------------------===//
// What ranks do
//===----------------------------------------------------------------------===//

static const char *const labels[] = {"norm", "bucket", "parameters", "seed"};
static const char *const kinds[] = {"all_reduce", "reduce_scatter",
                                    "all_gather", "broadcast"};

/// A communicator and memory, without checks that end the process.
struct Rank {
  Device *device = nullptr;
  Communicator *communicator = nullptr;
  Streams streams;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;

  trainc_status open(trainc_comm &comm) {
    OK(openDevice(0, &device));
    TRAINC_TRY(openCommunicator(*device, &comm, &communicator));
    OK(openStreams(*device, true, streams));
    OK(createEvent(*device, &event));
    OK(allocate(*device, bytes, &memory));
    return TRAINC_OK;
  }
  ~Rank() {
    closeCommunicator(communicator);
    release(*device, memory);
    destroyEvent(*device, event);
    closeStreams(streams);
    closeDevice(device);
    trainc_fake_cuda_counts left = cudaCounts();
    CHECK(!left.contexts && !left.allocations && !left.streams);
    CHECK(ncclCounts().communicators == 0);
  }

  /// Each kind: among the commands, apart, apart, among them.
  trainc_status enqueueAll() {
    for (int i = 0; i < 4; ++i) {
      static const trainc_collective_kind all[] = {
          TRAINC_ALL_REDUCE, TRAINC_REDUCE_SCATTER, TRAINC_ALL_GATHER,
          TRAINC_BROADCAST};
      DeviceCollective c;
      c.kind = all[i];
      c.count = elements;
      c.data = memory;
      c.label = labels[i];
      bool apart = i == 1 || i == 2;
      TRAINC_TRY(apart ? startCollectives(streams, *communicator, &c, 1)
                       : runCollectives(streams, *communicator, &c, 1));
      if (apart)
        TRAINC_TRY(awaitCollectives(streams));
    }
    return TRAINC_OK;
  }

  trainc_status wait() {
    {
      Current current(*device);
      OK(device->driver->cuEventRecord(event, streams.compute));
    }
    return waitFor(*communicator, event, enqueued(*communicator), "the test");
  }
};

static trainc_status runAll(uint32_t, trainc_comm &comm) {
  Rank rank;
  TRAINC_TRY(rank.open(comm));
  TRAINC_TRY(rank.enqueueAll());
  trainc_status status = rank.wait();
  // It refuses everything from then on.
  if (status)
    CHECK(rank.enqueueAll() == TRAINC_COMM_FAILED &&
          rank.wait() == TRAINC_COMM_FAILED &&
          trainc_comm_barrier(&comm) == TRAINC_COMM_FAILED);
  if (status)
    CHECK(strstr(trainc_last_error(), "has failed before: "));
  return status;
}

/// The same, captured, and launched twice. NCCL is not aborted, nor closed, before the
/// graph is destroyed; if nobody tells the runtime of it, the watchdog ends the rank.
static trainc_status launchGraphs(trainc_comm &comm, bool told) {
  Rank rank;
  TRAINC_TRY(rank.open(comm));
  struct Graph {
    const Driver &cu;
    CUgraphExec executable = nullptr;

    ~Graph() { drop(this); }
    static void drop(void *graph) {
      auto &self = *static_cast<Graph *>(graph);
      if (self.executable)
        OK(self.cu.cuGraphExecDestroy(self.executable));
      self.executable = nullptr;
    }
  };
  Current current(*rank.device);
  Graph graph = {*rank.device->driver};
  if (told)
    setGraphs(*rank.communicator, Graph::drop, &graph);
  Recording recording;
  CUgraph captured;
  OK(graph.cu.cuStreamBeginCapture(rank.streams.compute,
                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  record(*rank.communicator, &recording);
  OK(rank.enqueueAll());
  record(*rank.communicator, nullptr);
  OK(graph.cu.cuStreamEndCapture(rank.streams.compute, &captured));
  OK(graph.cu.cuGraphInstantiate(&graph.executable, captured, 0));
  OK(graph.cu.cuGraphDestroy(captured));
  for (int i = 0; i < 2; ++i) {
    replay(*rank.communicator, recording);
    OK(graph.cu.cuGraphLaunch(graph.executable, rank.streams.compute));
    TRAINC_TRY(rank.wait());
  }
  return TRAINC_OK;
}

static trainc_status runGraphs(uint32_t, trainc_comm &comm) {
  return launchGraphs(comm, true);
}

static std::string numberOf(const char *kind, int collective) {
  return std::string(kind) + " '" + labels[collective % 4] + "', collective " +
         std::to_string(collective) + " of ranks 0 1, 256 bytes, on CUDA " +
         "device 0 (emulated GPU)";
}
static std::string named(int collective) {
  return numberOf(kinds[collective % 4], collective);
}

//===----------------------------------------------------------------------===//
// Faults of rank 1 at each place: the start of NCCL (-1) and collectives
//===----------------------------------------------------------------------===//

static std::string at(const char *fault, int place, const char *value = "") {
  return std::string(fault) +
         "=1:" + (place < 0 ? "init" : std::to_string(place)) + value;
}

/// The start of NCCL, the first collective, a late one.
static constexpr int places[] = {-1, 0, 3};

/// Runs the cases of all tests at the same time.
template <typename... Tests> static void atEachPlace(Tests... tests) {
  std::vector<Case> cases;
  size_t next = 0;
  for (int place : places)
    (cases.push_back(tests.begin(place)), ...);
  for (int place : places)
    (tests.end(cases[next++], place), ...);
}

/// NCCL finds an error on rank 1.
struct Error {
  Case begin(int place) {
    return start("error", 20, {at("FAIL", place, ":6")}, runAll);
  }
  void end(const Case &one, int place) {
    std::string error = "NCCL failed: " +
                        std::string(place < 0 ? "ncclCommInitRankConfig"
                                              : "ncclCommGetAsyncError") +
                        ": remote process exited or there was a network error ";
    std::string where =
        place < 0 ? "starting NCCL: " : "the test: " + named(place);
    finish(one, {failed, failed},
           {"rank 0 of 2: rank 1 gave up (" + error, where,
            "returned TRAINC_COMM_FAILED"},
           {"rank 1 of 2: " + error, where, "returned TRAINC_COMM_FAILED",
            "; peers: 0 (host "});
  }
};

/// A call on rank 1 is refused.
struct Refusal {
  Case begin(int place) {
    return start("refusal", 20, {at("REFUSE", place, ":3")}, runAll);
  }
  void end(const Case &one, int place) {
    std::string error = std::string("NCCL failed: ") +
                        (place < 0 ? "ncclCommInitRankConfig" : kinds[place]) +
                        ": internal error (refused as asked for)";
    finish(one, {failed, failed}, {"rank 1 gave up (" + error},
           {error,
            place < 0 ? "starting NCCL" : "calling NCCL: " + named(place),
            "returned TRAINC_COMM_FAILED"});
  }
};

/// Rank 1 never does its part, so neither does rank 0.
struct Hang {
  Case begin(int place) {
    return start("hang", 2, {at("HANG", place)}, runAll);
  }
  void end(const Case &one, int place) {
    std::string where =
        place < 0 ? "starting NCCL: " : "the test: " + named(place);
    finish(one, {failed, failed}, {where, "returned TRAINC_COMM_FAILED"},
           {where, "returned TRAINC_COMM_FAILED"});
    CHECK((one.textOf(0) + one.textOf(1)).find("nothing within 2 s: ") !=
          std::string::npos);
  }
};

/// Rank 1 is late, but not too late.
struct Delay {
  Case begin(int place) {
    return start("delay", 20, {at("DELAY", place, ":0.3")}, runAll);
  }
  void end(const Case &one, int) {
    finish(one, {0, 0}, {}, {});
    CHECK(one.textOf(0).empty() && one.textOf(1).empty());
  }
};

/// Does the text name the collective or, on a machine that was too busy to do what came
/// before, one of those?
static void checkNamed(const Case &one, uint32_t rank, int collective) {
  std::string text = one.textOf(rank);
  bool found = false;
  for (int i = 0; i <= collective; ++i)
    found |= text.find(named(i)) != std::string::npos;
  if (!found)
    printf("%s: rank %u said:\n%s", one.name.c_str(), rank, text.c_str());
  CHECK(found);
}

/// Rank 1 is killed. Its peer sees that at once.
struct Death {
  Case begin(int place) {
    return start("death", 20, {at("DIE", place)}, runAll);
  }
  void end(const Case &one, int place) {
    finish(one, {failed, -SIGKILL},
           {"rank 1 is dead: ", place < 0 ? "starting NCCL: " : "the test: ",
            "peers: 1 (host ", ", dead)"},
           {});
    if (place >= 0)
      checkNamed(one, 0, place);
    CHECK(seconds() - one.begin < 10);
  }
};

/// A call on rank 1 does not return: the watchdog ends it.
struct Stuck {
  Case begin(int place) {
    return start("stuck", 2, {at("STUCK", place)}, runAll);
  }
  void end(const Case &one, int place) {
    finish(one, {failed, 1}, {"returned TRAINC_COMM_FAILED"},
           {"nothing within 2 s, and the wait does not return: ",
            place < 0 ? "starting NCCL" : "calling NCCL: " + named(place)});
  }
};

//===----------------------------------------------------------------------===//
// Other faults
//===----------------------------------------------------------------------===//

/// In the second launch of a graph.
static void testGraphs() {
  Case untold = start(
      "a graph that is left", 20, {at("FAIL", 7, ":2")},
      [](uint32_t, trainc_comm &comm) { return launchGraphs(comm, false); });
  finish(start("graphs", 20, {}, runGraphs), {0, 0}, {}, {});
  for (int place : {1, 4, 7}) {
    Case error =
        start("error in a graph", 20, {at("FAIL", place, ":2")}, runGraphs);
    Case death = start("death in a graph", 20, {at("DIE", place)}, runGraphs);
    finish(error, {failed, failed}, {named(place)},
           {"unhandled system error", named(place)});
    finish(death, {failed, -SIGKILL}, {"rank 1 is dead: "}, {});
    checkNamed(death, 0, place);
  }
  finish(untold, {1, 1}, {"aborting NCCL: " + named(7)},
         {"aborting NCCL: " + named(7)});
}

/// Frees memory of which work is never done: a call of the driver that does not return.
static trainc_status freeMemory(uint32_t, trainc_comm &comm) {
  Rank rank;
  TRAINC_TRY(rank.open(comm));
  TRAINC_TRY(rank.enqueueAll());
  Watch watch(*rank.communicator, "freeing memory");
  release(*rank.device, rank.memory);
  CHECK(false);
  return TRAINC_OK;
}

/// Not even the abort returns; and a call of the driver.
static void testStuck() {
  Case abort =
      start("abort", 2, {at("FAIL", 2, ":6"), "STUCK=1:abort"}, runAll);
  Case late = start("abort after the deadline", 2,
                    {at("HANG", 2), "STUCK=1:abort"}, runAll);
  Case driver = start("driver", 2, {at("HANG", 3)}, freeMemory);
  for (const Case &one : {abort, late})
    finish(one, {failed, 1}, {}, {"aborting NCCL: " + named(2)});
  finish(driver, {1, 1}, {"freeing memory: " + named(3)},
         {"freeing memory: " + named(3)});
}

/// A fault of one device ends all ranks.
static void testDevice() {
  finish(start("device", 20, {},
               [](uint32_t number, trainc_comm &comm) {
                 Rank rank;
                 TRAINC_TRY(rank.open(comm));
                 DeviceCollective c;
                 c.count = number == 0 ? elements : elements / 2;
                 c.data = rank.memory;
                 c.label = "uneven";
                 TRAINC_TRY(
                     runCollectives(rank.streams, *rank.communicator, &c, 1));
                 return rank.wait();
               }),
         {failed, failed},
         {"ranks of a communicator differ: rank 0 does ncclAllReduce of 64 "
          "elements of type 7, root 0, element 0, as number 0; rank 1 does "
          "ncclAllReduce of 32"},
         {"'uneven', collective 0 of ranks 0 1, 128 bytes"});
}

/// Memory that NCCL was told of on one rank only.
static void testRegistration() {
  finish(start("registration", 20, {},
               [](uint32_t number, trainc_comm &comm) {
                 Rank rank;
                 TRAINC_TRY(rank.open(comm));
                 CUdeviceptr other;
                 OK(allocate(*rank.device, bytes, &other));
                 TRAINC_TRY(registerMemory(
                     *rank.communicator, number ? other : rank.memory, bytes));
                 TRAINC_TRY(rank.enqueueAll());
                 trainc_status status = rank.wait();
                 release(*rank.device, other);
                 return status;
               }),
         {failed, failed}, {"ranks of a communicator differ", "registered (1"},
         {"ranks of a communicator differ"});
}

/// No library, another one, an old one; on both ranks, or on rank 1.
static void testLibrary(const std::string &libraries) {
  struct {
    const char *variable, *value;
    std::string text;
  } cases[] = {
      {"TRAINC_LIBNCCL", "nothing.so", "no NCCL: nothing.so: cannot open"},
      {"TRAINC_LIBNCCL", nullptr,
       "the NCCL '" + libraries +
           "/libtrainc_emulator.so' has no "
           "ncclGetVersion: it is older than NCCL 2.19"},
      {"TRAINC_FAKE_NCCL_VERSION", "21805",
       "is of version 21805: it is older than NCCL 2.19"}};
  for (auto &one : cases)
    for (uint32_t first : {0u, 1u})
      finish(start("library", 20, {},
                   [&](uint32_t number, trainc_comm &comm) {
                     std::string emulator =
                         libraries + "/libtrainc_emulator.so";
                     if (number >= first)
                       setenv(one.variable,
                              one.value ? one.value : emulator.c_str(), 1);
                     Rank rank;
                     return rank.open(comm);
                   }),
             {failed, failed},
             {(first ? "returned TRAINC_UNSUPPORTED rank 1: "
                     : "returned TRAINC_UNSUPPORTED "),
              one.text},
             {"returned TRAINC_UNSUPPORTED ", one.text});
  finish(start("versions", 20, {},
               [&](uint32_t number, trainc_comm &comm) {
                 if (number == 1)
                   setenv("TRAINC_FAKE_NCCL_VERSION", "22100", 1);
                 Rank rank;
                 return rank.open(comm);
               }),
         {failed, failed},
         {"returned TRAINC_MISMATCH ranks differ in the version of NCCL"},
         {"returned TRAINC_MISMATCH ranks differ in the version of NCCL"});
}

/// A rank that comes too late: how far it is is part of the report.
static void testLate() {
  finish(start("late", 2, {},
               [](uint32_t number, trainc_comm &comm) {
                 Rank rank;
                 TRAINC_TRY(rank.open(comm));
                 TRAINC_TRY(rank.enqueueAll());
                 TRAINC_TRY(rank.wait());
                 if (number == 1)
                   rest(3);
                 TRAINC_TRY(rank.enqueueAll());
                 return rank.wait();
               }),
         {failed, failed},
         {"nothing within 2 s: the test: " + named(4),
          "; enqueued: 8, by rank 1: 4; 3 more behind it"},
         {"rank 0 gave up (nothing within 2 s: "});
}

/// A rank that is through ends while its peer still waits for what both have done.
static void testEarlyEnd() {
  finish(start("early end", 20, {},
               [](uint32_t number, trainc_comm &comm) {
                 Rank rank;
                 TRAINC_TRY(rank.open(comm));
                 TRAINC_TRY(rank.enqueueAll());
                 if (number == 1)
                   rest(0.3);
                 TRAINC_TRY(rank.wait());
                 if (number == 1)
                   rest(0.5);
                 return rank.wait();
               }),
         {0, 0}, {}, {});
}

int main(int, char **argv) {
  atEachPlace(Error());
  atEachPlace(Refusal());
  atEachPlace(Death());
  atEachPlace(Hang(), Delay(), Stuck());
  testGraphs();
  testStuck();
  testDevice();
  testRegistration();
  testLibrary(argv[1]);
  testLate();
  testEarlyEnd();
}
