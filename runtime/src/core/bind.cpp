//===- bind.cpp - From tables to addresses --------------------------------===//

#include "core/trainer.h"
#include "cuda/executor.h"

using namespace trainc;

/// Work below this many nanoseconds, by a coarse estimate of 10 bytes and 10 flops in one
/// (a function counts as 10 flops), runs on the caller's thread: handing it to others costs
/// about as much. No bits depend on it.
static constexpr double aloneNanoseconds = 4000;

static bool runsAlone(const trainc_command &command, int64_t tiles) {
  double bytes = 0;
  for (uint32_t i = 0; i < command.num_operands; ++i)
    bytes += static_cast<double>(command.operands[i].bytes);
  double flops = command.kind == TRAINC_COMMAND_LAUNCH ||
                         command.kind == TRAINC_COMMAND_GEMM ||
                         command.kind == TRAINC_COMMAND_CONVOLUTION
                     ? static_cast<double>(command.flops)
                     : 0;
  return tiles <= 1 || bytes / 10 + flops / 10 < aloneNanoseconds;
}

static void needScratch(trainc_trainer *trainer, uint64_t bytes) {
  bytes = alignUp(bytes, 4096);
  if (bytes > trainer->scratchBytes)
    trainer->scratchBytes = bytes;
}

/// The plan for a detail; equal details share one.
static trainc_status findPlan(trainc_trainer *trainer, unsigned threads,
                              const trainc_gemm_detail &detail,
                              const GemmPlan **out_plan) {
  for (const GemmPlan *plan : trainer->plans)
    if (!memcmp(&gemmDetail(plan), &detail, sizeof(detail))) {
      *out_plan = plan;
      return TRAINC_OK;
    }
  GemmPlan *plan;
  TRAINC_TRY(createGemmPlan(detail, threads, &plan));
  trainer->plans.push(plan);
  needScratch(trainer, gemmScratch(plan));
  *out_plan = plan;
  return TRAINC_OK;
}

static trainc_status findPlan(trainc_trainer *trainer, unsigned threads,
                              const trainc_convolution_detail &detail,
                              const ConvolutionPlan **out_plan) {
  for (const ConvolutionPlan *plan : trainer->convolutions)
    if (!memcmp(&convolutionDetail(plan), &detail, sizeof(detail))) {
      *out_plan = plan;
      return TRAINC_OK;
    }
  ConvolutionPlan *plan;
  TRAINC_TRY(createConvolutionPlan(detail, threads, &plan));
  trainer->convolutions.push(plan);
  needScratch(trainer, convolutionScratch(plan));
  *out_plan = plan;
  return TRAINC_OK;
}

static trainc_status bindCommand(trainc_trainer *trainer, unsigned threads,
                                 const trainc_command &command,
                                 BoundCommand &bound) {
  bound.source = &command;
  if (trainer->gpu)
    return cuda::bindCommand(trainer, command, bound);
  switch (command.kind) {
  case TRAINC_COMMAND_LAUNCH: {
    const trainc_kernel &kernel = trainer->d->kernels[command.kernel];
    needScratch(trainer, kernel.scratch_bytes);
    bound.function = kernel.function;
    bound.tiles = command.tiles;
    break;
  }
  case TRAINC_COMMAND_GEMM: {
    auto &detail = *static_cast<const trainc_gemm_detail *>(command.detail);
    TRAINC_TRY(findPlan(trainer, threads, detail, &bound.plan));
    bound.tiles = gemmTileCount(bound.plan);
    break;
  }
  case TRAINC_COMMAND_CONVOLUTION: {
    auto &detail =
        *static_cast<const trainc_convolution_detail *>(command.detail);
    TRAINC_TRY(findPlan(trainer, threads, detail, &bound.convolution));
    bound.tiles = convolutionTileCount(bound.convolution);
    break;
  }
  case TRAINC_COMMAND_REDUCE_SCATTER:
  case TRAINC_COMMAND_ALL_REDUCE:
  case TRAINC_COMMAND_ALL_GATHER: {
    auto &detail =
        *static_cast<const trainc_collective_detail *>(command.detail);
    bound.tiles = 1;
    TRAINC_TRY(trainer->ranks.find(detail.axes, &bound.group));
    break;
  }
  default:
    bound.tiles = static_cast<int64_t>(
        alignUp(command.operands[0].bytes, moveBytes) / moveBytes);
    break;
  }
  bound.alone = runsAlone(command, bound.tiles);
  return TRAINC_OK;
}

