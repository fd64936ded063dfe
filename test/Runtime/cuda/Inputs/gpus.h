// Ranks with a GPU each, for tests of collectives between GPUs.
#ifndef TRAINC_TEST_CUDA_GPUS_H
#define TRAINC_TEST_CUDA_GPUS_H

#include "../../Inputs/ranks.h"

#include "core/convert.h"
#include "cuda/streams.h"
#include "trainc/fake_cuda.h"
#include "trainc/fake_nccl.h"

using namespace trainc::cuda;

inline trainc_fake_nccl_counts ncclCounts() {
  trainc_fake_nccl_counts counts;
  trainc_fake_nccl_get_counts(&counts);
  return counts;
}
inline trainc_fake_cuda_counts cudaCounts() {
  trainc_fake_cuda_counts counts;
  trainc_fake_cuda_get_counts(&counts);
  return counts;
}

/// A device, a communicator of all ranks, and the streams of command lists.
struct Gpu {
  Device *device = nullptr;
  Communicator *communicator = nullptr;
  Streams streams;
  CUevent end = nullptr;

  explicit Gpu(trainc_comm *comm) {
    OK(openDevice(0, &device));
    OK(openCommunicator(*device, comm, &communicator));
    OK(openStreams(*device, /*ranks=*/true, streams));
    OK(createEvent(*device, &end));
  }
  ~Gpu() {
    closeCommunicator(communicator);
    destroyEvent(*device, end);
    closeStreams(streams);
    closeDevice(device);
  }
  Gpu(const Gpu &) = delete;
  Gpu &operator=(const Gpu &) = delete;

  const Driver &driver() const { return *device->driver; }

  /// Waits for all commands so far.
  trainc_status wait(const char *what = "a test") {
    {
      Current current(*device);
      OK(driver().cuEventRecord(end, streams.compute));
    }
    return waitFor(*communicator, end, enqueued(*communicator), what);
  }
};

/// Elements in memory of the device, and what is to be there.
struct Buffer {
  Gpu &gpu;
  CUdeviceptr address = 0;
  std::vector<char> bytes;

  Buffer(Gpu &gpu, uint64_t size) : gpu(gpu), bytes(size) {
    OK(allocate(*gpu.device, size, &address));
  }
  ~Buffer() { release(*gpu.device, address); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  void upload() {
    OK(trainc::cuda::upload(*gpu.device, address, bytes.data(), bytes.size()));
  }
  /// Whether the device has these bytes.
  bool isSame() {
    std::vector<char> back(bytes.size());
    OK(download(*gpu.device, back.data(), address, back.size()));
    return back == bytes;
  }
};

#endif
