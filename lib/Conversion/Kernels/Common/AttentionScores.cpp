//===- AttentionScores.cpp - Scores of an attention, exponentials ---------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include <limits>

using namespace mlir;
using namespace trainc;

/// 0, 1, 2, ...
static Value createRamp(LoopBuilder &l, int64_t lanes) {
  auto steps = llvm::to_vector(llvm::seq<int32_t>(0, lanes));
  auto type = VectorType::get({lanes}, l.b.getI32Type());
  return arith::ConstantOp::create(l.b, l.loc,
                                   DenseIntElementsAttr::get(type, steps));
}

static Value splatIndex(LoopBuilder &l, Value value, int64_t lanes) {
  return l.splat(
      arith::IndexCastOp::create(l.b, l.loc, l.b.getI32Type(), value), lanes);
}

//===----------------------------------------------------------------------===//
// Exponentials
//===----------------------------------------------------------------------===//

Value AttentionEmitter::polynomial(LoopBuilder &l,
                                   ArrayRef<double> coefficients, Value value) {
  Value sum = constant(l, coefficients[0]);
  for (double coefficient : coefficients.drop_front())
    sum = math::FmaOp::create(l.b, loc, sum, value, constant(l, coefficient));
  return sum;
}

Value AttentionEmitter::shiftExponent(LoopBuilder &l, Value value,
                                      Value whole) {
  auto integers = VectorType::get({blockLanes}, l.b.getI32Type());
  auto bits = [&](Value value) -> Value {
    return arith::BitcastOp::create(l.b, loc, integers, value);
  };
  Value exponent = arith::ShLIOp::create(
      l.b, loc, bits(whole), nn::splatConstant(l.b, loc, integers, 23));
  Value sum = arith::AddIOp::create(l.b, loc, bits(value), exponent);
  return arith::BitcastOp::create(l.b, loc, vectorType, sum);
}

Value AttentionEmitter::exp(LoopBuilder &l, Value value) {
  if (!compute.isF32())
    return math::ExpOp::create(l.b, loc, value);
  // The remainder after multiples of log(2): their number times the error of the
  // constant is nothing where the result is not.
  constexpr double coefficients[] = {0.001381443333397937,
                                     0.008368796875285028,
                                     0.041668395806671435,
                                     0.16666519971884153,
                                     0.4999999340333646,
                                     1.0,
                                     1.0};
  constexpr double least = -87, log2 = 0.6931471805599453;
  Value whole = math::FmaOp::create(l.b, loc, value, constant(l, kLog2E),
                                    constant(l, kRound));
  Value number = arith::SubFOp::create(l.b, loc, whole, constant(l, kRound));
  Value rest = math::FmaOp::create(l.b, loc, number, constant(l, -log2), value);
  Value result = shiftExponent(l, polynomial(l, coefficients, rest), whole);
  // 0 below, and NaN, whatever its bits are.
  Value zero = constant(l, 0.0);
  Value isBelow =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OGT, zero, value);
  Value other = arith::SelectOp::create(l.b, loc, isBelow, zero, value);
  Value isNormal = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OGE,
                                         value, constant(l, least));
  return arith::SelectOp::create(l.b, loc, isNormal, result, other);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value AttentionEmitter::finite(LoopBuilder &l, Value value) {
  Value infinity = constant(l, -std::numeric_limits<double>::infinity());
  Value isMasked = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OEQ,
                                         value, infinity);
  return arith::SelectOp::create(l.b, loc, isMasked, constant(l, 0.0), value);
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
    return l.splat(loadOne(l, base), blockLanes);
  int64_t length = lanesAreQueries ? rows : columns;
  if (maskStrides[laneDim] == 1 && maskElement == compute)
    return l.loadVector(mask, l.add(base, first), compute,
                        lanesBelow(l, first, length), blockLanes);
  // Lanes past the end read the last element.
  l.loop(l.index(0), l.index(blockLanes), 1, [&](LoopBuilder &l, Value lane) {
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
  if (segments) { // as many of keys as of queries
    Value base = l.mul(batchIndex, rows);
    Value one = l.loadScalar(segments, l.add(base, row), segmentElement);
    Value others = l.loadVector(segments, l.add(base, first), segmentElement,
                                lanesBelow(l, first, rows), blockLanes);
    Value isSame = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::eq,
                                         others, l.splat(one, blockLanes));
    score = arith::SelectOp::create(l.b, loc, isSame, score, infinity);
  }
  if (!causal)
    return score;
  // Key j is visible to query i where j <= i + columns - rows, and of a window
  // where j > i + columns - rows - window.
  Value shift = l.index(columns - rows), bound;
  if (lanesAreQueries)
    bound = arith::SubIOp::create(l.b, loc, row, l.add(first, shift));
  else
    bound = arith::SubIOp::create(l.b, loc, l.add(row, shift), first);
  Value lanes = createRamp(l, blockLanes);
  auto keep = [&](arith::CmpIPredicate kind, Value bound) {
    Value isVisible = arith::CmpIOp::create(l.b, loc, kind, lanes,
                                            splatIndex(l, bound, blockLanes));
    score = arith::SelectOp::create(l.b, loc, isVisible, score, infinity);
  };
  keep(lanesAreQueries ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle,
       bound);
  if (!window)
    return score;
  if (lanesAreQueries)
    keep(arith::CmpIPredicate::slt, l.add(bound, l.index(*window)));
  else
    keep(arith::CmpIPredicate::sgt,
         arith::SubIOp::create(l.b, loc, bound, l.index(*window)));
  return score;
}

