// A trainer on a GPU does, bit by bit, what it does on the processor: windows, evals,
// scalars, checkpoints, access to tensors, gradients that are inputs. From the second
// run on a list is one graph; a step that nobody asks for results waits for nothing.
//
// RUN: trainc-emulate %S/Inputs/step.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so %t %t.image %t.dir
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_SEED=3 %t %t.image %t.dir

#include "step.h"
#include <thread>

/// Results, states and outputs of windows that are closed and flushed.
static void testSteps(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  CHECK(!strcmp(trainc_trainer_device(cpu.t), "cpu"));
  CHECK(!strcmp(trainc_trainer_device(gpu.t), "cuda:0 (emulated GPU, sm_90)"));
  CHECK(trainc_trainer_descriptor(gpu.t)->target == TRAINC_TARGET_CUDA);
  CHECK(!trainc_trainer_notice(gpu.t) && sameState(cpu, gpu));
  for (unsigned i = 0; i < 14; ++i) {
    trainc_step_result a = cpu.step(i), b = gpu.step(i);
    CHECK(sameResult(a, b));
    CHECK(a.closed == (i % WINDOW == WINDOW - 1) && a.updated == a.closed);
    CHECK(i % 3 || sameState(cpu, gpu));
  }
  trainc_step_result a, b;
  OK(trainc_flush(cpu.t, &a));
  OK(trainc_flush(gpu.t, &b));
  CHECK(sameResult(a, b) && a.closed && a.update == 4 && sameState(cpu, gpu));
  OK(trainc_flush(gpu.t, &b));
  CHECK(!b.closed);
}

/// A gradient that is not finite; a value of an index that is out of range.
static void testBadValues(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  trainc_step_result a, b;
  for (unsigned i = 0; i < 2 * WINDOW; ++i) {
    for (Trainer *one : {&cpu, &gpu}) {
      one->fill(i);
      if (i == 2)
        one->x[77] = INFINITY;
      OK(trainc_step(one->t, STEP, one == &cpu ? &a : &b));
    }
    CHECK(sameResult(a, b) && (i != 3 || (!b.updated && b.skipped == 1)));
  }
  CHECK(b.updated && sameState(cpu, gpu));
  gpu.y[9] = 10;
  CHECK(trainc_step(gpu.t, STEP, &b) == TRAINC_OUT_OF_RANGE);
  CHECK(strstr(trainc_last_error(), "input 'y' of entry 'step' has 10 at [9]"));
  CHECK(sameState(cpu, gpu));
}

/// The host may run ahead, and change its inputs meanwhile.
static void testRunningAhead(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  for (unsigned i = 0; i < 3; ++i)
    gpu.stepAway(i), cpu.step(i);
  // The inputs of the first step were waited for, as their slot is used again.
  CHECK(counts().pending > 0);
  for (unsigned i = 3; i < 4 * WINDOW - 1; ++i)
    gpu.stepAway(i), cpu.step(i);
  CHECK(sameResult(cpu.step(99), gpu.step(99)));
  CHECK(counts().pending == 0 && sameState(cpu, gpu));
}

/// Lists are graphs from their second run on.
static void testGraphs(trainc_artifact *artifact) {
  Trainer gpu(artifact, "cuda");
  uint64_t before = counts().graph_launches;
  for (unsigned i = 0; i < WINDOW; ++i)
    gpu.stepAway(i);
  // `first` and `apply` ran once, `next` three times.
  CHECK(counts().graph_launches == before + 2 && counts().executables == 1);
  for (unsigned i = 0; i < WINDOW; ++i)
    gpu.stepAway(i);
  CHECK(counts().graph_launches == before + 2 + 5 && counts().executables == 3);
  CHECK(counts().graphs == 0 && counts().streams == 2);
  Trainer plain(artifact, "cuda", TRAINC_TRAINER_NO_GRAPHS);
  before = counts().graph_launches;
  for (unsigned i = 0; i < 2 * WINDOW; ++i)
    plain.stepAway(i % WINDOW);
  CHECK(sameState(gpu, plain) && counts().graph_launches == before);
}

