//===- nccl_internals.h - What a communicator of GPUs is --------*- C++ -*-===//
//
// Which collective is not done? Behind each one its stream copies a number, the mark,
// to memory of the host. Graphs do it, too, each time they are launched. So a report
// finds the first one whose mark has not come.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_NCCL_INTERNALS_H
#define TRAINC_CUDA_NCCL_INTERNALS_H

#include "comm/internals.h"
#include "cuda/nccl.h"
#include "cuda/nccl_library.h"

namespace trainc::cuda {

/// Marks are the numbers below; 0 is none.
constexpr uint32_t maxMarks = 4096;
/// Streams that have a place for their mark.
constexpr uint32_t maxPlaces = 8;

struct Registered {
  CUdeviceptr address;
  void *handle;
};

/// A group with its communicator of NCCL.
struct Joined {
  const Group *group = nullptr;
  ncclComm_t comm = nullptr;
  uint64_t number = 0; // collectives
  Array<Registered> memory;
};

struct Communicator {
  const Device &device;
  const Nccl *nccl = nullptr;
  trainc_comm *host = nullptr;
  bool ownsHost = false, aborted = false;
  void (*destroyGraphs)(void *context) = nullptr;
  void *graphs = nullptr;
  Array<Joined *> groups;

  /// On the device: 0, 1, 2, ...
  CUdeviceptr marks = 0;
  uint32_t nextMark = 1;
  /// On the host: the last mark of each stream. One that was there when others were
  /// retired says nothing: graphs use their marks over and over.
  volatile uint32_t *progress = nullptr;
  uint32_t stale[maxPlaces] = {};
  CUstream places[maxPlaces] = {};

  // For reports: under the host communicator's mutex.
  const char *waitingFor = "";
  const Site *calling = nullptr; // what is enqueued just now
  Array<Site> pending;           // in the order in which they will be done
  uint64_t retired = 0;          // those before the first of `pending`
  Recording *recording = nullptr;

  explicit Communicator(const Device &device) : device(device) {}
};

/// Holds the mutex of what reports read.
class Lock {
public:
  explicit Lock(const Communicator &c) : mutex(c.host->mutex) {
    pthread_mutex_lock(&mutex);
  }
  ~Lock() { pthread_mutex_unlock(&mutex); }
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

private:
  pthread_mutex_t &mutex;
};

//===----------------------------------------------------------------------===//
// Groups and collectives (nccl.cpp, nccl_collectives.cpp)
//===----------------------------------------------------------------------===//

inline const Group *groupOf(const Communicator &c, const Group *group) {
  return group ? group : worldGroup(*c.host);
}
/// The group's communicator of NCCL, or null. Group null: all ranks.
Joined *find(const Communicator &c, const Group *group);

/// Those before `upTo` are done.
void retire(Communicator &c, uint64_t upTo);

inline void *pointer(CUdeviceptr address) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}
inline unsigned long long print(uint64_t value) { return value; }

//===----------------------------------------------------------------------===//
// Waiting and giving up (nccl_waiting.cpp): all within a Watch
//===----------------------------------------------------------------------===//

/// `call` on this communicator returned `result`; waits until it is through with that.
trainc_status settle(Communicator &c, const Joined &joined, const char *call,
                     ncclResult_t result);

/// Gives up because of a call that failed.
trainc_status failNccl(Communicator &c, ncclComm_t comm, const char *call,
                       ncclResult_t result);
trainc_status failDevice(Communicator &c, const char *call, CUresult result);

/// A rank of this host that has died. One that had destroyed its communicator before
/// has done its part of all that is under way.
bool findDead(const trainc_comm &host, uint32_t &rank);

/// Ends all of NCCL; not within a Watch.
void abortAll(Communicator &c);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_NCCL_INTERNALS_H
