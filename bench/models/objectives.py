"""Hand-written models whose point is the loss or the data: adapters, reinforcement, physics, graphs, tables, pairs."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import Draw, Example, model
from .losses import classification


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = [part for i, o in zip(sizes, sizes[1:]) for part in (nn.Linear(i, o), activation())]
    return nn.Sequential(*layers[:-1])


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 8.0):
        super().__init__()
        self.base = base
        self.base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * self.scale


@model("lora")
def lora(draw: Draw) -> Example:
    net = nn.Sequential(
        LoraLinear(nn.Linear(32, 64)),
        nn.GELU(),
        nn.LayerNorm(64).requires_grad_(False),
        LoraLinear(nn.Linear(64, 64)),
        nn.GELU(),
        nn.Linear(64, 5),
    )
    return Example(net, (draw.normal(8, 32), draw.integers(0, 5, 8)), classification)


class Dqn(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = mlp(6, 48, 48, 4)
        self.target = copy.deepcopy(self.online).requires_grad_(False)


def temporal_difference(net, state, action, reward, following, done):
    chosen = net.online(state).gather(1, action.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = net.online(following).argmax(dim=1, keepdim=True)
        expected = reward + 0.99 * net.target(following).gather(1, best).squeeze(1) * (1 - done)
    return F.smooth_l1_loss(chosen, expected)


@model("dqn")
def dqn(draw: Draw) -> Example:
    batch = {
        "state": draw.normal(16, 6),
        "action": draw.integers(0, 4, 16),
        "reward": draw.normal(16),
        "following": draw.normal(16, 6),
        "done": (draw.uniform(16) < 0.2).float(),
    }
    return Example(Dqn(), batch, temporal_difference)


class Pinn(nn.Module):
    """u(t, x) of the heat equation: the forward returns the residual u_t - 0.1 u_xx at the points."""

    def __init__(self):
        super().__init__()
        self.net = mlp(2, 24, 24, 1, activation=nn.Tanh)

    def forward(self, points):
        t, x = (p.clone().requires_grad_(True) for p in points.split(1, dim=1))
        u = self.net(torch.cat([t, x], dim=1))
        u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        return u_t - 0.1 * u_xx


@model("pinn")
def pinn(draw: Draw) -> Example:
    def loss(model_, points, initial, values):
        return model_(points).pow(2).mean() + F.mse_loss(model_.net(initial), values)

    initial = draw.uniform(16, 2) * torch.tensor([0.0, 1.0])
    return Example(Pinn(), (draw.uniform(32, 2), initial, torch.sin(3 * initial[:, 1:])), loss)


class SpectralConv1d(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, 2) / width)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        low = torch.einsum("bim,iom->bom", spectrum[:, :, : self.modes], torch.view_as_complex(self.weight))
        out = torch.zeros_like(spectrum)
        out[:, :, : self.modes] = low
        return torch.fft.irfft(out, n=x.size(-1))


class Fno1d(nn.Module):
    def __init__(self, width=16, modes=6, layers=2):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.spectral = nn.ModuleList(SpectralConv1d(width, modes) for _ in range(layers))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.project = nn.Linear(width, 1)

    def forward(self, x):
        x = self.lift(x).permute(0, 2, 1)
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.project(x.permute(0, 2, 1))


@model("fno1d")
def fno1d(draw: Draw) -> Example:
    def loss(net, x, y):
        return (torch.norm(net(x) - y, dim=(1, 2)) / torch.norm(y, dim=(1, 2))).mean()

    return Example(Fno1d(), (draw.normal(4, 32, 2), draw.normal(4, 32, 1)), loss)


class Gcn(nn.Module):
    def __init__(self, inputs=12, hidden=16, classes=4):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, features, adjacency):
        adjacency = adjacency + torch.eye(adjacency.size(0), dtype=adjacency.dtype, device=adjacency.device)
        degree = adjacency.sum(1).pow(-0.5)
        adjacency = degree[:, None] * adjacency * degree[None, :]
        x = F.dropout(F.relu(adjacency @ self.first(features)), 0.5, training=self.training)
        return F.log_softmax(adjacency @ self.second(x), dim=1)


@model("gcn", random="F.dropout with a rate written in the forward", rates=False)
def gcn(draw: Draw) -> Example:
    edges = (draw.uniform(24, 24) < 0.1).float()
    batch = {
        "features": draw.normal(24, 12),
        "adjacency": torch.maximum(edges, edges.T).fill_diagonal_(0),
        "labels": draw.integers(0, 4, 24),
        "known": draw.uniform(24) < 0.5,
    }

    def loss(net, features, adjacency, labels, known):
        each = F.nll_loss(net(features, adjacency), labels, reduction="none")
        return (each * known).sum() / known.sum()

    return Example(Gcn(), batch, loss)


class Dlrm(nn.Module):
    def __init__(self, sizes=(50, 30, 20), width=8):
        super().__init__()
        self.bottom = mlp(5, 16, width)
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in sizes)
        pairs = (len(sizes) + 1) * len(sizes) // 2
        self.top = mlp(width + pairs, 16, 1)
        self.register_buffer("rows", torch.tril_indices(len(sizes) + 1, len(sizes) + 1, -1)[0], persistent=False)
        self.register_buffer("columns", torch.tril_indices(len(sizes) + 1, len(sizes) + 1, -1)[1], persistent=False)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        features = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


@model("dlrm")
def dlrm(draw: Draw) -> Example:
    def loss(net, dense, sparse, clicked):
        return F.binary_cross_entropy_with_logits(net(dense, sparse), clicked)

    batch = (draw.normal(16, 5), draw.integers(0, 20, 16, 3, 4), (draw.uniform(16) < 0.3).float())
    return Example(Dlrm(), batch, loss)


class SimClr(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(2 * width, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(net, first, second, temperature=0.5):
    z = torch.cat([net(first), net(second)])
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    n = first.size(0)
    partner = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(similarity, partner)


@model("simclr")
def simclr(draw: Draw) -> Example:
    return Example(SimClr(), (draw.normal(4, 3, 16, 16), draw.normal(4, 3, 16, 16)), nt_xent)


@model("triplet")
def triplet(draw: Draw) -> Example:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5),
        nn.PReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.PReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4, 16),
    )

    def loss(net, anchor, positive, negative):
        return F.triplet_margin_loss(net(anchor), net(positive), net(negative), margin=1.0)

    return Example(net, tuple(draw.normal(6, 1, 16, 16) for _ in range(3)), loss)


class MatrixFactorisation(nn.Module):
    def __init__(self, users=40, items=60, width=8):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(3.5))

    def forward(self, user, item):
        product = (self.users(user) * self.items(item)).sum(1)
        return product + self.user_bias(user).squeeze(-1) + self.item_bias(item).squeeze(-1) + self.mean


@model("matrix-factorisation")
def matrix_factorisation(draw: Draw) -> Example:
    def loss(net, user, item, rating):
        penalty = net.users(user).pow(2).sum(1) + net.items(item).pow(2).sum(1)
        return ((net(user, item) - rating) ** 2).mean() + 0.02 * penalty.mean()

    batch = {
        "user": draw.integers(0, 40, 32),
        "item": draw.integers(0, 60, 32),
        "rating": draw.integers(1, 6, 32).float(),
    }
    return Example(MatrixFactorisation(), batch, loss)


class WideDeep(nn.Module):
    def __init__(self, sizes=(20, 12, 7)):
        super().__init__()
        self.wide = nn.Linear(sum(sizes) + 4, 1)
        self.sizes = sizes
        self.embeddings = nn.ModuleList(nn.Embedding(size, 6) for size in sizes)
        self.deep = nn.Sequential(
            nn.Linear(6 * len(sizes) + 4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)
        )

    def forward(self, categories, numbers):
        hot = [F.one_hot(categories[:, i], size).to(numbers.dtype) for i, size in enumerate(self.sizes)]
        dense = [e(categories[:, i]) for i, e in enumerate(self.embeddings)]
        return (self.wide(torch.cat(hot + [numbers], 1)) + self.deep(torch.cat(dense + [numbers], 1))).squeeze(1)


def _table(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Categories [16, 3] of 20, 12 and 7 kinds, numbers [16, 4]."""
    return torch.stack([draw.integers(0, size, 16) for size in (20, 12, 7)], dim=1), draw.normal(16, 4)


