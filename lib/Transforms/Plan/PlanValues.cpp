//===- PlanValues.cpp - What plans read and are made of -------------------===//
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/Train/TrainArenas.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

ParamOp trainc::lookupParam(Attribute ref, SymbolTable &symbols) {
  return symbols.lookup<ParamOp>(cast<FlatSymbolRefAttr>(ref).getValue());
}

BucketMap trainc::mapBuckets(ModuleOp module) {
  BucketMap buckets;
  for (auto bucket : module.getOps<BucketOp>())
    for (auto param : bucket.getParams().getAsRange<FlatSymbolRefAttr>())
      buckets[param.getAttr()] = bucket;
  return buckets;
}

static SymbolRefAttr refOf(ArenaOp arena, SpanOp span) {
  return sliceRef(arena.getContext(), arena.getSymName(), span.getSymName());
}

Value trainc::readBucket(OpBuilder &b, ArenaOp arena, SpanOp span) {
  auto type =
      RankedTensorType::get({ShapedType::kDynamic}, arena.getElementType());
  return ReadOp::create(b, arena.getLoc(), type, refOf(arena, span));
}

void trainc::gatherBucket(OpBuilder &b, ArenaOp arena, SpanOp span,
                          ArrayAttr axes) {
  Value value = readBucket(b, arena, span);
  value = AllGatherOp::create(b, arena.getLoc(), value.getType(), value, axes,
                              /*in_place=*/true);
  WriteOp::create(b, arena.getLoc(), value, refOf(arena, span));
}

SmallVector<std::string> trainc::updatedArenas(OptimizerOp optimizer,
                                               ParamOp param) {
  Type wide = gradientType(param).getElementType();
  SmallVector<std::string> names{
      arenaName(kMasterArena, param.getTensorType().getElementType(), param)};
  for (auto state : optimizer.getStateNames().getAsRange<StringAttr>())
    names.push_back(arenaName(stateRole(state.getValue()), wide, param));
  if (optimizer.getEma())
    names.push_back(arenaName(stateRole("ema"), wide, param));
  return names;
}

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

LogicalResult trainc::verifyNorm(NormSquaredOp norm, SymbolTable &symbols) {
  return failure(llvm::any_of(
      norm.getParams().getAsRange<ArrayAttr>(), [&](ArrayAttr params) {
        return failed(verifyParams(norm, params, symbols));
      }));
}

