//===- FuseOptimizer.cpp - One norm and one update for all parameters -----===//
//
// This pass replaces the norms of a plan by one pass over the gradients, and the
// updates by one pass per kind of rule over everything that it touches: the arenas
// are read and written as wholes, segment by segment. What depends on scalars alone
// is computed once per group before. Every element goes through the same operations
// as in train-expand-updates, and sums are added in the same order.
//
//===----------------------------------------------------------------------===//
#include "SegmentCode.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Transforms/Plan/UpdateRule.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-fuse-optimizer"

namespace trainc {
#define GEN_PASS_DEF_FUSEOPTIMIZERPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// `loc` under the name that its kernel is to have.
static Location named(Location loc, StringRef name) {
  return NameLoc::get(StringAttr::get(loc.getContext(), name), loc);
}

namespace {
/// The sums that a train.sum_blocks adds.
struct BlockSums {
  SmallVector<Value> inputs;
  SmallVector<int64_t> sources, firsts, counts;

  /// Sums per segment of `blocks`; the number of the first.
  int64_t add(Value blocks, ArrayRef<int64_t> lengths) {
    int64_t first = sources.size(), at = 0;
    for (int64_t length : lengths) {
      sources.push_back(inputs.size());
      firsts.push_back(at);
      counts.push_back(llvm::divideCeil(length, kNormBlock));
      at += counts.back();
    }
    inputs.push_back(blocks);
    return first;
  }
  ValueRange create(OpBuilder &b, Location loc, ArrayRef<Attribute> sets,
                    ArrayRef<Type> types) {
    return SumBlocksOp::create(b, named(loc, "sum_norm"), types, inputs,
                               sources, firsts, counts, b.getArrayAttr(sets),
                               DenseI64ArrayAttr())
        .getResults();
  }
};

/// Parameters of one update whose elements are stored in one type and copied to the
/// same arenas.
struct Member {
  UpdateOp update;
  OptimizerOp optimizer;
  SmallVector<ParamOp> params;
  SmallVector<int64_t> positions; // in the update's list
  SmallVector<StringAttr> copies; // names of arenas
};

/// Directions that were made of whole matrices, and where those of the parameters are.
struct Directions {
  Value flat;
  SmallVector<int64_t> places;
};

struct Fuser {
  explicit Fuser(ModuleOp module) : module(module), symbols(module) {}

  LogicalResult fuseNorms(ArrayRef<NormSquaredOp> norms);
  LogicalResult fuseUpdates(MutableArrayRef<Member> members);

private:
  ModuleOp module;
  SymbolTable symbols;

