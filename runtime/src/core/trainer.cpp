//===- trainer.cpp - Making and freeing training states -------------------===//

#include "core/access.h"
#include "core/convert.h"
#include "core/init.h"
#include "core/parts.h"
#include "core/target.h"
#include "cpu/features.h"
#include "cpu/onednn.h"
#include "cpu/openblas.h"
#include <errno.h>

using namespace trainc;

static constexpr uint64_t maxSeed = UINT64_C(1) << 53;
static constexpr uint32_t maxThreads = 4096;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

State::~State() {
  for (size_t i = 0; i < arenas.size(); ++i)
    pages[i].~Pages();
  free(pages);
}

void State::layOut(const trainc_arena *newArenas, uint32_t numArenas,
                   const trainc_tensor *newTensors, uint32_t numTensors) {
  for (uint32_t i = 0; i < numArenas; ++i)
    arenas.push(newArenas[i]);
  for (uint32_t i = 0; i < numTensors; ++i)
    tensors.push(newTensors[i]);
  pages = new (reallocate(nullptr, numArenas * sizeof(Pages))) Pages[numArenas];
}

void State::setTables(const trainc_descriptor &d) {
  memcpy(arenas.data(), d.arenas, d.num_arenas * sizeof(trainc_arena));
  memcpy(tensors.data(), d.tensors, d.num_tensors * sizeof(trainc_tensor));
}

void State::swap(State &other) {
  arenas.swap(other.arenas);
  tensors.swap(other.tensors);
  trainc::swap(pages, other.pages);
}

trainc_status trainc::allocate(trainc_trainer *trainer, Pages &pages,
                               uint64_t bytes, const char *what) {
  return pages.allocate(bytes, trainer->account) ? TRAINC_OK
                                                 : failAllocation(bytes, what);
}

trainc_status trainc::checkLimit(const trainc_trainer *trainer, uint64_t more,
                                 uint64_t outputs) {
  uint64_t needed = trainer->account.held + more;
  if (!trainer->limit || needed <= trainer->limit)
    return TRAINC_OK;
  Text all;
  if (outputs)
    all.format(", %llu with outputs that are not bound",
               static_cast<unsigned long long>(needed + outputs));
  return fail(TRAINC_OUT_OF_MEMORY,
              "artifact '%s' needs %llu bytes%s; memory_limit is %llu; "
              "trainc --memory-limit makes artifacts that need less",
              trainer->d->name, static_cast<unsigned long long>(needed),
              all.size() ? all.c_str() : "",
              static_cast<unsigned long long>(trainer->limit));
}

char *trainc::arenaData(const trainc_trainer *trainer, uint32_t arena) {
  return trainer->state.pages[arena].data();
}

const trainc_bucket *trainc::bucketOf(const trainc_descriptor &d,
                                      uint32_t index) {
  const trainc_tensor &tensor = d.tensors[index];
  const trainc_arena &arena = d.arenas[tensor.arena];
  for (uint32_t i = 0; i < arena.num_buckets; ++i)
    if (tensor.offset < arena.buckets[i].first + arena.buckets[i].bytes)
      return &arena.buckets[i];
  return nullptr;
}

Range trainc::rangeOf(const trainc_descriptor &d, const Ranks &ranks,
                      uint32_t index, uint32_t rank) {
  const trainc_tensor &tensor = d.tensors[index];
  uint64_t size = trainc_dtype_size(tensor.dtype);
  const trainc_bucket *bucket = bucketOf(d, index);
  if (!bucket)
    return {0, tensor.bytes / size, tensor.offset};
  // The piece of the bucket that the rank has: all of it, if it is one piece.
  uint64_t bytes = bucket->bytes / bucket->pieces;
  uint64_t first =
      bucket->pieces == 1
          ? 0
          : bytes * ranks.indexIn(d.arenas[tensor.arena].piece_axes, rank);
  uint64_t begin = tensor.offset - bucket->first, end = begin + tensor.bytes;
  uint64_t from = begin > first ? begin : first;
  uint64_t to = end < first + bytes ? end : first + bytes;
  if (from >= to)
    return {0, 0, 0};
  return {(from - begin) / size, (to - from) / size,
          bucket->local + (from - first)};
}

