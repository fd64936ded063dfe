//===- commands.cpp - Running command lists on a GPU ----------------------===//

#include "comm/waiting.h"
#include "cuda/executor_internals.h"

using namespace trainc;
using namespace trainc::cuda;

/// A, B, C, bias, what an epilogue keeps, the bias's gradient.
static constexpr uint32_t maxProductOperands = 6;

/// Of a collective that another list has waited for.
static constexpr uint32_t phaseNone = UINT32_MAX;

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
    if (command.tiles > INT32_MAX)
      return fail(TRAINC_UNSUPPORTED,
                  "launch of '%s' (%s): %lld blocks, expects at most 2^31 - 1",
                  kernel.name, command.label ? command.label : "?",
                  static_cast<long long>(command.tiles));
    bound.kernel = executor.kernels[command.kernel];
    bound.tiles = command.tiles;
    return TRAINC_OK;
  }
  case TRAINC_COMMAND_GEMM: {
    bool told = noticeOf(*executor.products);
    TRAINC_TRY(
        planProduct(*executor.products,
                    *static_cast<const trainc_gemm_detail *>(command.detail),
                    &bound.product, productAlignment(command)));
    if (const char *notice = noticeOf(*executor.products); notice && !told)
      trainer->notice.format("%s%s", trainer->notice.size() ? "\n" : "",
                             notice);
    return TRAINC_OK;
  }
  case TRAINC_COMMAND_COPY:
    return TRAINC_OK;
  }
  auto &detail = *static_cast<const trainc_collective_detail *>(command.detail);
  return trainer->ranks.find(detail.axes, &bound.group);
}

/// Opens NCCL when the first collective needs it.
static trainc_status joinGroupOf(trainc_trainer *trainer,
                                 const BoundCommand &command) {
  Executor &executor = *trainer->gpu;
  if (!executor.communicator) {
    TRAINC_TRY(openCommunicator(*executor.device, trainer->ranks.communicator(),
                                &executor.communicator));
    setGraphs(*executor.communicator, dropAllGraphs, &executor);
  }
  return joinGroup(*executor.communicator, command.group);
}

trainc_status trainc::cuda::joinRanks(trainc_trainer *trainer) {
  for (uint32_t i = 0; i < trainer->d->num_entries; ++i)
    for (const Array<BoundCommand> &list : trainer->entries[i].lists)
      for (const BoundCommand &command : list)
        if (isCollective(command.source->kind))
          TRAINC_TRY(joinGroupOf(trainer, command));
  return registerArenas(trainer);
}

trainc_status trainc::cuda::registerArenas(trainc_trainer *trainer) {
  Executor &executor = *trainer->gpu;
  if (!executor.communicator)
    return TRAINC_OK;
  for (uint32_t i = 0; i < trainer->d->num_arenas; ++i) {
    if (!isInWindow(*trainer->d, i) || !trainer->state.pages[i].size())
      continue;
    CUdeviceptr address = deviceAddress(arenaData(trainer, i));
    bool known = false;
    for (CUdeviceptr registered : executor.registered)
      known = known || registered == address;
    if (known)
      continue;
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
void trainc::cuda::matchPhases(Array<BoundCommand> &list) {
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

static trainc_status launchGraph(Executor &executor, EntryMemory &memory,
                                 uint32_t list) {
  CUgraphExec graph = memory.graphs[list];
  if (!memory.recordings[list]) {
    TRAINC_CU(executor.driver(), cuGraphLaunch, graph,
              executor.streams.compute);
    return TRAINC_OK;
  }
  replay(*executor.communicator, *memory.recordings[list]);
  // The driver may wait until there is room for more work.
  Watch watch(*executor.communicator, "launching a graph");
  TRAINC_CU(executor.driver(), cuGraphLaunch, graph, executor.streams.compute);
  return TRAINC_OK;
}

/// Makes the graph of a list. If that fails nothing has changed, except that NCCL was
/// called.
static trainc_status capture(const trainc_trainer *trainer, EntryState &state,
                             EntryMemory &memory, uint32_t list) {
  Executor &executor = *trainer->gpu;
  const Driver &driver = executor.driver();
  const Streams before = executor.streams;
  TRAINC_CU(driver, cuStreamBeginCapture, executor.streams.compute,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  executor.capturing = true;
  if (executor.communicator) {
    memory.recordings[list] = create<Recording>();
    cuda::record(*executor.communicator, memory.recordings[list]);
  }
  trainc_status status = enqueueList(trainer, state, list);
  if (executor.communicator)
    cuda::record(*executor.communicator, nullptr);
  CUgraph graph = nullptr;
  executor.capturing = false;
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
  if (status != TRAINC_OK) {
    destroy(memory.recordings[list]);
    memory.recordings[list] = nullptr;
    memory.graphs[list] = nullptr;
    executor.streams = before;
  }
  return status;
}

/// Captures a list or, where that fails, runs it plainly from now on. Of collectives all
/// ranks are to be captured, or none.
static trainc_status captureOrRun(trainc_trainer *trainer, EntryState &state,
                                  EntryMemory &memory, uint32_t list) {
  trainc_status status = capture(trainer, state, memory, list);
  if (status == TRAINC_OK)
    return launchGraph(*trainer->gpu, memory, list);
  bool collectives = false;
  for (const BoundCommand &command : state.lists[list])
    collectives |= isCollective(command.source->kind);
  if (collectives)
    return status;
  memory.plain[list] = true;
  trainer->notice.format("%sthe commands of %s cannot be one graph, and are "
                         "launched one by one: %s",
                         trainer->notice.size() ? "\n" : "",
                         trainer->place.c_str(), trainc_last_error());
  return enqueueList(trainer, state, list);
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
  if (!memory.ran[list] || !trainer->graphs || memory.plain[list]) {
    memory.ran[list] = true;
    return enqueueList(trainer, state, list);
  }
  if (!state.lists[list].size())
    return TRAINC_OK;
  return memory.graphs[list] ? launchGraph(executor, memory, list)
                             : captureOrRun(trainer, state, memory, list);
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
