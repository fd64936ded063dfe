// What a trainer runs on, of an artifact for two targets; what is said where that
// cannot be; a device that is too small, or that does not answer.
//
// RUN: trainc-emulate %S/Inputs/step.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// DEFINE: %{fake} = env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so
// RUN: env TRAINC_LIBCUDA=%t.nothing %t %t.image choose | FileCheck --check-prefix=MISSING %s
// RUN: %{fake} TRAINC_FAKE_CUDA_DEVICES=2 %t %t.image choose | FileCheck --check-prefix=THERE %s
// RUN: %{fake} %t %t.image images | FileCheck --check-prefix=IMAGES %s
// RUN: %{fake} %t %t.image chain | FileCheck --check-prefix=CHAIN %s
// RUN: %{fake} TRAINC_FAKE_CUDA_MEMORY=20000 %t %t.image small | FileCheck --check-prefix=SMALL %s
// RUN: %{fake} %t %t.image hang | FileCheck --check-prefix=HANG %s
// RUN: %{fake} %t %t.image beyond | FileCheck --check-prefix=BEYOND %s

#include "step.h"
#include <time.h>

static trainc_status make(trainc_artifact *artifact, const char *device,
                          trainc_trainer **out_trainer, double timeout = 0,
                          uint64_t limit = 0) {
  trainc_trainer_options options = {};
  options.size = sizeof(options);
  options.threads = 1;
  options.device = device;
  options.timeout = timeout;
  options.memory_limit = limit;
  return trainc_trainer_create(artifact, &options, out_trainer);
}

static void show(const char *what, trainc_artifact *artifact,
                 const char *device) {
  trainc_trainer *trainer = nullptr;
  trainc_status status = make(artifact, device, &trainer);
  const char *notice = status ? nullptr : trainc_trainer_notice(trainer);
  printf("%s, %s: %s%s%s%s\n", what, device ? device : "null",
         trainc_status_name(status), status ? ", " : " on ",
         status ? trainc_last_error() : trainc_trainer_device(trainer),
         notice ? "" : ".");
  if (notice)
    printf("  notice: %s\n", notice);
  if (!status)
    trainc_trainer_destroy(trainer);
}

// MISSING:      both, null: TRAINC_OK on cpu
// MISSING-NEXT:   notice: no CUDA driver: {{.*}}.nothing: cannot open {{.*}}; 'twice' runs on the CPU
// MISSING-NEXT: both, : TRAINC_OK on cpu
// MISSING-NEXT:   notice: no CUDA driver:
// MISSING-NEXT: both, cpu: TRAINC_OK on cpu.
// MISSING-NEXT: both, cuda: TRAINC_UNSUPPORTED, 'twice' cannot run on a GPU: no CUDA driver: {{.*}}; the artifact holds code for the processor, too (device 'cpu').
// MISSING-NEXT: both, cuda:1: TRAINC_UNSUPPORTED, 'twice' cannot run on a GPU: no CUDA driver
// MISSING-NEXT: both, gpu: TRAINC_INVALID_ARGUMENT, there is no device 'gpu': expected 'cpu', 'cuda' or 'cuda:NUMBER'
// MISSING-NEXT: both, cuda:-1: TRAINC_INVALID_ARGUMENT, there is no device 'cuda:-1'
// MISSING-NEXT: GPU alone, null: TRAINC_UNSUPPORTED, 'twice' cannot run on a GPU: no CUDA driver: {{.*}}; the artifact holds no code for another device.
// MISSING-NEXT: GPU alone, cpu: TRAINC_UNSUPPORTED, artifact 'twice' has no code for device 'cpu', but for 'cuda': choose that, or compile it with --target=cpu
// MISSING-NEXT: CPU alone, null: TRAINC_OK on cpu.
// MISSING-NEXT: CPU alone, cuda: TRAINC_UNSUPPORTED, artifact 'twice' has no code for device 'cuda', but for 'cpu': choose that, or compile it with --target=cuda
//
// THERE:      both, null: TRAINC_OK on cuda:0 (emulated GPU, sm_90).
// THERE-NEXT: both, : TRAINC_OK on cuda:0 (emulated GPU, sm_90).
// THERE-NEXT: both, cpu: TRAINC_OK on cpu.
// THERE-NEXT: both, cuda: TRAINC_OK on cuda:0 (emulated GPU, sm_90).
// THERE-NEXT: both, cuda:1: TRAINC_OK on cuda:1 (emulated GPU, sm_90).
// THERE:      GPU alone, null: TRAINC_OK on cuda:0
// THERE-NEXT: GPU alone, cpu: TRAINC_UNSUPPORTED
// THERE-NEXT: CPU alone, null: TRAINC_OK on cpu.
static void testChoice(Tables &tables) {
  trainc_artifact *both = tables.open(tables.gpu);
  for (const char *device :
       {(const char *)nullptr, "", "cpu", "cuda", "cuda:1", "gpu", "cuda:-1"})
    show("both", both, device);
  tables.gpu.next = nullptr;
  trainc_artifact *gpu = tables.open(tables.gpu);
  show("GPU alone", gpu, nullptr);
  show("GPU alone", gpu, "cpu");
  trainc_artifact *cpu = tables.open(tables.cpu);
  show("CPU alone", cpu, nullptr);
  show("CPU alone", cpu, "cuda");
  for (trainc_artifact *one : {both, gpu, cpu})
    trainc_artifact_close(one);
}

