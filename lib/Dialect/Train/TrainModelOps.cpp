//===- TrainModelOps.cpp - Parameters, optimizers, schedules --------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// kind or kind<v, ...> or an attribute.
static ParseResult parseInit(OpAsmParser &parser, Attribute &init) {
  StringRef kind;
  if (failed(parser.parseOptionalKeyword(&kind,
                                         {"zeros", "ones", "constant", "normal",
                                          "truncated_normal", "uniform"}))) {
    return parser.parseAttribute(init);
  }
  Builder &b = parser.getBuilder();
  SmallVector<Attribute> parts{b.getStringAttr(kind)};
  if (succeeded(parser.parseOptionalLess())) {
    auto parseOne = [&]() -> ParseResult {
      double value;
      if (parser.parseFloat(value))
        return failure();
      parts.push_back(b.getF64FloatAttr(value));
      return success();
    };
    if (parser.parseCommaSeparatedList(parseOne) || parser.parseGreater())
      return failure();
  }
  init = b.getArrayAttr(parts);
  return success();
}

static void printInit(OpAsmPrinter &p, Operation *, Attribute init) {
  auto parts = dyn_cast<ArrayAttr>(init);
  if (!parts || parts.empty() || !isa<StringAttr>(parts[0])) {
    p << init;
    return;
  }
  p << cast<StringAttr>(parts[0]).getValue();
  if (parts.size() == 1)
    return;
  p << "<";
  llvm::interleaveComma(parts.getValue().drop_front(), p, [&](Attribute value) {
    p.printAttributeWithoutType(value);
  });
  p << ">";
}

#define GET_OP_CLASSES
#include "trainc/Dialect/Train/TrainOps.cpp.inc"

/// `name = value, ...`: a value is a number, @symbol, "string", true or false.
static ParseResult parseHyperList(OpAsmParser &parser,
                                  AsmParser::Delimiter delimiter,
                                  SmallVectorImpl<Attribute> &names,
                                  SmallVectorImpl<Attribute> &values) {
  Builder &b = parser.getBuilder();
  return parser.parseCommaSeparatedList(delimiter, [&]() -> ParseResult {
    std::string name;
    if (parser.parseKeywordOrString(&name) || parser.parseEqual())
      return failure();
    names.push_back(b.getStringAttr(name));
    Attribute value;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseAttribute(value))
      return failure();
    if (auto number = dyn_cast<FloatAttr>(value))
      value = b.getF64FloatAttr(number.getValueAsDouble());
    else if (auto integer = dyn_cast<IntegerAttr>(value);
             integer && !isa<BoolAttr>(value))
      value = b.getF64FloatAttr(integer.getValue().signedRoundToDouble());
    if (!isa<FloatAttr, SymbolRefAttr, StringAttr, BoolAttr>(value))
      return parser.emitError(loc, "expects a number, a symbol, a string, true "
                                   "or false, got ")
             << value;
    values.push_back(value);
    return success();
  });
}

static void printHyperList(OpAsmPrinter &p, ArrayAttr names, ArrayAttr values) {
  llvm::interleaveComma(llvm::zip(names, values), p, [&](auto pair) {
    auto [name, value] = pair;
    p.printKeywordOrString(cast<StringAttr>(name).getValue());
    p << " = ";
    p.printAttributeWithoutType(value);
  });
}

static void printArguments(OpAsmPrinter &p, Region &region) {
  p << "(";
  llvm::interleaveComma(region.getArguments(), p, [&](BlockArgument argument) {
    p.printRegionArgument(argument);
  });
  p << ")";
}

/// `(args) {...}` where the clauses between are parsed by `clauses`.
static ParseResult parseScalarRegion(OpAsmParser &parser, Region &region,
                                     function_ref<ParseResult()> clauses) {
  SmallVector<OpAsmParser::Argument> arguments;
  return failure(parser.parseArgumentList(arguments,
                                          OpAsmParser::Delimiter::Paren,
                                          /*allowType=*/true) ||
                 clauses() || parser.parseRegion(region, arguments));
}

