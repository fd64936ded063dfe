//===- waiting.cpp - Waiting for peers, and giving up ---------------------===//
//
// A wait spins for a while, then sleeps in the kernel, 10 ms at most at a time.
// In between it looks whether there is a reason to give up: a peer has given up
// or died, or the deadline has passed. Who gives up tells its peers. The watchdog
// is for waits that do not get to look.
//
//===----------------------------------------------------------------------===//

#include "comm/internals.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace trainc;

/// Longest sleep, and time between looks.
static constexpr uint64_t restNs = 10 * msNs, lookNs = 5 * msNs;

/// A gap between looks that only a stopped process has: it is not held against
/// its peers.
static constexpr uint64_t stoppedNs = 2 * secondNs;

/// Times that a wait lets others run before it sleeps.
static constexpr unsigned counterYields = 100, messageYields = 1000;

static constexpr uint64_t watchNs = 250 * msNs, graceNs = 2 * secondNs;

//===----------------------------------------------------------------------===//
// Counters
//===----------------------------------------------------------------------===//

void trainc::publish(Counter &counter, uint32_t value) {
  counter.value.store(value, std::memory_order_seq_cst);
  if (counter.waiters.load(std::memory_order_seq_cst))
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&counter.value), FUTEX_WAKE,
            INT32_MAX, nullptr, nullptr, 0);
}

void trainc::sleepOn(Counter &counter, uint32_t seen, uint64_t ns) {
  timespec time = {static_cast<time_t>(ns / secondNs),
                   static_cast<long>(ns % secondNs)};
  counter.waiters.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&counter.value), FUTEX_WAIT,
          seen, &time, nullptr, 0);
  counter.waiters.fetch_sub(1, std::memory_order_relaxed);
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

const char *trainc::collectiveName(uint32_t kind) {
  static const char *const names[TRAINC_NUM_COLLECTIVES] = {
      "reduce_scatter", "all_reduce", "all_gather", "broadcast", "barrier"};
  return kind < TRAINC_NUM_COLLECTIVES ? names[kind] : "something";
}

bool trainc::isDead(const Rank &rank) {
  pollfd descriptor = {rank.pidfd, POLLIN, 0};
  return rank.pidfd >= 0 && poll(&descriptor, 1, 0) == 1;
}

static const char *stateOf(const Rank &rank) {
  if (isDead(rank))
    return "dead";
  char path[64], line[512];
  snprintf(path, sizeof(path), "/proc/%lld/stat",
           static_cast<long long>(rank.pid));
  FILE *file = fopen(path, "re");
  if (!file)
    return "dead";
  const char *end =
      fgets(line, sizeof(line), file) ? strrchr(line, ')') : nullptr;
  bool stopped = end && (end[2] == 'T' || end[2] == 't');
  fclose(file);
  return stopped ? "stopped" : "alive";
}

void trainc::appendRank(Text &text, const Comm &comm, uint32_t number) {
  const Rank &rank = comm.peers[number];
  text.format("%u (host %s, pid %lld", number, rank.name,
              static_cast<long long>(rank.pid));
  if (rank.shares)
    text.format(", %s", stateOf(rank));
  text.append(')');
}

static bool hasArrived(const Operation &operation, uint32_t member) {
  const Member &m = operation.group->members[member];
  if (m.remote)
    return operation.heard[member];
  return !m.shares ||
         (m.block && hasReached(m.block->arrived, operation.mine.sequence + 1));
}

bool trainc::isDone(const Operation &operation, uint32_t member) {
  const Group &group = *operation.group;
  const Member &m = group.members[member];
  if (operation.phase == Phase::ARRIVAL)
    return hasArrived(operation, member);
  if (m.remote)
    return operation.phase == Phase::FENCE || !operation.underWay[member];
  if (!m.shares)
    return true;
  switch (operation.phase) {
  case Phase::ARRIVAL:
  case Phase::MESSAGES:
    return true;
  case Phase::STAGING:
    return hasReached(m.block->staged, operation.chunk + 1);
  case Phase::TAKING:
    return hasReached(m.block->taken, operation.chunk + 1 - ringSlots);
  case Phase::REDUCING:
    return hasReached(m.block->reduced, operation.reduce + 1);
  case Phase::FENCE:
    return m.block && hasReached(m.block->finished, group.offered);
  }
  return true;
}

