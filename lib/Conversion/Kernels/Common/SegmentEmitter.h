//===- SegmentEmitter.h - Segments of flat arrays ---------------*- C++ -*-===//
//
// Segments are cut into pieces of whole blocks of the norm, and a tile is a run of
// pieces that hold about as many elements as those of any other. Which pieces a
// tile has, and where they stand in each array, is in tables beside the code.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_COMMON_SEGMENTEMITTER_H
#define TRAINC_LIB_CONVERSION_KERNELS_COMMON_SEGMENTEMITTER_H

#include "KernelEmitter.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "llvm/Support/MathExtras.h"

namespace trainc {

/// The sum that each segment's first block is, counted from the shard's first.
llvm::SmallVector<int64_t> countFirstBlocks(train::SegmentSquareSumOp op);

/// Elements of an input of train.sum_blocks that a sum has behind `before` others.
struct SumRange {
  int64_t source, first, count, before;
};

/// The ranges of each sum, in their order.
llvm::SmallVector<llvm::SmallVector<SumRange>>
rangesOfSums(train::SumBlocksOp op);

/// What a piece costs beside its elements, in elements.
inline constexpr int64_t kSegmentPieceCost = 64;

/// Numbers beside the code, as a flat memref.
inline mlir::Value table(LoopBuilder &l, llvm::ArrayRef<int64_t> numbers) {
  auto type = mlir::RankedTensorType::get(
      {static_cast<int64_t>(numbers.size())}, l.b.getI64Type());
  return getGlobal(l, mlir::DenseElementsAttr::get(type, numbers));
}

/// One of them, as an index.
inline mlir::Value lookUp(LoopBuilder &l, mlir::Value table, mlir::Value at) {
  mlir::Value number =
      mlir::memref::LoadOp::create(l.b, l.loc, table, mlir::ValueRange(at));
  return mlir::arith::IndexCastOp::create(l.b, l.loc, l.b.getIndexType(),
                                          number);
}

/// How segments are cut.
struct SegmentSizes {
  /// Elements of a tile: enough to hide its start, few enough to balance threads.
  int64_t least, most;
  int64_t tiles; // wanted
  /// Bytes that arrays are fetched ahead of the loop if there are several, and how
  /// many more for each than for the one before; 0: not.
  int64_t prefetch = 0, stagger = 0;
};

/// The loops of an op on segments.
template <typename Op> struct SegmentEmitter {
  SegmentEmitter(KernelFunction &function, Op op, int64_t lanes,
                 SegmentSizes sizes)
      : function(function), op(op), body(op.getBody().front()), lanes(lanes),
        sizes(sizes) {}

  KernelFunction &function;
  Op op;
  mlir::Block &body;
  int64_t lanes;
  SegmentSizes sizes;
  /// All vectors begin at multiples of their size.
  bool aligned = false;
  /// The last pieces first.
  bool backward = false;
  int64_t tiles = 0;
  /// What the region's scalars are, at a point of the code.
  using Scalars = llvm::DenseMap<mlir::Value, mlir::Value>;
  /// A piece: its segment, first element and end, in elements of the segment, and
  /// where the segment stands in each array.
  struct Piece {
    mlir::Value segment, begin, end;
    llvm::SmallVector<mlir::Value> offsets;
  };
  Scalars uniform;

  /// Emits the loop over the pieces of `tile`, and sets `tiles`.
  void
  emit(LoopBuilder &l, mlir::Value tile,
       llvm::function_ref<void(LoopBuilder &, const Piece &, Scalars &)> piece);
  /// The same as all that the function does.
  void emit(
      llvm::function_ref<void(LoopBuilder &, const Piece &, Scalars &)> piece) {
    mlir::OpBuilder b =
        mlir::OpBuilder::atBlockEnd(&function.function.getBody().front());
    LoopBuilder l{b, op.getLoc()};
    emit(l, function.tile, piece);
    mlir::func::ReturnOp::create(b, l.loc);
  }
  /// Values that the region yields for `lanes` elements of `piece` from `at` on.
  llvm::SmallVector<mlir::Value> emitVectors(LoopBuilder &l, const Piece &piece,
                                             const Scalars &scalars,
                                             mlir::Value at, mlir::Value mask);

private:
  llvm::SmallVector<int64_t> divide(int64_t from, int64_t to,
                                    llvm::SmallVector<int64_t> &segments,
                                    llvm::SmallVector<int64_t> &begins,
                                    llvm::SmallVector<int64_t> &ends);
  void prefetch(LoopBuilder &l, size_t array, mlir::Value at, bool isWrite);
  /// An array that is only fetched to be read is taken from another core twice.
  bool isWritten(size_t array) {
    if constexpr (std::is_same_v<Op, train::SegmentMapOp>)
      return llvm::is_contained(op.getTargets(), static_cast<int64_t>(array));
    return false;
  }
  void emitScalars(LoopBuilder &l, Scalars &scalars);
  void loadScalars(LoopBuilder &l, Scalars &scalars, mlir::Value segment);
};

/// The ops of the region that depend on scalars which are known.
template <typename Op>
void SegmentEmitter<Op>::emitScalars(LoopBuilder &l, Scalars &scalars) {
  auto lookup = [&](mlir::Value value) { return scalars.lookup(value); };
  for (mlir::Operation &inner : body.without_terminator()) {
    if (scalars.contains(inner.getResult(0)) ||
        !llvm::all_of(inner.getOperands(), lookup))
      continue;
    mlir::Operation *copy = cloneScalarOp(l, inner, lookup);
    for (auto [from, to] : llvm::zip(inner.getResults(), copy->getResults()))
      scalars[from] = to;
  }
}

/// The grouped operands of the segment's group, and its own of `each`.
template <typename Op>
void SegmentEmitter<Op>::loadScalars(LoopBuilder &l, Scalars &scalars,
                                     mlir::Value segment) {
  size_t next = op.getArrays().size() + op.getUniforms().size();
  auto load = [&](mlir::Value operand, mlir::Value at) {
    return l.loadScalar(function.inputs.lookup(operand), at,
                        nn::getTensorType(operand).getElementType());
  };
  if (!op.getGrouped().empty()) {
    int64_t groups = *llvm::max_element(op.getGroups()) + 1;
    mlir::Value group = lookUp(l, table(l, op.getGroups()), segment);
    for (size_t i = 0; i < op.getGrouped().size(); i += groups) {
      mlir::Value chosen;
      for (int64_t g = 0; g < groups; ++g) {
        mlir::Value value = load(op.getGrouped()[i + g], l.index(0));
        mlir::Value mine = mlir::arith::CmpIOp::create(
            l.b, l.loc, mlir::arith::CmpIPredicate::eq, group, l.index(g));
        chosen = chosen ? mlir::arith::SelectOp::create(l.b, l.loc, mine, value,
                                                        chosen)
                              .getResult()
                        : value;
      }
      scalars[body.getArgument(next++)] = chosen;
    }
  }
  if (!op.getEach().empty() && op.getOwners())
    segment = lookUp(l, table(l, *op.getOwners()), segment);
  for (mlir::Value operand : op.getEach())
    scalars[body.getArgument(next++)] = load(operand, segment);
}

/// Fetches what the loop needs of array `i` after some more vectors.
template <typename Op>
void SegmentEmitter<Op>::prefetch(LoopBuilder &l, size_t i, mlir::Value at,
                                  bool isWrite) {
  mlir::Value array = op.getArrays()[i];
  int64_t width =
      nn::getElementBytes(nn::getTensorType(array).getElementType());
  int64_t distance = sizes.prefetch + static_cast<int64_t>(i) * sizes.stagger;
  for (int64_t line = 0; line < lanes * width; line += train::kCacheLine)
    mlir::memref::PrefetchOp::create(
        l.b, l.loc, function.inputs.lookup(array),
        mlir::ValueRange(l.add(at, l.index((distance + line) / width))),
        isWrite,
        /*localityHint=*/3, /*isDataCache=*/true);
}

template <typename Op>
llvm::SmallVector<mlir::Value>
SegmentEmitter<Op>::emitVectors(LoopBuilder &l, const Piece &piece,
                                const Scalars &scalars, mlir::Value at,
                                mlir::Value mask) {
  Scalars values = scalars;
  for (auto [i, array] : llvm::enumerate(op.getArrays())) {
    bool isRead = !body.getArgument(i).use_empty();
    if (sizes.prefetch != 0 && !mask && op.getArrays().size() > 1)
      prefetch(l, i, l.add(piece.offsets[i], at), isWritten(i));
    if (isRead)
      values[body.getArgument(i)] = l.loadVector(
          function.inputs.lookup(array), l.add(piece.offsets[i], at),
          nn::getTensorType(array).getElementType(), mask, lanes, aligned);
  }
  if (op.getIndexed()) {
    if (op.getStarts())
      at = l.add(at, lookUp(l, table(l, *op.getStarts()), piece.segment));
    values[body.getArguments().back()] = l.count(at, lanes);
  }
  auto lookup = [&](mlir::Value value) { return values.lookup(value); };
  for (mlir::Operation &inner : body.without_terminator()) {
    if (values.contains(inner.getResult(0)))
      continue;
    mlir::Operation *copy = cloneScalarOp(l, inner, lookup);
    for (auto [from, to] : llvm::zip(inner.getResults(), copy->getResults()))
      values[from] = to;
  }
  llvm::SmallVector<mlir::Value> results;
  for (mlir::Value value : body.getTerminator()->getOperands())
    results.push_back(l.splat(values.lookup(value), lanes));
  return results;
}

/// Cuts segments `from` to `to` into pieces, which are added to the lists, and
/// these into tiles: the first piece of each, and the end.
template <typename Op>
llvm::SmallVector<int64_t> SegmentEmitter<Op>::divide(
    int64_t from, int64_t to, llvm::SmallVector<int64_t> &segments,
    llvm::SmallVector<int64_t> &begins, llvm::SmallVector<int64_t> &ends) {
  int64_t total = llvm::sum_of(op.getLengths().slice(from, to - from));
  int64_t share = std::clamp<int64_t>(
      llvm::alignTo(llvm::divideCeil(total, sizes.tiles), train::kNormBlock),
      sizes.least, sizes.most);
  size_t start = segments.size();
  for (int64_t segment = from; segment < to; ++segment)
    for (int64_t begin = 0, length = op.getLengths()[segment]; begin < length;
         begin += share) {
      segments.push_back(segment);
      begins.push_back(begin);
      ends.push_back(std::min(length, begin + share));
    }
  if (backward)
    for (auto *list : {&segments, &begins, &ends})
      std::reverse(list->begin() + start, list->end());
  llvm::SmallVector<int64_t> firsts{static_cast<int64_t>(start)};
  int64_t filled = 0;
  for (size_t i = start; i < segments.size(); ++i) {
    int64_t cost = ends[i] - begins[i] + kSegmentPieceCost;
    if (filled != 0 && filled + cost > share + kSegmentPieceCost) {
      firsts.push_back(i);
      filled = 0;
    }
    filled += cost;
  }
  firsts.push_back(segments.size());
  return firsts;
}

template <typename Op>
void SegmentEmitter<Op>::emit(
    LoopBuilder &l, mlir::Value tile,
    llvm::function_ref<void(LoopBuilder &, const Piece &, Scalars &)>
        emitPiece) {
  llvm::SmallVector<int64_t> whole{
      0, static_cast<int64_t>(op.getLengths().size())};
  llvm::ArrayRef<int64_t> shards = op.getShards().value_or(whole);
  llvm::SmallVector<int64_t> segments, begins, ends;
  llvm::SmallVector<llvm::SmallVector<int64_t>> firsts; // of each shard's tiles
  for (size_t shard = 0; shard + 1 < shards.size(); ++shard)
    firsts.push_back(
        divide(shards[shard], shards[shard + 1], segments, begins, ends));
  for (auto &list : firsts)
    tiles = std::max<int64_t>(tiles, list.size() - 1);
  llvm::SmallVector<int64_t> allFirsts;
  for (auto &list : firsts) {
    list.resize(tiles + 1, list.back());
    llvm::append_range(allFirsts, list);
  }

  for (auto [i, operand] : llvm::enumerate(op.getUniforms()))
    uniform[body.getArgument(op.getArrays().size() + i)] =
        l.loadScalar(function.inputs.lookup(operand), l.index(0),
                     nn::getTensorType(operand).getElementType());
  emitScalars(l, uniform);
  mlir::Value first = table(l, allFirsts);
  if (op.getShard()) {
    mlir::Value shard = mlir::arith::IndexCastOp::create(
        l.b, l.loc, l.b.getIndexType(),
        l.loadScalar(function.inputs.lookup(op.getShard()), l.index(0),
                     l.b.getI64Type()));
    tile = l.add(l.mul(shard, tiles + 1), tile);
  }
  mlir::Value begin = lookUp(l, first, tile);
  mlir::Value end = lookUp(l, first, l.add(tile, l.index(1)));
  l.loop(begin, end, 1, [&](LoopBuilder &l, mlir::Value i) {
    Piece piece{lookUp(l, table(l, segments), i),
                lookUp(l, table(l, begins), i),
                lookUp(l, table(l, ends), i),
                {}};
    for (auto offsets :
         op.getOffsets().template getAsRange<mlir::DenseI64ArrayAttr>())
      piece.offsets.push_back(lookUp(l, table(l, offsets), piece.segment));
    Scalars scalars = uniform;
    loadScalars(l, scalars, piece.segment);
    emitScalars(l, scalars);
    emitPiece(l, piece, scalars);
  });
}

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_COMMON_SEGMENTEMITTER_H
