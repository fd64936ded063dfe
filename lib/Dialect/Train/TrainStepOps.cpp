//===- TrainStepOps.cpp - Entries and their sources -----------------------===//
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// `(%x: type, %g: type gradient(@p), %y: type split([a], []), ...)`; the names become
/// `input_names`, the splits `input_splits`. Without `gradients` no input may be one.
static ParseResult
parseInputs(OpAsmParser &parser, OperationState &result,
            SmallVectorImpl<OpAsmParser::Argument> &inputs,
            StringAttr attribute, StringAttr splitsAttribute,
            SmallVectorImpl<Attribute> *gradients = nullptr) {
  SmallVector<Attribute> splits;
  bool hasSplit = false;
  auto parseGradient = [&]() -> ParseResult {
    gradients->push_back(parser.getBuilder().getUnitAttr());
    if (failed(parser.parseOptionalKeyword("gradient")))
      return success();
    StringAttr name;
    if (parser.parseLParen() || parser.parseSymbolName(name) ||
        parser.parseRParen())
      return failure();
    gradients->back() = FlatSymbolRefAttr::get(name);
    return success();
  };
  auto parseInput = [&]() -> ParseResult {
    if (parser.parseArgument(inputs.emplace_back(), /*allowType=*/true) ||
        (gradients && parseGradient()))
      return failure();
    ArrayAttr split = parser.getBuilder().getArrayAttr({});
    if (succeeded(parser.parseOptionalKeyword("split"))) {
      hasSplit = true;
      if (parser.parseLParen() || parseSplit(parser, split) ||
          parser.parseRParen())
        return failure();
    }
    splits.push_back(split);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseInput))
    return failure();
  if (hasSplit)
    result.addAttribute(splitsAttribute,
                        parser.getBuilder().getArrayAttr(splits));
  SmallVector<Attribute> names;
  for (OpAsmParser::Argument &input : inputs)
    names.push_back(parser.getBuilder().getStringAttr(
        input.ssaName.name.drop_front().str()));
  result.addAttribute(attribute, parser.getBuilder().getArrayAttr(names));
  return success();
}

/// Inputs print under their names, which are part of the interface.
static void
printInputs(OpAsmPrinter &p, Region &body, ArrayAttr splits,
            function_ref<FlatSymbolRefAttr(size_t)> gradient = nullptr) {
  p << "(";
  llvm::interleaveComma(body.getArguments(), p, [&](BlockArgument argument) {
    p.printRegionArgument(argument);
    if (gradient)
      if (auto param = gradient(argument.getArgNumber()))
        p << " gradient(" << param << ")";
    if (!splits)
      return;
    auto split = cast<ArrayAttr>(splits[argument.getArgNumber()]);
    if (!split.empty()) {
      p << " split(";
      printSplit(p, nullptr, split);
      p << ")";
    }
  });
  p << ")";
}

/// Names block arguments after `names`.
static void nameInputs(ArrayAttr names, Region &region,
                       OpAsmSetValueNameFn setName) {
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, cast<StringAttr>(name).getValue());
}

void StepOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  nameInputs(getInputNames(), region, setName);
}
void EvalOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  nameInputs(getInputNames(), region, setName);
}

int64_t train::countLossTerms(Value loss) {
  SmallVector<Value> stack{loss};
  DenseSet<Operation *> seen;
  int64_t terms = 1;
  while (!stack.empty()) {
    Value value = stack.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<RecomputeOp>(op)) {
      llvm::append_range(
          stack, op->getRegion(0).front().getTerminator()->getOperands());
      continue;
    }
    int64_t elements = 1;
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType()))
        if (isa<IntegerType>(type.getElementType()) && type.getRank())
          elements = std::max(elements, type.getNumElements());
    terms = std::max(terms, elements);
    if (elements > 1)
      continue;
    // Only scalars on the way: sums of losses, scaled.
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType()))
        if (type.getRank() == 0)
          stack.push_back(operand);
  }
  return terms;
}

