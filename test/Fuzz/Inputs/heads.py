"""Losses of random steps: see valid.py. `b` is the Builder of the step."""
from trainc_text import Value, tensor


def heads(b, operands, attributes):
    """The clause of two losses of one weight."""
    rng, (v, weight, targets) = b.rng, operands
    t = Value("", (), "f64" if v.element == "f64" else "f32")
    other = rng.choice([v, b.op("tanh {}", v), b.op("sigmoid {}", v)])
    losses = [b.op(f"linear_cross_entropy {{}}, {{}}, {{}}{attributes}", x, weight, targets, results=2) for x in (v, other)]
    if rng.random() < 0.5:
        losses.reverse()
    w = b.op("add {}, {}", *(Value(x.name, (), t.element) for x in losses))
    return f"loss({w.name}) weight({losses[0].name[:-1]}1) : {t.type}, {t.type}"


def biased(b, operands, classes, attributes):
    """The clause of a loss of a weight and a bias, whose type stands last."""
    v, t = operands[0], "tensor<f64>" if b.element == "f64" else "tensor<f32>"
    bias, name = b.parameter((classes,)), f"%v{b.fresh()}"
    b.made += 1
    words, types = ", ".join(o.name for o in operands), ", ".join(o.type for o in operands)
    b.lines.append(f"{name}:2 = nn.linear_cross_entropy {words} bias {bias.name}{attributes.format()} : {types} bias {bias.type}")
    return f"loss({name}#0) weight({name}#1) : {t}, {t}"


def targets(b, v, rows, classes):
    """Classes that are given or computed, now and then by the values themselves."""
    if b.own_order or b.rng.random() < 0.85:
        return b.index(rows, classes)
    i = b.op(f"argmax {{}} dim {len(rows)}", v, shape=rows, element="i32")
    return b.binary("sub", i, b.scalar(b.rng.choice([0, 1]), "i32"))


def loss(b, v):
    """The clause of train.yield."""
    rng = b.rng
    if not v.shape:
        v = b.op("reshape {}", v, shape=(1,), after=f" to {tensor((1,), v.element)}")
    v = b.binary("mul", v, b.parameter(v.shape[-1:], sure=True))
    kind = rng.choice(["cross_entropy", "linear_cross_entropy", "mse", "bce_with_logits", "sum"])
    if kind == "sum":
        w = b.op(f"reduce sum {{}} dims {list(range(len(v.shape)))}", b.binary("mul", v, v), shape=())
        return f"loss({w.name}) : {w.type}"
    rows = v.shape[:-1]
    if kind.endswith("cross_entropy"):
        operands, attributes = [v], rng.choice(["", " {{ignore_index = 1 : i64, label_smoothing = 0.125 : f64}}"])
        if kind == "linear_cross_entropy":
            classes = rng.choice([2, 5])
            turned = rng.random() < 0.3
            operands.append(b.parameter((classes, v.shape[-1]) if turned else (v.shape[-1], classes)))
            operands.append(targets(b, v, rows, classes))
            attributes = " transpose_weight" * turned + " wide_logits" * (rng.random() < 0.2) + attributes
            if rng.random() < 0.3:
                return biased(b, operands, classes, attributes)
            if rng.random() < 0.4:
                return heads(b, operands, attributes)
        else:
            if rng.random() < 0.5:  # logits of which a pass makes one operation with the loss
                classes = rng.choice([2, 5])
                v = operands[0] = b.op("linear {}, {}", v, b.parameter((v.shape[-1], classes)), shape=(*rows, classes))
            operands.append(targets(b, v, rows, v.shape[-1]))
    else:
        operands, attributes = [v, b.input(v.shape, v.element)], ""
    words = f"{kind} {', '.join('{}' for _ in operands)}"
    if rng.random() < 0.3:
        operands.append(b.input(rows, "f32" if v.element != "f64" else "f64"))
        words += " weights {}"
    w = b.op(words + attributes, *operands, results=2)
    t = "tensor<f64>" if v.element == "f64" else "tensor<f32>"
    # A count of random weights may be near 0.
    return f"loss({w.name}) weight({w.name[:-1]}1) : {t}, {t}" if "weights" not in words else f"loss({w.name}) : {t}"
