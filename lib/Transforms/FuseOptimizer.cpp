//===- FuseOptimizer.cpp - One norm and one update for all parameters -----===//
//
// This pass replaces the norms of a plan by one pass over the gradients, and the
// updates by one pass per kind of rule over everything that it touches: the arenas
// are read and written as wholes, segment by segment. What depends on scalars alone
// is computed once per group before. Every element goes through the same operations
// as in train-expand-updates, and sums are added in the same order.
//
//===----------------------------------------------------------------------===//
#include "UpdateRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OperationSupport.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-fuse-optimizer"

namespace trainc {
#define GEN_PASS_DEF_FUSEOPTIMIZERPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// Parameters of one update whose elements are stored in one type.
struct Member {
  UpdateOp update;
  OptimizerOp optimizer;
  SmallVector<ParamOp> params;
  SmallVector<int64_t> positions; // in the update's list
};

/// A region on elements, of which an op on segments is made. Its arguments are
/// elements of arrays, then scalars, then elements of tensors with one per segment;
/// they are added in this order.
struct ElementCode {
  Region region;
  Block *block;
  SmallVector<Value> arrays, each;
  SmallVector<SmallVector<Value>> scalars; // of each member

  ElementCode() : block(&region.emplaceBlock()) {}

  Value addArray(Value array) {
    arrays.push_back(array);
    return addArgument(array);
  }
  Value addScalar(ArrayRef<Value> ofMembers) {
    scalars.emplace_back(ofMembers);
    return addArgument(ofMembers.front());
  }
  Value addEach(Value tensor) {
    each.push_back(tensor);
    return addArgument(tensor);
  }
  bool isScalar(Value value) const {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getArgNumber() >= arrays.size() &&
           argument.getArgNumber() < arrays.size() + scalars.size();
  }
  /// At the end of the region, which is of no op yet.
  OpBuilder builder() {
    OpBuilder b(arrays.front().getContext());
    b.setInsertionPointToEnd(block);
    return b;
  }

private:
  Value addArgument(Value value) {
    Type type = nn::getComputeType(nn::getTensorType(value).getElementType());
    return block->addArgument(type, value.getLoc());
  }
};

/// The parts of an op on segments.
struct Segments {
  SmallVector<Value> uniforms, grouped;
  SmallVector<int64_t> lengths, groups;
  ArrayAttr offsets;
  std::unique_ptr<Region> region = std::make_unique<Region>();
};

struct Fuser {
  explicit Fuser(ModuleOp module) : module(module), symbols(module) {}

  LogicalResult fuseNorms(ArrayRef<NormSquaredOp> norms);
  LogicalResult fuseUpdates(MutableArrayRef<Member> members);

private:
  ModuleOp module;
  SymbolTable symbols;

  FailureOr<Value> readArena(OpBuilder &b, Operation *user, StringRef role,
                             Type element);
  Segments split(OpBuilder &b, Location loc, ElementCode &code,
                 ArrayRef<SmallVector<ParamOp>> params);
  SegmentSquareSumOp sumSquares(OpBuilder &b, Location loc, ElementCode &code,
                                ArrayRef<SmallVector<ParamOp>> params);
  LogicalResult addInputs(OpBuilder &b, MutableArrayRef<Member> members,
                          ElementCode &code, UpdateElement &e, bool last);
  FailureOr<std::pair<Value, Value>> buildNorms(OpBuilder &b,
                                                MutableArrayRef<Member> members);
};
} // namespace

/// `loc` under the name that its kernel is to have.
static Location named(Location loc, StringRef name) {
  return NameLoc::get(StringAttr::get(loc.getContext(), name), loc);
}

/// The whole arena of `role`.
FailureOr<Value> Fuser::readArena(OpBuilder &b, Operation *user, StringRef role,
                                  Type element) {
  std::string name = arenaName(role, element);
  auto arena = symbols.lookup<ArenaOp>(name);
  if (!arena || !arena.getFlatType())
    return user->emitOpError("expects an arena @")
           << name << " of one element type; run train-plan-step first";
  return ReadOp::create(b, user->getLoc(), arena.getFlatType(),
                        SymbolRefAttr::get(arena.getSymNameAttr()))
      .getResult();
}

//===----------------------------------------------------------------------===//
// Code of scalars and code of elements
//===----------------------------------------------------------------------===//

