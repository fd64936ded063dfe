//===- bootstrap.h - How ranks find each other ------------------*- C++ -*-===//
//
// Before there is shared memory, and whenever more of it is made, ranks exchange
// small blobs. Three ways; each knows rank and number of ranks once it is open.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_COMM_BOOTSTRAP_H
#define TRAINC_COMM_BOOTSTRAP_H

#include "comm/mpi_plugin.h"
#include "comm/waiting.h"

namespace trainc {

struct Bootstrap {
  uint32_t rank = 0, ranks = 1;
  Text name;
  /// The calls of MPI, if this is MPI.
  const trainc_mpi *mpi = nullptr;
  trainc_mpi_context *context = nullptr;

  void *state = nullptr;
  /// Gives every rank the `bytes` of every rank, in rank order.
  trainc_status (*exchange)(Bootstrap &self, const void *mine, void *all,
                            uint64_t bytes, const Limit &limit) = nullptr;
  /// `clean`: no failure before.
  void (*close)(Bootstrap &self, bool clean) = nullptr;
};

/// What the options and the environment say.
struct Start {
  enum Way { SELF, MPI, SOCKET, FILES } way = SELF;
  Text place;                   // HOST:PORT or a folder
  uint32_t rank = 0, ranks = 0; // 0 ranks: not said
  const char *source = "";      // which variables they come from
};
trainc_status findStart(const trainc_comm_options &options, Start &start);

/// Each returns when all ranks are there.
trainc_status openBootstrap(const Start &start, const Limit &limit,
                            Bootstrap &bootstrap);
trainc_status openMpi(const Start &start, const Limit &limit,
                      Bootstrap &bootstrap);
trainc_status openSocket(const Start &start, const Limit &limit,
                         Bootstrap &bootstrap);
trainc_status openFiles(const Start &start, const Limit &limit,
                        Bootstrap &bootstrap);

/// "rank 2", "ranks 1, 3", ... of those in [0, ranks) that are missing.
template <typename Present>
void appendMissing(Text &text, uint32_t ranks, Present present) {
  uint32_t missing = 0, shown = 0;
  for (uint32_t i = 0; i < ranks; ++i)
    missing += !present(i);
  text.append(missing == 1 ? "rank " : "ranks ");
  for (uint32_t i = 0; i < ranks && shown < 16; ++i)
    if (!present(i))
      text.format("%s%u", shown++ ? ", " : "", i);
  if (missing > shown)
    text.format(" and %u more", missing - shown);
}

} // namespace trainc

#endif // TRAINC_COMM_BOOTSTRAP_H
