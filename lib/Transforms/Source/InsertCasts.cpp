//===- InsertCasts.cpp - Choose the element type of each op ---------------===//
//
// This pass makes the step's `precision` explicit: it walks each entry once,
// decides the element type in which an op runs, casts the operands that have
// another, and gives the results the types that follow. `typeOf` is the one
// place that decides. Values of f32 only become narrower; f64 is refused
// before.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Source/Passes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

#define DEBUG_TYPE "train-insert-casts"

namespace trainc {
#define GEN_PASS_DEF_INSERTCASTSPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Which type
//===----------------------------------------------------------------------===//

namespace {
/// What a value is computed from. A parameter (a buffer, a constant, or what is
/// computed from these alone) follows the activations that it meets.
enum class Origin { Parameter, Kept, Activation };

/// The state of the walk through one entry.
struct Caster {
  explicit Caster(Type compute) : compute(compute) {}

  Type compute;
  DenseSet<StringAttr> kept;        // parameters
  llvm::StringSet<> keptOps;        // names
  DenseMap<StringAttr, Type> types; // of parameters, where they changed
  int64_t count = 0;
  DenseMap<Value, Origin> origins;
  /// The element types in the source of values that have another now.
  DenseMap<Value, Type> sourceTypes;
  DenseMap<std::pair<Value, Type>, Value> casts;
  /// The largest finite size of a number of a constant that may be among a value's elements.
  DenseMap<Value, double> largest;

  LogicalResult castBlock(Block &block);

private:
  LogicalResult castOp(Operation &op);
  Value castTo(Value value, Type type);
  Value narrowConstants(Operation &op, Type type);
  void castOperand(OpOperand &operand, Type type);
  void castOperands(Operation &op);
  void setElementType(Value value, Type type);
  LogicalResult setResultTypes(Operation &op, ArrayRef<Type> operandTypes);
  void setOrigins(Operation &op);
  void setLargest(Operation &op);
  Type typeOf(Operation &op);
};
} // namespace

/// The element type of a float tensor; null for other values.
static Type floatTypeOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? dyn_cast<FloatType>(type.getElementType()) : Type();
}

static bool isProduct(Operation &op) {
  return isa<nn::LinearOp, nn::MatmulOp, nn::Conv2dOp, nn::AttentionOp,
             nn::PackedAttentionOp, nn::LinearCrossEntropyOp, nn::EmbeddingOp>(
      op);
}

static bool isNorm(Operation &op) {
  return isa<nn::LayerNormOp, nn::RmsNormOp, nn::GroupNormOp, nn::BatchNormOp,
             nn::RotatePairsOp>(op);
}

/// The operands of `op` that have one common type; others (masks, weights per
/// example, statistics) have their own.
static MutableArrayRef<OpOperand> unifiedOperands(Operation &op) {
  MutableArrayRef<OpOperand> all = op.getOpOperands();
  if (isa<nn::AttentionOp>(op))
    return all.take_front(3);
  if (auto head = dyn_cast<nn::LinearCrossEntropyOp>(op))
    return all.take_front(head.getBias() ? 3 : 2);
  if (isa<nn::MseOp, nn::BceWithLogitsOp>(op))
    return all.take_front(2);
  if (isa<nn::PackedAttentionOp, nn::CrossEntropyOp>(op) || isNorm(op))
    return all.take_front(1);
  if (isa<nn::MapOp, nn::CastOp>(op))
    return {};
  return all;
}

/// The type in which `op` runs: that of its unified operands.
Type Caster::typeOf(Operation &op) {
  Type f32 = Float32Type::get(op.getContext());
  if (keptOps.contains(op.getName().getStringRef()))
    return f32;
  Type activation, parameter;
  bool hasKept = false, differ = false;
  for (OpOperand &operand : unifiedOperands(op)) {
    Type type = floatTypeOf(operand.get());
    if (!type)
      continue;
    Origin origin = origins.lookup(operand.get());
    hasKept |= origin == Origin::Kept;
    differ |=
        (activation && activation != type) || (parameter && parameter != type);
    Type &kind = origin == Origin::Activation ? activation : parameter;
    if (!kind)
      kind = type;
    else if (kind != type)
      // Of two activations the narrower; parameters of several types in f32.
      kind = origin == Origin::Activation ? compute : f32;
  }
  if (hasKept || (differ && isa<nn::MseOp, nn::BceWithLogitsOp>(op)))
    return f32;
  // What is stored in less than is computed in is that only where it is stored.
  if (isProduct(op) || (!activation && parameter && compute == f32))
    return compute;
  return activation ? activation : parameter;
}

