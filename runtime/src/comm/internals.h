//===- internals.h - What a communicator is made of -------------*- C++ -*-===//
//
// Each rank has a block of shared memory, its control block, that the ranks of
// its host map. Only its owner writes it, but for counts of waiters. For each
// group it has counters that only grow: collectives started, done, and so on.
// To wait for a peer is to wait until its counter has reached a number that
// follows from the order of the collectives, which is the same on all members.
// So nothing is ever reset, and no two ranks write the same word.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_COMM_INTERNALS_H
#define TRAINC_COMM_INTERNALS_H

#include "comm/bootstrap.h"
#include "comm/comm.h"
#include "core/hash.h"
#include <pthread.h>

namespace trainc {

//===----------------------------------------------------------------------===//
// Control blocks
//===----------------------------------------------------------------------===//

/// What a member says about a collective that it has started. Plain bytes: also
/// sent to members on other hosts.
struct Descriptor {
  uint64_t group; // key
  uint64_t count, offset;
  uint32_t sequence, kind, dtype, root;
  uint32_t place; // 0: anywhere, else the window's number + 1
  uint32_t apart; // 1: with a target
  uint32_t batch; // as Collective has it
  char label[72];
  char entry[36]; // for reports alone: members may differ in it
};
static_assert(sizeof(Descriptor) == 160);

/// A member is at most 2 maxPending + 1 collectives ahead of one that has not
/// read its descriptor.
constexpr uint32_t keptDescriptors = 128;
static_assert(keptDescriptors > 2 * maxPending + 1);

/// The ring through which ranges that are in no window go.
constexpr uint32_t ringSlots = 4;
constexpr uint64_t slotBytes = 256 << 10;

struct GroupBlock {
  std::atomic<uint64_t> key; // 0: unused
  Counter arrived;           // collectives started
  Counter reduced;  // window all-reduces of which this member's piece is done
  Counter staged;   // slots filled
  Counter taken;    // slots of all members read
  Counter finished; // collectives done
  Descriptor descriptors[keptDescriptors];
};

enum RankState : uint32_t { LIVE, GAVE_UP, CLOSED };

struct Control {
  uint64_t magic;
  std::atomic<uint32_t> state;    // RankState
  char text[1020];                // why it gave up
  std::atomic<uint64_t> enqueued; // collectives between GPUs, for reports
  GroupBlock groups[maxGroups];
};
constexpr uint64_t controlMagic = 0x7472696e636f6d33;
constexpr uint64_t ringOffset = (sizeof(Control) + 4095) / 4096 * 4096;
constexpr uint64_t ringBytes = ringSlots * slotBytes;
constexpr uint64_t controlBytes = ringOffset + maxGroups * ringBytes;

/// The other ranks, and this one.
struct Rank {
  char name[64]; // of its host, as reports say it
  uint32_t host;
  bool shares; // on my host, and not me
  int64_t pid;
  int pidfd;        // -1: none
  Control *control; // null: on another host
};

//===----------------------------------------------------------------------===//
// Groups and collectives in progress
//===----------------------------------------------------------------------===//

struct Member {
  uint32_t rank;
  bool shares;       // on my host, and not me
  bool remote;       // on another host
  GroupBlock *block; // null: remote, or not looked up yet
  char *ring;
};

struct Group {
  uint64_t key;
  uint32_t index, slot;
  bool anyShared, anyRemote;
  Array<Member> members;
  // What this rank's counters say or will say.
  uint32_t started = 0, reduces = 0, chunks = 0, staged = 0;
  uint32_t offered = 0; // `finished` of peers after my last range in a window

  char *ownRing = nullptr; // of a rank alone, which shares none

