//===- AttentionMasks.cpp - Scores of attention, on a GPU -----------------===//
#include "AttentionBlock.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "trainc/Dialect/NN/NNRandom.h"

using namespace mlir;
using namespace trainc;

Value AttentionBlock::finite(ThreadBuilder &t, Value value) {
  Value isMasked = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         value, infinity(t));
  return select(t, isMasked, constant(t, 0.0), value);
}

Value AttentionBlock::exp(ThreadBuilder &t, Value score, Value shift) {
  Value x;
  if (scalesLate)
    x = math::FmaOp::create(t.b, loc, score, constant(t, shiftUnits()), shift);
  else
    x = mul(t, arith::AddFOp::create(t.b, loc, score, shift),
            constant(t, kLog2E));
  if (!e.compute.isF32())
    return math::Exp2Op::create(t.b, loc, x);
  return LLVM::CallIntrinsicOp::create(
             t.b, loc, e.compute, t.b.getStringAttr("llvm.nvvm.ex2.approx.ftz"),
             ValueRange(x))
      .getResult(0);
}

Value AttentionBlock::loadMask(ThreadBuilder &t, Value batchIndex, Value head,
                               Value query, Value key) {
  Value at = t.index(0);
  // What is past the ends reads the last element.
  query = t.min(query, t.index(e.rows - 1));
  key = t.min(key, t.index(e.columns - 1));
  Value coordinates[] = {batchIndex, head, query, key};
  for (auto [coordinate, stride] : llvm::zip(coordinates, e.maskStrides))
    if (stride != 0)
      at = t.add(at, t.mul(coordinate, stride));
  Value value = t.loadScalar(e.mask, at, e.maskElement);
  Type type = value.getType();
  if (e.maskElement.isInteger(1) || type == e.compute)
    return value;
  if (type.getIntOrFloatBitWidth() < e.compute.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(t.b, loc, e.compute, value);
  return arith::TruncFOp::create(t.b, loc, e.compute, value);
}

Value AttentionBlock::loadSegment(ThreadBuilder &t, Value batchIndex,
                                  Value position) {
  // What is past the end reads the last element.
  position = t.min(position, t.index(e.rows - 1));
  return t.loadScalar(e.segments, t.add(t.mul(batchIndex, e.rows), position),
                      e.segmentElement);
}

Value AttentionBlock::hidesSome(ThreadBuilder &t, const AttentionOperands &o,
                                const AttentionTile &tile) {
  Value result, end = t.add(tile.low, t.index(sizes.tile));
  auto orAbove = [&](Value x, Value y) {
    result = either(t, result, compare(t, arith::CmpIPredicate::sgt, x, y));
  };
  auto fromFirst = [&](int64_t distance) {
    return t.add(o.first, t.index(distance));
  };
  int64_t shift = e.columns - e.rows;
  if (e.causal && o.rowsAreQueries) {
    orAbove(end, fromFirst(shift + 1)); // of the first query
    if (e.window)                       // of the last one
      orAbove(fromFirst(sizes.rows + shift - *e.window), tile.low);
  } else if (e.causal) {
    orAbove(fromFirst(sizes.rows - 1 - shift), tile.low); // of the last key
    if (e.window)                                         // of the first one
      orAbove(end, fromFirst(*e.window - shift));
  }
  int64_t length = o.rowsAreQueries ? e.columns : e.rows;
  if (length % sizes.tile != 0)
    orAbove(end, t.index(length));
  return result;
}

void AttentionBlock::hideScores(ThreadBuilder &t, const AttentionOperands &o,
                                const AttentionTile &tile,
                                MutableArrayRef<Value> scores) {
  // The lane's first row sees its columns from `low` to below `high`. Key j is visible to
  // query i where i + shift - window < j <= i + shift.
  Value row = ownRow(t, o, 0), first = t.add(tile.low, products.column);
  auto place = [&](Value x, int64_t distance) -> Value {
    x = arith::SubIOp::create(t.b, loc, t.add(x, t.index(distance)), first);
    return arith::IndexCastOp::create(t.b, loc, t.b.getI32Type(), x);
  };
  int64_t shift = e.columns - e.rows, window = e.window.value_or(0);
  int64_t length = o.rowsAreQueries ? e.columns : e.rows;
  Value low, high, end;
  if (e.causal && o.rowsAreQueries)
    high = place(row, shift + 1);
  else if (e.causal)
    low = place(row, -shift);
  if (e.window && o.rowsAreQueries)
    low = place(row, shift + 1 - window);
  else if (e.window)
    high = place(row, window - shift);
  if (length % sizes.tile != 0)
    end = place(t.index(length), 0);
  Value infinity = this->infinity(t);
  for (auto [i, score] : llvm::enumerate(scores)) {
    int64_t half = i / 2 % 2;
    auto hide = [&](arith::CmpIPredicate predicate, Value bound,
                    int64_t column) {
      if (!bound)
        return;
      Value isSeen =
          compare(t, predicate, bound,
                  arith::ConstantIntOp::create(t.b, loc, column, 32));
      score = select(t, isSeen, score, infinity);
    };
    int64_t column = i / 4 * 8 + i % 2, fromRow = column - half * 8;
    hide(arith::CmpIPredicate::sle, low, fromRow);
    hide(arith::CmpIPredicate::sgt, high, fromRow);
    hide(arith::CmpIPredicate::sgt, end, column);
  }
}

void AttentionBlock::finishScores(ThreadBuilder &t, const AttentionOperands &o,
                                  const AttentionTile &tile,
                                  MutableArrayRef<Value> scores) {
  Value infinity = this->infinity(t);
  for (auto [i, score] : llvm::enumerate(scores)) {
    if (!scalesLate)
      score = mul(t, score, constant(t, e.scale));
    if (!e.mask && !e.segments)
      continue;
    Value row = ownRow(t, o, i / 2 % 2);
    Value column =
        t.add(tile.low, t.add(products.column, t.index(i / 4 * 8 + i % 2)));
    Value query = o.rowsAreQueries ? row : column;
    Value key = o.rowsAreQueries ? column : row;
    if (e.mask) {
      Value head = o.rowsAreQueries ? o.ownHead : tile.head;
      Value value = loadMask(t, o.batchIndex, head, query, key);
      if (e.maskElement.isInteger(1))
        score = select(t, value, score, infinity);
      else
        score = arith::AddFOp::create(t.b, loc, score, value);
    }
    if (e.segments) {
      Value isSame = compare(t, arith::CmpIPredicate::eq,
                             loadSegment(t, o.batchIndex, query),
                             loadSegment(t, o.batchIndex, key));
      score = select(t, isSame, score, infinity);
    }
  }
  Value hides = hidesSome(t, o, tile);
  if (!hides) {
    // Without a branch ptxas loads operands of later products already here, and spills.
    Value all = arith::ConstantIntOp::create(t.b, loc, -1, 32);
    NVVM::SyncWarpOp::create(t.b, loc, all);
    return;
  }
  auto yield = [&](bool hidden) {
    return [&, hidden](OpBuilder &b, Location loc) {
      Fragment results(scores);
      ThreadBuilder inner(b, loc, t.threads);
      if (hidden)
        hideScores(inner, o, tile, results);
      scf::YieldOp::create(b, loc, results);
    };
  };
  auto branch = scf::IfOp::create(t.b, loc, hides, yield(true), yield(false));
  llvm::copy(branch.getResults(), scores.begin());
}

Fragment AttentionBlock::drawScores(ThreadBuilder &t,
                                    const AttentionOperands &o,
                                    const AttentionTile &tile, size_t count) {
  Fragment words;
  if (!e.rate)
    return words;
  nn::RandomCounter counter = e.loadCounter(t);
  Value headDraw =
      e.firstDrawOf(t, o.batchIndex, o.rowsAreQueries ? o.ownHead : tile.head);
  auto indexAt = [&](Value query, Value key) -> Value {
    Value at = t.add(headDraw, t.add(t.mul(query, e.drawStrides[3]), key));
    return arith::IndexCastOp::create(t.b, loc, t.b.getI64Type(), at);
  };
  if (!o.rowsAreQueries) {
    for (size_t i = 0; i < count; ++i) {
      Value query =
          t.add(tile.low, t.add(products.column, t.index(i / 4 * 8 + i % 2)));
      counter.index = indexAt(query, ownRow(t, o, i / 2 % 2));
      words.push_back(nn::buildRandomWord(t.b, loc, counter));
    }
    return words;
  }
  // Both columns of a thread are of one group of 4, its first or second half.
  Value isSecond =
      arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::ne,
                            t.mod(t.div(products.column, 2), 2), t.index(0));
  Value two = arith::ConstantOp::create(t.b, loc, t.b.getI64IntegerAttr(2));
  for (size_t i = 0; i < count; i += 2) {
    Value key = t.add(tile.low, t.add(products.column, t.index(i / 4 * 8)));
    counter.index = arith::ShRUIOp::create(
        t.b, loc, indexAt(ownRow(t, o, i / 2 % 2), key), two);
    auto group = nn::buildRandomWords(t.b, loc, counter);
    for (size_t c : {0, 1})
      words.push_back(select(t, isSecond, group[2 + c], group[c]));
  }
  return words;
}

Value AttentionBlock::visibleBegin(ThreadBuilder &t, Value first) {
  if (!e.window)
    return t.index(0);
  Value key = t.add(first, t.index(e.columns - e.rows - *e.window + 1));
  key = arith::MaxSIOp::create(t.b, loc, key, t.index(0));
  return t.mul(t.div(key, sizes.tile), sizes.tile);
}

Value trainc::visibleEnd(ThreadBuilder &t, const AttentionEmitter &e,
                         Value first, int64_t count) {
  if (!e.causal)
    return t.index(e.columns);
  Value end = t.add(first, t.index(count + e.columns - e.rows));
  end = arith::MinSIOp::create(t.b, t.loc, end, t.index(e.columns));
  return arith::MaxSIOp::create(t.b, t.loc, end, t.index(0));
}
