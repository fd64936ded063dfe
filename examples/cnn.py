#!/usr/bin/env python3
"""Prints a small convolutional net: 3x3 convolutions with ReLU, one 2x2 max pool, one linear layer to class logits."""
from trainc_text import classifier, new_module, parser

DIGITS = dict(filters=[16, 32], batch=32, eval_batch=60, optimizer=["adamw"], lr=3e-3, weight_decay=0.05,
              schedule=["warmup_cosine", "warmup=50", "total=1500"])


def options():
    p = parser(__doc__, batch=64)
    p.add_argument("--channels", type=int, default=1)
    p.add_argument("--height", type=int, default=8)
    p.add_argument("--width", type=int, default=8)
    p.add_argument("--filters", type=int, nargs="+", default=[16, 32], help="of each convolution")
    p.add_argument("--classes", type=int, default=10)
    p.add_argument("--digits", action="store_true", help="other defaults: those for 1500 updates on examples/data/digits_*")
    if p.parse_known_args()[0].digits:
        p.set_defaults(**DIGITS)
    return p.parse_args()


def main():
    o = options()
    module = new_module(o)
    channels = [o.channels, *o.filters]
    features = o.filters[-1] * (o.height // 2) * (o.width // 2)

    def init(fan_in):
        return f"normal<{(2 / fan_in) ** 0.5:.6f}>" if o.digits else "normal<0.02>"

    for i in range(1, len(channels)):
        module.param(f"conv{i}.weight", (channels[i], channels[i - 1], 3, 3), init(9 * channels[i - 1]))
        module.param(f"conv{i}.bias", (channels[i],), "zeros")
    module.linear("fc", features, o.classes, init=init(features))

    def model(body, x):
        for i in range(1, len(channels)):
            w, b = body.read(f"conv{i}.weight"), body.read(f"conv{i}.bias")
            shape = (x.shape[0], channels[i], o.height, o.width)
            x = body.op(f"nn.conv2d {x.name}, {w.name} bias {b.name} padding [1, 1, 1, 1] : {x.type},"
                        f" {w.type}, {b.type}", (shape, x.element))
            x = body.pointwise("relu", x)
        pooled = (*x.shape[:2], o.height // 2, o.width // 2)
        x, _ = body.op(f"nn.max_pool2d {x.name} window [2, 2] : {x.type}",
                       (pooled, x.element), (pooled, "i32"))
        return body.linear(body.reshape(x, (x.shape[0], features)), "fc")

    classifier(module, o, model, ((o.channels, o.height, o.width), None), ())
    print(module, end="")


if __name__ == "__main__":
    main()
