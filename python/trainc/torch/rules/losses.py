"""Losses. The dialect's return a sum and a count; PyTorch's reductions are made of them."""
from __future__ import annotations

from typing import Any

import torch

from ...emit import Value, number
from ...functions import log1p_exp, with_gradient
from ..translate import Translator, rule

A = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2


def reduced(t: Translator, x: Value, reduction: int) -> Value:
    if reduction == NONE:
        return x
    total = t.b.reduce("sum", x, range(x.rank))
    return t.b.binary("div", total, t.b.like(x.type.elements, total)) if reduction == MEAN else total


def _fraction(t: Translator, total: Value, count: Value, reduction: int) -> Value:
    result = t.b.binary("div", total, count) if reduction == MEAN else total
    return t.b.cast(result, t.out.dtype)


@rule(A.cross_entropy_loss.default)
def cross_entropy(t: Translator, logits: Value, target: Any, weight: Any = None, reduction: int = MEAN, ignore_index: int = -100,
                  label_smoothing: float = 0.0) -> Value:
    """Classes are dimension 1, or 0 of a vector; targets are indices, or probabilities of the logits' shape."""
    target = t.value(target)
    if target.shape == logits.shape and not target.dtype.startswith("i"):
        return _of_probabilities(t, logits, target, weight, reduction, label_smoothing)
    classes = 1 if logits.rank > 1 else 0
    order = [i for i in range(logits.rank) if i != classes] + [classes]
    rows = t.b.transpose(logits, order)
    if not target.rank:
        rows, target = t.b.reshape(rows, [1, *rows.shape]), t.b.reshape(target, [1])
    if weight is not None or reduction == NONE or label_smoothing == 1:
        return _row_by_row(t, rows, target, weight, reduction, ignore_index, label_smoothing)
    attributes = _attributes(ignore_index, label_smoothing)
    return _fraction(t, *t.b.loss("cross_entropy", rows, target, None, attributes), reduction)


def _attributes(ignore_index: int, label_smoothing: float) -> str:
    given = ([f"ignore_index = {ignore_index} : i64"] if ignore_index != -100 else []) + (
        [f"label_smoothing = {number(label_smoothing)}"] if label_smoothing else [])
    return f" {{{', '.join(given)}}}" if given else ""


def _row_by_row(t: Translator, rows: Value, target: Value, weight: Any, reduction: int, ignore_index: int, smoothing: float) -> Value:
    """Per row w[y] (1 - s) (-lp[y]) + s / C sum_c w[c] (-lp[c]), 0 where ignored; the mean is over w[y]."""
    classes, shape = rows.shape[-1], target.shape
    log_probability = t.b.unary("neg", t.b.softmax(rows, rows.rank - 1, log=True))
    ignored = t.b.compare("eq", target, t.b.like(ignore_index, target))
    index = t.b.select(ignored, t.b.like(0, target), target)
    term = t.b.reshape(t.b.gather(log_probability, t.b.reshape(index, [*shape, 1]), rows.rank - 1), shape)
    term = t.b.select(ignored, t.b.like(0, term), term)  # a weight of 0 would make NaN of infinity
    weights = t.b.cast(t.b.unary("not", ignored), rows.dtype)
    if weight is not None:
        weight = t.value(weight, rows.dtype)
        table = t.b.reshape(weight, [classes, 1])
        weights = t.b.binary("mul", weights, t.b.reshape(t.b.embedding(table, index), shape))
        log_probability = t.b.binary("mul", log_probability, weight)
    term = t.b.binary("mul", term, weights)
    if smoothing:
        spread = t.b.reduce("sum", log_probability, [rows.rank - 1])
        spread = t.b.select(ignored, t.b.like(0, spread), spread)
        term = t.b.binary("add", t.b.binary("mul", term, t.b.like(1 - smoothing, term)),
                          t.b.binary("mul", spread, t.b.like(smoothing / classes, spread)))
    if reduction == NONE:
        return t.b.reshape(term, t.out.shape)
    total = t.b.reduce("sum", term, range(term.rank))
    return t.b.binary("div", total, t.b.reduce("sum", weights, range(weights.rank))) if reduction == MEAN else total


