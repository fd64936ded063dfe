//===- RowKernel.cpp - Pointwise ops and reductions over rows -------------===//
//
// A tile is a block of rows (of points of the outer dimensions), or of the inner
// dimension where there is nothing else. A row is computed in phases: a loop over
// the inner dimension for everything known so far, ended by the reductions over
// it, then scalar code, then the next loop. What a later phase needs is recomputed
// if it is cheap and else kept in a row buffer.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/RowPhases.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Elements that a tile should hold: enough to hide its launch, few enough to
/// balance threads.
static constexpr int64_t kTileElements = 4096, kMaxTiles = 128;
/// Largest row buffer, in bytes.
static constexpr int64_t kMaxRowBuffer = 1 << 20;
/// Bytes of such buffers on the stack of a thread, which may be anybody's; others are in the
/// scratch.
static constexpr int64_t kMaxStackBytes = 1 << 16;

namespace {
struct RowEmitter {
  RowEmitter(KernelFunction &function, const IterationSpace &space)
      : function(function), space(space), phases(function.kernel),
        points(function, space) {}

  KernelFunction &function;
  const IterationSpace &space;
  RowPhases phases;
  PointEmitter points;
  /// Row buffers of values that a later phase loads.
  DenseMap<Value, Value> buffers;
  int64_t phase = 0;
  Value row;
  /// Where tiles cut the only dimension: whether this one stores what does not vary
  /// along it. Null: it does.
  Value isFirst;

  FailureOr<int64_t> run();

private:
  void findBuffers(LoopBuilder &l);
  void emitUniform(LoopBuilder &l);
  void emitRow(LoopBuilder &l, Value low, Value high, Value isLast);
  void emitPhase(LoopBuilder &l, Value low, Value high, Value isLast);
  SmallVector<Value> vectorRoots();
  void emitScalarOutputs(LoopBuilder &l);
  void collect(Value value, llvm::SetVector<Operation *> &ops);
  bool isStoredByRow(Value value) const;
  bool isStored(Value value) const;
  void emitBody(LoopBuilder &l, Value at, Value mask,
                SmallVectorImpl<Value> &accumulators);
};
} // namespace

/// Whether every row stores its own part of the vector `value`. One of smaller rank
/// than the rows is stored by one of them, which others cannot wait for.
bool RowEmitter::isStoredByRow(Value value) const {
  return points.isVector(value) && value.getDefiningOp() &&
         function.outputs.contains(value) &&
         !llvm::is_contained(space.extentOf(value).outer, false);
}

/// Whether `value` of an earlier phase can be loaded: an output or a row buffer.
bool RowEmitter::isStored(Value value) const {
  return phases.levelOf(value) < phase &&
         (buffers.contains(value) || isStoredByRow(value));
}

void RowEmitter::findBuffers(LoopBuilder &l) {
  int64_t onStack = 0; // bytes
  for (Operation &op : function.kernel.getBody().front().without_terminator()) {
    if (isCheap(&op) || isa<nn::ReduceOp>(op))
      continue;
    for (Value result : op.getResults()) {
      if (!points.isVector(result) || isStoredByRow(result))
        continue;
      bool later = llvm::any_of(result.getUsers(), [&](Operation *user) {
        if (isa<train::ReturnOp>(user))
          return false;
        int64_t needed = isa<nn::ReduceOp>(user)
                             ? phases.levelOf(user->getResult(0)) - 1
                             : phases.levelOf(user->getResult(0));
        return needed > phases.levelOf(result);
      });
      Type type =
          nn::getComputeType(nn::getTensorType(result).getElementType());
      int64_t bytes = space.inner * nn::getElementBytes(type);
      if (!later || bytes > kMaxRowBuffer || type.isInteger(1))
        continue;
      // Whole vectors are stored, the last one included.
      int64_t count = llvm::alignTo(space.inner, kLanes);
      onStack += bytes;
      buffers[result] = onStack > kMaxStackBytes
                            ? function.allocateScratch(l, type, count)
                            : memref::AllocaOp::create(
                                  l.b, l.loc, MemRefType::get({count}, type),
                                  l.b.getI64IntegerAttr(train::kCacheLine));
    }
  }
}

/// Emits what does not vary at all, before the loop over rows.
void RowEmitter::emitUniform(LoopBuilder &l) {
  for (Operation &op : function.kernel.getBody().front().without_terminator()) {
    for (Value operand : op.getOperands())
      if (phases.levelOf(operand) == 0 && points.isUniform(operand))
        points.getScalar(l, operand);
    for (Value result : op.getResults())
      if (phases.levelOf(result) == 0 && points.isUniform(result) &&
          !isa<nn::IotaOp>(op))
        points.getScalar(l, result);
    bool reduced = llvm::any_of(op.getOperands(), [&](Value operand) {
      return phases.levelOf(operand) != 0;
    });
    if (isa<nn::MapOp>(op) && !points.isUniform(op.getResult(0)) && !reduced)
      points.prepareScalars(l, &op, /*uniformOnly=*/true);
  }
}