//===----------------------------------------------------------------------===//
// Numbers that a narrower type does not have
//===----------------------------------------------------------------------===//

/// `number` in `type`, to the nearest.
static APFloat roundTo(APFloat number, Type type) {
  bool inexact;
  number.convert(cast<FloatType>(type).getFloatSemantics(),
                 APFloat::rmNearestTiesToEven, &inexact);
  return number;
}

/// The same, and the largest in place of an infinity that `number` is not.
static APFloat roundFinite(const APFloat &number, Type type) {
  APFloat rounded = roundTo(number, type);
  return number.isFinite() && rounded.isInfinity()
             ? APFloat::getLargest(rounded.getSemantics(), number.isNegative())
             : rounded;
}

/// The elements of a constant of floats, else null.
static DenseFPElementsAttr elementsOf(Operation &op) {
  auto constant = dyn_cast<nn::ConstantOp>(op);
  return constant ? dyn_cast_if_present<DenseFPElementsAttr>(
                        nn::getDense(constant.getValue()))
                  : DenseFPElementsAttr();
}

/// Whether the elements of the result are some of the operands' as they are, or a number of `op`.
static bool movesElements(Operation &op) {
  return isa<nn::ReshapeOp, nn::BroadcastOp, nn::TransposeOp, nn::SliceOp,
             nn::PadOp, nn::ConcatOp, nn::SelectOp, nn::GatherOp,
             nn::StopGradientOp>(op);
}

void Caster::setLargest(Operation &op) {
  double size = 0.0;
  auto add = [&](double number) {
    if (std::isfinite(number))
      size = std::max(size, std::abs(number));
  };
  if (DenseFPElementsAttr elements = elementsOf(op)) {
    if (elements.isSplat())
      add(elements.getSplatValue<APFloat>().convertToDouble());
    else
      for (const APFloat &number : elements)
        add(number.convertToDouble());
  } else if (movesElements(op)) {
    for (Value operand : op.getOperands())
      add(largest.lookup(operand));
    if (auto pad = dyn_cast<nn::PadOp>(op))
      add(roundTo(pad.getValue(), Float32Type::get(op.getContext()))
              .convertToDouble());
  }
  if (size > 0.0)
    largest[op.getResult(0)] = size;
}

/// Keeps the numbers finite in `type` that `op` has beside its operands, if they are in f32.
static void keepFinite(Operation &op, Type type) {
  Type f32 = Float32Type::get(op.getContext());
  Type f64 = Float64Type::get(op.getContext());
  auto keep = [&](const APFloat &number) {
    APFloat wide = roundTo(number, f32);
    bool isLarge = wide.isFinite() && roundTo(wide, type).isInfinity();
    return FloatAttr::get(f64, isLarge ? roundTo(roundFinite(wide, type), f64)
                                       : number);
  };
  if (auto pad = dyn_cast<nn::PadOp>(op)) {
    pad.setValueAttr(keep(pad.getValue()));
  } else if (auto clamp = dyn_cast<nn::ClampOp>(op)) {
    clamp.setLowAttr(keep(clamp.getLow()));
    clamp.setHighAttr(keep(clamp.getHigh()));
  }
}

/// The result of `op` in `type`, its constants rounded to numbers that are finite if they were.
Value Caster::narrowConstants(Operation &op, Type type) {
  OpBuilder b(op.getContext());
  b.setInsertionPointAfter(&op);
  if (DenseFPElementsAttr elements = elementsOf(op))
    return nn::ConstantOp::create(
        b, op.getLoc(), nn::getTensorType(op.getResult(0)).clone(type),
        elements.mapValues(type, [&](const APFloat &number) {
          return roundFinite(number, type).bitcastToAPInt();
        }));
  IRMapping mapping;
  for (Value operand : op.getOperands())
    mapping.map(operand, castTo(operand, type));
  Operation *narrow = b.clone(op, mapping);
  Value result = narrow->getResult(0);
  result.setType(nn::getTensorType(result).clone(type));
  keepFinite(*narrow, type);
  return result;
}

