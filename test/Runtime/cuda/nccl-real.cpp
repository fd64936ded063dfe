// NCCL itself with one rank on a real GPU: every kind and type, in place and with a
// target, memory that is registered, and all of it in a graph.
//
// REQUIRES: cuda-device, nccl-library
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBNCCL=%nccl_library %t

#include "Inputs/collectives.h"

/// A step of two collectives, one of them apart.
static void runStep(Gpu &gpu, Buffer &a, Buffer &b) {
  DeviceCollective c;
  c.count = 64;
  c.data = a.address;
  c.label = "a";
  OK(startCollectives(gpu.streams, *gpu.communicator, &c, 1));
  c.kind = TRAINC_REDUCE_SCATTER;
  c.data = b.address;
  c.label = "b";
  OK(runCollectives(gpu.streams, *gpu.communicator, &c, 1));
  OK(awaitCollectives(gpu.streams));
}

int main() {
  Gpu gpu(nullptr);
  CHECK(!gpu.driver().emulated);
  for (int kind = 0; kind < TRAINC_BARRIER; ++kind)
    for (uint32_t dtype : types)
      for (bool apart : {false, true})
        testOne(gpu, static_cast<trainc_collective_kind>(kind), dtype, nullptr,
                {0}, 0, 4099, apart);

  Buffer a(gpu, 256), b(gpu, 256);
  fill(TRAINC_F32, a, 0, 64);
  fill(TRAINC_F32, b, 1, 64);
  OK(registerMemory(*gpu.communicator, a.address, 256));
  runStep(gpu, a, b);
  OK(gpu.wait());
  {
    const Driver &cu = gpu.driver();
    Current current(*gpu.device);
    Recording recording;
    CUgraph graph;
    CUgraphExec executable;
    OK(cu.cuStreamBeginCapture(gpu.streams.compute,
                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    record(*gpu.communicator, &recording);
    runStep(gpu, a, b);
    record(*gpu.communicator, nullptr);
    OK(cu.cuStreamEndCapture(gpu.streams.compute, &graph));
    OK(cu.cuGraphInstantiate(&executable, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) {
      replay(*gpu.communicator, recording);
      OK(cu.cuGraphLaunch(executable, gpu.streams.compute));
    }
    OK(gpu.wait("three graphs"));
    OK(cu.cuGraphExecDestroy(executable));
  }
  CHECK(a.isSame() && b.isSame());
}
