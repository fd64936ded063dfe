//===- conversion.cpp - Converting a training state in place --------------===//
//
// A conversion first lays out the new state and plans every move; only when
// types and memory fit does it move. Of several ranks all do so, each with what it
// has of the state, and go on to the next stage together or not at all.
//
//===----------------------------------------------------------------------===//

#include "core/convert.h"
#include "core/hash.h"
#include "core/match.h"
#include "core/mover.h"
#include "core/parts.h"
#include "core/target.h"
#include "cuda/arena_conversion.h"
#include "cuda/executor.h"
#include <errno.h>
#include <strings.h>

using namespace trainc;

/// Where tensors start in a layout that no artifact has.
static constexpr uint64_t tensorAlignment = 64;

namespace {
class Conversion {
public:
  Conversion(trainc_trainer *trainer, const trainc_convert_options &options)
      : trainer(trainer), options(options), now(trainer->state),
        next(create<trainc_trainer>()), after(next->state),
        d(options.artifact ? *findTarget(*options.artifact, trainer->d->target)
                           : *trainer->d),
        ranks(options.artifact ? next->ranks : trainer->ranks),
        mover({now, *trainer->d, trainer->ranks}, {after, d, ranks}) {}
  ~Conversion();

  trainc_status toType(uint32_t dtype);
  trainc_status toArtifact();

private:
  struct Pair {
    uint32_t from, to; // tensors, or arenas
  };

  bool isSelected(const trainc_tensor &tensor) const;
  bool changes(uint32_t arena) const;
  trainc_status onDevice();
  void layOutArenas();
  trainc_status match(Plan &plan);
  trainc_status planArtifact(Plan &plan);
  bool haveSamePieces(uint32_t from, uint32_t to) const;
  bool canKeep(uint32_t from, uint32_t to) const;
  void keep(uint32_t from, uint32_t to);
  trainc_status planMoves();
  bool needsWindow(uint32_t arena) const;
  trainc_status reservePages();
  trainc_status reserveWindows();
  trainc_status checkLimits();
  trainc_status reserve(trainc_status planned);
  trainc_status move();
  trainc_status finish(trainc_status moved);

  trainc_trainer *trainer;
  const trainc_convert_options &options;
  State &now;
  /// What the trainer takes over: the state, its windows and, for another artifact,
  /// what is bound to that.
  trainc_trainer *next;
  State &after;
  const trainc_descriptor &d; // of the state after
  const Ranks &ranks;

  Mover mover;
  Array<Pair> pairs;
  Array<Pair> kept;             // arenas
  Array<bool> keptFrom, keptTo; // per arena
};
} // namespace

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

static bool holdsTensors(const trainc_arena &arena) {
  return arena.role <= TRAINC_ROLE_BUFFER || arena.role == TRAINC_ROLE_MERGED;
}

Conversion::~Conversion() {
  destroyWindows(trainer->ranks, next->windows);
  destroy(next);
}

/// A window is laid out as the artifact says, or no collective runs on it.
bool Conversion::needsWindow(uint32_t arena) const {
  return after.arenas[arena].num_buckets == d.arenas[arena].num_buckets &&
         isInWindow(d, arena);
}

/// Has every rank the same pieces of both arenas, in the same kind of memory?
bool Conversion::haveSamePieces(uint32_t from, uint32_t to) const {
  const trainc_arena &a = now.arenas[from], &b = after.arenas[to];
  if (a.num_buckets != b.num_buckets ||
      (trainer->windows[from] != nullptr) != needsWindow(to))
    return false;
  for (uint32_t i = 0; i < a.num_buckets; ++i) {
    const trainc_bucket &x = a.buckets[i], &y = b.buckets[i];
    if (x.first != y.first || x.bytes != y.bytes || x.pieces != y.pieces)
      return false;
  }
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    if (trainer->ranks.indexIn(a.piece_axes, rank) !=
        ranks.indexIn(b.piece_axes, rank))
      return false;
  return true;
}

/// Does arena `from` hold what arena `to` shall hold, at the same places?
bool Conversion::canKeep(uint32_t from, uint32_t to) const {
  const trainc_arena &a = now.arenas[from], &b = after.arenas[to];
  if (a.role != b.role || !holdsTensors(a) || !haveSamePieces(from, to) ||
      alignUp(a.bytes, pageBytes()) != alignUp(b.bytes, pageBytes()))
    return false;
  for (const Pair &pair : pairs) {
    const trainc_tensor &x = now.tensors[pair.from];
    const trainc_tensor &y = after.tensors[pair.to];
    if (x.arena != from && y.arena != to)
      continue;
    if (x.arena != from || y.arena != to || x.dtype != y.dtype ||
        x.offset != y.offset || !haveSameParts(x, trainer->ranks, y, ranks))
      return false;
  }
  // A copy may lie where another artifact has padding, which is zero.
  for (const trainc_tensor &tensor : now.tensors)
    if (next->artifact && tensor.arena == from && now.isCopy(tensor))
      return false;
  return true;
}

