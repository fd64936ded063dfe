//===- calls.cpp - The functions of the driver of tests -------------------===//

#include "calls.h"
#include <elf.h>

using namespace trainc;
using namespace trainc::cuda;

Fake trainc::cuda::fake;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

Lock::Lock() { pthread_mutex_lock(&mutex); }
Lock::~Lock() { pthread_mutex_unlock(&mutex); }

/// The contexts of this thread.
static thread_local CUcontext stack[16];
static thread_local int depth;

CUresult trainc::cuda::refuse(CUresult result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fake.report, sizeof(fake.report), format, arguments);
  va_end(arguments);
  return result;
}

CUcontext trainc::cuda::current() { return depth ? stack[depth - 1] : nullptr; }

/// The thread has a context, and nothing in it has failed.
CUresult trainc::cuda::checkContext() {
  NEED(current() && current()->retained, CUDA_ERROR_INVALID_CONTEXT,
       "the thread has no context");
  return current()->failed;
}

static CUresult checkDevice(CUdevice device) {
  NEED(fake.initialized, CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  NEED(device >= 0 && device < fake.devices, CUDA_ERROR_INVALID_DEVICE,
       "there is no device %d", device);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::checkStream(CUstream stream) {
  CHECK(checkContext());
  NEED(stream, CUDA_ERROR_INVALID_HANDLE, "the default stream is not for us");
  NEED(fake.streams.has(stream), CUDA_ERROR_INVALID_HANDLE, "not a stream");
  NEED(stream->context == current(), CUDA_ERROR_INVALID_HANDLE,
       "a stream of another context");
  NEED(!stream->capture || !stream->capture->invalid,
       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated");
  return CUDA_SUCCESS;
}

/// Some calls may not be made while streams are captured: they end the capture.
CUresult trainc::cuda::checkNoCapture(const char *call) {
  for (Capture *capture : fake.captures.objects)
    if (capture->mode == 0 ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
         pthread_equal(capture->thread, pthread_self()))) {
      capture->invalid = true;
      return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "%s while a stream is captured", call);
    }
  return CUDA_SUCCESS;
}

/// The bytes belong to one allocation of the context, or of pinned memory.
static CUresult checkRange(const char *what, uint64_t address, uint64_t bytes,
                           CUcontext context) {
  NEED(findRange(address, bytes, context), CUDA_ERROR_INVALID_VALUE,
       "%s: %llu bytes at 0x%llx are not of one allocation %s", what,
       static_cast<unsigned long long>(bytes),
       static_cast<unsigned long long>(address),
       context ? "of this context" : "of pinned memory");
  return CUDA_SUCCESS;
}

static uint64_t addressOf(const void *host) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(host));
}

//===----------------------------------------------------------------------===//
// Devices and contexts
//===----------------------------------------------------------------------===//

static uint64_t setting(const char *name, uint64_t usual) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, nullptr, 0) : usual;
}

bool trainc::cuda::failsBySetting(const char *what, uint64_t number) {
  const char *text = getenv("TRAINC_FAKE_CUDA_FAIL");
  size_t length = strlen(what);
  while (text && *text) {
    size_t here = strcspn(text, ",");
    bool counted = here > length && text[length] == ':';
    if (!strncmp(text, what, length) &&
        (here == length ||
         (counted && strtoull(text + length + 1, nullptr, 0) == number)))
      return true;
    text += here + (text[here] == ',');
  }
  return false;
}

