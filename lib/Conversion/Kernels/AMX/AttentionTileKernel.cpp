//===- AttentionTileKernel.cpp - Attention by tiles -----------------------===//
//
// A tile of the launch is some panels of queries of one head. It goes over the
// keys by blocks, which are packed once for all panels: scores^T = K Q^T, the
// online softmax with a query per lane, sums^T += V^T P^T. The shift of the
// exponentials is a score that is at most kSlack below the maximum so far: sums
// are scaled only where it moves.
//
//===----------------------------------------------------------------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

static constexpr double kSlack = 8;

namespace {
struct TileForward : TileAttention {
  TileForward(const AttentionEmitter &emitter, Value outResult, Value lseResult)
      : TileAttention(emitter), outResult(outResult), lseResult(lseResult) {}

  int64_t emit();

private:
  Value outResult, lseResult;
  /// Of a tile; blocks of queries of a head; keys of a block.
  int64_t queries, panels, blocks, keys;
  Value first, head, batchIndex, kvHead;
  Value queryTiles, keyTiles, valueTiles, scores, weights, sums, shifts, totals;

  void chooseSizes();
  void placeTile(LoopBuilder &l);
  void allocate(LoopBuilder &l);
  Value firstOf(LoopBuilder &l, Value panel) {
    return l.add(first, l.mul(panel, kLanes));
  }
  Value sumOf(LoopBuilder &l, Value panel, Value d) {
    return l.add(l.mul(panel, paddedSize()), d);
  }

  void beginPanel(LoopBuilder &l, Value panel);
  void packKeys(LoopBuilder &l, Value low);
  Value firstPanel(LoopBuilder &l, Value low);
  void doPanel(LoopBuilder &l, Value panel, Value low);
  Value largestScore(LoopBuilder &l);
  void moveShift(LoopBuilder &l, Value panel, Value max);
  Value weighScores(LoopBuilder &l, Value factor, Value shift, Value total);
  void writePanel(LoopBuilder &l, Value panel);
};
} // namespace

void TileForward::chooseSizes() {
  // Keys are packed for each tile, so it should be large; and there should be some
  // tiles for each of many threads.
  constexpr int64_t most = 256, enough = 128;
  auto blocksOf = [&](int64_t queries) {
    return static_cast<int64_t>(llvm::divideCeil(rows, queries));
  };
  queries = most;
  while (queries > kLanes &&
         (queries / 2 >= rows || batch * heads * blocksOf(queries) < enough))
    queries /= 2;
  panels = queries / kLanes;
  blocks = blocksOf(queries);
  keys = rowsPerBlock(columns);
}

void TileForward::placeTile(LoopBuilder &l) {
  Value tile = function.tile;
  first = l.mul(l.mod(tile, blocks), queries);
  head = l.mod(l.div(tile, blocks), heads);
  batchIndex = l.div(tile, blocks * heads);
  kvHead = l.div(head, heads / kvHeads);
}

void TileForward::allocate(LoopBuilder &l) {
  queryTiles = words(l, panels * panelAcross());
  keyTiles = words(l, keys / kLanes * panelOfRows());
  valueTiles = words(l, keys / kLanes * panelOfColumns());
  scores = scratch(l, keys);
  weights = words(l, pieces * keys * kTileSide);
  sums = scratch(l, panels * paddedSize());
  shifts = scratch(l, panels);
  totals = scratch(l, panels);
  maskRow = scratch(l, 1);
}

void TileForward::beginPanel(LoopBuilder &l, Value panel) {
  Value here = firstOf(l, panel);
  packAcross(l, rowsOf(l, q, batchIndex, head, here), countRows(l, here, rows),
             queryTiles, l.mul(panel, panelAcross()));
  store(l, constant(l, -std::numeric_limits<double>::infinity()), shifts,
        panel);
  store(l, constant(l, 0.0), totals, panel);
}

