//===- fake.h - The state of the NCCL of tests ------------------*- C++ -*-===//
#ifndef TRAINC_EMULATOR_NCCL_FAKE_H
#define TRAINC_EMULATOR_NCCL_FAKE_H

#include "cuda/nccl_library.h"
#include "trainc/fake_cuda.h"
#include "trainc/fake_nccl.h"
#include <atomic>

namespace trainc::cuda {

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

constexpr int maxRanks = 16;
constexpr uint64_t slotBytes = 1 << 20;

enum class Kind : uint32_t { ReduceScatter, AllReduce, AllGather, Broadcast };

/// What all ranks say alike about a piece of a collective.
struct Descriptor {
  uint64_t operation; // number in the communicator
  Kind kind;
  ncclDataType_t type;
  int32_t root;
  uint64_t count, begin;
  uint64_t registered, offset; // of the source and the target, and where
};

/// What a rank offers: pieces, by turns in two slots.
struct Place {
  alignas(64) std::atomic<int64_t> pid;
  alignas(64) std::atomic<uint64_t> offered; // pieces
  alignas(64) std::atomic<uint64_t> taken;
  Descriptor descriptors[2];
  alignas(4096) char slots[2][slotBytes];
};

struct Shared {
  std::atomic<int32_t> ranks, joined;
  alignas(4096) Place places[maxRanks];
};

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

/// A collective: what is called, and how far it is.
struct Operation {
  ncclComm_t comm;
  Kind kind;
  ncclDataType_t type;
  int32_t root;
  uint64_t from, to, count; // as NCCL counts: of a piece or the whole
  uint64_t registered, offset;

  bool begun, stuck, offered;
  uint64_t number;    // in the communicator
  uint64_t notBefore; // ns
  uint64_t at;        // elements of the source
};

struct Begun {
  Operation operation;
  CUstream stream;
};

struct Registration {
  uint64_t address, bytes;
};

struct ncclComm {
  int rank, ranks;
  void *context;
  Shared *shared;
  enum { Idle, Initializing, Calling, Finalizing } progress;
  unsigned polls; // that are left
  ncclResult_t failure;
  bool stuck, finalized, aborted;
  Array<Begun> begun;
  Array<Registration *> registrations;
  uint64_t pieces, operations; // done

  Place &place(int i) const { return shared->places[i]; }
};

struct FakeNccl {
  Array<ncclComm_t> comms; // there
  int rank = -1;           // of the first
  unsigned depth;          // of groups
  uint64_t performed;      // operations begun on the device
  trainc_fake_nccl_counts counts;
  char error[2048];
};

extern FakeNccl fakeNccl;

/// The faults that the environment asks for.
enum class Fault { Refuse, Stuck, Fail, Hang, Delay, Die };
/// Is there such a fault here? `value` is ERROR or SECONDS. `where` null: the
/// collective of this number.
bool hasFault(Fault fault, const char *where, uint64_t number,
              double *value = nullptr);

uint64_t sizeOf(ncclDataType_t type);
const char *nameOf(Kind kind);

/// Does an Operation, as far as its peers are.
int perform(void *operation, char *report, uint64_t reportBytes);

} // namespace trainc::cuda

#endif // TRAINC_EMULATOR_NCCL_FAKE_H
