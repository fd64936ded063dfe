//===- ExpandUpdates.cpp - Write norms and updates as tensor ops ----------===//
//
// This pass replaces the plan's ops on lists of parameters by tensor ops, one set
// per parameter: what a sum of squares and an update mean. What is fused, or of shards,
// becomes passes over arenas instead (SegmentUpdates.h).
//
//===----------------------------------------------------------------------===//
#include "SegmentUpdates.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/OperationSupport.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Transforms/Plan/UpdateRule.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-expand-updates"

namespace trainc {
#define GEN_PASS_DEF_EXPANDUPDATESPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Reads the slice of `param` in the arena of `role`, of type `type`.
static Value readSlice(OpBuilder &b, ParamOp param, StringRef role,
                       RankedTensorType type) {
  return ReadOp::create(b, param.getLoc(), type,
                        sliceRef(b.getContext(),
                                 arenaName(role, type.getElementType(), param),
                                 param.getSymName()));
}

/// The squares of `params`, one for each or their sum.
static Value expandSquares(OpBuilder &b, Location loc, ArrayAttr params,
                           bool each, SegmentUpdates &segments,
                           SymbolTable &symbols) {
  SmallVector<Value> sums;
  for (auto ref : params.getAsRange<FlatSymbolRefAttr>()) {
    auto param = symbols.lookup<ParamOp>(ref.getValue());
    Value gradient = segments.readGradient(b, param);
    Value square = buildSquareSum(b, loc, gradient);
    if (each)
      sums.push_back(nn::reshapeTo(b, loc, square, {1}));
    else if (sums.empty())
      sums.push_back(square);
    else
      sums.front() = nn::AddOp::create(b, loc, sums.front(), square);
  }
  return sums.size() > 1 ? nn::ConcatOp::create(b, loc, sums, 0).getResult()
                         : sums.front();
}

static void expandNorm(NormSquaredOp op, SegmentUpdates &segments,
                       SymbolTable &symbols) {
  OpBuilder b(op);
  SmallVector<Value> results;
  for (auto [params, square] : llvm::zip(op.getParams(), op.getSquares()))
    results.push_back(expandSquares(b, op.getLoc(), cast<ArrayAttr>(params),
                                    nn::getTensorType(square).getRank() == 1,
                                    segments, symbols));
  op->replaceAllUsesWith(results);
  op.erase();
}

/// Ends `m`, whose region has computed the new parameter and states, with the
/// average; writes what changes if the gradients are finite.
static void finishUpdate(MapBuilder &m, UpdateOp op, OptimizerOp optimizer,
                         ParamOp param, SymbolTable &symbols,
                         const UpdateElement &e, SmallVector<Value> values) {
  OpBuilder inner = OpBuilder::atBlockEnd(m.block);
  RankedTensorType type = param.getTensorType(), wide = gradientType(param);
  SmallVector<std::string> arenas{
      arenaName(kMasterArena, type.getElementType(), param)};
  SmallVector<Type> types{type};
  SmallVector<Value> old{e.parameter};
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    arenas.push_back(
        arenaName(stateRole(state.getValue()), wide.getElementType(), param));
  llvm::append_range(old, e.states);
  if (e.average) {
    values.push_back(buildAverage(inner, m.loc, e, values.front()));
    arenas.push_back(arenaName(stateRole("ema"), wide.getElementType(), param));
    old.push_back(e.average);
  }
  types.append(arenas.size() - 1, wide);
  if (e.random.index)
    values.front() = buildStochasticRounding(inner, m.loc, e, values.front(),
                                             type.getElementType());
  for (auto [value, before] : llvm::zip(values, old))
    value = buildGuard(inner, m.loc, e, value, before);
  for (StringAttr copy : copiesOf(op, param, symbols)) {
    arenas.push_back(copy.str());
    types.push_back(type.clone(symbols.lookup<ArenaOp>(copy).getElementType()));
    values.push_back(values.front());
  }
  for (auto [arena, value] : llvm::zip(arenas, m.finish(types, values)))
    WriteOp::create(m.b, m.loc, value,
                    sliceRef(m.b.getContext(), arena, param.getSymName()));
}

/// Updates parameter number `position` of `group`.
static void expandUpdate(UpdateOp op, const UpdateGroup &group,
                         int64_t position, SegmentUpdates &segments,
                         SymbolTable &symbols) {
  auto optimizer = symbols.lookup<OptimizerOp>(group.optimizer.getValue());
  auto param = symbols.lookup<ParamOp>(group.params[position].getValue());
  OpBuilder b(op);
  Location loc = param.getLoc();
  RankedTensorType type = param.getTensorType(), wide = gradientType(param);
  Value scale = readScale(b, loc, group.scale, position);
  Value parameter = readSlice(b, param, kMasterArena, type);
  // All but what is the first or second region's own.
  auto addInputs = [&](MapBuilder &m, UpdateElement &e, bool last) {
    for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
      e.states.push_back(
          m.add(readSlice(b, param, stateRole(state.getValue()), wide)));
    for (Value value : readHyper(b, loc, optimizer, op.getT()))
      e.hyper.push_back(m.add(value));
    if (!last)
      return;
    e.finite = m.add(op.getFinite());
    if (optimizer.getEma()) {
      e.average = m.add(readSlice(b, param, stateRole("ema"), wide));
      e.decay = m.add(readScalar(b, loc, optimizer.getSymName() + ".ema"));
    }
    if (!stochasticType(op, param))
      return;
    e.random.index = m.add(nn::buildElementIndex(b, loc, type.getShape()));
    std::string update = windowScalar(param.getWindowAttr(), "update");
    for (auto [name, value] :
         {std::pair<StringRef, Value *>("seed", &e.random.seed),
          {update, &e.random.update}})
      *value =
          m.add(nn::castTo(b, loc, readScalar(b, loc, name), b.getI64Type()));
    OpBuilder inner = OpBuilder::atBlockEnd(m.block);
    for (auto [number, value] :
         {std::pair(0.0, &e.random.microStep),
          {static_cast<double>(randomSite(param)), &e.random.site}})
      *value = nn::splatConstant(inner, loc, b.getI64Type(), number);
    for (const PlaceStep &step : stepsToWhole(param)) {
      auto number = [&](int64_t value) -> Value {
        return arith::ConstantOp::create(inner, loc,
                                         b.getI64IntegerAttr(value));
      };
      Value place = m.add(readPosition(b, loc, step.axes));
      Value start = arith::MulIOp::create(inner, loc, place, number(step.part));
      e.random.index =
          buildPlaceStep(inner, loc, e.random.index, number(step.row),
                         number(step.segment), start);
    }
  };
  MapBuilder first(b, loc);
  UpdateElement e;
  e.parameter = first.add(parameter);
  e.gradient = first.add(segments.readGradient(b, param));
  e.scale = first.add(scale);
  if (group.limit)
    e.limit = first.add(group.limit);
  bool scaled = !optimizer.getScaled().empty();
  addInputs(first, e, /*last=*/!scaled);
  OpBuilder inner = OpBuilder::atBlockEnd(first.block);
  if (hasPadding(param))
    e.padding = buildPadding(inner, loc, e);
  SmallVector<Value> values = buildFirstRegion(inner, loc, optimizer, e);
  if (!scaled)
    return finishUpdate(first, op, optimizer, param, symbols, e, values);
  values.front() = keepPadding(inner, loc, e, values.front(), e.parameter);

  // The direction and the states, then norms, then the second region.
  SmallVector<Type> types(values.size(), wide);
  SmallVector<Value> results(first.finish(types, values));
  auto norm = [&](Value value) -> Value {
    Value square = sumOverParts(b, loc, buildSquareSum(b, loc, value),
                                param.getPartAxes());
    return nn::castTo(b, loc, nn::SqrtOp::create(b, loc, square),
                      wide.getElementType());
  };
  Value parameterNorm, directionNorm;
  if (DictionaryAttr rule = optimizer.getOrthogonalAttr()) {
    results.front() = orthogonalize(b, loc, results.front(), rule);
    parameterNorm = directionNorm =
        nn::scalarConstant(b, loc, wide.getElementType(), 0.0);
  } else {
    parameterNorm = norm(parameter);
    directionNorm = norm(results.front());
  }
  MapBuilder second(b, loc);
  UpdateElement f;
  f.parameter = second.add(parameter);
  f.parameterNorm = second.add(parameterNorm);
  f.directionNorm = second.add(directionNorm);
  SmallVector<Value> firsts;
  for (Value result : results)
    firsts.push_back(second.add(result));
  addInputs(second, f, /*last=*/true);
  inner = OpBuilder::atBlockEnd(second.block);
  finishUpdate(second, op, optimizer, param, symbols, f,
               buildSecondRegion(inner, loc, optimizer, f, firsts));
}

static void expandSeed(SeedOp op) {
  OpBuilder b(op);
  Value scale = readScalar(b, op.getLoc(),
                           windowScalar(op.getWindowAttr(), "loss_scale"));
  Value divisor = nn::scalarConstant(b, op.getLoc(), b.getF64Type(),
                                     op.getDivisor().convertToDouble());
  Value seed = nn::DivOp::create(b, op.getLoc(), scale, divisor);
  Type type = nn::getTensorType(op.getResult()).getElementType();
  op.replaceAllUsesWith(nn::castTo(b, op.getLoc(), seed, type));
  op.erase();
}

/// Joins equal computations of scalars: the updates of buckets have them in common.
static void joinScalars(Block &block) {
  DenseMap<Attribute, Operation *> reads; // by slice, since it was last written
  DenseMap<llvm::hash_code, SmallVector<Operation *, 1>> computed;
  auto isScalar = [](Value value) {
    return nn::getTensorType(value).getRank() == 0;
  };
  auto replace = [](Operation &op, Operation *by) {
    op.replaceAllUsesWith(by);
    op.erase();
  };
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto write = dyn_cast<WriteOp>(op)) {
      reads.erase(write.getTarget());
    } else if (auto read = dyn_cast<ReadOp>(op)) {
      if (!isScalar(read.getResult()))
        continue;
      Operation *&first = reads[read.getSource()];
      if (first)
        replace(op, first);
      else
        first = read;
    } else if (isa<nn::MapOp, nn::CastOp, nn::ConstantOp>(op) &&
               llvm::all_of(op.getResults(), isScalar)) {
      auto &alike = computed[OperationEquivalence::computeHash(
          &op, OperationEquivalence::directHashValue,
          OperationEquivalence::ignoreHashValue,
          OperationEquivalence::IgnoreLocations)];
      auto *same = llvm::find_if(alike, [&](Operation *other) {
        return OperationEquivalence::isEquivalentTo(
            &op, other, OperationEquivalence::IgnoreLocations);
      });
      if (same == alike.end())
        alike.push_back(&op);
      else
        replace(op, *same);
    }
  }
}

