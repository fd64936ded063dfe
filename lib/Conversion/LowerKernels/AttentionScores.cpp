//===- AttentionScores.cpp - Scores of an attention, exponentials ---------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
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
  if (!causal)
    return score;
  // Key j is visible to query i where j <= i + columns - rows.
  Value shift = l.index(columns - rows);
  Value isVisible;
  if (lanesAreQueries) {
    Value bound = arith::SubIOp::create(l.b, loc, row, l.add(first, shift));
    isVisible = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::sge,
                                      createRamp(l, blockLanes),
                                      splatIndex(l, bound, blockLanes));
  } else {
    Value bound = arith::SubIOp::create(l.b, loc, l.add(row, shift), first);
    isVisible = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::sle,
                                      createRamp(l, blockLanes),
                                      splatIndex(l, bound, blockLanes));
  }
  return arith::SelectOp::create(l.b, loc, isVisible, score, infinity);
}

Value AttentionEmitter::visibleKeys(LoopBuilder &l, Value first) {
  if (!causal)
    return l.index(columns);
  Value end = l.add(first, l.index(blockLanes + columns - rows));
  end = arith::MinSIOp::create(l.b, loc, end, l.index(columns));
  return arith::MaxSIOp::create(l.b, loc, end, l.index(0));
}
