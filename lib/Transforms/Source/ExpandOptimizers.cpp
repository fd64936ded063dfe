//===- ExpandOptimizers.cpp - Regions of the named optimizers -------------===//
//
// This pass turns named optimizers and schedules into scalar regions, so that
// what comes after knows regions only. Formulas are optax 0.2.8's; what depends
// on run-time scalars only is computed in f64 and rounded once per use.
//
//===----------------------------------------------------------------------===//
#include "NamedRule.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Source/Passes.h"

#define DEBUG_TYPE "train-expand-optimizers"

namespace trainc {
#define GEN_PASS_DEF_EXPANDOPTIMIZERSPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// The region under construction
//===----------------------------------------------------------------------===//

namespace {
/// A region whose arguments are `leading`, then states, then the run-time
/// scalars. States, and the number of the update, become arguments when they
/// are first used.
class UpdateRegion {
public:
  UpdateRegion(OptimizerOp op, Region &region, RuleArguments &arguments,
               Type type, size_t leading)
      : arguments(arguments), leading(leading), type(type),
        b(op.getLoc(), op.getContext()) {
    block = b.createBlock(&region);
    for (size_t i = 0; i < leading; ++i)
      block->addArgument(type, op.getLoc());
    for (const auto &entry : arguments.hyper)
      hyper[entry.first] = block->addArgument(b.getF64Type(), op.getLoc());
  }

  Scalar argument(size_t i) { return {&b, block->getArgument(i)}; }
  /// A run-time scalar, in f64.
  Scalar operator[](StringRef name) { return {&b, hyper.at(name)}; }
  /// The 1-based number of this update, in f64.
  Scalar update() {
    if (!arguments.has("t")) {
      arguments.hyper["t"] = b.getStringAttr("update");
      hyper["t"] = block->addArgument(b.getF64Type(), b.getLoc());
    }
    return (*this)["t"];
  }
  /// An f64 scalar rounded to the region's type.
  Scalar round(Scalar scalar) { return scalar.as(type); }

  Scalar state(StringRef name, double initial = 0.0) {
    auto [it, isNew] = states.insert({name, State{{}, initial, {}}});
    if (isNew) {
      it->second.argument =
          block->insertArgument(leading + states.size() - 1, type, b.getLoc());
      it->second.next = it->second.argument;
    }
    return {&b, it->second.argument};
  }
  void setState(StringRef name, Scalar next) {
    states.find(name)->second.next = next.value;
  }
  /// `state` = decay state + (1 - decay) value.
  Scalar moment(StringRef name, Scalar decay, Scalar value,
                double initial = 0.0) {
    Scalar next =
        fma(round(decay), state(name, initial), round(1.0 - decay) * value);
    setState(name, next);
    return next;
  }

  void yield(Scalar first) {
    SmallVector<Value> values{first.value};
    for (const auto &entry : states)
      values.push_back(entry.second.next);
    YieldOp::create(b, values, Value(), Value());
  }
  ArrayAttr stateNames() {
    return b.getStrArrayAttr(llvm::map_to_vector(
        states, [](const auto &entry) { return entry.first; }));
  }
  ArrayAttr stateValues() {
    return b.getF64ArrayAttr(llvm::map_to_vector(
        states, [](const auto &entry) { return entry.second.initial; }));
  }

