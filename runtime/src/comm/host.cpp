//===- host.cpp - Ranks of one host, and the memory that they share -------===//
//
// Shared memory is an anonymous file (memfd) of the rank whose data it holds.
// Peers open it through /proc/PID/fd/FD and map it. So it has no name that could
// be left over, no folder whose size is limited, and it is gone with the last
// process that has it mapped.
//
//===----------------------------------------------------------------------===//

#include "comm/internals.h"
#include "core/pages.h"
#include "cpu/features.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {
/// Memory of this rank while peers open it.
struct Shared {
  void *data = nullptr;
  uint64_t bytes = 0;
  int descriptor = -1;

  void close() {
    if (descriptor >= 0)
      ::close(descriptor);
    descriptor = -1;
  }
};
} // namespace

/// MADV_COLLAPSE of Linux 6.1, which older headers do not have.
static constexpr int adviceCollapse = 25;

/// Of this size and alignment, memory can be huge pages.
static constexpr uint64_t hugeBytes = 2 << 20;

/// Maps a file where a huge page may begin, if it is large enough for one.
static void *mapFile(int file, uint64_t bytes, int protection) {
  if (bytes < hugeBytes)
    return mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file,
                0);
  void *range = mmap(nullptr, bytes + hugeBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    return range;
  char *start = static_cast<char *>(range);
  uint64_t before = -reinterpret_cast<uintptr_t>(start) % hugeBytes;
  void *data = mmap(start + before, bytes, protection,
                    MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
  int error = errno;
  if (data == MAP_FAILED) {
    munmap(range, bytes + hugeBytes);
    errno = error;
    return data;
  }
  uint64_t end = alignUp(before + bytes, pageBytes());
  if (before)
    munmap(start, before);
  if (end < bytes + hugeBytes)
    munmap(start + end, bytes + hugeBytes - end);
  return data;
}

/// An anonymous file that nobody may execute; older systems know no such thing.
static int makeFile() {
  constexpr unsigned noExecSeal = 8; // MFD_NOEXEC_SEAL of Linux 6.3
  int made = memfd_create("trainc", MFD_CLOEXEC | noExecSeal);
  return made < 0 && errno == EINVAL ? memfd_create("trainc", MFD_CLOEXEC)
                                     : made;
}

/// Memory of a rank that shares it with none.
static trainc_status makeOwn(uint64_t bytes, Shared &shared) {
  if (!bytes)
    return TRAINC_OK;
  void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return fail(TRAINC_OUT_OF_MEMORY, "cannot allocate %llu bytes: %s",
                static_cast<unsigned long long>(bytes), errnoText(errno));
  shared = {data, bytes, -1};
  return TRAINC_OK;
}

static trainc_status makeShared(uint64_t bytes, Shared &shared) {
  if (!bytes)
    return TRAINC_OK;
  int descriptor = makeFile();
  if (descriptor < 0)
    return fail(TRAINC_OUT_OF_MEMORY, "cannot make shared memory: %s",
                errnoText(errno));
  void *data = MAP_FAILED;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) == 0)
    data = mapFile(descriptor, bytes, PROT_READ | PROT_WRITE);
  if (data == MAP_FAILED) {
    int error = errno;
    close(descriptor);
    return fail(TRAINC_OUT_OF_MEMORY,
                "cannot make %llu bytes of shared memory: %s",
                static_cast<unsigned long long>(bytes), errnoText(error));
  }
  shared = {data, bytes, descriptor};
  return TRAINC_OK;
}

