//===- AttentionTiles.cpp - Blocks of an attention by tiles ---------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

TileAttention::TileAttention(const AttentionEmitter &emitter)
    : AttentionEmitter(emitter), depth(llvm::divideCeil(headSize, kTileDepth)),
      height(llvm::divideCeil(headSize, kTileSide)) {
  function.function->setAttr("amx", UnitAttr::get(loc.getContext()));
}

bool trainc::fitsTiles(const AttentionEmitter &e) {
  // Measured: less than that is as fast by vectors, or faster.
  int64_t length = std::min(e.rows, e.columns);
  return e.element.isBF16() && ((length >= kLanes && e.headSize >= 8) ||
                                (length >= kTileSide && e.headSize >= 32));
}

Value TileAttention::words(LoopBuilder &l, int64_t count) {
  return function.allocateScratch(l, l.b.getI32Type(), count);
}

void TileAttention::inIf(LoopBuilder &l, Value condition,
                         function_ref<void(LoopBuilder &)> body) {
  auto branch = scf::IfOp::create(l.b, loc, condition, /*withElse=*/false);
  OpBuilder inner = branch.getThenBodyBuilder();
  LoopBuilder then{inner, loc};
  body(then);
}

TileGrid TileAttention::lanesAt(LoopBuilder &l, Value scratch, Value row) {
  return {addressOf(l, scratch, l.mul(row, kLanes)), 2 * kTileRow, kTileRow, 0};
}

void TileAttention::scaleRow(LoopBuilder &l, Value scratch, Value row,
                             Value factor) {
  Value value = load(l, scratch, row);
  store(l, arith::MulFOp::create(l.b, loc, value, factor), scratch, row);
}

Value TileAttention::selectNumber(LoopBuilder &l, Value condition, double x,
                                  double y) {
  auto number = [&](double value) {
    return nn::splatConstant(l.b, loc, compute, value);
  };
  return l.splat(
      arith::SelectOp::create(l.b, loc, condition, number(x), number(y)));
}

//===----------------------------------------------------------------------===//
// Panels
//===----------------------------------------------------------------------===//

static VectorType vectorOf(int64_t lanes, Type element) {
  return VectorType::get({lanes}, element);
}

static Value subtract(LoopBuilder &l, Value x, Value y) {
  return arith::SubIOp::create(l.b, l.loc, x, y);
}

int64_t TileAttention::rowsPerBlock(int64_t length) {
  return length > kLanes ? kAttentionRows : kLanes;
}

Value TileAttention::countRows(LoopBuilder &l, Value first, int64_t length) {
  if (isWhole(length))
    return Value();
  Value rest = subtract(l, l.index(length), first);
  rest = arith::MaxSIOp::create(l.b, loc, rest, l.index(0));
  return l.min(rest, l.index(kLanes));
}

Value TileAttention::insideRows(LoopBuilder &l, Value row, Value count, Value d,
                                int64_t lanes) {
  Value inside;
  if (headSize % lanes)
    inside = l.min(subtract(l, l.index(headSize), d), l.index(lanes));
  if (!count)
    return inside;
  Value isRow =
      arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult, row, count);
  return arith::SelectOp::create(l.b, loc, isRow,
                                 inside ? inside : l.index(lanes), l.index(0));
}

/// `lanes` elements as they stand in memory.
static Value loadElements(LoopBuilder &l, Value memref, Value at, Value inside,
                          int64_t lanes) {
  auto type = vectorOf(lanes, l.b.getBF16Type());
  if (!inside)
    return vector::LoadOp::create(l.b, l.loc, type, memref, ValueRange(at));
  Value mask = vector::CreateMaskOp::create(
      l.b, l.loc, vectorOf(lanes, l.b.getI1Type()), inside);
  Value zero = nn::splatConstant(l.b, l.loc, type, 0.0);
  return vector::MaskedLoadOp::create(l.b, l.loc, type, memref, ValueRange(at),
                                      mask, zero);
}

Value TileAttention::loadWords(LoopBuilder &l, const Rows &rows, Value row,
                               Value count, Value d) {
  Value elements =
      loadElements(l, rows.memref, l.add(offset(l, rows, row), d),
                   insideRows(l, row, count, d, kTileDepth), kTileDepth);
  return vector::BitCastOp::create(
      l.b, loc, vectorOf(kTileSide, l.b.getI32Type()), elements);
}