void Conversion::keep(uint32_t from, uint32_t to) {
  mover.keep(from, to);
  keptFrom[from] = keptTo[to] = true;
  kept.push({from, to});
}

trainc_status Conversion::planMoves() {
  keptFrom.resize(now.arenas.size());
  keptTo.resize(after.arenas.size());
  Array<bool> seen; // per arena: only that of its first tensor can become it
  seen.resize(now.arenas.size());
  for (const Pair &pair : pairs) {
    uint32_t from = now.tensors[pair.from].arena;
    uint32_t to = after.tensors[pair.to].arena;
    if (!seen[from] && canKeep(from, to))
      keep(from, to);
    seen[from] = true;
    if (keptFrom[from])
      continue;
    if (now.tensors[pair.from].role == TRAINC_ROLE_GRADIENT &&
        isSum(*trainer->d, trainer->ranks, pair.from) !=
            isSum(d, ranks, pair.to)) {
      if (!inWindow(trainer))
        continue; // it holds nothing
      return fail(TRAINC_UNSUPPORTED,
                  "the sums of the open window are each rank's own in one of "
                  "artifacts '%s' and '%s' and those of all in the other: save "
                  "and load them, or close the window",
                  trainer->d->name, d.name);
    }
    if (!holdsTensors(now.arenas[from]) || !holdsTensors(after.arenas[to]))
      return fail(TRAINC_UNSUPPORTED,
                  "tensor '%s' lies in an arena of another kind: it cannot be "
                  "converted",
                  now.tensors[pair.from].name);
    mover.add(pair.from, pair.to);
  }
  if (!next->artifact)
    keep(trainer->d->scalar_arena, trainer->d->scalar_arena);
  return mover.prepare();
}

/// Reserves addresses for what does not stay where it is.
trainc_status Conversion::reservePages() {
  for (uint32_t i = 0; i < after.arenas.size(); ++i) {
    const trainc_arena &arena = after.arenas[i];
    if (!keptTo[i] && !needsWindow(i) &&
        !after.pages[i].reserve(arena.bytes, trainer->account))
      return failAllocation(arena.bytes, arena.name);
  }
  uint64_t scratch = next->scratchBytes * trainer->pool.size();
  return next->scratch.reserve(scratch, trainer->account)
             ? TRAINC_OK
             : failAllocation(scratch, "scratch");
}

/// The same on all ranks.
trainc_status Conversion::reserveWindows() {
  next->windows.resize(after.arenas.size());
  for (uint32_t i = 0; i < after.arenas.size(); ++i) {
    if (keptTo[i] || !needsWindow(i))
      continue;
    uint64_t bytes = alignUp(after.arenas[i].bytes, pageBytes());
    Window *&window = next->windows[i];
    TRAINC_TRY(createWindow(*ranks.communicator(), bytes, &window));
    after.pages[i].borrow(window->data, bytes, trainer->account);
  }
  return TRAINC_OK;
}

/// All ranks go on, or none does. No peer reads this rank's windows afterwards.
trainc_status Conversion::reserve(trainc_status planned) {
  if (planned == TRAINC_OK)
    planned = checkLimits();
  if (planned == TRAINC_OK)
    planned = reservePages();
  TRAINC_TRY(ranks.agree(planned));
  TRAINC_TRY(reserveWindows());
  return ranks.any() ? fence(*ranks.communicator()) : TRAINC_OK;
}

trainc_status Conversion::checkLimits() {
  uint64_t rest = trainer->outputBytes + trainer->scratch.size();
  uint64_t held = trainer->account.held;
  uint64_t end =
      next->artifact
          ? alignUp(next->scratchBytes * trainer->pool.size(), pageBytes())
          : rest;
  for (const trainc_arena &arena : after.arenas)
    end += alignUp(arena.bytes, pageBytes());
  uint64_t needed = held - (next->artifact ? rest : 0) + mover.peak();
  for (uint64_t bytes : {held, end})
    needed = bytes > needed ? bytes : needed;
  for (uint64_t limit : {trainer->limit, options.memory_limit})
    if (limit && needed > limit)
      return fail(TRAINC_OUT_OF_MEMORY,
                  "the conversion needs %llu bytes; memory_limit is %llu",
                  static_cast<unsigned long long>(needed),
                  static_cast<unsigned long long>(limit));
  return TRAINC_OK;
}

