// The same on a real GPU: an image of PTX that the driver compiles, copies in pieces,
// launches on two streams, and a graph of them. Memory of the device that was not
// written, and work that is not waited for, are for the driver of tests.
//
// REQUIRES: cuda-device
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t %S/Inputs/push.ptx %S/Inputs/kernels.mlir | FileCheck %s

#include "device.h"

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  Fixture f(argv[1], TRAINC_IMAGE_PTX, 80);
  Device &device = *f.device;
  const Driver &cu = *device.driver;
  CHECK(!cu.emulated && device.major >= 8 && device.processors > 0);
  CHECK(device.memory > UINT64_C(1) << 30 && *device.name);

  // More than a piece.
  std::vector<unsigned> out(pieceBytes / 2 + 3), back(out.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<unsigned>(i * 2654435761u);
  CUdeviceptr memory;
  OK(allocate(device, out.size() * sizeof(unsigned), &memory));
  OK(upload(device, memory, out.data(), out.size() * sizeof(unsigned)));
  OK(download(device, back.data(), memory, out.size() * sizeof(unsigned)));
  CHECK(back == out);
  release(device, memory);

  f.set(f.x, 1);
  f.set(f.y, 0);
  f.set(f.z, 0);
  Current current(device);
  OK(current.status());
  auto work = [&] {
    OK(f.launch(f.a, f.x, f.y)); // y = 2 y + x
    OK(cu.cuEventRecord(f.doneA, f.a));
    OK(cu.cuStreamWaitEvent(f.b, f.doneA, 0));
    OK(f.launch(f.b, f.y, f.z)); // z = 2 z + y
    OK(cu.cuEventRecord(f.doneB, f.b));
    OK(cu.cuStreamWaitEvent(f.a, f.doneB, 0));
    OK(f.launch(f.a, f.z, f.y)); // y = 2 y + z
  };
  CUgraph graph;
  CUgraphExec executable;
  work();
  OK(waitFor(device, f.a, 60, "three launches"));
  OK(cu.cuStreamBeginCapture(f.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  work();
  OK(cu.cuStreamEndCapture(f.a, &graph));
  OK(cu.cuGraphInstantiate(&executable, graph, 0));
  OK(cu.cuGraphDestroy(graph));
  OK(cu.cuGraphLaunch(executable, f.a));
  OK(cu.cuGraphLaunch(executable, f.a));
  OK(waitFor(device, f.a, 60, "two graphs"));
  OK(cu.cuGraphExecDestroy(executable));
  float x = 1, y = 0, z = 0;
  for (int i = 0; i < 3; ++i) {
    y = 2 * y + x;
    z = 2 * z + y;
    y = 2 * y + z;
  }
  CHECK(f.get(f.y) == y && f.get(f.z) == z);

  // The driver says what is wrong with an image.
  std::string text = readFile(argv[2]);
  trainc_image wrong = image(TRAINC_IMAGE_PTX, 80, text);
  CUmodule module;
  trainc_status status = loadImage(device, &wrong, 1, &module);
  // CHECK: TRAINC_DEVICE_FAILED CUDA device 0 ({{.+}}, sm_{{[0-9]+}}, driver of CUDA {{[0-9.]+}}) refuses the image for PTX of sm_80: cuModuleLoadDataEx: {{.*}}(CUDA_ERROR_
  printf("%s %s\n", trainc_status_name(status), trainc_last_error());
}
