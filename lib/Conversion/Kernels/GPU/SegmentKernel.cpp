//===- SegmentKernel.cpp - Norm and update of segments, on a GPU ----------===//
//
// A block goes over its pieces with all threads side by side; a warp sums a block of
// the norm. What is added in which order depends on a segment's elements alone.
//
//===----------------------------------------------------------------------===//
#include "Common/SegmentEmitter.h"
#include "Threads.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

static constexpr int64_t kThreads = 256;
/// Threads of a multiprocessor at once: 64 registers for each of a norm, 128 of updates,
/// which have many loads under way.
static constexpr int64_t kNormThreads = 1024, kUpdateThreads = 512;
/// Pieces for the blocks of several waves on the largest GPUs.
static constexpr SegmentSizes kSizes = {/*least=*/1 << 12, /*most=*/1 << 15,
                                        /*tiles=*/2048};

/// Elements of a vector: 16 bytes of the narrowest array, if all segments begin at
/// such, at most 8.
template <typename Op> static int64_t chooseSegmentLanes(Op op) {
  int64_t narrowest = 8;
  for (Value array : op.getArrays())
    narrowest = std::min<int64_t>(
        narrowest,
        nn::getElementBytes(nn::getTensorType(array).getElementType()));
  int64_t lanes = std::min<int64_t>(8, 16 / narrowest);
  for (Attribute offsets : op.getOffsets())
    for (int64_t offset : cast<DenseI64ArrayAttr>(offsets).asArrayRef())
      while (offset % lanes != 0)
        lanes /= 2;
  return lanes;
}

/// Emits the update that block `tile` of it does; the number of blocks.
static int64_t emitUpdate(ThreadBuilder &t, KernelFunction &function,
                          SegmentMapOp op, Value tile) {
  int64_t lanes = chooseSegmentLanes(op);
  SegmentEmitter<SegmentMapOp> emitter(function, op, lanes, kSizes);
  emitter.aligned = true;
  emitter.emit(
      t, tile, [&](LoopBuilder &l, const auto &piece, const auto &scalars) {
        ThreadBuilder t(l.b, l.loc, kThreads);
        auto store = [&](LoopBuilder &l, Value at, int64_t lanes) {
          emitter.lanes = lanes;
          SmallVector<Value> values =
              emitter.emitVectors(l, piece, scalars, at, Value());
          for (auto [value, result, target] :
               llvm::zip(values, op.getOutputs(), op.getTargets()))
            l.storeVector(value, function.outputs.lookup(result).front(),
                          l.add(piece.offsets[target], at),
                          nn::getTensorType(result).getElementType(), Value(),
                          lanes, /*aligned=*/true);
        };
        Value id = t.thread();
        Value count = arith::SubIOp::create(l.b, l.loc, piece.end, piece.begin);
        Value rest = t.mod(count, lanes);
        Value whole = arith::SubIOp::create(l.b, l.loc, piece.end, rest);
        t.loop(t.add(piece.begin, t.mul(id, lanes)), whole, kThreads * lanes,
               [&](LoopBuilder &l, Value at) { store(l, at, lanes); });
        if (lanes > 1)
          t.when(t.less(id, rest),
                 [&](ThreadBuilder &t) { store(t, t.add(whole, id), 1); });
      });
  return emitter.tiles;
}