/// Nothing is done before somebody asks: neither by a step nor by a setter.
static void testNoWaits(trainc_artifact *artifact) {
  Trainer gpu(artifact, "cuda");
  uint64_t pending = counts().pending, launches = counts().launches;
  uint64_t copies = counts().copies;
  CHECK(pending == 0);
  gpu.stepAway(0);
  gpu.stepAway(1);
  // Two steps have inputs of their own.
  CHECK(counts().copies == copies);
  OK(trainc_set_scalar(gpu.t, "lr", 0.5));
  OK(trainc_request_stop(gpu.t));
  OK(trainc_eval(gpu.t, EVAL));
  CHECK(counts().launches == launches && counts().pending > 8);
  const void *data;
  OK(trainc_output_data(gpu.t, EVAL, 0, &data));
  CHECK(counts().launches > launches);
}

static void testScalars(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  unsigned n = 0;
  auto window = [&] {
    for (unsigned i = 0; i < WINDOW; ++i, ++n)
      cpu.stepAway(n), gpu.stepAway(n);
  };
  auto set = [&](const char *name, double value) {
    for (Trainer *one : {&cpu, &gpu})
      OK(trainc_set_scalar(one->t, name, value));
  };
  window();
  // The device has doubled it; the host has not seen that, and sets the old value.
  set("loss_scale", 1);
  window();
  CHECK(gpu.scalar(TRAINC_SCALAR_LOSS_SCALE) == 2);
  window();
  set("lr", 0.25);
  set("lr", 0.375);
  CHECK(gpu.scalar(TRAINC_SCALAR_LOSS_SCALE) == 4);
  CHECK(gpu.scalar(LR) == 0.375);
  window();
  CHECK(gpu.scalar(TRAINC_SCALAR_LOSS_SCALE) == 8);
  CHECK(gpu.scalar(TRAINC_SCALAR_WINDOW) == WINDOW && sameState(cpu, gpu));
  // More values on their way than there are places for them.
  for (Trainer *one : {&cpu, &gpu}) {
    one->fill(7);
    for (int i = 0; i < 3; ++i) {
      OK(trainc_set_scalar(one->t, "lr", 0.5 / (i + 1)));
      OK(trainc_step(one->t, PUSHED, nullptr));
      OK(trainc_set_scalar(one->t, "lr", 1.5 * (i + 1)));
      OK(trainc_eval(one->t, EVAL));
    }
  }
  CHECK(sameState(cpu, gpu));
  double value;
  CHECK(trainc_set_scalar(gpu.t, "update", 3) == TRAINC_INVALID_ARGUMENT);
  OK(trainc_get_scalar(gpu.t, "update", &value));
  CHECK(value == 7);
}

static void testOutputs(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  std::vector<float> bound(N, -1);
  for (unsigned i = 0; i < 3; ++i) {
    OK(trainc_bind_output(gpu.t, EVAL, 1, i == 1 ? bound.data() : nullptr,
                          BYTES));
    const void *a[2], *b[2];
    for (Trainer *one : {&cpu, &gpu}) {
      one->fill(i);
      OK(trainc_eval(one->t, EVAL));
      one->stepAway(i);
    }
    for (uint32_t k = 0; k < 2; ++k) {
      OK(trainc_output_data(cpu.t, EVAL, k, &a[k]));
      OK(trainc_output_data(gpu.t, EVAL, k, &b[k]));
      CHECK(!memcmp(a[k], b[k], BYTES));
    }
    CHECK((b[1] == bound.data()) == (i == 1));
  }
  CHECK(sameState(cpu, gpu));
}

