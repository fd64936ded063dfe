//===- AttentionTiles.cpp - Blocks of an attention by tiles ---------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

TileAttention::TileAttention(const AttentionEmitter &emitter)
    : AttentionEmitter(emitter), depth(llvm::divideCeil(headSize, kTileDepth)),
      height(llvm::divideCeil(headSize, kTileSide)),
      pieces(element.isF32() ? kPieces : 1), stepOfRows(pieces * kTileSide),
      toBase(element.isF32() ? 1.0 : kLog2E) {
  function.function->setAttr("amx", UnitAttr::get(loc.getContext()));
}

bool trainc::fitsTiles(const AttentionEmitter &e, Tiles tiles) {
  if (tiles == Tiles::None || e.rate || e.window ||
      e.segments) // these have none
    return false;
  // Measured: less than that is as fast by vectors, or faster.
  int64_t length = std::min(e.rows, e.columns);
  if (e.element.isF32())
    return tiles == Tiles::All && length >= 128 && e.headSize >= 32 &&
           e.headSize <= 256 && length * e.headSize >= 8192;
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
                                int64_t lanes, int64_t step) {
  Value inside;
  if (headSize % step) {
    Value rest = subtract(l, l.index(headSize), d);
    if (step > lanes) // It can begin after the head's end.
      rest = arith::MaxSIOp::create(l.b, loc, rest, l.index(0));
    inside = l.min(rest, l.index(lanes));
  }
  if (!count)
    return inside;
  Value isRow =
      arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult, row, count);
  return arith::SelectOp::create(l.b, loc, isRow,
                                 inside ? inside : l.index(lanes), l.index(0));
}

Value TileAttention::loadElements(LoopBuilder &l, const Rows &rows, Value row,
                                  Value count, Value d, int64_t lanes,
                                  int64_t step) {
  auto type = vectorOf(lanes, rows.element);
  Value at = l.add(offset(l, rows, row), d);
  Value inside = insideRows(l, row, count, d, lanes, step);
  if (!inside)
    return vector::LoadOp::create(l.b, loc, type, rows.memref, ValueRange(at));
  Value mask = l.maskBelow(inside, lanes);
  Value zero = nn::splatConstant(l.b, loc, type, 0.0);
  return vector::MaskedLoadOp::create(l.b, loc, type, rows.memref,
                                      ValueRange(at), mask, zero);
}

TileAttention::Halves TileAttention::loadWords(LoopBuilder &l, const Rows &rows,
                                               Value row, Value count,
                                               Value d) {
  auto some = [&](Value d, int64_t lanes) {
    return loadElements(l, rows, row, count, d, lanes, kTileDepth);
  };
  if (pieces > 1)
    return {some(d, kTileSide), some(l.add(d, l.index(kTileSide)), kTileSide)};
  return {vector::BitCastOp::create(
      l.b, loc, vectorOf(kTileSide, l.b.getI32Type()), some(d, kTileDepth))};
}

TileAttention::Halves TileAttention::loadPair(LoopBuilder &l, const Rows &rows,
                                              Value row, Value count, Value d) {
  Value other = l.add(row, l.index(kTileSide));
  auto some = [&](Value row) {
    return loadElements(l, rows, row, count, d, kTileSide, kTileSide);
  };
  if (pieces > 1)
    return {some(row), some(other)};
  auto halves = vectorOf(kTileSide, l.b.getI16Type());
  auto type = vectorOf(kTileSide, l.b.getI32Type());
  auto one = [&](Value row) -> Value {
    Value bits = vector::BitCastOp::create(l.b, loc, halves, some(row));
    return arith::ExtUIOp::create(l.b, loc, type, bits);
  };
  Value upper = arith::ShLIOp::create(l.b, loc, one(other),
                                      nn::splatConstant(l.b, loc, type, 16));
  return {arith::OrIOp::create(l.b, loc, one(row), upper)};
}

static void storeVector(LoopBuilder &l, Value vector, Value to, Value at) {
  vector::StoreOp::create(l.b, l.loc, vector, to, ValueRange(at));
}

void TileAttention::storeMerged(LoopBuilder &l, const Pieces &lower,
                                const Pieces &upper, Value to, Value at,
                                int64_t piece) {
  for (auto [i, x, y] : llvm::enumerate(lower, upper))
    storeVector(l, merge(l, x, y), to, l.add(at, l.index(i * piece)));
}

void TileAttention::storeWords(LoopBuilder &l, const Halves &halves, Value to,
                               Value at, int64_t piece) {
  if (pieces == 1)
    return storeVector(l, halves[0], to, at);
  storeMerged(l, split(l, halves[0]), split(l, halves[1]), to, at, piece);
}

void TileAttention::packTransposed(LoopBuilder &l,
                                   function_ref<Halves(int64_t)> load, Value to,
                                   Value at, int64_t stride, int64_t piece) {
  SmallVector<SmallVector<Value>, 2> blocks(pieces > 1 ? 2 : 1);
  for (int64_t i = 0; i < kTileSide; ++i)
    for (auto [block, half] : llvm::zip(blocks, load(i)))
      block.push_back(half);
  for (SmallVector<Value> &block : blocks)
    transpose(l, block);
  for (int64_t i = 0; i < kTileSide; ++i) {
    Halves halves;
    for (SmallVector<Value> &block : blocks)
      halves.push_back(block[i]);
    storeWords(l, halves, to, l.add(at, l.index(i * stride)), piece);
  }
}

