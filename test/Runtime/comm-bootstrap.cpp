// Ranks find each other by a socket and by files; mistakes and missing ranks are clear
// errors on all ranks, in time. What earlier runs left in a folder does no harm.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o test
// RUN: ./test

#include "ranks.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <functional>

/// The address of rank 0's socket.
static socklen_t addressOf(int port, sockaddr_un &address) {
  address = {};
  address.sun_family = AF_UNIX;
  int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                      "trainc-%u-%d", geteuid(), port);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

/// A port that nobody uses now.
static std::string freePlace(const char *host = "127.0.0.1") {
  static int next = 10000 + getpid() * 97 % 20000;
  for (bool isFree = false; !isFree;) {
    sockaddr_un address;
    socklen_t size = addressOf(++next, address);
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    isFree = bind(made, reinterpret_cast<sockaddr *>(&address), size) == 0;
    close(made);
  }
  return std::string(host) + ":" + std::to_string(next);
}

/// One process of a start: its options, and what must come of it.
struct Start {
  uint32_t rank, ranks;
  std::vector<std::string> expected; // one of them in the error; none: success
  double delay = 0;
};

static void setVariable(const std::string &setting) {
  size_t at = setting.find('=');
  setenv(setting.substr(0, at).c_str(), setting.substr(at + 1).c_str(), 1);
}

static void testStart(const std::string &bootstrap,
                      const std::vector<Start> &starts, double deadline = 10,
                      std::function<void()> then = nullptr) {
  std::vector<pid_t> pids;
  for (const Start &start : starts)
    pids.push_back(startProcess([&] {
      rest(start.delay);
      trainc_comm_options options =
          rankOptions(start.rank, start.ranks, bootstrap, deadline);
      trainc_comm *comm;
      double begin = seconds();
      trainc_status status = trainc_comm_create(&options, &comm);
      if (seconds() - begin > deadline + 1) {
        printf("%s, rank %u of %u: %g s\n", bootstrap.c_str(), start.rank,
               start.ranks, seconds() - begin);
        _exit(2);
      }
      if (start.expected.empty()) {
        OK(status);
        trainc_comm_info info;
        OK(trainc_comm_get_info(comm, &info));
        CHECK(info.rank == start.rank && info.ranks == start.ranks);
        Window *window;
        OK(createWindow(*comm, 4096 * (info.rank + 1), &window));
        window->data[0] = static_cast<char>(1 + info.rank);
        OK(trainc_comm_barrier(comm));
        for (uint32_t i = 0; i < info.ranks; ++i)
          CHECK(window->peers[i][0] == static_cast<char>(1 + i));
        OK(trainc_comm_barrier(comm));
        trainc_comm_destroy(comm);
        return;
      }
      bool found = false;
      for (const std::string &text : start.expected)
        found |= status && strstr(trainc_last_error(), text.c_str());
      if (found)
        return;
      printf("%s, rank %u of %u: expected '%s', got %s\n", bootstrap.c_str(),
             start.rank, start.ranks, start.expected[0].c_str(),
             status ? trainc_last_error() : "success");
      fflush(stdout);
      _exit(3);
    }));
  if (then)
    then();
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, deadline + 20) == 0);
}

/// Mistakes that both ways find in the same words.
static void testMistakes(const std::function<std::string()> &bootstrap) {
  std::string twoZeros = bootstrap();
  testStart(bootstrap(), {{0, 3, {}}, {1, 3, {}}, {2, 3, {}}});
  testStart(bootstrap(), {{0, 2, {}, 0.3}, {1, 2, {}}});
  testStart(bootstrap(), {{0, 2, {}}, {1, 2, {}, 0.3}});
  testStart(bootstrap(), {{0, 1, {}}});
  const char *other = "says that there are 4 ranks, rank 0 that there are 3";
  testStart(bootstrap(), {{0, 3, {other}}, {1, 4, {other}}, {2, 3, {other}}});
  const char *twice = "two processes are rank 1";
  testStart(bootstrap(), {{0, 3, {twice}}, {1, 3, {twice}}, {1, 3, {twice}}});
  testStart(bootstrap(),
            {{0, 3, {"rank 2 of 3 did not come within 1 s"}},
             {1, 3, {"rank 2 of 3 did not come within 1 s"}}},
            1);
  testStart(bootstrap(),
            {{1, 2, {"cannot connect to rank 0", "rank 0 has not answered"}}},
            1);
  testStart(bootstrap(), {{2, 2, {"rank 2 of 2"}}}, 1);
}

