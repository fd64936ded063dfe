//===- KernelEmitter.cpp - What the emitters of kernels share -------------===//
#include "KernelEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace trainc;

Type trainc::getStorageType(Type type) {
  if (type.isInteger(1))
    return IntegerType::get(type.getContext(), 8);
  return type;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

int64_t KernelFunction::transposedSize(Type element) const {
  int64_t size = 16;
  while (size > 4 &&
         size * size * nn::getElementBytes(element) > registerBytes / 2)
    size /= 2;
  return size;
}

KernelFunction trainc::createFunction(train::KernelOp kernel, ModuleOp module) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  Block &body = kernel.getBody().front();
  auto flat = [](Value value) -> Type {
    RankedTensorType type = nn::getTensorType(value);
    return MemRefType::get({type.getNumElements()},
                           getStorageType(type.getElementType()));
  };
  SmallVector<Type> types;
  for (Value argument : body.getArguments())
    types.push_back(flat(argument));
  Operation *end = body.getTerminator();
  for (auto [value, inplace] :
       llvm::zip(end->getOperands(), kernel.getInplace()))
    if (inplace < 0)
      types.push_back(flat(value));
  types.push_back(b.getIndexType());
  auto function = func::FuncOp::create(b, kernel.getLoc(), kernel.getSymName(),
                                       b.getFunctionType(types, TypeRange()));
  Block *entry = function.addEntryBlock();
  for (size_t i = 0; i + 1 < types.size(); ++i)
    function.setArgAttr(i, "llvm.noalias", b.getUnitAttr());

  KernelFunction result;
  result.kernel = kernel;
  result.function = function;
  result.tile = entry->getArguments().back();
  for (Value argument : body.getArguments()) {
    unsigned i = cast<BlockArgument>(argument).getArgNumber();
    result.inputs[argument] = entry->getArgument(i);
  }
  unsigned next = body.getNumArguments();
  for (auto [value, inplace] :
       llvm::zip(end->getOperands(), kernel.getInplace()))
    result.outputs[value].push_back(
        entry->getArgument(inplace < 0 ? next++ : inplace));
  return result;
}

train::AbiAttr trainc::abiOf(func::FuncOp function) {
  auto number = [&](StringRef name) {
    auto attribute = function->getAttrOfType<IntegerAttr>(name);
    return attribute ? attribute.getInt() : 0;
  };
  return train::AbiAttr::get(function.getContext(), number("tiles"),
                             number("threads"), number("scratch"),
                             function->hasAttr("amx"));
}

Value KernelFunction::allocateScratch(LoopBuilder &l, Type element,
                                      int64_t count) {
  auto attribute = function->getAttrOfType<IntegerAttr>("scratch");
  int64_t begin = attribute ? attribute.getInt() : 0;
  int64_t bytes =
      llvm::alignTo(count * nn::getElementBytes(element), train::kCacheLine);
  function->setAttr("scratch", l.b.getI64IntegerAttr(begin + bytes));
  auto type = MemRefType::get({begin + bytes}, l.b.getI8Type());
  unsigned position = function.getNumArguments() - (attribute ? 2 : 1);
  if (!attribute) {
    auto noalias = l.b.getDictionaryAttr(
        l.b.getNamedAttr("llvm.noalias", l.b.getUnitAttr()));
    LogicalResult inserted =
        function.insertArgument(position, type, noalias, l.loc);
    assert(succeeded(inserted) && "a function's arguments can grow");
    (void)inserted;
  }
  BlockArgument scratch = function.getArgument(position);
  scratch.setType(type);
  SmallVector<Type> types(function.getBody().getArgumentTypes());
  function.setFunctionType(l.b.getFunctionType(types, TypeRange()));
  return memref::ViewOp::create(l.b, l.loc, MemRefType::get({count}, element),
                                scratch, l.index(begin), ValueRange());
}

//===----------------------------------------------------------------------===//
// PointEmitter
//===----------------------------------------------------------------------===//

bool PointEmitter::isUniform(Value value) const {
  const IterationSpace::Extent &extent = space.extentOf(value);
  return !extent.inner && !llvm::is_contained(extent.outer, true);
}

