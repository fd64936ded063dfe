//===- run.cpp - Steps and evals ------------------------------------------===//

#include "core/convert.h"
#include "core/trainer.h"
#include "cpu/openblas.h"
#include "cuda/executor.h"
#include <time.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Index inputs
//===----------------------------------------------------------------------===//

/// Position of the first of the check's values outside its range, or `count`, of all.
template <typename T>
static uint64_t findBad(const void *data, uint64_t count,
                        const trainc_index_check &check) {
  auto *values = static_cast<const T *>(data);
  uint64_t rows = check.run ? check.rows : 1;
  uint64_t run = check.run ? check.run : count;
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t i = 0; i < run; ++i) {
      uint64_t position = check.begin + row * check.stride + i;
      int64_t value = values[position];
      bool good = (value >= check.low && value < check.high) ||
                  (check.has_ignore && value == check.ignore);
      if (!good)
        return position;
    }
  return count;
}

static uint64_t findBadOf(uint32_t dtype, const void *data, uint64_t count,
                          const trainc_index_check &check) {
  switch (dtype) {
  case TRAINC_I8:
    return findBad<int8_t>(data, count, check);
  case TRAINC_I16:
    return findBad<int16_t>(data, count, check);
  case TRAINC_I32:
    return findBad<int32_t>(data, count, check);
  case TRAINC_I64:
    return findBad<int64_t>(data, count, check);
  default:
    return findBad<uint8_t>(data, count, check);
  }
}

static trainc_status failIndex(const trainc_entry &entry,
                               const trainc_index_check &check,
                               const void *data, uint64_t position) {
  const trainc_port &port = entry.inputs[check.input];
  // The position in every dimension, from the last.
  Text place;
  Array<uint64_t> indices;
  indices.resize(port.rank);
  uint64_t rest = position;
  for (uint32_t i = port.rank; i-- > 0;) {
    indices[i] = rest % static_cast<uint64_t>(port.dims[i]);
    rest /= static_cast<uint64_t>(port.dims[i]);
  }
  for (uint32_t i = 0; i < port.rank; ++i)
    place.format("%s%llu", i ? ", " : "",
                 static_cast<unsigned long long>(indices[i]));
  Text ignored;
  if (check.has_ignore)
    ignored.format(" or %lld", static_cast<long long>(check.ignore));
  return fail(TRAINC_OUT_OF_RANGE,
              "input '%s' of entry '%s' has %lld at [%s] (element %llu); "
              "expected a value from %lld to %lld%s",
              port.name, entry.name,
              static_cast<long long>(integerAt(port.dtype, data, position)),
              place.c_str(), static_cast<unsigned long long>(position),
              static_cast<long long>(check.low),
              static_cast<long long>(check.high) - 1, ignored.c_str());
}

