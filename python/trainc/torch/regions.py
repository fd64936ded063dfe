"""Optimizers of `torch.optim` that the dialect has no name for, as scalar regions: one element of a parameter at a time."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..regions import UpdateRegion

Settings = dict[str, Any]


def _decayed(r: UpdateRegion, g: Settings, decoupled: bool) -> tuple[str, str]:
    """The parameter and its gradient, by the sign and with the decay that the settings give."""
    p, gradient = "%p", r.op("arith.negf", "%g") if g["maximize"] else "%g"
    if g["weight_decay"]:
        rate = r.number(g["weight_decay"])
        if decoupled:
            p = r.sub(p, r.mul(r.mul(r.lr, rate), p))
        else:
            gradient = r.add(gradient, r.mul(rate, p))
    return p, gradient


def adam(r: UpdateRegion, g: Settings, decoupled: bool) -> tuple[dict[str, float], list[str]]:
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


def nadam(r: UpdateRegion, g: Settings) -> tuple[dict[str, float], list[str]]:
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


def sgd(r: UpdateRegion, g: Settings) -> tuple[dict[str, float], list[str]]:
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


Rule = Callable[[UpdateRegion, Settings], tuple[dict[str, float], list[str]]]
