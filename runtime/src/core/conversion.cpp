//===- conversion.cpp - Converting a training state in place --------------===//
//
// A conversion first lays out the new state and plans every move; only when
// types and memory fit does it move.
//
//===----------------------------------------------------------------------===//

#include "core/convert.h"
#include "core/match.h"
#include "core/mover.h"
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
        next(create<trainc_trainer>()), after(next->state), mover(now, after) {}
  ~Conversion() { destroy(next); }

  trainc_status toType(uint32_t dtype);
  trainc_status toArtifact(trainc_artifact *artifact);

private:
  struct Pair {
    uint32_t from, to; // tensors
  };

  bool isSelected(const trainc_tensor &tensor) const;
  void layOutArenas();
  trainc_status match(Plan &plan);
  bool canKeep(uint32_t from, uint32_t to) const;
  void keep(uint32_t from, uint32_t to);
  trainc_status planMoves();
  trainc_status reserve();
  trainc_status checkLimits();
  void move();

  trainc_trainer *trainer;
  const trainc_convert_options &options;
  State &now;
  /// What the trainer takes over: the state and, for another artifact, what is
  /// bound to that.
  trainc_trainer *next;
  State &after;

  Mover mover;
  Array<Pair> pairs;
  Array<bool> keptFrom, keptTo; // per arena
};
} // namespace

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

static bool holdsTensors(const trainc_arena &arena) {
  return arena.role <= TRAINC_ROLE_BUFFER;
}