//===----------------------------------------------------------------------===//
// Casting
//===----------------------------------------------------------------------===//

/// `value` in `type`.
Value Caster::castTo(Value value, Type type) {
  if (!floatTypeOf(value) || floatTypeOf(value) == type)
    return value;
  if (Value known = casts.lookup({value, type}))
    return known;
  Value narrow = value;
  bool isTooLarge = roundTo(APFloat(largest.lookup(value)), type).isInfinity();
  if (isTooLarge && !value.getDefiningOp<RecomputeOp>()) {
    narrow = narrowConstants(*value.getDefiningOp(), type);
  } else {
    OpBuilder b(value.getContext());
    b.setInsertionPointAfterValue(value);
    if (isTooLarge) { // what a region gives, infinities too
      double most =
          APFloat::getLargest(cast<FloatType>(type).getFloatSemantics())
              .convertToDouble();
      narrow = nn::ClampOp::create(b, value.getLoc(), narrow,
                                   b.getF64FloatAttr(-most),
                                   b.getF64FloatAttr(most));
    }
    narrow = nn::CastOp::create(b, value.getLoc(), narrow, type);
    ++count;
  }
  origins[narrow] = origins.lookup(value);
  return casts[{value, type}] = narrow;
}

void Caster::castOperand(OpOperand &operand, Type type) {
  operand.set(castTo(operand.get(), type));
}

void Caster::castOperands(Operation &op) {
  // What an entry yields and what a buffer holds stays as in the source.
  if (isa<WriteOp, train::YieldOp>(op)) {
    if (!isa<RecomputeOp>(op.getParentOp()))
      for (OpOperand &operand : op.getOpOperands())
        if (Type type = sourceTypes.lookup(operand.get()))
          castOperand(operand, type);
    return;
  }
  Type type = typeOf(op);
  for (OpOperand &operand : unifiedOperands(op))
    castOperand(operand, type);
  if (isNorm(op))
    for (OpOperand &operand : op.getOpOperands().drop_front())
      if (floatTypeOf(operand.get()) != type)
        castOperand(operand, Float32Type::get(op.getContext()));
}

void Caster::setElementType(Value value, Type type) {
  Type old = floatTypeOf(value);
  if (old == type)
    return;
  sourceTypes.try_emplace(value, old);
  value.setType(nn::getTensorType(value).clone(type));
}

/// Gives the results the types that follow from those of the operands, which
/// had element types `before`.
LogicalResult Caster::setResultTypes(Operation &op, ArrayRef<Type> before) {
  if (isa<nn::CastOp>(op))
    return success();
  if (auto infer = dyn_cast<InferTypeOpInterface>(op)) {
    SmallVector<Type> types;
    if (failed(infer.inferReturnTypes(
            op.getContext(), op.getLoc(), op.getOperands(),
            op.getDiscardableAttrDictionary(), op.getPropertiesStorage(),
            op.getRegions(), types)))
      return failure();
    for (auto [result, type] : llvm::zip(op.getResults(), types))
      if (floatTypeOf(result))
        setElementType(result, cast<RankedTensorType>(type).getElementType());
    return success();
  }
  // A result has the type of the first float operand, if it had; an nn.map, of
  // the narrowest operand.
  Type from, to;
  for (auto [operand, type] : llvm::zip(op.getOperands(), before)) {
    if (!type || (from && !isa<nn::MapOp>(op)))
      continue;
    Type now = floatTypeOf(operand);
    if (!from || (now.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth() &&
                  origins.lookup(operand) == Origin::Activation)) {
      from = type;
      to = now;
    }
  }
  for (auto [i, result] : llvm::enumerate(op.getResults()))
    if (floatTypeOf(result) && floatTypeOf(result) == from &&
        (i == 0 || !isNorm(op)))
      setElementType(result, to);
  return success();
}

