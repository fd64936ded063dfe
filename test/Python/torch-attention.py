# REQUIRES: torch
# RUN: %venv_torch %s
"""What an export gets wrong easily of attention: which keys a query sees, and by what the step knows."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def causal_from_the_top_left():
    """is_causal of fewer queries than keys is PyTorch's, not the dialect's."""
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, y):
            q, k = self.q(x).view(2, 3, 2, 4).transpose(1, 2), self.kv(y).view(2, 5, 2, 4).transpose(1, 2)
            return F.scaled_dot_product_attention(q, k, k, is_causal=True).square().mean()

    agree(Cross(), (torch.randn(2, 3, 8), torch.randn(2, 5, 8)))


def packed_sequences():
    """Several sequences in a row: attention takes their numbers, and no mask of T x T."""
    class Packed(nn.Module):
        def __init__(self, visible):
            super().__init__()
            self.fc, self.visible = nn.Linear(8, 8), visible

        def forward(self, x, sequence):
            q = self.fc(x).view(2, 6, 2, 4).transpose(1, 2)
            return F.scaled_dot_product_attention(q, q, q, self.visible(sequence)).square().mean()

    def by_index(s):
        rows, positions = torch.arange(2)[:, None, None, None], torch.arange(6)
        return s[rows, positions[:, None]] == s[rows, positions]

    tril = torch.ones(6, 6, dtype=torch.bool).tril()
    batches = [(torch.randn(2, 6, 8), torch.tensor([[0, 0, 1, 1, 1, 2], [3, 3, 3, 3, 1, 1]])), (torch.randn(2, 6, 8), torch.arange(12).view(2, 6) // 4)]
    for visible, causal in ((lambda s: s[:, None, :, None] == s[:, None, None, :], False), (by_index, False),
                            (lambda s: (s.unsqueeze(1).unsqueeze(3) == s.unsqueeze(1).unsqueeze(2)) & tril, True),
                            (lambda s: tril & (s[:, None] == s[:, :, None]).unsqueeze(1), True)):
        text = agree(Packed(visible), batches).text
        assert "segments(" in text and (" causal " in text) == causal and " mask " not in text, text
    # So does what differs between heads: a mask of [2, T, T] is of two heads, not of two rows.
    for visible in (lambda s: s[:, :, None] == s[:, None, :], lambda s: (s[:, :, None] == s[:, None, :]).unsqueeze(0)):
        text = agree(Packed(visible), batches).text
        assert " mask " in text and "segments(" not in text, text
    # What is not of one row with itself stays a mask.
    assert " mask " in agree(Packed(lambda s: (s[:, None, :, None] == s.flip(0)[:, None, None, :]) | torch.eye(6).bool()), batches).text


def whether_causal():
    """nn.Transformer asks whether its mask is causal, which the export sees by itself."""
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

        def forward(self, x, y):
            return self.transformer(x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype)).square().mean()

    assert " causal " in agree(Causal(), (torch.randn(2, 6, 8), torch.randn(2, 5, 8)), parameters=1e-6).text


def hidden_rows():
    """Rows that see no key: zeros where the mask is False or -inf, the mean of the values where it is a large number."""
    class Hidden(nn.Module):
        def __init__(self, low):
            super().__init__()
            self.fc, self.low = nn.Linear(8, 8), low

        def forward(self, x):
            q = self.fc(x).view(2, 5, 2, 4).transpose(1, 2)
            mask = torch.ones(5, 5, dtype=torch.bool).tril()
            mask[2] = False
            return F.scaled_dot_product_attention(q, q, q, mask if self.low is None else torch.zeros(5, 5).masked_fill(~mask, self.low)).square().mean()

    for low in (None, -torch.inf, torch.finfo(torch.float64).min):
        agree(Hidden(low), (torch.randn(2, 5, 8),))


def hidden_rows_in_bf16():
    """The lowest number of f32 hides the whole row of a query of padding in bf16, too, and is not -inf there."""
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x, mask):
            scores = self.q(x) @ self.k(x).transpose(1, 2)
            scores = scores.masked_fill(mask[:, None] * mask[:, :, None] == 0, torch.finfo(scores.dtype).min)
            return torch.softmax(scores, -1) @ self.v(x)

    def loss(m, x, mask, y):
        return F.cross_entropy(m(x, mask).flatten(0, 1), y.flatten())

    model, mask, y = Padded().float(), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), torch.randint(0, 8, (2, 4))
    batch = torch.randn(2, 4, 8).float(), mask, y.masked_fill(mask == 0, -100)
    wanted = loss(model, *batch)
    wanted.backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    with trainc.torch.export(model, batch, loss=loss, optimizer=torch.optim.SGD(model.parameters(), 0.1), precision="bf16").step() as step:
        result = step(*batch)
        assert result.updated and abs(result.loss - wanted.item()) < 0.02 and abs(result.grad_norm / norm - 1) < 0.05, (result, wanted, norm)


for trap in (causal_from_the_top_left, packed_sequences, whether_causal, hidden_rows, hidden_rows_in_bf16):
    trap()
    print(f"{trap.__name__}: ok", flush=True)
