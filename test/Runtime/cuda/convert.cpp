// A state on a GPU in other types, and back: an arena is made beside the old one if the
// documented number of bytes is free, and else where that was, by way of the host; never
// are there two of them then. The bits are those of a conversion on the processor. If the host
// has no memory for that, nothing has changed.
//
// RUN: trainc-emulate %S/Inputs/step.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so %t %t.image

#include "step.h"
#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool refuseMemory = false;

extern "C" void *mmap(void *at, size_t bytes, int protection, int flags,
                      int file, off_t offset) {
  if (refuseMemory && file < 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void *>(
      syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

/// What a trainer holds that has run a step: nine arenas, scratch, inputs and outputs.
constexpr uint64_t PAGE = 4096, HELD = 10 * PAGE;

/// An arena is one page: (4096 / 256 + 1) 256 x 1.2, rounded up.
constexpr uint64_t NEED = 5223;

static trainc_status convert(const Trainer &one, const char *dtype,
                             uint32_t what, uint64_t limit = 0) {
  trainc_convert_options options = {};
  options.size = sizeof(options);
  options.dtype = dtype;
  options.what = what;
  options.memory_limit = limit;
  return trainc_convert(one.t, &options);
}

static trainc_memory memoryOf(const Trainer &one) {
  trainc_memory memory;
  OK(trainc_memory_use(one.t, &memory));
  return memory;
}

static bool sameTensors(const Trainer &a, const Trainer &b) {
  for (uint32_t i = 0; i < TENSORS; ++i)
    if (i != T_GRADIENT && a.tensor(i) != b.tensor(i))
      return false;
  return true;
}

static void testTypes(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  for (unsigned i = 0; i < 6; ++i)
    cpu.stepAway(i), gpu.stepAway(i);
  for (const char *dtype : {"bf16", "f64", "f16", "f32"}) {
    for (Trainer *one : {&cpu, &gpu})
      OK(convert(*one, dtype, TRAINC_CONVERT_PARAMETERS));
    CHECK(sameTensors(cpu, gpu));
    bool other = strcmp(dtype, "f32") != 0;
    gpu.fill(9);
    if (other)
      CHECK(trainc_step(gpu.t, STEP, nullptr) == TRAINC_MISMATCH);
  }
  // As before, and the window is still open.
  for (unsigned i = 6; i < 12; ++i)
    cpu.stepAway(i), gpu.stepAway(i);
  CHECK(sameState(cpu, gpu));
  trainc_memory memory = memoryOf(gpu);
  CHECK(memory.converted_beside == 4 && memory.converted_by_host == 0);
  for (Trainer *one : {&cpu, &gpu}) {
    OK(convert(*one, "bf16", 0));
    OK(convert(*one, "f32", 0));
  }
  CHECK(sameTensors(cpu, gpu));
  CHECK(memoryOf(gpu).total == HELD);
}

/// With `left` bytes free: the way, and the most that is held.
static void testWay(trainc_artifact *artifact, uint64_t left, bool beside) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  cpu.stepAway(0), gpu.stepAway(0);
  CHECK(memoryOf(gpu).total == HELD);
  for (Trainer *one : {&cpu, &gpu})
    OK(convert(*one, "f16", TRAINC_CONVERT_STATES,
               one == &gpu ? HELD + left : 0));
  trainc_memory memory = memoryOf(gpu);
  CHECK(memory.converted_beside == beside &&
        memory.converted_by_host == !beside);
  CHECK(memory.peak == HELD + (beside ? PAGE : 0) && memory.total == HELD);
  CHECK(sameTensors(cpu, gpu));
}

/// The same by the device's own memory.
static void testDevice(trainc_artifact *artifact, uint64_t left, bool beside) {
  Trainer gpu(artifact, "cuda");
  gpu.stepAway(0);
  std::vector<char> before = gpu.tensor(T_COMPUTE);
  trainc_fake_cuda_set_memory(HELD + left);
  uint64_t most = counts().allocations;
  OK(convert(gpu, "f16", TRAINC_CONVERT_STATES));
  trainc_memory memory = memoryOf(gpu);
  CHECK(memory.converted_beside == beside &&
        memory.converted_by_host == !beside);
  CHECK(counts().allocations == most && gpu.tensor(T_COMPUTE) == before);
  trainc_fake_cuda_set_memory(1 << 30);
}

/// What is refused has changed nothing.
static void testRefusals(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  cpu.stepAway(0), gpu.stepAway(0);
  CHECK(convert(gpu, "f64", TRAINC_CONVERT_STATES, HELD) ==
        TRAINC_OUT_OF_MEMORY);
  CHECK(!strcmp(trainc_last_error(),
                "the conversion needs 8192 bytes for arena 'states' on the "
                "GPU, where 4096 are free, with the 4096 that it has now"));
  CHECK(convert(gpu, "f16", TRAINC_CONVERT_STATES, HELD - 1) ==
        TRAINC_OUT_OF_MEMORY);
  CHECK(!strcmp(trainc_last_error(),
                "the conversion needs 40960 bytes; memory_limit is 40959"));
  trainc_convert_options options = {};
  options.size = sizeof(options);
  options.dtype = "f16";
  options.device = "cpu";
  CHECK(trainc_convert(gpu.t, &options) == TRAINC_INVALID_ARGUMENT);
  options.dtype = nullptr;
  options.device = "cuda";
  options.artifact = artifact;
  CHECK(trainc_convert(gpu.t, &options) == TRAINC_UNSUPPORTED);
  CHECK(sameState(cpu, gpu) && memoryOf(gpu).converted_by_host == 0);
}

/// On the processor a state goes on with the code for it, wherever that stands.
static void testArtifacts(Tables &tables, trainc_artifact *both) {
  trainc_artifact *cpu = tables.open(tables.cpu);
  trainc_descriptor alone = tables.gpu;
  alone.next = nullptr;
  trainc_artifact *gpu = tables.open(alone);
  Trainer one(cpu, "cpu"), other(cpu, "cpu");
  trainc_convert_options options = {};
  options.size = sizeof(options);
  options.artifact = gpu;
  CHECK(trainc_convert(one.t, &options) == TRAINC_UNSUPPORTED);
  CHECK(!strcmp(trainc_last_error(), "artifact 'twice' has no code for the "
                                     "processor, where the state is"));
  options.artifact = both;
  one.stepAway(0), other.stepAway(0);
  OK(trainc_convert(one.t, &options));
  CHECK(trainc_trainer_descriptor(one.t) == &tables.cpu);
  one.bind();
  one.stepAway(1), other.stepAway(1);
  CHECK(sameState(one, other));
  trainc_artifact_close(cpu);
  trainc_artifact_close(gpu);
}

static void testNoHostMemory(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  for (uint32_t what : {TRAINC_CONVERT_GRADIENTS, TRAINC_CONVERT_STATES}) {
    cpu.stepAway(what), gpu.stepAway(what);
    OK(convert(gpu, "f64", what));
    OK(convert(cpu, "f64", what));
    refuseMemory = true;
    CHECK(convert(gpu, "f32", what, HELD + PAGE) == TRAINC_OUT_OF_MEMORY);
    refuseMemory = false;
    CHECK(strstr(trainc_last_error(), " bytes for an arena that is converted"));
    OK(convert(gpu, "f32", what));
    OK(convert(cpu, "f32", what));
    cpu.stepAway(what + 1), gpu.stepAway(what + 1);
    CHECK(sameState(cpu, gpu));
  }
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  Tables tables(argv[1]);
  trainc_artifact *artifact = tables.open(tables.gpu);
  testTypes(artifact);
  testWay(artifact, NEED, true);
  testWay(artifact, NEED - 1, false);
  testWay(artifact, 0, false);
  testDevice(artifact, NEED, true);
  testDevice(artifact, NEED - 1, false);
  testNoHostMemory(artifact);
  testRefusals(artifact);
  testArtifacts(tables, artifact);
  trainc_artifact_close(artifact);
  CHECK(!counts().allocations && !counts().pinned && !counts().contexts);
}
