//===- TrainDialect.cpp - The train dialect -------------------------------===//
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace trainc;

#include "trainc/Dialect/Train/TrainDialect.cpp.inc"
#include "trainc/Dialect/Train/TrainEnums.cpp.inc"

namespace {
/// Every op of the dialect may be inlined: functions of a source are only a way
/// to write a step in parts.
struct TrainInlinerInterface : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final {
    return true;
  }
};
} // namespace

void train::TrainDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "trainc/Dialect/Train/TrainOps.cpp.inc"
      >();
  addInterfaces<TrainInlinerInterface>();
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

std::string train::arenaName(StringRef role, Type element, ArrayAttr axes) {
  std::string name = role.str() + ".";
  llvm::raw_string_ostream os(name);
  os << element;
  for (auto axis : axes.getAsRange<StringAttr>())
    os << "." << axis.getValue();
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

train::StepOp train::getStep(ModuleOp module) {
  auto steps = module.getOps<StepOp>();
  if (steps.empty()) {
    module.emitError("expects a train.step in the module, found none");
    return nullptr;
  }
  StepOp first = *steps.begin();
  for (StepOp step : steps)
    for (StringRef clause : {"accumulate", "average", "clip_kind", "clip_value",
                             "compute_type", "master_type", "stochastic",
                             "keep_f32", "loss_scale", "loss_scale_rule"}) {
      Attribute expected = first->getAttr(clause),
                found = step->getAttr(clause);
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
      error.attachNote(first.getLoc()) << "the first step is here";
      return nullptr;
    }
  return first;
}

Attribute train::lookupHyper(ArrayAttr names, ArrayAttr values,
                             StringRef name) {
  for (auto [key, value] : llvm::zip(names, values))
    if (cast<StringAttr>(key).getValue() == name)
      return value;
  return {};
}
