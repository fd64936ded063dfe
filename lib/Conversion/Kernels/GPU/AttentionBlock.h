//===- AttentionBlock.h - Attention by blocks, on a GPU ---------*- C++ -*-===//
//
// A block of threads has rows of one head in shared memory and goes over tiles of
// what they meet: forward and for dq its rows are queries and the tiles keys and
// values, for dk and dv its rows are keys and the tiles queries. Scores never leave
// registers, but for the second product. Every sum belongs to one lane: no atomic
// operation, and the same result in each run.
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

/// The sizes of a block's work, such that its memory suffices.
struct AttentionSizes : TileSizes {
  using TileSizes::TileSizes;

  /// How many parts of `width` elements a row of a head has.
  int64_t parts = 1;

  int64_t bytes(int64_t owned) const;
};

/// For `headSize` elements and `owned` matrices of a block's own rows.
AttentionSizes chooseAttentionSizes(mlir::Type element, int64_t headSize,
                                    int64_t owned);

/// What a block multiplies: own[i] with tiles[i], of the heads that these have.
struct AttentionOperands {
  llvm::SmallVector<HeadMatrix, 2> own, tiles;
  mlir::Value ownHead, tileHead, batchIndex;
  /// The block's first row, and the part of the results that it makes.
  mlir::Value first, part;
  /// The rows are queries, and the tiles keys.
  bool rowsAreQueries;
};

struct AttentionBlock {
  AttentionBlock(AttentionEmitter &e, ThreadBuilder &t, AttentionSizes sizes,
                 int64_t owned);

  AttentionEmitter &e;
  mlir::Location loc;
  AttentionSizes sizes;
  TileProducts products;
  llvm::SmallVector<mlir::Value, 2> own, tiles;
  /// Of the gradient: lse and delta of the queries of a tile.
  mlir::Value statistics;

  void emitForward(ThreadBuilder &t, mlir::Value out, mlir::Value lse);
  void emitKeyGrads(ThreadBuilder &t, mlir::Value number, HeadMatrix dk,
                    HeadMatrix dv);
  void emitQueryGrads(ThreadBuilder &t, mlir::Value number, HeadMatrix dq);

private:
  /// Copies `count` rows of a head from `first` on, the part at element `d`, 0 where
  /// there is none.
  void stage(ThreadBuilder &t, const HeadMatrix &matrix, mlir::Value batchIndex,
             mlir::Value head, mlir::Value first, mlir::Value d, int64_t count,
             mlir::Value to);
  /// Whether copies go past registers: 16 bytes each, with no change.
  bool copiesAsync() const {
    return products.stored == e.element &&
           accessLanes() * sizes.storedBytes == 16;
  }
  /// Begins to copy 16 bytes, or zeros if not `inside`.
  void copyAsync(ThreadBuilder &t, mlir::Value from, mlir::Value at,
                 mlir::Value to, mlir::Value sharedAt, mlir::Value inside);
  /// All threads see what was staged.
  void awaitCopies(ThreadBuilder &t);
  void stageOwn(ThreadBuilder &t, const AttentionOperands &o, mlir::Value d);
  void stageTiles(ThreadBuilder &t, const AttentionOperands &o, mlir::Value low,
                  mlir::Value d, size_t count);
  /// Stages the tile of one matrix.
  void stageTile(ThreadBuilder &t, const AttentionOperands &o, size_t which,
                 mlir::Value low, mlir::Value d) {
    stage(t, o.tiles[which], o.batchIndex, o.tileHead, low, d, sizes.tile,
          tiles[which]);
  }
  /// The products of a tile that is there, while the second one of it is on its way,
  /// as is then that of the next one from `next` on, if that is before `end`.
  Fragment multiplyStaged(ThreadBuilder &t, const AttentionOperands &o,
                          mlir::Value low, mlir::Value end);
  /// Stages the tile from row `low` on; the products of all own matrices with it,
  /// one behind the other. `more`, if given, runs before threads wait for the tile.
  Fragment multiplyTile(ThreadBuilder &t, const AttentionOperands &o,
                        mlir::Value low,
                        llvm::function_ref<void(ThreadBuilder &)> more = {});
  /// The first tile of keys that the queries from `first` on see.
  mlir::Value visibleBegin(ThreadBuilder &t, mlir::Value first);
  /// The scores, in place of products.
  void finishScores(ThreadBuilder &t, const AttentionOperands &o,
                    mlir::Value low, mlir::Value head,
                    llvm::MutableArrayRef<mlir::Value> scores);
  /// The words, i64, by which the scores of a tile are dropped out; none without a rate.
  Fragment drawScores(ThreadBuilder &t, const AttentionOperands &o,
                      mlir::Value low, mlir::Value head, size_t count);
  mlir::Value loadMask(ThreadBuilder &t, mlir::Value batchIndex,
                       mlir::Value head, mlir::Value query, mlir::Value key);
  mlir::Value loadSegment(ThreadBuilder &t, mlir::Value batchIndex,
                          mlir::Value position);
  /// p and its gradient from score and dp.
  std::pair<mlir::Value, mlir::Value> scoreGrad(ThreadBuilder &t,
                                                mlir::Value score,
                                                mlir::Value dp, mlir::Value lse,
                                                mlir::Value delta);
  mlir::Value loadDelta(ThreadBuilder &t, mlir::Value batchIndex,
                        mlir::Value head, mlir::Value row);
  mlir::Value loadLse(ThreadBuilder &t, mlir::Value batchIndex,
                      mlir::Value head, mlir::Value row);
  void storeRows(ThreadBuilder &t, const AttentionOperands &o,
                 mlir::ValueRange sums, const HeadMatrix &to, mlir::Value head);

  mlir::Value constant(ThreadBuilder &t, double value) {
    return nn::splatConstant(t.b, loc, e.compute, value);
  }
  mlir::Value infinity(ThreadBuilder &t) {
    return constant(t, -std::numeric_limits<double>::infinity());
  }
  mlir::Value finite(ThreadBuilder &t, mlir::Value value);
  mlir::Value exp(ThreadBuilder &t, mlir::Value x, mlir::Value y) {
    return mlir::math::ExpOp::create(
        t.b, loc, mlir::arith::SubFOp::create(t.b, loc, x, y).getResult());
  }
  mlir::Value select(ThreadBuilder &t, mlir::Value condition, mlir::Value x,
                     mlir::Value y) {
    return mlir::arith::SelectOp::create(t.b, loc, condition, x, y);
  }
  /// Elements of a row that are copied at once: 16 bytes where they are stored.
  int64_t accessLanes() const;
  /// The lane's row of the block, in its first or second half of 16.
  mlir::Value ownRow(ThreadBuilder &t, const AttentionOperands &o,
                     int64_t half) {
    return t.add(o.first, t.add(products.row, t.index(half * 8)));
  }
};

/// The end of the keys that `count` queries from `first` on see.
mlir::Value visibleEnd(ThreadBuilder &t, const AttentionEmitter &e,
                       mlir::Value first, int64_t count);

/// The gradients of an attention, each if it has a memref: the number of blocks.
int64_t emitAttentionGradOnGPU(AttentionEmitter &e, HeadMatrix dq,
                               HeadMatrix dk, HeadMatrix dv);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_GPU_ATTENTIONBLOCK_H
