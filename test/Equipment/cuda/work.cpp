//===- work.cpp - What streams do, as late as possible --------------------===//

#include "fake.h"
#include <sys/mman.h>
#include <time.h>

using namespace trainc;
using namespace trainc::cuda;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static uint64_t pagesOf(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

template <typename T> static T *pointer(uint64_t address) {
  return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}

const Allocation *trainc::cuda::findRange(uint64_t address, uint64_t bytes,
                                          CUcontext context) {
  for (const Allocation &one : fake.allocations)
    if (one.context == context && address - one.base < one.bytes &&
        bytes <= one.bytes - (address - one.base))
      return &one;
  return nullptr;
}

CUresult trainc::cuda::allocateMemory(uint64_t bytes, CUcontext context,
                                      uint64_t *out_base) {
  if (bytes == 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  if (context && bytes > fake.memory - context->used)
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, "%llu bytes of %llu are free",
                  static_cast<unsigned long long>(fake.memory - context->used),
                  static_cast<unsigned long long>(fake.memory));
  void *base = mmap(nullptr, pagesOf(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, "no memory on the host");
  // Each piece of work maps and unmaps all of it.
  madvise(base, pagesOf(bytes), MADV_HUGEPAGE);
  memset(base, 0xff, bytes);
  auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(base));
  if (context) {
    if (trainc_emu_register(context->emulator, base, bytes, "device memory")) {
      munmap(base, pagesOf(bytes));
      return refuse(CUDA_ERROR_OUT_OF_MEMORY, "%s",
                    trainc_emu_report(context->emulator));
    }
    mprotect(base, pagesOf(bytes), PROT_NONE);
    context->used += bytes;
  }
  fake.allocations.push({address, bytes, context});
  *out_base = address;
  return CUDA_SUCCESS;
}

void trainc::cuda::freeMemory(size_t index) {
  Allocation one = fake.allocations[index];
  if (one.context) {
    trainc_emu_unregister(one.context->emulator, pointer<void>(one.base));
    one.context->used -= one.bytes;
  }
  munmap(pointer<void>(one.base), pagesOf(one.bytes));
  size_t last = fake.allocations.size() - 1;
  fake.allocations[index] = fake.allocations[last];
  fake.allocations.resize(last);
}

/// While this lives, the device's memory is mapped.
namespace {
class Mapped {
public:
  explicit Mapped(CUcontext context) : context(context) {
    protect(PROT_READ | PROT_WRITE);
  }
  ~Mapped() { protect(PROT_NONE); }
  Mapped(const Mapped &) = delete;
  Mapped &operator=(const Mapped &) = delete;

private:
  void protect(int how) {
    for (const Allocation &one : fake.allocations)
      if (one.context == context)
        mprotect(pointer<void>(one.base), pagesOf(one.bytes), how);
  }
  CUcontext context;
};
} // namespace

//===----------------------------------------------------------------------===//
// Doing work
//===----------------------------------------------------------------------===//

static uint64_t roundedUp(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

static void launch(const Work &work) {
  const trainc_emu_kernel *kernel = work.function->kernel;
  Array<void *> arguments;
  char *at = work.arguments;
  for (uint32_t i = 0; i < kernel->parameter_count; ++i) {
    arguments.push(at);
    at += roundedUp(kernel->parameter_bytes[i]);
  }
  trainc_emu *emulator = work.context->emulator;
  if (trainc_emu_launch(emulator, work.function->module->module, kernel,
                        work.grid, work.block, work.sharedBytes,
                        arguments.data()))
    work.context->failed =
        refuse(CUDA_ERROR_LAUNCH_FAILED, "%s", trainc_emu_report(emulator));
}

/// False: it is not done yet.
static bool callHost(const Work &work) {
  auto *ranges = reinterpret_cast<const trainc_fake_cuda_range *>(
      work.arguments + roundedUp(work.call.data_bytes));
  for (uint32_t i = 0; i < work.call.num_ranges; ++i)
    if (!findRange(ranges[i].address, ranges[i].bytes, work.context)) {
      work.context->failed =
          refuse(CUDA_ERROR_LAUNCH_FAILED,
                 "%s: memory was freed before it was done", work.call.name);
      return true;
    }
  char report[2000] = "";
  int result = work.call.function(work.arguments, report, sizeof(report));
  if (result == TRAINC_FAKE_CUDA_FAILED)
    work.context->failed =
        refuse(CUDA_ERROR_LAUNCH_FAILED, "%s: %s", work.call.name, report);
  return result != TRAINC_FAKE_CUDA_AGAIN;
}

/// False: it is not done yet.
static bool perform(const Work &work) {
  if (work.kind == Work::Nothing || work.context->failed)
    return true;
  Mapped mapped(work.context);
  switch (work.kind) {
  case Work::Nothing:
    break;
  case Work::CopyIn:
  case Work::CopyOut:
  case Work::CopyWithin:
    // What was freed meanwhile must not be touched.
    if (!findRange(work.to, work.bytes,
                   work.kind == Work::CopyOut ? nullptr : work.context) ||
        !findRange(work.from, work.bytes,
                   work.kind == Work::CopyIn ? nullptr : work.context)) {
      work.context->failed =
          refuse(CUDA_ERROR_LAUNCH_FAILED,
                 "a copy of %llu bytes: the memory "
                 "was freed before it was done",
                 static_cast<unsigned long long>(work.bytes));
      return true;
    }
    memmove(pointer<void>(work.to), pointer<void>(work.from), work.bytes);
    ++fake.counts.copies;
    break;
  case Work::Fill:
    if (!findRange(work.to, work.bytes, work.context)) {
      work.context->failed =
          refuse(CUDA_ERROR_LAUNCH_FAILED,
                 "a fill of %llu bytes: the memory "
                 "was freed before it was done",
                 static_cast<unsigned long long>(work.bytes));
      return true;
    }
    memset(pointer<void>(work.to), work.value, work.bytes);
    ++fake.counts.fills;
    break;
  case Work::Launch:
    launch(work);
    ++fake.counts.launches;
    break;
  case Work::Call:
    if (!callHost(work))
      return false;
    ++fake.counts.calls;
    break;
  }
  return true;
}

static Work &workOf(uint64_t number) {
  return fake.work[number - fake.forgotten - 1];
}

bool trainc::cuda::isDone(uint64_t number) {
  return number <= fake.forgotten || workOf(number).done;
}

/// Which of `count` pieces come before, or are, number `last`. Pieces are numbered
/// from `first` on, and come after ones of smaller numbers only.
static void findNeeded(const Work *work, size_t count, uint64_t first,
                       uint64_t last, Array<bool> &needed) {
  needed.resize(count);
  if (last >= first)
    needed[last - first] = true;
  for (size_t i = count; i-- > 0;)
    for (uint64_t before : work[i].after)
      if (needed[i] && before >= first)
        needed[before - first] = true;
}

bool trainc::cuda::advance(uint64_t number) {
  if (isDone(number) || fake.hangs)
    return false;
  Array<bool> needed;
  Array<uint64_t> ready;
  uint64_t first = fake.forgotten + 1;
  findNeeded(fake.work.data(), fake.work.size(), first, number, needed);
  for (size_t i = 0; i < needed.size(); ++i) {
    const Work &work = fake.work[i];
    if (needed[i] && !work.done && isDone(work.after[0]) &&
        isDone(work.after[1]))
      ready.push(first + i);
  }
  size_t chosen = fake.latestFirst ? ready.size() - 1 : 0;
  if (fake.seed) {
    fake.seed ^= fake.seed << 13;
    fake.seed ^= fake.seed >> 7;
    fake.seed ^= fake.seed << 17;
    chosen = fake.seed % ready.size();
  }
  // What must wait for another process leaves its turn to the next.
  size_t tried = 0;
  while (!perform(workOf(ready[chosen]))) {
    chosen = (chosen + 1) % ready.size();
    if (++tried == ready.size())
      return false;
  }
  workOf(ready[chosen]).done = true;
  --fake.counts.pending;
  if (fake.counts.pending == 0) {
    fake.forgotten += fake.work.size();
    clearWork(fake.work);
  }
  return true;
}

void trainc::cuda::finish(uint64_t number) {
  const timespec moment = {0, 100 * 1000};
  while (!isDone(number) && !fake.hangs)
    if (!advance(number))
      nanosleep(&moment, nullptr);
}

void trainc::cuda::finishAll() {
  uint64_t last = fake.forgotten + fake.work.size();
  for (uint64_t i = fake.forgotten + 1; i <= last; ++i)
    finish(i);
}

//===----------------------------------------------------------------------===//
// Adding work
//===----------------------------------------------------------------------===//

static void add(CUstream stream, Work work) {
  work.after[0] = stream->last;
  fake.work.push(work);
  stream->last = fake.forgotten + fake.work.size();
  ++fake.counts.pending;
}

void trainc::cuda::enqueue(CUstream stream, Work work) {
  work.context = stream->context;
  if (Capture *capture = stream->capture) {
    work.after[0] = stream->captured;
    capture->work.push(work);
    stream->captured = capture->work.size();
    capture->lanes.last[work.call.lane] = stream->captured;
    return;
  }
  add(stream, work);
  stream->context->lanes.last[work.call.lane] = stream->last;
}

static uint64_t argumentBytes(const Work &work) {
  uint64_t bytes = 0;
  if (work.kind == Work::Launch)
    for (uint32_t i = 0; i < work.function->kernel->parameter_count; ++i)
      bytes += roundedUp(work.function->kernel->parameter_bytes[i]);
  else if (work.kind == Work::Call)
    bytes = roundedUp(work.call.data_bytes) +
            work.call.num_ranges * sizeof(trainc_fake_cuda_range);
  return bytes;
}

static Work copyOf(const Work &work) {
  Work copy = work;
  uint64_t bytes = argumentBytes(work);
  copy.arguments = static_cast<char *>(reallocate(nullptr, bytes));
  if (bytes)
    memcpy(copy.arguments, work.arguments, bytes);
  return copy;
}

void trainc::cuda::copyWork(const Array<Work> &from, Array<Work> &to) {
  for (const Work &work : from)
    to.push(copyOf(work));
}

void trainc::cuda::clearWork(Array<Work> &work) {
  for (Work &one : work)
    free(one.arguments);
  work.clear();
}

void trainc::cuda::enqueueGraph(CUstream stream, const CUgraph_st &graph) {
  uint64_t base = fake.forgotten + fake.work.size(), before = stream->last;
  for (const Work &work : graph.work) {
    Work copy = copyOf(work);
    for (uint64_t &after : copy.after)
      after = after ? base + after : before;
    fake.work.push(copy);
    ++fake.counts.pending;
    stream->context->lanes.last[work.call.lane] =
        fake.forgotten + fake.work.size();
  }
  if (graph.last)
    stream->last = base + graph.last;
}

bool trainc::cuda::isJoined(const Capture &capture) {
  Array<bool> needed;
  findNeeded(capture.work.data(), capture.work.size(), 1,
             capture.origin->captured, needed);
  for (bool one : needed)
    if (!one)
      return false;
  return true;
}

bool trainc::cuda::isBehindLane(CUstream stream, uint32_t lane) {
  Array<bool> needed;
  if (const Capture *capture = stream->capture) {
    uint64_t last = capture->lanes.last[lane];
    findNeeded(capture->work.data(), capture->work.size(), 1, stream->captured,
               needed);
    return !last || needed[last - 1];
  }
  uint64_t last = stream->context->lanes.last[lane];
  if (isDone(last))
    return true;
  uint64_t first = fake.forgotten + 1;
  findNeeded(fake.work.data(), fake.work.size(), first, stream->last, needed);
  return needed[last - first];
}

bool trainc::cuda::isBehindLanes(CUstream stream, const CUgraph_st &graph) {
  for (const Work &work : graph.work)
    if (work.call.lane && !isBehindLane(stream, work.call.lane))
      return false;
  return true;
}
