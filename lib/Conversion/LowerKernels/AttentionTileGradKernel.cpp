//===- AttentionTileGradKernel.cpp - Gradients of an attention by tiles ---===//
//
// As AttentionGradKernel.cpp, with tile registers for the five products: queries
// and gradients of outputs are packed once for all blocks of keys. Gradients of
// scores are scaled where they have been summed.
//
//===----------------------------------------------------------------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace trainc;

static const double kLog2E = std::log2(std::exp(1.0));

int64_t TileAttention::emitBackward(HeadMatrix dq, HeadMatrix dk,
                                    HeadMatrix dv) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  Value kvHead = l.mod(function.tile, kvHeads);
  Value batchIndex = l.div(function.tile, kvHeads);
  int64_t group = heads / kvHeads;
  Value firstHead = l.mul(kvHead, group);

  // A block has up to two panels of keys, and so of queries.
  int64_t keys =
      std::min<int64_t>(llvm::alignTo(columns, kLanes), kAttentionRows);
  int64_t queries =
      std::min<int64_t>(llvm::alignTo(rows, kLanes), kAttentionRows);
  int64_t keyPanels = keys / kLanes, queryPanels = queries / kLanes;
  int64_t memberRows = llvm::alignTo(rows, queries);
  int64_t allRows = group * memberRows, allPanels = allRows / kLanes;
  int64_t size = paddedSize(), acrossWords = depth * kTileSide * kLanes;
  int64_t pairWords = kTileSide * size, square = kTileSide * kLanes;

  Value queryRows = words(l, allPanels * panelOfRows());
  Value doutRows = words(l, allPanels * panelOfRows());
  Value queryColumns = words(l, allPanels * panelOfColumns());
  Value doutColumns = words(l, allPanels * panelOfColumns());
  Value logs = function.allocateScratch(l, compute, allRows);
  Value deltas = function.allocateScratch(l, compute, allRows);
  Value keyTiles = words(l, keyPanels * acrossWords);
  Value valueTiles = words(l, keyPanels * acrossWords);
  Value keyPairs = words(l, keyPanels * pairWords);
  Value keySums = scratch(l, keyPanels * size);
  Value valueSums = scratch(l, keyPanels * size);
  Value querySums = dq.memref
                        ? function.allocateScratch(l, compute, allRows * size)
                        : Value();
  Value scores = scratch(l, kLanes), dps = scratch(l, kLanes);
  Value weights = words(l, queryPanels * keyPanels * square);
  Value slopes = words(l, queryPanels * keyPanels * square);
  Value slopeRows = words(l, queryPanels * keyPanels * square);
  maskRow = scratch(l, 1);

  auto inHeads = [&](LoopBuilder &l, LoopBuilder::Body body) {
    l.loop(l.index(0), l.index(group), 1, body);
  };
  /// What stands at word `at` of scratch, in whole vectors of zeros.
  auto clearAll = [&](LoopBuilder &l, Value scratch, int64_t count) {
    l.loop(l.index(0), l.index(count), kTileSide,
           [&](LoopBuilder &l, Value at) {
             Value zero = nn::splatConstant(
                 l.b, loc, VectorType::get({kTileSide}, compute), 0.0);
             vector::StoreOp::create(l.b, loc, zero, scratch, ValueRange(at));
           });
  };
  clearAll(l, deltas, allRows);
  if (querySums)
    clearAll(l, querySums, allRows * size);

  auto packMember = [&](LoopBuilder &l, Value member) {
    Value head = l.add(firstHead, member);
    Value base = l.mul(member, memberRows);
    Value lseBase = l.mul(l.add(l.mul(batchIndex, heads), head), rows);
    l.loop(l.index(0), l.index(memberRows), kLanes,
           [&](LoopBuilder &l, Value low) {
             Value count = countRows(l, low, rows);
             Value row = l.add(base, low), panel = l.div(row, kLanes);
             Value toRows = l.mul(panel, panelOfRows());
             Value toColumns = l.mul(panel, panelOfColumns());
             Rows queryHead = rowsOf(l, q, batchIndex, head, low);
             Rows doutHead = rowsOf(l, dout, batchIndex, head, low);
             packRows(l, queryHead, count, queryRows, toRows);
             packRows(l, doutHead, count, doutRows, toRows);
             packColumns(l, queryHead, count, queryColumns, toColumns);
             packColumns(l, doutHead, count, doutColumns, toColumns);
             Value mask =
                 count ? vector::CreateMaskOp::create(
                             l.b, loc,
                             VectorType::get({kLanes}, l.b.getI1Type()), count)
                             .getResult()
                       : Value();
             Value log = l.loadVector(lse, l.add(lseBase, low), compute, mask);
             log = arith::MulFOp::create(l.b, loc, finite(l, log),
                                         constant(l, -kLog2E));
             l.storeVector(log, logs, row, compute, /*mask=*/Value());
           });
    // The sum over j of p[j] dp[j] is out . dout.
    l.loop(l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value row) {
      Value delta = dot(l, rowsOf(l, out, batchIndex, head, row),
                        rowsOf(l, dout, batchIndex, head, row));
      l.storeScalar(delta, deltas, l.add(base, row), compute);
    });
  };
  inHeads(l, packMember);

  /// Probabilities and gradients of scores of a panel of queries from row `low` on,
  /// `at` in scratch, against the panel of keys from `first` on.
  auto doSquare = [&](LoopBuilder &l, Value first, Value keyPanel, Value member,
                      Value low, Value at, Value squareIndex) {
    Value head = l.add(firstHead, member);
    Value packed = l.mul(l.div(at, kLanes), panelOfRows());
    Value across = l.mul(keyPanel, acrossWords);
    auto multiplyRows = [&](Value left, Value right, Value products) {
      TileGrid sums{addressOf(l, products, l.index(0)), 2 * kTileRow, 0, 0};
      multiplyTiles(l, rowsAt(l, left, packed), acrossAt(l, right, across),
                    sums, kLanes / kTileSide, kLanes / kTileSide, depth,
                    /*accumulate=*/false);
    };
    multiplyRows(queryRows, keyTiles, scores);
    multiplyRows(doutRows, valueTiles, dps);
    Value needs = needsFinish(l, first, low, kLanes, /*lanesAreQueries=*/false);
    finishPanel(l, needs, scores, kLanes, batchIndex, head, first, low,
                /*lanesAreQueries=*/false);
    Value factor = selectNumber(l, needs, kLog2E, scale * kLog2E);
    Value to = l.mul(squareIndex, kTileSide);
    l.loop(l.index(0), l.index(kTileSide), 1, [&](LoopBuilder &l, Value i) {
      Value p[2], ds[2];
      for (int64_t half = 0; half < 2; ++half) {
        Value row = l.add(i, l.index(half * kTileSide)), query = l.add(at, row);
        Value log = l.splat(l.loadScalar(logs, query, compute));
        Value delta = l.splat(l.loadScalar(deltas, query, compute));
        Value weight =
            exp2(l, math::FmaOp::create(l.b, loc, load(l, scores, row), factor,
                                        log));
        Value slope = arith::SubFOp::create(l.b, loc, load(l, dps, row), delta);
        slope = arith::MulFOp::create(l.b, loc, weight, slope);
        p[half] = roundBits(l, weight);
        ds[half] = roundBits(l, slope);
        if (!dq.memref)
          continue;
        auto lanes = [&](int64_t first) {
          return vector::ExtractStridedSliceOp::create(
              l.b, loc, ds[half], {first}, {kTileSide}, {1});
        };
        Value place = l.add(l.mul(squareIndex, square), l.mul(row, kTileSide));
        vector::StoreOp::create(l.b, loc, merge(l, lanes(0), lanes(kTileSide)),
                                slopeRows, ValueRange(place));
      }
      store(l, merge(l, p[0], p[1]), weights, l.add(to, i));
      store(l, merge(l, ds[0], ds[1]), slopes, l.add(to, i));
    });
  };

  auto doQueries = [&](LoopBuilder &l, Value first, Value member, Value low) {
    Value at = l.add(l.mul(member, memberRows), low);
    l.loop(l.index(0), l.index(queryPanels), 1, [&](LoopBuilder &l, Value i) {
      l.loop(l.index(0), l.index(keyPanels), 1, [&](LoopBuilder &l, Value j) {
        Value shift = l.mul(i, kLanes);
        doSquare(l, l.add(first, l.mul(j, kLanes)), j, member,
                 l.add(low, shift), l.add(at, shift),
                 l.add(l.mul(i, keyPanels), j));
      });
    });
    Value columnsAtRow = l.mul(l.div(at, kLanes), panelOfColumns());
    auto addToKeys = [&](LoopBuilder &l, Value j, Value left, Value right,
                         Value sums) {
      TileGrid squares = acrossAt(l, right, l.mul(j, square));
      squares.deeper *= keyPanels;
      TileGrid target{addressOf(l, sums, l.mul(j, size * kLanes)), 2 * kTileRow,
                      0, 0};
      multiplyTiles(l, columnsAt(l, left, columnsAtRow), squares, target,
                    height, kLanes / kTileSide, queryPanels,
                    /*accumulate=*/true);
    };
    l.loop(l.index(0), l.index(keyPanels), 1, [&](LoopBuilder &l, Value j) {
      if (dv.memref)
        addToKeys(l, j, doutColumns, weights, valueSums);
      if (dk.memref)
        addToKeys(l, j, queryColumns, slopes, keySums);
    });
    if (!dq.memref)
      return;
    l.loop(l.index(0), l.index(queryPanels), 1, [&](LoopBuilder &l, Value i) {
      TileGrid left{addressOf(l, slopeRows, l.mul(i, keyPanels * square)),
                    kTileRow, kTileBytes, 2 * kTileBytes};
      Value row = l.add(at, l.mul(i, kLanes));
      TileGrid target{addressOf(l, querySums, l.mul(row, size)), size * 4, 0,
                      0};
      multiplyTiles(l, left, pairsAt(l, keyPairs, l.index(0)), target,
                    kLanes / kTileSide, height, keyPanels,
                    /*accumulate=*/true);
    });
  };

  auto packKeys = [&](LoopBuilder &l, Value first, Value j) {
    Value here = l.add(first, l.mul(j, kLanes));
    Value count = countRows(l, here, columns);
    Rows keyHead = rowsOf(l, k, batchIndex, kvHead, here);
    Value across = l.mul(j, acrossWords);
    packAcross(l, keyHead, count, keyTiles, across);
    packAcross(l, rowsOf(l, v, batchIndex, kvHead, here), count, valueTiles,
               across);
    if (dq.memref)
      packPairs(l, keyHead, count, keyPairs, l.mul(j, pairWords));
  };

  auto writeKeys = [&](LoopBuilder &l, Value first, Value j) {
    Value here = l.add(first, l.mul(j, kLanes));
    Value count = countRows(l, here, columns), base = l.mul(j, size);
    if (dv.memref)
      unpack(l, valueSums, rowsOf(l, dv, batchIndex, kvHead, here), count,
             base);
    if (!dk.memref)
      return;
    l.loop(l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
      Value row = l.add(base, d);
      store(l,
            arith::MulFOp::create(l.b, loc, load(l, keySums, row),
                                  constant(l, scale)),
            keySums, row);
    });
    unpack(l, keySums, rowsOf(l, dk, batchIndex, kvHead, here), count, base);
  };

  l.loop(l.index(0), l.index(columns), keys, [&](LoopBuilder &l, Value first) {
    auto inPanels = [&](LoopBuilder::Body body) {
      l.loop(l.index(0), l.index(keyPanels), 1, body);
    };
    inPanels([&](LoopBuilder &l, Value j) { packKeys(l, first, j); });
    clear(l, keySums, keyPanels * size);
    clear(l, valueSums, keyPanels * size);
    Value begin = l.index(0);
    if (causal) {
      begin = arith::SubIOp::create(l.b, loc, first, l.index(columns - rows));
      begin = arith::MaxSIOp::create(l.b, loc, begin, l.index(0));
      begin = l.mul(l.div(begin, queries), queries);
    }
    inHeads(l, [&](LoopBuilder &l, Value member) {
      l.loop(begin, l.index(rows), queries, [&](LoopBuilder &l, Value low) {
        doQueries(l, first, member, low);
      });
    });
    inPanels([&](LoopBuilder &l, Value j) { writeKeys(l, first, j); });
  });

  if (querySums)
    inHeads(l, [&](LoopBuilder &l, Value member) {
      Value row = l.mul(member, memberRows);
      Rows from{querySums, l.mul(row, size), size, compute};
      copyRows(l, from, l.index(rows),
               rowsOf(l, dq, batchIndex, l.add(firstHead, member), l.index(0)),
               scale);
    });
  func::ReturnOp::create(b, loc);
  return batch * kvHeads;
}