ParseResult ScheduleOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  StringAttr name;
  SmallVector<Attribute> names, values;
  Region *body = result.addRegion();
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes))
    return failure();
  if (succeeded(parser.parseOptionalEqual())) {
    std::string kind;
    if (parser.parseKeywordOrString(&kind) ||
        parseHyperList(parser, AsmParser::Delimiter::OptionalLessGreater, names,
                       values))
      return failure();
    result.addAttribute(getKindAttrName(result.name), b.getStringAttr(kind));
  } else {
    auto clauses = [&]() -> ParseResult {
      if (succeeded(parser.parseOptionalKeyword("hyper")))
        return parseHyperList(parser, AsmParser::Delimiter::Paren, names,
                              values);
      return success();
    };
    if (parseScalarRegion(parser, *body, clauses))
      return failure();
  }
  result.addAttribute(getHyperNamesAttrName(result.name),
                      b.getArrayAttr(names));
  result.addAttribute(getHyperValuesAttrName(result.name),
                      b.getArrayAttr(values));
  return parseAttributes(parser, result);
}

void ScheduleOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  if (auto kind = getKind()) {
    p << " = ";
    p.printKeywordOrString(*kind);
    if (!getHyperNames().empty()) {
      p << "<";
      printHyperList(p, getHyperNames(), getHyperValues());
      p << ">";
    }
  } else {
    printArguments(p, getBody());
    if (!getHyperNames().empty()) {
      p << " hyper(";
      printHyperList(p, getHyperNames(), getHyperValues());
      p << ")";
    }
    p << " ";
    p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  }
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {"sym_name", "kind", "hyper_names", "hyper_values"});
}

ParseResult OptimizerOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  StringAttr name;
  SmallVector<Attribute> stateNames, stateValues, names, values;
  Region *body = result.addRegion();
  Region *scaled = result.addRegion();
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes))
    return failure();
  auto options = [&]() -> ParseResult {
    while (true) {
      if (succeeded(parser.parseOptionalKeyword("ema"))) {
        double decay;
        if (parser.parseLParen() || parser.parseFloat(decay) ||
            parser.parseRParen())
          return failure();
        result.addAttribute(getEmaAttrName(result.name),
                            b.getF64FloatAttr(decay));
      } else if (succeeded(parser.parseOptionalKeyword("clip"))) {
        bool value = succeeded(parser.parseOptionalLParen());
        bool off = value && succeeded(parser.parseOptionalKeyword("false"));
        if (!off && (!value || failed(parser.parseOptionalKeyword("true"))))
          return parser.emitError(parser.getCurrentLocation(),
                                  "expected '(true)' or '(false)'");
        if (parser.parseRParen())
          return failure();
        result.addAttribute(getClipAttrName(result.name), b.getBoolAttr(!off));
      } else if (succeeded(parser.parseOptionalKeyword("orthogonal"))) {
        SmallVector<Attribute> keys, numbers;
        if (parseHyperList(parser, AsmParser::Delimiter::LessGreater, keys,
                           numbers))
          return failure();
        NamedAttrList entries;
        for (auto [key, number] : llvm::zip(keys, numbers))
          entries.append(cast<StringAttr>(key), number);
        if (entries.findDuplicate())
          return parser.emitError(parser.getCurrentLocation(),
                                  "expected each value of orthogonal once");
        result.addAttribute(getOrthogonalAttrName(result.name),
                            entries.getDictionary(b.getContext()));
      } else {
        return success();
      }
    }
  };
  if (succeeded(parser.parseOptionalEqual())) {
    std::string kind;
    if (parser.parseKeywordOrString(&kind) ||
        parseHyperList(parser, AsmParser::Delimiter::OptionalLessGreater, names,
                       values) ||
        options())
      return failure();
    result.addAttribute(getKindAttrName(result.name), b.getStringAttr(kind));
  } else {
    auto clauses = [&]() -> ParseResult {
      if (succeeded(parser.parseOptionalKeyword("state")) &&
          parseHyperList(parser, AsmParser::Delimiter::Paren, stateNames,
                         stateValues))
        return failure();
      if (succeeded(parser.parseOptionalKeyword("hyper")) &&
          parseHyperList(parser, AsmParser::Delimiter::Paren, names, values))
        return failure();
      return options();
    };
    if (parseScalarRegion(parser, *body, clauses))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("scaled")) &&
        parseScalarRegion(parser, *scaled, [] { return success(); }))
      return failure();
  }
  result.addAttribute(getStateNamesAttrName(result.name),
                      b.getArrayAttr(stateNames));
  result.addAttribute(getStateValuesAttrName(result.name),
                      b.getArrayAttr(stateValues));
  result.addAttribute(getHyperNamesAttrName(result.name),
                      b.getArrayAttr(names));
  result.addAttribute(getHyperValuesAttrName(result.name),
                      b.getArrayAttr(values));
  return parseAttributes(parser, result);
}

void OptimizerOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  auto options = [&] {
    if (auto ema = getEmaAttr()) {
      p << " ema(";
      p.printAttributeWithoutType(ema);
      p << ")";
    }
    if (!getClip())
      p << " clip(false)";
    if (DictionaryAttr orthogonal = getOrthogonalAttr()) {
      Builder b(getContext());
      SmallVector<Attribute> names, values;
      for (NamedAttribute entry : orthogonal) {
        names.push_back(entry.getName());
        values.push_back(entry.getValue());
      }
      p << " orthogonal<";
      printHyperList(p, b.getArrayAttr(names), b.getArrayAttr(values));
      p << ">";
    }
  };
  if (auto kind = getKind()) {
    p << " = ";
    p.printKeywordOrString(*kind);
    if (!getHyperNames().empty()) {
      p << "<";
      printHyperList(p, getHyperNames(), getHyperValues());
      p << ">";
    }
    options();
  } else {
    printArguments(p, getBody());
    if (!getStateNames().empty()) {
      p << " state(";
      printHyperList(p, getStateNames(), getStateValues());
      p << ")";
    }
    if (!getHyperNames().empty()) {
      p << " hyper(";
      printHyperList(p, getHyperNames(), getHyperValues());
      p << ")";
    }
    options();
    p << " ";
    p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
    if (!getScaled().empty()) {
      p << " scaled";
      printArguments(p, getScaled());
      p << " ";
      p.printRegion(getScaled(), /*printEntryBlockArgs=*/false);
    }
  }
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {"sym_name", "kind", "state_names", "state_values", "hyper_names",
       "hyper_values", "ema", "clip", "orthogonal"});
}

