// A device through the driver of tests: facts, memory, copies in pieces, launches in
// the order of streams and events, graphs of two streams; nothing is left behind.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c -I%trainc_src/test/Equipment/include -I%trainc_src/include %trainc_src/test/Equipment/include/trainc/fake_cuda.h
// RUN: trainc-emulate %S/Inputs/kernels.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_ARCH=86 %t %t.image 86
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_SEED=1 %t %t.image 90
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_SEED=2 %t %t.image 90

#include "device.h"
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void testFacts(int arch) {
  Device *device;
  CHECK(openDevice(-1, &device) == TRAINC_INVALID_ARGUMENT && !device);
  CHECK(openDevice(1, &device) == TRAINC_INVALID_ARGUMENT);
  CHECK(strstr(trainc_last_error(), "there is no CUDA device 1: the driver has "
                                    "1 of them"));
  OK(openDevice(0, &device));
  CHECK(device->major == arch / 10 && device->minor == arch % 10);
  CHECK(device->processors == 4 && device->memory == 1 << 30);
  CHECK(device->driver->version == 13000 && device->driver->emulated);
  CUdeviceptr none = 1;
  OK(allocate(*device, 0, &none));
  CHECK(none == 0);
  CHECK(allocate(*device, UINT64_C(3) << 29, &none) == TRAINC_OUT_OF_MEMORY);
  CHECK(strstr(trainc_last_error(), "no memory for 1536.0 MiB on CUDA device 0 "
                                    "(emulated GPU): 1024.0 of 1024.0 MiB"));
  closeDevice(device);
  closeDevice(nullptr);
}

