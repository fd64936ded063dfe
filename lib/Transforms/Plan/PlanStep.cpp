//===- PlanStep.cpp - Make storage, merge window and update explicit ------===//
//
// This pass turns form 1 into form 2. Every value that outlives a step becomes a
// slice of an arena, gradients too; after `train.window_end` follows all that
// happens once per update: schedules, the scalar that averages and unscales, norm,
// finite flag, clip factor, updates. It needs optimizers and schedules as regions.
//
//===----------------------------------------------------------------------===//
#include "NameSlices.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/step_abi.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-plan-step"

namespace trainc {
#define GEN_PASS_DEF_PLANSTEPPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

/// Declares the arenas of parameters, gradients, states and buffers.
static void declareTensors(ModuleOp module, SymbolTable &symbols) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  llvm::StringMap<ArenaOp> arenas;
  auto addTo = [&](StringRef name, trainc_role role, StringAttr slice,
                   RankedTensorType type) {
    ArenaOp &arena = arenas[name];
    if (!arena)
      arena = ArenaOp::create(b, module.getLoc(), name, role);
    arena.addSlice(slice, type);
  };
  auto add = [&](StringRef role, trainc_role kind, ParamOp param,
                 RankedTensorType tensor) {
    addTo(arenaName(role, tensor.getElementType(), param), kind,
          param.getSymNameAttr(), tensor);
  };
  for (auto param : module.getOps<ParamOp>())
    add(kMasterArena, TRAINC_ROLE_MASTER, param, param.getTensorType());
  for (auto param : module.getOps<ParamOp>())
    if (!param.getFrozen())
      add(kGradientArena, TRAINC_ROLE_GRADIENT, param, gradientType(param));
  for (auto param : module.getOps<ParamOp>()) {
    if (param.getFrozen())
      continue;
    auto optimizer = symbols.lookup<OptimizerOp>(*param.getOptimizer());
    auto addState = [&](StringRef state) {
      add(stateRole(state), TRAINC_ROLE_STATE, param, gradientType(param));
    };
    for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
      addState(state.getValue());
    if (optimizer.getEma())
      addState("ema");
  }
  for (auto op : module.getOps<BufferOp>())
    addTo(bufferArena(op.getTensorType().getElementType()), TRAINC_ROLE_BUFFER,
          op.getSymNameAttr(), op.getTensorType());
}

namespace {
/// One number of the scalar block.
struct Scalar {
  std::string name;
  double value;
  int32_t flags;
  Operation *owner;
};
} // namespace

/// Whether `mesh` has more than one rank.
static bool isOfRanks(MeshOp mesh) {
  return llvm::any_of(mesh.getSizes(), [](int64_t size) { return size > 1; });
}

/// The first step of each window, that of the module's first step first.
static SmallVector<StepOp> windowsOf(ModuleOp module) {
  return llvm::filter_to_vector(module.getOps<StepOp>(), [](StepOp step) {
    return getFirstOfWindow(step) == step;
  });
}

