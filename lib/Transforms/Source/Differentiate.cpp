//===- Differentiate.cpp - Build the backward pass of the step ------------===//
//
// This pass makes the gradients of a step explicit (form 1). It walks the body
// backwards from the loss, asks each op for the gradients of its operands, and
// stores the contributions to each parameter's gradient. It needs a body
// without calls; all that it adds but the stores is pure. The gradients of ops
// of a `train.recompute` are built from copies of these ops.
//
//===----------------------------------------------------------------------===//
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/EraseDead.h"
#include "trainc/Transforms/ForwardReads.h"
#include "trainc/Transforms/Source/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-differentiate"

namespace trainc {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// The ops of a `train.recompute`, in order, and their copies once there are
/// any.
struct Recompute {
  SmallVector<Operation *> ops;
  DenseMap<Operation *, Operation *> copies;
};
using RecomputeMap = DenseMap<Operation *, std::shared_ptr<Recompute>>;

/// The state of one backward walk.
struct Backward {
  Backward(StepOp step, SymbolTable &symbols)
      : step(step), symbols(symbols),
        builder(step.getBody().front().getTerminator()) {}

  StepOp step;
  SymbolTable &symbols;
  OpBuilder builder;
  /// Values that depend on a trained parameter, not by way of a nn.stop_gradient alone.
  DenseSet<Value> active;
  bool stops = false; // such an op cuts some off
  /// Contributions to the gradient of a value, in the order in which they arise.
  DenseMap<Value, SmallVector<Value>> contributions;
  /// Per parameter, in the order of the walk.
  llvm::MapVector<StringAttr, SmallVector<Value>> stored;
  /// The region that an op stood in.
  RecomputeMap recomputed;
  /// Casts of gradients in whose place their operands were taken.
  llvm::SetVector<Operation *> roundings;
};
} // namespace

/// Puts the ops of each region in place of the region.
static RecomputeMap inlineRecomputes(Block &body) {
  RecomputeMap result;
  for (auto region : llvm::make_early_inc_range(body.getOps<RecomputeOp>())) {
    auto recompute = std::make_shared<Recompute>();
    Block &inner = region.getBody().front();
    Operation *yield = inner.getTerminator();
    for (Operation &op :
         llvm::make_early_inc_range(inner.without_terminator())) {
      op.moveBefore(region);
      recompute->ops.push_back(&op);
      result[&op] = recompute;
    }
    region.replaceAllUsesWith(yield->getOperands());
    region.erase();
  }
  return result;
}

/// Copies the ops of a region. What they take from outside, and what they read,
/// comes through barriers, so that copies are not merged with the originals.
static void copyRegion(OpBuilder &b, Recompute &region) {
  DenseSet<Operation *> inside;
  for (Operation *op : region.ops)
    if (!isa<ReadOp>(op))
      inside.insert(op);
  IRMapping mapping;
  for (Operation *op : region.ops) {
    if (!inside.contains(op))
      continue;
    for (Value operand : op->getOperands())
      if (!inside.contains(operand.getDefiningOp()) &&
          !mapping.contains(operand))
        mapping.map(operand, BarrierOp::create(b, op->getLoc(), operand));
    region.copies[op] = b.clone(*op, mapping);
  }
}

/// The op whose operands and results the gradients of `op` are built from.
static Operation *gradientSource(Backward &state, Operation *op) {
  auto it = state.recomputed.find(op);
  if (it == state.recomputed.end())
    return op;
  Recompute &region = *it->second;
  if (region.copies.empty())
    copyRegion(state.builder, region);
  return region.copies.lookup(op);
}

static bool isFloatTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

static ParamOp getParam(ReadOp read, SymbolTable &symbols) {
  return symbols.lookup<ParamOp>(read.getSource().getRootReference());
}

/// Whether `result` depends on what the active operands of its op are; the count of a loss
/// does on weights alone.
static bool dependsOnActive(const Backward &state, OpResult result) {
  return llvm::TypeSwitch<Operation *, bool>(result.getOwner())
      .Case<nn::CrossEntropyOp, nn::LinearCrossEntropyOp, nn::BceWithLogitsOp,
            nn::MseOp>([&](auto loss) {
        return result != loss.getCount() ||
               state.active.contains(loss.getWeights());
      })
      .Default(true);
}

