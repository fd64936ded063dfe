//===- fake.h - The state of the driver of tests ----------------*- C++ -*-===//
#ifndef TRAINC_EMULATOR_CUDA_FAKE_H
#define TRAINC_EMULATOR_CUDA_FAKE_H

#include "core/containers.h"
#include "cuda/driver.h"
#include "trainc/fake_cuda.h"
#include <pthread.h>

namespace trainc::cuda {

/// A piece of work. It comes after the two pieces `after`, by number; 0 is none.
struct Work {
  enum Kind : uint32_t {
    Nothing,
    CopyIn,
    CopyOut,
    CopyWithin,
    Fill,
    Launch,
    Call
  };
  Kind kind;
  bool done;
  uint64_t after[2];
  CUcontext context;
  uint64_t to, from, bytes; // addresses of the device or of the host
  unsigned char value;      // of a fill
  CUfunction function;
  uint32_t grid[3], block[3], sharedBytes;
  trainc_fake_cuda_call call; // its data and ranges are the arguments
  char *arguments;            // owned; each begins at a multiple of 16
};

/// The last work of each lane; 0: none.
struct Lanes {
  uint64_t last[TRAINC_FAKE_CUDA_MAX_LANES];
};

/// What a stream and those that joined it record instead of doing it. Work is numbered
/// from 1 on.
struct Capture {
  CUstream origin;
  pthread_t thread;
  CUstreamCaptureMode mode;
  bool invalid;
  Array<Work> work;
  Lanes lanes;
};

struct Allocation {
  uint64_t base, bytes;
  CUcontext context; // null: pinned
};

struct CUctx_st {
  CUdevice device;
  uint32_t retained;
  uint64_t used;
  trainc_emu *emulator;
  CUresult failed; // what a fault left
  Lanes lanes;
};
struct CUmod_st {
  CUcontext context;
  trainc_emu_module *module;
};
struct CUfunc_st {
  CUmodule module;
  const trainc_emu_kernel *kernel;
};
struct CUstream_st {
  CUcontext context;
  uint64_t last; // work
  Capture *capture;
  uint64_t captured; // the last work of it
};
struct CUevent_st {
  CUcontext context;
  uint64_t work; // of the last record; 0: none
  Capture *capture;
  uint64_t captured;
  bool stale; // recorded in a capture that has ended
  bool timed;
  uint64_t time; // of the last record: pieces of work before it
};
struct CUgraph_st {
  Array<Work> work;
  uint64_t last;
};
struct CUgraphExec_st : CUgraph_st {
  CUcontext context;
};

/// Objects that were made and not destroyed.
template <typename T> struct Live {
  Array<T *> objects;

  bool has(const T *object) const {
    for (T *live : objects)
      if (live == object)
        return true;
    return false;
  }
  T *make() {
    objects.push(trainc::create<T>());
    return objects[objects.size() - 1];
  }
  void drop(T *object) {
    for (T *&live : objects)
      if (live == object) {
        live = objects[objects.size() - 1];
        objects.resize(objects.size() - 1);
        break;
      }
    trainc::destroy(object);
  }
};

constexpr int maxDevices = 8;

struct Fake {
  bool initialized;
  int arch, devices;
  uint64_t memory, seed, stuck;
  uint64_t launched, ended, instantiated; // so far
  bool hangs, late, latestFirst;

  CUctx_st contexts[maxDevices];
  Array<Allocation> allocations;
  Live<CUmod_st> modules;
  Live<CUfunc_st> functions;
  Live<CUstream_st> streams;
  Live<CUevent_st> events;
  Live<CUgraph_st> graphs;
  Live<CUgraphExec_st> executables;
  Live<Capture> captures;

  /// All work that was not forgotten; the first one has the number `forgotten` + 1.
  Array<Work> work;
  uint64_t forgotten;
  trainc_fake_cuda_counts counts;
  char report[8000];
};

extern Fake fake;

/// Sets the report and returns `result`.
__attribute__((format(printf, 2, 3))) CUresult refuse(CUresult result,
                                                      const char *format, ...);

/// The allocation that has all of these bytes, or null. `context` null: pinned.
const Allocation *findRange(uint64_t address, uint64_t bytes,
                            CUcontext context);

CUresult allocateMemory(uint64_t bytes, CUcontext context, uint64_t *out_base);
/// Index of fake.allocations.
void freeMemory(size_t index);

bool isDone(uint64_t work);
/// Does one piece of what `work` needs. Reports nothing: a fault is in the context.
/// False if nothing can be done: it is all done, or waits for another process.
bool advance(uint64_t work);
/// Does all of it.
void finish(uint64_t work);
void finishAll();
/// Adds work behind the stream's, or to its capture. Takes the arguments over.
void enqueue(CUstream stream, Work work);
/// Adds the work of a graph behind the stream's.
void enqueueGraph(CUstream stream, const CUgraph_st &graph);
void copyWork(const Array<Work> &from, Array<Work> &to);
void clearWork(Array<Work> &work);
/// Does the end of the capture come after all of its work?
bool isJoined(const Capture &capture);
/// Would work that the stream gets now come after the last one of the lane?
bool isBehindLane(CUstream stream, uint32_t lane);
/// The same, of all lanes that a graph has work of.
bool isBehindLanes(CUstream stream, const CUgraph_st &graph);

} // namespace trainc::cuda

#endif // TRAINC_EMULATOR_CUDA_FAKE_H
