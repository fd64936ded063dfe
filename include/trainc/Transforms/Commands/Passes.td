//===- Passes.td - From the step plan to commands (form 2 to 3) -*- tablegen -*-
#ifndef TRAINC_TRANSFORMS_COMMANDS_PASSES
#define TRAINC_TRANSFORMS_COMMANDS_PASSES

include "mlir/Pass/PassBase.td"

def CoalescePass : Pass<"train-coalesce", "::mlir::ModuleOp"> {
  let summary = "Lay out arenas in the order of the backward pass";
  let description = [{
    Gives the parameters of each bucket their places in it, in its order, and the bucket its size: the
    same in every arena (parameters, gradients, every optimizer state, copies). Slices start at
    multiples of `align-size` bytes of the narrowest. The padding
    between them is zero, stays zero, and
    no kernel reads it. Groups, decays and learning rates do not matter to the layout.

    Where ranks exchange buckets each is
    padded so that every rank over the axis of the shards gets an equal shard
    of it, a multiple of a block of the norm (4096 elements) long; a parameter that is
    longer begins at such a multiple and a shorter one does not cross any. So shards end
    between blocks, and norms do not depend on the number of ranks.

    What names a bucket or a slice of one (`train.flatten`, `train.view`, values of a bucket)
    then has offsets and sizes. Only places change, neither results nor checkpoints, which name
    tensors. Without it (`--disable-pass=train-coalesce`) each parameter is a bucket of its own, and
    no norms and updates are fused.

    Measured (bench/results/passes.md): 48 layouts from `align-size=4` to 4096 and none give equal
    bits and load each other's checkpoints.

    The first pass of form 3. Refuses an align-size that
    is not a power of two or smaller than an element.

    Example: test/Transforms/Commands/coalesce.mlir
  }];
  let options = [Option<"alignSize", "align-size", "int64_t", "::trainc::train::kBufferAlignment",
                        "Bytes at a multiple of which slices start, a power of two">];
  let statistics = [Statistic<"numSlices", "slices", "Slices placed">,
                    Statistic<"paddingBytes", "padding-bytes", "Bytes between slices">];
}

