# REQUIRES: torch
# RUN: %venv_torch %s
"""What training would silently do otherwise in a step is refused by name, with the user's line; so is what cannot be captured, and
arguments that mean nothing."""
import contextlib
import io
import os
import sys
import warnings
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import DynamicCache
from transformers.modeling_outputs import CausalLMOutput, CausalLMOutputWithPast
from transformers.models.fsmt import modeling_fsmt

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, mlp  # noqa: E402
from tiny import refused, trainc  # noqa: E402

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
Unsupported, HERE = trainc.UnsupportedError, "torch-refused.py:"
x, y = torch.randn(4, 6), torch.tensor([0, 2, 1, 1])


def ce(m, x, y):
    return F.cross_entropy(m(x), y)


def export(m=None, loss=ce, batch=(x, y), optimizer=None, **options):
    m = m or mlp()
    return trainc.torch.export(m, batch, loss, optimizer or torch.optim.SGD(m.parameters(), 0.1), **options)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Mapped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return -g


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensors, layer):
        return layer(tensors[0]) / 2

    @staticmethod
    def backward(ctx, g):
        return None, None


def functions():
    """A backward of the user's is not the derivative of its forward; where it is never called it does not matter."""
    with refused(Unsupported, "the backward of Reverse", HERE, "Reverse.apply(m[0](x))"):
        export(loss=lambda m, x, y: F.cross_entropy(m[2](Reverse.apply(m[0](x))), y))

    def without(m, x, y):
        with torch.no_grad():
            target = Reverse.apply(m[0](x))
        return F.mse_loss(m[0](Reverse.apply(x)), target) + ce(m, x, y)

    agree(mlp(), (x, y), without, evals={"y": lambda m, x, y: Reverse.apply(m(x))})
    agree(mlp(), (x, y), lambda m, x, y: F.cross_entropy(m(x) + Halved.apply([m[0](x)], m[2]), y))  # PyTorch does not look into a list or a module
    assert torch.autograd.Function.__dict__["apply"] is torch._C._FunctionBase.__dict__["apply"]


def caught():
    """What a `try` of the program catches is refused still, and derivatives are captured."""
    def attempt(function, kind=Exception):
        def loss(m, x, y):
            h = m[0](x)
            try:
                scale = function(h, x)
            except kind:
                scale = 3.0
            return F.cross_entropy(m[2](torch.tanh(h)), y) * scale

        return loss

    for function, kind, *said in [(lambda h, x: 2.0 if (x > 0).all() else 1.0, RuntimeError, "depends on the values of tensors", HERE),
                                  (lambda h, x: 2.0 if float(h.abs().max()) > 1e3 else 1.0, Exception, "depends on the values of tensors", HERE),
                                  (lambda h, x: h.register_hook(lambda g: g * 0.1) and 1.0, Exception, "Tensor.register_hook", HERE),
                                  (lambda h, x: Reverse.apply(h).sum(), trainc.Error, "the backward of Reverse", HERE),
                                  (lambda h, x: len(x[x > 0]), TypeError, "len()", HERE),
                                  (lambda h, x: torch.manual_seed(0) and 1.0, Exception, "torch.manual_seed", HERE)]:
        with refused(Unsupported, *said):
            export(loss=attempt(function, kind))

    def derived(h, x):
        gradient, = torch.autograd.grad(h.square().sum(), h, create_graph=True)
        return gradient.square().mean()

    for function in (derived, lambda h, x: torch.func.grad(lambda x: x.sin().sum())(x).square().mean(), lambda h, x: h + "no number"):
        agree(mlp(), (x, y), attempt(function))


