# REQUIRES: numpy, torch
# RUN: %venv_torch %s
"""A loss that is given per example: weights, and batches of fewer examples, against PyTorch; what mixes examples takes none."""
import copy
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import adamw, distance  # noqa: E402
from tiny import refused, trainc  # noqa: E402

torch.manual_seed(6)
torch.set_default_dtype(torch.float64)
SIZE = 4


def mlp(*layers):
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Tanh(), nn.Linear(8, 3))


def each(m, x, y):
    return F.cross_entropy(m(x), y, reduction="none")


def batch(n):
    return torch.randn(n, 6), torch.randint(0, 3, (n,))


def same(step, reference, bar=1e-9):
    for name, wanted in reference.state_dict().items():
        assert distance(step.state_dict(as_torch=True)[name], wanted) <= bar, name


def epochs():
    """The last batch of an epoch is short; each loss is the mean of its own examples, by tensors and by arrays."""
    model = mlp()
    reference = copy.deepcopy(model)
    exported = trainc.torch.export(model, batch(SIZE), each, adamw(model.parameters()), evals={"y": lambda m, x, y: m(x)})
    assert list(exported.inputs["step"]) == ["x", "y", "example_weights"] and not exported.examples["step"].mixed
    optimizer = adamw(reference.parameters())
    with exported.step(threads=1) as step:
        for n in (SIZE, SIZE, 3, SIZE, 1, 2):
            x, y = batch(n)
            loss = each(reference, x, y).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            result = step(x, y) if n != 3 else step(x=x.numpy(), y=y.numpy())
            assert abs(result.loss - loss.item()) < 1e-12 and result.weight == n, (n, result)
        same(step, reference)
        with refused(trainc.InvalidArgumentError, "expected float64 of shape (4, 6)", "(5, 6); smaller batches are padded; another", "with shapes="):
            step(*batch(5))
        with refused(trainc.InvalidArgumentError, "(3, 6); another shape needs an eval of its own", "evals={name: (function, batch)}"):
            step.eval("y", batch(3)[0])
        with refused(trainc.InvalidArgumentError, "expected (4,), got (3,); it may be left out; another shape needs an eval of its own"):
            step.eval("y", *batch(3))
        with refused(trainc.InvalidArgumentError, "shape (4, 6)", "(3, 6)"):
            step(batch(3)[0], batch(2)[1])


def refused_later():
    """A call that is refused leaves the outputs of the one before."""
    model = mlp()
    exported = trainc.torch.export(model, batch(SIZE), lambda m, x, y: (each(m, x, y), {"z": m(x)}), torch.optim.SGD(model.parameters(), 0.0))
    with exported.step(threads=1) as step:
        for n, other in ((3, 2), (1, SIZE)):
            (x, y), (wrong, classes) = batch(n), batch(other)
            result = step(x, y)
            with refused(trainc.InvalidArgumentError, "expected float64"):
                step(wrong.float(), classes)
            torch.testing.assert_close(result.outputs["z"], model(x).detach())


def weighted():
    """Weights of the user's; in a window the mean is that of all examples."""
    model = mlp(nn.LayerNorm(8))
    reference = copy.deepcopy(model)
    exported = trainc.torch.export(model, batch(SIZE), each, torch.optim.SGD(model.parameters(), 0.5), accumulate=2)
    optimizer = torch.optim.SGD(reference.parameters(), 0.5)
    with exported.step(threads=1) as step:
        for first, second in ((SIZE, 2), (1, 3)):
            parts = [batch(first), batch(second)]
            weights = [torch.rand(first), torch.rand(second)]
            total = sum((each(reference, *part) * w.float()).sum() for part, w in zip(parts, weights)) / sum(w.float().sum() for w in weights)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            step(*parts[0], example_weights=weights[0].float())
            result = step(*parts[1], example_weights=weights[1].float().numpy())
            assert result.closed and abs(result.window_loss - total.item()) < 1e-6, (result, total)
        same(step, reference, 1e-6)


