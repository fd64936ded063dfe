//===- VerifyWorkgroups.cpp - What all workgroups do ----------------------===//
#include "VerifyWorkgroups.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace trainc;

namespace {
/// The values of a function that depend on some of its arguments.
struct Dependence {
  DenseSet<Value> values;
  /// Operations whose regions run, or how often, as such values say.
  DenseSet<Operation *> controlled;

  bool has(ValueRange range) const {
    return llvm::any_of(range, [&](Value v) { return values.contains(v); });
  }
  bool isControlled(Operation *op) const {
    for (; op; op = op->getParentOp())
      if (controlled.contains(op))
        return true;
    return false;
  }
};
} // namespace

/// What the number of the workgroup decides. Loops carry values from the end of their
/// region back to its begin, so that all is looked at until nothing is added.
static Dependence findNumbered(func::FuncOp function) {
  Dependence on;
  on.values.insert(function.getArguments().back());
  auto add = [&](ValueRange range) {
    bool added = false;
    for (Value value : range)
      added |= on.values.insert(value).second;
    return added;
  };
  bool changed = true;
  while (changed) {
    changed = false;
    function.getBody().walk([&](Operation *op) {
      bool numbered = on.has(op->getOperands()) || on.isControlled(op);
      if (numbered && op->getNumRegions() && !on.isControlled(op))
        changed |= on.controlled.insert(op).second;
      if (op->hasTrait<OpTrait::IsTerminator>() && numbered &&
          op->getParentOp() != function) {
        Operation *parent = op->getParentOp();
        changed |= add(parent->getResults());
        for (Region &region : parent->getRegions())
          changed |= add(region.getArguments());
      }
      if (!numbered)
        return;
      changed |= add(op->getResults());
      for (Region &region : op->getRegions())
        changed |= add(region.getArguments());
    });
  }
  return on;
}

/// Views of the arguments that are operands, and what their addresses are made of.
static Dependence findViews(func::FuncOp function) {
  Dependence on;
  size_t count = function.getNumArguments() - 1;
  if (function->hasAttr("scratch"))
    --count;
  for (BlockArgument argument : function.getArguments().take_front(count))
    on.values.insert(argument);
  function.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (on.has(op->getOperands()) && op->getNumRegions() == 0 &&
        isMemoryEffectFree(op))
      on.values.insert(op->result_begin(), op->result_end());
  });
  return on;
}

/// Whether `op` itself writes, or may write, to what `views` has.
static bool writesTo(Operation *op, const Dependence &views) {
  if (op->getNumRegions() || op->hasTrait<OpTrait::IsTerminator>() ||
      !views.has(op->getOperands()) || isMemoryEffectFree(op))
    return false;
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return true;
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  return llvm::any_of(effects, [&](MemoryEffects::EffectInstance &effect) {
    return isa<MemoryEffects::Write>(effect.getEffect()) &&
           (!effect.getValue() || views.has(effect.getValue()));
  });
}

/// Whether the number decides where `op` writes: by an address, an index or a mask.
/// What it writes there does not matter.
static bool hasNumberedAddress(Operation *op, const Dependence &numbered) {
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    Type type = operand.getType();
    auto vector = dyn_cast<VectorType>(type);
    bool isNumber = isa<IntegerType, FloatType>(type) ||
                    (vector && !vector.getElementType().isInteger(1));
    return !isNumber && numbered.values.contains(operand);
  });
}

LogicalResult trainc::verifyWorkgroups(func::FuncOp function) {
  auto tiles = function->getAttrOfType<IntegerAttr>("tiles");
  if (!tiles || tiles.getInt() <= 1 || function.isExternal())
    return success();
  Dependence numbered = findNumbered(function), views = findViews(function);
  WalkResult result = function.getBody().walk([&](Operation *op) {
    if (!writesTo(op, views) || hasNumberedAddress(op, numbered) ||
        numbered.isControlled(op))
      return WalkResult::advance();
    op->emitOpError("internal error: all ")
        << tiles.getInt() << " workgroups of kernel @" << function.getSymName()
        << " write the same to an argument";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}
