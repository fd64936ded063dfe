//===- ColumnKernel.cpp - Reductions over outer dimensions, on a GPU ------===//
//
// A block has the columns of one warp's vectors and a run of the reduced rows, which
// its warps take in turns. If one run is not all, the block that ends last adds up
// the runs, in their order: the result does not depend on which block that is. A few
// rows are one thread's. What is summed up may be a result, too.
//
//===----------------------------------------------------------------------===//
#include "Threads.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kThreads = 256;
/// Blocks that fill the largest GPUs, and the fewest rows worth a block.
static constexpr int64_t kBlocksWanted = 512, kLeastRows = 64;
/// Rows that a thread loads at once where runs divide into such.
static constexpr int64_t kBatch = 4;
/// So few rows that a thread takes all.
static constexpr int64_t kFewRows = 16;

namespace {
struct ColumnEmitter {
  ColumnEmitter(KernelFunction &function, const IterationSpace &space);

  KernelFunction &function;
  const IterationSpace &space;
  int64_t lanes;
  PointEmitter points;
  SmallVector<nn::ReduceOp> reduces;
  llvm::SetVector<Value> made; // what is summed up, of results
  int64_t rows = 1,
          kept = 1; // points of the reduced and of the other dimensions
  int64_t columns;  // of a block
  int64_t groups, runs, rowsOfRun;
  int64_t batch = 1; // rows that a thread loads at once

  int64_t run(ThreadBuilder &t);

private:
  SmallVector<Value> emitRows(ThreadBuilder &t, Value low, Value high,
                              int64_t step, Value at);
  int64_t emitFewRows(ThreadBuilder &t);
  void storeMade(LoopBuilder &l, Value at, DenseMap<Value, Value> &memo);
  Value sumRuns(ThreadBuilder &t, nn::ReduceOp reduce, Value memory,
                Value base);
  void finish(ThreadBuilder &t, Value value, nn::ReduceOp reduce, Value column);
};
} // namespace

ColumnEmitter::ColumnEmitter(KernelFunction &function,
                             const IterationSpace &space)
    : function(function), space(space), lanes(chooseLanes(function, space)),
      points(function, space, lanes),
      reduces(function.kernel.getBody().getOps<nn::ReduceOp>()) {
  for (Value value :
       function.kernel.getBody().front().getTerminator()->getOperands())
    if (!value.getDefiningOp<nn::ReduceOp>())
      made.insert(value);
  for (auto [size, reduced] : llvm::zip(space.outer, space.reduced))
    (reduced ? rows : kept) *= size;
  columns = kWarp * lanes;
  groups = llvm::divideCeil(space.inner, columns);
  runs = std::clamp<int64_t>(kBlocksWanted / (kept * groups), 1,
                             llvm::divideCeil(rows, kLeastRows));
  if (kept * groups > kCounters)
    runs = 1;
  // Fewer runs of equal length that divide into batches are better than others.
  constexpr int64_t ofBatches = kBatch * kThreads / kWarp;
  int64_t equal = runs;
  while (equal > runs / 2 && rows % (equal * ofBatches) != 0)
    --equal;
  if (equal > runs / 2) {
    runs = equal;
    batch = kBatch;
  }
  rowsOfRun = llvm::divideCeil(rows, runs);
  runs = llvm::divideCeil(rows, rowsOfRun);
}

/// Per reduction the columns from `at` on of rows low, low + step, ... below high. All that
/// `batch` rows read is loaded before the first of them is added.
SmallVector<Value> ColumnEmitter::emitRows(ThreadBuilder &t, Value low,
                                           Value high, int64_t step, Value at) {
  SmallVector<Value> accumulators;
  for (nn::ReduceOp reduce : reduces)
    accumulators.push_back(
        t.identity(reduce.getKind(),
                   VectorType::get({lanes}, computeTypeOf(reduce.getInput()))));
  auto coordinates = points.coordinates;
  auto scalars = points.scalars;
  auto regionScalars = points.regionScalars;
  struct Row {
    decltype(points.scalars) scalars;
    DenseMap<Value, Value> memo;
  };
  auto setRow = [&](LoopBuilder &l, Value row, int64_t k) {
    points.setCoordinates(l, l.add(row, l.index(k * step)), space.reduced);
  };
  accumulators =
      t.loop(low, high, step * batch, accumulators,
             [&](LoopBuilder &l, Value first, ValueRange carried) {
               SmallVector<Row> rows(batch);
               for (auto [k, row] : llvm::enumerate(rows)) {
                 setRow(l, first, k);
                 for (Value input : function.kernel.getBody().getArguments())
                   if (!points.isVector(input))
                     points.getScalar(l, input);
                   else if (batch > 1)
                     points.getVector(l, input, at, Value(), row.memo);
                 row.scalars = points.scalars;
                 points.scalars = scalars;
               }
               SmallVector<Value> next(carried);
               for (auto [k, row] : llvm::enumerate(rows)) {
                 setRow(l, first, k);
                 points.scalars = row.scalars;
                 for (auto [reduce, sum] : llvm::zip(reduces, next))
                   sum = l.combine(reduce.getKind(), sum,
                                   points.getVector(l, reduce.getInput(), at,
                                                    Value(), row.memo));
                 storeMade(l, at, row.memo);
                 points.scalars = scalars;
                 points.regionScalars = regionScalars;
               }
               return next;
             });
  points.coordinates = coordinates;
  return accumulators;
}

