// Windows: peers see each other's memory, in pages taken when they are touched, and
// gone for all when they are dropped; a window that cannot be made fails on all
// ranks, one that is freed leaves nothing; fence keeps a range until slow peers have
// read it. More ranks than processors do not crawl.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o test
// RUN: ./test

#include "core/pages.h"
#include "ranks.h"
#include <sys/mman.h>

/// KiB of /proc/self/smaps_rollup.
static long residentKiB() {
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  CHECK(file);
  char line[256];
  long size = -1;
  while (size < 0 && fgets(line, sizeof(line), file))
    sscanf(line, "Rss: %ld kB", &size);
  fclose(file);
  CHECK(size > 0);
  return size;
}

static int countMappings() {
  FILE *file = fopen("/proc/self/maps", "r");
  CHECK(file);
  char line[512];
  int count = 0;
  while (fgets(line, sizeof(line), file))
    count += strstr(line, "memfd:trainc") != nullptr;
  fclose(file);
  return count;
}

static void testLazy(uint32_t rank, Comm &comm) {
  constexpr uint64_t size = UINT64_C(1) << 30;
  long before = residentKiB();
  Window *window;
  OK(createWindow(comm, size, &window));
  CHECK(residentKiB() - before < 8 << 10);
  for (uint64_t i = rank; i < size; i += 64 << 20)
    window->data[i] = static_cast<char>(rank + 1);
  OK(trainc_comm_barrier(&comm));
  for (uint32_t peer = 0; peer < 3; ++peer)
    for (uint64_t i = 0; i < size; i += 64 << 20) {
      CHECK(window->peers[peer][i + peer] == static_cast<char>(peer + 1));
      CHECK(window->peers[peer][i + peer + 1] == 0);
    }
  CHECK(residentKiB() - before < 16 << 10);
  OK(trainc_comm_barrier(&comm));
  // Other sizes on other ranks, one of them 0.
  OK(createWindow(comm, rank * 5000, &window));
  CHECK(window->bytes == rank * 5000 && !window->data == (rank == 0));
  CHECK(!window->peers[0] && window->peers[1] && window->peers[2][9999] == 0);
}

static void testImpossible(uint32_t rank, Comm &comm) {
  // The second rank asks for more than there is addresses for.
  Window *window = nullptr;
  int before = countMappings();
  CHECK(createWindow(comm, rank == 1 ? INT64_MAX / 2 : 5000, &window) ==
        TRAINC_OUT_OF_MEMORY);
  CHECK(strstr(trainc_last_error(), "rank 1: cannot make 46116860184273"));
  CHECK(!window && countMappings() == before);
  // Which is no reason to stop.
  OK(createWindow(comm, 5000, &window));
  OK(trainc_comm_barrier(&comm));
}

/// Bytes that the system has of the shared memory at `data`, mapped here or not. Its
/// pages may be smaller than ours.
static uint64_t residentBytes(char *data, uint64_t bytes) {
  auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(bytes / page);
  CHECK(mincore(data, bytes, pages.data()) == 0);
  uint64_t count = 0;
  for (unsigned char state : pages)
    count += state & 1;
  return count * page;
}

static void testDrop(uint32_t rank, Comm &comm) {
  const uint64_t size = 300 * pageBytes();
  Window *window;
  OK(createWindow(comm, size, &window));
  Account account;
  Pages pages;
  pages.borrow(window->data, size, account);
  CHECK(account.held == 0);
  pages.take(300);
  memset(window->data, static_cast<int>(rank + 1), size);
  OK(trainc_comm_barrier(&comm));
  const char *peer = window->peers[(rank + 1) % 3];
  for (uint64_t i = 0; i < size; i += pageBytes())
    CHECK(peer[i] == static_cast<char>((rank + 1) % 3 + 1));
  OK(trainc_comm_barrier(&comm));
  pages.drop(100, 150);
  CHECK(account.held == 150 * pageBytes() && account.peak == size);
  CHECK(residentBytes(window->data, size) == 150 * pageBytes());
  OK(trainc_comm_barrier(&comm));
  for (uint64_t i = 0; i < size; i += pageBytes())
    CHECK((peer[i] == 0) == (i / pageBytes() >= 100 && i / pageBytes() < 250));
  OK(trainc_comm_barrier(&comm));
  pages.drop(0, 100);
  pages.drop(250, 50);
  OK(trainc_comm_barrier(&comm));
  destroyWindow(comm, window);
}