  ~Group() { free(ownRing); }
  uint32_t size() const { return static_cast<uint32_t>(members.size()); }
};

struct Transfer {
  trainc_mpi_request request;
  uint32_t member;
  bool active;
};

/// What a wait waits for, member by member.
enum class Phase { ARRIVAL, MESSAGES, STAGING, TAKING, REDUCING, FENCE };

/// A collective between start and the end of wait.
struct Operation {
  Collective call; // label is in `mine`
  Group *group = nullptr;
  uint64_t bytes = 0;
  Descriptor mine;
  Array<Descriptor> theirs;  // of remote members, by index in the group
  Array<uint8_t> heard;      // theirs has come
  Array<uint8_t> underWay;   // transfers of a member that are not done
  Array<Transfer> greetings; // sends and receives of descriptors
  uint32_t reduce = 0;       // number among the group's window all-reduces
  uint32_t firstChunk = 0, chunks = 0, staged = 0, chunk = 0;
  Phase phase = Phase::ARRIVAL;
  uint64_t due = 0; // nowNs before which it is not done; 0: no such time
};

/// Transfers that belong together, with room for what is received.
struct Round {
  Array<Transfer> transfers;
};
constexpr uint32_t maxRounds = 2;

} // namespace trainc

struct trainc_comm {
  uint32_t rank = 0, ranks = 1, host = 0, hosts = 1, hostRank = 0,
           hostRanks = 1, flags = 0;
  double deadline = 60;
  void (*report)(void *, const char *) = nullptr;
  void *reportContext = nullptr;
  trainc::Bootstrap bootstrap;

  trainc::Array<trainc::Rank> peers; // all ranks
  trainc::Control *control = nullptr;
  char *rings = nullptr;                 // null: this rank is alone
  trainc::Array<trainc::Group *> groups; // the first: all ranks
  trainc::Array<trainc::Window *> windows;
  uint32_t windowsMade = 0;

  trainc::Operation *operations = nullptr; // maxPending, by token
  uint32_t started = 0, finished = 0;      // tokens
  trainc::Operation fenceOperation;
  trainc::Round rounds[trainc::maxRounds];
  char *staging = nullptr; // of the rounds
  uint64_t stagingBytes = 0;
  trainc_comm_info counts = {};
  unsigned spins = 0;

  // The network that TRAINC_TEST_BANDWIDTH pretends.
  double bandwidth = 0;       // bytes per second; 0: as fast as it is
  uint64_t networkIsFree = 0; // nowNs from which on it has nothing to do

  /// Why it refuses everything; empty while it does not.
  trainc::Text failure;

  // Messages of remote ranks that give up.
  struct GiveUp {
    uint32_t rank;
    char text[508];
  } giveUpReceived, giveUpSent;
  bool listening = false;
  trainc_mpi_request giveUpRequest;

  // The wait in progress, shared with the watchdog. It is for an operation, or for
  // what `describe` says.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed;
  pthread_t watchdog;
  bool watched = false, stopping = false;
  trainc::Operation *waiting = nullptr;
  void (*describe)(void *context, trainc::Text &text) = nullptr;
  void *describeContext = nullptr;
  uint64_t waitBegin = 0, lastLook = 0;
  uint64_t watchBegin = 0; // as the watchdog counts
  uint64_t watchLimit = 0; // after so long it steps in
  bool reported = false;
  unsigned pauses = 0;
  std::atomic<bool> interrupted{false};
};