static trainc_status openPeer(const Comm &comm, uint32_t rank, int descriptor,
                              uint64_t bytes, bool writable, void **out_data) {
  *out_data = nullptr;
  if (!bytes)
    return TRAINC_OK;
  long long pid = static_cast<long long>(comm.peers[rank].pid);
  char path[64];
  snprintf(path, sizeof(path), "/proc/%lld/fd/%d", pid, descriptor);
  int file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  void *data = MAP_FAILED;
  struct stat info;
  bool fits = file >= 0 && fstat(file, &info) == 0 &&
              static_cast<uint64_t>(info.st_size) == bytes;
  if (fits)
    data = mapFile(file, bytes, PROT_READ | (writable ? PROT_WRITE : 0));
  int error = errno;
  if (file >= 0)
    close(file);
  if (data == MAP_FAILED && isDead(comm.peers[rank]))
    return fail(TRAINC_COMM_FAILED, "rank %u is dead", rank);
  if (data == MAP_FAILED)
    return fail(TRAINC_IO_ERROR,
                "cannot map the memory of rank %u (pid %lld): %s (with another "
                "TRAINC_HOST it is not tried)",
                rank, pid,
                file >= 0 && !fits ? "it is another file" : errnoText(error));
  *out_data = data;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Agreeing
//===----------------------------------------------------------------------===//

namespace {
/// How a rank fared with its part of something that all do.
struct Outcome {
  int32_t status;
  char text[252];
};
} // namespace

static Outcome outcomeOf(trainc_status status) {
  Outcome outcome = {static_cast<int32_t>(status), {}};
  if (status)
    snprintf(outcome.text, sizeof(outcome.text), "%s", trainc_last_error());
  return outcome;
}

/// Fails if any rank failed, with the text of the first. `outcomes` are `stride`
/// bytes apart.
static trainc_status judge(const Comm &comm, const Outcome *outcomes,
                           size_t stride) {
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    auto *outcome = reinterpret_cast<const Outcome *>(
        reinterpret_cast<const char *>(outcomes) + i * stride);
    if (outcome->status)
      return fail(static_cast<trainc_status>(outcome->status), "rank %u: %.*s",
                  i, static_cast<int>(sizeof(outcome->text)), outcome->text);
  }
  return TRAINC_OK;
}

/// `lost`: the ranks could not be asked.
static trainc_status agree(Comm &comm, trainc_status status, const Limit &limit,
                           bool &lost) {
  Outcome mine = outcomeOf(status);
  Array<Outcome> all;
  all.resize(comm.ranks);
  status = comm.bootstrap.exchange(comm.bootstrap, &mine, all.data(),
                                   sizeof(mine), limit);
  lost = status != TRAINC_OK;
  return lost ? status : judge(comm, all.data(), sizeof(Outcome));
}

//===----------------------------------------------------------------------===//
// Hosts
//===----------------------------------------------------------------------===//

namespace {
struct Presence {
  Outcome outcome;
  char name[64];
  uint64_t identity; // equal on ranks of one host
  int64_t pid;
  int32_t descriptor; // of the control block
  uint32_t apart;     // TRAINC_COMM_NO_WINDOW
};
} // namespace

static void appendFile(Text &text, const char *path) {
  char buffer[128];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = file >= 0 ? read(file, buffer, sizeof(buffer)) : -1;
  if (file >= 0)
    close(file);
  if (size > 0)
    text.append(buffer, static_cast<size_t>(size));
}

static void introduce(const Comm &comm, Presence &presence) {
  utsname system;
  const char *variable = getenv("TRAINC_HOST");
  const char *name = uname(&system) == 0 ? system.nodename : "unknown";
  if (variable && *variable)
    name = variable;
  snprintf(presence.name, sizeof(presence.name), "%s", name);
  Text identity;
  appendFile(identity, "/proc/sys/kernel/random/boot_id");
  struct stat pids;
  if (stat("/proc/self/ns/pid", &pids) == 0)
    identity.format(" %llu", static_cast<unsigned long long>(pids.st_ino));
  identity.format(" %s", name);
  presence.identity = hashBytes(hashStart, identity.c_str(), identity.size());
  presence.pid = getpid();
  presence.apart = comm.flags & TRAINC_COMM_NO_WINDOW;
}