def batched():
    """In torch.vmap, too."""
    def without(m, r):
        h = m(r)
        with torch.no_grad():
            h.mul_(2)
        return h

    def detached(m, r):
        h = m(r)
        h.detach().mul_(2)
        return h

    def hooked(m, r):
        h = m(r)
        h.register_hook(lambda g: g * 0.1)
        return h

    def penalized(row):
        return lambda m, x, y: mapped(row)(m, x, y) + torch.func.grad(lambda z: m(z).sum())(x).square().mean()

    def mapped(row):
        return lambda m, x, y: F.cross_entropy(torch.vmap(lambda r: row(m, r))(x), y)

    for row, *said in [(lambda m, r: Mapped.apply(m(r)), "the backward of Mapped", "Mapped.apply(m(r))"),
                       (without, "mul_ changes a tensor past its gradient", "h.mul_(2)"),
                       (detached, "mul_ changes a tensor past its gradient", "h.detach().mul_(2)"),
                       (hooked, "Tensor.register_hook", "h.register_hook")]:
        for loss in (mapped(row), penalized(row)):
            with refused(Unsupported, HERE, *said):
                export(loss=loss)

    def inside(m, x, y):
        """Where nothing is refused."""
        def row(r):
            z, w = torch.zeros(3), torch.zeros_like(r)
            w[:3] = m(r)
            return (z.add_(1) * w[:3] + w.detach()[:3]) @ torch.linalg.inv(2 * torch.eye(3) + m[2].weight[:, :3] * r[:3])

        with torch.no_grad():
            kept = torch.vmap(lambda r: Mapped.apply(m(r)).mul_(2))(x)
        return F.cross_entropy(torch.vmap(row)(x) + kept, y)

    agree(mlp(), (x, y), inside)


def hooks():
    def zero(p):
        p.grad.zero_()

    adders = {
        "Tensor.register_hook of 0.weight": lambda m, o: m[0].weight.register_hook(lambda g: g * 0),
        "Tensor.register_post_accumulate_grad_hook of 0.weight": lambda m, o: m[0].weight.register_post_accumulate_grad_hook(zero),
        "Module.register_full_backward_hook of 1": lambda m, o: m[1].register_full_backward_hook(lambda m, i, g: i),
        "Module.register_full_backward_pre_hook of 2": lambda m, o: m[2].register_full_backward_pre_hook(lambda m, g: g),
        "register_step_pre_hook of SGD": lambda m, o: o.register_step_pre_hook(lambda *_: None),
        "register_step_post_hook of SGD": lambda m, o: o.register_step_post_hook(lambda *_: None),
        "torch.nn.modules.module.register_module_full_backward_hook": lambda m, o: nn.modules.module.register_module_full_backward_hook(lambda *_: None),
        "torch.optim.optimizer.register_optimizer_step_pre_hook": lambda m, o: register_optimizer_step_pre_hook(lambda *_: None)}
    for name, add in adders.items():
        m = mlp()
        o = torch.optim.SGD(m.parameters(), 0.1)
        handle = add(m, o)
        with refused(Unsupported, "hooks that a step does not call", name):
            export(m, optimizer=o)
        handle.remove()
        export(m, optimizer=o)

    def hooked(m, x, y):
        h = m[0](x)
        h.register_hook(lambda g: g * 0)
        return F.cross_entropy(m[2](h), y)

    with refused(Unsupported, "Tensor.register_hook would be ignored", HERE, "h.register_hook"):
        export(loss=hooked)

    class Doubled(nn.Module):  # hooks of forwards are part of them
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 3)
            self.fc.register_forward_pre_hook(lambda m, given: (given[0] * 3,))
            self.fc.register_forward_hook(lambda m, given, result: result.sin())

        def forward(self, x):
            return self.fc(x).square().mean()

    model = Doubled()
    reference = model.fc(x).square().mean().item()
    with trainc.torch.export(model, (x,)).step(threads=1) as step:
        assert abs(step(x).loss - reference) < 1e-12


