//===- ColumnKernel.cpp - Reductions over further-out dimensions ----------===//
//
// A tile is a point of the outer dimensions that are kept times a block of the
// inner dimension; it goes over the reduced dimensions in row-major order, with
// one accumulator per element of the block.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/KernelEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Vectors in a block at most: enough consecutive memory per reduced index, few
/// enough accumulators for the registers.
static constexpr int64_t kBlockVectors = 4;

/// Fewer where there would be few blocks for threads to share.
static int64_t vectorsPerBlock(int64_t inner) {
  constexpr int64_t enough = 8;
  return std::min<int64_t>(kBlockVectors,
                           llvm::divideCeil(inner, kLanes * enough));
}

namespace {
struct ColumnEmitter {
  ColumnEmitter(KernelFunction &function, const IterationSpace &space)
      : function(function), space(space), points(function, space),
        reduces(function.kernel.getBody().getOps<nn::ReduceOp>()) {}

  KernelFunction &function;
  const IterationSpace &space;
  PointEmitter points;
  SmallVector<nn::ReduceOp> reduces;

  int64_t run();

private:
  void emitBlock(LoopBuilder &l, Value begin, int64_t vectors, Value lastMask);
  void prepare(LoopBuilder &l);
};
} // namespace

/// Emits the scalars that the vectors of a point need.
void ColumnEmitter::prepare(LoopBuilder &l) {
  for (Operation &op : function.kernel.getBody().front().without_terminator())
    if (!isa<nn::ReduceOp>(op) && points.isVector(op.getResult(0)))
      points.prepareScalars(l, &op, /*uniformOnly=*/false);
}

void ColumnEmitter::emitBlock(LoopBuilder &l, Value begin, int64_t vectors,
                              Value lastMask) {
  SmallVector<Value> accumulators;
  for (nn::ReduceOp reduce : reduces) {
    Type element = nn::getTensorType(reduce.getInput()).getElementType();
    Value identity =
        l.identity(reduce.getKind(),
                   VectorType::get({kLanes}, nn::getComputeType(element)));
    accumulators.append(vectors, identity);
  }
  int64_t count = 1;
  for (auto [size, reduced] : llvm::zip(space.outer, space.reduced))
    if (reduced)
      count *= size;
  auto loop = scf::ForOp::create(l.b, l.loc, l.index(0), l.index(count),
                                 l.index(1), accumulators);
  OpBuilder inner = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder body{inner, l.loc};
  points.setCoordinates(body, loop.getInductionVar(), space.reduced);
  auto scalars = points.scalars;
  auto regionScalars = points.regionScalars;
  prepare(body);
  SmallVector<Value> next(loop.getRegionIterArgs());
  for (int64_t v = 0; v < vectors; ++v) {
    DenseMap<Value, Value> memo;
    Value at = body.add(begin, body.index(v * kLanes));
    Value mask = v + 1 == vectors ? lastMask : Value();
    for (auto [i, reduce] : llvm::enumerate(reduces)) {
      Value value = points.getVector(body, reduce.getInput(), at, mask, memo);
      Value &accumulator = next[i * vectors + v];
      accumulator = body.combine(reduce.getKind(), accumulator, value);
    }
  }
  scf::YieldOp::create(inner, l.loc, next);
  points.scalars = scalars;
  points.regionScalars = regionScalars;

  for (auto [i, reduce] : llvm::enumerate(reduces)) {
    Type element = nn::getTensorType(reduce.getResult()).getElementType();
    for (Value memref : function.outputs.lookup(reduce.getResult()))
      for (int64_t v = 0; v < vectors; ++v) {
        Value at = l.add(l.add(points.offsetOf(l, reduce.getResult()), begin),
                         l.index(v * kLanes));
        l.storeVector(loop.getResult(i * vectors + v), memref, at, element,
                      v + 1 == vectors ? lastMask : Value());
      }
  }
}