@model("wide-deep", random="dropout")
def wide_deep(draw: Draw) -> Example:
    def loss(net, categories, numbers, y):
        logits = net(categories, numbers)
        return F.binary_cross_entropy_with_logits(logits, y, pos_weight=logits.new_tensor(3.0))

    return Example(WideDeep(), (*_table(draw), (draw.uniform(16) < 0.25).float()), loss)


class TabTransformer(nn.Module):
    def __init__(self, sizes=(20, 12, 7), width=16, classes=3):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.embedding = nn.Embedding(sum(sizes), width)
        self.column = nn.Parameter(torch.randn(len(sizes), width) * 0.1)
        self.attention = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.feeds = nn.ModuleList(mlp(width, 2 * width, width, activation=nn.GELU) for _ in range(2))
        self.number_norm = nn.LayerNorm(4)
        self.head = mlp(len(sizes) * width + 4, 32, classes, activation=nn.SELU)

    def forward(self, categories, numbers):
        x = self.embedding(categories + self.offsets) + self.column
        for i, attention in enumerate(self.attention):
            x = self.norms[2 * i](x + attention(x, x, x, need_weights=False)[0])
            x = self.norms[2 * i + 1](x + self.feeds[i](x))
        return self.head(torch.cat([x.flatten(1), self.number_norm(numbers)], dim=1))


