"""Matrix products, embeddings, normalisation, attention and dropout."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ... import dimensions
from ...emit import Value, broadcast_shape, number
from ..translate import DTYPES, Translator, Unsupported, rule
from .masks import band, simplified, visible
from .reductions import bucket_of, safe_softmax, variance

A = torch.ops.aten


# Products.

@rule(A.linear.default)
def linear(t: Translator, x: Value, weight: Any, bias: Any = None) -> Value:
    x = t.value(x)
    bias = t.value(bias) if bias is not None else None
    with t.with_weight(weight) as weight:
        if weight.rank == 1:  # without the dimension of outputs
            return t.b.reshape(linear(t, x, t.b.reshape(weight, [1, *weight.shape]), t.b.reshape(bias, [1]) if bias else None), t.out.shape)
        vector = x.rank == 1
        out = t.b.matmul(t.b.reshape(x, [1, *x.shape]) if vector else x, weight, bias, transpose_rhs=True)
        return t.b.reshape(out, out.shape[1:]) if vector else out


@rule(A.mm.default, A.bmm.default, A.matmul.default)
def matmul(t: Translator, a: Any, b: Any) -> Value:
    a = t.value(a)
    with t.with_weight(b) as b:
        rows = t.b.reshape(a, [1, *a.shape]) if a.rank == 1 else a
        columns = t.b.reshape(b, [*b.shape, 1]) if b.rank == 1 else b
        batch = broadcast_shape(rows.shape[:-2], columns.shape[:-2])
        rows = t.b.broadcast(rows, [*batch, *rows.shape[-2:]])
        if columns.rank > 2:
            columns = t.b.broadcast(columns, [*batch, *columns.shape[-2:]])
        return t.b.reshape(product(t, rows, columns), t.out.shape)


def product(t: Translator, a: Value, b: Value, bias: Value | None = None) -> Value:
    """The product; operands that are transposed in the last two dimensions are read so."""
    if a.dtype.startswith("i"):
        raise Unsupported("a product of integers: convert first, x.float()")
    return dimensions.product(t.b, a, b, bias)


@rule(A._grouped_mm.default, "transformers.grouped_mm_fallback.default")
def grouped_product(t: Translator, x: Value, weights: Value, offs: Any, bias: Any = None, out_dtype: Any = None) -> Value:
    """Rows of x from the last group's end to offs[g], times matrix g; rows behind all are zeros. Each matrix is multiplied by all rows, of
    which those of other groups are zeros."""
    if x.rank != 2 or weights.rank != 3:
        raise Unsupported(f"a grouped product of shapes {x.shape} and {weights.shape}: expected rows [s, k] and matrices [g, k, n]")
    groups, rows = weights.shape[0], x.shape[0]
    group = bucket_of(t, t.b.iota(0, [rows], "i32"), t.value(offs, "i32"), True, "i32")
    is_of_group = t.b.compare("eq", t.b.reshape(group, [1, rows, 1]), t.b.iota(0, [groups, 1, 1], "i32"))
    spread = t.b.select(is_of_group, t.b.reshape(x, [1, rows, x.shape[1]]), t.b.like(0, x))
    out = t.b.reduce("sum", product(t, spread, weights), [0])
    return out if bias is None else t.b.binary("add", out, t.value(bias))


@rule(A.addmm.default)
def addmm(t: Translator, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    bias, a = t.value(bias), t.value(a)
    with t.with_weight(b) as b:
        if beta == alpha == 1 and bias.rank == 1 and bias.shape[0] == b.shape[1]:
            return product(t, a, b, bias)
        out = product(t, a, b)
    return _sum(t, bias, out, beta, alpha)


@rule(A.baddbmm.default)
def baddbmm(t: Translator, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    return _sum(t, t.value(bias), product(t, t.value(a), t.value(b)), beta, alpha)


@rule(A.addbmm.default)
def addbmm(t: Translator, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    return _sum(t, t.value(bias), t.b.reduce("sum", product(t, t.value(a), t.value(b)), [0]), beta, alpha)


def _sum(t: Translator, bias: Value, out: Value, beta: float, alpha: float) -> Value:
    out = out if alpha == 1 else t.b.binary("mul", out, t.b.like(alpha, out))
    if beta == 0:
        return out
    return t.b.binary("add", out, bias if beta == 1 else t.b.binary("mul", bias, t.b.like(beta, bias)))


@rule(A.mv.default, A.dot.default)
def with_vector(t: Translator, a: Any, b: Any) -> Value:
    return matmul(t, a, b)


@rule(A._trilinear.default)
def bilinear(t: Translator, a: Value, weight: Value, b: Value, *_: Any) -> Value:
    """Element o of row n is a[n] weight[o] b[n], which is the only use that PyTorch has for it."""
    products = t.b.matmul(t.b.broadcast(a, [weight.shape[0], *a.shape]), weight)
    return t.b.transpose(t.b.reduce("sum", t.b.binary("mul", products, b), [2]), [1, 0])


@rule(A.embedding.default)
def embedding(t: Translator, table: Any, ids: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Value:
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    table, ids = t.value(table), t.value(ids)
    rows = t.b.embedding(table, ids)
    if padding_idx < 0:
        return rows
    # The row of padding gets no gradient.
    padded = t.b.reshape(t.b.compare("eq", ids, t.b.like(padding_idx, ids)), [*ids.shape, 1])
    return t.b.select(padded, t.b.unary("stop_gradient", rows), rows)


@rule(A._embedding_bag.default, A._embedding_bag_forward_only.default)
def embedding_bag(t: Translator, table: Value, ids: Value, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
                  weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1) -> tuple[Value, None, None, None]:
    """Sums, means or maxima of bags, each from its offset to the next one or to the end; without rows, or with those of padding alone, zeros."""
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    count, (bags, width) = ids.shape[0], t.out.shape
    rows = t.b.embedding(table, ids)
    if weights is not None:
        rows = t.b.binary("mul", rows, t.b.reshape(t.value(weights, rows.dtype), [count, 1]))
    kept = None
    if padding_idx >= 0:
        is_kept = t.b.reshape(t.b.compare("ne", ids, t.b.like(padding_idx, ids)), [count, 1])
        kept = t.b.cast(is_kept, rows.dtype)
        rows = t.b.select(is_kept, rows, t.b.like(-math.inf if mode == 2 else 0, rows))
    ends = torch.cat([offsets[:bags].cpu(), torch.tensor([count])]) if isinstance(offsets, torch.Tensor) else None
    length = count // max(bags, 1)
    are_equal = ends is not None and torch.equal(ends, torch.arange(bags + 1) * length)

    if mode == 2:
        if ends is None:
            raise Unsupported("maxima of bags whose offsets are an input: expected a matrix of indices, a bag a row")
        lengths = ends.diff()
        # A place behind the end of a bag is its first one again: of equal elements the first has the gradient.
        places = torch.arange(int(lengths.max()))
        places = (ends[:-1, None] + torch.where(places < lengths[:, None], places, 0)).clamp(max=count - 1)

        def bagged(x: Value) -> Value:
            return t.b.reshape(x, [*places.shape, x.shape[1]]) if are_equal else t.b.embedding(x, t.value(places))

        spread, present = bagged(rows), t.value(lengths[:, None] > 0)
        result = t.b.reshape(t.b.gather(spread, t.b.argmax(spread, 1, True), 1), [bags, width])
        if kept:
            largest = t.b.reduce("max", bagged(kept), [1])
            present = t.b.binary("and", present, t.b.compare("gt", largest, t.b.like(0, largest)))
        elif lengths.min() > 0:
            return result, None, None, None
        return t.b.select(present, result, t.b.like(0, result)), None, None, None

    if not are_equal:  # the bag of each row
        starts = t.b.slice(t.value(offsets, "i32"), [0], [bags])
        bag = t.b.scatter_add(starts, t.b.splat(1, starts.shape, "i32"), 0, count + 1)
        bag = t.b.reshape(t.b.slice(dimensions.cumsum(t.b, bag, 0), [0], [count]), [count, 1])
        bag = t.b.binary("sub", bag, t.b.like(1, bag))

    def total(x: Value) -> Value:
        if are_equal:
            return t.b.reduce("sum", t.b.reshape(x, [bags, length, x.shape[1]]), [1])
        return t.b.scatter_add(t.b.broadcast(bag, x.shape), x, 0, bags)

    result = total(rows)
    if mode == 1 and are_equal and not kept:
        result = t.b.binary("div", result, t.b.like(length, result))
    elif mode == 1:
        size = total(kept or t.b.splat(1, [count, 1], rows.dtype))
        result = t.b.binary("div", result, t.b.binary("max", size, t.b.like(1, size)))
    return result, None, None, None


# Normalisation.

def _statistics(t: Translator, x: Value, dims: Sequence[int], eps: float) -> tuple[Value | None, Value | None]:
    """Mean and 1 / standard deviation, which derivatives in a loss use."""
    if not any(user.target is operator.getitem and user.args[1] in (1, 2) for user in t.node.users):
        return None, None
    meta = t.node.meta["val"][1]
    var, mean = variance(t, t.b.cast(x, DTYPES[meta.dtype]), dims, 0, True)
    scale = t.b.unary("rsqrt", t.b.binary("add", var, t.b.like(eps, var)))
    return t.b.reshape(mean, meta.shape), t.b.reshape(scale, meta.shape)


def _vector(t: Translator, x: Any, size: int, dtype: str, value: float) -> Value:
    return t.b.splat(value, (size,), dtype) if x is None else t.b.reshape(t.value(x), [size])


@rule(A.layer_norm.default, A.native_layer_norm.default)
def layer_norm(t: Translator, x: Value, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    size = math.prod(shape)
    rows = t.b.reshape(x, [*x.shape[:x.rank - len(shape)], size])
    operands = [_vector(t, weight, size, x.dtype, 1.0)] + ([_vector(t, bias, size, x.dtype, 0.0)] if bias is not None else [])
    result = t.b.reshape(t.b.norm("layer_norm", rows, operands, eps), x.shape)
    return (result, *_statistics(t, rows, [rows.rank - 1], eps)) if "native" in str(t.node.target) else result


@rule(A.rms_norm.default)
def rms_norm(t: Translator, x: Value, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Value:
    size = math.prod(shape)
    rows = t.b.reshape(x, [*x.shape[:x.rank - len(shape)], size])
    epsilon = torch.finfo({"f64": torch.float64}.get(x.dtype, torch.float32)).eps if eps is None else eps
    return t.b.reshape(t.b.norm("rms_norm", rows, [_vector(t, weight, size, x.dtype, 1.0)], epsilon), x.shape)


@rule(A.group_norm.default)
def group_norm(t: Translator, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Value:
    channels = x.shape[1]
    operands = [_vector(t, weight, channels, x.dtype, 1.0), _vector(t, bias, channels, x.dtype, 0.0)]
    return t.b.norm("group_norm", x, operands, eps, f" groups {groups}")


@rule(A.native_group_norm.default)
def native_group_norm(t: Translator, x: Value, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    return group_norm(t, x, groups, weight, bias, eps), *_statistics(t, t.b.reshape(x, [n, groups, c // groups * hw]), [2], eps)


@rule(A._native_batch_norm_legit_functional.default)
def batch_norm(t: Translator, x: Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
    """(result, mean, 1 / standard deviation, new running mean, new running variance)"""
    channels = x.shape[1]
    operands = [_vector(t, weight, channels, x.dtype, 1.0), _vector(t, bias, channels, x.dtype, 0.0), t.value(mean), t.value(var)]
    result, new_mean, new_var = t.b.batch_norm(x, operands, training, momentum, eps)
    return result, *_statistics(t, x, [0, *range(2, x.rank)], eps), new_mean, new_var


@rule(A._native_batch_norm_legit.no_stats)
def batch_norm_without_statistics(t: Translator, x: Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    channels = x.shape[1]
    zeros, ones = (t.b.splat(v, (channels,), x.dtype) for v in (0.0, 1.0))
    operands = [_vector(t, weight, channels, x.dtype, 1.0), _vector(t, bias, channels, x.dtype, 0.0), zeros, ones]
    return t.b.batch_norm(x, operands, True, momentum, eps)[0], *_statistics(t, x, [0, *range(2, x.rank)], eps)


@rule(A._native_batch_norm_legit_no_training.default)
def batch_norm_in_eval(t: Translator, x: Value, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    return batch_norm(t, x, weight, bias, mean, var, False, momentum, eps)[0], None, None


@rule(A.instance_norm.default)
def instance_norm(t: Translator, x: Value, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float, *_: Any) -> Value:
    if mean is not None:
        raise Unsupported("instance norm with running statistics")
    return group_norm(t, x, x.shape[1], weight, bias, eps)


# Attention.

def _mask_node(t: Translator) -> Any:
    return t.node.args[3] if len(t.node.args) > 3 else t.node.kwargs.get("attn_mask")


@rule(A.scaled_dot_product_attention.default)
def attention(t: Translator, q: Value, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
              scale: float | None = None, enable_gqa: bool = False) -> Value:
    """Operands are [..., H, T, D], without H below rank 4; the dialect's are [B, T, H, D]."""
    q, k, v = (t.value(x) for x in (q, k, v))
    out, (queries, keys) = t.out, (q.shape[-2], k.shape[-2])
    by_definition = dropout_p == 1 or v.shape[-1] != q.shape[-1] or (dropout_p > 0 and not t.trained)
    rank = max(q.rank, k.rank, v.rank, 4 * enable_gqa)
    given, segments, lines = attn_mask, None, None
    if queries == keys and not by_definition and rank in (3, 4) and (found := visible(t, _mask_node(t), rank, keys)):
        segments, given, lines = found
    mask, window = simplified(given, queries, keys, is_causal)
    mask = mask if lines is None else lines
    q, k, v = (_with_heads(t, x, rank) for x in (q, k, v))
    batch = broadcast_shape(*(x.shape[:-3] for x in (q, k, v)))
    heads = q.shape[-3] if enable_gqa else broadcast_shape(*(x.shape[-3:-2] for x in (q, k, v)))[0]
    q, k, v = (_joined_batch(t, x, batch) for x in (t.b.broadcast(q, [*q.shape[:-3], heads, *q.shape[-2:]]), k, v))
    if k.shape[1] != v.shape[1]:
        k, v = (_repeated(t, x, heads // x.shape[1]) for x in (k, v))
    if mask is not None:
        mask = t.value(mask)
        if mask.rank > 2:
            mask = _with_heads(t, mask, rank)
            mask = _joined_batch(t, mask, batch if set(mask.shape[:-3]) != {1} else mask.shape[:-3])
    if by_definition:
        return t.b.reshape(_by_definition(t, q, k, v, mask, window, dropout_p, scale), out.shape)
    values = [t.b.transpose(x, [0, 2, 1, 3]) for x in (q, k, v)]
    if scale is None and q.shape[-1] == 0:
        raise Unsupported("attention of heads without elements")
    segments = t.b.broadcast(segments, [*batch, keys]) if segments is not None else None
    result = t.b.attention(*values, mask, window is not None, scale, dropout_p, window if window and window < keys else None, segments)
    return t.b.reshape(t.b.transpose(result, [0, 2, 1, 3]), out.shape)


def _with_heads(t: Translator, x: Value, rank: int) -> Value:
    """[..., T, D] with as many dimensions in front of T as operands of this rank have, that of heads among them."""
    shape = [*[1] * (max(rank, 3) - x.rank), *x.shape]
    return t.b.reshape(x, shape if rank > 3 else [shape[0], 1, *shape[1:]])


def _joined_batch(t: Translator, x: Value, batch: Sequence[int]) -> Value:
    """[..., H, T, D], broadcast to the dimensions of a batch, with these as one."""
    return t.b.reshape(t.b.broadcast(x, [*batch, *x.shape[-3:]]), [math.prod(batch), *x.shape[-3:]])


def _by_definition(t: Translator, q: Value, k: Value, v: Value, mask: Any, window: int | None, rate: float, scale: float | None) -> Value:
    """softmax(q k^T scale + mask), dropped out, times v: with the scores in memory."""
    shared = q.shape[1] // k.shape[1]
    if shared > 1:
        k, v = (_repeated(t, x, shared) for x in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = t.b.matmul(t.b.binary("mul", q, t.b.like(scale, q)), k, transpose_rhs=True)
    if window is not None:
        mask = band(q.shape[-2], k.shape[-2], window)
    if mask is not None:
        mask = t.value(mask)
        scores = (t.b.select(mask, scores, t.b.like(-math.inf, scores)) if mask.dtype == "i1" else
                  t.b.binary("add", scores, t.b.cast(mask, scores.dtype)))
    weights = t.b.softmax(scores, 3) if mask is None else safe_softmax(t, scores, 3)
    return t.b.matmul(drop(t, weights, rate), v)


def _repeated(t: Translator, x: Value, times: int) -> Value:
    b, h, n, d = x.shape
    return t.b.reshape(t.b.broadcast(t.b.reshape(x, [b, h, 1, n, d]), [b, h, times, n, d]), [b, h * times, n, d])


# Dropout.

def drop(t: Translator, x: Value, rate: float) -> Value:
    if rate == 1:
        return t.b.splat(0, x.shape, x.dtype)
    if not rate or t.trained:
        return t.b.dropout(x, rate) if rate else x
    # nn.dropout is the identity in an eval, where the model is in eval mode: what is dropped there is asked for.
    kept = t.b.random(f"bernoulli p {number(1 - rate)}", x.shape, x.dtype)
    zero = t.b.like(0, x)
    return t.b.select(t.b.compare("gt", kept, zero), t.b.binary("div", x, t.b.like(1 - rate, x)), zero)


@rule(A.dropout.default)
def dropout(t: Translator, x: Value, rate: float, train: bool) -> Value:
    return drop(t, x, rate) if train else x


@rule(A.native_dropout.default)
def native_dropout(t: Translator, x: Value, rate: float, train: bool | None) -> tuple[Value, None]:
    return (drop(t, x, rate) if train is not False else x), None
