// A network that is pretended to be slow, TRAINC_TEST_BANDWIDTH: a start returns at
// once, a collective is done bytes / bandwidth later, one behind the other, with the
// same result; what is computed meanwhile costs nothing, and a wait no processor.
//
// usage: bandwidth        processes of one host
//        bandwidth plain  under mpirun, by messages alone

#include "ranks.h"

static constexpr double bandwidth = 1e7, late = 0.1; // what is no time here
static constexpr uint64_t count = 500000;            // 2 MB, 0.2 s

static double usedSeconds() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) * 1e-9;
}

namespace {
/// What a communicator exchanges.
struct Test {
  trainc_comm &comm;
  Window *window;
  uint32_t rank;
  std::vector<float> gathered = std::vector<float>(2 * count);

  /// A sum in the window, or a gather of all of it.
  Collective call(bool sum) {
    auto *data = reinterpret_cast<float *>(window->data);
    OK(fence(comm));
    for (uint64_t i = 0; i < count; ++i)
      data[i] = static_cast<float>((rank + 1) * (i % 1000));
    Collective call;
    call.kind = sum ? TRAINC_REDUCE_SCATTER : TRAINC_ALL_GATHER;
    call.group = worldGroup(comm);
    call.count = count;
    call.window = window;
    call.target = sum ? nullptr : gathered.data();
    OK(trainc_comm_barrier(&comm));
    return call;
  }
  void checkSum() {
    auto *data = reinterpret_cast<float *>(window->data);
    for (uint64_t i = rank * count / 2; i < (rank + 1) * count / 2; ++i)
      CHECK(data[i] == static_cast<float>(3 * (i % 1000)));
  }
  void checkGathered() {
    for (uint64_t i = 0; i < 2 * count; ++i)
      CHECK(gathered[i] ==
            static_cast<float>((i / count + 1) * (i % count % 1000)));
  }
};
} // namespace

static void testSlow(uint32_t rank, trainc_comm &comm) {
  double unit = static_cast<double>(count * sizeof(float)) / bandwidth;
  Window *window;
  OK(createWindow(comm, count * sizeof(float), &window));
  Test test = {comm, window, rank};

  // One that is waited for at once.
  Collective sum = test.call(/*sum=*/true);
  uint32_t token, next;
  double begin = seconds(), used = usedSeconds();
  OK(start(comm, sum, &token));
  CHECK(seconds() - begin < late);
  OK(wait(comm, token, nullptr));
  CHECK(seconds() - begin >= unit);
  CHECK(usedSeconds() - used < late);
  test.checkSum();

  // A gather counts all that it brings.
  Collective gather = test.call(/*sum=*/false);
  begin = seconds();
  OK(run(comm, gather, nullptr));
  CHECK(seconds() - begin >= 2 * unit);
  test.checkGathered();

  // Two go one behind the other.
  Collective nothing = test.call(/*sum=*/false);
  std::vector<float> second(count);
  begin = seconds();
  OK(start(comm, nothing, &token));
  Collective ring = nothing;
  ring.kind = TRAINC_ALL_REDUCE;
  ring.window = nullptr;
  ring.data = second.data();
  ring.target = nullptr;
  OK(start(comm, ring, &next));
  CHECK(seconds() - begin < late);
  OK(wait(comm, token, nullptr));
  CHECK(seconds() - begin >= 2 * unit && seconds() - begin < 3 * unit);
  OK(wait(comm, next, nullptr));
  CHECK(seconds() - begin >= 3 * unit);

  // What is done meanwhile is in no wait.
  sum = test.call(/*sum=*/true);
  OK(start(comm, sum, &token));
  rest(unit + late);
  begin = seconds();
  OK(wait(comm, token, nullptr));
  CHECK(seconds() - begin < late);
  test.checkSum();
  OK(fence(comm));
  destroyWindow(comm, window);
}

/// As fast as it is.
static void testFast(uint32_t rank, trainc_comm &comm) {
  Window *window;
  OK(createWindow(comm, count * sizeof(float), &window));
  Test test = {comm, window, rank};
  Collective sum = test.call(/*sum=*/true);
  double begin = seconds();
  OK(run(comm, sum, nullptr));
  CHECK(seconds() - begin < late);
  test.checkSum();
}

/// A wait that would take longer than the deadline ends there.
static void testDeadline(uint32_t, trainc_comm &comm) {
  std::vector<float> data(count);
  Collective call;
  call.kind = TRAINC_ALL_REDUCE;
  call.group = worldGroup(comm);
  call.count = count;
  call.data = data.data();
  double begin = seconds();
  CHECK(run(comm, call, nullptr) == TRAINC_COMM_FAILED);
  CHECK(seconds() - begin < 5);
}

static void testRefused() {
  const std::string alone = "self";
  trainc_comm_options options = rankOptions(0, 1, alone);
  for (const char *text : {"fast", "0", "-1e9", "1e9 bytes", "nan", "1e20"}) {
    setenv("TRAINC_TEST_BANDWIDTH", text, 1);
    trainc_comm *comm = nullptr;
    CHECK(trainc_comm_create(&options, &comm) == TRAINC_INVALID_ARGUMENT);
    CHECK(!comm && strstr(trainc_last_error(), "expected bytes per second") &&
          strstr(trainc_last_error(), text));
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "plain")) {
    setenv("TRAINC_TEST_BANDWIDTH", "1e7", 1);
    trainc_comm_options options = {};
    options.size = sizeof(options);
    options.deadline = 20;
    options.flags = TRAINC_COMM_NO_WINDOW;
    trainc_comm *comm;
    OK(trainc_comm_create(&options, &comm));
    trainc_comm_info info;
    OK(trainc_comm_get_info(comm, &info));
    CHECK(info.ranks == 2 && info.hosts == 2);
    testSlow(info.rank, *comm);
    trainc_comm_destroy(comm);
    return 0;
  }
  runRanks(2, testFast);
  setenv("TRAINC_TEST_BANDWIDTH", "1e7", 1);
  runRanks(2, testSlow);
  setenv("TRAINC_TEST_BANDWIDTH", "1e4", 1);
  runRanks(2, testDeadline, /*deadline=*/1);
  testRefused();
  return 0;
}