void PointEmitter::setCoordinates(LoopBuilder &l, Value index,
                                  ArrayRef<bool> which) {
  coordinates.resize(space.outer.size());
  auto isSet = [&](size_t i) { return which.empty() || which[i]; };
  int64_t stride = 1;
  for (size_t i = 0; i < space.outer.size(); ++i)
    if (isSet(i))
      stride *= space.outer[i];
  bool first = true;
  for (size_t i = 0; i < space.outer.size(); ++i) {
    if (!isSet(i))
      continue;
    stride /= space.outer[i];
    Value coordinate = l.div(index, stride);
    coordinates[i] = first ? coordinate : l.mod(coordinate, space.outer[i]);
    first = false;
  }
}

Value PointEmitter::offsetOf(LoopBuilder &l, Value value) {
  const IterationSpace::Extent &extent = space.extentOf(value);
  int64_t stride = extent.inner ? space.inner : 1;
  Value offset;
  for (int64_t i = space.outer.size() - 1; i >= 0; --i) {
    if (!extent.outer[i])
      continue;
    Value part = l.mul(coordinates[i], stride);
    offset = offset ? l.add(offset, part) : part;
    stride *= space.outer[i];
  }
  return offset ? offset : l.index(0);
}

Value PointEmitter::emitIota(LoopBuilder &l, nn::IotaOp op, Value at) {
  // The coordinate along dim: from the row-major index in the ramp's own shape.
  RankedTensorType type = nn::getTensorType(op.getResult());
  Value linear = offsetOf(l, op.getResult());
  if (at)
    linear = l.add(linear, at);
  int64_t stride = 1;
  for (int64_t i = type.getRank() - 1; i > int64_t(op.getDim()); --i)
    stride *= type.getDimSize(i);
  int64_t size = type.getDimSize(op.getDim());
  Type element = type.getElementType();
  bool isFloat = isa<FloatType>(element);
  Type compute = nn::getComputeType(element);
  Value result;
  if (!at || !space.extentOf(op.getResult()).inner) {
    result = l.mod(l.div(linear, stride), size);
    Type integer = isFloat ? Type(l.b.getI64Type()) : element;
    result = arith::IndexCastOp::create(l.b, l.loc, integer, result);
    if (isFloat)
      result = arith::SIToFPOp::create(l.b, l.loc, compute, result);
    return result;
  }
  auto vectorOf = [&](Type type) { return VectorType::get({lanes}, type); };
  auto vectorType = vectorOf(l.b.getI64Type());
  Value v = l.count(linear, lanes);
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(
        l.b, l.loc,
        DenseElementsAttr::get(vectorType, l.b.getI64IntegerAttr(value)));
  };
  if (stride != 1)
    v = arith::DivUIOp::create(l.b, l.loc, v, constant(stride));
  if (stride * size != type.getNumElements())
    v = arith::RemUIOp::create(l.b, l.loc, v, constant(size));
  if (isFloat)
    return arith::SIToFPOp::create(l.b, l.loc, vectorOf(compute), v);
  if (element.getIntOrFloatBitWidth() < 64)
    return arith::TruncIOp::create(l.b, l.loc, vectorOf(element), v);
  return v;
}

/// The value of a constant as a scalar, or null if its elements differ.
static Value emitConstant(LoopBuilder &l, nn::ConstantOp op) {
  DenseElementsAttr elements = nn::getDense(op.getValue());
  if (!elements.isSplat())
    return {};
  Type element = elements.getElementType();
  auto number = cast<TypedAttr>(elements.getSplatValue<Attribute>());
  Value value = arith::ConstantOp::create(l.b, l.loc, number);
  if (nn::getComputeType(element) != element)
    value =
        arith::ExtFOp::create(l.b, l.loc, nn::getComputeType(element), value);
  return value;
}

Value trainc::getGlobal(LoopBuilder &l, DenseElementsAttr data) {
  auto module =
      l.b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto type = MemRefType::get({data.getNumElements()}, data.getElementType());
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  std::string name;
  for (unsigned i = 0;; ++i) {
    name = "constant_" + std::to_string(i);
    auto existing = module.lookupSymbol<memref::GlobalOp>(name);
    if (!existing) {
      memref::GlobalOp::create(b, l.loc, name, b.getStringAttr("private"), type,
                               data, /*constant=*/true,
                               b.getI64IntegerAttr(train::kVectorAlignment));
      break;
    }
    if (existing.getType() == type && existing.getInitialValueAttr() == data)
      break;
  }
  return memref::GetGlobalOp::create(l.b, l.loc, type, name);
}

