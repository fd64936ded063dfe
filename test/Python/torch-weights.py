# REQUIRES: torch
# RUN: %venv_torch %s
"""Weights between a model, an export, its files and its steps: what is read is whole and of the export, and what does not fit is refused."""
import copy
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(6)
x, y = torch.randn(4, 6), torch.tensor([0, 2, 1, 1])


def loss(m, x, y):
    return F.cross_entropy(m(x), y)


def adapted():
    """A model whose first layer is frozen."""
    m = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    m[0].requires_grad_(False)
    return m


def export(m, rate=0.1, **options):
    return trainc.torch.export(m, (x, y), loss, torch.optim.SGD([p for p in m.parameters() if p.requires_grad], rate), **options)


def artifact_anew(folder):
    """An artifact takes the place of one that is open, as in a notebook: each step has its own."""
    m, output = adapted(), os.path.join(folder, "step.so")
    one = export(m, 0.5).step(output, threads=1)
    other = export(m, 0.25).step(output, threads=1)
    assert (one.get("lr"), other.get("lr")) == (0.5, 0.25) and output in repr(other)
    assert sorted(os.listdir(folder)) == ["step.h", "step.so"]
    with trainc.load(output, threads=1) as again:
        assert again.get("lr") == 0.25
    one(x, y)
    one.close()
    other.close()
    # One that was compiled of another export: its numbers are this one's; other entries are refused.
    with export(m, 0.5).load(output, threads=1) as step:
        assert step.get("lr") == 0.5
    with refused(trainc.MismatchError, "was compiled of another export: expected step(", "[3, 6]", "got step(", f"{list(x.shape)}"):
        trainc.torch.export(m, (x[:3], y[:3]), loss).load(output, threads=1)
    with refused(trainc.MismatchError, "of another export: expected ", "y(x: [", ", got step("):
        export(m, evals={"y": lambda m, x, y: m(x)}).load(output, threads=1)


def loaded_with():
    """Options of trainc.load reach it from Exported.step."""
    def pinned():
        return sum(len(os.sched_getaffinity(int(thread))) == 1 for thread in os.listdir("/proc/self/task"))

    before = pinned()
    with export(adapted()).step(threads=2, pin_threads=True, timeout=5.0, deadline=5.0, memory_limit="1G", device=torch.device("cpu")) as step:
        assert pinned() > before or len(os.sched_getaffinity(0)) == 1
        step(x, y)
    with refused(trainc.InvalidArgumentError, "expected a timeout of 0 or more seconds, got -1"):
        export(adapted()).step(threads=1, timeout=-1.0)


def merged():
    """A module that merges weights in eval() is not called: the step trains what they are, and the eval has what they become."""
    class Merging(nn.Linear):
        def __init__(self):
            super().__init__(6, 3)
            self.down, self.up, self.merged = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.randn(3, 2)), False
            self.weight.requires_grad_(False)

        def train(self, mode=True):
            if self.merged == mode:
                self.weight.data += (self.up @ self.down).detach() * (-1 if mode else 1)
                self.merged = not mode
            return super().train(mode)

        def forward(self, x):
            return F.linear(x, self.weight if self.merged else self.weight + self.up @ self.down, self.bias)

    m = nn.Sequential(Merging(), nn.Dropout(0.5))
    kept = m[0].weight.clone()
    exported = export(m, evals={"y": lambda m, x, y: m(x)})
    assert torch.equal(m[0].weight, kept) and not m[0].merged and all(each.training for each in m.modules())
    with exported.step(threads=1) as step:
        for _ in range(2):
            state = step.state_dict(as_torch=True)
            torch.testing.assert_close(step.eval("y", x, y)["y"], F.linear(x, state["0.weight"] + state["0.up"] @ state["0.down"], state["0.bias"]))
            step(x, y)


def changed():
    """By `.data`, which counts no version, too; what is as it was is taken."""
    m = adapted()
    exported, kept = export(m), m[0].weight.clone()
    m[0].weight.data.mul_(3)
    with refused(trainc.InvalidArgumentError, "frozen parameters have changed since the export", "0.weight"):
        exported.step(threads=1)
    m[0].weight.data.copy_(kept)
    exported.step(threads=1).close()


