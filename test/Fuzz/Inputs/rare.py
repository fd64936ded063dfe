"""Recipes beside those of builder.py, of what is seldom written; `b` is the Builder of the body."""
import re
from math import prod

from trainc_text import Value, tensor


def named(b, text, shape, element, results=1):
    """Appends an operation whose operands' types are not simply those of its operands; the first result."""
    name = f"%v{b.fresh()}"
    b.made += 1
    b.used.add(re.search(r"nn\.(\w+)", text)[1])
    b.lines.append(f"{name}{f':{results}' if results > 1 else ''} = {text}")
    return Value(name + "#0" * (results > 1), tuple(shape), element)


def added(b, v, w):
    """v + w of all of its elements, of which none is large."""
    if w.element != v.element:
        w = b.op(f"cast {{}} to {v.element}", w, element=v.element)
    if w.shape != v.shape:
        w = b.op(f"reduce sum {{}} dims {list(range(len(w.shape)))}", w, shape=())
    return b.binary("add", v, b.binary("mul", w, b.scalar(0.0625)))


def draws(b, sizes, unit=1):
    """`first` and `strides` of what draws as a part of a tensor does."""
    rng = b.rng
    if rng.random() < 0.5:
        first = b.input((), "i64", 1000) if unit == 1 else b.scalar(unit * rng.choice([1, 7]), "i64")
    else:
        first = b.scalar(unit * rng.choice([0, 3, 2**32 + 1, 2**34, 2**40]), "i64")
    order, step, strides = list(range(len(sizes))), unit, [0] * len(sizes)
    if rng.random() < 0.5:
        rng.shuffle(order)
    for i in order[::-1]:
        strides[i] = step if rng.random() < 0.8 else unit * rng.choice([0, 5, 2**32])
        step *= sizes[i] * rng.choice([1, 1, 1, 2])
    return f" first {first.name} strides {strides}"


def part_of_draws(b, v):
    rate, where = b.rng.choice([0.25, 0.5]), draws(b, v.shape)
    if b.rng.random() < 0.5:
        return named(b, f"nn.dropout {v.name} rate {rate}{where} : {v.type}", v.shape, v.element)
    kind = b.rng.choice(["normal", "uniform", f"bernoulli p {rate}"])
    element = b.rng.choice([v.element, "bf16", "f16"])
    w = named(b, f"nn.random {kind}{where} : {tensor(v.shape, element)}", v.shape, element)
    return b.op("mul {}, {}", v, w if element == v.element else b.op(f"cast {{}} to {v.element}", w, element=v.element))


def history(b, v):
    """Two buffers, of which one takes what stood in the other."""
    if b.region or not b.trained or not v.shape:
        return None
    names, now = [f"b{b.fresh()}" for _ in range(2)], []
    for name in names:
        b.head.append(f"train.buffer @{name} : {v.type} init(constant<0.25>)")
        b.lines.append(f"%{name} = train.read @{name} : {v.type}")
        now.append(Value(f"%{name}", v.shape, v.element))
    new = b.op("tanh {}", v)
    new = b.binary("add", new, now[0]) if b.rng.random() < 0.5 else b.rng.choice([now[1], new])
    writes = [(new, names[0]), (now[0], names[1])]
    b.rng.shuffle(writes)
    b.lines += [f"train.write {value.name} to @{name} : {v.type}" for value, name in writes]
    return b.binary("sub", v, b.binary(b.rng.choice(["add", "mul"]), *now))