Operation *trainc::findSegments(KernelFunction &function,
                                ArrayRef<Operation *> ops) {
  Operation *last = ops.back();
  if (!isa<train::SegmentMapOp, train::SegmentSquareSumOp>(last) ||
      !llvm::all_of(ops.drop_back(), llvm::IsaPred<nn::ConstantOp>))
    return nullptr;
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, last->getLoc()};
  for (Operation *op : ops.drop_back())
    function.inputs[op->getResult(0)] =
        getGlobal(l, nn::getDense(cast<nn::ConstantOp>(op).getValue()));
  return last;
}

/// The elements of `op` as a global of the module, in storage type.
static Value globalOf(LoopBuilder &l, nn::ConstantOp op) {
  DenseElementsAttr elements = nn::getDense(op.getValue());
  auto flat = RankedTensorType::get({elements.getNumElements()},
                                    getStorageType(elements.getElementType()));
  if (!elements.getElementType().isInteger(1))
    return getGlobal(l, elements.reshape(flat));
  SmallVector<APInt> bytes;
  for (bool bit : elements.getValues<bool>())
    bytes.push_back(APInt(8, bit));
  return getGlobal(l, DenseElementsAttr::get(flat, bytes));
}

/// Guards the divisor of a vector op: lanes behind the last element of a row hold zeros.
static void guardLanes(LoopBuilder &l, Operation *op) {
  bool isSigned = isa<arith::DivSIOp, arith::RemSIOp, arith::CeilDivSIOp,
                      arith::FloorDivSIOp>(op);
  if (!isSigned && !isa<arith::DivUIOp, arith::RemUIOp, arith::CeilDivUIOp>(op))
    return;
  OpBuilder::InsertionGuard guard(l.b);
  l.b.setInsertionPoint(op);
  op->setOperand(1, nn::guardDivisor(l.b, l.loc, op->getOperand(0),
                                     op->getOperand(1), isSigned));
}

Operation *trainc::cloneScalarOp(LoopBuilder &l, Operation &op,
                                 function_ref<Value(Value)> lookup) {
  VectorType wide;
  for (Value operand : op.getOperands())
    if (auto type = dyn_cast<VectorType>(lookup(operand).getType()))
      wide = type;
  IRMapping mapping;
  for (Value operand : op.getOperands())
    mapping.map(operand, wide ? l.splat(lookup(operand), wide.getNumElements())
                              : lookup(operand));
  if (isa<math::FPowIOp>(op))
    return nn::buildWholePower(l.b, l.loc, mapping.lookup(op.getOperand(0)),
                               mapping.lookup(op.getOperand(1)));
  Operation *copy = l.b.clone(op, mapping);
  copy->setLoc(l.loc);
  if (wide) {
    for (Value result : copy->getResults())
      result.setType(wide.clone(result.getType()));
    guardLanes(l, copy);
  }
  return copy;
}

SmallVector<Value> PointEmitter::emitMap(LoopBuilder &l, nn::MapOp op,
                                         ValueRange arguments, bool vector) {
  // Ops of scalars stay scalar; those are emitted once, outside of the loop.
  DenseMap<Value, Value> local;
  auto lookup = [&](Value value) -> Value {
    if (Value scalar = regionScalars.lookup(value))
      return scalar;
    return local.lookup(value);
  };
  Block &body = op.getBody().front();
  for (auto [argument, value] : llvm::zip(body.getArguments(), arguments))
    if (value)
      local[argument] = value;
  for (Operation &inner : body.without_terminator()) {
    if (llvm::all_of(inner.getResults(), lookup))
      continue;
    bool known = llvm::all_of(inner.getOperands(), lookup);
    if (!known)
      continue; // needs a vector: not in this round
    Operation *copy = cloneScalarOp(l, inner, lookup);
    for (auto [from, to] : llvm::zip(inner.getResults(), copy->getResults()))
      (vector ? local : regionScalars)[from] = to;
  }
  SmallVector<Value> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(lookup(value));
  return results;
}