Value TileAttention::loadPair(LoopBuilder &l, const Rows &rows, Value row,
                              Value count, Value d) {
  auto halves = vectorOf(kTileSide, l.b.getI16Type());
  auto type = vectorOf(kTileSide, l.b.getI32Type());
  auto one = [&](Value row) -> Value {
    Value elements =
        loadElements(l, rows.memref, l.add(offset(l, rows, row), d),
                     insideRows(l, row, count, d, kTileSide), kTileSide);
    Value bits = vector::BitCastOp::create(l.b, loc, halves, elements);
    return arith::ExtUIOp::create(l.b, loc, type, bits);
  };
  Value upper = one(l.add(row, l.index(kTileSide)));
  upper = arith::ShLIOp::create(l.b, loc, upper,
                                nn::splatConstant(l.b, loc, type, 16));
  return arith::OrIOp::create(l.b, loc, one(row), upper);
}

static void storeWords(LoopBuilder &l, Value vector, Value to, Value at) {
  vector::StoreOp::create(l.b, l.loc, vector, to, ValueRange(at));
}

void TileAttention::packRows(LoopBuilder &l, const Rows &rows, Value count,
                             Value to, Value at) {
  l.loop(l.index(0), l.index(kLanes), 1, [&](LoopBuilder &l, Value row) {
    Value begin = l.add(at, l.mul(row, depth * kTileSide));
    for (int64_t i = 0; i < depth; ++i)
      storeWords(l, loadWords(l, rows, row, count, l.index(i * kTileDepth)), to,
                 l.add(begin, l.index(i * kTileSide)));
  });
}

TileGrid TileAttention::rowsAt(LoopBuilder &l, Value packed, Value at) {
  int64_t stride = depth * kTileRow;
  return {addressOf(l, packed, at), stride, kTileSide * stride, kTileRow};
}

void TileAttention::packAcross(LoopBuilder &l, const Rows &rows, Value count,
                               Value to, Value at) {
  l.loop(l.index(0), l.index(depth), 1, [&](LoopBuilder &l, Value step) {
    Value begin = l.add(at, l.mul(step, kTileSide * kLanes));
    Value d = l.mul(step, kTileDepth);
    for (int64_t half = 0; half < kLanes; half += kTileSide) {
      SmallVector<Value> block;
      for (int64_t i = 0; i < kTileSide; ++i)
        block.push_back(loadWords(l, rows, l.index(half + i), count, d));
      transpose(l, block);
      for (auto [i, words] : llvm::enumerate(block))
        storeWords(l, words, to, l.add(begin, l.index(i * kLanes + half)));
    }
  });
}

TileGrid TileAttention::acrossAt(LoopBuilder &l, Value packed, Value at) {
  return {addressOf(l, packed, at), 2 * kTileRow, kTileRow, 2 * kTileBytes};
}

void TileAttention::packPairs(LoopBuilder &l, const Rows &rows, Value count,
                              Value to, Value at) {
  l.loop(l.index(0), l.index(kTileSide), 1, [&](LoopBuilder &l, Value row) {
    Value begin = l.add(at, l.mul(row, height * kTileSide));
    for (int64_t d = 0; d < headSize; d += kTileSide)
      storeWords(l, loadPair(l, rows, row, count, l.index(d)), to,
                 l.add(begin, l.index(d)));
  });
}

TileGrid TileAttention::pairsAt(LoopBuilder &l, Value packed, Value at) {
  return {addressOf(l, packed, at), height * kTileRow, kTileRow,
          height * kTileBytes};
}

void TileAttention::packColumns(LoopBuilder &l, const Rows &rows, Value count,
                                Value to, Value at) {
  l.loop(l.index(0), l.index(height), 1, [&](LoopBuilder &l, Value tile) {
    Value begin = l.add(at, l.mul(tile, kTileSide * kTileSide));
    SmallVector<Value> block;
    for (int64_t i = 0; i < kTileSide; ++i)
      block.push_back(
          loadPair(l, rows, l.index(i), count, l.mul(tile, kTileSide)));
    transpose(l, block);
    for (auto [i, words] : llvm::enumerate(block))
      storeWords(l, words, to, l.add(begin, l.index(i * kTileSide)));
  });
}