/// The scalar block: the fixed scalars of each window, each schedule's value, each
/// hyperparameter, and this rank's position along each axis of the mesh, which the
/// runtime writes.
static SmallVector<Scalar> scalarsOf(ModuleOp module) {
  SmallVector<Scalar> scalars;
  Operation *owner = nullptr;
  auto add = [&](const Twine &name, double value, int32_t flags) {
    scalars.push_back({name.str(), value, flags, owner});
  };
  auto addNumbers = [&](StringRef prefix, ArrayAttr names, ArrayAttr values) {
    for (auto [name, value] : llvm::zip(names, values))
      if (auto number = dyn_cast<FloatAttr>(value))
        add(prefix + "." + cast<StringAttr>(name).getValue(),
            number.getValueAsDouble(), TRAINC_SCALAR_SETTABLE);
  };
  SmallVector<StepOp> windows = windowsOf(module);
  for (StepOp step : windows) {
    owner = step;
    StringAttr window = getWindow(step);
    auto at = [&, first = scalars.size()](size_t fixed) -> Scalar & {
      return scalars[first + fixed];
    };
#define TRAINC_SCALAR(NAME, index, text, init, flags)                          \
  add(windowScalar(window, text), init, flags);
#include "trainc/step_abi.def"
    at(TRAINC_SCALAR_CLIP_LIMIT).value = step.getClipValue().convertToDouble();
    if (auto scale = step.getLossScale())
      at(TRAINC_SCALAR_LOSS_SCALE).value = scale->convertToDouble();
    if (!step.getLossScaleRule())
      at(TRAINC_SCALAR_LOSS_SCALE).flags = TRAINC_SCALAR_SETTABLE;
    if (window) // the seed is that of the first
      at(TRAINC_SCALAR_SEED).flags = 0;
  }
  for (StepOp step : windows) {
    owner = step;
    if (auto rule = step.getLossScaleRule())
      for (auto [name, value] : llvm::zip(step.getLossScaleRuleNames(), *rule))
        add(windowScalar(getWindow(step), ("loss_scale." + name).str()), value,
            TRAINC_SCALAR_SETTABLE);
  }
  for (auto schedule : module.getOps<ScheduleOp>()) {
    owner = schedule;
    add(schedule.getSymName(), 0.0, 0);
    addNumbers(schedule.getSymName(), schedule.getHyperNames(),
               schedule.getHyperValues());
  }
  for (auto optimizer : module.getOps<OptimizerOp>()) {
    owner = optimizer;
    addNumbers(optimizer.getSymName(), optimizer.getHyperNames(),
               optimizer.getHyperValues());
    if (auto ema = optimizer.getEmaAttr())
      add(optimizer.getSymName() + ".ema", ema.getValueAsDouble(),
          TRAINC_SCALAR_SETTABLE);
  }
  if (MeshOp mesh = getMesh(module); mesh && isOfRanks(mesh)) {
    owner = mesh;
    for (auto axis : mesh.getAxes().getAsRange<StringAttr>())
      add(meshScalar(axis.getValue()), 0.0, 0);
  }
  return scalars;
}

/// Declares the scalar block; its initial values are in slice order.
static void declareScalars(ModuleOp module, ArrayRef<Scalar> scalars) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  auto arena =
      ArenaOp::create(b, module.getLoc(), kScalarArena, TRAINC_ROLE_SCALARS);
  auto type = RankedTensorType::get({}, b.getF64Type());
  for (const Scalar &scalar : scalars) {
    SliceOp slice = arena.addSlice(b.getStringAttr(scalar.name), type);
    slice.setValue(APFloat(scalar.value));
    slice.setFlags(scalar.flags);
  }
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

namespace {
/// Builds rank-0 f64 arithmetic on scalars: those of a window, and those that all have.
struct ScalarBuilder {
  OpBuilder &b;
  Location loc;
  StringAttr window;

  SymbolRefAttr ref(StringRef name) {
    return sliceRef(b.getContext(), kScalarArena, name);
  }
  Value read(StringRef name) {
    return readScalar(b, loc, windowScalar(window, name));
  }
  void write(Value value, StringRef name) {
    writeShared(value, windowScalar(window, name));
  }
  void writeShared(Value value, StringRef name) {
    WriteOp::create(b, loc, nn::castTo(b, loc, value, b.getF64Type()),
                    ref(name));
  }
  Value constant(double value) {
    return nn::scalarConstant(b, loc, b.getF64Type(), value);
  }
  Value mul(Value x, Value y) { return nn::MulOp::create(b, loc, x, y); }
  Value div(Value x, Value y) { return nn::DivOp::create(b, loc, x, y); }
  Value add(Value x, Value y) { return nn::AddOp::create(b, loc, x, y); }
  Value select(Value c, Value x, Value y) {
    return nn::SelectOp::create(b, loc, c, x, y);
  }
  /// limit / max(limit, norm).
  Value clipFactor(Value limit, Value norm) {
    Value above =
        nn::CompareOp::create(b, loc, nn::CompareKind::gt, norm, limit);
    return select(above, div(limit, norm), constant(1.0));
  }
};
} // namespace

