"""Changes a module's text at random: mostly so that it still parses, sometimes byte by byte."""
import re

from optimizers import optimizer

CLIPS = ["global_norm", "param_norm", "value"]
FAMILIES = [
    ["neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "silu", "relu", "stop_gradient",
     "floor", "ceil", "round"],
    ["add", "sub", "mul", "div", "pow", "min", "max"], ["and", "or"], ["softmax", "log_softmax"],
    ["mse", "bce_with_logits", "cross_entropy"], ["max_pool2d", "avg_pool2d"], ["gather", "embedding"],
    ["layer_norm", "rms_norm", "linear", "matmul"], ["sum", "max", "min", "prod"], ["eq", "ne", "lt", "le", "gt", "ge"],
    CLIPS, ["zeros", "ones"], ["normal", "constant"], ["uniform", "truncated_normal"],
    ["tanh", "erf"], ["read", "write"], ["param", "buffer"], ["step", "eval"], ["reduce", "argmax"], ["slice", "pad"],
    ["conv2d", "matmul"],
]
FAMILY = {word: family for family in FAMILIES for word in family}
ELEMENTS = ["f64", "f32", "bf16", "f16", "i8", "i16", "i32", "i64", "i1"]
ODD_ELEMENTS = ["index", "f80", "f128", "tf32", "f8E5M2", "i4", "i7", "i128", "ui8", "si32", "complex<f32>", "vector<2xf32>",
                "none", "memref<2xf32>"]
INTEGERS = ["0", "1", "-1", "2", "3", "5", "7", "31", "32", "33", "64", "127", "128", "255", "256", "1000", "65536", "100000",
            "2147483647", "2147483648", "-2147483648", "4294967296", "1099511627776", "9223372036854775807",
            "-9223372036854775808", "9223372036854775808", "18446744073709551616"]
FLOATS = ["0.0", "-0.0", "1.0", "-1.0", "0.5", "2.0", "1.0e-30", "1.0e-45", "1.0e+30", "3.5e+38", "1.0e+300", "1.0e-320",
          "1.0e+400", "0x7FF8000000000000", "0x7FF0000000000000", "-3.0"]
TYPE = re.compile(r"tensor<((?:\d+x|\?x)*)([a-z]\w*)>")
NUMBER = re.compile(r"(?<![\w.%@#])-?\d+(\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
VALUE = re.compile(r"%\w+(?:#\d+)?")
WORD = re.compile(r"(?<![\w@%])[a-z_]+\w*")
SYMBOL = re.compile(r"@\w+(?:\.\w+)*")
# Definitions whose result has the one type that they show.
KNOWN = re.compile(r"(?m)^\s*(%\w+) = (?:train\.read|nn\.(?:neg|abs|exp|log|sqrt|rsqrt|sin|cos|tanh|erf|sigmoid|silu|relu|"
                   r"gelu|clamp|softmax|log_softmax|dropout|rotary|stop_gradient|constant dense<[^>]*>)) [^:\n]*: "
                   r"(tensor<([^>,]*)>)$")
FLAGS = ["causal", "training", "keep", "transpose_lhs", "transpose_rhs", "transpose_weight", "inverse", "tanh", "frozen",
         "clip(false)", "ema(0.5)", "weights(ema)"]


def pick(rng, pattern, text):
    """A random match, or None."""
    found = list(pattern.finditer(text))
    return rng.choice(found) if found else None


def put(text, match, new):
    return text[:match.start()] + new + text[match.end():]


def number(rng, text):
    match = pick(rng, NUMBER, text)
    if not match:
        return text
    old = match.group()
    if match.group(1):
        return put(text, match, rng.choice(FLOATS))
    near = [str(int(old) + d) for d in (-1, 1, 2)] if len(old) < 20 else []
    return put(text, match, rng.choice(near * 6 + INTEGERS))


def size(rng, text):
    """One size, in all types and in all lists of sizes."""
    sizes = sorted(set(re.findall(r"(?<=[<x])\d+(?=x)", text)))
    if not sizes:
        return text
    old, new = rng.choice(sizes), str(rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 32, 33, 64, 100, 257] * 2
                                                 + [0, 4096, 65537, 1 << 31, 1 << 40]))
    text = re.sub(rf"(?<=[<x]){old}(?=x)", new, text)
    return re.sub(rf"(?<=[\[ ]){old}(?=[,\]])", new, text) if rng.random() < 0.5 else text