/// The vector ops that computing `value` in this phase needs.
void RowEmitter::collect(Value value, llvm::SetVector<Operation *> &ops) {
  auto isKnown = [&](Value value) {
    return !points.isVector(value) || isStored(value);
  };
  RowPhases::collect(value, isKnown, ops);
}

/// Vectors of this phase that are outputs or buffered.
SmallVector<Value> RowEmitter::vectorRoots() {
  llvm::SetVector<Value> roots;
  for (Value value : phases.outputsOf(phase))
    if (points.isVector(value))
      roots.insert(value);
  for (Operation &op : function.kernel.getBody().front())
    for (Value value : op.getResults())
      if (buffers.contains(value) && phases.levelOf(value) == phase)
        roots.insert(value);
  return roots.takeVector();
}

void RowEmitter::emitBody(LoopBuilder &l, Value at, Value mask,
                          SmallVectorImpl<Value> &accumulators) {
  DenseMap<Value, Value> memo;
  for (auto [i, reduce] : llvm::enumerate(phases.reductionsOf(phase))) {
    Value value = points.getVector(l, reduce.getInput(), at, mask, memo);
    Value identity = l.identity(reduce.getKind(), value.getType());
    if (mask)
      value = arith::SelectOp::create(l.b, l.loc, mask, value, identity);
    accumulators[i] = l.combine(reduce.getKind(), accumulators[i], value);
  }
  SmallVector<std::pair<Value, Value>> stores;
  for (Value root : vectorRoots())
    stores.push_back({root, points.getVector(l, root, at, mask, memo)});
  for (auto [root, value] : stores) {
    if (Value buffer = buffers.lookup(root))
      vector::StoreOp::create(l.b, l.loc, l.splat(value), buffer,
                              ValueRange(at));
    Type element = nn::getTensorType(root).getElementType();
    for (Value memref : function.outputs.lookup(root))
      points.storeOnce(l, root, Value(), [&](LoopBuilder &l) {
        l.storeVector(value, memref, l.add(points.offsetOf(l, root), at),
                      element, mask);
      });
  }
}

/// One loop over the inner dimension, from `low` to `high`; the masked rest, which
/// is at the end of the dimension, only if `isLast` (null: always).
void RowEmitter::emitPhase(LoopBuilder &l, Value low, Value high,
                           Value isLast) {
  SmallVector<nn::ReduceOp> reduces = phases.reductionsOf(phase);
  SmallVector<Value> roots = vectorRoots();
  if (reduces.empty() && roots.empty())
    return;
  bool hasVectors = llvm::any_of(reduces, [&](nn::ReduceOp reduce) {
    return points.isVector(reduce.getInput());
  });
  if (!hasVectors && roots.empty()) {
    // Reductions of single elements.
    for (nn::ReduceOp reduce : reduces) {
      Value value = points.getScalar(l, reduce.getInput());
      points.scalars[reduce.getResult()] =
          l.combine(reduce.getKind(),
                    l.identity(reduce.getKind(), value.getType()), value);
    }
    return;
  }
  llvm::SetVector<Operation *> ops;
  for (nn::ReduceOp reduce : reduces)
    collect(reduce.getInput(), ops);
  for (Value root : roots)
    collect(root, ops);
  for (Operation *op : ops)
    points.prepareScalars(l, op, /*uniformOnly=*/false);

  SmallVector<Value> accumulators;
  for (nn::ReduceOp reduce : reduces) {
    Type element = nn::getTensorType(reduce.getInput()).getElementType();
    accumulators.push_back(
        l.identity(reduce.getKind(),
                   VectorType::get({kLanes}, nn::getComputeType(element))));
  }
  if (space.inner >= kLanes) {
    auto loop = scf::ForOp::create(l.b, l.loc, low, high, l.index(kLanes),
                                   accumulators);
    OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
    LoopBuilder body{inner, l.loc};
    SmallVector<Value> next(loop.getRegionIterArgs());
    emitBody(body, loop.getInductionVar(), Value(), next);
    if (!next.empty())
      scf::YieldOp::create(inner, l.loc, next);
    accumulators.assign(loop.result_begin(), loop.result_end());
  }
  if (int64_t rest = space.inner % kLanes) {
    SmallVector<bool> bits(kLanes, false);
    std::fill_n(bits.begin(), rest, true);
    auto emitRest = [&](LoopBuilder &l) {
      Value mask = arith::ConstantOp::create(
          l.b, l.loc,
          DenseElementsAttr::get(VectorType::get({kLanes}, l.b.getI1Type()),
                                 bits));
      emitBody(l, l.index(space.inner - rest), mask, accumulators);
    };
    if (isLast) {
      auto branch = scf::IfOp::create(l.b, l.loc, isLast, /*withElse=*/false);
      OpBuilder inner = branch.getThenBodyBuilder();
      LoopBuilder then{inner, l.loc};
      emitRest(then);
    } else {
      emitRest(l);
    }
  }
  for (auto [reduce, accumulator] : llvm::zip(reduces, accumulators))
    points.scalars[reduce.getResult()] =
        l.combineLanes(reduce.getKind(), accumulator);
}

