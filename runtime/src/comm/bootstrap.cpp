//===- bootstrap.cpp - Which way ranks find each other --------------------===//

#include "comm/bootstrap.h"

using namespace trainc;

//===----------------------------------------------------------------------===//
// Environment
//===----------------------------------------------------------------------===//

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : nullptr;
}

static trainc_status parse(const char *name, uint32_t &number) {
  const char *text = variable(name);
  char *end = nullptr;
  unsigned long value = text ? strtoul(text, &end, 10) : 0;
  if (!text || *end || *text == '-' || value > INT32_MAX)
    return fail(TRAINC_INVALID_ARGUMENT, "%s=%s in the environment: %s", name,
                text ? text : "", text ? "not a number" : "not set");
  number = static_cast<uint32_t>(value);
  return TRAINC_OK;
}

namespace {
/// Variables in which something that starts ranks says their numbers.
struct Launcher {
  const char *rank, *ranks;
  const char *condition; // must be set, too
  Start::Way way;
};
} // namespace

static const Launcher launchers[] = {
    {"TRAINC_RANK", "TRAINC_RANKS", nullptr, Start::SOCKET},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, Start::MPI},
    {"PMI_RANK", "PMI_SIZE", nullptr, Start::MPI},
    // Set in a batch script, too, which is no rank.
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", Start::MPI},
    {"RANK", "WORLD_SIZE", "MASTER_ADDR", Start::SOCKET}};

static bool isThere(const Launcher &launcher) {
  return variable(launcher.rank) &&
         (!launcher.condition || variable(launcher.condition));
}

static trainc_status readNumbers(const Launcher &launcher, Start &start) {
  TRAINC_TRY(parse(launcher.rank, start.rank));
  TRAINC_TRY(parse(launcher.ranks, start.ranks));
  start.source = launcher.rank;
  return TRAINC_OK;
}

/// Rank and number of ranks of the first launcher that is there.
static trainc_status findNumbers(Start &start) {
  for (const Launcher &launcher : launchers)
    if (isThere(launcher))
      return readNumbers(launcher, start);
  return fail(TRAINC_INVALID_ARGUMENT,
              "nothing says which rank this is: set TRAINC_RANK and "
              "TRAINC_RANKS in the environment");
}

/// The coordinator's address, of ours or of torchrun.
static trainc_status findCoordinator(Start &start) {
  const char *coordinator = variable("TRAINC_COORD");
  const char *host = variable("MASTER_ADDR");
  if (coordinator) {
    start.place.append(coordinator);
    return TRAINC_OK;
  }
  if (!host)
    return fail(TRAINC_INVALID_ARGUMENT,
                "nothing says where rank 0 listens: set TRAINC_COORD=HOST:PORT "
                "in the environment");
  uint32_t port = 0;
  TRAINC_TRY(parse("MASTER_PORT", port));
  port = port < 65535 ? port + 1 : port - 1;
  start.place.format(strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
  return TRAINC_OK;
}

trainc_status trainc::findStart(const trainc_comm_options &options,
                                Start &start) {
  const char *how = options.bootstrap;
  if (how && !strcmp(how, "self"))
    return TRAINC_OK;
  if (!how) {
    const Launcher *found = nullptr;
    for (const Launcher &launcher : launchers)
      if (!found && isThere(launcher))
        found = &launcher;
    if (variable("TRAINC_COORD")) {
      start.way = Start::SOCKET;
    } else if (found && found->way == Start::SOCKET &&
               !variable("MASTER_ADDR")) {
      return fail(TRAINC_INVALID_ARGUMENT,
                  "%s is set in the environment, but not TRAINC_COORD: how do "
                  "the ranks find each other?",
                  found->rank);
    } else if (found) {
      start.way = found->way;
    } else if (options.ranks > 1) {
      return fail(TRAINC_INVALID_ARGUMENT,
                  "rank %u of %u: nothing says how the ranks find each other",
                  options.rank, options.ranks);
    } else {
      return TRAINC_OK;
    }
  } else if (!strcmp(how, "mpi")) {
    start.way = Start::MPI;
  } else if (!strcmp(how, "tcp") || !strncmp(how, "tcp:", 4)) {
    start.way = Start::SOCKET;
    start.place.append(how[3] ? how + 4 : "");
  } else if (!strncmp(how, "file:", 5) && how[5]) {
    start.way = Start::FILES;
    start.place.append(how + 5);
  } else {
    return fail(TRAINC_INVALID_ARGUMENT,
                "communicator options: bootstrap '%s' (mpi, tcp, "
                "tcp:HOST:PORT, file:PATH, self)",
                how);
  }
  if (start.way == Start::SOCKET && !start.place.size())
    TRAINC_TRY(findCoordinator(start));

  if (options.ranks) {
    start.rank = options.rank;
    start.ranks = options.ranks;
    start.source = "the options say";
  } else if (start.way != Start::MPI) {
    TRAINC_TRY(findNumbers(start));
  } else {
    for (const Launcher &launcher : launchers)
      if (launcher.way == Start::MPI && isThere(launcher)) {
        TRAINC_TRY(readNumbers(launcher, start));
        break;
      }
  }
  if (start.ranks ? start.rank >= start.ranks : start.way != Start::MPI)
    return fail(TRAINC_INVALID_ARGUMENT, "rank %u of %u (%s)", start.rank,
                start.ranks, start.source);
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Ways
//===----------------------------------------------------------------------===//

static trainc_status exchangeAlone(Bootstrap &, const void *mine, void *all,
                                   uint64_t bytes, const Limit &) {
  memcpy(all, mine, bytes);
  return TRAINC_OK;
}

trainc_status trainc::openBootstrap(const Start &start, const Limit &limit,
                                    Bootstrap &bootstrap) {
  static const char *const names[] = {"self", "mpi", "tcp ", "file:"};
  bootstrap.rank = start.rank;
  bootstrap.ranks = start.ranks;
  if (start.way == Start::MPI)
    return openMpi(start, limit, bootstrap);
  bootstrap.name.append(names[start.way]);
  bootstrap.name.append(start.place.c_str());
  if (start.way == Start::SELF || start.ranks == 1) {
    bootstrap.rank = 0;
    bootstrap.ranks = 1;
    bootstrap.exchange = exchangeAlone;
    return TRAINC_OK;
  }
  return start.way == Start::SOCKET ? openSocket(start, limit, bootstrap)
                                    : openFiles(start, limit, bootstrap);
}
