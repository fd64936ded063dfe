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
