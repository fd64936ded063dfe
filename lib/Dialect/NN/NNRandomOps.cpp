//===- NNRandomOps.cpp - Operations that draw random numbers --------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate < 1.0))
    return emitOpError("expects a rate in [0, 1) (C1), got ") << rate;
  unsigned given =
      llvm::count_if(ArrayRef<Value>{getSeed(), getUpdate(), getMicroStep()},
                     [](Value scalar) { return scalar != nullptr; });
  if (given != 0 && (given != 3 || !getSite()))
    return emitOpError("expects seed, update, micro_step and site together "
                       "(C2), got ")
           << given << " of the scalars and " << (getSite() ? "a" : "no")
           << " site";
  if (getSite() && *getSite() > 0x7FFFFFFF)
    return emitOpError("expects a site in [0, 2^31) (C3), got ")
           << static_cast<int64_t>(*getSite());
  ArrayRef<int64_t> strides = getStrides().value_or(ArrayRef<int64_t>());
  bool complete = static_cast<int64_t>(strides.size()) == getType().getRank();
  if (getStrides().has_value() != (getFirst() != nullptr) ||
      (getFirst() && !complete) ||
      llvm::any_of(strides, [](int64_t stride) { return stride < 0; }))
    return emitOpError(
               "expects one stride of at least 0 per dimension together "
               "with first (C4), got [")
           << strides << "] for " << getType();
  return success();
}

OpFoldResult DropoutOp::fold(FoldAdaptor) {
  if (getRate().isZero())
    return getInput();
  return {};
}

Value nn::buildElementIndex(OpBuilder &b, Location loc, ArrayRef<int64_t> shape,
                            ArrayRef<int64_t> strides) {
  Value index = scalarConstant(b, loc, b.getI64Type(), 0.0);
  SmallVector<int64_t> own = computeSuffixProduct(shape);
  if (strides.empty())
    strides = own;
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    if (shape[dim] == 1)
      continue;
    int64_t stride = strides[dim];
    SmallVector<int64_t> iotaShape(shape.size(), 1);
    iotaShape[dim] = shape[dim];
    auto type = RankedTensorType::get(iotaShape, b.getI64Type());
    Value term = IotaOp::create(b, loc, type, uint64_t(dim));
    if (stride != 1)
      term = MulOp::create(b, loc, term,
                           scalarConstant(b, loc, b.getI64Type(), stride));
    index = stride == 1 ? term : AddOp::create(b, loc, term, index).getResult();
  }
  return index;
}

namespace {
/// Arithmetic on i64 numbers that hold 32 bits each.
struct Words {
  OpBuilder &b;
  Location loc;

  Value number(uint64_t value) const {
    return arith::ConstantOp::create(
        b, loc, b.getI64IntegerAttr(static_cast<int64_t>(value)));
  }
  Value low(Value x) const {
    return arith::AndIOp::create(b, loc, x, number(0xFFFFFFFF));
  }
  Value high(Value x) const {
    return arith::ShRUIOp::create(b, loc, x, number(32));
  }
  Value mul(Value x, uint64_t factor) const {
    return arith::MulIOp::create(b, loc, x, number(factor));
  }
  Value add(Value x, uint64_t term) const {
    return low(arith::AddIOp::create(b, loc, x, number(term)));
  }
  Value bitXor(Value x, Value y) const {
    return arith::XOrIOp::create(b, loc, x, y);
  }
};
} // namespace

/// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3".
static std::array<Value, 4> buildPhilox(const Words &w, std::array<Value, 4> c,
                                        std::array<Value, 2> key) {
  for (int round = 0; round < 10; ++round) {
    Value p0 = w.mul(c[0], 0xD2511F53), p1 = w.mul(c[2], 0xCD9E8D57);
    c = {w.bitXor(w.bitXor(w.high(p1), c[1]), key[0]), w.low(p1),
         w.bitXor(w.bitXor(w.high(p0), c[3]), key[1]), w.low(p0)};
    key = {w.add(key[0], 0x9E3779B9), w.add(key[1], 0xBB67AE85)};
  }
  return c;
}

Value nn::buildRandomWord(OpBuilder &b, Location loc,
                          const RandomCounter &counter) {
  Words w{b, loc};
  Value group = arith::ShRUIOp::create(b, loc, counter.index, w.number(2));
  std::array<Value, 4> r = buildPhilox(
      w,
      {w.low(group), w.high(group), w.low(counter.update),
       w.low(counter.microStep)},
      {w.low(counter.seed), w.bitXor(w.high(counter.seed), counter.site)});
  auto bit = [&](uint64_t mask) -> Value {
    Value masked = arith::AndIOp::create(b, loc, counter.index, w.number(mask));
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, masked,
                                 w.number(0));
  };
  auto choose = [&](Value condition, Value yes, Value no) -> Value {
    return arith::SelectOp::create(b, loc, condition, yes, no);
  };
  Value odd = bit(1);
  return choose(bit(2), choose(odd, r[3], r[2]), choose(odd, r[1], r[0]));
}

FailureOr<SmallVector<Value>> DropoutOp::decompose(OpBuilder &b) {
  if (!getSeed())
    return emitOpError("has no definition before it has a site and a seed");
  Location loc = getLoc();
  RankedTensorType type = getType();
  Type i64 = b.getI64Type();
  Type compute = getComputeType(type.getElementType());
  Value index = buildElementIndex(b, loc, type.getShape(),
                                  getStrides().value_or(ArrayRef<int64_t>()));
  if (getFirst())
    index = AddOp::create(b, loc, index, getFirst());
  SmallVector<Value> inputs{getInput(), index};
  for (Value scalar : {getSeed(), getUpdate(), getMicroStep()})
    inputs.push_back(castTo(b, loc, scalar, i64));
  auto map = MapOp::create(b, loc, TypeRange(type), inputs);
  OpBuilder::InsertionGuard guard(b);
  Block *block =
      b.createBlock(&map.getBody(), {}, {compute, i64, i64, i64, i64},
                    SmallVector<Location>(inputs.size(), loc));
  Value x = block->getArgument(0);
  Words w{b, loc};
  Value word = buildRandomWord(b, loc,
                               {block->getArgument(1), block->getArgument(2),
                                block->getArgument(3), block->getArgument(4),
                                w.number(*getSite())});

  double rate = getRate().convertToDouble();
  auto threshold = static_cast<uint64_t>(std::floor(rate * 0x1p32 + 0.5));
  Value keep = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, word,
                                     w.number(threshold));
  Value scaled = arith::MulFOp::create(
      b, loc, x, splatConstant(b, loc, compute, 1.0 / (1.0 - rate)));
  Value zero = splatConstant(b, loc, compute, 0.0);
  YieldOp::create(
      b, loc, arith::SelectOp::create(b, loc, keep, scaled, zero).getResult());
  return SmallVector<Value>{map.getResult(0)};
}

LogicalResult DropoutOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                        SmallVectorImpl<Value> &operandGrads) {
  auto gradient = cast<DropoutOp>(b.clone(*getOperation()));
  gradient.getInputMutable().assign(resultGrads[0]);
  operandGrads[0] = gradient;
  return success();
}

ShardingRule DropoutOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.shareDims(FactorKind::Parallel, 0, getType().getRank(),
                 {rule.out(0, 0), rule.in(0, 0)});
  rule.linear = {{0}};
  return rule;
}