def changed_in_place():
    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.scale = nn.Linear(6, 3), nn.Parameter(torch.tensor(3.0))

        def forward(self, x, y):
            with torch.no_grad():
                self.scale.clamp_(0, 4.6)
            return F.cross_entropy(self.scale.exp() * self.a(x), y)

    for loss in (lambda m, x, y: m(x, y), lambda m, x, y: (m(x, y), {"mean": x.mean()})):
        with refused(Unsupported, "changed in place by the forward: scale", "a buffer"):
            export(Clip(), loss)

    class Teacher(nn.Module):
        """Its parameters follow the student's."""

        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)

        def forward(self, x):
            with torch.no_grad():
                for a, b in zip(self.teacher.parameters(), self.student.parameters()):
                    a.lerp_(b, 0.1)
            x = x.clone().mul_(2)
            return F.mse_loss(self.student(x), self.teacher(x))

    exported = agree(Teacher(), [(torch.randn(4, 6),) for _ in range(3)])
    assert exported.frozen == ["teacher.weight", "teacher.bias"] and "train.buffer @teacher.weight" in exported.text
    kept = x.clone()
    exported = export(loss=lambda m, x, y: ce(m, x.mul_(2), y))  # an input stays what it is
    with exported.step(threads=1) as step:
        step(kept, y)
    assert torch.equal(kept, x)


def shared_memory():
    for share in (lambda m: setattr(m[1].weight, "data", m[0].weight.data), lambda m: setattr(m[1].weight, "data", m[0].weight.data.t()),
                  lambda m: m[1].register_buffer("weight_2", m[0].weight.detach()[2:])):
        m = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        share(m)
        with refused(Unsupported, "0.weight and 1.weight", "in the same memory"):
            export(m)
    m, both = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), torch.randn(2, 6, 6)
    m[0].weight.data, m[1].weight.data = both
    m[1].register_buffer("one", both.new_ones(6))
    m[1].register_buffer("other", m[1].one[2:])
    export(m)
    with refused(Unsupported, "1.one and 1.other are tensors in the same memory, of which the forward changes one", "clone()"):
        export(m, loss=lambda m, x, y: ce(m, x, y) + m[1].one.mul_(0.5).sum())


def returned():
    for loss, said in [(lambda m, x, y: (ce(m, x, y), {"name": "abc"}), "name of step is 'abc': expected a tensor or a number"),
                       (lambda m, x, y: {"nll": ce(m, x, y)}, "loss= returns a dict of nll: expected the loss"),
                       (lambda m, x, y: (), "the loss of step is None"),
                       (lambda m, x, y: CausalLMOutput(logits=m(x)), "loss= returns a CausalLMOutput of logits: expected the loss"),
                       (lambda m, x, y: ((ce(m, x, y),), x), "the loss of step is a tuple: expected a tensor"),
                       (lambda m, x, y: None, "the loss of step is None")]:
        with refused(Unsupported, said):
            export(loss=loss)
    for loss in (lambda m, x, y: {"loss": ce(m, x, y), "logits": m(x)},
                 lambda m, x, y: CausalLMOutputWithPast(ce(m, x, y), m(x), DynamicCache())):
        assert "aten.linear" in export(loss=loss).report() and "-> (" not in export(loss=loss).text
    for twice in (({"a": x}, {"a": x}), (x, {"output_0": x}), {"a": (x, x), "a_0": x}):
        with refused(Unsupported, "two outputs of step are called", "expected a name for each"):
            export(loss=lambda m, x, y, twice=twice: (ce(m, x, y), *(twice if isinstance(twice, tuple) else [twice])))
    with refused(Unsupported, "two outputs of e are called a_1"):
        export(evals={"e": lambda m, x, y: {"a": (x, x), "a_1": x}})
    with refused(Unsupported, "text of e is 'abc'"):
        export(evals={"e": lambda m, x, y: {"text": "abc"}})
    with refused(Unsupported, "none of e: a tensor without elements"):
        export(evals={"e": lambda m, x, y: {"none": torch.zeros(0, 2)}})
    exported = export(loss=lambda m, x, y: (ce(m, x, y), None, {"none": None, "three": 3}), evals={"e": lambda m, x, y: {"p": m(x), "none": None}})
    with exported.step(threads=1) as step:
        assert step(x, y).outputs == {"three": 3} and list(step.eval("e", x)) == ["p"]