def OutlineListsPass : Pass<"train-outline-lists", "::mlir::ModuleOp"> {
  let summary = "Split the step into its command lists";
  let description = [{
    Turns `train.step` into the lists `first`, `next` (if more than one micro-step makes
    a window) and `apply`, and each `train.eval` into a list `first`. In `first` an
    accumulation is a write, in `next` an addition to what is there. `apply` is the body
    of the conditional region. What stands between `train.micro_end` and
    `train.window_end` becomes the list `merge`.

    Needs form 2. The entries stay as declarations of inputs and outputs.

    Example: test/Transforms/Commands/outline-lists.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
}

def ExpandUpdatesPass : Pass<"train-expand-updates", "::mlir::ModuleOp"> {
  let summary = "Write norms and updates as tensor ops";
  let description = [{
    Replaces `train.norm_squared` by sums of squares per parameter, added in order, and
    `train.update` by one `nn.map` of the optimizer's region per parameter whose results
    are written to the slices.

    What is `fused` becomes a `train.segment_square_sum` over each arena of gradients, or each bucket
    where the list sums buckets over ranks, with one `train.sum_blocks`; and a
    `train.segment_map` for each bucket. So does what ranks share (`over`): segments end where shards
    do, a rank has the tables of all and runs over its own, and sums of blocks are gathered. Scalars
    that updates have in common are computed once. What is accumulated of a bucket becomes a
    `train.segment_map`, too. Seeds become reads of the loss scale.

    Needs lists with buckets laid out by `train-coalesce`. Runs after `train-outline-lists`: what
    an accumulation becomes depends on the list, and updates share what a list has computed.

    Example: test/Transforms/Commands/expand-updates.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def DecomposePass : Pass<"nn-decompose", "::mlir::ModuleOp"> {
  let summary = "Decompose composite ops into primitives";
  let description = [{
    Replaces every composite `nn` op in a list by its decomposition until only
    primitives stand: pointwise ops, reductions, products and ops with a kernel of
    their own. Reductions keep their dimensions (followed by a reshape), and those over
    inner and outer dimensions become two. So do, on CPUs, those over several outer
    dimensions from the first on: of each batch alone, then of these results in order. Each
    gets its `order`.

    Of convolutions those are kernels that processors have kernels for, and the others become
    `train.convolution`, or, with `gpu`, all of them and their gradients are kernels:
    `train-lower-kernels-to-gpu` has kernels for all.

    Example: test/Transforms/Commands/decompose.mlir
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
      - the derivative of gelu by which its result is multiplied,
      - the sums over the batch of an operand that it reads whole (of the product for a
        weight's gradient: the gradient of the bias), or else of its result,
    in place of the ops that compute these. On GPUs what is left out is rounded once less.
    On processors, whose GEMMs have no sums (`gelu-only`), all bits stay; there a GEMM in f32
    keeps the derivative of gelu as its second result, not the input, where nothing else of it is
    read, and the other one is only multiplied by that.

    A GEMM that adds to its `init` keeps to that alone, as does one of a batch; f64 has no
    gelu here, and where its input is an operand or a result, rows are multiples of 8.
    cuBLASLt has each of these for all types of products (runtime/src/cuda/products.h).

    Needs lists of primitives (`nn-decompose`), before `train-form-kernels`. Does nothing
    to products without such ops.

    Example: test/Transforms/Commands/fuse-epilogues.mlir
  }];
  let options = [Option<"geluOnly", "gelu-only", "bool", "false",
                        "As for processors: leave bias gradients to kernels of their own, keep slopes">,
                 Option<"gradients", "gradients", "bool", "true",
                        "Put slopes of gelu and bias gradients into GEMMs, too">];
  let statistics = [Statistic<"numBiases", "biases", "Biases put into GEMMs">,
                    Statistic<"numGelus", "gelus", "Gelus put into GEMMs">,
                    Statistic<"numGeluGrads", "gelu-grads", "Slopes of gelu put into GEMMs">,
                    Statistic<"numSlopes", "slopes", "Slopes of gelu kept">,
                    Statistic<"numBiasGradients", "bias-gradients", "Bias gradients put into GEMMs">];
}

def ChooseSavedPass : Pass<"train-choose-saved", "::mlir::ModuleOp"> {
  let summary = "Compute pointwise values again in the backward pass, where it keeps less then";
  let description = [{
    What a list computes for the loss, the outputs or buffers is its forward pass, the rest its
    backward pass. Of the pointwise values that the backward pass reads this pass keeps the
    fewest bytes from which it can compute them all: a minimum cut, as in PyTorch's min-cut
    partitioner. They are computed again inside of the kernels that read them, whose input
    is behind a `train.barrier`; the bits stay. Of a gelu written as products and a tanh its input
    is kept, instead of five tensors.

    Forms the GEMMs as `train-form-kernels` does. No command and no access to memory is added:
    what a product, a convolution or another kernel of its own reads is kept, and read from there. Dropouts are not drawn again, and values of
    256 KiB or less, which stay in a cache, are kept.

    Needs lists of primitives (`nn-decompose`), before `train-form-kernels`. Runs after
    `train-fuse-epilogues`: what GEMMs keep is not computed again.

    Example: test/Transforms/Commands/choose-saved.mlir
  }];
  let statistics = [Statistic<"numComputedAgain", "computed-again", "Values computed again">,
                    Statistic<"bytesNotKept", "bytes-not-kept", "Bytes that the backward pass read and is not kept for">];
}

def FormKernelsPass : Pass<"train-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Group ops into kernels, share equal ones";
  let description = [{
    Groups the ops of each list into kernels (pointwise ops and reductions over rows of
    one iteration space; reductions over columns with the pointwise ops that feed them;
    single ops otherwise), outlines each group as a `train.kernel`, shares equal kernels,
    and turns products into `train.gemm`: a product in bf16 or f16 that an `unrounded` cast takes
    becomes a GEMM with an f32 result; products that are added up in a slice are GEMMs
    each of which adds to it where it stands. A result that replaces the slice which its
    kernel reads is written in place where that is safe. Parts whose elements stand next to each other
    are views, and products that are joined one behind the other are made in the whole (`train.flatten`),
    where that starts as buffers do. For GPUs a kernel joins at most 48 tensors, and others join what it makes.

    Needs lists of primitives (`nn-decompose`). With fuse=false every op is a kernel, and nothing is a view. Runs after
    `train-choose-saved`: what stands in a kernel is not computed again, and goes into no GEMM any more.

    Example: test/Transforms/Commands/form-kernels.mlir
  }];
  let options = [Option<"fuse", "fuse", "bool", "true", "Form kernels of several ops">,
                 Option<"gpu", "gpu", "bool", "false",
                        "As GPUs have it: what makes a matrix sums up its columns, too; kernels have few arguments">];
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

    Needs launches; before `train-plan-memory`. Kernels of several such ops are for
    `train-lower-kernels-to-gpu`. Runs after `train-form-kernels`: there are no launches before.

    Example: test/Transforms/Commands/merge-launches.mlir
  }];
  let statistics = [Statistic<"numMerged", "merged", "Launches that became part of another">];
}

def PrefetchPass : Pass<"train-prefetch", "::mlir::ModuleOp"> {
  let summary = "Start to gather parameters while others are used";
  let description = [{
    In the lists of micro-steps and evals, where parameters of which ranks have pieces are
    gathered bucket by bucket: starts to gather each one (`train.start`) once the one before it is
    there, before the commands that use that, and waits for it where it was gathered
    (`train.wait`). One more bucket is in memory then.

    Needs lists whose memory is not planned (before `train-plan-memory`). Does nothing with one bucket, or
    where no command stands between two of them.

    Example: test/Transforms/Commands/prefetch.mlir
  }];
  let statistics = [Statistic<"numStarted", "started", "Buckets that are gathered early">];
}

def PlanGemmsPass : Pass<"train-plan-gemms", "::mlir::ModuleOp"> {
  let summary = "Choose the back end and the tiles of each GEMM";
  let description = [{
    Gives each train.gemm that has none its `plan`, and each train.convolution its `back_end`, from its shape, its types and the target alone, by a
    table of measurements (lib/Analysis/Gemm.cpp, bench/results/gemm.md). Nothing is chosen, and no
    bit decided, when it runs: an artifact gives the same results on every machine that has its
    instructions and the same versions of the libraries. The options say what the target has;
    without any it is a CPU with vectors of 8 f32.

    Needs lists whose memory is not planned (before `train-plan-memory`). Does nothing to a GEMM
    that has a plan. Runs after `train-form-kernels`: it is that which makes GEMMs.

    Example: test/Transforms/Commands/plan-gemms.mlir
  }];
  let options = [
      Option<"gpu", "gpu", "bool", "false", "A GPU: cuBLASLt">,
      Option<"tf32", "tf32", "bool", "false", "On a GPU: TF32 for factors of f32">,
      Option<"vector", "vector", "bool", "true", "Vectors with fused multiply-add: AVX2, NEON">,
      Option<"avx512", "avx512", "bool", "false", "AVX-512">,
      Option<"bf16", "bf16", "bool", "false", "Instructions that multiply bf16">,
      Option<"amx", "amx", "bool", "false", "Tile registers that multiply bf16 (AMX)">,
      Option<"doublePumped", "double-pumped", "bool", "false", "AVX-512 as two operations of 256 bits each">,
      Option<"own", "own", "bool", "false", "Only our own vector code multiplies">,
      Option<"splitF32", "split-f32", "bool", "true", "AMX multiplies f32 as sums of bf16 GEMMs">,
      Option<"cores", "cores", "int64_t", "32", "CPUs among which a GEMM of oneDNN is cut, at most">];
  let statistics = [Statistic<"numPlanned", "planned", "GEMMs planned">];
}

def DeferReducePass : Pass<"train-defer-reduce", "::mlir::ModuleOp"> {
  let summary = "Sum a bucket of gradients while the next ones are made";
  let description = [{
    Where a bucket of gradients stands in memory of its own (`train.flatten`: ZeRO-2 and 3), its
    reduce-scatter is started (`train.start`) where its last gradient is made, and waited for
    (`train.wait`) before the next bucket is summed, or before what was started later is waited for:
    collectives are waited for in the order of their starts. What reads the sums moves there. One more
    bucket is in memory then.

    Needs lists whose memory is not planned (before `train-plan-memory`). Does nothing where no
    command stands between two buckets. Runs after `train-prefetch`: it must know of the gathers
    that are in flight, as collectives are waited for in the order of their starts.

    Example: test/Transforms/Commands/defer-reduce.mlir
  }];
  let statistics = [Statistic<"numDeferred", "deferred", "Buckets whose sums are waited for later">];
}

def OverlapReducePass : Pass<"train-overlap-reduce", "::mlir::ModuleOp"> {
  let summary = "Start to sum gradients over ranks while others are made";
  let description = [{
    Where gradients are summed once per micro-step (a list `merge`, or windows of one), moves
    the `train.start` of each bucket's reduce-scatter into the lists `first` and `next`,
    behind the last command that writes or reads one of its gradients, whose memory is
    the collective's from then on. In `merge` or `apply` its `train.wait` stays, of a
    `train.token`; these stand in the order of the starts.

    Needs lists with planned memory. Does nothing without such
    collectives, where they sum what several micro-steps have accumulated, or behind lists
    with commands between a start and its wait: all are waited for in one order. Runs after
    `train-plan-memory`: which commands touch a bucket, its addresses tell.

    Example: test/Transforms/Commands/overlap-reduce.mlir
  }];
  let statistics = [Statistic<"numStarted", "started", "Collectives started early">];
}

def DeferGatherPass : Pass<"train-defer-gather", "::mlir::ModuleOp"> {
  let summary = "Gather a bucket while the next ones are updated";
  let description = [{
    Where an update ends with a gather of what the rank has of a bucket (ZeRO-1 and 2), the
    `train.wait` goes down to the first command that touches the bucket, or to the end of the
    list: the gather is in flight while the next buckets are updated. Collectives are still waited for
    in the order of their starts, and no more are in flight at once than the runtime takes.

    Needs lists with planned memory (`train-plan-memory`). Does nothing where no launch or GEMM
    stands below, and to gathers that are not in place of an arena.

    Example: test/Transforms/Commands/defer-gather.mlir
  }];
  let statistics = [Statistic<"numDeferred", "deferred", "Gathers waited for later">];
}

#endif // TRAINC_TRANSFORMS_COMMANDS_PASSES