FlatSymbolRefAttr StepOp::getInputGradient(size_t i) {
  ArrayAttr all = getInputGradientsAttr();
  return all && i < all.size() ? dyn_cast<FlatSymbolRefAttr>(all[i])
                               : FlatSymbolRefAttr();
}

bool StepOp::trains(ParamOp param) {
  if (param.getFrozen())
    return false;
  ArrayAttr trained = getTrainedAttr();
  return !trained || llvm::is_contained(trained, param.getOptimizerAttr());
}

ArrayRef<StringRef> StepOp::getLossScaleRuleNames() {
  static constexpr StringRef names[] = {"growth", "backoff", "interval", "min"};
  return names;
}

static ParseResult parseNumber(OpAsmParser &parser, double &number) {
  Attribute value;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseAttribute(value))
    return failure();
  if (auto real = dyn_cast<FloatAttr>(value))
    number = real.getValueAsDouble();
  else if (auto integer = dyn_cast<IntegerAttr>(value);
           integer && !isa<BoolAttr>(value))
    number = integer.getValue().signedRoundToDouble();
  else
    return parser.emitError(loc, "expects a number, got ") << value;
  return success();
}

/// `1024.0` or `dynamic<init = 1024.0, ...>`, all of it optional.
static ParseResult parseLossScale(OpAsmParser &parser, double &scale,
                                  std::optional<SmallVector<double>> &rule) {
  if (failed(parser.parseOptionalKeyword("dynamic")))
    return parseNumber(parser, scale);
  scale = 65536.0;
  rule = SmallVector<double>{2.0, 0.5, 2000.0, 1.0};
  if (failed(parser.parseOptionalLess()))
    return success();
  auto parseEntry = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    double value;
    if (parser.parseKeyword(&name) || parser.parseEqual() ||
        parseNumber(parser, value))
      return failure();
    ArrayRef<StringRef> names = StepOp::getLossScaleRuleNames();
    const auto *known = llvm::find(names, name);
    if (name == "init")
      scale = value;
    else if (known != names.end())
      (*rule)[known - names.begin()] = value;
    else
      return parser.emitError(
                 loc, "expected init, growth, backoff, interval or min, got '")
             << name << "'";
    return success();
  };
  return failure(parser.parseCommaSeparatedList(parseEntry) ||
                 parser.parseGreater());
}

/// `compute = bf16, master = bf16, rounding = stochastic, keep_f32 = [@p]`.
static ParseResult parsePrecision(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  auto parseEntry = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    if (parser.parseKeyword(&name) || parser.parseEqual())
      return failure();
    if (name == "compute" || name == "master") {
      Type type;
      if (parser.parseType(type))
        return failure();
      result.addAttribute(name == "compute"
                              ? StepOp::getComputeTypeAttrName(result.name)
                              : StepOp::getMasterTypeAttrName(result.name),
                          TypeAttr::get(type));
    } else if (name == "rounding") {
      StringRef kind;
      if (parser.parseKeyword(&kind))
        return failure();
      if (kind == "stochastic")
        result.addAttribute(StepOp::getStochasticAttrName(result.name),
                            b.getUnitAttr());
      else if (kind != "nearest")
        return parser.emitError(loc, "expected nearest or stochastic, got '")
               << kind << "'";
    } else if (name == "keep_f32") {
      ArrayAttr keep;
      if (parser.parseAttribute(keep))
        return failure();
      result.addAttribute(StepOp::getKeepF32AttrName(result.name), keep);
    } else {
      return parser.emitError(
                 loc, "expected compute, master, rounding or keep_f32, got '")
             << name << "'";
    }
    return success();
  };
  return parser.parseCommaSeparatedList(parseEntry);
}