void TileForward::packKeys(LoopBuilder &l, Value low) {
  inPanels(l, keys / kLanes, [&](LoopBuilder &l, Value panel) {
    Value here = l.add(low, l.mul(panel, kLanes));
    Value count = countRows(l, here, columns);
    packRows(l, rowsOf(l, k, batchIndex, kvHead, here), count, keyTiles,
             l.mul(panel, panelOfRows()));
    if (outResult)
      packColumns(l, rowsOf(l, v, batchIndex, kvHead, here), count, valueTiles,
                  l.mul(panel, panelOfColumns()));
  });
}

/// The first panel with a query that sees key `low`.
Value TileForward::firstPanel(LoopBuilder &l, Value low) {
  if (!causal)
    return l.index(0);
  Value query = arith::SubIOp::create(l.b, loc, low, l.index(columns - rows));
  Value begin = arith::SubIOp::create(l.b, loc, query, first);
  return l.div(arith::MaxSIOp::create(l.b, loc, begin, l.index(0)), kLanes);
}

Value TileForward::largestScore(LoopBuilder &l) {
  constexpr int64_t atOnce = 4;
  auto larger = [&](LoopBuilder &l, Value x, Value y) {
    return l.combine(nn::ReduceKind::max, x, y);
  };
  auto ofSome = [&](LoopBuilder &l, Value at, ValueRange max) {
    Value score[atOnce];
    for (int64_t i = 0; i < atOnce; ++i)
      score[i] = load(l, scores, l.add(at, l.index(i)));
    Value largest =
        larger(l, larger(l, score[0], score[1]), larger(l, score[2], score[3]));
    return SmallVector<Value>{larger(l, max[0], largest)};
  };
  Value least = constant(l, -std::numeric_limits<double>::infinity());
  return l.loop(l.index(0), l.index(keys), atOnce, least, ofSome).front();
}

/// Moves the shifts of those queries whose maximum is far above.
void TileForward::moveShift(LoopBuilder &l, Value panel, Value max) {
  Value before = load(l, shifts, panel);
  Value bound = arith::AddFOp::create(l.b, loc, before, constant(l, kSlack));
  // Also if it is no number, so that all results are none.
  Value isAbove =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::UGT, max, bound);
  Value any =
      vector::ReductionOp::create(l.b, loc, vector::CombiningKind::OR, isAbove);
  inIf(l, any, [&](LoopBuilder &l) {
    Value shift = arith::SelectOp::create(l.b, loc, isAbove, max, before);
    Value step = arith::SubFOp::create(l.b, loc, before, finite(l, shift));
    step = arith::MulFOp::create(l.b, loc, step, constant(l, toBase));
    Value factor = power(l, step);
    store(l, shift, shifts, panel);
    scaleRow(l, totals, panel, factor);
    l.loop(l.index(0), l.index(paddedSize()), 1, [&](LoopBuilder &l, Value d) {
      scaleRow(l, sums, sumOf(l, panel, d), factor);
    });
  });
}

/// Makes `weights` of `scores`: base^(factor score + shift). The sum with `total`.
Value TileForward::weighScores(LoopBuilder &l, Value factor, Value shift,
                               Value total) {
  for (int64_t begin = 0; begin < keys; begin += kLanes) {
    auto weighRows = [&](LoopBuilder &l, Value at, ValueRange total) {
      auto weigh = [&](int64_t key) {
        Value score = load(l, scores, l.add(at, l.index(key)));
        return power(l, math::FmaOp::create(l.b, loc, score, factor, shift));
      };
      Value x = weigh(begin), y = weigh(begin + kTileSide);
      Value to =
          l.add(l.mul(at, kLanes), l.index(begin / kLanes * pieces * kSquare));
      storeMerged(l, split(l, x), split(l, y), weights, to, kSquare);
      Value sum = arith::AddFOp::create(l.b, loc, x, y);
      return SmallVector<Value>{arith::AddFOp::create(l.b, loc, total[0], sum)};
    };
    total = l.loop(l.index(0), l.index(kTileSide), 1, total, weighRows).front();
  }
  return total;
}