/// Whether a collective is of what the entry makes of its batch. All its ranks then run
/// that entry: what they divide sums by is a size of its shapes. What is in arenas that
/// outlive the run, parameters and gradients, is of all entries; so are buckets of gradients
/// in the workspace, which are exchanged in place. Scalars of a step are sums of
/// terms of its loss, of which each rank may have another number.
static bool isOfBatch(const trainc_descriptor &d, const trainc_entry &entry,
                      int list, const trainc_command &command) {
  if (!isCollective(command.kind) || list == TRAINC_LIST_APPLY ||
      command.num_operands == 1)
    return false;
  uint32_t base = command.operands[0].base;
  if (base < d.num_arenas && base != d.workspace_arena)
    return false;
  auto &detail = *static_cast<const trainc_collective_detail *>(command.detail);
  return entry.kind == TRAINC_ENTRY_EVAL || !detail.scalar;
}

/// Whether a command uses memory that `operand` writes, or writes what it uses.
static bool depends(const trainc_command &command,
                    const trainc_operand &operand) {
  for (uint32_t i = 0; i < command.num_operands; ++i) {
    const trainc_operand &x = command.operands[i];
    if (x.base == operand.base &&
        ((x.access | operand.access) & TRAINC_WRITE) &&
        x.offset < operand.offset + operand.bytes &&
        operand.offset < x.offset + x.bytes)
      return true;
  }
  return false;
}

/// Whether one of two commands writes what the other one uses.
static bool depend(const trainc_command &x, const trainc_command &y) {
  for (uint32_t i = 0; i < x.num_operands; ++i)
    if (depends(y, x.operands[i]))
      return true;
  return false;
}

/// Finds commands that follow each other and are independent, not all of them
/// small.
static void groupCommands(Array<BoundCommand> &commands) {
  for (size_t first = 0, end; first < commands.size(); first = end) {
    auto joins = [&](size_t i) {
      if (isCollective(commands[i].source->kind))
        return false;
      for (size_t j = first; j < i; ++j)
        if (depend(*commands[j].source, *commands[i].source))
          return false;
      return true;
    };
    bool small = true;
    for (end = first;
         end < commands.size() && end < first + Pool::mostParts && joins(end);
         ++end)
      small &= commands[end].alone;
    if (end > first + 1 && !small)
      commands[first].together = static_cast<unsigned>(end - first);
    end += end == first; // a collective
  }
}

static size_t jobSize(const BoundCommand &first) {
  return first.together ? first.together : 1;
}

/// How many partial products commands leave.
static unsigned countPartials(const BoundCommand *commands, size_t count) {
  unsigned partials = 0;
  for (size_t i = 0; i < count; ++i)
    partials += commands[i].plan && gemmPartialPieces(commands[i].plan) ? 1 : 0;
  return partials;
}

/// Lets partial products be added with the next job, where that leaves room and
/// does not use them: a wait of all threads less.
static void delaySums(Array<BoundCommand> &commands) {
  size_t size = 0;
  for (size_t first = 0; first < commands.size(); first += size) {
    size = jobSize(commands[first]);
    unsigned partials = countPartials(&commands[first], size);
    size_t next = first + size;
    if (!partials || next >= commands.size())
      continue;
    size_t nextSize = jobSize(commands[next]);
    bool fits = nextSize + partials <= Pool::mostParts &&
                !isCollective(commands[next].source->kind);
    for (size_t i = first; i < next; ++i)
      for (size_t j = next; j < next + nextSize; ++j)
        fits &= !countPartials(&commands[i], 1) ||
                !depends(*commands[j].source, commands[i].source->operands[2]);
    if (!fits)
      continue;
    commands[first].together = static_cast<unsigned>(size);
    commands[first].sumsLater = true;
    commands[next].together = static_cast<unsigned>(nextSize);
  }
}