TileGrid TileAttention::columnsAt(LoopBuilder &l, Value packed, Value at) {
  return {addressOf(l, packed, at), kTileRow, kTileBytes, height * kTileBytes};
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value TileAttention::exp2(LoopBuilder &l, Value value) {
  // Adding 1.5 * 2^23 rounds to a whole number, which is in the lowest bits then;
  // it is added to the exponent of 2^fraction. NaN stays NaN: the comparison is
  // written so that it is selected.
  constexpr double coefficients[] = {0.009582850668643943, 0.05590642819245262,
                                     0.24024098682939588, 0.6931241927688818,
                                     1.0};
  constexpr double round = 12582912, least = -127;
  auto integers = vectorOf(kLanes, l.b.getI32Type());
  Value bound = constant(l, least);
  Value isBelow =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OGT, bound, value);
  Value x = arith::SelectOp::create(l.b, loc, isBelow, bound, value);
  Value whole = arith::AddFOp::create(l.b, loc, x, constant(l, round));
  Value fraction = arith::SubFOp::create(
      l.b, loc, x, arith::SubFOp::create(l.b, loc, whole, constant(l, round)));
  Value power = constant(l, coefficients[0]);
  for (double coefficient : llvm::drop_begin(coefficients))
    power = math::FmaOp::create(l.b, loc, power, fraction,
                                constant(l, coefficient));
  auto bits = [&](Value value) -> Value {
    return arith::BitcastOp::create(l.b, loc, integers, value);
  };
  Value exponent = arith::ShLIOp::create(
      l.b, loc, bits(whole), nn::splatConstant(l.b, loc, integers, 23));
  Value sum = arith::AddIOp::create(l.b, loc, bits(power), exponent);
  return arith::BitcastOp::create(l.b, loc, vectorType, sum);
}

Value TileAttention::roundBits(LoopBuilder &l, Value value) {
  // Ties go away from 0.
  auto integers = vectorOf(kLanes, l.b.getI32Type());
  Value bits = arith::BitcastOp::create(l.b, loc, integers, value);
  return arith::AddIOp::create(l.b, loc, bits,
                               nn::splatConstant(l.b, loc, integers, 0x8000));
}

Value TileAttention::merge(LoopBuilder &l, Value lower, Value upper) {
  Type type = lower.getType();
  lower = arith::ShRUIOp::create(l.b, loc, lower,
                                 nn::splatConstant(l.b, loc, type, 16));
  upper = arith::AndIOp::create(l.b, loc, upper,
                                nn::splatConstant(l.b, loc, type, -0x10000));
  return arith::OrIOp::create(l.b, loc, lower, upper);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value TileAttention::needsFinish(LoopBuilder &l, Value first, Value row,
                                 int64_t count, bool lanesAreQueries) {
  // A product's maximum is a score's if the scale is positive.
  if (mask || scale <= 0)
    return arith::ConstantIntOp::create(l.b, loc, 1, 1);
  Value needs = arith::ConstantIntOp::create(l.b, loc, 0, 1);
  auto orGreater = [&](Value x, Value y) {
    Value isGreater =
        arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::sgt, x, y);
    needs = arith::OrIOp::create(l.b, loc, needs, isGreater);
  };
  int64_t keyCount = lanesAreQueries ? count : kLanes;
  Value key = lanesAreQueries ? row : first;
  Value query = lanesAreQueries ? first : row;
  Value end = l.add(key, l.index(keyCount));
  if (!isWhole(columns))
    orGreater(end, l.index(columns));
  if (causal)
    orGreater(end, l.add(query, l.index(columns - rows + 1)));
  return needs;
}

void TileAttention::finishPanel(LoopBuilder &l, Value condition, Value scores,
                                int64_t count, Value batchIndex, Value head,
                                Value first, Value row, bool lanesAreQueries) {
  int64_t length = lanesAreQueries ? columns : rows;
  auto finish = [&](LoopBuilder &l, Value at) {
    Value here = l.add(row, at);
    Value score =
        finishScores(l, load(l, scores, at), batchIndex, head, first,
                     isWhole(length) ? here : l.min(here, l.index(length - 1)),
                     lanesAreQueries);
    auto bits = vectorOf(kLanes, l.b.getI1Type());
    Value inside;
    if (!isWhole(length)) {
      inside = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult, here,
                                     l.index(length));
      inside = vector::BroadcastOp::create(l.b, loc, bits, inside);
    }
    if (!lanesAreQueries && !isWhole(columns)) {
      Value lanes = vector::CreateMaskOp::create(l.b, loc, bits,
                                                 countRows(l, first, columns));
      inside = inside
                   ? arith::AndIOp::create(l.b, loc, inside, lanes).getResult()
                   : lanes;
    }
    if (inside)
      score = arith::SelectOp::create(
          l.b, loc, inside, score,
          constant(l, -std::numeric_limits<double>::infinity()));
    store(l, score, scores, at);
  };
  inIf(l, condition,
       [&](LoopBuilder &l) { l.loop(l.index(0), l.index(count), 1, finish); });
}
