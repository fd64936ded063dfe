"""Bodies of entries, made at random: see valid.py. Seldomer recipes are in rare.py."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "examples"))
from trainc_text import Value, tensor  # noqa: E402

import rare  # noqa: E402

UNARY = ["neg", "abs", "sin", "cos", "tanh", "erf", "sigmoid", "silu", "relu", "gelu tanh", "gelu erf", "clamp", "exp",
         "log", "sqrt", "rsqrt", "floor", "ceil", "round"]
BENT = {"abs", "relu", "clamp", "floor", "ceil", "round"}
SIZES = [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 16, 17, 33, 65]
MOST_ELEMENTS, MOST_OPERATIONS = 3000, 30
SHARED_SIZES = [1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 33, 64, 65, 100, 130]
SHARED_ELEMENTS = 24000


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


class Builder:
    """The body of one entry; values are appended as they are made."""

    def __init__(self, rng, element, own_order, trained=True, shared=False, mesh=False):
        self.sizes, self.most = (SHARED_SIZES, SHARED_ELEMENTS) if shared else (SIZES, MOST_ELEMENTS)
        self.recipes, self.small = self.RECIPES + rare.RECIPES + [Builder.share] * 30 * shared, {}
        self.rng, self.element, self.own_order, self.trained = rng, element, own_order, trained
        self.head, self.lines, self.inputs, self.values, self.parameters = [], [], {}, [], []
        self.made, self.numbers, self.used, self.groups = 0, 0, set(), ["o0"]
        self.region, self.types, self.mesh, self.muon = False, ["bf16", "f16"], mesh, False

    # What everything is made of.

    def fresh(self):
        self.numbers += 1
        return self.numbers

    def op(self, text, *operands, shape=None, element=None, after="", results=1):
        """Appends `text` (with {} for operands) `: types after`; the first result."""
        name = f"%v{self.fresh()}"
        self.made += 1
        self.used.add(text.split()[0])
        types = ", ".join(o.type for o in operands)
        self.lines.append(f"{name}{f':{results}' if results > 1 else ''} = nn.{text.format(*(o.name for o in operands))}"
                          f" : {types}{after}")
        first = operands[0] if operands else None
        return Value(name + ("#0" if results > 1 else ""), first.shape if shape is None else tuple(shape),
                     element or first.element)

    def parameter(self, shape, sure=False):
        """A parameter of the shape, now and then one that is there already or is frozen, but for `sure`."""
        rng, shape = self.rng, tuple(shape)
        same = [p for p in self.parameters if p[1] == shape]
        if same and not sure and rng.random() < 0.3:
            name = rng.choice(same)[0]
        else:
            name = f"p{self.fresh()}" + ("" if self.trained else "_fixed")
            init = rng.choice(["normal<0.5>", "normal<0.1, 0.3>", "uniform<-0.5, 0.5>", "ones", "constant<0.25>",
                               "truncated_normal<0.0, 0.4>", "zeros"])
            group = rng.choice([*self.groups, *["muon"] * (self.muon and len(shape) == 2)])
            group = f"optimizer(@{group})" if self.trained and (sure or rng.random() < 0.9) else "frozen"
            self.head.append(f"train.param @{name} : {tensor(shape, self.element)} init({init}) {group}")
            self.parameters.append((name, shape))
        result = f"%r{self.fresh()}"
        self.lines.append(f"{result} = train.read @{name} : {tensor(shape, self.element)}")
        return Value(result, shape, self.element)

    def input(self, shape, element, bound=None):
        name = f"i{self.fresh()}"
        self.inputs[name] = (tuple(shape), element, bound)
        return Value(f"%{name}", tuple(shape), element)

    def shape(self, rank):
        while True:
            shape = tuple(self.rng.choice(self.sizes) for _ in range(rank))
            if count(shape) <= self.most:
                return shape

    def index(self, shape, bound):
        """Indices below the bound, or computed ones, of which some are not in the range."""
        i = self.input(shape, self.rng.choice(["i32", "i32", "i64"]), bound)
        if self.rng.random() < 0.75:
            return i
        return self.binary(self.rng.choice(["add", "sub", "mul"]), i, self.scalar(self.rng.choice([-1, 1, 2]), i.element))

    def scalar(self, number, element=None):
        name, element = f"%c{self.fresh()}", element or self.element
        self.lines.append(f"{name} = nn.constant dense<{number}> : tensor<{element}>")
        return Value(name, (), element)

    def binary(self, op, a, b):
        rank = max(len(a.shape), len(b.shape))
        left, right = ((1,) * (rank - len(v.shape)) + v.shape for v in (a, b))
        return self.op(f"{op} {{}}, {{}}", a, b, shape=[max(m, n) for m, n in zip(left, right)])

    def positive(self, v):
        return self.binary("add", self.op("sigmoid {}" if self.own_order else "abs {}", v), self.scalar(0.5))

    # Recipes: each takes a float value and gives another, or None where it does not fit.

    def unary(self, v):
        op = self.rng.choice([op for op in UNARY if not self.own_order or op not in BENT])
        if op in ("log", "sqrt", "rsqrt"):
            return self.op(f"{op} {{}}", self.positive(v))
        if op == "exp":
            return self.op("exp {}", self.op("tanh {}", v))
        if op == "clamp":
            return self.op("clamp {} low -0.6875 high 0.8125", v)
        name, *form = op.split()
        return self.op(" ".join([name, "{}", *form]), v)

    def with_parameter(self, v):
        shape = list(v.shape[self.rng.randint(0, len(v.shape)):])
        for i in range(len(shape)):
            if self.rng.random() < 0.2:
                shape[i] = 1
        p = self.parameter(shape)
        return self.arithmetic(*((v, p) if self.rng.random() < 0.7 else (p, v)))

    def arithmetic(self, a, b):
        op = self.rng.choice(["add", "sub", "mul", "mul", "div", "pow"] + ["max", "min"] * (not self.own_order))
        if op == "div":
            b = self.positive(b)
        if op == "pow":
            a, b = self.positive(a), self.op("tanh {}", b)
        return self.binary(op, a, b)

    def pair(self, v):
        others = [w for w in self.values if len(w.shape) <= len(v.shape)
                  and all(m in (1, n) for m, n in zip(w.shape[::-1], v.shape[::-1]))]
        return self.arithmetic(v, self.rng.choice(others)) if others else None

    def choose(self, v):
        """Comparison, logic and select."""
        if self.own_order:
            return None
        kind = self.rng.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        c = self.op(f"compare {kind} {{}}, {{}}", v, self.scalar(0.125), element="i1")
        if self.rng.random() < 0.4:
            d = self.op("compare lt {}, {}", v, self.op("neg {}", v), element="i1")
            c = self.op(f"{self.rng.choice(['and', 'or'])} {{}}, {{}}", c, d)
        if self.rng.random() < 0.3:
            c = self.op("not {}", c)
        return self.op("select {}, {}, {}", c, v, self.op("sin {}", v), shape=v.shape, element=v.element)

    def cast(self, v):
        other = self.rng.choice(self.types)
        w = self.op(f"cast {{}} to {other}", v, element=other)
        w = self.op(f"{self.rng.choice(['tanh', 'sigmoid', 'neg', 'silu'])} {{}}", w)
        if self.rng.random() < 0.5 and w.shape:
            w = self.op(f"softmax {{}} dim {len(w.shape) - 1}", w)
        return self.op(f"cast {{}} to {self.element}", w, element=self.element)

    def reshape(self, v):
        shape = list(v.shape)
        if len(shape) > 1 and self.rng.random() < 0.6:
            i = self.rng.randrange(len(shape) - 1)
            shape[i:i + 2] = [shape[i] * shape[i + 1]]
        elif shape:
            i = self.rng.randrange(len(shape))
            factor = self.rng.choice([f for f in range(1, shape[i] + 1) if shape[i] % f == 0])
            shape[i:i + 1] = [factor, shape[i] // factor]
        if len(shape) > 5:
            return None
        return self.op("reshape {}", v, shape=shape, after=f" to {tensor(shape, v.element)}")

    def broadcast(self, v):
        shape = [self.rng.choice([2, 3])] * (len(v.shape) < 4) + [n if n > 1 else self.rng.choice([1, 2, 5])
                                                                  for n in v.shape]
        if count(shape) > self.most:
            return None
        return self.op("broadcast {}", v, shape=shape, after=f" to {tensor(shape, v.element)}")

    def transpose(self, v):
        order = list(range(len(v.shape)))
        self.rng.shuffle(order)
        return self.op(f"transpose {{}} {order}", v, shape=[v.shape[i] for i in order]) if order else None

    def slice(self, v):
        if not v.shape:
            return None
        offsets, sizes, strides = [], [], []
        for n in v.shape:
            offsets.append(self.rng.randrange(n))
            strides.append(self.rng.choice([1, 1, 2, 3]))
            sizes.append(self.rng.randint(1, (n - offsets[-1] - 1) // strides[-1] + 1))
        words = f" strides {strides}" if max(strides) > 1 or self.rng.random() < 0.3 else ""
        return self.op(f"slice {{}} offsets {offsets} sizes {sizes}{words}", v, shape=sizes)

    def pad(self, v):
        low, high, inside = ([self.rng.choice([0, 0, 1, 2]) for _ in v.shape] for _ in range(3))
        shape = [n + a + b + (n - 1) * i for n, a, b, i in zip(v.shape, low, high, inside)]
        if not shape or count(shape) > self.most:
            return None
        return self.op(f"pad {{}} low {low} high {high} interior {inside} value {self.rng.choice([0.0, 3.0 if v.element[0] == 'i' else -1.5])}", v,
                       shape=shape)

    def concat(self, v):
        if not v.shape or 2 * count(v.shape) > self.most:
            return None
        dim = self.rng.randrange(len(v.shape))
        shape = list(v.shape)
        shape[dim] = self.rng.choice([1, 2, 3])
        parts = [v, self.parameter(shape)] + [v] * (self.rng.random() < 0.3)
        self.rng.shuffle(parts)
        shape[dim] = sum(p.shape[dim] for p in parts)
        return self.op(f"concat {', '.join('{}' for _ in parts)} dim {dim}", *parts, shape=shape)

    def gather(self, v):
        if not v.shape:
            return None
        dim = self.rng.randrange(len(v.shape))
        shape = list(v.shape)
        shape[dim] = self.rng.choice([1, 2, 5])
        i = self.index(shape, v.shape[dim])
        return self.op(f"gather {{}}, {{}} dim {dim}", v, i, shape=shape)

    def part(self, v):
        dims = [d for d, n in enumerate(v.shape) if n > 1]
        if not dims:
            return None
        dim = self.rng.choice(dims)
        parts = self.rng.choice([n for n in range(2, v.shape[dim] + 1) if v.shape[dim] % n == 0])
        i = self.input((), "i64", parts)
        shape = list(v.shape)
        shape[dim] //= parts
        self.made += 1
        self.used.add("part")
        name = f"%v{self.fresh()}"
        self.lines.append(f"{name} = nn.part {v.name} at {i.name} dim {dim} of {parts} : {v.type}")
        return Value(name, tuple(shape), v.element)

    def scatter(self, v):
        if not v.shape:
            return None
        dim = self.rng.randrange(len(v.shape))
        shape = list(v.shape)
        shape[dim] = self.rng.choice([1, 3, 4])
        i = self.index(v.shape, shape[dim])
        return self.op(f"scatter_add {{}}, {{}} dim {dim}", i, v, shape=shape, element=v.element,
                       after=f" to {tensor(shape, v.element)}")

    def embedding(self, v):
        width, rows = v.shape[-1] if v.shape else 1, self.rng.choice([1, 3, 7])
        if not v.shape:
            return None
        i = self.index(v.shape[:-1], rows)
        e = self.op("embedding {}, {}", self.parameter((rows, width)), i, shape=v.shape, element=v.element)
        return self.binary("add", v, e)

    def reduce(self, v):
        if not v.shape:
            return None
        dims = sorted(self.rng.sample(range(len(v.shape)), self.rng.randint(1, len(v.shape))))
        kind, keep = self.rng.choice(["sum", "sum", "prod"] + ["max", "min"] * (not self.own_order)), self.rng.random() < 0.5
        if kind == "prod":
            v = self.binary("add", self.op("sigmoid {}", v), self.scalar(0.5))
        shape = [1 if i in dims else n for i, n in enumerate(v.shape) if keep or i not in dims]
        return self.op(f"reduce {kind} {{}} dims {dims}{' keep' * keep}", v, shape=shape)

    def argmax(self, v):
        if not v.shape or self.own_order:
            return None
        dim = self.rng.randrange(len(v.shape))
        shape = list(v.shape)
        shape[dim] = 1
        if self.made % 2:
            return self.op(f"sort {{}} dim {dim}{' descending' * (self.made % 4 == 1)}", v, results=3)
        i = self.op(f"argmax {{}} dim {dim} keep", v, shape=shape, element="i32")
        return self.binary("mul", v, self.op(f"cast {{}} to {self.element}", i, element=self.element))

    def integers(self, v):
        i = self.input(v.shape, self.rng.choice(["i8", "i16", "i32", "i64"]), 7)
        kind = self.rng.choice(["add", "mul", "max", "min", "sub"])
        j = self.op(f"{'div' if self.made % 4 == 3 else kind} {{}}, {{}}", i, i)
        if self.rng.random() < 0.4 and v.shape:
            j = self.op(f"reduce {self.rng.choice(['sum', 'max', 'min'])} {{}} dims [0] keep", j,
                        shape=(1, *v.shape[1:]))
        if self.rng.random() < 0.4 and v.shape:
            self.lines.append(f"%n{self.numbers} = nn.iota dim 0 : {tensor(v.shape, i.element)}")
            j = self.binary("add", j, Value(f"%n{self.numbers}", v.shape, i.element))
        return self.binary("sub", v, self.op(f"cast {{}} to {self.element}", j, element=self.element))

    def softmax(self, v):
        if not v.shape:
            return None
        return self.op(f"{self.rng.choice(['softmax', 'log_softmax'])} {{}} dim {self.rng.randrange(len(v.shape))}", v)

    def row_norm(self, v):
        if not v.shape:
            return None
        w = self.parameter(v.shape[-1:])
        eps = self.rng.choice(["", " {{eps = 1.0e-2}}"])
        if self.rng.random() < 0.4:
            return self.op("rms_norm {}, {}" + eps, v, w)
        if self.rng.random() < 0.5:
            return self.op("layer_norm {}, {}" + eps, v, w)
        return self.op("layer_norm {}, {}, {}" + eps, v, w, self.parameter(v.shape[-1:]))

    def channel_norm(self, v):
        if len(v.shape) < 2:
            return None
        c = v.shape[1:2]
        w, b = self.parameter(c), self.parameter(c)
        if self.rng.random() < 0.5 or self.region or count(v.shape) // c[0] < 2:
            groups = self.rng.choice([g for g in range(1, c[0] + 1) if c[0] % g == 0])
            return self.op(f"group_norm {{}}, {{}}, {{}} groups {groups} {{{{eps = 1.0e-2}}}}", v, w, b)
        statistics = []
        for init in ("zeros", "ones"):
            name = f"b{self.fresh()}"
            self.head.append(f"train.buffer @{name} : {tensor(c, self.element)} init({init})")
            self.lines.append(f"%{name} = train.read @{name} : {tensor(c, self.element)}")
            statistics.append(Value(f"%{name}", c, self.element))
        word, momentum = " training" if self.trained else "", self.rng.choice(["", ", momentum = 0.5", ", momentum = 1.0"])
        y = self.op(f"batch_norm {{}}, {{}}, {{}}, {{}}, {{}}{word} {{{{eps = 1.0e-2{momentum}}}}}", v, w, b, *statistics, results=3)
        if self.trained:
            for i, s in enumerate(statistics):
                self.lines.append(f"train.write {y.name[:-1]}{i + 1} to @{s.name[1:]} : {s.type}")
        return y

    def linear(self, v):
        if not v.shape:
            return None
        out = self.rng.choice(self.sizes[:14])
        if count(v.shape[:-1]) * out > self.most:
            return None
        operands = [v, self.parameter((v.shape[-1], out))] + [self.parameter((out,))] * (self.rng.random() < 0.5)
        return self.op(f"linear {', '.join('{}' for _ in operands)}", *operands, shape=(*v.shape[:-1], out))

    def matmul(self, v):
        if len(v.shape) < 2:
            return None
        *batch, m, k = v.shape
        left, right = self.rng.random() < 0.3, self.rng.random() < 0.5
        if left:
            m, k = k, m
        n = self.rng.choice(self.sizes[:12])
        if count(batch) * m * n > self.most:
            return None
        other = batch if self.rng.random() < 0.5 else []
        w = self.parameter((*other, n, k) if right else (*other, k, n))
        operands, words = [v, w], "matmul {}, {}"
        if self.rng.random() < 0.3:
            operands.append(self.parameter((n,)))
            words += " bias {}"
        return self.op(words + " transpose_lhs" * left + " transpose_rhs" * right, *operands, shape=(*batch, m, n))

    def planes(self, v):
        if len(v.shape) == 4:
            return v
        n = count(v.shape)
        shape = (1, 1, v.shape[-2], v.shape[-1]) if len(v.shape) == 2 else (1, *v.shape) if len(v.shape) == 3 else (1, 1, 1, n)
        return self.op("reshape {}", v, shape=shape, after=f" to {tensor(shape, v.element)}")

    def window(self, v, size, dilations, most):
        """(strides, padding, result's sizes) or None."""
        strides, padding = [self.rng.choice([1, 1, 2, 3]) for _ in range(2)], [self.rng.randint(0, most) for _ in range(4)]
        result = []
        for i in range(2):
            room = v.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - (size[i] - 1) * dilations[i] - 1
            if room < 0:
                return None
            result.append(room // strides[i] + 1)
        return strides, padding, result

    def convolution(self, v):
        if not self.own_order:
            return None
        v = self.planes(v)
        n, c = v.shape[:2]
        size, dilations = [self.rng.choice([1, 2, 3]) for _ in range(2)], [self.rng.choice([1, 1, 2]) for _ in range(2)]
        places = self.window(v, size, dilations, 2)
        groups = self.rng.choice([g for g in range(1, c + 1) if c % g == 0])
        out = groups * self.rng.choice([1, 2, 3])
        if not places or n * out * count(places[2]) > self.most:
            return None
        operands, words = [v, self.parameter((out, c // groups, *size))], "conv2d {}, {}"
        if self.rng.random() < 0.5:
            operands.append(self.parameter((out,)))
            words += " bias {}"
        words += f" strides {places[0]} padding {places[1]} dilations {dilations} groups {groups}"
        return self.op(words, *operands, shape=(n, out, *places[2]))

    def pool(self, v):
        v = self.planes(v)
        size = [self.rng.choice([1, 2, 3]) for _ in range(2)]
        places = self.window(v, size, [1, 1], min(size) - 1)
        if not places:
            return None
        words = f"window {size} strides {places[0]} padding {places[1]}"
        if self.rng.random() < 0.5 and not self.own_order:
            return self.op(f"max_pool2d {{}} {words}", v, shape=(*v.shape[:2], *places[2]), results=2)
        inside = self.rng.choice(["", " {{count_include_pad = false}}"])
        return self.op(f"avg_pool2d {{}} {words}{inside}", v, shape=(*v.shape[:2], *places[2]))

    def attention(self, v):
        if not self.own_order or len(v.shape) < 3:
            return None
        words = self.rng.choice(["", " causal"]) + self.rng.choice(["", "", " scale 0.375"])
        words += " window 2" if "causal" in words and self.made % 4 == 2 else ""
        if self.made % 3 == 1:
            words += " dropout 0.25" + (rare.draws(self, [1] * 4, unit=4) if self.rng.random() < 0.3 else "")
        batch, t = v.shape[0], v.shape[1]
        if len(v.shape) == 3:
            kv = self.rng.choice([1, 2])
            heads, size = kv * self.rng.choice([1, 2]), self.rng.choice([1, 3, 4])
            width = (heads + 2 * kv) * size
            if batch * t * width > self.most:
                return None
            x = self.op("linear {}, {}", v, self.parameter((v.shape[-1], width)), shape=(*v.shape[:2], width))
            return self.op(f"packed_attention {{}} heads {heads} kv_heads {kv}{words}", x,
                           shape=(batch, t, heads * size), results=2)
        if len(v.shape) != 4:
            return None
        heads = v.shape[2]
        kv = self.rng.choice([h for h in range(1, heads + 1) if heads % h == 0])
        tk = self.rng.choice([t, t, 3])
        k, u = (self.parameter((batch, tk, kv, v.shape[3])) for _ in range(2))
        name = f"%v{self.fresh()}"
        self.made += 1
        self.used.add("attention")
        mask, mask_type = "", ""
        if self.rng.random() < 0.4:
            m = self.input((t, tk), self.rng.choice(["i1", self.element]))
            mask, mask_type = f" mask {m.name}", f", {m.type}"
        if tk == t and self.made % 5 == 0:
            s = self.index((batch, t), 3)
            mask += f" segments({s.name} : {s.type})"
        self.lines.append(f"{name}:2 = nn.attention {v.name}, {k.name}, {u.name}{mask}{words} : {v.type}, {k.type}{mask_type}")
        return Value(f"{name}#0", v.shape, v.element)

    def rotary(self, v):
        if len(v.shape) != 4 or v.shape[3] % 2:
            return None
        words = self.rng.choice(["", "", " inverse", " {{offset = 3 : i64}}"])
        return self.op(f"rotary {{}} theta {self.rng.choice([10000.0, 100.0])}{words}", v)

    def dropout(self, v):
        rate = self.rng.choice([0.1, 0.5])
        if self.made % 2:
            return self.op(f"dropout {{}} rate {rate}", v)
        kind = ["normal", "uniform", f"bernoulli p {rate}"][self.made // 2 % 3]
        name = f"%n{self.fresh()}"
        self.used.add("random")
        self.lines.append(f"{name} = nn.random {kind} : {v.type}")
        return self.op("mul {}, {}", v, Value(name, v.shape, v.element))

    def stop(self, v):
        return self.op("stop_gradient {}", v)

    def map(self, v):
        """Of an input: a map has no gradient."""
        x = self.input(v.shape, self.element)
        name = f"%v{self.fresh()}"
        self.made += 1
        self.used.add("map")
        e = self.element
        self.lines += [f"{name} = nn.map({x.name}) : ({x.type}) -> {x.type} {{", f"^bb0(%a: {e}):",
                       f"%b = arith.mulf %a, %a : {e}", f"%d = math.fma %a, %b, %a : {e}", f"nn.yield %d : {e}", "}"]
        return self.binary("add", v, Value(name, x.shape, e))

    def called(self, v):
        name = f"f{self.fresh()}"
        self.head += [f"func.func private @{name}(%a: {v.type}) -> {v.type} {{", f"%b = nn.tanh %a : {v.type}",
                      f"%c = nn.mul %a, %b : {v.type}, {v.type}", f"return %c : {v.type}", "}"]
        result = f"%v{self.fresh()}"
        self.made += 2
        self.lines.append(f"{result} = func.call @{name}({v.name}) : ({v.type}) -> {v.type}")
        return Value(result, v.shape, v.element)

    def recompute(self, v):
        if self.region or not self.trained:
            return None
        outside, self.lines, self.region = self.lines, [], True
        kept, w = list(self.values), v
        for _ in range(self.rng.randint(1, 3)):
            w = self.grow(w)
        inside, self.lines, self.region, self.values = self.lines, outside, False, kept
        if w is v:
            return None
        name = f"%v{self.fresh()}"
        self.used.add("recompute")
        self.lines += [f"{name} = train.recompute -> {w.type} {{", *inside, f"train.yield {w.name} : {w.type}", "}"]
        return Value(name, w.shape, w.element)

    def products(self, v):
        """A sum of products, in any order, beside another that it may be joined to."""
        if len(v.shape) < 2:
            return None
        n = self.rng.choice(self.sizes[:12])
        shape = (*v.shape[:-1], n)
        if 2 * count(shape) > self.most:
            return None
        terms = [self.op("matmul {}, {}", x, self.parameter((v.shape[-1], n)), shape=shape) for x in (v, self.op("tanh {}", v), v)]
        self.rng.shuffle(terms)
        w = self.binary("add", terms[0], terms[1])
        if self.rng.random() < 0.5:
            return self.binary("add", w, terms[2])
        dim = self.rng.choice([0, len(shape) - 1])
        return self.op(f"concat {{}}, {{}} dim {dim}", w, terms[2], shape=[m * (1 + (i == dim)) for i, m in enumerate(shape)])

    def halves(self, v):
        """Two parts that go ways of their own and are joined again."""
        if not v.shape or v.shape[0] < 2:
            return None
        cut, parts = self.rng.randrange(1, v.shape[0]), []
        for begin, size in ((0, cut), (cut, v.shape[0] - cut)):
            shape = (size, *v.shape[1:])
            part = self.op(f"slice {{}} offsets {[begin] + [0] * (len(v.shape) - 1)} sizes {list(shape)}", v, shape=shape)
            if self.rng.random() < 0.5 and len(shape) > 1:
                part = self.op("linear {}, {}", part, self.parameter((shape[-1], shape[-1])))
            parts.append(self.op(f"{self.rng.choice(['tanh', 'sigmoid', 'neg'])} {{}}", part))
        return self.op("concat {}, {} dim 0", *parts, shape=v.shape)

    RECIPES = [unary] * 4 + [with_parameter] * 4 + [pair, choose, cast, reshape, broadcast, transpose, slice, pad, concat,
                             gather, part, scatter, embedding, reduce, argmax, integers, softmax, softmax, row_norm, row_norm,
                             channel_norm, channel_norm, linear, linear, linear, matmul, matmul, convolution, convolution,
                             pool, pool, attention, attention, attention, rotary, dropout, stop, map, called, recompute, products, products,
                             halves]

    MOVES = [reshape, broadcast, transpose, slice, pad, gather]

    def small_value(self, shape):
        """A value of smaller rank, of which some are masks: made by a few operations from what is no tensor of larger rank."""
        rng = self.rng
        name = f"%n{self.fresh()}"
        kind = rng.choice(["constant", "constant", "iota", "parameter", "input", "buffer"])
        if kind == "constant" and shape:
            data = ", ".join(str(rng.randrange(2)) for _ in range(count(shape)))
            self.lines.append(f"{name} = nn.constant dense<[{data}]> : {tensor((count(shape),), 'i8')}")
            w = Value(name, (count(shape),), "i8")
            if len(shape) > 1:
                w = self.op("reshape {}", w, shape=shape, after=f" to {tensor(shape, 'i8')}")
        elif kind == "iota" and shape:
            self.lines.append(f"{name} = nn.iota dim {rng.randrange(len(shape))} : {tensor(shape, 'i32')}")
            w = Value(name, shape, "i32")
        elif kind == "buffer" and self.trained and not self.region:
            name = f"b{self.fresh()}"
            self.head.append(f"train.buffer @{name} : {tensor(shape, self.element)} init(ones)")
            self.lines.append(f"%{name} = train.read @{name} : {tensor(shape, self.element)}")
            w = self.binary(rng.choice(["add", "mul"]), Value(f"%{name}", shape, self.element), self.scalar(0.75))
            self.lines.append(f"train.write {w.name} to @{name} : {w.type}")
        else:
            w = self.input(shape, self.element) if kind == "input" else self.parameter(shape)
        if w.element != self.element and not self.own_order and rng.random() < 0.6:
            return self.op("cast {} to i1", w, element="i1") if rng.random() < 0.5 else self.op(
                "compare ne {}, {}", w, self.op("mul {}, {}", w, w), element="i1")
        if w.element != self.element:
            w = self.op(f"cast {{}} to {self.element}", w, element=self.element)
            w = self.binary("mul", w, self.scalar(0.015625))
        for _ in range(rng.randint(0, 2)):
            w = self.op(f"{rng.choice(['tanh', 'sigmoid', 'neg', 'sin', 'silu'])} {{}}", w)
        return w

    def share(self, v):
        """Uses a value of smaller rank, mostly one that is used already."""
        rng = self.rng
        shape = list(v.shape[rng.randint(min(len(v.shape), 1), len(v.shape)):])
        for i in range(len(shape)):
            if rng.random() < 0.15:
                shape[i] = 1
        shape = tuple(shape)
        fit = [w for key, w in self.small.items() if len(key[0]) <= len(v.shape)
               and all(m in (1, n) for m, n in zip(key[0][::-1], v.shape[::-1]))]
        if self.region and not fit:
            return None
        if fit and (self.region or rng.random() < 0.75):
            w = rng.choice(fit)
        else:
            w = self.small[shape, self.fresh()] = self.small_value(shape)
        if w.element == "i1":
            return self.op("select {}, {}, {}", w, v, self.scalar(-0.5), shape=v.shape, element=v.element)
        return self.binary(rng.choice(["add", "sub", "mul"]), v, w)

    def grow(self, v):
        """A value made from v by some recipe."""
        for _ in range(20):
            result = self.rng.choice(self.recipes)(self, v)
            if result and count(result.shape) <= self.most:
                self.values.append(result)
                return result
        return v