def captured():
    """The user's line and the reason, and nothing else printed."""
    def branch(m, x, y):
        return m(x).sum() if x.sum() > 0 else m(x).mean()

    def item(m, x, y):
        return m(x).sum() * (1 if y.sum().item() > 3 else 2)

    def of_library(m, x, y):
        return m(x).mean() + modeling_fsmt.make_padding_mask(y).sum()

    def penalty(m, x, y):
        x = x.clone().requires_grad_()
        slope, = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return slope.square().mean() + torch.linalg.matrix_exp(slope[:3, :3]).sum()  # the line of what cannot be translated

    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        for loss, *said in [(branch, "values of tensors", "if x.sum() > 0"), (item, "values of tensors", "y.sum().item()"),
                            (of_library, "make_padding_mask(y)", "modeling_fsmt.py:", "if not padding_mask.any():"),
                            (penalty, "aten.linalg_matrix_exp", "torch.linalg.matrix_exp("),
                            (lambda m, x, y: ce(m, x, y).backward(), "backward()"),
                            (lambda m, x, y: m(x)[y != 0].sort(0).values.sum(), "m(x)[y != 0]", "depends on data"),
                            (lambda m, x, y: torch.vmap(lambda r: m(r).sum() * r.sum().item())(x).mean(), "vmap over calling .item()", "torch.vmap(lambda"),
                            (lambda m, x, y: torch.vmap(torch.dot)(x, x[:3]).mean(), "same size in the mapped dimension", "torch.vmap(torch.dot)"),
                            (lambda m, x, y: m(x)[1:].as_strided((2,), (1,), 4).sum(), "as_strided", "does not begin where its memory does"),
                            (lambda m, x, y: ce(m, x @ x, y), "a and b must have same reduction dim", "x @ x")]:
            with refused(Unsupported, HERE, *said):
                export(loss=loss)
        assert "aten.cos" in trainc.torch.report(mlp(), (x, y), lambda m, x, y: torch.func.jvp(lambda z: m(z).sin(), (x,), (x,))[1].mean())
    assert not printed.getvalue(), printed.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that scripts are deprecated
        scripted = torch.jit.script(nn.Linear(6, 3))
    for m, name in (scripted, "the model"), (nn.Sequential(nn.Linear(6, 6), scripted), "1"):
        with refused(Unsupported, f"{name} is a torch.jit.ScriptModule"):
            export(m)
    export(loss=lambda m, x, y: -torch.distributions.Normal(m(x), 1.0).log_prob(x[:, :3]).mean())

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(6, 3, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0].mean()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainc.torch.export(Recurrent(), (torch.randn(2, 4, 6),))


def questions():
    """All questions about values are listed, with the operations of one of the graphs that the program has."""
    def loss(m, x, y):
        h = m(x)
        if h.sum() > 0:
            h = h * 2
        for _ in range(int(h.abs().max())):
            h = torch.linalg.matrix_exp(h[:3])
        if h.mean().item() > 3 or torch.equal(h, h + 1):
            h = h - 1
        return h.sum() * float(h.max())

    asked = "if h.sum() > 0", "range(int(h.abs().max()))", "if h.mean().item() > 3", "float(h.max())"
    with refused(Unsupported, "of Sequential cannot be translated", "depends on the values of tensors", HERE, "aten.linalg_matrix_exp", *asked):
        export(loss=loss)
    report = trainc.torch.report(mlp(), (x, y), loss)
    for line in (*asked, "matrix_exp("):
        assert sum("NOT TRANSLATED" in said and line in said for said in report.splitlines()) == 1, report
    assert "aten.linear.default                      %" in report and "aten.tanh.default" in report

    def stopped(m, x, y):
        if x.sum() > 0 and y.sum() > 0:
            x = x.numpy()
        return m(x).sum()

    with refused(Unsupported, "torch.export cannot capture", "if x.sum() > 0", "y.sum() > 0", "x.numpy()"):  # what is behind has no graph
        export(loss=stopped)