def weights_of_each():
    """There are as many weights as examples."""
    model = mlp()
    with trainc.torch.export(model, batch(SIZE), each, torch.optim.SGD(model.parameters(), 0.0)).step(threads=1) as step:
        for n in SIZE, 3, 1:
            x, y = batch(n)
            for wrong, got in ((torch.ones(n + 1), f"shape ({n + 1},)"), (torch.ones(n, 1).numpy(), f"shape ({n}, 1)"), ([1.0] * n, "list")):
                with refused(trainc.InvalidArgumentError, f"example_weights of {n} examples: expected shape ({n},), got {got}"):
                    step(x, y, example_weights=wrong)
            assert step(x, y, example_weights=torch.full((n,), 2.0).float()).weight == 2 * n


def two_steps():
    """Two steps of one export take batches of other sizes."""
    model = mlp()
    exported = trainc.torch.export(model, batch(SIZE), lambda m, x, y: (each(m, x, y), {"z": m(x)}), torch.optim.SGD(model.parameters(), 0.0))
    with exported.step(threads=1) as first, exported.step(threads=1) as second:
        for n, other in ((3, 1), (1, SIZE)):
            one, another = first(*batch(n)), second(*batch(other))
            assert one.outputs["z"].shape == (n, 3) and another.outputs["z"].shape == (other, 3), (n, other)


def kinds():
    """Outputs are of NumPy where all that is given is; weights of the user's count, our own do not."""
    model = mlp()
    exported = trainc.torch.export(model, batch(SIZE), lambda m, x, y: (each(m, x, y), {"z": m(x)}), torch.optim.SGD(model.parameters(), 0.0))
    with exported.step(threads=1) as step:
        for n in SIZE, 3:
            x, y = batch(n)
            arrays, weights = (x.numpy(), y.numpy()), torch.ones(n).float()
            for given, named, kind in (((x, y), {}, torch.Tensor), (arrays, {}, np.ndarray), (arrays, {"example_weights": weights}, torch.Tensor),
                                       (arrays, {"example_weights": weights.numpy()}, np.ndarray)):
                z = step(*given, **named).outputs["z"]
                assert isinstance(z, kind) and z.shape == (n, 3), (n, type(z), kind)


def outputs():
    """Those that have the examples have as many as the batch; one that counts all of them mixes them."""
    def loss(m, x, y):
        z = m(x)
        return F.cross_entropy(z, y, reduction="none"), {"z": z, "turned": z.T, "right": z.argmax(1) == y, "classes": torch.tensor(3)}

    model = mlp()
    x, y = batch(SIZE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    exported = trainc.torch.export(model, (x, y), loss, optimizer)
    assert exported.examples["step"].outputs == {"z": 0, "turned": 1, "right": 0}
    with exported.step(threads=1) as step:
        for n in SIZE, 3:
            model.load_state_dict(step.state_dict(as_torch=True))
            _, wanted = loss(model, x[:n], y[:n])
            found = step(x[:n], y[:n]).outputs
            assert all(found[name].shape == value.shape and torch.allclose(found[name], value) for name, value in wanted.items()), (n, found)
    counted = trainc.torch.export(model, (x, y), lambda m, x, y: (each(m, x, y), {"right": (m(x).argmax(1) == y).sum()}), optimizer)
    with counted.step(threads=1) as step:
        assert step(x, y).outputs["right"] == (model(x).argmax(1) == y).sum()
        with refused(trainc.InvalidArgumentError, "none can be added", "needs a sum"):
            step(x[:3], y[:3])


def default_device():
    """What a step makes is in memory of the host, whatever device torch makes tensors on."""
    model = mlp()
    exported = trainc.torch.export(model, batch(SIZE), each, adamw(model.parameters()), evals={"y": lambda m, x, y: m(x)})
    x, y = batch(3)
    rows = batch(SIZE)
    wanted = each(model, x, y).mean().item(), model(rows[0]).detach()
    torch.set_default_device("meta")
    try:
        with exported.step(threads=1) as step:
            torch.testing.assert_close(step.eval("y", *rows)["y"], wanted[1])
            for given in ((x, y), (x.numpy(), y.numpy())):
                step.load_state_dict(model.state_dict())
                assert abs(step(*given).loss - wanted[0]) < 1e-12
            kept = [*step.state_dict(as_torch=True).values(), *step.torch_optimizer()["state"][0].values()]
            assert {x.device.type for x in kept} == {"cpu"}, kept
    finally:
        torch.set_default_device(None)


def lengths():
    """Of several steps the smallest that fits is filled up. A batch may be along another dimension."""
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)

        def forward(self, ids):  # [length, examples]
            x = self.table(ids).transpose(0, 1)
            x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
            return self.head(F.dropout(x, 0.0))

    def loss(m, ids):
        return F.cross_entropy(m(ids).transpose(1, 2), ids.T % 5, reduction="none").mean(1)

    def ids(length, n):
        return torch.randint(0, 11, (length, n)),

    model = Tagger()
    reference = copy.deepcopy(model)
    exported = trainc.torch.export(model, ids(6, SIZE), loss, adamw(model.parameters()), shapes=[ids(3, SIZE), ids(6, 2)], batch_dims={"ids": 1})
    assert not any(e.mixed for e in exported.examples.values()), exported.examples
    optimizer = adamw(reference.parameters())
    with exported.step(threads=1) as step:
        for length, n, used in ((6, 4, 0), (3, 3, 1), (6, 3, 0), (6, 1, 2), (3, 4, 1)):
            given = ids(length, n)
            value = loss(reference, *given).mean()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            result = step(*given)
            assert abs(result.loss - value.item()) < 1e-12 and step._entry is step._steps[used], (length, n)
        same(step, reference)


