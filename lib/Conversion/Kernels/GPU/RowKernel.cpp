//===- RowKernel.cpp - Pointwise ops and reductions over rows, on a GPU ---===//
//
// Without reductions each thread computes one vector of elements. With them a row
// belongs to a warp, to a part of one if it is short or, if it is long, to a block. What a
// thread loads and computes of a short row stays in its registers from phase to phase;
// of a long row it loads several vectors at once.
//
//===----------------------------------------------------------------------===//
#include "Common/RowPhases.h"
#include "Threads.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a block where nothing else decides.
static constexpr int64_t kThreads = 256;
/// Elements of a row that a warp takes; of a longer one it is a block.
static constexpr int64_t kWarpRow = 1024;
/// Threads of a multiprocessor at once with long rows: 64 registers for each.
static constexpr int64_t kLongRowThreads = 1024;
/// The same with rows of several arrays in registers: 80 for each.
static constexpr int64_t kWideRowThreads = 768;
/// Most elements of a row that a thread keeps in registers.
static constexpr int64_t kKeptElements = 32;
/// Vectors of a longer row that a thread loads at once, and where it stores, too.
static constexpr int64_t kBatch = 4, kStoreBatch = 2;

namespace {
struct RowEmitter {
  RowEmitter(KernelFunction &function, const IterationSpace &space)
      : function(function), space(space), phases(function.kernel),
        lanes(chooseLanes(function, space)), points(function, space, lanes) {}

  KernelFunction &function;
  const IterationSpace &space;
  RowPhases phases;
  int64_t lanes;
  PointEmitter points;
  int64_t phase = 0;
  /// Threads of a row, and vectors that each of them has of it.
  int64_t team = 1, rounds = 1;
  Value row, member; // the thread's number in its team
  /// Rows do not divide into vectors, and their ends go element by element.
  bool peeled = false;
  /// Per round, what is in registers; empty if rows are too long.
  SmallVector<DenseMap<Value, Value>> kept;

  int64_t emitPoints(ThreadBuilder &t);
  int64_t emitRows(ThreadBuilder &t);
  /// Inputs that have the space's rows.
  int64_t countArrays() const {
    return llvm::count_if(function.inputs, [&](auto &input) {
      const auto &extent = space.extentOf(input.first);
      return extent.inner && llvm::is_contained(extent.outer, true);
    });
  }
  int64_t chooseTeam(int64_t threads) const;

private:
  void storeScalars(ThreadBuilder &t, Value isFirst);
  void storeVectors(ThreadBuilder &t, Value at, Value isThere,
                    DenseMap<Value, Value> &memo);
  void collect(Value value, llvm::SetVector<Operation *> &ops);
  bool isStored(Value value) const;
  void loadInputs(LoopBuilder &l, const llvm::SetVector<Operation *> &ops,
                  Value at, DenseMap<Value, Value> &memo);
  /// Adds the vector at `at`, where `isThere` (null: always) holds, to `sums`.
  using Accumulate = llvm::function_ref<void(
      ThreadBuilder &t, Value at, Value isThere, DenseMap<Value, Value> &memo,
      MutableArrayRef<Value> sums)>;
  SmallVector<Value> loopOver(ThreadBuilder &t, Value low, Value high,
                              int64_t size, int64_t batch,
                              const llvm::SetVector<Operation *> &ops,
                              ValueRange initial, Accumulate accumulate);
  void emitPhase(ThreadBuilder &t);
  void emitRow(ThreadBuilder &t);
};
} // namespace

/// Stores the results of this phase that are one element per row.
void RowEmitter::storeScalars(ThreadBuilder &t, Value isFirst) {
  // All before the first is stored, as for vectors below.
  SmallVector<std::pair<Value, Value>> stores;
  for (Value value : phases.outputsOf(phase))
    if (!points.isVector(value))
      stores.push_back({value, points.getScalar(t, value)});
  for (auto [value, scalar] : stores)
    for (Value memref : function.outputs.lookup(value))
      points.storeOnce(t, value, isFirst, [&](LoopBuilder &l) {
        l.storeScalar(scalar, memref, points.offsetOf(l, value),
                      nn::getTensorType(value).getElementType());
      });
}

