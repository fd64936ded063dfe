//===- PlanValues.cpp - What plans read and are made of -------------------===//
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/Train/TrainArenas.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

LogicalResult trainc::verifyParams(Operation *op, ArrayAttr params,
                                   SymbolTable &symbols) {
  for (Attribute attribute : params) {
    auto ref = dyn_cast<FlatSymbolRefAttr>(attribute);
    auto param = ref ? symbols.lookup<ParamOp>(ref.getValue()) : ParamOp();
    if (!param || param.getFrozen())
      return op->emitOpError("expects parameters that are not frozen, got ")
             << attribute;
  }
  return success();
}

LogicalResult trainc::verifyUpdate(UpdateOp update, SymbolTable &symbols) {
  if (failed(verifyParams(update, update.getParams(), symbols)))
    return failure();
  auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
  if (!optimizer || optimizer.getKind())
    return update.emitOpError("expects an optimizer with a region, got ")
           << update.getOptimizerAttr();
  if (optimizer.getOrthogonal())
    for (auto ref : update.getParams().getAsRange<FlatSymbolRefAttr>()) {
      auto param = symbols.lookup<ParamOp>(ref.getValue());
      if (param.getTensorType().getRank() == 2 && param.getPartAxes().empty())
        continue;
      return (param.emitOpError("expects a whole matrix, which its optimizer "
                                "makes orthogonal, got ")
              << (param.getPartAxes().empty() ? "" : "a part, ")
              << param.getTensorType())
                 .attachNote(optimizer.getLoc())
             << "the optimizer is here";
    }
  if (ArrayAttr copies = update.getCopiesAttr())
    for (Attribute copy : copies) {
      auto ref = dyn_cast<FlatSymbolRefAttr>(copy);
      auto arena = ref ? symbols.lookup<ArenaOp>(ref.getValue()) : ArenaOp();
      if (!arena || !arena.getFlatType())
        return update.emitOpError("expects arenas of one element type for "
                                  "copies, got ")
               << copy;
    }
  return success();
}

Value trainc::readScale(OpBuilder &b, Location loc, UpdateOp update,
                        int64_t position) {
  Value scale = update.getScale();
  if (nn::getTensorType(scale).getRank() == 0)
    return scale;
  scale = nn::SliceOp::create(b, loc, scale, ArrayRef<int64_t>{position},
                              ArrayRef<int64_t>{1}, DenseI64ArrayAttr());
  return nn::reshapeTo(b, loc, scale, {});
}

bool trainc::isGradient(SymbolRefAttr target, SymbolTable &symbols) {
  auto arena = symbols.lookup<ArenaOp>(target.getRootReference());
  return arena && arena.getRole() == "gradients";
}

SmallVector<StringAttr> trainc::copiesOf(UpdateOp update, ParamOp param,
                                         SymbolTable &symbols) {
  SmallVector<StringAttr> names;
  if (ArrayAttr copies = update.getCopiesAttr())
    for (auto ref : copies.getAsRange<FlatSymbolRefAttr>())
      if (symbols.lookup<ArenaOp>(ref.getValue())
              .findSlice(param.getSymName()) >= 0)
        names.push_back(ref.getAttr());
  return names;
}

RankedTensorType trainc::gradientType(ParamOp param) {
  RankedTensorType type = param.getTensorType();
  return RankedTensorType::get(type.getShape(),
                               nn::getComputeType(type.getElementType()));
}

Value trainc::readScalar(OpBuilder &b, Location loc, const Twine &name) {
  return ReadOp::create(b, loc, RankedTensorType::get({}, b.getF64Type()),
                        sliceRef(b.getContext(), kScalarArena, name.str()));
}

Value trainc::readPosition(OpBuilder &b, Location loc, ArrayAttr axes) {
  MeshOp mesh = getMesh(
      b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>());
  auto constant = [&](double value) {
    return nn::scalarConstant(b, loc, b.getF64Type(), value);
  };
  Value index;
  for (auto axis : axes.getAsRange<StringAttr>()) {
    double size = mesh.getSize(axis.getValue());
    if (size == 1)
      continue;
    Value parts = index ? constant(size) : Value();
    Value position = readScalar(b, loc, meshScalar(axis.getValue()));
    if (index)
      position = nn::AddOp::create(
          b, loc, nn::MulOp::create(b, loc, index, parts), position);
    index = position;
  }
  return nn::castTo(b, loc, index ? index : constant(0.0), b.getI64Type());
}

SmallVector<Value> trainc::readHyper(OpBuilder &b, Location loc,
                                     OptimizerOp optimizer, Value t) {
  SmallVector<Value> values;
  for (auto [name, value] :
       llvm::zip(optimizer.getHyperNames(), optimizer.getHyperValues())) {
    if (auto schedule = dyn_cast<SymbolRefAttr>(value))
      values.push_back(
          readScalar(b, loc, schedule.getRootReference().getValue()));
    else if (isa<StringAttr>(value))
      values.push_back(t);
    else
      values.push_back(readScalar(b, loc,
                                  optimizer.getSymName() + "." +
                                      cast<StringAttr>(name).getValue()));
  }
  return values;
}
