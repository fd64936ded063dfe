//===- AttentionTileGradKernel.cpp - Gradients of an attention by tiles ---===//
//
// As AttentionGradKernel.cpp, with tile registers for the five products: a square
// is a panel of queries against a panel of keys, which stand in the lanes. Queries
// and gradients of outputs are packed once for all blocks of keys. Gradients of
// scores are scaled where they have been summed.
//
//===----------------------------------------------------------------------===//
#include "AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"

using namespace mlir;
using namespace trainc;

namespace {
/// Where a panel of queries stands: its row among those of its head, the head, and
/// its row among those of all heads of the tile.
struct QueryPlace {
  Value row, head, at;
};

struct TileBackward : TileAttention {
  TileBackward(const AttentionEmitter &emitter, HeadMatrix dq, HeadMatrix dk,
               HeadMatrix dv)
      : TileAttention(emitter), dq(dq), dk(dk), dv(dv) {}

  int64_t emit();

private:
  HeadMatrix dq, dk, dv;
  int64_t group; // heads of queries
  /// Of a block, and panels of it.
  int64_t keys, queries, keyPanels, queryPanels;
  /// Rows of a head of queries, and of all of them, in whole blocks.
  int64_t memberRows, allRows;
  Value kvHead, batchIndex, firstHead;
  Value queryRows, doutRows, queryColumns, doutColumns, logs, deltas;
  Value keyTiles, valueTiles, keyPairs, keySums, valueSums, querySums;
  Value scores, dps, weights, slopes, slopeRows;

  void chooseSizes();
  void placeTile(LoopBuilder &l);
  void allocate(LoopBuilder &l);
  void inHeads(LoopBuilder &l, LoopBuilder::Body body) {
    l.loop(l.index(0), l.index(group), 1, body);
  }
  void clearNumbers(LoopBuilder &l, Value numbers, int64_t count);
  int64_t panelOfPairs() { return pieces * kTileSide * paddedSize(); }
  int64_t squareWords() { return pieces * kSquare; }
  Value keyPlace(LoopBuilder &l, Value first, Value panel) {
    return l.add(first, l.mul(panel, kLanes));
  }

  void packHead(LoopBuilder &l, Value member);
  void packQueries(LoopBuilder &l, const QueryPlace &place);
  void packKeys(LoopBuilder &l, Value first, Value panel);
  void doQueries(LoopBuilder &l, Value first, const QueryPlace &place);
  void doSquare(LoopBuilder &l, Value first, Value keyPanel,
                const QueryPlace &place, Value square);
  void weighRows(LoopBuilder &l, Value i, const QueryPlace &place, Value square,
                 Value factor);
  void addToKeys(LoopBuilder &l, Value panel, const QueryPlace &place,
                 Value left, Value right, Value sums);
  void addToQueries(LoopBuilder &l, Value panel, const QueryPlace &place);
  void writeKeys(LoopBuilder &l, Value first, Value panel);
  void doKeys(LoopBuilder &l, Value first);
};
} // namespace

void TileBackward::chooseSizes() {
  group = heads / kvHeads;
  keys = rowsPerBlock(columns);
  queries = rowsPerBlock(rows);
  keyPanels = keys / kLanes;
  queryPanels = queries / kLanes;
  memberRows = llvm::alignTo(rows, queries);
  allRows = group * memberRows;
  hasEmptyBlocks = columns % keys != 0; // panels behind the last key
}

void TileBackward::placeTile(LoopBuilder &l) {
  kvHead = l.mod(function.tile, kvHeads);
  batchIndex = l.div(function.tile, kvHeads);
  firstHead = l.mul(kvHead, group);
}