/// Of ranks that destroy windows in different orders, collectives find the new one.
static void testDestroy(uint32_t rank, Comm &comm) {
  int before = countMappings();
  Window *windows[3];
  for (Window *&window : windows)
    OK(createWindow(comm, 5000, &window));
  uint32_t number = windows[2]->number;
  OK(trainc_comm_barrier(&comm));
  if (rank != 1) // which does so later
    destroyWindow(comm, windows[0]);
  destroyWindow(comm, windows[1]);
  destroyWindow(comm, nullptr);
  CHECK(countMappings() == before + (rank == 1 ? 6 : 3));
  OK(createWindow(comm, 96, &windows[1]));
  CHECK(windows[1]->number == number + 1 && windows[2]->number == number);
  auto *data = reinterpret_cast<float *>(windows[1]->data);
  data[rank] = static_cast<float>(rank + 1);
  Collective call;
  call.kind = TRAINC_ALL_GATHER;
  call.group = worldGroup(comm);
  call.count = 3;
  call.window = windows[1];
  OK(run(comm, call, nullptr));
  CHECK(data[0] == 1 && data[1] == 2 && data[2] == 3);
  OK(fence(comm));
  OK(trainc_comm_barrier(&comm));
  for (uint32_t i = rank == 1 ? 0 : 1; i < 3; ++i)
    destroyWindow(comm, windows[i]);
  CHECK(countMappings() == before);
}

/// A measurement that fails leaves no window, and the ranks go on.
static void testMeasurement(uint32_t, Comm &comm) {
  int before = countMappings();
  double time;
  CHECK(trainc_comm_measure(&comm, TRAINC_REDUCE_SCATTER, 5 * 4, &time) ==
        TRAINC_INVALID_ARGUMENT);
  CHECK(countMappings() == before);
  OK(trainc_comm_measure(&comm, TRAINC_REDUCE_SCATTER, 6 * 4, &time));
  CHECK(time > 0 && countMappings() == before);
}

/// Rank 1 writes its range again and again; rank 0 is slow to read it.
static void testFence(uint32_t rank, Comm &comm) {
  constexpr uint64_t count = 100000;
  Window *window;
  OK(createWindow(comm, count * 4, &window));
  auto *data = reinterpret_cast<uint32_t *>(window->data);
  std::vector<uint32_t> all(3 * count);
  for (uint32_t step = 0; step < 12; ++step) {
    OK(fence(comm));
    for (uint64_t i = 0; i < count; ++i)
      data[i] = step * 10 + rank;
    Collective call;
    call.kind = TRAINC_ALL_GATHER;
    call.group = worldGroup(comm);
    call.dtype = TRAINC_I32;
    call.count = count;
    call.window = window;
    call.target = all.data();
    uint32_t token;
    OK(start(comm, call, &token));
    if (rank == 0)
      rest(0.01);
    OK(wait(comm, token, nullptr));
    for (uint64_t i = 0; i < 3 * count; ++i)
      CHECK(all[i] == step * 10 + i / count);
  }
}

/// A fence waits for a peer that has not waited yet, and says so.
static void testFenceFails() {
  std::string meeting = newMeeting();
  pid_t pids[2];
  for (uint32_t i = 0; i < 2; ++i)
    pids[i] = startProcess([&] {
      trainc_comm_options options = rankOptions(i, 2, meeting, 1);
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      Window *window;
      OK(createWindow(*comm, 64, &window));
      Collective call;
      call.kind = TRAINC_ALL_GATHER;
      call.group = worldGroup(*comm);
      call.count = 16;
      call.window = window;
      uint32_t token;
      OK(start(*comm, call, &token));
      if (i == 1) {
        rest(1.4);
        CHECK(wait(*comm, token, nullptr) == TRAINC_COMM_FAILED);
        CHECK(strstr(trainc_last_error(), "rank 0 gave up (nothing within"));
        return;
      }
      OK(wait(*comm, token, nullptr));
      CHECK(fence(*comm) == TRAINC_COMM_FAILED);
      CHECK(strstr(trainc_last_error(), "fence of ranks 0 1, has waited 1."));
      CHECK(strstr(trainc_last_error(), "not done: 1 (host "));
      rest(0.6); // rank 1 is told
    });
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, 10) == 0);
}

static void testMany(uint32_t, Comm &comm) {
  float value = 1;
  Collective call;
  call.kind = TRAINC_ALL_REDUCE;
  call.group = worldGroup(comm);
  call.count = 1;
  call.data = &value;
  double begin = seconds();
  for (int i = 0; i < 500; ++i) {
    value = 1;
    OK(run(comm, call, nullptr));
    CHECK(value == 8);
  }
  // A sleep of 10 ms in each would be 5 s.
  double time = seconds() - begin;
  if (time > 3)
    printf("500 sums on 8 ranks took %g s\n", time);
  CHECK(time < 3);
}

int main() {
  runRanks(3, testLazy);
  runRanks(3, testImpossible);
  runRanks(3, testDrop);
  runRanks(3, testDestroy);
  runRanks(3, testMeasurement);
  runRanks(3, testFence);
  testFenceFails();
  runRanks(8, testMany);
  return 0;
}