/// Names the arguments of a scalar region: `leading`, then each list.
static void nameArguments(Region &region, ArrayRef<StringRef> leading,
                          ArrayRef<ArrayAttr> lists,
                          OpAsmSetValueNameFn setName) {
  SmallVector<StringRef> names(leading);
  for (ArrayAttr list : lists)
    for (Attribute name : list)
      names.push_back(cast<StringAttr>(name).getValue());
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

void ScheduleOp::getAsmBlockArgumentNames(Region &region,
                                          OpAsmSetValueNameFn setName) {
  nameArguments(region, {"t"}, {getHyperNames()}, setName);
}

void OptimizerOp::getAsmBlockArgumentNames(Region &region,
                                           OpAsmSetValueNameFn setName) {
  ArrayAttr lists[] = {getStateNames(), getHyperNames()};
  if (&region == &getBody())
    nameArguments(region, {"p", "g"}, lists, setName);
  else
    nameArguments(region, {"p", "u", "p_norm", "u_norm"}, lists, setName);
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static LogicalResult verifyInit(Operation *op, Attribute init, Type type,
                                StringRef tag) {
  if (auto elements = dyn_cast<ElementsAttr>(init)) {
    if (elements.getType() != type)
      return op->emitOpError("expects an init of its type (")
             << tag << "), got " << elements.getType() << " for " << type;
    if (!nn::isElements(init))
      return op->emitOpError("expects an init with the bytes of all elements (")
             << tag << "), got " << init;
    return success();
  }
  auto parts = dyn_cast<ArrayAttr>(init);
  auto kind =
      parts && !parts.empty() ? dyn_cast<StringAttr>(parts[0]) : StringAttr();
  if (!kind)
    return op->emitOpError("expects an init that names a distribution or "
                           "lists elements (")
           << tag << "), got " << init;
  size_t arguments = parts.size() - 1;
  StringRef name = kind.getValue();
  bool ok = llvm::StringSwitch<bool>(name)
                .Cases({"zeros", "ones"}, arguments == 0)
                .Case("constant", arguments == 1)
                .Case("normal", arguments == 1 || arguments == 2)
                .Cases({"truncated_normal", "uniform"}, arguments == 2)
                .Default(false);
  for (Attribute value : parts.getValue().drop_front())
    ok &= isa<FloatAttr>(value);
  if (!ok)
    return op->emitOpError("expects a known init with its arguments (")
           << tag << "), got " << name << " with " << arguments << " arguments";
  return success();
}

/// (C6) of a parameter that is a part.
static LogicalResult verifyPart(ParamOp param) {
  RankedTensorType part = param.getTensorType(), whole = param.getWholeType();
  bool fits = param.getSplit() && part.getRank() == whole.getRank() &&
              part.getElementType() == whole.getElementType();
  MeshOp mesh = getMesh(param->getParentOfType<ModuleOp>());
  for (int64_t i = 0; fits && i < part.getRank(); ++i) {
    ArrayAttr split = *param.getSplit();
    int64_t parts = i < static_cast<int64_t>(split.size())
                        ? mesh.getCount(cast<ArrayAttr>(split[i]))
                        : 1;
    ArrayRef<int64_t> blocks = param.getBlocks().value_or(ArrayRef<int64_t>());
    int64_t count = static_cast<int64_t>(blocks.size()) == part.getRank()
                        ? std::max<int64_t>(1, blocks[i])
                        : 1;
    fits = part.getDimSize(i) ==
           count * llvm::divideCeilSigned(whole.getDimSize(i) / count, parts);
  }
  if (fits)
    return success();
  return param.emitOpError("expects to be a part of what it is of, by its "
                           "split (C6), got ")
         << part << " of " << whole;
}

/// (C7) of a parameter with blocks.
static LogicalResult verifyBlocks(ParamOp param) {
  ArrayRef<int64_t> blocks = *param.getBlocks();
  ArrayRef<int64_t> shape = param.getWholeType().getShape();
  bool fits = param.getSplit() && blocks.size() == shape.size();
  for (size_t i = 0; fits && i < blocks.size(); ++i)
    fits = blocks[i] >= 1 && shape[i] % blocks[i] == 0;
  if (fits)
    return success();
  return param.emitOpError("expects a split, and blocks that divide the sizes, "
                           "one for each dimension (C7), got blocks [")
         << blocks << "] for " << param.getWholeType();
}

/// Checks that `name`, of a parameter or buffer, can be the name of a tensor of a
/// checkpoint, where other things have names, too.
static LogicalResult verifyTensorName(Operation *op, StringRef name,
                                      StringRef tag) {
  bool isTaken =
      name == "__metadata__" ||
      llvm::any_of(std::initializer_list<StringRef>{"scalar/", "optimizer/",
                                                    "gradient/", "rank/"},
                   [&](StringRef prefix) { return name.starts_with(prefix); });
  if (isTaken)
    return op->emitOpError("expects a name that a checkpoint has for nothing "
                           "else (")
           << tag << "), got '" << name << "'";
  return verifyName(op, name, tag);
}

/// Checks the names and numbers of a schedule or optimizer.
template <typename Op>
static LogicalResult verifyNumbers(Op op, StringRef tag) {
  if (failed(verifyName(op, op.getSymName(), tag)) ||
      failed(verifyNames(op, op.getHyperNames(), tag)))
    return failure();
  for (auto [name, value] : llvm::zip(op.getHyperNames(), op.getHyperValues()))
    if (auto number = dyn_cast<FloatAttr>(value);
        number && !number.getValue().isFinite())
      return op.emitOpError("expects finite numbers (")
             << tag << "), got " << number.getValueAsDouble() << " for "
             << cast<StringAttr>(name).getValue();
  return success();
}

LogicalResult ParamOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !nn::isLegalTensor(type) ||
      !isa<FloatType>(type.getElementType()) ||
      !nn::isLegalElement(type.getElementType())) {
    InFlightDiagnostic diag =
        emitOpError("expects a float tensor of static shape, 1 to 2^40 "
                    "elements (C1), got ")
        << getType();
    if (type)
      for (int64_t i = 0; i < type.getRank(); ++i)
        if (type.isDynamicDim(i))
          diag.attachNote() << "dimension " << i << " is dynamic";
    return diag;
  }
  if (getFrozen() == getOptimizer().has_value())
    return emitOpError("expects an optimizer unless it is frozen (C2), got ")
           << (getFrozen() ? "both" : "neither");
  if (auto ref = getOptimizerAttr()) {
    Operation *target =
        SymbolTable::lookupSymbolIn((*this)->getParentOp(), ref);
    if (!isa_and_nonnull<OptimizerOp>(target))
      return emitOpError("expects a train.optimizer of the module (C3), got ")
             << ref;
  }
  if (getSplit() && failed(verifySplit(*this, *getSplit(), getType(), "C5")))
    return failure();
  if (getWhole() && failed(verifyPart(*this)))
    return failure();
  if (getBlocks() && failed(verifyBlocks(*this)))
    return failure();
  if (failed(verifyTensorName(*this, getSymName(), "C8")))
    return failure();
  return verifyInit(*this, getInit(), getWholeType(), "C4");
}

