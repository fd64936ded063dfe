# REQUIRES: torch
# RUN: %venv_torch %s
"""What an export of PyTorch models gets wrong easily: each trap is a model whose training must be PyTorch's."""
import contextlib
import copy
import io
import itertools
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
import tiny  # noqa: E402
from against_torch import adamw, agree, trainc  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def no_grad_region():
    """run_decompositions forgets that a region had no gradient: a teacher would be trained."""
    class Distilled(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            with torch.no_grad():
                target = self.teacher(x).softmax(-1)
            return F.cross_entropy(self.student(x), target)

    exported = agree(Distilled(), (torch.randn(5, 4),))
    assert exported.frozen == ["teacher.weight", "teacher.bias"], exported.frozen
    assert "nn.stop_gradient" in exported.text


def detached():
    class Straight(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            h = self.a(x)
            return (self.b(h.detach()) ** 2).mean() + h.mean()

    agree(Straight(), (torch.randn(5, 4),))


def without_gradient():
    """PyTorch does not even decay what has no gradient; a parameter that nothing reads is left out."""
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.only_shaped = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
            self.only_compared, self.only_like = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

        def forward(self, x):
            y = self.used(x) + torch.zeros_like(self.only_shaped(x)) + self.only_shaped(x).new_ones(3)
            self.unused(x)
            y = torch.broadcast_tensors(y.type_as(self.only_like).expand_as(self.only_like + y.detach()), self.only_like)[0]
            return torch.where(self.only_compared > 0, y, 2 * y).square().mean()

    exported = agree(Parts(), (torch.randn(5, 4),))
    assert exported.frozen == ["only_compared", "only_like", "only_shaped.weight", "only_shaped.bias"], exported.frozen
    assert exported.unused == ["unused.weight", "unused.bias"]
    model = Parts()
    model.used.bias.requires_grad_(False)
    assert "used.bias" in agree(model, (torch.randn(5, 4),)).frozen


def constants():
    """Masks and positions are known: attention becomes causal, positions an iota; what the state dict has stays a buffer."""
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.positions, self.qkv = nn.Embedding(11, 8), nn.Embedding(6, 8), nn.Linear(8, 24)
            self.register_buffer("mask", torch.ones(6, 6, dtype=torch.bool).tril()[None, None], persistent=False)
            self.register_buffer("scale", torch.randn(8))

        def forward(self, ids):
            h = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
            q, k, v = (x.unflatten(-1, (2, 4)).transpose(1, 2) for x in self.qkv(h * self.scale).chunk(3, -1))
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask).transpose(1, 2).flatten(2)
            return h.square().mean()

    exported = agree(Positions(), (torch.randint(0, 11, (3, 6)),))
    assert " causal " in exported.text and "nn.iota" in exported.text and "mask" not in exported.weights
    assert "train.buffer @scale" in exported.text
    assert exported.text.count("nn.transpose") == 0, "transposes of heads must cancel"


def tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 5), nn.Linear(5, 9, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids, targets):
            return F.cross_entropy(self.head(self.table(ids)), targets)

    exported = agree(Tied(), (torch.randint(0, 9, (7,)), torch.randint(0, 9, (7,))))
    assert exported.tied == {"table.weight": ["head.weight"]} and list(exported.weights) == ["table.weight"]


def one_tensor_twice():
    """Export takes one tensor in two places for one input."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, y):
            return F.mse_loss(self.fc(x), y)

    x = torch.randn(5, 4)
    exported = agree(Two(), [(x, x), (torch.randn(5, 4), torch.randn(5, 4))])
    assert list(exported.inputs["step"]) == ["x", "y"]


def corners():
    """Gradients at bounds and corners, where the dialect's own operations give other halves."""
    functions = dict(
        clamp=lambda x: x.clamp(0, 1), clamp_tensor=lambda x: x.clamp(torch.zeros(8), torch.ones(8)), hardtanh=F.hardtanh, relu6=F.relu6, hardswish=F.hardswish, hardsigmoid=F.hardsigmoid, relu=F.relu,
        leaky_relu=F.leaky_relu, elu=F.elu, softplus=F.softplus, abs=torch.abs, clamp_min=lambda x: x.clamp_min(0.5), clamp_max=lambda x: x.clamp_max(torch.tensor(0.5)),
        fmax=lambda x: torch.fmax(x, x.detach().sign()), fmin=lambda x: torch.fmin(x.detach().clamp(0.0, 1.0), x), fmax_nan=lambda x: torch.fmax(x, x.new_full((8,), math.nan)),
        huber=lambda x: F.huber_loss(x, 0 * x + 1, reduction="none"), smooth_l1=lambda x: F.smooth_l1_loss(x, 0 * x, reduction="none"))

    class Corners(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.ParameterDict({name: torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0]) for name in functions})

        def forward(self, w):
            return sum((f(self.x[name]) * w).sum() for name, f in functions.items())

    agree(Corners(), (torch.randn(8),), optimizer=lambda p: torch.optim.SGD(p, 1.0), updates=1, bar=1.0)


