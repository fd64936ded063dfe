//===- GenericKernel.cpp - Kernels without an emitter of their own --------===//
//
// The ops of the kernel on tensors, between views of the operands: the passes of
// lowerGenericKernels turn them into linalg ops, bufferize, and make loops. Where
// one parallel nest results, its outermost dimension is cut into tiles.
//
//===----------------------------------------------------------------------===//
#include "GenericKernel.h"
#include "KernelEmitter.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Most tiles that a parallel nest is cut into.
static constexpr int64_t kMaxTiles = 64;

/// `memref`, flat, as a memref of shape `shape`.
static Value reshapeMemref(OpBuilder &b, Location loc, Value memref,
                           ArrayRef<int64_t> shape) {
  auto from = cast<MemRefType>(memref.getType());
  auto type = MemRefType::get(shape, from.getElementType());
  SmallVector<ReassociationIndices> groups(1);
  if (shape.empty())
    return memref::CollapseShapeOp::create(b, loc, type, memref,
                                           ArrayRef<ReassociationIndices>());
  for (size_t i = 0; i < shape.size(); ++i)
    groups[0].push_back(i);
  return memref::ExpandShapeOp::create(b, loc, type, memref, groups);
}

FailureOr<int64_t> trainc::emitGeneric(KernelFunction &function) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  Location loc = function.kernel.getLoc();
  IRMapping mapping;
  Block &body = function.kernel.getBody().front();
  Type i1 = b.getI1Type();
  for (BlockArgument argument : body.getArguments()) {
    RankedTensorType type = nn::getTensorType(argument);
    Value memref = reshapeMemref(b, loc, function.inputs.lookup(argument),
                                 type.getShape());
    auto stored = type.clone(getStorageType(type.getElementType()));
    Value tensor = bufferization::ToTensorOp::create(b, loc, stored, memref,
                                                     /*restrict=*/true,
                                                     /*writable=*/false);
    if (type.getElementType() == i1)
      tensor = nn::CastOp::create(b, loc, tensor, i1);
    mapping.map(argument, tensor);
  }
  for (Operation &op : body.without_terminator())
    b.clone(op, mapping);
  DenseMap<Value, size_t> next;
  for (Value value : body.getTerminator()->getOperands()) {
    RankedTensorType type = nn::getTensorType(value);
    Value memref = function.outputs.lookup(value)[next[value]++];
    memref = reshapeMemref(b, loc, memref, type.getShape());
    Value tensor = mapping.lookup(value);
    if (type.getElementType() == i1)
      tensor = nn::CastOp::create(b, loc, tensor, b.getI8Type());
    auto materialize = bufferization::MaterializeInDestinationOp::create(
        b, loc, TypeRange(), tensor, memref);
    materialize.setRestrict(true);
    materialize.setWritable(true);
  }
  func::ReturnOp::create(b, loc);
  function.function->setAttr("generic", b.getUnitAttr());
  return 1;
}

