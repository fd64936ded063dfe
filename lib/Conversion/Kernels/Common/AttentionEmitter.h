//===- AttentionEmitter.h - Blocks of an attention --------------*- C++ -*-===//
//
// What the kernels of attention and of its gradient share. Both work on blocks
// of queries (or keys) that stand in the lanes of vectors, against one
// key (or query) after the other in memory. Three loops do all products:
// `multiply`, `accumulate` and `addProducts`.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_COMMON_ATTENTIONEMITTER_H
#define TRAINC_LIB_CONVERSION_KERNELS_COMMON_ATTENTIONEMITTER_H

#include "KernelEmitter.h"
#include "trainc/Dialect/NN/NNRandom.h"

namespace trainc {

/// Rows of a matrix per block of lanes.
inline constexpr int64_t kAttentionRows = 64;

/// log2(e).
inline constexpr double kLog2E = 1.4426950408889634;

/// Adding this to an f32 rounds it to a whole number, which is in the lowest bits
/// of the sum: 1.5 * 2^23.
inline constexpr double kRound = 12582912;

/// q, k, v, or what has their shape, in memory: [batch, length, heads,
/// headSize] with `stride` elements from one token to the next.
struct HeadMatrix {
  mlir::Value memref;
  int64_t length, stride, offset;
};

/// Consecutive rows of one head, of headSize elements each.
struct Rows {
  mlir::Value memref, base; // offset of the first element
  int64_t stride;
  mlir::Type element;

  /// Elements of a cache line.
  int64_t lineSize() const {
    return train::kCacheLine / nn::getElementBytes(element);
  }
};

struct AttentionEmitter {
  AttentionEmitter(KernelFunction &function, nn::AttentionOp op);
  AttentionEmitter(KernelFunction &function, nn::AttentionGradOp op);
  AttentionEmitter(KernelFunction &function, nn::PackedAttentionOp op);
  AttentionEmitter(KernelFunction &function, nn::PackedAttentionGradOp op);

  KernelFunction &function;
  mlir::Location loc;
  int64_t batch, rows, columns, heads, kvHeads, headSize;
  mlir::Type element, compute;
  /// Rows of a block, and a vector of as many.
  int64_t blockLanes = kLanes;
  mlir::VectorType vectorType;
  /// Whether some of them begin behind the last row or key.
  bool hasEmptyBlocks = false;
  bool causal;
  /// How many keys a query sees at most; all without.
  std::optional<int64_t> window;
  double scale;
  HeadMatrix q, k, v;
  mlir::Value lse;
  /// [batch, heads, rows, columns] or what broadcasts to it; null if there is
  /// none.
  mlir::Value mask;
  /// Elements of the mask per step along each dimension, 0 where it broadcasts.
  llvm::SmallVector<int64_t> maskStrides;
  mlir::Type maskElement;
  /// [batch, rows] integers; null if there are none.
  mlir::Value segments;
  mlir::Type segmentElement;
  /// Of the gradient alone.
  HeadMatrix out, dout;
  /// The sums of out dout, [batch, rows, heads], which GPUs have.
  mlir::Value delta;
  /// Of dropout, if there is a rate: scalars in memory (`firstDraw` null for 0), and the
  /// strides of nn.attention.
  std::optional<double> rate;
  int64_t site = 0;
  mlir::Value seed, update, microStep, firstDraw;
  llvm::SmallVector<int64_t> drawStrides;

  /// What all draws of the kernel depend on, without an index.
  nn::RandomCounter loadCounter(LoopBuilder &l);
  /// The index, a multiple of 4, of the score of the first query and key of a head.
  mlir::Value firstDrawOf(LoopBuilder &l, mlir::Value batchIndex,
                          mlir::Value head);
  /// `value`, dropped out by `words`, i32 or i64, of as many lanes.
  mlir::Value dropOut(LoopBuilder &l, mlir::Value value, mlir::Value words);

  int64_t emitForward(mlir::Value outResult, mlir::Value lseResult);
  int64_t emitBackward(HeadMatrix dq, HeadMatrix dk, HeadMatrix dv);

protected:
  /// Chooses the size of blocks of `ofLanes` rows, of which each meets `others`.
  void setBlocks(int64_t ofLanes, int64_t others);
  /// Rows of a register tile: their sums take half of the registers.
  int64_t tileRows() const;
  /// Runs `body` on 0 to `count` with how many it shall do at once: as many as
  /// registers hold, then one by one.
  void inRegisterTiles(
      LoopBuilder &l, mlir::Value count,
      llvm::function_ref<void(LoopBuilder &, mlir::Value, int64_t)> body);