ArrayAttr ParamOp::getPartAxes() {
  SmallVector<Attribute> axes;
  auto isSplitOver = [&](Attribute axis) {
    return llvm::any_of(
        getSplit()->getAsRange<ArrayAttr>(),
        [&](ArrayAttr dim) { return llvm::is_contained(dim, axis); });
  };
  MeshOp mesh = getMesh((*this)->getParentOfType<ModuleOp>());
  if (getWhole() && getSplit() && mesh)
    for (auto [axis, size] : llvm::zip(mesh.getAxes(), mesh.getSizes()))
      if (size > 1 && isSplitOver(axis))
        axes.push_back(axis);
  return ArrayAttr::get(getContext(), axes);
}

LogicalResult BufferOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !nn::isLegalTensor(type) ||
      !nn::isLegalElement(type.getElementType()))
    return emitOpError("expects a tensor of numbers of static shape, 1 to 2^40 "
                       "elements (C2), got ")
           << getType();
  if (failed(verifyTensorName(*this, getSymName(), "C3")))
    return failure();
  return verifyInit(*this, getInit(), getType(), "C1");
}

/// Checks that `region` holds pure scalar arith and math ops only.
static LogicalResult verifyScalarOps(Operation *op, Region &region,
                                     StringRef tag) {
  for (Operation &inner : region.front().without_terminator()) {
    Dialect *dialect = inner.getDialect();
    if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(dialect) ||
        !isMemoryEffectFree(&inner) || inner.getNumRegions() != 0)
      return (op->emitOpError("expects side-effect-free scalar arith and math "
                              "ops only (")
              << tag << "), got '" << inner.getName() << "'")
                 .attachNote(inner.getLoc())
             << "here";
    for (Type type : inner.getResultTypes())
      if (!type.isIntOrFloat())
        return op->emitOpError("expects scalars in its region (")
               << tag << "), got " << type;
  }
  return success();
}

static LogicalResult verifyYield(Operation *op, Region &region,
                                 ArrayRef<Type> expected, StringRef tag) {
  auto yield = dyn_cast<train::YieldOp>(region.front().getTerminator());
  if (!yield || yield.getLoss() || yield.getWeight() ||
      !llvm::equal(yield.getValues().getTypes(), expected))
    return op->emitOpError("expects a region that yields ")
           << expected << " (" << tag << "), got "
           << region.front().getTerminator()->getOperandTypes();
  return success();
}

LogicalResult ScheduleOp::verify() {
  if (getKind().has_value() == !getBody().empty())
    return emitOpError("expects either a kind or a region (C1), got ")
           << (getKind() ? "both" : "neither");
  if (failed(verifyNumbers(*this, "C4")))
    return failure();
  if (getBody().empty())
    return success();
  Type f64 = Float64Type::get(getContext());
  Block &block = getBody().front();
  SmallVector<Type> arguments(1 + getHyperNames().size(), f64);
  if (!llvm::equal(block.getArgumentTypes(), arguments))
    return emitOpError("expects a region with arguments ")
           << arguments << " (C2), got " << block.getArgumentTypes();
  if (failed(verifyYield(*this, getBody(), {f64}, "C2")))
    return failure();
  return verifyScalarOps(*this, getBody(), "C3");
}