CUresult trainc::cuda::cuInit(unsigned flags) {
  Lock lock;
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE, "cuInit has no flags");
  if (fake.initialized)
    return CUDA_SUCCESS;
  uint64_t devices = setting("TRAINC_FAKE_CUDA_DEVICES", 1);
  NEED(devices > 0, CUDA_ERROR_NO_DEVICE, "there is no device");
  NEED(devices <= maxDevices, CUDA_ERROR_INVALID_VALUE, "too many devices");
  fake.devices = static_cast<int>(devices);
  fake.arch = static_cast<int>(setting("TRAINC_FAKE_CUDA_ARCH", 90));
  fake.memory = setting("TRAINC_FAKE_CUDA_MEMORY", UINT64_C(1) << 30);
  fake.seed = setting("TRAINC_FAKE_CUDA_SEED", 0);
  fake.latestFirst = fake.seed == UINT64_MAX;
  if (fake.latestFirst)
    fake.seed = 0;
  fake.late = setting("TRAINC_FAKE_CUDA_LATE", 0) != 0;
  fake.stuck = setting("TRAINC_FAKE_CUDA_STUCK", 0);
  fake.hangs = setting("TRAINC_FAKE_CUDA_HANG", 0) != 0;
  fake.initialized = true;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDriverGetVersion(int *version) {
  *version = static_cast<int>(setting("TRAINC_FAKE_CUDA_DRIVER", 13000));
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuGetErrorName(CUresult error, const char **text) {
  *text = nullptr;
#define TRAINC_CU_VALUE(type, name, value)                                     \
  if (std::is_same_v<type, CUresult> && error == static_cast<CUresult>(value)) \
    *text = #name;
#include "cuda/driver.def"
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult trainc::cuda::cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_SUCCESS           ? "no error"
          : error == CUDA_ERROR_NOT_READY ? "not ready"
                                          : fake.report;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDeviceGetCount(int *count) {
  Lock lock;
  NEED(fake.initialized, CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  *count = fake.devices;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDeviceGet(CUdevice *device, int ordinal) {
  Lock lock;
  CHECK(checkDevice(ordinal));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDeviceGetName(char *name, int bytes, CUdevice device) {
  Lock lock;
  CHECK(checkDevice(device));
  NEED(bytes > 0, CUDA_ERROR_INVALID_VALUE, "no room for a name");
  snprintf(name, static_cast<size_t>(bytes), "emulated GPU");
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDeviceGetAttribute(int *value,
                                            CUdevice_attribute attribute,
                                            CUdevice device) {
  Lock lock;
  CHECK(checkDevice(device));
  switch (static_cast<unsigned>(attribute)) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = 4;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = fake.arch / 10;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = fake.arch % 10;
    return CUDA_SUCCESS;
  }
  return refuse(CUDA_ERROR_INVALID_VALUE, "an attribute without a value");
}

CUresult trainc::cuda::cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  Lock lock;
  CHECK(checkDevice(device));
  *bytes = fake.memory;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDevicePrimaryCtxRetain(CUcontext *context,
                                                CUdevice device) {
  Lock lock;
  CHECK(checkDevice(device));
  CUcontext one = &fake.contexts[device];
  if (one->retained == 0) {
    *one = {};
    one->device = device;
    one->emulator = trainc_emu_create();
    NEED(one->emulator, CUDA_ERROR_OUT_OF_MEMORY, "no memory on the host");
    trainc_emu_set_seed(one->emulator, fake.seed);
    trainc_emu_set_late_stores(one->emulator, fake.late);
    ++fake.counts.contexts;
  }
  ++one->retained;
  *context = one;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  Lock lock;
  CHECK(checkDevice(device));
  CUcontext one = &fake.contexts[device];
  NEED(one->retained, CUDA_ERROR_INVALID_CONTEXT, "it was not retained");
  if (--one->retained)
    return CUDA_SUCCESS;
  finishAll();
  for (size_t i = fake.allocations.size(); i-- > 0;)
    if (fake.allocations[i].context == one)
      freeMemory(i);
  trainc_emu_destroy(one->emulator);
  one->emulator = nullptr;
  --fake.counts.contexts;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuCtxPushCurrent_v2(CUcontext context) {
  Lock lock;
  NEED(context && context->retained, CUDA_ERROR_INVALID_CONTEXT,
       "a context that was not retained");
  NEED(depth < 16, CUDA_ERROR_INVALID_VALUE, "too many contexts are pushed");
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuCtxPopCurrent_v2(CUcontext *context) {
  Lock lock;
  NEED(depth, CUDA_ERROR_INVALID_CONTEXT, "no context was pushed");
  *context = stack[--depth];
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

CUresult trainc::cuda::cuMemGetInfo_v2(size_t *free, size_t *total) {
  Lock lock;
  CHECK(checkContext());
  *total = fake.memory;
  *free = fake.memory - current()->used;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  Lock lock;
  CHECK(checkContext());
  CHECK(checkNoCapture("cuMemAlloc"));
  uint64_t base = 0;
  CHECK(allocateMemory(bytes, current(), &base));
  *address = base;
  return CUDA_SUCCESS;
}

static CUresult freeAt(const char *call, uint64_t address, CUcontext context) {
  CHECK(checkNoCapture(call));
  finishAll();
  for (size_t i = 0; i < fake.allocations.size(); ++i)
    if (fake.allocations[i].base == address &&
        fake.allocations[i].context == context) {
      freeMemory(i);
      return current()->failed;
    }
  return refuse(CUDA_ERROR_INVALID_VALUE, "%s: no allocation begins there",
                call);
}

CUresult trainc::cuda::cuMemFree_v2(CUdeviceptr address) {
  Lock lock;
  NEED(current(), CUDA_ERROR_INVALID_CONTEXT, "the thread has no context");
  return freeAt("cuMemFree", address, current());
}

CUresult trainc::cuda::cuMemHostAlloc(void **address, size_t bytes,
                                      unsigned flags) {
  Lock lock;
  CHECK(checkContext());
  CHECK(checkNoCapture("cuMemHostAlloc"));
  NEED((flags & ~CU_MEMHOSTALLOC_PORTABLE) == 0, CUDA_ERROR_INVALID_VALUE,
       "cuMemHostAlloc: unknown flags 0x%x", flags);
  uint64_t base = 0;
  CHECK(allocateMemory(bytes, nullptr, &base));
  *address = reinterpret_cast<void *>(static_cast<uintptr_t>(base));
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuMemFreeHost(void *address) {
  Lock lock;
  NEED(current(), CUDA_ERROR_INVALID_CONTEXT, "the thread has no context");
  return freeAt("cuMemFreeHost", addressOf(address), nullptr);
}

static CUresult copy(Work::Kind kind, uint64_t to, uint64_t from, size_t bytes,
                     CUstream stream) {
  CHECK(checkStream(stream));
  if (bytes == 0)
    return CUDA_SUCCESS;
  CHECK(checkRange("target of a copy", to, bytes,
                   kind == Work::CopyOut ? nullptr : current()));
  CHECK(checkRange("source of a copy", from, bytes,
                   kind == Work::CopyIn ? nullptr : current()));
  NEED(to + bytes <= from || from + bytes <= to, CUDA_ERROR_INVALID_VALUE,
       "a copy onto itself");
  Work work = {};
  work.kind = kind;
  work.to = to;
  work.from = from;
  work.bytes = bytes;
  enqueue(stream, work);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from,
                                            size_t bytes, CUstream stream) {
  Lock lock;
  return copy(Work::CopyIn, to, addressOf(from), bytes, stream);
}

CUresult trainc::cuda::cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from,
                                            size_t bytes, CUstream stream) {
  Lock lock;
  return copy(Work::CopyOut, addressOf(to), from, bytes, stream);
}

CUresult trainc::cuda::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from,
                                            size_t bytes, CUstream stream) {
  Lock lock;
  return copy(Work::CopyWithin, to, from, bytes, stream);
}

CUresult trainc::cuda::cuMemsetD8Async(CUdeviceptr to, unsigned char value,
                                       size_t bytes, CUstream stream) {
  Lock lock;
  CHECK(checkStream(stream));
  if (bytes == 0)
    return CUDA_SUCCESS;
  CHECK(checkRange("a fill", to, bytes, current()));
  Work work = {};
  work.kind = Work::Fill;
  work.to = to;
  work.value = value;
  work.bytes = bytes;
  enqueue(stream, work);
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// What tests ask
//===----------------------------------------------------------------------===//

void trainc_fake_cuda_get_counts(trainc_fake_cuda_counts *out_counts) {
  Lock lock;
  trainc_fake_cuda_counts &counts = fake.counts;
  counts.allocations = counts.pinned = 0;
  for (const Allocation &one : fake.allocations)
    ++(one.context ? counts.allocations : counts.pinned);
  counts.streams = fake.streams.objects.size();
  counts.events = fake.events.objects.size();
  counts.modules = fake.modules.objects.size();
  counts.graphs = fake.graphs.objects.size();
  counts.executables = fake.executables.objects.size();
  *out_counts = counts;
}

void trainc_fake_cuda_set_memory(uint64_t bytes) {
  Lock lock;
  fake.memory = bytes;
}

void trainc_fake_cuda_set_hang(int hangs) {
  Lock lock;
  fake.hangs = hangs != 0;
}

const char *trainc_fake_cuda_report(void) { return fake.report; }

//===----------------------------------------------------------------------===//
// What other libraries of tests call
//===----------------------------------------------------------------------===//

uint32_t trainc_fake_cuda_current_arch(void) {
  Lock lock;
  CUcontext context = current();
  return context && context->retained ? static_cast<uint32_t>(fake.arch) : 0;
}

void *trainc_fake_cuda_context(void) {
  Lock lock;
  return current();
}

uint64_t trainc_fake_cuda_recorded(const void *owner) {
  Lock lock;
  uint64_t count = 0;
  auto add = [&](const Array<Work> &all) {
    for (const Work &work : all)
      count += work.kind == Work::Call && work.call.owner == owner;
  };
  for (const Capture *capture : fake.captures.objects)
    add(capture->work);
  for (const CUgraph_st *graph : fake.graphs.objects)
    add(graph->work);
  for (const CUgraphExec_st *executable : fake.executables.objects)
    add(executable->work);
  return count;
}

uint64_t trainc_fake_cuda_base(uint64_t address, uint64_t bytes) {
  Lock lock;
  const Allocation *found =
      current() ? findRange(address, bytes, current()) : nullptr;
  return found ? found->base : 0;
}

static CUresult enqueueCall(CUstream stream,
                            const trainc_fake_cuda_call &call) {
  CHECK(checkStream(stream));
  for (uint32_t i = 0; i < call.num_ranges; ++i)
    CHECK(checkRange(call.name, call.ranges[i].address, call.ranges[i].bytes,
                     current()));
  NEED(!call.lane || isBehindLane(stream, call.lane), CUDA_ERROR_INVALID_VALUE,
       "%s: nothing puts it behind the last one, and they may not be done at "
       "the same time",
       call.name);
  uint64_t data = (call.data_bytes + 15) / 16 * 16;
  uint64_t ranges = call.num_ranges * sizeof(trainc_fake_cuda_range);
  Work work = {};
  work.kind = Work::Call;
  work.call = call;
  work.arguments = static_cast<char *>(reallocate(nullptr, data + ranges));
  if (call.data_bytes)
    memcpy(work.arguments, call.data, call.data_bytes);
  if (ranges)
    memcpy(work.arguments + data, call.ranges, ranges);
  enqueue(stream, work);
  return CUDA_SUCCESS;
}

unsigned trainc_fake_cuda_enqueue(void *stream,
                                  const trainc_fake_cuda_call *call) {
  Lock lock;
  return enqueueCall(static_cast<CUstream>(stream), *call);
}
