//===- bootstrap_socket.cpp - Ranks that meet at rank 0's socket ----------===//
//
// Ranks that start without MPI are on one host, so their meeting place, HOST:PORT in
// the words of launchers, is no port of the network: rank 0 listens at an abstract Unix
// socket with the user and the port in its name. The kernel says whose process is at the
// other end; those of other users are dropped, whatever they say.
//
// Every rank connects to rank 0 and says hello; when all have, rank 0 welcomes
// them. In an exchange all send their blobs to rank 0, which sends all back. What
// rank 0 finds wrong it says to all that are connected.
//
//===----------------------------------------------------------------------===//

#include "comm/bootstrap.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace trainc;

namespace {
constexpr uint64_t helloMagic = 0x6f6c6c6568637274; // "trchello"

struct Hello {
  uint64_t magic;
  uint32_t rank, ranks;
};

enum FrameKind : uint32_t { WELCOME = 1, BLOB, ALL, FAILED };
struct Frame {
  uint32_t kind, reserved;
  uint64_t bytes; // that follow
};

struct Meeting {
  Array<int> sockets; // by rank at rank 0; rank 0's at the others; -1: none
};
} // namespace

/// The others wait a little longer than rank 0, which may have a reason to tell.
static constexpr uint64_t tellNs = 500 * msNs;

//===----------------------------------------------------------------------===//
// Sockets
//===----------------------------------------------------------------------===//

/// Whether a process of this user is at the other end.
static bool isOurs(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

/// The address of a port's socket, and its size.
static socklen_t addressOf(const char *port, sockaddr_un &address) {
  address = {};
  address.sun_family = AF_UNIX;
  int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                      "trainc-%u-%lu", geteuid(), strtoul(port, nullptr, 10));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<size_t>(size));
}

/// Rests until the socket is ready, or something else is to be looked at.
static trainc_status rest(int socket, short events, const Limit &limit,
                          const char *who) {
  pollfd descriptor = {socket, events, 0};
  poll(&descriptor, 1, 20);
  TRAINC_TRY(limit.giveUp());
  if (!limit.isOver())
    return TRAINC_OK;
  return fail(TRAINC_COMM_FAILED, "%s has not answered within %g s", who,
              limit.seconds);
}

/// Sends or receives all of `bytes`.
template <typename Move>
static trainc_status moveAll(int socket, uint64_t bytes, short events,
                             const Limit &limit, const char *who, Move move) {
  uint64_t done = 0;
  while (done < bytes) {
    ssize_t size = move(done, bytes - done);
    if (size > 0) {
      done += static_cast<uint64_t>(size);
      continue;
    }
    bool again =
        size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (!again)
      return fail(TRAINC_COMM_FAILED, "the connection to %s is lost%s%s", who,
                  size < 0 ? ": " : "", size < 0 ? errnoText(errno) : "");
    TRAINC_TRY(rest(socket, events, limit, who));
  }
  return TRAINC_OK;
}

static trainc_status sendAll(int socket, const void *data, uint64_t bytes,
                             const Limit &limit, const char *who) {
  return moveAll(socket, bytes, POLLOUT, limit, who,
                 [&](uint64_t done, uint64_t left) {
                   return send(socket, static_cast<const char *>(data) + done,
                               left, MSG_NOSIGNAL);
                 });
}

static trainc_status receiveAll(int socket, void *data, uint64_t bytes,
                                const Limit &limit, const char *who) {
  return moveAll(
      socket, bytes, POLLIN, limit, who, [&](uint64_t done, uint64_t left) {
        return recv(socket, static_cast<char *>(data) + done, left, 0);
      });
}

static trainc_status sendFrame(int socket, FrameKind kind, const void *data,
                               uint64_t bytes, const Limit &limit,
                               const char *who) {
  Frame frame = {kind, 0, bytes};
  TRAINC_TRY(sendAll(socket, &frame, sizeof(frame), limit, who));
  return sendAll(socket, data, bytes, limit, who);
}