/// "all_reduce 'norm', collective 17 of ranks 0 1 2, 8 bytes, has waited 1.5 s;
/// arrived: 0 1; missing: 2 (host a, pid 4711, dead)"
static void appendOperation(Text &text, const Comm &comm,
                            const Operation &operation, uint64_t since) {
  const Group &group = *operation.group;
  bool isFence = operation.phase == Phase::FENCE;
  if (isFence)
    text.append("fence");
  else
    text.format("%s '%s', collective %u", collectiveName(operation.mine.kind),
                operation.mine.label, operation.mine.sequence);
  text.append(" of ranks");
  uint32_t size = group.size(), shown = size < 16 ? size : 16;
  for (uint32_t i = 0; i < shown; ++i)
    text.format(" %u", group.members[i].rank);
  if (shown < size)
    text.format(" and %u more", size - shown);
  if (!isFence)
    text.format(", %llu bytes",
                static_cast<unsigned long long>(operation.bytes));
  text.format(", has waited %.1f s", static_cast<double>(nowNs() - since) /
                                         static_cast<double>(secondNs));

  bool arriving = operation.phase == Phase::ARRIVAL;
  if (!isFence) {
    text.append("; arrived:");
    for (uint32_t i = 0, n = 0; i < size && n < 16; ++i)
      if (hasArrived(operation, i)) {
        text.format(" %u", group.members[i].rank);
        ++n;
      }
  }
  uint32_t missing = 0;
  for (uint32_t i = 0; i < size; ++i) {
    if (isDone(operation, i))
      continue;
    if (missing < 8) {
      text.append(missing ? ", " : arriving ? "; missing: " : "; not done: ");
      appendRank(text, comm, group.members[i].rank);
    }
    ++missing;
  }
  if (missing > 8)
    text.format(" and %u more", missing - 8);
}

static void report(const Comm &comm, const char *text) {
  if (!comm.report)
    return;
  Text line;
  line.format("rank %u of %u: %s", comm.rank, comm.ranks, text);
  comm.report(comm.reportContext, line.c_str());
}

trainc_status trainc::giveUp(Comm &comm, const Operation *operation,
                             const char *reason) {
  Text text;
  text.append(reason);
  if (operation) {
    text.append(": ");
    appendOperation(text, comm, *operation, comm.waitBegin);
  } else if (comm.describe) {
    text.append(": ");
    pthread_mutex_lock(&comm.mutex);
    comm.describe(comm.describeContext, text);
    pthread_mutex_unlock(&comm.mutex);
  }
  // The peers first: a report may take long.
  if (comm.control) {
    snprintf(comm.control->text, sizeof(comm.control->text), "%s",
             text.c_str());
    comm.control->state.store(GAVE_UP, std::memory_order_release);
  }
  sendGiveUp(comm, text.c_str());
  pthread_mutex_lock(&comm.mutex);
  comm.reported = true;
  pthread_mutex_unlock(&comm.mutex);
  comm.failure.append(text.c_str());
  report(comm, text.c_str());
  return fail(TRAINC_COMM_FAILED, "%s", text.c_str());
}

//===----------------------------------------------------------------------===//
// Reasons to give up
//===----------------------------------------------------------------------===//

trainc_status trainc::checkPeers(Comm &comm, const Operation *operation) {
  Text reason;
  for (uint32_t i = 0; i < comm.ranks && !reason.size(); ++i) {
    const Rank &rank = comm.peers[i];
    if (rank.shares &&
        rank.control->state.load(std::memory_order_acquire) == GAVE_UP)
      reason.format("rank %u gave up (%.*s)", i,
                    static_cast<int>(sizeof(rank.control->text)),
                    rank.control->text);
  }
  if (!reason.size() && hearGiveUp(comm))
    reason.format("rank %u gave up (%s)", comm.giveUpReceived.rank,
                  comm.giveUpReceived.text);
  return reason.size() ? giveUp(comm, operation, reason.c_str()) : TRAINC_OK;
}