def places_on_elements():
    """A grid that starts as the identity: which of two slopes a place on an element has is decided by the last bit of where it is."""
    class Grids(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.ParameterList(torch.eye(d, d + 1).repeat(2, 1, 1) for d in (2, 3) for _ in range(12))

        def forward(self, plane, volume):
            options = itertools.product((plane, volume), ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True))
            results = [F.grid_sample(x, F.affine_grid(theta, list(x.shape), corners), mode, padding, corners).flatten()
                       for theta, (x, mode, padding, corners) in zip(self.theta, options)]
            return (torch.cat(results) * torch.linspace(0, 9, sum(map(len, results))).sin()).sum()

    agree(Grids(), (torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 4, 6)), optimizer=lambda p: torch.optim.SGD(p, 1e-3), parameters=1e-9)


def one_index():
    """max(dim) gives the gradient to one of equal elements, amax to all."""
    class Ties(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]))

        def forward(self, w):
            return (self.x.max(1).values * w).sum() + 3 * (self.x.amax(1) * w).sum() + (self.x.topk(2).values.sum(1) * w).sum()

    agree(Ties(), (torch.randn(2),), updates=1)


def classes_second():
    """Cross entropy of images has its classes in dimension 1; weights, ignored targets and smoothing count as in PyTorch."""
    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.register_buffer("weight", torch.tensor([1.0, 0.5, 2.0, 3.0]))

        def forward(self, x, y):
            z = self.conv(x)
            return (F.cross_entropy(z, y, ignore_index=2, label_smoothing=0.1) + F.cross_entropy(z, y, weight=self.weight)
                    + F.cross_entropy(z, y, weight=self.weight, label_smoothing=0.2, ignore_index=1)
                    + F.cross_entropy(z, y, reduction="none").mean() + F.nll_loss(F.log_softmax(z, 1), y, ignore_index=0))

    agree(Pixels(), (torch.randn(2, 3, 5, 5), torch.randint(0, 4, (2, 5, 5))))


def running_statistics():
    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)

        def forward(self, x):
            return self.norm(self.conv(x)).abs().mean()

    exported = agree(Norms(), [(torch.randn(2, 3, 5, 5),) for _ in range(3)], skip=["conv.bias"])
    assert "train.write" in exported.text


def padding():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 4, padding_idx=2)

        def forward(self, ids):
            return self.table(ids).sin().sum()

    agree(Bag(), (torch.randint(0, 7, (4, 5)),), optimizer=lambda p: torch.optim.SGD(p, 0.1))


def ends_of_integers():
    """Constants at both ends of 64 bits, which are no range; and memory that nothing has written, which is 0."""
    def numbers(m, n):
        return (n + torch.tensor([2**63 - 2, -2**63, 0]), n[:2] + torch.tensor([-2**62, 2**62 - 1]),
                torch.full((3,), 2**62).new_empty(3) * n, torch.empty_like(n).scatter(0, n - 1, n))

    exported = trainc.torch.export(nn.Linear(3, 1), (torch.ones(1, 3),), lambda m, x: m(x).sum(),
                                   evals={"numbers": (numbers, (torch.tensor([1, 1, 1]),))})
    with exported.step() as step:
        values = [x.tolist() for x in step.eval("numbers", torch.tensor([1, 1, 1])).values()]
    assert values == [[2**63 - 1, 1 - 2**63, 1], [1 - 2**62, 2**62], [0, 0, 0], [1, 0, 0]], values


def bags():
    """Of other lengths in each call: some have no rows, some only those of padding."""
    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.sums, self.means = nn.EmbeddingBag(7, 4, mode="sum", include_last_offset=True), nn.EmbeddingBag(7, 4, padding_idx=2)

        def forward(self, ids, offsets, weights):
            return (self.sums(ids, offsets, weights).sin() + self.means(ids, offsets[:-1]) ** 2).sum()

    batches = [(torch.tensor([2, 2, 4, 0, 6, 2, 5, 1]), torch.tensor(offsets), torch.randn(8)) for offsets in ([0, 2, 2, 5, 8], [0, 0, 0, 8, 8])]
    agree(Bags(), batches, optimizer=lambda p: torch.optim.SGD(p, 0.1))

    def largest(model, ids, offsets):
        return F.embedding_bag(ids, model.weight, offsets, mode="max").sum()

    with tiny.refused(trainc.UnsupportedError, "maxima of bags whose offsets are an input"):
        trainc.torch.export(nn.Embedding(7, 4), batches[0][:2], largest)