Range trainc::rangeIn(const State &state, const trainc_descriptor &d,
                      const Ranks &ranks, uint32_t index) {
  const trainc_tensor &tensor = state.tensors[index];
  Range range = rangeOf(d, ranks, index, ranks.rank());
  if (!state.arenas[tensor.arena].num_buckets)
    range.offset = tensor.offset;
  return range;
}

Part trainc::partOf(const trainc_trainer *trainer,
                    const trainc_tensor &tensor) {
  Range range = rangeIn(trainer->state, *trainer->d, trainer->ranks,
                        trainer->state.indexOf(tensor));
  if (!range.count && tensor.bytes)
    return {0, 0, nullptr};
  return {range.first, range.count,
          arenaData(trainer, tensor.arena) + range.offset};
}

char *trainc::tensorData(const trainc_trainer *trainer,
                         const trainc_tensor &tensor) {
  return partOf(trainer, tensor).data;
}

/// Those that a collective changes in place, or from which peers gather buckets.
bool trainc::isInWindow(const trainc_descriptor &d, uint32_t arena) {
  for (uint32_t e = 0; e < d.num_entries; ++e)
    for (const trainc_command_list &list : d.entries[e].lists)
      for (uint64_t i = 0; i < list.count; ++i) {
        const trainc_command &command = list.commands[i];
        if (isCollective(command.kind) && command.operands[0].base == arena &&
            (command.num_operands == 1 || d.arenas[arena].num_buckets))
          return true;
      }
  return false;
}

/// All but the windows.
static trainc_status allocateArenas(trainc_trainer *trainer) {
  if (trainer->gpu)
    return cuda::allocateArenas(trainer);
  State &state = trainer->state;
  // bindCommands has checked the product.
  uint64_t needed = 0, scratch = trainer->scratchBytes * trainer->pool.size();
  for (const trainc_arena &arena : state.arenas)
    needed += alignUp(arena.bytes, pageBytes());
  uint64_t outputs = 0;
  for (uint32_t i = 0; i < trainer->d->num_entries; ++i)
    outputs += alignUp(countOutputBytes(trainer->d->entries[i]), pageBytes());
  TRAINC_TRY(checkLimit(trainer, needed + scratch, outputs));
  for (uint32_t i = 0; i < state.arenas.size(); ++i)
    if (!isInWindow(*trainer->d, i))
      TRAINC_TRY(allocate(trainer, state.pages[i], state.arenas[i].bytes,
                          state.arenas[i].name));
  return allocate(trainer, trainer->scratch, scratch, "scratch");
}

static trainc_status createWindows(trainc_trainer *trainer) {
  State &state = trainer->state;
  trainer->windows.resize(state.arenas.size());
  for (uint32_t i = 0; i < state.arenas.size(); ++i) {
    if (!isInWindow(*trainer->d, i))
      continue;
    uint64_t bytes = alignUp(state.arenas[i].bytes, pageBytes());
    Window *&window = trainer->windows[i];
    TRAINC_TRY(createWindow(*trainer->ranks.communicator(), bytes, &window));
    state.pages[i].borrow(window->data, bytes, trainer->account);
    state.pages[i].takeRest();
  }
  return TRAINC_OK;
}

void trainc::destroyWindows(const Ranks &ranks, Array<Window *> &windows) {
  for (Window *window : windows)
    if (window)
      destroyWindow(*ranks.communicator(), window);
  windows.clear();
}

//===----------------------------------------------------------------------===//
// Initial values
//===----------------------------------------------------------------------===//

namespace {
/// Elements that threads share: those from `first` on of a tensor of the trainer, or
/// of one that is copied to another type.
struct TensorJob {
  const trainc_trainer *trainer;
  const trainc_tensor *tensor, *master;
  uint64_t first, count;
  const char *from;
  char *to;
  const PartMap *map; // of what is made, not copied
};
} // namespace

static constexpr uint64_t pieceElements = 1 << 16;