def _of_probabilities(t: Translator, logits: Value, target: Value, weight: Any, reduction: int, smoothing: float) -> Value:
    classes = 1 if logits.rank > 1 else 0
    n = logits.shape[classes]
    target = t.value(target, t.out.dtype)
    if smoothing:
        target = t.b.binary("add", t.b.binary("mul", target, t.b.like(1 - smoothing, target)), t.b.like(smoothing / n, target))
    term = t.b.binary("mul", t.b.unary("neg", t.value(t.b.softmax(logits, classes, log=True), target.dtype)), target)
    if weight is not None:
        term = t.b.binary("mul", term, t.b.reshape(t.value(weight, target.dtype), [n, *[1] * (logits.rank - 1 - classes)]))
    per_row = t.b.reduce("sum", term, [classes])
    if reduction == NONE:
        return per_row
    total = t.b.reduce("sum", per_row, range(per_row.rank))
    return t.b.binary("div", total, t.b.like(logits.type.elements // n, total)) if reduction == MEAN else total


@rule(A.nll_loss_nd.default, A.nll_loss.default, A.nll_loss2d.default, A.nll_loss_forward.default, A.nll_loss2d_forward.default)
def nll_loss(t: Translator, x: Value, target: Any, weight: Any = None, reduction: int = MEAN, ignore_index: int = -100) -> Any:
    """Of log-probabilities with classes in dimension 1."""
    target = t.value(target)
    classes = 1 if x.rank > 1 else 0
    ignored = t.b.compare("eq", target, t.b.like(ignore_index, target))
    index = t.b.select(ignored, t.b.like(0, target), target)
    single = [*target.shape[:classes], 1, *target.shape[classes:]]
    term = t.b.unary("neg", t.b.reshape(t.b.gather(x, t.b.reshape(index, single), classes), target.shape))
    term = t.b.select(ignored, t.b.like(0, term), term)
    weights = t.b.cast(t.b.unary("not", ignored), x.dtype)
    if weight is not None:
        table = t.b.reshape(t.value(weight, x.dtype), [x.shape[classes], 1])
        weights = t.b.binary("mul", weights, t.b.reshape(t.b.embedding(table, index), target.shape))
    term = t.b.binary("mul", term, weights)
    total_weight = t.b.reduce("sum", weights, range(weights.rank))
    result = term
    if reduction != NONE:
        result = t.b.reduce("sum", term, range(term.rank))
        result = t.b.binary("div", result, total_weight) if reduction == MEAN else result
    return (result, total_weight) if "forward" in str(t.node.target) else result


def _difference(t: Translator, x: Any, y: Any) -> Value:
    return t.b.binary("sub", *t.pair(x, y))


@rule(A.mse_loss.default)
def mse_loss(t: Translator, x: Any, target: Any, reduction: int = MEAN) -> Value:
    x, target = t.pair(x, target)
    if reduction != NONE and x.shape == target.shape and x.rank:
        return _fraction(t, *t.b.loss("mse", x, target), reduction)
    difference = t.b.binary("sub", x, target)
    return reduced(t, t.b.binary("mul", difference, difference), reduction)


@rule(A.l1_loss.default)
def l1_loss(t: Translator, x: Any, target: Any, reduction: int = MEAN) -> Value:
    return reduced(t, t.b.unary("abs", _difference(t, x, target)), reduction)


@rule(A.smooth_l1_loss.default, wide=True)
def smooth_l1_loss(t: Translator, x: Any, target: Any, reduction: int = MEAN, beta: float = 1.0) -> Value:
    """d^2 / (2 beta) for |d| < beta, else |d| - beta / 2."""
    difference = _difference(t, x, target)
    size = t.b.unary("abs", difference)
    if beta == 0:
        return reduced(t, size, reduction)
    square = t.b.binary("mul", t.b.binary("mul", difference, difference), t.b.like(0.5 / beta, difference))
    line = t.b.binary("sub", size, t.b.like(beta / 2, size))
    return reduced(t, t.b.select(t.b.compare("lt", size, t.b.like(beta, size)), square, line), reduction)


@rule(A.huber_loss.default, wide=True)
def huber_loss(t: Translator, x: Any, target: Any, reduction: int = MEAN, delta: float = 1.0) -> Value:
    """d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2)."""
    difference = _difference(t, x, target)
    size = t.b.unary("abs", difference)
    square = t.b.binary("mul", t.b.binary("mul", difference, difference), t.b.like(0.5, difference))
    line = t.b.binary("mul", t.b.binary("sub", size, t.b.like(delta / 2, size)), t.b.like(delta, size))
    return reduced(t, t.b.select(t.b.compare("le", size, t.b.like(delta, size)), square, line), reduction)


@rule(A.binary_cross_entropy_with_logits.default)
def bce_with_logits(t: Translator, x: Value, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN) -> Value:
    """(1 - y) x + (1 + (p - 1) y) log(1 + exp(-x)), p the weight of positive targets."""
    x, target = t.pair(x, target)
    if weight is None and pos_weight is None and reduction != NONE and x.shape == target.shape and x.rank:
        return _fraction(t, *t.b.loss("bce_with_logits", x, target), reduction)
    one = t.b.like(1, x)
    tail = log1p_exp(t.b, t.b.unary("neg", x))
    if pos_weight is not None:
        factor = t.b.binary("sub", t.value(pos_weight, x.dtype), one)
        tail = t.b.binary("mul", t.b.binary("add", t.b.binary("mul", factor, target), one), tail)
    term = t.b.binary("add", t.b.binary("mul", t.b.binary("sub", one, target), x), tail)
    if weight is not None:
        term = t.b.binary("mul", term, t.value(weight, x.dtype))
    return reduced(t, term, reduction)


@rule(A.binary_cross_entropy.default, wide=True)
def bce(t: Translator, x: Value, target: Any, weight: Any = None, reduction: int = MEAN) -> Value:
    """-(y log x + (1 - y) log(1 - x)), logarithms not below -100; gradients (x - y) / max(x (1 - x), 1e-12) and log(1 - x) - log x."""
    x, target = t.pair(x, target, x.dtype)
    one, floor = t.b.like(1, x), t.b.like(-100, x)
    rest = t.b.binary("sub", one, x)
    logs = [t.b.binary("max", t.b.unary("log", v), floor) for v in (x, rest)]
    value = t.b.unary("neg", t.b.binary("add", t.b.binary("mul", target, logs[0]),
                                        t.b.binary("mul", t.b.binary("sub", one, target), logs[1])))
    slope = t.b.binary("div", t.b.binary("sub", x, target), t.b.binary("max", t.b.binary("mul", x, rest), t.b.like(1e-12, x)))
    term = with_gradient(t.b, value, (x, slope), (target, t.b.binary("sub", logs[1], logs[0])))
    if weight is not None:
        term = t.b.binary("mul", term, t.value(weight, x.dtype))
    return reduced(t, term, reduction)


@rule(A.kl_div.default)
def kl_div(t: Translator, x: Value, target: Any, reduction: int = MEAN, log_target: bool = False) -> Value:
    """y (log y - x), 0 for y log y where y is 0."""
    x, target = t.pair(x, target)
    if log_target:
        return reduced(t, t.b.binary("mul", t.b.unary("exp", target), t.b.binary("sub", target, x)), reduction)
    positive = t.b.compare("gt", target, t.b.like(0, target))
    entropy = t.b.binary("mul", target, t.b.unary("log", t.b.select(positive, target, t.b.like(1, target))))
    term = t.b.binary("sub", t.b.select(positive, entropy, t.b.like(0, target)), t.b.binary("mul", target, x))
    return reduced(t, term, reduction)
