//===- TrainModelVerifiers.cpp - Checks of parameters, optimizers and schedules -===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

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
  bool isDrawn = name == "uniform" || name.contains("normal");
  if (isDrawn && !isa<FloatType>(getElementTypeOrSelf(type)))
    return op->emitOpError("expects numbers that are drawn to be floats (")
           << tag << "), got " << name << " for " << type;
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
  return nn::verifyScalarOps(*this, getBody(), "C3");
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
  llvm::StringSet<> seen;
  if (getEma())
    seen.insert("ema");
  for (auto name : getStateNames().getAsRange<StringAttr>())
    if (!seen.insert(name.getValue()).second)
      return emitOpError("expects states of distinct names, none of them 'ema' "
                         "with an average (C6), got ")
             << name << " twice";
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
      failed(nn::verifyScalarOps(*this, getBody(), "C4")))
    return failure();
  if (getScaled().empty())
    return success();
  if (failed(checkArguments(getScaled().front(), 4 + states)) ||
      failed(verifyYield(*this, getScaled(),
                         SmallVector<Type>(1 + states, type), "C3")))
    return failure();
  return nn::verifyScalarOps(*this, getScaled(), "C4");
}
