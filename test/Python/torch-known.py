# REQUIRES: torch
# RUN: %venv_torch %s
"""What a forward computes of constants: its questions have answers, as grids of images that a loss closes over have."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402
from transformers import LlamaConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration  # noqa: E402
from transformers.masking_utils import create_causal_mask  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
GRID, CHOSEN = torch.tensor([[1, 2], [2, 1]]), torch.tensor([True, False, True, True, False, False])
x, tokens = torch.randn(6, 4), torch.randint(0, 9, (2, 6))


def questions(m, x):
    y, total = m(x), 0
    for a, b in GRID.tolist():
        total = total + a * y[b].sum()
    for part in y.split(torch.tensor([2, 4]).tolist()):
        total = total + part.square().mean()
    for i, row in zip(GRID[0], GRID):
        total = total + (y[i] * row.sum()).sum() * int(row[0]) + y[: row.max(), row[0]:].sum()
    other = (GRID > 1) & (x.sum() < 100)  # is not known, but GRID still is
    return other.sum() * total * (2 if GRID.prod(1).sum() > 3 else 1) + float(GRID.max()) + (3 in GRID) + 2 * (2 in GRID) + 4 * torch.equal(GRID[0].flip(0), GRID[1]) + y.view(GRID.sum(), -1).square().mean()


def shapes(m, x):
    """By values."""
    y = m(x)
    return (y[CHOSEN].square().sum() + y[CHOSEN.nonzero()[:, 0]].sum() + y.repeat_interleave(torch.tensor([1, 2, 0, 1, 1, 3]), 0).square().sum()
            + torch.repeat_interleave(y, torch.tensor(2)).sum() + torch.repeat_interleave(GRID[:, 0], GRID[:, 1]).sum() * y.mean()
            + len(torch.unique(GRID)) * y.sum() + (torch.arange(GRID.max() * 2) * y).sum() + y[:, CHOSEN[:4]].sum())


def written(m, x):
    """In place, also through a view; what an input is written to is not known any more."""
    y, count, mask = m(x), torch.arange(4), torch.zeros(6, 6)
    count[1:][0] += GRID[0, 1]
    begins = [0, *GRID.cumsum(0)[-1].tolist()]
    mask[begins[0]:begins[1], begins[1]:] = 1
    unknown = torch.zeros(4)
    unknown[2:] = x[0, 2:]
    y[CHOSEN] = y[CHOSEN] * 2
    return (y * count).sum() + y[:count[1]].sum() + (mask * (y @ y.T)).sum() + (unknown.view(2, 2) * y[:2, :2]).sum()


class Prefixed(nn.Module):
    """Attention to what is before and to all of the first two."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.config = LlamaConfig(hidden_size=8, num_attention_heads=2, attn_implementation="sdpa")

    def forward(self, tokens):
        h = self.embed(tokens)
        first = tokens.cumsum(1) < 8
        mask = create_causal_mask(self.config, h, None, None, or_mask_function=lambda b, head, q, k: first[b, q] & first[b, k])
        heads = h.view(2, 6, 2, 4).transpose(1, 2)
        h = nn.functional.scaled_dot_product_attention(heads, heads, heads, mask)
        return nn.functional.cross_entropy(self.head(h.transpose(1, 2).reshape(2, 6, 8)).flatten(0, 1), tokens.flatten())


for loss in questions, shapes, written:
    agree(nn.Linear(4, 4), (x,), loss)
    print(f"{loss.__name__}: ok", flush=True)
agree(Prefixed(), (tokens,))
print("prefixed: ok", flush=True)


def qwen(sizes, image=90):
    """A model of images and text, with images of several sizes in a batch."""
    rope = dict(rope_type="default", mrope_section=[1, 1, 2], rope_theta=10000.0)
    text = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=100, pad_token_id=0,
                bos_token_id=1, eos_token_id=2, rope_scaling=rope, rope_parameters=rope)
    vision = dict(depth=2, hidden_size=32, out_hidden_size=32, intermediate_size=64, num_heads=4, patch_size=8, window_size=32, fullatt_block_indexes=[1])
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=image, video_token_id=91,
                                                                vision_start_token_id=92, vision_end_token_id=93))
    ids = torch.randint(5, 80, (len(sizes), 16))
    for row, (_, height, width) in zip(ids, sizes.tolist()):
        row[1:1 + height * width // 4] = image
    places = torch.arange(16).expand(3, len(sizes), 16).contiguous()
    batch = dict(input_ids=ids, labels=ids.clone(), position_ids=places, pixel_values=torch.randn(int(sizes.prod(1).sum()), 3 * 2 * 8 * 8))
    return model, batch, lambda m, *batch_of: m(**dict(zip(batch, batch_of)), image_grid_thw=sizes).loss


model, batch, loss = qwen(torch.tensor([[1, 4, 4], [1, 4, 8]]))
agree(model, tuple(batch.values()), loss, lambda parameters: torch.optim.SGD(parameters, 0.01), bar=1e-6, parameters=1e-6)  # float32 is inside
print("qwen: ok", flush=True)


def forgotten(m, x):
    known = torch.zeros(4)
    view = known[1:]
    view[0] = x[0, 0]
    return m(x).sum() * (1 if known.sum() > 0 else 2)


def listed(m, x):
    known = torch.zeros(2)
    torch._foreach_copy_([known], [x[0, :2].abs() + 5])
    return m(x).sum() * (2 if known.sum() > 1 else 1)


def beside_derivative(number):
    """Where what is drawn is no FakeTensor."""
    def loss(m, x):
        z = x.clone().requires_grad_()
        slope, = torch.autograd.grad(m(z).sum(), z, create_graph=True)
        return m(x).square().mean() * number() + slope.square().mean()

    return loss


def overwritten():
    known = torch.ones(4)
    known.copy_(torch.rand(4))
    return known[0].item()


REFUSED = {"forgotten": forgotten, "listed": listed,
           "gumbel": lambda m, x: m(x).sum() * (2 if F.gumbel_softmax(torch.zeros(4), hard=True)[0] > 0 else 1),
           "drawn in place": lambda m, x: m(x).sum() * (2 if torch.zeros(4).log_normal_()[0] < 1 else 1),
           "drawn beside a derivative": beside_derivative(lambda: torch.rand(1).item()),
           "a branch there": beside_derivative(lambda: 2 if torch.rand(()) < 0.5 else 1),
           "indices there": beside_derivative(lambda: torch.randperm(4).tolist()[0]), "overwritten there": beside_derivative(overwritten),
           "drawn": lambda m, x: m(x).sum() * torch.randint(0, 3, ()).item() + m(x)[torch.rand(6) > 0.5].sort(0)[0].sum(),
           "input": lambda m, x: m(x).sum() * len(x.sum().tolist())}
for name, function in REFUSED.items():
    with refused(trainc.UnsupportedError, "torch-known.py"):
        trainc.torch.export(nn.Linear(4, 4), (x,), function)
print(f"{len(REFUSED)} refused")
agree(nn.Linear(4, 4), (x,), beside_derivative(lambda: torch.arange(3.0).sum().item()))
