//===- Passes.td - From the source to gradients (form 0 to 1) -*- tablegen -*-
#ifndef TRAINC_TRANSFORMS_SOURCE_PASSES
#define TRAINC_TRANSFORMS_SOURCE_PASSES

include "mlir/Pass/PassBase.td"

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

    Example: test/Transforms/Source/expand-optimizers.mlir
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let statistics = [Statistic<"numOptimizers", "optimizers", "Optimizers expanded">,
                    Statistic<"numSchedules", "schedules", "Schedules expanded">,
                    Statistic<"numClones", "clones", "Optimizers cloned for another type">];
}

def InlineCallsPass : Pass<"train-inline-calls", "::mlir::ModuleOp"> {
  let summary = "Inline every call and erase the functions";
  let description = [{
    Replaces each `func.call` in an entry by the callee's body, innermost calls
    included, and erases the private functions. Recursion and calls of functions
    without a body are refused. Does nothing to a module without calls.

    Runs after `train-verify-form`: the source is checked as it was written.

    Example: test/Transforms/Source/inline-calls.mlir
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

    Needs form 0 with calls inlined. Runs after `train-inline-calls`: what a function draws
    has a site of its own in each of its calls.

    Example: test/Transforms/Source/assign-random.mlir
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
      it had;
    - a number of a constant that is finite stays so, as the largest of the narrower type, also
      behind ops that move or select elements: they and a new constant then take the place of a
      cast. So do the value of `nn.pad` and the bounds of `nn.clamp`.

    With `master = T` every f32 parameter that is not kept gets this type itself, and
    reads of it do. With `compute = f32` they are cast to f32 wherever they are used.

    A cast stands right after the value that it converts, once per type. Refuses f64.
    Inserts nothing into a step without `precision`, or with f32 alone. Gradients of casts are
    casts: those of parameters are f32.

    A cast to f32 of a product without bias, or of a sum, becomes `unrounded`, also one of the
    source.

    Needs form 0 with calls inlined.

    Example: test/Transforms/Source/insert-casts.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numCasts", "casts", "Casts inserted">];
}

def SetMeshPass : Pass<"train-set-mesh", "::mlir::ModuleOp"> {
  let summary = "Give the axes of the mesh other sizes";
  let description = [{
    Replaces the sizes of the module's `train.mesh` for the axes that are named. A module
    without mesh gets one of these axes, slowest first. Does nothing without axes.

    Refuses an axis that the module's mesh lacks. Runs after `train-verify-form`: the source
    is checked as it was written.

    Example: test/Transforms/Source/set-mesh.mlir
  }];
  let options = [ListOption<"axes", "axes", "std::string",
                            "Axes and their sizes: host=2,data=4">];
}

def FormLossHeadsPass : Pass<"train-form-loss-heads", "::mlir::ModuleOp"> {
  let summary = "Join a product and its cross entropy into nn.linear_cross_entropy";
  let description = [{
    A `nn.cross_entropy` of a product (`nn.linear` or `nn.matmul` with a matrix on the right)
    that nothing else uses becomes one `nn.linear_cross_entropy`, in steps and
    evals, also with a reshape of the rows, or one cast to the compute type (`wide_logits`),
    between them: the logits are then computed in chunks, and never stand whole in memory. Losses keep
    their bits; a gradient of the weight that is the sum of several chunks is rounded in
    another order. Does nothing to logits that have another use.

    Needs and gives form 0; refuses lists. Of classes that ranks share, `train-partition` has made
    other ops.

    Example: test/Transforms/Source/form-loss-heads.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numFormed", "loss-heads", "Loss heads formed">];
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

    A `train.read` behind a `train.write` of the same buffer becomes the value written, so that
    gradients pass.

    A `nn.linear_cross_entropy` gives way to `nn.linear_cross_entropy_grad`, which computes its loss,
    too, unless its gradient depends on that loss. Of a parameter that is stored in bf16 or f16,
    or that the step reads in such a type, each contribution to its gradient is in f32: it
    is cast alone, and one that was only rounded is taken before that. Where one is computed in f16,
    in a step without loss scale that computes in another type, a warning says so.

    Needs form 0 with calls inlined; gives form 1. Runs after `train-form-loss-heads`: logits
    whose gradients are built have other uses, and stand whole. Does nothing to a step that already
    stores gradients. An op without gradient on the way from a trained parameter to the
    loss is refused, and a weight that depends on one: no gradient of it is taken.

    Example: test/Transforms/Source/differentiate.mlir
  }];
  let dependentDialects = ["::trainc::nn::NNDialect"];
  let statistics = [Statistic<"numGradients", "gradients", "Gradients stored">];
}

#endif // TRAINC_TRANSFORMS_SOURCE_PASSES