def operations():
    """What has no rule, and what fails on the way, in PyTorch on known tensors, too."""
    def unpooled(m, x, y):
        return F.max_unpool2d(torch.ones(1, 1, 1, 2), torch.tensor([[[[0, 99]]]]), 2).mean() * ce(m, x, y)

    for loss, *said in [(lambda m, x, y: torch.linalg.matrix_exp(m(x)[:3]).sum(), "aten.linalg_matrix_exp", "no rule"), (unpooled, "aten.max_unpool2d", "RuntimeError: Found an invalid max index: 99"),
                        (lambda m, x, y: F.rrelu(m(x), training=True).mean(), "aten.rrelu", "rrelu in training")]:
        with refused(Unsupported, "1 operation of Sequential", HERE, *said):
            export(loss=loss)
    export(loss=lambda m, x, y: ce(m, x, y) + (m(x)[:3] @ torch.linalg.inv(2 * torch.eye(3))).mean())


def alternatives():
    """An operation without a rule has what is nearest, which is translated."""
    for loss, *said in [(lambda m, x, y: torch.fft.rfft(m(x)).abs().sum(), "aten._fft_r2c", "cosines"),
                        (lambda m, x, y: torch.complex(m(x), m(x)).abs().sum(), "aten.complex", "two tensors"),
                        (lambda m, x, y: torch.linalg.eigh(m(x).T @ m(x))[0].sum(), "aten._linalg_eigh", "outside of the step"),
                        (lambda m, x, y: torch.linalg.svdvals(m(x)).sum(), "aten._linalg_svd", "spectral_norm"),
                        (lambda m, x, y: torch.linalg.qr(m(x))[1].sum(), "aten.linalg_qr", "torch.linalg.cholesky(x.mT @ x).mT"),
                        (lambda m, x, y: torch.quantize_per_tensor(m(x).float(), 0.1, 0, torch.qint8).dequantize().sum(),
                         "quantize_per_tensor", "round()"),
                        (lambda m, x, y: F.embedding(y, m[0].weight, max_norm=1.0).sum(), "embedding_renorm", "leave max_norm out"),
                        (lambda m, x, y: torch.histogram(m(x), 4)[0].sum(), "aten.histogram", "bucketize"),
                        (lambda m, x, y: m(x).unique().sum(), "aten._unique2", "one_hot(x, n).amax(0)")]:
        with refused(Unsupported, HERE, "no rule", *said):
            export(loss=loss)

    def nearest(m, x, y):
        h, n, w = m(x), torch.arange(3.0), m[0].weight
        angles = 2 * torch.pi / 3 * n[:, None] * n
        r = torch.linalg.cholesky(h.mT @ h).mT
        rows = F.embedding(y, w * (1.0 / w.norm(dim=1, keepdim=True).clamp(min=1.0)))
        counts = F.one_hot(torch.bucketize(h.detach(), torch.tensor([0.0, 1.0])), 3)
        return ((h @ angles.cos()).square() + (h @ angles.sin()).square()).sum() + r.sum() + (h @ torch.linalg.inv(r)).square().mean() + (
            rows.sum() + (h + (0.1 * (h / 0.1).round().clamp(-8, 7) - h).detach()).square().mean() + (counts.sum(0) * counts.amax(0)).sum())

    agree(mlp(), (x, y), nearest, bar=1e-7, parameters=1e-5)


def batches():
    """What is no tensor on the CPU, and modules that are quantized."""
    for given, *said in [(x.to("meta"), "on device meta", "on the CPU"), (x.numpy(), "numpy.ndarray", "torch.from_numpy(x)"),
                         (x.numpy()[0, 0], "numpy.float64", "torch.tensor(x)"), (x.to_sparse(), "torch.sparse_coo", "x.to_dense()"),
                         (torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), "quantized", "dequantized"),
                         (torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged), "nested", "padded")]:
        with refused(Unsupported, "x of the example batch is", *said):
            export(batch=(given, y))
        with refused(Unsupported, "b_0 of the example batch is", *said[:1]):
            export(batch=([given, y],), loss=lambda m, b: ce(m, *b))
    m = nn.Sequential(torch.ao.quantization.quantize_dynamic(mlp().float(), {nn.Linear}), nn.Linear(3, 3).float())
    with refused(Unsupported, "0.0 is quantized, a Linear", "frozen='int8'"):
        export(m, batch=(x.float(), y))