Value PointEmitter::getScalar(LoopBuilder &l, Value value) {
  if (Value known = scalars.lookup(value))
    return known;
  Type element = nn::getTensorType(value).getElementType();
  Value result;
  if (Value memref = function.inputs.lookup(value)) {
    result = l.loadScalar(memref, offsetOf(l, value), element);
  } else {
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
      result = emitConstant(l, constant);
      if (!result)
        result =
            l.loadScalar(globalOf(l, constant), offsetOf(l, value), element);
    } else if (auto iota = dyn_cast<nn::IotaOp>(op)) {
      result = l.roundTo(emitIota(l, iota, Value()), element);
    } else {
      SmallVector<Value> arguments, results;
      for (Value operand : op->getOperands())
        arguments.push_back(getScalar(l, operand));
      if (auto map = dyn_cast<nn::MapOp>(op))
        results = emitMap(l, map, arguments, /*vector=*/false);
      else
        cast<nn::PointwiseOpInterface>(op).buildScalar(l.b, l.loc, arguments,
                                                       results);
      for (auto [from, to] : llvm::zip(op->getResults(), results))
        scalars[from] = l.roundTo(to, nn::getTensorType(from).getElementType());
      return scalars.lookup(value);
    }
  }
  scalars[value] = result;
  return result;
}

void PointEmitter::prepareScalars(LoopBuilder &l, Operation *op,
                                  bool uniformOnly) {
  SmallVector<Value> arguments;
  for (Value operand : op->getOperands()) {
    bool known = !isVector(operand) && (!uniformOnly || isUniform(operand));
    arguments.push_back(known ? getScalar(l, operand) : Value());
  }
  auto map = dyn_cast<nn::MapOp>(op);
  if (!map)
    return;
  for (auto [argument, value] :
       llvm::zip(map.getBody().getArguments(), arguments))
    if (value)
      regionScalars[argument] = value;
  emitMap(l, map, arguments, /*vector=*/false);
}

Value PointEmitter::getVector(LoopBuilder &l, Value value, Value at, Value mask,
                              DenseMap<Value, Value> &memo) {
  if (!isVector(value))
    return l.splat(getScalar(l, value), lanes);
  if (Value known = memo.lookup(value))
    return known;
  Type element = nn::getTensorType(value).getElementType();
  Value result;
  if (loadStored)
    result = loadStored(l, value, at, mask);
  if (result) {
    memo[value] = result;
    return result;
  }
  auto load = [&](Value memref) {
    return l.loadVector(memref, l.add(offsetOf(l, value), at), element, mask,
                        lanes, isAligned && isAligned(value));
  };
  if (Value memref = function.inputs.lookup(value)) {
    result = load(memref);
  } else {
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast<nn::ConstantOp>(op)) {
      Value scalar = emitConstant(l, constant);
      result = scalar ? l.splat(scalar, lanes) : load(globalOf(l, constant));
    } else if (auto iota = dyn_cast<nn::IotaOp>(op)) {
      result = l.roundTo(emitIota(l, iota, at), element);
    } else {
      SmallVector<Value> arguments, results;
      auto map = dyn_cast<nn::MapOp>(op);
      for (Value operand : op->getOperands()) {
        // A map splats what it needs; its scalars are known already.
        if (map && !isVector(operand))
          arguments.push_back(getScalar(l, operand));
        else
          arguments.push_back(getVector(l, operand, at, mask, memo));
      }
      if (map)
        results = emitMap(l, map, arguments, /*vector=*/true);
      else
        cast<nn::PointwiseOpInterface>(op).buildScalar(l.b, l.loc, arguments,
                                                       results);
      for (auto [from, to] : llvm::zip(op->getResults(), results))
        memo[from] = l.roundTo(l.splat(to, lanes),
                               nn::getTensorType(from).getElementType());
      return memo.lookup(value);
    }
  }
  memo[value] = result;
  return result;
}

void PointEmitter::storeOnce(LoopBuilder &l, Value value, Value condition,
                             function_ref<void(LoopBuilder &)> store) {
  for (auto [i, varies] : llvm::enumerate(space.extentOf(value).outer)) {
    if (varies)
      continue;
    Value zero = arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::eq,
                                       coordinates[i], l.index(0));
    condition =
        condition
            ? arith::AndIOp::create(l.b, l.loc, condition, zero).getResult()
            : zero;
  }
  if (!condition)
    return store(l);
  auto branch = scf::IfOp::create(l.b, l.loc, condition, /*withElse=*/false);
  OpBuilder inner = branch.getThenBodyBuilder();
  LoopBuilder then{inner, l.loc};
  store(then);
}