def rewritten(b, v):
    """Buffers that are read and written in any order, several times."""
    if b.region or not b.trained or not v.shape:
        return None
    rng, names, known = b.rng, [f"b{b.fresh()}" for _ in range(b.rng.choice([1, 2, 2, 3]))], [v, b.op("tanh {}", v)]
    b.head += [f"train.buffer @{name} : {v.type} init({rng.choice(['zeros', 'normal<0.5>'])})" for name in names]

    def read():
        b.lines.append(f"%r{b.fresh()} = train.read @{rng.choice(names)} : {v.type}")
        known.append(Value(f"%r{b.numbers}", v.shape, v.element))

    def write():
        b.lines.append(f"train.write {rng.choice(known[-3:]).name} to @{rng.choice(names)} : {v.type}")

    def compute():
        kind, x = rng.choice(["add", "sub", "softmax", "tanh", "linear"]), rng.choice(known[-2:])
        if kind in ("add", "sub"):
            known.append(b.binary(kind, x, rng.choice(known)))
        elif kind == "linear":
            known.append(b.op("linear {}, {}", b.op("sigmoid {}", x), b.parameter((v.shape[-1], v.shape[-1])), shape=v.shape))
        else:
            known.append(b.op("tanh {}" if kind == "tanh" else f"softmax {{}} dim {rng.randrange(len(v.shape))}", x))

    for act in [read, *rng.choices([read, write, write, compute], k=rng.randint(3, 8)), compute, write]:
        act()
    return b.binary("add", v, b.op("tanh {}", known[-1]))


def ramp(b, v):
    """Indices past what a narrow type has all numbers of."""
    rng = b.rng
    n = rng.choice([257, 300, 513, 1030, 2049, 2500])
    shape = rng.choice([(n,), (n,), (2, n), (n, 2)])
    if prod(shape) > b.most:
        return None
    dim, element = shape.index(n), rng.choice(["bf16", "bf16", "f16", "f16", "i8", "i16", "i32", b.element])
    w = named(b, f"nn.iota dim {dim} : {tensor(shape, element)}", shape, element)
    if element not in ("bf16", "f16"):
        narrow = rng.choice(["bf16", "f16"])
        w = b.op(f"cast {{}} to {narrow}", w, element=narrow)
    if rng.random() < 0.4:
        w = b.binary(rng.choice(["add", "sub", "mul"]), w, b.scalar(0.75, w.element))
    if w.element != b.element:
        w = b.op(f"cast {{}} to {b.element}", w, element=b.element)
    w = b.binary("mul", w, b.scalar(2.0**-9))
    if rng.random() < 0.5:
        return added(b, v, b.binary("mul", w, b.parameter(shape)))
    offsets, sizes = [m - min(m, 3) for m in shape], [min(m, 3) for m in shape]
    return added(b, v, b.op(f"slice {{}} offsets {offsets} sizes {sizes}", w, shape=sizes))


def powers(b, v):
    """Whole powers of numbers of both signs, which have no gradient."""
    rng = b.rng
    element, whole = rng.choice([b.element] * 3 + ["bf16"]), rng.choice(["i32", "i32", "i16", "i64"])
    x, i = b.input(v.shape, b.element), b.input(v.shape[rng.randint(0, len(v.shape)):], whole, 6)
    if element != b.element:
        x = b.op(f"cast {{}} to {element}", x, element=element)
    e, several = "f64" if element == "f64" else "f32", rng.random() < 0.3
    types = f"({x.type}, {x.type})" if several else x.type
    w = named(b, "\n".join([
        f"nn.map({x.name}, {i.name}) : ({x.type}, {i.type}) -> {types} {{", f"^bb0(%a: {e}, %i: {whole}):",
        f"%half = arith.constant 0.5 : {e}", f"%two = arith.constant 2 : {whole}", f"%j = arith.subi %i, %two : {whole}",
        f"%b = math.absf %a : {e}", f"%c = arith.addf %b, %half : {e}", f"%d = math.copysign %c, %a : {e}",
        f"%p = math.fpowi %d, {rng.choice(['%j', '%i'])} : {e}, {whole}",
        f"nn.yield %p, %d : {e}, {e}" if several else f"nn.yield %p : {e}", "}"]), x.shape, element, 1 + several)
    if several:
        w = b.binary("mul", w, Value(w.name[:-1] + "1", w.shape, element))
    return added(b, v, b.op("tanh {}", w))