/// A rank dies between the start and the making of a window.
static void testDeath(const std::string &bootstrap, bool atRoot) {
  std::vector<pid_t> pids;
  for (uint32_t i = 0; i < 3; ++i)
    pids.push_back(startProcess([&] {
      trainc_comm_options options = rankOptions(i, 3, bootstrap, 5);
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      OK(trainc_comm_barrier(comm));
      if (i == (atRoot ? 0 : 2)) {
        rest(0.2); // until the others are through
        raise(SIGKILL);
      }
      Window *window;
      double begin = seconds();
      CHECK(createWindow(*comm, 100, &window) == TRAINC_COMM_FAILED);
      CHECK(seconds() - begin < 2);
      CHECK(trainc_comm_barrier(comm) == TRAINC_COMM_FAILED);
    }));
  for (uint32_t i = 0; i < 3; ++i)
    CHECK(finishProcess(pids[i], 20) == (i == (atRoot ? 0 : 2) ? -SIGKILL : 0));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static void writeText(const std::string &path, const char *text) {
  FILE *file = fopen(path.c_str(), "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static std::string readText(const std::string &path) {
  char text[64] = {};
  FILE *file = fopen(path.c_str(), "r");
  if (!file)
    return "nothing";
  CHECK(fread(text, 1, sizeof(text) - 1, file) > 0);
  fclose(file);
  return text;
}

static void testStaleFiles() {
  // Runs that succeeded, failed half-way and had more ranks, all in one folder.
  std::string folder = "file:stale";
  for (int i = 0; i < 3; ++i)
    testStart(folder, {{0, 2, {}}, {1, 2, {}}});
  testStart(folder,
            {{0, 3, {"rank 2 of 3 did not come"}},
             {1, 3, {"rank 2 of 3 did not come"}}},
            1);
  testStart(folder, {{1, 2, {"rank 0 has not answered"}}}, 0.5);
  // A hello of a rank that is not there now is not taken for one.
  testStart(folder, {{0, 2, {"rank 1 of 2 did not come"}}}, 0.5);
  testStart(folder, {{0, 4, {}}, {1, 4, {}}, {2, 4, {}}, {3, 4, {}}});
  testDeath(folder, false);
  testStart(folder, {{0, 2, {}}, {1, 2, {}}});
  testStart("file:/proc/nowhere", {{0, 2, {"cannot make the folder"}}});
  // The user's files, which are named much as the run's, stay what they are.
  const char *const foreign[] = {"data.npy", "data.csv", "ack.txt", "run",
                                 "hello.1",  "ack.1",    "notes"};
  CHECK(mkdir("foreign", 0777) == 0);
  for (const char *name : foreign)
    writeText(std::string("foreign/") + name, name);
  CHECK(mkdir("foreign/run.d", 0777) == 0);
  for (int i = 0; i < 2; ++i)
    testStart("file:foreign", {{0, 2, {}}, {1, 2, {}}});
  for (const char *name : foreign)
    CHECK(readText(std::string("foreign/") + name) == name);
  // Nor are those in the run's own folder that only begin as its files do. What is no
  // file is not waited for, nor is room made for all that a file says to have.
  for (const char *name : {"data.npy", "ack.1x", "data.0.0.0"})
    writeText(std::string("foreign/.trainc-comm/") + name, name);
  CHECK(mkfifo("foreign/.trainc-comm/ack.7", 0600) == 0);
  CHECK(unlink("foreign/.trainc-comm/run") == 0);
  writeText("foreign/.trainc-comm/run", "");
  CHECK(truncate("foreign/.trainc-comm/run", int64_t{1} << 40) == 0);
  CHECK(mkfifo("foreign/.trainc-comm/hello.1", 0600) == 0);
  testStart("file:foreign", {{0, 2, {}}, {1, 2, {}}});
  for (const char *name : {"data.npy", "ack.1x", "data.0.0.0"})
    CHECK(readText(std::string("foreign/.trainc-comm/") + name) == name);
  CHECK(mkdir("linked", 0777) == 0 &&
        symlink("../foreign", "linked/.trainc-comm") == 0);
  const char *link = "is not a folder that only its user may write to";
  testStart("file:linked", {{0, 2, {link}}}, 1);
  const char *zeros = "two processes are rank 0";
  testStart("file:zeros", {{0, 2, {zeros}}, {0, 2, {zeros}}}, 1);
}

//===----------------------------------------------------------------------===//
// Sockets
//===----------------------------------------------------------------------===//

static int portOf(const std::string &place) {
  return atoi(place.substr(place.find(':') + 1).c_str());
}

static int connectTo(const std::string &place, uid_t owner = geteuid()) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                        "trainc-%u-%d", owner, portOf(place));
  socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  for (int i = 0; i < 500; ++i, rest(0.01)) {
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(made, reinterpret_cast<sockaddr *>(&address), size) == 0)
      return made;
    close(made);
  }
  CHECK(!"nobody listens");
  return -1;
}