/// The memref that `value` is a view of, through changes of shape.
static Value viewed(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<memref::ExpandShapeOp, memref::CollapseShapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Makes what `copy` copies stand at its destination, if that is an argument of
/// the function that nothing else uses.
static LogicalResult computeInPlace(memref::CopyOp copy) {
  auto from = viewed(copy.getSource()).getDefiningOp<memref::AllocOp>();
  auto to = dyn_cast<BlockArgument>(viewed(copy.getTarget()));
  if (!from || !to || from->getBlock() != to.getOwner() ||
      from.getType().getNumElements() !=
          cast<MemRefType>(to.getType()).getNumElements())
    return failure();
  for (Value view = copy.getTarget();;
       view = view.getDefiningOp()->getOperand(0)) {
    if (!view.hasOneUse())
      return failure();
    if (view == to)
      break;
  }
  OpBuilder b(from);
  from.replaceAllUsesWith(
      reshapeMemref(b, copy.getLoc(), to, from.getType().getShape()));
  from.erase();
  copy.erase();
  return success();
}

/// Computes results where they belong instead of copying them, and makes what
/// copies remain loops.
static void removeCopies(func::FuncOp function) {
  SmallVector<memref::CopyOp> copies;
  function.walk([&](memref::CopyOp copy) { copies.push_back(copy); });
  for (memref::CopyOp copy : copies) {
    if (succeeded(computeInPlace(copy)))
      continue;
    OpBuilder b(copy);
    linalg::CopyOp::create(b, copy.getLoc(), copy.getSource(),
                           copy.getTarget());
    copy.erase();
  }
}

void trainc::freeBuffers(func::FuncOp function) {
  function.walk([](memref::AllocOp alloc) {
    Operation *end = alloc->getBlock()->getTerminator();
    assert(!llvm::is_contained(end->getOperands(), alloc.getResult()) &&
           "buffers stay in their block");
    OpBuilder b(end);
    memref::DeallocOp::create(b, alloc.getLoc(), alloc);
  });
}

/// Passes from the functions of emitGeneric to linalg ops on memrefs.
static void buildBufferizePipeline(OpPassManager &pm) {
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createNNToLinalgPass());
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  function.addPass(createLinalgElementwiseOpFusionPass());
  function.addPass(createCanonicalizerPass());
  function.addPass(createCSEPass());
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  pm.addPass(bufferization::createEmptyTensorToAllocTensorPass());
  bufferization::OneShotBufferizePassOptions options;
  options.bufferizeFunctionBoundaries = false;
  pm.addPass(bufferization::createOneShotBufferizePass(options));
  pm.addPass(createCanonicalizerPass());
}

/// Passes from linalg ops on memrefs to loops.
static void buildLoopsPipeline(OpPassManager &pm) {
  OpPassManager &buffers = pm.nest<func::FuncOp>();
  buffers.addPass(bufferization::createBufferHoistingPass());
  buffers.addPass(createConvertLinalgToParallelLoopsPass());
  buffers.addPass(memref::createFoldMemRefAliasOpsPass());
  buffers.addPass(createCanonicalizerPass());
  buffers.addPass(createCSEPass());
  buffers.addPass(createLoopInvariantCodeMotionPass());
}

LogicalResult
trainc::lowerGenericKernels(ModuleOp module,
                            function_ref<LogicalResult(OpPassManager &)> run) {
  OpPassManager bufferize(ModuleOp::getOperationName());
  OpPassManager loops(ModuleOp::getOperationName());
  buildBufferizePipeline(bufferize);
  buildLoopsPipeline(loops);
  if (failed(run(bufferize)))
    return failure();
  for (auto function : module.getOps<func::FuncOp>())
    removeCopies(function);
  return run(loops);
}

/// Whether `op` may stand in every tile: it does nothing that another tile sees.
static bool isReplicated(Operation &op) {
  return isMemoryEffectFree(&op) || isa<memref::GetGlobalOp>(op);
}

int64_t trainc::cutIntoTiles(func::FuncOp function) {
  Block &body = function.getBody().front();
  scf::ParallelOp nest;
  for (Operation &op : body.without_terminator()) {
    if (auto parallel = dyn_cast<scf::ParallelOp>(op)) {
      if (nest || parallel.getNumReductions() != 0)
        return 1;
      nest = parallel;
    } else if (!isReplicated(op)) {
      return 1;
    }
  }
  if (!nest)
    return 1;
  auto bound = [](Value value) { return getConstantIntValue(value); };
  auto low = bound(nest.getLowerBound()[0]),
       high = bound(nest.getUpperBound()[0]), step = bound(nest.getStep()[0]);
  if (!low || !high || !step || *low != 0 || *step != 1 || *high < 2)
    return 1;
  int64_t chunk = llvm::divideCeil(*high, kMaxTiles);
  int64_t tiles = llvm::divideCeil(*high, chunk);
  OpBuilder b(nest);
  LoopBuilder l{b, nest.getLoc()};
  Value begin = l.mul(body.getArguments().back(), chunk);
  Value end = l.min(l.add(begin, l.index(chunk)), l.index(*high));
  nest.getLowerBoundMutable()[0].assign(begin);
  nest.getUpperBoundMutable()[0].assign(end);
  return tiles;
}
