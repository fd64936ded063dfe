//===- launch.cpp - Blocks, threads as fibers, barriers -------------------===//
#include "machine.h"
#include <sys/mman.h>

using namespace trainc::emu;

thread_local trainc_emu *trainc::emu::machine
    __attribute__((tls_model("initial-exec"))) = nullptr;

// Keeps what a call must keep by the ABI of x86-64 on the stack that is left, and
// takes it from the one that is entered. Kernels do not change control words.
__asm__(".text\n"
        ".hidden trainc_emu_switch\n"
        ".globl trainc_emu_switch\n"
        ".type trainc_emu_switch, @function\n"
        "trainc_emu_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size trainc_emu_switch, .-trainc_emu_switch\n");

//===----------------------------------------------------------------------===//
// Fibers
//===----------------------------------------------------------------------===//

static char *takeStack(trainc_emu &device) {
  if (device.freeStacks.size)
    return device.freeStacks[--device.freeStacks.size];
  constexpr size_t kGuard = 4096;
  void *memory = mmap(nullptr, kStackBytes + kGuard, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  char *stack = static_cast<char *>(memory) + kGuard;
  if (mprotect(memory, kGuard, PROT_NONE) || !device.stacks.push(stack)) {
    munmap(memory, kStackBytes + kGuard);
    return nullptr;
  }
  return stack;
}

void trainc::emu::suspend() {
  trainc_emu &device = *machine;
  trainc_emu_switch(&device.current->stackPointer, device.scheduler);
}

void trainc::emu::makeReady(Thread &thread) {
  thread.state = State::Ready;
  machine->ready[thread.index / kWarp] |= 1u << thread.index % kWarp;
}

/// The first function of every fiber.
[[noreturn]] static void runThread() {
  trainc_emu &device = *machine;
  Thread &thread = *device.current;
  device.launch.kernel->run(device.launch.arguments);
  finishCopies(thread, UINT32_MAX);
  thread.state = State::Exited;
  device.exited[thread.index / kWarp] |= 1u << thread.index % kWarp;
  --device.live;
  suspend();
  abort();
}

static bool startThread(trainc_emu &device, Thread &thread) {
  thread.stack = takeStack(device);
  if (!thread.stack)
    return false;
  // As if runThread had been called: the stack is 16-byte aligned before the
  // return address, which is null. Stacks begin at different lines of the caches.
  char *base = thread.stack + kStackBytes - thread.index % 64 * 64;
  void **top = reinterpret_cast<void **>(base) - 1;
  top[0] = nullptr;
  *--top = reinterpret_cast<void *>(&runThread);
  for (int i = 0; i < 6; ++i)
    *--top = nullptr;
  thread.stackPointer = top;
  thread.state = State::Ready;
  return true;
}

/// Runs a thread until it waits, ends or faults.
static bool resume(trainc_emu &device, Thread &thread) {
  if (thread.state == State::New && !startThread(device, thread))
    return false;
  device.current = &thread;
  trainc_emu_switch(&device.scheduler, thread.stackPointer);
  if (thread.state == State::Exited && device.freeStacks.push(thread.stack))
    thread.stack = nullptr;
  return true;
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// The next number of a sequence that looks random.
static uint64_t nextRandom(uint64_t &state) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static void shuffle(uint32_t *values, uint32_t count, uint64_t &state) {
  for (uint32_t i = count; i > 1; --i) {
    uint32_t j = static_cast<uint32_t>(nextRandom(state) % i);
    uint32_t value = values[i - 1];
    values[i - 1] = values[j];
    values[j] = value;
  }
}

static void beginBlock(trainc_emu &device, uint32_t place) {
  Launch &launch = device.launch;
  uint32_t index = launch.order[place];
  launch.blockIndex[0] = index % launch.grid[0];
  launch.blockIndex[1] = index / launch.grid[0] % launch.grid[1];
  launch.blockIndex[2] = index / launch.grid[0] / launch.grid[1];
  launch.blockStamp = launch.barrierStamp = ++device.now;
  clearShared(device);
  launch.copies = 0;
  launch.acquired.size = 0;
  launch.stores.size = 0;
  device.arrived = 0;
  for (uint32_t i = 0; i < launch.threads; ++i) {
    Thread &thread = device.threads[i];
    thread.index = i;
    thread.stamp = device.now;
    thread.state = State::New;
    thread.copies.size = 0;
    thread.group = 0;
    thread.fenced = {};
    memset(thread.lanes, 0, sizeof(thread.lanes));
  }
  for (uint32_t warp = 0; warp < launch.warps; ++warp) {
    uint32_t lanes = launch.threads - warp * kWarp;
    device.meeting[warp] = device.exited[warp] = 0;
    device.atBarrier[warp] = nullptr;
    device.ready[warp] = lanes >= kWarp ? ~0u : (1u << lanes) - 1;
  }
  device.live = launch.threads;
}

/// Runs a block. Warps take turns; of a warp, all lanes that can run go on before
/// the next warp does.
static trainc_emu_status runBlock(trainc_emu &device, const uint32_t *warps) {
  while (device.live) {
    bool progress = false;
    for (uint32_t i = 0; i < device.launch.warps; ++i) {
      uint32_t warp = warps[i];
      while (device.ready[warp]) {
        progress = true;
        uint32_t lane =
            static_cast<uint32_t>(__builtin_ctz(device.ready[warp]));
        device.ready[warp] &= ~(1u << lane);
        if (!resume(device, device.threads[warp * kWarp + lane]))
          return refuse(device, TRAINC_EMU_OUT_OF_MEMORY,
                        "no memory for the stack of a thread");
        if (device.status != TRAINC_EMU_OK)
          return device.status;
      }
    }
    if (!progress) {
      reportDeadlock(device);
      return device.status;
    }
  }
  return TRAINC_EMU_OK;
}

/// Checks what the caller gave; nothing has run yet.
static trainc_emu_status checkLaunch(trainc_emu &device,
                                     const trainc_emu_kernel &kernel,
                                     const uint32_t *grid,
                                     const uint32_t *block, uint32_t dynamic) {
  const char *name = kernel.name;
  uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
  if (threads == 0 || threads > kMaxThreads || block[2] > 64)
    return refuse(device, TRAINC_EMU_BAD_ARGUMENT,
                  "kernel %s: a block has 1 to 1024 threads, at most 64 of "
                  "them along z, not %u x %u x %u",
                  name, block[0], block[1], block[2]);
  if (blocks == 0 || blocks > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
    return refuse(device, TRAINC_EMU_BAD_ARGUMENT,
                  "kernel %s: a grid has 1 to 2^31-1 blocks, at most 65535 "
                  "along y and z, not %u x %u x %u",
                  name, grid[0], grid[1], grid[2]);
  const uint32_t *required = kernel.required_block;
  if (required[0] && (required[0] != block[0] || required[1] != block[1] ||
                      required[2] != block[2]))
    return refuse(device, TRAINC_EMU_BAD_ARGUMENT,
                  "kernel %s: needs blocks of %u x %u x %u threads, not "
                  "%u x %u x %u",
                  name, required[0], required[1], required[2], block[0],
                  block[1], block[2]);
  if (kernel.max_threads && threads > kernel.max_threads)
    return refuse(device, TRAINC_EMU_BAD_ARGUMENT,
                  "kernel %s: a block has at most %u threads, not %llu", name,
                  kernel.max_threads, static_cast<unsigned long long>(threads));
  constexpr uint32_t kMostShared = 227 << 10;
  if (uint64_t(dynamic) + kernel.shared_bytes > kMostShared)
    return refuse(device, TRAINC_EMU_BAD_ARGUMENT,
                  "kernel %s: %u static and %u dynamic bytes of shared memory "
                  "are more than the %u of a block",
                  name, kernel.shared_bytes, dynamic, kMostShared);
  return TRAINC_EMU_OK;
}

static trainc_emu_status run(trainc_emu &device) {
  Launch &launch = device.launch;
  uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  launch.order.size = launch.starts.size = 0;
  for (uint32_t i = 0; i < blocks; ++i)
    if (!launch.order.push(i) || !launch.starts.push(0))
      return refuse(device, TRAINC_EMU_OUT_OF_MEMORY, "no memory for a grid");
  launch.starts.size = 0;
  launch.releases.size = 0;
  uint32_t warps[kMaxThreads / kWarp];
  for (uint32_t i = 0; i < launch.warps; ++i)
    warps[i] = i;
  uint64_t random = device.seed;
  if (device.seed)
    shuffle(launch.order.data, blocks, random);
  for (uint32_t place = 0; place < blocks; ++place) {
    if (device.seed)
      shuffle(warps, launch.warps, random);
    launch.starts.push(device.now + 1);
    beginBlock(device, place);
    ++device.counts.blocks;
    device.counts.threads += launch.threads;
    if (runBlock(device, warps) != TRAINC_EMU_OK)
      return device.status;
    hideStores(device);
    // Stamps are 32 bits wide; a launch that meets more often is not for tests.
    if (device.now > UINT32_MAX - (1u << 24))
      return refuse(device, TRAINC_EMU_LIMIT,
                    "kernel %s: threads met more than 2^32 times",
                    launch.kernel->name);
  }
  return TRAINC_EMU_OK;
}

trainc_emu_status
trainc_emu_launch(trainc_emu *device, trainc_emu_module *module,
                  const trainc_emu_kernel *kernel, const uint32_t grid[3],
                  const uint32_t block[3], uint32_t dynamic_shared_bytes,
                  void **arguments) {
  if (checkLaunch(*device, *kernel, grid, block, dynamic_shared_bytes) !=
      TRAINC_EMU_OK)
    return device->status;
  Launch &launch = device->launch;
  launch.module = module;
  launch.kernel = kernel;
  launch.arguments = arguments;
  memcpy(launch.grid, grid, sizeof(launch.grid));
  memcpy(launch.block, block, sizeof(launch.block));
  launch.threads = block[0] * block[1] * block[2];
  launch.warps = (launch.threads + kWarp - 1) / kWarp;
  launch.dynamicBytes = dynamic_shared_bytes;
  launch.sharedBytes = 0;
  if (module->image->shared_count)
    launch.sharedBytes =
        module->image->dynamic_offset + dynamic_shared_bytes + TRAINC_EMU_GAP;
  launch.firstGeneration = ++device->generation;
  launch.accesses = 0;
  device->now = 0; // cells of older launches are cleared before they are read
  if (!prepareShared(*device))
    return refuse(*device, TRAINC_EMU_OUT_OF_MEMORY,
                  "no memory for the shared memory of a block");
  device->status = TRAINC_EMU_OK;
  device->site = 0;
  trainc_emu *outer = machine;
  machine = device;
  trainc_emu_status status = run(*device);
  showStores(*device);
  machine = outer;
  // A fault leaves threads behind: their stacks can be used again.
  device->freeStacks.size = 0;
  for (size_t i = 0; i < device->stacks.size; ++i)
    device->freeStacks.push(device->stacks[i]);
  ++device->counts.launches;
  device->counts.accesses += launch.accesses;
  return status;
}