/// A panel of queries against the packed keys from `low` on.
void TileForward::doPanel(LoopBuilder &l, Value panel, Value low) {
  Value here = firstOf(l, panel);
  multiplyTiles(l, rowsAt(l, keyTiles, l.index(0)),
                acrossAt(l, queryTiles, l.mul(panel, panelAcross())),
                lanesAt(l, scores, l.index(0)), keys / kTileSide,
                kLanes / kTileSide, depth, /*accumulate=*/false);
  Value needs = needsFinish(l, here, low, keys, /*lanesAreQueries=*/true);
  finishPanel(l, needs, scores, keys, batchIndex, head, here, low,
              /*lanesAreQueries=*/true);
  moveShift(l, panel,
            arith::MulFOp::create(l.b, loc, largestScore(l),
                                  selectNumber(l, needs, 1.0, scale)));
  Value shift = arith::MulFOp::create(
      l.b, loc, finite(l, load(l, shifts, panel)), constant(l, -toBase));
  Value total = weighScores(l, selectNumber(l, needs, toBase, scale * toBase),
                            shift, load(l, totals, panel));
  store(l, total, totals, panel);
  if (outResult)
    multiplyTiles(l, columnsAt(l, valueTiles, l.index(0)),
                  acrossAt(l, weights, l.index(0)),
                  lanesAt(l, sums, sumOf(l, panel, l.index(0))), height,
                  kLanes / kTileSide, keys / kLanes, /*accumulate=*/true);
}

void TileForward::writePanel(LoopBuilder &l, Value panel) {
  Value here = firstOf(l, panel), total = load(l, totals, panel);
  if (lseResult) {
    Value log = math::LogOp::create(l.b, loc, total);
    log =
        arith::AddFOp::create(l.b, loc, finite(l, load(l, shifts, panel)), log);
    Value at = l.add(l.mul(l.div(function.tile, blocks), rows), here);
    l.storeVector(log, lseResult, at, compute, lanesBelow(l, here, rows));
  }
  if (!outResult)
    return;
  Value isZero = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OEQ,
                                       total, constant(l, 0.0));
  Value one = constant(l, 1.0);
  Value divisor = arith::SelectOp::create(l.b, loc, isZero, one, total);
  Value factor = arith::DivFOp::create(l.b, loc, one, divisor);
  Value begin = sumOf(l, panel, l.index(0));
  l.loop(l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
    scaleRow(l, sums, l.add(begin, d), factor);
  });
  HeadMatrix result{outResult, rows, heads * headSize, 0};
  unpack(l, sums, rowsOf(l, result, batchIndex, head, here),
         countLanes(l, here, rows), begin);
}

int64_t TileForward::emit() {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  chooseSizes();
  placeTile(l);
  allocate(l);
  configureTiles(l, words(l, kTileSide));
  Value count = l.index(panels);
  if (rows % queries) {
    Value rest = arith::SubIOp::create(b, loc, l.index(rows), first);
    count = l.min(l.div(l.add(rest, l.index(kLanes - 1)), kLanes), count);
  }
  clear(l, sums, panels * paddedSize());
  l.loop(l.index(0), count, 1,
         [&](LoopBuilder &l, Value panel) { beginPanel(l, panel); });
  Value end = visibleKeys(l, l.add(first, l.index(queries - kLanes)));
  l.loop(l.index(0), end, keys, [&](LoopBuilder &l, Value low) {
    packKeys(l, low);
    l.loop(firstPanel(l, low), count, 1,
           [&](LoopBuilder &l, Value panel) { doPanel(l, panel, low); });
  });
  l.loop(l.index(0), count, 1,
         [&](LoopBuilder &l, Value panel) { writePanel(l, panel); });
  releaseTiles(l);
  func::ReturnOp::create(b, loc);
  return batch * heads * blocks;
}

int64_t trainc::emitForwardByTiles(const AttentionEmitter &emitter,
                                   Value outResult, Value lseResult) {
  return TileForward(emitter, outResult, lseResult).emit();
}