static int64_t addSquares(ThreadBuilder &t, KernelFunction &function,
                          SegmentSquareSumOp op) {
  int64_t block = op.getBlock(), lanes = chooseSegmentLanes(op);
  SmallVector<int64_t> firstBlocks = countFirstBlocks(op);
  SegmentEmitter<SegmentSquareSumOp> emitter(function, op, lanes, kSizes);
  emitter.aligned = true;
  emitter.emit(
      t, function.tile,
      [&](LoopBuilder &l, const auto &piece, const auto &scalars) {
        ThreadBuilder t(l.b, l.loc, kThreads);
        Value warp = t.div(t.thread(), kWarp), lane = t.mod(t.thread(), kWarp);
        Value first = lookUp(t, table(t, firstBlocks), piece.segment);
        t.loop(t.add(piece.begin, t.mul(warp, block)), piece.end,
               kThreads / kWarp * block, [&](LoopBuilder &l, Value low) {
                 ThreadBuilder t(l.b, l.loc, kThreads);
                 Value high = t.min(t.add(low, t.index(block)), piece.end);
                 auto squares = [&](LoopBuilder &l, Value at, int64_t lanes,
                                    ValueRange sums) {
                   emitter.lanes = lanes;
                   SmallVector<Value> values =
                       emitter.emitVectors(l, piece, scalars, at, Value());
                   for (auto [value, sum] : llvm::zip(values, sums)) {
                     value = l.toF64(value);
                     value = math::FmaOp::create(l.b, l.loc, value, value, sum);
                   }
                   return values;
                 };
                 SmallVector<Value> zeros(
                     op.getNumResults(),
                     t.identity(nn::ReduceKind::sum,
                                VectorType::get({lanes}, t.b.getF64Type())));
                 Value count = arith::SubIOp::create(t.b, t.loc, high, low);
                 Value rest = t.mod(count, lanes);
                 Value whole = arith::SubIOp::create(t.b, t.loc, high, rest);
                 SmallVector<Value> vectors = t.loop(
                     t.add(low, t.mul(lane, lanes)), whole, kWarp * lanes,
                     zeros, [&](LoopBuilder &l, Value at, ValueRange carried) {
                       return squares(l, at, lanes, carried);
                     });
                 SmallVector<Value> sums;
                 for (Value vector : vectors)
                   sums.push_back(t.combineLanes(nn::ReduceKind::sum, vector));
                 if (lanes > 1) {
                   // The last elements, fewer than a vector has.
                   SmallVector<Value> initial;
                   for (Value sum : sums)
                     initial.push_back(t.splat(sum, 1));
                   SmallVector<Value> last = t.loop(
                       t.add(whole, lane), high, kWarp, initial,
                       [&](LoopBuilder &l, Value at, ValueRange carried) {
                         return squares(l, at, 1, carried);
                       });
                   for (auto [sum, vector] : llvm::zip(sums, last))
                     sum = vector::ExtractOp::create(t.b, t.loc, vector,
                                                     ArrayRef<int64_t>{0});
                 }
                 Value at = t.add(first, t.div(low, block));
                 for (Value &sum : sums)
                   sum = t.combineThreads(nn::ReduceKind::sum, sum);
                 Value isFirst = arith::CmpIOp::create(
                     t.b, t.loc, arith::CmpIPredicate::eq, lane, t.index(0));
                 t.when(isFirst, [&](ThreadBuilder &t) {
                   for (auto [sum, result] : llvm::zip(sums, op.getOutputs()))
                     t.storeScalar(sum, function.outputs.lookup(result).front(),
                                   at, t.b.getF64Type());
                 });
               });
      });
  return emitter.tiles;
}

int64_t trainc::emitSquareSumOnGPU(KernelFunction &function, SquareSumOp op) {
  // The tensor is one segment.
  OpBuilder b(op);
  int64_t count = nn::getTensorType(op.getInput()).getNumElements();
  auto zero = b.getDenseI64ArrayAttr(0);
  auto segments = SegmentSquareSumOp::create(
      b, op.getLoc(), op.getResult().getType(), op.getInput(), ValueRange(),
      ValueRange(), ValueRange(), Value(),
      SegmentsAttr::get(b.getContext(), zero, b.getDenseI64ArrayAttr(count),
                        b.getArrayAttr(zero), {}, {}, {}),
      /*indexed=*/false, op.getBlock());
  Block &body = segments.getBody().emplaceBlock();
  Value element = body.addArgument(computeTypeOf(op.getInput()), op.getLoc());
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  train::YieldOp::create(inner, op.getLoc(), element, Value(), Value());
  function.outputs[segments.getOutputs()[0]] =
      function.outputs.lookup(op.getResult());
  int64_t blocks = *emitSegmentsOnGPU(function, segments.getOperation());
  segments.erase();
  return blocks;
}

