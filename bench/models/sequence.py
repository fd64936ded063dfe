"""Hand-written models of sequences, as their users write them."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

from . import Draw, Example, model
from .losses import classification, language_model

VOCABULARY = 60


class Translator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.target = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(1, 20, width) * 0.02)
        self.transformer = nn.Transformer(width, 4, 2, 2, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        s = self.source(source) + self.position[:, : source.size(1)]
        t = self.target(target) + self.position[:, : target.size(1)]
        return self.out(self.transformer(s, t, tgt_mask=mask.to(s.dtype), src_key_padding_mask=source == 0))


@model("transformer-encdec", random="dropout, attention dropout")
def transformer_encdec(draw: Draw) -> Example:
    source, target = draw.integers(1, VOCABULARY, 2, 14), draw.integers(1, VOCABULARY, 2, 12)
    source[1, 10:] = 0
    target[1, 8:] = 0

    def loss(net, source, target):
        logits = net(source, target[:, :-1])
        return F.cross_entropy(
            logits.reshape(-1, VOCABULARY), target[:, 1:].reshape(-1), ignore_index=0, label_smoothing=0.1
        )

    return Example(Translator(), {"source": source, "target": target}, loss)


class EncoderClassifier(nn.Module):
    def __init__(self, width=32, classes=4):
        super().__init__()
        position = torch.arange(32).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(1, 32, width)
        table[0, :, 0::2] = torch.sin(position * frequency)
        table[0, :, 1::2] = torch.cos(position * frequency)
        self.register_buffer("table", table)
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.head(self.encoder(x + self.table[:, : tokens.size(1)]).mean(dim=1))


@model("transformer-encoder", random="dropout, attention dropout")
def transformer_encoder(draw: Draw) -> Example:
    return Example(EncoderClassifier(), (draw.integers(0, VOCABULARY, 4, 16), draw.integers(0, 4, 4)), classification)


class RecurrentLm(nn.Module):
    def __init__(self, cell, width=32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.cell = cell(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.out(self.cell(self.embedding(tokens))[0])


@model("lstm")
def lstm(draw: Draw) -> Example:
    return Example(RecurrentLm(nn.LSTM), (draw.integers(0, VOCABULARY, 4, 17),), language_model)


@model("gru")
def gru(draw: Draw) -> Example:
    return Example(RecurrentLm(nn.GRU), (draw.integers(0, VOCABULARY, 4, 17),), language_model)


class Tagger(nn.Module):
    def __init__(self, width=24, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, tags)

    def forward(self, tokens):
        outputs, (h, c) = self.lstm(self.embedding(tokens))
        return self.out(outputs)


@model("bilstm")
def bilstm(draw: Draw) -> Example:
    def loss(net, tokens, tags):
        return F.cross_entropy(net(tokens).transpose(1, 2), tags)

    return Example(Tagger(), (draw.integers(0, VOCABULARY, 4, 16), draw.integers(0, 6, 4, 16)), loss)


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs, dilation, dropout=0.2):
        super().__init__()
        self.padding = 2 * dilation
        self.conv1 = weight_norm(nn.Conv1d(inputs, outputs, 3, padding=self.padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(outputs, outputs, 3, padding=self.padding, dilation=dilation))
        self.shortcut = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None
        self.dropout = dropout

    def forward(self, x):
        out = F.relu(self.conv1(x)[:, :, : -self.padding])  # what is ahead in time is cut off
        out = F.dropout(out, self.dropout, training=self.training)
        out = F.relu(self.conv2(out)[..., : -self.padding])
        out = F.dropout(out, self.dropout, training=self.training)
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(TemporalBlock(i, 16, 2**k) for k, i in enumerate((2, 16, 16))))
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.blocks(x)[:, :, -1])


@model("tcn", random="F.dropout with a rate the blocks hold")
def tcn(draw: Draw) -> Example:
    return Example(Tcn(), (draw.normal(4, 2, 32), draw.normal(4, 1)), lambda net, x, y: F.mse_loss(net(x), y))


class EinsumAttention(nn.Module):
    def __init__(self, width=32, heads=4, classes=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Parameter(torch.randn(3, heads, width, width // heads) * width**-0.5)
        self.merge = nn.Parameter(torch.randn(heads, width // heads, width) * width**-0.5)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        q, k, v = torch.einsum("btc,shcd->sbhtd", self.norm(x), self.qkv)
        weights = torch.einsum("bhid,bhjd->bhij", q, k).mul(q.size(-1) ** -0.5).softmax(dim=-1)
        x = x + torch.einsum("bhij,bhjd,hdc->bic", weights, v, self.merge)
        return self.head(x.mean(1))


@model("einsum-attention")
def einsum_attention(draw: Draw) -> Example:
    return Example(EinsumAttention(), (draw.normal(4, 12, 32), draw.integers(0, 4, 4)), classification)


class MaskedAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.heads = heads
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.attend(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.project(y.transpose(1, 2).contiguous().view(b, t, c))


class MinGpt(nn.Module):
    def __init__(self, width=32, heads=4, layers=2, block=16):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(1, block, width))
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln1": nn.LayerNorm(width),
                    "attention": MaskedAttention(width, heads, block),
                    "ln2": nn.LayerNorm(width),
                    "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[:, : tokens.size(1), :]
        for block in self.blocks:
            x = x + block["attention"](block["ln1"](x))
            x = x + block["mlp"](block["ln2"](x))
        return self.head(self.norm(x))


@model("mingpt")
def mingpt(draw: Draw) -> Example:
    return Example(MinGpt(), (draw.integers(0, VOCABULARY, 4, 17),), language_model)


class NanoGpt(nn.Module):
    """Tied head; dropout by F.dropout and inside F.scaled_dot_product_attention."""

    def __init__(self, width=32, heads=4, layers=2, block=16, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(block, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            block_ = nn.Module()
            block_.ln_1, block_.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            block_.c_attn, block_.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            block_.c_fc, block_.c_out = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
            self.blocks.append(block_)
        self.ln_f = nn.LayerNorm(width, bias=False)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        self.wte.weight = self.lm_head.weight

    def _drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def _attend(self, block, x):
        b, t, c = x.size()
        q, k, v = block.c_attn(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self._drop(block.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))

    def forward(self, tokens):
        positions = torch.arange(0, tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self._drop(self.wte(tokens) + self.wpe(positions))
        for block in self.blocks:
            x = x + self._attend(block, block.ln_1(x))
            x = x + self._drop(block.c_out(F.gelu(block.c_fc(block.ln_2(x)))))
        return self.lm_head(self.ln_f(x))


@model("nanogpt", random="F.dropout and attention dropout with a rate the model holds")
def nanogpt(draw: Draw) -> Example:
    return Example(NanoGpt(), (draw.integers(0, VOCABULARY, 4, 17),), language_model)


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cosine, sine):
    """Rotary embedding of pairs of neighbours; x [B, H, T, D], tables [T, D / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


class RopeBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 80, bias=False), nn.Linear(width, 80, bias=False)
        self.down = nn.Linear(80, width, bias=False)

    def forward(self, x, cosine, sine):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(rotate(q, cosine, sine), rotate(k, cosine, sine), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class RopeGpt(nn.Module):
    def __init__(self, width=32, heads=4, layers=2, block=16):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(RopeBlock(width, heads) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(block).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        t = tokens.shape[1]
        for block in self.blocks:
            x = block(x, self.cosine[:t], self.sine[:t])
        return self.head(self.norm(x))


@model("gpt-rope")
def gpt_rope(draw: Draw) -> Example:
    return Example(RopeGpt(), (draw.integers(0, VOCABULARY, 4, 17),), language_model)


class Seq2Seq(nn.Module):
    """Encoder GRU; a GRU cell decodes step by step and attends to the encoder's outputs (additive scores)."""

    def __init__(self, width=24):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, width), nn.Embedding(VOCABULARY, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.cell = nn.GRUCell(2 * width, width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(2 * width, VOCABULARY)

    def forward(self, source, target):
        memory, state = self.encoder(self.source(source))
        hidden, keys, logits = state[0], self.key(memory), []
        embedded = self.target(target)
        for t in range(target.size(1)):
            scores = self.score(torch.tanh(keys + self.query(hidden).unsqueeze(1))).squeeze(-1)
            context = torch.bmm(F.softmax(scores, dim=1).unsqueeze(1), memory).squeeze(1)
            hidden = self.cell(torch.cat([embedded[:, t], context], dim=1), hidden)
            logits.append(self.out(torch.cat([hidden, context], dim=1)))
        return torch.stack(logits, dim=1)


@model("seq2seq-attention")
def seq2seq_attention(draw: Draw) -> Example:
    def loss(net, source, target):
        return F.cross_entropy(net(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())

    return Example(Seq2Seq(), (draw.integers(0, VOCABULARY, 3, 9), draw.integers(0, VOCABULARY, 3, 8)), loss)


class CharCnn(nn.Module):
    """Words from characters by convolutions of three widths and a highway layer; a classifier of the mean word."""

    def __init__(self, width=16, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(40, 12, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(12, width, k, padding=k // 2) for k in (2, 3, 5))
        self.gate, self.carry = nn.Linear(3 * width, 3 * width), nn.Linear(3 * width, 3 * width)
        self.out = nn.Linear(3 * width, classes)

    def forward(self, characters):
        b, words, length = characters.shape
        x = self.embedding(characters.view(b * words, length)).transpose(1, 2)
        x = torch.cat([conv(x).relu().amax(dim=-1) for conv in self.convs], dim=1)
        gate = torch.sigmoid(self.gate(x))
        x = gate * F.elu(self.carry(x)) + (1 - gate) * x
        return self.out(x.view(b, words, -1).mean(dim=1))


@model("char-cnn")
def char_cnn(draw: Draw) -> Example:
    characters = draw.integers(1, 40, 4, 6, 8)
    characters[:, 4:, 5:] = 0
    return Example(CharCnn(), (characters, draw.integers(0, 3, 4)), classification)


class WaveNet(nn.Module):
    def __init__(self, width=16, levels=32, dilations=(1, 2, 4, 8)):
        super().__init__()
        self.first = nn.Conv1d(levels, width, 1)
        self.dilations = dilations
        self.filters = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=d) for d in dilations)
        self.gates = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=d) for d in dilations)
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, levels, 1))

    def forward(self, levels):
        x = self.first(F.one_hot(levels, self.first.in_channels).transpose(1, 2).to(self.first.weight.dtype))
        total = 0
        for dilation, filter_, gate, residual, skip in zip(
            self.dilations, self.filters, self.gates, self.residuals, self.skips
        ):
            padded = F.pad(x, (dilation, 0))
            h = torch.tanh(filter_(padded)) * torch.sigmoid(gate(padded))
            total = total + skip(h)
            x = x + residual(h)
        return self.out(total)


@model("wavenet")
def wavenet(draw: Draw) -> Example:
    def loss(net, levels):
        return F.cross_entropy(net(levels[:, :-1]), levels[:, 1:])

    return Example(WaveNet(), (draw.integers(0, 32, 2, 65),), loss)
