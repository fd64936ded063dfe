//===- TrainDialect.cpp - The train dialect -------------------------------===//
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/DialectImplementation.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace trainc;

#include "trainc/Dialect/Train/TrainDialect.cpp.inc"
#include "trainc/Dialect/Train/TrainEnums.cpp.inc"
#include "trainc/Dialect/Train/TrainInterfaces.cpp.inc"

trainc_dtype train::getDType(Type type) {
  if (type.isF32())
    return TRAINC_F32;
  if (type.isF64())
    return TRAINC_F64;
  if (type.isBF16())
    return TRAINC_BF16;
  if (type.isF16())
    return TRAINC_F16;
  switch (type.getIntOrFloatBitWidth()) {
  case 1:
    return TRAINC_BOOL;
  case 8:
    return TRAINC_I8;
  case 16:
    return TRAINC_I16;
  case 32:
    return TRAINC_I32;
  default:
    return TRAINC_I64;
  }
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

static std::string keywordOf(StringRef name) { return name.lower(); }

static FailureOr<trainc_role> parseKeyword(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
#define TRAINC_ROLE(NAME, number, text)                                        \
  if (keyword == keywordOf(#NAME))                                             \
    return TRAINC_ROLE_##NAME;
#include "trainc/step_abi.def"
  std::string expected;
#define TRAINC_ROLE(NAME, number, text)                                        \
  expected += (expected.empty() ? "" : ", ") + keywordOf(#NAME);
#include "trainc/step_abi.def"
  return parser.emitError(loc, "expects a role of ")
         << expected << ", got " << keyword;
}

static std::string keywordOf(trainc_role role) {
  switch (role) {
#define TRAINC_ROLE(NAME, number, text)                                        \
  case TRAINC_ROLE_##NAME:                                                     \
    return keywordOf(#NAME);
#include "trainc/step_abi.def"
  }
  llvm_unreachable("a role of step_abi.def");
}

#define GET_ATTRDEF_CLASSES
#include "trainc/Dialect/Train/TrainAttributes.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "trainc/Dialect/Train/TrainTypes.cpp.inc"

Attribute train::RoleAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<trainc_role> role = parseKeyword(parser);
  if (failed(role) || parser.parseGreater())
    return {};
  return get(parser.getContext(), *role);
}

void train::RoleAttr::print(AsmPrinter &p) const {
  p << "<" << keywordOf(getValue()) << ">";
}

ParseResult train::parseRole(OpAsmParser &parser, RoleAttr &role) {
  FailureOr<trainc_role> value = parseKeyword(parser);
  if (failed(value))
    return failure();
  role = RoleAttr::get(parser.getContext(), *value);
  return success();
}

void train::printRole(OpAsmPrinter &p, Operation *, RoleAttr role) {
  p << keywordOf(role.getValue());
}

void train::TrainDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "trainc/Dialect/Train/TrainAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "trainc/Dialect/Train/TrainTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "trainc/Dialect/Train/TrainOps.cpp.inc"
      >();
}

LogicalResult train::verifyName(Operation *op, StringRef name, StringRef tag) {
  if (!name.contains('\0') && llvm::json::isUTF8(name))
    return success();
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::printEscapedString(name, os);
  return op->emitOpError("expects names of UTF-8 without zero bytes (")
         << tag << "), got \"" << text << "\"";
}

LogicalResult train::verifyNames(Operation *op, ArrayAttr names,
                                 StringRef tag) {
  return failure(
      llvm::any_of(names.getAsRange<StringAttr>(), [&](StringAttr name) {
        return failed(verifyName(op, name.getValue(), tag));
      }));
}

std::string train::stateRole(StringRef state) {
  return ("arena.state." + state).str();
}

std::string train::bufferArena(Type element) {
  std::string name = kBufferArena.str() + ".";
  llvm::raw_string_ostream(name) << element;
  return name;
}

std::string train::arenaName(StringRef role, Type element, ParamOp param) {
  std::string name = role.str() + ".";
  llvm::raw_string_ostream os(name);
  os << element;
  for (auto axis : param.getPartAxes().getAsRange<StringAttr>())
    os << "." << axis.getValue();
  if (StringAttr window = param.getWindowAttr();
      window && (role == kGradientArena || role == kMergedArena))
    os << "$" << window.getValue(); // which no axis' name has
  return name;
}

SymbolRefAttr train::sliceRef(MLIRContext *context, StringRef arena,
                              StringRef slice) {
  return SymbolRefAttr::get(context, arena,
                            FlatSymbolRefAttr::get(context, slice));
}

ParseResult train::parseAttributes(OpAsmParser &parser, OperationState &result,
                                   bool keyword) {
  SMLoc loc = parser.getCurrentLocation();
  if (keyword ? parser.parseOptionalAttrDictWithKeyword(result.attributes)
              : parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (auto twice = result.attributes.findDuplicate())
    return parser.emitError(loc, "expects '")
           << twice->getName().getValue() << "' once";
  return result.name.verifyInherentAttrs(result.attributes, [&] {
    return parser.emitError(loc) << "'" << result.name << "' op ";
  });
}

/// Whether `clauses` of `step` are those of `other`; a diagnostic if not.
static LogicalResult verifyClauses(train::StepOp step, train::StepOp other,
                                   ArrayRef<StringRef> clauses) {
  for (StringRef clause : clauses) {
    Attribute expected = other->getAttr(clause), found = step->getAttr(clause);
    if (expected == found)
      continue;
    InFlightDiagnostic error = step.emitOpError("expects the ")
                               << clause << " of the other steps";
    if (expected)
      error << ", " << expected;
    error << ", got ";
    if (found)
      error << found;
    else
      error << "none";
    error.attachNote(other.getLoc()) << "the first step is here";
    return failure();
  }
  return success();
}

/// The optimizers whose parameters `step` trains; all if it does not list them.
static DenseSet<Attribute> trainedBy(train::StepOp step) {
  DenseSet<Attribute> optimizers;
  if (ArrayAttr listed = step.getTrainedAttr()) {
    optimizers.insert_range(listed);
    return optimizers;
  }
  auto module = step->getParentOfType<ModuleOp>();
  for (auto optimizer : module.getOps<train::OptimizerOp>())
    optimizers.insert(FlatSymbolRefAttr::get(optimizer.getSymNameAttr()));
  return optimizers;
}

train::StepOp train::getStep(ModuleOp module) {
  auto steps = module.getOps<StepOp>();
  if (steps.empty()) {
    module.emitError("expects a train.step in the module, found none");
    return nullptr;
  }
  StepOp first = *steps.begin();
  DenseMap<Attribute, StepOp> trained; // by optimizer, by which step first
  for (StepOp step : steps) {
    if (failed(verifyClauses(
            step, first,
            {"compute_type", "master_type", "stochastic", "keep_f32"})))
      return nullptr;
    StepOp other = getFirstOfWindow(step);
    if (other != step) {
      if (failed(
              verifyClauses(step, other,
                            {"accumulate", "average", "clip_kind", "clip_value",
                             "loss_scale", "loss_scale_rule"})))
        return nullptr;
      continue;
    }
    DenseSet<Attribute> optimizers = trainedBy(step);
    for (auto optimizer : module.getOps<OptimizerOp>()) {
      auto name = FlatSymbolRefAttr::get(optimizer.getSymNameAttr());
      if (!optimizers.contains(name))
        continue;
      auto [it, inserted] = trained.try_emplace(name, step);
      if (inserted)
        continue;
      (step.emitOpError("expects to train what another step does, or nothing "
                        "of it (C11), got ")
       << name)
              .attachNote(it->second.getLoc())
          << "the other step is here";
      return nullptr;
    }
  }
  for (auto optimizer : module.getOps<OptimizerOp>())
    if (!trained.contains(FlatSymbolRefAttr::get(optimizer.getSymNameAttr()))) {
      optimizer.emitOpError("expects a step that trains it");
      return nullptr;
    }
  return first;
}

train::StepOp train::getFirstOfWindow(StepOp step) {
  auto steps = step->getParentOfType<ModuleOp>().getOps<StepOp>();
  if (llvm::hasSingleElement(steps))
    return step;
  DenseSet<Attribute> optimizers = trainedBy(step);
  return *llvm::find_if(
      steps, [&](StepOp other) { return trainedBy(other) == optimizers; });
}

StringAttr train::getWindow(StepOp step) {
  StepOp first = getFirstOfWindow(step);
  bool isFirst =
      first == *step->getParentOfType<ModuleOp>().getOps<StepOp>().begin();
  return isFirst ? StringAttr() : first.getSymNameAttr();
}

std::string train::windowScalar(StringAttr window, StringRef name) {
  return window ? (window.getValue() + "." + name).str() : name.str();
}

Attribute train::lookupHyper(ArrayAttr names, ArrayAttr values,
                             StringRef name) {
  for (auto [key, value] : llvm::zip(names, values))
    if (cast<StringAttr>(key).getValue() == name)
      return value;
  return {};
}
