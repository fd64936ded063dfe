//===- SegmentKernel.cpp - Loops over segments of flat arrays -------------===//
//
// Segments are cut into pieces of whole blocks of the norm, and a tile is a run of
// pieces that hold about as many elements as those of any other. Which pieces a
// tile has, and where they stand in each array, is in tables beside the code. The
// order in which anything is added depends on a segment's elements alone.
//
//===----------------------------------------------------------------------===//
#include "KernelEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Elements of a tile: enough to hide its start, few enough to balance threads.
static constexpr int64_t kLeastElements = 1 << 14, kMostElements = 1 << 16,
                         kTilesWanted = 128;
/// Blocks of a sum at a time: streams of their own for the processor's prefetcher.
static constexpr int64_t kBlocksAtOnce = 4;
/// Elements at a time of a map, in which no sum depends on it: one register of f32.
static constexpr int64_t kMapLanes = 16;
/// What a piece costs beside its elements, in elements.
static constexpr int64_t kPieceCost = 64;
/// How far ahead of the loop arrays are fetched if there are several: the processor's
/// own prefetcher follows so many streams too late. Each is some more bytes ahead than
/// the one before: at equal offsets all would go to one memory channel.
static constexpr int64_t kPrefetchBytes = 2048, kPrefetchStagger = 256,
                         kCacheLine = 64;

static Value table(LoopBuilder &l, ArrayRef<int64_t> numbers) {
  auto type = RankedTensorType::get({static_cast<int64_t>(numbers.size())},
                                    l.b.getI64Type());
  return getGlobal(l, DenseElementsAttr::get(type, numbers));
}

static Value lookUp(LoopBuilder &l, Value table, Value at) {
  Value number = memref::LoadOp::create(l.b, l.loc, table, ValueRange(at));
  return arith::IndexCastOp::create(l.b, l.loc, l.b.getIndexType(), number);
}

namespace {
/// The loops of an op on segments.
template <typename Op> struct SegmentEmitter {
  SegmentEmitter(KernelFunction &function, Op op, int64_t lanes)
      : function(function), op(op), body(op.getBody().front()), lanes(lanes) {}

  KernelFunction &function;
  Op op;
  Block &body;
  int64_t lanes;
  /// The last pieces first.
  bool backward = false;
  int64_t tiles = 0;
  /// What the region's scalars are, at a point of the code.
  using Scalars = DenseMap<Value, Value>;
  /// A piece: its segment, first element and end, in elements of the segment, and
  /// where the segment stands in each array.
  struct Piece {
    Value segment, begin, end;
    SmallVector<Value> offsets;
  };
  Scalars uniform;

  void emit(function_ref<void(LoopBuilder &, const Piece &, Scalars &)> piece);
  /// Values that the region yields for `lanes` elements of `piece` from `at` on.
  SmallVector<Value> emitVectors(LoopBuilder &l, const Piece &piece,
                                 const Scalars &scalars, Value at, Value mask);

private:
  SmallVector<int64_t> divide(int64_t from, int64_t to,
                              SmallVector<int64_t> &segments,
                              SmallVector<int64_t> &begins,
                              SmallVector<int64_t> &ends);
  void prefetch(LoopBuilder &l, size_t array, Value at, bool isWrite);
  void emitScalars(LoopBuilder &l, Scalars &scalars);
  void loadScalars(LoopBuilder &l, Scalars &scalars, Value segment);
};
} // namespace

/// The ops of the region that depend on scalars which are known.
template <typename Op>
void SegmentEmitter<Op>::emitScalars(LoopBuilder &l, Scalars &scalars) {
  auto lookup = [&](Value value) { return scalars.lookup(value); };
  for (Operation &inner : body.without_terminator()) {
    if (scalars.contains(inner.getResult(0)) ||
        !llvm::all_of(inner.getOperands(), lookup))
      continue;
    Operation *copy = cloneScalarOp(l, inner, lookup);
    for (auto [from, to] : llvm::zip(inner.getResults(), copy->getResults()))
      scalars[from] = to;
  }
}

