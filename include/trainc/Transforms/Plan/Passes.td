//===- Passes.td - From gradients to the step plan (form 1 to 2) -*- tablegen -*-
#ifndef TRAINC_TRANSFORMS_PLAN_PASSES
#define TRAINC_TRANSFORMS_PLAN_PASSES

include "mlir/Pass/PassBase.td"

def PlanStepPass : Pass<"train-plan-step", "::mlir::ModuleOp"> {
  let summary = "Make storage and update explicit";
  let description = [{
    Declares an arena per role (parameters, gradients, each optimizer state, buffers,
    scalars), each tensor a slice of its own; reads and writes name slices. Gradients
    are written to theirs. What stands after `train.window_end` computes the scalars
    (schedules, scale, norm, clip factor), and updates every parameter. What draws gets the
    seed, the count of updates that were done or skipped and the micro-step from the
    scalars: behind a skipped update its draws, which may be why, do not come again.

    Needs form 1 with optimizers and schedules expanded; gives form 2.

    Example: test/Transforms/Plan/plan-step.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def GradientMergePass : Pass<"train-gradient-merge", "::mlir::ModuleOp"> {
  let summary = "Make one update for the k micro-steps of a window";
  let description = [{
    For `accumulate(k)`, k > 1: what is written to gradients and to the sums of losses and
    weights becomes `train.accumulate`, and all that stands after `train.window_end`
    moves into an `scf.if` on it: finite check, norm, clip, schedules and updates happen
    once per window, of the gradients averaged by weight (summed over means with
    `average = false`). The sums are the gradient arena itself, f32 (f64 for f64
    parameters). Its accumulations overwrite in the first micro-step of a window, so
    nothing is set to zero, and in the others GEMMs and gradients of embeddings add in
    place. A micro-step that is not finite makes the sum so, and its window is skipped.

    The counter of micro-steps and the sums belong to the state: a checkpoint from within
    a window goes on there, and `trainc_flush` closes a window early.

    Measured (bench/results/passes.md): windows give the losses of the one large batch
    within 4e-8 and its weights within 4e-7 in f32; with k = 1 the artifact is the same as
    without the clause.

    Needs form 2, with updates fused or not. Does nothing if k is 1; evals stay as they are.
    Runs after `train-plan-step`: what it accumulates are the writes that this one makes.

    Example: test/Transforms/Plan/gradient-merge.mlir
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect"];
  let statistics = [Statistic<"numSums", "sums", "Sums over a window">];
}

def HoistCastsPass : Pass<"train-hoist-casts", "::mlir::ModuleOp"> {
  let summary = "Keep parameters in the compute type, written by the update";
  let description = [{
    Each f32 parameter that the step casts to bf16 or f16, directly or after ops that
    only move elements (reshape, transpose, slice, broadcast, barrier), gets a copy of that
    type in an arena of compute copies. The step, and evals, read the copy; `train.update`
    writes it in the loop that writes the parameter, once per update. The runtime makes it
    after initialization and loading; checkpoints do not have it. A recomputed region
    reads the same copy.

    Casts of moving averages stay, and those that only evals have. A copy always is the
    cast of its parameter, so no result changes.

    Measured (bench/results/passes.md), bf16: N casts of parameters per window in place of
    N k, or 2 N k with recomputation; the step of GPT-2 124M with windows of 4 x 64 tokens
    13 % faster, with 4 x 64 at once 4 %; character GPT, where products weigh more, equal.

    Needs form 2 before `train-fuse-optimizer`; gives form 2. Does nothing to a step
    without such casts.

    Example: test/Transforms/Plan/hoist-casts.mlir
  }];
  let statistics = [Statistic<"numCasts", "casts", "Casts hoisted">,
                    Statistic<"numCopies", "copies", "Parameters with a copy">,
                    Statistic<"copyBytes", "copy-bytes", "Bytes of copies">];
}

def FuseOptimizerPass : Pass<"train-fuse-optimizer", "::mlir::ModuleOp"> {
  let summary = "Compute all norms in one pass over memory, all updates in another";
  let description = [{
    Replaces the `train.norm_squared` of a block by one, and its `train.update` by one for each
    kind of rule; both are `fused`: `train-expand-updates` makes one pass over
    the arenas of each. Updates are of one kind if
    their optimizers have the same regions, states and average: numbers, and so learning
    rates, decays and schedules, may differ by group. What depends on numbers alone (bias
    corrections, rounding to f32) is computed once per group before. A rule that needs
    norms of parameter and direction (lamb, lars) computes the direction twice: once for
    its norm, once for the update.

    Bitwise the same as without it, parameter by parameter.

    Measured (bench/results/passes.md): for GPT-2's 148 tensors the update runs at the speed of
    a plain loop over as much memory (1.01), norm and update together take 1.26 of its time; 1.6x
    as fast as PyTorch's fused AdamW with clipping, 3.2x as optax. A step of 304 small tensors
    needs 4 commands in place of 823 and is up to 20 % faster; one of large ones gains nothing but the
    update's 1.2x.

    Needs form 2; gives form 2.

    Example: test/Transforms/Plan/fuse-optimizer.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numNorms", "norms", "Norms replaced">,
                    Statistic<"numUpdates", "updates", "Updates replaced">,
                    Statistic<"numPasses", "passes", "Passes over memory that update">];
}

def FormBucketsPass : Pass<"train-form-buckets", "::mlir::ModuleOp"> {
  let summary = "List parameters in buckets";
  let description = [{
    Lists the parameters in buckets (`train.bucket`), in the order in which the backward pass
    completes their gradients, those without one last, and gives each arena with
    something of them (gradients, parameters, states, copies) a `train.span` for each. Those of
    one bucket have slices in the same arenas. Where ranks exchange gradients a bucket has about
    `bucket-size` bytes of f32 (a larger parameter is a bucket of its own); otherwise there is one
    for all. With a `bucket-size` of 0 each parameter is a bucket of its own.

    Needs form 2 of `train-plan-step`; gives form 2. `train-coalesce` says where the slices are.
    Runs after `train-hoist-casts`: the arenas of copies have spans of the buckets, too.

    Example: test/Transforms/Plan/form-buckets.mlir
  }];
  let options = [Option<"bucketSize", "bucket-size", "int64_t", "33554432",
                        "Bytes of gradients in a bucket, at most if it holds several">];
  let statistics = [Statistic<"numBuckets", "buckets", "Buckets formed">];
}

def ShardPass : Pass<"train-shard", "::mlir::ModuleOp"> {
  let summary = "Reduce gradients over ranks, divide the update among them";
  let description = [{
    For a step whose gradients are sums over ranks (`over`), of which the last axis is
    that of the pieces. Each bucket of gradients is reduce-scattered over this axis, then summed over
    the other axes piece by piece, once per window.

    With `mode=none` the sums are gathered and every rank does the whole update. With
    `mode=optimizer` (ZeRO-1; over the other axes replicated) a rank updates the shards that it
    owns (`over` of norms and updates); of states, and of
    parameters that the step reads by their copies only, it keeps its shards alone (`over` of
    spans); the others, and the copies, are gathered, copies in their narrow type: the
    update is divided by buckets, each gathered right behind its update.

    Shards end between blocks of norms, so all modes and ranks give the same bits.

    With `merge-buffer=sharded`, in windows of several micro-steps, gradients are written
    in each, not accumulated, and summed over ranks behind a `train.micro_end`; a rank adds
    its pieces of the sums up in an arena of merged gradients, which the first micro-step
    overwrites. Norm and update read this one, or what is gathered of it.

    With `mode=gradients` (ZeRO-2) the update is as with `optimizer`, and no rank has all
    gradients: those of a bucket stand in a `train.flatten`, are summed over ranks in every
    micro-step as soon as the last of them is made, and this rank's piece is merged. In
    windows of several micro-steps `merge-buffer=full` keeps all of them after all, and
    sums them once. With `mode=parameters` (ZeRO-3) no rank has all parameters either: a
    micro-step, and an eval, gathers each bucket before it is used, and again when other
    buckets came between.

    Needs form 2 with buckets (`train-form-buckets`); gives form 2. Does nothing to a step that is not spread over ranks.
    Runs after `train-fuse-optimizer`: it divides the fused update by buckets, of which each is
    gathered behind its own, and what is so divided cannot be fused any more.

    Examples: test/Transforms/Plan/shard.mlir, shard-buckets.mlir, shard-gradients.mlir
  }];
  let options = [Option<"mode", "mode", "std::string", "\"none\"",
                        "none, optimizer, gradients or parameters">,
                 Option<"mergeBuffer", "merge-buffer", "std::string", "\"\"",
                        "How a window's gradients are kept: full or sharded; by default "
                        "sharded in the modes gradients and parameters">];
  let dependentDialects = ["::trainc::nn::NNDialect", "::mlir::arith::ArithDialect"];
  let statistics = [Statistic<"numReduced", "reduced", "Buckets reduced">,
                    Statistic<"numGathered", "gathered", "Buckets gathered">];
}

#endif // TRAINC_TRANSFORMS_PLAN_PASSES