static void testTensors(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  std::vector<double> values(N);
  for (int i = 0; i < N; ++i)
    values[i] = 1.0 / (3 + i);
  for (Trainer *one : {&cpu, &gpu}) {
    one->stepAway(0);
    OK(trainc_tensor_write(one->t, T_MASTER, TRAINC_F64, values.data(),
                           N * sizeof(double)));
    OK(trainc_tensor_write(one->t, T_STATE, TRAINC_F64, values.data(),
                           N * sizeof(double)));
  }
  CHECK(sameState(cpu, gpu));
  for (unsigned i = 1; i < 9; ++i)
    cpu.stepAway(i), gpu.stepAway(i);
  CHECK(sameState(cpu, gpu));
  CHECK(trainc_tensor_write(gpu.t, T_COMPUTE, TRAINC_F64, values.data(),
                            N * sizeof(double)) == TRAINC_INVALID_ARGUMENT);
}

/// A gradient that is an input, from the host and where it stands on the device.
static void testPushed(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  for (unsigned i = 0; i < 12; ++i) {
    void *memory;
    OK(trainc_tensor_data(gpu.t, T_GRADIENT, &memory));
    bool there = i / 3 % 2;
    cpu.fill(i);
    gpu.fill(i);
    if (there) {
      OK(trainc_tensor_write(gpu.t, T_GRADIENT, TRAINC_F32, gpu.x, BYTES));
      OK(trainc_bind_input(gpu.t, PUSHED, 0, memory, BYTES));
    } else {
      OK(trainc_bind_input(gpu.t, PUSHED, 0, gpu.x, BYTES));
    }
    trainc_step_result a, b;
    OK(trainc_step(cpu.t, PUSHED, &a));
    OK(trainc_step(gpu.t, PUSHED, &b));
    CHECK(sameResult(a, b) && b.closed && b.update == i + 1);
    CHECK(sameState(cpu, gpu));
    CHECK(trainc_bind_input(gpu.t, STEP, 0, memory, BYTES) ==
          TRAINC_INVALID_ARGUMENT);
  }
}

/// Saved here, loaded there, in the middle of a window and after it.
static void testCheckpoints(trainc_artifact *artifact, const char *folder) {
  std::string path = std::string(folder) + "/one.safetensors";
  for (unsigned steps : {6, 8})
    for (const char *from : {"cpu", "cuda"})
      for (const char *to : {"cpu", "cuda"}) {
        Trainer a(artifact, from), b(artifact, to, TRAINC_TRAINER_NO_INIT);
        for (unsigned i = 0; i < steps; ++i)
          a.stepAway(i);
        OK(trainc_save(a.t, path.c_str()));
        OK(trainc_load(b.t, path.c_str()));
        CHECK(sameState(a, b));
        for (unsigned i = steps; i < 11; ++i)
          a.stepAway(i), b.stepAway(i);
        trainc_step_result x, y;
        OK(trainc_flush(a.t, &x));
        OK(trainc_flush(b.t, &y));
        CHECK(sameResult(x, y) && sameState(a, b) && x.update == 3);
      }
  // A load into a trainer that has run, and the folder of checkpoints.
  Trainer a(artifact, "cuda"), b(artifact, "cuda");
  for (unsigned i = 0; i < 5; ++i)
    a.stepAway(i), b.stepAway(i + 1);
  const char *saved;
  OK(trainc_save_checkpoint(a.t, folder, 1, &saved));
  CHECK(strstr(saved, "/step-000001-1.safetensors"));
  OK(trainc_load(b.t, folder));
  CHECK(sameState(a, b));
  a.stepAway(7), b.stepAway(7);
  CHECK(sameState(a, b));
}

struct Seen {
  const Trainer *trainer;
  std::string text;
  uint64_t begin;
  float last;
};

