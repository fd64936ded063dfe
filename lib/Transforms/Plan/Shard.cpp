//===- Shard.cpp - Divide the update among ranks --------------------------===//
//
// This pass inserts what ranks exchange once per window: sums of gradients, of
// blocks of norms, and updated parameters. Segments of norm and update are cut where
// the pieces of buckets end; with a sharded optimizer a rank has the tables of all
// ranks and runs over its own part of them. Gradients may be summed in every
// micro-step instead, see ReduceGradients.h. Parameters of which no rank has all are
// gathered, bucket by bucket, before they are used.
//
//===----------------------------------------------------------------------===//
#include "ReduceGradients.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-shard"

namespace trainc {
#define GEN_PASS_DEF_SHARDPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// The block that runs once per window: behind its end, or the conditional part.
static Block *findApply(StepOp step) {
  for (auto end : step.getBody().getOps<WindowEndOp>())
    for (Operation *user : end->getUsers())
      if (auto branch = dyn_cast<scf::IfOp>(user))
        return &branch.getThenRegion().front();
  return &step.getBody().front();
}

namespace {
/// A part of a segment that lies within one piece.
struct Part {
  int64_t segment, piece; // of the op as it was; the piece's rank
  int64_t start, length;  // elements of the segment
};

/// Where the sums of the blocks of a norm stand.
struct Norm {
  DenseMap<int64_t, int64_t> segmentAt; // by its first block before the cut
  SmallVector<SmallVector<std::pair<int64_t, int64_t>>>
      ranges; // of each segment
};

/// A bucket that was gathered, and its slices that were used.
struct Gathered {
  ArenaOp arena;
  int64_t first; // element of the arena
  Value value;
  DenseMap<int64_t, Value> slices;
};

struct Sharder {
  Sharder(StepOp step, SymbolTable &symbols, bool sharded)
      : step(step), symbols(symbols), sharded(sharded), block(findApply(step)) {
  }

  LogicalResult verifyNeeds();
  void dividePieces(bool all);
  void gatherParameters(Block &body);
  void reduceGradients(bool eachMicroStep, bool byBucket);
  /// Erases the arenas that were reduced by bucket, which nothing uses any more.
  void eraseGradients();
  LogicalResult cutSegments();
  LogicalResult gatherResults(SegmentMapOp map);

  int64_t reduced = 0, gathered = 0;

private:
  template <typename Op> FailureOr<SmallVector<Part>> cut(Op op);
  template <typename Op> void setTables(Op op, ArrayRef<Part> parts);
  LogicalResult cutNorm(SegmentSquareSumOp op);
  LogicalResult addParts(SumBlocksOp op);
  bool isDivided(Value value);
  Value gatherSlice(ReadOp read, Operation *user,
                    SmallVectorImpl<Gathered> &kept);
  ArenaOp arenaOf(Value array) {
    return symbols.lookup<ArenaOp>(
        array.getDefiningOp<ReadOp>().getSource().getRootReference());
  }
  Value buildShard(ArrayAttr pieceAxes);
  /// The exchange of what the arrays of `op` are, and whether ranks divide it.
  template <typename Op> Exchange exchangeOf(Op op) {
    return getExchange(step, arenaOf(op.getArrays().front()));
  }
  template <typename Op> bool divides(Op op) {
    return sharded && exchangeOf(op).pieces > 1;
  }
  /// A builder where what is done once per window begins.
  OpBuilder atApply() {
    OpBuilder b = OpBuilder::atBlockBegin(block);
    if (auto ends = block->getOps<WindowEndOp>(); !ends.empty())
      b.setInsertionPointAfter(*ends.begin());
    return b;
  }