/// The grouped operands of the segment's group, and its own of `each`.
template <typename Op>
void SegmentEmitter<Op>::loadScalars(LoopBuilder &l, Scalars &scalars,
                                     Value segment) {
  size_t next = op.getArrays().size() + op.getUniforms().size();
  auto load = [&](Value operand, Value at) {
    return l.loadScalar(function.inputs.lookup(operand), at,
                        nn::getTensorType(operand).getElementType());
  };
  if (!op.getGrouped().empty()) {
    int64_t groups = *llvm::max_element(op.getGroups()) + 1;
    Value group = lookUp(l, table(l, op.getGroups()), segment);
    for (size_t i = 0; i < op.getGrouped().size(); i += groups) {
      Value chosen;
      for (int64_t g = 0; g < groups; ++g) {
        Value value = load(op.getGrouped()[i + g], l.index(0));
        Value mine = arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::eq,
                                           group, l.index(g));
        chosen = chosen
                     ? arith::SelectOp::create(l.b, l.loc, mine, value, chosen)
                           .getResult()
                     : value;
      }
      scalars[body.getArgument(next++)] = chosen;
    }
  }
  if (!op.getEach().empty() && op.getOwners())
    segment = lookUp(l, table(l, *op.getOwners()), segment);
  for (Value operand : op.getEach())
    scalars[body.getArgument(next++)] = load(operand, segment);
}

/// Fetches what the loop needs of array `i` after some more vectors.
template <typename Op>
void SegmentEmitter<Op>::prefetch(LoopBuilder &l, size_t i, Value at,
                                  bool isWrite) {
  Value array = op.getArrays()[i];
  int64_t width =
      nn::getElementBytes(nn::getTensorType(array).getElementType());
  int64_t distance =
      kPrefetchBytes + static_cast<int64_t>(i) * kPrefetchStagger;
  for (int64_t line = 0; line < lanes * width; line += kCacheLine)
    memref::PrefetchOp::create(
        l.b, l.loc, function.inputs.lookup(array),
        ValueRange(l.add(at, l.index((distance + line) / width))), isWrite,
        /*localityHint=*/3, /*isDataCache=*/true);
}

template <typename Op>
SmallVector<Value>
SegmentEmitter<Op>::emitVectors(LoopBuilder &l, const Piece &piece,
                                const Scalars &scalars, Value at, Value mask) {
  Scalars values = scalars;
  for (auto [i, array] : llvm::enumerate(op.getArrays())) {
    bool isRead = !body.getArgument(i).use_empty();
    if (!mask && op.getArrays().size() > 1)
      prefetch(l, i, l.add(piece.offsets[i], at), !isRead);
    if (isRead)
      values[body.getArgument(i)] = l.loadVector(
          function.inputs.lookup(array), l.add(piece.offsets[i], at),
          nn::getTensorType(array).getElementType(), mask, lanes);
  }
  if (op.getIndexed()) {
    if (op.getStarts())
      at = l.add(at, lookUp(l, table(l, *op.getStarts()), piece.segment));
    values[body.getArguments().back()] = l.count(at, lanes);
  }
  auto lookup = [&](Value value) { return values.lookup(value); };
  for (Operation &inner : body.without_terminator()) {
    if (values.contains(inner.getResult(0)))
      continue;
    Operation *copy = cloneScalarOp(l, inner, lookup);
    for (auto [from, to] : llvm::zip(inner.getResults(), copy->getResults()))
      values[from] = to;
  }
  SmallVector<Value> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(l.splat(values.lookup(value), lanes));
  return results;
}

