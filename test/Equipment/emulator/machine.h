//===- machine.h - The state of an emulated device ------------------------===//
#ifndef TRAINC_EMULATOR_MACHINE_H
#define TRAINC_EMULATOR_MACHINE_H

#include "trainc/emulator.h"
#include <stdlib.h>
#include <string.h>

namespace trainc::emu {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kMaxThreads = 1024;
constexpr size_t kStackBytes = 128
                               << 10; // of a thread, with a guard page below

/// An array that grows. Its owner calls `release`.
template <typename T> struct Array {
  T *data = nullptr;
  size_t size = 0, capacity = 0;

  T &operator[](size_t i) { return data[i]; }
  const T &operator[](size_t i) const { return data[i]; }
  bool push(const T &value) {
    if (size == capacity) {
      size_t wanted = capacity ? 2 * capacity : 16;
      T *grown = static_cast<T *>(realloc(data, wanted * sizeof(T)));
      if (!grown)
        return false;
      data = grown;
      capacity = wanted;
    }
    data[size++] = value;
    return true;
  }
  void release() {
    free(data);
    data = nullptr;
    size = capacity = 0;
  }
};

/// Who accessed a place, and when: the stamp that the thread got when it last met
/// others. Stamps only grow. Stamp 0: nobody.
struct Record {
  uint32_t thread; // in its block; kAtomic is set for an atomic
  uint32_t stamp;
};
constexpr uint32_t kAtomic = 1u << 31;

/// The accesses of a place that later ones are compared with.
struct Cell {
  Record write;
  Record reads[3]; // the latest; another thread's before; of another warp
};

/// The cells of 4096 bytes. A cell stands for 16 bytes, or for fewer once an access
/// was smaller: 1 << log2.
struct Page {
  uint32_t generation; // of the region, when the cells were last cleared
  uint32_t log2;
  Cell *cells;
};
constexpr size_t kPageBytes = 4096;

enum class RegionKind : uint8_t { Allocation, Variable, Shared };

/// A range of memory that kernels may access.
struct Region {
  uintptr_t base;
  size_t bytes;
  char *name;
  RegionKind kind;
  bool constant;
  uint32_t generation;
  const void *owner; // the module of a variable
  Page *pages;
};

/// What a lane brings to a warp operation; lives on the lane's stack.
struct Lane;
using WarpOperation = void (*)(Lane **lanes, uint32_t mask);
struct Lane {
  WarpOperation operation;
  const char *name;
  uint32_t mask;
  uint32_t detail; // must be the same in all lanes
  bool orders;     // memory, between the lanes
  uint64_t value;
  uint32_t apart, clamp;
  uint64_t result;
  void *memory;
};

inline Lane makeLane(WarpOperation operation, const char *name, uint32_t mask,
                     uint32_t detail) {
  Lane lane = {};
  lane.operation = operation;
  lane.name = name;
  lane.mask = mask;
  lane.detail = detail;
  return lane;
}

enum class State : uint8_t { New, Ready, Barrier, Warp, Exited };

/// A cp.async that was not waited for.
struct Copy {
  uintptr_t to, from;
  uint32_t bytes, read;
  uint32_t group;
};

/// What fences of a thread cover: accesses of its block with stamps below `end`, and
/// its own below `own`.
struct Fenced {
  uint32_t end, own;
};

struct Thread {
  void *stackPointer;
  char *stack; // its lowest byte; null before the start and after the end
  uint32_t index;
  uint32_t stamp;
  State state;
  const void *site; // of the barrier in the code
  Lane *lane;
  Array<Copy> copies;
  uint32_t group; // number of the open one
  // Accesses of other lanes of the warp with stamps below these came before what this
  // thread does now.
  uint32_t lanes[kWarp];
  Fenced fenced; // by its last fence
};

/// An atomic that wrote an address, and the fence before it: what that covers, of the
/// block that began at `begin`, is known to whom reads the address and fences.
struct Release {
  uintptr_t address;
  Fenced fenced;
  uint32_t begin, stamp; // of the block, of the atomic
  uint32_t thread;
};

/// What a thread of the block that runs has read of such atomics: it knows it from its
/// next fence on (`stamp`), the others from the barrier behind that.
struct Acquired {
  Release release;
  uint32_t thread, stamp;
};
constexpr uint32_t kUnfenced = ~0u;

/// A store that other blocks do not see yet: what stood there before, or, once its
/// block has ended, what is to stand there.
struct LateStore {
  uintptr_t address;
  Record record;
  uint32_t bytes;
  char data[16];
};

/// One launch.
struct Launch {
  trainc_emu_module *module;
  const trainc_emu_kernel *kernel;
  void **arguments;
  uint32_t grid[3], block[3];
  uint32_t threads, warps;
  uint32_t dynamicBytes;
  size_t sharedBytes; // with gaps, dynamic part and the gap behind it
  uint32_t blockIndex[3];
  uint32_t blockStamp;   // accesses before are of other blocks
  uint32_t barrierStamp; // accesses before came before the last common barrier
  uint32_t firstGeneration; // regions below were not used in this launch
  Array<uint32_t> order;    // of blocks
  Array<uint32_t> starts;   // stamp at which the i-th block in that order began
  Array<Release> releases;
  Array<Acquired> acquired; // by the block that runs
  Array<LateStore> stores;  // of the block that runs
  Array<LateStore> late;    // of blocks before it
  uint64_t accesses;
  uint64_t copies; // cp.async of the block that were not waited for
};

} // namespace trainc::emu

