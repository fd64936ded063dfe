//===- executor.cpp - Running command lists on a GPU ----------------------===//

#include "cuda/executor.h"
#include "comm/waiting.h"
#include "core/trainer.h"
#include "cuda/products.h"
#include "cuda/streams.h"

using namespace trainc;
using namespace trainc::cuda;

/// Blocks of scalars that may be on their way to the device.
static constexpr unsigned scalarSlots = 4;

/// A, B, C, bias, what an epilogue keeps, the bias's gradient.
static constexpr uint32_t maxProductOperands = 6;

/// Of a collective that another list has waited for.
static constexpr uint32_t phaseNone = UINT32_MAX;

/// Where inputs and outputs start in their blocks.
static constexpr uint64_t portAlignment = 256;

namespace {
/// Work that is waited for by an event behind it.
struct Mark {
  CUevent event;
  uint64_t collectives; // enqueued before
};

/// Pinned memory that copies use.
struct Slot {
  char *data;
  Mark done;
};

/// What an entry has on the device, from its first run on.
struct EntryMemory {
  bool ready, sent; // inputs were copied once
  CUdeviceptr inputs, outputs;
  Slot slots[2]; // of inputs
  unsigned next;
  Slot results; // of outputs without a binding
  bool ran[TRAINC_NUM_LISTS];
  CUgraphExec graphs[TRAINC_NUM_LISTS];
  Recording *recordings[TRAINC_NUM_LISTS]; // of collectives in the graphs
};
} // namespace

struct trainc::cuda::Executor {
  Device *device = nullptr;
  CUmodule module = nullptr;
  Array<CUfunction> kernels;
  double timeout = 0;
  Streams streams;
  Communicator *communicator = nullptr; // null: there is no collective
  Array<CUdeviceptr> registered;        // with NCCL
  CUdeviceptr scratch = 0;
  Products *products = nullptr; // null: there is no product
  CUdeviceptr workspace = 0;    // of the running product
  Array<EntryMemory> entries;
  Array<void *> parameters; // of the launch that is handed over

  Array<double> scalars; // the host's copy
  Array<double> sent;    // what the device has of it, as far as the host knows
  bool changed = false;  // work was handed over that may write scalars
  Slot scalarSlots[::scalarSlots] = {};
  unsigned nextScalars = 0;
  Slot arrived = {};
  Mark idle = {};           // all work
  CUevent before = nullptr; // of a command that is observed
  Mark after = {};

  Array<CUdeviceptr> owned;
  Array<void *> pinned;
  uint64_t pinnedBytes = 0;
  Text failure; // of a wait; nothing runs any more
  bool hangs = false;

  const Driver &driver() const { return *device->driver; }
};

static CUdeviceptr deviceAddress(const void *address) {
  return reinterpret_cast<uintptr_t>(address);
}
static char *hostPointer(CUdeviceptr address) {
  return reinterpret_cast<char *>(static_cast<uintptr_t>(address));
}

const Device &trainc::cuda::deviceOf(const Executor &executor) {
  return *executor.device;
}