trainc_status trainc::checkUsable(Comm &comm) {
  if (!comm.failure.size())
    return TRAINC_OK;
  return fail(TRAINC_COMM_FAILED, "the communicator has failed before: %s",
              comm.failure.c_str());
}

trainc_status trainc::checkAlive(Comm &comm) {
  TRAINC_TRY(checkUsable(comm));
  TRAINC_TRY(checkPeers(comm, nullptr));
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    if (!comm.peers[i].shares || !isDead(comm.peers[i]))
      continue;
    Text reason;
    reason.format("rank %u is dead", i);
    return giveUp(comm, nullptr, reason.c_str());
  }
  return TRAINC_OK;
}

/// Members on this host that will not come any more.
static trainc_status checkMembers(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  for (uint32_t i = 0; i < group.size(); ++i) {
    Member &member = group.members[i];
    const Rank &rank = comm.peers[member.rank];
    if (!member.shares || isDone(operation, i))
      continue;
    bool dead = isDead(rank),
         closed = rank.control->state.load(std::memory_order_acquire) == CLOSED;
    if (!dead && !closed)
      continue;
    // It may have come before it went.
    if (!member.block)
      findBlock(comm, group, i);
    if (isDone(operation, i))
      continue;
    Text reason;
    reason.format(dead ? "rank %u is dead"
                       : "rank %u has destroyed its communicator",
                  member.rank);
    return giveUp(comm, &operation, reason.c_str());
  }
  return TRAINC_OK;
}

static void reportInterrupt(Comm &comm) {
  Text text;
  text.append("interrupted: ");
  appendOperation(text, comm, *comm.waiting, comm.waitBegin);
  report(comm, text.c_str());
}

/// Takes the time that this process was stopped out of the wait.
static void noteLook(Comm &comm, uint64_t now) {
  if (now - comm.lastLook > stoppedNs) {
    pthread_mutex_lock(&comm.mutex);
    comm.waitBegin += now - comm.lastLook;
    pthread_mutex_unlock(&comm.mutex);
  }
  comm.lastLook = now;
}