  /// `rows` vectors of the tile's scratch.
  mlir::Value scratch(LoopBuilder &l, int64_t rows);
  mlir::Value load(LoopBuilder &l, mlir::Value scratch, mlir::Value row);
  void store(LoopBuilder &l, mlir::Value vector, mlir::Value scratch,
             mlir::Value row);
  void clear(LoopBuilder &l, mlir::Value scratch, int64_t rows);
  mlir::Value constant(LoopBuilder &l, double value);

  /// The rows of a head of a batch element from row `first` on.
  Rows rowsOf(LoopBuilder &l, const HeadMatrix &matrix, mlir::Value batchIndex,
              mlir::Value head, mlir::Value first);
  mlir::Value offset(LoopBuilder &l, const Rows &rows, mlir::Value row);
  /// The first `count` rows in the compute type: themselves, or a copy that
  /// fills `buffer`.
  Rows widen(LoopBuilder &l, const Rows &rows, mlir::Value count,
             mlir::Value buffer);
  /// Scratch for `widen` of `count` rows; null if it needs none.
  mlir::Value scratchToWiden(LoopBuilder &l, int64_t count);
  /// The same, of rows of a matrix that are summed: where each line is read by many
  /// register tiles, rows far apart, which share few sets of a cache, are copied.
  mlir::Value scratchToGather(LoopBuilder &l, int64_t count,
                              const HeadMatrix &matrix);

  using BlockBody = llvm::function_ref<void(LoopBuilder &, mlir::Value at,
                                            llvm::ArrayRef<mlir::Value> offsets,
                                            llvm::ArrayRef<mlir::Value> masks)>;
  /// Runs `body` on every block of rows that is transposed in registers: where
  /// it starts in transposed form, offsets and masks of its rows.
  void inBlocks(LoopBuilder &l, const Rows &rows, mlir::Value count,
                BlockBody body);
  /// transposed[d, lane] = rows[lane, d], 0 from lane `count` on (null: all
  /// lanes count).
  void pack(LoopBuilder &l, const Rows &rows, mlir::Value count,
            mlir::Value transposed);
  /// rows[lane, d] = transposed[d, lane], from vector `begin` (null: the first) on.
  void unpack(LoopBuilder &l, mlir::Value transposed, const Rows &rows,
              mlir::Value count, mlir::Value begin = mlir::Value());
  /// Brings the line of rows[row, d] near.
  void prefetch(LoopBuilder &l, const Rows &rows, mlir::Value row,
                mlir::Value d, bool isWrite = false, unsigned locality = 3);
  void prefetchRow(LoopBuilder &l, const Rows &rows, mlir::Value row,
                   bool isWrite = false, unsigned locality = 3);
  void prefetchRows(LoopBuilder &l, const Rows &rows, mlir::Value count,
                    bool isWrite);
  /// products[row] = sum over d of rows[row, d] transposed[d].
  void multiply(LoopBuilder &l, const Rows &rows, mlir::Value count,
                mlir::Value transposed, mlir::Value products);
  /// sums[d] = factor sums[d] + sum over rows of rows[row, d] weights[row].
  void accumulate(LoopBuilder &l, const Rows &rows, mlir::Value count,
                  mlir::Value weights, mlir::Value sums, mlir::Value factor);
  /// sums[row, d] += sum over lanes of weights[row, lane] rows[lane, d];
  /// `sums`, of the compute type, counts as 0 if `isFirst`.
  void addProducts(LoopBuilder &l, const Rows &rows, mlir::Value lanes,
                   mlir::Value weights, mlir::Value count, const Rows &sums,
                   mlir::Value isFirst);
  /// Copies the first `count` rows times `factor`, or 0 if there are none to copy
  /// from.
  void copyRows(LoopBuilder &l, std::optional<Rows> from, mlir::Value count,
                const Rows &to, double factor = 1.0);
  /// sum over d of x[0, d] y[0, d].
  mlir::Value dot(LoopBuilder &l, const Rows &x, const Rows &y);
  /// The scores of a row against lanes, from their product: scaled and masked.
  /// The lanes are queries if `lanesAreQueries`, else keys.
  mlir::Value finishScores(LoopBuilder &l, mlir::Value product,
                           mlir::Value batchIndex, mlir::Value head,
                           mlir::Value first, mlir::Value row,
                           bool lanesAreQueries);
  mlir::Value loadMask(LoopBuilder &l, mlir::Value batchIndex, mlir::Value head,
                       mlir::Value first, mlir::Value row,
                       bool lanesAreQueries);
  /// `value`, 0 where it is -inf.
  mlir::Value finite(LoopBuilder &l, mlir::Value value);
  /// 1 for the lanes of a block from `first` that are below `length`.
  mlir::Value lanesBelow(LoopBuilder &l, mlir::Value first, int64_t length);
  /// e to the power of `value`, which is below 88. In f32 with an error of 1.2e-7
  /// of it from -20 on, 0 below -87.
  mlir::Value exp(LoopBuilder &l, mlir::Value value);
  /// The polynomial of `value` with these coefficients, the highest first.
  mlir::Value polynomial(LoopBuilder &l, llvm::ArrayRef<double> coefficients,
                         mlir::Value value);
  /// `value`, an f32, times 2 to the power that stands in the lowest bits of
  /// `whole`.
  mlir::Value shiftExponent(LoopBuilder &l, mlir::Value value,
                            mlir::Value whole);
  /// The first `count` rows of `weights`, dropped out: of keys from `low` on, a multiple
  /// of 4, against the queries from `first` on in the lanes.
  void dropKeys(LoopBuilder &l, mlir::Value weights, mlir::Value count,
                const nn::RandomCounter &counter, mlir::Value headDraw,
                mlir::Value first, mlir::Value low);
  /// The words, i32, of a query for the keys from `first` on in the lanes.
  mlir::Value drawKeys(LoopBuilder &l, const nn::RandomCounter &counter,
                       mlir::Value headDraw, mlir::Value query,
                       mlir::Value first);
  /// p and scale p (dp - delta) from product and dp.
  std::pair<mlir::Value, mlir::Value> scoreGrad(LoopBuilder &l,
                                                mlir::Value score,
                                                mlir::Value dp, mlir::Value lse,
                                                mlir::Value delta);