/// Nothing fails from here on but exchanges between ranks.
trainc_status Conversion::move() {
  trainer->account.peak = trainer->account.held;
  trainer->broken = true; // until all is there
  if (next->artifact) {
    trainer->scratch.release();
    for (uint32_t i = 0; i < trainer->d->num_entries; ++i)
      trainer->entries[i].outputs.release();
  }
  trainc_status status = mover.run();
  for (size_t i = 0; i < after.arenas.size(); ++i) {
    after.pages[i].takeRest();
    if (!keptTo[i])
      after.pages[i].collapse();
  }
  next->scratch.takeRest();
  for (const Pair &pair : kept)
    swap(next->windows[pair.to], trainer->windows[pair.from]);
  now.swap(after);
  trainer->windows.swap(next->windows);
  swap(trainer->converted, next->converted);
  if (!next->artifact) {
    bindArenas(trainer);
    return status;
  }
  trainer->ranks.swap(next->ranks);
  swap(trainer->artifact, next->artifact);
  swap(trainer->d, next->d);
  swap(trainer->entries, next->entries);
  trainer->plans.swap(next->plans);
  trainer->convolutions.swap(next->convolutions);
  trainer->scratch.swap(next->scratch);
  trainer->scratchBytes = next->scratchBytes;
  trainer->partialBytes = next->partialBytes;
  trainer->outputBytes = 0;
  bindArenas(trainer);
  return status;
}

trainc_status Conversion::finish(trainc_status moved) {
  TRAINC_TRY(moved);
  TRAINC_TRY(updateComputeCopies(trainer));
  trainer->broken = false;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// To a type
//===----------------------------------------------------------------------===//

bool Conversion::isSelected(const trainc_tensor &tensor) const {
  uint32_t what = tensor.role == TRAINC_ROLE_GRADIENT ? TRAINC_CONVERT_GRADIENTS
                  : tensor.role == TRAINC_ROLE_STATE  ? TRAINC_CONVERT_STATES
                  : tensor.role == TRAINC_ROLE_BUFFER
                      ? TRAINC_CONVERT_BUFFERS
                      : TRAINC_CONVERT_PARAMETERS;
  return !now.isCopy(tensor) && (!options.what || (options.what & what)) &&
         (isFloat(tensor.dtype) || options.include_integers);
}

/// Gives what this rank has of the tensors of arenas in which a type changed new
/// places, in the order of the old ones.
void Conversion::layOutArenas() {
  Array<uint32_t> order;
  Array<bool> changed; // per arena
  changed.resize(now.arenas.size());
  for (uint32_t i = 0; i < now.tensors.size(); ++i) {
    order.push(i);
    if (after.tensors[i].dtype != now.tensors[i].dtype)
      changed[now.tensors[i].arena] = true;
  }
  qsort_r(
      order.data(), order.size(), sizeof(uint32_t),
      [](const void *a, const void *b, void *context) {
        auto *all = static_cast<const trainc_tensor *>(context);
        uint64_t x = all[*static_cast<const uint32_t *>(a)].offset;
        uint64_t y = all[*static_cast<const uint32_t *>(b)].offset;
        return x < y ? -1 : static_cast<int>(x > y);
      },
      now.tensors.data());
  for (uint32_t i = 0; i < after.arenas.size(); ++i)
    if (changed[i]) {
      after.arenas[i].name = "converted";
      after.arenas[i].bytes = 0;
      after.arenas[i].num_buckets = 0;
      after.arenas[i].buckets = nullptr;
    }
  for (uint32_t i : order) {
    trainc_tensor &tensor = after.tensors[i];
    trainc_arena &arena = after.arenas[tensor.arena];
    if (!changed[tensor.arena])
      continue;
    uint64_t count = rangeOf(d, ranks, i, ranks.rank()).count;
    tensor.offset = alignUp(arena.bytes, tensorAlignment);
    arena.bytes = tensor.offset + count * trainc_dtype_size(tensor.dtype);
  }
}

trainc_status Conversion::toType(uint32_t dtype) {
  bool changes = false;
  after.layOut(now.arenas.data(), d.num_arenas, now.tensors.data(),
               d.num_tensors);
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    trainc_tensor &tensor = after.tensors[i];
    if (isSelected(tensor) && tensor.dtype != dtype) {
      tensor.bytes = elementCount(tensor) * trainc_dtype_size(dtype);
      tensor.dtype = dtype;
      changes = true;
    }
    if (tensor.dtype != d.tensors[i].dtype)
      next->converted = true;
    if (!now.isCopy(tensor))
      pairs.push({i, i});
  }
  if (!changes)
    return TRAINC_OK;
  if (next->converted)
    layOutArenas();
  else
    after.setTables(d);
  if (trainer->gpu)
    return onDevice();
  TRAINC_TRY(reserve(planMoves()));
  return finish(move());
}

