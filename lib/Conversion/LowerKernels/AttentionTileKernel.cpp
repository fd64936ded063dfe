//===- AttentionTileKernel.cpp - Attention by tiles -----------------------===//
//
// A tile of the launch is some panels of queries of one head. It goes over the
// keys by blocks, which are packed once for all panels: scores^T = K Q^T, the
// online softmax with a query per lane, sums^T += V^T P^T. The shift of the
// exponentials is a score that is at most kSlack below the maximum: sums are
// scaled only where it moves.
//
//===----------------------------------------------------------------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace trainc;

static constexpr double kSlack = 8;
static const double kLog2E = std::log2(std::exp(1.0));

int64_t TileAttention::queriesPerTile() const {
  // Keys are packed for each tile, so it should be large; and there should be some
  // tiles for each of many threads.
  constexpr int64_t most = 256, enough = 128;
  int64_t queries = most;
  while (queries > kLanes &&
         (queries / 2 >= rows ||
          batch * heads * llvm::divideCeil(rows, queries) < enough))
    queries /= 2;
  return queries;
}

int64_t TileAttention::emitForward(Value outResult, Value lseResult) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  int64_t queries = queriesPerTile(), panels = queries / kLanes;
  int64_t blocks = llvm::divideCeil(rows, queries);
  int64_t keys =
      std::min<int64_t>(llvm::alignTo(columns, kLanes), kAttentionRows);
  Value tile = function.tile;
  Value first = l.mul(l.mod(tile, blocks), queries);
  Value head = l.mod(l.div(tile, blocks), heads);
  Value batchIndex = l.div(tile, blocks * heads);
  Value kvHead = l.div(head, heads / kvHeads);

  int64_t size = paddedSize(), panelWords = depth * kTileSide * kLanes;
  Value queryTiles = words(l, panels * panelWords);
  Value keyTiles = words(l, keys / kLanes * panelOfRows());
  Value valueTiles = words(l, keys / kLanes * panelOfColumns());
  Value scores = scratch(l, keys), weights = words(l, keys * kTileSide);
  Value sums = scratch(l, panels * size);
  Value shifts = scratch(l, panels), totals = scratch(l, panels);
  maskRow = scratch(l, 1);

  Value rest = arith::SubIOp::create(b, loc, l.index(rows), first);
  Value count = rows % queries ? l.min(rest, l.index(queries)) : Value();
  Value panelCount = count ? l.div(l.add(count, l.index(kLanes - 1)), kLanes)
                           : l.index(panels);
  auto firstOf = [&](LoopBuilder &l, Value panel) {
    return l.add(first, l.mul(panel, kLanes));
  };
  Value infinity = constant(l, -std::numeric_limits<double>::infinity());
  clear(l, sums, panels * size);
  clear(l, totals, panels);
  l.loop(l.index(0), panelCount, 1, [&](LoopBuilder &l, Value panel) {
    Value here = firstOf(l, panel);
    packAcross(l, rowsOf(l, q, batchIndex, head, here),
               countRows(l, here, rows), queryTiles, l.mul(panel, panelWords));
    store(l, infinity, shifts, panel);
  });

  /// Moves the shift of a panel where the maximum is far above.
  auto moveShift = [&](LoopBuilder &l, Value panel, Value max) {
    Value before = load(l, shifts, panel);
    Value bound = arith::AddFOp::create(l.b, loc, before, constant(l, kSlack));
    Value isAbove =
        arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::UGT, max, bound);
    Value any = vector::ReductionOp::create(l.b, loc, vector::CombiningKind::OR,
                                            isAbove);
    inIf(l, any, [&](LoopBuilder &l) {
      Value shift = arith::SelectOp::create(l.b, loc, isAbove, max, before);
      Value step = arith::SubFOp::create(l.b, loc, before, finite(l, shift));
      Value factor =
          exp2(l, arith::MulFOp::create(l.b, loc, step, constant(l, kLog2E)));
      auto scaleRow = [&](LoopBuilder &l, Value scratch, Value row) {
        Value value = load(l, scratch, row);
        store(l, arith::MulFOp::create(l.b, loc, value, factor), scratch, row);
      };
      store(l, shift, shifts, panel);
      scaleRow(l, totals, panel);
      l.loop(l.index(0), l.index(size), 1, [&](LoopBuilder &l, Value d) {
        scaleRow(l, sums, l.add(l.mul(panel, size), d));
      });
    });
  };

  auto doPanel = [&](LoopBuilder &l, Value panel, Value low) {
    Value here = firstOf(l, panel);
    Value packed = l.mul(panel, panelWords);
    TileGrid products{addressOf(l, scores, l.index(0)), 2 * kTileRow, 0, 0};
    multiplyTiles(l, rowsAt(l, keyTiles, l.index(0)),
                  acrossAt(l, queryTiles, packed), products, keys / kTileSide,
                  kLanes / kTileSide, depth, /*accumulate=*/false);
    Value needs = needsFinish(l, here, low, keys, /*lanesAreQueries=*/true);
    finishPanel(l, needs, scores, keys, batchIndex, head, here, low,
                /*lanesAreQueries=*/true);

    constexpr int64_t atOnce = 4;
    Value max = l.loop(l.index(0), l.index(keys), atOnce, infinity,
                       [&](LoopBuilder &l, Value at, ValueRange max) {
                         auto larger = [&](Value x, Value y) {
                           return l.combine(nn::ReduceKind::max, x, y);
                         };
                         Value score[atOnce];
                         for (int64_t i = 0; i < atOnce; ++i)
                           score[i] = load(l, scores, l.add(at, l.index(i)));
                         return SmallVector<Value>{larger(
                             max[0], larger(larger(score[0], score[1]),
                                            larger(score[2], score[3])))};
                       })
                    .front();
    moveShift(l, panel,
              arith::MulFOp::create(l.b, loc, max,
                                    selectNumber(l, needs, 1.0, scale)));

    Value factor = selectNumber(l, needs, kLog2E, scale * kLog2E);
    Value shift = arith::MulFOp::create(
        l.b, loc, finite(l, load(l, shifts, panel)), constant(l, -kLog2E));
    Value total = load(l, totals, panel);
    for (int64_t begin = 0; begin < keys; begin += kLanes) {
      auto weighRow = [&](LoopBuilder &l, Value at, ValueRange total) {
        auto weigh = [&](int64_t key) {
          Value score = load(l, scores, l.add(at, l.index(key)));
          return exp2(l, math::FmaOp::create(l.b, loc, score, factor, shift));
        };
        Value x = weigh(begin), y = weigh(begin + kTileSide);
        Value sum = arith::AddFOp::create(l.b, loc, x, y);
        store(l, merge(l, roundBits(l, x), roundBits(l, y)), weights,
              l.add(at, l.index(begin / 2)));
        return SmallVector<Value>{
            arith::AddFOp::create(l.b, loc, total[0], sum)};
      };
      total =
          l.loop(l.index(0), l.index(kTileSide), 1, total, weighRow).front();
    }
    store(l, total, totals, panel);
    TileGrid target{addressOf(l, sums, l.mul(panel, size * kLanes)),
                    2 * kTileRow, 0, 0};
    multiplyTiles(l, columnsAt(l, valueTiles, l.index(0)),
                  acrossAt(l, weights, l.index(0)), target, height,
                  kLanes / kTileSide, keys / kLanes, /*accumulate=*/true);
  };

  Value end = visibleKeys(l, l.add(first, l.index(queries - kLanes)));
  l.loop(l.index(0), end, keys, [&](LoopBuilder &l, Value low) {
    l.loop(l.index(0), l.index(keys / kLanes), 1,
           [&](LoopBuilder &l, Value panel) {
             Value here = l.add(low, l.mul(panel, kLanes));
             Value count = countRows(l, here, columns);
             packRows(l, rowsOf(l, k, batchIndex, kvHead, here), count,
                      keyTiles, l.mul(panel, panelOfRows()));
             packColumns(l, rowsOf(l, v, batchIndex, kvHead, here), count,
                         valueTiles, l.mul(panel, panelOfColumns()));
           });
    Value begin = l.index(0);
    if (causal) { // the first panel with a query that sees the first key
      Value query =
          arith::SubIOp::create(l.b, loc, low, l.index(columns - rows));
      begin = arith::SubIOp::create(l.b, loc, query, first);
      begin =
          l.div(arith::MaxSIOp::create(l.b, loc, begin, l.index(0)), kLanes);
    }
    l.loop(begin, panelCount, 1,
           [&](LoopBuilder &l, Value panel) { doPanel(l, panel, low); });
  });

  l.loop(l.index(0), panelCount, 1, [&](LoopBuilder &l, Value panel) {
    Value here = firstOf(l, panel), total = load(l, totals, panel);
    if (lseResult) {
      Value log = math::LogOp::create(l.b, loc, total);
      log = arith::AddFOp::create(l.b, loc, finite(l, load(l, shifts, panel)),
                                  log);
      Value at = l.add(l.mul(l.div(tile, blocks), rows), here);
      l.storeVector(log, lseResult, at, compute, lanesBelow(l, here, rows));
    }
    if (!outResult)
      return;
    Value isZero = arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::OEQ,
                                         total, constant(l, 0.0));
    Value divisor =
        arith::SelectOp::create(l.b, loc, isZero, constant(l, 1.0), total);
    Value base = l.mul(panel, size);
    l.loop(l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
      Value row = l.add(base, d), value = load(l, sums, row);
      store(l, arith::DivFOp::create(l.b, loc, value, divisor), sums, row);
    });
    HeadMatrix result{outResult, rows, heads * headSize, 0};
    unpack(l, sums, rowsOf(l, result, batchIndex, head, here),
           countLanes(l, here, rows), base);
  });
  func::ReturnOp::create(b, loc);
  return batch * heads * blocks;
}