def files(folder):
    """Weights that are mapped from the file that they are written to; and files stay as they are if there is an error."""
    text, weights, m = os.path.join(folder, "m.mlir"), os.path.join(folder, "m.safetensors"), adapted()
    wanted = {name: value.clone() for name, value in m.state_dict().items()}
    export(m).save(text, weights)
    with open(weights, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
    mapped = torch.from_file(weights, size=os.path.getsize(weights), dtype=torch.uint8, shared=True)[8 + size:].view(torch.float32)
    assert torch.equal(mapped[:48], wanted["0.weight"].flatten())
    m[0].weight.data = mapped[:48].view(8, 6)
    exported = export(m)
    exported.save(text, weights)
    library = trainc.compile(text, os.path.join(folder, "m.so"))
    with trainc.load(library, weights=weights, threads=1) as step:
        assert all(torch.equal(value, wanted[name]) for name, value in step.state_dict(as_torch=True).items())
    before = sorted(os.listdir(folder)), open(text).read(), os.path.getmtime(weights)
    m[0].bias.data += 1
    with refused(trainc.InvalidArgumentError, "0.bias"):
        exported.save(text, weights)
    with refused(trainc.NotFoundError, "there is no folder"):
        exported.save(text, os.path.join(folder, "nowhere", "m.safetensors"))
    assert before == (sorted(os.listdir(folder)), open(text).read(), os.path.getmtime(weights))
    m[0].bias.data.copy_(wanted["0.bias"])
    exported.save(os.devnull, os.devnull)
    assert not os.path.isfile(os.devnull)


def eight_bits():
    """A state dict of the model has the weights that the step has in 8 bits."""
    for dtype, precision in ((torch.float32, None), (torch.float32, "bf16"), (torch.bfloat16, None)):
        m = adapted().to(dtype)
        with trainc.torch.export(m, (x.to(dtype), y), loss, torch.optim.SGD(m[2].parameters(), 0.1), frozen="int8",
                                 precision=precision).step(threads=1) as step:
            assert step.load_state_dict(m.state_dict()) == ([], [])
            step.load_state_dict(step.state_dict(as_torch=True))
            for wrong in (m[0].weight.detach() * 1.1, m[0].weight.detach()[:4], torch.zeros(8, 6), "text"):
                with refused(trainc.MismatchError, "0.weight: expected the value at the export, which the step has in 8 bits"):
                    step.load_state_dict({**m.state_dict(), "0.weight": wrong})


def reports():
    """What a step trains, by what and in which types, and what it does not."""
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.first, self.second, self.unused = (nn.Linear(8, n) for n in (8, 8, 3, 1))
            self.base.requires_grad_(False)
            self.first.bias.requires_grad_(False)

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(lambda x: self.first(x).tanh(), self.base(x), use_reentrant=False)
            return self.second(x).square().mean()

    m = Adapted()
    optimizers = torch.optim.NAdam([m.first.weight], 0.1), torch.optim.SGD([*m.second.parameters(), *m.unused.parameters()], 0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizers[1], 0.5)
    exported = trainc.torch.export(m, (torch.randn(4, 8),), optimizer=list(optimizers), scheduler=[None, scheduler], frozen="int8", precision="bf16")
    with exported.step(threads=1) as step:
        step.set("group0.lr", 0.3)
        step(torch.randn(4, 8))
        report = step.report()
        for text in ("trained by group0 (NAdam): 1 parameter of 64 elements in float32, computed with in bfloat16, states ", " in float32; lr = 0.3",
                     "trained by group1 (SGD): 2 parameters of 27 elements in float32, computed with in bfloat16, states ", "; lr = 0.1",
                     "frozen: 2 parameters of 16 elements in bfloat16\n", "not trained: 2 buffers of 72 elements in float32 and int8\n",
                     "stored in int8, with a scale per row: 1 frozen weight\n", "computed again in the backward pass\n",
                     "in no step, as the loss does not read it: unused.weight\n"):
            assert text in report, (text, report)


def rounded(w):
    scale = w.abs().amax(1, keepdim=True) / 127
    return (w / scale).round() * scale


def in_int8():
    """Frozen weights of products are stored in 8 bits in whatever way the model multiplies with them, also cast by autocast; what is not
    is said, and that nothing is."""
    class Conv1D(nn.Module):  # as that of transformers
        def __init__(self, bias):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(6, 8), requires_grad=False), nn.Parameter(torch.zeros(8)) if bias else None

        def forward(self, x):
            return torch.addmm(self.bias, x, self.weight) if self.bias is not None else x @ self.weight

    def within(m, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(m, x, y)

    torch.manual_seed(8)
    conv1d, product = (nn.Sequential(Conv1D(bias), nn.Tanh(), nn.Linear(8, 3)) for bias in (True, False))
    for m, function, precision in ((adapted(), loss, "autocast"), (adapted(), within, None), (conv1d, loss, None), (conv1d, loss, "autocast"),
                                   (product, loss, None)):
        wide = copy.deepcopy(m)
        wide[0].weight.data = rounded(m[0].weight.data)
        one, other = (trainc.torch.export(each, (x, y), function, torch.optim.SGD([p for p in each.parameters() if p.requires_grad], 0.1),
                                          precision=precision, frozen=frozen) for each, frozen in ((m, "int8"), (wide, None)))
        assert one.int8 == ["0.weight"] and "train.recompute" in one.text and not one.wider, one.text
        with one.step(threads=1) as one, other.step(threads=1) as other:
            for _ in range(3):
                a, b = one(x, y), other(x, y)
                assert abs(a.loss - b.loss) <= 1e-6 * b.loss and abs(a.grad_norm - b.grad_norm) <= 1e-5 * b.grad_norm, (function, precision, a, b)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv, self.kept, self.base, self.head = (nn.Embedding(6, 4), nn.Conv1d(4, 4, 1), nn.Linear(4, 4), nn.Linear(4, 6),
                                                                      nn.Linear(4, 6))
            self.head.weight = self.table.weight
            for m in (self.table, self.conv, self.base):
                m.requires_grad_(False)

        def forward(self, ids):
            x = self.kept(self.conv(self.table(ids).mT).mT)
            return (self.head(x) + self.base(x)).logsumexp(-1).mean()

    m, ids = Mixed(), torch.tensor([[1, 2, 5]])
    exported = trainc.torch.export(m, (ids,), optimizer=torch.optim.SGD([m.head.bias], 0.1), frozen="int8")
    assert exported.int8 == ["base.weight"] and "(1 in int8, 3 weights are not)" in repr(exported), repr(exported)
    assert exported.wider == {"table.weight": "aten.embedding.default reads it", "conv.weight": "aten.conv1d.default reads it",
                              "kept.weight": "it requires a gradient"}, exported.wider
    said = exported.report()
    assert "stored in int8: base.weight" in said and "not stored in int8, aten.embedding.default reads it: table.weight" in said, said
    m.base.requires_grad_(True)
    with refused(trainc.UnsupportedError, "frozen='int8' stores nothing in 8 bits", "got conv.weight: aten.conv1d.default reads it; table.weight: "):
        trainc.torch.export(m, (ids,), frozen="int8")
    with refused(trainc.UnsupportedError, "with requires_grad=False, got no weight without"):
        export(conv1d.requires_grad_(True), frozen="int8")


def in_bf16():
    """Frozen weights that a step in bf16 reads in bf16 only are stored in bf16 alone, with the results that they have in f32."""
    torch.manual_seed(9)
    images = torch.randn(4, 1, 4, 4)
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    m[:4].requires_grad_(False)
    narrow = {"0.weight", "0.bias", "2.weight", "2.bias"}
    for precision in "bf16", "autocast":
        steps = []
        for evals in {}, {"weights": lambda m, x, y: {name: p + 0 for name, p in m.named_parameters()}}:
            exported = trainc.torch.export(m, (images, y), loss, torch.optim.SGD(m[4].parameters(), 0.1), precision=precision, evals=evals)
            stored = {name for name, value in exported.weights.items() if value.dtype == torch.bfloat16}
            assert stored == (set() if evals else narrow), (precision, evals, stored)
            steps.append(exported.step(threads=1))
        one, other = steps
        compute = [{name for role, name, _ in step._trainer.tensors if role == "compute"} for step in steps]
        assert compute[0] == {"4.weight", "4.bias"} and narrow < compute[1], compute
        for _ in range(3):
            a, b = one(images, y), other(images, y)
            assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm), (precision, a, b)
        state, wide = one.state_dict(as_torch=True), other.state_dict(as_torch=True)
        for name, value in state.items():
            assert torch.equal(value, wide[name].bfloat16() if name in narrow else wide[name]), (precision, name)
        assert one.load_state_dict(m.state_dict()) == ([], [])
        for step in steps:
            step.close()
    assert all(value.dtype == torch.float32 for value in export(adapted()).weights.values())


