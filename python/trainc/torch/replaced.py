"""Functions of PyTorch that are captured as others of the same value, which a step has."""
from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .matrices import MATRICES, widened
from .selected import Selected

NEVER = -1e30  # the logarithm of a probability of 0, with which all sums are finite


def _gaussian_nll_loss(input: torch.Tensor, target: torch.Tensor, var: torch.Tensor | float, full: bool = False, eps: float = 1e-6,
                       reduction: str = "mean") -> torch.Tensor:
    """PyTorch's without its check that no variance is negative, which no mode of functions sees."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.shape == input.shape[:-1] != input.shape:
        var = var.unsqueeze(-1)
    var = var + (var.clamp(min=eps) - var).detach()  # its gradient is as if it were not bounded
    loss = 0.5 * (var.log() + (input - target).square() / var) + (0.5 * math.log(2 * math.pi) if full else 0)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def _randperm(n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.int64, **_: Any) -> torch.Tensor:
    return torch.rand(n, generator=generator).argsort().to(dtype)


def _multinomial(input: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """What has the largest weight / e, for numbers e of the exponential distribution; as many of the largest without replacement."""
    shape = (*input.shape[:-1], num_samples, input.shape[-1]) if replacement else input.shape
    e = -(1 - torch.rand(shape, generator=generator, dtype=input.dtype)).log()
    scores = (input.unsqueeze(-2) if replacement else input) / e.clamp(min=torch.finfo(input.dtype).tiny)
    return scores.argmax(-1) if replacement else scores.topk(num_samples, -1).indices


def _move(statistics: Iterable[tuple[torch.Tensor, torch.Tensor]], part: float | torch.Tensor) -> None:
    """Running statistics by a part of their way to those of a batch."""
    for running, batch in statistics:
        running.lerp_(batch.to(running.dtype), part)


def _instance_norm(input: torch.Tensor, running_mean: torch.Tensor | None = None, running_var: torch.Tensor | None = None, weight: Any = None,
                   bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:
    """The running statistics move to the mean over the batch."""
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            var, mean = torch.var_mean(input, list(range(2, input.dim())))
            _move(((running_mean, mean.mean(0)), (running_var, var.mean(0))), momentum)
    return F.instance_norm(input, None, None, weight, bias, True, momentum, eps)


def _labels(targets: torch.Tensor | Selected, counts: torch.Tensor, steps: int) -> torch.Tensor:
    """A row of labels for each example, [N, S]: behind its count, which are not read, there may be any."""
    if isinstance(targets, Selected):
        return targets.data.gather(1, (~targets.mask).to(torch.int8).argsort(dim=1, stable=True))
    if targets.dim() == 2:
        return targets
    longest = min(targets.shape[0], steps)  # of those that have a probability
    return targets[((counts.cumsum(0) - counts)[:, None] + torch.arange(longest)).clamp(max=targets.shape[0] - 1)]


def _logsumexp(*terms: torch.Tensor) -> torch.Tensor:
    largest = functools.reduce(torch.maximum, terms).detach()
    return largest + functools.reduce(torch.add, [(x - largest).exp() for x in terms]).log()


def _ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor | Selected, input_lengths: torch.Tensor | Sequence[int],
              target_lengths: torch.Tensor | Sequence[int], blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> torch.Tensor:
    """The recursion forward in time of Graves et al., Connectionist Temporal Classification, ICML 2006, (6) to (8); equal lengths of T are a
    loop that is unrolled."""
    log_probs, single = widened(log_probs), log_probs.dim() == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
    steps, n, _ = log_probs.shape
    lengths, counts = (torch.as_tensor(x).reshape(n).long() for x in (input_lengths, target_lengths))
    labels = _labels(targets, counts, steps).long()
    states = F.pad(torch.stack([torch.full_like(labels, blank), labels], -1).flatten(1), (0, 1), value=blank)  # a label between two blanks
    # What differs from the label before may follow it at once.
    follows = F.pad(states[:, 2:] != states[:, :-2], (2, 0))
    emitted = log_probs.gather(2, states.clamp(0, log_probs.shape[2] - 1).expand(steps, *states.shape))
    alpha = torch.where(torch.arange(states.shape[1]) < 2, emitted[0], NEVER)
    for t in range(1, steps):
        one, two = (F.pad(alpha, (k, 0), value=NEVER)[:, :-k] for k in (1, 2))
        alpha = torch.where(t < lengths[:, None], _logsumexp(alpha, one, torch.where(follows, two, NEVER)) + emitted[t], alpha)
    blanks, ends = alpha.gather(1, 2 * counts[:, None]), alpha.gather(1, (2 * counts[:, None] - 1).clamp(min=0))
    loss = -_logsumexp(blanks, torch.where(counts[:, None] > 0, ends, NEVER))[:, 0]
    loss = torch.where(lengths == 0, torch.where(counts == 0, 0.0, -NEVER), loss)
    loss = torch.where(loss < -NEVER / 2, loss, 0.0 if zero_infinity else math.inf)
    if reduction == "mean":
        return (loss / counts.clamp(min=1)).mean()
    return loss.sum() if reduction == "sum" else loss[0] if single else loss


def _cov(input: torch.Tensor, *, correction: int = 1, fweights: torch.Tensor | None = None, aweights: torch.Tensor | None = None) -> torch.Tensor:
    """PyTorch's without its checks that weights are not negative."""
    x = input.reshape(1, -1) if input.dim() < 2 else input
    given = [w for w in (fweights, aweights) if w is not None]
    weights = functools.reduce(torch.mul, given) if given else torch.ones(x.shape[1], dtype=x.dtype)
    total = weights.sum()
    lost = total if aweights is None else (weights * aweights).sum()
    x = x - (x * weights).sum(1, keepdim=True) / total
    return (x * weights @ x.T / (total - correction * lost / total).clamp(min=0)).squeeze()


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    cov = _cov(input)
    if cov.dim() == 0:
        return cov / cov
    deviations = cov.diagonal().sqrt()
    return (cov / deviations[:, None] / deviations).clamp(-1, 1)


