//===- LowerKernelsToGPU.cpp - Turn kernels into code of GPU threads ------===//
//
// This pass gives every train.kernel a function of the same name in the gpu.module
// @gpu_kernels: on flat memrefs, for a grid of blocks of `threads`. The kernel keeps
// its body, as the definition, and gets the attributes `tiles` and `threads`.
//
//===----------------------------------------------------------------------===//
#include "Common/GenericKernel.h"
#include "EpilogueKernels.h"
#include "Threads.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Conversion/Passes.h"

#define DEBUG_TYPE "train-lower-kernels-to-gpu"

namespace trainc {
#define GEN_PASS_DEF_LOWERKERNELSTOGPUPASS
#include "trainc/Conversion/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Whether `op` is a gradient of an attention without what kernels of GPUs read.
static bool lacksDelta(Operation *op) {
  if (auto grad = dyn_cast<nn::AttentionGradOp>(op))
    return !grad.getDelta();
  auto grad = dyn_cast<nn::PackedAttentionGradOp>(op);
  return grad && !grad.getDelta();
}

/// Emits `kernel` by the emitter that fits; the number of blocks.
static FailureOr<int64_t> emitKernel(KernelOp kernel,
                                     KernelFunction &function) {
  SmallVector<Operation *> ops;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    if (reduce && reduce.getOrder() &&
        reduce.getOrder() != nn::ReduceOrder::threads)
      return reduce.emitOpError("expects the order threads on a GPU, got ")
             << stringifyReduceOrder(*reduce.getOrder())
             << "; run nn-decompose with 'gpu'";
    ops.push_back(&op);
  }
  if (llvm::all_of(ops, llvm::IsaPred<nn::PointwiseOpInterface, nn::ReduceOp,
                                      nn::ConstantOp, nn::IotaOp>)) {
    for (bool column : {false, true}) {
      auto space = IterationSpace::compute(ops, column);
      if (failed(space) || (column && !space->hasReductions))
        continue;
      return column ? emitColumnsOnGPU(function, *space)
                    : emitRowsOnGPU(function, *space);
    }
  }
  if (auto blocks = emitSegmentsOnGPU(function, ops))
    return *blocks;
  if (ops.size() == 1) {
    if (auto op = dyn_cast<SquareSumOp>(ops[0]))
      return emitSquareSumOnGPU(function, op);
    if (auto op = dyn_cast<SumBlocksOp>(ops[0]))
      return emitSumBlocksOnGPU(function, op);
    if (lacksDelta(ops[0]))
      return ops[0]->emitOpError(
          "expects delta on a GPU; run nn-decompose with 'gpu'");
    if (isa<nn::AttentionOp, nn::AttentionGradOp, nn::PackedAttentionOp,
            nn::PackedAttentionGradOp>(ops[0]))
      return emitAttentionOnGPU(function, ops[0]);
    if (auto blocks = emitConvolutionOnGPU(function, ops[0]))
      return *blocks;
    if (auto op = dyn_cast<nn::PadOp>(ops[0]))
      if (auto blocks = emitPadOnGPU(function, op))
        return *blocks;
    if (auto op = dyn_cast<nn::EmbeddingOp>(ops[0]))
      return emitEmbeddingOnGPU(function, op);
    if (auto op = dyn_cast<nn::EmbeddingGradOp>(ops[0]))
      return emitEmbeddingGradOnGPU(function, op);
  }
  return emitGeneric(function);
}

