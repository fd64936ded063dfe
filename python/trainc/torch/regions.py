"""Optimizers of `torch.optim` that the dialect has no name for, as scalar regions: one element of a parameter at a time. Numbers have the
names that they have in named optimizers."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..regions import UpdateRegion

Settings = dict[str, Any]
States = dict[str, float]


def _decayed(r: UpdateRegion, g: Settings) -> tuple[str, str]:
    """The parameter and its gradient, by the sign and with the decay that the settings give."""
    p, gradient = "%p", r.op("arith.negf", "%g") if g["maximize"] else "%g"
    if "l2" in r.numbers:
        gradient = r.add(gradient, r.mul(r.hyper("l2"), p))
    if "weight_decay" in r.numbers:
        p = r.sub(p, r.mul(r.mul(r.lr, r.hyper("weight_decay")), p))
    return p, gradient


def _corrections(r: UpdateRegion) -> tuple[str, str]:
    """Of the bias of both moments, in f64: 1 - b1^t and 1 - b2^t."""
    first, second = (r.wide("arith.subf", 1.0, r.wide("math.powf", f"%{b}", r.t)) for b in ("b1", "b2"))
    return first, second


def adam(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    """Adam and AdamW with `amsgrad` or `maximize`: the denominator is of the largest second moment so far."""
    p, gradient = _decayed(r, g)
    m, v = r.moment("%m", gradient, "b1"), r.moment("%v", r.mul(gradient, gradient), "b2")
    states, results = {"m": 0.0, "v": 0.0}, [m, v]
    if g["amsgrad"]:
        states["v_max"] = 0.0
        v = r.op("arith.maximumf", "%v_max", v)
        results.append(v)
    first, second = map(r.narrow, _corrections(r))
    root = r.div(r.op("math.sqrt", v), r.op("math.sqrt", second))
    return states, [r.sub(p, r.div(r.mul(r.div(r.lr, first), m), r.add(root, r.hyper("eps")))), *results]


def nadam(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    """With the product of all momenta as a state of each element."""
    p, gradient = _decayed(r, g)

    def momentum(more: float) -> str:
        exponent = r.wide("arith.mulf", r.wide("arith.addf", r.t, more), "%momentum_decay")
        return r.mul(r.hyper("b1"), r.less_from_one(r.wide("arith.mulf", 0.5, r.wide("math.powf", 0.96, exponent))))

    now, then = momentum(0.0), momentum(1.0)
    product = r.mul("%mu_product", now)
    m, v = r.moment("%m", gradient, "b1"), r.moment("%v", r.mul(gradient, gradient), "b2")
    root = r.add(r.op("math.sqrt", r.div(v, r.narrow(_corrections(r)[1]))), r.hyper("eps"))
    one = r.number(1.0)
    direct = r.div(r.mul(r.lr, r.sub(one, now)), r.sub(one, product))
    ahead = r.div(r.mul(r.lr, then), r.sub(one, r.mul(product, then)))
    p = r.sub(p, r.div(r.mul(direct, gradient), root))
    p = r.sub(p, r.div(r.mul(ahead, m), root))
    return {"mu_product": 1.0, "m": 0.0, "v": 0.0}, [p, product, m, v]


def sgd(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    """SGD that ascends, or with dampening and Nesterov's momentum. The first update is without dampening."""
    p, gradient = _decayed(r, g)
    if "momentum" not in r.numbers:
        return {}, [r.sub(p, r.mul(r.lr, gradient))]
    new = gradient
    if "dampening" in r.numbers:
        begins = r.wide("arith.cmpf", "oeq", r.t, r.number(1.0, "f64"))
        new = r.op("arith.select", begins, gradient, r.mul(r.less_from_one("%dampening"), gradient))
    trace = r.add(r.mul(r.hyper("momentum"), "%trace"), new)
    step = r.add(gradient, r.mul(r.hyper("momentum"), trace)) if g["nesterov"] else trace
    return {"trace": 0.0}, [r.sub(p, r.mul(r.lr, step)), trace]