void TileBackward::allocate(LoopBuilder &l) {
  int64_t allPanels = allRows / kLanes, squares = queryPanels * keyPanels;
  queryRows = words(l, allPanels * panelOfRows());
  doutRows = words(l, allPanels * panelOfRows());
  queryColumns = words(l, allPanels * panelOfColumns());
  doutColumns = words(l, allPanels * panelOfColumns());
  logs = function.allocateScratch(l, compute, allRows);
  deltas = function.allocateScratch(l, compute, allRows);
  keyTiles = words(l, keyPanels * panelAcross());
  valueTiles = words(l, keyPanels * panelAcross());
  keyPairs = words(l, keyPanels * panelOfPairs());
  keySums = scratch(l, keyPanels * paddedSize());
  valueSums = scratch(l, keyPanels * paddedSize());
  if (dq.memref)
    querySums = function.allocateScratch(l, compute, allRows * paddedSize());
  scores = scratch(l, kLanes);
  dps = scratch(l, kLanes);
  weights = words(l, squares * squareWords());
  slopes = words(l, squares * squareWords());
  slopeRows = words(l, squares * squareWords());
  maskRow = scratch(l, 1);
}

void TileBackward::clearNumbers(LoopBuilder &l, Value numbers, int64_t count) {
  auto type = VectorType::get({kTileSide}, compute);
  Value zero = nn::splatConstant(l.b, loc, type, 0.0);
  l.loop(l.index(0), l.index(count), kTileSide, [&](LoopBuilder &l, Value at) {
    vector::StoreOp::create(l.b, loc, zero, numbers, ValueRange(at));
  });
}

void TileBackward::packQueries(LoopBuilder &l, const QueryPlace &place) {
  Value count = countRows(l, place.row, rows);
  Value panel = l.div(place.at, kLanes);
  Value toRows = l.mul(panel, panelOfRows());
  Value toColumns = l.mul(panel, panelOfColumns());
  Rows queryHead = rowsOf(l, q, batchIndex, place.head, place.row);
  Rows doutHead = rowsOf(l, dout, batchIndex, place.head, place.row);
  packRows(l, queryHead, count, queryRows, toRows);
  packRows(l, doutHead, count, doutRows, toRows);
  packColumns(l, queryHead, count, queryColumns, toColumns);
  packColumns(l, doutHead, count, doutColumns, toColumns);
  Value mask;
  if (count)
    mask = l.maskBelow(count);
  Value at = l.add(l.mul(batchIndex, heads), place.head);
  at = l.add(l.mul(at, rows), place.row);
  Value log = finite(l, l.loadVector(lse, at, compute, mask));
  log = arith::MulFOp::create(l.b, loc, log, constant(l, -toBase));
  l.storeVector(log, logs, place.at, compute, /*mask=*/Value());
}

void TileBackward::packHead(LoopBuilder &l, Value member) {
  Value head = l.add(firstHead, member), begin = l.mul(member, memberRows);
  l.loop(l.index(0), l.index(memberRows), kLanes,
         [&](LoopBuilder &l, Value row) {
           packQueries(l, {row, head, l.add(begin, row)});
         });
  // The sum over j of p[j] dp[j] is out . dout.
  l.loop(l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value row) {
    Value delta = dot(l, rowsOf(l, out, batchIndex, head, row),
                      rowsOf(l, dout, batchIndex, head, row));
    l.storeScalar(delta, deltas, l.add(begin, row), compute);
  });
}

void TileBackward::packKeys(LoopBuilder &l, Value first, Value panel) {
  Value here = keyPlace(l, first, panel), count = countRows(l, here, columns);
  Rows keyHead = rowsOf(l, k, batchIndex, kvHead, here);
  Value across = l.mul(panel, panelAcross());
  packAcross(l, keyHead, count, keyTiles, across);
  packAcross(l, rowsOf(l, v, batchIndex, kvHead, here), count, valueTiles,
             across);
  if (dq.memref)
    packPairs(l, keyHead, count, keyPairs, l.mul(panel, panelOfPairs()));
}