  FailureOr<Value> readArena(OpBuilder &b, Operation *user, StringRef name);
  SegmentSquareSumOp sumSquares(OpBuilder &b, Location loc, ElementCode &code,
                                ArrayRef<SmallVector<ParamOp>> params);
  LogicalResult addInputs(OpBuilder &b, MutableArrayRef<Member> members,
                          ElementCode &code, UpdateElement &e, bool last,
                          const Directions &directions = {});
  FailureOr<Directions> buildDirections(OpBuilder &b,
                                        MutableArrayRef<Member> members);
  FailureOr<std::pair<Value, Value>>
  buildNorms(OpBuilder &b, MutableArrayRef<Member> members);
};
} // namespace

/// The arena `name` as a whole.
FailureOr<Value> Fuser::readArena(OpBuilder &b, Operation *user,
                                  StringRef name) {
  auto arena = symbols.lookup<ArenaOp>(name);
  if (!arena || !arena.getFlatType())
    return user->emitOpError("expects an arena @")
           << name << " of one element type; run train-plan-step first";
  return ReadOp::create(b, user->getLoc(), arena.getFlatType(),
                        SymbolRefAttr::get(arena.getSymNameAttr()))
      .getResult();
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// Sums of squares of blocks of what `code` yields.
SegmentSquareSumOp Fuser::sumSquares(OpBuilder &b, Location loc,
                                     ElementCode &code,
                                     ArrayRef<SmallVector<ParamOp>> params) {
  Segments segments = splitCode(b, loc, code, params, symbols);
  int64_t blocks = 0;
  for (int64_t length : segments.lengths)
    blocks += llvm::divideCeil(length, kNormBlock);
  size_t values = code.block->getTerminator()->getNumOperands();
  SmallVector<Type> types(values,
                          RankedTensorType::get({blocks}, b.getF64Type()));
  auto op = SegmentSquareSumOp::create(
      b, named(loc, "norm"), types, code.arrays, segments.uniforms,
      segments.grouped, code.each, /*shard=*/Value(), segments.lengths,
      segments.groups, segments.offsets, /*indexed=*/false, DenseI64ArrayAttr(),
      DenseI64ArrayAttr(), DenseI64ArrayAttr(), kNormBlock);
  op.getBody().takeBody(*segments.region);
  return op;
}

LogicalResult Fuser::fuseNorms(ArrayRef<NormSquaredOp> norms) {
  if (norms.empty())
    return success();
  OpBuilder b(norms.front());
  Location loc = norms.front()->getLoc();
  DenseSet<StringAttr> wanted;
  for (NormSquaredOp norm : norms)
    for (auto ref : norm.getParams().getAsRange<FlatSymbolRefAttr>())
      wanted.insert(ref.getAttr());
  llvm::MapVector<StringAttr, SmallVector<ParamOp>> byArena;
  for (auto param : module.getOps<ParamOp>())
    if (wanted.contains(param.getSymNameAttr()))
      byArena[b.getStringAttr(arenaName(
                  kGradientArena, gradientType(param).getElementType(), param))]
          .push_back(param);
  BlockSums sums;
  DenseMap<StringAttr, int64_t> numberOf;
  for (auto &[name, params] : byArena) {
    ElementCode code;
    auto gradients = readArena(b, norms.front(), name);
    if (failed(gradients))
      return failure();
    Value gradient = code.addArray(*gradients);
    OpBuilder inner = code.builder();
    train::YieldOp::create(inner, loc, gradient, Value(), Value());
    auto op = sumSquares(b, loc, code, params);
    int64_t first = sums.add(op.getResult(0), op.getLengths());
    for (ParamOp param : params)
      numberOf[param.getSymNameAttr()] = first++;
  }
  SmallVector<Attribute> sets;
  SmallVector<Type> types;
  for (NormSquaredOp norm : norms) {
    SmallVector<int64_t> set;
    for (auto ref : norm.getParams().getAsRange<FlatSymbolRefAttr>())
      set.push_back(numberOf.lookup(ref.getAttr()));
    sets.push_back(b.getDenseI64ArrayAttr(set));
    types.push_back(norm.getResult().getType());
  }
  for (auto [norm, sum] : llvm::zip(norms, sums.create(b, loc, sets, types))) {
    norm->replaceAllUsesWith(ValueRange(sum));
    norm->erase();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

/// Whether the updates of `a` and `b` are the same code on other numbers.
static bool sameCode(Member &a, Member &b) {
  auto sameRegion = [](Region &x, Region &y) {
    return OperationEquivalence::isRegionEquivalentTo(
        &x, &y, OperationEquivalence::IgnoreLocations);
  };
  OptimizerOp x = a.optimizer, y = b.optimizer;
  auto rankOfScale = [](Member &m) {
    return nn::getTensorType(m.update.getScale()).getRank();
  };
  return a.params.front().getTensorType().getElementType() ==
             b.params.front().getTensorType().getElementType() &&
         a.params.front().getPartAxes() == b.params.front().getPartAxes() &&
         x.getStateNames() == y.getStateNames() &&
         x.getEma().has_value() == y.getEma().has_value() &&
         !a.update.getLimit() == !b.update.getLimit() && a.copies == b.copies &&
         a.update.getStochastic() == b.update.getStochastic() &&
         rankOfScale(a) == rankOfScale(b) &&
         x.getOrthogonalAttr() == y.getOrthogonalAttr() &&
         sameRegion(x.getBody(), y.getBody()) &&
         x.getScaled().empty() == y.getScaled().empty() &&
         (x.getScaled().empty() || sameRegion(x.getScaled(), y.getScaled()));
}

/// The scales of the members' parameters, one after the other.
static Value concatScales(OpBuilder &b, Location loc,
                          MutableArrayRef<Member> members) {
  SmallVector<Value> parts;
  for (Member &member : members) {
    Value scale = member.update.getScale();
    if (member.positions.size() == member.update.getParams().size()) {
      parts.push_back(scale);
      continue;
    }
    for (int64_t position : member.positions)
      parts.push_back(
          nn::SliceOp::create(b, loc, scale, ArrayRef<int64_t>{position},
                              ArrayRef<int64_t>{1}, DenseI64ArrayAttr()));
  }
  if (parts.size() == 1)
    return parts.front();
  return nn::ConcatOp::create(b, loc, parts, 0);
}

/// The sites of the members' parameters.
static Value sitesOf(OpBuilder &b, Location loc,
                     MutableArrayRef<Member> members) {
  SmallVector<int64_t> sites;
  for (Member &member : members)
    for (ParamOp param : member.params)
      sites.push_back(randomSite(param));
  auto type = RankedTensorType::get({static_cast<int64_t>(sites.size())},
                                    b.getI64Type());
  return nn::ConstantOp::create(b, loc, type,
                                DenseElementsAttr::get(type, ArrayRef(sites)));
}

/// Adds row, segment and start of each step to the whole, one of each per parameter.
static SmallVector<std::array<Value, 3>>
addPlaceSteps(OpBuilder &b, Location loc, ElementCode &code,
              MutableArrayRef<Member> members) {
  SmallVector<SmallVector<PlaceStep>> steps;
  size_t most = 0;
  for (Member &member : members)
    for (ParamOp param : member.params)
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

/// Adds the arguments that the first region needs, and those that the end of the
/// update needs if `last`.
LogicalResult Fuser::addInputs(OpBuilder &b, MutableArrayRef<Member> members,
                               ElementCode &code, UpdateElement &e, bool last,
                               const Directions &directions) {
  Operation *user = members.front().update;
  OptimizerOp optimizer = members.front().optimizer;
  ParamOp param = members.front().params.front();
  Type wide = gradientType(param).getElementType();
  auto addArray = [&](StringRef name, Value &argument) {
    auto array = readArena(b, user, name);
    if (succeeded(array))
      argument = code.addArray(*array);
    return LogicalResult(array);
  };
  auto addScalar = [&](function_ref<Value(Member &)> get) {
    SmallVector<Value> values;
    for (Member &member : members)
      values.push_back(get(member));
    return code.addScalar(values);
  };
  Type narrow = param.getTensorType().getElementType();
  if (failed(addArray(arenaName(kMasterArena, narrow, param), e.parameter)) ||
      failed(addArray(arenaName(kGradientArena, wide, param), e.gradient)))
    return failure();
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    if (failed(addArray(arenaName(stateRole(state.getValue()), wide, param),
                        e.states.emplace_back())))
      return failure();
  bool average = last && optimizer.getEma();
  if (average &&
      failed(addArray(arenaName(stateRole("ema"), wide, param), e.average)))
    return failure();
  if (last)
    for (StringAttr copy : members.front().copies)
      if (failed(addArray(copy, e.copies.emplace_back())))
        return failure();
  if (directions.flat)
    e.direction = code.addArray(directions.flat, directions.places);

  Location loc = user->getLoc();
  bool eachScale =
      nn::getTensorType(members.front().update.getScale()).getRank() == 1;
  if (!eachScale)
    e.scale = addScalar([](Member &m) { return m.update.getScale(); });
  if (members.front().update.getLimit())
    e.limit = addScalar([](Member &m) { return m.update.getLimit(); });
  SmallVector<SmallVector<Value>> hyper;
  for (Member &member : members)
    hyper.push_back(readHyper(b, loc, member.optimizer, member.update.getT()));
  for (size_t i = 0; i < hyper.front().size(); ++i) {
    SmallVector<Value> values;
    for (auto &ofMember : hyper)
      values.push_back(ofMember[i]);
    e.hyper.push_back(code.addScalar(values));
  }
  if (last)
    e.finite = addScalar([](Member &m) { return m.update.getFinite(); });
  if (last && stochasticType(members.front().update, param)) {
    auto addCounter = [&](StringRef name) {
      Value value =
          nn::castTo(b, loc, readScalar(b, loc, name), b.getI64Type());
      return addScalar([&](Member &) { return value; });
    };
    e.random.seed = addCounter("seed");
    e.random.update = addCounter(windowScalar(param.getWindowAttr(), "update"));
  }
  if (average)
    e.decay = addScalar([&](Member &m) {
      OptimizerOp optimizer = m.optimizer;
      return readScalar(b, loc, optimizer.getSymName() + ".ema");
    });
  if (eachScale)
    e.scale = code.addEach(concatScales(b, loc, members));
  return success();
}

static SmallVector<SmallVector<ParamOp>>
paramsOf(MutableArrayRef<Member> members) {
  SmallVector<SmallVector<ParamOp>> params;
  for (Member &member : members)
    params.push_back(member.params);
  return params;
}

/// The norms of each parameter and of its direction.
FailureOr<std::pair<Value, Value>>
Fuser::buildNorms(OpBuilder &b, MutableArrayRef<Member> members) {
  Location loc = members.front().update->getLoc();
  ElementCode code;
  UpdateElement e;
  if (failed(addInputs(b, members, code, e, /*last=*/false)))
    return failure();
  OpBuilder inner = code.builder();
  Value direction =
      buildFirstRegion(inner, loc, members.front().optimizer, e).front();
  train::YieldOp::create(inner, loc, ValueRange{e.parameter, direction},
                         Value(), Value());
  auto op = sumSquares(b, loc, code, paramsOf(members));
  BlockSums sums;
  int64_t count = op.getLengths().size();
  SmallVector<Attribute> sets;
  for (Value blocks : op.getResults()) {
    int64_t first = sums.add(blocks, op.getLengths());
    auto set = llvm::to_vector(llvm::seq<int64_t>(first, first + count));
    sets.push_back(b.getDenseI64ArrayAttr(set));
  }
  Type type = RankedTensorType::get({count}, b.getF64Type());
  ValueRange squares = sums.create(b, loc, sets, {type, type});
  ArrayAttr axes = members.front().params.front().getPartAxes();
  auto norm = [&](Value square) {
    if (!axes.empty()) // with the parts that other ranks have
      square = AllReduceOp::create(b, loc, type, square, axes,
                                   DenseI64ArrayAttr(), ArrayAttr());
    return nn::castTo(b, loc, nn::SqrtOp::create(b, loc, square),
                      direction.getType());
  };
  return std::pair(norm(squares[0]), norm(squares[1]));
}

/// Makes the direction of each matrix orthogonal, all in one flat tensor.
FailureOr<Directions> Fuser::buildDirections(OpBuilder &b,
                                             MutableArrayRef<Member> members) {
  OptimizerOp optimizer = members.front().optimizer;
  Directions result;
  SmallVector<Value> matrices;
  int64_t end = 0;
  for (Member &member : members)
    for (auto [param, position] : llvm::zip(member.params, member.positions)) {
      Location loc = param.getLoc();
      RankedTensorType type = param.getTensorType(), wide = gradientType(param);
      MapBuilder m(b, loc);
      LogicalResult found = success();
      auto add = [&](StringRef role, RankedTensorType ofSlice) -> Value {
        std::string name = arenaName(role, ofSlice.getElementType(), param);
        auto whole = readArena(b, member.update, name);
        found = whole;
        if (failed(whole))
          return {};
        auto arena = symbols.lookup<ArenaOp>(name);
        int64_t offset =
            arena.getOffsets()[arena.findSlice(param.getSymName())] /
            nn::getElementBytes(ofSlice.getElementType());
        return m.add(ViewOp::create(b, loc, ofSlice, *whole, offset));
      };
      UpdateElement e;
      e.parameter = add(kMasterArena, type);
      if (succeeded(found))
        e.gradient = add(kGradientArena, wide);
      for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
        if (succeeded(found))
          e.states.push_back(add(stateRole(state.getValue()), wide));
      if (failed(found))
        return failure();
      e.scale = m.add(readScale(b, loc, member.update, position));
      if (Value limit = member.update.getLimit())
        e.limit = m.add(limit);
      for (Value value :
           readHyper(b, loc, member.optimizer, member.update.getT()))
        e.hyper.push_back(m.add(value));
      OpBuilder inner = OpBuilder::atBlockEnd(m.block);
      Value direction =
          buildFirstRegion(inner, loc, member.optimizer, e).front();
      matrices.push_back(orthogonalize(b, loc, m.finish(wide, direction)[0],
                                       optimizer.getOrthogonalAttr()));
      constexpr int64_t kAlignment = 64; // elements
      result.places.push_back(end);
      end = llvm::alignTo(end + wide.getNumElements(), kAlignment);
    }
  Type element = nn::getTensorType(matrices.front()).getElementType();
  result.flat = FlattenOp::create(b, members.front().update->getLoc(),
                                  RankedTensorType::get({end}, element),
                                  matrices, result.places)
                    .getResult();
  return result;
}

LogicalResult Fuser::fuseUpdates(MutableArrayRef<Member> members) {
  UpdateOp last = members.front().update;
  for (Member &member : members)
    if (last->isBeforeInBlock(member.update))
      last = member.update;
  OpBuilder b(last);
  Location loc = last.getLoc();
  OptimizerOp optimizer = members.front().optimizer;
  std::pair<Value, Value> norms;
  bool scaled = !optimizer.getScaled().empty();
  Directions directions;
  if (optimizer.getOrthogonal()) {
    auto built = buildDirections(b, members);
    if (failed(built))
      return failure();
    directions = *built;
  } else if (scaled) {
    auto built = buildNorms(b, members);
    if (failed(built))
      return failure();
    norms = *built;
  }

  ElementCode code;
  UpdateElement e;
  if (failed(addInputs(b, members, code, e, /*last=*/true, directions)))
    return failure();
  OpBuilder inner = code.builder();
  if (directions.flat) {
    e.parameterNorm = e.directionNorm =
        nn::splatConstant(inner, loc, e.direction.getType(), 0.0);
  } else if (scaled) {
    e.parameterNorm = code.addEach(norms.first);
    e.directionNorm = code.addEach(norms.second);
  }
  ParamOp param = members.front().params.front();
  Type stored = stochasticType(members.front().update, param);
  if (stored) {
    e.random.site = code.addEach(sitesOf(b, loc, members));
    auto places = addPlaceSteps(b, loc, code, members);
    e.random.index = code.addIndex(loc);
    for (auto [row, segment, start] : places)
      e.random.index =
          buildPlaceStep(inner, loc, e.random.index, row, segment, start);
    e.random.microStep = nn::splatConstant(inner, loc, b.getI64Type(), 0.0);
  }
  SmallVector<Value> values = buildFirstRegion(inner, loc, optimizer, e);
  if (e.direction)
    values.front() = e.direction;
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
  SmallVector<int64_t> targets;
  SmallVector<Type> types;
  for (auto [value, before] : llvm::zip(values, old)) {
    int64_t target = cast<BlockArgument>(before).getArgNumber();
    targets.push_back(target);
    types.push_back(code.arrays[target].getType());
  }
  train::YieldOp::create(inner, loc, values, Value(), Value());
  Segments segments = splitCode(b, loc, code, paramsOf(members), symbols);
  auto map = SegmentMapOp::create(
      b, named(loc, "update"), types, code.arrays, segments.uniforms,
      segments.grouped, code.each, /*shard=*/Value(), segments.lengths,
      segments.groups, segments.offsets, /*indexed=*/stored != nullptr,
      DenseI64ArrayAttr(), DenseI64ArrayAttr(), DenseI64ArrayAttr(), targets);
  map.getBody().takeBody(*segments.region);
  remark::passed(
      loc, remark::RemarkOpts::name("Fused").category("train-fuse-optimizer"))
      << remark::metric("Parameters",
                        static_cast<int64_t>(map.getLengths().size()))
      << remark::metric("Elements", llvm::sum_of(map.getLengths()))
      << remark::metric("Updates", static_cast<int64_t>(members.size()))
      << remark::metric("Arrays", static_cast<int64_t>(code.arrays.size()));
  for (auto [result, target] : llvm::zip(map.getOutputs(), targets))
    WriteOp::create(b, loc, result,
                    code.arrays[target].getDefiningOp<ReadOp>().getSource());
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// The parameters of `update` by the type in which they are stored, and by copies.
static SmallVector<Member> membersOf(UpdateOp update, SymbolTable &symbols) {
  auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
  SmallVector<Member> members;
  for (auto [i, ref] : llvm::enumerate(update.getParams())) {
    auto param =
        symbols.lookup<ParamOp>(cast<FlatSymbolRefAttr>(ref).getValue());
    SmallVector<StringAttr> copies = copiesOf(update, param, symbols);
    Member *member = llvm::find_if(members, [&](Member &other) {
      return other.copies == copies &&
             other.params.front().getTensorType().getElementType() ==
                 param.getTensorType().getElementType();
    });
    if (member == members.end())
      member = &members.emplace_back(Member{update, optimizer, {}, {}, copies});
    member->params.push_back(param);
    member->positions.push_back(i);
  }
  return members;
}

namespace {
struct FuseOptimizerPass
    : trainc::impl::FuseOptimizerPassBase<FuseOptimizerPass> {
  using FuseOptimizerPassBase::FuseOptimizerPassBase;

  LogicalResult runOn(Block &block) {
    SmallVector<NormSquaredOp> norms(block.getOps<NormSquaredOp>());
    SmallVector<UpdateOp> updates(block.getOps<UpdateOp>());
    SymbolTable symbols(getOperation());
    SmallVector<SmallVector<Member>> kinds;
    for (NormSquaredOp norm : norms)
      if (failed(verifyParams(norm, norm.getParams(), symbols)))
        return failure();
    for (UpdateOp update : updates) {
      if (failed(verifyUpdate(update, symbols)))
        return failure();
      for (Member &member : membersOf(update, symbols)) {
        if (separate) {
          for (auto [param, position] :
               llvm::zip(member.params, member.positions))
            kinds.push_back({Member{member.update,
                                    member.optimizer,
                                    {param},
                                    {position},
                                    member.copies}});
          continue;
        }
        auto kind = llvm::find_if(
            kinds, [&](auto &kind) { return sameCode(kind.front(), member); });
        if (kind == kinds.end())
          kinds.push_back({member});
        else
          kind->push_back(member);
      }
    }
    Fuser fuser(getOperation());
    for (ArrayRef<NormSquaredOp> all = norms; !all.empty();) {
      ArrayRef<NormSquaredOp> some = separate ? all.take_front() : all;
      if (failed(fuser.fuseNorms(some)))
        return failure();
      all = all.drop_front(some.size());
    }
    for (auto &kind : kinds)
      if (failed(fuser.fuseUpdates(kind)))
        return failure();
    numNorms += norms.size();
    numUpdates += updates.size();
    numPasses += kinds.size();
    for (UpdateOp update : updates)
      update.erase();
    return success();
  }

  void runOnOperation() override {
    if (separate &&
        llvm::none_of(getOperation().getOps<StepOp>(), getReducedAxes))
      return;
    SetVector<Block *> blocks;
    getOperation().walk([&](Operation *op) {
      if (isa<NormSquaredOp, UpdateOp>(op))
        blocks.insert(op->getBlock());
    });
    for (Block *block : blocks)
      if (failed(runOn(*block)))
        return signalPassFailure();
  }
};
} // namespace