// A device that runs none of the images; a processor that lacks a feature.
// IMAGES:      future, null: TRAINC_OK on cpu
// IMAGES-NEXT:   notice: CUDA device 0 (emulated GPU, sm_90) runs none of the artifact's images: PTX of sm_100; 'twice' runs on the CPU
// IMAGES-NEXT: future, cuda: TRAINC_UNSUPPORTED, 'twice' cannot run on a GPU: CUDA device 0 (emulated GPU, sm_90) runs none of
// IMAGES-NEXT: features, null: TRAINC_OK on cuda:0
// IMAGES-NEXT: features, cpu: TRAINC_UNSUPPORTED, artifact 'twice' is for processor 'x86-64' and needs of-the-future
static void testImages(Tables &tables) {
  trainc_image future = tables.image;
  future.kind = TRAINC_IMAGE_PTX;
  future.arch = 100;
  trainc_artifact *artifact = tables.open(tables.gpu);
  tables.gpu.images = &future;
  show("future", artifact, nullptr);
  show("future", artifact, "cuda");
  tables.gpu.images = &tables.image;
  tables.cpu.features = "+of-the-future";
  show("features", artifact, nullptr);
  show("features", artifact, "cpu");
  trainc_artifact_close(artifact);
}

// CHAIN:      twice: TRAINC_DATA_CORRUPT, the artifact is damaged: it has two codes for target 0
// CHAIN-NEXT: hash: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other states, entries or collectives
// CHAIN-NEXT: entries: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other
// CHAIN-NEXT: ports: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other
// CHAIN-NEXT: checks: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other
// CHAIN-NEXT: tensors: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other
// CHAIN-NEXT: scalars: TRAINC_DATA_CORRUPT, the artifact is damaged: its targets have other
// CHAIN-NEXT: version: TRAINC_ABI_MISMATCH
// CHAIN-NEXT: function: TRAINC_DATA_CORRUPT, the artifact is damaged: kernel 0
// CHAIN-NEXT: threads: TRAINC_DATA_CORRUPT, the artifact is damaged: kernel 0
// CHAIN-NEXT: image: TRAINC_DATA_CORRUPT, the artifact is damaged: image 0
static void testChain(Tables &tables) {
  trainc_descriptor cpu = tables.cpu, gpu = tables.gpu;
  auto refuse = [&](const char *what) {
    trainc_artifact *artifact;
    trainc_status status =
        trainc_artifact_open_descriptor(&tables.gpu, &artifact);
    printf("%s: %s, %s\n", what, trainc_status_name(status),
           trainc_last_error());
    CHECK(status);
    tables.cpu = cpu;
    tables.gpu = gpu;
  };
  trainc_descriptor other = cpu;
  tables.cpu.next = &other;
  refuse("twice");
  tables.cpu.state_hash = 3;
  refuse("hash");
  tables.cpu.num_entries = 2;
  refuse("entries");

  trainc_entry changed[3] = {entries[0], entries[1], entries[2]};
  tables.cpu.entries = changed;
  trainc_port ports[2] = {inputs[0], inputs[1]};
  ports[1].name = "z";
  changed[0].inputs = ports;
  refuse("ports");
  changed[0] = entries[0];
  trainc_index_check check = checks[0];
  check.high = 9;
  changed[0].checks = &check;
  tables.cpu.entries = changed;
  refuse("checks");

  trainc_tensor others[TENSORS];
  memcpy(others, tensors, sizeof(others));
  others[T_STATE].init = TRAINC_INIT_UNIFORM;
  tables.cpu.tensors = others;
  refuse("tensors");
  trainc_scalar renamed[NUM_SCALARS];
  memcpy(renamed, scalars, sizeof(renamed));
  renamed[LR].name = "rate";
  tables.cpu.scalars = renamed;
  refuse("scalars");
  tables.cpu.abi_version = 4;
  refuse("version");

  trainc_kernel kernels[KERNELS];
  memcpy(kernels, cpuKernels, sizeof(kernels));
  kernels[0].function = nullptr;
  tables.cpu.kernels = kernels;
  refuse("function");
  memcpy(kernels, gpuKernels, sizeof(kernels));
  kernels[0].threads = 0;
  tables.gpu.kernels = kernels;
  refuse("threads");
  trainc_image image = tables.image;
  image.data = nullptr;
  tables.gpu.images = &image;
  refuse("image");
}

