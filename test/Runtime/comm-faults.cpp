// A rank is killed, stopped, too late, destroys its communicator or aborts, at many
// points: all others return TRAINC_COMM_FAILED in time, and their report names the
// collective and that rank. Also calls that differ, and interrupts.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o test
// RUN: ./test

#include "ranks.h"
#include <pthread.h>

enum { RANKS = 3, OPERATIONS = 10 };

/// What is exchanged as number `i`; the same on all ranks.
static Collective makeCollective(const Comm &comm, const Window *window,
                                 void *data, int i, char (&label)[16]) {
  static const trainc_collective_kind kinds[] = {
      TRAINC_REDUCE_SCATTER, TRAINC_ALL_REDUCE, TRAINC_ALL_GATHER,
      TRAINC_BROADCAST, TRAINC_BARRIER};
  snprintf(label, sizeof(label), "op%d", i);
  Collective call;
  call.kind = kinds[i % 5];
  call.group = worldGroup(comm);
  call.count = 30000;
  call.window = i % 2 ? window : nullptr;
  call.data = i % 2 ? nullptr : data;
  call.label = label;
  return call;
}

enum Mischief { KILL, STOP, LATE, DESTROY, ABORT };
static const char *const names[] = {"kill", "stop", "late", "destroy", "abort"};

struct Fault {
  Mischief what;
  uint32_t victim;
  int operation;
  bool afterStart;
  double deadline;
};

static void misbehave(Comm &comm, const Fault &fault) {
  switch (fault.what) {
  case KILL:
    raise(SIGKILL);
    break;
  case STOP:
    raise(SIGSTOP);
    break;
  case LATE:
    rest(fault.deadline + 0.5);
    break;
  case DESTROY:
    trainc_comm_destroy(&comm);
    rest(60);
    break;
  case ABORT:
    trainc_comm_abort(&comm, 7);
    break;
  }
}

/// Collects what is reported.
static void remember(void *context, const char *text) {
  *static_cast<std::string *>(context) += std::string(text) + "\n";
}

static bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// What a rank that is told of the fault must know.
static void checkReport(const Fault &fault, uint32_t rank, int operation,
                        const std::string &text, const std::string &reports) {
  std::string victim = std::to_string(fault.victim);
  bool named = false;
  switch (fault.what) {
  case KILL:
    named = has(text, "rank " + victim + " is dead") && has(text, ", dead)");
    break;
  case STOP:
    named = has(text, "nothing within") && has(text, ": " + victim + " (") &&
            has(text, ", stopped)");
    break;
  case LATE:
    named = has(text, "nothing within") && has(text, ": " + victim + " (") &&
            has(text, ", alive)");
    break;
  case DESTROY:
    named = has(text, "rank " + victim + " has destroyed its communicator");
    break;
  case ABORT:
    named = has(text, "rank " + victim + " gave up (aborted with status 7)") ||
            (rank == fault.victim && has(text, "aborted with status 7"));
    break;
  }
  // Known from this rank's own operation or from that of the rank that gave up.
  bool isNear = fault.what == ABORT;
  for (int i = operation - 1; i <= operation + 1; ++i)
    isNear |= has(text, "'op" + std::to_string(i) + "', collective " +
                            std::to_string(i) + " of ranks 0 1 2");
  if (named && isNear && has(reports, "rank " + std::to_string(rank) + " of 3"))
    return;
  printf(
      "%s of rank %u %s op%d: rank %u fails in op%d with\n  %s\nreports:\n%s",
      names[fault.what], fault.victim, fault.afterStart ? "after" : "before",
      fault.operation, rank, operation, text.c_str(), reports.c_str());
  fflush(stdout);
  _exit(1);
}

static void runRank(uint32_t rank, const Fault &fault,
                    const std::string &meeting) {
  std::string reports;
  trainc_comm_options options =
      rankOptions(rank, RANKS, meeting, fault.deadline);
  options.report = remember;
  options.report_context = &reports;
  trainc_comm *comm;
  OK(trainc_comm_create(&options, &comm));
  Window *window;
  OK(createWindow(*comm, 30000 * 4, &window));
  std::vector<float> data(30000);
  for (int i = 0; i < OPERATIONS + 2; ++i) {
    char label[16];
    Collective call = makeCollective(*comm, window, data.data(), i, label);
    bool isMine = rank == fault.victim && i == fault.operation;
    if (isMine && !fault.afterStart)
      misbehave(*comm, fault);
    double begin = seconds();
    uint32_t token = 0;
    trainc_status status = start(*comm, call, &token);
    if (!status && isMine && fault.afterStart)
      misbehave(*comm, fault);
    if (!status) {
      begin = isMine ? seconds() : begin;
      status = wait(*comm, token, nullptr);
    }
    if (!status)
      continue;
    double time = seconds() - begin;
    CHECK(status == TRAINC_COMM_FAILED);
    // A rank may be told of it while it is still one behind.
    CHECK(i >= fault.operation - 1 && i <= fault.operation + 2);
    CHECK(time < fault.deadline + 1);
    std::string text = trainc_last_error();
    checkReport(fault, rank, i, text, reports);
    CHECK(trainc_comm_barrier(comm) == TRAINC_COMM_FAILED);
    CHECK(has(trainc_last_error(), "has failed before: "));
    CHECK(fence(*comm) == TRAINC_COMM_FAILED);
    CHECK(createWindow(*comm, 10, &window) == TRAINC_COMM_FAILED);
    trainc_comm_destroy(comm);
    _exit(42);
  }
}