/// Gives partial products room that no other one of their job or the next has.
static void placePartials(trainc_trainer *trainer,
                          Array<BoundCommand> &commands) {
  uint64_t most = 0;
  for (bool place : {false, true}) {
    size_t size = 0;
    bool odd = false;
    for (size_t first = 0; first < commands.size(); first += size, odd = !odd) {
      size = jobSize(commands[first]);
      uint64_t used = 0;
      for (size_t i = first; i < first + size; ++i) {
        if (!commands[i].plan)
          continue;
        if (place)
          commands[i].partial = used + (odd ? most : 0);
        used += gemmPartialBytes(commands[i].plan);
      }
      most = used > most ? used : most;
    }
  }
  if (2 * most > trainer->partialBytes)
    trainer->partialBytes = 2 * most;
}

static trainc_status bindEntry(trainc_trainer *trainer, unsigned threads,
                               const trainc_entry &entry, EntryState &state) {
  size_t numBases =
      trainer->d->num_arenas + entry.num_inputs + entry.num_outputs;
  state.bases.resize(numBases);
  state.ports.resize(entry.num_inputs + entry.num_outputs);
  state.firstUse.resize(numBases + 1);
  size_t arguments = 0;
  auto forEach = [&](auto &&function) {
    for (const trainc_command_list &list : entry.lists)
      for (uint64_t i = 0; i < list.count; ++i)
        for (uint32_t k = 0; k < list.commands[i].num_operands; ++k)
          function(list.commands[i].operands[k]);
  };
  // Counting sort of the operands by base.
  forEach([&](const trainc_operand &operand) {
    ++state.firstUse[operand.base + 1];
    ++arguments;
  });
  for (size_t base = 0; base < numBases; ++base)
    state.firstUse[base + 1] += state.firstUse[base];
  state.arguments.resize(arguments);
  state.uses.resize(arguments);
  Array<size_t> next;
  next.resize(numBases);
  size_t argument = 0;
  forEach([&](const trainc_operand &operand) {
    size_t base = operand.base;
    state.uses[state.firstUse[base] + next[base]++] = {argument++,
                                                       operand.offset};
  });

  argument = 0;
  for (int kind = 0; kind < TRAINC_NUM_LISTS; ++kind) {
    const trainc_command_list &list = entry.lists[kind];
    for (uint64_t i = 0; i < list.count; ++i) {
      BoundCommand bound = {};
      bound.firstArgument = argument;
      argument += list.commands[i].num_operands;
      TRAINC_TRY(bindCommand(trainer, threads, list.commands[i], bound));
      bound.ofBatch = isOfBatch(*trainer->d, entry, kind, list.commands[i]);
      state.lists[kind].push(bound);
    }
    if (threads > 1 && !trainer->gpu) {
      groupCommands(state.lists[kind]);
      delaySums(state.lists[kind]);
    }
    placePartials(trainer, state.lists[kind]);
  }
  return TRAINC_OK;
}

