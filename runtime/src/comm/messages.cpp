//===- messages.cpp - What goes to other hosts, through MPI ---------------===//
//
// Only operations that return at once, tested until they are done: a call of MPI
// that waits could neither see a deadline nor be left. Messages between two ranks
// arrive in the order in which they were sent, so tags say no more than what kind
// of message it is.
//
//===----------------------------------------------------------------------===//

#include "comm/internals.h"

using namespace trainc;

enum Tag { GREETING = 1, DATA = 2, GIVE_UP = 3 };

static trainc_status checkMpi(Comm &comm, const Operation *operation,
                              int error) {
  if (!error)
    return TRAINC_OK;
  char message[256];
  comm.bootstrap.mpi->error_text(error, message, sizeof(message));
  Text reason;
  reason.format("MPI failed (%s)", message);
  return giveUp(comm, operation, reason.c_str());
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

trainc_status trainc::greet(Comm &comm, Operation &operation) {
  Group &group = *operation.group;
  const trainc_mpi &mpi = *comm.bootstrap.mpi;
  operation.theirs.resize(group.size());
  operation.greetings.resize(2 * group.size());
  for (uint32_t i = 0; i < group.size(); ++i) {
    Transfer *pair = &operation.greetings[2 * i];
    pair[0] = pair[1] = {{}, i, false};
    if (!group.members[i].remote)
      continue;
    int rank = static_cast<int>(group.members[i].rank);
    TRAINC_TRY(checkMpi(comm, &operation,
                        mpi.receive(comm.bootstrap.context,
                                    &operation.theirs[i], sizeof(Descriptor),
                                    rank, GREETING, &pair[0].request)));
    TRAINC_TRY(checkMpi(comm, &operation,
                        mpi.send(comm.bootstrap.context, &operation.mine,
                                 sizeof(Descriptor), rank, GREETING,
                                 &pair[1].request)));
    pair[0].active = pair[1].active = true;
  }
  return TRAINC_OK;
}

/// Tests a list of transfers once; adds those that are still under way.
template <typename Done>
static trainc_status testAll(Comm &comm, Operation &operation,
                             Array<Transfer> &transfers, uint32_t &left,
                             Done done) {
  for (size_t i = 0; i < transfers.size(); ++i) {
    Transfer &transfer = transfers[i];
    if (!transfer.active)
      continue;
    int isDone = 0;
    TRAINC_TRY(checkMpi(comm, &operation,
                        comm.bootstrap.mpi->test(&transfer.request, &isDone)));
    if (!isDone) {
      ++left;
      continue;
    }
    transfer.active = false;
    progress(comm);
    done(i);
  }
  return TRAINC_OK;
}

trainc_status trainc::awaitGreetings(Comm &comm, Operation &operation) {
  while (true) {
    uint32_t left = 0;
    TRAINC_TRY(
        testAll(comm, operation, operation.greetings, left, [&](size_t i) {
          if (i % 2 == 0)
            operation.heard[operation.greetings[i].member] = 1;
        }));
    if (!left)
      return TRAINC_OK;
    TRAINC_TRY(pause(comm, nullptr, 0));
  }
}

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

uint64_t trainc::messageBytes(const Group &group) {
  uint64_t bytes = 2 << 20;
  while (bytes > 64 << 10 && bytes * group.size() > 32 << 20)
    bytes /= 2;
  return bytes;
}

char *trainc::stagingFor(Comm &comm, const Group &group, uint32_t round,
                         uint32_t member) {
  uint64_t each = messageBytes(group);
  uint64_t needed = maxRounds * group.size() * each;
  if (comm.stagingBytes < needed) { // no round is under way at the first use
    free(comm.staging);
    comm.staging = static_cast<char *>(aligned_alloc(4096, needed));
    comm.stagingBytes = comm.staging ? needed : 0;
  }
  if (!comm.staging)
    return nullptr;
  return comm.staging + (round % maxRounds * group.size() + member) * each;
}

static trainc_status addTransfer(Comm &comm, Operation &operation,
                                 uint32_t round, uint32_t member, int error,
                                 const trainc_mpi_request &request) {
  TRAINC_TRY(checkMpi(comm, &operation, error));
  comm.rounds[round % maxRounds].transfers.push({request, member, true});
  ++operation.underWay[member];
  return TRAINC_OK;
}

trainc_status trainc::sendTo(Comm &comm, Operation &operation, uint32_t round,
                             uint32_t member, const void *data,
                             uint64_t bytes) {
  if (!bytes)
    return TRAINC_OK;
  trainc_mpi_request request = {};
  int error = comm.bootstrap.mpi->send(
      comm.bootstrap.context, data, bytes,
      static_cast<int>(operation.group->members[member].rank), DATA, &request);
  return addTransfer(comm, operation, round, member, error, request);
}

trainc_status trainc::receiveFrom(Comm &comm, Operation &operation,
                                  uint32_t round, uint32_t member, void *data,
                                  uint64_t bytes) {
  if (!bytes)
    return TRAINC_OK;
  trainc_mpi_request request = {};
  int error = comm.bootstrap.mpi->receive(
      comm.bootstrap.context, data, bytes,
      static_cast<int>(operation.group->members[member].rank), DATA, &request);
  return addTransfer(comm, operation, round, member, error, request);
}

trainc_status trainc::finishRound(Comm &comm, Operation &operation,
                                  uint32_t round) {
  Round &mine = comm.rounds[round % maxRounds];
  Phase before = operation.phase;
  operation.phase = Phase::MESSAGES;
  while (true) {
    uint32_t left = 0;
    TRAINC_TRY(testAll(comm, operation, mine.transfers, left, [&](size_t i) {
      --operation.underWay[mine.transfers[i].member];
    }));
    if (!left)
      break;
    TRAINC_TRY(pause(comm, nullptr, 0));
  }
  mine.transfers.clear();
  operation.phase = before;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Giving up
//===----------------------------------------------------------------------===//

trainc_status trainc::listenForGiveUp(Comm &comm) {
  TRAINC_TRY(checkMpi(
      comm, nullptr,
      comm.bootstrap.mpi->receive(comm.bootstrap.context, &comm.giveUpReceived,
                                  sizeof(comm.giveUpReceived), TRAINC_MPI_ANY,
                                  GIVE_UP, &comm.giveUpRequest)));
  comm.listening = true;
  return TRAINC_OK;
}

bool trainc::hearGiveUp(Comm &comm) {
  int done = 0;
  if (!comm.listening || comm.bootstrap.mpi->test(&comm.giveUpRequest, &done) ||
      !done)
    return false;
  comm.listening = false;
  comm.giveUpReceived.text[sizeof(comm.giveUpReceived.text) - 1] = 0;
  return true;
}

void trainc::sendGiveUp(Comm &comm, const char *text) {
  // Small messages leave at once; a peer that takes none is not waited for.
  if (!comm.bootstrap.mpi || comm.hosts == 1)
    return;
  comm.giveUpSent.rank = comm.rank;
  snprintf(comm.giveUpSent.text, sizeof(comm.giveUpSent.text), "%s", text);
  uint64_t end = nowNs() + 100 * msNs;
  for (uint32_t i = 0; i < comm.ranks; ++i) {
    trainc_mpi_request request = {};
    int done = 0;
    if (comm.peers[i].host == comm.host ||
        comm.bootstrap.mpi->send(comm.bootstrap.context, &comm.giveUpSent,
                                 sizeof(comm.giveUpSent), static_cast<int>(i),
                                 GIVE_UP, &request))
      continue;
    while (!comm.bootstrap.mpi->test(&request, &done) && !done && nowNs() < end)
      sleepNs(msNs / 10);
  }
}

void trainc::stopListening(Comm &comm) {
  if (comm.listening)
    comm.bootstrap.mpi->cancel(&comm.giveUpRequest);
  comm.listening = false;
}