uint64_t trainc::cuda::stagingBytes(const Executor &executor) {
  return executor.pinnedBytes +
         sizeof(Device::pieces) / sizeof(void *) * cuda::pieceBytes;
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

static trainc_status open(Executor &executor, int ordinal,
                          const trainc_descriptor &d) {
  TRAINC_TRY(openDevice(ordinal, &executor.device));
  Device &device = *executor.device;
  TRAINC_TRY(loadImage(device, d.images, d.num_images, &executor.module));
  executor.kernels.resize(d.num_kernels);
  for (uint32_t i = 0; i < d.num_kernels; ++i)
    TRAINC_TRY(findKernel(device, executor.module, d.kernels[i],
                          &executor.kernels[i]));
  executor.entries.resize(d.num_entries);
  bool collectives = false;
  for (uint32_t i = 0; i < d.num_axes; ++i)
    collectives |= d.axes[i].size > 1;
  TRAINC_TRY(openStreams(device, collectives, executor.streams));
  return createEvent(device, &executor.idle.event);
}

trainc_status trainc::cuda::openExecutor(int ordinal,
                                         const trainc_descriptor &descriptor,
                                         double timeout,
                                         Executor **out_executor) {
  auto *executor = create<Executor>();
  executor->timeout = timeout;
  trainc_status status = open(*executor, ordinal, descriptor);
  if (status != TRAINC_OK)
    closeExecutor(executor);
  else
    *out_executor = executor;
  return status;
}

static void dropGraphs(Executor &executor, EntryMemory &memory) {
  Current current(*executor.device);
  for (int list = 0; list < TRAINC_NUM_LISTS; ++list) {
    if (memory.graphs[list] && current.status() == TRAINC_OK)
      executor.driver().cuGraphExecDestroy(memory.graphs[list]);
    destroy(memory.recordings[list]);
    memory.recordings[list] = nullptr;
    memory.graphs[list] = nullptr;
    memory.ran[list] = false;
  }
}

/// NCCL may be closed when nothing is under way any more.
static void closeCollectives(Executor &executor) {
  if (!executor.communicator)
    return;
  if (waitForWork(executor) == TRAINC_OK)
    for (CUdeviceptr address : executor.registered)
      forgetMemory(*executor.communicator, address);
  closeCommunicator(executor.communicator);
}

void trainc::cuda::closeExecutor(Executor *executor) {
  // Of a device that does not answer every call would wait.
  if (!executor || !executor->device || executor->hangs)
    return destroy(executor);
  Device &device = *executor->device;
  auto destroySlot = [&](Slot &slot) { destroyEvent(device, slot.done.event); };
  closeCollectives(*executor);
  for (EntryMemory &memory : executor->entries) {
    dropGraphs(*executor, memory);
    for (Slot &slot : memory.slots)
      destroySlot(slot);
    destroySlot(memory.results);
  }
  for (Slot &slot : executor->scalarSlots)
    destroySlot(slot);
  destroySlot(executor->arrived);
  destroyEvent(device, executor->idle.event);
  destroyEvent(device, executor->before);
  destroyEvent(device, executor->after.event);
  closeStreams(executor->streams);
  closeProducts(executor->products);
  for (CUdeviceptr address : executor->owned)
    release(device, address);
  for (void *address : executor->pinned)
    releasePinned(device, address);
  unloadImage(device, executor->module);
  closeDevice(&device);
  destroy(executor);
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

static trainc_status checkAlive(const Executor &executor) {
  return executor.failure.size()
             ? fail(TRAINC_DEVICE_FAILED, "%s", executor.failure.c_str())
             : TRAINC_OK;
}

/// Keeps the reason of a failure: nothing helps afterwards.
static trainc_status keep(Executor &executor, trainc_status status) {
  if (status != TRAINC_OK && !executor.failure.size()) {
    executor.failure.append(trainc_last_error());
    executor.hangs = strstr(trainc_last_error(), "did not end") != nullptr;
  }
  return status;
}

/// Puts the mark behind all work so far.
static trainc_status setMark(Executor &executor, Mark &mark) {
  TRAINC_CU(executor.driver(), cuEventRecord, mark.event,
            executor.streams.compute);
  if (executor.communicator)
    mark.collectives = enqueued(*executor.communicator);
  return TRAINC_OK;
}

static trainc_status await(Executor &executor, const Mark &mark,
                           const char *what) {
  TRAINC_TRY(checkAlive(executor));
  return keep(
      executor,
      executor.communicator
          ? waitFor(*executor.communicator, mark.event, mark.collectives, what)
          : waitFor(*executor.device, mark.event, executor.timeout, what));
}

trainc_status trainc::cuda::waitForWork(Executor &executor) {
  TRAINC_TRY(checkAlive(executor));
  {
    Current current(*executor.device);
    TRAINC_TRY(current.status());
    TRAINC_TRY(keep(executor, setMark(executor, executor.idle)));
  }
  return await(executor, executor.idle, "the commands of the trainer");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Fails with the plan: what needs how much.
static trainc_status failPlan(const trainc_trainer *trainer, const char *what) {
  const trainc_descriptor &d = *trainer->d;
  Text reason, plan;
  reason.append(trainc_last_error());
  uint64_t total = trainer->scratchBytes;
  auto line = [&](uint64_t bytes, const char *role, const char *name) {
    plan.format("\n%16llu  %s%s%s", static_cast<unsigned long long>(bytes),
                role, *name ? ": " : "", name);
  };
  for (const trainc_arena &arena : trainer->state.arenas) {
    total += alignUp(arena.bytes, pageBytes);
    if (arena.bytes)
      line(alignUp(arena.bytes, pageBytes), roleText(arena.role), arena.name);
  }
  line(trainer->scratchBytes, "scratch of running tiles", "");
  if (trainer->gpu->products) {
    uint64_t workspace = workspaceBytes(*trainer->gpu->products);
    total += workspace;
    line(workspace, "workspace of cuBLASLt", "");
  }
  if (trainer->outputBytes)
    line(trainer->outputBytes, "inputs and outputs", "");
  return fail(TRAINC_OUT_OF_MEMORY,
              "'%s' of artifact '%s': %s. Without inputs and outputs the "
              "artifact needs %llu bytes:%s",
              what, d.name, reason.c_str(),
              static_cast<unsigned long long>(total), plan.c_str());
}

/// Memory that the executor owns, in whole pages, as the trainer counts them.
static trainc_status allocateOwned(trainc_trainer *trainer, uint64_t bytes,
                                   const char *what, CUdeviceptr *out_address) {
  Executor &executor = *trainer->gpu;
  bytes = alignUp(bytes, pageBytes);
  trainc_status status = allocate(*executor.device, bytes, out_address);
  if (status == TRAINC_OUT_OF_MEMORY)
    return failPlan(trainer, what);
  TRAINC_TRY(status);
  if (*out_address)
    executor.owned.push(*out_address);
  return TRAINC_OK;
}

static trainc_status allocateSlot(Executor &executor, uint64_t bytes,
                                  Slot *out_slot) {
  void *memory = nullptr;
  TRAINC_TRY(allocatePinned(*executor.device, bytes ? bytes : 1, &memory));
  executor.pinned.push(memory);
  executor.pinnedBytes += bytes;
  out_slot->data = static_cast<char *>(memory);
  return createEvent(*executor.device, &out_slot->done.event);
}

static trainc_status fillArena(Executor &executor, const trainc_arena &arena,
                               CUdeviceptr address) {
  if (arena.role == TRAINC_ROLE_CONSTANT)
    return upload(*executor.device, address, arena.data, arena.bytes);
  if (arena.role == TRAINC_ROLE_WORKSPACE || !address)
    return TRAINC_OK;
  Current current(*executor.device);
  TRAINC_TRY(current.status());
  TRAINC_CU(executor.driver(), cuMemsetD8Async, address, 0, arena.bytes,
            executor.streams.compute);
  return TRAINC_OK;
}

trainc_status trainc::cuda::allocateArena(trainc_trainer *trainer,
                                          const trainc_arena &arena,
                                          Pages &pages) {
  CUdeviceptr address = 0;
  TRAINC_TRY(allocateOwned(trainer, arena.bytes, arena.name, &address));
  pages.hold(hostPointer(address), arena.bytes, trainer->account);
  return fillArena(*trainer->gpu, arena, address);
}

trainc_status trainc::cuda::releaseArena(trainc_trainer *trainer,
                                         Pages &pages) {
  Executor &executor = *trainer->gpu;
  TRAINC_TRY(waitForWork(executor));
  CUdeviceptr address = deviceAddress(pages.data());
  for (CUdeviceptr &registered : executor.registered)
    if (registered == address && address) {
      TRAINC_TRY(forgetMemory(*executor.communicator, address));
      registered = executor.registered[executor.registered.size() - 1];
      executor.registered.resize(executor.registered.size() - 1);
      break;
    }
  for (CUdeviceptr &owned : executor.owned)
    if (owned == address) {
      owned = executor.owned[executor.owned.size() - 1];
      executor.owned.resize(executor.owned.size() - 1);
      break;
    }
  release(*executor.device, address);
  pages.release();
  return TRAINC_OK;
}

trainc_status trainc::cuda::freeMemory(Executor &executor,
                                       uint64_t *out_bytes) {
  size_t left = 0, total = 0;
  Current current(*executor.device);
  TRAINC_TRY(current.status());
  TRAINC_CU(executor.driver(), cuMemGetInfo, &left, &total);
  *out_bytes = left;
  return TRAINC_OK;
}

void trainc::cuda::forgetGraphs(Executor &executor) {
  for (EntryMemory &memory : executor.entries)
    dropGraphs(executor, memory);
}

static trainc_status allocateScalars(Executor &executor, uint32_t count) {
  executor.scalars.resize(count);
  executor.sent.resize(count); // the arena is zero
  for (Slot &slot : executor.scalarSlots)
    TRAINC_TRY(allocateSlot(executor, count * sizeof(double), &slot));
  return allocateSlot(executor, count * sizeof(double), &executor.arrived);
}

static trainc_status registerArenas(trainc_trainer *trainer);

static trainc_status allocateAll(trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  State &state = trainer->state;
  uint64_t workspace =
      executor.products ? workspaceBytes(*executor.products) : 0;
  uint64_t needed =
      alignUp(trainer->scratchBytes, pageBytes) + alignUp(workspace, pageBytes);
  for (const trainc_arena &arena : state.arenas)
    needed += alignUp(arena.bytes, pageBytes);
  TRAINC_TRY(checkLimit(trainer, needed));
  trainer->windows.resize(state.arenas.size());
  CUdeviceptr address = 0;
  for (size_t i = 0; i < state.arenas.size(); ++i)
    TRAINC_TRY(allocateArena(trainer, state.arenas[i], state.pages[i]));
  TRAINC_TRY(
      allocateOwned(trainer, trainer->scratchBytes, "scratch", &address));
  trainer->scratch.hold(hostPointer(address), trainer->scratchBytes,
                        trainer->account);
  executor.scratch = address;
  if (address) {
    Current current(*executor.device);
    TRAINC_TRY(current.status());
    TRAINC_CU(executor.driver(), cuMemsetD8Async, address, 0,
              trainer->scratchBytes, executor.streams.compute);
  }
  TRAINC_TRY(allocateOwned(trainer, workspace, "workspace of cuBLASLt",
                           &executor.workspace));
  trainer->library.hold(hostPointer(executor.workspace), workspace,
                        trainer->account);
  TRAINC_TRY(allocateScalars(executor, trainer->d->num_scalars));
  return waitForWork(executor);
}

trainc_status trainc::cuda::allocateArenas(trainc_trainer *trainer) {
  TRAINC_TRY(trainer->ranks.agree(allocateAll(trainer)));
  return registerArenas(trainer);
}

double *trainc::cuda::hostScalars(Executor &executor) {
  return executor.scalars.data();
}

trainc_status trainc::cuda::readMemory(Executor &executor, const void *from,
                                       void *to, uint64_t bytes) {
  TRAINC_TRY(waitForWork(executor));
  return keep(executor,
              download(*executor.device, to, deviceAddress(from), bytes));
}

trainc_status trainc::cuda::writeMemory(Executor &executor, void *to,
                                        const void *from, uint64_t bytes) {
  TRAINC_TRY(waitForWork(executor));
  return keep(executor,
              upload(*executor.device, deviceAddress(to), from, bytes));
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

/// Do the host and the device have other bits?
static bool differs(const Executor &executor, size_t i) {
  return memcmp(&executor.scalars[i], &executor.sent[i], sizeof(double)) != 0;
}

static CUdeviceptr scalarAddress(const trainc_trainer *trainer) {
  return deviceAddress(arenaData(trainer, trainer->d->scalar_arena));
}

/// Sends the scalars that the host has set.
static trainc_status sendScalars(const trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  size_t count = executor.scalars.size(), first = 0;
  while (first < count && !differs(executor, first))
    ++first;
  if (first == count)
    return TRAINC_OK;
  Slot &slot = executor.scalarSlots[executor.nextScalars];
  executor.nextScalars = (executor.nextScalars + 1) % scalarSlots;
  TRAINC_TRY(await(executor, slot.done, "a copy of scalars"));
  memcpy(slot.data, executor.scalars.data(), count * sizeof(double));
  for (size_t end = first; first < count; first = end) {
    for (end = first; end < count && differs(executor, end); ++end)
      executor.sent[end] = executor.scalars[end];
    if (end > first)
      TRAINC_CU(executor.driver(), cuMemcpyHtoDAsync,
                scalarAddress(trainer) + first * sizeof(double),
                slot.data + first * sizeof(double),
                (end - first) * sizeof(double), executor.streams.compute);
    else
      ++end;
  }
  return setMark(executor, slot.done);
}

trainc_status trainc::cuda::settle(const trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  if (!executor.changed)
    return checkAlive(executor);
  size_t count = executor.scalars.size();
  {
    Current current(*executor.device);
    TRAINC_TRY(current.status());
    TRAINC_CU(executor.driver(), cuMemcpyDtoHAsync, executor.arrived.data,
              scalarAddress(trainer), count * sizeof(double),
              executor.streams.compute);
    TRAINC_TRY(setMark(executor, executor.arrived.done));
  }
  TRAINC_TRY(
      await(executor, executor.arrived.done, "the commands of the trainer"));
  auto *arrived = reinterpret_cast<const double *>(executor.arrived.data);
  for (size_t i = 0; i < count; ++i) {
    if (!differs(executor, i))
      executor.scalars[i] = arrived[i];
    executor.sent[i] = arrived[i];
  }
  executor.changed = false;
  return TRAINC_OK;
}

void trainc::cuda::touchScalar(const trainc_trainer *trainer, uint32_t scalar) {
  Executor &executor = *trainer->gpu;
  uint64_t bits;
  memcpy(&bits, &executor.scalars[scalar], sizeof(bits));
  bits = ~bits;
  memcpy(&executor.sent[scalar], &bits, sizeof(bits));
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

trainc_status trainc::cuda::bindCommand(trainc_trainer *trainer,
                                        const trainc_command &command,
                                        BoundCommand &bound) {
  Executor &executor = *trainer->gpu;
  if (command.num_operands + 1 > executor.parameters.size())
    executor.parameters.resize(command.num_operands + 1);
  switch (command.kind) {
  case TRAINC_COMMAND_LAUNCH: {
    const trainc_kernel &kernel = trainer->d->kernels[command.kernel];
    if (kernel.scratch_bytes > trainer->scratchBytes)
      trainer->scratchBytes = kernel.scratch_bytes;
    bound.kernel = executor.kernels[command.kernel];
    bound.tiles = command.tiles;
    return TRAINC_OK;
  }
  case TRAINC_COMMAND_GEMM:
    if (!executor.products)
      TRAINC_TRY(openProducts(*executor.device, &executor.products));
    return planProduct(*executor.products,
                       *static_cast<const trainc_gemm_detail *>(command.detail),
                       &bound.product, productAlignment(command));
  case TRAINC_COMMAND_FILL:
  case TRAINC_COMMAND_COPY:
    return TRAINC_OK;
  }
  auto &detail = *static_cast<const trainc_collective_detail *>(command.detail);
  TRAINC_TRY(trainer->ranks.find(detail.axes, &bound.group));
  if (!executor.communicator)
    TRAINC_TRY(openCommunicator(*executor.device, trainer->ranks.communicator(),
                                &executor.communicator));
  return joinGroup(*executor.communicator, bound.group);
}

/// Lets NCCL use the arenas of collectives as they are, if it can. All ranks do it.
static trainc_status registerArenas(trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  if (!executor.communicator)
    return TRAINC_OK;
  for (uint32_t i = 0; i < trainer->d->num_arenas; ++i) {
    if (!isInWindow(*trainer->d, i) || !trainer->state.pages[i].size())
      continue;
    CUdeviceptr address = deviceAddress(arenaData(trainer, i));
    trainc_status status = registerMemory(*executor.communicator, address,
                                          trainer->state.pages[i].size());
    if (status == TRAINC_OK)
      executor.registered.push(address);
    else if (status != TRAINC_UNSUPPORTED)
      return status;
  }
  return TRAINC_OK;
}

/// The range of a collective, as NCCL shall see it.
static DeviceCollective collectiveOf(const trainc_trainer *trainer,
                                     const BoundCommand &command,
                                     void *const *arguments) {
  const trainc_command &source = *command.source;
  auto &detail = *static_cast<const trainc_collective_detail *>(source.detail);
  uint64_t size = trainc_dtype_size(detail.dtype);
  DeviceCollective c;
  c.kind = source.kind == TRAINC_COMMAND_REDUCE_SCATTER ? TRAINC_REDUCE_SCATTER
           : source.kind == TRAINC_COMMAND_ALL_REDUCE   ? TRAINC_ALL_REDUCE
                                                        : TRAINC_ALL_GATHER;
  c.group = command.group;
  c.dtype = detail.dtype;
  c.count = source.operands[0].bytes / size;
  c.label = source.label;
  c.data = deviceAddress(arguments[0]);
  if (source.num_operands == 2)
    c.target = deviceAddress(arguments[1]);
  if (source.num_operands == 1 && detail.piece_axes) {
    c.count /= trainer->ranks.countIn(detail.piece_axes);
    c.data += c.count * size * trainer->ranks.indexIn(detail.piece_axes);
  }
  return c;
}

static trainc_status enqueueCollective(const trainc_trainer *trainer,
                                       const BoundCommand &command,
                                       void *const *arguments) {
  Executor &executor = *trainer->gpu;
  Communicator &communicator = *executor.communicator;
  if (command.phase == TRAINC_COLLECTIVE_WAIT)
    return awaitCollectives(executor.streams);
  DeviceCollective c = collectiveOf(trainer, command, arguments);
  return command.phase == TRAINC_COLLECTIVE_START
             ? startCollectives(executor.streams, communicator, &c, 1)
             : runCollectives(executor.streams, communicator, &c, 1);
}

/// A list that awaits what it starts. What it starts for another list it runs itself,
/// where nothing waits for it then: a graph ends with all of its work.
static void matchPhases(Array<BoundCommand> &list) {
  Array<size_t> started;
  size_t awaited = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!isCollective(list[i].source->kind))
      continue;
    auto &detail =
        *static_cast<const trainc_collective_detail *>(list[i].source->detail);
    list[i].phase = detail.phase;
    if (detail.phase == TRAINC_COLLECTIVE_START)
      started.push(i);
    else if (detail.phase == TRAINC_COLLECTIVE_WAIT && awaited < started.size())
      ++awaited;
    else if (detail.phase == TRAINC_COLLECTIVE_WAIT)
      list[i].phase = phaseNone;
  }
  for (; awaited < started.size(); ++awaited)
    list[started[awaited]].phase = TRAINC_COLLECTIVE_WHOLE;
}

static trainc_status launch(const trainc_trainer *trainer,
                            const BoundCommand &command, void **arguments) {
  Executor &executor = *trainer->gpu;
  const trainc_command &source = *command.source;
  const trainc_kernel &kernel = trainer->d->kernels[source.kernel];
  if (command.tiles == 0)
    return TRAINC_OK;
  void **parameters = executor.parameters.data();
  for (uint32_t i = 0; i < source.num_operands; ++i)
    parameters[i] = &arguments[i];
  if (kernel.scratch_bytes)
    parameters[source.num_operands] = &executor.scratch;
  CUresult result = executor.driver().cuLaunchKernel(
      command.kernel, static_cast<unsigned>(command.tiles), 1, 1,
      kernel.threads, 1, 1, 0, executor.streams.compute, parameters, nullptr);
  if (result == CUDA_SUCCESS)
    return TRAINC_OK;
  trainc_status status = failCall("cuLaunchKernel", result);
  Text reason;
  reason.append(trainc_last_error());
  return fail(status, "launch of '%s' (%s): %s", kernel.name,
              source.label ? source.label : "?", reason.c_str());
}

static trainc_status enqueue(const trainc_trainer *trainer, EntryState &state,
                             const BoundCommand &command) {
  Executor &executor = *trainer->gpu;
  const Driver &driver = executor.driver();
  const trainc_command &source = *command.source;
  void **arguments = state.arguments.data() + command.firstArgument;
  uint64_t bytes = source.num_operands ? source.operands[0].bytes : 0;
  switch (source.kind) {
  case TRAINC_COMMAND_LAUNCH:
    return launch(trainer, command, arguments);
  case TRAINC_COMMAND_GEMM: {
    CUdeviceptr operands[maxProductOperands];
    for (uint32_t i = 0; i < source.num_operands; ++i)
      operands[i] = deviceAddress(arguments[i]);
    return runProduct(*executor.products, *command.product, operands,
                      executor.workspace, executor.streams.compute);
  }
  case TRAINC_COMMAND_FILL:
    if (bytes)
      TRAINC_CU(driver, cuMemsetD8Async, deviceAddress(arguments[0]), 0, bytes,
                executor.streams.compute);
    return TRAINC_OK;
  case TRAINC_COMMAND_COPY:
    // An input may be bound to the memory that it is copied to.
    if (bytes && arguments[0] != arguments[1])
      TRAINC_CU(driver, cuMemcpyDtoDAsync, deviceAddress(arguments[1]),
                deviceAddress(arguments[0]), bytes, executor.streams.compute);
    return TRAINC_OK;
  }
  return command.phase == phaseNone
             ? TRAINC_OK
             : enqueueCollective(trainer, command, arguments);
}

static trainc_status enqueueList(const trainc_trainer *trainer,
                                 EntryState &state, uint32_t list) {
  for (const BoundCommand &command : state.lists[list])
    TRAINC_TRY(enqueue(trainer, state, command));
  return TRAINC_OK;
}

static trainc_status capture(const trainc_trainer *trainer, EntryState &state,
                             EntryMemory &memory, uint32_t list) {
  Executor &executor = *trainer->gpu;
  const Driver &driver = executor.driver();
  if (executor.communicator) {
    memory.recordings[list] = create<Recording>();
    cuda::record(*executor.communicator, memory.recordings[list]);
  }
  TRAINC_CU(driver, cuStreamBeginCapture, executor.streams.compute,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  trainc_status status = enqueueList(trainer, state, list);
  if (executor.communicator)
    cuda::record(*executor.communicator, nullptr);
  CUgraph graph = nullptr;
  CUresult ended = driver.cuStreamEndCapture(executor.streams.compute, &graph);
  if (status == TRAINC_OK && ended != CUDA_SUCCESS)
    status = failCall("cuStreamEndCapture", ended);
  if (status == TRAINC_OK) {
    CUresult made = driver.cuGraphInstantiate(&memory.graphs[list], graph, 0);
    if (made != CUDA_SUCCESS)
      status = failCall("cuGraphInstantiate", made);
  }
  if (graph)
    driver.cuGraphDestroy(graph);
  return status;
}

/// Each command is done before the next one is handed over; the times are those of the
/// device, from when the host began.
static trainc_status runObserved(trainc_trainer *trainer, uint32_t entry,
                                 uint32_t list) {
  Executor &executor = *trainer->gpu;
  const Driver &driver = executor.driver();
  EntryState &state = trainer->entries[entry];
  for (CUevent *event : {&executor.before, &executor.after.event})
    if (!*event)
      TRAINC_CU(driver, cuEventCreate, event, 0);
  for (size_t i = 0; i < state.lists[list].size(); ++i) {
    uint64_t begin = nowNs();
    TRAINC_TRY(observe(trainer, entry, list, i, /*end=*/false, begin));
    TRAINC_CU(driver, cuEventRecord, executor.before, executor.streams.compute);
    TRAINC_TRY(enqueue(trainer, state, state.lists[list][i]));
    TRAINC_TRY(setMark(executor, executor.after));
    executor.changed = true;
    TRAINC_TRY(await(executor, executor.after, "a command"));
    float milliseconds = 0;
    TRAINC_CU(driver, cuEventElapsedTime, &milliseconds, executor.before,
              executor.after.event);
    auto passed =
        static_cast<uint64_t>(1e6 * static_cast<double>(milliseconds));
    TRAINC_TRY(observe(trainer, entry, list, i, /*end=*/true, begin + passed));
  }
  return TRAINC_OK;
}

static trainc_status runCommands(trainc_trainer *trainer, uint32_t entry,
                                 uint32_t list) {
  Executor &executor = *trainer->gpu;
  EntryState &state = trainer->entries[entry];
  EntryMemory &memory = executor.entries[entry];
  // A run that ended half-way may have left some.
  while (executor.streams.awaited != executor.streams.started)
    TRAINC_TRY(awaitCollectives(executor.streams));
  if (trainer->observer)
    return runObserved(trainer, entry, list);
  executor.changed = true;
  if (!memory.ran[list]) {
    memory.ran[list] = true;
    return enqueueList(trainer, state, list);
  }
  if (!state.lists[list].size())
    return TRAINC_OK;
  if (!memory.graphs[list])
    TRAINC_TRY(capture(trainer, state, memory, list));
  if (memory.recordings[list])
    replay(*executor.communicator, *memory.recordings[list]);
  TRAINC_CU(executor.driver(), cuGraphLaunch, memory.graphs[list],
            executor.streams.compute);
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

static uint64_t blockBytes(const trainc_port *ports, uint32_t count) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i)
    bytes += alignUp(ports[i].bytes, portAlignment);
  return bytes;
}

/// Calls function(index, offset in the block of all) for each port.
template <typename Function>
static void forPorts(const trainc_port *ports, uint32_t count,
                     Function function) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < count; ++i) {
    function(i, offset);
    offset += alignUp(ports[i].bytes, portAlignment);
  }
}

/// Is the input bound to memory of the device?
static bool isOnDevice(const trainc_trainer *trainer, const EntryState &state,
                       uint32_t input) {
  return state.ports[input] &&
         state.ports[input] == state.bases[trainer->d->num_arenas + input];
}

/// Points the commands to the entry's own memory, but for inputs that are on the
/// device.
static void placePorts(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  EntryState &state = trainer->entries[entry];
  const EntryMemory &memory = trainer->gpu->entries[entry];
  size_t base = trainer->d->num_arenas;
  forPorts(e.inputs, e.num_inputs, [&](uint32_t i, uint64_t offset) {
    if (!isOnDevice(trainer, state, i))
      setBase(state, base + i, hostPointer(memory.inputs + offset));
  });
  forPorts(e.outputs, e.num_outputs, [&](uint32_t i, uint64_t offset) {
    setBase(state, base + e.num_inputs + i,
            hostPointer(memory.outputs + offset));
  });
}

void trainc::cuda::bindInput(trainc_trainer *trainer, uint32_t entry,
                             uint32_t index, const void *data, bool onDevice) {
  EntryState &state = trainer->entries[entry];
  EntryMemory &memory = trainer->gpu->entries[entry];
  size_t base = trainer->d->num_arenas + index;
  bool was = isOnDevice(trainer, state, index);
  if ((was || onDevice) && state.ports[index] != data)
    dropGraphs(*trainer->gpu, memory);
  state.ports[index] = const_cast<void *>(data);
  if (onDevice)
    setBase(state, base, const_cast<void *>(data));
  else if (was)
    setBase(state, base, nullptr);
  if (memory.ready)
    placePorts(trainer, entry);
}

trainc_status trainc::cuda::prepareEntry(trainc_trainer *trainer,
                                         uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  Executor &executor = *trainer->gpu;
  EntryMemory &memory = executor.entries[entry];
  if (memory.ready)
    return TRAINC_OK;
  uint64_t inputs = blockBytes(e.inputs, e.num_inputs);
  uint64_t outputs = blockBytes(e.outputs, e.num_outputs);
  uint64_t bytes = alignUp(inputs + outputs, pageBytes);
  TRAINC_TRY(checkLimit(trainer, bytes));
  if (!memory.inputs) {
    TRAINC_TRY(allocateOwned(trainer, bytes, e.name, &memory.inputs));
    trainer->entries[entry].outputs.hold(hostPointer(memory.inputs), bytes,
                                         trainer->account);
    trainer->outputBytes += bytes;
  }
  memory.outputs = memory.inputs + inputs;
  for (Slot &slot : memory.slots)
    if (inputs && !slot.data)
      TRAINC_TRY(allocateSlot(executor, inputs, &slot));
  if (outputs && !memory.results.data)
    TRAINC_TRY(allocateSlot(executor, outputs, &memory.results));
  for (Array<BoundCommand> &list : trainer->entries[entry].lists)
    matchPhases(list);
  memory.ready = true;
  placePorts(trainer, entry);
  return TRAINC_OK;
}

/// Copies what is bound to the device, neighbours at once.
static trainc_status sendInputs(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  Executor &executor = *trainer->gpu;
  EntryMemory &memory = executor.entries[entry];
  const EntryState &state = trainer->entries[entry];
  memory.sent = true;
  Slot &slot = memory.slots[memory.next];
  if (!slot.data)
    return TRAINC_OK;
  memory.next ^= 1;
  TRAINC_TRY(await(executor, slot.done, "a copy of inputs"));
  uint64_t begin = 0, end = 0;
  trainc_status status = TRAINC_OK;
  auto send = [&] {
    CUresult result = begin < end && status == TRAINC_OK
                          ? executor.driver().cuMemcpyHtoDAsync(
                                memory.inputs + begin, slot.data + begin,
                                end - begin, executor.streams.compute)
                          : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
      status = failCall("cuMemcpyHtoDAsync", result);
  };
  forPorts(e.inputs, e.num_inputs, [&](uint32_t i, uint64_t offset) {
    uint64_t bytes = e.inputs[i].bytes;
    if (isOnDevice(trainer, state, i)) {
      send();
      begin = end = offset + alignUp(bytes, portAlignment);
      return;
    }
    memcpy(slot.data + offset, state.ports[i], bytes);
    end = offset + bytes;
  });
  send();
  TRAINC_TRY(status);
  return setMark(executor, slot.done);
}

/// Copies outputs to the host: to bound memory at once, else when they are there.
static trainc_status fetchOutputs(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  Executor &executor = *trainer->gpu;
  EntryMemory &memory = executor.entries[entry];
  void *const *ports = trainer->entries[entry].ports.data() + e.num_inputs;
  if (!memory.results.data)
    return TRAINC_OK;
  trainc_status status = TRAINC_OK;
  forPorts(e.outputs, e.num_outputs, [&](uint32_t i, uint64_t offset) {
    if (ports[i] || !e.outputs[i].bytes || status != TRAINC_OK)
      return;
    CUresult result = executor.driver().cuMemcpyDtoHAsync(
        memory.results.data + offset, memory.outputs + offset,
        e.outputs[i].bytes, executor.streams.compute);
    if (result != CUDA_SUCCESS)
      status = failCall("cuMemcpyDtoHAsync", result);
  });
  TRAINC_TRY(status);
  TRAINC_TRY(setMark(executor, memory.results.done));
  forPorts(e.outputs, e.num_outputs, [&](uint32_t i, uint64_t offset) {
    if (ports[i] && status == TRAINC_OK)
      status = readMemory(executor, hostPointer(memory.outputs + offset),
                          ports[i], e.outputs[i].bytes);
  });
  return status;
}

trainc_status trainc::cuda::outputData(trainc_trainer *trainer, uint32_t entry,
                                       uint32_t index, const void **out_data) {
  const trainc_entry &e = trainer->d->entries[entry];
  Executor &executor = *trainer->gpu;
  TRAINC_TRY(cuda::prepareEntry(trainer, entry));
  Slot &results = executor.entries[entry].results;
  const void *data = trainer->entries[entry].ports[e.num_inputs + index];
  if (!data) {
    TRAINC_TRY(await(executor, results.done, "a copy of outputs"));
    forPorts(e.outputs, e.num_outputs, [&](uint32_t i, uint64_t offset) {
      if (i == index)
        data = results.data ? results.data + offset : nullptr;
    });
  }
  *out_data = data;
  return TRAINC_OK;
}

static bool readsInputs(const trainc_descriptor &d, const trainc_entry &entry,
                        uint32_t list) {
  for (uint64_t i = 0; i < entry.lists[list].count; ++i) {
    const trainc_command &command = entry.lists[list].commands[i];
    for (uint32_t k = 0; k < command.num_operands; ++k) {
      uint32_t base = command.operands[k].base;
      if (base >= d.num_arenas && base < d.num_arenas + entry.num_inputs)
        return true;
    }
  }
  return false;
}

trainc_status trainc::cuda::runList(trainc_trainer *trainer, uint32_t entry,
                                    uint32_t list) {
  const trainc_descriptor &d = *trainer->d;
  Executor &executor = *trainer->gpu;
  TRAINC_TRY(checkAlive(executor));
  TRAINC_TRY(cuda::prepareEntry(trainer, entry));
  Current current(*executor.device);
  TRAINC_TRY(current.status());
  // An update after a load may come before any other list.
  bool apply = list == TRAINC_LIST_APPLY;
  if (!apply ||
      (!executor.entries[entry].sent && readsInputs(d, d.entries[entry], list)))
    TRAINC_TRY(sendInputs(trainer, entry));
  TRAINC_TRY(sendScalars(trainer));
  TRAINC_TRY(runCommands(trainer, entry, list));
  return apply ? TRAINC_OK : fetchOutputs(trainer, entry);
}
