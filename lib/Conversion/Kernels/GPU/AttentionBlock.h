//===- AttentionBlock.h - Attention by blocks, on a GPU ---------*- C++ -*-===//
//
// A block of threads has rows of one head in shared memory and goes over tiles of
// what they meet: forward and for dq its rows are queries and the tiles keys and
// values, for dk and dv its rows are keys and the tiles queries. Scores never leave
// registers, but for the second product. Every sum belongs to one lane: no atomic
// operation, and the same result in each run.
//
// With tensor cores a block's own rows go to registers, and the next tiles are on their
// way while it works on those that are there. Scores are masked only in tiles of which
// something is hidden.
//
// A long row of a head goes by parts: scores are sums over all of them, and each
// block makes one part of the results.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_GPU_ATTENTIONBLOCK_H
#define TRAINC_LIB_CONVERSION_KERNELS_GPU_ATTENTIONBLOCK_H

#include "Common/AttentionEmitter.h"
#include "TileProducts.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include <limits>

namespace trainc {

/// Most elements of a row that is short.
inline constexpr int64_t kShortRow = 64;

/// The sizes of a block's work, such that its memory suffices.
struct AttentionSizes : TileSizes {
  using TileSizes::TileSizes;

  /// How many parts of `width` elements a row of a head has.
  int64_t parts = 1;
  /// Whether there is memory for the tiles that come next, and own rows are in registers.
  bool doubled = false;

  /// How many rows apart the tiles stand from the next ones.
  int64_t ahead() const { return 2 * tile; }
  int64_t tileRows() const { return doubled ? 2 * ahead() : ahead(); }
  /// Where `owned` matrices of own rows stand: where the second tiles come to stand, if
  /// these are as large, else behind all tiles or, where memory ends, in their place.
  int64_t firstOwn(int64_t owned) const;
  /// The shifts of the queries of tiles.
  int64_t statisticsBytes() const {
    return (doubled ? 2 : 1) * 2 * tile * computeBytes;
  }
  int64_t bytes(int64_t owned) const;
  /// A lane's registers for two sums and two products of the gradient, and for own rows.
  int64_t gradRegisters() const {
    return (width + tile) * computeBytes / 4 + (doubled ? width / 2 : 0);
  }
};

/// For `owned` matrices of a block's own rows.
AttentionSizes chooseAttentionSizes(const AttentionEmitter &e, int64_t owned);

/// What a block multiplies: own[i] with tiles[i], of the heads that these have.
struct AttentionOperands {
  llvm::SmallVector<HeadMatrix, 2> own, tiles;
  /// The head of the own rows, and the first one of the tiles; that of the own rows among
  /// those of all batches.
  mlir::Value ownHead, tileHead, batchIndex, ofAll;
  /// The block's first row, and the part of the results that it makes.
  mlir::Value first, part;
  /// The rows are queries, and the tiles keys.
  bool rowsAreQueries;
  /// How many heads of tiles there are, and of each the first and the end of the rows that
  /// are seen.
  int64_t members = 1;
  mlir::Value begin, end;
};

/// Rows from `low` on of a head: from which element of the memory on they stand, as far as
/// tiles go, and their statistics (null: from the first one on).
struct AttentionTile {
  mlir::Value head, low, at, statistics;
};

struct AttentionBlock {
  AttentionBlock(AttentionEmitter &e, ThreadBuilder &t, AttentionSizes sizes,
                 int64_t owned);

  AttentionEmitter &e;
  mlir::Location loc;
  AttentionSizes sizes;
  TileProducts products;
  /// Tiles and own rows.
  mlir::Value memory;
  int64_t owned;
  /// Of the gradient: what `loadShifts` gives of the queries of a tile.
  mlir::Value statistics;
  /// Own rows in registers, of each matrix.
  llvm::SmallVector<Fragment, 2> loaded;
  /// Scores are scaled when they become exponents of 2, and what shifts them is one; else
  /// both are exponents of e. Scores of masked rows may end in the lowest number.
  bool scalesLate;