@model("tab-transformer")
def tab_transformer(draw: Draw) -> Example:
    def loss(net, categories, numbers, y):
        return F.cross_entropy(net(categories, numbers), y, weight=numbers.new_tensor([1.0, 2.0, 0.5]))

    return Example(TabTransformer(), (*_table(draw), draw.integers(0, 3, 16)), loss)


class ActorCritic(nn.Module):
    def __init__(self, observations=8, actions=3):
        super().__init__()
        self.body = mlp(observations, 32, 32, activation=nn.Tanh)
        self.policy, self.value = nn.Linear(32, actions), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(actions))
        nn.init.orthogonal_(self.policy.weight, gain=0.01)

    def forward(self, observation):
        h = torch.tanh(self.body(observation))
        return self.policy(h), self.log_std.clamp(-5, 2).exp(), self.value(h).squeeze(-1)


def ppo_loss(net, observation, action, old_log_probability, old_value, advantage, returns):
    mean, deviation, value = net(observation)
    policy = torch.distributions.Normal(mean, deviation.expand_as(mean), validate_args=False)
    log_probability = policy.log_prob(action).sum(-1)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_probability - old_log_probability).exp()
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    clipped = old_value + (value - old_value).clamp(-0.2, 0.2)
    value_loss = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
    entropy = policy.entropy().sum(-1).mean()
    loss = -surrogate + 0.5 * value_loss - 0.01 * entropy
    return loss, {"kl": (old_log_probability - log_probability).mean().detach(), "entropy": entropy.detach()}


@model("ppo")
def ppo(draw: Draw) -> Example:
    batch = {
        "observation": draw.normal(32, 8),
        "action": draw.normal(32, 3),
        "old_log_probability": draw.normal(32) * 0.3 - 4,
        "old_value": draw.normal(32) * 0.2,
        "advantage": draw.normal(32),
        "returns": draw.normal(32),
    }
    return Example(ActorCritic(), batch, ppo_loss)