/// Evaluates the schedules of what `step` trains, and those that nothing uses, at the
/// number of updates done and writes their values.
static void buildSchedules(StepOp step, ScalarBuilder &s, Value updates) {
  auto module = step->getParentOfType<ModuleOp>();
  ArrayAttr trained = step.getTrainedAttr();
  DenseSet<Attribute> used, others;
  for (auto optimizer : module.getOps<OptimizerOp>()) {
    auto name = FlatSymbolRefAttr::get(optimizer.getSymNameAttr());
    bool own = !trained || llvm::is_contained(trained, name);
    (own ? used : others).insert_range(optimizer.getHyperValues());
  }
  for (auto schedule : module.getOps<ScheduleOp>()) {
    auto ref = FlatSymbolRefAttr::get(schedule.getSymNameAttr());
    if (others.contains(ref) && !used.contains(ref))
      continue;
    SmallVector<Value> inputs{updates};
    for (auto name : schedule.getHyperNames().getAsRange<StringAttr>())
      inputs.push_back(readScalar(
          s.b, s.loc, schedule.getSymName() + "." + name.getValue()));
    auto map =
        nn::MapOp::create(s.b, schedule.getLoc(), updates.getType(), inputs);
    IRMapping mapping;
    schedule.getBody().cloneInto(&map.getBody(), mapping);
    Operation *yield = map.getBody().front().getTerminator();
    OpBuilder b(yield);
    nn::YieldOp::create(b, yield->getLoc(), yield->getOperands());
    yield->erase();
    s.writeShared(map.getResult(0), schedule.getSymName());
  }
}

/// The scale of the next window: smaller after a skipped update, larger after
/// enough others.
static void buildLossScale(ScalarBuilder &s, Value finite) {
  Value scale = s.read("loss_scale");
  Value age = s.add(s.read("loss_scale_age"), s.constant(1.0));
  Value old = nn::CompareOp::create(s.b, s.loc, nn::CompareKind::ge, age,
                                    s.read("loss_scale.interval"));
  Value grown = s.mul(scale, s.read("loss_scale.growth"));
  constexpr double largest = std::numeric_limits<float>::max();
  Value fits = nn::CompareOp::create(s.b, s.loc, nn::CompareKind::le, grown,
                                     s.constant(largest));
  grown = s.select(fits, grown, scale);
  Value less =
      nn::MaxOp::create(s.b, s.loc, s.mul(scale, s.read("loss_scale.backoff")),
                        s.read("loss_scale.min"));
  Value zero = s.constant(0.0);
  s.write(s.select(finite, s.select(old, grown, scale), less), "loss_scale");
  s.write(s.select(finite, s.select(old, zero, age), zero), "loss_scale_age");
}

/// Replaces the window's sums by those over all ranks, so that every rank goes on
/// with the same numbers.
static void buildTotals(ScalarBuilder &s, ArrayAttr over) {
  static constexpr StringLiteral names[] = {"loss_sum", "weight_sum", "stop"};
  SmallVector<Value> parts;
  for (StringRef name : names)
    parts.push_back(nn::reshapeTo(s.b, s.loc, s.read(name), {1}));
  Value sums = nn::ConcatOp::create(s.b, s.loc, parts, 0);
  sums = AllReduceOp::create(s.b, s.loc, sums, over);
  for (auto [i, name] : llvm::enumerate(names)) {
    Value sum = nn::SliceOp::create(s.b, s.loc, sums,
                                    ArrayRef<int64_t>{static_cast<int64_t>(i)},
                                    ArrayRef<int64_t>{1}, DenseI64ArrayAttr());
    s.write(nn::reshapeTo(s.b, s.loc, sum, {}), name);
  }
}

/// Parameters, by the axes along which ranks have different parts.
using ParamsByAxes = llvm::MapVector<ArrayAttr, SmallVector<Attribute>>;

/// The sum of squares of `params`, or of each of them, with those of the parts that other
/// ranks over `axes` have.
static Value sumSquares(ScalarBuilder &s, Type type, ArrayRef<Attribute> params,
                        ArrayAttr axes) {
  auto norm = NormSquaredOp::create(s.b, s.loc, type,
                                    s.b.getArrayAttr(s.b.getArrayAttr(params)),
                                    ArrayAttr());
  return sumOverParts(s.b, s.loc, norm.getResult(0), axes);
}

