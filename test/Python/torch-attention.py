# REQUIRES: torch
# RUN: %venv_torch %s
"""What an export gets wrong easily of attention: which keys a query sees, and by what the step knows."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def attention(text):
    """The line of it."""
    return next(line for line in text.splitlines() if "nn.attention" in line)


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
    # Masks that are added, negations, and what is true of keys alone: a mask of [B, 1, 1, T].
    low, above = torch.finfo(torch.float64).min, torch.zeros(6, 6).masked_fill(~tril, -torch.inf)
    for visible, causal in ((lambda s: torch.where(s[:, None, :, None] == s[:, None, None, :], 0.0, -torch.inf), False),
                            (lambda s: (1 - (s[:, None, :, None] == s[:, None, None, :]).double()) * low, False),
                            (lambda s: torch.zeros(2, 1, 6, 6).masked_fill(s[:, None, :, None] != s[:, None, None, :], low) + above, True),
                            (lambda s: ~((s[:, None, :, None] != s[:, None, None, :]) | ~tril), True)):
        text = agree(Packed(visible), batches).text
        assert "segments(" in text and (" causal " in text) == causal and " mask " not in text, text
    for visible, words, kept in ((lambda s: (s[:, :, None] == s[:, None, :]).unsqueeze(1) & (s > 0)[:, None, None], "segments(", "2x1x1x6"),
                                 (lambda s: ((s[:, :, None] == s[:, None, :]) & (s > 0)[:, :, None])[:, None], "segments(", "2x1x6x1"),
                                 (lambda s: above + torch.zeros(2, 1, 1, 6).masked_fill((s < 1)[:, None, None], -torch.inf), " causal ", "2x1x1x6"),
                                 (lambda s: tril & ~tril.tril(-3) & (s > 0)[:, None, None].expand(2, 1, 6, 6), " window 3", "2x1x1x6")):
        text = agree(Packed(visible), batches).text
        assert words in text and f"tensor<{kept}xi1>" in attention(text), text
    # A large number does not hide the rows of padding: all keys have it there.
    text = agree(Packed(lambda s: torch.where((s[:, None, :, None] == s[:, None, None, :]) & (s > 0)[:, None, None], 0.0, -1e4)), batches).text
    assert "segments(" not in text, text
    # What is not of one row with itself stays a mask.
    assert " mask " in agree(Packed(lambda s: (s[:, None, :, None] == s.flip(0)[:, None, None, :]) | torch.eye(6).bool()), batches).text


def packed_positions():
    """transformers compares the positions of a row of several sequences, which rise by 1 within each: causal there, and with a window."""
    sizes = dict(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                 use_cache=False)
    llama, mistral = LlamaForCausalLM(LlamaConfig(**sizes)), MistralForCausalLM(MistralConfig(sliding_window=3, **sizes))
    def sgd(parameters):
        return torch.optim.SGD(parameters, 0.1)

    packed = torch.tensor([[*range(5), *range(3)], [*range(2), *range(6)]]), torch.tensor([[*range(8)], [*range(3), *range(5)]])
    for model, words in (llama, " causal "), (mistral, " window 3"):
        for rows in 2, 1:
            batches = [(torch.randint(0, 16, (2, 8)), positions[:rows]) for positions in packed]
            text = agree(model, batches, lambda m, ids, p: m(ids, position_ids=p, labels=ids).loss, sgd, bar=2e-6, parameters=1e-5).text
            assert "segments(" in text and words in text and " mask " not in text, attention(text)
    text = agree(mistral, (torch.randint(0, 16, (2, 8)), torch.tensor([[1] * 8, [1] * 5 + [0] * 3])),
                 lambda m, ids, mask: m(ids, attention_mask=mask, labels=ids).loss, sgd, bar=2e-6, parameters=1e-5).text
    assert " window 3" in text and "tensor<2x1x1x8xi1>" in attention(text), attention(text)

    class Positions(nn.Module):
        """Of sequences that another tensor numbers, or numbered by other jumps: not known to rise by 1."""

        def __init__(self, jump):
            super().__init__()
            self.fc, self.jump = nn.Linear(8, 8), jump

        def forward(self, x, p):
            q = self.fc(x).view(2, 8, 2, 4).transpose(1, 2)
            s = (p.diff(prepend=p[:, :1] - self.jump, dim=-1) != self.jump).cumsum(-1)
            mask = (s[:, None, :, None] == s[:, None, None]) & (p[:, None, None] <= p[:, None, :, None])
            return F.scaled_dot_product_attention(q, q, q, mask).square().mean()

    batch = torch.randn(2, 8, 8), packed[0]
    assert " causal " in attention(agree(Positions(1), batch).text)
    assert " mask " in attention(agree(Positions(-1), batch).text)


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


for trap in (causal_from_the_top_left, packed_sequences, packed_positions, whether_causal, hidden_rows, hidden_rows_in_bf16):
    if sys.argv[1:] and trap.__name__ not in sys.argv[1:]:
        continue
    trap()
    print(f"{trap.__name__}: ok", flush=True)