Value AttentionEmitter::firstKeys(LoopBuilder &l, Value first) {
  if (!window)
    return l.index(0);
  Value key = l.add(first, l.index(columns - rows - *window + 1));
  key = arith::MaxSIOp::create(l.b, loc, key, l.index(0));
  return l.mul(l.div(key, kAttentionRows), kAttentionRows);
}

Value AttentionEmitter::visibleKeys(LoopBuilder &l, Value first) {
  if (!causal)
    return l.index(columns);
  Value end = l.add(first, l.index(blockLanes + columns - rows));
  end = arith::MinSIOp::create(l.b, loc, end, l.index(columns));
  return arith::MaxSIOp::create(l.b, loc, end, l.index(0));
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

nn::RandomCounter AttentionEmitter::loadCounter(LoopBuilder &l) {
  Type i64 = l.b.getI64Type();
  auto number = [&](Value memref) -> Value {
    Value value =
        memref::LoadOp::create(l.b, loc, memref, ValueRange(l.index(0)));
    return arith::FPToSIOp::create(l.b, loc, i64, value);
  };
  return {Value(), number(seed), number(update), number(microStep),
          arith::ConstantOp::create(l.b, loc, l.b.getI64IntegerAttr(site))};
}

Value AttentionEmitter::firstDrawOf(LoopBuilder &l, Value batchIndex,
                                    Value head) {
  int64_t group = heads / kvHeads;
  Value at = l.add(l.mul(batchIndex, drawStrides[0]),
                   l.add(l.mul(l.div(head, group), drawStrides[1]),
                         l.mul(l.mod(head, group), drawStrides[2])));
  if (!firstDraw)
    return at;
  Value first =
      memref::LoadOp::create(l.b, loc, firstDraw, ValueRange(l.index(0)));
  return l.add(at,
               arith::IndexCastOp::create(l.b, loc, l.b.getIndexType(), first));
}

Value AttentionEmitter::dropOut(LoopBuilder &l, Value value, Value words) {
  Type type = value.getType();
  Value scaled = arith::MulFOp::create(
      l.b, loc, value, nn::splatConstant(l.b, loc, type, 1.0 / (1.0 - *rate)));
  uint64_t threshold = nn::getDrawThreshold(*rate);
  if (threshold == 0)
    return scaled;
  // Of 32 bits, and no threshold but 2^32 has more.
  APInt last(getElementTypeOrSelf(words).getIntOrFloatBitWidth(),
             threshold - 1);
  TypedAttr attribute = l.b.getIntegerAttr(getElementTypeOrSelf(words), last);
  if (auto vector = dyn_cast<VectorType>(words.getType()))
    attribute = DenseElementsAttr::get(vector, last);
  Value isKept =
      arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ugt, words,
                            arith::ConstantOp::create(l.b, loc, attribute));
  return arith::SelectOp::create(l.b, loc, isKept, scaled,
                                 nn::splatConstant(l.b, loc, type, 0.0));
}

/// The number of the group of 4 elements from index `at` on, a multiple of 4, as i64.
static Value groupAt(LoopBuilder &l, Value at) {
  return arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), l.div(at, 4));
}

static Value truncateWord(LoopBuilder &l, Value word) {
  auto type = cast<VectorType>(word.getType());
  return arith::TruncIOp::create(l.b, l.loc, type.clone(l.b.getI32Type()),
                                 word);
}

void AttentionEmitter::dropKeys(LoopBuilder &l, Value weights, Value count,
                                const nn::RandomCounter &counter,
                                Value headDraw, Value first, Value low) {
  Value queries = arith::MulIOp::create(
      l.b, loc, l.count(first, blockLanes),
      nn::splatConstant(l.b, loc,
                        VectorType::get({blockLanes}, l.b.getI64Type()),
                        drawStrides[3] / 4));
  Value start = groupAt(l, l.add(headDraw, low));
  queries =
      arith::AddIOp::create(l.b, loc, queries, l.splat(start, blockLanes));
  // The last group may end behind `count`: there is room, and nobody reads that.
  l.loop(l.index(0), count, 4, [&](LoopBuilder &l, Value at) {
    nn::RandomCounter here = counter;
    here.index = arith::AddIOp::create(l.b, loc, queries,
                                       l.splat(groupAt(l, at), blockLanes));
    for (auto [i, word] :
         llvm::enumerate(nn::buildRandomWords(l.b, loc, here))) {
      Value row = l.add(at, l.index(i));
      Value dropped = dropOut(l, load(l, weights, row), truncateWord(l, word));
      store(l, dropped, weights, row);
    }
  });
}

Value AttentionEmitter::drawKeys(LoopBuilder &l,
                                 const nn::RandomCounter &counter,
                                 Value headDraw, Value query, Value first) {
  Value at = l.add(headDraw, l.add(l.mul(query, drawStrides[3]), first));
  nn::RandomCounter here = counter;
  here.index = l.count(l.div(at, 4), blockLanes / 4);
  SmallVector<Value> words;
  for (Value word : nn::buildRandomWords(l.b, loc, here))
    words.push_back(truncateWord(l, word));
  auto interleave = [&](Value x, Value y) -> Value {
    int64_t lanes = cast<VectorType>(x.getType()).getDimSize(0);
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < lanes; ++lane)
      order.append({lane, lanes + lane});
    return vector::ShuffleOp::create(l.b, loc, x, y, order);
  };
  return interleave(interleave(words[0], words[2]),
                    interleave(words[1], words[3]));
}