/// Marks what depends on a trained parameter.
static void findActive(Backward &state, Block &body) {
  for (Operation &op : body) {
    bool active = llvm::any_of(op.getOperands(), [&](Value operand) {
      return state.active.contains(operand);
    });
    if (auto read = dyn_cast<ReadOp>(op)) {
      ParamOp param = getParam(read, state.symbols);
      active = param && state.step.trains(param);
    }
    if (active && isa<nn::StopGradientOp>(op)) {
      state.stops = true;
      active = false;
    }
    if (active)
      for (OpResult result : op.getResults())
        if (isFloatTensor(result) && dependsOnActive(state, result))
          state.active.insert(result);
  }
}

/// The sum of the contributions to `value`'s gradient; null if there are none.
static Value sumContributions(Backward &state, Value value) {
  auto it = state.contributions.find(value);
  if (it == state.contributions.end())
    return {};
  Value sum = it->second.front();
  for (Value other : ArrayRef(it->second).drop_front())
    sum = nn::AddOp::create(state.builder, value.getLoc(), sum, other);
  return sum;
}

/// What `part` was before it was only rounded from type `element`.
static Value beforeRounding(Backward &state, Value part, Type element) {
  auto rounding = part.getDefiningOp<nn::CastOp>();
  if (!rounding || getElementTypeOrSelf(rounding.getInput()) != element)
    return part;
  state.roundings.insert(rounding); // another value may have it, too
  return rounding.getInput();
}

/// The type in which gradients of a parameter that is read as `value` are added.
static Type gradientElement(Value value) {
  return nn::getComputeType(nn::getTensorType(value).getElementType());
}

/// What adds to the gradient of a parameter beside others is rounded neither to the type in which
/// the parameter is stored nor to a narrower one in which the step reads it: each contribution is
/// widened on its own, and one that was only rounded stays as it was.
static void widenContributions(Backward &state, nn::CastOp cast) {
  Value input = cast.getInput();
  Type element = gradientElement(input);
  SmallVector<Value> parts = state.contributions.lookup(cast.getResult());
  if (getElementTypeOrSelf(cast).isF64()) // added before they are rounded
    parts = {sumContributions(state, cast.getResult())};
  state.contributions.erase(cast.getResult());
  for (Value part : parts) {
    part = beforeRounding(state, part, element);
    state.contributions[input].push_back(
        nn::castUnrounded(state.builder, cast.getLoc(), part, element));
  }
}

/// Whether it reads a parameter from bf16 or f16, or in one of them.
static bool isCastOfParameter(nn::CastOp cast) {
  auto isNarrow = [](Value value) {
    return getElementTypeOrSelf(value).getIntOrFloatBitWidth() < 32;
  };
  return cast && cast.getInput().getDefiningOp<ReadOp>() &&
         isFloatTensor(cast.getInput()) && isFloatTensor(cast.getResult()) &&
         (isNarrow(cast.getInput()) || isNarrow(cast.getResult()));
}

static LogicalResult differentiateOp(Backward &state, Operation &op) {
  if (auto read = dyn_cast<ReadOp>(op)) {
    ParamOp param = getParam(read, state.symbols);
    auto it = state.contributions.find(read.getResult());
    if (param && state.step.trains(param) && it != state.contributions.end())
      for (Value part : it->second)
        state.stored[param.getSymNameAttr()].push_back(
            beforeRounding(state, part, gradientElement(read.getResult())));
    return success();
  }
  bool needed = llvm::any_of(op.getOperands(), [&](Value operand) {
    return state.active.contains(operand);
  });
  bool reached = llvm::any_of(op.getResults(), [&](Value result) {
    return state.contributions.contains(result);
  });
  if (!needed || !reached)
    return success();
  if (auto cast = dyn_cast<nn::CastOp>(op); isCastOfParameter(cast)) {
    widenContributions(state, cast);
    return success();
  }
  auto interface =
      dyn_cast<nn::DifferentiableOpInterface>(gradientSource(state, &op));
  if (!interface)
    return op.emitOpError("has no gradient, but stands between a trained "
                          "parameter and the loss");
  SmallVector<Value> resultGrads, operandGrads(op.getNumOperands());
  for (Value result : op.getResults())
    resultGrads.push_back(sumContributions(state, result));
  if (failed(
          interface.buildGradients(state.builder, resultGrads, operandGrads)))
    return failure();
  for (auto [operand, grad] : llvm::zip(op.getOperands(), operandGrads)) {
    if (!grad || !state.active.contains(operand))
      continue;
    assert(grad.getType() == operand.getType() && "gradient of another type");
    state.contributions[operand].push_back(grad);
  }
  return success();
}