trainc_status trainc::bindCommands(trainc_trainer *trainer, unsigned threads) {
  const trainc_descriptor &d = *trainer->d;
  trainer->entries =
      new (reallocate(nullptr, d.num_entries * sizeof(EntryState)))
          EntryState[d.num_entries];
  for (uint32_t i = 0; i < d.num_entries; ++i)
    TRAINC_TRY(bindEntry(trainer, threads, d.entries[i], trainer->entries[i]));
  trainer->partialBytes =
      alignUp((trainer->partialBytes + threads - 1) / threads, 4096);
  trainer->scratchBytes += trainer->partialBytes;
  uint64_t all;
  if (!__builtin_mul_overflow(trainer->scratchBytes, threads, &all) &&
      all <= INT64_MAX / 4)
    return TRAINC_OK;
  return fail(TRAINC_OUT_OF_MEMORY,
              "cannot allocate %llu bytes of scratch for each of %u threads",
              static_cast<unsigned long long>(trainer->scratchBytes), threads);
}

void trainc::bindArenas(trainc_trainer *trainer) {
  const trainc_descriptor &d = *trainer->d;
  for (uint32_t e = 0; e < d.num_entries; ++e) {
    trainer->entries[e].apart = false;
    for (uint32_t arena = 0; arena < d.num_arenas; ++arena)
      setBase(trainer->entries[e], arena, arenaData(trainer, arena));
  }
  trainer->scalars =
      trainer->gpu
          ? cuda::hostScalars(*trainer->gpu)
          : reinterpret_cast<double *>(arenaData(trainer, d.scalar_arena));
}

