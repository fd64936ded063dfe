//===- NNRandomOps.cpp - Operations that draw random numbers --------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "trainc/Dialect/NN/Numerics.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// C2 to C4 of what draws.
template <typename Op> static LogicalResult verifyDraw(Op op) {
  unsigned given = llvm::count_if(
      ArrayRef<Value>{op.getSeed(), op.getUpdate(), op.getMicroStep()},
      [](Value scalar) { return scalar != nullptr; });
  if (given != 0 && (given != 3 || !op.getSite()))
    return op.emitOpError("expects seed, update, micro_step and site together "
                          "(C2), got ")
           << given << " of the scalars and " << (op.getSite() ? "a" : "no")
           << " site";
  if (op.getSite() && *op.getSite() > 0x7FFFFFFF)
    return op.emitOpError("expects a site in [0, 2^31) (C3), got ")
           << static_cast<int64_t>(*op.getSite());
  ArrayRef<int64_t> strides = op.getStrides().value_or(ArrayRef<int64_t>());
  bool complete =
      static_cast<int64_t>(strides.size()) == op.getType().getRank();
  if (op.getStrides().has_value() != (op.getFirst() != nullptr) ||
      (op.getFirst() && !complete) ||
      llvm::any_of(strides, [](int64_t stride) { return stride < 0; }))
    return op.emitOpError(
               "expects one stride of at least 0 per dimension together "
               "with first (C4), got [")
           << strides << "] for " << op.getType();
  return success();
}

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate < 1.0))
    return emitOpError("expects a rate in [0, 1) (C1), got ") << rate;
  return verifyDraw(*this);
}

LogicalResult RandomOp::verify() {
  bool isBernoulli = getDistribution() == Distribution::bernoulli;
  double p = getP() ? getP()->convertToDouble() : 0.0;
  if (isBernoulli && !getP())
    return emitOpError("expects p with bernoulli (C1)");
  if (isBernoulli != getP().has_value() || !(p >= 0.0 && p <= 1.0))
    return emitOpError("expects p in [0, 1] with bernoulli only (C1), got ")
           << p << " with " << stringifyDistribution(getDistribution());
  return verifyDraw(*this);
}

OpFoldResult DropoutOp::fold(FoldAdaptor) {
  if (getRate().isZero())
    return getInput();
  return {};
}

Value nn::buildElementIndex(OpBuilder &b, Location loc, ArrayRef<int64_t> shape,
                            ArrayRef<int64_t> strides) {
  Value index;
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
    index = index ? AddOp::create(b, loc, term, index).getResult() : term;
  }
  return index ? index : scalarConstant(b, loc, b.getI64Type(), 0.0);
}

namespace {
/// Arithmetic of numerics::philox on i64 numbers, or vectors of them.
struct Words {
  OpBuilder &b;
  Location loc;

  Value number(uint64_t value, Type type = {}) const {
    IntegerAttr number = b.getI64IntegerAttr(static_cast<int64_t>(value));
    if (auto vector = dyn_cast_if_present<VectorType>(type))
      return arith::ConstantOp::create(
          b, loc, DenseElementsAttr::get(vector, Attribute(number)));
    return arith::ConstantOp::create(b, loc, number);
  }
  Value low(Value x) const {
    return arith::AndIOp::create(b, loc, x, number(0xFFFFFFFF, x.getType()));
  }
  Value high(Value x) const {
    return arith::ShRUIOp::create(b, loc, x, number(32, x.getType()));
  }
  Value mul(Value x, uint64_t factor) const {
    return arith::MulIOp::create(b, loc, x, number(factor, x.getType()));
  }
  Value add(Value x, uint64_t term) const {
    return low(arith::AddIOp::create(b, loc, x, number(term, x.getType())));
  }
  Value bitXor(Value x, Value y) const {
    return arith::XOrIOp::create(b, loc, x, y);
  }
};
} // namespace