static trainc_status checkIndices(const trainc_entry &entry,
                                  const EntryState &state) {
  for (uint32_t i = 0; i < entry.num_checks; ++i) {
    const trainc_index_check &check = entry.checks[i];
    const trainc_port &port = entry.inputs[check.input];
    const void *data = state.ports[check.input];
    uint64_t count = port.bytes / trainc_dtype_size(port.dtype);
    uint64_t position = findBadOf(port.dtype, data, count, check);
    if (position != count)
      return failIndex(entry, check, data, position);
  }
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

namespace {
/// What a tile of any command needs, or a piece of the sum of its partial products.
struct Job {
  const trainc_trainer *trainer;
  const BoundCommand *command;
  void *const *args;
  bool sums;
  std::atomic<bool> failed;
};
} // namespace

static char *scratchOf(const trainc_trainer &trainer, unsigned worker) {
  return trainer.scratch.data() + trainer.pool.size() * trainer.partialBytes +
         worker * (trainer.scratchBytes - trainer.partialBytes);
}

bool trainc::runWorkgroup(const BoundCommand &command, void *const *args,
                          int64_t number, void *scratch, void *partial) {
  uint64_t begin = static_cast<uint64_t>(number) * moveBytes;
  uint64_t bytes = 0;
  switch (command.source->kind) {
  case TRAINC_COMMAND_LAUNCH:
    command.function(args, number, scratch);
    return true;
  case TRAINC_COMMAND_GEMM:
    return runGemmTile(command.plan, args, number, scratch, partial);
  case TRAINC_COMMAND_CONVOLUTION:
    return runConvolutionTile(command.convolution, args, number, scratch);
  default:
    bytes = command.source->operands[0].bytes - begin;
    bytes = bytes < moveBytes ? bytes : moveBytes;
    memcpy(static_cast<char *>(args[1]) + begin,
           static_cast<const char *>(args[0]) + begin, bytes);
    return true;
  }
}

static void runTile(void *argument, int64_t tile, unsigned worker) {
  Job &job = *static_cast<Job *>(argument);
  const BoundCommand &command = *job.command;
  char *partial = job.trainer->scratch.data() + command.partial;
  if (job.sums)
    addGemmPartial(command.plan, job.args, partial, tile);
  else if (!runWorkgroup(command, job.args, tile,
                         scratchOf(*job.trainer, worker), partial))
    job.failed.store(true, std::memory_order_relaxed);
}

/// In how many pieces what is left of a product is to be added; mostly 0.
static int64_t piecesLeft(const BoundCommand &command) {
  return command.plan ? gemmPartialPieces(command.plan) : 0;
}

/// The window in which peers find the bucket that they gather; null if `operand` is
/// none: what is small is sent to them.
static const Window *bucketWindow(const trainc_trainer *trainer,
                                  const trainc_operand &operand) {
  const trainc_descriptor &d = *trainer->d;
  return operand.base < d.num_arenas && d.arenas[operand.base].num_buckets
             ? trainer->windows[operand.base]
             : nullptr;
}

/// A collective of the list, as the communicator knows it.
static Collective collectiveOf(const trainc_trainer *trainer,
                               const BoundCommand &command, void *const *args) {
  const trainc_command &source = *command.source;
  auto &detail = *static_cast<const trainc_collective_detail *>(source.detail);
  const trainc_operand &operand = source.operands[0];
  uint64_t size = trainc_dtype_size(detail.dtype);
  Collective c;
  c.kind = source.kind == TRAINC_COMMAND_REDUCE_SCATTER ? TRAINC_REDUCE_SCATTER
           : source.kind == TRAINC_COMMAND_ALL_REDUCE   ? TRAINC_ALL_REDUCE
                                                        : TRAINC_ALL_GATHER;
  c.group = command.group;
  c.dtype = detail.dtype;
  c.count = operand.bytes / size;
  c.label = source.label;
  if (source.num_operands == 1) {
    c.window = trainer->windows[operand.base];
    c.offset = operand.offset;
    if (detail.piece_axes) {
      c.count /= trainer->ranks.countIn(detail.piece_axes);
      c.offset += c.count * size * trainer->ranks.indexIn(detail.piece_axes);
    }
  } else if (source.kind == TRAINC_COMMAND_ALL_REDUCE) {
    memcpy(args[1], args[0], operand.bytes);
    c.data = args[1];
  } else {
    c.target = args[1];
    if (source.kind == TRAINC_COMMAND_ALL_GATHER)
      c.window = bucketWindow(trainer, operand);
    if (c.window)
      c.offset = operand.offset;
    else
      c.data = args[0];
  }
  return c;
}

static trainc_status runCollective(trainc_trainer *trainer, uint32_t entry,
                                   const BoundCommand &command) {
  auto &detail =
      *static_cast<const trainc_collective_detail *>(command.source->detail);
  trainc_comm &comm = *trainer->ranks.communicator();
  if (detail.phase == TRAINC_COLLECTIVE_WAIT) {
    uint32_t token = trainer->started[trainer->waited++];
    if (trainer->waited == trainer->started.size()) {
      trainer->started.clear();
      trainer->waited = 0;
    }
    return wait(comm, token, &trainer->pool);
  }
  void *const *args =
      trainer->entries[entry].arguments.data() + command.firstArgument;
  Collective c = collectiveOf(trainer, command, args);
  c.entry = trainer->d->entries[entry].name;
  c.batch = command.ofBatch ? entry + 1 : 0;
  if (detail.phase == TRAINC_COLLECTIVE_START) {
    uint32_t token = 0;
    TRAINC_TRY(start(comm, c, &token));
    trainer->started.push(token);
    return TRAINC_OK;
  }
  return run(comm, c, &trainer->pool);
}

/// An input may be bound to the memory that it is copied to.
static bool isNothing(const BoundCommand &command, void *const *args) {
  return command.source->kind == TRAINC_COMMAND_COPY && args[0] == args[1];
}

/// False if a library failed.
static bool runCommand(trainc_trainer *trainer, const EntryState &state,
                       const BoundCommand &command) {
  void *const *args = state.arguments.data() + command.firstArgument;
  if (isNothing(command, args))
    return true;
  if (command.alone && command.source->kind == TRAINC_COMMAND_LAUNCH) {
    for (int64_t tile = 0; tile < command.tiles; ++tile)
      command.function(args, tile, scratchOf(*trainer, 0));
    return true;
  }
  Job job = {trainer, &command, args, false, {false}};
  if (command.alone) {
    for (int64_t tile = 0; tile < command.tiles; ++tile)
      runTile(&job, tile, 0);
  } else {
    trainer->pool.run(runTile, &job, command.tiles);
  }
  if (int64_t pieces = piecesLeft(command)) {
    job.sums = true;
    trainer->pool.run(runTile, &job, pieces);
  }
  return !job.failed.load(std::memory_order_relaxed);
}

namespace {
/// What the pool runs at once.
class Together {
public:
  Together(const trainc_trainer *trainer, const EntryState &state)
      : trainer(trainer), state(state) {}

  void add(const BoundCommand *commands, size_t count) {
    for (size_t i = 0; i < count; ++i)
      if (!isNothing(commands[i], argsOf(commands[i])))
        add(commands[i], false, commands[i].tiles, commands[i].alone);
  }
  void addSums(const BoundCommand *commands, size_t count) {
    for (size_t i = 0; i < count; ++i)
      if (int64_t pieces = piecesLeft(commands[i]))
        add(commands[i], true, pieces, false);
  }
  void run(Pool &pool) {
    if (size)
      pool.run(runTile, parts, size);
  }
  /// The first command that failed, or null.
  const BoundCommand *failed() const {
    for (unsigned i = 0; i < size; ++i)
      if (jobs[i].failed.load(std::memory_order_relaxed))
        return jobs[i].command;
    return nullptr;
  }

private:
  void *const *argsOf(const BoundCommand &command) const {
    return state.arguments.data() + command.firstArgument;
  }
  void add(const BoundCommand &command, bool sums, int64_t tiles, bool whole) {
    Job &job = jobs[size];
    job.trainer = trainer;
    job.command = &command;
    job.args = argsOf(command);
    job.sums = sums;
    job.failed.store(false, std::memory_order_relaxed);
    parts[size++] = {&job, tiles, whole};
  }

  const trainc_trainer *trainer;
  const EntryState &state;
  Job jobs[Pool::mostParts];
  Pool::Part parts[Pool::mostParts];
  unsigned size = 0;
};
} // namespace

/// Runs commands at once, with the sums that `before` commands before them left;
/// returns the first that failed, or null.
static const BoundCommand *runTogether(trainc_trainer *trainer,
                                       const EntryState &state,
                                       const BoundCommand *commands,
                                       size_t count, size_t before) {
  Together all(trainer, state);
  all.addSums(commands - before, before);
  all.add(commands, count);
  all.run(trainer->pool);
  if (!commands->sumsLater) {
    Together sums(trainer, state);
    sums.addSums(commands, count);
    sums.run(trainer->pool);
  }
  return all.failed();
}

static uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 +
         static_cast<uint64_t>(time.tv_nsec);
}