  void emitForward(ThreadBuilder &t, mlir::Value out, mlir::Value lse);
  void emitKeyGrads(ThreadBuilder &t, mlir::Value number, HeadMatrix dk,
                    HeadMatrix dv);
  void emitQueryGrads(ThreadBuilder &t, mlir::Value number, HeadMatrix dq);

private:
  using TileBody = llvm::function_ref<Fragment(
      ThreadBuilder &, const AttentionTile &, mlir::ValueRange)>;

  /// The operands of block `number` of queries, or of keys.
  AttentionOperands queryBlock(ThreadBuilder &t, mlir::Value number);
  AttentionOperands keyBlock(ThreadBuilder &t, mlir::Value number);
  TileRows ownRows(ThreadBuilder &t, size_t which) {
    int64_t row = sizes.firstOwn(owned) + which * sizes.rows;
    return {memory, t.index(row * sizes.stride())};
  }
  TileRows tileRows(ThreadBuilder &t, size_t which, const AttentionTile &tile) {
    mlir::Value start = t.index(which * sizes.tile * sizes.stride());
    return {memory, tile.at ? t.add(start, tile.at) : start};
  }

  /// Runs `body` on all tiles, in order: if `doubled`, tiles that are there and stay until
  /// all threads are at the next one; else `body` stages them.
  Fragment forTiles(ThreadBuilder &t, const AttentionOperands &o,
                    mlir::ValueRange initial, TileBody body);
  Fragment forTilesAhead(ThreadBuilder &t, const AttentionOperands &o,
                         mlir::ValueRange initial, TileBody body);
  /// Copies `count` rows of a head from `first` on, the part at element `d`, 0 where
  /// there is none.
  void stage(ThreadBuilder &t, const HeadMatrix &matrix, mlir::Value batchIndex,
             mlir::Value head, mlir::Value first, mlir::Value d, int64_t count,
             const TileRows &to);
  /// The same where all of it is there and each thread copies the same column of each row
  /// that it copies; nothing where not. `start` is the element of row 0.
  bool stageWhole(ThreadBuilder &t, const HeadMatrix &matrix, mlir::Value start,
                  mlir::Value first, int64_t count, const TileRows &to);
  /// Whether copies go past registers: 16 bytes each, with no change.
  bool copiesAsync() const {
    return products.stored == e.element &&
           accessLanes() * sizes.storedBytes == 16;
  }
  /// Begins to copy 16 bytes, or zeros if not `inside` (null: it is).
  void copyAsync(ThreadBuilder &t, mlir::Value from, mlir::Value to,
                 mlir::Value inside);
  /// All threads see what was staged.
  void awaitCopies(ThreadBuilder &t);
  void stageOwn(ThreadBuilder &t, const AttentionOperands &o, mlir::Value d);
  void stageTiles(ThreadBuilder &t, const AttentionOperands &o,
                  const AttentionTile &tile, mlir::Value d, size_t count);
  /// Stages the tile of one matrix.
  void stageTile(ThreadBuilder &t, const AttentionOperands &o, size_t which,
                 const AttentionTile &tile, mlir::Value d) {
    stage(t, o.tiles[which], o.batchIndex, tile.head, tile.low, d, sizes.tile,
          tileRows(t, which, tile));
  }
  /// The products of all own matrices with the tiles, one behind the other.
  Fragment multiplyTiles(ThreadBuilder &t, const AttentionOperands &o,
                         const AttentionTile &tile);
  /// The same of tiles that it stages.
  Fragment stageAndMultiply(ThreadBuilder &t, const AttentionOperands &o,
                            const AttentionTile &tile);
  /// The products of a tile of keys that is there, while the values are on their way, as
  /// are then the next keys.
  Fragment multiplyStaged(ThreadBuilder &t, const AttentionOperands &o,
                          const AttentionTile &tile);
  /// The first tile of keys that the queries from `first` on see.
  mlir::Value visibleBegin(ThreadBuilder &t, mlir::Value first);
  /// The scores, in place of products.
  void finishScores(ThreadBuilder &t, const AttentionOperands &o,
                    const AttentionTile &tile,
                    llvm::MutableArrayRef<mlir::Value> scores);
  /// Whether some row does not see all of a tile, an i1; null if all always do.
  mlir::Value hidesSome(ThreadBuilder &t, const AttentionOperands &o,
                        const AttentionTile &tile);
  /// Scores of what rows do not see are -inf.
  void hideScores(ThreadBuilder &t, const AttentionOperands &o,
                  const AttentionTile &tile,
                  llvm::MutableArrayRef<mlir::Value> scores);
  /// The words, i64, by which the scores of a tile are dropped out; none without a rate.
  Fragment drawScores(ThreadBuilder &t, const AttentionOperands &o,
                      const AttentionTile &tile, size_t count);
  mlir::Value loadMask(ThreadBuilder &t, mlir::Value batchIndex,
                       mlir::Value head, mlir::Value query, mlir::Value key);
  mlir::Value loadSegment(ThreadBuilder &t, mlir::Value batchIndex,
                          mlir::Value position);
  /// By what a query's scores and the gradients of its probabilities are shifted: -lse and
  /// -scale delta.
  std::pair<mlir::Value, mlir::Value> loadShifts(ThreadBuilder &t,
                                                 mlir::Value batchIndex,
                                                 mlir::Value head,
                                                 mlir::Value row);
  /// Those of a tile of queries that are this thread's; none if tiles are keys.
  Fragment loadStatistics(ThreadBuilder &t, const AttentionOperands &o,
                          const AttentionTile &tile);
  void storeStatistics(ThreadBuilder &t, const AttentionOperands &o,
                       const AttentionTile &tile, mlir::ValueRange shifts);
  /// p and its gradient from score and dp.
  std::pair<mlir::Value, mlir::Value>
  scoreGrad(ThreadBuilder &t, mlir::Value score, mlir::Value dp,
            std::pair<mlir::Value, mlir::Value> shifts);
  void storeRows(ThreadBuilder &t, const AttentionOperands &o,
                 mlir::ValueRange sums, const HeadMatrix &to, mlir::Value head);

