//===- NameSlices.cpp - Where parameters and buffers stand ----------------===//
#include "NameSlices.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/PlanValues.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// The slice of the parameter's average, which is of the gradient's type; null if it has
/// none.
static SymbolRefAttr findAverage(ParamOp param, SymbolTable &symbols) {
  if (!param || param.getFrozen() ||
      !symbols.lookup<OptimizerOp>(*param.getOptimizer()).getEma())
    return {};
  Type element = gradientType(param).getElementType();
  return sliceRef(param.getContext(),
                  arenaName(stateRole("ema"), element, param),
                  param.getSymName());
}

static SymbolRefAttr nameSlice(SymbolRefAttr ref, SymbolTable &symbols) {
  if (!ref.getNestedReferences().empty())
    return ref;
  StringAttr name = ref.getRootReference();
  std::string arena;
  if (auto param = symbols.lookup<ParamOp>(name))
    arena =
        arenaName(kMasterArena, param.getTensorType().getElementType(), param);
  else
    arena = bufferArena(
        symbols.lookup<BufferOp>(name).getTensorType().getElementType());
  return sliceRef(ref.getContext(), arena, name);
}

static void readAverage(ReadOp read, SymbolRefAttr slice, ParamOp param) {
  read.setSourceAttr(slice);
  RankedTensorType type = nn::getTensorType(read), wide = gradientType(param);
  if (type == wide)
    return;
  OpBuilder b(read->getNextNode());
  read.getResult().setType(wide);
  Value narrow =
      nn::castTo(b, read.getLoc(), read.getResult(), type.getElementType());
  read.getResult().replaceAllUsesExcept(narrow, narrow.getDefiningOp());
}

void trainc::nameSlices(Operation *entry, SymbolTable &symbols, bool ema) {
  entry->walk([&](Operation *op) {
    if (auto write = dyn_cast<WriteOp>(op))
      write.setTargetAttr(nameSlice(write.getTarget(), symbols));
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      return;
    auto param = symbols.lookup<ParamOp>(read.getSource().getRootReference());
    if (SymbolRefAttr average = ema ? findAverage(param, symbols) : nullptr)
      readAverage(read, average, param);
    else
      read.setSourceAttr(nameSlice(read.getSource(), symbols));
  });
}