def two_uses():
    """A weight that one entry multiplies with and another one looks up is stored once."""
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.other = nn.Linear(6, 3, bias=False).requires_grad_(False), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(x) + self.other(x)

    m = Tied()
    m.twin = nn.Linear(6, 3, bias=False).requires_grad_(False)
    evals = {"rows": lambda m, x, y: F.embedding(y, m.head.weight)}
    exported = trainc.torch.export(m, (x, y), lambda m, x, y: F.cross_entropy(m(x) + m.twin(x), y), evals=evals, frozen="int8")
    assert exported.int8 == ["twin.weight"] and {"head.weight", "twin.weight.int8"} < exported.weights.keys(), exported.weights.keys()
    assert "head.weight.int8" not in exported.weights


def ties():
    """Two names of one tensor with values that cannot be compared."""
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
            self.b.weight = self.a.weight
            self.register_buffer("order", torch.arange(6))

        def forward(self, x):
            return self.b(self.a(x))[:, self.order]

    m = Tied()
    with export(m).step(threads=1) as step:
        state = m.state_dict()
        for values in (state, {name: value.numpy() for name, value in state.items()}):
            for wrong in (torch.zeros(5, 5), torch.zeros(5, 5).numpy(), torch.zeros(6, 6).numpy(), "text"):
                with refused(trainc.MismatchError, "b.weight and a.weight are one tensor, but have two values"):
                    step.load_state_dict({**values, "b.weight": wrong})
            for wrong in (torch.arange(6.0) + 0.5, torch.arange(5), "text"):
                with refused(trainc.MismatchError, "order: expected the value at the export, which is compiled in"):
                    step.load_state_dict({**values, "order": wrong})
            step.load_state_dict(values)
        lost = {name: torch.full_like(value, torch.nan) if value.is_floating_point() else value for name, value in state.items()}
        for other in lost["b.weight"].clone(), lost["b.weight"].numpy().copy():
            with refused(trainc.MismatchError, "the step:", "  a.weight: holds NaN, expected numbers"):
                step.load_state_dict({**lost, "b.weight": other})
            with refused(trainc.MismatchError, "b.weight and a.weight are one tensor, but have two values"):
                step.load_state_dict({**state, "b.weight": other})


def named_as_constants():
    """A parameter of the name that a large constant would have."""
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.constant, self.table = nn.ParameterList([torch.randn(40, 40)]), torch.randn(40, 40, dtype=torch.float64) / 40

        def forward(self, x):
            return (x @ self.table @ self.constant[0]).square().mean()

    agree(Named().double(), (torch.randn(3, 40).double(),))


for test in (artifact_anew, loaded_with, merged, changed, files, eight_bits, in_int8, in_bf16, two_uses, reports, ties, named_as_constants):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        if test.__code__.co_argcount:
            with tempfile.TemporaryDirectory() as own:
                test(own)
        else:
            test()
        print(f"{test.__name__}: ok", flush=True)