def element(rng, text):
    """One element type, everywhere."""
    old, new = rng.choice(["f32", "f32", "f32", "i32", "f64", "i1"]), rng.choice(ELEMENTS * 3 + ODD_ELEMENTS)
    return re.sub(rf"(?<=[<x ]){old}(?![\w])", new, text)


def one_type(rng, text):
    match = pick(rng, TYPE, text)
    if not match:
        return text
    sizes, kind = match.group(1).split("x")[:-1], match.group(2)
    change = rng.randrange(7)
    if change == 0 and sizes:
        sizes[rng.randrange(len(sizes))] = rng.choice(["0", "1", "2", "3", "?", "64", "4294967296", "1099511627777"])
    elif change == 1 and sizes:
        del sizes[rng.randrange(len(sizes))]
    elif change == 2:
        sizes.insert(rng.randint(0, len(sizes)), rng.choice(["1", "2", "7"]))
    elif change == 3:
        kind = rng.choice(ELEMENTS + ODD_ELEMENTS)
    elif change == 4:
        rng.shuffle(sizes)
    elif change == 5:
        kind += rng.choice([', "x"', ", 1 : i32"])
    else:
        return put(text, match, rng.choice(["f32", "tensor<*xf32>", "vector<4xf32>", "memref<4xf32>", "index", "()", "none",
                                            "tuple<f32>", "!nn.token"]))
    if rng.random() < 0.5:  # everywhere
        return text.replace(match.group(), f"tensor<{'x'.join(sizes + [kind])}>")
    return put(text, match, f"tensor<{'x'.join(sizes + [kind])}>")


def word(rng, text):
    found = [m for m in WORD.finditer(text) if m.group() in FAMILY]
    if not found:
        return text
    match = rng.choice(found)
    return put(text, match, rng.choice(FAMILY[match.group()]))


def typed_values(text):
    """{type: [values]} of those whose type the text shows."""
    result = {}
    for m in re.finditer(r"(%\w+): (tensor<[^>]*>)", text):
        result.setdefault(m.group(2), []).append(m.group(1))
    for m in KNOWN.finditer(text):
        result.setdefault(m.group(2), []).append(m.group(1))
    return result


def value(rng, text):
    """Another value of the same type in place of one, or any other."""
    if rng.random() < 0.7:
        lists = [v for v in typed_values(text).values() if len(set(v)) > 1]
        if lists:
            values = rng.choice(lists)
            old, new = rng.choice(values), rng.choice(values)
            uses = list(re.finditer(rf"{old}(?![\w:]| =)", text))
            return put(text, rng.choice(uses), new) if uses else text
    match, other = pick(rng, VALUE, text), pick(rng, VALUE, text)
    return put(text, match, other.group()) if match else text


def line(rng, text):
    """Deletes, doubles, moves or exchanges lines."""
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(5)
    if change == 0:
        del lines[i]
    elif change == 1:
        doubled = re.sub(r"^(\s*)(%\w+)", r"\1\2_again", lines[i])
        doubled = re.sub(r"^(train\.\w+ @\w+)", r"\1_again", doubled)
        lines.insert(i + 1, doubled)
    elif change == 2:
        lines.insert(j, lines.pop(i))
    elif change == 3:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(j, lines[i])
    return "\n".join(lines)