std::array<Value, 4> nn::buildRandomWords(OpBuilder &b, Location loc,
                                          const RandomCounter &counter) {
  Words w{b, loc};
  Type type = counter.index.getType();
  auto spread = [&](Value number) -> Value {
    if (number.getType() == type)
      return number;
    return vector::BroadcastOp::create(b, loc, type, number);
  };
  Value words[] = {w.low(counter.index), w.high(counter.index),
                   spread(w.low(counter.update)),
                   spread(w.low(counter.microStep))};
  numerics::philox(w, words, spread(w.low(counter.seed)),
                   spread(w.bitXor(w.high(counter.seed), counter.site)));
  return {words[0], words[1], words[2], words[3]};
}

namespace {
/// The four words that an element shares with others, and its place among them.
struct Draw {
  Draw(OpBuilder &b, Location loc, const RandomCounter &counter)
      : w{b, loc}, odd(bit(counter, 1)), second(bit(counter, 2)) {
    RandomCounter group = counter;
    group.index = arith::ShRUIOp::create(b, loc, counter.index, w.number(2));
    r = buildRandomWords(b, loc, group);
  }

  Value bit(const RandomCounter &counter, uint64_t mask) const {
    Value masked =
        arith::AndIOp::create(w.b, w.loc, counter.index, w.number(mask));
    return arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::ne, masked,
                                 w.number(0));
  }
  Value choose(Value condition, Value yes, Value no) const {
    return arith::SelectOp::create(w.b, w.loc, condition, yes, no);
  }
  Value word() const {
    return choose(second, choose(odd, r[3], r[2]), choose(odd, r[1], r[0]));
  }
  std::pair<Value, Value> pair() const {
    return {choose(second, r[2], r[0]), choose(second, r[3], r[1])};
  }

  Words w;
  Value odd, second;
  std::array<Value, 4> r;
};
} // namespace

Value nn::buildRandomWord(OpBuilder &b, Location loc,
                          const RandomCounter &counter) {
  return Draw(b, loc, counter).word();
}

/// A map of `inputs` to tensors of `types`, of the shape of what `op` draws. `build`
/// computes elements from those of the inputs and their draw.
template <typename Op>
static FailureOr<MapOp> mapDraws(
    Op op, OpBuilder &b, ValueRange inputs, TypeRange types,
    llvm::function_ref<SmallVector<Value>(const Draw &, ValueRange)> build) {
  if (!op.getSeed())
    return op.emitOpError("has no definition before it has a site and a seed");
  Location loc = op.getLoc();
  RankedTensorType type = op.getType();
  Type i64 = b.getI64Type();
  Value index = buildElementIndex(
      b, loc, type.getShape(), op.getStrides().value_or(ArrayRef<int64_t>()));
  if (op.getFirst())
    index = AddOp::create(b, loc, index, op.getFirst());
  if (getTensorType(index).getShape() != type.getShape())
    index = BroadcastOp::create(b, loc, type.clone(i64), index);
  SmallVector<Value> operands(inputs);
  operands.push_back(index);
  for (Value scalar : {op.getSeed(), op.getUpdate(), op.getMicroStep()})
    operands.push_back(castTo(b, loc, scalar, i64));
  SmallVector<Type> arguments;
  for (Value operand : operands)
    arguments.push_back(
        getComputeType(getTensorType(operand).getElementType()));
  auto map = MapOp::create(b, loc, types, operands);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&map.getBody(), {}, arguments,
                               SmallVector<Location>(arguments.size(), loc));
  ValueRange counter = block->getArguments().drop_front(inputs.size());
  Draw draw(b, loc,
            {counter[0], counter[1], counter[2], counter[3],
             Words{b, loc}.number(*op.getSite())});
  YieldOp::create(b, loc,
                  build(draw, block->getArguments().take_front(inputs.size())));
  return map;
}

uint64_t nn::getDrawThreshold(double p) {
  return static_cast<uint64_t>(std::floor(p * 0x1p32 + 0.5));
}