namespace trainc {

//===----------------------------------------------------------------------===//
// Hosts and shared memory (host.cpp)
//===----------------------------------------------------------------------===//

/// Exchanges who is where, maps the control blocks of the ranks of this host.
trainc_status findHosts(Comm &comm, const Limit &limit);
void releaseHosts(Comm &comm);
void releaseWindows(Comm &comm);

/// Looks a member's block up, if it is there by now.
bool findBlock(Comm &comm, Group &group, uint32_t index);

/// The present limit of exchanges that are not the first.
Limit exchangeLimit(Comm &comm);

//===----------------------------------------------------------------------===//
// Waiting (waiting.cpp)
//===----------------------------------------------------------------------===//

trainc_status startWatchdog(Comm &comm);
void stopWatchdog(Comm &comm);

/// Refuses if the communicator has failed.
trainc_status checkUsable(Comm &comm);

/// Gives up if a peer has; `operation` may be null.
trainc_status checkPeers(Comm &comm, const Operation *operation);

/// Both, and all ranks of this host live.
trainc_status checkAlive(Comm &comm);

/// Has a rank of this host ended? False if it cannot be told.
bool isDead(const Rank &rank);

/// Between these two, pause() may be called.
void beginWait(Comm &comm, Operation &operation);
void endWait(Comm &comm);

/// Between these two the watchdog watches calls that may not return: it reports what
/// `describe` says, and with TRAINC_COMM_EXIT ends the process, some time after
/// `seconds`. `describe` is called with comm.mutex held. Not inside of a wait.
void beginWatch(Comm &comm, double seconds,
                void (*describe)(void *context, Text &text), void *context);
void endWatch(Comm &comm);

/// Of a watch: the time that has passed, not counting what this process was stopped;
/// to be called often.
uint64_t watchedNs(Comm &comm);

/// What the wait waits for has moved on: not time to sleep.
inline void progress(Comm &comm) { comm.pauses = 0; }

/// Rests a moment: `counter`, if not null, was `seen`. Not TRAINC_OK if the
/// communicator has failed meanwhile.
trainc_status pause(Comm &comm, Counter *counter, uint32_t seen);

/// Reports, tells the peers, and makes the communicator refuse everything.
/// `operation` may be null: the report then says what is watched.
trainc_status giveUp(Comm &comm, const Operation *operation,
                     const char *reason);

/// "all_reduce", ...
const char *collectiveName(uint32_t kind);

/// Appends "2 (host a, pid 4711, dead)".
void appendRank(Text &text, const Comm &comm, uint32_t number);

/// Has `member` done what the operation's phase waits for?
bool isDone(const Operation &operation, uint32_t member);

/// Waits until a counter of a member on this host has reached `target`.
trainc_status await(Comm &comm, Counter &counter, uint32_t target);

/// Sleeps until `time`.
trainc_status awaitTime(Comm &comm, uint64_t time);

//===----------------------------------------------------------------------===//
// Messages to other hosts (messages.cpp)
//===----------------------------------------------------------------------===//

/// Sends the descriptor to remote members and listens for theirs.
trainc_status greet(Comm &comm, Operation &operation);
trainc_status awaitGreetings(Comm &comm, Operation &operation);

/// Of a piece, what goes in one message.
uint64_t messageBytes(const Group &group);

/// Room for what one member sends in a round; null if there is no memory.
char *stagingFor(Comm &comm, const Group &group, uint32_t round,
                 uint32_t member);

trainc_status sendTo(Comm &comm, Operation &operation, uint32_t round,
                     uint32_t member, const void *data, uint64_t bytes);
trainc_status receiveFrom(Comm &comm, Operation &operation, uint32_t round,
                          uint32_t member, void *data, uint64_t bytes);
/// Waits for all transfers of a round.
trainc_status finishRound(Comm &comm, Operation &operation, uint32_t round);

trainc_status listenForGiveUp(Comm &comm);
/// Has a remote rank given up? Its number and text are in giveUpReceived.
bool hearGiveUp(Comm &comm);
void sendGiveUp(Comm &comm, const char *text);
void stopListening(Comm &comm);

//===----------------------------------------------------------------------===//
// Moving data (exchange.cpp)
//===----------------------------------------------------------------------===//

/// Does what a collective does to its range, once all members have arrived.
trainc_status exchange(Comm &comm, Operation &operation, Pool *pool);

/// Chunks that a range outside of windows goes through the ring in.
uint32_t countChunks(const Operation &operation);

/// Fills the next slot for the operation.
void stageChunk(Comm &comm, Operation &operation);
/// May it be filled?
bool isSlotFree(const Operation &operation, uint32_t chunk);

} // namespace trainc

#endif // TRAINC_COMM_INTERNALS_H
