//===- ExpandUpdates.cpp - Write norms and updates as tensor ops ----------===//
//
// This pass replaces the plan's ops on lists of parameters by tensor ops, one set
// per parameter: what a sum of squares and an update mean.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Passes.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-expand-updates"

namespace trainc {
#define GEN_PASS_DEF_EXPANDUPDATESPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Reads slice `name` of arena `arena`, of a parameter of type `type`.
static Value readSlice(OpBuilder &b, Location loc, StringRef arena,
                       StringRef name, Type type) {
  return ReadOp::create(b, loc, type, sliceRef(b.getContext(), arena, name));
}

static Value readScalar(OpBuilder &b, Location loc, StringRef name) {
  return readSlice(b, loc, kScalarArena, name,
                   RankedTensorType::get({}, b.getF64Type()));
}

static RankedTensorType gradientType(ParamOp param) {
  RankedTensorType type = param.getTensorType();
  return RankedTensorType::get(type.getShape(),
                               nn::getComputeType(type.getElementType()));
}

/// The sum of squares of `value` as rank-0 f64.
static Value buildSquareSum(OpBuilder &b, Location loc, Value value) {
  RankedTensorType type = nn::getTensorType(value);
  int64_t blocks = llvm::divideCeil(type.getNumElements(), kNormBlock);
  auto blockType = RankedTensorType::get(
      {blocks}, nn::getComputeType(type.getElementType()));
  Value sums = SquareSumOp::create(b, loc, blockType, value, kNormBlock);
  if (blocks == 1)
    return nn::castTo(b, loc, nn::reshapeTo(b, loc, sums, {}), b.getF64Type());
  sums = nn::castTo(b, loc, sums, b.getF64Type());
  return nn::ReduceOp::create(b, loc, nn::ReduceKind::sum, sums,
                              ArrayRef<int64_t>{0}, /*keep=*/false);
}

static void expandNorm(NormSquaredOp op, SymbolTable &symbols) {
  OpBuilder b(op);
  Value sum;
  for (auto ref : op.getParams().getAsRange<FlatSymbolRefAttr>()) {
    auto param = symbols.lookup<ParamOp>(ref.getValue());
    Value gradient = readSlice(b, op.getLoc(), kGradientArena, ref.getValue(),
                               gradientType(param));
    Value square = buildSquareSum(b, op.getLoc(), gradient);
    sum = sum ? nn::AddOp::create(b, op.getLoc(), sum, square).getResult()
              : square;
  }
  op.replaceAllUsesWith(sum);
  op.erase();
}

/// Copies the scalar ops of `region` to the builder, its arguments replaced by
/// `arguments`; returns what it yields.
static SmallVector<Value> cloneScalars(OpBuilder &b, Region &region,
                                       ValueRange arguments) {
  IRMapping mapping;
  mapping.map(region.getArguments(), arguments);
  for (Operation &op : region.front().without_terminator())
    b.clone(op, mapping);
  SmallVector<Value> results;
  for (Value value : region.front().getTerminator()->getOperands())
    results.push_back(mapping.lookupOrDefault(value));
  return results;
}

namespace {
/// What one parameter's update reads: values of the list and, inside the map's
/// region, their elements.
struct UpdateBuilder {
  OpBuilder &b;
  UpdateOp op;
  OptimizerOp optimizer;
  ParamOp param;
  Type elementType;
  SmallVector<Value> inputs;

  Location loc() { return param.getLoc(); }
  size_t addInput(Value value) {
    inputs.push_back(value);
    return inputs.size() - 1;
  }

  /// Appends the hyperparameters; returns the position of the first.
  size_t addHyper() {
    size_t first = inputs.size();
    for (auto [name, value] :
         llvm::zip(optimizer.getHyperNames(), optimizer.getHyperValues())) {
      if (auto schedule = dyn_cast<SymbolRefAttr>(value))
        addInput(readScalar(b, loc(), schedule.getRootReference()));
      else if (isa<StringAttr>(value))
        addInput(op.getT());
      else
        addInput(readScalar(b, loc(),
                            (optimizer.getSymName() + "." +
                             cast<StringAttr>(name).getValue())
                                .str()));
    }
    return first;
  }

  /// A map over `inputs` whose body is built by `body` from its arguments.
  nn::MapOp
  createMap(TypeRange results,
            function_ref<SmallVector<Value>(OpBuilder &, ValueRange)> body) {
    auto map = nn::MapOp::create(b, loc(), results, inputs);
    Block &block = map.getBody().emplaceBlock();
    for (Value input : inputs)
      block.addArgument(
          nn::getComputeType(nn::getTensorType(input).getElementType()), loc());
    OpBuilder inner = OpBuilder::atBlockEnd(&block);
    SmallVector<Value> values = body(inner, block.getArguments());
    nn::YieldOp::create(inner, loc(), values);
    return map;
  }

