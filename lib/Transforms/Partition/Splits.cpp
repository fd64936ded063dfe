//===- Splits.cpp - What a source says of splits --------------------------===//
#include "Splits.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;
using namespace trainc::train;

LogicalResult parts::verifyDivides(const Grid &grid, Operation *op,
                                   const Twine &what, RankedTensorType type,
                                   const Split &split, bool mayBeUneven) {
  for (auto [dim, part] : llvm::enumerate(split)) {
    int64_t parts = grid.count(part.axes);
    if (!grid.isUneven(type.getDimSize(dim), part) ||
        (mayBeUneven && part.blocks == 1))
      continue;
    InFlightDiagnostic error = op->emitOpError("expects ") << what;
    if (part.blocks != 1)
      error << ", in " << part.blocks << " blocks,";
    return error << " to divide into " << parts << " parts along dimension "
                 << dim << ", over " << grid.toAttr(part.axes) << ", got size "
                 << type.getDimSize(dim);
  }
  return success();
}

Split parts::readSplit(const Grid &grid, ParamOp param) {
  return grid.read(param.getSplitAttr(), param.getTensorType().getRank(),
                   param.getBlocksAttr());
}

static Attribute getSplit(ArrayAttr splits, size_t i) {
  return splits ? splits[i] : Attribute();
}

/// Sets how the gradient of `param` lies on the ranks, which is input `name` of `step`:
/// each rank has its term of that of its part.
static LogicalResult setGradientLayout(const Grid &grid, StepOp step,
                                       ParamOp param, Attribute name,
                                       Layout &layout) {
  Split split = readSplit(grid, param);
  if (!layout.isWhole() && layout.split != split)
    return step.emitOpError("expects a gradient among the inputs to be split "
                            "as its parameter is, got input ")
           << name << " with " << grid.print(layout.split);
  layout.partial = grid.all();
  for (auto [size, dim] : llvm::zip(param.getTensorType().getShape(), split)) {
    if (dim.blocks != 1 || grid.isUneven(size, dim))
      return step.emitOpError("expects a gradient among the inputs to be of a "
                              "parameter whose parts are equal and of one "
                              "block, got input ")
             << name << " of " << param.getTensorType() << " "
             << grid.print(split);
    layout.partial = without(layout.partial, dim.axes);
  }
  layout.split = split;
  return success();
}

FailureOr<SmallVector<Layout>>
parts::getInputLayouts(const Grid &grid, Operation *entry, SymbolTable &symbols,
                       ArrayAttr names, ArrayAttr splits) {
  SmallVector<Layout> layouts;
  auto step = dyn_cast<StepOp>(entry);
  for (BlockArgument input : entry->getRegion(0).getArguments()) {
    unsigned i = input.getArgNumber();
    auto type = cast<RankedTensorType>(input.getType());
    Layout &layout = layouts.emplace_back();
    layout.split = grid.read(getSplit(splits, i), type.getRank());
    if (auto param = step ? step.getInputGradient(i) : FlatSymbolRefAttr())
      if (failed(setGradientLayout(grid, step,
                                   symbols.lookup<ParamOp>(param.getAttr()),
                                   names[i], layout)))
        return failure();
    std::string what =
        ("input \"" + cast<StringAttr>(names[i]).getValue() + "\"").str();
    if (failed(verifyDivides(grid, entry, what, type, layout.split,
                             /*mayBeUneven=*/false)))
      return failure();
  }
  return layouts;
}

LogicalResult parts::verifyUse(const Grid &grid, StepOp step,
                               ArrayRef<Layout> inputs) {
  Axes used;
  auto use = [&](const Split &split) {
    for (const DimSplit &dim : split)
      insertSorted(used, dim.axes);
  };
  for (const Layout &layout : inputs) {
    insertSorted(used, layout.partial);
    use(layout.split);
  }
  for (auto param : step->getParentOfType<ModuleOp>().getOps<ParamOp>())
    use(grid.read(param.getSplitAttr(), param.getTensorType().getRank()));
  for (unsigned axis : without(grid.all(), used))
    return step.emitOpError("expects an input or a parameter that is split "
                            "over axis '")
           << grid.names[axis].getValue() << "' of " << grid.sizes[axis]
           << " ranks, or a gradient among the inputs; got none";
  return success();
}

LogicalResult parts::verifyParams(const Grid &grid, ModuleOp module) {
  for (auto param : module.getOps<ParamOp>())
    if (failed(verifyDivides(grid, param, "its size", param.getTensorType(),
                             readSplit(grid, param), /*mayBeUneven=*/true)))
      return failure();
  return success();
}

void parts::divideParams(const Grid &grid, ModuleOp module) {
  for (auto param : module.getOps<ParamOp>()) {
    RankedTensorType type = param.getTensorType();
    RankedTensorType part = grid.getLocalType(type, readSplit(grid, param));
    if (part == type)
      continue;
    param.setWhole(type);
    param.setType(part);
  }
}

void parts::setGradientSplits(const Grid &grid, StepOp step,
                              ArrayRef<Layout> inputs) {
  Builder b(step.getContext());
  SmallVector<Attribute> splits(inputs.size(), b.getArrayAttr({}));
  if (auto given = step.getInputSplitsAttr())
    splits.assign(given.begin(), given.end());
  bool any = false;
  for (auto [i, layout] : llvm::enumerate(inputs))
    if (step.getInputGradient(i) && layout.partial != grid.all()) {
      splits[i] = grid.write(layout.split);
      any = true;
    }
  if (any)
    step.setInputSplitsAttr(b.getArrayAttr(splits));
}

void parts::eraseSplits(ModuleOp module) {
  module.walk([](ConstrainOp op) {
    op.replaceAllUsesWith(op.getInput());
    op.erase();
  });
  for (Operation &op : module.getOps())
    if (auto param = dyn_cast<ParamOp>(op)) {
      param.removeSplitAttr();
      param.removeBlocksAttr();
    } else if (auto step = dyn_cast<StepOp>(op)) {
      step.removeInputSplitsAttr();
    } else if (auto eval = dyn_cast<EvalOp>(op)) {
      eval.removeInputSplitsAttr();
    }
}