/// Each command is done when its end is seen, with the device's time.
static void testObserver(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
  Seen seen = {&gpu, "", 0, 0};
  auto observe = [](void *context, const trainc_event *event) {
    auto &s = *static_cast<Seen *>(context);
    if (!event->end) {
      s.begin = event->time_ns;
      return 0;
    }
    // A piece of work of the emulated device takes a microsecond.
    CHECK(event->time_ns - s.begin == 1000);
    s.text += std::string(event->command->label) + " ";
    uint32_t last = event->command->num_operands - 1;
    uint64_t at = event->command->operands[last].bytes - 4;
    OK(trainc_operand_read(s.trainer->t, event->entry, event->command, last, at,
                           &s.last, 4));
    CHECK(trainc_operand_read(s.trainer->t, event->entry, event->command, last,
                              at, &s.last, 5) == TRAINC_INVALID_ARGUMENT);
    CHECK(strcmp(event->command->label, "COPY") != 0 ||
          s.last == s.trainer->x[N - 1]);
    return 0;
  };
  OK(trainc_set_observer(gpu.t, observe, &seen));
  for (unsigned i = 0; i < WINDOW; ++i)
    gpu.stepAway(i), cpu.stepAway(i);
  CHECK(seen.text == "COPY K_ERROR K_FIRST K_LOSS K_ERROR K_NEXT K_LOSS "
                     "K_ERROR K_NEXT K_LOSS K_ERROR K_NEXT K_LOSS K_NORM "
                     "K_UPDATE ");
  OK(trainc_set_observer(gpu.t, nullptr, nullptr));
  for (unsigned i = 0; i < WINDOW; ++i)
    gpu.stepAway(i), cpu.stepAway(i);
  CHECK(sameState(cpu, gpu));
  OK(trainc_set_observer(
      gpu.t, [](void *, const trainc_event *) { return 1; }, nullptr));
  CHECK(trainc_step(gpu.t, STEP, nullptr) == TRAINC_OUT_OF_RANGE);
  gpu.fill(0);
  CHECK(trainc_step(gpu.t, STEP, nullptr) == TRAINC_CANCELLED);
  CHECK(trainc_step(gpu.t, STEP, nullptr) == TRAINC_INVALID_ARGUMENT);
}

/// Two trainers of one device, each in a thread of its own.
static void testThreads(trainc_artifact *artifact) {
  Trainer cpu(artifact, "cpu"), a(artifact, "cuda"), b(artifact, "cuda");
  auto train = [](Trainer *one) {
    for (unsigned i = 0; i < 2 * WINDOW; ++i)
      i % 3 ? one->stepAway(i) : (void)one->step(i);
  };
  std::thread other(train, &b);
  train(&a);
  other.join();
  train(&cpu);
  CHECK(sameState(cpu, a) && sameState(cpu, b));
}

static void testMemory(trainc_artifact *artifact) {
  Trainer gpu(artifact, "cuda");
  trainc_memory memory;
  OK(trainc_memory_use(gpu.t, &memory));
  CHECK(memory.persistent == 6 * 4096 && memory.workspace == 4096);
  CHECK(memory.scratch == 4096 && memory.outputs == 0);
  CHECK(memory.total == 8 * 4096 && memory.staging > 8 << 20);
  uint64_t staging = memory.staging;
  gpu.stepAway(0);
  OK(trainc_memory_use(gpu.t, &memory));
  CHECK(memory.outputs == 2 * 4096 && memory.total == 10 * 4096);
  CHECK(memory.staging == staging + 2 * (BYTES + LABELS * 4));
  const char *report;
  OK(trainc_memory_report(gpu.t, &report));
  CHECK(strstr(report, "            4096  parameters: parameters\n"));
  CHECK(strstr(report, "            8192  inputs and outputs\n"));
  CHECK(strstr(report, "           40960  in all\n"));
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  {
    Tables tables(argv[1]);
    trainc_artifact *artifact = tables.open(tables.gpu);
    testSteps(artifact);
    testBadValues(artifact);
    testRunningAhead(artifact);
    testGraphs(artifact);
    testNoWaits(artifact);
    testScalars(artifact);
    testOutputs(artifact);
    testTensors(artifact);
    testPushed(artifact);
    testCheckpoints(artifact, argv[2]);
    testObserver(artifact);
    testThreads(artifact);
    testMemory(artifact);
    trainc_artifact_close(artifact);
  }
  trainc_fake_cuda_counts left = counts();
  CHECK(!left.contexts && !left.allocations && !left.pinned && !left.streams &&
        !left.events && !left.modules && !left.graphs && !left.executables &&
        !left.pending);
}