def operation(rng, text):
    """A new operation on a value, and one use of the value replaced by its result."""
    places = list(KNOWN.finditer(text))
    if not places:
        return text
    at = rng.choice(places)
    name, kind, inner = at.group(1, 2, 3)
    shape, e = inner.split("x")[:-1], inner.split("x")[-1]
    new = f"{name}_{rng.randrange(1000)}"
    rank = len(shape)
    dim = rng.randrange(rank) if rank else 0
    other = rng.choice([v for v in typed_values(text[:at.end()]).get(kind, [name])] + [name])
    reads = f"{new} = nn."
    texts = [f"{reads}{rng.choice(FAMILIES[0])} {name} : {kind}"] * 3
    texts += [f"{reads}{rng.choice(FAMILIES[1])} {name}, {other} : {kind}, {kind}"] * 3
    if rank:
        texts += [f"{reads}{rng.choice(['softmax', 'log_softmax'])} {name} dim {dim} : {kind}",
                  f"{reads}concat {name} dim {dim} : {kind}"]
    texts += [f"{reads}dropout {name} rate {rng.choice(['0.0', '0.1', '0.999999'])} : {kind}",
              f"{reads}clamp {name} low -1.0 high {rng.choice(['1.0', '-1.0', '0.5'])} : {kind}",
              f"{reads}transpose {name} {list(range(rank))} : {kind}",
              f"{reads}reshape {name} : {kind} to {kind}", f"{reads}broadcast {name} : {kind} to {kind}",
              f"{reads}cast {name} to {e} : {kind}",
              f"{reads}slice {name} offsets {[0] * rank} sizes [{', '.join(shape)}] : {kind}",
              f"{reads}pad {name} low {[0] * rank} high {[0] * rank} value 0.0 : {kind}",
              f"{reads}reduce sum {name} dims [] : {kind}",
              f"{new} = train.barrier {name} : {kind}",
              f"{new} = train.recompute -> {kind} {{\ntrain.yield {name} : {kind}\n}}",
              f"{new} = nn.map({name}) : ({kind}) -> {kind} {{\n^bb0(%a: {e}):\nnn.yield %a : {e}\n}}"]
    head, tail = text[:at.end()] + "\n" + rng.choice(texts), text[at.end():]
    uses = list(re.finditer(rf"{name}(?![\w:#])", tail))
    return head + (put(tail, rng.choice(uses), new) if uses else tail)


def operations(rng, text):
    for _ in range(rng.randint(2, 5)):
        text = operation(rng, text)
    return text


def clause(rng, text):
    """A clause of the step: added, replaced or doubled."""
    kind = rng.choice(["step", "step", "step", "eval"])
    match = pick(rng, re.compile(rf"train\.{kind} @\w+\([^)]*\)( -> \([^)]*\))?"), text)
    if not match:
        return text
    if kind == "eval":
        new = rng.choice(["weights(ema)", '-> ("a")', "attributes {ema = 1}", "attributes {input_names = []}"])
    else:
        new = rng.choice([f"accumulate({rng.choice(INTEGERS[:12] * 3 + INTEGERS)})",
                          f"accumulate({rng.choice(['2', '3'])}, average = false)",
                          f"clip({rng.choice(CLIPS)}<{rng.choice(FLOATS)}>)", f"clip({rng.choice(CLIPS)}<1.0>)",
                          f"precision(compute = {rng.choice(ELEMENTS + ODD_ELEMENTS[:4])})", "precision(compute = bf16)",
                          f"precision(compute = bf16, keep_f32 = [{rng.choice(SYMBOL.findall(text))}])",
                          rng.choice(['attributes {accumulate = "x"}', "attributes {clip_kind = 9 : i32}"])])
    if not new.startswith("attributes"):  # in place of another of its kind
        text = re.sub(rf" {new.split('(')[0]}\([^)]*\)", "", text)
        match = re.search(re.escape(match.group()), text) or match
    return text[:match.end()] + " " + new + text[match.end():]


def optimizers(rng, text):
    """Another optimizer in place of one."""
    match = pick(rng, re.compile(r"(?m)^train\.optimizer @(\w+) = .*$"), text)
    if not match:
        return text
    names = re.findall(r"train\.schedule @(\w+)", text)
    new = optimizer(rng, match.group(1), names, "f32", plain=False)
    if rng.random() < 0.3:
        new = number(rng, new)
    return put(text, match, new)