/// Replaces functions of which LLVM has an exact one by that: CUDA's library has an
/// approximate square root, and MLIR does not know its trunc. By way of f32 they are
/// exact in 16 bits, too.
static void useExactFunctions(gpu::GPUFuncOp kernel) {
  SmallVector<Operation *> ops;
  kernel.walk([&](Operation *op) {
    if (isa<math::SqrtOp, math::TruncOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    Value x = op->getOperand(0);
    Type type = x.getType(), wide = type;
    if (getElementTypeOrSelf(type).getIntOrFloatBitWidth() < 32) {
      wide = b.getF32Type();
      if (auto vector = dyn_cast<VectorType>(type))
        wide = vector.clone(wide);
      x = arith::ExtFOp::create(b, loc, wide, x);
    }
    StringRef name = isa<math::SqrtOp>(op) ? "llvm.sqrt" : "llvm.trunc";
    Value result = LLVM::CallIntrinsicOp::create(
                       b, loc, wide, b.getStringAttr(name), ValueRange(x))
                       .getResult(0);
    if (wide != type)
      result = arith::TruncFOp::create(b, loc, type, result);
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }
}

/// What an argument's address is a multiple of: arenas, their larger tensors and the
/// scratch begin at multiples of 16 at least, scalars stand side by side.
static int64_t alignmentOf(MemRefType type) {
  return nn::countBytes(type) < kVectorAlignment
             ? nn::getElementBytes(type.getElementType())
             : kVectorAlignment;
}

/// Moves `function` into `target`; the tile is the number of the block.
static void moveToGPU(func::FuncOp function, gpu::GPUModuleOp target) {
  OpBuilder b = OpBuilder::atBlockEnd(target.getBody());
  auto types = function.getArgumentTypes().drop_back();
  auto kernel =
      gpu::GPUFuncOp::create(b, function.getLoc(), function.getSymName(),
                             b.getFunctionType(types, TypeRange()));
  kernel->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  for (auto [i, type] : llvm::enumerate(types)) {
    kernel.setArgAttr(i, "llvm.noalias", b.getUnitAttr());
    kernel.setArgAttr(i, "llvm.align",
                      b.getI64IntegerAttr(alignmentOf(cast<MemRefType>(type))));
  }
  // A thread may have as many registers as these leave it.
  auto threads = function->getAttrOfType<IntegerAttr>("threads").getInt();
  kernel.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
  StringRef resident = NVVM::NVVMDialect::getMinctasmAttrName();
  if (Attribute blocks = function->getAttr(resident))
    kernel->setAttr(resident, blocks);
  Block &body = kernel.getBody().front();
  b.setInsertionPointToStart(&body);
  IRMapping mapping;
  mapping.map(function.getArguments().drop_back(), body.getArguments());
  mapping.map(function.getArguments().back(),
              gpu::BlockIdOp::create(b, function.getLoc(), gpu::Dimension::x)
                  .getResult());
  for (Operation &op : function.getBody().front().without_terminator())
    b.clone(op, mapping);
  gpu::ReturnOp::create(b, function.getLoc());
  useExactFunctions(kernel);
}

namespace {
struct LowerKernelsToGPUPass
    : trainc::impl::LowerKernelsToGPUPassBase<LowerKernelsToGPUPass> {
  using LowerKernelsToGPUPassBase::LowerKernelsToGPUPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto kernels = llvm::to_vector(module.getOps<KernelOp>());
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    auto scratch = ModuleOp::create(b, module.getLoc());
    auto target = gpu::GPUModuleOp::create(b, module.getLoc(), "gpu_kernels");
    for (KernelOp kernel : kernels) {
      KernelFunction function = createFunction(kernel, scratch);
      auto blocks = emitKernel(kernel, function);
      if (failed(blocks))
        return signalPassFailure();
      function.function->setAttr("tiles", b.getI64IntegerAttr(*blocks));
    }
    if (failed(lowerGenericKernels(scratch, [&](OpPassManager &pipeline) {
          return runPipeline(pipeline, scratch);
        })))
      return signalPassFailure();
    for (KernelOp kernel : kernels) {
      auto function = scratch.lookupSymbol<func::FuncOp>(kernel.getSymName());
      if (function->hasAttr("generic") && failed(distribute(function)))
        return signalPassFailure();
      kernel.setAbiAttr(abiOf(function));
    }
    b.setInsertionPointToStart(target.getBody());
    for (auto global : scratch.getOps<memref::GlobalOp>())
      b.clone(*global);
    for (auto function : scratch.getOps<func::FuncOp>())
      moveToGPU(function, target);
    scratch.erase();
    for (const std::string &name : epilogues)
      if (failed(addEpilogueKernel(target, name)))
        return signalPassFailure();
  }
};
} // namespace
