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

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// Checks that all `types` are legal tensors of numbers or i1.
static LogicalResult verifyPorts(Operation *op, StringRef what, TypeRange types,
                                 StringRef tag) {
  for (auto [i, type] : llvm::enumerate(types)) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !nn::isLegalElement(tensor.getElementType()))
      return op->emitOpError("expects ")
             << what << " " << i << " to be a tensor of numbers (" << tag
             << "), got " << type;
    for (int64_t dim = 0; dim < tensor.getRank(); ++dim)
      if (tensor.isDynamicDim(dim))
        return op->emitOpError("expects static shapes (")
               << tag << "), got dynamic dimension " << dim << " of " << what
               << " " << i << ": " << type;
    if (!nn::isLegalTensor(tensor))
      return op->emitOpError("expects 1 to 2^40 elements and no encoding (")
             << tag << "), got " << what << " " << i << ": " << type;
  }
  return success();
}

/// Checks `splits`, one for each of `types` if there are any.
static LogicalResult verifySplits(Operation *op, ArrayAttr splits,
                                  TypeRange types, StringRef tag) {
  if (!splits)
    return success();
  for (auto [split, type] : llvm::zip(splits, types))
    if (failed(verifySplit(op, split, type, tag)))
      return failure();
  return success();
}

/// Checks that `splits` are as many as `count` lists of lists, as printing needs.
static LogicalResult verifySplitLists(Operation *op, ArrayAttr splits,
                                      size_t count, StringRef tag) {
  auto isSplit = [](Attribute split) {
    auto dims = dyn_cast<ArrayAttr>(split);
    return dims && llvm::all_of(dims, [](Attribute dim) {
             auto axes = dyn_cast<ArrayAttr>(dim);
             return axes && llvm::all_of(axes, llvm::IsaPred<StringAttr>);
           });
  };
  if (!splits || (splits.size() == count && llvm::all_of(splits, isSplit)))
    return success();
  return op->emitOpError("expects splits of ")
         << count << " tensors, each a list of axes per dimension (" << tag
         << "), got " << splits;
}

LogicalResult StepOp::verify() {
  auto yield = dyn_cast<train::YieldOp>(getBody().front().getTerminator());
  bool gradients = getInputGradients().has_value();
  if (!yield || (!yield.getLoss() && !gradients))
    return emitOpError("expects a body that yields a loss (C1)");
  if (gradients && getInputGradients()->size() != getBody().getNumArguments())
    return emitOpError("expects a gradient or none per input (C6), got ")
           << getInputGradientsAttr();
  for (Value value : {yield.getLoss(), yield.getWeight()}) {
    if (!value)
      continue;
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || type.getRank() != 0 || !isa<FloatType>(type.getElementType()))
      return emitOpError("expects loss and weight to be rank-0 float tensors "
                         "(C1), got ")
             << value.getType();
  }
  if (yield.getValues().size() != getOutputNames().size())
    return emitOpError("expects a body that yields ")
           << getOutputNames().size() << " outputs (C10), got "
           << yield.getValues().size();
  // Micro-steps of a window are counted in 32 bits.
  if (int64_t k = getAccumulateAttr().getInt(); k < 1 || k > INT32_MAX)
    return emitOpError("expects accumulate from 1 to 2147483647 (C2), got ")
           << k;
  auto isPositive = [](double x) { return x > 0 && std::isfinite(x); };
  double clip = getClipValue().convertToDouble();
  if (getClipKind() != ClipKind::none && !isPositive(clip))
    return emitOpError("expects a finite clip > 0 (C3), got ") << clip;
  if (auto scale = getLossScale();
      scale && !isPositive(scale->convertToDouble()))
    return emitOpError("expects a finite loss scale > 0 (C5), got ")
           << scale->convertToDouble();
  if (auto rule = getLossScaleRule()) {
    if (!getLossScale() || rule->size() != getLossScaleRuleNames().size())
      return emitOpError("expects a loss scale and its four numbers (C5)");
    double growth = (*rule)[0], backoff = (*rule)[1], interval = (*rule)[2],
           least = (*rule)[3];
    bool fits = growth >= 1 && backoff > 0 && backoff <= 1 && interval >= 1 &&
                least > 0;
    if (!fits || !llvm::all_of(*rule, isPositive))
      return emitOpError("expects growth >= 1, 0 < backoff <= 1, interval >= 1 "
                         "and min > 0, all finite (C5), got ")
             << growth << ", " << backoff << ", " << interval << " and "
             << least;
  }
  auto isNarrow = [](Type type) { return type.isBF16() || type.isF16(); };
  if (auto type = getMasterType(); type && !type->isF32() && !isNarrow(*type))
    return emitOpError("expects a master of f32, bf16 or f16 (C7), got ")
           << *type;
  if (getStochastic() && (!getMasterType() || !isNarrow(*getMasterType())))
    return emitOpError("expects a master of bf16 or f16 for stochastic "
                       "rounding (C7)");
  if (failed(verifySplitLists(*this, getInputSplitsAttr(),
                              getBody().getNumArguments(), "C8")) ||
      failed(verifySplitLists(*this, getOutputSplitsAttr(),
                              getOutputNames().size(), "C8")) ||
      failed(verifyName(*this, getSymName(), "C9")) ||
      failed(verifyNames(*this, getInputNames(), "C9")) ||
      failed(verifyNames(*this, getOutputNames(), "C9")) ||
      failed(verifyPorts(*this, "output", yield.getValues().getTypes(), "C10")))
    return failure();
  return verifyPorts(*this, "input", getBody().getArgumentTypes(), "C4");
}