/// Stores the vectors at `at` of this row that are results.
void ColumnEmitter::storeMade(LoopBuilder &l, Value at,
                              DenseMap<Value, Value> &memo) {
  for (Value value : made)
    for (Value memref : function.outputs.lookup(value))
      l.storeVector(points.getVector(l, value, at, Value(), memo), memref,
                    l.add(points.offsetOf(l, value), at),
                    nn::getTensorType(value).getElementType(), Value(), lanes);
}

/// Stores the result of `reduce` for a column.
void ColumnEmitter::finish(ThreadBuilder &t, Value value, nn::ReduceOp reduce,
                           Value column) {
  for (Value memref : function.outputs.lookup(reduce.getResult()))
    t.storeScalar(value, memref,
                  t.add(points.offsetOf(t, reduce.getResult()), column),
                  nn::getTensorType(reduce.getResult()).getElementType());
}

/// Every thread has one vector of the results.
int64_t ColumnEmitter::emitFewRows(ThreadBuilder &t) {
  batch = 1;
  int64_t ofRow = space.inner / lanes, count = kept * ofRow;
  Value number = t.add(t.mul(function.tile, kThreads), t.thread());
  t.when(t.less(number, t.index(count)), [&](ThreadBuilder &t) {
    SmallVector<bool> isKept = llvm::map_to_vector(
        space.reduced, [](bool reduced) { return !reduced; });
    points.setCoordinates(t, t.div(number, ofRow), isKept);
    Value at = t.mul(ofRow == 1 ? t.index(0) : t.mod(number, ofRow), lanes);
    SmallVector<Value> sums = emitRows(t, t.index(0), t.index(rows), 1, at);
    for (auto [sum, reduce] : llvm::zip(sums, reduces))
      for (Value memref : function.outputs.lookup(reduce.getResult()))
        t.storeVector(sum, memref,
                      t.add(points.offsetOf(t, reduce.getResult()), at),
                      nn::getTensorType(reduce.getResult()).getElementType(),
                      Value(), lanes);
  });
  return llvm::divideCeil(count, kThreads);
}