/// p and its gradient times p of rows `i` and `i` + kTileSide of a square.
void TileBackward::weighRows(LoopBuilder &l, Value i, const QueryPlace &place,
                             Value square, Value factor) {
  Pieces p[2], ds[2];
  Value begin = l.mul(square, squareWords());
  for (int64_t half = 0; half < 2; ++half) {
    Value row = l.add(i, l.index(half * kTileSide));
    Value query = l.add(place.at, row);
    Value log = l.splat(l.loadScalar(logs, query, compute));
    Value delta = l.splat(l.loadScalar(deltas, query, compute));
    Value weight = power(
        l, math::FmaOp::create(l.b, loc, load(l, scores, row), factor, log));
    Value slope = arith::SubFOp::create(l.b, loc, load(l, dps, row), delta);
    slope = arith::MulFOp::create(l.b, loc, weight, slope);
    p[half] = split(l, weight);
    ds[half] = split(l, slope);
    if (!dq.memref)
      continue;
    auto lanes = [&](int64_t first) {
      return Pieces(llvm::map_range(ds[half], [&](Value piece) -> Value {
        return vector::ExtractStridedSliceOp::create(l.b, loc, piece, {first},
                                                     {kTileSide}, {1});
      }));
    };
    storeMerged(l, lanes(0), lanes(kTileSide), slopeRows,
                l.add(begin, l.mul(row, kTileSide)), kSquare);
  }
  Value to = l.add(begin, l.mul(i, kLanes));
  storeMerged(l, p[0], p[1], weights, to, kSquare);
  storeMerged(l, ds[0], ds[1], slopes, to, kSquare);
}

/// Probabilities and gradients of scores.
void TileBackward::doSquare(LoopBuilder &l, Value first, Value keyPanel,
                            const QueryPlace &place, Value square) {
  Value packed = l.mul(l.div(place.at, kLanes), panelOfRows());
  Value across = l.mul(keyPanel, panelAcross());
  auto multiplyRows = [&](Value left, Value right, Value products) {
    multiplyTiles(l, rowsAt(l, left, packed), acrossAt(l, right, across),
                  lanesAt(l, products, l.index(0)), kLanes / kTileSide,
                  kLanes / kTileSide, depth, /*accumulate=*/false);
  };
  multiplyRows(queryRows, keyTiles, scores);
  multiplyRows(doutRows, valueTiles, dps);
  Value needs =
      needsFinish(l, first, place.row, kLanes, /*lanesAreQueries=*/false);
  finishPanel(l, needs, scores, kLanes, batchIndex, place.head, first,
              place.row, /*lanesAreQueries=*/false);
  Value factor = selectNumber(l, needs, toBase, scale * toBase);
  l.loop(l.index(0), l.index(kTileSide), 1, [&](LoopBuilder &l, Value i) {
    weighRows(l, i, place, square, factor);
  });
}

/// sums^T += left^T right: the squares of a panel of keys.
void TileBackward::addToKeys(LoopBuilder &l, Value panel,
                             const QueryPlace &place, Value left, Value right,
                             Value sums) {
  TileGrid squares = acrossAt(l, right, l.mul(panel, squareWords()));
  squares.deeper *= keyPanels;
  Value columns = l.mul(l.div(place.at, kLanes), panelOfColumns());
  multiplyTiles(l, columnsAt(l, left, columns), squares,
                lanesAt(l, sums, l.mul(panel, paddedSize())), height,
                kLanes / kTileSide, queryPanels, /*accumulate=*/true);
}

void TileBackward::addToQueries(LoopBuilder &l, Value panel,
                                const QueryPlace &place) {
  Value squares = l.mul(panel, keyPanels * squareWords());
  TileGrid left{addressOf(l, slopeRows, squares), kTileRow, kTileBytes,
                pieces * 2 * kTileBytes, pieceStride(2 * kTileBytes)};
  Value row = l.add(place.at, l.mul(panel, kLanes));
  TileGrid sums{addressOf(l, querySums, l.mul(row, paddedSize())),
                height * kTileRow, 0, 0};
  multiplyTiles(l, left, pairsAt(l, keyPairs, l.index(0)), sums,
                kLanes / kTileSide, height, keyPanels, /*accumulate=*/true);
}