/// Connections that are none of ours: silent, talking, cut off.
static void testStrangers() {
  std::string place = freePlace();
  int silent = -1;
  testStart("tcp:" + place, {{0, 2, {}}, {1, 2, {}, 0.4}}, 10, [&] {
    silent = connectTo(place);
    int talking = connectTo(place), cut = connectTo(place);
    const char *text = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    CHECK(send(talking, text, strlen(text), MSG_NOSIGNAL) > 0);
    CHECK(send(cut, text, 3, MSG_NOSIGNAL) == 3);
    close(cut);
    rest(0.1);
    close(talking);
    // Nothing listens to the network.
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(portOf(place)));
    int made = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(made, reinterpret_cast<sockaddr *>(&address),
                  sizeof(address)) != 0);
    close(made);
  });
  close(silent);
}

/// A process of another user that knows all that there is to know.
static void testOtherUsers() {
  if (geteuid() != 0) // only root can be another user
    return;
  constexpr uid_t other = 65534;
  struct {
    uint64_t magic;
    uint32_t rank, ranks;
  } hello = {0x6f6c6c6568637274, 1, 3};
  std::string place = freePlace();
  testStart("tcp:" + place, {{0, 2, {}}, {1, 2, {}, 0.4}}, 10, [&] {
    CHECK(finishProcess(startProcess([&] {
                          CHECK(setuid(other) == 0);
                          int made = connectTo(place, 0);
                          // It may be closed before all is said.
                          (void)!send(made, &hello, sizeof(hello),
                                      MSG_NOSIGNAL);
                          char answer;
                          CHECK(recv(made, &answer, 1, 0) <= 0);
                        }),
                        10) == 0);
  });
  // One who listens in place of rank 0.
  place = freePlace();
  pid_t squatter = startProcess([&] {
    sockaddr_un address;
    socklen_t size = addressOf(portOf(place), address);
    CHECK(setuid(other) == 0);
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(made, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
          listen(made, 8) == 0);
    rest(2);
  });
  testStart("tcp:" + place,
            {{1, 2, {"another user listens where rank 0 should"}, 0.5}}, 2);
  CHECK(finishProcess(squatter, 10) == 0);
}

/// Without a free descriptor for who comes, rank 0 waits and does not spin.
static void testDescriptors() {
  std::string place = freePlace();
  pid_t root = startProcess([&] {
    std::string bootstrap = "tcp:" + place;
    trainc_comm_options options = rankOptions(0, 2, bootstrap, 1.5);
    int lowest = dup(0);
    close(lowest);
    rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = static_cast<rlim_t>(lowest) + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    trainc_comm *comm;
    CHECK(trainc_comm_create(&options, &comm) == TRAINC_COMM_FAILED);
    rusage used;
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    CHECK(used.ru_utime.tv_sec + used.ru_stime.tv_sec == 0 &&
          used.ru_utime.tv_usec + used.ru_stime.tv_usec < 300000);
  });
  int made = connectTo(place);
  CHECK(finishProcess(root, 20) == 0);
  close(made);
}

static void testSockets() {
  testStart("tcp:" + freePlace("localhost"), {{0, 2, {}}, {1, 2, {}}});
  testStart("tcp:" + freePlace("[::1]"), {{0, 2, {}}, {1, 2, {}}});
  for (const char *bad :
       {"nowhere", "host:", ":10", "host:0", "host:65536", "host:1x"})
    testStart(std::string("tcp:") + bad,
              {{0, 2, {"is no address of the form HOST:PORT"}}});
  // An address that no host has, and a name that has none: it needs none.
  testStart("tcp:192.0.2.1:4000",
            {{1,
              2,
              {"rank 0 is on another host, 192.0.2.1: ranks of several "
               "hosts need MPI"}}});
  testStart("tcp:" + freePlace("no..such"), {{0, 2, {}}, {1, 2, {}}});
  std::string place = freePlace();
  testStart(
      "tcp:" + place,
      {{0, 2, {}}, {0, 2, {"cannot listen on port"}, 0.2}, {1, 2, {}, 0.6}});
  testStrangers();
  testOtherUsers();
  testDescriptors();
  testDeath("tcp:" + freePlace(), false);
  testDeath("tcp:" + freePlace(), true);
}

//===----------------------------------------------------------------------===//
// Environment
//===----------------------------------------------------------------------===//