/// Numbers the hosts, and counts the ranks of mine.
static void numberHosts(Comm &comm, const Array<Presence> &all) {
  comm.hosts = comm.hostRank = comm.hostRanks = 0;
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    Rank rank = {};
    rank.host = comm.hosts;
    rank.pidfd = -1;
    rank.pid = all[i].pid;
    memcpy(rank.name, all[i].name, sizeof(rank.name));
    for (uint32_t j = 0; j < i && !all[i].apart; ++j)
      if (!all[j].apart && all[i].identity == all[j].identity) {
        rank.host = comm.peers[j].host;
        break;
      }
    comm.hosts += rank.host == comm.hosts;
    comm.peers.push(rank);
  }
  comm.host = comm.peers[comm.rank].host;
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    Rank &rank = comm.peers[i];
    rank.shares = rank.host == comm.host && i != comm.rank;
    comm.hostRanks += rank.host == comm.host;
    comm.hostRank += rank.host == comm.host && i < comm.rank;
  }
}

static trainc_status openControls(Comm &comm, const Array<Presence> &all) {
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    Rank &rank = comm.peers[i];
    if (!rank.shares)
      continue;
    void *data;
    TRAINC_TRY(openPeer(comm, i, all[i].descriptor, controlBytes,
                        /*writable=*/true, &data));
    rank.control = static_cast<Control *>(data);
    if (rank.control->magic != controlMagic)
      return fail(TRAINC_IO_ERROR,
                  "the memory of rank %u is not what it should be", i);
    rank.pidfd = static_cast<int>(
        syscall(SYS_pidfd_open, static_cast<pid_t>(rank.pid), 0));
  }
  return TRAINC_OK;
}

/// A rank alone: no peer opens its control block, and it has no rings.
static trainc_status beAlone(Comm &comm) {
  Shared own;
  TRAINC_TRY(makeOwn(ringOffset, own));
  comm.control = static_cast<Control *>(own.data);
  Array<Presence> all;
  all.resize(1);
  introduce(comm, all[0]);
  numberHosts(comm, all);
  return TRAINC_OK;
}

trainc_status trainc::findHosts(Comm &comm, const Limit &limit) {
  if (comm.ranks == 1)
    return beAlone(comm);
  Shared shared;
  trainc_status status = makeShared(controlBytes, shared);
  if (!status) {
    comm.control = static_cast<Control *>(shared.data);
    comm.control->magic = controlMagic;
    comm.rings = static_cast<char *>(shared.data) + ringOffset;
  }
  Presence mine = {};
  mine.outcome = outcomeOf(status);
  mine.descriptor = shared.descriptor;
  introduce(comm, mine);
  Array<Presence> all;
  all.resize(comm.ranks);
  status = comm.bootstrap.exchange(comm.bootstrap, &mine, all.data(),
                                   sizeof(mine), limit);
  if (!status)
    status = judge(comm, &all[0].outcome, sizeof(Presence));
  if (!status) {
    numberHosts(comm, all);
    bool lost;
    status = agree(comm, openControls(comm, all), limit, lost);
  }
  shared.close();
  if (status || comm.hosts == 1 || comm.bootstrap.mpi)
    return status;
  uint32_t other = 0;
  while (comm.peers[other].host == comm.peers[0].host)
    ++other;
  return fail(TRAINC_UNSUPPORTED,
              "ranks 0 (host %s) and %u (host %s) do not share memory: they "
              "need MPI, and were started by %s",
              comm.peers[0].name, other, comm.peers[other].name,
              comm.bootstrap.name.c_str());
}

