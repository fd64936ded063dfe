//===- ExpandSchedules.cpp - Regions of the named schedules ---------------===//
//
// The schedules that train-expand-optimizers knows, and the check of arguments
// that named schedules and optimizers share.
//
//===----------------------------------------------------------------------===//
#include "NamedRule.h"
#include <numbers>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Arguments of named rules
//===----------------------------------------------------------------------===//

ArrayAttr RuleArguments::names(Builder &b) const {
  return b.getStrArrayAttr(llvm::map_to_vector(
      hyper, [](const auto &entry) { return entry.first; }));
}

ArrayAttr RuleArguments::values(Builder &b) const {
  return b.getArrayAttr(llvm::map_to_vector(
      hyper, [](const auto &entry) { return entry.second; }));
}

FailureOr<RuleArguments>
train::resolveArguments(Operation *op, StringRef kind,
                        ArrayRef<RuleParameter> parameters, ArrayAttr names,
                        ArrayAttr values, bool allowSymbol) {
  llvm::StringMap<Attribute> given;
  for (auto [key, value] : llvm::zip_equal(names, values)) {
    StringRef name = cast<StringAttr>(key).getValue();
    if (llvm::none_of(parameters, [&](auto &p) { return p.name == name; })) {
      InFlightDiagnostic diag = op->emitOpError("expects a parameter of ")
                                << kind << " (";
      llvm::interleaveComma(parameters, diag, [&](auto &p) { diag << p.name; });
      return diag << "), got '" << name << "'";
    }
    if (!given.try_emplace(name, value).second)
      return op->emitOpError("expects each parameter of ")
             << kind << " once, got '" << name << "' twice";
  }

  RuleArguments result;
  Builder b(op->getContext());
  for (const RuleParameter &parameter : parameters) {
    StringRef name = parameter.name;
    Attribute value = given.lookup(name);
    bool atCompileTime = parameter.kind == RuleParameter::fixed ||
                         parameter.kind == RuleParameter::flag;
    if (!value) {
      if (parameter.kind == RuleParameter::optional)
        continue;
      if (!parameter.initial)
        return op->emitOpError("expects parameter '")
               << name << "' of " << kind << ", got none";
      if (atCompileTime)
        result.fixed[name] = *parameter.initial;
      else
        result.hyper[name] = b.getF64FloatAttr(*parameter.initial);
      continue;
    }
    if (!parameter.needs.empty() && !result.has(parameter.needs))
      return op->emitOpError("expects parameter '")
             << parameter.needs << "' with '" << name << "' of " << kind
             << ", got none";
    if (parameter.kind == RuleParameter::flag) {
      auto flag = dyn_cast<BoolAttr>(value);
      if (!flag)
        return op->emitOpError("expects true or false for '")
               << name << "' of " << kind << ", got " << value;
      result.fixed[name] = flag.getValue();
      continue;
    }
    auto number = dyn_cast<FloatAttr>(value);
    bool symbol = isa<SymbolRefAttr>(value) && allowSymbol && !atCompileTime;
    if (!number && !symbol)
      return op->emitOpError("expects a number")
             << (allowSymbol && !atCompileTime ? " or a schedule" : "")
             << " for '" << name << "' of " << kind << ", got " << value;
    if (atCompileTime)
      result.fixed[name] = number.getValueAsDouble();
    else
      result.hyper[name] = value;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

namespace {
/// The number of updates done and the schedule's scalars, by name.
struct ScheduleContext {
  const RuleArguments &arguments;
  Scalar t;
  llvm::StringMap<Scalar> values;

  Scalar operator[](StringRef name) const { return values.at(name); }
};

struct ScheduleRule {
  StringLiteral kind;
  SmallVector<RuleParameter> parameters;
  Scalar (*build)(const ScheduleContext &c);
};
} // namespace

/// From `init` to `end` while t goes from 0 to `steps`; init if steps <= 0.
static Scalar linear(Scalar t, Scalar init, Scalar end, Scalar steps) {
  Scalar fraction = 1.0 - min(max(t, 0.0), steps) / steps;
  return select(steps > 0.0, (init - end) * fraction + end, init);
}

static Scalar cosine(Scalar t, Scalar init, Scalar steps, Scalar alpha,
                     Scalar exponent) {
  Scalar turn = std::numbers::pi * min(t, steps) / steps;
  Scalar decay = pow(0.5 * (1.0 + cos(turn)), exponent);
  return init * ((1.0 - alpha) * decay + alpha);
}

static Scalar buildConstant(const ScheduleContext &c) { return c["value"]; }

static Scalar buildLinear(const ScheduleContext &c) {
  return linear(c.t - max(c["begin"], 0.0), c["init"], c["end"], c["steps"]);
}

static Scalar buildWarmupLinear(const ScheduleContext &c) {
  Scalar up = linear(c.t, c["init"], c["peak"], c["warmup"]);
  Scalar down = c["peak"];
  if (c.arguments.has("total"))
    down = linear(c.t - c["warmup"], c["peak"], c["end"],
                  c["total"] - c["warmup"]);
  return select(c.t < c["warmup"], up, down);
}

static Scalar buildCosine(const ScheduleContext &c) {
  return cosine(c.t, c["init"], c["steps"], c["alpha"], c["exponent"]);
}

static Scalar buildWarmupCosine(const ScheduleContext &c) {
  Scalar up = linear(c.t, c["init"], c["peak"], c["warmup"]);
  Scalar alpha = select(c["peak"] == 0.0, 0.0, c["end"] / c["peak"]);
  Scalar down = cosine(c.t - c["warmup"], c["peak"], c["total"] - c["warmup"],
                       alpha, c["exponent"]);
  return select(c.t < c["warmup"], up, down);
}

static Scalar buildStep(const ScheduleContext &c) {
  return c["init"] * pow(c["gamma"], floor(c.t / c["size"]));
}

static Scalar buildExponential(const ScheduleContext &c) {
  Scalar t = c.t - max(c["begin"], 0.0);
  Scalar exponent = t / c["steps"];
  if (c.arguments.flag("staircase"))
    exponent = floor(exponent);
  Scalar value =
      select(t <= 0.0, c["init"], c["init"] * pow(c["rate"], exponent));
  if (!c.arguments.has("end"))
    return value;
  return select(c["rate"] < 1.0, max(value, c["end"]), min(value, c["end"]));
}

static Scalar buildInverseSqrt(const ScheduleContext &c) {
  Scalar up = linear(c.t, c["init"], c["peak"], c["warmup"]);
  Scalar down = c["peak"] * sqrt(max(c["warmup"], 1.0) / max(c.t, 1.0));
  return select(c.t < c["warmup"], up, down);
}

static ArrayRef<ScheduleRule> getScheduleRules() {
  using P = RuleParameter;
  static const ScheduleRule rules[] = {
      {"constant", {{"value"}}, buildConstant},
      {"linear",
       {{"init"}, {"end"}, {"steps"}, {"begin", P::number, 0.0}},
       buildLinear},
      {"warmup_linear",
       {{"peak"},
        {"warmup"},
        {"total", P::optional},
        {"init", P::number, 0.0},
        {"end", P::number, 0.0}},
       buildWarmupLinear},
      {"cosine",
       {{"init"},
        {"steps"},
        {"alpha", P::number, 0.0},
        {"exponent", P::number, 1.0}},
       buildCosine},
      {"warmup_cosine",
       {{"peak"},
        {"warmup"},
        {"total"},
        {"init", P::number, 0.0},
        {"end", P::number, 0.0},
        {"exponent", P::number, 1.0}},
       buildWarmupCosine},
      {"step", {{"init"}, {"size"}, {"gamma", P::number, 0.1}}, buildStep},
      {"exponential",
       {{"init"},
        {"steps"},
        {"rate"},
        {"begin", P::number, 0.0},
        {"end", P::optional},
        {"staircase", P::flag, false}},
       buildExponential},
      {"inverse_sqrt",
       {{"peak"}, {"warmup"}, {"init", P::number, 0.0}},
       buildInverseSqrt}};
  return rules;
}

/// What a schedule divides by must be positive.
static LogicalResult checkLengths(ScheduleOp op,
                                  const RuleArguments &arguments) {
  auto number = [&](StringRef name) {
    return cast<FloatAttr>(arguments.hyper.lookup(name)).getValueAsDouble();
  };
  for (StringRef name : {"steps", "size"})
    if (arguments.has(name) && !(number(name) > 0.0))
      return op.emitOpError("expects '") << name << "' of " << *op.getKind()
                                         << " to be > 0, got " << number(name);
  if (arguments.has("total") && !(number("total") > number("warmup")))
    return op.emitOpError("expects 'total' of ")
           << *op.getKind() << " to be > 'warmup', got " << number("total")
           << " and " << number("warmup");
  return success();
}

LogicalResult train::expandSchedule(ScheduleOp op) {
  StringRef kind = *op.getKind();
  ArrayRef<ScheduleRule> rules = getScheduleRules();
  const ScheduleRule *rule =
      llvm::find_if(rules, [&](auto &rule) { return rule.kind == kind; });
  if (rule == rules.end()) {
    InFlightDiagnostic diag = op.emitOpError("expects a known schedule (");
    llvm::interleaveComma(rules, diag, [&](auto &rule) { diag << rule.kind; });
    return diag << "), got '" << kind << "'";
  }
  FailureOr<RuleArguments> arguments =
      resolveArguments(op, kind, rule->parameters, op.getHyperNames(),
                       op.getHyperValues(), /*allowSymbol=*/false);
  if (failed(arguments) || failed(checkLengths(op, *arguments)))
    return failure();

  ImplicitLocOpBuilder b(op.getLoc(), op.getContext());
  Block *block = b.createBlock(&op.getBody());
  Value t = block->addArgument(b.getF64Type(), op.getLoc());
  ScheduleContext context{*arguments, {&b, t}, {}};
  for (const auto &entry : arguments->hyper)
    context.values[entry.first] = {
        &b, block->addArgument(b.getF64Type(), op.getLoc())};
  YieldOp::create(b, ValueRange(rule->build(context).value), Value(), Value());
  op.removeKindAttr();
  op.setHyperNamesAttr(arguments->names(b));
  op.setHyperValuesAttr(arguments->values(b));
  return success();
}
