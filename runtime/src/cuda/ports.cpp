//===- ports.cpp - Inputs and outputs on a GPU ----------------------------===//

#include "cuda/executor_internals.h"

using namespace trainc;
using namespace trainc::cuda;

/// Where inputs and outputs start in their blocks.
static constexpr uint64_t portAlignment = 256;

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
  uint64_t bytes = alignUp(inputs + outputs, pageBytes());
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

/// Neighbours are copied at once.
trainc_status trainc::cuda::sendInputs(trainc_trainer *trainer,
                                       uint32_t entry) {
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

trainc_status trainc::cuda::fetchOutputs(trainc_trainer *trainer,
                                         uint32_t entry) {
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
  if (!data && results.data) {
    TRAINC_TRY(await(executor, results.done, "a copy of outputs"));
    forPorts(e.outputs, e.num_outputs, [&](uint32_t i, uint64_t offset) {
      if (i == index)
        data = results.data + offset;
    });
  }
  *out_data = data;
  return TRAINC_OK;
}