def long_rows(b, v):
    """Rows of which a kernel keeps more than what stands on a stack."""
    if b.rng.random() < 0.85:
        return None
    shape = (*b.rng.choice([(), (2,)]), b.rng.choice([9000, 17000, 20000]))
    x, dim = b.binary("mul", b.input(shape, b.element), b.parameter(shape[-1:])), len(shape) - 1
    rows = [b.op(f"{kind} {{}} dim {dim}", x) for kind in ("softmax", "log_softmax")]
    rows.append(b.op(f"{b.rng.choice(['softmax', 'log_softmax'])} {{}} dim {dim}", b.op("sin {}", rows[1])))
    w = b.binary("mul", rows[0], b.binary(b.rng.choice(["add", "mul"]), rows[1], rows[2]))
    return added(b, v, b.op("tanh {}", b.op(f"reduce sum {{}} dims [{dim}]", w, shape=shape[:-1])))


def special(b, v):
    """An operand of which something may be folded."""
    kind = b.rng.choice(["add", "sub", "mul", "div", "pow", "pow"] + ["max", "min"] * (not b.own_order))
    number = b.rng.choice({"div": [1.0, -1.0, 2.0, 3.0], "pow": [0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5]}.get(
        kind, [0.0, -0.0, 1.0, -1.0, 2.0]))
    if kind == "pow" and number not in (1.0, 2.0, 3.0):
        v = b.positive(v)
    return b.binary(kind, *((v, b.scalar(number)) if kind in ("div", "pow") or b.rng.random() < 0.6 else (b.scalar(number), v)))


def whole(b, v):
    """Integers and masks that are moved, compared, sorted and multiplied."""
    rng, kind = b.rng, b.rng.choice(["i8", "i16", "i32", "i64", "i1"])
    w = b.input(v.shape, kind, None if kind == "i1" else 9)
    for _ in range(rng.randint(1, 4)):
        how = rng.choice([b.MOVES, b.MOVES, ["compare"], ["sort"], ["prod"], ["cast"]])
        if how is b.MOVES:
            w = rng.choice([move for move in how if w.element != "i1" or move.__name__ != "pad"])(b, w) or w
        elif w.element == "i1":
            w = b.op("select {}, {}, {}", w, b.scalar(5, "i16"), b.scalar(-2, "i16"), shape=w.shape, element="i16")
        elif how == ["compare"]:
            w = b.op(f"compare {rng.choice(['eq', 'lt', 'ge'])} {{}}, {{}}", w, b.scalar(4, w.element), element="i1")
        elif how == ["cast"]:
            other = rng.choice(["i1", "i8", "i32", "i64"])
            w = b.op(f"cast {{}} to {other}", w, element=other)
        elif w.shape and how == ["sort"]:
            w = b.op(f"sort {{}} dim {rng.randrange(len(w.shape))}", w, results=3)
        elif w.shape:
            w = b.op(f"reduce prod {{}} dims [{len(w.shape) - 1}] keep", w, shape=(*w.shape[:-1], 1))
        if prod(w.shape) > b.most:
            return None
    w = b.op(f"cast {{}} to {b.element}", w, element=b.element)
    return added(b, v, b.op("sin {}", b.binary("mul", w, b.scalar(0.125))))


def truncated(b, v):
    """Converted to integers, some past the range."""
    if b.own_order:
        return None
    w = b.binary("mul", b.op("stop_gradient {}", v), b.scalar(b.rng.choice([10.0, 100.0, 30000.0])))
    for kind in b.rng.sample(["bf16", "f16", "i8", "i16", "i32", "i64"], b.rng.choice([1, 2])) + [b.element]:
        w = b.op(f"cast {{}} to {kind}", w, element=kind)
    return added(b, v, b.op("sin {}", w))