/// Stores the outputs of this phase that are one element per row.
void RowEmitter::emitScalarOutputs(LoopBuilder &l) {
  for (Value value : phases.outputsOf(phase)) {
    if (points.isVector(value))
      continue;
    Value scalar = points.getScalar(l, value);
    Type element = nn::getTensorType(value).getElementType();
    for (Value memref : function.outputs.lookup(value))
      points.storeOnce(l, value, isFirst, [&](LoopBuilder &l) {
        l.storeScalar(scalar, memref, points.offsetOf(l, value), element);
      });
  }
}

void RowEmitter::emitRow(LoopBuilder &l, Value low, Value high, Value isLast) {
  for (phase = 0; phase <= phases.count(); ++phase) {
    emitScalarOutputs(l);
    emitPhase(l, low, high, isLast);
  }
}

FailureOr<int64_t> RowEmitter::run() {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, function.kernel.getLoc()};
  findBuffers(l);
  points.loadStored = [&](LoopBuilder &l, Value value, Value at,
                          Value mask) -> Value {
    if (!isStored(value))
      return {};
    if (Value buffer = buffers.lookup(value))
      return vector::LoadOp::create(
          l.b, l.loc,
          VectorType::get({kLanes},
                          cast<MemRefType>(buffer.getType()).getElementType()),
          buffer, ValueRange(at));
    return l.loadVector(function.outputs.lookup(value).front(),
                        l.add(points.offsetOf(l, value), at),
                        nn::getTensorType(value).getElementType(), mask);
  };
  Value tile = function.tile;
  int64_t rows = space.outerSize(), tiles = 1;
  int64_t tileElements = std::max<int64_t>(
      kTileElements, llvm::alignTo(rows * space.inner / kMaxTiles, kLanes));
  int64_t whole = space.inner - space.inner % kLanes;
  if (space.outer.empty()) {
    // Cut along the inner dimension, or not at all.
    int64_t chunk = space.hasReductions ? space.inner : tileElements;
    tiles = std::max<int64_t>(1, llvm::divideCeil(space.inner, chunk));
    Value low = l.mul(tile, chunk);
    Value high = l.min(l.add(low, l.index(chunk)), l.index(whole));
    Value isLast;
    if (tiles == 1) {
      low = l.index(0);
      high = l.index(whole);
    } else {
      isLast = arith::CmpIOp::create(b, l.loc, arith::CmpIPredicate::eq, tile,
                                     l.index(tiles - 1));
      isFirst = arith::CmpIOp::create(b, l.loc, arith::CmpIPredicate::eq, tile,
                                      l.index(0));
    }
    emitUniform(l);
    emitRow(l, low, high, isLast);
  } else {
    int64_t rowsPerTile =
        std::max<int64_t>(1, tileElements / std::max<int64_t>(space.inner, 1));
    rowsPerTile = std::min(rowsPerTile, rows);
    tiles = llvm::divideCeil(rows, rowsPerTile);
    // Balance: as many rows in each tile as possible.
    rowsPerTile = llvm::divideCeil(rows, tiles);
    tiles = llvm::divideCeil(rows, rowsPerTile);
    emitUniform(l);
    Value begin = l.mul(tile, rowsPerTile);
    Value end = l.min(l.add(begin, l.index(rowsPerTile)), l.index(rows));
    auto loop = scf::ForOp::create(b, l.loc, begin, end, l.index(1));
    OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
    LoopBuilder body{inner, l.loc};
    row = loop.getInductionVar();
    points.setCoordinates(body, row);
    emitRow(body, body.index(0), body.index(whole), Value());
  }
  func::ReturnOp::create(b, l.loc);
  return tiles;
}

FailureOr<int64_t> trainc::emitRowKernel(KernelFunction &function,
                                         const IterationSpace &space) {
  return RowEmitter(function, space).run();
}