def arguments():
    plateau, other = torch.optim.lr_scheduler.ReduceLROnPlateau, torch.optim.SGD(mlp().parameters(), 0.7)
    m = mlp()
    o = torch.optim.SGD(m.parameters(), 0.1)
    infinite = torch.optim.SGD(m.parameters(), float("inf"))
    for options, *said in [
            (dict(batch=x, loss=lambda m, x: m(x).mean()), "the example batch is a Tensor", "(x,)"),
            (dict(loss=None), "without loss=, Sequential.forward takes (input)", "a batch of 2", "loss= is a function"),
            (dict(loss=lambda m, x: m(x).mean()), "the function takes (m, x), got a batch of 2"),
            (dict(batch={"x": x, "labels": y}), "the function takes (m, x, y), got a batch of x, labels"),
            (dict(clip_grad_norm=0.0), "clip_grad_norm is 0.0: expected a number above 0"), (dict(clip_grad_value=-1), "clip_grad_value is -1"),
            (dict(accumulate=0), "accumulate is 0"), (dict(evals={"step": lambda m, x, y: m(x)}), "an eval is called step"),
            (dict(precision="bf16"), "0.weight, which is float64"), (dict(m=nn.LazyLinear(3)), "weight has no shape yet"),
            (dict(optimizer=infinite), "param_groups[0] has lr = inf"),
            (dict(scheduler=plateau(o)), "scheduler ReduceLROnPlateau", 'step.set("optimizer.lr", scheduler.get_last_lr()[0])'),
            (dict(scheduler=torch.optim.lr_scheduler.StepLR(other, 1)), "of another SGD")]:
        with refused(Unsupported, *said):
            export(**{"m": m, "optimizer": o, **options})
    with refused(Unsupported, "no parameter of the model requires a gradient"):
        trainc.torch.export(mlp().requires_grad_(False), (x, y), ce)
    with export(clip_grad_norm=float("inf")).step(threads=1) as step:
        result = step(x, y)
        assert result.clip_factor == 1 and result.grad_norm > 0


def not_a_number():
    """NaN counts where the step reads it."""
    def buffered(persistent):
        m = mlp()
        m.register_buffer("cache", torch.full((3,), torch.nan), persistent)
        return m

    for persistent in True, False:
        export(buffered(persistent))
        with refused(Unsupported, "cache holds NaN"):
            export(buffered(persistent), loss=lambda m, x, y: ce(m, x, y) + m.cache.sum())
    m = mlp()
    m[0].weight.data[0, 1] = torch.nan
    with refused(Unsupported, "0.weight holds NaN"):
        export(m)
    export(m, loss=lambda m, x, y: m[2].weight.square().mean())
    m[0].weight.requires_grad_(False)
    with refused(Unsupported, "0.weight holds NaN"):
        export(m, frozen="int8")


def versions():
    """A PyTorch that is older or newer than those of the tests: a warning, with the range."""
    for version, is_tested in ("2.12.1+cpu", False), (torch.__version__, True), ("2.16.0", False), ("3.0.0a0+git1", False):
        with mock.patch.object(torch, "__version__", version), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            export()
        wanted = f"torch {version}: the export is tested with torch 2.13 to 2.15"
        assert is_tested == (wanted not in [str(w.message) for w in said]), (version, said)


for test in (functions, caught, batched, hooks, changed_in_place, shared_memory, returned, captured, questions, operations,
             alternatives, batches, arguments, not_a_number, versions):
    if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
        continue
    test()
    print(f"{test.__name__}: ok", flush=True)