LogicalResult StepOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto module = (*this)->getParentOfType<ModuleOp>();
  auto yield = cast<train::YieldOp>(getBody().front().getTerminator());
  if (failed(verifySplits(*this, getInputSplitsAttr(),
                          getBody().getArgumentTypes(), "C8")) ||
      failed(verifySplits(*this, getOutputSplitsAttr(),
                          yield.getValues().getTypes(), "C8")))
    return failure();
  if (ArrayAttr over = getOverAttr()) {
    auto any = RankedTensorType::get({1}, IntegerType::get(getContext(), 1));
    if (failed(
            verifySplit(*this, ArrayAttr::get(getContext(), over), any, "C8")))
      return failure();
  }
  if (ArrayAttr trained = getTrainedAttr()) {
    if (trained.empty())
      return emitOpError("expects to train an optimizer or more (C11)");
    DenseSet<Attribute> known;
    for (Attribute name : trained) {
      auto ref = dyn_cast<FlatSymbolRefAttr>(name);
      if (!ref || !known.insert(ref).second ||
          !tables.lookupSymbolIn<OptimizerOp>(module, ref.getAttr()))
        return emitOpError("expects to train optimizers, each once (C11), got ")
               << name;
    }
  }
  for (BlockArgument input : getBody().getArguments()) {
    FlatSymbolRefAttr name = getInputGradient(input.getArgNumber());
    if (!name)
      continue;
    auto param = tables.lookupSymbolIn<ParamOp>(module, name.getAttr());
    if (!param || !trains(param))
      return emitOpError("expects the gradient of a parameter that it trains "
                         "(C6), got ")
             << name;
    auto type = cast<RankedTensorType>(input.getType());
    if (type.getShape() != param.getTensorType().getShape() ||
        !isa<FloatType>(type.getElementType()))
      return (emitOpError("expects the shape of ")
              << name << " and float elements (C6), got " << type)
                 .attachNote(param.getLoc())
             << "declared here as " << param.getTensorType();
  }
  return success();
}