int64_t ColumnEmitter::run(ThreadBuilder &t) {
  if (rows <= kFewRows)
    return emitFewRows(t);
  // A block's number: the point that is kept, its group of columns, its run.
  Value place = t.div(function.tile, runs);
  Value number = runs == 1 ? t.index(0) : t.mod(function.tile, runs);
  SmallVector<bool> isKept =
      llvm::map_to_vector(space.reduced, [](bool reduced) { return !reduced; });
  points.setCoordinates(t, t.div(place, groups), isKept);
  Value first = t.mul(groups == 1 ? t.index(0) : t.mod(place, groups), columns);
  Value lane = t.mod(t.thread(), kWarp);
  Value low = t.mul(number, rowsOfRun), at = t.add(first, t.mul(lane, lanes));
  Value high = t.min(t.add(low, t.index(rowsOfRun)), t.index(rows));
  // Threads behind the last column compute the first one, for nothing.
  at = arith::SelectOp::create(t.b, t.loc, t.less(at, t.index(space.inner)), at,
                               t.index(0));
  SmallVector<Value> sums = emitRows(t, t.add(low, t.div(t.thread(), kWarp)),
                                     high, kThreads / kWarp, at);

  // Thread i has column i, i + threads, ... of the block.
  auto forColumns = [&](ThreadBuilder &t,
                        function_ref<void(ThreadBuilder &, Value)> body) {
    t.loop(t.thread(), t.index(columns), kThreads,
           [&](LoopBuilder &l, Value column) {
             ThreadBuilder inner(l.b, l.loc, kThreads);
             inner.when(
                 inner.less(inner.add(first, column), inner.index(space.inner)),
                 [&](ThreadBuilder &t) { body(t, column); });
           });
  };
  Value base = t.mul(place, runs);
  // Of each reduction, by run and column; and the warps' parts, by warp and column:
  // reductions of one type take turns.
  SmallVector<Value> ofRuns;
  DenseMap<Type, Value> memories;
  for (nn::ReduceOp reduce : reduces) {
    Type type = computeTypeOf(reduce.getInput());
    if (runs > 1)
      ofRuns.push_back(
          t.shareAmongBlocks(function, type, kept * groups * runs * columns));
    Value &memory = memories[type];
    if (!memory)
      memory = t.shared(type, kThreads / kWarp * columns);
  }
  // Adds up what the warps have and calls `store` with each of the block's columns.
  auto sumWarps = [&](ThreadBuilder &t, nn::ReduceOp reduce, Value vector,
                      bool isFirst,
                      function_ref<void(ThreadBuilder &, Value, Value)> store) {
    Type type = computeTypeOf(reduce.getInput());
    Value memory = memories[type];
    if (!isFirst)
      t.barrier(); // all have read what stands there
    vector::StoreOp::create(t.b, t.loc, vector, memory,
                            ValueRange(t.mul(t.thread(), lanes)));
    t.barrier();
    forColumns(t, [&](ThreadBuilder &t, Value column) {
      Value sum = t.identity(reduce.getKind(), type);
      for (int64_t warp = 0; warp < kThreads / kWarp; ++warp)
        sum =
            t.combine(reduce.getKind(), sum,
                      memref::LoadOp::create(
                          t.b, t.loc, memory,
                          ValueRange(t.add(column, t.index(warp * columns)))));
      store(t, sum, column);
    });
  };
  for (auto [i, reduce] : llvm::enumerate(reduces))
    sumWarps(t, reduce, sums[i], /*isFirst=*/i == 0,
             [&](ThreadBuilder &t, Value sum, Value column) {
               if (runs == 1)
                 return finish(t, sum, reduce, t.add(first, column));
               Value at = t.add(t.mul(t.add(base, number), columns), column);
               memref::StoreOp::create(t.b, t.loc, sum, ofRuns[i],
                                       ValueRange(at));
             });
  if (runs > 1)
    t.whenLast(function, place, runs, [&](ThreadBuilder &t) {
      for (auto [i, reduce] : llvm::enumerate(reduces))
        sumWarps(t, reduce, sumRuns(t, reduce, ofRuns[i], base),
                 /*isFirst=*/false,
                 [&](ThreadBuilder &t, Value sum, Value column) {
                   finish(t, sum, reduce, t.add(first, column));
                 });
    });
  return kept * groups * runs;
}

/// The thread's vector of the runs of its warp: each warp takes some in turns, several
/// loads at once.
Value ColumnEmitter::sumRuns(ThreadBuilder &t, nn::ReduceOp reduce,
                             Value memory, Value base) {
  constexpr int64_t warps = kThreads / kWarp, atOnce = 4;
  Type type = computeTypeOf(reduce.getInput());
  auto vector = VectorType::get({lanes}, type);
  Value warp = t.div(t.thread(), kWarp);
  Value column = t.mul(t.mod(t.thread(), kWarp), lanes);
  auto add = [&](LoopBuilder &l, Value sum, Value run, int64_t count) {
    SmallVector<Value> parts;
    for (int64_t k = 0; k < count; ++k) {
      Value row = l.add(l.add(base, run), l.index(k * warps));
      parts.push_back(vector::LoadOp::create(
          l.b, l.loc, vector, memory,
          ValueRange(l.add(l.mul(row, columns), column))));
    }
    for (Value part : parts)
      sum = l.combine(reduce.getKind(), sum, part);
    return SmallVector<Value>{sum};
  };
  int64_t whole = runs / (warps * atOnce) * (warps * atOnce);
  Value sum = t.identity(reduce.getKind(), vector);
  sum = t.loop(warp, t.index(whole), warps * atOnce, sum,
               [&](LoopBuilder &l, Value run, ValueRange carried) {
                 return add(l, carried[0], run, atOnce);
               })
            .front();
  return t
      .loop(t.add(warp, t.index(whole)), t.index(runs), warps, sum,
            [&](LoopBuilder &l, Value run, ValueRange carried) {
              return add(l, carried[0], run, 1);
            })
      .front();
}

int64_t trainc::emitColumnsOnGPU(KernelFunction &function,
                                 const IterationSpace &space) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, function.kernel.getLoc(), kThreads);
  t.setLaunch(function);
  int64_t blocks = ColumnEmitter(function, space).run(t);
  func::ReturnOp::create(b, t.loc);
  return blocks;
}
