# REQUIRES: torch
# RUN: %venv_torch %s
"""Sequences of several lengths by nn.utils.rnn, through LSTMs, GRUs and RNNs: losses, norms and parameters as PyTorch's."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
STEPS, COUNT = 5, 4
LENGTHS = [torch.tensor([5, 3, 3, 1]), torch.tensor([5, 5, 2, 1])]
SHUFFLED = [torch.tensor([3, 1, 5, 3]), torch.tensor([2, 5, 1, 5])]


class Model(nn.Module):
    def __init__(self, layer, width, forward):
        super().__init__()
        self.layer, self.head, self.of = layer, nn.Linear(width, 6), forward

    def forward(self, x, y, lengths):
        return self.of(self, x, y, lengths)


def padded(m, x, y, lengths):
    """A label for each step; the outputs are padded again."""
    packed = rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
    out, count = rnn.pad_packed_sequence(m.layer(packed)[0], batch_first=True, padding_value=0.5)
    return F.cross_entropy(m.head(out).transpose(1, 2), y.masked_fill(torch.arange(STEPS) >= count[:, None], -100)) + out.sum() / 100


def of_data(m, x, y, lengths):
    """The loss of packed outputs and labels."""
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
    return F.cross_entropy(m.head(m.layer(packed)[0].data), rnn.pack_padded_sequence(y, lengths, batch_first=True).data)


def last(m, x, y, lengths):
    """The last states, of sequences in any order, from states that are given."""
    packed = rnn.pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
    states = x[:, :m.layer.num_layers * (1 + m.layer.bidirectional), :m.layer.hidden_size].transpose(0, 1).contiguous()
    out, end = m.layer(packed, (states, states.sin()) if isinstance(m.layer, nn.LSTM) else states)
    end = torch.cat(end) if isinstance(end, tuple) else end
    again, _ = rnn.pad_packed_sequence(out, total_length=STEPS + 2)
    return F.cross_entropy(m.head(end[-1]), y[:, 0]) + (again[-3:].sum() + end.square().sum()) / 10


CASES = {
    "LSTM, 2 layers, both directions": (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), 8, padded),
    "LSTM with projections": (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True, proj_size=2), 4, padded),
    "LSTM, packed loss": (nn.LSTM(3, 4), 4, of_data),
    "LSTM, last states": (nn.LSTM(3, 3, bidirectional=True), 3, last),
    "GRU": (nn.GRU(3, 4, 2, bidirectional=True), 8, padded),
    "GRU, last states": (nn.GRU(3, 3, 2), 3, last),
    "RNN": (nn.RNN(3, 4, bias=False), 4, of_data),
    "RNN of relu, last states": (nn.RNN(3, 3, nonlinearity="relu", bidirectional=True), 3, last),
}


def batches(lengths):
    return [(torch.randn(COUNT, STEPS, 3), torch.randint(0, 6, (COUNT, STEPS)), n) for n in lengths]


def trained():
    for name, (layer, width, forward) in CASES.items():
        agree(Model(layer, width, forward), batches(SHUFFLED if forward is last else LENGTHS))
        print(f"{name}: ok", flush=True)


def shorter():
    """A batch without a sequence of all steps gives NaN, as PyTorch's outputs have fewer steps then, unless their number is given."""
    def mean(m, x, lengths, total):
        return rnn.pad_packed_sequence(m(rnn.pack_padded_sequence(x, lengths))[0], total_length=total)[0].square().mean()

    x, layer, short = torch.randn(STEPS, COUNT, 3), nn.GRU(3, 4), torch.tensor([4, 3, 3, 1])
    exported = trainc.torch.export(layer, (x, LENGTHS[0]), lambda m, *given: mean(m, *given, None), torch.optim.SGD(layer.parameters(), 0.1), evals={
        "longest": lambda m, *given: mean(m, *given, None), "given": lambda m, *given: mean(m, *given, STEPS)})
    with exported.step() as step:
        for entry, lengths, total in (("longest", LENGTHS[0], None), ("given", LENGTHS[0], STEPS), ("given", short, STEPS)):
            torch.testing.assert_close(*step.eval(entry, x, lengths).values(), mean(layer, x, lengths, total).detach())
        assert all(value.isnan() for value in step.eval("longest", x, short).values())
        result = step(x, short)
        assert not result.finite and not result.updated


def unknown():
    """What depends on how many sequences have a step is refused."""
    x, layer = torch.randn(STEPS, COUNT, 3), nn.GRU(3, 4)
    for function, said in ((lambda sizes: sizes[1], "batch_sizes[1]"), (lambda sizes: sizes.float().mean(), "batch_sizes.float"),
                           (torch.sum, "sum of the batch sizes")):
        with refused(trainc.UnsupportedError, said, "of packed sequences, which depend on data", "torch-packed.py"):
            trainc.torch.export(layer, (x, LENGTHS[0]), lambda m, x, n: function(rnn.pack_padded_sequence(x, n).batch_sizes) * m(x)[0].sum(),
                                torch.optim.SGD(layer.parameters(), 0.1))


for case in (trained, shorter, unknown):
    case()
    print(f"{case.__name__}: ok", flush=True)