/// Receives a frame of `kind` with exactly `bytes`; one that says what failed
/// becomes this rank's failure.
static trainc_status receiveFrame(int socket, FrameKind kind, void *data,
                                  uint64_t bytes, const Limit &limit,
                                  const char *who) {
  Frame frame;
  TRAINC_TRY(receiveAll(socket, &frame, sizeof(frame), limit, who));
  if (frame.kind == FAILED && frame.bytes < 4096) {
    char text[4096] = {};
    TRAINC_TRY(receiveAll(socket, text, frame.bytes, limit, who));
    return fail(TRAINC_COMM_FAILED, "%s", text);
  }
  if (frame.kind != kind || frame.bytes != bytes)
    return fail(TRAINC_COMM_FAILED,
                "%s does something else (message %u of %llu bytes, expected %u "
                "of %llu)",
                who, frame.kind, static_cast<unsigned long long>(frame.bytes),
                static_cast<uint32_t>(kind),
                static_cast<unsigned long long>(bytes));
  return receiveAll(socket, data, bytes, limit, who);
}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

/// Splits HOST:PORT or [HOST]:PORT.
static trainc_status splitPlace(const char *place, Text &host, Text &port) {
  const char *colon = strrchr(place, ':');
  size_t size = colon ? static_cast<size_t>(colon - place) : 0;
  bool brackets = size > 2 && place[0] == '[' && place[size - 1] == ']';
  char *end = nullptr;
  unsigned long number = colon ? strtoul(colon + 1, &end, 10) : 0;
  if (!size || !colon[1] || *end || number < 1 || number > 65535)
    return fail(TRAINC_INVALID_ARGUMENT,
                "'%s' is no address of the form HOST:PORT", place);
  host.append(place + brackets, size - 2 * brackets);
  port.append(colon + 1);
  return TRAINC_OK;
}

/// Whether a name has addresses, of which none is this host's.
static bool isElsewhere(const char *host) {
  addrinfo hints = {}, *list;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host, nullptr, &hints, &list) != 0)
    return false;
  bool elsewhere = true;
  for (addrinfo *a = list; a && elsewhere; a = a->ai_next) {
    int made = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    elsewhere = made >= 0 && bind(made, a->ai_addr, a->ai_addrlen) != 0 &&
                errno == EADDRNOTAVAIL;
    if (made >= 0)
      close(made);
  }
  freeaddrinfo(list);
  return elsewhere;
}

//===----------------------------------------------------------------------===//
// Rank 0
//===----------------------------------------------------------------------===//

static void closeAll(Array<int> &sockets) {
  for (int socket : sockets)
    if (socket >= 0)
      close(socket);
  sockets.clear();
}

/// Says to all that are connected what has failed, and returns it.
static trainc_status failAll(const Array<int> &sockets, trainc_status status) {
  Text text;
  text.append(trainc_last_error());
  Limit shortly = {nowNs() + 200 * msNs, 0.2, nullptr, nullptr};
  for (int socket : sockets)
    if (socket >= 0)
      (void)sendFrame(socket, FAILED, text.c_str(),
                      text.size() < 4095 ? text.size() : 4095, shortly,
                      "a rank");
  return fail(status, "%s", text.c_str());
}

static trainc_status listenAt(const char *port, int *out_socket) {
  sockaddr_un address;
  socklen_t size = addressOf(port, address);
  int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made >= 0 &&
      bind(made, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
      listen(made, 1024) == 0) {
    *out_socket = made;
    return TRAINC_OK;
  }
  int error = errno;
  if (made >= 0)
    close(made);
  return fail(TRAINC_COMM_FAILED,
              "cannot listen on port %s: %s (is another rank 0 running?)", port,
              errnoText(error));
}

/// The next connection of this user's; -1 if there is none now.
static int acceptOurs(int listener) {
  int connection =
      accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) {
    // Without a free descriptor the connection waits, and so must this.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      sleepNs(20 * msNs);
    return -1;
  }
  if (isOurs(connection))
    return connection;
  close(connection);
  return -1;
}

namespace {
/// A connection that has not said all of its hello.
struct Stranger {
  int socket;
  uint32_t size;
  Hello hello;
};
} // namespace