def _multilabel_margin_loss(input: torch.Tensor, target: torch.Tensor, size_average: bool | None = None, reduce: bool | None = None,
                            reduction: str = "mean") -> torch.Tensor:
    """PyTorch's decomposition of 2.13 counts what stands behind a target of -1."""
    counts = (target < 0).cumsum(-1) == 0
    is_target = (counts.unsqueeze(-1) & (target.unsqueeze(-1) == torch.arange(input.shape[-1]))).any(-2, keepdim=True)
    margins = F.relu(1 - input.gather(-1, target.clamp(min=0)).unsqueeze(-1) + input.unsqueeze(-2))
    loss = torch.where(counts.unsqueeze(-1) & ~is_target, margins, 0).sum((-2, -1)) / input.shape[-1]
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def _conv_tbc(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0) -> torch.Tensor:
    return F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> torch.Tensor:
    """PyTorch's without its chunks: a step has its own."""
    return F.linear_cross_entropy(*args, **kwargs)


def _max_unpool(own: Callable[..., torch.Tensor], n: int, input: torch.Tensor, indices: torch.Tensor, kernel_size: Any, stride: Any = None,
                padding: Any = 0, output_size: Any = None) -> torch.Tensor:
    """Where windows overlap and two values have one place, the last is there; PyTorch gives both its gradient."""
    window, step = ((k,) * n if isinstance(k, int) else tuple(k) for k in (kernel_size, kernel_size if stride is None else stride))
    if all(k <= s for k, s in zip(window, step)):
        return own(input, indices, kernel_size, stride, padding, output_size)
    result = own(input.detach(), indices, kernel_size, stride, padding, output_size)
    moved = (input - input.detach()).flatten(-n)  # 0, with a gradient
    return result + torch.zeros_like(result).flatten(-n).scatter_add(-1, indices.flatten(-n), moved).view_as(result)


def _place(x: torch.Tensor, n: int, padding: str, align_corners: bool, is_plane: bool) -> torch.Tensor:
    """Where -1 to 1 is in a dimension of n elements, rounded as by PyTorch's two kernels: of a place on an element that decides which slope it has."""
    if align_corners:
        x = (x + 1) * ((n - 1) / 2) if is_plane else (x + 1) / 2 * (n - 1)
    else:
        x = (x + 1) * (n / 2) - 0.5 if is_plane else ((x + 1) * n - 1) / 2
    if padding == "reflection":
        low, span = (0, n - 1) if align_corners else (-0.5, n)
        rest = ((x - low) / (2 * span)).abs().frac() * 2 * span if span else torch.zeros_like(x)  # in a period of there and back
        x = torch.where(rest > span, 2 * span - rest, rest) + low
    return x if padding == "zeros" else torch.where((x > 0) & (x < n - 1), x, x.detach().clamp(0, n - 1))