void trainc::releaseHosts(Comm &comm) {
  for (Rank &rank : comm.peers) {
    if (rank.control)
      munmap(rank.control, controlBytes);
    if (rank.pidfd >= 0)
      close(rank.pidfd);
  }
  comm.peers.clear();
  if (comm.control)
    munmap(comm.control, comm.rings ? controlBytes : ringOffset);
  comm.control = nullptr;
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

namespace {
struct WindowOffer {
  Outcome outcome;
  uint64_t bytes;
  int32_t descriptor;
  uint32_t number;
};

/// A window with what is needed to release it.
struct OwnedWindow : Window {
  Array<const char *> addresses;
  Array<uint64_t> sizes;
};
} // namespace

static trainc_status openWindows(Comm &comm, OwnedWindow &window,
                                 const Array<WindowOffer> &offers) {
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    if (!comm.peers[i].shares)
      continue;
    void *data;
    TRAINC_TRY(openPeer(comm, i, offers[i].descriptor, offers[i].bytes,
                        /*writable=*/false, &data));
    window.addresses[i] = static_cast<const char *>(data);
    window.sizes[i] = offers[i].bytes;
  }
  return TRAINC_OK;
}

static void releaseWindow(OwnedWindow *window) {
  for (uint32_t i = 0; i < window->addresses.size(); ++i)
    if (window->addresses[i] && window->addresses[i] != window->data)
      munmap(const_cast<char *>(window->addresses[i]), window->sizes[i]);
  if (window->data)
    munmap(window->data, window->bytes);
  destroy(window);
}

void trainc::releaseWindows(Comm &comm) {
  for (Window *window : comm.windows)
    releaseWindow(static_cast<OwnedWindow *>(window));
  comm.windows.clear();
}

void trainc::destroyWindow(Comm &comm, Window *window) {
  // After a failure messages may still be written to it: it stays.
  if (!window || comm.failure.size())
    return;
  uint32_t kept = 0;
  for (Window *other : comm.windows)
    if (other != window)
      comm.windows[kept++] = other;
  comm.windows.resize(kept);
  releaseWindow(static_cast<OwnedWindow *>(window));
}

void trainc::collapseWindow(const Window &window) {
  if (window.data)
    madvise(window.data, window.bytes, adviceCollapse);
}

trainc_status trainc::createWindow(Comm &comm, uint64_t bytes,
                                   Window **out_window) {
  TRAINC_TRY(checkUsable(comm));
  Limit limit = exchangeLimit(comm);
  Shared shared;
  trainc_status status =
      comm.ranks == 1 ? makeOwn(bytes, shared) : makeShared(bytes, shared);
  WindowOffer mine = {outcomeOf(status), bytes, shared.descriptor,
                      comm.windowsMade++};
  Array<WindowOffer> offers;
  offers.resize(comm.ranks);
  auto *window = create<OwnedWindow>();
  window->data = static_cast<char *>(shared.data);
  window->bytes = bytes;
  window->number = mine.number;
  window->addresses.resize(comm.ranks);
  window->sizes.resize(comm.ranks);
  window->addresses[comm.rank] = window->data;
  window->peers = window->addresses.data();

  status = comm.bootstrap.exchange(comm.bootstrap, &mine, offers.data(),
                                   sizeof(mine), limit);
  bool lost = status != TRAINC_OK;
  if (!status)
    status = judge(comm, &offers[0].outcome, sizeof(WindowOffer));
  if (!status) {
    status = openWindows(comm, *window, offers);
    if (!status && offers[0].number != mine.number)
      status = fail(TRAINC_INVALID_ARGUMENT,
                    "makes window %u where rank 0 makes window %u", mine.number,
                    offers[0].number);
    status = agree(comm, status, limit, lost);
    lost |= status == TRAINC_COMM_FAILED; // a rank is dead
  }
  shared.close();
  if (!status) {
    comm.windows.push(window);
    *out_window = window;
    return TRAINC_OK;
  }
  if (!window->data) // memory that could not be made
    window->bytes = 0;
  releaseWindow(window);
  if (!lost || comm.failure.size())
    return status;
  // Who is left behind in an exchange cannot be met again.
  Text reason;
  reason.format("making a window: %s", trainc_last_error());
  return giveUp(comm, nullptr, reason.c_str());
}
