//===- LoopBuilder.cpp - Elementary code of kernels -----------------------===//
#include "KernelEmitter.h"

using namespace mlir;
using namespace trainc;

Value LoopBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}
Value LoopBuilder::add(Value x, Value y) {
  return arith::AddIOp::create(b, loc, x, y);
}
Value LoopBuilder::mul(Value x, int64_t factor) {
  return factor == 1
             ? x
             : arith::MulIOp::create(b, loc, x, index(factor)).getResult();
}
Value LoopBuilder::mod(Value x, int64_t divisor) {
  return arith::RemUIOp::create(b, loc, x, index(divisor));
}
Value LoopBuilder::div(Value x, int64_t divisor) {
  return divisor == 1
             ? x
             : arith::DivUIOp::create(b, loc, x, index(divisor)).getResult();
}
Value LoopBuilder::min(Value x, Value y) {
  return arith::MinUIOp::create(b, loc, x, y);
}

Value LoopBuilder::splat(Value scalar, int64_t lanes) {
  if (isa<VectorType>(scalar.getType()))
    return scalar;
  return vector::BroadcastOp::create(
      b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
}

Value LoopBuilder::maskBelow(Value count, int64_t lanes) {
  return vector::CreateMaskOp::create(
      b, loc, VectorType::get({lanes}, b.getI1Type()), count);
}

Value LoopBuilder::count(Value from, int64_t lanes) {
  auto type = VectorType::get({lanes}, b.getI64Type());
  auto steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes));
  Value ramp =
      arith::ConstantOp::create(b, loc, DenseIntElementsAttr::get(type, steps));
  Value base = arith::IndexCastOp::create(b, loc, b.getI64Type(), from);
  return arith::AddIOp::create(b, loc, splat(base, lanes), ramp);
}

/// A value as loaded, in the compute type.
static Value widen(LoopBuilder &l, Value value, Type element) {
  Type compute = nn::getComputeType(element);
  Type type = compute;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(compute);
  if (element.isInteger(1)) {
    Value zero = nn::splatConstant(l.b, l.loc, value.getType(), 0.0);
    return arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::ne, value,
                                 zero);
  }
  if (compute != element)
    return arith::ExtFOp::create(l.b, l.loc, type, value);
  return value;
}

/// A value of the compute type as it stands in memory.
static Value narrow(LoopBuilder &l, Value value, Type element) {
  Type storage = getStorageType(element);
  Type type = storage;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(storage);
  if (value.getType() == type)
    return value;
  if (element.isInteger(1))
    return arith::ExtUIOp::create(l.b, l.loc, type, value);
  return arith::TruncFOp::create(l.b, l.loc, type, value);
}

/// What a vector of `type` that is `aligned` begins at a multiple of.
static int64_t alignmentOf(VectorType type) {
  return std::min(nn::countBytes(type), train::kVectorAlignment);
}

Value LoopBuilder::loadVector(Value memref, Value at, Type element, Value mask,
                              int64_t lanes, bool aligned) {
  auto type = VectorType::get({lanes}, getStorageType(element));
  Value value;
  if (mask) {
    Value zero = nn::splatConstant(b, loc, type, 0.0);
    value = vector::MaskedLoadOp::create(b, loc, type, memref, ValueRange(at),
                                         mask, zero);
  } else {
    auto load = vector::LoadOp::create(b, loc, type, memref, ValueRange(at));
    if (aligned)
      load.setAlignment(alignmentOf(type));
    value = load;
  }
  return widen(*this, value, element);
}

Value LoopBuilder::loadScalar(Value memref, Value at, Type element) {
  return widen(*this, memref::LoadOp::create(b, loc, memref, ValueRange(at)),
               element);
}

void LoopBuilder::storeVector(Value value, Value memref, Value at, Type element,
                              Value mask, int64_t lanes, bool aligned) {
  value = narrow(*this, splat(value, lanes), element);
  if (mask) {
    vector::MaskedStoreOp::create(b, loc, memref, ValueRange(at), mask, value);
    return;
  }
  auto store = vector::StoreOp::create(b, loc, value, memref, ValueRange(at));
  if (aligned)
    store.setAlignment(alignmentOf(store.getVectorType()));
}

void LoopBuilder::storeScalar(Value value, Value memref, Value at,
                              Type element) {
  memref::StoreOp::create(b, loc, narrow(*this, value, element), memref,
                          ValueRange(at));
}

Value LoopBuilder::toF64(Value value) {
  Type type = b.getF64Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(type);
  return value.getType() == type
             ? value
             : arith::ExtFOp::create(b, loc, type, value).getResult();
}

Value LoopBuilder::roundTo(Value value, Type element) {
  if (nn::getComputeType(element) == element)
    return value;
  return widen(*this, narrow(*this, value, element), element);
}

void LoopBuilder::loop(Value low, Value high, int64_t step, Body body) {
  auto loop = scf::ForOp::create(b, loc, low, high, index(step));
  OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder l{inner, loc};
  body(l, loop.getInductionVar());
}

SmallVector<Value> LoopBuilder::loop(Value low, Value high, int64_t step,
                                     ValueRange initial, CarryingBody body) {
  auto loop = scf::ForOp::create(b, loc, low, high, index(step), initial);
  OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder l{inner, loc};
  SmallVector<Value> next =
      body(l, loop.getInductionVar(), loop.getRegionIterArgs());
  if (!next.empty()) // else the loop has its end
    scf::YieldOp::create(inner, loc, next);
  return SmallVector<Value>(loop.getResults());
}

Value LoopBuilder::combineLanes(nn::ReduceKind kind, Value vector) {
  int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    auto part = [&](int64_t offset) -> Value {
      return vector::ExtractStridedSliceOp::create(b, loc, vector, offset, half,
                                                   1);
    };
    vector = combine(kind, part(0), part(half));
  }
  return vector::ExtractOp::create(b, loc, vector, ArrayRef<int64_t>{0});
}

/// Halves of pairs of vectors change places, then quarters, and so on.
void trainc::transpose(LoopBuilder &l, MutableArrayRef<Value> rows) {
  auto count = static_cast<int64_t>(rows.size());
  for (int64_t step = count / 2; step > 0; step /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < count; ++lane) {
      bool second = lane & step;
      low.push_back(second ? count + lane - step : lane);
      high.push_back(second ? count + lane : lane + step);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i & step)
        continue;
      Value x = rows[i], y = rows[i + step];
      rows[i] = vector::ShuffleOp::create(l.b, l.loc, x, y, low);
      rows[i + step] = vector::ShuffleOp::create(l.b, l.loc, x, y, high);
    }
  }
}