/// Adds sums of blocks by one block of threads.
static void addBlocks(ThreadBuilder &t, KernelFunction &function,
                      SumBlocksOp op) {
  int64_t threads = t.threads;
  OpBuilder &b = t.b;
  Type f64 = b.getF64Type();
  int64_t count = op.countSums();

  SmallVector<int64_t> begins{0}, sources, firsts, ends, befores;
  for (const auto &ranges : rangesOfSums(op)) {
    for (const SumRange &range : ranges) {
      sources.push_back(range.source);
      firsts.push_back(range.first);
      ends.push_back(range.first + range.count);
      befores.push_back(range.before);
    }
    begins.push_back(sources.size());
  }
  // A block's memory holds some thousands of them.
  constexpr int64_t mostShared = 1024;
  Value sums = count > mostShared ? t.shareAmongBlocks(function, f64, count)
                                  : t.shared(f64, std::max<int64_t>(count, 1));
  Value id = t.thread(), lane = t.mod(id, kWarp);
  t.loop(
      t.div(id, kWarp), t.index(count), threads / kWarp,
      [&](LoopBuilder &l, Value which) {
        Value zero = l.identity(nn::ReduceKind::sum, f64);
        Value begin = lookUp(l, table(l, begins), which);
        Value end = lookUp(l, table(l, begins), l.add(which, l.index(1)));
        Value sum =
            l.loop(
                 begin, end, 1, zero,
                 [&](LoopBuilder &l, Value i, ValueRange carried) {
                   // Element j of the sum is lane j mod 32's.
                   Value shift =
                       l.mod(arith::SubIOp::create(
                                 l.b, l.loc, l.add(lane, l.index(1 << 30)),
                                 l.mod(lookUp(l, table(l, befores), i), kWarp)),
                             kWarp);
                   Value low = l.add(lookUp(l, table(l, firsts), i), shift);
                   Value high = lookUp(l, table(l, ends), i);
                   Value source = lookUp(l, table(l, sources), i);
                   Value sum = carried.front();
                   for (auto [k, input] : llvm::enumerate(op.getBlocks())) {
                     Value mine = arith::CmpIOp::create(
                         l.b, l.loc, arith::CmpIPredicate::eq, source,
                         l.index(k));
                     Value stop = arith::SelectOp::create(l.b, l.loc, mine,
                                                          high, l.index(0));
                     sum =
                         l.loop(low, stop, kWarp, sum,
                                [&](LoopBuilder &l, Value at,
                                    ValueRange carried) {
                                  Type type =
                                      nn::getTensorType(input).getElementType();
                                  Value x = l.loadScalar(
                                      function.inputs.lookup(input), at, type);
                                  if (!type.isF64())
                                    x = arith::ExtFOp::create(l.b, l.loc, f64,
                                                              x);
                                  return SmallVector<Value>{l.combine(
                                      nn::ReduceKind::sum, carried.front(), x)};
                                })
                             .front();
                   }
                   return SmallVector<Value>{sum};
                 })
                .front();
        ThreadBuilder t(l.b, l.loc, threads);
        sum = t.combineThreads(nn::ReduceKind::sum, sum);
        Value isFirst = arith::CmpIOp::create(
            t.b, t.loc, arith::CmpIPredicate::eq, lane, t.index(0));
        t.when(isFirst,
               [&](ThreadBuilder &t) { t.storeScalar(sum, sums, which, f64); });
      });
  t.barrier();
  for (auto [attribute, result] : llvm::zip(op.getSets(), op.getSums())) {
    ArrayRef<int64_t> set = cast<DenseI64ArrayAttr>(attribute).asArrayRef();
    Value memref = function.outputs.lookup(result).front();
    auto sumAt = [&](LoopBuilder &l, Value i) {
      return l.loadScalar(sums, lookUp(l, table(l, set), i), f64);
    };
    if (nn::getTensorType(result).getRank() == 1) {
      t.loop(id, t.index(set.size()), threads, [&](LoopBuilder &l, Value i) {
        l.storeScalar(sumAt(l, i), memref, i, f64);
      });
      continue;
    }
    Value zero = t.identity(nn::ReduceKind::sum, f64), total = zero;
    if (!set.empty())
      total = t.loop(id, t.index(set.size()), threads, zero,
                     [&](LoopBuilder &l, Value i, ValueRange carried) {
                       return SmallVector<Value>{l.combine(
                           nn::ReduceKind::sum, carried.front(), sumAt(l, i))};
                     })
                  .front();
    total = t.combineBlock(nn::ReduceKind::sum, total);
    Value isFirst = arith::CmpIOp::create(b, t.loc, arith::CmpIPredicate::eq,
                                          id, t.index(0));
    t.when(isFirst, [&](ThreadBuilder &t) {
      t.storeScalar(total, memref, t.index(0), f64);
    });
  }
}

int64_t trainc::emitSumBlocksOnGPU(KernelFunction &function, SumBlocksOp op) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, op.getLoc(), kThreads);
  t.setLaunch(function);
  addBlocks(t, function, op);
  func::ReturnOp::create(b, t.loc);
  return 1;
}