  RuleArguments &arguments;

private:
  struct State {
    Value argument;
    double initial;
    Value next;
  };
  size_t leading;
  Type type;
  ImplicitLocOpBuilder b;
  Block *block;
  llvm::StringMap<Value> hyper;
  llvm::MapVector<StringRef, State> states;
};

/// The first region: from gradient to new parameter (or direction).
struct Update : UpdateRegion {
  Update(OptimizerOp op, RuleArguments &arguments, Type type)
      : UpdateRegion(op, op.getBody(), arguments, type, 2), p(argument(0)),
        g(argument(1)) {
    if (arguments.has("l2"))
      g = fma(round((*this)["l2"]), p, g);
  }
  Scalar p, g;
};

/// The second region: from direction and norms to new parameter.
struct ScaledUpdate : UpdateRegion {
  ScaledUpdate(OptimizerOp op, RuleArguments &arguments, Type type,
               ArrayAttr stateNames)
      : UpdateRegion(op, op.getScaled(), arguments, type, 4), p(argument(0)),
        u(argument(1)) {
    for (Attribute name : stateNames)
      state(cast<StringAttr>(name).getValue());
  }
  /// coefficient |p| / (|u| + eps), 1 where a norm is 0; in f64.
  Scalar trustRatio(Scalar coefficient, Scalar eps) {
    Scalar paramNorm = argument(2).as(eps.type());
    Scalar directionNorm = argument(3).as(eps.type());
    return select(paramNorm == 0.0 || directionNorm == 0.0, 1.0,
                  coefficient * paramNorm / (directionNorm + eps));
  }
  Scalar p, u;
};
} // namespace

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

static Scalar learningRate(UpdateRegion &r) {
  if (!r.arguments.has("lr_multiplier"))
    return r["lr"];
  return r["lr"] * r["lr_multiplier"];
}

/// p - step u - lr weight_decay p.
static Scalar descend(Update &r, Scalar step, Scalar u) {
  if (!r.arguments.has("weight_decay"))
    return fma(r.round(-step), u, r.p);
  Scalar decay = r.round(learningRate(r) * r["weight_decay"]);
  return r.p - fma(decay, r.p, r.round(step) * u);
}

/// Adds `value` to the decayed trace; gives what momentum descends along.
static Scalar momentum(UpdateRegion &r, Scalar value) {
  Scalar decay = r.round(r["momentum"]);
  Scalar trace = fma(decay, r.state("trace"), value);
  r.setState("trace", trace);
  return r.arguments.flag("nesterov") ? fma(decay, trace, value) : trace;
}

static Scalar buildSgd(Update &r) {
  Scalar u = r.g;
  if (r.arguments.has("dampening")) {
    Scalar kept = select(r.update() == 1.0, 1.0, 1.0 - r["dampening"]);
    u = r.round(kept) * u;
  }
  if (r.arguments.has("momentum"))
    u = momentum(r, u);
  return descend(r, learningRate(r), u);
}

/// The corrected first moment as a value per element and an f64 factor.
static std::pair<Scalar, Scalar> firstMoment(Update &r, bool nesterov) {
  Scalar b1 = r["b1"];
  Scalar m = r.moment("m", b1, r.g);
  Scalar correction = 1.0 - pow(b1, r.update());
  if (!nesterov)
    return {m, 1.0 / correction};
  Scalar next = 1.0 - pow(b1, r.update() + 1.0);
  Scalar ahead =
      fma(r.round(b1 / next), m, r.round((1.0 - b1) / correction) * r.g);
  return {ahead, r["b1"].constant(1.0)};
}

/// The root of the corrected second moment, with its epsilons.
static Scalar secondMomentRoot(Update &r) {
  Scalar v = r.moment("v", r["b2"], r.g * r.g);
  Scalar correction = 1.0 - pow(r["b2"], r.update());
  Scalar eps = r.round(r["eps"]), epsRoot = r.round(r["eps_root"]);
  if (r.arguments.flag("eps_before_correction"))
    return (sqrt(v + epsRoot) + eps) * r.round(1.0 / sqrt(correction));
  return sqrt(fma(v, r.round(1.0 / correction), epsRoot)) + eps;
}

static Scalar adam(Update &r, bool nesterov) {
  auto [m, factor] = firstMoment(r, nesterov);
  return descend(r, learningRate(r) * factor, m / secondMomentRoot(r));
}
static Scalar buildAdam(Update &r) {
  return adam(r, r.arguments.flag("nesterov"));
}
static Scalar buildNadam(Update &r) { return adam(r, /*nesterov=*/true); }

static Scalar buildRadam(Update &r) {
  auto [m, factor] = firstMoment(r, r.arguments.flag("nesterov"));
  Scalar root = secondMomentRoot(r);
  Scalar b2 = r["b2"], t = r.update();
  Scalar power = pow(b2, t);
  Scalar limit = 2.0 / (1.0 - b2) - 1.0;
  Scalar length = limit - 2.0 * t * power / (1.0 - power);
  Scalar rectifier = sqrt((length - 4.0) * (length - 2.0) * limit /
                          ((limit - 4.0) * (limit - 2.0) * length));
  Scalar adaptive = length >= r["threshold"];
  Scalar step = learningRate(r) * factor * select(adaptive, rectifier, 1.0);
  return descend(r, step, m / select(adaptive, root, 1.0));
}

static Scalar buildAdamax(Update &r) {
  auto [m, factor] = firstMoment(r, /*nesterov=*/false);
  Scalar v = max(abs(r.g) + r.round(r["eps"]), r.round(r["b2"]) * r.state("v"));
  r.setState("v", v);
  return descend(r, learningRate(r) * factor, m / v);
}

static Scalar rootWithEps(Update &r, Scalar square) {
  Scalar eps = r.round(r["eps"]);
  return r.arguments.flag("eps_in_sqrt") ? sqrt(square + eps)
                                         : sqrt(square) + eps;
}

static Scalar buildAdagrad(Update &r) {
  double initial = r.arguments.fixed.lookup("initial_accumulator_value");
  Scalar sum = fma(r.g, r.g, r.state("sum", initial));
  r.setState("sum", sum);
  Scalar u = select(sum > 0.0, r.g / rootWithEps(r, sum), 0.0);
  Scalar step = learningRate(r);
  if (r.arguments.has("lr_decay"))
    step = step / (1.0 + (r.update() - 1.0) * r["lr_decay"]);
  return descend(r, step, u);
}

static Scalar buildAdadelta(Update &r) {
  Scalar eps = r.round(r["eps"]), previous = r.state("e_x");
  Scalar square = r.moment("e_g", r["rho"], r.g * r.g);
  Scalar u = sqrt((previous + eps) / (square + eps)) * r.g;
  r.moment("e_x", r["rho"], u * u);
  return descend(r, learningRate(r), u);
}

static Scalar buildRmsprop(Update &r) {
  Scalar decay = r["decay"];
  Scalar square = r.moment("v", decay, r.g * r.g,
                           r.arguments.fixed.lookup("initial_scale"));
  auto corrected = [&](Scalar moment) {
    if (!r.arguments.flag("bias_correction"))
      return moment;
    return moment / r.round(1.0 - pow(decay, r.update()));
  };
  square = corrected(square);
  if (r.arguments.flag("centered")) {
    Scalar mean = corrected(r.moment("m", decay, r.g));
    square = max(square - mean * mean, 0.0); // not less, by rounding
  }
  Scalar u = r.g / rootWithEps(r, square);
  if (!r.arguments.has("momentum"))
    return descend(r, learningRate(r), u);
  if (r.arguments.flag("lr_in_momentum"))
    return r.p - momentum(r, r.round(learningRate(r)) * u);
  return descend(r, learningRate(r), momentum(r, u));
}

static Scalar buildLion(Update &r) {
  Scalar b1 = r["b1"], m = r.state("m");
  // Not fused: the sign of a sum that cancels exactly is 0.
  Scalar sum = r.round(1.0 - b1) * r.g + r.round(b1) * m;
  Scalar sign = select(sum > 0.0, 1.0, select(sum < 0.0, -1.0, sum));
  r.moment("m", r["b2"], r.g);
  return descend(r, learningRate(r), sign);
}

static Scalar buildLamb(Update &r) {
  auto [m, factor] = firstMoment(r, /*nesterov=*/false);
  Scalar u = r.round(factor) * m / secondMomentRoot(r);
  return fma(r.round(r["weight_decay"]), r.p, u);
}
static Scalar scaleLamb(ScaledUpdate &r) {
  Scalar lr = learningRate(r);
  Scalar ratio = r.trustRatio(lr.constant(1.0), lr.constant(0.0));
  return fma(r.round(-(lr * ratio)), r.u, r.p);
}

static Scalar buildLars(Update &r) {
  r.state("trace");
  return fma(r.round(r["weight_decay"]), r.p, r.g);
}
static Scalar scaleLars(ScaledUpdate &r) {
  Scalar ratio = r.trustRatio(r["trust_coefficient"], r["eps"]);
  return r.p - momentum(r, r.round(learningRate(r) * ratio) * r.u);
}

static Scalar buildMuon(Update &r) {
  Scalar decay = r["momentum"];
  Scalar m = r.moment("m", decay, r.g);
  if (!r.arguments.flag("nesterov"))
    return m;
  return fma(r.round(decay), m, r.round(1.0 - decay) * r.g);
}
static Scalar scaleMuon(ScaledUpdate &r) {
  Scalar lr = learningRate(r);
  Scalar decayed = r.p - r.round(lr * r["weight_decay"]) * r.p;
  return fma(r.round(-lr), r.u, decayed);
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {
struct OptimizerRule {
  StringLiteral kind;
  SmallVector<RuleParameter> parameters;
  Scalar (*build)(Update &);
  Scalar (*buildScaled)(ScaledUpdate &) = nullptr;
  bool orthogonal = false; // the direction, between the two
};
} // namespace

static ArrayRef<OptimizerRule> getOptimizerRules() {
  using P = RuleParameter;
  const P lr{"lr"}, multiplier{"lr_multiplier", P::optional};
  const P l2{"l2", P::optional}, decay{"weight_decay", P::optional};
  const P b1{"b1", P::number, 0.9}, b2{"b2", P::number, 0.999};
  const P eps{"eps", P::number, 1e-8}, epsRoot{"eps_root", P::number, 0.0};
  const P nesterov{"nesterov", P::flag, false};
  const P epsBefore{"eps_before_correction", P::flag, false};
  const P epsInSqrt{"eps_in_sqrt", P::flag, true};
  const P traceNesterov{"nesterov", P::flag, false, "momentum"};
  const P dampening{"dampening", P::optional, {}, "momentum"};
  auto decayOf = [](double value) {
    return P{"weight_decay", P::number, value};
  };
  auto epsOf = [](double value) { return P{"eps", P::number, value}; };
  const P heavy{"momentum", P::number, 0.9};

  static const OptimizerRule rules[] = {
      {"sgd",
       {lr,
        multiplier,
        l2,
        decay,
        {"momentum", P::optional},
        dampening,
        traceNesterov},
       buildSgd},
      {"momentum",
       {lr, multiplier, l2, decay, heavy, dampening, traceNesterov},
       buildSgd},
      {"adam",
       {lr, multiplier, l2, decay, b1, b2, eps, epsRoot, nesterov, epsBefore},
       buildAdam},
      {"adamw",
       {lr, multiplier, l2, decayOf(1e-4), b1, b2, eps, epsRoot, nesterov,
        epsBefore},
       buildAdam},
      {"nadam",
       {lr, multiplier, l2, decay, b1, b2, eps, epsRoot, epsBefore},
       buildNadam},
      {"radam",
       {lr,
        multiplier,
        l2,
        decay,
        b1,
        b2,
        eps,
        epsRoot,
        {"threshold", P::number, 5.0},
        nesterov,
        epsBefore},
       buildRadam},
      {"adamax", {lr, multiplier, l2, decay, b1, b2, eps}, buildAdamax},
      {"adagrad",
       {lr,
        multiplier,
        l2,
        decay,
        epsOf(1e-7),
        {"lr_decay", P::optional},
        {"initial_accumulator_value", P::fixed, 0.1},
        epsInSqrt},
       buildAdagrad},
      {"adadelta",
       {lr, multiplier, l2, {"rho", P::number, 0.9}, epsOf(1e-6)},
       buildAdadelta},
      {"rmsprop",
       {lr,
        multiplier,
        l2,
        {"decay", P::number, 0.9},
        eps,
        {"momentum", P::optional},
        {"initial_scale", P::fixed, 0.0},
        epsInSqrt,
        {"centered", P::flag, false},
        traceNesterov,
        {"bias_correction", P::flag, false},
        {"lr_in_momentum", P::flag, true, "momentum"}},
       buildRmsprop},
      {"lion",
       {lr, multiplier, l2, decayOf(1e-3), b1, {"b2", P::number, 0.99}},
       buildLion},
      {"lamb",
       {lr, multiplier, l2, decayOf(0.0), b1, b2, epsOf(1e-6), epsRoot},
       buildLamb,
       scaleLamb},
      {"lars",
       {lr,
        multiplier,
        decayOf(0.0),
        heavy,
        {"trust_coefficient", P::number, 0.001},
        epsOf(0.0),
        nesterov},
       buildLars,
       scaleLars},
      {"muon",
       {lr,
        multiplier,
        l2,
        decayOf(0.1),
        {"momentum", P::number, 0.95},
        {"nesterov", P::flag, true},
        {"a", P::fixed, 3.4445},
        {"b", P::fixed, -4.775},
        {"c", P::fixed, 2.0315},
        {"eps", P::fixed, 1e-7},
        {"steps", P::fixed, 5.0},
        {"bf16", P::flag, true},
        {"match_rms", P::flag, false},
        {"unclamped", P::flag, false}},
       buildMuon,
       scaleMuon,
       /*orthogonal=*/true}};
  return rules;
}

static LogicalResult expandOptimizer(OptimizerOp op, Type type) {
  StringRef kind = *op.getKind();
  ArrayRef<OptimizerRule> rules = getOptimizerRules();
  const OptimizerRule *rule =
      llvm::find_if(rules, [&](auto &rule) { return rule.kind == kind; });
  if (rule == rules.end()) {
    InFlightDiagnostic diag = op.emitOpError("expects a known optimizer (");
    llvm::interleaveComma(rules, diag, [&](auto &rule) { diag << rule.kind; });
    return diag << "), got '" << kind << "'";
  }
  FailureOr<RuleArguments> arguments =
      resolveArguments(op, kind, rule->parameters, op.getHyperNames(),
                       op.getHyperValues(), /*allowSymbol=*/true);
  if (failed(arguments))
    return failure();

  Update update(op, *arguments, type);
  update.yield(rule->build(update));
  op.setStateNamesAttr(update.stateNames());
  op.setStateValuesAttr(update.stateValues());
  if (rule->buildScaled) {
    ScaledUpdate scaled(op, *arguments, type, op.getStateNames());
    scaled.yield(rule->buildScaled(scaled));
  }
  Builder b(op.getContext());
  if (rule->orthogonal) {
    NamedAttrList values;
    for (StringRef name : {"a", "b", "c", "eps", "steps"})
      values.append(name, b.getF64FloatAttr(arguments->fixed.lookup(name)));
    for (StringRef name : {"bf16", "match_rms", "unclamped"})
      values.append(name, b.getBoolAttr(arguments->flag(name)));
    op.setOrthogonalAttr(values.getDictionary(op.getContext()));
  }
  op.setHyperNamesAttr(arguments->names(b));
  op.setHyperValuesAttr(arguments->values(b));
  op.removeKindAttr();
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// The types in which the group's parameters are computed, in the order of its
/// parameters.
static llvm::MapVector<Type, SmallVector<ParamOp>>
paramsByType(OptimizerOp op) {
  llvm::MapVector<Type, SmallVector<ParamOp>> result;
  for (auto param : op->getParentOfType<ModuleOp>().getOps<ParamOp>())
    if (param.getOptimizer() == op.getSymName())
      result[nn::getComputeType(param.getTensorType().getElementType())]
          .push_back(param);
  return result;
}

/// Whether some rank has less of a parameter than others.
static bool isUneven(ParamOp param) {
  ArrayAttr axes = param.getPartAxes();
  return !axes.empty() &&
         param.getTensorType().getNumElements() *
                 getMesh(param->getParentOfType<ModuleOp>()).getCount(axes) !=
             param.getWholeType().getNumElements();
}

/// A region's parameters must have its type. A second region takes norms, in which what
/// fills up uneven parts would count: a direction need not be 0 there.
static LogicalResult checkRegions(OptimizerOp op) {
  Type type = op.getBody().getArgument(0).getType();
  for (auto &[paramType, params] : paramsByType(op))
    if (paramType != type)
      return (params.front().emitOpError("expects elements computed in ")
              << type << ", the type of its optimizer's region, got "
              << paramType)
                 .attachNote(op.getLoc())
             << "the optimizer is here";
  if (op.getScaled().empty() || op.getOrthogonal())
    return success();
  for (auto param : op->getParentOfType<ModuleOp>().getOps<ParamOp>())
    if (param.getOptimizer() == op.getSymName() && isUneven(param))
      return (param.emitOpError("expects parts that are equal, as its "
                                "optimizer takes norms, got ")
              << param.getTensorType() << " of " << param.getWholeType())
                 .attachNote(op.getLoc())
             << "the optimizer is here";
  return success();
}

/// Lets the steps that train what `op` updates train what `clone` updates, too.
static void trainAlso(OptimizerOp op, FlatSymbolRefAttr clone) {
  auto name = FlatSymbolRefAttr::get(op.getSymNameAttr());
  for (auto step : op->getParentOfType<ModuleOp>().getOps<StepOp>()) {
    ArrayAttr trained = step.getTrainedAttr();
    if (!trained || !llvm::is_contained(trained, name))
      continue;
    SmallVector<Attribute> all(trained.begin(), trained.end());
    all.push_back(clone);
    step.setTrainedAttr(ArrayAttr::get(op.getContext(), all));
  }
}

namespace {
struct ExpandOptimizersPass
    : trainc::impl::ExpandOptimizersPassBase<ExpandOptimizersPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    bool ok = true;
    for (auto schedule : getOperation().getOps<ScheduleOp>()) {
      if (!schedule.getKind())
        continue;
      ok &= succeeded(expandSchedule(schedule));
      ++numSchedules;
    }
    for (auto op : llvm::to_vector(getOperation().getOps<OptimizerOp>())) {
      if (!op.getKind()) {
        ok &= succeeded(checkRegions(op));
        continue;
      }
      auto groups = paramsByType(op).takeVector();
      if (groups.empty())
        groups.push_back({Float32Type::get(&getContext()), {}});
      OptimizerOp named = op.clone();
      ok &= succeeded(expandOptimizer(op, groups.front().first));
      ++numOptimizers;
      for (auto &[type, params] : llvm::drop_begin(groups)) {
        OptimizerOp clone = named.clone();
        std::string suffix;
        llvm::raw_string_ostream(suffix) << "_" << type;
        clone.setSymName((op.getSymName() + suffix).str());
        StringAttr name = symbols.insert(clone, std::next(op->getIterator()));
        for (ParamOp param : params)
          param.setOptimizerAttr(FlatSymbolRefAttr::get(name));
        trainAlso(op, FlatSymbolRefAttr::get(name));
        ok &= succeeded(expandOptimizer(clone, type));
        ++numClones;
      }
      named.erase();
    }
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