/// Cuts segments `from` to `to` into pieces, which are added to the lists, and
/// these into tiles: the first piece of each, and the end.
template <typename Op>
SmallVector<int64_t> SegmentEmitter<Op>::divide(int64_t from, int64_t to,
                                                SmallVector<int64_t> &segments,
                                                SmallVector<int64_t> &begins,
                                                SmallVector<int64_t> &ends) {
  int64_t total = llvm::sum_of(op.getLengths().slice(from, to - from));
  int64_t share = std::clamp<int64_t>(
      llvm::alignTo(llvm::divideCeil(total, kTilesWanted), kNormBlock),
      kLeastElements, kMostElements);
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
  SmallVector<int64_t> firsts{static_cast<int64_t>(start)};
  int64_t filled = 0;
  for (size_t i = start; i < segments.size(); ++i) {
    int64_t cost = ends[i] - begins[i] + kPieceCost;
    if (filled != 0 && filled + cost > share + kPieceCost) {
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
    function_ref<void(LoopBuilder &, const Piece &, Scalars &)> emitPiece) {
  SmallVector<int64_t> whole{0, static_cast<int64_t>(op.getLengths().size())};
  ArrayRef<int64_t> shards = op.getShards().value_or(whole);
  SmallVector<int64_t> segments, begins, ends;
  SmallVector<SmallVector<int64_t>> firsts; // of each shard's tiles
  for (size_t shard = 0; shard + 1 < shards.size(); ++shard)
    firsts.push_back(
        divide(shards[shard], shards[shard + 1], segments, begins, ends));
  for (auto &list : firsts)
    tiles = std::max<int64_t>(tiles, list.size() - 1);
  SmallVector<int64_t> allFirsts;
  for (auto &list : firsts) {
    list.resize(tiles + 1, list.back());
    llvm::append_range(allFirsts, list);
  }

  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, op.getLoc()};
  for (auto [i, operand] : llvm::enumerate(op.getUniforms()))
    uniform[body.getArgument(op.getArrays().size() + i)] =
        l.loadScalar(function.inputs.lookup(operand), l.index(0),
                     nn::getTensorType(operand).getElementType());
  emitScalars(l, uniform);
  Value first = table(l, allFirsts);
  Value tile = function.tile;
  if (op.getShard()) {
    Value shard = arith::IndexCastOp::create(
        b, l.loc, b.getIndexType(),
        l.loadScalar(function.inputs.lookup(op.getShard()), l.index(0),
                     b.getI64Type()));
    tile = l.add(l.mul(shard, tiles + 1), tile);
  }
  Value begin = lookUp(l, first, tile);
  Value end = lookUp(l, first, l.add(tile, l.index(1)));
  l.loop(begin, end, 1, [&](LoopBuilder &l, Value i) {
    Piece piece{lookUp(l, table(l, segments), i),
                lookUp(l, table(l, begins), i),
                lookUp(l, table(l, ends), i),
                {}};
    for (auto offsets :
         op.getOffsets().template getAsRange<DenseI64ArrayAttr>())
      piece.offsets.push_back(lookUp(l, table(l, offsets), piece.segment));
    Scalars scalars = uniform;
    loadScalars(l, scalars, piece.segment);
    emitScalars(l, scalars);
    emitPiece(l, piece, scalars);
  });
  func::ReturnOp::create(b, l.loc);
}

/// `value`, a vector of floats, in f64.
static Value toF64(LoopBuilder &l, Value value) {
  auto type = cast<VectorType>(value.getType());
  if (type.getElementType().isF64())
    return value;
  return arith::ExtFOp::create(l.b, l.loc, type.clone(l.b.getF64Type()), value);
}

/// Loops over the elements from `low` to `high` by vectors, the rest masked; carries
/// values.
static SmallVector<Value>
loopOverVectors(LoopBuilder &l, Value low, Value high, int64_t lanes,
                ValueRange initial,
                function_ref<SmallVector<Value>(LoopBuilder &, Value at,
                                                Value mask, ValueRange)>
                    body) {
  Value count = arith::SubIOp::create(l.b, l.loc, high, low);
  Value rest = l.mod(count, lanes);
  Value whole = arith::SubIOp::create(l.b, l.loc, high, rest);
  SmallVector<Value> values =
      l.loop(low, whole, lanes, initial,
             [&](LoopBuilder &l, Value at, ValueRange carried) {
               return body(l, at, Value(), carried);
             });
  Value any = arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::ne, rest,
                                    l.index(0));
  auto branch = scf::IfOp::create(l.b, l.loc, initial.getTypes(), any,
                                  /*withElse=*/!initial.empty());
  OpBuilder then = branch.getThenBodyBuilder();
  LoopBuilder t{then, l.loc};
  Value mask = vector::CreateMaskOp::create(
      then, l.loc, VectorType::get({lanes}, l.b.getI1Type()), rest);
  SmallVector<Value> last = body(t, whole, mask, values);
  if (initial.empty())
    return {};
  scf::YieldOp::create(then, l.loc, last);
  OpBuilder otherwise = branch.getElseBodyBuilder();
  scf::YieldOp::create(otherwise, l.loc, values);
  return SmallVector<Value>(branch.getResults());
}

int64_t trainc::emitSegmentMap(KernelFunction &function, SegmentMapOp op) {
  SegmentEmitter<SegmentMapOp> emitter(function, op, kMapLanes);
  emitter.emit([&](LoopBuilder &l, const auto &piece, const auto &scalars) {
    loopOverVectors(l, piece.begin, piece.end, kMapLanes, {},
                    [&](LoopBuilder &l, Value at, Value mask, ValueRange) {
                      SmallVector<Value> values =
                          emitter.emitVectors(l, piece, scalars, at, mask);
                      for (auto [value, result, target] :
                           llvm::zip(values, op.getOutputs(), op.getTargets()))
                        l.storeVector(
                            value, function.outputs.lookup(result).front(),
                            l.add(piece.offsets[target], at),
                            nn::getTensorType(result).getElementType(), mask);
                      return SmallVector<Value>();
                    });
  });
  return emitter.tiles;
}