void Caster::setOrigins(Operation &op) {
  Origin origin = op.getNumOperands() ? Origin::Activation : Origin::Parameter;
  if (auto read = dyn_cast<ReadOp>(op)) {
    StringAttr source = read.getSource().getRootReference();
    if (kept.contains(source))
      origin = Origin::Kept;
    if (Type type = types.lookup(source))
      setElementType(read.getResult(), type);
  } else if (!isProduct(op)) {
    bool hasFloat = false, onlyParameters = true, hasKept = false;
    for (Value operand : op.getOperands()) {
      if (!floatTypeOf(operand))
        continue;
      hasFloat = true;
      onlyParameters &= origins.lookup(operand) != Origin::Activation;
      hasKept |= origins.lookup(operand) == Origin::Kept;
    }
    if (hasFloat && onlyParameters)
      origin = hasKept ? Origin::Kept : Origin::Parameter;
  }
  for (Value result : op.getResults())
    origins[result] = origin;
}

LogicalResult Caster::castOp(Operation &op) {
  if (auto region = dyn_cast<RecomputeOp>(op)) {
    Block &block = region.getBody().front();
    if (failed(castBlock(block)))
      return failure();
    for (auto [result, value] :
         llvm::zip(region.getResults(), block.getTerminator()->getOperands())) {
      if (Type type = floatTypeOf(value))
        setElementType(result, type);
      origins[result] = origins.lookup(value);
      largest[result] = largest.lookup(value);
    }
    return success();
  }
  SmallVector<Type> before;
  for (Value operand : op.getOperands()) {
    Type source = sourceTypes.lookup(operand);
    before.push_back(source ? source : floatTypeOf(operand));
  }
  castOperands(op);
  if (failed(setResultTypes(op, before)))
    return failure();
  if (op.getNumResults() && sourceTypes.contains(op.getResult(0)))
    keepFinite(op, floatTypeOf(op.getResult(0)));
  setOrigins(op);
  setLargest(op);
  return success();
}