static void testFault(const Fault &fault) {
  std::string meeting = newMeeting();
  std::vector<pid_t> pids;
  double begin = seconds();
  for (uint32_t i = 0; i < RANKS; ++i)
    pids.push_back(startProcess([&] { runRank(i, fault, meeting); }));
  for (uint32_t i = 0; i < RANKS; ++i) {
    if (i == fault.victim)
      continue;
    int ending = finishProcess(pids[i], 20);
    if (ending != 42)
      printf("%s of rank %u, %s op%d: rank %u ends with %d\n",
             names[fault.what], fault.victim,
             fault.afterStart ? "after" : "before", fault.operation, i, ending);
    CHECK(ending == 42);
  }
  CHECK(seconds() - begin < fault.deadline + 10);
  if (fault.what == STOP || fault.what == DESTROY)
    kill(pids[fault.victim], SIGKILL);
  int ending = finishProcess(pids[fault.victim], 20);
  CHECK(ending == (fault.what == LATE || fault.what == ABORT ? 42 : -SIGKILL));
}

//===----------------------------------------------------------------------===//
// At any moment
//===----------------------------------------------------------------------===//

/// A rank is killed while large ranges are exchanged.
static void testRandomKill(unsigned seed) {
  std::string meeting = newMeeting();
  std::vector<pid_t> pids;
  int ready[2];
  CHECK(pipe(ready) == 0);
  for (uint32_t i = 0; i < RANKS; ++i)
    pids.push_back(startProcess([&] {
      trainc_comm_options options = rankOptions(i, RANKS, meeting, 5);
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      Window *window;
      OK(createWindow(*comm, 3 << 20, &window));
      CHECK(write(ready[1], "x", 1) == 1);
      std::vector<float> data(100000);
      for (int n = 0;; ++n) {
        Collective call;
        char label[16];
        call = makeCollective(*comm, window, data.data(), n, label);
        call.count = n % 2 ? 3 << 18 : 99999;
        double begin = seconds();
        trainc_status status = run(*comm, call, nullptr);
        if (!status)
          status = fence(*comm);
        if (!status)
          continue;
        CHECK(status == TRAINC_COMM_FAILED && seconds() - begin < 2);
        CHECK(has(trainc_last_error(), "rank 1 is dead"));
        _exit(42);
      }
    }));
  char byte;
  for (uint32_t i = 0; i < RANKS; ++i)
    CHECK(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  rest(0.0005 * (seed * 7919 % 64));
  kill(pids[1], SIGKILL);
  CHECK(finishProcess(pids[0], 20) == 42);
  CHECK(finishProcess(pids[2], 20) == 42);
  CHECK(finishProcess(pids[1], 20) == -SIGKILL);
}

//===----------------------------------------------------------------------===//
// Calls that differ
//===----------------------------------------------------------------------===//

template <typename Change>
static void testMismatch(const char *expected, Change change) {
  auto testRank = [&](uint32_t rank, trainc_comm &comm) {
    OK(trainc_comm_barrier(&comm));
    Window *window;
    OK(createWindow(comm, 600, &window));
    float data[150] = {};
    Collective call;
    call.kind = TRAINC_ALL_REDUCE;
    call.group = worldGroup(comm);
    call.count = 30;
    call.data = data;
    call.label = "norm";
    call.entry = rank == 1 ? "short" : "step";
    call.batch = 1;
    if (rank == 1)
      change(call, window);
    CHECK(run(comm, call, nullptr) == TRAINC_COMM_FAILED);
    // One rank finds it, the others may be told by it.
    std::string text = trainc_last_error();
    if (!has(text, expected) || !has(text, "norm")) {
      printf("rank %u: expected '%s' in\n  %s\n", rank, expected, text.c_str());
      fflush(stdout);
      _exit(1);
    }
  };
  runRanks(RANKS, testRank, 20, 10);
}

static void testOtherEntries(uint32_t rank, trainc_comm &comm) {
  float one = 1;
  Collective call;
  call.kind = TRAINC_ALL_REDUCE;
  call.group = worldGroup(comm);
  call.count = 1;
  call.data = &one;
  call.label = "loss";
  call.entry = rank == 1 ? "short" : "step"; // which may differ
  OK(run(comm, call, nullptr));
  CHECK(static_cast<int>(one) == RANKS);
}

static void testMismatches() {
  testMismatch("all_gather 'norm' of 30 F32",
               [](Collective &c, Window *) { c.kind = TRAINC_ALL_GATHER; });
  testMismatch("of 29 F32", [](Collective &c, Window *) { c.count = 29; });
  testMismatch("of 30 BF16",
               [](Collective &c, Window *) { c.dtype = TRAINC_BF16; });
  testMismatch("'loss'", [](Collective &c, Window *) { c.label = "loss"; });
  for (const char *expected :
       {"of 30 F32 in entry 'short'", "of 30 F32 in entry 'step'",
        "; expected batches of one entry on all ranks"})
    testMismatch(expected, [](Collective &c, Window *) { c.batch = 2; });
  testMismatch("at byte 8 of window 0", [](Collective &c, Window *window) {
    c.data = nullptr;
    c.window = window;
    c.offset = 8;
  });
  testMismatch("barrier ''", [](Collective &c, Window *) {
    c.kind = TRAINC_BARRIER;
    c.label = nullptr;
  });
}

//===----------------------------------------------------------------------===//
// Interrupts
//===----------------------------------------------------------------------===//

static trainc_comm *interrupted;
static double reportedAt;

static void testInterrupt() {
  std::string meeting = newMeeting();
  pid_t pids[2];
  for (uint32_t i = 0; i < 2; ++i)
    pids[i] = startProcess([&] {
      std::string reports;
      trainc_comm_options options = rankOptions(i, 2, meeting);
      options.report = [](void *context, const char *text) {
        reportedAt = seconds();
        remember(context, text);
      };
      options.report_context = &reports;
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      interrupted = comm;
      if (i == 1) {
        rest(0.8);
        OK(trainc_comm_barrier(comm));
        CHECK(reports.empty());
      } else {
        signal(SIGALRM, [](int) { trainc_comm_interrupt(interrupted); });
        pthread_t thread;
        CHECK(pthread_create(
                  &thread, nullptr,
                  [](void *) -> void * {
                    rest(0.3);
                    kill(getpid(), SIGALRM);
                    return nullptr;
                  },
                  nullptr) == 0);
        double begin = seconds();
        OK(trainc_comm_barrier(comm));
        CHECK(reportedAt > begin + 0.2 && reportedAt < begin + 0.6);
        CHECK(has(reports, "rank 0 of 2: interrupted: barrier '', collective 0 "
                           "of ranks 0 1, 0 bytes, has waited 0."));
        CHECK(has(reports, "; arrived: 0; missing: 1 (host "));
        CHECK(has(reports, ", alive)"));
        pthread_join(thread, nullptr);
      }
      trainc_comm_destroy(comm);
    });
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, 10) == 0);
}