class MultiTask(nn.Module):
    """Quantiles of one target, a class and a regression on one body; the tasks' weights are learnt variances."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.Mish(), nn.Linear(32, 32), nn.Hardswish())
        self.quantiles, self.kind, self.amount = nn.Linear(32, 3), nn.Linear(32, 4), nn.Linear(32, 1)
        self.log_variance = nn.Parameter(torch.zeros(3))
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, x):
        h = self.body(x)
        return self.quantiles(h), self.kind(h), F.softplus(self.amount(h)).squeeze(-1)


def weighted_tasks(net, x, target, kind, amount):
    quantiles, logits, predicted = net(x)
    error = target.unsqueeze(1) - quantiles
    pinball = torch.maximum(net.levels * error, (net.levels - 1) * error).mean()
    losses = torch.stack(
        [pinball, F.cross_entropy(logits, kind, label_smoothing=0.05), F.huber_loss(predicted, amount)]
    )
    return (torch.exp(-net.log_variance) * losses + 0.5 * net.log_variance).sum(), {"losses": losses.detach()}


@model("multi-task")
def multi_task(draw: Draw) -> Example:
    batch = {
        "x": draw.normal(16, 10),
        "target": draw.normal(16),
        "kind": draw.integers(0, 4, 16),
        "amount": draw.uniform(16) * 4,
    }
    return Example(MultiTask(), batch, weighted_tasks)


class KanLinear(nn.Module):
    """A sum of splines of degree 3 per edge, by the recursion of Cox and de Boor, beside a SiLU branch."""

    def __init__(self, inputs, outputs, cells=5, degree=3):
        super().__init__()
        self.degree = degree
        step = 2.0 / cells
        knots = torch.arange(-degree, cells + degree + 1) * step - 1.0
        self.register_buffer("grid", knots.expand(inputs, -1).contiguous())
        self.base = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)
        self.spline = nn.Parameter(torch.randn(outputs, inputs, cells + degree) * 0.1)

    def basis(self, x):
        x, grid = x.unsqueeze(-1), self.grid
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.degree + 1):
            left = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)])
            right = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k])
            bases = left * bases[:, :, :-1] + right * bases[:, :, 1:]
        return bases

    def forward(self, x):
        return F.linear(F.silu(x), self.base) + F.linear(self.basis(x).flatten(1), self.spline.flatten(1))


@model("kan")
def kan(draw: Draw) -> Example:
    net = nn.Sequential(KanLinear(4, 8), nn.Tanh(), KanLinear(8, 1))

    def loss(net, x, y):
        penalty = sum(part.spline.abs().mean() for part in net if isinstance(part, KanLinear))
        return F.mse_loss(net(x).squeeze(1), y) + 1e-3 * penalty

    return Example(net, (draw.uniform(32, 4) * 1.8 - 0.9, draw.normal(32)), loss)


class NeuralOde(nn.Module):
    def __init__(self, width=8, steps=4):
        super().__init__()
        self.field = mlp(width + 1, 32, width, activation=nn.Softplus)
        self.read = nn.Linear(width, 2)
        self.steps = steps

    def derivative(self, t, y):
        return self.field(torch.cat([y, torch.full_like(y[:, :1], t)], dim=1))

    def forward(self, y):
        step = 1.0 / self.steps
        y = y + step * self.derivative(0.0, y)
        for i in range(1, self.steps):
            t = i * step
            k1 = self.derivative(t, y)
            k2 = self.derivative(t + step / 2, y + step / 2 * k1)
            k3 = self.derivative(t + step / 2, y + step / 2 * k2)
            k4 = self.derivative(t + step, y + step * k3)
            y = y + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return self.read(y)


@model("neural-ode")
def neural_ode(draw: Draw) -> Example:
    return Example(NeuralOde(), (draw.normal(16, 8), draw.integers(0, 2, 16)), classification)