LogicalResult Caster::castBlock(Block &block) {
  for (Value argument : block.getArguments())
    origins[argument] = Origin::Activation;
  // Casts that are inserted stand between ops of this list.
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  for (Operation *op : ops)
    if (failed(castOp(*op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Checks the precision clause and that nothing is f64.
static LogicalResult verifyNeeds(ModuleOp module, StepOp step, Type compute) {
  if (!compute.isBF16() && !compute.isF16() && !compute.isF32())
    return step.emitOpError("expects a compute type of bf16, f16 or f32, got ")
           << compute;
  SymbolTable symbols(module);
  if (ArrayAttr keep = step.getKeepF32Attr())
    for (Attribute name : keep) {
      auto ref = dyn_cast<FlatSymbolRefAttr>(name);
      auto op = dyn_cast<StringAttr>(name);
      bool known =
          ref ? isa_and_nonnull<ParamOp, OptimizerOp>(
                    symbols.lookup(ref.getAttr()))
              : op && op.getValue().starts_with("nn.") &&
                    RegisteredOperationName::lookup(op, module.getContext());
      if (!known)
        return step.emitOpError("expects parameters, optimizers or names of "
                                "nn ops in keep_f32, got ")
               << name;
    }
  auto refuse = [&](Operation *op, Type type) -> LogicalResult {
    InFlightDiagnostic error =
        op->emitOpError("expects f32 with precision(compute = ")
        << compute << "), got " << type;
    error.attachNote(step.getLoc()) << "precision is given here";
    return error;
  };
  for (auto param : module.getOps<ParamOp>())
    if (param.getTensorType().getElementType().isF64())
      return refuse(param, param.getTensorType());
  WalkResult result = module.walk([&](Operation *op) {
    if (!isa<StepOp, EvalOp>(op) && !isa<nn::NNDialect>(op->getDialect()))
      return WalkResult::advance();
    SmallVector<Type> types(op->getResultTypes());
    if (isa<StepOp, EvalOp>(op))
      llvm::append_range(types, op->getRegion(0).getArgumentTypes());
    for (Type type : types)
      if (getElementTypeOrSelf(type).isF64()) {
        (void)refuse(op, type);
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// Stores f32 parameters that are not kept in `type`; initial values are rounded.
static void narrowParams(ModuleOp module, FloatType type, Caster &rules) {
  for (auto param : module.getOps<ParamOp>()) {
    RankedTensorType old = param.getTensorType();
    if (!old.getElementType().isF32() ||
        rules.kept.contains(param.getSymNameAttr()))
      continue;
    param.setType(old.clone(type));
    if (auto dense = dyn_cast_if_present<DenseFPElementsAttr>(
            nn::getDense(param.getInit())))
      param.setInitAttr(dense.mapValues(type, [&](const APFloat &value) {
        return roundTo(value, type).bitcastToAPInt();
      }));
    rules.types[param.getSymNameAttr()] = type;
  }
}

/// Whether `op` makes its narrow result in f32 and rounds it; with a bias it rounds before.
static bool roundsAtEnd(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<nn::LinearOp, nn::MatmulOp, nn::Conv2dOp>(
          [](auto product) { return !product.getBias(); })
      .Case([](nn::Conv2dInputGradOp) { return true; })
      .Case([](nn::ReduceOp op) { return op.getKind() == nn::ReduceKind::sum; })
      .Default(false);
}

/// What makes `value`, also in a region that is computed again.
static Operation *makerOf(Value value) {
  Operation *op = value.getDefiningOp();
  auto region = dyn_cast_if_present<RecomputeOp>(op);
  if (!region)
    return op;
  Operation *yield = region.getBody().front().getTerminator();
  return makerOf(yield->getOperand(cast<OpResult>(value).getResultNumber()));
}

/// Casts of products and sums take them before they are rounded. That is settled here, before
/// gradients and regions that are computed again give a product other users. One in a region
/// moves out of it to the product: what is computed again is of what it gave.
static void leaveUnrounded(ModuleOp module) {
  module.walk([](nn::CastOp cast) {
    Operation *op = makerOf(cast.getInput());
    Type from = nn::getTensorType(cast.getInput()).getElementType();
    if (!op || from == cast.getType() ||
        nn::getComputeType(from) != cast.getType() || !roundsAtEnd(op))
      return;
    cast.setUnrounded(true);
    Operation *behind = cast.getInput().getDefiningOp();
    if (behind->getBlock() != cast->getBlock())
      cast->moveAfter(behind);
  });
}

namespace {
struct InsertCastsPass : trainc::impl::InsertCastsPassBase<InsertCastsPass> {
  void runOnOperation() override {
    if (failed(insertCasts()))
      return signalPassFailure();
    leaveUnrounded(getOperation());
  }

  LogicalResult insertCasts() {
    ModuleOp module = getOperation();
    StepOp step = getStep(module);
    if (!step)
      return failure();
    Type f32 = Float32Type::get(&getContext());
    Type compute = step.getComputeType().value_or(f32);
    Type master = step.getMasterType().value_or(f32);
    if (compute.isF32() && master.isF32())
      return success();
    if (failed(verifyNeeds(module, step, compute)))
      return failure();
    if (compute.isF16() && !step.getLossScale())
      step.emitWarning("computes in f16 without a loss scale, so that small "
                       "gradients become 0; expected loss_scale(...)");
    Caster rules(compute);
    if (ArrayAttr keep = step.getKeepF32Attr())
      for (Attribute name : keep) {
        if (auto op = dyn_cast<StringAttr>(name)) {
          rules.keptOps.insert(op.getValue());
          continue;
        }
        auto ref = cast<FlatSymbolRefAttr>(name);
        rules.kept.insert(ref.getAttr());
        for (auto param : module.getOps<ParamOp>())
          if (param.getOptimizerAttr() == ref)
            rules.kept.insert(param.getSymNameAttr());
      }
    if (!master.isF32())
      narrowParams(module, cast<FloatType>(master), rules);
    for (Operation &entry : module.getOps()) {
      if (!isa<StepOp, EvalOp>(entry))
        continue;
      Caster caster = rules;
      if (failed(caster.castBlock(entry.getRegion(0).front())))
        return failure();
      numCasts += caster.count;
    }
    return success();
  }
};
} // namespace
