//===- AttentionEmitter.h - Blocks of an attention --------------*- C++ -*-===//
//
// What the kernels of attention and of its gradient share. Both work on blocks
// of kLanes queries (or keys) that stand in the lanes of vectors, against one
// key (or query) after the other in memory. Two loops do all products:
// `multiply` and `accumulate`. No buffer grows with the lengths.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_LOWERKERNELS_ATTENTIONEMITTER_H
#define TRAINC_LIB_CONVERSION_LOWERKERNELS_ATTENTIONEMITTER_H

#include "KernelEmitter.h"

namespace trainc {

/// Rows of a matrix per block of lanes.
inline constexpr int64_t kAttentionRows = 64;

/// q, k, v, or what has their shape, in memory: [batch, length, heads,
/// headSize] with `stride` elements from one token to the next.
struct HeadMatrix {
  mlir::Value memref;
  int64_t length, stride, offset;
};

/// A head of a HeadMatrix of one batch element.
struct Head {
  const HeadMatrix &matrix;
  mlir::Value batch, head;
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
  mlir::VectorType vectorType;
  bool causal;
  double scale;
  HeadMatrix q, k, v;
  mlir::Value lse;
  /// [batch, heads, rows, columns] or what broadcasts to it; null if there is
  /// none.
  mlir::Value mask;
  /// Of the gradient alone.
  HeadMatrix out, dout;

  int64_t emitForward(mlir::Value outResult, mlir::Value lseResult);
  int64_t emitBackward(HeadMatrix dq, HeadMatrix dk, HeadMatrix dv);

  /// Whether the scratch of a block fits the stack and there is work at all.
  bool isSupported() const;

private:
  using Body = llvm::function_ref<void(LoopBuilder &, mlir::Value)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      LoopBuilder &, mlir::Value, mlir::ValueRange)>;
  void loop(LoopBuilder &l, mlir::Value low, mlir::Value high, int64_t step,
            Body body);
  llvm::SmallVector<mlir::Value> loop(LoopBuilder &l, mlir::Value low,
                                      mlir::Value high, int64_t step,
                                      mlir::ValueRange initial,
                                      CarryingBody body);
  /// Runs `body` with how many rows it shall do at once: as many as registers
  /// hold, then one by one.
  void inRegisterTiles(
      LoopBuilder &l, mlir::Value low, mlir::Value high,
      llvm::function_ref<void(LoopBuilder &, mlir::Value, int64_t)> body);

  /// `rows` vectors on the stack.
  mlir::Value scratch(LoopBuilder &l, int64_t rows);
  mlir::Value load(LoopBuilder &l, mlir::Value scratch, mlir::Value row);
  void store(LoopBuilder &l, mlir::Value vector, mlir::Value scratch,
             mlir::Value row);
  void clear(LoopBuilder &l, mlir::Value scratch);
  mlir::Value constant(LoopBuilder &l, double value);
  mlir::Value rowOffset(LoopBuilder &l, Head head, mlir::Value row);

  /// transposed[d, lane] = head[first + lane, d], 0 past the end.
  void pack(LoopBuilder &l, Head head, mlir::Value first,
            mlir::Value transposed);
  /// head[first + lane, d] = transposed[d, lane].
  void unpack(LoopBuilder &l, mlir::Value transposed, Head head,
              mlir::Value first);
  /// products[row - low] = sum over d of head[row, d] transposed[d].
  void multiply(LoopBuilder &l, Head head, mlir::Value transposed,
                mlir::Value low, mlir::Value high, mlir::Value products);
  /// sums[d] = factor sums[d] + sum over rows of head[row, d] weights[row -
  /// low].
  void accumulate(LoopBuilder &l, Head head, mlir::Value weights,
                  mlir::Value low, mlir::Value high, mlir::Value sums,
                  mlir::Value factor);
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
  mlir::Value exp(LoopBuilder &l, mlir::Value value);
  /// p and scale p (dp - delta) from product and dp.
  std::pair<mlir::Value, mlir::Value> scoreGrad(LoopBuilder &l,
                                                mlir::Value score,
                                                mlir::Value dp, mlir::Value lse,
                                                mlir::Value delta);

  void emitQueryTile(LoopBuilder &l, mlir::Value tile, HeadMatrix dq);
  void emitKeyTile(LoopBuilder &l, mlir::Value tile, HeadMatrix dk,
                   HeadMatrix dv);
  /// The end of the keys that a block of queries from `first` sees.
  mlir::Value visibleKeys(LoopBuilder &l, mlir::Value first);

  void setPacked(mlir::Value qkv, int64_t headCount, int64_t kvHeadCount);
  void setScale(std::optional<llvm::APFloat> value);
  mlir::Value input(mlir::Value value) const {
    return value ? function.inputs.lookup(value) : mlir::Value();
  }

  /// Scratch for one row of the mask.
  mlir::Value maskRow;
  llvm::SmallVector<int64_t> maskStrides;
  mlir::Type maskElement;
  void setMask(mlir::Value value);
};

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_LOWERKERNELS_ATTENTIONEMITTER_H