void trainc::setBase(EntryState &entry, size_t base, void *data) {
  if (entry.bases[base] == data)
    return;
  entry.bases[base] = data;
  for (size_t i = entry.firstUse[base]; i < entry.firstUse[base + 1]; ++i)
    entry.arguments[entry.uses[i].argument] =
        static_cast<char *>(data) + entry.uses[i].offset;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

static trainc_status getPort(const trainc_trainer *trainer, uint32_t entry,
                             bool output, uint32_t index,
                             const trainc_entry **out_entry,
                             const trainc_port **out_port) {
  TRAINC_TRY(getEntry(trainer->artifact, entry, out_entry));
  uint32_t count =
      output ? (*out_entry)->num_outputs : (*out_entry)->num_inputs;
  if (index >= count)
    return fail(TRAINC_INVALID_ARGUMENT, "entry '%s' has %u %s; no number %u",
                (*out_entry)->name, count, output ? "outputs" : "inputs",
                index);
  *out_port = (output ? (*out_entry)->outputs : (*out_entry)->inputs) + index;
  return TRAINC_OK;
}

static trainc_status checkData(const trainc_entry &entry,
                               const trainc_port &port, const void *data,
                               uint64_t bytes) {
  if (bytes != port.bytes) {
    Text shape;
    appendShape(shape, port.dtype, port.rank, port.dims);
    return fail(TRAINC_INVALID_ARGUMENT,
                "'%s' of entry '%s' is %s: expected %llu bytes, got %llu",
                port.name, entry.name, shape.c_str(),
                static_cast<unsigned long long>(port.bytes),
                static_cast<unsigned long long>(bytes));
  }
  if (reinterpret_cast<uintptr_t>(data) % trainc_dtype_size(port.dtype))
    return fail(
        TRAINC_INVALID_ARGUMENT,
        "the memory for '%s' of entry '%s' is not aligned to an element",
        port.name, entry.name);
  return TRAINC_OK;
}

trainc_status trainc_port_part(const trainc_trainer *trainer, uint32_t entry,
                               uint32_t output, uint32_t index,
                               uint32_t dimension, uint32_t *out_part,
                               uint32_t *out_parts) {
  const trainc_entry *e = nullptr;
  const trainc_port *port = nullptr;
  TRAINC_TRY(getPort(trainer, entry, output != 0, index, &e, &port));
  if (dimension >= port->rank)
    return fail(TRAINC_INVALID_ARGUMENT,
                "'%s' of entry '%s' has %u dimensions; no number %u",
                port->name, e->name, port->rank, dimension);
  uint32_t part = 0, parts = 1;
  for (uint64_t axes = port->splits ? port->splits[dimension] : 0; axes;
       axes >>= 8) {
    uint32_t axis = static_cast<uint32_t>(axes & 255) - 1;
    uint32_t size = static_cast<uint32_t>(trainer->d->axes[axis].size);
    part = part * size + trainer->ranks.coordinate(axis);
    parts *= size;
  }
  *out_part = part;
  *out_parts = parts;
  return TRAINC_OK;
}

trainc_status trainc_bind_input(trainc_trainer *trainer, uint32_t entry,
                                uint32_t index, const void *data,
                                uint64_t bytes) {
  const trainc_entry *e = nullptr;
  const trainc_port *port = nullptr;
  TRAINC_TRY(getPort(trainer, entry, /*output=*/false, index, &e, &port));
  if (!data)
    return fail(TRAINC_INVALID_ARGUMENT, "input '%s' of entry '%s' is null",
                port->name, e->name);
  TRAINC_TRY(checkData(*e, *port, data, bytes));
  bool gradient = isGradientMemory(trainer->state, data, bytes);
  if (e->accumulate > 1 && gradient)
    return fail(TRAINC_INVALID_ARGUMENT,
                "input '%s' of entry '%s' lies in the memory of gradients, to "
                "which %u micro-steps add; expected other memory",
                port->name, e->name, e->accumulate);
  if (gradient && !isOwnGradient(trainer, *port, data))
    return fail(TRAINC_INVALID_ARGUMENT,
                "input '%s' of entry '%s' lies in the memory of gradients; "
                "expected other memory, or of an input that is a gradient its "
                "own place there",
                port->name, e->name);
  EntryState &state = trainer->entries[entry];
  state.apart &= state.ports[index] == data;
  if (trainer->gpu) {
    cuda::bindInput(trainer, entry, index, data, /*onDevice=*/gradient);
    return TRAINC_OK;
  }
  state.ports[index] = const_cast<void *>(data);
  setBase(state, trainer->d->num_arenas + index, const_cast<void *>(data));
  return TRAINC_OK;
}

trainc_status trainc_bind_input_shaped(trainc_trainer *trainer, uint32_t entry,
                                       uint32_t index, const void *data,
                                       uint32_t dtype, uint32_t rank,
                                       const int64_t *dims) {
  const trainc_entry *e = nullptr;
  const trainc_port *port = nullptr;
  TRAINC_TRY(getPort(trainer, entry, /*output=*/false, index, &e, &port));
  bool equal = dtype == port->dtype && rank == port->rank;
  for (uint32_t i = 0; equal && i < rank; ++i)
    equal = dims[i] == port->dims[i];
  if (!equal) {
    Text wanted, got;
    appendShape(wanted, port->dtype, port->rank, port->dims);
    appendShape(got, dtype, rank, dims);
    return fail(TRAINC_INVALID_ARGUMENT,
                "input '%s' of entry '%s': expected %s, got %s", port->name,
                e->name, wanted.c_str(), got.c_str());
  }
  return trainc_bind_input(trainer, entry, index, data, port->bytes);
}

static uint64_t spaceOf(const trainc_port &output) {
  return alignUp(output.bytes ? output.bytes : 1, 256);
}

uint64_t trainc::countOutputBytes(const trainc_entry &entry) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < entry.num_outputs; ++i)
    bytes += spaceOf(entry.outputs[i]);
  return bytes;
}

/// Gives every output that has no memory its place in the trainer's own.
static trainc_status placeOutputs(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  EntryState &state = trainer->entries[entry];
  size_t first = trainer->d->num_arenas + e.num_inputs;
  bool missing = false;
  for (uint32_t i = 0; i < e.num_outputs; ++i)
    missing = missing || !state.bases[first + i];
  if (!missing)
    return TRAINC_OK;
  if (!state.outputs.data()) {
    uint64_t bytes = countOutputBytes(e);
    TRAINC_TRY(checkLimit(trainer, alignUp(bytes, pageBytes())));
    TRAINC_TRY(allocate(trainer, state.outputs, bytes, "outputs"));
    trainer->outputBytes += state.outputs.size();
  }
  char *place = state.outputs.data();
  for (uint32_t i = 0; i < e.num_outputs; ++i) {
    if (!state.bases[first + i])
      setBase(state, first + i, place);
    place += spaceOf(e.outputs[i]);
  }
  return TRAINC_OK;
}