def _grid_sample(input: torch.Tensor, grid: torch.Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                 align_corners: bool | None = None) -> torch.Tensor:
    """The sum over the 4 or 8 elements around each place; those outside count as 0."""
    if mode == "bicubic":
        return F.grid_sample(input, grid, mode, padding_mode, align_corners)
    if torch.is_autocast_enabled("cpu"):  # in which PyTorch computes these in float32
        input, grid = widened(input), widened(grid)
    n, channels, *sizes = input.shape
    rows, first = input.flatten(2).transpose(1, 2).reshape(-1, channels), torch.arange(n)[:, None] * math.prod(sizes)
    places = [_place(x, size, padding_mode, bool(align_corners), len(sizes) == 2) for x, size in zip(reversed(grid.unbind(-1)), sizes)]
    corners = [x.round() if mode == "nearest" else x.floor() for x in places]
    result = torch.zeros((), dtype=input.dtype)
    for offsets in itertools.product((0,) if mode == "nearest" else (0, 1), repeat=len(sizes)):
        weight, index = torch.ones_like(places[0]), torch.zeros_like(places[0], dtype=torch.long)
        for place, corner, offset, size in zip(places, corners, offsets, sizes):
            at, share = corner + offset, place - corner
            if offset == 0:
                share = torch.ones_like(place) if mode == "nearest" else 1 - share
            weight = weight * torch.where((at >= 0) & (at < size), share, 0)
            index = index * size + at.clamp(0, size - 1).long()
        result = result + F.embedding(first + index.flatten(1), rows) * weight.flatten(1)[..., None]
    return result.transpose(1, 2).reshape(n, channels, *grid.shape[1:-1])


REPLACED: dict[Any, Callable[..., Any]] = {
    **MATRICES, F.gaussian_nll_loss: _gaussian_nll_loss, torch.randperm: _randperm, torch.multinomial: _multinomial, torch.Tensor.multinomial: _multinomial,
    F.instance_norm: _instance_norm, F.ctc_loss: _ctc_loss, torch.cov: _cov, torch.Tensor.cov: _cov, torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef, F.linear_cross_entropy: _linear_cross_entropy, F.grid_sample: _grid_sample,
    F.multilabel_margin_loss: _multilabel_margin_loss, torch.conv_tbc: _conv_tbc,
    **{own: functools.partial(_max_unpool, own, n) for n, own in enumerate((F.max_unpool1d, F.max_unpool2d, F.max_unpool3d), 1)}}


def _averaged(self: nn.modules.batchnorm._BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """The forward of a BatchNorm without momentum: its running statistics are the mean of all batches."""
    self._check_input_dim(x)
    self.num_batches_tracked.add_(1)
    with torch.no_grad():
        part = 1 / self.num_batches_tracked.to(self.running_mean.dtype)
        var, mean = torch.var_mean(x, [0, *range(2, x.dim())])
        _move(((self.running_mean, mean), (self.running_var, var)), part)
    return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


@contextlib.contextmanager
def swapped(functions: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Functions of modules and classes, by owner and name, as others for a while."""
    own = {(owner, name): vars(owner)[name] for owner, name in functions}
    try:
        for (owner, name), function in functions.items():
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name), function in own.items():
            setattr(owner, name, function)


def with_weights() -> contextlib.AbstractContextManager[None]:
    """F.l1_loss leaves its weight out where functions are watched (2.13 to 2.15)."""
    own = F.handle_torch_function

    def handle(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function is F.l1_loss and (weight := sys._getframe(1).f_locals.get("weight")) is not None:
            kwargs["weight"] = weight
        return own(function, *args, **kwargs)

    return swapped({(F, "handle_torch_function"): handle})


def averaged_statistics() -> contextlib.AbstractContextManager[None]:
    """Gives the BatchNorms that train without momentum, as they are called by subclasses, too, a forward that does not ask for the count of
    batches."""
    def wrapped(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def forward(self: nn.modules.batchnorm._BatchNorm, input: torch.Tensor) -> torch.Tensor:
            return _averaged(self, input) if self.momentum is None and self.training and self.track_running_stats else own(self, input)

        return forward

    return swapped({(kind, "forward"): wrapped(kind.forward) for kind in (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm)})