/// `("name", ...)`, behind an arrow.
static ParseResult parseOutputs(OpAsmParser &parser, OperationState &result,
                                StringAttr attribute) {
  SmallVector<Attribute> outputs;
  auto parseOutput = [&]() -> ParseResult {
    std::string output;
    if (parser.parseString(&output))
      return failure();
    outputs.push_back(parser.getBuilder().getStringAttr(output));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOutput))
    return failure();
  result.addAttribute(attribute, parser.getBuilder().getArrayAttr(outputs));
  return success();
}

static void printOutputs(OpAsmPrinter &p, ArrayAttr names) {
  p << " -> (";
  llvm::interleaveComma(names, p);
  p << ")";
}

ParseResult StepOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> inputs;
  SmallVector<Attribute> gradients;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parseInputs(parser, result, inputs, getInputNamesAttrName(result.name),
                  getInputSplitsAttrName(result.name), &gradients))
    return failure();
  if (succeeded(parser.parseOptionalArrow()) &&
      parseOutputs(parser, result, getOutputNamesAttrName(result.name)))
    return failure();
  if (llvm::any_of(gradients, llvm::IsaPred<FlatSymbolRefAttr>))
    result.addAttribute(getInputGradientsAttrName(result.name),
                        b.getArrayAttr(gradients));
  while (true) {
    StringRef clause;
    SMLoc loc = parser.getCurrentLocation();
    if (failed(parser.parseOptionalKeyword(
            &clause,
            {"trains", "accumulate", "clip", "precision", "loss_scale"})))
      break;
    if (parser.parseLParen())
      return failure();
    if (clause == "trains") {
      ArrayAttr trained;
      if (parser.parseAttribute(trained))
        return failure();
      result.addAttribute(getTrainedAttrName(result.name), trained);
    } else if (clause == "accumulate") {
      int64_t k;
      if (parser.parseInteger(k))
        return failure();
      result.addAttribute(getAccumulateAttrName(result.name),
                          b.getI64IntegerAttr(k));
      if (succeeded(parser.parseOptionalComma())) {
        StringRef value;
        if (parser.parseKeyword("average") || parser.parseEqual() ||
            parser.parseKeyword(&value))
          return failure();
        if (value != "true" && value != "false")
          return parser.emitError(loc, "expected 'true' or 'false'");
        result.addAttribute(getAverageAttrName(result.name),
                            b.getBoolAttr(value == "true"));
      }
    } else if (clause == "clip") {
      StringRef kind;
      double value;
      if (parser.parseKeyword(&kind) || parser.parseLess() ||
          parser.parseFloat(value) || parser.parseGreater())
        return failure();
      auto symbol = symbolizeClipKind(kind);
      if (!symbol)
        return parser.emitError(
                   loc, "expected global_norm, param_norm or value, got '")
               << kind << "'";
      result.addAttribute(getClipKindAttrName(result.name),
                          ClipKindAttr::get(b.getContext(), *symbol));
      result.addAttribute(getClipValueAttrName(result.name),
                          b.getF64FloatAttr(value));
    } else if (clause == "loss_scale") {
      double scale;
      std::optional<SmallVector<double>> rule;
      if (parseLossScale(parser, scale, rule))
        return failure();
      result.addAttribute(getLossScaleAttrName(result.name),
                          b.getF64FloatAttr(scale));
      if (rule)
        result.addAttribute(getLossScaleRuleAttrName(result.name),
                            b.getDenseF64ArrayAttr(*rule));
    } else {
      if (parsePrecision(parser, result))
        return failure();
    }
    if (parser.parseRParen())
      return failure();
  }
  if (parseAttributes(parser, result))
    return failure();
  return parser.parseRegion(*result.addRegion(), inputs);
}

void StepOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  printInputs(p, getBody(), getInputSplitsAttr(),
              [&](size_t i) { return getInputGradient(i); });
  if (!getOutputNames().empty())
    printOutputs(p, getOutputNames());
  if (ArrayAttr trained = getTrainedAttr())
    p << " trains(" << trained << ")";
  if (getAccumulate() != 1 || !getAverage()) {
    p << " accumulate(" << getAccumulate();
    if (!getAverage())
      p << ", average = false";
    p << ")";
  }
  if (getClipKind() != ClipKind::none) {
    p << " clip(" << stringifyClipKind(getClipKind()) << "<";
    p.printAttributeWithoutType(getClipValueAttr());
    p << ">)";
  }
  std::string precision;
  llvm::raw_string_ostream clause(precision);
  llvm::ListSeparator separator;
  if (auto type = getComputeType())
    clause << separator << "compute = " << *type;
  if (auto type = getMasterType())
    clause << separator << "master = " << *type;
  if (getStochastic())
    clause << separator << "rounding = stochastic";
  if (auto keep = getKeepF32Attr())
    clause << separator << "keep_f32 = " << keep;
  if (!precision.empty())
    p << " precision(" << precision << ")";
  if (auto scale = getLossScaleAttr()) {
    p << " loss_scale(";
    if (auto rule = getLossScaleRule()) {
      p << "dynamic<init = ";
      p.printAttributeWithoutType(scale);
      for (auto [name, value] : llvm::zip(getLossScaleRuleNames(), *rule)) {
        p << ", " << name << " = ";
        p.printAttributeWithoutType(
            FloatAttr::get(Float64Type::get(getContext()), value));
      }
      p << ">";
    } else {
      p.printAttributeWithoutType(scale);
    }
    p << ")";
  }
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {"sym_name", "input_names", "input_gradients", "accumulate", "average",
       "clip_kind", "clip_value", "compute_type", "master_type", "stochastic",
       "keep_f32", "loss_scale", "loss_scale_rule", "input_splits",
       "output_names", "trained"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult EvalOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> inputs;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parseInputs(parser, result, inputs, getInputNamesAttrName(result.name),
                  getInputSplitsAttrName(result.name)))
    return failure();
  if (parser.parseArrow() ||
      parseOutputs(parser, result, getOutputNamesAttrName(result.name)))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("weights"))) {
    if (parser.parseLParen() || parser.parseKeyword("ema") ||
        parser.parseRParen())
      return failure();
    result.addAttribute(getEmaAttrName(result.name),
                        parser.getBuilder().getUnitAttr());
  }
  if (parseAttributes(parser, result))
    return failure();
  return parser.parseRegion(*result.addRegion(), inputs);
}

void EvalOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  printInputs(p, getBody(), getInputSplitsAttr());
  printOutputs(p, getOutputNames());
  if (getEma())
    p << " weights(ema)";
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {"sym_name", "input_names", "output_names", "ema", "input_splits"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult train::YieldOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Type> types;
  int32_t loss = 0, weight = 0;
  auto parseNamed = [&](StringRef keyword, int32_t &count) -> ParseResult {
    if (failed(parser.parseOptionalKeyword(keyword)))
      return success();
    count = 1;
    return failure(parser.parseLParen() ||
                   parser.parseOperand(operands.emplace_back()) ||
                   parser.parseRParen());
  };
  if (parser.parseOperandList(operands))
    return failure();
  int32_t values = operands.size();
  SMLoc loc = parser.getCurrentLocation();
  if (parseNamed("loss", loss) || parseNamed("weight", weight) ||
      parseAttributes(parser, result, /*keyword=*/false) ||
      parser.parseOptionalColonTypeList(types) ||
      parser.resolveOperands(operands, types, loc, result.operands))
    return failure();
  auto sizes = parser.getBuilder().getDenseI32ArrayAttr({values, loss, weight});
  result.getOrAddProperties<Properties>().setOperandSegmentSizes(
      sizes.asArrayRef());
  return success();
}

void train::YieldOp::print(OpAsmPrinter &p) {
  if (!getValues().empty())
    p << " " << getValues();
  if (getLoss())
    p << " loss(" << getLoss() << ")";
  if (getWeight())
    p << " weight(" << getWeight() << ")";
  p.printOptionalAttrDict((*this)->getAttrs(), {"operandSegmentSizes"});
  if (getNumOperands())
    p << " : " << getOperandTypes();
}
