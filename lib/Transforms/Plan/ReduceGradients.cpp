//===- ReduceGradients.cpp - Sums of gradients over ranks -----------------===//
#include "ReduceGradients.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/PlanValues.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

SmallVector<ArenaOp> GradientReducer::gradientArenas() {
  SmallVector<ArenaOp> arenas;
  for (auto arena : step->getParentOfType<ModuleOp>().getOps<ArenaOp>()) {
    if (arena.getRole() != TRAINC_ROLE_GRADIENT ||
        getExchange(step, arena).pieces == 1)
      continue;
    SliceOp slice = *arena.getSlices().begin();
    if (step.trains(symbols.lookup<ParamOp>(slice.getSymName())))
      arenas.push_back(arena);
  }
  return arenas;
}

static SymbolRefAttr refOf(ArenaOp arena, SpanOp span) {
  return sliceRef(arena.getContext(), arena.getSymName(), span.getSymName());
}

/// `value`, a bucket of `arena`, with this rank's shard summed over ranks.
Value GradientReducer::sumBucket(OpBuilder &b, ArenaOp arena, Value value) {
  Location loc = arena.getLoc();
  Exchange exchange = getExchange(step, arena);
  value = ReduceScatterOp::create(b, loc, value.getType(), value,
                                  exchange.pieceAxes, /*in_place=*/true);
  if (!exchange.otherAxes.empty())
    value =
        AllReduceOp::create(b, loc, value.getType(), value, exchange.otherAxes,
                            /*in_place=*/true, exchange.pieceAxes);
  ++reduced;
  return value;
}

/// Sums this rank's shards of `arena` over ranks.
void GradientReducer::sumGradients(OpBuilder &b, ArenaOp arena) {
  for (SpanOp span : arena.getSpans()) {
    Value value = sumBucket(b, arena, readBucket(b, arena, span));
    WriteOp::create(b, arena.getLoc(), value, refOf(arena, span));
  }
}

void GradientReducer::reduceOnce(OpBuilder b) {
  for (ArenaOp arena : gradientArenas()) {
    sumGradients(b, arena);
    if (sharded)
      continue;
    for (SpanOp span : arena.getSpans()) {
      gatherBucket(b, arena, span, getExchange(step, arena).pieceAxes);
      ++gathered;
    }
  }
}

//===----------------------------------------------------------------------===//
// In every micro-step
//===----------------------------------------------------------------------===//

/// The arena for what is summed over ranks of `gradients`: this rank's shards. Steps
/// share it.
ArenaOp GradientReducer::addMerged(ArenaOp gradients) {
  StringRef element = gradients.getSymName();
  element.consume_front(kGradientArena);
  std::string name = (kMergedArena + element).str();
  if (auto existing = symbols.lookup<ArenaOp>(name))
    return existing;
  ArenaOp merged = gradients.clone();
  merged.setSymName(name);
  merged.setRole(TRAINC_ROLE_MERGED);
  for (SpanOp span : merged.getSpans())
    span.setOverAttr(getExchange(step, gradients).pieceAxes);
  symbols.insert(merged, std::next(gradients->getIterator()));
  return merged;
}

void GradientReducer::reduceEachMicroStep() {
  Block &body = step.getBody().front();
  SmallVector<ArenaOp> arenas = gradientArenas();
  for (auto op : llvm::make_early_inc_range(body.getOps<AccumulateOp>()))
    if (llvm::is_contained(arenas, symbols.lookup<ArenaOp>(
                                       op.getTarget().getRootReference()))) {
      OpBuilder b(op);
      WriteOp::create(b, op.getLoc(), op.getValue(), op.getTarget());
      op.erase();
    }
  OpBuilder b(*body.getOps<WindowEndOp>().begin());
  MicroEndOp::create(b, step.getLoc());
  for (ArenaOp arena : arenas) {
    ArenaOp merged = addMerged(arena);
    sumGradients(b, arena);
    for (SpanOp span : arena.getSpans())
      AccumulateOp::create(b, step.getLoc(), readBucket(b, arena, span),
                           refOf(merged, span));
  }
  if (sharded)
    return;
  // Not before the totals, which peers start when they have read this rank's
  // gradients.
  for (Operation &op : apply)
    if (isa<NormSquaredOp, UpdateOp>(op)) {
      b.setInsertionPoint(&op);
      break;
    }
  for (ArenaOp arena : arenas) {
    ArenaOp merged = addMerged(arena);
    for (SpanOp span : merged.getSpans()) {
      Value own = readBucket(b, merged, span);
      Value all = AllGatherOp::create(b, arena.getLoc(), own.getType(), own,
                                      *span.getOver());
      WriteOp::create(b, arena.getLoc(), all, refOf(arena, span));
      ++gathered;
    }
  }
}

//===----------------------------------------------------------------------===//
// Bucket by bucket
//===----------------------------------------------------------------------===//

/// What the step stores of a bucket.
struct GradientReducer::Stored {
  SmallVector<Value> values;
  SmallVector<Attribute> slices;
  Operation *last = nullptr; // that makes a value
};

/// Takes away what stores the gradients of `bucket`.
GradientReducer::Stored
GradientReducer::takeStores(ArenaOp arena, BucketOp bucket,
                            const DenseMap<Attribute, Operation *> &stores) {
  Stored stored;
  for (auto param : bucket.getParams().getAsRange<FlatSymbolRefAttr>()) {
    // Null if nothing makes the gradient, which then stays zero.
    Operation *store = stores.lookup(
        sliceRef(arena.getContext(), arena.getSymName(), param.getValue()));
    if (!store)
      continue;
    Value value = store->getOperand(0);
    Operation *maker = value.getDefiningOp();
    if (maker && (!stored.last || stored.last->isBeforeInBlock(maker)))
      stored.last = maker;
    stored.values.push_back(value);
    stored.slices.push_back(param);
    store->erase();
  }
  return stored;
}

void GradientReducer::reduceByBucket() {
  Block &body = step.getBody().front();
  DenseMap<Attribute, Operation *> stores; // of gradients, by slice
  for (Operation &op : body) {
    SymbolRefAttr target;
    if (auto write = dyn_cast<WriteOp>(op))
      target = write.getTarget();
    else if (auto accumulate = dyn_cast<AccumulateOp>(op))
      target = accumulate.getTarget();
    if (target && isGradient(target, symbols))
      stores[target] = &op;
  }
  OpBuilder b(step.getContext());
  for (ArenaOp arena : gradientArenas()) {
    ArenaOp merged = addMerged(arena);
    for (SpanOp span : arena.getSpans()) {
      Stored stored = takeStores(
          arena, symbols.lookup<BucketOp>(span.getSymName()), stores);
      if (stored.values.empty())
        continue;
      if (stored.last)
        b.setInsertionPointAfter(stored.last);
      else
        b.setInsertionPointToStart(&body);
      auto type =
          RankedTensorType::get({ShapedType::kDynamic}, arena.getElementType());
      Value sums =
          FlattenOp::create(b, arena.getLoc(), type, stored.values, Value(),
                            ArrayRef<int64_t>(), b.getArrayAttr(stored.slices))
              .getResult();
      AccumulateOp::create(b, arena.getLoc(), sumBucket(b, arena, sums),
                           refOf(merged, span));
    }
  }
}