def in_place():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            h = self.fc(x)
            h.mul_(2).add_(x)
            h[:, 0] = 1.0
            h[:, 1:3] += x[:, 1:3]
            return F.relu(h, inplace=True).square().mean()

    agree(InPlace(), (torch.randn(5, 4),))


def modes():
    """A step trains, an eval does not drop out, whatever mode the model is in; the model itself stays in its mode."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model.eval()
    model[1].train()
    x = torch.randn(6, 4)
    exported = trainc.torch.export(model.train(), (x,), lambda m, x: m(x).square().mean(), evals={"y": lambda m, x: m(x)})
    assert [m.training for m in model.modules()] == [True] * 5
    with exported.step(threads=1) as step:
        got = step.eval("y", x)["y"]
        torch.testing.assert_close(got, model.eval()(x).detach())


def metrics():
    """What the loss function returns beside the loss are outputs of each call: of the parameters before the update."""
    model, x, y = nn.Linear(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))

    def loss(m, x, y):
        z = m(x)
        return F.cross_entropy(z, y), {"accuracy": (z.argmax(-1) == y).double().mean(), "logits": z}, x.sum()

    exported = trainc.torch.export(model, (x, y), loss, torch.optim.SGD(model.parameters(), 0.1), accumulate=2)
    reference = copy.deepcopy(model)
    theirs = torch.optim.SGD(reference.parameters(), 0.1)
    with exported.step(threads=1) as step:
        for i in range(4):
            value, named, total = loss(reference, x, y)
            (value / 2).backward()
            result = step(x, y)
            assert list(result.outputs) == ["accuracy", "logits", "output_1"]
            torch.testing.assert_close(result.outputs, {**named, "output_1": total})
            assert abs(result.loss - value.item()) < 1e-12
            if i % 2:
                theirs.step()
                theirs.zero_grad()
        late = step(x, y)
        step(x, y)
        try:
            late.outputs
            raise AssertionError("outputs of an earlier call were read")
        except trainc.InvalidArgumentError as e:
            assert "before the next call" in str(e)


def large_constants():
    """A constant above a page is a buffer with its values in the text; a step and an eval may have others of them."""
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(40, 40)
            self.register_buffer("first", torch.randn(40, 40), persistent=False)
            self.register_buffer("second", torch.randn(40, 40), persistent=False)

        def forward(self, x):
            return (self.fc(x) @ self.first).square().mean()

    model, x = Table(), torch.randn(3, 40)
    exported = agree(model, (x,), evals={"y": lambda m, x: {"a": m.fc(x) @ m.second, "b": m.fc(x) @ m.first}})
    assert [name for name in exported.weights if name not in model.state_dict()] == ["constant.0", "constant.1"]
    with exported.step(threads=1) as step:
        for name, table in (("a", model.second), ("b", model.first)):
            torch.testing.assert_close(step.eval("y", x)[name], model.fc(x).detach() @ table)


def accumulated():
    """The mean of the micro-batches' means, however their weights differ."""
    model, batches = nn.Linear(3, 2), [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(2)]
    loss = lambda m, x, y: F.mse_loss(m(x), y)  # noqa: E731
    exported = trainc.torch.export(model, batches[0], loss, adamw(model.parameters()), accumulate=2, clip_grad_norm=0.5)
    optimizer = adamw(model.parameters())
    with exported.step(threads=1) as step:
        for batch in batches:
            (loss(model, *batch) / 2).backward()
            result = step(*batch)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        assert result.updated and abs(result.grad_norm - norm.item()) <= 1e-12
        for name, value in step.state_dict(as_torch=True).items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-6, atol=1e-9)