  /// The first block of keys that a block of queries from `first` sees.
  mlir::Value firstKeys(LoopBuilder &l, mlir::Value first);
  /// The end of the keys that a block of queries from `first` sees.
  mlir::Value visibleKeys(LoopBuilder &l, mlir::Value first);

  void setPacked(mlir::Value qkv, int64_t headCount, int64_t kvHeadCount);
  /// The scale, the mask and the dropout of any of the four ops.
  template <typename Op> void setScores(Op op);
  /// What the gradients read besides: sums, outputs and gradients of outputs.
  template <typename Op> void setResults(Op op);
  mlir::Value input(mlir::Value value) const {
    return function.inputs.lookup(value);
  }

  /// Lanes in which rows are read and written along d: as few as hold a head.
  int64_t rowLanes() const;
  /// headSize, rounded up to whole blocks of a transposition.
  int64_t paddedSize() const;
  /// The mask of the `lanes` elements of a row from `d` on; null if all rows
  /// end with them.
  mlir::Value insideRow(LoopBuilder &l, mlir::Value d, int64_t lanes);
  /// How many of a block's lanes from `first` are below `length`; null if all.
  mlir::Value countLanes(LoopBuilder &l, mlir::Value first, int64_t length);

  /// Scratch for one row of the mask.
  mlir::Value maskRow;
};

using AttentionForward = llvm::function_ref<int64_t(
    AttentionEmitter &, mlir::Value out, mlir::Value lse)>;
using AttentionBackward = llvm::function_ref<int64_t(
    AttentionEmitter &, HeadMatrix dq, HeadMatrix dk, HeadMatrix dv)>;

/// Emits `op`, any of the four, by what fits; a result that nobody reads is null.
int64_t dispatchAttention(KernelFunction &function, mlir::Operation *op,
                          AttentionForward forward, AttentionBackward backward);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_COMMON_ATTENTIONEMITTER_H
