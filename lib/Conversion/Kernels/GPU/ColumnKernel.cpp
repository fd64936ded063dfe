//===- ColumnKernel.cpp - Reductions over outer dimensions, on a GPU ------===//
//
// A block has the columns of one warp's vectors and a run of the reduced rows, which
// its warps take in turns. If one run is not all, the block that ends last adds up
// the runs, in their order: the result does not depend on which block that is. A few
// rows are one thread's.
//
//===----------------------------------------------------------------------===//
#include "Threads.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kThreads = 256;
/// Blocks that fill the largest GPUs, and the fewest rows worth a block.
static constexpr int64_t kBlocksWanted = 512, kLeastRows = 64;
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
  int64_t rows = 1,
          kept = 1; // points of the reduced and of the other dimensions
  int64_t columns;  // of a block
  int64_t groups, runs, rowsOfRun;

  int64_t run(ThreadBuilder &t);

private:
  SmallVector<Value> emitRows(ThreadBuilder &t, Value low, Value high,
                              int64_t step, Value at);
  int64_t emitFewRows(ThreadBuilder &t);
  void finish(ThreadBuilder &t, Value value, nn::ReduceOp reduce, Value column);
};
} // namespace

ColumnEmitter::ColumnEmitter(KernelFunction &function,
                             const IterationSpace &space)
    : function(function), space(space), lanes(chooseLanes(function, space)),
      points(function, space, lanes),
      reduces(function.kernel.getBody().getOps<nn::ReduceOp>()) {
  for (auto [size, reduced] : llvm::zip(space.outer, space.reduced))
    (reduced ? rows : kept) *= size;
  columns = kWarp * lanes;
  groups = llvm::divideCeil(space.inner, columns);
  runs = std::clamp<int64_t>(kBlocksWanted / (kept * groups), 1,
                             llvm::divideCeil(rows, kLeastRows));
  if (kept * groups > kCounters)
    runs = 1;
  rowsOfRun = llvm::divideCeil(rows, runs);
  runs = llvm::divideCeil(rows, rowsOfRun);
}

/// Per reduction the columns from `at` on of rows low, low + step, ... below high.
SmallVector<Value> ColumnEmitter::emitRows(ThreadBuilder &t, Value low,
                                           Value high, int64_t step, Value at) {
  SmallVector<Value> accumulators;
  for (nn::ReduceOp reduce : reduces)
    accumulators.push_back(
        t.identity(reduce.getKind(),
                   VectorType::get({lanes}, computeTypeOf(reduce.getInput()))));
  auto coordinates = points.coordinates;
  accumulators =
      t.loop(low, high, step, accumulators,
             [&](LoopBuilder &l, Value row, ValueRange carried) {
               points.setCoordinates(l, row, space.reduced);
               auto scalars = points.scalars;
               auto regionScalars = points.regionScalars;
               DenseMap<Value, Value> memo;
               SmallVector<Value> next;
               for (auto [reduce, sum] : llvm::zip(reduces, carried))
                 next.push_back(l.combine(reduce.getKind(), sum,
                                          points.getVector(l, reduce.getInput(),
                                                           at, Value(), memo)));
               points.scalars = scalars;
               points.regionScalars = regionScalars;
               return next;
             });
  points.coordinates = coordinates;
  return accumulators;
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
  auto sumParts = [&](ThreadBuilder &t, nn::ReduceOp reduce, Value memory,
                      Value base, int64_t count, Value column) -> Value {
    return t
        .loop(t.index(0), t.index(count), 1,
              t.identity(reduce.getKind(), computeTypeOf(reduce.getInput())),
              [&](LoopBuilder &l, Value i, ValueRange carried) {
                Value at = l.add(l.mul(l.add(base, i), columns), column);
                Value part =
                    memref::LoadOp::create(l.b, l.loc, memory, ValueRange(at));
                return SmallVector<Value>{
                    l.combine(reduce.getKind(), carried.front(), part)};
              })
        .front();
  };
  SmallVector<Value> ofRuns;
  for (nn::ReduceOp reduce : reduces)
    if (runs > 1)
      ofRuns.push_back(t.shareAmongBlocks(function,
                                          computeTypeOf(reduce.getInput()),
                                          kept * groups * runs * columns));
  Value base = t.mul(place, runs);
  // The warps' parts, by warp and column: reductions of one type take turns.
  DenseMap<Type, Value> memories;
  for (auto [i, reduce] : llvm::enumerate(reduces)) {
    Value &memory = memories[computeTypeOf(reduce.getInput())];
    if (memory)
      t.barrier();
    else
      memory = t.shared(computeTypeOf(reduce.getInput()),
                        kThreads / kWarp * columns);
    vector::StoreOp::create(t.b, t.loc, sums[i], memory,
                            ValueRange(t.mul(t.thread(), lanes)));
    t.barrier();
    forColumns(t, [&](ThreadBuilder &t, Value column) {
      Value sum =
          sumParts(t, reduce, memory, t.index(0), kThreads / kWarp, column);
      if (runs == 1)
        finish(t, sum, reduce, t.add(first, column));
      else
        memref::StoreOp::create(
            t.b, t.loc, sum, ofRuns[i],
            ValueRange(t.add(t.mul(t.add(base, number), columns), column)));
    });
  }
  if (runs > 1)
    t.whenLast(function, place, runs, [&](ThreadBuilder &t) {
      forColumns(t, [&](ThreadBuilder &t, Value column) {
        for (auto [i, reduce] : llvm::enumerate(reduces))
          finish(t, sumParts(t, reduce, ofRuns[i], base, runs, column), reduce,
                 t.add(first, column));
      });
    });
  return kept * groups * runs;
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
