# REQUIRES: torch
# RUN: %venv_torch %s
"""Losses with derivatives in them: equations of physics, gradient penalties, steps within a step. All against PyTorch's double backward."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree  # noqa: E402

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
x, images, tokens = torch.randn(6, 4), torch.randn(3, 2, 6, 6), torch.tensor([1, 2, 2])


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def equation(m, x):
    """u_xx + u u_y = 0"""
    x = x.clone().requires_grad_(True)
    u = m(x)
    first, = torch.autograd.grad(u.sum(), x, create_graph=True)
    second, = torch.autograd.grad(first[:, 0], x, torch.ones_like(first[:, 0]), create_graph=True)
    return (second[:, 0] + u[:, 0] * first[:, 1]).square().mean() + u.square().mean()


def of_inputs(m, x):
    x.requires_grad_(True)
    u = m(x)
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0].square().sum()


def penalty(m, x):
    """Of a Wasserstein GAN's critic."""
    between = (x * 0.5 + torch.linspace(-1, 1, x.numel()).view(x.shape)).requires_grad_()
    slope = torch.autograd.grad(m(between).sum(), between, create_graph=True)[0]
    return m(x).mean() + 10 * (slope.flatten(1).norm(2, dim=1) - 1).square().mean()


def penalty_of_attention(m, x):
    with sdpa_kernel(SDPBackend.MATH):  # which alone has second derivatives in PyTorch
        return penalty(m, x)


def step_within(m, x):
    """As meta-learning has it."""
    values = dict(m.named_parameters())
    slopes = torch.autograd.grad(functional_call(m, values, (x,)).square().mean(), list(values.values()), create_graph=True)
    return functional_call(m, {name: v - 0.1 * g for (name, v), g in zip(values.items(), slopes)}, (x,)).sin().mean()


def without_gradient(m, x):
    """Derivatives without a graph, and no_grad, are constants of the loss."""
    z = x.clone().requires_grad_()
    weights, = torch.autograd.grad(m(z).square().sum(), z)
    with torch.no_grad():
        kept = m(x).sigmoid()
    return (m(x) * kept).sum() + m(x * weights).sin().sum()


def detached(m, x):
    z = x.clone().requires_grad_()
    u = m(z)
    w, = torch.autograd.grad(u.square().sum(), z, create_graph=True)
    return (m(x) * u.detach().cos()).sum() + (w * w.detach().sin()).sum() + m(x * m(x).data).sum()


def gated(m, r):
    with torch.no_grad():
        kept = m(r).sigmoid()
    return (m(r) * kept).sum() + (m(r) * m(r).detach().cos()).sum()


class Follows(nn.Module):
    """What no_grad writes beside derivatives has no gradient."""

    def __init__(self):
        super().__init__()
        self.net, self.teacher = network(), network().requires_grad_(False)
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x):
        h = self.net(x)
        with torch.no_grad():
            for theirs, ours in zip(self.teacher.parameters(), self.net.parameters()):
                theirs.lerp_(ours, 0.3)
            self.mean.mul_(0.9).add_(h[0], alpha=0.1)
        return (h - self.mean) * h - self.teacher(x)


def changed(m, x):
    """Tensors of its own, in place."""
    z, u, noise = torch.zeros(6, 4), torch.zeros(6, 1), torch.empty(6, 4).uniform_(-1, 1)
    z[:, :3] = x[:, :3]
    u.copy_(m(x))
    return penalty(m, z) + u.square().sum() + 0 * noise.mean() + torch.ones(2).mul_(2).sum().item()


def written(m, r):
    h = m(r)
    z = torch.zeros_like(h)
    with torch.no_grad():
        z.copy_(h)
    return (h * z).sum()


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Linear(36, 1)

    def forward(self, x):
        return self.out(F.leaky_relu(self.second(F.silu(self.first(x))), 0.2).flatten(1))


class Others(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.c = nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 3, 2, 1), nn.ConvTranspose1d(4, 3, 4, 3, 1, 2)

    def forward(self, x):
        return self.c(F.mish(self.b(F.elu(self.norm(self.a(x))).flatten(2)))).square().mean((1, 2))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.norm, self.out = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1)

    def forward(self, x):
        q = self.q(x)[None]
        return self.out(F.gelu(self.norm(F.scaled_dot_product_attention(q, q, q)[0])))


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x):
        y = self.layer(x)
        return (y.sigmoid() + y.exp().sqrt() + y.softmax(-1) * y.log_softmax(-1) + F.softplus(y) + F.gelu(y) * F.silu(y) + y.abs().pow(1.5)
                + y.cumsum(1).sin() + y.max(1, keepdim=True)[0] + y.logsumexp(1, keepdim=True) + y.norm(dim=1, keepdim=True))


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 1)

    def forward(self, tokens):
        return self.out(self.table(tokens)).tanh().sum()


CASES = {
    "equation": (network(), x, equation), "inputs": (network(), x, of_inputs), "penalty": (network(), x, penalty), "a step within": (network(), x, step_within),
    "convolutions": (Convolutions(), images, penalty), "other layers": (Others(), images, penalty), "attention": (Attention(), x, penalty_of_attention),
    "batch norm": (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)), x, penalty), "functions": (Functions(), x, penalty),
    "without gradient": (network(), x, without_gradient), "detached": (network(), x, detached),
    "written": (Follows(), x, lambda m, x: m(x).sin().sum() + penalty(m.net, x)),
    "written in vmap": (network(), x, lambda m, x: vmap(lambda r: written(m, r))(x).sum()),
    "changed": (network(), x, changed),
    "in vmap": (network(), x, lambda m, x: vmap(lambda r: gated(m, r))(x).sum() + vmap(grad(lambda r: gated(m, r)))(x).square().sum()),
    "embedding": (Embedded(), tokens, lambda m, t: torch.autograd.grad(m(t), m.table.weight, create_graph=True)[0].square().sum() + m(t)),
    "grad": (network(), x, lambda m, x: grad(lambda r: m(r).sum().sin())(x).square().mean()),
    "jvp": (network(), x, lambda m, x: jvp(lambda r: m(r).sin(), (x,), (x,))[1].sum()),
    "grad of elements": (network(), x, lambda m, x: grad(lambda r: r.sin().sum())(m(x)).square().mean() + grad(lambda r: r.exp().sum())(x).mean()),
    "vjp": (network(), x, lambda m, x: vjp(lambda r: m(r).sin(), x)[1](torch.ones(6, 1))[0].square().sum()),
    "Jacobians": (network(), x, lambda m, x: jacrev(lambda r: m(r).sin().sum(0))(x).square().sum() + jacfwd(lambda r: m(r).sum(0))(x).square().sum()),
    "Hessian": (network(), x, lambda m, x: hessian(lambda r: m(r).sum())(x[0]).square().sum())}
for name in sys.argv[1:] or CASES:
    model, batch, loss = CASES[name]
    agree(model, (batch,), loss, skip=("0.bias",) * (name == "batch norm"))
    assert not batch.requires_grad_(False).grad_fn
    print(f"{name}: ok", flush=True)