/// Emits sums of squares and, in the block that ends last, what follows from them:
/// `tail`, sums of blocks and work on single elements.
static int64_t emitNorm(ThreadBuilder &t, KernelFunction &function,
                        SegmentSquareSumOp norm, ArrayRef<Operation *> tail) {
  // What is not returned stands in memory of the kernel.
  auto place = [&](ThreadBuilder &t, Value value) {
    SmallVector<Value> &memrefs = function.outputs[value];
    auto type = nn::getTensorType(value);
    if (memrefs.empty())
      memrefs.push_back(type.getRank() == 0
                            ? t.shared(type.getElementType(), 1)
                            : t.shareAmongBlocks(function,
                                                 type.getElementType(),
                                                 type.getNumElements()));
    function.inputs[value] = memrefs.front();
  };
  for (Value sums : norm.getOutputs())
    if (!tail.empty())
      place(t, sums);
  int64_t blocks = addSquares(t, function, norm);
  if (tail.empty())
    return blocks;
  t.whenLast(function, t.index(0), blocks, [&](ThreadBuilder &t) {
    SmallVector<Operation *> singles;
    for (Operation *op : tail) {
      auto sums = dyn_cast<SumBlocksOp>(op);
      if (!sums) {
        singles.push_back(op);
        continue;
      }
      for (Value sum : sums.getSums())
        place(t, sum);
      addBlocks(t, function, sums);
      t.barrier();
    }
    if (singles.empty())
      return;
    Value first = arith::CmpIOp::create(t.b, t.loc, arith::CmpIPredicate::eq,
                                        t.thread(), t.index(0));
    auto space = IterationSpace::compute(singles, /*column=*/false);
    t.when(first, [&](ThreadBuilder &t) {
      PointEmitter points(function, *space);
      points.setCoordinates(t, t.index(0));
      // All are computed before the first is stored: a result may be in place.
      SmallVector<std::pair<Value, Value>> stores;
      for (Operation *op : singles)
        for (Value result : op->getResults())
          if (function.outputs.contains(result))
            stores.push_back({result, points.getScalar(t, result)});
      for (auto [result, scalar] : stores)
        for (Value memref : function.outputs.lookup(result))
          t.storeScalar(scalar, memref, t.index(0),
                        nn::getTensorType(result).getElementType());
    });
  });
  return blocks;
}

/// Emits updates side by side, each by its own blocks.
static int64_t emitUpdates(ThreadBuilder &t, KernelFunction &function,
                           ArrayRef<Operation *> updates) {
  if (updates.size() == 1)
    return emitUpdate(t, function, cast<SegmentMapOp>(updates[0]),
                      function.tile);
  int64_t blocks = 0;
  for (Operation *op : updates) {
    auto update = cast<SegmentMapOp>(op);
    // What an earlier update left in place stands where it was.
    for (Value array : update.getArrays())
      if (auto before = array.getDefiningOp<SegmentMapOp>()) {
        size_t number = cast<OpResult>(array).getResultNumber();
        function.inputs[array] = function.inputs.lookup(
            before.getArrays()[before.getTargets()[number]]);
      }
    for (auto [result, target] :
         llvm::zip(update.getOutputs(), update.getTargets()))
      if (function.outputs.lookup(result).empty())
        function.outputs[result] = {
            function.inputs.lookup(update.getArrays()[target])};
    Value tile =
        arith::SubIOp::create(t.b, t.loc, function.tile, t.index(blocks));
    auto last = arith::ConstantIndexOp::create(t.b, t.loc, 0);
    Value mine = arith::CmpIOp::create(t.b, t.loc, arith::CmpIPredicate::ult,
                                       tile, last);
    int64_t count = 0;
    t.when(mine, [&](ThreadBuilder &t) {
      count = emitUpdate(t, function, update, tile);
    });
    last.setValueAttr(t.b.getIndexAttr(count));
    blocks += count;
  }
  return blocks;
}

std::optional<int64_t> trainc::emitSegmentsOnGPU(KernelFunction &function,
                                                 ArrayRef<Operation *> ops) {
  SmallVector<Operation *> constants, others;
  for (Operation *op : ops)
    (isa<nn::ConstantOp>(op) ? constants : others).push_back(op);
  auto norm = dyn_cast_or_null<SegmentSquareSumOp>(
      others.empty() ? nullptr : others.front());
  bool updates =
      !others.empty() && llvm::all_of(others, llvm::IsaPred<SegmentMapOp>);
  if (!norm && !updates)
    return std::nullopt;
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, function.kernel.getLoc(), kThreads);
  t.setLaunch(function, (updates ? kUpdateThreads : kNormThreads) / kThreads);
  SmallVector<Operation *> tail;
  for (Operation *op : constants) {
    // Those of the segments are numbers of the module.
    bool ofSegments = llvm::any_of(
        op->getUsers(), llvm::IsaPred<SegmentMapOp, SegmentSquareSumOp>);
    if (ofSegments)
      function.inputs[op->getResult(0)] =
          getGlobal(t, nn::getDense(cast<nn::ConstantOp>(op).getValue()));
    else
      tail.push_back(op);
  }
  if (norm)
    llvm::append_range(tail, ArrayRef(others).drop_front());
  int64_t blocks = norm ? emitNorm(t, function, norm, tail)
                        : emitUpdates(t, function, others);
  func::ReturnOp::create(b, t.loc);
  return blocks;
}