/// Is arena `arena` of tensors laid out otherwise afterwards?
bool Conversion::changes(uint32_t arena) const {
  bool changes = now.arenas[arena].bytes != after.arenas[arena].bytes;
  for (uint32_t i = 0; i < now.tensors.size(); ++i) {
    const trainc_tensor &x = now.tensors[i], &y = after.tensors[i];
    changes |= x.arena == arena && (x.dtype != y.dtype || x.offset != y.offset);
  }
  return changes;
}

/// Arenas have the same numbers before and after; most stay what they are.
trainc_status Conversion::onDevice() {
  cuda::ArenaPlan plan;
  for (uint32_t i = 0; i < now.arenas.size(); ++i)
    if (changes(i))
      plan.moves.push({i, false});
  TRAINC_TRY(ranks.agree(
      cuda::planConversion(trainer, after, options.memory_limit, plan)));
  trainer->broken = true; // until all is there
  cuda::forgetGraphs(*trainer->gpu);
  for (uint32_t i = 0; i < now.arenas.size(); ++i)
    if (!changes(i))
      after.pages[i].swap(now.pages[i]);
  trainc_status moved = cuda::runConversion(trainer, after, plan);
  now.swap(after);
  trainer->converted = next->converted;
  bindArenas(trainer);
  TRAINC_TRY(finish(ranks.agree(moved)));
  return trainer->converted ? TRAINC_OK : cuda::registerArenas(trainer);
}

//===----------------------------------------------------------------------===//
// To an artifact
//===----------------------------------------------------------------------===//

/// Matches the state with the artifact as a load of its checkpoint would.
trainc_status Conversion::match(Plan &plan) {
  Array<Piece> pieces;
  HeaderWriter writer;
  describeState(trainer, /*gradients=*/true, /*ranks=*/1, pieces, writer);
  const Text &text = writer.finish();
  FileHeader header;
  TRAINC_TRY(
      header.parse(text.data() + 8, text.size() - 8, writer.dataBytes()));

  // From the header's tensors to the trainer's.
  Text name;
  Array<Piece> origins;
  origins.resize(header.tensors.size());
  for (const Piece &piece : pieces) {
    name.clear();
    pieceName(*trainer->d, /*ranks=*/1, piece, name);
    origins[header.find(name.c_str()) - header.tensors.data()] = piece;
  }
  struct Context {
    const trainc_trainer *trainer;
    const FileHeader &header;
    const Array<Piece> &origins;
  } context = {trainer, header, origins};
  name.clear();
  name.format("the state of artifact '%s'", trainer->d->name);
  Source source = {
      header, name.c_str(),
      [](const void *context, const FileTensor &scalar, double *value) {
        auto &c = *static_cast<const Context *>(context);
        auto index = &scalar - c.header.tensors.data();
        *value = c.trainer->scalars[c.origins[index].scalar];
        return TRAINC_OK;
      },
      &context};
  Target target = {next->artifact,     /*ranks=*/nullptr,
                   after.tensors,
                   /*gradients=*/true, options.include_integers != 0,
                   /*averages=*/false};
  TRAINC_TRY(matchState(source, target, plan));
  for (const Match &match : plan.tensors)
    pairs.push({origins[match.from - header.tensors.data()].tensor, match.to});
  return TRAINC_OK;
}

trainc_status Conversion::planArtifact(Plan &plan) {
  after.layOut(d.arenas, d.num_arenas, d.tensors, d.num_tensors);
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    uint32_t old;
    bool known = trainc_artifact_find_scalar(
                     trainer->artifact, d.scalars[i].name, &old) == TRAINC_OK;
    plan.scalars.push(known ? trainer->scalars[old] : d.scalars[i].init);
  }
  TRAINC_TRY(match(plan));
  TRAINC_TRY(planMoves());
  return bindCommands(next, trainer->pool.size());
}