// SMALL:      TRAINC_OUT_OF_MEMORY, 'scalars' of artifact 'twice': no memory for 0.0 MiB on CUDA device 0 (emulated GPU): 0.0 of 0.0 MiB are free. Without inputs and outputs the artifact needs 28680 bytes:
// SMALL-NEXT: {{^ *}}4096  parameters: parameters
// SMALL-NEXT: {{^ *}}4096  compute copies: copies
// SMALL-NEXT: {{^ *}}4096  gradients: gradients
// SMALL-NEXT: {{^ *}}4096  optimizer states: states
// SMALL-NEXT: {{^ *}}4096  scalars: scalars
// SMALL-NEXT: {{^ *}}4096  activations and workspace: workspace
// SMALL-NEXT: {{^ *}}4096  buffers: buffers
// SMALL-NEXT: {{^ *}}8  scratch of running tiles
// SMALL-NEXT: left: 0 allocations, 0 contexts
// SMALL-NEXT: TRAINC_OUT_OF_MEMORY, artifact 'twice' needs 32768 bytes; memory_limit is 32767; trainc --memory-limit makes artifacts that need less
static void testSmall(Tables &tables) {
  trainc_artifact *artifact = tables.open(tables.gpu);
  trainc_trainer *trainer;
  // A device that is there, but too small, is not passed over.
  trainc_status status = make(artifact, nullptr, &trainer);
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
  printf("left: %d allocations, %d contexts\n", (int)counts().allocations,
         (int)counts().contexts);
  status = make(artifact, "cuda", &trainer, 0, 32767);
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
  trainc_artifact_close(artifact);
}

// HANG: TRAINC_INVALID_ARGUMENT, trainer options: expected a timeout of 0 or more seconds, got -1
// HANG-NEXT: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU) did not end the commands of the trainer within 0.2 seconds
// HANG-NEXT: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU) did not end the commands
// HANG-NEXT: TRAINC_DEVICE_FAILED, CUDA device 0
static void testHang(Tables &tables) {
  trainc_artifact *artifact = tables.open(tables.gpu);
  trainc_trainer *trainer;
  auto print = [](trainc_status status) {
    printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
  };
  print(make(artifact, nullptr, &trainer, -1));
  OK(make(artifact, "cuda", &trainer, 0.2));
  static float x[N];
  OK(trainc_bind_input(trainer, EVAL, 0, x, sizeof(x)));
  OK(trainc_eval(trainer, EVAL));
  OK(trainc_bind_input(trainer, PUSHED, 0, x, sizeof(x)));
  trainc_fake_cuda_set_hang(1);
  trainc_step_result result;
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  OK(trainc_step(trainer, PUSHED, nullptr));
  print(trainc_step(trainer, PUSHED, &result));
  double value;
  print(trainc_get_scalar(trainer, "update", &value));
  print(trainc_eval(trainer, EVAL));
  trainc_trainer_destroy(trainer);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds = (double)(end.tv_sec - begin.tv_sec) +
                   1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  CHECK(seconds > 0.2 && seconds < 2);
  trainc_artifact_close(artifact);
}

// A kernel that reads beyond the end of an input. Whoever asks hears it, from then on.
// BEYOND: TRAINC_DEVICE_FAILED, CUDA device 0 (emulated GPU) failed: cuEventQuery:
// BEYOND: step: TRAINC_INVALID_ARGUMENT
// BEYOND: save: TRAINC_INVALID_ARGUMENT
static void testBeyond(Tables &tables) {
  trainc_command commands[1] = {evalList[0]};
  commands[0].tiles = 5;
  trainc_entry changed[3] = {entries[0], entries[1], entries[2]};
  changed[2].lists[0] = {1, commands};
  trainc_operand operands[4];
  memcpy(operands, showOperands, sizeof(operands));
  operands[2].base = operands[3].base = WORKSPACE;
  commands[0].operands = operands;
  tables.gpu.entries = changed;
  trainc_artifact *artifact = tables.open(tables.gpu);
  trainc_trainer *trainer;
  OK(make(artifact, "cuda", &trainer));
  static float x[N];
  trainc_step_result result;
  OK(trainc_bind_input(trainer, PUSHED, 0, x, sizeof(x)));
  trainc_status status = trainc_step(trainer, PUSHED, &result);
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
  status = trainc_step(trainer, PUSHED, &result);
  printf("step: %s\n", trainc_status_name(status));
  status = trainc_save(trainer, "/dev/null/nothing");
  printf("save: %s\n", trainc_status_name(status));
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  Tables tables(argv[1]);
  std::string work = argv[2];
  if (work == "choose")
    testChoice(tables);
  else if (work == "images")
    testImages(tables);
  else if (work == "chain")
    testChain(tables);
  else if (work == "small")
    testSmall(tables);
  else if (work == "hang")
    testHang(tables);
  else
    testBeyond(tables);
}
