# REQUIRES: numpy
# RUN: %python %s
"""A gradient that is not finite skips the update: nothing moves, whatever the optimizer: no parameter by decay or
momentum, no state, no average, no count, no schedule. The run goes on as if that window had not been. Weights of which the mean
is not finite skip it as well, also where the gradients divided by them are 0."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNFUSED, equal, module, parameters_of, states_of, trainer  # noqa: E402

USERS = """train.optimizer @o(%p: f32, %g: f32, %m: f32, %lr: f64) state(m = 0.5) hyper(lr = @lr) {
  %half = arith.constant 0.5 : f32
  %m1 = math.fma %half, %m, %g : f32
  %rate = arith.truncf %lr : f64 to f32
  %d = arith.mulf %rate, %m1 : f32
  %p1 = arith.subf %p, %d : f32
  train.yield %p1, %m1 : f32, f32
}"""
DECAY = "weight_decay = 0.1"
OPTIMIZERS = [f"sgd<lr = @lr, momentum = 0.9, {DECAY}>", "sgd<lr = @lr, l2 = 0.1, momentum = 0.9, nesterov = true>",
              f"momentum<lr = @lr, {DECAY}>", f"adam<lr = @lr, {DECAY}>", "adamw<lr = @lr> ema(0.9)",
              f"nadam<lr = @lr, {DECAY}>", f"radam<lr = @lr, {DECAY}>", f"adamax<lr = @lr, {DECAY}>",
              f"adagrad<lr = @lr, lr_decay = 0.1, {DECAY}>", "adadelta<lr = @lr, l2 = 0.1>",
              "rmsprop<lr = @lr, momentum = 0.9, centered = true, bias_correction = true>", "lion<lr = @lr>",
              f"lamb<lr = @lr, {DECAY}>", f"lars<lr = @lr, {DECAY}>", USERS]
PARAMETERS = [("a", (7, 5), "f32", "o"), ("b", (4099,), "f32", "o"), ("c", (31,), "bf16", "o")]
WINDOWS, K, BAD = 5, 2, 2
SCHEDULE = "train.schedule @lr = linear<init = 0.1, end = 0.01, steps = 4.0>\n"


WEIGHTED = """
train.optimizer @o = adamw<lr = 0.1, weight_decay = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<4xf32>, %n: tensor<f32>) accumulate(2) {
  %w = train.read @w : tensor<4xf32>
  %m = nn.mul %w, %x : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %m dims [0] : tensor<4xf32>
  train.yield loss(%s) weight(%n) : tensor<f32>, tensor<f32>
}
"""


def run(text, options, bad, value):
    """The reports of the updates, all that is stored in the end; `bad` (a window, its micro-step) holds `value`, or the
    window is left out if there is no value."""
    rng = np.random.default_rng(3)
    seen = []
    with trainer(text, *options) as t:
        for window in range(WINDOWS):
            before = parameters_of(t) | states_of(t)
            for k in range(K):
                gradients = {f"g{n}": rng.standard_normal(s) for n, s, *_ in PARAMETERS}
                if window == bad[0] and value is None:
                    continue
                if (window, k) == bad:
                    gradients["gb"][4098] = value
                result = t.step(**gradients)
            if window != bad[0]:
                seen.append((result.update, result.grad_norm))
            elif value is not None:
                after = parameters_of(t) | states_of(t)
                moved = [key for key in after if not np.array_equal(after[key], before[key])]
                if moved or result.updated or result.finite or result.skipped != 1:
                    sys.exit(f"skipped {result.skipped}, finite {result.finite}, moved {moved}")
        return seen, parameters_of(t) | states_of(t)


def check_weights():
    with trainer(WEIGHTED) as t:
        for skipped, weights in enumerate(((1, np.nan), (1, np.inf), (-np.inf, 1), (np.inf, -np.inf), (1, -1), (1, 1))):
            before = parameters_of(t) | states_of(t)
            for n in weights:
                result = t.step(x=np.ones(4), n=n)
            is_last = weights == (1, 1)
            if result.updated != is_last or result.finite != is_last or equal(parameters_of(t) | states_of(t), before) == is_last:
                sys.exit(f"weights {weights}: finite {result.finite}, updated {result.updated}, skipped {result.skipped} and not {skipped}")
    print("weights: ok")


def main():
    check_weights()
    for optimizer in OPTIMIZERS:
        text = SCHEDULE + (optimizer if optimizer == USERS else f"train.optimizer @o = {optimizer}")
        for clip, options in (("global_norm<1.0>", ()), ("param_norm<0.5>", ()), ("value<0.3>", (UNFUSED,))):
            whole = module(text, PARAMETERS, f"accumulate({K}) clip({clip})")
            want = run(whole, options, (BAD, 0), None)
            for k, value in enumerate((np.inf, np.nan)):
                got = run(whole, options, (BAD, k), value)
                if got[0] != want[0] or not equal(got[1], want[1]):
                    sys.exit(f"{optimizer}, {clip}: the skipped window left a trace")
        print(f"{optimizer.splitlines()[0]}: ok", flush=True)


if __name__ == "__main__":
    main()
