//===- Pipelines.cpp - The order of the passes ----------------------------===//
#include "trainc/Pipelines/Pipelines.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Transforms/Passes.h"
#include "llvm/ADT/SmallVectorExtras.h"
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
      "canonicalize",         "fuse-kernels",          "reuse-memory",
      "train-choose-saved",   "train-coalesce",        "train-defer-gather",
      "train-defer-reduce",   "train-form-loss-heads", "train-fuse-epilogues",
      "train-fuse-optimizer", "train-hoist-casts",     "train-merge-launches",
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

namespace {
/// The passes of a phase, in their order.
class Phase {
public:
  Phase(Form form, const PipelineOptions &options) : options(options) {
    switch (form) {
    case Form::Source:
      return;
    case Form::Gradients:
      addGradients();
      break;
    case Form::Plan:
      addPlan();
      break;
    case Form::Commands:
      addCommands();
      break;
    case Form::Target:
      addTarget();
      break;
    }
    if (form != Form::Target)
      add(createVerifyFormPass({static_cast<int64_t>(form)}));
    swap();
  }

  struct Entry {
    std::unique_ptr<Pass> pass;
    bool inKernels;

    StringRef name() const { return pass->getArgument(); }
  };
  MutableArrayRef<Entry> entries() { return passes; }

private:
  bool enabled(StringRef pass) const {
    return !options.disabled.contains(pass);
  }
  /// Whether a pass runs that makes the step faster or smaller.
  bool optimizes(StringRef pass) const {
    return enabled(pass) && !options.reference;
  }
  void add(std::unique_ptr<Pass> pass, bool inKernels = false) {
    passes.push_back({std::move(pass), inKernels});
  }
  void addGradients();
  void addPlan();
  void addCommands();
  void addTarget();
  void swap();

  const PipelineOptions &options;
  SmallVector<Entry> passes;
};
} // namespace

void Phase::addGradients() {
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
  // After it is known which classes a rank has; before their gradients are built.
  if (enabled("train-form-loss-heads"))
    add(createFormLossHeadsPass());
  add(createDifferentiatePass());
}

void Phase::addPlan() {
  add(createPlanStepPass());
  add(createGradientMergePass());
  if (optimizes("train-hoist-casts"))
    add(createHoistCastsPass());
  // Not coalesced, each parameter has a bucket, and so norms and updates, of its own.
  add(createFormBucketsPass(
      {enabled("train-coalesce") ? options.bucketSize : 0}));
  if (optimizes("train-fuse-optimizer") && enabled("train-coalesce"))
    add(createFuseOptimizerPass());
  add(createShardPass({options.shard, options.mergeBuffer}));
}

void Phase::addCommands() {
  bool onGPU = options.target == Target::CUDA;
  add(createCoalescePass({options.alignSize}));
  add(createOutlineListsPass());
  add(createExpandUpdatesPass());
  add(createDecomposePass({/*gpu=*/onGPU}));
  if (enabled("canonicalize"))
    add(createCanonicalizerPass());
  // Before kernels are formed: what GEMMs take is in none of them. Under a limit of
  // memory gelu stays apart where that changes no bits: it is cheap to compute again.
  if (optimizes("train-fuse-epilogues") && (onGPU || !options.memoryLimit))
    add(createFuseEpiloguesPass({/*geluOnly=*/!onGPU, /*gradients=*/!onGPU}));
  // After epilogues: what they keep is not computed again. Without kernels of several ops
  // all that is computed again would stand in memory.
  if (optimizes("train-choose-saved") && optimizes("fuse-kernels"))
    add(createChooseSavedPass());
  add(createFormKernelsPass({/*fuse=*/optimizes("fuse-kernels"), onGPU}));
  if (onGPU && enabled("train-merge-launches"))
    add(createMergeLaunchesPass());
  const GemmTarget &gemm = options.gemm;
  add(createPlanGemmsPass({onGPU, gemm.tf32, gemm.vector, gemm.avx512,
                           gemm.bf16, gemm.amx, gemm.doublePumped, gemm.own,
                           gemm.splitF32, gemm.cores}));
  add(createCSEPass(), /*inKernels=*/true);
  if (optimizes("train-prefetch"))
    add(createPrefetchPass());
  if (optimizes("train-defer-reduce"))
    add(createDeferReducePass());
  RecomputePassOptions recompute;
  recompute.limit = options.memoryLimit;
  recompute.gpu = onGPU;
  for (const auto &[name, rate] : options.rates)
    recompute.rates.push_back(llvm::formatv("{0}={1:E9}", name, rate).str());
  add(createRecomputePass(recompute));
  add(createPlanMemoryPass({/*reuse=*/optimizes("reuse-memory")}));
  if (optimizes("train-overlap-reduce"))
    add(createOverlapReducePass());
  if (optimizes("train-defer-gather"))
    add(createDeferGatherPass());
}

/// Of a GPU the passes of `buildLowerToNVVM` come after these.
void Phase::addTarget() {
  if (options.target == Target::CUDA) {
    LowerKernelsToGPUPassOptions lower;
    lower.epilogues = options.epilogues;
    add(createLowerKernelsToGPUPass(lower));
    return;
  }
  LowerKernelsPassOptions lower;
  lower.generic = options.reference;
  lower.amx = options.amx;
  lower.splitF32 = options.gemm.splitF32;
  lower.registerBytes = options.registerBytes;
  add(createLowerKernelsPass(lower));
  add(createVerifyFormPass({/*form=*/4}));
  add(createKernelsToLLVMPass({options.portableBits}));
}

void Phase::swap() {
  const auto &[first, second] = options.swapped;
  for (size_t i = 1; i < passes.size(); ++i)
    if (passes[i - 1].name() == first && passes[i].name() == second)
      return std::swap(passes[i - 1], passes[i]);
}

SmallVector<StringRef> trainc::listPasses(Form form,
                                          const PipelineOptions &options) {
  Phase phase(form, options);
  return llvm::map_to_vector(phase.entries(),
                             [](auto &entry) { return entry.name(); });
}

void trainc::buildPhase(OpPassManager &pm, Form form,
                        const PipelineOptions &options) {
  Phase phase(form, options);
  for (auto &[pass, inKernels] : phase.entries()) {
    StringRef name = pass->getArgument();
    if (inKernels)
      pm.addNestedPass<train::KernelOp>(std::move(pass));
    else
      pm.addPass(std::move(pass));
    // The command line was checked when it was read.
    if (!options.inserted.empty() &&
        (options.insertAfter.empty() || options.insertAfter == name))
      (void)parsePassPipeline(options.inserted, pm);
  }
  if (form == Form::Target && options.target == Target::CUDA)
    buildLowerToNVVM(pm);
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
