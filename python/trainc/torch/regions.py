"""Optimizers of `torch.optim` that the dialect has no name for, as scalar regions: one element of a parameter at a time."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..emit import number

Settings = dict[str, Any]


class Region:
    """The lines of a region on numbers of one type; `t` is the count of updates with this one, `lr` the learning rate."""

    def __init__(self, dtype: str):
        self.dtype, self.lines, self._next = dtype, [], 0
        self.lr, self.t = self.narrow("%lr"), "%t"

    def op(self, name: str, *operands: str, dtype: str | None = None) -> str:
        self._next += 1
        self.lines.append(f"  %{self._next} = {name} {', '.join(operands)} : {dtype or self.dtype}")
        return f"%{self._next}"

    def number(self, value: float, dtype: str | None = None) -> str:
        return self.op("arith.constant", number(value), dtype=dtype)

    def narrow(self, x: str) -> str:
        """An f64 in the region's type."""
        return x if self.dtype == "f64" else self.op("arith.truncf", x, dtype=f"f64 to {self.dtype}")

    def add(self, a: str, b: str) -> str:
        return self.op("arith.addf", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.op("arith.subf", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.op("arith.mulf", a, b)

    def div(self, a: str, b: str) -> str:
        return self.op("arith.divf", a, b)

    def power(self, base: float, factor: float = 1.0, more: float = 0.0) -> str:
        """base^((t + more) factor), in f64."""
        exponent = self.op("arith.addf", self.t, self.number(more, "f64"), dtype="f64")
        exponent = self.op("arith.mulf", exponent, self.number(factor, "f64"), dtype="f64")
        return self.op("math.powf", self.number(base, "f64"), exponent, dtype="f64")

    def less_from_one(self, x: str) -> str:
        """1 - x, of f64, in the region's type."""
        return self.narrow(self.op("arith.subf", self.number(1.0, "f64"), x, dtype="f64"))

    def moment(self, old: str, new: str, decay: float) -> str:
        """decay old + (1 - decay) new."""
        return self.add(self.mul(self.number(decay), old), self.mul(self.number(1.0 - decay), new))

    def text(self, name: str, states: dict[str, float], rate: str, results: list[str]) -> str:
        arguments = ", ".join(f"%{x}: {self.dtype}" for x in ("p", "g", *states))
        kept = ", ".join(f"{state} = {number(value)}" for state, value in states.items())
        return "\n".join([f"train.optimizer {name}({arguments}, %lr: f64, %t: f64) state({kept}) hyper(lr = {rate}, t = \"update\") {{",
                          *self.lines, f"  train.yield {', '.join(results)} : {', '.join([self.dtype] * len(results))}", "}"])


def _decayed(r: Region, g: Settings, decoupled: bool) -> tuple[str, str]:
    """The parameter and its gradient, by the sign and with the decay that the settings give."""
    p, gradient = "%p", r.op("arith.negf", "%g") if g["maximize"] else "%g"
    if g["weight_decay"]:
        rate = r.number(g["weight_decay"])
        if decoupled:
            p = r.sub(p, r.mul(r.mul(r.lr, rate), p))
        else:
            gradient = r.add(gradient, r.mul(rate, p))
    return p, gradient


def adam(r: Region, g: Settings, decoupled: bool) -> tuple[dict[str, float], list[str]]:
    """Adam and AdamW with `amsgrad` or `maximize`: the denominator is of the largest second moment so far."""
    (b1, b2), (p, gradient) = g["betas"], _decayed(r, g, decoupled)
    m, v = r.moment("%m", gradient, b1), r.moment("%v", r.mul(gradient, gradient), b2)
    states, results = {"m": 0.0, "v": 0.0}, [m, v]
    if g["amsgrad"]:
        states["v_max"] = 0.0
        v = r.op("arith.maximumf", "%v_max", v)
        results.append(v)
    root = r.div(r.op("math.sqrt", v), r.op("math.sqrt", r.less_from_one(r.power(b2))))
    step = r.div(r.lr, r.less_from_one(r.power(b1)))
    return states, [r.sub(p, r.div(r.mul(step, m), r.add(root, r.number(g["eps"])))), *results]


def nadam(r: Region, g: Settings) -> tuple[dict[str, float], list[str]]:
    """With the product of all momenta as a state of each element."""
    (b1, b2), (p, gradient) = g["betas"], _decayed(r, g, g["decoupled_weight_decay"])

    def momentum(more: float) -> str:
        faded = r.op("arith.mulf", r.number(0.5, "f64"), r.power(0.96, g["momentum_decay"], more), dtype="f64")
        return r.mul(r.number(b1), r.less_from_one(faded))

    now, then = momentum(0.0), momentum(1.0)
    product = r.mul("%mu_product", now)
    m, v = r.moment("%m", gradient, b1), r.moment("%v", r.mul(gradient, gradient), b2)
    root = r.add(r.op("math.sqrt", r.div(v, r.less_from_one(r.power(b2)))), r.number(g["eps"]))
    one = r.number(1.0)
    direct = r.div(r.mul(r.lr, r.sub(one, now)), r.sub(one, product))
    ahead = r.div(r.mul(r.lr, then), r.sub(one, r.mul(product, then)))
    p = r.sub(p, r.div(r.mul(direct, gradient), root))
    p = r.sub(p, r.div(r.mul(ahead, m), root))
    return {"mu_product": 1.0, "m": 0.0, "v": 0.0}, [p, product, m, v]


def sgd(r: Region, g: Settings) -> tuple[dict[str, float], list[str]]:
    """SGD that ascends, or with dampening and Nesterov's momentum. The first update is without dampening."""
    p, gradient = _decayed(r, g, decoupled=False)
    if not g["momentum"]:
        return {}, [r.sub(p, r.mul(r.lr, gradient))]
    new = gradient
    if g["dampening"]:
        begins = r.op("arith.cmpf", "oeq", r.t, r.number(1.0, "f64"), dtype="f64")
        new = r.op("arith.select", begins, gradient, r.mul(r.number(1.0 - g["dampening"]), gradient))
    trace = r.add(r.mul(r.number(g["momentum"]), "%trace"), new)
    step = r.add(gradient, r.mul(r.number(g["momentum"]), trace)) if g["nesterov"] else trace
    return {"trace": 0.0}, [r.sub(p, r.mul(r.lr, step)), trace]


Rule = Callable[[Region, Settings], tuple[dict[str, float], list[str]]]
