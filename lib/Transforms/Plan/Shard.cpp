//===- Shard.cpp - Divide the update among ranks --------------------------===//
//
// This pass inserts what ranks exchange once per window: sums of gradients, of
// blocks of norms, and updated parameters, and says which buckets a rank has its own
// shard of only. Gradients may be summed in every
// micro-step instead, see ReduceGradients.h. Parameters of which no rank has all are
// gathered, bucket by bucket, before they are used.
//
//===----------------------------------------------------------------------===//
#include "ReduceGradients.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/EraseDead.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"

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
/// A bucket that was gathered, and its slices that were used.
struct Gathered {
  ArenaOp arena;
  BucketOp bucket;
  Value value;
  DenseMap<StringAttr, Value> slices;
};

struct Sharder {
  Sharder(StepOp step, SymbolTable &symbols, bool sharded)
      : step(step), symbols(symbols), sharded(sharded), block(findApply(step)),
        bucketOf(mapBuckets(step->getParentOfType<ModuleOp>())) {}

  LogicalResult verifyNeeds();
  void shardSpans(bool all);
  void gatherParameters(Block &body);
  void reduceGradients(bool eachMicroStep, bool byBucket);
  /// Erases the arenas that were reduced by bucket, which nothing uses any more.
  void eraseGradients();
  void shardUpdates();

  int64_t reduced = 0, gathered = 0;

private:
  bool isSharded(Value value);
  Value gatherSlice(ReadOp read, Operation *user,
                    SmallVectorImpl<Gathered> &kept);
  ArenaOp arenaOf(ReadOp read) {
    return symbols.lookup<ArenaOp>(read.getSource().getRootReference());
  }
  ArrayAttr shardAxes(Attribute param);
  SmallVector<ArenaOp> findWhole(UpdateOp update, OptimizerOp optimizer,
                                 StringAttr param);
  OptimizerOp optimizerOf(const UpdateGroup &group) {
    return symbols.lookup<OptimizerOp>(group.optimizer.getValue());
  }
  void gatherUpdated(UpdateOp update);
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
  BucketMap bucketOf;
};
} // namespace

LogicalResult Sharder::verifyNeeds() {
  for (Operation &op : *block) {
    if (auto update = dyn_cast<UpdateOp>(op); update && sharded)
      for (auto optimizer :
           update.getOptimizers().getAsRange<FlatSymbolRefAttr>())
        if (symbols.lookup<OptimizerOp>(optimizer.getValue()).getOrthogonal())
          return op.emitOpError("expects --shard=none: an update of whole "
                                "matrices is not divided");
    if (auto scatter = dyn_cast<ReduceScatterOp>(op);
        scatter && scatter.getInPlace())
      return op.emitOpError("exists already; train-shard runs once");
  }
  if (!step.getBody().getOps<MicroEndOp>().empty())
    return (*step.getBody().getOps<MicroEndOp>().begin())
        .emitOpError("exists already; train-shard runs once");
  for (auto arena : step->getParentOfType<ModuleOp>().getOps<ArenaOp>())
    if (arena.getRole() == TRAINC_ROLE_GRADIENT && arena.getSpans().empty())
      return arena.emitOpError(
          "expects buckets; run train-form-buckets before train-shard");
  return success();
}

/// Keeps of a bucket this rank's shard alone where nothing else reads it, or of all.
void Sharder::shardSpans(bool all) {
  auto module = step->getParentOfType<ModuleOp>();
  // Slices that the step or an eval reads by themselves.
  DenseSet<Attribute> wanted;
  if (!all)
    module.walk([&](ReadOp read) { wanted.insert(read.getSource()); });
  for (auto arena : module.getOps<ArenaOp>()) {
    trainc_role role = arena.getRole();
    if (role != TRAINC_ROLE_MASTER && role != TRAINC_ROLE_STATE &&
        !(all && role == TRAINC_ROLE_COMPUTE))
      continue;
    Exchange exchange = getExchange(step, arena);
    if (exchange.pieces == 1)
      continue;
    for (SpanOp span : arena.getSpans()) {
      auto params = symbols.lookup<BucketOp>(span.getSymName())
                        .getParams()
                        .getAsRange<FlatSymbolRefAttr>();
      if (llvm::none_of(params, [&](FlatSymbolRefAttr param) {
            return wanted.contains(sliceRef(
                arena.getContext(), arena.getSymName(), param.getValue()));
          }))
        span.setOverAttr(exchange.pieceAxes);
    }
  }
}

/// Buckets of an arena that are kept when another one is needed: the least that lets a
/// layer span two.
static constexpr ptrdiff_t kBucketsKept = 2;

/// Whether `value` is a slice of which ranks have shards.
bool Sharder::isSharded(Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  if (!read || read.getSource().getNestedReferences().empty())
    return false;
  BucketOp bucket = bucketOf.lookup(read.getSource().getLeafReference());
  if (!bucket)
    return false;
  SpanOp span = arenaOf(read).findSpan(bucket.getSymName());
  return span && span.getOver();
}