trainc_status Conversion::toArtifact() {
  next->artifact = options.artifact;
  retain(next->artifact);
  next->d = &d;
  trainc_comm *comm = trainer->ranks.communicator();
  TRAINC_TRY(trainer->ranks.agree(next->ranks.place(comm, d)));
  TRAINC_TRY(next->ranks.join(trainer->seed));
  Plan plan;
  TRAINC_TRY(reserve(planArtifact(plan)));
  trainc_status moved = move();
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->isSet.swap(plan.isSet);
  setCoordinates(trainer);
  trainer->windowEntries.swap(plan.windowEntries);
  // Who reads the gradients of a closed window finds what they were.
  for (uint32_t window = 0; window < d.num_windows; ++window)
    trainer->scalars[scalarOf(window, TRAINC_SCALAR_READ_SCALE)] /=
        plan.gradientFactor;
  if (moved == TRAINC_OK)
    moved = scaleGradients(trainer, plan.gradientFactor);
  return finish(moved);
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

static trainc_status parseType(const char *text, uint32_t *out_dtype) {
  for (uint32_t i = 0; trainc_dtype_name(i); ++i)
    if (isFloat(i) && !strcasecmp(text, trainc_dtype_name(i))) {
      *out_dtype = i;
      return TRAINC_OK;
    }
  return fail(TRAINC_INVALID_ARGUMENT,
              "a state cannot be converted to '%s': expected f64, f32, bf16 or "
              "f16",
              text);
}

static trainc_status checkOptions(const trainc_trainer &trainer,
                                  const trainc_convert_options &options,
                                  uint32_t *out_dtype) {
  constexpr uint32_t all = TRAINC_CONVERT_PARAMETERS |
                           TRAINC_CONVERT_GRADIENTS | TRAINC_CONVERT_STATES |
                           TRAINC_CONVERT_BUFFERS;
  if ((options.what & ~all) || options.blocking > 1 ||
      options.include_integers > 1)
    return fail(TRAINC_INVALID_ARGUMENT,
                "convert options: expected what below %u, 0 or 1 for blocking "
                "and include_integers; got %u, %u and %u",
                all + 1, options.what, options.blocking,
                options.include_integers);
  const char *place = trainer.gpu ? "cuda" : "cpu";
  if (options.device && strcmp(options.device, place) != 0)
    return fail(TRAINC_INVALID_ARGUMENT,
                "a state cannot go to device '%s': expected '%s', where it is "
                "(to another one it goes by trainc_save and trainc_load)",
                options.device, place);
  if (options.artifact && trainer.gpu)
    return fail(TRAINC_UNSUPPORTED,
                "a state on a GPU goes to another artifact by trainc_save and "
                "trainc_load");
  if (options.artifact) {
    const trainc_descriptor *d =
        findTarget(*options.artifact, TRAINC_TARGET_CPU);
    if (!d)
      return fail(TRAINC_UNSUPPORTED,
                  "artifact '%s' has no code for the processor, where the "
                  "state is",
                  options.artifact->descriptor->name);
    TRAINC_TRY(checkProcessor(*options.artifact, *d));
  }
  if (options.dtype)
    TRAINC_TRY(parseType(options.dtype, out_dtype));
  if (options.artifact && (options.dtype || options.what))
    return fail(TRAINC_INVALID_ARGUMENT,
                "convert options: an artifact has types of its own: expected "
                "neither dtype nor what beside it");
  if ((options.dtype || options.artifact) && trainer.broken)
    return fail(TRAINC_INVALID_ARGUMENT,
                "the last run or load of this trainer ended half-way; there is "
                "no state to convert");
  return TRAINC_OK;
}

/// TRAINC_OK if the options are valid on every rank, and the same.
static trainc_status agreeOnOptions(const Ranks &ranks,
                                    const trainc_convert_options &options,
                                    uint32_t dtype, trainc_status status) {
  TRAINC_TRY(ranks.agree(status));
  if (!ranks.any())
    return TRAINC_OK;
  uint64_t values[] = {
      options.dtype != nullptr,
      dtype,
      options.what,
      options.include_integers,
      options.artifact != nullptr,
      options.artifact ? options.artifact->descriptor->plan_hash : 0};
  return agree(*ranks.communicator(), "what a state is to be converted to",
               hashBytes(hashStart, values, sizeof(values)));
}

trainc_status trainc_convert(trainc_trainer *trainer,
                             const trainc_convert_options *given) {
  trainc_convert_options options;
  trainc_status status = takeOptions(given, "convert options", options);
  uint32_t dtype = 0;
  if (status == TRAINC_OK)
    status = checkOptions(*trainer, options, &dtype);
  TRAINC_TRY(agreeOnOptions(trainer->ranks, options, dtype, status));
  if (!options.dtype && !options.artifact)
    return TRAINC_OK;
  TRAINC_TRY(settle(trainer));
  DefaultFloats floats;
  Conversion conversion(trainer, options);
  return options.artifact ? conversion.toArtifact() : conversion.toType(dtype);
}
