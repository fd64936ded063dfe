//===- Passes.td - Passes inside the nn and train dialects -*- tablegen -*-===//
#ifndef TRAINC_TRANSFORMS_PASSES
#define TRAINC_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Form 0: named optimizers and schedules
//===----------------------------------------------------------------------===//

def ExpandOptimizersPass : Pass<"train-expand-optimizers", "::mlir::ModuleOp"> {
  let summary = "Replace named optimizers and schedules by scalar regions";
  let description = [{
    Rewrites each `train.optimizer @g = kind<...>` and `train.schedule @s = kind<...>`
    into its region form. The formulas are optax 0.2.8's. Numbers become run-time
    scalars (`hyper`) with optax's default where none is given, except initial values
    of states; flags choose the formula. Marked `?`: takes part only if given.
    What depends on run-time scalars only is computed in f64 and rounded once to the
    region's type, in which elements are computed: the parameter's, f32 for bf16 and f16.

    | optimizer | numbers | flags |
    |---|---|---|
    | all | lr (a schedule or a number, required), lr_multiplier?, l2? (added to the gradient; not lars) | |
    | sgd | momentum?, dampening? (as PyTorch: not at the first update), weight_decay? | nesterov |
    | momentum | sgd with momentum = 0.9 | nesterov |
    | adam | b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0, weight_decay? | nesterov, eps_before_correction |
    | adamw | adam with weight_decay = 1e-4 | as adam |
    | nadam | adam with nesterov | eps_before_correction |
    | radam | as adam, threshold = 5 | as adam |
    | adamax | b1 = 0.9, b2 = 0.999, eps = 1e-8, weight_decay? | |
    | adagrad | eps = 1e-7, lr_decay? (as PyTorch), weight_decay?; initial_accumulator_value = 0.1 | eps_in_sqrt = true |
    | adadelta | rho = 0.9, eps = 1e-6 | |
    | rmsprop | decay = 0.9, eps = 1e-8, momentum?; initial_scale = 0 | eps_in_sqrt = true, centered, nesterov, bias_correction, lr_in_momentum = true |
    | lion | b1 = 0.9, b2 = 0.99, weight_decay = 1e-3 | |
    | lamb | b1 = 0.9, b2 = 0.999, eps = 1e-6, eps_root = 0, weight_decay = 0 | |
    | lars | momentum = 0.9, weight_decay = 0 (before the trust ratio), trust_coefficient = 0.001, eps = 0 | nesterov |
    | muon (matrices; PyTorch's) | momentum = 0.95, weight_decay = 0.1; a = 3.4445, b = -4.775, c = 2.0315, eps = 1e-7, steps = 5 | nesterov = true, bf16 = true, match_rms, unclamped |

    `weight_decay` is decoupled: times lr, not seen by the moments. `eps` stands outside
    the square root and `eps_root` inside; `eps_before_correction` adds both to the
    second moment before its bias is corrected. `lr_in_momentum = false` applies lr
    after the momentum, as PyTorch does.

    | schedule of the number t of updates done | value |
    |---|---|
    | constant<value> | value |
    | linear<init, end, steps, begin = 0> | from init to end over steps, from t = begin on |
    | warmup_linear<peak, warmup, total?, init = 0, end = 0> | from init to peak at warmup, then to end at total (without total: stays at peak) |
    | cosine<init, steps, alpha = 0, exponent = 1> | init ((1 - alpha) (0.5 (1 + cos(pi min(t, steps) / steps)))^exponent + alpha) |
    | warmup_cosine<peak, warmup, total, init = 0, end = 0, exponent = 1> | from init to peak at warmup, then cosine to end at total |
    | step<init, size, gamma = 0.1> | init gamma^floor(t / size) |
    | exponential<init, steps, rate, begin = 0, end?, staircase = false> | init rate^((t - begin) / steps) |
    | inverse_sqrt<peak, warmup, init = 0> | from init to peak at warmup, then peak sqrt(max(warmup, 1) / max(t, 1)) |

    An optimizer whose parameters are computed in both f32 and f64 is cloned, `@g` staying
    with the type that comes first and `@g_f64` (or `@g_f32`) taking the other; its
    run-time scalars are the clone's own. `clip` and `ema` stay on the op. Does nothing to ops in
    region form, but refuses a parameter of another type than its optimizer's region.

    Needs and gives form 0 or 1.

    Example: test/Transforms/expand-optimizers.mlir
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let statistics = [Statistic<"numOptimizers", "optimizers", "Optimizers expanded">,
                    Statistic<"numSchedules", "schedules", "Schedules expanded">,
                    Statistic<"numClones", "clones", "Optimizers cloned for another type">];
}

//===----------------------------------------------------------------------===//
// The contract between phases
//===----------------------------------------------------------------------===//

def VerifyFormPass : Pass<"train-verify-form", "::mlir::ModuleOp"> {
  let summary = "Check that a module is in a form";
  let description = [{
    The pipeline begins, and each of its phases ends, with this pass. It changes nothing.

    * Form 0: parameters, buffers, optimizers, schedules, entries and functions; in
      entries and functions `nn` operations, reads and writes of parameters and buffers,
      recomputed regions and calls.
    * Form 1: no calls or functions, optimizers and schedules are regions, and each
      parameter that is not frozen has one stored gradient.
    * Form 2: storage is named by slices; one `train.window_end` separates micro-step and
      update, which for windows of more than one is a conditional region.
    * Form 3: lists hold launches, GEMMs, collectives, reads, writes, reshapes, flat tensors
      and views of them only; every result of a command has a place; no value read from a
      slice is used by a command after the one that writes the slice. Commands that the
      runtime may run at once, which it tells by the bytes of their operands alone, do not
      conflict: (P1) what stands in the workspace ends within it; (P2) an operand's bytes
      hold the operand, over which nothing was written; (P3) what a command writes shares
      no byte with what else it touches, but that a result in place stands exactly where
      its operand does; (P4) from the start of a collective to its end nothing writes what
      it reads or touches what it writes.
    * Form 4 of a processor, before it is LLVM's: no function of several workgroups writes
      to an argument in the same way in all of them.

    Example: test/Transforms/verify-form.mlir
  }];
  let options = [Option<"form", "form", "int64_t", "1", "The form: 0, 1, 2, 3 or 4">];
}

//===----------------------------------------------------------------------===//
// Form 0 to form 1: gradients
//===----------------------------------------------------------------------===//

def InlineCallsPass : Pass<"train-inline-calls", "::mlir::ModuleOp"> {
  let summary = "Inline every call and erase the functions";
  let description = [{
    Replaces each `func.call` in an entry by the callee's body, innermost calls
    included, and erases the private functions. Recursion and calls of functions
    without a body are refused. Does nothing to a module without calls.

    Example: test/Transforms/inline-calls.mlir
  }];
  let statistics = [Statistic<"numInlined", "inlined-calls", "Calls inlined">];
}

def AssignRandomPass : Pass<"train-assign-random", "::mlir::ModuleOp"> {
  let summary = "Number what draws random numbers, remove dropouts of evals";
  let description = [{
    Gives each `nn.dropout` and `nn.random` that has no site the next number that no
    other has, in program order. In a `train.eval` dropout is the identity. Two of one
    site are refused: they would draw the same numbers. Does nothing to a module that
    draws nothing.

    Needs form 0 with calls inlined.

    Example: test/Transforms/assign-random.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numSites", "sites", "Sites numbered">,
                    Statistic<"numRemoved", "removed", "Dropouts of evals removed">];
}

def InsertCastsPass : Pass<"train-insert-casts", "::mlir::ModuleOp"> {
  let summary = "Choose the element type of each op by the step's precision";
  let description = [{
    With `precision(compute = T)` on the step, in the step and in every eval:

    - matrix products (linear, matmul, conv2d, attention, linear_cross_entropy) and
      embedding take their operands, and so their result, in T;
    - norms take the input as it is, and weights and statistics in f32; losses compute in
      f32;
    - every other op follows its activations: parameters, buffers and constants are cast
      to their type, and of two activations the wider one to the type of the narrower;
    - with a parameter of `keep_f32` (or of an optimizer there) among its operands, an op
      of the first or third kind runs in f32, as do kinds of ops named there: `"nn.matmul"`.
      Such a parameter is never cast;
    - what a step or an eval yields, and what is written to a buffer, has the type that
      it had.

    With `master = T` every f32 parameter that is not kept gets this type itself, and
    reads of it do.

    A cast stands right after the value that it converts, once per type. Refuses f64.
    Does nothing to a step without `precision`, or with f32 alone. Gradients of casts are
    casts: those of parameters are f32.

    Needs form 0 with calls inlined.

    Example: test/Transforms/insert-casts.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numCasts", "casts", "Casts inserted">];
}

def SetMeshPass : Pass<"train-set-mesh", "::mlir::ModuleOp"> {
  let summary = "Give the axes of the mesh other sizes";
  let description = [{
    Replaces the sizes of the module's `train.mesh` for the axes that are named. A module
    without mesh gets one of these axes, slowest first. Does nothing without axes.

    Refuses an axis that the module's mesh lacks.

    Example: test/Transforms/set-mesh.mlir
  }];
  let options = [ListOption<"axes", "axes", "std::string",
                            "Axes and their sizes: host=2,data=4">];
}

def PartitionPass : Pass<"train-partition", "::mlir::ModuleOp"> {
  let summary = "Turn global shapes into those of one rank";
  let description = [{
    Each rank runs the same code on its part of what the splits of inputs and parameters
    cut. Parts are propagated forward, by the rule of each op (`ShardableOpInterface`): a
    value is split over axes of the mesh, whole, or a sum of what the ranks have. A split
    may be of each of several equal blocks of a dimension. Parameters that are split get
    the type of their part; their gradients are sums over the other axes alone.

    - A sum stays one through ops that are linear in it, and as loss and weight, which
      are those of all ranks together (`over`). Elsewhere, and as an output of an eval
      or in a buffer, `train.all_reduce` adds.
    - A whole value beside a split one is cut to this rank's part (`nn.part`, or computed
      in part if it is a constant, an iota or pointwise of these).
    - A loss or weight that is whole over an axis is divided by the number of ranks there.
    - An op that needs all of what is split (the batch, of a training nn.batch_norm) is
      decomposed, so that its statistics are those of all ranks. What is reduced
      otherwise than by sums is gathered and reduced again (`train.all_gather`).
    - An embedding of a part of a table gives zeros for the rows of other parts, and so a
      sum.
    - A dropout draws for its elements what it draws for them in the whole tensor.
    - A dimension of a parameter need not divide: the last parts are filled up. What fills
      them never counts: it is replaced by zeros before it is summed, by infinities before
      a maximum, and by ones before a function that could make it infinite.
    - A `train.constrain` gives a value the split that it names. Of a sum that nothing else
      uses each rank adds up its part alone (`train.reduce_scatter`), if that divides; what
      is whole and is added to it, as a bias is, then comes behind.
    - An output of an eval that is split stays so (`output_splits`), if it divides and is
      one block; else it is gathered.

    Refuses inputs whose sizes do not divide, blocks that do not, operands split in
    conflict, an axis `pipe`, and axes of several ranks over which no input and no
    parameter is split (unless some inputs are gradients).

    Needs form 0 with calls inlined and dropouts numbered. Where all axes have one rank
    it erases the splits alone; it does nothing without a mesh, or a second time.

    Example: test/Transforms/partition.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numSplit", "split", "Ops done in parts">,
                    Statistic<"numReduced", "reduced", "Sums over ranks inserted">,
                    Statistic<"numScattered", "scattered", "Sums of which each rank adds up its part">,
                    Statistic<"numGathered", "gathered", "Parts gathered">,
                    Statistic<"numJoined", "joined", "Other reductions over ranks inserted">,
                    Statistic<"numCut", "cut", "Whole values cut to a part">,
                    Statistic<"numDecomposed", "decomposed", "Ops decomposed">];
}

def DifferentiatePass : Pass<"train-differentiate", "::mlir::ModuleOp"> {
  let summary = "Build the backward pass of the step";
  let description = [{
    Appends to the body of `train.step` the ops that compute the gradient of the loss
    with respect to each parameter that is not frozen, by `DifferentiableOpInterface` in
    reverse order, and one `train.store_gradient` per parameter. The loss' own gradient
    is a `train.seed`: the loss scale divided by a power of two that depends on the
    number of loss terms of all ranks together. A parameter that the loss does not depend on gets a gradient
    of zeros.

    A `train.recompute` becomes the ops inside of it. Where the backward pass reaches the
    first of them, it computes them again, from the values that the region takes from
    outside (behind a `train.barrier`), as far as gradients need them. In an eval it is
    just its ops.

    Needs form 0 with calls inlined; gives form 1. Does nothing to a step that already
    stores gradients. An op without gradient on the way from a trained parameter to the
    loss is refused.

    Example: test/Transforms/differentiate.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numGradients", "gradients", "Gradients stored">];
}

//===----------------------------------------------------------------------===//
// Form 1 to form 2: the step plan
//===----------------------------------------------------------------------===//

def PlanStepPass : Pass<"train-plan-step", "::mlir::ModuleOp"> {
  let summary = "Make storage and update explicit";
  let description = [{
    Declares an arena per role (parameters, gradients, each optimizer state, buffers,
    scalars), each tensor a slice of its own; reads and writes name slices. Gradients
    are written to theirs. What stands after `train.window_end` computes the scalars
    (schedules, scale, norm, clip factor), and updates every parameter. Dropout gets the
    seed, the count of updates and the micro-step from the scalars.

    Needs form 1 with optimizers and schedules expanded; gives form 2.

    Example: test/Transforms/plan-step.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let options = [Option<"alignment", "alignment", "int64_t", "64",
                        "Alignment of a slice in bytes, a power of two">];
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

    Needs form 2 of train-plan-step, before train-fuse-optimizer or after. Does nothing
    if k is 1; evals stay as they are.

    Example: test/Transforms/gradient-merge.mlir
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

    Example: test/Transforms/hoist-casts.mlir
  }];
  let statistics = [Statistic<"numCasts", "casts", "Casts hoisted">,
                    Statistic<"numCopies", "copies", "Parameters with a copy">,
                    Statistic<"copyBytes", "copy-bytes", "Bytes of copies">];
}

def CoalescePass : Pass<"train-coalesce", "::mlir::ModuleOp"> {
  let summary = "Lay out arenas in the order of the backward pass";
  let description = [{
    Gives the slices of each arena (parameters, gradients, every optimizer state,
    buffers) new places: in the order in which the backward pass completes the gradients,
    those without a gradient last, each slice at a multiple of `align-size` bytes. Arenas
    of one element type whose parameters are the same have equal layouts. The padding
    after a slice is alignTo(size, align-size) - size bytes; it is zero, stays zero, and
    no kernel reads it. Groups, decays and learning rates do not matter to the layout.

    Only places change, neither results nor checkpoints, which name tensors. A remark
    says for each slice where it went.

    Measured (bench/results/passes.md): 48 layouts from `align-size=4` to 4096 and none give equal
    bits and load each other's checkpoints. What it is for is `train-fuse-optimizer`: passes that
    walk every arena from front to back.

    Needs form 2 before `train-fuse-optimizer`; gives form 2. Refuses an align-size that
    is not a power of two or smaller than an element.

    Example: test/Transforms/coalesce.mlir
  }];
  let options = [Option<"alignSize", "align-size", "int64_t", "256",
                        "Bytes at a multiple of which slices start, a power of two">];
  let statistics = [Statistic<"numSlices", "slices", "Slices placed">,
                    Statistic<"paddingBytes", "padding-bytes", "Bytes between slices">];
}

def FuseOptimizerPass : Pass<"train-fuse-optimizer", "::mlir::ModuleOp"> {
  let summary = "Compute all norms in one pass over memory, all updates in another";
  let description = [{
    Replaces the `train.norm_squared` of a block by one `train.segment_square_sum` over
    the arena of the gradients and one `train.sum_blocks`, and its `train.update` by one
    `train.segment_map` over the arenas for each kind of rule. Updates are of one kind if
    their optimizers have the same regions, states and average: numbers, and so learning
    rates, decays and schedules, may differ by group. What depends on numbers alone (bias
    corrections, rounding to f32) is computed once per group before. A rule that needs
    norms of parameter and direction (lamb, lars) computes the direction twice: once for
    its norm, once for the update.

    With `separate` each norm and each parameter gets a segment op of its own, and only if
    the step is spread over ranks (`train-shard` divides segments).

    Bitwise the same as `train-expand-updates`, which does it parameter by parameter.

    Measured (bench/results/passes.md): for GPT-2's 148 tensors the update runs at the speed of
    a plain loop over as much memory (1.01), norm and update together take 1.26 of its time; 1.6x
    as fast as PyTorch's fused AdamW with clipping, 3.2x as optax. A step of 304 small tensors
    needs 4 commands in place of 823 and is up to 20 % faster; one of large ones gains nothing but the
    update's 1.2x.

    Needs form 2 (or lists of it); gives form 2.

    Example: test/Transforms/fuse-optimizer.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
  let options = [Option<"separate", "separate", "bool", "false",
                        "Only for a step over ranks: an op of its own for each norm and parameter">];
  let statistics = [Statistic<"numNorms", "norms", "Norms replaced">,
                    Statistic<"numUpdates", "updates", "Updates replaced">,
                    Statistic<"numPasses", "passes", "Passes over memory that update">];
}

def FormBucketsPass : Pass<"train-form-buckets", "::mlir::ModuleOp"> {
  let summary = "Lay out arenas in buckets for collectives";
  let description = [{
    Cuts the parameters, in the order of the gradients' arena, into buckets of about
    `bucket-size` bytes of f32 (a larger parameter is a bucket of its own), and gives each
    bucket one range of every arena with something of its parameters: gradients, parameters,
    states, copies. Those of one bucket have slices in the same arenas, at the same
    distances in elements: multiples of `align-size` bytes of the narrowest. Each bucket is
    padded so that every rank over the last axis of the step's `over` gets an equal piece
    of it, a multiple of a block of the norm (4096 elements) long; a parameter that is
    longer begins at such a multiple and a shorter one does not cross any. So pieces end
    between blocks, and norms do not depend on the number of ranks.

    Needs form 2 before `train-fuse-optimizer`; gives form 2. Does nothing to a step that
    is not spread over ranks.

    Example: test/Transforms/form-buckets.mlir
  }];
  let options = [Option<"bucketSize", "bucket-size", "int64_t", "33554432",
                        "Bytes of gradients in a bucket, at most if it holds several">,
                 Option<"alignSize", "align-size", "int64_t", "256",
                        "Bytes at a multiple of which slices start, a power of two">];
  let statistics = [Statistic<"numBuckets", "buckets", "Buckets formed">];
}

def ShardPass : Pass<"train-shard", "::mlir::ModuleOp"> {
  let summary = "Reduce gradients over ranks, divide the update among them";
  let description = [{
    For a step whose gradients are sums over ranks (`over`), of which the last axis is
    that of the pieces. Each bucket of gradients is reduce-scattered over this axis, then summed over
    the other axes piece by piece, once per window.

    With `mode=none` the sums are gathered and every rank does the whole update. With
    `mode=optimizer` (ZeRO-1; over the other axes replicated) a rank updates the pieces that it
    owns: norms sum its own segments, and the sums of blocks are gathered; states, and
    parameters that the step reads by their copies only, are kept in pieces (`pieces` of
    the arenas); the others, and the copies, are gathered, copies in their narrow type: the
    update is divided by buckets, each gathered right behind its update.

    Segments of norm and update are cut where pieces end, in all modes: so they give the
    same bits, and so does every rank.

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

    Needs form 2 with buckets (`train-form-buckets`) and segments
    (`train-fuse-optimizer`); gives form 2. Does nothing to a step that is not spread over ranks.

    Examples: test/Transforms/shard.mlir, shard-buckets.mlir, shard-gradients.mlir
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

//===----------------------------------------------------------------------===//
// Form 2 to form 3: commands
//===----------------------------------------------------------------------===//

def OutlineListsPass : Pass<"train-outline-lists", "::mlir::ModuleOp"> {
  let summary = "Split the step into its command lists";
  let description = [{
    Turns `train.step` into the lists `first`, `next` (if more than one micro-step makes
    a window) and `apply`, and each `train.eval` into a list `first`. In `first` an
    accumulation is a write, in `next` an addition to what is there. `apply` is the body
    of the conditional region. What stands between `train.micro_end` and
    `train.window_end` becomes the list `merge`.

    Needs form 2. The entries stay as declarations of inputs and outputs.

    Example: test/Transforms/outline-lists.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
}

def ExpandUpdatesPass : Pass<"train-expand-updates", "::mlir::ModuleOp"> {
  let summary = "Write norms and updates as tensor ops";
  let description = [{
    Replaces `train.norm_squared` by sums of squares per parameter, added in order, and
    `train.update` by one `nn.map` of the optimizer's region per parameter whose results
    are written to the slices. Seeds become reads of the loss scale.

    Example: test/Transforms/expand-updates.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def DecomposePass : Pass<"nn-decompose", "::mlir::ModuleOp"> {
  let summary = "Decompose composite ops into primitives";
  let description = [{
    Replaces every composite `nn` op in a list by its decomposition until only
    primitives stand: pointwise ops, reductions, products and ops with a kernel of
    their own. Reductions keep their dimensions (followed by a reshape), and those over
    inner and outer dimensions become two. So do, on processors, those over several outer
    dimensions from the first on: of each batch alone, then of these results in order.

    Of convolutions those are kernels that processors have kernels for, or, with `gpu`,
    all of them and their gradients: `train-lower-kernels-to-gpu` has kernels for all.

    Example: test/Transforms/decompose.mlir
  }];
  let options = [Option<"gpu", "gpu", "bool", "false",
                        "Keep what GPUs have kernels for: convolutions, sums over batches">];
  let statistics = [Statistic<"numDecomposed", "decomposed", "Composite ops replaced">];
}

def FuseEpiloguesPass : Pass<"train-fuse-epilogues", "::mlir::ModuleOp"> {
  let summary = "Put biases, gelu and bias gradients into the GEMMs beside them";
  let description = [{
    Forms the GEMMs of each list as
    `train-form-kernels` does, and then gives a GEMM
      - the bias that is added to its result,
      - gelu (`tanh`) of its result, and, if others need what gelu is taken of, that as a
        second result,
      - the slope of gelu by which its result is multiplied,
      - the sums over the batch of an operand that it reads whole (of the product for a
        weight's gradient: the gradient of the bias), or else of its result,
    in place of the ops that compute these. On GPUs what is left out is rounded once less.
    On processors, whose GEMMs have no sums (`gelu-only`), all bits stay; there a GEMM in f32
    keeps the slope of gelu as its second result, not the input, where nothing else of it is
    read, and the other one is only multiplied by that.

    A GEMM that adds to its `init` keeps to that alone, as does one of a batch; f64 has no
    gelu here, and where its input is an operand or a result, rows are multiples of 8.
    cuBLASLt has each of these for all types of products (runtime/src/cuda/products.h).

    Needs lists of primitives (`nn-decompose`), before `train-form-kernels`. Does nothing
    to products without such ops.

    Example: test/Transforms/fuse-epilogues.mlir
  }];
  let options = [Option<"geluOnly", "gelu-only", "bool", "false",
                        "As for processors: leave bias gradients to kernels of their own, keep slopes">];
  let statistics = [Statistic<"numBiases", "biases", "Biases put into GEMMs">,
                    Statistic<"numGelus", "gelus", "Gelus put into GEMMs">,
                    Statistic<"numGeluGrads", "gelu-grads", "Slopes of gelu put into GEMMs">,
                    Statistic<"numSlopes", "slopes", "Slopes of gelu kept">,
                    Statistic<"numBiasGradients", "bias-gradients", "Bias gradients put into GEMMs">];
}

def FormKernelsPass : Pass<"train-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Group ops into kernels, share equal ones";
  let description = [{
    Groups the ops of each list into kernels (pointwise ops and reductions over rows of
    one iteration space; reductions over columns with the pointwise ops that feed them;
    single ops otherwise), outlines each group as a `train.kernel`, shares equal kernels,
    and turns products into `train.gemm`: a product in bf16 or f16 that is only cast to f32
    becomes a GEMM with an f32 result, not rounded in between. A result that replaces the slice which its
    kernel reads is written in place where that is safe.

    Needs lists of primitives (`nn-decompose`). With fuse=false every op is a kernel.

    Example: test/Transforms/form-kernels.mlir
  }];
  let options = [Option<"fuse", "fuse", "bool", "true", "Form kernels of several ops">];
  let statistics = [Statistic<"numLaunches", "launches", "Launches formed">,
                    Statistic<"numKernels", "kernels", "Distinct kernels">,
                    Statistic<"numGemms", "gemms", "Matrix products">];
}

def MergeLaunchesPass : Pass<"train-merge-launches", "::mlir::ModuleOp"> {
  let summary = "Launch norm and update of all parameters at most three times";
  let description = [{
    For targets where a launch costs time: a launch of `train.segment_square_sum` takes in
    those that compute single elements, or `train.sum_blocks`, of its results (the
    block that ends last does that); launches of `train.segment_map` become one. What the
    first one computed for the second alone has no place in memory any more.

    Needs launches (`train-form-kernels`); before `train-plan-memory`. Kernels of several
    such ops are for `train-lower-kernels-to-gpu`.

    Example: test/Transforms/merge-launches.mlir
  }];
  let statistics = [Statistic<"numMerged", "merged", "Launches that became part of another">];
}

def RecomputePass : Pass<"train-recompute", "::mlir::ModuleOp"> {
  let summary = "Compute values again where a memory limit does not let them be kept";
  let description = [{
    If arenas and workspace would take more than `limit` bytes, repeats launches and GEMMs
    before later users of their results, so that these need not be kept until then: casts,
    norms, gelu, dropout, then products and whole blocks, by the estimated time per byte
    that is freed where there are too many. What stands in slices that the list changes, or
    comes from collectives, is kept. A command is repeated as it is, or those operations of
    its kernel that lead to the result, with the same inputs: no result changes.

    `bandwidth` and `products` (bytes, and operations of f32 products, per second) say what
    takes how long. The attribute `recomputed` of a list says how many values there are, how
    many bytes of workspace they save and their part of the list's estimated time; there is
    a remark for each.

    Needs lists of launches and GEMMs, before `train-plan-memory`, with whose layout it
    counts. Does nothing without a limit, or below it. If no choice is found, an error says how
    much would do.

    Example: test/Transforms/recompute.mlir
  }];
  let options = [Option<"limit", "limit", "int64_t", "0", "Bytes of arenas and workspace; 0: no limit">,
                 Option<"bandwidth", "bandwidth", "double", "1e10", "Bytes per second">,
                 Option<"products", "products", "double", "1.5e11", "Operations of f32 products per second">];
  let statistics = [Statistic<"numRecomputed", "recomputed", "Values computed again">];
}

def PlanMemoryPass : Pass<"train-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every value of a list an address";
  let description = [{
    Results that are written to a slice, or returned by an eval, are produced in place
    where no command still needs the slice's old value; the others get an offset in the
    workspace by liveness. Each producing op carries the result as attribute `places`.
    The list says how large its workspace is, and the largest sum of bytes that are needed
    at one command (`alive`), which no plan can undercut: of several orders in which values
    choose their offsets, the best is taken. With reuse=false no two values share memory.

    Operands of a `train.flatten` that nothing needs later are produced where they stand in
    it; others are copied. What a collective works on in place stays until the next one of
    all its axes, or the list's end: until then peers may read it.

    Needs lists of launches and GEMMs (`train-form-kernels`).

    Example: test/Transforms/plan-memory.mlir
  }];
  let options = [Option<"reuse", "reuse", "bool", "true", "Share memory between values">];
  let statistics = [Statistic<"numCopies", "copies", "Copies inserted">,
                    Statistic<"numAvoided", "copies-avoided",
                              "Results that a command writes where they belong">];
}

def PrefetchPass : Pass<"train-prefetch", "::mlir::ModuleOp"> {
  let summary = "Start to gather parameters while others are used";
  let description = [{
    In the lists of micro-steps and evals, where parameters of which ranks have pieces are
    gathered bucket by bucket: starts to gather each one (`apart`) once the one before it is
    there, before the commands that use that, and waits for it where it was gathered
    (`train.await`). One more bucket is in memory then.

    Needs lists whose memory is not planned (before `train-plan-memory`). Does nothing with one bucket, or
    where no command stands between two of them.

    Example: test/Transforms/prefetch.mlir
  }];
  let statistics = [Statistic<"numStarted", "started", "Buckets that are gathered early">];
}

def OverlapReducePass : Pass<"train-overlap-reduce", "::mlir::ModuleOp"> {
  let summary = "Start to sum gradients over ranks while others are made";
  let description = [{
    Where gradients are summed once per micro-step (a list `merge`, or windows of one), puts
    a `train.start` of each bucket's reduce-scatter into the lists `first` and `next`,
    behind the last command that writes or reads one of its gradients, whose memory is
    the collective's from then on. The `train.reduce_scatter` in `merge` or `apply`
    becomes the end of it (`started`), and those stand in the order of the starts.

    Needs lists with planned memory (`train-plan-memory`). Does nothing without such
    collectives, where they sum what several micro-steps have accumulated, or in lists that
    wait for others (`train.await`): all are waited for in one order.

    Example: test/Transforms/overlap-reduce.mlir
  }];
  let statistics = [Statistic<"numStarted", "started", "Collectives started early">];
}

#endif // TRAINC_TRANSFORMS_PASSES