def sorted_by(b, v):
    """Taken by what a sort says of another tensor."""
    if not v.shape or b.own_order:
        return None
    dim, other = b.rng.randrange(len(v.shape)), b.op("sin {}", v)
    s = b.op(f"sort {{}} dim {dim}", other, results=3)
    i = Value(s.name[:-1] + b.rng.choice("12"), v.shape, "i32")
    return b.op(f"gather {{}}, {{}} dim {dim}", v, i, shape=v.shape)


def part_of_table(b, v):
    """An embedding by a part of a table."""
    if not v.shape:
        return None
    rows = b.rng.choice([1, 2, 5])
    of = rows + b.rng.choice([0, 1, 4])
    table, ids, first = b.parameter((rows, v.shape[-1])), b.index(v.shape[:-1], of), b.input((), "i64", of - rows + 1)
    e = named(b, f"nn.embedding {table.name}, {ids.name} from {first.name} of {of} : {table.type}, {ids.type}", v.shape, v.element)
    return b.binary("add", v, e)


def primitive(b, v):
    """What gradients and decompositions are made of: it has no gradient itself."""
    x = b.planes(b.op("stop_gradient {}", v))
    size = [b.rng.choice([1, 2, 3]) for _ in range(2)]
    places = b.window(x, size, [1, 1], min(size) - 1)
    if not places:
        return None
    kind = b.rng.choice(["columns", "average", "pairs", "convolution" if b.own_order else "maximum"])
    words = f"strides {places[0]} padding {places[1]}"
    y, at = (*x.shape[:2], *places[2]), f" : {{}} to {x.type}"
    if kind == "pairs":
        if x.shape[3] % 2:
            return None
        angles = [b.input((x.shape[1], x.shape[3] // 2), x.element) for _ in range(2)]
        x = named(b, f"nn.rotate_pairs {x.name}, {angles[0].name}, {angles[1].name}{b.rng.choice(['', ' inverse'])}"
                     f" : {x.type}, {angles[0].type}", x.shape, x.element)
    elif kind == "columns":
        c = b.op(f"im2col {{}} window {size} {words}", x, shape=(x.shape[1], *size, x.shape[0], *places[2]))
        x = named(b, f"nn.col2im {c.name} {words}" + at.format(c.type), x.shape, x.element)
    elif kind == "average":
        g = b.op(f"avg_pool2d {{}} window {size} {words}", x, shape=y)
        x = named(b, f"nn.avg_pool2d_grad {g.name} window {size} {words}" + at.format(g.type), x.shape, x.element)
    elif kind == "maximum":
        g = b.op(f"max_pool2d {{}} window {size} {words}", x, shape=y, results=2)
        x = named(b, f"nn.max_pool2d_grad {g.name}, {g.name[:-1]}1 window {size} {words}"
                     + at.format(f"{g.type}, {tensor(y, 'i32')}"), x.shape, x.element)
    else:
        w = b.input((2, x.shape[1], *size), x.element)
        g = b.op(f"conv2d {{}}, {{}} {words}", x, w, shape=(x.shape[0], 2, *places[2]))
        x = named(b, f"nn.conv2d_input_grad {w.name}, {g.name} {words}" + at.format(f"{w.type}, {g.type}"), x.shape, x.element)
    if prod(x.shape) > b.most:
        return None
    w = b.op("reshape {}", x, shape=v.shape, after=f" to {v.type}") if x.shape != v.shape else x
    return added(b, v, w)


def constrained(b, v):
    """Said to be sharded, over axes of one rank."""
    if not b.mesh or not v.shape:
        return None
    axes = b.rng.sample(["host", "data"], b.rng.choice([0, 1, 2]))
    name = f"%v{b.fresh()}"
    b.lines.append(f"{name} = train.constrain {v.name} split([{', '.join(axes)}]) : {v.type}")
    return Value(name, v.shape, v.element)


RECIPES = [history, part_of_draws, rewritten, rewritten, ramp, powers, long_rows, special, special, whole, whole, truncated, sorted_by,
           part_of_table, primitive, constrained]