static trainc_status look(Comm &comm, uint64_t now) {
  Operation &operation = *comm.waiting;
  noteLook(comm, now);
  if (comm.interrupted.exchange(false, std::memory_order_acq_rel))
    reportInterrupt(comm);
  TRAINC_TRY(checkPeers(comm, &operation));
  TRAINC_TRY(checkMembers(comm, operation));
  if (static_cast<double>(now - comm.waitBegin) <
      comm.deadline * static_cast<double>(secondNs))
    return TRAINC_OK;
  Text reason;
  reason.format("nothing within %g s", comm.deadline);
  return giveUp(comm, &operation, reason.c_str());
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

static uint64_t nsOf(double seconds) {
  return static_cast<uint64_t>(seconds * static_cast<double>(secondNs));
}

void trainc::beginWait(Comm &comm, Operation &operation) {
  pthread_mutex_lock(&comm.mutex);
  comm.waiting = &operation;
  comm.waitBegin = comm.watchBegin = comm.lastLook = nowNs();
  comm.watchLimit = nsOf(comm.deadline) + graceNs;
  comm.reported = false;
  pthread_mutex_unlock(&comm.mutex);
  comm.pauses = 0;
}

void trainc::endWait(Comm &comm) {
  pthread_mutex_lock(&comm.mutex);
  comm.waiting = nullptr;
  pthread_mutex_unlock(&comm.mutex);
}

void trainc::beginWatch(Comm &comm, double seconds,
                        void (*describe)(void *context, Text &text),
                        void *context) {
  pthread_mutex_lock(&comm.mutex);
  comm.describe = describe;
  comm.describeContext = context;
  comm.waitBegin = comm.watchBegin = comm.lastLook = nowNs();
  comm.watchLimit = nsOf(seconds) + graceNs;
  comm.reported = false;
  pthread_mutex_unlock(&comm.mutex);
}

void trainc::endWatch(Comm &comm) {
  pthread_mutex_lock(&comm.mutex);
  comm.describe = nullptr;
  pthread_mutex_unlock(&comm.mutex);
}

uint64_t trainc::watchedNs(Comm &comm) {
  uint64_t now = nowNs();
  noteLook(comm, now);
  return now - comm.waitBegin;
}

trainc_status trainc::pause(Comm &comm, Counter *counter, uint32_t seen) {
  unsigned past = comm.pauses++;
  if (past < comm.spins) {
    relax();
    return TRAINC_OK;
  }
  past -= comm.spins;
  uint64_t now = nowNs();
  if (now - comm.lastLook >= lookNs || past % 256 == 255)
    TRAINC_TRY(look(comm, now));
  // The peer may be next on this very processor. And MPI moves data only while it
  // is called.
  if (past < (counter ? counterYields : messageYields))
    sched_yield();
  else if (counter)
    sleepOn(*counter, seen, restNs);
  else
    sleepNs(past < 3000 ? 50 * msNs / 1000 : msNs);
  return TRAINC_OK;
}

trainc_status trainc::await(Comm &comm, Counter &counter, uint32_t target) {
  while (true) {
    uint32_t seen = counter.value.load(std::memory_order_acquire);
    if (hasReached(seen, target)) {
      progress(comm);
      return TRAINC_OK;
    }
    TRAINC_TRY(pause(comm, &counter, seen));
  }
}

trainc_status trainc::awaitTime(Comm &comm, uint64_t time) {
  for (uint64_t now; (now = nowNs()) < time;) {
    TRAINC_TRY(look(comm, now));
    sleepNs(time - now < restNs ? time - now : restNs);
  }
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// The watchdog
//===----------------------------------------------------------------------===//

/// What is to be reported of a wait that does not get to look; empty: nothing.
static void examine(Comm &comm, Text &text) {
  if ((!comm.waiting && !comm.describe) || comm.reported)
    return;
  comm.reported = nowNs() - comm.watchBegin >= comm.watchLimit;
  if (comm.reported)
    text.format("nothing within %g s, and the wait does not return: ",
                comm.deadline);
  else if (comm.interrupted.exchange(false, std::memory_order_acq_rel))
    text.append("interrupted: ");
  else
    return;
  if (comm.describe)
    comm.describe(comm.describeContext, text);
  else
    appendOperation(text, comm, *comm.waiting, comm.waitBegin);
}

static void watch(Comm &comm) {
  pthread_mutex_lock(&comm.mutex);
  for (uint64_t now = nowNs(); !comm.stopping;) {
    uint64_t before = now, next = now + watchNs;
    timespec time = {static_cast<time_t>(next / secondNs),
                     static_cast<long>(next % secondNs)};
    pthread_cond_timedwait(&comm.changed, &comm.mutex, &time);
    now = nowNs();
    // The peers were stopped, too, if the host slept.
    if (now - before > stoppedNs)
      comm.watchBegin = now;
    Text text;
    examine(comm, text);
    if (!text.size())
      continue;
    bool isOver = comm.reported;
    pthread_mutex_unlock(&comm.mutex); // the callback may do what it likes
    report(comm, text.c_str());
    if (isOver && comm.flags & TRAINC_COMM_EXIT)
      _exit(1);
    pthread_mutex_lock(&comm.mutex);
  }
  pthread_mutex_unlock(&comm.mutex);
}

trainc_status trainc::startWatchdog(Comm &comm) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&comm.changed, &attributes);
  pthread_condattr_destroy(&attributes);
  sigset_t all, old; // the program's handlers run in its own threads
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int error = pthread_create(
      &comm.watchdog, nullptr,
      [](void *argument) -> void * {
        watch(*static_cast<Comm *>(argument));
        return nullptr;
      },
      &comm);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error)
    return fail(TRAINC_OUT_OF_MEMORY, "cannot start a thread: %s",
                errnoText(error));
  comm.watched = true;
  return TRAINC_OK;
}

void trainc::stopWatchdog(Comm &comm) {
  if (!comm.watched)
    return;
  pthread_mutex_lock(&comm.mutex);
  comm.stopping = true;
  pthread_cond_signal(&comm.changed);
  pthread_mutex_unlock(&comm.mutex);
  pthread_join(comm.watchdog, nullptr);
  pthread_cond_destroy(&comm.changed);
}
