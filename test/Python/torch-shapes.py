# REQUIRES: torch
# RUN: %venv_torch %s
"""One step per shape: length buckets and a short last batch, against PyTorch, within windows, too; and what fits no step."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)


class Tagger(nn.Module):
    def __init__(self, words=11):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(words, 8), nn.LayerNorm(8)
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 5)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids):
        self.seen += ids.shape[1]
        x = self.norm(self.embedding(ids))
        q, k, v = self.qkv(x).view(*ids.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return self.head(x)


def loss(model, ids, tags):
    return F.cross_entropy(model(ids).flatten(0, 1), tags.flatten()), {"length": torch.tensor(ids.shape[1])}


def batch(n, length):
    return torch.randint(0, 11, (n, length)), torch.randint(0, 5, (n, length))


batches = [batch(4, 16), batch(4, 8), batch(4, 12), batch(4, 4), batch(4, 8), batch(4, 16), batch(3, 12)]
shapes = [batches[1], batches[2], batches[3], batches[6]]
agree(Tagger(), batches, lambda *a: loss(*a)[0], updates=14, shapes=shapes)

# Windows of several shapes.
model = Tagger()
exported = trainc.torch.export(model, batches[0], loss, torch.optim.SGD(model.parameters(), 0.5), shapes=shapes, accumulate=3)
one = trainc.torch.export(model, batches[0], loss, torch.optim.SGD(model.parameters(), 0.5), accumulate=3)
optimizer = torch.optim.SGD(model.parameters(), 0.5)
with exported.step(threads=2) as step, one.step(threads=2) as alone:
    for i in range(9):
        value = loss(model, *batches[i % 7])[0]
        (value / 3).backward()
        ids, tags = batches[i % 7]
        result = step(ids, tags=tags) if i % 2 else step(ids, tags)
        assert abs(result.loss - value.item()) < 1e-12 and result.closed == (i % 3 == 2)
        assert result.outputs["length"] == batches[i % 7][0].shape[1]
        if result.closed:
            optimizer.step()
            optimizer.zero_grad()
    for name, want in model.state_dict().items():
        torch.testing.assert_close(step.state_dict(as_torch=True)[name], want, rtol=1e-9, atol=1e-12)

    for wrong in (batch(5, 16), batches[0][:1], ([1, 2], [3])):
        try:
            step(*wrong)
            raise AssertionError(f"{wrong} was taken")
        except trainc.InvalidArgumentError as e:
            assert "no step takes inputs of shapes" in str(e) and "int64[4, 12]" in str(e) and "export with shapes=" in str(e), str(e)
    # A call that is refused leaves the outputs of the one before.
    result = step(*batches[0])
    for wrong in (batch(5, 16), (batches[1][0], batches[1][1].int())):
        try:
            step(*wrong)
            raise AssertionError("it was taken")
        except trainc.InvalidArgumentError:
            pass
    assert result.outputs["length"] == 16


# The memory is that of the largest shape.
large = Tagger(50_000)
exported = trainc.torch.export(large, batches[0], loss, torch.optim.SGD(large.parameters(), 0.5), shapes=shapes)
one = trainc.torch.export(large, batches[0], loss, torch.optim.SGD(large.parameters(), 0.5))
with exported.step(threads=2) as step, one.step(threads=2) as alone:
    for given in batches:
        step(*given)
        alone(*batches[0])
    took = [s._trainer.memory().total for s in (step, alone)]
    assert took[0] <= 1.02 * took[1], took


class Grows(nn.Module):
    """Long inputs go through another layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.first(x)
        return (self.second(x) if len(x) > 4 else x).square().mean()


for some in ([torch.randn(n, 3) for n in (4, 8)], [torch.randn(n, 3) for n in (8, 4)]):
    try:
        trainc.torch.export(Grows(), some[:1], shapes=[some[1:]])
        raise AssertionError("shapes that train other parameters are not refused")
    except trainc.UnsupportedError as e:
        assert ("second.bias, second.weight would be trained with x: tensor<8x3xf64> but not with x: tensor<4x3xf64>: expected the same "
                "parameters") in str(e), e
print("shapes: ok")