/// That of all.
static Value sumSquares(ScalarBuilder &s, const ParamsByAxes &params) {
  auto f64 = RankedTensorType::get({}, s.b.getF64Type());
  Value sum;
  for (auto &[axes, some] : params) {
    Value more = sumSquares(s, f64, some, axes);
    sum = sum ? s.add(sum, more) : more;
  }
  return sum ? sum : s.constant(0.0);
}

/// Builds all that happens once per update.
static void buildApply(StepOp step, OpBuilder &b, double divisor) {
  auto module = step->getParentOfType<ModuleOp>();
  Location loc = step.getLoc();
  ScalarBuilder s{b, loc, getWindow(step)};
  if (ArrayAttr over = getReducedAxes(step))
    buildTotals(s, over);
  Value updates = s.read("update");
  buildSchedules(step, s, updates);
  Value t = s.add(updates, s.constant(1.0));

  // What turns a stored sum into the averaged, unscaled gradient.
  Value total = s.mul(s.read("loss_scale"), s.read("weight_sum"));
  Value scale = s.div(s.constant(divisor), total);
  if (!step.getAverage())
    scale = s.mul(scale, s.read("window"));

  ParamsByAxes clipped, unclipped;
  llvm::MapVector<StringAttr, ParamsByAxes> groups;
  SymbolTable symbols(module);
  Type narrowest = b.getF64Type(); // of gradients
  for (auto param : module.getOps<ParamOp>()) {
    if (!step.trains(param))
      continue;
    Attribute ref = FlatSymbolRefAttr::get(param.getSymNameAttr());
    auto optimizer = symbols.lookup<OptimizerOp>(*param.getOptimizer());
    if (gradientType(param).getElementType() != b.getF64Type())
      narrowest = b.getF32Type();
    ArrayAttr axes = param.getPartAxes();
    groups[optimizer.getSymNameAttr()][axes].push_back(ref);
    (optimizer.getClip() ? clipped : unclipped)[axes].push_back(ref);
  }
  // x - x is 0 for finite x, else NaN.
  auto isFinite = [&](Value x) -> Value {
    return nn::CompareOp::create(b, loc, nn::CompareKind::eq,
                                 nn::SubOp::create(b, loc, x, x),
                                 s.constant(0.0));
  };
  Value square = sumSquares(s, clipped);
  Value rest = unclipped.empty() ? Value() : sumSquares(s, unclipped);
  Value all = rest ? s.add(square, rest) : square;
  Value size = nn::AbsOp::create(b, loc, scale); // weights may be negative
  Value norm =
      s.mul(nn::SqrtOp::create(b, loc, clipped.empty() ? all : square), size);
  Value limit = s.read("clip_limit");
  Value factor = step.getClipKind() == ClipKind::global_norm
                     ? s.clipFactor(limit, norm)
                     : s.constant(1.0);
  Value clippedScale = s.mul(scale, factor);
  // Scaled, gradients that no clip makes smaller are to be numbers of their type, too.
  ClipKind kind = step.getClipKind();
  Value most =
      kind == ClipKind::global_norm && !rest ? s.mul(size, factor) : size;
  if (Value open = kind == ClipKind::none ? all : rest)
    most = s.add(most, s.mul(nn::SqrtOp::create(b, loc, open), size));
  most =
      nn::castTo(b, loc, nn::castTo(b, loc, most, narrowest), b.getF64Type());
  // Infinite weights would make the scale 0, and all gradients of it.
  Value finite = isFinite(s.add(s.add(s.mul(all, size), most), total));
  s.write(norm, "grad_norm");
  s.write(factor, "clip_factor");
  s.write(scale, "read_scale");
  s.write(finite, "finite");

  auto buildUpdate = [&](StringAttr name, ArrayRef<Attribute> params,
                         ArrayAttr axes) {
    auto optimizer = symbols.lookup<OptimizerOp>(name);
    auto update = [&](ArrayRef<Attribute> params, Value scale, Value limit) {
      UpdateOp::create(
          b, optimizer.getLoc(), b.getArrayAttr(FlatSymbolRefAttr::get(name)),
          b.getArrayAttr(b.getArrayAttr(params)), scale, finite, t,
          limit ? ValueRange(limit) : ValueRange(), ArrayAttr(), ArrayAttr(),
          /*fused=*/UnitAttr(), step.getStochasticAttr());
    };
    bool clip = optimizer.getClip();
    if (clip && step.getClipKind() == ClipKind::param_norm) {
      auto each = RankedTensorType::get({static_cast<int64_t>(params.size())},
                                        b.getF64Type());
      Value squares = sumSquares(s, each, params, axes);
      Value norms = s.mul(nn::SqrtOp::create(b, loc, squares), size);
      update(params, s.mul(s.clipFactor(limit, norms), scale), Value());
    } else if (clip && step.getClipKind() == ClipKind::value) {
      update(params, scale, limit);
    } else {
      update(params, clip ? clippedScale : scale, Value());
    }
  };
  for (auto &[name, params] : groups)
    for (auto &[axes, some] : params)
      buildUpdate(name, some, axes);
  s.write(s.select(finite, t, updates), "update");
  Value skipped = s.read("skipped");
  s.write(s.select(finite, skipped, s.add(skipped, s.constant(1.0))),
          "skipped");
  if (step.getLossScaleRule())
    buildLossScale(s, finite);
}