def whole_batches():
    """Batches are given whole: what the loss does not read is not read, a constant must be what it was."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, ids, x, scale, mask=None):
            y = self.fc(x) * scale
            return (y if mask is None else y * mask).square().mean()

    ids, x = torch.zeros(3, dtype=torch.long), torch.randn(3, 4)
    for batch in ((ids, x, 2.0), dict(scale=2.0, mask=None, x=x, ids=ids)):
        exported = trainc.torch.export(Model(), batch)
        assert list(exported.inputs["step"]) == ["x"]
        with exported.step(threads=1) as step:
            losses = [step(**batch).loss if isinstance(batch, dict) else step(*batch).loss, step(x=x).loss]
            assert losses[0] != losses[1]
            for wrong, said in [(dict(x=x, scale=3.0), "expected 2.0, got 3.0"), (dict(x=x, other=1), "other"), (dict(ids=ids), "x")]:
                try:
                    step(**wrong)
                    raise AssertionError(f"{wrong} is not refused")
                except trainc.InvalidArgumentError as e:
                    assert said in str(e), e


def autocast():
    """What a region casts, and one without inside of it, is cast here, too; precision="autocast" is a region around the loss."""
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                h = F.gelu(self.a(x))
                with torch.autocast("cpu", enabled=False):
                    h = self.b(h.float())
            return F.cross_entropy(self.c(h), torch.tensor([0, 3, 1, 2, 2]))

    def casts_of(text):
        return text.count(" to bf16 : ")

    model, x = Cast().float(), torch.randn(5, 8, dtype=torch.float32)
    inside = agree(model, (x,), bar=2e-2, parameters=2e-2)
    assert casts_of(inside.text) == 3, inside.text  # of x, a's weight and its bias
    around = agree_in_autocast(model, x)
    assert casts_of(around.text) > 3, around.text


def agree_in_autocast(model, x):
    def around(m, x):
        with torch.autocast("cpu", torch.bfloat16):
            return m(x)

    reference = copy.deepcopy(model)
    exported = trainc.torch.export(model, (x,), optimizer=adamw(model.parameters()), precision="autocast")
    theirs = adamw(reference.parameters())
    with exported.step() as step:
        for _ in range(3):
            theirs.zero_grad()
            loss = around(reference, x)
            loss.backward()
            theirs.step()
            assert abs(step(x).loss - loss.item()) <= 2e-2 * loss.item()
    return exported


def bytes_as_inputs():
    """uint8 is read as i8 and widened; what wraps at 256 is refused."""
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 2)

        def forward(self, x, function=lambda x: x):
            rows = torch.cat([x.transpose(0, 1)[1:], x.transpose(0, 1)[:1]]).reshape(-1, 5)
            return self.fc(function(rows).double() / 255).square().mean() + self.fc((x / 255.0).double()).mean() * (x > 200).double().mean()

    x = torch.randint(0, 256, (4, 3, 5), dtype=torch.uint8)
    exported = agree(Images(), [(x,), (255 - x,)])
    assert "tensor<4x3x5xi8>" in exported.text and exported.unsigned == {"step": {"x"}}
    for function in (lambda x: x + 1, lambda x: -x, lambda x: x.square()):
        try:
            trainc.torch.export(Images(), (x,), lambda m, x, f=function: m(x, f))
            raise AssertionError("arithmetic in uint8 is not refused")
        except trainc.UnsupportedError as e:
            assert "wraps at 256" in str(e) and "torch-traps.py" in str(e), e


def eight_bits():
    """Frozen weights in int8 train what a model with the rounded weights trains, and are nowhere kept wider."""
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.ModuleList(nn.Linear(16, 16, bias=i == 0) for i in range(2)).requires_grad_(False)
            self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
            self.base[1].weight.data[3] = 0

        def forward(self, x):
            for layer in self.base:
                x = torch.tanh(layer(x)) + self.up(self.down(x))
            return x.square().mean()

    def rounded(w):
        scale = w.abs().amax(1, keepdim=True) / 127
        return (w / torch.where(scale > 0, scale, 1.0)).round() * scale

    model, x = Adapted(), (torch.randn(5, 16),)
    wanted = copy.deepcopy(model)
    for layer in wanted.base:
        layer.weight.data = rounded(layer.weight.data)
    narrow = trainc.torch.export(model, x, optimizer=adamw([p for p in model.parameters() if p.requires_grad]), frozen="int8")
    assert "tensor<16x16xi8>" in narrow.text and narrow.text.count("train.recompute") == 2, narrow.text
    wide = trainc.torch.export(wanted, x, optimizer=adamw([p for p in wanted.parameters() if p.requires_grad]))
    with narrow.step() as one, wide.step() as other:
        for _ in range(3):
            a, b = one(*x), other(*x)
            assert abs(a.loss - b.loss) <= 1e-12 * b.loss and abs(a.grad_norm - b.grad_norm) <= 1e-12 * b.grad_norm, (a, b)


def two_values():
    """Names of one parameter must have one value; each of them alone will do."""
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return F.cross_entropy(self.head(self.table(ids)), ids)

    model, w = Tied(), torch.randn(6, 4)
    with trainc.torch.export(model, (torch.tensor([1, 2]),)).step() as step:
        for state in (model.state_dict(), {"head.weight": w}, {"table.weight": w}, {"table.weight": w, "head.weight": w.clone()}):
            step.load_state_dict(state)
        assert torch.equal(step.state_dict(as_torch=True)["table.weight"], w)
        try:
            step.load_state_dict({"table.weight": w, "head.weight": w + 1})
            raise AssertionError("two values are not refused")
        except trainc.MismatchError as e:
            assert "head.weight and table.weight are one tensor" in str(e), e


def lines_of_functions():
    """Operations of plain functions, called from a forward, are known by their own lines."""
    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return helper(self.fc(x))

    def helper(y):
        return y.tanh().mean()

    text = trainc.torch.export(Calls(), (torch.randn(5, 4),)).text
    line = helper.__code__.co_firstlineno + 1
    assert f'loc("torch-traps.py":{line}:' in next(x for x in text.splitlines() if "nn.tanh" in x), text


def converted():
    """A forward may convert a part of the model to the type that it has."""
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x, dtype=torch.float64):
            return self.norm.to(x.device)(self.fc.to(dtype)(x.to(dtype))).sin().exp().mean()

    agree(Part(), (torch.randn(5, 4),))
    with tiny.refused(trainc.UnsupportedError, "weight of Linear is of torch.float64, and becomes of torch.float32", "self.fc.to(dtype)"):
        trainc.torch.export(Part(), (torch.randn(5, 4),), lambda m, x: m(x, torch.float32))
    assert nn.Linear(2, 2).double().weight.dtype == torch.float64 and nn.Module.to.__module__ == "torch.nn.modules.module"


def refused():
    """What cannot be translated is listed at once with the user's lines; regions that export would forget are not forgotten."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, kind):
            if kind == "unknown":
                return (torch.linalg.matrix_exp(self.fc(x)[:4]) * self.fc(x)[:4]).mean() + torch.bincount(x.argmax(1)).sum() * self.fc(x).mean()
            if kind == "masked":
                return self.fc(x)[x > 0].sort().values.mean()
            if kind == "branch":
                print("said by the model", file=sys.stderr)
                return self.fc(x).mean() if (x > 0).nonzero().shape[0] > 3 else self.fc(x).sum()
            return self.fc(x)

    printed = io.StringIO()
    for kind, *said in [("unknown", "2 operations", "aten.linalg_matrix_exp", "torch-traps.py:", "aten.bincount", "one_hot(x, n).sum(0)"),
                        ("masked", "depend"), ("branch", "depends on the values of tensors", "torch-traps.py:"), ("all", "one floating-point number", "5x4")]:
        with contextlib.redirect_stderr(printed), tiny.refused(trainc.UnsupportedError, *said):
            trainc.torch.export(Model(), (torch.randn(5, 4), kind), lambda m, x, kind: m(x, kind))
    assert printed.getvalue() == "said by the model\n", repr(printed.getvalue())  # torch.export prints its graph
    assert "NOT TRANSLATED aten.linalg_matrix_exp" in trainc.torch.report(Model(), (torch.randn(5, 4), "unknown"), lambda m, x, kind: m(x, kind))
    x, not_a_number = torch.randn(5, 4), nn.Linear(4, 1)
    not_a_number.weight.data[0, 1] = torch.nan
    for broken, x, said in [(nn.Linear(4, 1).requires_grad_(False), x, "nothing is trained"), (nn.Linear(3, 1), x, "torch.export cannot capture"),
                            (nn.Linear(4, 1, device="meta"), x, "device meta"), (not_a_number, x, "weight holds NaN"), (nn.Linear(4, 1), (x > 0).to(torch.uint16), "torch.uint16")]:
        with tiny.refused(trainc.UnsupportedError, said):
            trainc.torch.export(broken, (x,), lambda m, x: m(x.double()).mean(), torch.optim.SGD(broken.parameters(), 0.1))


TRAPS = [no_grad_region, detached, without_gradient, constants, tied, one_tensor_twice, corners, places_on_elements, one_index,
         classes_second, running_statistics, padding, ends_of_integers, bags, in_place, modes, metrics, large_constants, accumulated,
         whole_batches, autocast, bytes_as_inputs, eight_bits, two_values, lines_of_functions, converted, refused]

if __name__ == "__main__":
    chosen = [trap for trap in TRAPS if not sys.argv[1:] or trap.__name__ in sys.argv[1:]]
    for trap in chosen:
        trap()
        print(f"{trap.__name__}: ok", flush=True)