void TileAttention::packRows(LoopBuilder &l, const Rows &rows, Value count,
                             Value to, Value at) {
  l.loop(l.index(0), l.index(kLanes), 1, [&](LoopBuilder &l, Value row) {
    prefetchRow(l, rows, l.add(row, l.index(kLanes)));
    Value begin = l.add(at, l.mul(row, depth * stepOfRows));
    for (int64_t i = 0; i < depth; ++i)
      storeWords(l, loadWords(l, rows, row, count, l.index(i * kTileDepth)), to,
                 l.add(begin, l.index(i * stepOfRows)), kTileSide);
  });
}

TileGrid TileAttention::rowsAt(LoopBuilder &l, Value packed, Value at) {
  int64_t step = pieces * kTileRow, stride = depth * step;
  return {addressOf(l, packed, at), stride, kTileSide * stride, step,
          pieceStride(kTileRow)};
}

void TileAttention::packAcross(LoopBuilder &l, const Rows &rows, Value count,
                               Value to, Value at) {
  l.loop(l.index(0), l.index(depth), 1, [&](LoopBuilder &l, Value step) {
    Value begin = l.add(at, l.mul(step, pieces * kSquare));
    Value d = l.mul(step, kTileDepth);
    for (int64_t half = 0; half < kLanes; half += kTileSide)
      packTransposed(
          l,
          [&](int64_t i) {
            return loadWords(l, rows, l.index(half + i), count, d);
          },
          to, l.add(begin, l.index(half)), kLanes, kSquare);
  });
}

TileGrid TileAttention::acrossAt(LoopBuilder &l, Value packed, Value at) {
  constexpr int64_t bytes = 2 * kTileBytes;
  return {addressOf(l, packed, at), 2 * kTileRow, kTileRow, pieces * bytes,
          pieceStride(bytes)};
}

void TileAttention::packPairs(LoopBuilder &l, const Rows &rows, Value count,
                              Value to, Value at) {
  l.loop(l.index(0), l.index(kTileSide), 1, [&](LoopBuilder &l, Value row) {
    Value begin = l.add(at, l.mul(row, height * kTileSide));
    for (int64_t d = 0; d < headSize; d += kTileSide)
      storeWords(l, loadPair(l, rows, row, count, l.index(d)), to,
                 l.add(begin, l.index(d)), panelOfColumns() / pieces);
  });
}

TileGrid TileAttention::pairsAt(LoopBuilder &l, Value packed, Value at) {
  int64_t bytes = height * kTileBytes;
  return {addressOf(l, packed, at), height * kTileRow, kTileRow, pieces * bytes,
          pieceStride(bytes)};
}

void TileAttention::packColumns(LoopBuilder &l, const Rows &rows, Value count,
                                Value to, Value at) {
  l.loop(l.index(0), l.index(kLanes), 1, [&](LoopBuilder &l, Value row) {
    prefetchRow(l, rows, l.add(row, l.index(kLanes)));
  });
  l.loop(l.index(0), l.index(height), 1, [&](LoopBuilder &l, Value tile) {
    Value begin = l.add(at, l.mul(tile, kTileSide * kTileSide));
    Value d = l.mul(tile, kTileSide);
    packTransposed(
        l, [&](int64_t i) { return loadPair(l, rows, l.index(i), count, d); },
        to, begin, kTileSide, panelOfColumns() / pieces);
  });
}

TileGrid TileAttention::columnsAt(LoopBuilder &l, Value packed, Value at) {
  int64_t bytes = height * kTileBytes;
  return {addressOf(l, packed, at), kTileRow, kTileBytes, pieces * bytes,
          pieceStride(bytes)};
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value TileAttention::exp2(LoopBuilder &l, Value value) {
  // NaN stays NaN: the comparison is written so that it is selected.
  constexpr double coefficients[] = {0.009582850668643943, 0.05590642819245262,
                                     0.24024098682939588, 0.6931241927688818,
                                     1.0};
  Value bound = constant(l, -127);
  Value isBelow =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OGT, bound, value);
  Value x = arith::SelectOp::create(l.b, loc, isBelow, bound, value);
  Value whole = arith::AddFOp::create(l.b, loc, x, constant(l, kRound));
  Value fraction = arith::SubFOp::create(
      l.b, loc, x, arith::SubFOp::create(l.b, loc, whole, constant(l, kRound)));
  return shiftExponent(l, polynomial(l, coefficients, fraction), whole);
}

Value TileAttention::power(LoopBuilder &l, Value value) {
  return pieces > 1 ? exp(l, value) : exp2(l, value);
}

TileAttention::Pieces TileAttention::split(LoopBuilder &l, Value value) {
  if (pieces == 1)
    return {roundBits(l, value)};
  Type integers = cast<VectorType>(value.getType()).clone(l.b.getI32Type());
  Value upperHalf = nn::splatConstant(l.b, loc, integers, -0x10000);
  Pieces found;
  for (int64_t piece = 0; piece < kPieces; ++piece) {
    // High is cut off, so that the rest has its sign; low is exact.
    Value bits = piece == 1
                     ? roundBits(l, value)
                     : arith::BitcastOp::create(l.b, loc, integers, value);
    found.push_back(bits);
    if (piece == kPieces - 1)
      break;
    bits = arith::AndIOp::create(l.b, loc, bits, upperHalf);
    bits = arith::BitcastOp::create(l.b, loc, value.getType(), bits);
    value = arith::SubFOp::create(l.b, loc, value, bits);
  }
  return found;
}

Value TileAttention::roundBits(LoopBuilder &l, Value value) {
  // Ties go away from 0.
  Type integers = cast<VectorType>(value.getType()).clone(l.b.getI32Type());
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
      Value lanes = l.maskBelow(countRows(l, first, columns));
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