LogicalResult EvalOp::verify() {
  auto yield = dyn_cast<train::YieldOp>(getBody().front().getTerminator());
  if (!yield || yield.getLoss() || yield.getWeight() ||
      yield.getValues().size() != getOutputNames().size())
    return emitOpError("expects a body that yields ")
           << getOutputNames().size() << " values (C1), got "
           << getBody().front().getTerminator()->getNumOperands();
  if (failed(verifyPorts(*this, "input", getBody().getArgumentTypes(), "C2")) ||
      failed(verifyPorts(*this, "output", yield.getOperandTypes(), "C2")) ||
      failed(verifySplitLists(*this, getInputSplitsAttr(),
                              getBody().getNumArguments(), "C4")) ||
      failed(verifySplitLists(*this, getOutputSplitsAttr(),
                              getOutputNames().size(), "C4")) ||
      failed(verifyName(*this, getSymName(), "C5")) ||
      failed(verifyNames(*this, getInputNames(), "C5")) ||
      failed(verifyNames(*this, getOutputNames(), "C5")))
    return failure();
  WalkResult result = walk([&](WriteOp write) {
    write.emitOpError("is not allowed in a train.eval (C3)");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

LogicalResult EvalOp::verifySymbolUses(SymbolTableCollection &) {
  Operation *yield = getBody().front().getTerminator();
  if (failed(verifySplits(*this, getInputSplitsAttr(),
                          getBody().getArgumentTypes(), "C4")))
    return failure();
  return verifySplits(*this, getOutputSplitsAttr(), yield->getOperandTypes(),
                      "C4");
}

LogicalResult RecomputeOp::verify() {
  Block &block = getBody().front();
  auto yield = dyn_cast<train::YieldOp>(block.getTerminator());
  if (block.getNumArguments() || !yield || yield.getLoss() ||
      yield.getWeight() || yield.getOperandTypes() != getResultTypes())
    return emitOpError("expects a block without arguments that yields its "
                       "result types (C1), ")
           << getResultTypes() << ", got a yield of "
           << block.getTerminator()->getOperandTypes();
  if (auto outer = (*this)->getParentOfType<RecomputeOp>())
    return (
        emitOpError(
            "expects an entry or a function around it (C2), got another region")
            .attachNote(outer.getLoc())
        << "the outer one is here");
  WalkResult result = walk([&](WriteOp write) {
    write.emitOpError("is not allowed in a train.recompute (C3)");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// The type behind `ref`: a parameter's, a buffer's, a slice's or an arena's; null
/// if none.
static Type lookupStorage(Operation *user, SymbolRefAttr ref,
                          SymbolTableCollection &tables, Operation *&target) {
  auto module = user->getParentOfType<ModuleOp>();
  target = tables.lookupSymbolIn(module, ref.getRootReference());
  if (auto arena = dyn_cast_or_null<ArenaOp>(target)) {
    if (ref.getNestedReferences().empty())
      return arena.getFlatType();
    if (ref.getNestedReferences().size() != 1)
      return {};
    int64_t i = arena.findSlice(ref.getLeafReference());
    return i < 0 ? Type() : cast<TypeAttr>(arena.getTypes()[i]).getValue();
  }
  if (!ref.getNestedReferences().empty())
    return {};
  if (auto param = dyn_cast_or_null<ParamOp>(target))
    return param.getType();
  if (auto buffer = dyn_cast_or_null<BufferOp>(target))
    return buffer.getType();
  return {};
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &tables) {
  Operation *target = nullptr;
  Type type = lookupStorage(*this, getSource(), tables, target);
  if (!type)
    return emitOpError("expects a parameter, buffer or slice (C1), got ")
           << getSource();
  if (type != getType())
    return (emitOpError("expects the type of ")
            << getSource() << " (C2), " << type << ", got " << getType())
               .attachNote(target->getLoc())
           << "declared here";
  return success();
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &tables) {
  Operation *target = nullptr;
  Type type = lookupStorage(*this, getTarget(), tables, target);
  if (!type || isa<ParamOp>(target))
    return emitOpError("expects a buffer or slice (C1), got ") << getTarget();
  if (type != getValue().getType())
    return (emitOpError("expects the type of ")
            << getTarget() << " (C2), " << type << ", got "
            << getValue().getType())
               .attachNote(target->getLoc())
           << "declared here";
  return success();
}