/// No two pieces are alike.
static unsigned char noise(uint64_t i) {
  return static_cast<unsigned char>(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

/// Lengths around that of a piece, at odd places; what is beside stays.
static void testCopies() {
  Device *device;
  OK(openDevice(0, &device));
  constexpr uint64_t size = 3 * pieceBytes + 100, front = 13;
  CUdeviceptr memory;
  OK(allocate(*device, size, &memory));
  std::vector<unsigned char> all(size), part, back(size);
  for (uint64_t count : {UINT64_C(0), UINT64_C(1), pieceBytes - 1, pieceBytes,
                         pieceBytes + 1, 3 * pieceBytes + 5}) {
    for (uint64_t i = 0; i < size; ++i)
      all[i] = noise(i + count);
    OK(upload(*device, memory, all.data(), size));
    CHECK(counts().pending == 0);
    part.resize(count);
    for (uint64_t i = 0; i < count; ++i)
      part[i] = noise(~i);
    OK(upload(*device, memory + front, part.data(), count));
    for (uint64_t i = 0; i < count; ++i)
      all[front + i] = part[i];
    OK(download(*device, back.data(), memory, size));
    CHECK(back == all);
    std::vector<unsigned char> some(count + 2, 99);
    OK(download(*device, some.data() + 1, memory + front, count));
    CHECK(some[0] == 99 && some[count + 1] == 99);
    CHECK(count == 0 || memcmp(some.data() + 1, part.data(), count) == 0);
  }
  // One byte beyond the end.
  CHECK(upload(*device, memory + size - 4, all.data(), 5) ==
        TRAINC_DEVICE_FAILED);
  release(*device, memory);
  closeDevice(device);
}

/// Nothing is done before it is waited for, and then in the stream's order.
static void testStreams(const char *path) {
  Fixture f(path);
  const Driver &cu = *f.device->driver;
  CHECK(isnan(f.get(f.x)));
  f.set(f.x, 1);
  f.set(f.y, 0);
  Current current(*f.device);
  OK(current.status());
  f.host[0] = -1;
  OK(f.launch(f.a, f.x, f.y));
  OK(f.launch(f.a, f.x, f.y)); // 3
  OK(cu.cuMemcpyDtoHAsync(f.host, f.y, vectorBytes, f.a));
  OK(cu.cuEventRecord(f.doneA, f.a));
  OK(cu.cuMemsetD8Async(f.y, 0, vectorBytes, f.a));
  CHECK(f.host[0] == -1);
  OK(waitFor(*f.device, f.doneA, 10, "two launches"));
  CHECK(f.host[0] == 3 && f.host[numbers - 1] == 3);
  OK(waitFor(*f.device, f.a, 10, "a fill"));
  CHECK(f.get(f.y) == 0);

  // Without the event, the other stream would copy too early.
  OK(f.launch(f.a, f.x, f.y));
  OK(cu.cuMemcpyDtoDAsync(f.z, f.y, vectorBytes, f.b));
  OK(waitFor(*f.device, f.b, 10, "a copy"));
  CHECK(f.get(f.z) == 0);
  OK(cu.cuEventRecord(f.doneA, f.a));
  OK(cu.cuStreamWaitEvent(f.b, f.doneA, 0));
  OK(cu.cuMemcpyDtoDAsync(f.z, f.y, vectorBytes, f.b));
  OK(waitFor(*f.device, f.b, 10, "a copy"));
  CHECK(f.get(f.z) == 1);

  // The work of a stream outlives it.
  CUstream stream;
  OK(createStream(*f.device, &stream));
  OK(cu.cuMemsetD8Async(f.z, 0, vectorBytes, stream));
  destroyStream(*f.device, stream);
  CHECK(f.get(f.z) == 0);
}

/// Two streams fork and join inside of a graph, which keeps their order.
static void testGraphs(const char *path) {
  Fixture f(path);
  const Driver &cu = *f.device->driver;
  f.set(f.x, 1);
  f.set(f.y, 0);
  f.set(f.z, 0);
  Current current(*f.device);
  OK(current.status());
  CUgraph graph;
  CUgraphExec executable;
  uint64_t before = counts().launches;
  OK(cu.cuStreamBeginCapture(f.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(f.launch(f.a, f.x, f.y)); // y = 2 y + x
  OK(cu.cuEventRecord(f.doneA, f.a));
  OK(cu.cuStreamWaitEvent(f.b, f.doneA, 0));
  OK(f.launch(f.b, f.y, f.z)); // z = 2 z + y
  OK(cu.cuEventRecord(f.doneB, f.b));
  OK(cu.cuStreamWaitEvent(f.a, f.doneB, 0));
  OK(f.launch(f.a, f.z, f.y)); // y = 2 y + z
  OK(cu.cuStreamEndCapture(f.a, &graph));
  OK(cu.cuGraphInstantiate(&executable, graph, 0));
  OK(cu.cuGraphDestroy(graph));
  CHECK(f.get(f.y) == 0 && counts().launches == before);
  float x = 1, y = 0, z = 0;
  for (int i = 0; i < 3; ++i) {
    OK(cu.cuGraphLaunch(executable, f.a));
    y = 2 * y + x;
    z = 2 * z + y;
    y = 2 * y + z;
  }
  OK(waitFor(*f.device, f.a, 10, "three graphs"));
  CHECK(f.get(f.y) == y && f.get(f.z) == z);
  CHECK(counts().launches == before + 9 && counts().graph_launches == 3);
  OK(cu.cuGraphExecDestroy(executable));
}

/// What the driver forbids during a capture.
static void testCaptureRules(const char *path) {
  Fixture f(path);
  const Driver &cu = *f.device->driver;
  Current current(*f.device);
  OK(current.status());
  auto begin = [&] {
    OK(cu.cuStreamBeginCapture(f.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(f.launch(f.a, f.x, f.y));
  };
  CUgraph graph;
  CUdeviceptr memory;

  begin(); // a stream that does not come back
  OK(cu.cuEventRecord(f.doneA, f.a));
  OK(cu.cuStreamWaitEvent(f.b, f.doneA, 0));
  OK(f.launch(f.b, f.y, f.z));
  CHECK(cu.cuStreamEndCapture(f.b, &graph) ==
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(cu.cuStreamEndCapture(f.a, &graph) ==
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(cu.cuEventQuery(f.doneA) == CUDA_ERROR_CAPTURED_EVENT);

  begin(); // an allocation
  CHECK(cu.cuMemAlloc(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(f.launch(f.a, f.x, f.y) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cu.cuStreamEndCapture(f.a, &graph) ==
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin(); // a wait of the host
  CHECK(waitFor(*f.device, f.a, 10, "a capture") == TRAINC_DEVICE_FAILED);
  CHECK(
      strstr(trainc_last_error(), "cuStreamQuery while a stream is captured"));
  CHECK(cu.cuStreamEndCapture(f.a, &graph) ==
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  OK(cu.cuEventRecord(f.doneB, f.b)); // a wait for what is outside
  begin();
  CHECK(cu.cuStreamWaitEvent(f.a, f.doneB, 0) ==
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(cu.cuStreamEndCapture(f.a, &graph) ==
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  OK(f.launch(f.a, f.x, f.y)); // all of that is over
  OK(waitFor(*f.device, f.a, 10, "a launch"));
}

/// Calls that a driver would refuse, or that would be slow.
static void testArguments(const char *path) {
  Fixture f(path);
  const Driver &cu = *f.device->driver;
  float pageable[4] = {};
  CHECK(cu.cuMemFree(f.x) == CUDA_ERROR_INVALID_CONTEXT);
  Current current(*f.device);
  OK(current.status());
  void *arguments[] = {&f.x, &f.y};
  auto launch = [&](unsigned grid, unsigned block, CUstream stream) {
    return cu.cuLaunchKernel(f.push, grid, 1, 1, block, 1, 1, 0, stream,
                             arguments, nullptr);
  };
  CHECK(launch(0, 256, f.a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(4, 512, f.a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(4, 256, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cu.cuMemcpyHtoDAsync(f.x, pageable, 16, f.a) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemsetD8Async(f.x + 8, 0, vectorBytes, f.a) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemFree(f.x + 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(counts().pending == 0);

  trainc_kernel other = pushKernel;
  CUfunction function;
  other.threads = 512;
  CHECK(findKernel(*f.device, f.module, other, &function) ==
        TRAINC_UNSUPPORTED);
  CHECK(strstr(trainc_last_error(), "kernel 'push' has blocks of 512 threads"));
  other.name = "pull";
  CHECK(findKernel(*f.device, f.module, other, &function) ==
        TRAINC_DATA_CORRUPT);
}

/// The host cannot touch memory of the device.
static void testHostAccess(const char *path) {
  Fixture f(path);
  f.set(f.x, 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    float value = *reinterpret_cast<volatile float *>(f.x);
    _exit(value == 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  testFacts(atoi(argv[2]));
  testCopies();
  testStreams(argv[1]);
  testGraphs(argv[1]);
  testCaptureRules(argv[1]);
  testArguments(argv[1]);
  testHostAccess(argv[1]);
  trainc_fake_cuda_counts left = counts();
  CHECK(!left.contexts && !left.allocations && !left.pinned && !left.streams &&
        !left.events && !left.modules && !left.graphs && !left.executables &&
        !left.pending);
}
