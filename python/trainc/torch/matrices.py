"""Inverses, determinants and factors of matrices as loops over their rows, which are unrolled; gradients are those of the loops."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def _eliminated(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, and numbers whose product is the determinant: Gauss-Jordan elimination with partial pivoting (Golub and Van Loan,
    Matrix Computations, 3.4)."""
    n = a.shape[-1]
    m, rows, factors = torch.cat([a, torch.eye(n, dtype=a.dtype).expand(a.shape)], -1), torch.arange(n), []
    for k in range(n):
        place = torch.where(rows >= k, m[..., k].detach().abs(), -1).argmax(-1, keepdim=True)
        is_place = (rows == place).unsqueeze(-1)
        row = torch.where(is_place, m, 0).sum(-2, keepdim=True)
        m = torch.where(is_place, m[..., k:k + 1, :], m)
        pivot = row[..., k:k + 1]
        row = row / pivot
        m = torch.where((rows == k)[:, None], row, m - m[..., k:k + 1] * row)
        factors.append(pivot[..., 0] * torch.where(place == k, 1, -1))
    return m[..., n:], torch.cat(factors, -1)


def _inverse(a: torch.Tensor) -> torch.Tensor:
    return _eliminated(a)[0]


def _det(a: torch.Tensor) -> torch.Tensor:
    return _eliminated(a)[1].prod(-1)


def _slogdet(a: torch.Tensor) -> torch.return_types.linalg_slogdet:
    _, factors = _eliminated(a)
    return torch.return_types.linalg_slogdet((factors.sign().prod(-1), factors.abs().log().sum(-1)))


def _logdet(a: torch.Tensor) -> torch.Tensor:
    sign, logarithm = _slogdet(a)
    return torch.where(sign < 0, torch.nan, logarithm)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By sums, which no precision rounds to bf16 as it does operands of products."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def _solve(a: torch.Tensor, b: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    if b.dim() == 1 or b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]:
        return _product(_inverse(a), b.unsqueeze(-1)).squeeze(-1)
    return _product(_inverse(a), b) if left else _product(b, _inverse(a))


def _solve_triangular(a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> torch.Tensor:
    part = a.triu(int(unitriangular)) if upper else a.tril(-int(unitriangular))
    return _solve(part + torch.eye(a.shape[-1], dtype=a.dtype) if unitriangular else part, b.expand(*b.shape), left=left)


def _cholesky(a: torch.Tensor, *, upper: bool = False) -> torch.Tensor:
    """Column by column, of the lower triangle; its gradient is that of both, as if the matrix were always symmetric."""
    n, half = a.shape[-1], (a + a.mT) / 2
    lower = a.triu() + a.triu(1).mT if upper else a.tril() + a.tril(-1).mT
    a = half + (lower - half).detach()
    factor = torch.zeros_like(a[..., :0])
    for k in range(n):
        column = a[..., k] - (factor * factor[..., k:k + 1, :]).sum(-1)
        column = torch.where(torch.arange(n) >= k, column / column[..., k:k + 1].sqrt(), 0)
        factor = torch.cat([factor, column.unsqueeze(-1)], -1)
    return factor.mT if upper else factor


def _cholesky_ex(a: torch.Tensor, *, upper: bool = False, **_: Any) -> torch.return_types.linalg_cholesky_ex:
    """Without a look at whether there is a factor."""
    return torch.return_types.linalg_cholesky_ex((_cholesky(a, upper=upper), torch.zeros(a.shape[:-2], dtype=torch.int32)))


def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    inverse = _inverse(factor.triu().mT if upper else factor.tril())
    return _product(inverse.mT, _product(inverse, b))


def widened(x: Any) -> Any:
    """In f32; a copy, which stays in it under precision="bf16", too."""
    return x.to(torch.float32, copy=True) if isinstance(x, torch.Tensor) and x.dtype in (torch.bfloat16, torch.float16, torch.float32) else x


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of f32 in autocast, as PyTorch's, which has no others of bf16 and f16."""
    @functools.wraps(function)
    def wide(*args: Any, **kwargs: Any) -> Any:
        return function(*map(widened, args), **{name: widened(x) for name, x in kwargs.items()})

    return wide


MATRICES: dict[Any, Any] = {own: _wide(function) for own, function in {
    torch.linalg.inv: _inverse, torch.inverse: _inverse, torch.Tensor.inverse: _inverse, torch.linalg.slogdet: _slogdet, torch.slogdet: _slogdet,
    torch.Tensor.slogdet: _slogdet, torch.logdet: _logdet, torch.Tensor.logdet: _logdet, torch.linalg.det: _det, torch.det: _det,
    torch.Tensor.det: _det, torch.linalg.solve: _solve, torch.linalg.solve_triangular: _solve_triangular, torch.linalg.cholesky: _cholesky,
    torch.linalg.cholesky_ex: _cholesky_ex, torch.cholesky_solve: _cholesky_solve, torch.Tensor.cholesky_solve: _cholesky_solve}.items()}
