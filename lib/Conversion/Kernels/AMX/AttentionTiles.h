//===- AttentionTiles.h - Blocks of an attention by tiles -------*- C++ -*-===//
//
// What the kernels of attention in bf16 and f32 share where tile registers
// multiply. All operands are copied into tiles, filled up with 0; f32 in pieces,
// which follow each other. A panel is kLanes rows: what is summed over rows of a
// panel pairs row i with row i + kTileSide in a word.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_AMX_ATTENTIONTILES_H
#define TRAINC_LIB_CONVERSION_KERNELS_AMX_ATTENTIONTILES_H

#include "Common/AttentionEmitter.h"
#include "Tiles.h"

namespace trainc {

/// Words of kLanes x kLanes numbers in bf16.
inline constexpr int64_t kSquare = kLanes * kTileSide;

struct TileAttention : AttentionEmitter {
  explicit TileAttention(const AttentionEmitter &emitter);

protected:
  /// Tiles along a head, where it is summed over and where it is not.
  int64_t depth, height;
  /// Of an element, and words of the tile rows of a step of d.
  int64_t pieces, stepOfRows;
  /// What the logarithm of the exponentials' base is to that of e.
  double toBase;

  /// Scratch of `count` words.
  mlir::Value words(LoopBuilder &l, int64_t count);
  /// What a panel of each form takes, in words.
  int64_t panelOfRows() const { return kLanes * depth * stepOfRows; }
  int64_t panelAcross() const { return panelOfRows(); }
  int64_t panelOfColumns() const {
    return pieces * height * kTileSide * kTileSide;
  }
  /// Bytes from one piece to the next where all of it takes `bytes`.
  int64_t pieceStride(int64_t bytes) const { return pieces > 1 ? bytes : 0; }

  // The forms of a panel, of the rows from `rows` on; those from `count` on (null:
  // none) are 0. They start at word `at`.

  /// A, summed over d: row by row.
  void packRows(LoopBuilder &l, const Rows &rows, mlir::Value count,
                mlir::Value to, mlir::Value at);
  TileGrid rowsAt(LoopBuilder &l, mlir::Value packed, mlir::Value at);
  /// B, summed over d: the rows are columns.
  void packAcross(LoopBuilder &l, const Rows &rows, mlir::Value count,
                  mlir::Value to, mlir::Value at);
  TileGrid acrossAt(LoopBuilder &l, mlir::Value packed, mlir::Value at);
  /// B, summed over the rows.
  void packPairs(LoopBuilder &l, const Rows &rows, mlir::Value count,
                 mlir::Value to, mlir::Value at);
  TileGrid pairsAt(LoopBuilder &l, mlir::Value packed, mlir::Value at);
  /// A, summed over the rows: its rows are along d.
  void packColumns(LoopBuilder &l, const Rows &rows, mlir::Value count,
                   mlir::Value to, mlir::Value at);
  TileGrid columnsAt(LoopBuilder &l, mlir::Value packed, mlir::Value at);

