//===- AttentionEmitter.cpp - Blocks of an attention ----------------------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace trainc;

/// Largest head size whose blocks fit the stack.
static constexpr int64_t kMaxHeadSize = 512;

static VectorType integerLanes(OpBuilder &b) {
  return VectorType::get({kLanes}, b.getI64Type());
}

/// 0, 1, 2, ...
static Value createRamp(LoopBuilder &l) {
  SmallVector<int64_t> steps;
  for (int64_t i = 0; i < kLanes; ++i)
    steps.push_back(i);
  return arith::ConstantOp::create(
      l.b, l.loc, DenseIntElementsAttr::get(integerLanes(l.b), steps));
}

static Value splatIndex(LoopBuilder &l, Value value) {
  return l.splat(
      arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), value));
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

void AttentionEmitter::setScale(std::optional<APFloat> value) {
  scale = value ? value->convertToDouble() : 1 / std::sqrt(double(headSize));
}

void AttentionEmitter::setMask(Value value) {
  mask = input(value);
  if (!mask)
    return;
  RankedTensorType type = nn::getTensorType(value);
  maskElement = type.getElementType();
  maskStrides.assign(4, 0);
  int64_t stride = 1;
  for (int64_t i = type.getRank() - 1; i >= 0; --i) {
    if (type.getDimSize(i) != 1)
      maskStrides[4 - type.getRank() + i] = stride;
    stride *= type.getDimSize(i);
  }
}

void AttentionEmitter::setPacked(Value qkv, int64_t headCount,
                                 int64_t kvHeadCount) {
  RankedTensorType type = nn::getTensorType(qkv);
  batch = type.getDimSize(0);
  rows = columns = type.getDimSize(1);
  heads = headCount;
  kvHeads = kvHeadCount;
  int64_t stride = type.getDimSize(2);
  headSize = stride / (heads + 2 * kvHeads);
  element = type.getElementType();
  q = {input(qkv), rows, stride, 0};
  k = {input(qkv), rows, stride, heads * headSize};
  v = {input(qkv), rows, stride, (heads + kvHeads) * headSize};
  compute = nn::getComputeType(element);
  vectorType = VectorType::get({kLanes}, compute);
}

template <typename Op> static void setSeparate(AttentionEmitter &e, Op op) {
  RankedTensorType qType = nn::getTensorType(op.getQ());
  RankedTensorType kType = nn::getTensorType(op.getK());
  e.batch = qType.getDimSize(0);
  e.rows = qType.getDimSize(1);
  e.columns = kType.getDimSize(1);
  e.heads = qType.getDimSize(2);
  e.kvHeads = kType.getDimSize(2);
  e.headSize = qType.getDimSize(3);
  e.element = qType.getElementType();
  e.compute = nn::getComputeType(e.element);
  e.vectorType = VectorType::get({kLanes}, e.compute);
  auto at = [&](Value value) { return e.function.inputs.lookup(value); };
  int64_t qStride = e.heads * e.headSize, kStride = e.kvHeads * e.headSize;
  e.q = {at(op.getQ()), e.rows, qStride, 0};
  e.k = {at(op.getK()), e.columns, kStride, 0};
  e.v = {at(op.getV()), e.columns, kStride, 0};
}

AttentionEmitter::AttentionEmitter(KernelFunction &function, nn::AttentionOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setSeparate(*this, op);
  setScale(op.getScale());
  setMask(op.getMask());
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::AttentionGradOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setSeparate(*this, op);
  setScale(op.getScale());
  setMask(op.getMask());
  lse = input(op.getLse());
  out = {input(op.getOut()), rows, heads * headSize, 0};
  dout = {input(op.getDout()), rows, heads * headSize, 0};
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::PackedAttentionOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setPacked(op.getQkv(), op.getHeads(),
            op.getKvHeads().value_or(op.getHeads()));
  setScale(op.getScale());
  setMask(op.getMask());
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::PackedAttentionGradOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setPacked(op.getQkv(), op.getHeads(),
            op.getKvHeads().value_or(op.getHeads()));
  setScale(op.getScale());
  setMask(op.getMask());
  lse = input(op.getLse());
  out = {input(op.getOut()), rows, heads * headSize, 0};
  dout = {input(op.getDout()), rows, heads * headSize, 0};
}

