// Processes that are ranks, for tests of communicators.
#ifndef RANKS_H
#define RANKS_H

#include "comm/comm.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

using namespace trainc;

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("%s:%d: %s\n  %s\n", __FILE__, __LINE__, #condition,              \
             trainc_last_error());                                             \
      fflush(stdout);                                                          \
      _exit(1);                                                                \
    }                                                                          \
  } while (0)
#define OK(call) CHECK((call) == 0)

inline double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}
inline void rest(double time) {
  timespec left = {static_cast<time_t>(time),
                   static_cast<long>((time - floor(time)) * 1e9)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR)
    ;
}

/// Starts a process that runs function() and exits with 0.
template <typename Function> pid_t startProcess(Function function) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  function();
  fflush(stdout);
  _exit(0);
}

/// Waits for a process to end: its exit status, -N after signal N, 1000 if it
/// had to be killed after `time` seconds.
inline int finishProcess(pid_t pid, double time) {
  int status;
  for (double end = seconds() + time; seconds() < end; rest(0.002))
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return 1000;
}

/// Options of a rank that meets the others in `folder`.
inline trainc_comm_options rankOptions(uint32_t rank, uint32_t ranks,
                                       const std::string &bootstrap,
                                       double deadline = 20) {
  trainc_comm_options options = {};
  options.size = sizeof(options);
  options.bootstrap = bootstrap.c_str();
  options.rank = rank;
  options.ranks = ranks;
  options.deadline = deadline;
  return options;
}

/// Another folder for each call, in the current one.
inline std::string newMeeting() {
  static int number = 0;
  return "file:meet" + std::to_string(number++);
}

/// Runs function(rank, comm) in `ranks` processes, all of which must succeed.
template <typename Function>
void runRanks(uint32_t ranks, Function function, double deadline = 20,
              double time = 60) {
  std::string meeting = newMeeting();
  std::vector<pid_t> pids;
  for (uint32_t i = 0; i < ranks; ++i)
    pids.push_back(startProcess([&] {
      trainc_comm_options options = rankOptions(i, ranks, meeting, deadline);
      trainc_comm *comm;
      OK(trainc_comm_create(&options, &comm));
      function(i, *comm);
      trainc_comm_destroy(comm);
    }));
  for (pid_t pid : pids)
    CHECK(finishProcess(pid, time) == 0);
}

#endif