/// Does arena `from` hold what arena `to` shall hold, at the same places?
bool Conversion::canKeep(uint32_t from, uint32_t to) const {
  const trainc_arena &a = now.arenas[from], &b = after.arenas[to];
  if (a.role != b.role || !holdsTensors(a) ||
      alignUp(a.bytes, pageBytes) != alignUp(b.bytes, pageBytes))
    return false;
  for (const Pair &pair : pairs) {
    const trainc_tensor &x = now.tensors[pair.from];
    const trainc_tensor &y = after.tensors[pair.to];
    if (x.arena != from && y.arena != to)
      continue;
    if (x.arena != from || y.arena != to || x.dtype != y.dtype ||
        x.offset != y.offset)
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
trainc_status Conversion::reserve() {
  for (uint32_t i = 0; i < after.arenas.size(); ++i) {
    const trainc_arena &arena = after.arenas[i];
    if (arena.role != TRAINC_ROLE_CONSTANT && !keptTo[i] &&
        !after.pages[i].reserve(arena.bytes, trainer->account))
      return failAllocation(arena.bytes, arena.name);
  }
  uint64_t scratch = next->scratchBytes * trainer->pool.size();
  return next->scratch.reserve(scratch, trainer->account)
             ? TRAINC_OK
             : failAllocation(scratch, "scratch");
}

trainc_status Conversion::checkLimits() {
  uint64_t rest = trainer->outputBytes + trainer->scratch.size();
  uint64_t held = trainer->account.held;
  uint64_t end = next->artifact ? next->scratch.size() : rest;
  for (const trainc_arena &arena : after.arenas)
    if (arena.role != TRAINC_ROLE_CONSTANT)
      end += alignUp(arena.bytes, pageBytes);
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

/// Nothing fails from here on.
void Conversion::move() {
  trainer->account.peak = trainer->account.held;
  if (next->artifact) {
    trainer->scratch.release();
    for (uint32_t i = 0; i < trainer->d->num_entries; ++i)
      trainer->entries[i].outputs.release();
  }
  mover.run();
  for (size_t i = 0; i < after.arenas.size(); ++i) {
    after.pages[i].takeRest();
    if (!keptTo[i])
      after.pages[i].collapse();
  }
  next->scratch.takeRest();
  now.swap(after);
  swap(trainer->converted, next->converted);
  if (!next->artifact)
    return bindArenas(trainer);
  swap(trainer->artifact, next->artifact);
  swap(trainer->d, next->d);
  swap(trainer->entries, next->entries);
  trainer->plans.swap(next->plans);
  trainer->scratch.swap(next->scratch);
  trainer->scratchBytes = next->scratchBytes;
  trainer->outputBytes = 0;
  bindArenas(trainer);
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

/// Gives the tensors of arenas in which a type changed new places, in the order
/// of the old ones.
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
    }
  for (uint32_t i : order) {
    trainc_tensor &tensor = after.tensors[i];
    trainc_arena &arena = after.arenas[tensor.arena];
    if (!changed[tensor.arena])
      continue;
    tensor.offset = alignUp(arena.bytes, tensorAlignment);
    arena.bytes = tensor.offset + tensor.bytes;
  }
}

trainc_status Conversion::toType(uint32_t dtype) {
  const trainc_descriptor &d = *trainer->d;
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
  TRAINC_TRY(planMoves());
  TRAINC_TRY(reserve());
  TRAINC_TRY(checkLimits());
  move();
  return updateComputeCopies(trainer);
}

//===----------------------------------------------------------------------===//
// To an artifact
//===----------------------------------------------------------------------===//

/// Matches the state with the artifact as a load of its checkpoint would.
trainc_status Conversion::match(Plan &plan) {
  Array<Piece> pieces;
  HeaderWriter writer;
  describeState(trainer, /*gradients=*/true, pieces, writer);
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
  Target target = {next->artifact,     /*rank=*/0,
                   /*ranks=*/1,        after.tensors,
                   /*gradients=*/true, options.include_integers != 0};
  TRAINC_TRY(matchState(source, target, plan));
  for (const Match &match : plan.tensors)
    pairs.push({origins[match.from - header.tensors.data()].tensor, match.to});
  return TRAINC_OK;
}

trainc_status Conversion::toArtifact(trainc_artifact *artifact) {
  const trainc_descriptor &d = *artifact->descriptor;
  next->artifact = artifact;
  retain(artifact);
  next->d = &d;
  after.layOut(d.arenas, d.num_arenas, d.tensors, d.num_tensors);
  Plan plan;
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    uint32_t old;
    bool known = trainc_artifact_find_scalar(
                     trainer->artifact, d.scalars[i].name, &old) == TRAINC_OK;
    plan.scalars.push(known ? trainer->scalars[old] : d.scalars[i].init);
  }
  TRAINC_TRY(match(plan));
  TRAINC_TRY(planMoves());
  TRAINC_TRY(bindCommands(next, trainer->pool.size()));
  TRAINC_TRY(reserve());
  TRAINC_TRY(checkLimits());
  move();
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->windowEntry = plan.windowEntry;
  return updateComputeCopies(trainer);
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

trainc_status trainc_convert(trainc_trainer *trainer,
                             const trainc_convert_options *options) {
  constexpr uint32_t all = TRAINC_CONVERT_PARAMETERS |
                           TRAINC_CONVERT_GRADIENTS | TRAINC_CONVERT_STATES |
                           TRAINC_CONVERT_BUFFERS;
  if (!options)
    return TRAINC_OK;
  if (options->size != sizeof(*options) || (options->what & ~all) ||
      options->blocking > 1 || options->include_integers > 1)
    return fail(TRAINC_INVALID_ARGUMENT,
                "convert options: expected size %zu, what below %u, 0 or 1 for "
                "blocking and include_integers; got %llu, %u, %u and %u",
                sizeof(*options), all + 1,
                static_cast<unsigned long long>(options->size), options->what,
                options->blocking, options->include_integers);
  if (options->device && strcmp(options->device, "cpu") != 0)
    return fail(TRAINC_INVALID_ARGUMENT,
                "a state cannot go to device '%s': expected 'cpu', the only "
                "one of this runtime",
                options->device);
  uint32_t dtype = 0;
  if (options->dtype)
    TRAINC_TRY(parseType(options->dtype, &dtype));
  if (options->artifact && (options->dtype || options->what))
    return fail(TRAINC_INVALID_ARGUMENT,
                "convert options: an artifact has types of its own: expected "
                "neither dtype nor what beside it");
  if (!options->dtype && !options->artifact)
    return TRAINC_OK;
  if (trainer->broken)
    return fail(TRAINC_INVALID_ARGUMENT,
                "the last run or load of this trainer ended half-way; there is "
                "no state to convert");
  const trainc_descriptor *d =
      options->artifact ? options->artifact->descriptor : trainer->d;
  if (trainer->ranks.any() || d->num_axes)
    return fail(TRAINC_UNSUPPORTED,
                "the state of several ranks cannot be converted in place: "
                "save it and load it into a trainer of the other artifact");
  DefaultFloats floats;
  Conversion conversion(trainer, *options);
  return options->artifact ? conversion.toArtifact(options->artifact)
                           : conversion.toType(dtype);
}
