//===- executor.cpp - What a trainer has on a GPU -------------------------===//

#include "cuda/executor_internals.h"

using namespace trainc;
using namespace trainc::cuda;

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

static bool hasProducts(const trainc_descriptor &d) {
  for (uint32_t e = 0; e < d.num_entries; ++e)
    for (const trainc_command_list &list : d.entries[e].lists)
      for (uint64_t i = 0; i < list.count; ++i)
        if (list.commands[i].kind == TRAINC_COMMAND_GEMM)
          return true;
  return false;
}

static trainc_status open(Executor &executor, int ordinal,
                          const trainc_descriptor &d) {
  TRAINC_TRY(openDevice(ordinal, &executor.device));
  Device &device = *executor.device;
  TRAINC_TRY(loadImage(device, d.images, d.num_images, &executor.module));
  executor.kernels.resize(d.num_kernels);
  for (uint32_t i = 0; i < d.num_kernels; ++i)
    TRAINC_TRY(findKernel(device, executor.module, d.kernels[i],
                          &executor.kernels[i]));
  if (hasProducts(d))
    TRAINC_TRY(openProducts(device, executor.module, &executor.products));
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

void trainc::cuda::dropGraphs(Executor &executor, EntryMemory &memory) {
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

void trainc::cuda::dropAllGraphs(void *argument) {
  auto &executor = *static_cast<Executor *>(argument);
  Current current(*executor.device);
  CUgraph graph = nullptr;
  if (executor.capturing && current.status() == TRAINC_OK &&
      executor.driver().cuStreamEndCapture(executor.streams.compute, &graph) ==
          CUDA_SUCCESS)
    executor.driver().cuGraphDestroy(graph);
  executor.capturing = false;
  forgetGraphs(executor);
}

/// NCCL may be closed when nothing is under way any more, and no graph is left.
static void closeCollectives(Executor &executor) {
  if (!executor.communicator)
    return;
  bool idle = waitForWork(executor) == TRAINC_OK;
  dropAllGraphs(&executor);
  for (CUdeviceptr address : executor.registered)
    if (idle)
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

trainc_status trainc::cuda::checkAlive(const Executor &executor) {
  return executor.failed ? fail(executor.failed, "%s", executor.failure.c_str())
                         : TRAINC_OK;
}

trainc_status trainc::cuda::keep(Executor &executor, trainc_status status) {
  if (status != TRAINC_OK && !executor.failed) {
    executor.failed = status;
    executor.failure.append(trainc_last_error());
  }
  return status;
}

trainc_status trainc::cuda::setMark(Executor &executor, Mark &mark) {
  TRAINC_CU(executor.driver(), cuEventRecord, mark.event,
            executor.streams.compute);
  if (executor.communicator)
    mark.collectives = enqueued(*executor.communicator);
  return TRAINC_OK;
}

trainc_status trainc::cuda::await(Executor &executor, const Mark &mark,
                                  const char *what) {
  TRAINC_TRY(checkAlive(executor));
  if (executor.communicator)
    return keep(executor, waitFor(*executor.communicator, mark.event,
                                  mark.collectives, what));
  trainc_status status =
      waitFor(*executor.device, mark.event, executor.timeout, what);
  if (status == TRAINC_OK)
    return TRAINC_OK;
  keep(executor, status);
  Current current(*executor.device);
  executor.hangs =
      current.status() == TRAINC_OK &&
      executor.driver().cuEventQuery(mark.event) == CUDA_ERROR_NOT_READY;
  return checkAlive(executor);
}

trainc_status trainc::cuda::waitForWork(Executor &executor) {
  TRAINC_TRY(checkAlive(executor));
  {
    Current current(*executor.device);
    TRAINC_TRY(current.status());
    TRAINC_TRY(keep(executor, joinStarted(executor.streams)));
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
    total += alignUp(arena.bytes, pageBytes());
    if (arena.bytes)
      line(alignUp(arena.bytes, pageBytes()), roleText(arena.role), arena.name);
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

trainc_status trainc::cuda::allocateOwned(trainc_trainer *trainer,
                                          uint64_t bytes, const char *what,
                                          CUdeviceptr *out_address) {
  Executor &executor = *trainer->gpu;
  bytes = alignUp(bytes, pageBytes());
  trainc_status status = allocate(*executor.device, bytes, out_address);
  if (status == TRAINC_OUT_OF_MEMORY)
    return failPlan(trainer, what);
  TRAINC_TRY(status);
  if (*out_address)
    executor.owned.push(*out_address);
  return TRAINC_OK;
}

trainc_status trainc::cuda::allocateSlot(Executor &executor, uint64_t bytes,
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

trainc_status trainc::cuda::allocateArenas(trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  State &state = trainer->state;
  uint64_t workspace =
      executor.products ? workspaceBytes(*executor.products) : 0;
  uint64_t needed = alignUp(trainer->scratchBytes, pageBytes()) +
                    alignUp(workspace, pageBytes());
  for (const trainc_arena &arena : state.arenas)
    needed += alignUp(arena.bytes, pageBytes());
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

trainc_status trainc::cuda::sendScalars(const trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  size_t count = executor.scalars.size(), first = 0;
  while (first < count && !differs(executor, first))
    ++first;
  if (first == count)
    return TRAINC_OK;
  Slot &slot = executor.scalarSlots[executor.nextScalars];
  executor.nextScalars = (executor.nextScalars + 1) % numScalarSlots;
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
