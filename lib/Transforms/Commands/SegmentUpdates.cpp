//===- SegmentUpdates.cpp - Norms and updates of segments -----------------===//
#include "SegmentUpdates.h"
#include "SegmentCode.h"
#include "SegmentNorms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Transforms/Plan/UpdateRule.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Checks that arena `name` has slices of `params` for `op`, and buckets if it has shards.
LogicalResult SegmentUpdates::verifyArena(Operation *op, StringRef name,
                                          ArrayRef<ParamOp> params,
                                          bool isSharded) {
  auto arena = symbols.lookup<ArenaOp>(name);
  if (arena && arena.getElementType() &&
      (!isSharded || !arena.getSpans().empty())) {
    SymbolTable slices(arena);
    if (llvm::all_of(params, [&](ParamOp param) {
          return slices.lookup<SliceOp>(param.getSymName());
        }))
      return success();
  }
  return op->emitOpError("expects an arena @")
         << name << " with slices of its parameters"
         << (isSharded ? " in buckets" : "")
         << "; run train-plan-step and train-form-buckets first";
}

/// What is read of arena `name`: the bucket of all `params`, or all of it.
Value SegmentUpdates::readArena(OpBuilder &b, Location loc, StringRef name,
                                ArrayRef<ParamOp> params) {
  auto arena = b.getStringAttr(name);
  const ArenaLayout &layout = layouts.of(arena);
  RankedTensorType type = layout.getFlatType();
  BucketOp bucket = bucketOf(params.front());
  if (layout.getSpans().empty() || llvm::any_of(params, [&](ParamOp param) {
        return bucketOf(param) != bucket;
      }))
    return ReadOp::create(b, loc, type, FlatSymbolRefAttr::get(arena));
  int64_t elements = layout.getSpan(bucket.getSymNameAttr()).localCount;
  return ReadOp::create(b, loc, type.clone({elements}),
                        sliceRef(b.getContext(), name, bucket.getSymName()));
}

Value SegmentUpdates::readGradient(OpBuilder &b, ParamOp param) {
  RankedTensorType type = gradientType(param);
  return readSlice(
      b, param, arenaName(kGradientArena, type.getElementType(), param), type);
}

Value SegmentUpdates::readSlice(OpBuilder &b, ParamOp param, StringRef name,
                                RankedTensorType type) {
  BucketOp bucket = bucketOf(param);
  if (!bucket ||
      !written.contains(sliceRef(b.getContext(), name, bucket.getSymName())))
    return ReadOp::create(b, param.getLoc(), type,
                          sliceRef(b.getContext(), name, param.getSymName()));
  const ArenaLayout &layout = layouts.of(b.getStringAttr(name));
  int64_t offset =
      layout.getOffset(param.getSymNameAttr()) / layout.getElementBytes() -
      layout.getSpanOf(param.getSymNameAttr()).first;
  return ViewOp::create(b, param.getLoc(), type,
                        readArena(b, param.getLoc(), name, param), offset);
}

int64_t SegmentUpdates::countShards(ArrayAttr over) {
  return over ? getMesh(list->getParentOfType<ModuleOp>()).getCount(over) : 1;
}