/// Stores the vectors of this phase at `at`, where `isThere` (null: always) holds.
void RowEmitter::storeVectors(ThreadBuilder &t, Value at, Value isThere,
                              DenseMap<Value, Value> &memo) {
  // All are computed before the first is stored: a result may be in place.
  SmallVector<std::pair<Value, Value>> stores;
  for (Value value : phases.outputsOf(phase))
    if (points.isVector(value))
      stores.push_back({value, points.getVector(t, value, at, Value(), memo)});
  for (auto [value, vector] : stores)
    for (Value memref : function.outputs.lookup(value))
      points.storeOnce(t, value, isThere, [&](LoopBuilder &l) {
        l.storeVector(vector, memref, l.add(points.offsetOf(l, value), at),
                      nn::getTensorType(value).getElementType(), Value(),
                      points.lanes,
                      points.isAligned && points.isAligned(value));
      });
}

/// Every thread has one vector of the whole space.
int64_t RowEmitter::emitPoints(ThreadBuilder &t) {
  int64_t ofRow = space.inner / lanes, count = space.outerSize() * ofRow;
  Value number = t.add(t.mul(function.tile, t.threads), t.thread());
  t.when(t.less(number, t.index(count)), [&](ThreadBuilder &t) {
    points.setCoordinates(t, t.div(number, ofRow));
    Value at = t.mul(ofRow == 1 ? t.index(0) : t.mod(number, ofRow), lanes);
    Value isFirst = arith::CmpIOp::create(t.b, t.loc, arith::CmpIPredicate::eq,
                                          at, t.index(0));
    storeScalars(t, isFirst);
    DenseMap<Value, Value> memo;
    storeVectors(t, at, Value(), memo);
  });
  return llvm::divideCeil(count, t.threads);
}

/// Whether a vector of an earlier phase stands in a result, where this row has stored
/// it. One of smaller rank than the rows is stored by one of them, which others cannot
/// wait for.
bool RowEmitter::isStored(Value value) const {
  return phases.levelOf(value) < phase && points.isVector(value) &&
         value.getDefiningOp() && function.outputs.contains(value) &&
         !llvm::is_contained(space.extentOf(value).outer, false);
}

/// The vector ops that computing `value` in this phase needs.
void RowEmitter::collect(Value value, llvm::SetVector<Operation *> &ops) {
  auto isKnown = [&](Value value) {
    return !points.isVector(value) || isStored(value);
  };
  RowPhases::collect(value, isKnown, ops);
}

/// Loads the vectors at `at` that `ops` read.
void RowEmitter::loadInputs(LoopBuilder &l,
                            const llvm::SetVector<Operation *> &ops, Value at,
                            DenseMap<Value, Value> &memo) {
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (isa<BlockArgument>(operand) && points.isVector(operand))
        points.getVector(l, operand, at, Value(), memo);
}

/// Calls `accumulate` for the thread's vectors of `size` elements between `low` and `high`,
/// whose operations are `ops`, `batch` of them at once where there are as many.
SmallVector<Value> RowEmitter::loopOver(ThreadBuilder &t, Value low, Value high,
                                        int64_t size, int64_t batch,
                                        const llvm::SetVector<Operation *> &ops,
                                        ValueRange initial,
                                        Accumulate accumulate) {
  points.lanes = size;
  Value own = t.add(low, t.mul(member, size));
  // All that a batch of vectors reads is loaded before the first is computed.
  auto walk = [&](Value from, Value to, int64_t batch, ValueRange initial) {
    return t.loop(from, to, batch * team * size, initial,
                  [&](LoopBuilder &l, Value first, ValueRange carried) {
                    ThreadBuilder body(l.b, l.loc, t.threads);
                    SmallVector<Value> sums(carried), places;
                    SmallVector<DenseMap<Value, Value>> memos(batch);
                    for (int64_t k = 0; k < batch; ++k) {
                      places.push_back(l.add(first, l.index(k * team * size)));
                      if (batch > 1)
                        loadInputs(l, ops, places[k], memos[k]);
                    }
                    for (auto [at, memo] : llvm::zip(places, memos))
                      accumulate(body, at, Value(), memo, sums);
                    return sums;
                  });
  };
  if (size == 1 || space.inner < 2 * batch * team * size)
    return walk(own, high, 1, initial);
  int64_t step = batch * team * size;
  Value last =
      arith::SubIOp::create(t.b, t.loc, high, t.index(step - team * size));
  Value span = arith::SubIOp::create(t.b, t.loc, last, own);
  Value whole = t.mul(t.div(t.add(span, t.index(step - 1)), step), step);
  SmallVector<Value> sums = walk(own, last, batch, initial);
  return walk(t.add(own, whole), high, 1, sums);
}