trainc_status trainc::observe(trainc_trainer *trainer, uint32_t entry,
                              uint32_t list, size_t index, bool end,
                              uint64_t time) {
  const BoundCommand &command = trainer->entries[entry].lists[list][index];
  trainc_event event = {
      end, entry, list, static_cast<uint32_t>(index), command.source, time};
  if (trainer->observer(trainer->observerContext, &event) == 0)
    return TRAINC_OK;
  trainer->broken = true;
  return fail(TRAINC_CANCELLED, "the observer stopped entry '%s' at '%s'",
              trainer->d->entries[entry].name,
              command.source->label ? command.source->label : "?");
}

static trainc_status failLibrary(trainc_trainer *trainer,
                                 const BoundCommand &command) {
  trainer->broken = true;
  return fail(TRAINC_UNSUPPORTED, "the GEMM library failed in '%s'",
              command.source->label ? command.source->label : "?");
}

static trainc_status runCommands(trainc_trainer *trainer, uint32_t entry,
                                 uint32_t list) {
  const EntryState &state = trainer->entries[entry];
  const Array<BoundCommand> &commands = state.lists[list];
  size_t before = 0; // commands before i whose partial products are to be added
  for (size_t i = 0; i < commands.size(); ++i) {
    // An observer sees one command after the other.
    if (size_t count = trainer->observer ? 0 : commands[i].together) {
      if (const BoundCommand *failed =
              runTogether(trainer, state, &commands[i], count, before))
        return failLibrary(trainer, *failed);
      before = commands[i].sumsLater ? count : 0;
      i += count - 1;
      continue;
    }
    if (trainer->observer)
      TRAINC_TRY(observe(trainer, entry, list, i, /*end=*/false, now()));
    if (isCollective(commands[i].source->kind)) {
      trainc_status status = runCollective(trainer, entry, commands[i]);
      if (status != TRAINC_OK) {
        trainer->broken = true;
        return status;
      }
    } else if (!runCommand(trainer, state, commands[i])) {
      return failLibrary(trainer, commands[i]);
    }
    if (trainer->observer)
      TRAINC_TRY(observe(trainer, entry, list, i, /*end=*/true, now()));
  }
  return TRAINC_OK;
}