/// Ranks that are told all by the environment; `%` stands for the rank.
static void testEnvironment(const std::vector<std::string> &settings,
                            const char *expected = nullptr,
                            const char *bootstrap = nullptr) {
  pid_t pids[2];
  for (uint32_t i = 0; i < 2; ++i)
    pids[i] = startProcess([&] {
      for (std::string setting : settings) {
        size_t at = setting.find('%');
        if (at != std::string::npos)
          setting.replace(at, 1, std::to_string(i));
        setVariable(setting);
      }
      trainc_comm_options options = rankOptions(0, 0, "", 5);
      options.bootstrap = bootstrap;
      trainc_comm *comm;
      trainc_status status = trainc_comm_create(&options, &comm);
      if (expected) {
        CHECK(status && strstr(trainc_last_error(), expected));
        return;
      }
      OK(status);
      trainc_comm_info info;
      OK(trainc_comm_get_info(comm, &info));
      CHECK(info.rank == i && info.ranks == 2 && info.hosts == 1);
      OK(trainc_comm_barrier(comm));
      trainc_comm_destroy(comm);
    });
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, 20) == 0);
}

static void testEnvironments() {
  std::string coordinator = "TRAINC_COORD=" + freePlace();
  testEnvironment({coordinator, "TRAINC_RANK=%", "TRAINC_RANKS=2"});
  // Ours wins over what a launcher says.
  testEnvironment({coordinator, "TRAINC_RANK=%", "TRAINC_RANKS=2",
                   "OMPI_COMM_WORLD_RANK=7", "OMPI_COMM_WORLD_SIZE=9", "RANK=7",
                   "WORLD_SIZE=9", "MASTER_ADDR=x"});
  testEnvironment(
      {coordinator, "SLURM_PROCID=%", "SLURM_NTASKS=2", "SLURM_STEP_ID=0"});
  testEnvironment({coordinator, "OMPI_COMM_WORLD_RANK=%",
                   "OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=5", "PMI_SIZE=6"});
  std::string place = freePlace();
  size_t colon = place.find(':');
  int port = atoi(place.substr(colon + 1).c_str());
  testEnvironment({"RANK=%", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                   "MASTER_PORT=" + std::to_string(port - 1)});
  testEnvironment({"TRAINC_RANK=%", "TRAINC_RANKS=2"}, nullptr, "file:by-env");

  testEnvironment({coordinator}, "nothing says which rank this is");
  testEnvironment({"TRAINC_RANK=%", "TRAINC_RANKS=2"}, "not TRAINC_COORD");
  testEnvironment({coordinator, "TRAINC_RANK=%"}, "TRAINC_RANKS=");
  testEnvironment({coordinator, "TRAINC_RANK=one", "TRAINC_RANKS=2"},
                  "TRAINC_RANK=one");
  testEnvironment({"RANK=%", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"},
                  "MASTER_PORT=");
  testEnvironment({}, "nothing says where rank 0 listens", "tcp");
  testEnvironment({}, "bootstrap 'pigeon'", "pigeon");
  testEnvironment({"OMPI_COMM_WORLD_RANK=%", "OMPI_COMM_WORLD_SIZE=2",
                   "TRAINC_MPI_PLUGIN=/nonexistent.so"},
                  "cannot load MPI");
  // Hosts that differ, without MPI.
  testEnvironment(
      {coordinator, "TRAINC_RANK=%", "TRAINC_RANKS=2", "TRAINC_HOST=host%"},
      "ranks 0 (host host0) and 1 (host host1) do not share memory");
  // A batch script of Slurm is no rank.
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NTASKS", "4", 1);
  trainc_comm *comm;
  OK(trainc_comm_create(nullptr, &comm));
  trainc_comm_info info;
  OK(trainc_comm_get_info(comm, &info));
  CHECK(info.ranks == 1 && info.host_ranks == 1);
  OK(trainc_comm_barrier(comm));
  trainc_comm_destroy(comm);
  trainc_comm_destroy(nullptr);
  trainc_comm_options options = {};
  CHECK(trainc_comm_create(&options, &comm) == TRAINC_INVALID_ARGUMENT);
  options.size = sizeof(options);
  options.deadline = -1;
  CHECK(trainc_comm_create(&options, &comm) == TRAINC_INVALID_ARGUMENT);
  options.deadline = 1;
  options.flags = 128;
  CHECK(trainc_comm_create(&options, &comm) == TRAINC_INVALID_ARGUMENT);
  options.flags = 0;
  options.ranks = 2;
  CHECK(trainc_comm_create(&options, &comm) == TRAINC_INVALID_ARGUMENT);
}

int main() {
  for (const char *name :
       {"TRAINC_COORD", "TRAINC_RANK", "TRAINC_RANKS", "OMPI_COMM_WORLD_RANK",
        "PMI_RANK", "SLURM_PROCID", "SLURM_STEP_ID", "RANK", "MASTER_ADDR"})
    unsetenv(name);
  testMistakes([] { return "tcp:" + freePlace(); });
  testMistakes(newMeeting);
  testStaleFiles();
  testSockets();
  testEnvironments();
  return 0;
}
