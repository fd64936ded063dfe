#!/usr/bin/env python3
"""Prints a multi-layer perceptron with ReLU: fc1, fc2, ..., trained on classes by cross entropy."""
from trainc_text import classifier, new_module, parser

DIGITS = dict(hidden=[128], batch=32, eval_batch=60, optimizer=["adamw"], lr=3e-3, weight_decay=0.05,
              schedule=["warmup_cosine", "warmup=50", "total=1500"])


def options():
    p = parser(__doc__, batch=32)
    p.add_argument("--inputs", type=int, default=64)
    p.add_argument("--hidden", type=int, nargs="*", default=[32], help="widths of the hidden layers")
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--digits", action="store_true", help="other defaults: those for 1500 updates on examples/data/digits_*")
    if p.parse_known_args()[0].digits:
        p.set_defaults(**DIGITS)
    return p.parse_args()


def main():
    o = options()
    module = new_module(o)
    sizes = [o.inputs, *o.hidden, o.classes]
    for i in range(1, len(sizes)):
        # Large models of this kind start from normal<0.02>; the digits learn faster from He's deviation.
        init = f"normal<{(2 / sizes[i - 1]) ** 0.5:.6f}>" if o.digits else "normal<0.02>"
        module.linear(f"fc{i}", sizes[i - 1], sizes[i], init=init)

    def model(body, x):
        for i in range(1, len(sizes)):
            x = body.linear(x, f"fc{i}")
            if i < len(sizes) - 1:
                x = body.pointwise("relu", x)
        return x

    classifier(module, o, model, ((o.inputs,), None), ())
    print(module, end="")


if __name__ == "__main__":
    main()