static void overPieces(trainc_trainer *trainer, TensorJob job,
                       TileFn function) {
  uint64_t pieces = (job.count + pieceElements - 1) / pieceElements;
  // Pool::run takes 2^31 tiles, which is 2^47 elements: more than memory holds.
  if (pieces)
    trainer->pool.run(function, &job, static_cast<int64_t>(pieces));
}

static void pieceOf(const TensorJob &job, int64_t piece, uint64_t &begin,
                    uint64_t &end) {
  begin = static_cast<uint64_t>(piece) * pieceElements;
  end = begin + pieceElements < job.count ? begin + pieceElements : job.count;
}

/// The arena of the masters of the copies in `bucket` of arena `arena`, if a rank
/// has pieces of them alone; else null.
static const trainc_arena *findPieces(const trainc_trainer *trainer,
                                      uint32_t arena,
                                      const trainc_bucket &bucket) {
  const State &state = trainer->state;
  const trainc_descriptor &d = *trainer->d;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    if (d.tensors[i].arena != arena || bucketOf(d, i) != &bucket)
      continue;
    const trainc_tensor *master = state.findMaster(state.tensors[i]);
    const trainc_bucket *pieces =
        master ? bucketOf(d, state.indexOf(*master)) : nullptr;
    return pieces && pieces->pieces > 1 ? &d.arenas[master->arena] : nullptr;
  }
  return nullptr;
}

/// Whether a rank has all of a tensor.
static bool isWhole(const trainc_trainer *trainer,
                    const trainc_tensor &tensor) {
  const trainc_bucket *bucket =
      bucketOf(*trainer->d, trainer->state.indexOf(tensor));
  return !bucket || bucket->pieces == 1;
}

/// Gives all ranks the copies in `arena`, of which each has made its parts; where a
/// conversion has laid them out there are no buckets, and between GPUs the exchange
/// is that of their hosts.
static trainc_status gatherConverted(trainc_trainer *trainer, uint32_t arena) {
  const State &state = trainer->state;
  for (const trainc_tensor &tensor : state.tensors) {
    const trainc_tensor *master = state.findMaster(tensor);
    if (!master || tensor.arena != arena || !isWhole(trainer, tensor))
      continue;
    Elements copy;
    TRAINC_TRY(
        copy.open(trainer, tensor, 0, elementCount(tensor), Access::Update));
    TRAINC_TRY(gatherTensor(trainer, *master, tensor.dtype, copy.data()));
    TRAINC_TRY(copy.close());
  }
  return TRAINC_OK;
}

/// Gives all ranks the buckets of copies of which each has made its piece, but those
/// of which a rank has no more.
static trainc_status gatherCopies(trainc_trainer *trainer) {
  const State &state = trainer->state;
  for (uint32_t a = 0; a < state.arenas.size(); ++a) {
    const trainc_arena &arena = state.arenas[a];
    if (arena.role != TRAINC_ROLE_COMPUTE)
      continue;
    // Where all parameters are frozen no step gathers copies, so it is no window.
    if (!arena.num_buckets || trainer->gpu || !trainer->windows[a]) {
      TRAINC_TRY(gatherConverted(trainer, a));
      continue;
    }
    for (uint32_t i = 0; i < arena.num_buckets; ++i) {
      const trainc_bucket &bucket = arena.buckets[i];
      const trainc_arena *masters = findPieces(trainer, a, bucket);
      if (!masters || bucket.pieces > 1)
        continue;
      Collective gather;
      gather.kind = TRAINC_ALL_GATHER;
      gather.dtype = arena.dtype;
      gather.count = bucket.bytes / trainc_dtype_size(arena.dtype);
      gather.window = trainer->windows[a];
      gather.offset = bucket.local;
      gather.label = "compute copies";
      TRAINC_TRY(trainer->ranks.find(masters->piece_axes, &gather.group));
      TRAINC_TRY(run(*trainer->ranks.communicator(), gather, &trainer->pool));
    }
  }
  return TRAINC_OK;
}