bool AttentionEmitter::isSupported() const {
  return headSize <= kMaxHeadSize && batch * rows * columns * headSize > 0;
}

//===----------------------------------------------------------------------===//
// Loops and vectors
//===----------------------------------------------------------------------===//

void AttentionEmitter::loop(LoopBuilder &l, Value low, Value high, int64_t step,
                            Body body) {
  auto loop = scf::ForOp::create(l.b, loc, low, high, l.index(step));
  OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder i{inner, loc};
  body(i, loop.getInductionVar());
}

SmallVector<Value> AttentionEmitter::loop(LoopBuilder &l, Value low, Value high,
                                          int64_t step, ValueRange initial,
                                          CarryingBody body) {
  auto loop = scf::ForOp::create(l.b, loc, low, high, l.index(step), initial);
  OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder i{inner, loc};
  SmallVector<Value> next =
      body(i, loop.getInductionVar(), loop.getRegionIterArgs());
  scf::YieldOp::create(inner, loc, next);
  return SmallVector<Value>(loop.getResults());
}

void AttentionEmitter::inRegisterTiles(
    LoopBuilder &l, Value low, Value high,
    function_ref<void(LoopBuilder &, Value, int64_t)> body) {
  int64_t many = compute.isF64() ? 4 : 8;
  Value count = arith::SubIOp::create(l.b, loc, high, low);
  Value middle = l.add(low, l.mul(l.div(count, many), many));
  loop(l, low, middle, many,
       [&](LoopBuilder &l, Value at) { body(l, at, many); });
  loop(l, middle, high, 1, [&](LoopBuilder &l, Value at) { body(l, at, 1); });
}

Value AttentionEmitter::scratch(LoopBuilder &l, int64_t rows) {
  return memref::AllocaOp::create(l.b, loc,
                                  MemRefType::get({rows * kLanes}, compute),
                                  l.b.getI64IntegerAttr(64));
}

Value AttentionEmitter::load(LoopBuilder &l, Value scratch, Value row) {
  return vector::LoadOp::create(l.b, loc, vectorType, scratch,
                                ValueRange(l.mul(row, kLanes)));
}

void AttentionEmitter::store(LoopBuilder &l, Value vector, Value scratch,
                             Value row) {
  vector::StoreOp::create(l.b, loc, vector, scratch,
                          ValueRange(l.mul(row, kLanes)));
}

Value AttentionEmitter::constant(LoopBuilder &l, double value) {
  return nn::splatConstant(l.b, loc, vectorType, value);
}

void AttentionEmitter::clear(LoopBuilder &l, Value scratch) {
  Value zero = constant(l, 0.0);
  loop(l, l.index(0), l.index(headSize), 1,
       [&](LoopBuilder &l, Value d) { store(l, zero, scratch, d); });
}

Value AttentionEmitter::rowOffset(LoopBuilder &l, Head head, Value row) {
  const HeadMatrix &m = head.matrix;
  Value token = l.add(l.mul(head.batch, m.length), row);
  Value offset = l.add(l.mul(token, m.stride), l.mul(head.head, headSize));
  return m.offset ? l.add(offset, l.index(m.offset)) : offset;
}

/// Lanes of a block from `first` that are below `length`, a count.
static Value countLanes(LoopBuilder &l, Value first, int64_t length) {
  Value rest = arith::SubIOp::create(l.b, l.loc, l.index(length), first);
  return l.min(rest, l.index(kLanes));
}

