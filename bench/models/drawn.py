"""Training by PyTorch with the draws that trainc defines: the reference of models that drop out or add noise."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from oracle import philox
from trainc.torch.capture import KnownBranches

from . import Example, loss_of
from .reference import Training, train

SEED = 11
A = torch.ops.aten
BITS = {torch.float64: 32, torch.float32: 24}


class _Place:
    """Where the next draw is: each takes a site of its own, in the order of the program."""

    def __init__(self) -> None:
        self.site = self.update = -1

    def at(self) -> tuple[int, int, int, int]:
        self.site += 1
        return SEED, self.site, self.update, 0


class _Program(torch.fx.Interpreter):
    """Runs a graph of PyTorch, with draws of our definition in place of its own."""

    def __init__(self, graph: torch.fx.GraphModule, place: _Place) -> None:
        super().__init__(graph)
        self.place = place

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if target is torch.ops.higher_order.wrap_with_set_grad_enabled:
            with torch.set_grad_enabled(args[0]):
                return _Program(args[1], self.place).run(*args[2:])
        if target in DRAWS:
            return DRAWS[target](self.place, *args, **kwargs)
        if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) and not _is_still(target, args, kwargs):
            raise NotImplementedError(f"{target} draws by itself")
        return super().call_function(target, args, kwargs)


def _remove_unused(graph: torch.fx.Graph) -> None:
    """Removes what no output or parameter depends on: a draw that nothing uses takes no site."""
    roots: dict[torch.fx.Node, torch.fx.Node] = {}  # whose memory a result is in, of views and what works in place

    def schema(node: torch.fx.Node) -> Any:
        return node.target._schema if isinstance(node.target, torch._ops.OpOverload) else None

    for node in graph.nodes:
        known = schema(node)
        aliases = known and any(r.alias_info for r in known.returns) and node.args and isinstance(node.args[0], torch.fx.Node)
        roots[node] = roots[node.args[0]] if aliases else node
    used = set()
    for node in reversed(graph.nodes):
        known = schema(node)
        root = roots[node]
        pure = known and not known.is_mutable or node.target is operator.getitem
        if node in used or not pure and (not known or root in used or root.op != "call_function"):
            used |= {node, root, *node.all_input_nodes, *(roots[n] for n in node.all_input_nodes)}
    for node in reversed(graph.nodes):
        if node not in used and node.op == "call_function":
            graph.erase_node(node)


def _is_still(target: Any, args: tuple, kwargs: dict) -> bool:
    """Whether what may draw does not, with these arguments."""
    schema = dict(zip((a.name for a in target._schema.arguments), args)) | kwargs
    return not schema.get("train", True) or not schema.get("dropout_p", schema.get("p", 1.0))


def _tensor(drawn: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(drawn)).to(dtype)


def _dropout(place: _Place, x: torch.Tensor, rate: float, train: bool = True) -> torch.Tensor:
    if not train or not rate:
        return x
    if rate == 1:
        return x * 0
    return x * _tensor(philox.dropout(tuple(x.shape), rate, *place.at()), x.dtype)


def _feature_dropout(place: _Place, x: torch.Tensor, rate: float, train: bool) -> torch.Tensor:
    if not train or not rate:
        return x
    return x * _bernoulli(place, x.new_empty(*x.shape[:2], *[1] * (x.dim() - 2)), 1 - rate) / (1 - rate)


def _attention(place: _Place, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
    """By its definition in PyTorch's documentation; without a dropout PyTorch's own."""
    if not dropout_p:
        return A.scaled_dot_product_attention.default(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return _drop_scores(place, scores.softmax(-1), dropout_p, v.shape[-1] == q.shape[-1]) @ v


def _drop_scores(place: _Place, p: torch.Tensor, rate: float, fused: bool) -> torch.Tensor:
    """nn.attention counts keys in rows of a multiple of 4; heads of values of another size are no such attention."""
    if not fused:
        return _dropout(place, p, rate)
    keys = p.shape[-1]
    draws = philox.dropout((*p.shape[:-1], keys + -keys % 4), rate, *place.at())
    return p * _tensor(draws[..., :keys], p.dtype)


def _uniform(place: _Place, shape: Any, dtype: torch.dtype | None) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    return _tensor(philox.uniform(tuple(shape), BITS[dtype], *place.at()), dtype)


def _normal(place: _Place, shape: Any, dtype: torch.dtype | None) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    return _tensor(philox.normal(tuple(shape), BITS[dtype], *place.at()), dtype)


def _bernoulli(place: _Place, x: torch.Tensor, p: float, **_: Any) -> torch.Tensor:
    return _tensor(philox.bernoulli(tuple(x.shape), p, *place.at()), x.dtype)


def _randint(place: _Place, low: int, high: int, shape: Any, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    drawn = np.floor(philox.uniform(tuple(shape), 32, *place.at()) * (high - low)) + low
    return _tensor(drawn, dtype or torch.int64)


DRAWS: dict[Any, Callable[..., torch.Tensor]] = {
    A.dropout.default: _dropout, A.dropout_.default: _dropout, A.feature_dropout.default: _feature_dropout,
    A.scaled_dot_product_attention.default: _attention,
    A.rand.default: lambda p, shape, dtype=None, **_: _uniform(p, shape, dtype),
    A.randn.default: lambda p, shape, dtype=None, **_: _normal(p, shape, dtype),
    A.rand.generator: lambda p, shape, dtype=None, **_: _uniform(p, shape, dtype),
    A.randn.generator: lambda p, shape, dtype=None, **_: _normal(p, shape, dtype),
    A.rand_like.default: lambda p, x, dtype=None, **_: _uniform(p, x.shape, dtype or x.dtype),
    A.randn_like.default: lambda p, x, dtype=None, **_: _normal(p, x.shape, dtype or x.dtype),
    A.normal_.default: lambda p, x, mean=0.0, std=1.0, **_: x.copy_(_normal(p, x.shape, x.dtype) * std + mean),
    A.uniform_.default: lambda p, x, low=0.0, high=1.0, **_: x.copy_(_uniform(p, x.shape, x.dtype) * (high - low) + low),
    A.bernoulli_.float: lambda place, x, p=0.5, **_: x.copy_(_bernoulli(place, x, p)), A.bernoulli.p: _bernoulli,
    A.bernoulli.default: lambda place, p, **_: (_uniform(place, p.shape, p.dtype) < p).to(p.dtype),
    A.randint.default: lambda p, high, shape, dtype=None, **_: _randint(p, 0, high, shape, dtype),
    A.randint.low: lambda p, low, high, shape, dtype=None, **_: _randint(p, low, high, shape, dtype),
}


class _Whole(torch.nn.Module):
    """The loss of an example as a module of its batch."""

    def __init__(self, example: Example) -> None:
        super().__init__()
        self.model, self._loss = example.model, (example.loss,)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return loss_of(Example(self.model, kwargs or args, self._loss[0]))


def trained(example: Example) -> Training:
    """Trains in place, as `reference.train` does."""
    batch = example.batch
    args, kwargs = ((), batch) if isinstance(batch, dict) else (batch, {})
    with KnownBranches():
        graph = torch.export.export(_Whole(example), args, kwargs, strict=False).module()
    _remove_unused(graph.graph)
    own = dict(example.model.named_parameters())
    if any(p is not own.get(name.removeprefix("model.")) for name, p in graph.named_parameters()):
        raise AssertionError("the captured program has parameters of its own")
    place = _Place()

    def loss() -> torch.Tensor:
        place.site, place.update = -1, place.update + 1
        return _Program(graph, place).run(*torch.utils._pytree.tree_leaves((args, kwargs)))

    return train(example, loss)