def radam(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    """RAdam that ascends: as Adam, times a factor, from where the length of the average that b2 makes is above 5, on f64."""
    p, gradient = _decayed(r, g)
    m, v = r.moment("%m", gradient, "b1"), r.moment("%v", r.mul(gradient, gradient), "b2")
    first, second = _corrections(r)
    most = r.wide("arith.subf", r.wide("arith.divf", 2.0, r.wide("arith.subf", 1.0, "%b2")), 1.0)
    faded = r.wide("arith.mulf", r.wide("arith.mulf", 2.0, r.t), r.wide("arith.subf", 1.0, second))
    length = r.wide("arith.subf", most, r.wide("arith.divf", faded, second))
    share = r.wide("arith.divf", most, length)
    for less in 4.0, 2.0:
        share = r.wide("arith.mulf", share, r.wide("arith.divf", r.wide("arith.subf", length, less), r.wide("arith.subf", most, less)))
    factor = r.narrow(r.wide("math.sqrt", r.wide("arith.mulf", share, second)))
    adapted = r.div(factor, r.add(r.op("math.sqrt", v), r.hyper("eps")))
    factor = r.op("arith.select", r.wide("arith.cmpf", "ogt", length, r.number(5.0, "f64")), adapted, r.number(1.0))
    return {"m": 0.0, "v": 0.0}, [r.sub(p, r.mul(r.mul(r.lr, r.div(m, r.narrow(first))), factor)), m, v]


def adamax(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    p, gradient = _decayed(r, g)
    m = r.moment("%m", gradient, "b1")
    v = r.op("arith.maximumf", r.mul(r.hyper("b2"), "%v"), r.add(r.op("math.absf", gradient), r.hyper("eps")))
    return {"m": 0.0, "v": 0.0}, [r.sub(p, r.div(r.mul(r.div(r.lr, r.narrow(_corrections(r)[0])), m), v)), m, v]


def adagrad(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    p, gradient = _decayed(r, g)
    total, rate = r.add("%sum", r.mul(gradient, gradient)), r.lr
    if "lr_decay" in r.numbers:
        done = r.wide("arith.mulf", r.wide("arith.subf", r.t, 1.0), "%lr_decay")
        rate = r.narrow(r.wide("arith.divf", "%lr", r.wide("arith.addf", 1.0, done)))
    step = r.div(r.mul(rate, gradient), r.add(r.op("math.sqrt", total), r.hyper("eps")))
    return {"sum": g["initial_accumulator_value"]}, [r.sub(p, step), total]


def adadelta(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    p, gradient = _decayed(r, g)
    square = r.moment("%e_g", r.mul(gradient, gradient), "rho")
    root, moved = (r.op("math.sqrt", r.add(x, r.hyper("eps"))) for x in (square, "%e_x"))
    step = r.mul(r.div(moved, root), gradient)
    return {"e_g": 0.0, "e_x": 0.0}, [r.sub(p, r.mul(r.lr, step)), square, r.moment("%e_x", r.mul(step, step), "rho")]


def rmsprop(r: UpdateRegion, g: Settings) -> tuple[States, list[str]]:
    p, gradient = _decayed(r, g)
    variance = v = r.moment("%v", r.mul(gradient, gradient), "decay")
    states, results = {"v": 0.0}, [v]
    if g["centered"]:
        states["m"] = 0.0
        results.append(r.moment("%m", gradient, "decay"))
        variance = r.sub(v, r.mul(results[-1], results[-1]))
    step = r.div(gradient, r.add(r.op("math.sqrt", variance), r.hyper("eps")))
    if "momentum" in r.numbers:
        states["trace"] = 0.0
        step = r.add(r.mul(r.hyper("momentum"), "%trace"), step)
        results.append(step)
    return states, [r.sub(p, r.mul(r.lr, step)), *results]


Rule = Callable[[UpdateRegion, Settings], tuple[States, list[str]]]