/// Waits for what a list that ended half-way started: peers read and write it until it
/// is done. Returns the status and the text of that end.
static trainc_status finishStarted(trainc_trainer *trainer,
                                   trainc_status status) {
  size_t count = trainer->started.size();
  if (!count)
    return status;
  Text reason;
  reason.append(trainc_last_error());
  (void)wait(*trainer->ranks.communicator(), trainer->started[count - 1],
             &trainer->pool);
  trainer->started.clear();
  trainer->waited = 0;
  return fail(status, "%s", reason.c_str());
}

static trainc_status runList(trainc_trainer *trainer, uint32_t entry,
                             uint32_t list) {
  if (trainer->gpu) {
    trainc_status status = cuda::runList(trainer, entry, list);
    trainer->broken |= status != TRAINC_OK;
    return status;
  }
  const OneBlasThread held;
  trainc_status status = runCommands(trainer, entry, list);
  return status == TRAINC_OK ? TRAINC_OK : finishStarted(trainer, status);
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// Can the artifact go on from the state?
static trainc_status checkState(const trainc_trainer *trainer) {
  const trainc_descriptor &d = *trainer->d;
  if (trainer->broken)
    return fail(TRAINC_INVALID_ARGUMENT,
                "the last run or load of this trainer ended half-way; load a "
                "checkpoint first");
  for (uint32_t i = 0; trainer->converted && i < d.num_tensors; ++i) {
    const trainc_tensor &tensor = trainer->state.tensors[i];
    if (tensor.dtype != d.tensors[i].dtype)
      return fail(TRAINC_MISMATCH,
                  "tensor '%s' was converted to %s, artifact '%s' computes "
                  "with %s: convert the trainer back, or to another artifact",
                  tensor.name, trainc_dtype_name(tensor.dtype), d.name,
                  trainc_dtype_name(d.tensors[i].dtype));
  }
  return TRAINC_OK;
}

static trainc_status checkEntry(trainc_trainer *trainer, uint32_t entry,
                                uint32_t kind) {
  const trainc_entry *e = nullptr;
  TRAINC_TRY(getEntry(trainer->artifact, entry, &e));
  if (e->kind != kind)
    return fail(TRAINC_INVALID_ARGUMENT, "entry '%s' is %s, not %s", e->name,
                kind == TRAINC_ENTRY_EVAL ? "a step" : "an eval",
                kind == TRAINC_ENTRY_EVAL ? "an eval" : "a step");
  TRAINC_TRY(checkState(trainer));
  TRAINC_TRY(prepareEntry(trainer, entry));
  return checkIndices(*e, trainer->entries[entry]);
}

/// No peer reads what a list will write.
static trainc_status fenceWindows(const trainc_trainer *trainer) {
  return trainer->ranks.any() && !trainer->gpu
             ? fence(*trainer->ranks.communicator())
             : TRAINC_OK;
}

/// A flush may come before any input is bound: after a load.
static trainc_status checkFlush(const trainc_trainer *trainer, uint32_t entry) {
  const trainc_entry &e = trainer->d->entries[entry];
  TRAINC_TRY(checkState(trainer));
  const trainc_command_list &apply = e.lists[TRAINC_LIST_APPLY];
  for (uint64_t i = 0; i < apply.count; ++i)
    for (uint32_t k = 0; k < apply.commands[i].num_operands; ++k) {
      uint32_t input =
          apply.commands[i].operands[k].base - trainer->d->num_arenas;
      if (input < e.num_inputs && !trainer->entries[entry].ports[input])
        return fail(TRAINC_INVALID_ARGUMENT,
                    "the update of entry '%s' reads an input that is not bound",
                    e.name);
    }
  return TRAINC_OK;
}

/// The scalars of the window of `entry`.
static double *windowOf(trainc_trainer *trainer, uint32_t entry) {
  return trainer->scalars + scalarOf(trainer->d->entries[entry].window, 0);
}

/// Runs the update for the `count` micro-steps of the window.
static trainc_status closeWindow(trainc_trainer *trainer, uint32_t entry,
                                 double count) {
  double *scalars = windowOf(trainer, entry);
  scalars[TRAINC_SCALAR_WINDOW] = count;
  // This rank's request alone: the list makes it the sum over all ranks.
  setScalar(trainer,
            scalarOf(trainer->d->entries[entry].window, TRAINC_SCALAR_STOP),
            trainer->stopRequested);
  // The update overwrites what the micro-step exchanged in the workspace.
  if (trainer->windows.size() && trainer->windows[trainer->d->workspace_arena])
    TRAINC_TRY(fenceWindows(trainer));
  TRAINC_TRY(runList(trainer, entry, TRAINC_LIST_APPLY));
  scalars[TRAINC_SCALAR_MICRO_STEP] = 0;
  return TRAINC_OK;
}

trainc_status trainc_step(trainc_trainer *trainer, uint32_t entry,
                          trainc_step_result *out_result) {
  TRAINC_TRY(checkEntry(trainer, entry, TRAINC_ENTRY_STEP));
  double *scalars = windowOf(trainer, entry);
  double &microStep = scalars[TRAINC_SCALAR_MICRO_STEP];
  const trainc_entry &e = trainer->d->entries[entry];
  DefaultFloats floats;
  if (out_result)
    TRAINC_TRY(settle(trainer));
  double before = scalars[TRAINC_SCALAR_UPDATE];
  trainer->windowEntries[e.window] = entry;
  TRAINC_TRY(fenceWindows(trainer));
  TRAINC_TRY(runList(trainer, entry,
                     microStep > 0 ? TRAINC_LIST_NEXT : TRAINC_LIST_FIRST));
  microStep += 1;
  bool closes = microStep >= e.accumulate;
  if (closes)
    TRAINC_TRY(closeWindow(trainer, entry, microStep));
  return endRun(trainer, scalars, closes, before, out_result);
}

trainc_status trainc_request_stop(trainc_trainer *trainer) {
  trainer->stopRequested = true;
  return TRAINC_OK;
}

trainc_status trainc_flush(trainc_trainer *trainer,
                           trainc_step_result *out_result) {
  if (out_result)
    TRAINC_TRY(settle(trainer));
  uint32_t count = trainer->d->num_windows;
  auto microSteps = [&](uint32_t window) {
    return trainer->scalars[scalarOf(window, TRAINC_SCALAR_MICRO_STEP)];
  };
  for (uint32_t window = 0; window < count; ++window)
    if (microSteps(window) > 0)
      TRAINC_TRY(checkFlush(trainer, trainer->windowEntries[window]));
  DefaultFloats floats;
  const double *closed = nullptr;
  double before = 0;
  for (uint32_t window = 0; window < count; ++window) {
    if (microSteps(window) == 0)
      continue;
    closed = trainer->scalars + scalarOf(window, 0);
    before = closed[TRAINC_SCALAR_UPDATE];
    TRAINC_TRY(closeWindow(trainer, trainer->windowEntries[window],
                           microSteps(window)));
  }
  return endRun(trainer, closed ? closed : trainer->scalars, closed != nullptr,
                before, out_result);
}

trainc_status trainc_eval(trainc_trainer *trainer, uint32_t entry) {
  TRAINC_TRY(checkEntry(trainer, entry, TRAINC_ENTRY_EVAL));
  DefaultFloats floats;
  // Nothing that an eval writes outlives it: no observer's stop breaks the
  // state.
  bool broken = trainer->broken;
  TRAINC_TRY(fenceWindows(trainer));
  trainc_status status = runList(trainer, entry, TRAINC_LIST_FIRST);
  trainer->broken = broken;
  return status;
}

trainc_status trainc_set_observer(trainc_trainer *trainer,
                                  trainc_observer_fn observer, void *context) {
  trainer->observer = observer;
  trainer->observerContext = context;
  return TRAINC_OK;
}