//===----------------------------------------------------------------------===//
// Hosts that sleep
//===----------------------------------------------------------------------===//

/// All ranks are stopped for longer than the deadline, and go on.
static void testSuspended() {
  std::vector<pid_t> pids;
  for (int pair = 0; pair < 8; ++pair) {
    std::string meeting = newMeeting();
    for (uint32_t i = 0; i < 2; ++i)
      pids.push_back(startProcess([&] {
        trainc_comm_options options = rankOptions(i, 2, meeting, 1);
        options.flags = TRAINC_COMM_EXIT;
        trainc_comm *comm;
        OK(trainc_comm_create(&options, &comm));
        OK(trainc_comm_barrier(comm));
        rest(i ? 0.8 : 0);
        OK(trainc_comm_barrier(comm));
        trainc_comm_destroy(comm);
      }));
  }
  rest(0.5);
  for (pid_t pid : pids)
    kill(pid, SIGSTOP);
  rest(4);
  for (pid_t pid : pids)
    kill(pid, SIGCONT);
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, 10) == 0);
}

int main() {
  for (int operation = 0; operation < OPERATIONS; ++operation)
    for (bool afterStart : {false, true}) {
      testFault({KILL, static_cast<uint32_t>(operation % RANKS), operation,
                 afterStart, 5});
      testFault({DESTROY, static_cast<uint32_t>(operation / 2 % RANKS),
                 operation, false, 5});
      testFault({ABORT, 2, operation, afterStart, 5});
    }
  for (Mischief what : {STOP, LATE})
    for (int operation : {0, 3, 6, 9})
      testFault({what, static_cast<uint32_t>(operation / 3 % RANKS), operation,
                 operation % 2 == 1, 1});
  for (unsigned seed = 0; seed < 20; ++seed)
    testRandomKill(seed);
  runRanks(RANKS, testOtherEntries, 20, 10);
  testMismatches();
  testInterrupt();
  testSuspended();
  return 0;
}
