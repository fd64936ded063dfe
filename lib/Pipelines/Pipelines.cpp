//===- Pipelines.cpp - The order of the passes ----------------------------===//
#include "trainc/Pipelines/Pipelines.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace trainc;

static constexpr llvm::StringLiteral kFormNames[] = {
    "source", "gradients", "plan", "commands", "target"};

StringRef trainc::formName(Form form) {
  return kFormNames[static_cast<size_t>(form)];
}

std::optional<Form> trainc::formFromName(StringRef name) {
  for (size_t i = 0; i < std::size(kFormNames); ++i)
    if (kFormNames[i] == name)
      return static_cast<Form>(i);
  return std::nullopt;
}

ArrayRef<StringRef> trainc::disablablePasses() {
  static const StringRef passes[] = {
      "canonicalize",         "fuse-kernels",       "reuse-memory",
      "train-coalesce",       "train-defer-reduce", "train-fuse-epilogues",
      "train-fuse-optimizer", "train-hoist-casts",  "train-merge-launches",
      "train-overlap-reduce", "train-prefetch"};
  return passes;
}

void trainc::buildLowerToNVVM(OpPassManager &pm) {
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(createConvertNVGPUToNVVMPass());
  kernels.addPass(createConvertVectorToSCFPass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createConvertVectorToLLVMPass());
  ConvertGpuOpsToNVVMOpsOptions options;
  options.useBarePtrCallConv = true;
  kernels.addPass(createConvertGpuOpsToNVVMOps(options));
  kernels.addPass(createConvertNVVMToLLVMPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
}

void trainc::buildPhase(OpPassManager &pm, Form form,
                        const PipelineOptions &options) {
  auto enabled = [&](StringRef pass) {
    return !options.disabled.contains(pass);
  };
  auto insertAfter = [&](StringRef pass) {
    // The command line was checked when it was read.
    if (!options.inserted.empty() &&
        (options.insertAfter.empty() || options.insertAfter == pass))
      (void)parsePassPipeline(options.inserted, pm);
  };
  auto add = [&](std::unique_ptr<Pass> pass) {
    StringRef name = pass->getArgument();
    pm.addPass(std::move(pass));
    insertAfter(name);
  };
  switch (form) {
  case Form::Source:
    return;
  case Form::Gradients:
    add(createVerifyFormPass({/*form=*/0}));
    if (!options.mesh.empty()) {
      SetMeshPassOptions mesh;
      for (const auto &[axis, size] : options.mesh)
        mesh.axes.push_back(axis + "=" + std::to_string(size));
      add(createSetMeshPass(mesh));
    }
    add(createInlineCallsPass());
    // Before anything folds: sites are numbered in the order of the source.
    add(createAssignRandomPass());
    // Before gradients: those of casts make the gradients of parameters f32.
    add(createInsertCastsPass());
    // After dropouts are numbered, as in the whole; before gradients, which are then
    // those of one rank.
    add(createPartitionPass());
    add(createExpandOptimizersPass());
    if (enabled("canonicalize"))
      add(createCanonicalizerPass());
    add(createDifferentiatePass());
    break;
  case Form::Plan:
    add(createPlanStepPass());
    add(createGradientMergePass());
    if (enabled("train-hoist-casts") && !options.reference)
      add(createHoistCastsPass());
    add(createFormBucketsPass(
        {options.bucketSize, /*separate=*/!enabled("train-coalesce")}));
    if (enabled("train-fuse-optimizer") && enabled("train-coalesce") &&
        !options.reference)
      add(createFuseOptimizerPass());
    add(createShardPass({options.shard, options.mergeBuffer}));
    break;
  case Form::Commands: {
    add(createCoalescePass({options.alignSize}));
    add(createOutlineListsPass());
    add(createExpandUpdatesPass());
    add(createDecomposePass({/*gpu=*/options.target == Target::CUDA}));
    if (enabled("canonicalize"))
      add(createCanonicalizerPass());
    // Before kernels are formed: what GEMMs take is in none of them. Under a limit of
    // memory gelu stays apart where that changes no bits: it is cheap to compute again.
    bool onGPU = options.target == Target::CUDA;
    if (enabled("train-fuse-epilogues") && !options.reference &&
        (onGPU || !options.memoryLimit))
      add(createFuseEpiloguesPass({/*geluOnly=*/!onGPU}));
    FormKernelsPassOptions kernels;
    kernels.fuse = enabled("fuse-kernels") && !options.reference;
    add(createFormKernelsPass(kernels));
    if (options.target == Target::CUDA && enabled("train-merge-launches"))
      add(createMergeLaunchesPass());
    pm.addNestedPass<train::KernelOp>(createCSEPass());
    insertAfter("cse");
    if (enabled("train-prefetch") && !options.reference)
      add(createPrefetchPass());
    if (enabled("train-defer-reduce") && !options.reference)
      add(createDeferReducePass());
    RecomputePassOptions recompute;
    recompute.limit = options.memoryLimit;
    recompute.gpu = onGPU;
    for (const auto &[name, rate] : options.rates)
      recompute.rates.push_back(llvm::formatv("{0}={1:E9}", name, rate).str());
    add(createRecomputePass(recompute));
    PlanMemoryPassOptions memory;
    memory.reuse = enabled("reuse-memory") && !options.reference;
    add(createPlanMemoryPass(memory));
    if (enabled("train-overlap-reduce") && !options.reference)
      add(createOverlapReducePass());
    break;
  }
  case Form::Target: {
    if (options.target == Target::CUDA) {
      LowerKernelsToGPUPassOptions lower;
      lower.epilogues = options.epilogues;
      add(createLowerKernelsToGPUPass(lower));
      buildLowerToNVVM(pm);
      return;
    }
    LowerKernelsPassOptions lower;
    lower.generic = options.reference;
    lower.amx = options.amx;
    lower.splitF32 = options.splitF32;
    lower.registerBytes = options.registerBytes;
    add(createLowerKernelsPass(lower));
    add(createVerifyFormPass({/*form=*/4}));
    add(createKernelsToLLVMPass());
    return;
  }
  }
  VerifyFormPassOptions verify;
  verify.form = static_cast<int64_t>(form);
  add(createVerifyFormPass(verify));
}

void trainc::registerPipelines() {
  static std::string arguments[5], descriptions[5];
  for (size_t i = 1; i < std::size(kFormNames); ++i) {
    arguments[i] = ("trainc-to-" + kFormNames[i]).str();
    descriptions[i] = ("All passes from source to form " + std::to_string(i) +
                       ", " + kFormNames[i].str());
    registerPassPipeline(
        arguments[i], descriptions[i],
        [i](OpPassManager &pm, StringRef text,
            function_ref<LogicalResult(const Twine &)> error) -> LogicalResult {
          if (!text.empty())
            return error("takes no options");
          for (size_t form = 1; form <= i; ++form)
            buildPhase(pm, static_cast<Form>(form), PipelineOptions());
          return success();
        },
        [](function_ref<void(const detail::PassOptions &)>) {});
  }
}