static Value threshold(const Words &w, double p) {
  return w.number(getDrawThreshold(p));
}

FailureOr<SmallVector<Value>> DropoutOp::decompose(OpBuilder &b) {
  double rate = getRate().convertToDouble();
  auto map = mapDraws(
      *this, b, getInput(), getType(),
      [&](const Draw &draw, ValueRange x) -> SmallVector<Value> {
        Location loc = getLoc();
        Type compute = x[0].getType();
        Value keep =
            arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge,
                                  draw.word(), threshold(draw.w, rate));
        Value scaled = arith::MulFOp::create(
            b, loc, x[0], splatConstant(b, loc, compute, 1.0 / (1.0 - rate)));
        return {draw.choose(keep, scaled, splatConstant(b, loc, compute, 0.0))};
      });
  if (failed(map))
    return failure();
  return SmallVector<Value>(map->getResults());
}

/// (floor(word / 2^(32 - bits)) + offset) / 2^bits.
static Value fraction(const Words &w, Value word, unsigned bits,
                      uint64_t offset, Type type) {
  word = arith::ShRUIOp::create(w.b, w.loc, word, w.number(32 - bits));
  if (offset)
    word = arith::AddIOp::create(w.b, w.loc, word, w.number(offset));
  if (bits <
      32) // a number of 32 bits: processors convert these in one instruction
    word = arith::TruncIOp::create(w.b, w.loc, w.b.getI32Type(), word);
  Value number = arith::SIToFPOp::create(w.b, w.loc, type, word);
  return arith::MulFOp::create(
      w.b, w.loc, number,
      splatConstant(w.b, w.loc, type, std::ldexp(1.0, -int(bits))));
}

FailureOr<SmallVector<Value>> RandomOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType type = getType();
  FloatType element = cast<FloatType>(type.getElementType());
  Type compute = getComputeType(element);
  if (getDistribution() == Distribution::normal) {
    RankedTensorType numbers = type.clone(compute);
    unsigned bits = compute.isF64() ? 32 : 24;
    auto map = mapDraws(
        *this, b, {}, {numbers, numbers},
        [&](const Draw &draw, ValueRange) -> SmallVector<Value> {
          auto [v, w] = draw.pair();
          auto number = [&](double value) {
            return splatConstant(b, loc, compute, value);
          };
          Value turn = fraction(draw.w, w, bits, 0, compute);
          Value less = draw.choose(draw.odd, number(-0.25), number(0.0));
          turn = arith::AddFOp::create(b, loc, turn, less);
          Value angle = arith::MulFOp::create(b, loc, turn, number(2.0 * M_PI));
          return {fraction(draw.w, v, bits, 1, compute), angle};
        });
    if (failed(map))
      return failure();
    Value square = MulOp::create(b, loc, scalarConstant(b, loc, compute, -2.0),
                                 LogOp::create(b, loc, map->getResult(0)));
    Value radius = SqrtOp::create(b, loc, square);
    Value cosine = CosOp::create(b, loc, map->getResult(1));
    Value normal = MulOp::create(b, loc, radius, cosine);
    return SmallVector<Value>{castTo(b, loc, normal, element)};
  }
  auto map =
      mapDraws(*this, b, {}, type,
               [&](const Draw &draw, ValueRange) -> SmallVector<Value> {
                 if (getDistribution() == Distribution::uniform)
                   return {fraction(draw.w, draw.word(),
                                    std::min(element.getFPMantissaWidth(), 32u),
                                    0, compute)};
                 Value drawn = arith::CmpIOp::create(
                     b, loc, arith::CmpIPredicate::ult, draw.word(),
                     threshold(draw.w, getP()->convertToDouble()));
                 return {draw.choose(drawn, splatConstant(b, loc, compute, 1.0),
                                     splatConstant(b, loc, compute, 0.0))};
               });
  if (failed(map))
    return failure();
  return SmallVector<Value>(map->getResults());
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