trainc_status trainc_bind_output(trainc_trainer *trainer, uint32_t entry,
                                 uint32_t index, void *data, uint64_t bytes) {
  const trainc_entry *e = nullptr;
  const trainc_port *port = nullptr;
  TRAINC_TRY(getPort(trainer, entry, /*output=*/true, index, &e, &port));
  if (data)
    TRAINC_TRY(checkData(*e, *port, data, bytes));
  EntryState &state = trainer->entries[entry];
  state.apart = false;
  state.ports[e->num_inputs + index] = data;
  if (!trainer->gpu)
    setBase(state, trainer->d->num_arenas + e->num_inputs + index, data);
  return TRAINC_OK;
}

trainc_status trainc_output_data(trainc_trainer *trainer, uint32_t entry,
                                 uint32_t index, const void **out_data) {
  const trainc_entry *e = nullptr;
  const trainc_port *port = nullptr;
  TRAINC_TRY(getPort(trainer, entry, /*output=*/true, index, &e, &port));
  if (trainer->gpu)
    return cuda::outputData(trainer, entry, index, out_data);
  TRAINC_TRY(placeOutputs(trainer, entry));
  *out_data = trainer->entries[entry]
                  .bases[trainer->d->num_arenas + e->num_inputs + index];
  return TRAINC_OK;
}

trainc_status trainc::prepareEntry(trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  for (uint32_t i = 0; i < e.num_inputs; ++i)
    if (!trainer->entries[entry].ports[i])
      return fail(TRAINC_INVALID_ARGUMENT,
                  "input '%s' of entry '%s' is not bound", e.inputs[i].name,
                  e.name);
  TRAINC_TRY(trainer->gpu ? cuda::prepareEntry(trainer, entry)
                          : placeOutputs(trainer, entry));
  return trainer->entries[entry].apart ? TRAINC_OK : checkApart(trainer, entry);
}

trainc_status trainc_operand_read(const trainc_trainer *trainer, uint32_t entry,
                                  const trainc_command *command,
                                  uint32_t operand, uint64_t offset,
                                  void *out_data, uint64_t bytes) {
  const void *data = nullptr;
  TRAINC_TRY(trainc_operand_data(trainer, entry, command, operand, &data));
  uint64_t size = command->operands[operand].bytes;
  if (offset > size || bytes > size - offset)
    return fail(TRAINC_INVALID_ARGUMENT,
                "operand %u has %llu bytes, not %llu from %llu on", operand,
                static_cast<unsigned long long>(size),
                static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(offset));
  data = static_cast<const char *>(data) + offset;
  if (trainer->gpu)
    return cuda::readMemory(*trainer->gpu, data, out_data, bytes);
  memcpy(out_data, data, bytes);
  return TRAINC_OK;
}

trainc_status trainc_operand_data(const trainc_trainer *trainer, uint32_t entry,
                                  const trainc_command *command,
                                  uint32_t operand, const void **out_data) {
  const trainc_entry *e = nullptr;
  TRAINC_TRY(getEntry(trainer->artifact, entry, &e));
  const EntryState &state = trainer->entries[entry];
  if (operand >= command->num_operands ||
      command->operands[operand].base >= state.bases.size())
    return fail(TRAINC_INVALID_ARGUMENT, "the command has no operand %u",
                operand);
  const trainc_operand &place = command->operands[operand];
  if (!state.bases[place.base])
    return fail(TRAINC_INVALID_ARGUMENT, "operand %u is not bound", operand);
  *out_data = static_cast<const char *>(state.bases[place.base]) + place.offset;
  return TRAINC_OK;
}