/// Gives every op that draws the scalars that its draws depend on.
static void supplyRandom(Block &body, StringAttr window) {
  auto draws = llvm::filter_to_vector(
      body.getOps<nn::RandomOpInterface>(),
      [](nn::RandomOpInterface op) { return op.draws(); });
  if (draws.empty())
    return;
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  ScalarBuilder s{b, draws.front()->getLoc(), window};
  Value seed = readScalar(b, s.loc, "seed"), update = s.read("update");
  // Behind a skipped window its draws must not come again: they may be why.
  Value closed = s.add(update, s.read("skipped"));
  Value microStep = s.read("micro_step");
  for (nn::RandomOpInterface op : draws) {
    op.getSeedMutable().assign(seed);
    op.getUpdateMutable().assign(closed);
    op.getMicroStepMutable().assign(microStep);
  }
}

/// Positions in the mesh are computed from those along its axes.
static void expandPositions(Operation *entry) {
  entry->walk([&](ProcessIndexOp op) {
    OpBuilder b(op);
    op.replaceAllUsesWith(readPosition(b, op.getLoc(), op.getAxes()));
    op.erase();
  });
}

/// What all steps divide the gradient of their loss by, which add to one sum.
static double findDivisor(ModuleOp module) {
  for (auto step : module.getOps<StepOp>())
    for (auto seed : step.getBody().getOps<SeedOp>())
      return seed.getDivisor().convertToDouble();
  return 1.0;
}

static void planStep(StepOp step, double divisor) {
  MLIRContext *context = step.getContext();
  Block &body = step.getBody().front();
  auto yield = cast<train::YieldOp>(body.getTerminator());
  auto module = step->getParentOfType<ModuleOp>();
  SymbolTable symbols(module);

  StringAttr window = getWindow(step);
  supplyRandom(body, window);
  for (auto seed : body.getOps<SeedOp>())
    seed.setWindowAttr(window);
  step.setDivisorAttr(
      divisor == 1.0 ? FloatAttr() : Builder(context).getF64FloatAttr(divisor));
  for (auto store :
       llvm::make_early_inc_range(body.getOps<StoreGradientOp>())) {
    OpBuilder b(store->getContext());
    b.setInsertionPointAfter(store);
    auto param = symbols.lookup<ParamOp>(store.getParam());
    Type type = nn::getComputeType(param.getTensorType().getElementType());
    // One store: the contributions in order, each in the gradient's type.
    SmallVector<Value> parts;
    for (Value part : store.getContributions()) {
      part = nn::castUnrounded(b, store.getLoc(), part, type);
      parts.push_back(part);
    }
    Location loc = store.getLoc();
    store.erase();
    Value sum = parts.front();
    for (Value part : ArrayRef(parts).drop_front())
      sum = llvm::count(parts, part) == 1
                ? nn::addTo(b, loc, sum, part)
                : nn::AddOp::create(b, loc, sum, part).getResult();
    WriteOp::create(b, loc, sum,
                    sliceRef(context, arenaName(kGradientArena, type, param),
                             param.getSymName()));
  }

  OpBuilder b(yield);
  ScalarBuilder s{b, yield.getLoc(), window};
  Type f64 = b.getF64Type();
  auto report = [&](Value value, StringRef micro, StringRef sum) {
    value = nn::castTo(b, yield.getLoc(), value, f64);
    s.write(value, micro);
    s.write(value, sum);
  };
  report(yield.getLoss() ? yield.getLoss() : s.constant(0.0), "micro_loss",
         "loss_sum");
  report(yield.getWeight() ? yield.getWeight() : s.constant(1.0),
         "micro_weight", "weight_sum");
  WindowEndOp::create(b, yield.getLoc(), b.getI1Type());
  buildApply(step, b, divisor);
}