/// The thread's part of a phase, and the reductions at its end.
void RowEmitter::emitPhase(ThreadBuilder &t) {
  SmallVector<nn::ReduceOp> reduces = phases.reductionsOf(phase);
  SmallVector<Value> accumulators;
  llvm::SetVector<Operation *> ops;
  for (nn::ReduceOp reduce : reduces) {
    Type type = computeTypeOf(reduce.getInput());
    if (!points.isVector(reduce.getInput())) {
      // Of a single element.
      points.scalars[reduce.getResult()] =
          t.combine(reduce.getKind(), t.identity(reduce.getKind(), type),
                    points.getScalar(t, reduce.getInput()));
      continue;
    }
    collect(reduce.getInput(), ops);
    accumulators.push_back(
        t.identity(reduce.getKind(), VectorType::get({lanes}, type)));
  }
  llvm::erase_if(reduces, [&](nn::ReduceOp reduce) {
    return !points.isVector(reduce.getInput());
  });
  bool stores = false;
  for (Value value : phases.outputsOf(phase))
    if (points.isVector(value)) {
      collect(value, ops);
      stores = true;
    }
  if (reduces.empty() && !stores)
    return;
  for (Operation *op : ops)
    points.prepareScalars(t, op, /*uniformOnly=*/false);

  auto accumulate = [&](ThreadBuilder &t, Value at, Value isThere,
                        DenseMap<Value, Value> &memo,
                        MutableArrayRef<Value> sums) {
    for (auto [reduce, sum] : llvm::zip(reduces, sums)) {
      Value value = points.getVector(t, reduce.getInput(), at, Value(), memo);
      if (isThere)
        value = arith::SelectOp::create(
            t.b, t.loc, isThere, value,
            t.identity(reduce.getKind(), value.getType()));
      sum = t.combine(reduce.getKind(), sum, value);
    }
    storeVectors(t, at, isThere, memo);
  };
  Value first = t.mul(member, lanes);
  if (!kept.empty()) {
    for (int64_t round = 0; round < rounds; ++round) {
      Value at = t.add(first, t.index(round * team * lanes)), isThere;
      if ((round + 1) * team * lanes > space.inner) {
        // Threads behind the end compute the first vector, for nothing.
        isThere = t.less(at, t.index(space.inner));
        at = arith::SelectOp::create(t.b, t.loc, isThere, at, t.index(0));
      }
      accumulate(t, at, isThere, kept[round], accumulators);
    }
  } else {
    auto loop = [&](Value low, Value high, int64_t size, ValueRange initial) {
      return loopOver(t, low, high, size, stores ? kStoreBatch : kBatch, ops,
                      initial, accumulate);
    };
    Value low = t.index(0), high = t.index(space.inner);
    Value begin = low, end = high;
    if (peeled) {
      // The row's first element that is at a multiple of a vector, and the end of
      // the last vector.
      Value start = t.mod(t.mul(row, space.inner % lanes), lanes);
      begin = t.mod(arith::SubIOp::create(t.b, t.loc, t.index(lanes), start),
                    lanes);
      Value count = arith::SubIOp::create(t.b, t.loc, high, begin);
      end = arith::SubIOp::create(t.b, t.loc, high, t.mod(count, lanes));
    }
    accumulators = loop(begin, end, lanes, accumulators);
    if (peeled) {
      SmallVector<Value> sums;
      for (auto [reduce, accumulator] : llvm::zip(reduces, accumulators))
        sums.push_back(
            t.splat(t.combineLanes(reduce.getKind(), accumulator), 1));
      sums = loop(low, begin, 1, sums);
      accumulators = loop(end, high, 1, sums);
      points.lanes = lanes;
    }
  }
  for (auto [reduce, accumulator] : llvm::zip(reduces, accumulators)) {
    Value value = t.combineLanes(reduce.getKind(), accumulator);
    points.scalars[reduce.getResult()] =
        team <= kWarp ? t.combineThreads(reduce.getKind(), value, team)
                      : t.combineBlock(reduce.getKind(), value);
  }
}