def attributes(rng, text):
    """An attribute changed, added or dropped; a flag added or dropped."""
    change = rng.randrange(4)
    if change == 0:
        match = pick(rng, re.compile(r" \{\w+ = [^}\n]*\}"), text)
        return put(text, match, "") if match else text
    if change == 1:
        match = pick(rng, re.compile(r"(?m) : (?=tensor<)"), text)
        new = rng.choice(["eps = 0.0", "eps = -1.0", "groups = 0 : i64", "site = 3 : i64", "offset = -5 : i64", "momentum = 2.0",
                          "ignore_index = 0 : i64", "label_smoothing = 1.0", "label_smoothing = 0.5", "keep", "causal", "training",
                          "scale = 0.0", "dims = array<i64: 9>", "strides = array<i64: 0, 0>", "padding = array<i64: -1>",
                          "operandSegmentSizes = array<i32: 9>", "value = 1", "type = i32", "count_include_pad = 3 : i64"])
        return put(text, match, " {" + new + "} : ") if match else text
    flag = rng.choice(FLAGS)
    if change == 2:
        return text.replace(" " + flag, "", 1)
    match = pick(rng, re.compile(r"(?m) : (?=tensor<)|$"), text)
    return put(text, match, f" {flag}{match.group()}")


def symbol(rng, text):
    match, other = pick(rng, SYMBOL, text), pick(rng, SYMBOL, text)
    return put(text, match, rng.choice([other.group()] * 4 + ["@absent", "@step", '@"a b/c"', '@""'])) if match else text


def list_length(rng, text):
    match = pick(rng, re.compile(r"\[([-\d, ]*)\]"), text)
    if not match:
        return text
    items = [i for i in match.group(1).split(", ") if i]
    if items and rng.random() < 0.5:
        items.pop(rng.randrange(len(items)))
    else:
        items.append(rng.choice(items + ["0", "1"]))
    rng.shuffle(items)
    return put(text, match, f"[{', '.join(items)}]")


def splice(rng, text, other):
    """A line of another module."""
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), rng.choice(other.split("\n")))
    return "\n".join(lines)


def raw(rng, text):
    """Bytes: flipped, dropped, doubled, cut."""
    data = bytearray(text.encode("utf-8", "surrogateescape"))
    if not data:
        return text
    i, n = rng.randrange(len(data)), rng.randint(1, 12)
    change = rng.randrange(6)
    if change == 0:
        data[i] ^= 1 << rng.randrange(8)
    elif change == 1:
        del data[i:i + n]
    elif change == 2:
        data[i:i] = data[i:i + n]
    elif change == 3:
        data[i:i] = rng.choice([b"{", b"}", b"(", b")", b"<", b">", b"[", b"]", b":", b",", b"%", b"@", b"#", b'"', b"\0", b"\xff",
                                b"//", b"loc(unknown)", b"->", b"=", b"-", b"x", b"?", b"*"])
    elif change == 4:
        data = data[:i]
    else:
        data[i] = rng.randrange(256)
    return data.decode("utf-8", "surrogateescape")


STRUCTURAL = [number] * 8 + [size] * 5 + [element] * 2 + [one_type] + [word] * 8 + [value] * 4 + [line] * 2 \
    + [operation] * 10 + [operations] * 8 + [clause] * 7 + [optimizers] * 5 + [attributes] * 3 + [symbol] + [list_length]


def mutant(rng, text, other):
    """`text` with one to three changes; `other` is another module of the corpus."""
    for _ in range(rng.choice([1, 1, 1, 1, 1, 2, 2, 3])):
        kind = rng.random()
        text = raw(rng, text) if kind < 0.04 else splice(rng, text, other) if kind < 0.07 else \
            rng.choice(STRUCTURAL)(rng, text)
    return text