  mlir::Value constant(ThreadBuilder &t, double value) {
    return nn::splatConstant(t.b, loc, e.compute, value);
  }
  mlir::Value infinity(ThreadBuilder &t) {
    return constant(t, -std::numeric_limits<double>::infinity());
  }
  mlir::Value finite(ThreadBuilder &t, mlir::Value value);
  /// How often a unit of what shifts scores goes into one of scores.
  double shiftUnits() const { return scalesLate ? e.scale * kLog2E : 1.0; }
  /// e to the power of the score, shifted.
  mlir::Value exp(ThreadBuilder &t, mlir::Value score, mlir::Value shift);
  mlir::Value mul(ThreadBuilder &t, mlir::Value x, mlir::Value y) {
    return mlir::arith::MulFOp::create(t.b, loc, x, y);
  }
  mlir::Value select(ThreadBuilder &t, mlir::Value condition, mlir::Value x,
                     mlir::Value y) {
    return mlir::arith::SelectOp::create(t.b, loc, condition, x, y);
  }
  mlir::Value either(ThreadBuilder &t, mlir::Value x, mlir::Value y) {
    return x ? mlir::arith::OrIOp::create(t.b, loc, x, y).getResult() : y;
  }
  mlir::Value compare(ThreadBuilder &t, mlir::arith::CmpIPredicate predicate,
                      mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(t.b, loc, predicate, x, y);
  }
  /// Elements of a row that are copied at once: 16 bytes where they are stored.
  int64_t accessLanes() const;
  /// The lane's row of the block, in its first or second half of 16.
  mlir::Value ownRow(ThreadBuilder &t, const AttentionOperands &o,
                     int64_t half) {
    return t.add(o.first, t.add(products.row, t.index(half * 8)));
  }
};

/// Whether scores need no registers but for what is causal.
bool hasSimpleScores(const AttentionEmitter &e);

/// The end of the keys that `count` queries from `first` on see.
mlir::Value visibleEnd(ThreadBuilder &t, const AttentionEmitter &e,
                       mlir::Value first, int64_t count);

/// The gradients of an attention, each if it has a memref: the number of blocks.
int64_t emitAttentionGradOnGPU(AttentionEmitter &e, HeadMatrix dq,
                               HeadMatrix dk, HeadMatrix dv);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_ATTENTIONBLOCK_H