/// Takes a stranger that has said hello among the ranks.
static trainc_status admit(Array<int> &sockets, uint32_t ranks,
                           const Stranger &stranger) {
  const Hello &hello = stranger.hello;
  bool isMember = hello.ranks == ranks && hello.rank < ranks;
  bool isTwice = isMember && (hello.rank == 0 || sockets[hello.rank] >= 0);
  if (isMember && !isTwice) {
    sockets[hello.rank] = stranger.socket;
    return TRAINC_OK;
  }
  sockets.push(stranger.socket); // to be told
  if (isTwice)
    return fail(TRAINC_COMM_FAILED, "two processes are rank %u", hello.rank);
  return fail(TRAINC_COMM_FAILED,
              "rank %u says that there are %u ranks, rank 0 that there are %u",
              hello.rank, hello.ranks, ranks);
}

static trainc_status hearStrangers(Array<int> &sockets, uint32_t ranks,
                                   Array<Stranger> &strangers,
                                   uint32_t &missing) {
  for (size_t i = 0; i < strangers.size(); ++i) {
    Stranger &stranger = strangers[i];
    ssize_t size =
        recv(stranger.socket,
             reinterpret_cast<char *>(&stranger.hello) + stranger.size,
             sizeof(Hello) - stranger.size, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
      continue;
    stranger.size += size > 0 ? static_cast<uint32_t>(size) : 0;
    if (size > 0 && stranger.size < sizeof(Hello))
      continue;
    Stranger known = stranger;
    strangers[i--] = strangers[strangers.size() - 1];
    strangers.resize(strangers.size() - 1);
    if (size <= 0 || known.hello.magic != helloMagic) {
      close(known.socket); // not one of ours
      continue;
    }
    TRAINC_TRY(admit(sockets, ranks, known));
    --missing;
  }
  return TRAINC_OK;
}

static trainc_status gatherRanks(int listener, uint32_t ranks,
                                 const Limit &limit, Array<int> &sockets,
                                 Array<Stranger> &strangers) {
  uint32_t missing = ranks - 1;
  while (missing) {
    Array<pollfd> descriptors;
    descriptors.push({listener, POLLIN, 0});
    for (const Stranger &stranger : strangers)
      descriptors.push({stranger.socket, POLLIN, 0});
    poll(descriptors.data(), descriptors.size(), 20);
    TRAINC_TRY(limit.giveUp());
    int connection = acceptOurs(listener);
    if (connection >= 0)
      strangers.push({connection, 0, {}});
    TRAINC_TRY(hearStrangers(sockets, ranks, strangers, missing));
    if (!missing || !limit.isOver())
      continue;
    Text text;
    appendMissing(text, ranks,
                  [&](uint32_t i) { return i == 0 || sockets[i] >= 0; });
    return fail(TRAINC_COMM_FAILED, "%s of %u did not come within %g s",
                text.c_str(), ranks, limit.seconds);
  }
  return TRAINC_OK;
}

/// Ranks that come while there is a failure to tell: they are told, too.
static void awaitLatecomers(int listener, uint32_t ranks, Array<int> &sockets) {
  uint64_t end = nowNs() + tellNs;
  uint32_t missing = 0;
  for (uint32_t i = 1; i < ranks; ++i)
    missing += sockets[i] < 0;
  while (missing && nowNs() < end) {
    int connection = acceptOurs(listener);
    if (connection < 0) {
      sleepNs(5 * msNs);
      continue;
    }
    sockets.push(connection);
    --missing;
  }
}

static trainc_status serve(const char *port, uint32_t ranks, const Limit &limit,
                           Array<int> &sockets) {
  int listener;
  TRAINC_TRY(listenAt(port, &listener));
  sockets.resize(ranks);
  for (int &socket : sockets)
    socket = -1;
  Array<Stranger> strangers;
  trainc_status status =
      gatherRanks(listener, ranks, limit, sockets, strangers);
  for (const Stranger &stranger : strangers)
    if (status)
      sockets.push(stranger.socket); // to be told
    else
      close(stranger.socket);
  for (uint32_t i = 1; i < ranks && !status; ++i)
    status = sendFrame(sockets[i], WELCOME, nullptr, 0, limit, "a rank");
  if (status && !limit.isOver())
    awaitLatecomers(listener, ranks, sockets);
  close(listener);
  return status ? failAll(sockets, status) : TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// The others
//===----------------------------------------------------------------------===//

static trainc_status connectTo(const char *host, const char *port,
                               const Limit &limit, int *out_socket) {
  sockaddr_un address;
  socklen_t size = addressOf(port, address);
  uint64_t ask = nowNs() + 1000 * msNs; // names may take long to resolve
  while (true) {
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = errno;
    if (made >= 0 &&
        connect(made, reinterpret_cast<sockaddr *>(&address), size) == 0) {
      if (isOurs(made)) {
        *out_socket = made;
        return TRAINC_OK;
      }
      close(made);
      return fail(TRAINC_COMM_FAILED,
                  "another user listens where rank 0 should, at port %s: "
                  "choose another",
                  port);
    }
    if (made >= 0) {
      error = errno;
      close(made);
    }
    TRAINC_TRY(limit.giveUp());
    if (nowNs() >= ask) {
      ask = UINT64_MAX;
      if (isElsewhere(host))
        return fail(TRAINC_UNSUPPORTED,
                    "rank 0 is on another host, %s: ranks of several hosts "
                    "need MPI",
                    host);
    }
    if (limit.isOver())
      return fail(TRAINC_COMM_FAILED,
                  "cannot connect to rank 0 at %s:%s within %g s: %s", host,
                  port, limit.seconds, errnoText(error));
    sleepNs(20 * msNs);
  }
}

//===----------------------------------------------------------------------===//
// The bootstrap
//===----------------------------------------------------------------------===//

static Limit later(Limit limit) {
  limit.end += tellNs;
  return limit;
}

static trainc_status exchangeAtRoot(Bootstrap &self, const void *mine,
                                    void *all, uint64_t bytes,
                                    const Limit &limit) {
  Array<int> &sockets = static_cast<Meeting *>(self.state)->sockets;
  memcpy(all, mine, bytes);
  for (uint32_t step = 0; step < 2; ++step)
    for (uint32_t i = 1; i < self.ranks; ++i) {
      char who[32];
      snprintf(who, sizeof(who), "rank %u", i);
      trainc_status status =
          step == 0
              ? receiveFrame(sockets[i], BLOB,
                             static_cast<char *>(all) + i * bytes, bytes, limit,
                             who)
              : sendFrame(sockets[i], ALL, all, bytes * self.ranks, limit, who);
      if (status)
        return failAll(sockets, status);
    }
  return TRAINC_OK;
}

static trainc_status exchange(Bootstrap &self, const void *mine, void *all,
                              uint64_t bytes, const Limit &limit) {
  if (self.rank == 0)
    return exchangeAtRoot(self, mine, all, bytes, limit);
  int root = static_cast<Meeting *>(self.state)->sockets[0];
  TRAINC_TRY(sendFrame(root, BLOB, mine, bytes, limit, "rank 0"));
  return receiveFrame(root, ALL, all, bytes * self.ranks, later(limit),
                      "rank 0");
}

static void close(Bootstrap &self, bool) {
  auto *meeting = static_cast<Meeting *>(self.state);
  closeAll(meeting->sockets);
  destroy(meeting);
}

trainc_status trainc::openSocket(const Start &start, const Limit &limit,
                                 Bootstrap &bootstrap) {
  Text host, port;
  TRAINC_TRY(splitPlace(start.place.c_str(), host, port));
  auto *meeting = create<Meeting>();
  bootstrap.state = meeting;
  bootstrap.exchange = exchange;
  bootstrap.close = close;
  if (start.rank == 0)
    return serve(port.c_str(), start.ranks, limit, meeting->sockets);
  int socket = -1;
  TRAINC_TRY(connectTo(host.c_str(), port.c_str(), limit, &socket));
  meeting->sockets.push(socket);
  Hello hello = {helloMagic, start.rank, start.ranks};
  TRAINC_TRY(sendAll(socket, &hello, sizeof(hello), limit, "rank 0"));
  return receiveFrame(socket, WELCOME, nullptr, 0, later(limit), "rank 0");
}
