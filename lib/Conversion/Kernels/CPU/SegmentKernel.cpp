//===- SegmentKernel.cpp - Loops over segments of flat arrays -------------===//
//
// The order in which anything is added depends on a segment's elements alone.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/SegmentEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Blocks of a sum at a time: streams of their own for the processor's prefetcher.
static constexpr int64_t kBlocksAtOnce = 4;
/// Elements at a time of a map, in which no sum depends on it: one register of f32.
static constexpr int64_t kMapLanes = 16;
/// Arrays are fetched ahead: the processor's own prefetcher follows so many streams
/// too late. At equal distances all would go to one memory channel.
static constexpr SegmentSizes kSizes = {/*least=*/1 << 14, /*most=*/1 << 16,
                                        /*tiles=*/128, /*prefetch=*/2048,
                                        /*stagger=*/256};

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
  SmallVector<Value> last = body(t, whole, t.maskBelow(rest, lanes), values);
  if (initial.empty())
    return {};
  scf::YieldOp::create(then, l.loc, last);
  OpBuilder otherwise = branch.getElseBodyBuilder();
  scf::YieldOp::create(otherwise, l.loc, values);
  return SmallVector<Value>(branch.getResults());
}

int64_t trainc::emitSegmentMap(KernelFunction &function, SegmentMapOp op) {
  SegmentEmitter<SegmentMapOp> emitter(function, op, kMapLanes, kSizes);
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

SmallVector<int64_t> trainc::countFirstBlocks(SegmentSquareSumOp op) {
  SmallVector<int64_t> firsts;
  int64_t blocks = 0;
  for (auto [segment, length] : llvm::enumerate(op.getLengths())) {
    if (op.getShards() &&
        llvm::is_contained(*op.getShards(), static_cast<int64_t>(segment)))
      blocks = 0;
    firsts.push_back(blocks);
    blocks += llvm::divideCeil(length, op.getBlock());
  }
  return firsts;
}

int64_t trainc::emitSegmentSquareSum(KernelFunction &function,
                                     SegmentSquareSumOp op) {
  int64_t block = op.getBlock();
  SmallVector<int64_t> firstBlocks = countFirstBlocks(op);
  SegmentEmitter<SegmentSquareSumOp> emitter(function, op, kLanes, kSizes);
  // Gradients that were made last may still be in a cache, and so are those that
  // the norm read last when the update begins at the front.
  emitter.backward = true;
  emitter.emit([&](LoopBuilder &l, const auto &piece, const auto &scalars) {
    Value first = lookUp(l, table(l, firstBlocks), piece.segment);
    SmallVector<Value> zeros(
        op.getNumResults(),
        l.identity(nn::ReduceKind::sum,
                   VectorType::get({kLanes}, l.b.getF64Type())));
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
                    l.identity(nn::ReduceKind::sum, value.getType()));
              value = l.toF64(value);
              value = math::FmaOp::create(l.b, l.loc, value, value, sum);
            }
            return values;
          });
      Value at = l.add(first, l.div(low, block));
      for (auto [i, sum] : llvm::enumerate(sums)) {
        Value result = op.getOutputs()[i % zeros.size()];
        l.storeScalar(l.combineLanes(nn::ReduceKind::sum, sum),
                      function.outputs.lookup(result).front(),
                      l.add(at, l.index(i / zeros.size())), l.b.getF64Type());
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

SmallVector<SmallVector<SumRange>> trainc::rangesOfSums(SumBlocksOp op) {
  SmallVector<SmallVector<SumRange>> sums(op.countSums());
  for (auto [i, source] : llvm::enumerate(op.getSources())) {
    auto &ranges = sums[op.getOwners() ? (*op.getOwners())[i] : i];
    int64_t before =
        ranges.empty() ? 0 : ranges.back().before + ranges.back().count;
    ranges.push_back({source, op.getFirsts()[i], op.getCounts()[i], before});
  }
  return sums;
}

namespace {
/// A part of an input whose elements are added.
struct Part {
  int64_t first, count;
  int64_t target; // which sum, or where its elements go
};
} // namespace

/// Adds each of `ranges` of `memref` to a sum of its own.
static void emitRangeSums(LoopBuilder &l, Value memref, Type element,
                          ArrayRef<Part> ranges, Value sums) {
  SmallVector<int64_t> which, firsts, ends;
  for (const Part &range : ranges) {
    which.push_back(range.target);
    firsts.push_back(range.first);
    ends.push_back(range.first + range.count);
  }
  Type f64 = l.b.getF64Type();
  auto wide = VectorType::get({kLanes}, f64);
  l.loop(l.index(0), l.index(which.size()), 1, [&](LoopBuilder &l, Value i) {
    Value low = lookUp(l, table(l, firsts), i);
    Value high = lookUp(l, table(l, ends), i);
    Value zero = l.identity(nn::ReduceKind::sum, wide);
    SmallVector<Value> lanes = loopOverVectors(
        l, low, high, kLanes, zero,
        [&](LoopBuilder &l, Value at, Value mask, ValueRange carried) {
          Value value = l.toF64(l.loadVector(memref, at, element, mask));
          return SmallVector<Value>{
              l.combine(nn::ReduceKind::sum, carried.front(), value)};
        });
    l.storeScalar(l.combineLanes(nn::ReduceKind::sum, lanes.front()), sums,
                  lookUp(l, table(l, which), i), f64);
  });
}

/// Copies each of `ranges` of `memref` to its place in `all`.
static void emitRangeCopies(LoopBuilder &l, Value memref, Type element,
                            ArrayRef<Part> ranges, Value all) {
  SmallVector<int64_t> firsts, ends, shifts;
  for (const Part &range : ranges) {
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
                          l.toF64(l.loadVector(memref, at, element, mask));
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
  SmallVector<Part> together;
  SmallVector<SmallVector<Part>> ofInput(op.getBlocks().size());
  int64_t elements = 0;
  for (auto [sum, ranges] : llvm::enumerate(rangesOfSums(op))) {
    int64_t which = sum, length = 0;
    for (const SumRange &range : ranges) {
      ofInput[range.source].push_back(
          {range.first, range.count,
           op.getOwners() ? elements + range.before : which});
      length += range.count;
    }
    together.push_back({elements, length, which});
    elements += length;
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
      total = l.identity(nn::ReduceKind::sum, f64);
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