/// (C7) of an optimizer.
static LogicalResult verifyOrthogonal(OptimizerOp op) {
  DictionaryAttr values = op.getOrthogonalAttr();
  bool ok = values.size() == 8 && !op.getScaled().empty();
  for (StringRef name : {"a", "b", "c", "eps", "steps"}) {
    auto number = values.getAs<FloatAttr>(name);
    ok &= number && number.getValue().isFinite();
  }
  int64_t scales = 0;
  for (StringRef name : {"bf16", "match_rms", "unclamped"}) {
    auto flag = values.getAs<BoolAttr>(name);
    ok &= flag != nullptr;
    scales += flag && flag.getValue() && name != "bf16";
  }
  double steps = ok ? values.getAs<FloatAttr>("steps").getValueAsDouble() : 0;
  if (scales > 1 || steps < 1 || steps > 100 || steps != std::floor(steps))
    return op.emitOpError("expects a second region and finite a, b, c and eps, "
                          "steps from 1 to 100, bf16, and at most one of "
                          "match_rms and unclamped for orthogonal (C7), got ")
           << values
           << (op.getScaled().empty() ? " without a second region" : "");
  return success();
}

LogicalResult OptimizerOp::verify() {
  if (getKind().has_value() == !getBody().empty())
    return emitOpError("expects either a kind or a region (C1), got ")
           << (getKind() ? "both" : "neither");
  if (getOrthogonal() && failed(verifyOrthogonal(*this)))
    return failure();
  if (failed(verifyNumbers(*this, "C6")) ||
      failed(verifyNames(*this, getStateNames(), "C6")))
    return failure();
  for (auto name : getStateNames().getAsRange<StringAttr>())
    if (name.getValue().contains('/'))
      return emitOpError("expects names of states without '/' (C6), got ")
             << name;
  if (auto decay = getEmaAttr(); decay && !decay.getValue().isFinite())
    return emitOpError("expects finite numbers (C6), got ")
           << decay.getValueAsDouble() << " for ema";
  for (Attribute value : getHyperValues()) {
    if (auto ref = dyn_cast<SymbolRefAttr>(value)) {
      Operation *target =
          SymbolTable::lookupSymbolIn((*this)->getParentOp(), ref);
      if (!isa_and_nonnull<ScheduleOp>(target))
        return emitOpError("expects a train.schedule of the module (C5), got ")
               << ref;
    }
  }
  if (getBody().empty())
    return success();
  Block &block = getBody().front();
  size_t states = getStateNames().size(), hyper = getHyperNames().size();
  Type type = block.getNumArguments() ? block.getArgument(0).getType() : Type();
  auto checkArguments = [&](Block &block, size_t tensors) -> LogicalResult {
    bool ok = block.getNumArguments() == tensors + hyper &&
              isa<FloatType>(type) && nn::isLegalElement(type);
    for (size_t i = 0; ok && i < tensors + hyper; ++i) {
      Type argument = block.getArgument(i).getType();
      ok = argument == type || (i >= tensors && argument.isF64());
    }
    if (!ok)
      return emitOpError("expects a region with ")
             << tensors << " arguments of one float type and " << hyper
             << " of that type or f64 (C2), got " << block.getArgumentTypes();
    return success();
  };
  if (!type || failed(checkArguments(block, 2 + states)))
    return type ? failure() : emitOpError("expects region arguments (C2)");
  if (failed(verifyYield(*this, getBody(), SmallVector<Type>(1 + states, type),
                         "C3")) ||
      failed(verifyScalarOps(*this, getBody(), "C4")))
    return failure();
  if (getScaled().empty())
    return success();
  if (failed(checkArguments(getScaled().front(), 4 + states)) ||
      failed(verifyYield(*this, getScaled(),
                         SmallVector<Type>(1 + states, type), "C3")))
    return failure();
  return verifyScalarOps(*this, getScaled(), "C4");
}