  /// `scalar`, f64, rounded to `type`.
  Value round(OpBuilder &inner, Value scalar, Type type) {
    if (scalar.getType() == type)
      return scalar;
    return arith::TruncFOp::create(inner, loc(), type, scalar);
  }

  /// Arguments of `region` after its `tensors` from the hyperparameters at
  /// `first`.
  SmallVector<Value> hyperArguments(OpBuilder &inner, Region &region,
                                    size_t tensors, ValueRange args,
                                    size_t first) {
    SmallVector<Value> result;
    for (size_t i = 0; i < optimizer.getHyperNames().size(); ++i)
      result.push_back(round(inner, args[first + i],
                             region.getArgument(tensors + i).getType()));
    return result;
  }
};
} // namespace

/// gradient x scale, clamped if there is a limit.
static Value scaleGradient(OpBuilder &b, Location loc, Value gradient,
                           Value scale, Value limit) {
  Value g = arith::MulFOp::create(b, loc, gradient, scale);
  if (!limit)
    return g;
  g = arith::MinimumFOp::create(b, loc, g, limit);
  return arith::MaximumFOp::create(b, loc, g,
                                   arith::NegFOp::create(b, loc, limit));
}

static void expandUpdate(UpdateOp op, OptimizerOp optimizer, ParamOp param) {
  OpBuilder b(op);
  StringRef name = param.getSymName();
  Location loc = param.getLoc();
  RankedTensorType type = param.getTensorType(), wide = gradientType(param);
  Type element = wide.getElementType();
  SmallVector<std::string> arenas;
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    arenas.push_back(("arena.state." + state.getValue()).str());
  size_t states = arenas.size();
  bool scaled = !optimizer.getScaled().empty();
  bool ema = optimizer.getEma().has_value();

  UpdateBuilder u{b, op, optimizer, param, element, {}};
  size_t p = u.addInput(readSlice(b, loc, kMasterArena, name, type));
  size_t g = u.addInput(readSlice(b, loc, kGradientArena, name, wide));
  size_t firstState = u.inputs.size();
  for (const std::string &arena : arenas)
    u.addInput(readSlice(b, loc, arena, name, wide));
  size_t hyper = u.addHyper();
  size_t scale = u.addInput(op.getScale());
  size_t finite = u.addInput(op.getFinite());
  size_t limit = op.getLimit() ? u.addInput(op.getLimit()) : 0;
  size_t average = 0, decay = 0;
  auto addAverage = [&] {
    if (!ema)
      return;
    average = u.addInput(readSlice(b, loc, "arena.state.ema", name, wide));
    decay = u.addInput(
        readScalar(b, loc, (optimizer.getSymName() + ".ema").str()));
  };
  /// Yields `value` where the gradients are finite, else `old`.
  auto guard = [&](OpBuilder &inner, Value flag, Value value, Value old) {
    return arith::SelectOp::create(inner, loc, flag, value, old).getResult();
  };
  /// e + (1 - d) (p' - e), which keeps e = p' exactly where they are equal.
  auto averaged = [&](OpBuilder &inner, ValueRange args, Value next) {
    Value one = nn::splatConstant(inner, loc, inner.getF64Type(), 1.0);
    Value rest = u.round(
        inner, arith::SubFOp::create(inner, loc, one, args[decay]), element);
    Value difference = arith::SubFOp::create(inner, loc, next, args[average]);
    Value e =
        math::FmaOp::create(inner, loc, rest, difference, args[average]);
    return guard(inner, args[finite], e, args[average]);
  };

  if (!scaled)
    addAverage();
  SmallVector<Type> results(1, scaled ? Type(wide) : Type(type));
  results.append(states, wide);
  if (ema && !scaled)
    results.push_back(wide);
  nn::MapOp map = u.createMap(results, [&](OpBuilder &inner, ValueRange args) {
    Value s = u.round(inner, args[scale], element);
    Value l = op.getLimit() ? u.round(inner, args[limit], element) : Value();
    SmallVector<Value> arguments{
        args[p], scaleGradient(inner, loc, args[g], s, l)};
    for (size_t i = 0; i < states; ++i)
      arguments.push_back(args[firstState + i]);
    llvm::append_range(arguments,
                       u.hyperArguments(inner, optimizer.getBody(), 2 + states,
                                        args, hyper));
    SmallVector<Value> values =
        cloneScalars(inner, optimizer.getBody(), arguments);
    Value next = values[0];
    if (!scaled)
      values[0] = guard(inner, args[finite], next, args[p]);
    for (size_t i = 0; i < states; ++i)
      values[1 + i] =
          guard(inner, args[finite], values[1 + i], args[firstState + i]);
    if (ema && !scaled)
      values.push_back(averaged(inner, args, next));
    return values;
  });
  auto write = [&](Value value, StringRef arena) {
    WriteOp::create(b, loc, value, sliceRef(b.getContext(), arena, name));
  };
  if (!scaled) {
    for (size_t i = 0; i < states; ++i)
      write(map.getResult(1 + i), arenas[i]);
    write(map.getResult(0), kMasterArena);
    if (ema)
      write(map.getResult(1 + states), "arena.state.ema");
    return;
  }

  // Second region: from parameter, direction, their norms and the states, of which
  // it may replace some.
  Region &second = optimizer.getScaled();
  SmallVector<size_t> replaced;
  for (size_t i = 0; i < states; ++i)
    if (second.front().getTerminator()->getOperand(1 + i) !=
        second.getArgument(4 + i))
      replaced.push_back(i);
    else
      write(map.getResult(1 + i), arenas[i]);
  Value parameter = u.inputs[p], direction = map.getResult(0);
  auto norm = [&](Value value) -> Value {
    return nn::castTo(
        b, loc, nn::SqrtOp::create(b, loc, buildSquareSum(b, loc, value)),
        element);
  };
  Value flag = op.getFinite();
  Value parameterNorm = norm(parameter), directionNorm = norm(direction);
  u.inputs.clear();
  u.addInput(parameter);
  u.addInput(direction);
  u.addInput(parameterNorm);
  u.addInput(directionNorm);
  u.inputs.append(map.result_begin() + 1, map.result_begin() + 1 + states);
  hyper = u.addHyper();
  finite = u.addInput(flag);
  addAverage();
  results.assign(1, type);
  results.append(replaced.size(), wide);
  if (ema)
    results.push_back(wide);
  map = u.createMap(results, [&](OpBuilder &inner, ValueRange args) {
    SmallVector<Value> arguments(args.take_front(4 + states));
    llvm::append_range(arguments, u.hyperArguments(inner, second, 4 + states,
                                                   args, hyper));
    SmallVector<Value> next = cloneScalars(inner, second, arguments);
    SmallVector<Value> values{guard(inner, args[finite], next[0], args[0])};
    for (size_t i : replaced)
      values.push_back(guard(inner, args[finite], next[1 + i], args[4 + i]));
    if (ema)
      values.push_back(averaged(inner, args, next[0]));
    return values;
  });
  write(map.getResult(0), kMasterArena);
  for (auto [position, i] : llvm::enumerate(replaced))
    write(map.getResult(1 + position), arenas[i]);
  if (ema)
    write(map.getResult(1 + replaced.size()), "arena.state.ema");
}

static void expandSeed(SeedOp op) {
  OpBuilder b(op);
  Value scale = readScalar(b, op.getLoc(), "loss_scale");
  Value divisor = nn::scalarConstant(b, op.getLoc(), b.getF64Type(),
                                     op.getDivisor().convertToDouble());
  Value seed = nn::DivOp::create(b, op.getLoc(), scale, divisor);
  Type type = nn::getTensorType(op.getResult()).getElementType();
  op.replaceAllUsesWith(nn::castTo(b, op.getLoc(), seed, type));
  op.erase();
}

/// Checks that `params` and the optimizer of an update exist, as regions.
static LogicalResult verifyNeeds(Operation *op, ArrayAttr params,
                                 SymbolTable &symbols) {
  for (Attribute attribute : params) {
    auto ref = dyn_cast<FlatSymbolRefAttr>(attribute);
    auto param = ref ? symbols.lookup<ParamOp>(ref.getValue()) : ParamOp();
    if (!param || param.getFrozen())
      return op->emitOpError("expects parameters that are not frozen, got ")
             << attribute;
  }
  auto update = dyn_cast<UpdateOp>(op);
  if (!update)
    return success();
  auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
  if (!optimizer || optimizer.getKind())
    return op->emitOpError("expects an optimizer with a region, got ")
           << update.getOptimizerAttr();
  return success();
}

namespace {
struct ExpandUpdatesPass : trainc::impl::ExpandUpdatesPassBase<ExpandUpdatesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto list : module.getOps<ListOp>()) {
      for (Operation &op :
           llvm::make_early_inc_range(list.getBody().front())) {
        auto norm = dyn_cast<NormSquaredOp>(op);
        auto update = dyn_cast<UpdateOp>(op);
        if ((norm && failed(verifyNeeds(norm, norm.getParams(), symbols))) ||
            (update && failed(verifyNeeds(update, update.getParams(), symbols))))
          return signalPassFailure();
        if (norm) {
          expandNorm(norm, symbols);
        } else if (auto seed = dyn_cast<SeedOp>(op)) {
          expandSeed(seed);
        } else if (update) {
          auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
          for (auto ref : update.getParams().getAsRange<FlatSymbolRefAttr>())
            expandUpdate(update, optimizer,
                         symbols.lookup<ParamOp>(ref.getValue()));
          update.erase();
        }
      }
    }
  }
};
} // namespace
