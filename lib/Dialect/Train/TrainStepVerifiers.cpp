//===- TrainStepVerifiers.cpp - Checks of entries and their sources -------===//
#include "trainc/Dialect/Train/TrainLayout.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

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
    if (getLossScale()->convertToDouble() < least)
      return emitOpError("expects a loss scale of at least min (C5), got ")
             << getLossScale()->convertToDouble() << " and " << least;
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

/// The type behind `ref`: a parameter's, a buffer's, or that of an arena or of what is in
/// one; null if none.
static Type lookupStorage(Operation *user, SymbolRefAttr ref,
                          SymbolTableCollection &tables, Operation *&target) {
  auto module = user->getParentOfType<ModuleOp>();
  target = tables.lookupSymbolIn(module, ref.getRootReference());
  if (auto arena = dyn_cast_or_null<ArenaOp>(target))
    return getStoredType(arena, ref.getNestedReferences(), tables);
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