int64_t trainc::emitSegmentSquareSum(KernelFunction &function,
                                     SegmentSquareSumOp op) {
  int64_t block = op.getBlock();
  SmallVector<int64_t> firstBlocks; // counted from the shard's first
  int64_t blocks = 0;
  for (auto [segment, length] : llvm::enumerate(op.getLengths())) {
    if (op.getShards() &&
        llvm::is_contained(*op.getShards(), static_cast<int64_t>(segment)))
      blocks = 0;
    firstBlocks.push_back(blocks);
    blocks += llvm::divideCeil(length, block);
  }
  SegmentEmitter<SegmentSquareSumOp> emitter(function, op, kLanes);
  // Gradients that were made last may still be in a cache, and so are those that
  // the norm read last when the update begins at the front.
  emitter.backward = true;
  emitter.emit([&](LoopBuilder &l, const auto &piece, const auto &scalars) {
    Value first = lookUp(l, table(l, firstBlocks), piece.segment);
    SmallVector<Value> zeros;
    for (Value result : op.getOutputs())
      zeros.push_back(
          l.neutral(nn::ReduceKind::sum,
                    VectorType::get(
                        {kLanes}, nn::getTensorType(result).getElementType())));
    // Sums of `count` blocks, of which the first is from `low` to `high`.
    auto emitBlocks = [&](LoopBuilder &l, Value low, Value high,
                          int64_t count) {
      SmallVector<Value> initial;
      for (int64_t i = 0; i < count; ++i)
        llvm::append_range(initial, zeros);
      SmallVector<Value> sums = loopOverVectors(
          l, low, high, kLanes, initial,
          [&](LoopBuilder &l, Value at, Value mask, ValueRange carried) {
            SmallVector<Value> values;
            for (int64_t i = 0; i < count; ++i)
              llvm::append_range(
                  values,
                  emitter.emitVectors(l, piece, scalars,
                                      l.add(at, l.index(i * block)), mask));
            for (auto [value, sum] : llvm::zip(values, carried)) {
              if (mask)
                value = arith::SelectOp::create(
                    l.b, l.loc, mask, value,
                    l.neutral(nn::ReduceKind::sum, value.getType()));
              value = math::FmaOp::create(l.b, l.loc, value, value, sum);
            }
            return values;
          });
      Value at = l.add(first, l.div(low, block));
      for (auto [i, sum] : llvm::enumerate(sums)) {
        Value result = op.getOutputs()[i % zeros.size()];
        l.storeScalar(l.combineLanes(nn::ReduceKind::sum, sum),
                      function.outputs.lookup(result).front(),
                      l.add(at, l.index(i / zeros.size())),
                      nn::getTensorType(result).getElementType());
      }
    };
    int64_t several = kBlocksAtOnce * block;
    Value size = arith::SubIOp::create(l.b, l.loc, piece.end, piece.begin);
    Value rest =
        arith::SubIOp::create(l.b, l.loc, piece.end, l.mod(size, several));
    l.loop(piece.begin, rest, several, [&](LoopBuilder &l, Value low) {
      emitBlocks(l, low, l.add(low, l.index(block)), kBlocksAtOnce);
    });
    l.loop(rest, piece.end, block, [&](LoopBuilder &l, Value low) {
      emitBlocks(l, low, l.min(l.add(low, l.index(block)), piece.end), 1);
    });
  });
  return emitter.tiles;
}

namespace {
/// A part of an input whose elements are added.
struct SumRange {
  int64_t first, count;
  int64_t target; // which sum, or where its elements go
};
} // namespace

/// Adds each of `ranges` of `memref` to a sum of its own.
static void emitRangeSums(LoopBuilder &l, Value memref, Type element,
                          ArrayRef<SumRange> ranges, Value sums) {
  SmallVector<int64_t> which, firsts, ends;
  for (const SumRange &range : ranges) {
    which.push_back(range.target);
    firsts.push_back(range.first);
    ends.push_back(range.first + range.count);
  }
  Type f64 = l.b.getF64Type();
  auto wide = VectorType::get({kLanes}, f64);
  l.loop(l.index(0), l.index(which.size()), 1, [&](LoopBuilder &l, Value i) {
    Value low = lookUp(l, table(l, firsts), i);
    Value high = lookUp(l, table(l, ends), i);
    Value zero = l.neutral(nn::ReduceKind::sum, wide);
    SmallVector<Value> lanes = loopOverVectors(
        l, low, high, kLanes, zero,
        [&](LoopBuilder &l, Value at, Value mask, ValueRange carried) {
          Value value = toF64(l, l.loadVector(memref, at, element, mask));
          return SmallVector<Value>{
              l.combine(nn::ReduceKind::sum, carried.front(), value)};
        });
    l.storeScalar(l.combineLanes(nn::ReduceKind::sum, lanes.front()), sums,
                  lookUp(l, table(l, which), i), f64);
  });
}

