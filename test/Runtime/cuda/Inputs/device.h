// What the tests of the CUDA driver's layer share.
#ifndef TRAINC_TEST_CUDA_DEVICE_H
#define TRAINC_TEST_CUDA_DEVICE_H

#include "check.h"
#include "cuda/device.h"
#include "trainc/fake_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

using namespace trainc;
using namespace trainc::cuda;

inline std::string readFile(const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  std::string bytes;
  char piece[4096];
  while (size_t count = fread(piece, 1, sizeof(piece), file))
    bytes.append(piece, count);
  fclose(file);
  return bytes;
}

inline trainc_image image(trainc_image_kind kind, uint32_t arch,
                          const std::string &bytes) {
  return {kind, arch, 0, 0, bytes.size(), bytes.data()};
}

constexpr uint32_t numbers = 1024;
constexpr uint64_t vectorBytes = numbers * sizeof(float);
constexpr trainc_kernel pushKernel = {"push", nullptr, 0, 256, 0};

/// A device with an image, two streams, an event for each, and three vectors.
struct Fixture {
  Device *device = nullptr;
  CUmodule module = nullptr;
  CUfunction push = nullptr;
  CUstream a = nullptr, b = nullptr;
  CUevent doneA = nullptr, doneB = nullptr;
  CUdeviceptr x = 0, y = 0, z = 0;
  float *host = nullptr; // pinned

  explicit Fixture(const char *path, trainc_image_kind kind = TRAINC_IMAGE_HOST,
                   uint32_t arch = 0) {
    OK(openDevice(0, &device));
    std::string bytes = readFile(path);
    trainc_image images[] = {image(kind, arch, bytes)};
    OK(loadImage(*device, images, 1, &module));
    OK(findKernel(*device, module, pushKernel, &push));
    OK(createStream(*device, &a));
    OK(createStream(*device, &b));
    OK(createEvent(*device, &doneA));
    OK(createEvent(*device, &doneB));
    for (CUdeviceptr *address : {&x, &y, &z})
      OK(allocate(*device, vectorBytes, address));
    void *memory;
    OK(allocatePinned(*device, vectorBytes, &memory));
    host = static_cast<float *>(memory);
  }
  ~Fixture() {
    releasePinned(*device, host);
    for (CUdeviceptr address : {x, y, z})
      release(*device, address);
    destroyEvent(*device, doneA);
    destroyEvent(*device, doneB);
    destroyStream(*device, a);
    destroyStream(*device, b);
    unloadImage(*device, module);
    closeDevice(device);
  }
  Fixture(const Fixture &) = delete;
  Fixture &operator=(const Fixture &) = delete;

  void set(CUdeviceptr to, float value) {
    std::vector<float> values(numbers, value);
    OK(upload(*device, to, values.data(), vectorBytes));
  }
  /// The value that all numbers have.
  float get(CUdeviceptr from) {
    std::vector<float> values(numbers);
    OK(download(*device, values.data(), from, vectorBytes));
    for (float value : values)
      CHECK(memcmp(&value, &values[0], sizeof(float)) == 0);
    return values[0];
  }
  CUresult launch(CUstream stream, CUdeviceptr from, CUdeviceptr to) {
    void *arguments[] = {&from, &to};
    return device->driver->cuLaunchKernel(push, 4, 1, 1, 256, 1, 1, 0, stream,
                                          arguments, nullptr);
  }
};

inline trainc_fake_cuda_counts counts() {
  trainc_fake_cuda_counts result;
  trainc_fake_cuda_get_counts(&result);
  return result;
}

#endif