static trainc_status copyMaster(trainc_trainer *trainer,
                                const trainc_tensor &tensor,
                                const trainc_tensor &master) {
  // A copy that is in pieces is so as its master.
  uint64_t own = partOf(trainer, master).first - partOf(trainer, tensor).first;
  Elements copy;
  auto copyPiece = [&](const char *from, uint64_t first, uint64_t count) {
    TRAINC_TRY(copy.open(trainer, tensor, own + first, count, Access::Write));
    overPieces(
        trainer,
        {trainer, &tensor, &master, first, count, from, copy.data(), nullptr},
        [](void *argument, int64_t piece, unsigned) {
          auto &job = *static_cast<TensorJob *>(argument);
          uint64_t begin, end;
          pieceOf(job, piece, begin, end);
          uint32_t from = job.master->dtype, to = job.tensor->dtype;
          convert(from, job.from + begin * trainc_dtype_size(from), to,
                  job.to + begin * trainc_dtype_size(to), end - begin);
        });
    return copy.close();
  };
  return forElements(trainer, master, Access::Read, copyPiece);
}

trainc_status trainc::updateComputeCopies(trainc_trainer *trainer) {
  const State &state = trainer->state;
  if (trainer->ranks.any())
    TRAINC_TRY(fence(*trainer->ranks.communicator()));
  for (const trainc_tensor &tensor : state.tensors) {
    const trainc_tensor *master =
        tensor.role == TRAINC_ROLE_COMPUTE ? state.findMaster(tensor) : nullptr;
    if (!master || tensorData(trainer, *master) == tensorData(trainer, tensor))
      continue;
    TRAINC_TRY(copyMaster(trainer, tensor, *master));
  }
  return trainer->ranks.any() ? gatherCopies(trainer) : TRAINC_OK;
}

/// Writes elements [begin, end) of this rank's part.
static void writeInitial(const TensorJob &job, uint64_t begin, uint64_t end) {
  uint64_t size = trainc_dtype_size(job.tensor->dtype);
  auto write = [&](char *to, uint64_t element, uint64_t count) {
    initialize(*job.tensor, job.trainer->seed, to, element, element + count);
    return TRAINC_OK;
  };
  (void)job.map->writePart(job.to + (begin - job.first) * size, size, begin,
                           end - begin, write);
}

