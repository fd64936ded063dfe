// Two trainings of equal artifacts, seeds and inputs on a GPU whose memory another stream hammers all the time: losses, norms
// and parameters are equal bit by bit. What only now and then reads too early is found by many steps.
//
// usage: determinism ARTIFACT STEPS [plant]     (plant: the second training gets another input once, and must differ)
//
// RUN: %python %trainc_src/examples/gpt.py --layers 1 --width 32 --heads 2 --vocab 64 --seq 16 --batch 2 --bf16 > %t.mlir
// RUN: trainc %t.mlir --target=cuda --cuda-arch=host -o %t.so
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// DEFINE: %{run} = env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so LD_LIBRARY_PATH=%runtime_lib %t %t.so 4
// RUN: %{run} | FileCheck %s
// CHECK: 4 steps twice, {{[0-9]+}} copies of {{[0-9]+}} MiB beside them: equal bits
// RUN: not %{run} plant | FileCheck %s --check-prefix=PLANTED
// PLANTED: step {{[1-3]}}: loss {{.*}}, norm {{.*}}, not {{.*}}

#include "device.h"
#include "trainc/runtime.h"
#include <atomic>
#include <thread>

namespace {
/// Copies memory from end to end until it is destroyed.
class Hammer {
public:
  Hammer() {
    OK(openDevice(0, &device));
    bytes = device->driver->emulated ? 1 << 20 : 256 << 20;
    OK(createStream(*device, &stream));
    OK(allocate(*device, bytes, &from));
    OK(allocate(*device, bytes, &to));
    thread = std::thread([this] { run(); });
  }
  ~Hammer() {
    stop = true;
    thread.join();
    release(*device, from);
    release(*device, to);
    destroyStream(*device, stream);
    closeDevice(device);
  }
  Hammer(const Hammer &) = delete;
  Hammer &operator=(const Hammer &) = delete;

  uint64_t bytes = 0;
  std::atomic<uint64_t> copies = 0;

private:
  void run() {
    Current current(*device);
    OK(current.status());
    while (!stop) {
      for (int i = 0; i < 8; ++i)
        CHECK(device->driver->cuMemcpyDtoDAsync(i % 2 ? from : to,
                                                i % 2 ? to : from, bytes,
                                                stream) == CUDA_SUCCESS);
      OK(waitFor(*device, stream, 60, "copies"));
      copies += 8;
    }
  }

  Device *device = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr from = 0, to = 0;
  std::atomic<bool> stop = false;
  std::thread thread;
};

struct Training {
  std::vector<std::pair<double, double>> results; // losses, norms
  std::vector<std::vector<char>> parameters;
};
} // namespace

/// Of an input: small numbers, or indices that every table has.
static std::vector<char> draw(const trainc_port &port, uint64_t &state) {
  std::vector<char> data(port.bytes);
  uint64_t size = trainc_dtype_size(port.dtype);
  for (uint64_t i = 0; i < port.bytes / size; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto number = static_cast<int64_t>(state >> 33) % 10;
    auto real = static_cast<float>(number - 5) / 4;
    if (port.dtype == TRAINC_F32)
      memcpy(&data[i * size], &real, size);
    else
      memcpy(&data[i * size], &number, size); // little endian
  }
  return data;
}

static Training train(trainc_artifact *artifact, int steps, bool plant) {
  trainc_trainer_options options = {};
  options.size = sizeof(options);
  options.seed = 1;
  options.device = "cuda";
  trainc_trainer *trainer;
  OK(trainc_trainer_create(artifact, &options, &trainer));
  const trainc_descriptor &d = *trainc_trainer_descriptor(trainer);
  uint32_t entry = 0;
  while (d.entries[entry].kind != TRAINC_ENTRY_STEP)
    ++entry;
  Training training;
  uint64_t state = 1;
  for (int i = 0; i < steps; ++i) {
    std::vector<std::vector<char>> inputs;
    for (uint32_t k = 0; k < d.entries[entry].num_inputs; ++k) {
      const trainc_port &port = d.entries[entry].inputs[k];
      inputs.push_back(draw(port, state));
      if (plant && i == steps / 2)
        inputs.back()[0] ^= 1;
      OK(trainc_bind_input(trainer, entry, k, inputs.back().data(),
                           inputs.back().size()));
    }
    trainc_step_result result;
    OK(trainc_step(trainer, entry, &result));
    training.results.push_back({result.loss, result.grad_norm});
  }
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    const trainc_tensor &tensor = d.tensors[i];
    if (tensor.role != TRAINC_ROLE_MASTER)
      continue;
    training.parameters.emplace_back(tensor.bytes);
    OK(trainc_tensor_read(trainer, i, tensor.dtype,
                          training.parameters.back().data(), tensor.bytes));
  }
  trainc_trainer_destroy(trainer);
  return training;
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  int steps = atoi(argv[2]);
  trainc_artifact *artifact;
  OK(trainc_artifact_open(argv[1], &artifact));
  Hammer hammer;
  Training one = train(artifact, steps, false);
  Training two = train(artifact, steps, argc > 3);
  for (size_t i = 0; i < one.results.size(); ++i)
    if (memcmp(&one.results[i], &two.results[i], sizeof(one.results[i])) != 0) {
      printf("step %zu: loss %.17g, norm %.17g, not %.17g, %.17g\n", i,
             two.results[i].first, two.results[i].second, one.results[i].first,
             one.results[i].second);
      return 1;
    }
  if (one.parameters != two.parameters) {
    printf("parameters differ\n");
    return 1;
  }
  printf("%d steps twice, %llu copies of %llu MiB beside them: equal bits\n",
         steps, static_cast<unsigned long long>(hammer.copies),
         static_cast<unsigned long long>(hammer.bytes >> 20));
  trainc_artifact_close(artifact);
}