/// Checks that the parameters of an optimizer that makes matrices orthogonal are such.
static LogicalResult verifyMatrices(OptimizerOp optimizer,
                                    const UpdateGroup &group,
                                    SymbolTable &symbols) {
  for (FlatSymbolRefAttr ref : group.params) {
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
  return success();
}

LogicalResult trainc::verifyUpdate(UpdateOp update, SymbolTable &symbols) {
  for (auto params : update.getParams().getAsRange<ArrayAttr>())
    if (failed(verifyParams(update, params, symbols)))
      return failure();
  for (const UpdateGroup &group : getGroups(update)) {
    auto optimizer = symbols.lookup<OptimizerOp>(group.optimizer.getValue());
    if (!optimizer || optimizer.getKind())
      return update.emitOpError("expects an optimizer with a region, got ")
             << group.optimizer;
    if (optimizer.getOrthogonal() &&
        failed(verifyMatrices(optimizer, group, symbols)))
      return failure();
  }
  if (ArrayAttr copies = update.getCopiesAttr())
    for (Attribute copy : copies) {
      auto ref = dyn_cast<FlatSymbolRefAttr>(copy);
      auto arena = ref ? symbols.lookup<ArenaOp>(ref.getValue()) : ArenaOp();
      if (!arena || !arena.getElementType())
        return update.emitOpError("expects arenas of one element type for "
                                  "copies, got ")
               << copy;
    }
  return success();
}

static Value sliceOne(OpBuilder &b, Location loc, Value tensor,
                      int64_t position) {
  return nn::SliceOp::create(b, loc, tensor, ArrayRef<int64_t>{position},
                             ArrayRef<int64_t>{1}, DenseI64ArrayAttr());
}

Value trainc::readScale(OpBuilder &b, Location loc, Value scale,
                        int64_t position) {
  if (nn::getTensorType(scale).getRank() == 0)
    return scale;
  return nn::reshapeTo(b, loc, sliceOne(b, loc, scale, position), {});
}

SmallVector<UpdateGroup> trainc::getGroups(UpdateOp update) {
  SmallVector<UpdateGroup> groups;
  for (auto [i, optimizer] : llvm::enumerate(
           update.getOptimizers().getAsRange<FlatSymbolRefAttr>())) {
    auto params = cast<ArrayAttr>(update.getParams()[i]);
    groups.push_back(
        {optimizer, llvm::to_vector(params.getAsRange<FlatSymbolRefAttr>()),
         update.getScales()[i],
         update.getLimits().empty() ? Value() : update.getLimits()[i]});
  }
  return groups;
}

UpdateGroup trainc::pickParams(OpBuilder &b, Location loc,
                               const UpdateGroup &group,
                               ArrayRef<int64_t> positions) {
  UpdateGroup picked = group;
  if (positions.size() == group.params.size())
    return picked;
  picked.params = llvm::map_to_vector(
      positions, [&](int64_t position) { return group.params[position]; });
  if (nn::getTensorType(group.scale).getRank() == 0)
    return picked;
  SmallVector<Value> scales;
  for (int64_t position : positions)
    scales.push_back(sliceOne(b, loc, group.scale, position));
  picked.scale = scales.size() == 1
                     ? scales.front()
                     : nn::ConcatOp::create(b, loc, scales, 0).getResult();
  return picked;
}

UpdateOp trainc::createUpdate(OpBuilder &b, UpdateOp update,
                              ArrayRef<UpdateGroup> groups) {
  SmallVector<Attribute> optimizers, params;
  SmallVector<Value> scales, limits;
  for (const UpdateGroup &group : groups) {
    optimizers.push_back(group.optimizer);
    params.push_back(b.getArrayAttr(
        SmallVector<Attribute>(group.params.begin(), group.params.end())));
    scales.push_back(group.scale);
    if (group.limit)
      limits.push_back(group.limit);
  }
  return UpdateOp::create(
      b, update.getLoc(), b.getArrayAttr(optimizers), b.getArrayAttr(params),
      scales, update.getFinite(), update.getT(), limits, update.getCopiesAttr(),
      update.getOverAttr(), update.getFusedAttr(), update.getStochasticAttr());
}

bool trainc::isGradient(SymbolRefAttr target, SymbolTable &symbols) {
  auto arena = symbols.lookup<ArenaOp>(target.getRootReference());
  return arena && arena.getRole() == TRAINC_ROLE_GRADIENT;
}

SmallVector<StringAttr> trainc::copiesOf(UpdateOp update, ParamOp param,
                                         SymbolTable &symbols) {
  SmallVector<StringAttr> names;
  if (ArrayAttr copies = update.getCopiesAttr())
    for (auto ref : copies.getAsRange<FlatSymbolRefAttr>())
      if (symbols.lookup<ArenaOp>(ref.getValue()).findSlice(param.getSymName()))
        names.push_back(ref.getAttr());
  return names;
}

RankedTensorType trainc::gradientType(ParamOp param) {
  RankedTensorType type = param.getTensorType();
  return RankedTensorType::get(type.getShape(),
                               nn::getComputeType(type.getElementType()));
}

std::string trainc::gradientArena(ParamOp param, bool isSharded,
                                  SymbolTable &symbols) {
  Type element = gradientType(param).getElementType();
  std::string merged = arenaName(kMergedArena, element, param);
  return isSharded && symbols.lookup(merged)
             ? merged
             : arenaName(kGradientArena, element, param);
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

Value trainc::sumOverParts(OpBuilder &b, Location loc, Value value,
                           ArrayAttr axes) {
  return axes.empty() ? value
                      : AllReduceOp::create(b, loc, value, axes).getResult();
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