  StepOp step;
  SymbolTable &symbols;
  bool sharded;
  Block *block;
  DenseMap<Attribute, Value> shards; // by axes
  /// By the sums of blocks, as all ranks have them.
  DenseMap<Value, Norm> norms;
};
} // namespace

/// Whether an array is made for the update, not read from an arena.
static bool isMade(Value array) {
  return array.getDefiningOp<FlattenOp>() != nullptr;
}

LogicalResult Sharder::verifyNeeds() {
  for (Operation &op : *block) {
    auto map = dyn_cast<SegmentMapOp>(op);
    if (sharded && map && llvm::any_of(map.getArrays(), isMade))
      return op.emitOpError("expects --shard=none: an update of whole matrices "
                            "is not divided");
    if (isa<NormSquaredOp, UpdateOp>(op))
      return op.emitOpError("expects segments in their place; run "
                            "train-fuse-optimizer before train-shard");
    if (auto scatter = dyn_cast<ReduceScatterOp>(op);
        scatter && scatter.getRange())
      return op.emitOpError("exists already; train-shard runs once");
  }
  if (!step.getBody().getOps<MicroEndOp>().empty())
    return (*step.getBody().getOps<MicroEndOp>().begin())
        .emitOpError("exists already; train-shard runs once");
  for (auto arena : step->getParentOfType<ModuleOp>().getOps<ArenaOp>())
    if (arena.getRole() == "gradients" && !arena.getBuckets())
      return arena.emitOpError(
          "expects buckets; run train-form-buckets before train-shard");
  return success();
}

/// Keeps of a bucket this rank's piece alone where nothing else reads it, or of all.
void Sharder::dividePieces(bool all) {
  auto module = step->getParentOfType<ModuleOp>();
  // Slices that the step or an eval reads by themselves.
  DenseSet<Attribute> wanted;
  if (!all)
    module.walk([&](ReadOp read) {
      if (!read.getSource().getNestedReferences().empty())
        wanted.insert(read.getSource());
    });
  for (auto arena : module.getOps<ArenaOp>()) {
    StringRef role = arena.getRole();
    bool divides = role == "parameters" || role == "state" ||
                   (all && role == "compute copies");
    if (!divides || !arena.getBuckets())
      continue;
    Exchange exchange = getExchange(step, arena);
    if (exchange.pieces == 1)
      continue;
    SmallVector<bool> own;
    int64_t bytes = 0, slice = 0, slices = arena.getSlices().size();
    int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
    for (const ArenaOp::Bucket &bucket : arena.getAllBuckets()) {
      bool alone = true;
      for (; slice < slices &&
             arena.getOffsets()[slice] / width < bucket.first + bucket.count;
           ++slice)
        alone &= !wanted.contains(sliceRef(
            arena.getContext(), arena.getSymName(),
            cast<FlatSymbolRefAttr>(arena.getSlices()[slice]).getValue()));
      own.push_back(alone);
      bytes += (alone ? bucket.count / exchange.pieces : bucket.count) * width;
    }
    arena.setShardAttr(exchange.pieceAxes);
    arena.setPieces(own);
    arena.setBytes(bytes);
  }
  for (auto read : block->getOps<ReadOp>())
    if (read.getSource().getNestedReferences().empty())
      read.getResult().setType(
          symbols.lookup<ArenaOp>(read.getSource().getRootReference())
              .getFlatType());
}

/// Buckets of an arena that are kept when another one is needed: the least that lets a
/// layer span two.
static constexpr ptrdiff_t kBucketsKept = 2;

/// The bucket of `arena` in which element `first` is.
static ArenaOp::Bucket bucketOf(ArenaOp arena, int64_t first) {
  auto buckets = arena.getAllBuckets();
  return *llvm::find_if(buckets, [&](const ArenaOp::Bucket &bucket) {
    return first < bucket.first + bucket.count;
  });
}

/// Whether `value` is a slice of an arena of which ranks have pieces.
bool Sharder::isDivided(Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  return read && !read.getSource().getNestedReferences().empty() &&
         arenaOf(value).getShard();
}

/// What `read` reads, for `user`: of a bucket in `kept`, those gathered before, of
/// which the last one was used last.
Value Sharder::gatherSlice(ReadOp read, Operation *user,
                           SmallVectorImpl<Gathered> &kept) {
  ArenaOp arena = arenaOf(read);
  auto type = cast<RankedTensorType>(read.getType());
  int64_t slice = arena.findSlice(read.getSource().getLeafReference());
  int64_t first =
      arena.getOffsets()[slice] / nn::getElementBytes(type.getElementType());
  ArenaOp::Bucket bucket = bucketOf(arena, first);
  auto *known = llvm::find_if(kept, [&](const Gathered &other) {
    return other.arena == arena && other.first == bucket.first;
  });
  OpBuilder b(user);
  if (known != kept.end()) {
    std::rotate(known, known + 1, kept.end());
  } else {
    Location loc = arena.getLoc();
    RankedTensorType flat = arena.getFlatType();
    Value own = ReadOp::create(b, loc, flat,
                               SymbolRefAttr::get(arena.getSymNameAttr()));
    own = ViewOp::create(b, loc, flat.clone({bucket.localCount}), own,
                         bucket.localFirst);
    auto isOfArena = [&](const Gathered &other) {
      return other.arena == arena;
    };
    if (llvm::count_if(kept, isOfArena) == kBucketsKept)
      kept.erase(llvm::find_if(kept, isOfArena));
    Gathered &now = kept.emplace_back();
    now.arena = arena;
    now.first = bucket.first;
    now.value = AllGatherOp::create(b, loc, flat.clone({bucket.count}), own,
                                    *arena.getShard(), DenseI64ArrayAttr());
    ++gathered;
  }
  Gathered &now = kept.back();
  Value &view = now.slices[slice];
  if (!view) {
    b.setInsertionPointAfterValue(now.value);
    view =
        ViewOp::create(b, read.getLoc(), type, now.value, first - bucket.first);
  }
  return view;
}

/// Gathers the parameters in pieces, or averages of these, that a micro-step or an eval
/// reads, each bucket before the first use after those that its memory was left to.
void Sharder::gatherParameters(Block &body) {
  auto eraseDead = [&body] {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (!isa<WindowEndOp>(op) && isOpTriviallyDead(&op))
        op.erase();
  };
  eraseDead(); // for it, nothing is gathered
  // Outputs of a step are there before the micro-step ends.
  auto isEnd = [](Operation &op) {
    return isa<MicroEndOp, WindowEndOp>(op) ||
           op.hasTrait<OpTrait::IsTerminator>();
  };
  Operation *end = &*llvm::find_if(body, isEnd);
  auto placeOf = [&](Operation *user) {
    return user == body.getTerminator() ? end : user;
  };
  // Each user has its own reshapes: what they are of may be gathered again.
  for (auto reshape :
       llvm::make_early_inc_range(body.getOps<nn::ReshapeOp>())) {
    if (!isDivided(reshape.getInput()))
      continue;
    for (OpOperand &use : llvm::make_early_inc_range(reshape->getUses())) {
      OpBuilder b(placeOf(use.getOwner()));
      use.set(b.clone(*reshape)->getResult(0));
    }
    reshape.erase();
  }
  SmallVector<Gathered> kept;
  auto gatherOperands = [&](Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (isDivided(operand.get()))
        operand.set(gatherSlice(operand.get().getDefiningOp<ReadOp>(),
                                placeOf(op), kept));
  };
  for (Operation &op : llvm::make_early_inc_range(
           llvm::make_range(body.begin(), end->getIterator())))
    gatherOperands(&op);
  gatherOperands(body.getTerminator());
  eraseDead();
}

void Sharder::reduceGradients(bool eachMicroStep, bool byBucket) {
  GradientReducer reducer{step, symbols, *block, sharded};
  if (byBucket)
    reducer.reduceByBucket();
  else if (eachMicroStep)
    reducer.reduceEachMicroStep();
  else
    reducer.reduceOnce(atApply());
  reduced += reducer.reduced;
  gathered += reducer.gathered;
}

void Sharder::eraseGradients() {
  GradientReducer reducer{step, symbols, *block, sharded};
  for (ArenaOp arena : reducer.gradientArenas())
    symbols.erase(arena);
}

/// This rank's number among those that share the pieces.
Value Sharder::buildShard(ArrayAttr pieceAxes) {
  Value &shard = shards[pieceAxes];
  if (!shard) {
    OpBuilder b = atApply();
    shard = readPosition(b, step.getLoc(), pieceAxes);
  }
  return shard;
}

/// The segments of `op`, cut; by piece if each rank has its own.
template <typename Op> FailureOr<SmallVector<Part>> Sharder::cut(Op op) {
  SmallVector<ArenaOp> arenas;
  for (Value array : op.getArrays()) {
    if (isMade(array)) {
      arenas.push_back({});
      continue;
    }
    if (!array.template getDefiningOp<ReadOp>())
      return op.emitOpError("expects arrays that are read from arenas, got ")
             << array;
    arenas.push_back(arenaOf(array));
  }
  SmallVector<SmallVector<ArenaOp::Bucket>> buckets;
  for (ArenaOp arena : arenas)
    buckets.push_back(arena ? arena.getAllBuckets()
                            : SmallVector<ArenaOp::Bucket>());
  int64_t pieces = getExchange(step, arenas.front()).pieces;
  SmallVector<Part> parts;
  SmallVector<SmallVector<int64_t>> offsets(arenas.size());
  for (auto [s, length] : llvm::enumerate(op.getLengths())) {
    int64_t within = -1, count = 0;
    SmallVector<const ArenaOp::Bucket *> places;
    for (auto [a, attribute] : llvm::enumerate(op.getOffsets())) {
      int64_t offset = cast<DenseI64ArrayAttr>(attribute)[s];
      if (!arenas[a]) {
        places.push_back(nullptr);
        continue;
      }
      const auto *bucket = llvm::find_if(buckets[a], [&](auto &bucket) {
        return offset < bucket.first + bucket.count;
      });
      if (bucket == buckets[a].end() ||
          (a > 0 &&
           (offset - bucket->first != within || bucket->count != count)))
        return op.emitOpError("expects equal buckets in @")
               << arenas[a].getSymName() << " and @"
               << arenas.front().getSymName();
      within = offset - bucket->first;
      count = bucket->count;
      places.push_back(bucket);
    }
    int64_t size = count / pieces;
    for (int64_t at = within, end = within + length; at < end;) {
      int64_t piece = at / size;
      int64_t next = std::min((piece + 1) * size, end);
      parts.push_back({static_cast<int64_t>(s), piece, at - within, next - at});
      for (auto [list, bucket, whole] :
           llvm::zip(offsets, places, op.getOffsets()))
        list.push_back(bucket
                           ? bucket->localFirst + at -
                                 (bucket->isPiece() ? piece * size : 0)
                           : cast<DenseI64ArrayAttr>(whole)[s] + at - within);
      at = next;
    }
  }
  SmallVector<size_t> order = llvm::to_vector(llvm::seq(parts.size()));
  if (sharded)
    llvm::sort(order, [&](size_t a, size_t b) {
      return std::pair(parts[a].piece, a) < std::pair(parts[b].piece, b);
    });
  SmallVector<Part> ordered;
  for (size_t i : order)
    ordered.push_back(parts[i]);
  Builder b(op.getContext());
  SmallVector<Attribute> attributes;
  for (auto &list : offsets) {
    SmallVector<int64_t> moved;
    for (size_t i : order)
      moved.push_back(list[i]);
    attributes.push_back(b.getDenseI64ArrayAttr(moved));
  }
  op.setOffsetsAttr(b.getArrayAttr(attributes));
  return ordered;
}

/// Gives `op` the tables of its parts.
template <typename Op> void Sharder::setTables(Op op, ArrayRef<Part> parts) {
  SmallVector<int64_t> lengths, groups, owners, starts, shards{0};
  for (const Part &part : parts) {
    lengths.push_back(part.length);
    groups.push_back(op.getGroups()[part.segment]);
    owners.push_back(part.segment);
    starts.push_back(part.start);
  }
  op.setLengths(lengths);
  op.setGroups(groups);
  op.setOwners(owners);
  op.setStarts(starts);
  if (!divides(op))
    return;
  Exchange exchange = exchangeOf(op);
  for (int64_t piece = 0; piece < exchange.pieces; ++piece)
    shards.push_back(llvm::count_if(
        parts, [&](const Part &part) { return part.piece <= piece; }));
  op.setShards(shards);
  op.getShardMutable().assign(buildShard(exchange.pieceAxes));
}

/// Cuts the segments of a norm, and gathers the sums of blocks.
LogicalResult Sharder::cutNorm(SegmentSquareSumOp op) {
  Norm norm;
  int64_t first = 0;
  for (int64_t length : op.getLengths()) {
    norm.segmentAt[first] = norm.ranges.size();
    norm.ranges.emplace_back();
    first += llvm::divideCeil(length, op.getBlock());
  }
  auto parts = cut(op);
  if (failed(parts))
    return failure();
  setTables(op, *parts);
  int64_t blocks = op.countBlocks(), at = 0;
  for (auto [i, part] : llvm::enumerate(*parts)) {
    if (divides(op) && (i == 0 || (*parts)[i - 1].piece != part.piece))
      at = part.piece * blocks;
    int64_t count = llvm::divideCeil(part.length, op.getBlock());
    norm.ranges[part.segment].push_back({at, count});
    at += count;
  }
  OpBuilder b(op);
  b.setInsertionPointAfter(op);
  for (Value result : op.getOutputs()) {
    Type element = nn::getTensorType(result).getElementType();
    result.setType(RankedTensorType::get({blocks}, element));
    for (Operation *user : result.getUsers())
      if (!isa<SumBlocksOp>(user))
        return op.emitOpError("expects a train.sum_blocks of its results, got ")
               << user->getName();
    if (!divides(op)) {
      norms[result] = norm;
      continue;
    }
    Exchange exchange = exchangeOf(op);
    auto all = AllGatherOp::create(
        b, op.getLoc(),
        RankedTensorType::get({blocks * exchange.pieces}, element), result,
        exchange.pieceAxes, DenseI64ArrayAttr());
    result.replaceAllUsesExcept(all, all);
    norms[all] = norm;
  }
  return success();
}

/// Adds the sums of a segment's parts where its own stood.
LogicalResult Sharder::addParts(SumBlocksOp op) {
  SmallVector<int64_t> sources, firsts, counts, owners;
  for (auto [i, source] : llvm::enumerate(op.getSources())) {
    auto norm = norms.find(op.getBlocks()[source]);
    int64_t first = op.getFirsts()[i];
    if (norm == norms.end() || !norm->second.segmentAt.contains(first))
      return op.emitOpError("expects sums of segments of a norm, got range ")
             << i;
    for (auto [at, count] :
         norm->second.ranges[norm->second.segmentAt.lookup(first)]) {
      sources.push_back(source);
      firsts.push_back(at);
      counts.push_back(count);
      owners.push_back(i);
    }
  }
  op.setSources(sources);
  op.setFirsts(firsts);
  op.setCounts(counts);
  op.setOwners(owners);
  return success();
}

/// A copy of `map` before it that maps some of its segments, given ascending, of
/// the arenas as they then are.
static SegmentMapOp mapSome(SegmentMapOp map, ArrayRef<int64_t> segments) {
  OpBuilder b(map);
  auto part = cast<SegmentMapOp>(b.clone(*map));
  for (int64_t target : map.getTargets()) {
    b.setInsertionPoint(part);
    Operation *read = map.getArrays()[target].getDefiningOp<ReadOp>();
    part.getArraysMutable()[target].assign(b.clone(*read)->getResult(0));
  }
  auto pick = [&](ArrayRef<int64_t> list) {
    return llvm::map_to_vector(segments, [&](int64_t s) { return list[s]; });
  };
  part.setLengths(pick(map.getLengths()));
  part.setOwners(pick(*map.getOwners()));
  part.setStarts(pick(*map.getStarts()));
  part.setOffsetsAttr(b.getArrayAttr(
      llvm::map_to_vector(map.getOffsets(), [&](Attribute list) -> Attribute {
        return b.getDenseI64ArrayAttr(pick(cast<DenseI64ArrayAttr>(list)));
      })));
  SmallVector<int64_t> shards;
  ArrayRef<int64_t> ends = *map.getShards();
  for (int64_t end : ends)
    shards.push_back(llvm::lower_bound(segments, end) - segments.begin());
  part.setShards(shards);

  // Its groups, numbered anew.
  SmallVector<int64_t> groups = pick(map.getGroups());
  llvm::SmallSetVector<int64_t, 4> used(groups.begin(), groups.end());
  for (int64_t &group : groups)
    group = llvm::find(used, group) - used.begin();
  part.setGroups(groups);
  int64_t all = *llvm::max_element(map.getGroups()) + 1;
  SmallVector<Value> grouped;
  for (size_t first = 0; first < map.getGrouped().size(); first += all)
    for (int64_t group : used)
      grouped.push_back(map.getGrouped()[first + group]);
  part.getGroupedMutable().assign(grouped);
  return part;
}

/// Divides what `map` does by buckets if every rank needs some of its results
/// whole: these are gathered behind the update of their bucket.
LogicalResult Sharder::gatherResults(SegmentMapOp map) {
  using Buckets = SmallVector<ArenaOp::Bucket>;
  auto buckets =
      llvm::map_to_vector(map.getArrays(), [&](Value array) -> Buckets {
        return arenaOf(array).getAllBuckets();
      });
  auto find = [&](size_t array, int64_t segment) {
    int64_t offset = cast<DenseI64ArrayAttr>(map.getOffsets()[array])[segment];
    return llvm::find_if(buckets[array], [&](const ArenaOp::Bucket &bucket) {
      return offset < bucket.localFirst + bucket.localCount;
    });
  };
  SmallVector<SmallVector<int64_t>> segments(buckets.front().size());
  bool gathers = false;
  for (int64_t s : llvm::seq<int64_t>(map.getLengths().size())) {
    segments[find(0, s) - buckets.front().begin()].push_back(s);
    for (int64_t target : map.getTargets())
      gathers |= !find(target, s)->isPiece();
  }
  if (!gathers)
    return success();
  for (Operation *user : map->getUsers())
    if (!isa<WriteOp>(user))
      return map.emitOpError("expects results that are written to arenas, got ")
             << user->getName();
  OpBuilder b(map);
  for (ArrayRef<int64_t> some : segments) {
    if (some.empty())
      continue;
    auto part = mapSome(map, some);
    for (auto [result, target] :
         llvm::zip(part.getOutputs(), map.getTargets())) {
      Value value = result;
      if (const ArenaOp::Bucket &bucket = *find(target, some.front());
          !bucket.isPiece()) {
        value = AllGatherOp::create(
            b, map.getLoc(), value.getType(), value, exchangeOf(map).pieceAxes,
            b.getDenseI64ArrayAttr({bucket.localFirst, bucket.count}));
        ++gathered;
      }
      auto read = part.getArrays()[target].getDefiningOp<ReadOp>();
      WriteOp::create(b, map.getLoc(), value, read.getSource());
    }
  }
  for (Operation *write : llvm::make_early_inc_range(map->getUsers()))
    write->erase();
  auto targets = llvm::map_to_vector(map.getTargets(), [&](int64_t target) {
    return map.getArrays()[target].getDefiningOp();
  });
  map.erase();
  for (Operation *read : targets)
    if (read->use_empty())
      read->erase();
  return success();
}

LogicalResult Sharder::cutSegments() {
  SmallVector<SegmentMapOp> maps;
  for (Operation &op : llvm::make_early_inc_range(*block)) {
    if (auto norm = dyn_cast<SegmentSquareSumOp>(op)) {
      if (failed(cutNorm(norm)))
        return failure();
    } else if (auto sum = dyn_cast<SumBlocksOp>(op)) {
      if (failed(addParts(sum)))
        return failure();
    } else if (auto map = dyn_cast<SegmentMapOp>(op);
               map && !map.getShards()) { // what has shards is cut
      auto parts = cut(map);
      if (failed(parts))
        return failure();
      setTables(map, *parts);
      for (auto [result, target] :
           llvm::zip(map.getOutputs(), map.getTargets()))
        result.setType(map.getArrays()[target].getType());
      maps.push_back(map);
    }
  }
  for (SegmentMapOp map : maps)
    if (divides(map) && failed(gatherResults(map)))
      return failure();
  return success();
}

namespace {
struct ShardPass : trainc::impl::ShardPassBase<ShardPass> {
  using ShardPassBase::ShardPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mode != "none" && mode != "optimizer" && mode != "gradients" &&
        mode != "parameters") {
      module.emitError(
          "expects mode none, optimizer, gradients or parameters, got ")
          << mode;
      return signalPassFailure();
    }
    if (!mergeBuffer.empty() && mergeBuffer != "full" &&
        mergeBuffer != "sharded") {
      module.emitError("expects a merge buffer that is full or sharded, got ")
          << mergeBuffer;
      return signalPassFailure();
    }
    StepOp step = getStep(module);
    if (!step)
      return signalPassFailure();
    if (!getReducedAxes(step))
      return;
    bool sharded = mode != "none";
    bool all = mode == "parameters";
    SymbolTable symbols(module);
    std::vector<Sharder> sharders;
    for (auto each : module.getOps<StepOp>())
      if (failed(sharders.emplace_back(each, symbols, sharded).verifyNeeds()))
        return signalPassFailure();
    if (sharded)
      for (Sharder &sharder : sharders)
        sharder.dividePieces(all);
    // Of one micro-step there is nothing to merge.
    bool merges = step.getAccumulate() > 1;
    bool byBucket =
        (all || mode == "gradients") && !(merges && mergeBuffer == "full");
    for (Sharder &sharder : sharders)
      sharder.reduceGradients(
          /*eachMicroStep=*/merges && mergeBuffer == "sharded", byBucket);
    if (byBucket)
      for (Sharder &sharder : sharders)
        sharder.eraseGradients();
    if (all)
      for (Operation &entry : module.getOps())
        if (isa<StepOp, EvalOp>(entry))
          sharders.front().gatherParameters(entry.getRegion(0).front());
    for (Sharder &sharder : sharders) {
      if (failed(sharder.cutSegments()))
        return signalPassFailure();
      numReduced += sharder.reduced;
      numGathered += sharder.gathered;
    }
  }
};
} // namespace