def mixed():
    """What reads other examples is no step for fewer, and says so."""
    def sorted_over(m, x, y):
        return (m(x) * m(x).sort(0).values.detach()).sum(1)

    def contrasted(m, x, y):
        z = m(x)
        return F.cross_entropy(z @ z.T, torch.arange(SIZE), reduction="none")

    cases = [(mlp(nn.BatchNorm1d(8)), each, "replaces 1.running_mean"), (mlp(nn.BatchNorm1d(8, track_running_stats=False)), each, "mixed"),
             (mlp(), lambda m, x, y: each(m, x - x.mean(0), y), "several"), (mlp(), contrasted, "mixed"), (mlp(), sorted_over, "mixed"),
             (mlp(), lambda m, x, y: each(m, x, y).cumsum(0), "mixed"), (mlp(), lambda m, x, y: each(m, x.flip(0), y), "mixed"),
             (mlp(), lambda m, x, y: each(m, x.reshape(6, SIZE).T, y), "mixed"),
             (mlp(), lambda m, x, y: torch.stack([each(m, x, y).sum()] * SIZE), "mixed"),
             (mlp(), lambda m, x, y: sum(p.square().sum() for p in m.parameters()) * torch.ones(SIZE) + 0 * x.detach()[0, 0], "mixed")]
    for model, loss, said in cases:
        with trainc.torch.export(model, batch(SIZE), loss, torch.optim.SGD(model.parameters(), 0.1)).step(threads=1) as step:
            x, y = batch(SIZE)
            expected = loss(copy.deepcopy(model), x, y).mean().item()
            assert abs(step(x, y).loss - expected) < 1e-12
            with refused(trainc.InvalidArgumentError, "got 3 examples, expected 4: none can be added", said, "export with shapes="):
                step(x[:3], y[:3])
    with trainc.torch.export(mlp(), batch(SIZE), lambda m, x, y: each(m, x, y).mean()).step(threads=1) as step:
        with refused(trainc.InvalidArgumentError, "expected float64 of shape (4, 6)", "(3, 6); another shape needs a step", "shapes=",
                     "a loss per example also takes smaller batches"):
            step(*batch(3))
        with refused(trainc.InvalidArgumentError, "expected int64 of shape (4,), got int32 of shape (4,)"):
            step(batch(SIZE)[0], batch(SIZE)[1].int())
    with refused(trainc.UnsupportedError, "one floating-point number, or one per example of the batch, got tensor<3xf64>"):
        trainc.torch.export(mlp(), batch(SIZE), lambda m, x, y: m(x).mean(0))
    with refused(trainc.UnsupportedError, "an input is called example_weights"):
        trainc.torch.export(mlp(), (*batch(SIZE), torch.ones(SIZE)), lambda m, x, y, example_weights: each(m, x, y) * example_weights)


for test in (epochs, refused_later, weighted, weights_of_each, two_steps, kinds, outputs, default_device, lengths, mixed):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        test()
        print(f"{test.__name__}: ok", flush=True)