static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// The ops that `values` need, in order of the block.
static SmallVector<Operation *> needed(Block &block, ArrayRef<Value> values) {
  DenseSet<Operation *> found;
  SmallVector<Value> open(values);
  while (!open.empty())
    if (Operation *op = open.pop_back_val().getDefiningOp())
      if (found.insert(op).second)
        llvm::append_range(open, op->getOperands());
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (found.contains(&op))
      ops.push_back(&op);
  return ops;
}

/// A map that computes `values` of one member's scalars.
static ValueRange computeScalars(OpBuilder &b, Location loc, ElementCode &code,
                                 size_t member, ArrayRef<Value> values) {
  SmallVector<Operation *> ops = needed(*code.block, values);
  llvm::SetVector<Value> arguments;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (isa<BlockArgument>(operand))
        arguments.insert(operand);
  SmallVector<Value> inputs;
  SmallVector<Type> types;
  for (Value argument : arguments)
    inputs.push_back(code.scalars[cast<BlockArgument>(argument).getArgNumber() -
                                  code.arrays.size()][member]);
  for (Value value : values)
    types.push_back(RankedTensorType::get({}, value.getType()));
  auto map = nn::MapOp::create(b, loc, types, inputs);
  Block &block = map.getBody().emplaceBlock();
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  for (Value argument : arguments)
    mapping.map(argument, block.addArgument(argument.getType(), loc));
  for (Operation *op : ops)
    inner.clone(*op, mapping);
  SmallVector<Value> yielded;
  for (Value value : values)
    yielded.push_back(mapping.lookup(value));
  nn::YieldOp::create(inner, loc, yielded);
  return map.getResults();
}

/// Divides `code` into what depends on scalars alone, computed here per member, and
/// the rest. Segments are the parameters of the members, one after the other.
Segments Fuser::split(OpBuilder &b, Location loc, ElementCode &code,
                      ArrayRef<SmallVector<ParamOp>> params) {
  Segments result;
  SmallVector<ParamOp> all;
  for (auto [member, list] : llvm::enumerate(params))
    for (ParamOp param : list) {
      all.push_back(param);
      result.lengths.push_back(param.getTensorType().getNumElements());
      result.groups.push_back(member);
    }
  SmallVector<Attribute> offsets;
  for (Value array : code.arrays) {
    auto arena = symbols.lookup<ArenaOp>(
        array.getDefiningOp<ReadOp>().getSource().getRootReference());
    int64_t width = llvm::divideCeil(
        nn::getTensorType(array).getElementType().getIntOrFloatBitWidth(), 8);
    SmallVector<int64_t> positions;
    for (ParamOp param : all)
      positions.push_back(
          arena.getOffsets()[arena.findSlice(param.getSymName())] / width);
    offsets.push_back(b.getDenseI64ArrayAttr(positions));
  }
  result.offsets = b.getArrayAttr(offsets);

  // Constants belong to both sides.
  DenseSet<Value> scalars;
  llvm::SetVector<Value> computed, given;
  for (Operation &op : *code.block) {
    auto isKnown = [&](Value value) {
      return code.isScalar(value) || scalars.contains(value);
    };
    auto isFree = [&](Value value) {
      Operation *producer = value.getDefiningOp();
      return producer && producer->getNumOperands() == 0;
    };
    bool terminator = op.hasTrait<OpTrait::IsTerminator>();
    if (!terminator && llvm::any_of(op.getOperands(), isKnown) &&
        llvm::all_of(op.getOperands(),
                     [&](Value v) { return isKnown(v) || isFree(v); })) {
      scalars.insert_range(op.getResults());
      continue;
    }
    for (Value operand : op.getOperands())
      if (scalars.contains(operand))
        computed.insert(operand);
      else if (code.isScalar(operand))
        given.insert(operand);
  }

  size_t members = params.size();
  SmallVector<SmallVector<Value>> values; // per argument and member
  SmallVector<Value> sources;
  for (Value value : given) {
    sources.push_back(value);
    values.push_back(code.scalars[cast<BlockArgument>(value).getArgNumber() -
                                  code.arrays.size()]);
  }
  if (!computed.empty()) {
    size_t first = values.size();
    sources.append(computed.begin(), computed.end());
    values.resize(sources.size());
    for (size_t member = 0; member < members; ++member)
      for (auto [i, value] : llvm::enumerate(computeScalars(
               b, loc, code, member, computed.getArrayRef())))
        values[first + i].push_back(value);
  }

  Block &block = result.region->emplaceBlock();
  IRMapping mapping;
  auto addArgument = [&](Value source) {
    mapping.map(source, block.addArgument(source.getType(), loc));
  };
  for (size_t i = 0; i < code.arrays.size(); ++i)
    addArgument(code.block->getArgument(i));
  for (bool uniform : {true, false})
    for (auto [source, ofMembers] : llvm::zip(sources, values)) {
      if (llvm::all_equal(ofMembers) != uniform)
        continue;
      addArgument(source);
      if (uniform)
        result.uniforms.push_back(ofMembers.front());
      else
        llvm::append_range(result.grouped, ofMembers);
    }
  if (result.grouped.empty())
    result.groups.assign(result.groups.size(), 0);
  for (size_t i = 0; i < code.each.size(); ++i)
    addArgument(code.block->getArgument(code.arrays.size() +
                                        code.scalars.size() + i));
  OpBuilder inner(b.getContext());
  inner.setInsertionPointToEnd(&block);
  for (Operation &op : *code.block)
    if (op.getNumResults() == 0 || !scalars.contains(op.getResult(0)))
      inner.clone(op, mapping);
  eraseDead(block);
  return result;
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// Sums of squares of blocks of what `code` yields.
SegmentSquareSumOp Fuser::sumSquares(OpBuilder &b, Location loc,
                                     ElementCode &code,
                                     ArrayRef<SmallVector<ParamOp>> params) {
  Segments segments = split(b, loc, code, params);
  int64_t blocks = 0;
  for (int64_t length : segments.lengths)
    blocks += llvm::divideCeil(length, kNormBlock);
  SmallVector<Type> types;
  for (Value value : code.block->getTerminator()->getOperands())
    types.push_back(RankedTensorType::get({blocks}, value.getType()));
  auto op = SegmentSquareSumOp::create(
      b, named(loc, "norm"), types, code.arrays, segments.uniforms, segments.grouped, code.each,
      segments.lengths, segments.groups, segments.offsets, kNormBlock);
  op.getBody().takeBody(*segments.region);
  return op;
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
    return SumBlocksOp::create(b, named(loc, "sum_norm"), types, inputs, sources, firsts, counts,
                               b.getArrayAttr(sets))
        .getResults();
  }
};
} // namespace