/// This rank's number among those that have the shards over `over`; null if there are none.
Value SegmentUpdates::readShard(ArrayAttr over) {
  if (!over)
    return {};
  Value &shard = shardOf[over];
  if (!shard) {
    OpBuilder b = OpBuilder::atBlockBegin(&list.getBody().front());
    shard = readPosition(b, list.getLoc(), over);
  }
  return shard;
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

/// The sites of `params`.
static Value sitesOf(OpBuilder &b, Location loc, ArrayRef<ParamOp> params) {
  SmallVector<int64_t> sites;
  for (ParamOp param : params)
    sites.push_back(randomSite(param));
  auto type = RankedTensorType::get({static_cast<int64_t>(sites.size())},
                                    b.getI64Type());
  return nn::ConstantOp::create(b, loc, type,
                                DenseElementsAttr::get(type, ArrayRef(sites)));
}

/// Adds row, segment and start of each step to the whole, one of each per parameter.
static SmallVector<std::array<Value, 3>>
addPlaceSteps(OpBuilder &b, Location loc, ElementCode &code,
              ArrayRef<ParamOp> params) {
  SmallVector<SmallVector<PlaceStep>> steps;
  size_t most = 0;
  for (ParamOp param : params)
    most = std::max(most, steps.emplace_back(stepsToWhole(param)).size());
  auto tensorOf = [&](ArrayRef<int64_t> values) -> Value {
    auto type = RankedTensorType::get({static_cast<int64_t>(values.size())},
                                      b.getI64Type());
    return nn::ConstantOp::create(b, loc, type,
                                  DenseElementsAttr::get(type, values));
  };
  SmallVector<std::array<Value, 3>> places;
  for (size_t i = 0; i < most; ++i) {
    SmallVector<int64_t> rows, segments;
    llvm::MapVector<Attribute, SmallVector<int64_t>> parts; // by axes
    for (auto [number, ofParam] : llvm::enumerate(steps)) {
      PlaceStep step = i < ofParam.size() ? ofParam[i] : PlaceStep();
      rows.push_back(step.row);
      segments.push_back(step.segment);
      if (!step.axes)
        continue;
      SmallVector<int64_t> &part = parts[step.axes];
      part.resize(steps.size());
      part[number] = step.part;
    }
    Value start;
    for (auto &[axes, part] : parts) {
      Value more = nn::MulOp::create(
          b, loc, tensorOf(part), readPosition(b, loc, cast<ArrayAttr>(axes)));
      start = start ? nn::AddOp::create(b, loc, start, more).getResult() : more;
    }
    places.push_back({code.addEach(tensorOf(rows)),
                      code.addEach(tensorOf(segments)), code.addEach(start)});
  }
  return places;
}

namespace trainc {
/// An update of groups of parameters in one pass.
struct SegmentUpdate {
  SegmentUpdates &all;
  UpdateOp update;
  SmallVector<UpdateGroup> groups;
  OpBuilder b;
  Location loc;
  SmallVector<OptimizerOp> optimizers; // by group
  SmallVector<ParamOp> params;         // of all groups, one after the other
  SmallVector<int64_t> groupOf;        // by parameter
  OptimizerOp optimizer;               // the first
  Sharding sharding;
  /// Directions that were made of whole matrices, and where those of the parameters are.
  Value directions;
  SmallVector<int64_t> places;

  SegmentUpdate(SegmentUpdates &all, UpdateOp update,
                ArrayRef<UpdateGroup> groups)
      : all(all), update(update), groups(groups), b(update),
        loc(update.getLoc()),
        sharding{update.getOverAttr(), all.countShards(update.getOverAttr()),
                 all.readShard(update.getOverAttr())} {
    for (auto [i, group] : llvm::enumerate(groups)) {
      optimizers.push_back(
          all.symbols.lookup<OptimizerOp>(group.optimizer.getValue()));
      for (FlatSymbolRefAttr ref : group.params) {
        params.push_back(lookupParam(ref, all.symbols));
        groupOf.push_back(i);
      }
    }
    optimizer = optimizers.front();
  }

  LogicalResult expand();

private:
  LogicalResult verify();
  void addArrays(ElementCode &code, UpdateElement &e, bool last);
  void addInputs(ElementCode &code, UpdateElement &e, bool last);
  void addRandom(ElementCode &code, UpdateElement &e);
  Value concatScales();
  std::pair<Value, Value> buildNorms();
  void buildDirections();
  void create(ElementCode &code, UpdateElement &e, ArrayRef<Value> values,
              ArrayRef<Value> old);
};
} // namespace trainc

/// The scales of the parameters, one after the other.
Value SegmentUpdate::concatScales() {
  SmallVector<Value> parts;
  for (const UpdateGroup &group : groups)
    parts.push_back(group.scale);
  return parts.size() == 1 ? parts.front()
                           : nn::ConcatOp::create(b, loc, parts, 0).getResult();
}

void SegmentUpdate::addArrays(ElementCode &code, UpdateElement &e, bool last) {
  ParamOp param = params.front();
  Type narrow = param.getTensorType().getElementType();
  Type wide = gradientType(param).getElementType();
  auto add = [&](StringRef name) {
    return code.addArray(all.readArena(b, loc, name, params));
  };
  e.parameter = add(arenaName(kMasterArena, narrow, param));
  e.gradient = add(gradientArena(param, sharding.over != nullptr, all.symbols));
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    e.states.push_back(
        add(arenaName(stateRole(state.getValue()), wide, param)));
  if (last && optimizer.getEma())
    e.average = add(arenaName(stateRole("ema"), wide, param));
  if (last)
    for (StringAttr copy : copiesOf(update, param, all.symbols))
      e.copies.push_back(add(copy));
  if (directions)
    e.direction = code.addArray(directions, places);
}

/// Adds the arguments that the first region needs, and those that the end of the
/// update needs if `last`.
void SegmentUpdate::addInputs(ElementCode &code, UpdateElement &e, bool last) {
  addArrays(code, e, last);
  auto addScalar = [&](function_ref<Value(size_t)> get) {
    SmallVector<Value> values;
    for (size_t group = 0; group < groups.size(); ++group)
      values.push_back(get(group));
    return code.addScalar(values);
  };
  bool eachScale = nn::getTensorType(groups.front().scale).getRank() == 1;
  if (!eachScale)
    e.scale = addScalar([&](size_t group) { return groups[group].scale; });
  if (groups.front().limit)
    e.limit = addScalar([&](size_t group) { return groups[group].limit; });
  SmallVector<SmallVector<Value>> hyper;
  for (OptimizerOp each : optimizers)
    hyper.push_back(readHyper(b, loc, each, update.getT()));
  for (size_t i = 0; i < hyper.front().size(); ++i)
    e.hyper.push_back(addScalar([&](size_t group) { return hyper[group][i]; }));
  if (last)
    e.finite = addScalar([&](size_t) { return update.getFinite(); });
  if (last && stochasticType(update, params.front())) {
    auto addCounter = [&](const std::string &name) {
      Value value =
          nn::castTo(b, loc, readScalar(b, loc, name), b.getI64Type());
      return addScalar([&](size_t) { return value; });
    };
    e.random.seed = addCounter("seed");
    e.random.update =
        addCounter(windowScalar(params.front().getWindowAttr(), "update"));
  }
  if (e.average)
    e.decay = addScalar([&](size_t group) {
      OptimizerOp each = optimizers[group];
      return readScalar(b, loc, each.getSymName() + ".ema");
    });
  if (eachScale)
    e.scale = code.addEach(concatScales());
}

/// The norms of each parameter and of its direction.
std::pair<Value, Value> SegmentUpdate::buildNorms() {
  ElementCode code;
  UpdateElement e;
  addInputs(code, e, /*last=*/false);
  OpBuilder inner = code.builder();
  if (llvm::any_of(params, hasPadding))
    e.padding = buildPadding(inner, loc, e);
  Value direction = buildFirstRegion(inner, loc, optimizer, e).front();
  direction = keepPadding(inner, loc, e, direction, e.parameter);
  train::YieldOp::create(inner, loc, ValueRange{e.parameter, direction},
                         Value(), Value());
  auto op = sumSquares(b, loc, code, params, groupOf, groups.size(), sharding,
                       all.layouts);
  BlockSums sums(sharding);
  SmallVector<Attribute> sets;
  int64_t count = params.size();
  for (Value blocks : op.getResults()) {
    int64_t first = sums.add(blocks, op, params.size());
    auto set = llvm::to_vector(llvm::seq<int64_t>(first, first + count));
    sets.push_back(b.getDenseI64ArrayAttr(set));
  }
  Type type = RankedTensorType::get({count}, b.getF64Type());
  ValueRange squares = sums.create(b, loc, sets, {type, type});
  ArrayAttr axes = params.front().getPartAxes();
  auto norm = [&](Value square) {
    square = sumOverParts(b, loc, square, axes);
    return nn::castTo(b, loc, nn::SqrtOp::create(b, loc, square),
                      direction.getType());
  };
  return std::pair(norm(squares[0]), norm(squares[1]));
}

/// Makes the direction of each matrix orthogonal, all in one flat tensor.
void SegmentUpdate::buildDirections() {
  SmallVector<Value> matrices;
  int64_t end = 0;
  for (auto [i, group] : llvm::enumerate(groups))
    for (auto [position, ref] : llvm::enumerate(group.params)) {
      ParamOp param = lookupParam(ref, all.symbols);
      Location at = param.getLoc();
      RankedTensorType type = param.getTensorType(), wide = gradientType(param);
      MapBuilder m(b, at);
      auto add = [&](StringRef arena, RankedTensorType ofSlice) {
        return m.add(all.readSlice(b, param, arena, ofSlice));
      };
      UpdateElement e;
      e.parameter =
          add(arenaName(kMasterArena, type.getElementType(), param), type);
      e.gradient = m.add(all.readGradient(b, param));
      for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
        e.states.push_back(add(arenaName(stateRole(state.getValue()),
                                         wide.getElementType(), param),
                               wide));
      e.scale = m.add(readScale(b, at, group.scale, position));
      if (group.limit)
        e.limit = m.add(group.limit);
      for (Value value : readHyper(b, at, optimizers[i], update.getT()))
        e.hyper.push_back(m.add(value));
      OpBuilder inner = OpBuilder::atBlockEnd(m.block);
      Value direction = buildFirstRegion(inner, at, optimizers[i], e).front();
      matrices.push_back(orthogonalize(b, at, m.finish(wide, direction)[0],
                                       optimizer.getOrthogonalAttr()));
      constexpr int64_t unit = kBufferAlignment / 4; // elements of f32
      places.push_back(end);
      end = llvm::alignTo(end + wide.getNumElements(), unit);
    }
  Type element = nn::getTensorType(matrices.front()).getElementType();
  directions = FlattenOp::create(b, loc, RankedTensorType::get({end}, element),
                                 matrices, places)
                   .getResult();
}

/// Adds what a word of chance depends on.
void SegmentUpdate::addRandom(ElementCode &code, UpdateElement &e) {
  OpBuilder inner = code.builder();
  e.random.site = code.addEach(sitesOf(b, loc, params));
  auto steps = addPlaceSteps(b, loc, code, params);
  e.random.index = code.addIndex(loc);
  for (auto [row, segment, start] : steps)
    e.random.index =
        buildPlaceStep(inner, loc, e.random.index, row, segment, start);
  e.random.microStep = nn::splatConstant(inner, loc, b.getI64Type(), 0.0);
}

/// Makes the op that changes the arrays of which `old` are elements to `values`.
void SegmentUpdate::create(ElementCode &code, UpdateElement &e,
                           ArrayRef<Value> values, ArrayRef<Value> old) {
  SmallVector<int64_t> targets;
  SmallVector<Type> types;
  for (Value before : old) {
    targets.push_back(cast<BlockArgument>(before).getArgNumber());
    types.push_back(code.arrays[targets.back()].getType());
  }
  OpBuilder inner = code.builder();
  train::YieldOp::create(inner, loc, values, Value(), Value());
  SplitCode split = splitCode(b, loc, code, groups.size());
  SmallVector<int64_t> ofParams = groupOf;
  if (split.grouped.empty())
    ofParams.assign(params.size(), 0);
  SegmentTable table =
      makeTable(code, params, ofParams, sharding.shards, all.layouts);
  auto map = SegmentMapOp::create(
      b, named(loc, "update"), types, code.arrays, split.uniforms,
      split.grouped, code.each, sharding.shard, table.toAttr(b),
      /*indexed=*/e.random.index != nullptr, targets);
  map.getBody().takeBody(*split.region);
  for (auto [result, target] : llvm::zip(map.getOutputs(), targets)) {
    SymbolRefAttr source =
        code.arrays[target].getDefiningOp<ReadOp>().getSource();
    WriteOp::create(b, loc, result, source);
    all.written.insert(source);
  }
}

/// Checks the arenas that it reads and writes.
LogicalResult SegmentUpdate::verify() {
  ParamOp param = params.front();
  SmallVector<std::string> arenas = updatedArenas(optimizer, param);
  arenas.push_back(gradientArena(param, sharding.over != nullptr, all.symbols));
  return failure(llvm::any_of(arenas, [&](const std::string &name) {
    return failed(all.verifyArena(update, name, params, sharding.shards > 1));
  }));
}

LogicalResult SegmentUpdate::expand() {
  if (failed(verify()))
    return failure();
  std::pair<Value, Value> norms;
  bool scaled = !optimizer.getScaled().empty();
  if (optimizer.getOrthogonal())
    buildDirections();
  else if (scaled)
    norms = buildNorms();

  ElementCode code;
  UpdateElement e;
  addInputs(code, e, /*last=*/true);
  OpBuilder inner = code.builder();
  if (directions) {
    e.parameterNorm = e.directionNorm =
        nn::splatConstant(inner, loc, e.direction.getType(), 0.0);
  } else if (scaled) {
    e.parameterNorm = code.addEach(norms.first);
    e.directionNorm = code.addEach(norms.second);
  }
  Type stored = stochasticType(update, params.front());
  if (stored)
    addRandom(code, e);
  inner = code.builder();
  if (llvm::any_of(params, hasPadding))
    e.padding = buildPadding(inner, loc, e);
  SmallVector<Value> values = buildFirstRegion(inner, loc, optimizer, e);
  if (e.direction)
    values.front() = e.direction;
  else if (scaled)
    values.front() = keepPadding(inner, loc, e, values.front(), e.parameter);
  if (scaled)
    values = buildSecondRegion(inner, loc, optimizer, e, values);
  SmallVector<Value> old{e.parameter};
  llvm::append_range(old, e.states);
  if (e.average) {
    values.push_back(buildAverage(inner, loc, e, values.front()));
    old.push_back(e.average);
  }
  if (stored)
    values.front() =
        buildStochasticRounding(inner, loc, e, values.front(), stored);
  for (auto [value, before] : llvm::zip(values, old))
    value = buildGuard(inner, loc, e, value, before);
  for (Value copy : e.copies) {
    values.push_back(values.front());
    old.push_back(copy);
  }
  create(code, e, values, old);
  return success();
}

LogicalResult SegmentUpdates::expand(UpdateOp update) {
  // What is done in one pass: of one bucket, or of one parameter.
  OpBuilder b(update);
  llvm::MapVector<Operation *, SmallVector<UpdateGroup>> passes;
  for (const UpdateGroup &group : getGroups(update)) {
    llvm::MapVector<Operation *, SmallVector<int64_t>> positions;
    for (auto [i, ref] : llvm::enumerate(group.params)) {
      ParamOp param = lookupParam(ref, symbols);
      Operation *key = update.getFused() ? bucketOf(param).getOperation()
                                         : param.getOperation();
      positions[key].push_back(i);
    }
    for (auto &[key, some] : positions)
      passes[key].push_back(pickParams(b, update.getLoc(), group, some));
  }
  for (auto &[key, groups] : passes)
    if (failed(SegmentUpdate(*this, update, groups).expand()))
      return failure();
  update.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Accumulation of buckets
//===----------------------------------------------------------------------===//

/// Whether this micro-step begins a window; null where a window has one.
Value SegmentUpdates::readBegins() {
  auto step = symbols.lookup<StepOp>(list.getEntry());
  if (step.getAccumulate() == 1 || begins)
    return begins;
  OpBuilder b = OpBuilder::atBlockBegin(&list.getBody().front());
  Location loc = list.getLoc();
  std::string name = windowScalar(getWindow(step), "micro_step");
  return begins = nn::CompareOp::create(
             b, loc, nn::CompareKind::eq, readScalar(b, loc, name),
             nn::scalarConstant(b, loc, b.getF64Type(), 0.0));
}

namespace {
/// Elements of a bucket from `first` on.
struct Elements {
  int64_t first, count;
};
} // namespace

/// What is stored of `bucket`, a value: all of it, or what a train.flatten puts there; what
/// stands between is undefined.
static SmallVector<Elements> findStored(Value bucket) {
  Operation *op = bucket.getDefiningOp();
  while (isCollective(op))
    op = op->getOperand(0).getDefiningOp();
  auto flat = dyn_cast<FlattenOp>(op);
  if (!flat)
    return {{0, nn::getTensorType(bucket).getNumElements()}};
  SmallVector<Elements> stored;
  for (auto [input, offset] : llvm::zip(flat.getInputs(), flat.getOffsets()))
    stored.push_back({offset, nn::getTensorType(input).getNumElements()});
  return stored;
}

/// The parts of `stored` that lie in each shard: in the memory of the shard, and in the
/// whole bucket.
static SegmentTable tableOfShards(ArrayRef<Elements> stored, int64_t size,
                                  int64_t shards) {
  SegmentTable table;
  table.offsets.resize(2);
  table.shards.push_back(0);
  for (int64_t first = 0; first < size * shards; first += size) {
    for (const Elements &range : stored) {
      int64_t begin = std::max(range.first, first);
      int64_t end = std::min(range.first + range.count, first + size);
      if (begin >= end)
        continue;
      table.lengths.push_back(end - begin);
      table.groups.push_back(0);
      table.offsets[0].push_back(begin - first);
      table.offsets[1].push_back(begin);
    }
    table.shards.push_back(table.lengths.size());
  }
  return table;
}

LogicalResult SegmentUpdates::expand(AccumulateOp accumulate) {
  OpBuilder b(accumulate);
  Location loc = named(accumulate.getLoc(), "merge");
  SymbolRefAttr target = accumulate.getTarget();
  auto arena = symbols.lookup<ArenaOp>(target.getRootReference());
  SpanOp inArena = arena ? arena.findSpan(target.getLeafReference()) : SpanOp();
  if (!inArena || !inArena.getOver())
    return accumulate.emitOpError(
               "expects a bucket of which a rank has a shard, got ")
           << target;
  const ArenaLayout &layout = layouts.of(target.getRootReference());
  const Span &span = layout.getSpan(target.getLeafReference());
  Value sums = accumulate.getValue(), first = readBegins();
  Value window = ReadOp::create(
      b, loc, layout.getFlatType().clone({span.localCount}), target);
  SegmentTable table =
      tableOfShards(findStored(sums), span.localCount, layout.countShards());
  auto map = SegmentMapOp::create(
      b, loc, window.getType(), ValueRange{window, sums},
      first ? ValueRange(first) : ValueRange(), /*grouped=*/ValueRange(),
      /*each=*/ValueRange(), readShard(inArena.getOverAttr()), table.toAttr(b),
      /*indexed=*/false, /*targets=*/ArrayRef<int64_t>{0});
  Block &block = map.getBody().emplaceBlock();
  Type element = layout.getFlatType().getElementType();
  Value old = block.addArgument(element, loc);
  Value value = block.addArgument(element, loc);
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  if (first) {
    Value isFirst = block.addArgument(b.getI1Type(), loc);
    Value sum = arith::AddFOp::create(inner, loc, old, value);
    value = arith::SelectOp::create(inner, loc, isFirst, value, sum);
  }
  train::YieldOp::create(inner, loc, value, Value(), Value());
  WriteOp::create(b, loc, map.getResult(0), target);
  accumulate.erase();
  return success();
}