/// Checks what the pass needs; nothing has been changed before.
static LogicalResult verifyNeeds(ModuleOp module, StepOp step) {
  SymbolTable symbols(module);
  for (Operation &op : module.getOps())
    if (auto optimizer = dyn_cast<OptimizerOp>(op)) {
      if (optimizer.getKind())
        return optimizer.emitOpError(
            "expects a region; run train-expand-optimizers first");
    } else if (auto schedule = dyn_cast<ScheduleOp>(op)) {
      if (schedule.getKind())
        return schedule.emitOpError(
            "expects a region; run train-expand-optimizers first");
    }
  for (auto param : module.getOps<ParamOp>()) {
    if (param.getFrozen())
      continue;
    auto optimizer = symbols.lookup<OptimizerOp>(*param.getOptimizer());
    Type expected = nn::getComputeType(param.getTensorType().getElementType());
    Type found = optimizer.getBody().front().getArgument(0).getType();
    if (expected != found)
      return (optimizer.emitOpError(
                  "expects the compute type of its parameters, ")
              << expected << ", got " << found)
                 .attachNote(param.getLoc())
             << "parameter is here";
  }
  WalkResult numbered = module.walk([](nn::RandomOpInterface op) {
    if (op.getSite() || !op.draws())
      return WalkResult::advance();
    op->emitOpError("expects a site; run train-assign-random first");
    return WalkResult::interrupt();
  });
  if (numbered.wasInterrupted())
    return failure();
  if (step.getBody().getOps<StoreGradientOp>().empty())
    return step.emitOpError(
        "expects stored gradients; run train-differentiate first");
  llvm::StringSet<> names;
  for (const Scalar &scalar : scalarsOf(module))
    if (!names.insert(scalar.name).second)
      return scalar.owner->emitOpError(
                 "expects a name that makes no second scalar '")
             << scalar.name << "'";
  return success();
}

namespace {
struct PlanStepPass : trainc::impl::PlanStepPassBase<PlanStepPass> {
  using PlanStepPassBase::PlanStepPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!module.getOps<ArenaOp>().empty())
      return;
    StepOp step = getStep(module);
    if (!step)
      return signalPassFailure();
    for (auto each : module.getOps<StepOp>())
      if (failed(verifyNeeds(module, each)))
        return signalPassFailure();
    SymbolTable symbols(module);
    for (StepOp window : windowsOf(module))
      for (auto param : module.getOps<ParamOp>())
        if (window.trains(param))
          param.setWindowAttr(getWindow(window));
    declareTensors(module, symbols);
    declareScalars(module, scalarsOf(module));
    double divisor = findDivisor(module);
    for (auto each : module.getOps<StepOp>()) {
      planStep(each, divisor);
      nameSlices(each, symbols, /*ema=*/false);
    }
    for (auto eval : module.getOps<EvalOp>()) {
      supplyRandom(eval.getBody().front(), /*window=*/StringAttr());
      nameSlices(eval, symbols, eval.getEma());
    }
    // Without a mesh the verifiers refuse positions.
    if (getMesh(module))
      for (Operation &entry : module.getOps())
        expandPositions(&entry);
  }
};
} // namespace
