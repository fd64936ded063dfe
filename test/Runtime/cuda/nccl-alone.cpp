// Collectives of one rank alone, of all kinds and many types, among commands and apart, in a graph that is launched again
// and again: all bits are those of the same commands without them.
//
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBNCCL=%runtime_lib/libtrainc_fake_nccl.so %t

#include "Inputs/check.h"
#include "cuda/streams.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

using namespace trainc;
using namespace trainc::cuda;

constexpr uint64_t elements = 3000, bytes = elements * sizeof(double);
constexpr int launches = 3;

namespace {
struct Buffer {
  CUdeviceptr address;
  std::vector<char> content;
};

/// Copies between buffers, as commands would, with collectives on each of them.
struct Work {
  Device *device = nullptr;
  Communicator *communicator = nullptr;
  Streams streams;
  CUevent end = nullptr;
  Buffer from[5], to[5];

  Work() {
    OK(openDevice(0, &device));
    OK(openCommunicator(*device, nullptr, &communicator));
    OK(openStreams(*device, /*ranks=*/true, streams));
    OK(createEvent(*device, &end));
    uint32_t state = 1;
    for (Buffer *buffers : {from, to})
      for (int i = 0; i < 5; ++i) {
        Buffer &buffer = buffers[i];
        OK(allocate(*device, bytes, &buffer.address));
        buffer.content.resize(bytes);
        // Small numbers of any type, none of them special.
        for (char &c : buffer.content)
          c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 27);
        OK(upload(*device, buffer.address, buffer.content.data(), bytes));
      }
  }
  ~Work() {
    closeCommunicator(communicator);
    destroyEvent(*device, end);
    closeStreams(streams);
    for (Buffer *buffers : {from, to})
      for (int i = 0; i < 5; ++i)
        release(*device, buffers[i].address);
    closeDevice(device);
  }

  DeviceCollective collective(int buffer, trainc_collective_kind kind,
                              uint32_t dtype) {
    DeviceCollective c;
    c.kind = kind;
    c.dtype = dtype;
    c.count = bytes / trainc_dtype_size(dtype);
    c.data = to[buffer].address;
    c.label = "alone";
    return c;
  }

  void copy(int buffer) {
    OK(device->driver->cuMemcpyDtoDAsync(
        to[buffer].address, from[buffer].address, bytes, streams.compute));
  }

  void enqueueAll(uint32_t dtype) {
    DeviceCollective all[] = {collective(0, TRAINC_ALL_REDUCE, dtype),
                              collective(1, TRAINC_REDUCE_SCATTER, dtype),
                              collective(2, TRAINC_ALL_GATHER, dtype),
                              collective(3, TRAINC_BROADCAST, dtype),
                              collective(4, TRAINC_ALL_REDUCE, dtype)};
    for (int i = 0; i < 5; ++i)
      copy(i);
    OK(startCollectives(streams, *communicator, &all[0], 2));
    OK(runCollectives(streams, *communicator, &all[2], 2));
    OK(awaitCollectives(streams));
    OK(startCollectives(streams, *communicator, &all[4], 1));
    OK(awaitCollectives(streams));
  }

  void wait() {
    OK(device->driver->cuEventRecord(end, streams.compute));
    OK(waitFor(*communicator, end, enqueued(*communicator), "a test"));
  }

  void check() {
    std::vector<char> back(bytes);
    for (int i = 0; i < 5; ++i) {
      OK(download(*device, back.data(), to[i].address, bytes));
      CHECK(back == from[i].content);
      OK(upload(*device, to[i].address, to[i].content.data(), bytes));
    }
  }

  void test(uint32_t dtype) {
    Current current(*device);
    OK(current.status());
    enqueueAll(dtype);
    wait();
    check();
    const Driver &cu = *device->driver;
    Recording recording;
    CUgraph graph;
    CUgraphExec executable;
    record(*communicator, &recording);
    OK(cu.cuStreamBeginCapture(streams.compute,
                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    enqueueAll(dtype);
    record(*communicator, nullptr);
    OK(cu.cuStreamEndCapture(streams.compute, &graph));
    OK(cu.cuGraphInstantiate(&executable, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    CHECK(recording.sites.size() == 5);
    for (int i = 0; i < launches; ++i) {
      replay(*communicator, recording);
      OK(cu.cuGraphLaunch(executable, streams.compute));
      wait();
      check();
    }
    OK(cu.cuGraphExecDestroy(executable));
  }
};
} // namespace

int main() {
  Work work;
  for (uint32_t dtype : {TRAINC_F32, TRAINC_BF16, TRAINC_F16, TRAINC_F64,
                         TRAINC_I32, TRAINC_I64})
    work.test(dtype);
  for (Buffer &buffer : work.to)
    OK(registerMemory(*work.communicator, buffer.address, bytes));
  work.test(TRAINC_F32);
  for (Buffer &buffer : work.to)
    OK(forgetMemory(*work.communicator, buffer.address));
  puts("bits are equal");
}