/// A block of queries against one of keys.
void TileBackward::doQueries(LoopBuilder &l, Value first,
                             const QueryPlace &place) {
  inPanels(l, queryPanels, [&](LoopBuilder &l, Value i) {
    inPanels(l, keyPanels, [&](LoopBuilder &l, Value j) {
      Value shift = l.mul(i, kLanes);
      doSquare(l, keyPlace(l, first, j), j,
               {l.add(place.row, shift), place.head, l.add(place.at, shift)},
               l.add(l.mul(i, keyPanels), j));
    });
  });
  inPanels(l, keyPanels, [&](LoopBuilder &l, Value j) {
    if (dv.memref)
      addToKeys(l, j, place, doutColumns, weights, valueSums);
    if (dk.memref)
      addToKeys(l, j, place, queryColumns, slopes, keySums);
  });
  if (dq.memref)
    inPanels(l, queryPanels,
             [&](LoopBuilder &l, Value i) { addToQueries(l, i, place); });
}

void TileBackward::writeKeys(LoopBuilder &l, Value first, Value panel) {
  Value here = keyPlace(l, first, panel), count = countRows(l, here, columns);
  Value begin = l.mul(panel, paddedSize());
  if (dv.memref)
    unpack(l, valueSums, rowsOf(l, dv, batchIndex, kvHead, here), count, begin);
  if (!dk.memref)
    return;
  l.loop(l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
    scaleRow(l, keySums, l.add(begin, d), constant(l, scale));
  });
  unpack(l, keySums, rowsOf(l, dk, batchIndex, kvHead, here), count, begin);
}

/// A block of keys against all queries that see it.
void TileBackward::doKeys(LoopBuilder &l, Value first) {
  inPanels(l, keyPanels,
           [&](LoopBuilder &l, Value j) { packKeys(l, first, j); });
  clear(l, keySums, keyPanels * paddedSize());
  clear(l, valueSums, keyPanels * paddedSize());
  Value begin = l.index(0);
  if (causal) {
    begin = arith::SubIOp::create(l.b, loc, first, l.index(columns - rows));
    begin = arith::MaxSIOp::create(l.b, loc, begin, l.index(0));
    begin = l.mul(l.div(begin, queries), queries);
  }
  inHeads(l, [&](LoopBuilder &l, Value member) {
    Value head = l.add(firstHead, member);
    Value firstAt = l.mul(member, memberRows);
    l.loop(begin, l.index(rows), queries, [&](LoopBuilder &l, Value row) {
      doQueries(l, first, {row, head, l.add(firstAt, row)});
    });
  });
  inPanels(l, keyPanels,
           [&](LoopBuilder &l, Value j) { writeKeys(l, first, j); });
}

int64_t TileBackward::emit() {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  chooseSizes();
  placeTile(l);
  allocate(l);
  configureTiles(l, words(l, kTileSide));
  clearNumbers(l, deltas, allRows);
  if (dq.memref)
    clearNumbers(l, querySums, allRows * paddedSize());
  inHeads(l, [&](LoopBuilder &l, Value member) { packHead(l, member); });
  l.loop(l.index(0), l.index(columns), keys,
         [&](LoopBuilder &l, Value first) { doKeys(l, first); });
  if (dq.memref)
    inHeads(l, [&](LoopBuilder &l, Value member) {
      Value at = l.mul(member, memberRows * paddedSize());
      Rows from{querySums, at, paddedSize(), compute};
      copyRows(l, from, l.index(rows),
               rowsOf(l, dq, batchIndex, l.add(firstHead, member), l.index(0)),
               scale);
    });
  releaseTiles(l);
  func::ReturnOp::create(b, loc);
  return batch * kvHeads;
}

int64_t trainc::emitBackwardByTiles(const AttentionEmitter &emitter,
                                    HeadMatrix dq, HeadMatrix dk,
                                    HeadMatrix dv) {
  return TileBackward(emitter, dq, dk, dv).emit();
}