/// Copies each of `ranges` of `memref` to its place in `all`.
static void emitRangeCopies(LoopBuilder &l, Value memref, Type element,
                            ArrayRef<SumRange> ranges, Value all) {
  SmallVector<int64_t> firsts, ends, shifts;
  for (const SumRange &range : ranges) {
    firsts.push_back(range.first);
    ends.push_back(range.first + range.count);
    shifts.push_back(range.target - range.first);
  }
  Type f64 = l.b.getF64Type();
  l.loop(l.index(0), l.index(firsts.size()), 1, [&](LoopBuilder &l, Value i) {
    Value low = lookUp(l, table(l, firsts), i);
    Value high = lookUp(l, table(l, ends), i);
    Value shift = lookUp(l, table(l, shifts), i);
    loopOverVectors(l, low, high, kLanes, {},
                    [&](LoopBuilder &l, Value at, Value mask, ValueRange) {
                      Value value =
                          toF64(l, l.loadVector(memref, at, element, mask));
                      l.storeVector(value, all, l.add(at, shift), f64, mask);
                      return SmallVector<Value>();
                    });
  });
}

int64_t trainc::emitSumBlocks(KernelFunction &function, SumBlocksOp op) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, op.getLoc()};
  Type f64 = b.getF64Type();
  int64_t count = op.countSums();
  Value sums = function.allocateScratch(l, f64, std::max<int64_t>(count, 1));
  // With owners the ranges of a sum are put together first.
  SmallVector<SumRange> together;
  SmallVector<SmallVector<SumRange>> ofInput(op.getBlocks().size());
  int64_t elements = 0;
  for (auto [i, source] : llvm::enumerate(op.getSources())) {
    int64_t length = op.getCounts()[i];
    SumRange range{op.getFirsts()[i], length, static_cast<int64_t>(i)};
    if (auto owners = op.getOwners()) {
      range.target = elements;
      if (static_cast<size_t>((*owners)[i]) == together.size())
        together.push_back({elements, 0, (*owners)[i]});
      together.back().count += length;
    }
    elements += length;
    ofInput[source].push_back(range);
  }
  Value all;
  if (op.getOwners())
    all = function.allocateScratch(l, f64, std::max<int64_t>(elements, 1));
  for (auto [input, ranges] : llvm::zip(op.getBlocks(), ofInput)) {
    Value memref = function.inputs.lookup(input);
    Type element = nn::getTensorType(input).getElementType();
    if (all)
      emitRangeCopies(l, memref, element, ranges, all);
    else if (!ranges.empty())
      emitRangeSums(l, memref, element, ranges, sums);
  }
  if (all)
    emitRangeSums(l, all, f64, together, sums);
  for (auto [attribute, result] : llvm::zip(op.getSets(), op.getSums())) {
    ArrayRef<int64_t> set = cast<DenseI64ArrayAttr>(attribute).asArrayRef();
    Value memref = function.outputs.lookup(result).front();
    auto sumAt = [&](LoopBuilder &l, Value i) {
      return l.loadScalar(sums, lookUp(l, table(l, set), i), f64);
    };
    if (nn::getTensorType(result).getRank() == 1) {
      l.loop(l.index(0), l.index(set.size()), 1, [&](LoopBuilder &l, Value i) {
        l.storeScalar(sumAt(l, i), memref, i, f64);
      });
      continue;
    }
    Value total;
    if (set.empty())
      total = l.neutral(nn::ReduceKind::sum, f64);
    else
      total = l.loop(l.index(1), l.index(set.size()), 1, sumAt(l, l.index(0)),
                     [&](LoopBuilder &l, Value i, ValueRange carried) {
                       return SmallVector<Value>{l.combine(
                           nn::ReduceKind::sum, carried.front(), sumAt(l, i))};
                     })
                  .front();
    l.storeScalar(total, memref, l.index(0), f64);
  }
  func::ReturnOp::create(b, l.loc);
  return 1;
}
