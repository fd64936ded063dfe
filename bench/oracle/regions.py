"""Evaluates the scalar regions that train-expand-optimizers prints, in NumPy.

The oracle of update rules: `load(text)` gives the optimizers and schedules of a module by name,
with every operation done in the type that the region names.
"""

import re

import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "i1": np.bool_}
COMPARE = {
    "olt": np.less,
    "ole": np.less_equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "oeq": np.equal,
}
OPS = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.ori": np.logical_or,
    "arith.select": np.where,
    "math.powf": np.power,
    "math.sqrt": np.sqrt,
    "math.absf": np.abs,
    "math.cos": np.cos,
    "math.floor": np.floor,
}


def fma(a, b, c):
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


class Region:
    """One block: argument names and types, operations, yielded names."""

    def __init__(self, header):
        arguments = re.findall(r"(%\w+): (\w+)", header)
        self.names = [name for name, _ in arguments]
        self.types = [TYPES[type] for _, type in arguments]
        self.lines = []

    def __call__(self, *arguments):
        assert len(arguments) == len(self.names), (len(arguments), self.names)
        values = {
            name: np.asarray(value, type)
            for name, type, value in zip(self.names, self.types, arguments)
        }
        with np.errstate(all="ignore"):
            for line in self.lines:
                if line.startswith("train.yield"):
                    return [values[name] for name in re.findall(r"%\w+", line)]
                result, op, rest = re.match(r"(%\w+) = ([\w.]+) (.*)", line).groups()
                operands = [values[name] for name in re.findall(r"%\w+", rest)]
                values[result] = self.evaluate(op, operands, rest)

    def evaluate(self, op, operands, rest):
        if op == "arith.constant":
            value, type = re.match(r"(\S+) : (\w+)", rest).groups()
            return np.asarray(float(value), TYPES[type])
        if op == "arith.cmpf":
            return COMPARE[rest.split(",")[0]](*operands)
        if op in ("arith.truncf", "arith.extf"):
            return operands[0].astype(TYPES[rest.split()[-1]])
        if op == "math.fma":
            return fma(*operands)
        return np.asarray(OPS[op](*operands))


def parse_list(text):
    """`name = value, ...` as a dict; a value that is not a number stays text."""
    result = {}
    for name, value in re.findall(r"(\w+) = ([^,]+)", text):
        try:
            result[name] = float(value)
        except ValueError:
            result[name] = value
    return result


class Rule:
    """A train.schedule or train.optimizer in region form."""

    def __init__(self, header):
        def clause(name):
            match = re.search(name + r"\(([^)]*)\)", header)
            return parse_list(match.group(1)) if match else {}

        self.state, self.hyper = clause("state"), clause("hyper")
        self.body = Region(header[: header.index(")")])
        self.scaled = None

    def schedule(self, t):
        return float(self.body(t, *self.hyper.values())[0])

    def update(self, p, g, state, hyper):
        """New parameter and state; hyper holds a number per run-time scalar."""
        scalars = [hyper[name] for name in self.hyper]
        first, *state = self.body(p, g, *state, *scalars)
        if self.scaled is None:
            return first, state
        norms = [np.linalg.norm(x.ravel()) for x in (p, first)]
        first, *state = self.scaled(p, first, *norms, *state, *scalars)
        return first, state


def load(text):
    rules, rule, region = {}, None, None
    for line in map(str.strip, text.splitlines()):
        match = re.match(r"train\.(?:schedule|optimizer) @(\w+)\(", line)
        if match:
            rule = rules[match.group(1)] = Rule(line[match.end() - 1 :])
            region = rule.body
        elif line.startswith("} scaled"):
            region = rule.scaled = Region(line)
        elif line == "}":
            region = None
        elif region is not None:
            region.lines.append(line)
    return rules