trainc_status trainc::initializeState(trainc_trainer *trainer) {
  const State &state = trainer->state;
  for (const trainc_tensor &tensor : state.tensors) {
    if (tensor.role == TRAINC_ROLE_GRADIENT || state.isCopy(tensor) ||
        startsAsZeros(tensor))
      continue;
    uint64_t own = partOf(trainer, tensor).first;
    PartMap map(tensor, trainer->ranks, trainer->ranks.rank());
    auto write = [&](char *to, uint64_t first, uint64_t count) {
      overPieces(
          trainer,
          {trainer, &tensor, nullptr, own + first, count, nullptr, to, &map},
          [](void *argument, int64_t piece, unsigned) {
            auto &job = *static_cast<TensorJob *>(argument);
            uint64_t begin, end;
            pieceOf(job, piece, begin, end);
            writeInitial(job, job.first + begin, job.first + end);
          });
      return TRAINC_OK;
    };
    TRAINC_TRY(forElements(trainer, tensor, Access::Write, write));
  }
  return updateComputeCopies(trainer);
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

void trainc::setCoordinates(trainc_trainer *trainer) {
  const trainc_descriptor &d = *trainer->d;
  Text name;
  for (uint32_t axis = 0; axis < d.num_axes; ++axis) {
    name.clear();
    name.format("mesh.%s", d.axes[axis].name);
    uint32_t scalar = 0;
    if (trainc_artifact_find_scalar(trainer->artifact, name.c_str(), &scalar) ==
        TRAINC_OK)
      trainer->scalars[scalar] = trainer->ranks.coordinate(axis);
  }
}

/// Where the trainer runs, and which rank it is.
static trainc_status choosePlace(trainc_trainer *trainer,
                                 const trainc_trainer_options &options) {
  TRAINC_TRY(chooseTarget(trainer, options));
  return trainer->ranks.place(options.comm, *trainer->d);
}

/// What a GPU cannot do is an error of the device that was chosen.
static trainc_status nameDevice(const trainc_trainer *trainer,
                                trainc_status status) {
  return status == TRAINC_UNSUPPORTED && trainer->gpu
             ? failDevice(*trainer->artifact, status)
             : status;
}

/// Threads, commands and memory, but that which peers read.
static trainc_status prepare(trainc_trainer *trainer,
                             const trainc_trainer_options &options) {
  const trainc_descriptor &d = *trainer->d;
  trainer->state.layOut(d.arenas, d.num_arenas, d.tensors, d.num_tensors);
  TRAINC_TRY(trainer->pool.start(
      options.threads ? options.threads : availableProcessors(),
      (options.flags & TRAINC_TRAINER_PIN_THREADS) != 0, options.parallel_for,
      options.parallel_context));
  TRAINC_TRY(nameDevice(trainer, bindCommands(trainer, trainer->pool.size())));
  return allocateArenas(trainer);
}

/// What one rank refuses no other waits for.
static trainc_status build(trainc_trainer *trainer,
                           const trainc_trainer_options &options) {
  trainc_status placed = choosePlace(trainer, options);
  TRAINC_TRY(options.comm ? agreeOutcome(*options.comm, placed) : placed);
  TRAINC_TRY(trainer->ranks.join(options.seed));
  TRAINC_TRY(trainer->ranks.agree(prepare(trainer, options)));
  TRAINC_TRY(trainer->gpu ? nameDevice(trainer, cuda::joinRanks(trainer))
                          : createWindows(trainer));
  bindArenas(trainer);
  const trainc_descriptor &d = *trainer->d;
  for (uint32_t i = 0; i < d.num_scalars; ++i)
    trainer->scalars[i] = d.scalars[i].init;
  trainer->isSet.resize(d.num_scalars);
  trainer->windowEntries.resize(d.num_windows);
  trainer->scalars[TRAINC_SCALAR_SEED] = static_cast<double>(options.seed);
  setCoordinates(trainer);
  return options.flags & TRAINC_TRAINER_NO_INIT ? TRAINC_OK
                                                : initializeState(trainer);
}

trainc_status trainc_trainer_create(trainc_artifact *artifact,
                                    const trainc_trainer_options *given,
                                    trainc_trainer **out_trainer) {
  trainc_trainer_options options;
  TRAINC_TRY(takeOptions(given, "trainer options", options));
  uint32_t known = TRAINC_TRAINER_NO_INIT | TRAINC_TRAINER_PIN_THREADS |
                   TRAINC_TRAINER_NO_GRAPHS;
  if (options.flags & ~known)
    return fail(TRAINC_INVALID_ARGUMENT,
                "trainer options: expected known flags, got %#x",
                options.flags);
  if (options.seed >= maxSeed)
    return fail(TRAINC_INVALID_ARGUMENT,
                "trainer options: expected a seed below 2^53, got %llu",
                static_cast<unsigned long long>(options.seed));
  if (options.threads > maxThreads)
    return fail(TRAINC_INVALID_ARGUMENT,
                "trainer options: expected at most %u threads, got %u",
                maxThreads, options.threads);
  if (!(options.timeout >= 0))
    return fail(TRAINC_INVALID_ARGUMENT,
                "trainer options: expected a timeout of 0 or more seconds, got "
                "%g",
                options.timeout);
  DefaultFloats floats;
  auto *trainer = create<trainc_trainer>();
  trainer->artifact = artifact;
  retain(artifact);
  trainer->d = artifact->descriptor; // until a target is chosen
  trainer->seed = options.seed;
  trainer->limit = options.memory_limit;
  trainer->graphs = !(options.flags & TRAINC_TRAINER_NO_GRAPHS);
  trainc_status status = build(trainer, options);
  if (status != TRAINC_OK)
    destroy(trainer);
  else
    *out_trainer = trainer;
  return status;
}

trainc_trainer::~trainc_trainer() {
  cuda::closeExecutor(gpu);
  destroyWindows(ranks, windows);
  for (GemmPlan *plan : plans)
    destroyGemmPlan(plan);
  for (ConvolutionPlan *plan : convolutions)
    destroyConvolutionPlan(plan);
  for (uint32_t i = 0; entries && i < d->num_entries; ++i)
    entries[i].~EntryState();
  free(entries);
  clearPairs(metadata);
  trainc_artifact_close(artifact);
}

void trainc_trainer_destroy(trainc_trainer *trainer) { destroy(trainer); }

const trainc_artifact *trainc_trainer_artifact(const trainc_trainer *trainer) {
  return trainer->artifact;
}

const trainc_descriptor *
trainc_trainer_descriptor(const trainc_trainer *trainer) {
  return trainer->d;
}

const char *trainc_trainer_device(const trainc_trainer *trainer) {
  return trainer->place.c_str();
}

const char *trainc_trainer_notice(const trainc_trainer *trainer) {
  return trainer->notice.size() ? trainer->notice.c_str() : nullptr;
}

uint32_t trainc_trainer_threads(const trainc_trainer *trainer) {
  return trainer->pool.size();
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

trainc_status trainc_memory_use(const trainc_trainer *trainer,
                                trainc_memory *out_memory) {
  trainc_memory memory = {};
  const State &state = trainer->state;
  for (size_t i = 0; i < state.arenas.size(); ++i) {
    bool workspace = state.arenas[i].role == TRAINC_ROLE_WORKSPACE;
    (workspace ? memory.workspace : memory.persistent) += state.pages[i].size();
  }
  memory.outputs = trainer->outputBytes;
  memory.scratch = trainer->scratch.size() + trainer->library.size();
  memory.total = trainer->account.held;
  memory.limit = trainer->limit;
  memory.peak = trainer->account.peak;
  memory.converted_beside = trainer->convertedBeside;
  memory.converted_by_host = trainer->convertedByHost;
  memory.staging = trainer->gpu ? cuda::stagingBytes(*trainer->gpu) : 0;
  *out_memory = memory;
  return TRAINC_OK;
}

const char *trainc::roleText(uint32_t role) {
  switch (role) {
#define TRAINC_ROLE(NAME, number, text)                                        \
  case number:                                                                 \
    return text;
#include "trainc/step_abi.def"
  }
  return "?";
}

trainc_status trainc_memory_report(trainc_trainer *trainer,
                                   const char **out_text) {
  Text &text = trainer->report;
  text.clear();
  auto line = [&](uint64_t bytes, const char *what, const char *name) {
    text.format("%16llu  %s%s%s\n", static_cast<unsigned long long>(bytes),
                what, *name ? ": " : "", name);
  };
  const State &state = trainer->state;
  for (size_t i = 0; i < state.arenas.size(); ++i)
    if (state.pages[i].size())
      line(state.pages[i].size(), roleText(state.arenas[i].role),
           state.arenas[i].name);
  line(trainer->outputBytes, trainer->gpu ? "inputs and outputs" : "outputs",
       "");
  line(trainer->scratch.size(), "scratch of running tiles", "");
  if (trainer->library.size())
    line(trainer->library.size(), "workspace of cuBLASLt", "");
  line(trainer->account.held, "in all", "");
  if (trainer->gpu)
    line(cuda::stagingBytes(*trainer->gpu),
         "pinned memory of the host, beside that", "");
  else if (trainer->plans.size() || trainer->convolutions.size())
    if (uint64_t bytes = openBlasBytes())
      line(bytes, "address space of OpenBLAS, beside that", "");
  if (trainer->limit)
    line(trainer->limit, "memory limit", "");
  *out_text = text.c_str();
  return TRAINC_OK;
}

/// As status.cpp does for errors: each thread's own text.
static pthread_key_t infoKey;
static pthread_once_t infoOnce = PTHREAD_ONCE_INIT;

const char *trainc_runtime_info(void) {
  pthread_once(&infoOnce, [] {
    pthread_key_create(&infoKey,
                       [](void *text) { destroy(static_cast<Text *>(text)); });
  });
  auto *text = static_cast<Text *>(pthread_getspecific(infoKey));
  if (!text) {
    text = create<Text>();
    pthread_setspecific(infoKey, text);
  }
  text->clear();
  text->format("trainc %s, ", TRAINC_VERSION_STRING);
  appendProcessorName(*text);
  text->format(", %u processors, ", availableProcessors());
  appendOpenBlas(*text);
  text->append(", ");
  appendOneDnn(*text);
  return text->c_str();
}
