//===- LowerKernels.cpp - Turn kernels into loops on memrefs --------------===//
//
// This pass gives every train.kernel a function in the nested module @kernels: on
// flat memrefs and a tile index, with explicit vectors. The kernel keeps its body,
// as the definition, and gets the attribute `tiles`.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/GenericKernel.h"
#include "Common/KernelEmitter.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "trainc/Conversion/Passes.h"

#define DEBUG_TYPE "train-lower-kernels"

namespace trainc {
#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "trainc/Conversion/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Emits `kernel` by the emitter that fits; the number of tiles.
static FailureOr<int64_t> emitKernel(KernelOp kernel, KernelFunction &function,
                                     bool generic, Tiles tiles) {
  SmallVector<Operation *> ops;
  bool points = true;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    if (reduce && reduce.getOrder() == nn::ReduceOrder::threads)
      return reduce.emitOpError("expects an order of CPUs, got threads; run "
                                "nn-decompose without 'gpu'");
    points &=
        isa<nn::PointwiseOpInterface, nn::ReduceOp, nn::ConstantOp, nn::IotaOp>(
            op);
    ops.push_back(&op);
  }
  if (Operation *segments = findSegments(function, ops)) {
    if (auto op = dyn_cast<SegmentMapOp>(segments))
      return emitSegmentMap(function, op);
    return emitSegmentSquareSum(function, cast<SegmentSquareSumOp>(segments));
  }
  if (ops.size() == 1) {
    if (auto op = dyn_cast<SquareSumOp>(ops[0]))
      return emitSquareSum(function, op);
    if (auto op = dyn_cast<SumBlocksOp>(ops[0]))
      return emitSumBlocks(function, op);
  }
  if (ops.size() == 1 && !generic &&
      isa<nn::AttentionOp, nn::AttentionGradOp, nn::PackedAttentionOp,
          nn::PackedAttentionGradOp>(ops[0]))
    return emitAttention(function, ops[0], tiles);
  if (ops.size() == 1 && !generic)
    if (auto embedding = dyn_cast<nn::EmbeddingGradOp>(ops[0]))
      return emitEmbeddingGrad(function, embedding);
  if (ops.size() == 1 && !generic)
    if (auto sort = dyn_cast<nn::SortOp>(ops[0]))
      return emitSort(function, sort);
  if (ops.size() == 1 && !generic && !isa<nn::Conv2dWeightGradOp>(ops[0]))
    if (auto shape = getConvolution(ops[0]))
      return emitConvolution(function, ops[0], *shape);
  if (ops.size() == 1 && !generic &&
      isa<nn::MaxPool2dOp, nn::MaxPool2dGradOp, nn::AvgPool2dOp,
          nn::AvgPool2dGradOp>(ops[0]))
    return emitPool(function, ops[0]);
  if (points && !generic) {
    for (bool column : {false, true}) {
      auto space = IterationSpace::compute(ops, column);
      if (failed(space) || (column && !space->hasReductions))
        continue;
      return column ? emitColumnKernel(function, *space)
                    : emitRowKernel(function, *space);
    }
  }
  return emitGeneric(function);
}

namespace {
struct LowerKernelsPass : trainc::impl::LowerKernelsPassBase<LowerKernelsPass> {
  using LowerKernelsPassBase::LowerKernelsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto kernels = llvm::to_vector(module.getOps<KernelOp>());
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    auto nested = ModuleOp::create(b, module.getLoc(), "kernels");
    SymbolTable symbols(nested);
    for (KernelOp kernel : kernels) {
      KernelFunction function = createFunction(kernel, nested);
      function.registerBytes = registerBytes;
      auto tiles = emitKernel(kernel, function, generic,
                              !amx       ? Tiles::None
                              : splitF32 ? Tiles::All
                                         : Tiles::BF16);
      if (failed(tiles))
        return signalPassFailure();
      function.function->setAttr("tiles", b.getI64IntegerAttr(*tiles));
    }
    if (failed(lowerGenericKernels(nested, [&](OpPassManager &pipeline) {
          return runPipeline(pipeline, nested);
        })))
      return signalPassFailure();
    for (auto function : nested.getOps<func::FuncOp>())
      freeBuffers(function);
    for (KernelOp kernel : kernels) {
      auto function = nested.lookupSymbol<func::FuncOp>(kernel.getSymName());
      if (function->hasAttr("generic")) {
        ++numGeneric;
        function->setAttr("tiles", b.getI64IntegerAttr(cutIntoTiles(function)));
      }
      kernel.setAbiAttr(abiOf(function));
    }
  }
};
} // namespace