/// The first op without a float result on a way from `param` to the loss; null if
/// there is none. A way through nn.stop_gradient is cut on purpose.
static Operation *findCut(Backward &state, ParamOp param,
                          ArrayRef<Operation *> forward, Value loss) {
  DenseMap<Value, Operation *> cuts; // of the values that depend on `param`
  for (Operation *op : forward) {
    auto read = dyn_cast<ReadOp>(op);
    bool depends = read && getParam(read, state.symbols) == param;
    Operation *cut = nullptr;
    for (Value operand : op->getOperands()) {
      auto it = cuts.find(operand);
      if (it == cuts.end())
        continue;
      depends = true;
      cut = cut ? cut : it->second;
    }
    if (!depends || isa<nn::StopGradientOp>(op))
      continue;
    if (!cut && llvm::none_of(op->getResults(), isFloatTensor))
      cut = op;
    for (Value result : op->getResults())
      cuts[result] = cut;
  }
  return loss ? cuts.lookup(loss) : nullptr;
}

/// Whether the gradient `part` is, or was, rounded to f16.
static bool isOfF16(Value part) {
  Operation *op = part.getDefiningOp();
  if (auto cast = dyn_cast_if_present<nn::CastOp>(op))
    part = cast.getInput();
  return op && getElementTypeOrSelf(part).isF16();
}

/// Says so if gradients are rounded to f16 unscaled, unless the step computes in f16 and
/// `train-insert-casts` has said it.
static void warnOfF16(Backward &state) {
  StepOp step = state.step;
  Type compute = step.getComputeType().value_or(Type());
  if (step.getLossScale() || (compute && compute.isF16()))
    return;
  for (auto &[name, parts] : state.stored) {
    if (llvm::none_of(parts, isOfF16))
      continue;
    auto warning = step.emitWarning(
        "has gradients in f16 without a loss scale, so that small ones become "
        "0; expected loss_scale(...)");
    warning.attachNote(state.symbols.lookup(name)->getLoc())
        << "a parameter with such a gradient";
    return;
  }
}

/// The largest power of two not above the least number of terms of a step's loss, so
/// that micro-steps of all steps add to one sum; 1 with gradients among the inputs, which
/// are of the loss as it is.
static double findDivisor(ModuleOp module) {
  uint64_t least = 0;
  for (auto step : module.getOps<StepOp>()) {
    Value loss =
        cast<train::YieldOp>(step.getBody().front().getTerminator()).getLoss();
    if (step.getInputGradients() || !loss)
      return 1.0;
    uint64_t terms = step.getLossTerms().value_or(countLossTerms(loss));
    least = least ? std::min(least, terms) : terms;
  }
  return static_cast<double>(llvm::bit_floor(least));
}

/// Lets `grads`, which computes the loss of `head`, too, take its place, unless its gradient
/// depends on that loss.
static void joinLossHead(nn::LinearCrossEntropyOp head,
                         nn::LinearCrossEntropyGradOp grads) {
  if (head->getBlock() != grads->getBlock())
    return;
  SetVector<Operation *> behind;
  BackwardSliceOptions options;
  options.filter = [&](Operation *op) { return head->isBeforeInBlock(op); };
  (void)getBackwardSlice(grads.getOperation(), &behind, options);
  OpBuilder b(head);
  auto usesLoss = [&](Operation *op) {
    return llvm::is_contained(op->getOperands(), head.getLoss());
  };
  if (llvm::any_of(behind, usesLoss) || usesLoss(grads) ||
      !llvm::all_of(behind, isPure))
    return;
  head.getCount().replaceAllUsesWith(head.buildCount(b));
  for (Operation *op : behind)
    op->moveBefore(head);
  grads->moveBefore(head);
  head.getLoss().replaceAllUsesWith(grads.getLoss());
  head.erase();
}

/// Whether `grads` are the gradients of `head`, and not of a copy of it.
static bool isOf(nn::LinearCrossEntropyGradOp grads,
                 nn::LinearCrossEntropyOp head) {
  return bool(grads.getBias()) == bool(head.getBias()) &&
         llvm::equal(llvm::drop_end(grads->getOperands()),
                     head->getOperands()) &&
         grads.getTransposeWeight() == head.getTransposeWeight() &&
         grads.getWideLogits() == head.getWideLogits() &&
         grads.getIgnoreIndex() == head.getIgnoreIndex() &&
         grads.getLabelSmoothing() == head.getLabelSmoothing();
}