  /// Words that are not made yet: themselves in bf16, else the numbers that will be
  /// their lower and upper halves.
  using Halves = llvm::SmallVector<mlir::Value, 2>;
  /// kTileDepth elements of a row from `d` on, 0 from the head's end on or if the
  /// row is not below `count`.
  Halves loadWords(LoopBuilder &l, const Rows &rows, mlir::Value row,
                   mlir::Value count, mlir::Value d);
  /// Those of rows `row` and `row` + kTileSide at kTileSide d.
  Halves loadPair(LoopBuilder &l, const Rows &rows, mlir::Value row,
                  mlir::Value count, mlir::Value d);
  /// `lanes` elements as they stand in memory, of a row that is read in steps of
  /// `step`; 0 as above.
  mlir::Value loadElements(LoopBuilder &l, const Rows &rows, mlir::Value row,
                           mlir::Value count, mlir::Value d, int64_t lanes,
                           int64_t step);
  /// Transposes all that `load` gives for 0 to kTileSide, and stores it from `at` on
  /// in rows that are `stride` words apart, pieces `piece`.
  void packTransposed(LoopBuilder &l, llvm::function_ref<Halves(int64_t)> load,
                      mlir::Value to, mlir::Value at, int64_t stride,
                      int64_t piece);
  /// Stores words from `at` on, `piece` words from one piece to the next.
  void storeWords(LoopBuilder &l, const Halves &halves, mlir::Value to,
                  mlir::Value at, int64_t piece);
  using Pieces = llvm::SmallVector<mlir::Value, kPieces>;
  void storeMerged(LoopBuilder &l, const Pieces &lower, const Pieces &upper,
                   mlir::Value to, mlir::Value at, int64_t piece);
  /// How many of `lanes` elements from `d` on are of a row below `count`; null if
  /// all are.
  mlir::Value insideRows(LoopBuilder &l, mlir::Value row, mlir::Value count,
                         mlir::Value d, int64_t lanes, int64_t step);
  /// Rows of a block of panels, up to kAttentionRows of `length`.
  static int64_t rowsPerBlock(int64_t length);
  /// Whether blocks of panels fill `length` rows.
  static bool isWhole(int64_t length) {
    return length % rowsPerBlock(length) == 0;
  }
  /// How many rows there are from `first` on, at least 0; null if always a panel.
  mlir::Value countRows(LoopBuilder &l, mlir::Value first, int64_t length);

  /// The base to the power of `value`: exp2 in bf16, exp in f32.
  mlir::Value power(LoopBuilder &l, mlir::Value value);
  /// 2 to the power of `value`, which is below 128, with an error of 3e-6 of it.
  mlir::Value exp2(LoopBuilder &l, mlir::Value value);
  /// The bits of `value` by pieces: the upper halves are they in bf16.
  Pieces split(LoopBuilder &l, mlir::Value value);
  /// The bits of `value`, so that the upper half is it in bf16.
  mlir::Value roundBits(LoopBuilder &l, mlir::Value value);
  /// Words of the upper halves of words: one in the lower half, one in the upper.
  mlir::Value merge(LoopBuilder &l, mlir::Value lower, mlir::Value upper);

  /// Whether scores from `row` on, `count` of them, against a panel of lanes from
  /// `first` on are not just products: masked, or beyond an end.
  mlir::Value needsFinish(LoopBuilder &l, mlir::Value first, mlir::Value row,
                          int64_t count, bool lanesAreQueries);
  /// finishScores of `count` rows of `scores`, if `condition`.
  void finishPanel(LoopBuilder &l, mlir::Value condition, mlir::Value scores,
                   int64_t count, mlir::Value batchIndex, mlir::Value head,
                   mlir::Value first, mlir::Value row, bool lanesAreQueries);
  /// Vectors of scratch as sums of tiles, from vector `row` on.
  TileGrid lanesAt(LoopBuilder &l, mlir::Value scratch, mlir::Value row);
  void scaleRow(LoopBuilder &l, mlir::Value scratch, mlir::Value row,
                mlir::Value factor);
  void inPanels(LoopBuilder &l, int64_t count, LoopBuilder::Body body) {
    l.loop(l.index(0), l.index(count), 1, body);
  }
  void inIf(LoopBuilder &l, mlir::Value condition,
            llvm::function_ref<void(LoopBuilder &)> body);
  mlir::Value selectNumber(LoopBuilder &l, mlir::Value condition, double x,
                           double y);
};

/// Whether tiles pay: few rows, or short ones, would leave most of them empty.
bool fitsTiles(const AttentionEmitter &emitter, Tiles tiles);

/// As emitForward and emitBackward of `emitter`.
int64_t emitForwardByTiles(const AttentionEmitter &emitter,
                           mlir::Value outResult, mlir::Value lseResult);
int64_t emitBackwardByTiles(const AttentionEmitter &emitter, HeadMatrix dq,
                            HeadMatrix dk, HeadMatrix dv);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_AMX_ATTENTIONTILES_H