/// What `read` reads, for `user`: of a bucket in `kept`, those gathered before, of
/// which the last one was used last.
Value Sharder::gatherSlice(ReadOp read, Operation *user,
                           SmallVectorImpl<Gathered> &kept) {
  ArenaOp arena = arenaOf(read);
  StringAttr slice = read.getSource().getLeafReference();
  BucketOp bucket = bucketOf.lookup(slice);
  auto *known = llvm::find_if(kept, [&](const Gathered &other) {
    return other.arena == arena && other.bucket == bucket;
  });
  OpBuilder b(user);
  if (known != kept.end()) {
    std::rotate(known, known + 1, kept.end());
  } else {
    SpanOp span = arena.findSpan(bucket.getSymName());
    Value own = readBucket(b, arena, span);
    auto isOfArena = [&](const Gathered &other) {
      return other.arena == arena;
    };
    if (llvm::count_if(kept, isOfArena) == kBucketsKept)
      kept.erase(llvm::find_if(kept, isOfArena));
    Gathered &now = kept.emplace_back();
    now.arena = arena;
    now.bucket = bucket;
    now.value = AllGatherOp::create(b, arena.getLoc(), own.getType(), own,
                                    *span.getOver());
    ++gathered;
  }
  Gathered &now = kept.back();
  Value &view = now.slices[slice];
  if (!view) {
    b.setInsertionPointAfterValue(now.value);
    view =
        ViewOp::create(b, read.getLoc(), read.getType(), now.value,
                       b.getI64IntegerAttr(0), FlatSymbolRefAttr::get(slice));
  }
  return view;
}

/// Gathers the parameters in shards, or averages of these, that a micro-step or an eval
/// reads, each bucket before the first use after those that its memory was left to.
void Sharder::gatherParameters(Block &body) {
  eraseDead(body); // for it, nothing is gathered
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
    if (!isSharded(reshape.getInput()))
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
      if (isSharded(operand.get()))
        operand.set(gatherSlice(operand.get().getDefiningOp<ReadOp>(),
                                placeOf(op), kept));
  };
  for (Operation &op : llvm::make_early_inc_range(
           llvm::make_range(body.begin(), end->getIterator())))
    gatherOperands(&op);
  gatherOperands(body.getTerminator());
  eraseDead(body);
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

/// The axes over which the update of `param` is sharded; null if it is not.
ArrayAttr Sharder::shardAxes(Attribute param) {
  auto op = symbols.lookup<ParamOp>(cast<FlatSymbolRefAttr>(param).getValue());
  auto arena = symbols.lookup<ArenaOp>(
      arenaName(kMasterArena, op.getTensorType().getElementType(), op));
  Exchange exchange = getExchange(step, arena);
  return sharded && exchange.pieces > 1 ? exchange.pieceAxes : ArrayAttr();
}

/// The arenas of which `update` writes all of the bucket of `param`, where every rank
/// needs it.
SmallVector<ArenaOp> Sharder::findWhole(UpdateOp update, OptimizerOp optimizer,
                                        StringAttr param) {
  auto op = symbols.lookup<ParamOp>(param);
  SmallVector<std::string> names = updatedArenas(optimizer, op);
  for (StringAttr copy : copiesOf(update, op, symbols))
    names.push_back(copy.str());
  SmallVector<ArenaOp> arenas;
  for (StringRef name : names) {
    auto arena = symbols.lookup<ArenaOp>(name);
    if (!arena.findSpan(bucketOf.lookup(param).getSymName()).getOver())
      arenas.push_back(arena);
  }
  return arenas;
}

/// Divides `update` by buckets if every rank needs some of what it writes whole: these
/// are gathered behind the update of their bucket.
void Sharder::gatherUpdated(UpdateOp update) {
  SmallVector<UpdateGroup> groups = getGroups(update);
  llvm::SmallSetVector<Operation *, 4> used;
  bool gathers = false;
  for (const UpdateGroup &group : groups)
    for (FlatSymbolRefAttr param : group.params) {
      used.insert(bucketOf.lookup(param.getAttr()));
      gathers |=
          !findWhole(update, optimizerOf(group), param.getAttr()).empty();
    }
  if (!gathers)
    return;
  OpBuilder b(update);
  Location loc = update.getLoc();
  for (auto bucket : step->getParentOfType<ModuleOp>().getOps<BucketOp>()) {
    if (!used.contains(bucket))
      continue;
    SmallVector<UpdateGroup> some;
    for (const UpdateGroup &group : groups) {
      SmallVector<int64_t> positions;
      for (auto [i, param] : llvm::enumerate(group.params))
        if (bucketOf.lookup(param.getAttr()) == bucket)
          positions.push_back(i);
      if (!positions.empty())
        some.push_back(pickParams(b, loc, group, positions));
    }
    createUpdate(b, update, some);
    for (ArenaOp arena : findWhole(update, optimizerOf(some.front()),
                                   some.front().params.front().getAttr())) {
      gatherBucket(b, arena, arena.findSpan(bucket.getSymName()),
                   *update.getOver());
      ++gathered;
    }
  }
  update.erase();
}

void Sharder::shardUpdates() {
  for (Operation &op : llvm::make_early_inc_range(*block)) {
    if (auto norm = dyn_cast<NormSquaredOp>(op)) {
      norm.setOverAttr(shardAxes(cast<ArrayAttr>(norm.getParams()[0])[0]));
    } else if (auto update = dyn_cast<UpdateOp>(op)) {
      update.setOverAttr(shardAxes(cast<ArrayAttr>(update.getParams()[0])[0]));
      if (update.getOver())
        gatherUpdated(update);
    }
  }
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
        sharder.shardSpans(all);
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
      sharder.shardUpdates();
      numReduced += sharder.reduced;
      numGathered += sharder.gathered;
    }
  }
};
} // namespace