int64_t ColumnEmitter::run() {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, function.kernel.getLoc()};
  int64_t vectors = vectorsPerBlock(space.inner), block = vectors * kLanes;
  int64_t kept = 1;
  for (auto [size, reduced] : llvm::zip(space.outer, space.reduced))
    if (!reduced)
      kept *= size;
  int64_t blocks = llvm::divideCeil(space.inner, block);
  SmallVector<bool> isKept =
      llvm::map_to_vector(space.reduced, [](bool reduced) { return !reduced; });
  points.setCoordinates(l, l.div(function.tile, blocks), isKept);
  Value position = kept == 1 ? function.tile : l.mod(function.tile, blocks);
  Value begin = l.mul(position, block);
  int64_t whole = space.inner / block, rest = space.inner % block;
  auto emitRest = [&](LoopBuilder &l) {
    Value mask;
    if (int64_t lanes = rest % kLanes) {
      SmallVector<bool> bits(kLanes, false);
      std::fill_n(bits.begin(), lanes, true);
      mask = arith::ConstantOp::create(
          l.b, l.loc,
          DenseElementsAttr::get(VectorType::get({kLanes}, l.b.getI1Type()),
                                 bits));
    }
    emitBlock(l, begin, llvm::divideCeil(rest, kLanes), mask);
  };
  if (rest == 0) {
    emitBlock(l, begin, vectors, Value());
  } else if (whole == 0) {
    emitRest(l);
  } else {
    Value isWhole = arith::CmpIOp::create(b, l.loc, arith::CmpIPredicate::ult,
                                          position, l.index(whole));
    auto branch = scf::IfOp::create(b, l.loc, isWhole, /*withElse=*/true);
    OpBuilder thenBuilder = branch.getThenBodyBuilder();
    OpBuilder elseBuilder = branch.getElseBodyBuilder();
    LoopBuilder then{thenBuilder, l.loc}, otherwise{elseBuilder, l.loc};
    auto coordinates = points.coordinates;
    emitBlock(then, begin, vectors, Value());
    points.coordinates = coordinates;
    emitRest(otherwise);
  }
  func::ReturnOp::create(b, l.loc);
  return kept * blocks;
}

FailureOr<int64_t> trainc::emitColumnKernel(KernelFunction &function,
                                            const IterationSpace &space) {
  return ColumnEmitter(function, space).run();
}

int64_t trainc::emitSquareSum(KernelFunction &function, train::SquareSumOp op) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, op.getLoc()};
  RankedTensorType type = nn::getTensorType(op.getInput());
  Type element = type.getElementType(), f64 = b.getF64Type();
  auto vectorType = VectorType::get({kLanes}, f64);
  int64_t count = type.getNumElements(), block = op.getBlock();
  int64_t blocks = llvm::divideCeil(count, block);
  constexpr int64_t blocksPerTile = 8;
  int64_t tiles = llvm::divideCeil(blocks, blocksPerTile);
  Value input = function.inputs.lookup(op.getInput());
  Value output = function.outputs.lookup(op.getResult()).front();
  Value begin = l.mul(function.tile, blocksPerTile);
  Value end = l.min(l.add(begin, l.index(blocksPerTile)), l.index(blocks));
  auto outer = scf::ForOp::create(b, l.loc, begin, end, l.index(1));
  OpBuilder inner = OpBuilder::atBlockBegin(outer.getBody());
  LoopBuilder body{inner, l.loc};
  Value low = body.mul(outer.getInductionVar(), block);
  Value high = body.min(body.add(low, body.index(block)), body.index(count));
  Value zero = nn::splatConstant(inner, l.loc, vectorType, 0.0);
  // Every vector is masked by the end of its block; only the last one needs it.
  auto loop = scf::ForOp::create(inner, l.loc, low, high, body.index(kLanes),
                                 ValueRange(zero));
  OpBuilder deepest = OpBuilder::atBlockBegin(loop.getBody());
  LoopBuilder step{deepest, l.loc};
  Value at = loop.getInductionVar();
  auto accumulate = [&](LoopBuilder &l, Value mask) -> Value {
    Value x = l.toF64(l.loadVector(input, at, element, mask));
    return math::FmaOp::create(l.b, l.loc, x, x, loop.getRegionIterArg(0));
  };
  Value isWhole =
      arith::CmpIOp::create(deepest, l.loc, arith::CmpIPredicate::ule,
                            step.add(at, step.index(kLanes)), high);
  auto branch =
      scf::IfOp::create(deepest, l.loc, TypeRange(vectorType), isWhole,
                        /*withElse=*/true);
  {
    OpBuilder then = branch.getThenBodyBuilder();
    LoopBuilder t{then, l.loc};
    scf::YieldOp::create(then, l.loc, accumulate(t, Value()));
    OpBuilder otherwise = branch.getElseBodyBuilder();
    LoopBuilder e{otherwise, l.loc};
    Value rest = arith::SubIOp::create(otherwise, l.loc, high, at);
    scf::YieldOp::create(otherwise, l.loc, accumulate(e, e.maskBelow(rest)));
  }
  scf::YieldOp::create(deepest, l.loc, branch.getResults());
  Value sum = body.combineLanes(nn::ReduceKind::sum, loop.getResult(0));
  body.storeScalar(sum, output, outer.getInductionVar(), f64);
  func::ReturnOp::create(b, l.loc);
  return tiles;
}