namespace {
struct ExpandUpdatesPass
    : trainc::impl::ExpandUpdatesPassBase<ExpandUpdatesPass> {
  LogicalResult expand(Operation &op, SegmentUpdates &segments,
                       SymbolTable &symbols) {
    if (auto norm = dyn_cast<NormSquaredOp>(op)) {
      if (failed(verifyNorm(norm, symbols)))
        return failure();
      if (norm.getFused() || norm.getOver())
        return segments.expand(norm);
      expandNorm(norm, segments, symbols);
    } else if (auto seed = dyn_cast<SeedOp>(op)) {
      expandSeed(seed);
    } else if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      return segments.expand(accumulate);
    } else if (auto update = dyn_cast<UpdateOp>(op)) {
      if (failed(verifyUpdate(update, symbols)))
        return failure();
      if (update.getFused() || update.getOver())
        return segments.expand(update);
      for (const UpdateGroup &group : getGroups(update))
        for (size_t i = 0; i < group.params.size(); ++i)
          expandUpdate(update, group, i, segments, symbols);
      update.erase();
    }
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(verifyLayout(module, "train-expand-updates")))
      return signalPassFailure();
    SymbolTable symbols(module);
    Layouts layouts(module);
    BucketMap buckets = mapBuckets(module);
    for (auto list : module.getOps<ListOp>()) {
      SegmentUpdates segments(list, symbols, layouts, buckets);
      Block &body = list.getBody().front();
      bool hasUpdates = llvm::any_of(body.getOps<UpdateOp>(), [](UpdateOp op) {
        return op.getFused() || op.getOver();
      });
      for (Operation &op : llvm::make_early_inc_range(body))
        if (failed(expand(op, segments, symbols)))
          return signalPassFailure();
      if (hasUpdates)
        joinScalars(body);
    }
  }
};
} // namespace