LogicalResult Fuser::fuseNorms(ArrayRef<NormSquaredOp> norms) {
  if (norms.empty())
    return success();
  OpBuilder b(norms.front());
  Location loc = norms.front()->getLoc();
  DenseSet<StringAttr> wanted;
  for (NormSquaredOp norm : norms)
    for (auto ref : norm.getParams().getAsRange<FlatSymbolRefAttr>())
      wanted.insert(ref.getAttr());
  llvm::MapVector<Type, SmallVector<ParamOp>> byType;
  for (auto param : module.getOps<ParamOp>())
    if (wanted.contains(param.getSymNameAttr()))
      byType[gradientType(param).getElementType()].push_back(param);
  BlockSums sums;
  DenseMap<StringAttr, int64_t> numberOf;
  for (auto &[type, params] : byType) {
    ElementCode code;
    auto gradients = readArena(b, norms.front(), kGradientArena, type);
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
         x.getStateNames() == y.getStateNames() &&
         x.getEma().has_value() == y.getEma().has_value() &&
         !a.update.getLimit() == !b.update.getLimit() &&
         rankOfScale(a) == rankOfScale(b) &&
         sameRegion(x.getBody(), y.getBody()) &&
         x.getScaled().empty() == y.getScaled().empty() &&
         (x.getScaled().empty() || sameRegion(x.getScaled(), y.getScaled()));
}

/// The scales of the members' parameters, one after the other.
static Value concatScales(OpBuilder &b, Location loc, MutableArrayRef<Member> members) {
  SmallVector<Value> parts;
  for (Member &member : members) {
    Value scale = member.update.getScale();
    if (member.positions.size() == member.update.getParams().size()) {
      parts.push_back(scale);
      continue;
    }
    for (int64_t position : member.positions)
      parts.push_back(nn::SliceOp::create(b, loc, scale,
                                          ArrayRef<int64_t>{position},
                                          ArrayRef<int64_t>{1},
                                          DenseI64ArrayAttr()));
  }
  if (parts.size() == 1)
    return parts.front();
  return nn::ConcatOp::create(b, loc, parts, 0);
}

/// Adds the arguments that the first region needs, and those that the end of the
/// update needs if `last`.
LogicalResult Fuser::addInputs(OpBuilder &b, MutableArrayRef<Member> members,
                               ElementCode &code, UpdateElement &e, bool last) {
  Operation *user = members.front().update;
  OptimizerOp optimizer = members.front().optimizer;
  ParamOp param = members.front().params.front();
  Type wide = gradientType(param).getElementType();
  auto addArray = [&](StringRef role, Type element, Value &argument) {
    auto array = readArena(b, user, role, element);
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
  if (failed(addArray(kMasterArena, param.getTensorType().getElementType(),
                      e.parameter)) ||
      failed(addArray(kGradientArena, wide, e.gradient)))
    return failure();
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    if (failed(addArray(stateRole(state.getValue()), wide,
                        e.states.emplace_back())))
      return failure();
  bool average = last && optimizer.getEma();
  if (average && failed(addArray(stateRole("ema"), wide, e.average)))
    return failure();

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
  if (average)
    e.decay = addScalar([&](Member &m) {
      OptimizerOp optimizer = m.optimizer;
      return readScalar(b, loc, optimizer.getSymName() + ".ema");
    });
  if (eachScale)
    e.scale = code.addEach(concatScales(b, loc, members));
  return success();
}

static SmallVector<SmallVector<ParamOp>> paramsOf(MutableArrayRef<Member> members) {
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
  train::YieldOp::create(inner, loc, ValueRange{e.parameter, direction}, Value(),
                         Value());
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
  auto norm = [&](Value square) {
    return nn::castTo(b, loc, nn::SqrtOp::create(b, loc, square),
                      direction.getType());
  };
  return std::pair(norm(squares[0]), norm(squares[1]));
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
  if (scaled) {
    auto built = buildNorms(b, members);
    if (failed(built))
      return failure();
    norms = *built;
  }

  ElementCode code;
  UpdateElement e;
  if (failed(addInputs(b, members, code, e, /*last=*/true)))
    return failure();
  OpBuilder inner = code.builder();
  if (scaled) {
    e.parameterNorm = code.addEach(norms.first);
    e.directionNorm = code.addEach(norms.second);
  }
  SmallVector<Value> values = buildFirstRegion(inner, loc, optimizer, e);
  if (scaled)
    values = buildSecondRegion(inner, loc, optimizer, e, values);
  SmallVector<Value> old{e.parameter};
  llvm::append_range(old, e.states);
  if (e.average) {
    values.push_back(buildAverage(inner, loc, e, values.front()));
    old.push_back(e.average);
  }
  SmallVector<int64_t> targets;
  SmallVector<Type> types;
  for (auto [value, before] : llvm::zip(values, old)) {
    value = buildGuard(inner, loc, e, value, before);
    int64_t target = cast<BlockArgument>(before).getArgNumber();
    targets.push_back(target);
    types.push_back(code.arrays[target].getType());
  }
  train::YieldOp::create(inner, loc, values, Value(), Value());
  Segments segments = split(b, loc, code, paramsOf(members));
  auto map = SegmentMapOp::create(
      b, named(loc, "update"), types, code.arrays, segments.uniforms, segments.grouped, code.each,
      segments.lengths, segments.groups, segments.offsets, targets);
  map.getBody().takeBody(*segments.region);
  for (auto [result, target] : llvm::zip(map.getOutputs(), targets))
    WriteOp::create(b, loc, result,
                    code.arrays[target].getDefiningOp<ReadOp>().getSource());
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// The parameters of `update` by the type in which they are stored.
static SmallVector<Member> membersOf(UpdateOp update, SymbolTable &symbols) {
  auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
  llvm::MapVector<Type, Member> byType;
  for (auto [i, ref] : llvm::enumerate(update.getParams())) {
    auto param =
        symbols.lookup<ParamOp>(cast<FlatSymbolRefAttr>(ref).getValue());
    Member &member = byType[param.getTensorType().getElementType()];
    member.update = update;
    member.optimizer = optimizer;
    member.params.push_back(param);
    member.positions.push_back(i);
  }
  SmallVector<Member> members;
  for (auto &[type, member] : byType)
    members.push_back(std::move(member));
  return members;
}

namespace {
struct FuseOptimizerPass
    : trainc::impl::FuseOptimizerPassBase<FuseOptimizerPass> {
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
        auto kind = llvm::find_if(kinds, [&](auto &kind) {
          return sameCode(kind.front(), member);
        });
        if (kind == kinds.end())
          kinds.push_back({member});
        else
          kind->push_back(member);
      }
    }
    Fuser fuser(getOperation());
    if (failed(fuser.fuseNorms(norms)))
      return failure();
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