struct trainc_emu {
  trainc::emu::Array<trainc::emu::Region> regions; // sorted by address
  trainc::emu::Array<trainc_emu_module *> modules;
  trainc_emu_counts counts;
  uint64_t seed, limit;
  bool lateStores;
  uint32_t generation; // last one given
  uint32_t now;        // last stamp given

  // The block that runs.
  trainc::emu::Launch launch;
  trainc::emu::Thread threads[trainc::emu::kMaxThreads];
  uint32_t arrived; // at the barrier
  // Per warp: lanes that can run, that wait at warp operations, that have exited;
  // the thread that came to a barrier last, or null.
  uint32_t ready[trainc::emu::kMaxThreads / trainc::emu::kWarp];
  uint32_t meeting[trainc::emu::kMaxThreads / trainc::emu::kWarp];
  uint32_t exited[trainc::emu::kMaxThreads / trainc::emu::kWarp];
  trainc::emu::Thread *atBarrier[trainc::emu::kMaxThreads / trainc::emu::kWarp];
  uint32_t live;
  trainc::emu::Thread *current;
  uint32_t site;   // of the access that is checked, or 0
  void *scheduler; // its stack pointer
  trainc::emu::Array<char *> freeStacks, stacks;
  size_t recent[16]; // indices of regions, by address

  // The block's shared memory, and per byte: whether it was written, and which
  // thread's cp.async will write it (index + 1).
  char *shared;
  size_t sharedCapacity;
  uint8_t *initialized;
  uint16_t *pending;
  trainc::emu::Region sharedRegion;

  trainc_emu_status status;
  char report[4096];
};

struct trainc_emu_module {
  trainc_emu *device;
  void *handle;
  int file; // of the handle
  const trainc_emu_image *image;
};

namespace trainc::emu {

/// The device whose kernel runs on this system thread. Fibers never move to
/// another.
extern thread_local trainc_emu *machine
    __attribute__((tls_model("initial-exec")));

/// Appends to the report, as printf does.
void say(trainc_emu &device, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Begins a report of a call that fails before anything runs, and returns `status`.
trainc_emu_status refuse(trainc_emu &device, trainc_emu_status status,
                         const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/// Begins the report of a fault of the thread that runs: title, kernel, block and
/// thread.
void beginFault(trainc_emu_status status, const char *title);
/// Ends the launch with what was said. Runs on a fiber and does not return to it.
[[noreturn]] void endFault();

/// Says "thread (x,y,z)" with the index in the block, or the block's place.
void sayThread(trainc_emu &device, uint32_t index);
void sayBlock(trainc_emu &device, uint32_t place);
/// Says what an address belongs to, or is near to.
void sayAddress(trainc_emu &device, uintptr_t address, size_t bytes);

/// Gives the processor to the scheduler until somebody makes this thread ready.
void suspend();
void makeReady(Thread &thread);

/// Checks an access of the thread that runs, and remembers it.
void access(uintptr_t address, size_t bytes, uint32_t flags);
/// The same for one that another lane makes, in a warp operation.
void accessAs(Thread &thread, uintptr_t address, size_t bytes, uint32_t flags);

/// A fence of the thread that runs.
void fence();
/// Hides what the block that ended has stored and not fenced, until `showStores` at the
/// end of the launch.
void hideStores(trainc_emu &device);
void showStores(trainc_emu &device);

/// Begins and ends with memory of a block.
bool prepareShared(trainc_emu &device);
void clearShared(trainc_emu &device);
bool addRegion(trainc_emu &device, uintptr_t base, size_t bytes,
               const char *name, RegionKind kind, bool constant,
               const void *owner);
void removeRegion(trainc_emu &device, size_t index);
/// The region that holds the address, or null.
Region *findRegion(trainc_emu &device, uintptr_t address);
void releasePages(Region &region);

/// Writes what a thread's copies bring, of groups below `group`.
void finishCopies(Thread &thread, uint32_t group);

/// Lets the lanes of a mask meet. The last one performs the operation.
void meet(Lane &lane);

/// Runs a fiber until it suspends or ends, and back.
extern "C" __attribute__((visibility("hidden"))) void
trainc_emu_switch(void **save, void *load);

/// Says where each thread of the block is, in groups.
void sayThreads(trainc_emu &device);
/// Makes the report of a block in which no thread can go on.
void reportDeadlock(trainc_emu &device);

} // namespace trainc::emu

#endif
