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
    type in which an element is computed: the parameter's, or f32 for f16 and bf16.

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

    An optimizer whose parameters have several element types is cloned, `@g` staying
    with the first type and `@g_f64` (or `_f32`...) taking the others; its run-time
    scalars are the clone's own. `clip` and `ema` stay on the op. Does nothing to ops in
    region form, but refuses a parameter of another type than its optimizer's region.

    Needs and gives form 0 or 1.

    Example: test/Transforms/expand-optimizers.mlir
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let statistics = [Statistic<"numOptimizers", "optimizers", "Optimizers expanded">,
                    Statistic<"numSchedules", "schedules", "Schedules expanded">,
                    Statistic<"numClones", "clones", "Optimizers cloned for another type">];
}

#endif // TRAINC_TRANSFORMS_PASSES
