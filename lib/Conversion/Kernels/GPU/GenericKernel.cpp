//===- GenericKernel.cpp - Loops of linalg ops on a GPU -------------------===//
//
// A kernel that is one parallel nest has a thread for each of its points. One of
// several steps runs in one block, whose threads wait for each other between them.
//
//===----------------------------------------------------------------------===//
#include "Common/GenericKernel.h"
#include "Threads.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a block: of many, and of the only one.
static constexpr int64_t kThreads = 256, kThreadsOfOne = 1024;

/// The points of a nest, all of whose bounds are constants; nothing if one is not.
static std::optional<int64_t> countPoints(scf::ParallelOp nest) {
  if (nest.getNumReductions() != 0)
    return std::nullopt;
  int64_t points = 1;
  for (auto [low, high, step] :
       llvm::zip(nest.getLowerBound(), nest.getUpperBound(), nest.getStep())) {
    auto l = getConstantIntValue(low), h = getConstantIntValue(high),
         s = getConstantIntValue(step);
    if (!l || !h || !s || *l != 0 || *s != 1)
      return std::nullopt;
    points *= *h;
  }
  return points;
}

/// Moves the body of `nest` to where `l` stands, for the point of number `at`.
static void inlinePoint(LoopBuilder &l, scf::ParallelOp nest, Value at,
                        IRMapping mapping) {
  int64_t stride = 1;
  SmallVector<int64_t> sizes;
  for (Value high : nest.getUpperBound())
    sizes.push_back(*getConstantIntValue(high));
  for (int64_t size : sizes)
    stride *= size;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    stride /= size;
    Value coordinate = l.div(at, stride);
    mapping.map(nest.getInductionVars()[i],
                i == 0 ? coordinate : l.mod(coordinate, size));
  }
  for (Operation &op : nest.getBody()->without_terminator())
    l.b.clone(op, mapping);
}

/// Makes loops of the parallel nests within `function`.
static void makeSequential(func::FuncOp function) {
  SmallVector<scf::ParallelOp> nests;
  function.walk([&](scf::ParallelOp nest) { nests.push_back(nest); });
  for (scf::ParallelOp nest : nests) {
    assert(nest.getNumReductions() == 0 && "linalg's reductions are loops");
    OpBuilder b(nest);
    IRMapping mapping;
    for (auto [low, high, step, variable] :
         llvm::zip(nest.getLowerBound(), nest.getUpperBound(), nest.getStep(),
                   nest.getInductionVars())) {
      auto loop = scf::ForOp::create(b, nest.getLoc(), low, high, step);
      mapping.map(variable, loop.getInductionVar());
      b.setInsertionPointToStart(loop.getBody());
    }
    for (Operation &inner : nest.getBody()->without_terminator())
      b.clone(inner, mapping);
    nest.erase();
  }
}

/// Gives the buffers of `function` memory: a thread's own, or, of the only block's,
/// what blocks share.
static LogicalResult placeBuffers(func::FuncOp function) {
  SmallVector<memref::AllocOp> buffers;
  function.walk([&](memref::AllocOp buffer) { buffers.push_back(buffer); });
  for (memref::AllocOp buffer : buffers) {
    OpBuilder b(buffer);
    MemRefType type = buffer.getType();
    if (!type.hasStaticShape())
      return buffer.emitOpError("has no constant size, in a kernel for a GPU");
    Value memory;
    if (buffer->getBlock() == &function.getBody().front()) {
      KernelFunction kernel;
      kernel.function = function;
      ThreadBuilder t(b, buffer.getLoc(), kThreadsOfOne);
      memory = t.shareAmongBlocks(kernel, type.getElementType(),
                                  type.getNumElements());
      memory = memref::ReinterpretCastOp::create(
          b, buffer.getLoc(), type, memory, /*offset=*/0, type.getShape(),
          type.getStridesAndOffset().first);
    } else {
      memory = memref::AllocaOp::create(b, buffer.getLoc(), type);
    }
    buffer.replaceAllUsesWith(memory);
    buffer.erase();
  }
  return success();
}

/// The memref that `value` is or is a view of.
static Value viewed(Value value) {
  while (auto view = value.getDefiningOp<ViewLikeOpInterface>())
    value = view.getViewSource();
  return value;
}

/// Whether `op` reads an argument of `function` that the function does not write.
static bool readsInput(Operation *op, func::FuncOp function) {
  auto load = dyn_cast<memref::LoadOp>(op);
  if (!load)
    return false;
  Value from = viewed(load.getMemRef());
  return isa<BlockArgument>(from) &&
         !function
              .walk([&](memref::StoreOp store) {
                return viewed(store.getMemRef()) == from
                           ? WalkResult::interrupt()
                           : WalkResult::advance();
              })
              .wasInterrupted();
}

/// Whether all that `op` does to memory, itself and within, is to read it.
static bool onlyReads(Operation *op) {
  auto effects = getEffectsRecursively(op);
  return effects && llvm::all_of(*effects, [](auto &effect) {
           return isa<MemoryEffects::Read>(effect.getEffect());
         });
}

LogicalResult trainc::distribute(func::FuncOp function) {
  Block &body = function.getBody().front();
  SmallVector<Operation *> steps;
  for (Operation &op : body.without_terminator())
    if (!isMemoryEffectFree(&op) &&
        !isa<memref::AllocOp, memref::DeallocOp, memref::GetGlobalOp>(op) &&
        !readsInput(&op, function))
      steps.push_back(&op);
  auto only = steps.size() == 1 ? dyn_cast<scf::ParallelOp>(steps[0]) : nullptr;
  auto points = only ? countPoints(only) : std::nullopt;
  int64_t threads = points ? kThreads : kThreadsOfOne;
  OpBuilder attributes(function.getContext());
  function->setAttr("threads", attributes.getI64IntegerAttr(threads));
  function->setAttr("tiles",
                    attributes.getI64IntegerAttr(
                        points ? llvm::divideCeil(*points, threads) : 1));
  if (points) {
    OpBuilder b(only);
    ThreadBuilder t(b, only.getLoc(), threads);
    Value at = t.add(t.mul(body.getArguments().back(), threads), t.thread());
    t.when(t.less(at, t.index(*points)),
           [&](ThreadBuilder &t) { inlinePoint(t, only, at, IRMapping()); });
    only.erase();
    makeSequential(function);
    return placeBuffers(function);
  }
  for (Operation *op : steps) {
    OpBuilder b(op);
    // Every thread has what it reads, a reduction for example, and all have read it
    // before any of them goes on to write it.
    if (onlyReads(op)) {
      b.setInsertionPointAfter(op);
      ThreadBuilder(b, op->getLoc(), threads).barrier();
      continue;
    }
    ThreadBuilder t(b, op->getLoc(), threads);
    auto nest = dyn_cast<scf::ParallelOp>(op);
    if (auto points = nest ? countPoints(nest) : std::nullopt) {
      t.loop(t.thread(), t.index(*points), threads,
             [&](LoopBuilder &l, Value at) {
               inlinePoint(l, nest, at, IRMapping());
             });
    } else {
      if (op->getNumResults() != 0)
        return op->emitOpError("cannot be a step of a kernel for a GPU");
      Value first = arith::CmpIOp::create(b, t.loc, arith::CmpIPredicate::eq,
                                          t.thread(), t.index(0));
      t.when(first, [&](ThreadBuilder &t) { t.b.clone(*op); });
    }
    t.barrier();
    op->erase();
  }
  makeSequential(function);
  return placeBuffers(function);
}
