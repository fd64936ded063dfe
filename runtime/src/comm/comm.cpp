//===- comm.cpp - Communicators: the C API --------------------------------===//

#include "comm/internals.h"
#include "cpu/features.h"

using namespace trainc;

/// Spins before a wait sleeps, where every rank of the host has a processor.
static constexpr unsigned waitingSpins = 300;

/// A slot of the ring has room for an element of each.
static constexpr uint32_t maxRanks = slotBytes / sizeof(double);

static Limit limitOf(double seconds) {
  return {nowNs() +
              static_cast<uint64_t>(seconds * static_cast<double>(secondNs)),
          seconds, nullptr, nullptr};
}

Limit trainc::exchangeLimit(Comm &comm) {
  Limit limit = limitOf(comm.deadline);
  limit.context = &comm;
  limit.check = [](void *context) {
    return checkAlive(*static_cast<Comm *>(context));
  };
  return limit;
}

/// Reads the bandwidth that tests ask for.
static trainc_status readBandwidth(Comm &comm) {
  const char *text = getenv("TRAINC_TEST_BANDWIDTH");
  if (!text || !*text)
    return TRAINC_OK;
  char *end = nullptr;
  comm.bandwidth = strtod(text, &end);
  if (*end || !(comm.bandwidth >= 1e3 && comm.bandwidth <= 1e15))
    return fail(TRAINC_INVALID_ARGUMENT,
                "TRAINC_TEST_BANDWIDTH: expected bytes per second, from 1e3 to "
                "1e15, got '%s'",
                text);
  return TRAINC_OK;
}

static trainc_status setUp(Comm &comm, const Start &start) {
  Limit limit = limitOf(comm.deadline);
  TRAINC_TRY(openBootstrap(start, limit, comm.bootstrap));
  comm.rank = comm.bootstrap.rank;
  comm.ranks = comm.bootstrap.ranks;
  if (comm.ranks > maxRanks)
    return fail(TRAINC_UNSUPPORTED, "%u ranks: %u are the most", comm.ranks,
                maxRanks);
  TRAINC_TRY(findHosts(comm, limit));
  comm.spins = comm.hostRanks <= availableProcessors() ? waitingSpins : 20;
  comm.operations = static_cast<Operation *>(
      aligned_alloc(64, sizeof(Operation) * maxPending));
  if (!comm.operations)
    endWithoutMemory();
  for (uint32_t i = 0; i < maxPending; ++i)
    ::new (&comm.operations[i]) Operation();
  Array<uint32_t> all;
  for (uint32_t i = 0; i < comm.ranks; ++i)
    all.push(i);
  const Group *world;
  TRAINC_TRY(createGroup(comm, all.data(), comm.ranks, &world));
  if (comm.hosts > 1)
    TRAINC_TRY(listenForGiveUp(comm));
  return comm.ranks > 1 ? startWatchdog(comm) : TRAINC_OK;
}

/// `clean`: nothing is under way.
static void release(trainc_comm *comm, bool clean) {
  stopWatchdog(*comm);
  if (comm->control &&
      comm->control->state.load(std::memory_order_acquire) == LIVE)
    comm->control->state.store(CLOSED, std::memory_order_release);
  if (clean)
    stopListening(*comm);
  releaseHosts(*comm);
  Bootstrap &bootstrap = comm->bootstrap;
  bool usesMpi = bootstrap.mpi != nullptr;
  if (bootstrap.close)
    bootstrap.close(bootstrap, clean);
  // MPI may still write to what was posted before a failure: it stays.
  if (usesMpi && !clean)
    return;
  releaseWindows(*comm);
  for (Group *group : comm->groups)
    destroy(group);
  for (uint32_t i = 0; comm->operations && i < maxPending; ++i)
    comm->operations[i].~Operation();
  free(comm->operations);
  free(comm->staging);
  destroy(comm);
}

trainc_status trainc_comm_create(const trainc_comm_options *options,
                                 trainc_comm **out_comm) {
  trainc_comm_options given;
  TRAINC_TRY(takeOptions(options, "communicator options", given));
  if (!(given.deadline >= 0 && given.deadline < 1e9))
    return fail(TRAINC_INVALID_ARGUMENT,
                "communicator options: a deadline of %g s", given.deadline);
  if (given.flags & ~(TRAINC_COMM_NO_WINDOW | TRAINC_COMM_EXIT))
    return fail(TRAINC_INVALID_ARGUMENT, "communicator options: flags 0x%x",
                given.flags);
  Start start;
  TRAINC_TRY(findStart(given, start));
  auto *comm = create<trainc_comm>();
  if (given.deadline > 0)
    comm->deadline = given.deadline;
  comm->flags = given.flags;
  comm->report = given.report;
  comm->reportContext = given.report_context;
  trainc_status status = readBandwidth(*comm);
  if (!status)
    status = setUp(*comm, start);
  if (status) {
    Text text;
    text.append(trainc_last_error());
    release(comm, /*clean=*/false);
    return fail(status, "%s", text.c_str());
  }
  *out_comm = comm;
  return TRAINC_OK;
}

void trainc_comm_destroy(trainc_comm *comm) {
  if (comm)
    release(comm, !comm->failure.size() && comm->started == comm->finished);
}

trainc_status trainc_comm_get_info(const trainc_comm *comm,
                                   trainc_comm_info *out_info) {
  *out_info = comm->counts;
  out_info->rank = comm->rank;
  out_info->ranks = comm->ranks;
  out_info->host = comm->host;
  out_info->hosts = comm->hosts;
  out_info->host_rank = comm->hostRank;
  out_info->host_ranks = comm->hostRanks;
  out_info->deadline = comm->deadline;
  out_info->bootstrap = comm->bootstrap.name.c_str();
  return TRAINC_OK;
}

trainc_status trainc_comm_barrier(trainc_comm *comm) {
  Collective barrier;
  barrier.group = worldGroup(*comm);
  return run(*comm, barrier, nullptr);
}

void trainc_comm_interrupt(trainc_comm *comm) {
  comm->interrupted.store(true, std::memory_order_release);
}

trainc_status trainc_comm_check(trainc_comm *comm) { return checkAlive(*comm); }

void trainc_comm_abort(trainc_comm *comm, int status) {
  if (!comm->failure.size()) {
    Text reason;
    reason.format("aborted with status %d", status);
    giveUp(*comm, nullptr, reason.c_str());
  }
  if (comm->bootstrap.mpi)
    comm->bootstrap.mpi->abort(comm->bootstrap.context, status);
}