/// Joins each loss head of `body` with its gradients; of heads that are alike each with those
/// that no other has.
static void joinLossHeads(Block &body) {
  auto heads = llvm::to_vector(body.getOps<nn::LinearCrossEntropyOp>());
  DenseSet<Operation *> joined;
  for (auto head : heads)
    for (Operation *user : head.getHidden().getUsers()) {
      auto grads = dyn_cast<nn::LinearCrossEntropyGradOp>(user);
      if (!grads || !isOf(grads, head) || !joined.insert(grads).second)
        continue;
      joinLossHead(head, grads);
      break;
    }
}

static LogicalResult differentiate(StepOp step, SymbolTable &symbols,
                                   double divisor, int64_t &numGradients) {
  Block &body = step.getBody().front();
  auto yield = cast<train::YieldOp>(body.getTerminator());
  Backward state(step, symbols);
  forwardReads(body); // which have gradients then
  state.recomputed = inlineRecomputes(body);
  Value loss = yield.getLoss(); // perhaps what stood in one of those regions
  SmallVector<Operation *> forward;
  for (Operation &op : body.without_terminator())
    forward.push_back(&op);

  findActive(state, body);
  if (loss && state.active.contains(yield.getWeight()))
    return yield.emitOpError(
        "expects a weight without gradient, got one that depends on a trained "
        "parameter; cut it off by nn.stop_gradient, or yield the quotient as "
        "the loss");
  if (loss && state.active.contains(loss)) {
    state.contributions[loss].push_back(
        SeedOp::create(state.builder, yield.getLoc(), loss.getType(),
                       state.builder.getF64FloatAttr(divisor), StringAttr()));
  } else if (!step.getInputGradients() && !state.stops) {
    return step.emitOpError(
        "expects a loss that depends on a parameter that it trains");
  }
  for (Operation *op : llvm::reverse(forward))
    if (failed(differentiateOp(state, *op)))
      return failure();
  for (BlockArgument input : body.getArguments())
    if (auto param = step.getInputGradient(input.getArgNumber()))
      state.stored[param.getAttr()].push_back(input);

  warnOfF16(state);

  auto module = step->getParentOfType<ModuleOp>();
  for (auto param : module.getOps<ParamOp>()) {
    if (!step.trains(param))
      continue;
    SmallVector<Value> &parts = state.stored[param.getSymNameAttr()];
    if (parts.empty()) {
      if (Operation *cut = findCut(state, param, forward, loss)) {
        auto error = cut->emitOpError("has no gradient, but stands between a "
                                      "trained parameter and the loss");
        error.attachNote(param.getLoc()) << "the parameter, which reaches the "
                                            "loss in no other way";
        return error;
      }
      param.emitWarning("does not take part in the loss: its gradient is 0");
      RankedTensorType type = param.getTensorType();
      Value zero = nn::scalarConstant(state.builder, param.getLoc(),
                                      type.getElementType(), 0.0);
      parts.push_back(
          nn::BroadcastOp::create(state.builder, param.getLoc(), type, zero));
    }
  }
  for (auto &[name, parts] : state.stored) {
    // Each store stands where its last contribution is known.
    Operation *last = nullptr;
    for (Value part : parts)
      if (Operation *op = part.getDefiningOp())
        if (!last || last->isBeforeInBlock(op))
          last = op;
    if (last)
      state.builder.setInsertionPointAfter(last);
    else
      state.builder.setInsertionPoint(yield);
    StoreGradientOp::create(state.builder, symbols.lookup(name)->getLoc(),
                            parts, FlatSymbolRefAttr::get(name));
    ++numGradients;
  }
  for (Operation *rounding : state.roundings)
    if (rounding->use_empty())
      rounding->erase();
  // Copies that no gradient needs.
  if (!state.recomputed.empty())
    eraseDead(
        llvm::make_range(body.rbegin(), forward.back()->getReverseIterator()));
  joinLossHeads(body);
  return success();
}

namespace {
struct DifferentiatePass
    : trainc::impl::DifferentiatePassBase<DifferentiatePass> {
  void runOnOperation() override {
    StepOp step = getStep(getOperation());
    if (!step)
      return signalPassFailure();
    for (auto eval : getOperation().getOps<EvalOp>())
      inlineRecomputes(eval.getBody().front());
    if (!step.getBody().getOps<StoreGradientOp>().empty())
      return;
    SymbolTable symbols(getOperation());
    double divisor = findDivisor(getOperation());
    int64_t count = 0;
    for (auto each : getOperation().getOps<StepOp>())
      if (failed(differentiate(each, symbols, divisor, count)))
        return signalPassFailure();
    numGradients += count;
  }
};
} // namespace
