// What goes wrong with a GPU is an error that names it: a driver that is missing or
// too old, no device, images for other devices, a kernel that writes where it may
// not, work that does not end.
//
// RUN: trainc-emulate %S/Inputs/kernels.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%t.nothing %t open | FileCheck --check-prefix=MISSING %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_emulator.so %t open | FileCheck --check-prefix=OLD %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_DEVICES=0 %t open | FileCheck --check-prefix=NONE %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_ARCH=86 %t images %t.image | FileCheck --check-prefix=IMAGES %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so %t beyond %t.image | FileCheck --check-prefix=BEYOND %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_HANG=1 %t hang | FileCheck --check-prefix=HANG %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so %t freed | FileCheck --check-prefix=FREED %s

#include "device.h"
#include <time.h>

static void show(trainc_status status) {
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
}

// MISSING: TRAINC_UNSUPPORTED, no CUDA driver: {{.*}}.nothing: cannot open
// OLD: TRAINC_UNSUPPORTED, the CUDA driver '{{.*}}' has no cuInit: it is older than CUDA 11.4
// NONE: TRAINC_UNSUPPORTED, no CUDA device: cuInit: there is no device (CUDA_ERROR_NO_DEVICE)
static void testOpen() {
  // What was found stays.
  for (int i = 0; i < 2; ++i) {
    Device *device;
    trainc_status status = openDevice(0, &device);
    CHECK(status && !device);
    if (i)
      show(status);
  }
}

/// The images that devices choose: of all, of those without PTX, of none.
static void testChoice() {
  const trainc_image all[] = {{TRAINC_IMAGE_CUBIN, 90, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_PTX, 80, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_CUBIN, 80, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_CUBIN, 87, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_PTX, 100, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_CUBIN, 100, 0, 0, 0, nullptr},
                              {TRAINC_IMAGE_HOST, 0, 0, 0, 0, nullptr}};
  auto check = [&](int major, int minor, bool emulated,
                   const trainc_image *is) {
    CHECK(chooseImage(all, 7, major, minor, emulated) == is);
  };
  check(7, 5, false, nullptr);
  check(8, 0, false, &all[2]);
  check(8, 6, false, &all[2]);
  check(8, 7, false, &all[3]);
  check(8, 9, false, &all[3]);
  check(9, 0, false, &all[0]);
  check(10, 0, false, &all[5]);
  check(10, 3, false, &all[5]);
  check(11, 0, false, &all[4]);
  check(12, 0, false, &all[4]);
  check(9, 0, true, &all[6]);
  CHECK(chooseImage(all, 2, 8, 6, false) == &all[1]);
  CHECK(chooseImage(all, 1, 10, 0, false) == nullptr);
  CHECK(chooseImage(all, 6, 9, 0, true) == &all[0]);
  CHECK(chooseImage(nullptr, 0, 9, 0, false) == nullptr);
}

static void testImages(const char *path) {
  testChoice();
  Device *device;
  OK(openDevice(0, &device));
  std::string good = readFile(path), ptx = ".version 9.0\n.target sm_80\n";
  CUmodule module;
  // PTX in an artifact has no 0 behind it.
  std::string text = ptx + ".address_size 64";
  // The device of this run is an sm_86.
  trainc_image images[] = {
      image(TRAINC_IMAGE_CUBIN, 80, good), image(TRAINC_IMAGE_CUBIN, 89, ptx),
      image(TRAINC_IMAGE_CUBIN, 90, ptx), image(TRAINC_IMAGE_PTX, 90, ptx),
      image(TRAINC_IMAGE_PTX, 80, text)};
  images[4].bytes = ptx.size();
  OK(loadImage(*device, images, 5, &module));
  unloadImage(*device, module);
  // IMAGES: TRAINC_UNSUPPORTED, CUDA device 0 (emulated GPU, sm_86) runs none of the artifact's images: sm_89, sm_90, PTX of sm_90
  show(loadImage(*device, images + 1, 3, &module));
  CHECK(!module);
  // IMAGES: TRAINC_UNSUPPORTED, CUDA device 0 (emulated GPU, sm_86) runs none of the artifact's images: it has none
  show(loadImage(*device, nullptr, 0, &module));
  // IMAGES: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU, sm_86, driver of CUDA 13.0) refuses the image for PTX of sm_80: cuModuleLoadDataEx: the image is not for the emulator, but 27 bytes of PTX (CUDA_ERROR_NO_BINARY_FOR_GPU)
  show(loadImage(*device, images + 1, 4, &module));
  closeDevice(device);
  CHECK(counts().modules == 0);
}

static void testBeyond(const char *path) {
  Fixture f(path);
  trainc_kernel kernel = {"beyond", nullptr, 0, 64, 0};
  CUfunction function;
  OK(findKernel(*f.device, f.module, kernel, &function));
  const Driver &cu = *f.device->driver;
  {
    Current current(*f.device);
    OK(current.status());
    void *arguments[] = {&f.x};
    OK(cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, f.a, arguments,
                         nullptr));
    OK(f.launch(f.a, f.x, f.y));
  }
  // BEYOND: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU) failed: cuStreamQuery: {{.*}}access
  // BEYOND: beyond
  // BEYOND: (CUDA_ERROR_LAUNCH_FAILED)
  show(waitFor(*f.device, f.a, 10, "a launch"));
  // Nothing works from then on; what came behind was not run.
  std::vector<float> values(numbers);
  CHECK(download(*f.device, values.data(), f.x, vectorBytes) ==
        TRAINC_DEVICE_FAILED);
  CUdeviceptr memory;
  CHECK(allocate(*f.device, 16, &memory) == TRAINC_DEVICE_FAILED);
  CHECK(counts().launches == 1);
}

static void testHang() {
  Device *device;
  OK(openDevice(0, &device));
  CUdeviceptr memory;
  OK(allocate(*device, 16, &memory));
  CUstream stream;
  OK(createStream(*device, &stream));
  Current current(*device);
  OK(device->driver->cuMemsetD8Async(memory, 0, 16, stream));
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  // HANG: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU) did not end a fill within 0.2 seconds
  show(waitFor(*device, stream, 0.2, "a fill"));
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds = static_cast<double>(end.tv_sec - begin.tv_sec) +
                   1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
  CHECK(seconds >= 0.2 && seconds < 30);
  // No seconds are a question.
  CHECK(waitFor(*device, stream, 0, "a fill") == TRAINC_DEVICE_FAILED);
}

/// Pinned memory that is freed while a copy from it is on its way: the driver of
/// tests ends the copy first, as a driver does.
static void testFreed() {
  Device *device;
  OK(openDevice(0, &device));
  CUdeviceptr memory;
  void *host;
  CUstream stream;
  OK(allocate(*device, 16, &memory));
  OK(allocatePinned(*device, 16, &host));
  OK(createStream(*device, &stream));
  memset(host, 5, 16);
  {
    Current current(*device);
    OK(device->driver->cuMemcpyHtoDAsync(memory, host, 16, stream));
  }
  releasePinned(*device, host);
  char back[16];
  OK(download(*device, back, memory, 16));
  // FREED: 5 5
  printf("%d %d\n", back[0], back[15]);
  release(*device, memory);
  destroyStream(*device, stream);
  closeDevice(device);
}

int main(int argc, char **argv) {
  std::string test = argc > 1 ? argv[1] : "";
  if (test == "open")
    testOpen();
  else if (test == "images" && argc == 3)
    testImages(argv[2]);
  else if (test == "beyond" && argc == 3)
    testBeyond(argv[2]);
  else if (test == "hang")
    testHang();
  else if (test == "freed")
    testFreed();
  else
    return 2;
}