void RowEmitter::emitRow(ThreadBuilder &t) {
  Value isFirst = arith::CmpIOp::create(t.b, t.loc, arith::CmpIPredicate::eq,
                                        member, t.index(0));
  for (phase = 0; phase <= phases.count(); ++phase) {
    storeScalars(t, isFirst);
    emitPhase(t);
  }
}

/// The threads of a row: of a short one as many as have a vector of it, if all threads of
/// all blocks have rows then, since those of a warp exchange what they have.
int64_t RowEmitter::chooseTeam(int64_t threads) const {
  if (space.inner > kWarpRow)
    return threads;
  int64_t few = llvm::PowerOf2Ceil(llvm::divideCeil(space.inner, lanes));
  bool divides = few < kWarp && space.outerSize() % (threads / few) == 0;
  return divides ? few : kWarp;
}

int64_t RowEmitter::emitRows(ThreadBuilder &t) {
  int64_t rows = space.outerSize();
  team = chooseTeam(t.threads);
  rounds = llvm::divideCeil(space.inner, team * lanes);
  if (rounds * lanes <= kKeptElements) {
    kept.resize(rounds);
  } else {
    if (int64_t wanted = chooseLanes(function, space, /*dividing=*/false);
        wanted != lanes) {
      peeled = true;
      lanes = points.lanes = wanted;
      points.isAligned = [&](Value value) {
        return !llvm::is_contained(space.extentOf(value).outer, false);
      };
    }
    points.loadStored = [&](LoopBuilder &l, Value value, Value at,
                            Value mask) -> Value {
      if (!isStored(value))
        return {};
      return l.loadVector(function.outputs.lookup(value).front(),
                          l.add(points.offsetOf(l, value), at),
                          nn::getTensorType(value).getElementType(), mask,
                          points.lanes, peeled && points.isAligned(value));
    };
  }
  int64_t teams = t.threads / team;
  row = function.tile;
  member = t.thread();
  if (teams == 1) {
    points.setCoordinates(t, row);
    emitRow(t);
    return rows;
  }
  row = t.add(t.mul(row, teams), t.div(member, team));
  member = t.mod(member, team);
  auto emit = [&](ThreadBuilder &t) {
    points.setCoordinates(t, row);
    emitRow(t);
  };
  if (rows % teams == 0)
    emit(t);
  else
    t.when(t.less(row, t.index(rows)), emit);
  return llvm::divideCeil(rows, teams);
}

int64_t trainc::emitRowsOnGPU(KernelFunction &function,
                              const IterationSpace &space) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, function.kernel.getLoc(), kThreads);
  bool isLong = space.hasReductions && space.inner > kWarpRow;
  RowEmitter emitter(function, space);
  bool isWide = space.hasReductions && !isLong && emitter.countArrays() > 1;
  t.setLaunch(function, (isLong   ? kLongRowThreads
                         : isWide ? kWideRowThreads
                                  : 0) /
                            kThreads);
  int64_t blocks =
      space.hasReductions ? emitter.emitRows(t) : emitter.emitPoints(t);
  func::ReturnOp::create(b, t.loc);
  return blocks;
}