void AttentionEmitter::pack(LoopBuilder &l, Head head, Value first,
                            Value transposed) {
  if (head.matrix.length % kLanes != 0)
    clear(l, transposed);
  Value count = countLanes(l, first, head.matrix.length);
  loop(l, l.index(0), count, 1, [&](LoopBuilder &l, Value lane) {
    Value base = rowOffset(l, head, l.add(first, lane));
    loop(l, l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
      Value x = l.loadScalar(head.matrix.memref, l.add(base, d), element);
      l.storeScalar(x, transposed, l.add(l.mul(d, kLanes), lane), compute);
    });
  });
}

void AttentionEmitter::unpack(LoopBuilder &l, Value transposed, Head head,
                              Value first) {
  Value count = countLanes(l, first, head.matrix.length);
  loop(l, l.index(0), count, 1, [&](LoopBuilder &l, Value lane) {
    Value base = rowOffset(l, head, l.add(first, lane));
    loop(l, l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
      Value x =
          l.loadScalar(transposed, l.add(l.mul(d, kLanes), lane), compute);
      l.storeScalar(x, head.matrix.memref, l.add(base, d), element);
    });
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void AttentionEmitter::multiply(LoopBuilder &l, Head head, Value transposed,
                                Value low, Value high, Value products) {
  inRegisterTiles(l, low, high, [&](LoopBuilder &l, Value at, int64_t count) {
    SmallVector<Value> offsets;
    for (int64_t i = 0; i < count; ++i)
      offsets.push_back(rowOffset(l, head, l.add(at, l.index(i))));
    SmallVector<Value> initial(count, constant(l, 0.0));
    auto sums = loop(l, l.index(0), l.index(headSize), 1, initial,
                     [&](LoopBuilder &l, Value d, ValueRange sums) {
                       Value right = load(l, transposed, d);
                       SmallVector<Value> next;
                       for (int64_t i = 0; i < count; ++i) {
                         Value left = l.loadScalar(
                             head.matrix.memref, l.add(offsets[i], d), element);
                         next.push_back(math::FmaOp::create(
                             l.b, loc, l.splat(left), right, sums[i]));
                       }
                       return next;
                     });
    Value row = arith::SubIOp::create(l.b, loc, at, low);
    for (int64_t i = 0; i < count; ++i)
      store(l, sums[i], products, l.add(row, l.index(i)));
  });
}

void AttentionEmitter::accumulate(LoopBuilder &l, Head head, Value weights,
                                  Value low, Value high, Value sums,
                                  Value factor) {
  inRegisterTiles(
      l, l.index(0), l.index(headSize),
      [&](LoopBuilder &l, Value d, int64_t count) {
        SmallVector<Value> initial;
        for (int64_t i = 0; i < count; ++i) {
          Value sum = load(l, sums, l.add(d, l.index(i)));
          if (factor)
            sum = arith::MulFOp::create(l.b, loc, sum, factor);
          initial.push_back(sum);
        }
        auto results = loop(
            l, low, high, 1, initial,
            [&](LoopBuilder &l, Value row, ValueRange sums) {
              Value right =
                  load(l, weights, arith::SubIOp::create(l.b, loc, row, low));
              Value base = l.add(rowOffset(l, head, row), d);
              SmallVector<Value> next;
              for (int64_t i = 0; i < count; ++i) {
                Value left = l.loadScalar(head.matrix.memref,
                                          l.add(base, l.index(i)), element);
                next.push_back(math::FmaOp::create(l.b, loc, l.splat(left),
                                                   right, sums[i]));
              }
              return next;
            });
        for (int64_t i = 0; i < count; ++i)
          store(l, results[i], sums, l.add(d, l.index(i)));
      });
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value AttentionEmitter::lanesBelow(LoopBuilder &l, Value first,
                                   int64_t length) {
  return vector::CreateMaskOp::create(
      l.b, loc, VectorType::get({kLanes}, l.b.getI1Type()),
      countLanes(l, first, length));
}

Value AttentionEmitter::finite(LoopBuilder &l, Value value) {
  Value infinity = constant(l, -std::numeric_limits<double>::infinity());
  Value isMasked = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OEQ,
                                         value, infinity);
  return arith::SelectOp::create(l.b, loc, isMasked, constant(l, 0.0), value);
}

Value AttentionEmitter::exp(LoopBuilder &l, Value value) {
  return math::ExpOp::create(l.b, loc, value);
}

Value AttentionEmitter::loadMask(LoopBuilder &l, Value batchIndex, Value head,
                                 Value first, Value row, bool lanesAreQueries) {
  int64_t rowDim = lanesAreQueries ? 3 : 2, laneDim = lanesAreQueries ? 2 : 3;
  Value base =
      l.add(l.mul(batchIndex, maskStrides[0]), l.mul(head, maskStrides[1]));
  base = l.add(base, l.mul(row, maskStrides[rowDim]));
  auto loadOne = [&](LoopBuilder &l, Value at) -> Value {
    Value value = l.loadScalar(mask, at, maskElement);
    if (maskElement.isInteger(1))
      return arith::UIToFPOp::create(l.b, loc, compute, value);
    Type type = value.getType();
    if (type.getIntOrFloatBitWidth() < compute.getIntOrFloatBitWidth())
      return arith::ExtFOp::create(l.b, loc, compute, value);
    if (type != compute)
      return arith::TruncFOp::create(l.b, loc, compute, value);
    return value;
  };
  if (maskStrides[laneDim] == 0)
    return l.splat(loadOne(l, base));
  // Lanes past the end read the last element.
  int64_t length = lanesAreQueries ? rows : columns;
  loop(l, l.index(0), l.index(kLanes), 1, [&](LoopBuilder &l, Value lane) {
    Value at = l.min(l.add(first, lane), l.index(length - 1));
    Value value = loadOne(l, l.add(base, l.mul(at, maskStrides[laneDim])));
    l.storeScalar(value, maskRow, lane, compute);
  });
  return load(l, maskRow, l.index(0));
}

Value AttentionEmitter::finishScores(LoopBuilder &l, Value product,
                                     Value batchIndex, Value head, Value first,
                                     Value row, bool lanesAreQueries) {
  Value infinity = constant(l, -std::numeric_limits<double>::infinity());
  Value score = arith::MulFOp::create(l.b, loc, product, constant(l, scale));
  if (mask) {
    Value value = loadMask(l, batchIndex, head, first, row, lanesAreQueries);
    if (maskElement.isInteger(1)) {
      Value isSet = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::ONE,
                                          value, constant(l, 0.0));
      score = arith::SelectOp::create(l.b, loc, isSet, score, infinity);
    } else {
      score = arith::AddFOp::create(l.b, loc, score, value);
    }
  }
  if (!causal)
    return score;
  // Key j is visible to query i where j <= i + columns - rows.
  Value shift = l.index(columns - rows);
  Value isVisible;
  if (lanesAreQueries) {
    Value bound = arith::SubIOp::create(l.b, loc, row, l.add(first, shift));
    isVisible = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::sge,
                                      createRamp(l), splatIndex(l, bound));
  } else {
    Value bound = arith::SubIOp::create(l.b, loc, l.add(row, shift), first);
    isVisible = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::sle,
                                      createRamp(l), splatIndex(l, bound));
  }
  return arith::SelectOp::create(l.b, loc, isVisible, score, infinity);
}

Value AttentionEmitter::visibleKeys(LoopBuilder &l, Value first) {
  if (!causal)
    return l.index(columns);
  Value end = l.add(first, l.index(kLanes + columns - rows));
  end = arith::MinSIOp::create(l.b, loc, end, l.index(columns));
  return arith::MaxSIOp::create(l.b, loc, end, l.index(0));
}
