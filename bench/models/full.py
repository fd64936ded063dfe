"""Models at the sizes at which their speed and memory are measured, with random weights; no part of the corpus.

    example, what = full.build("gpt2")      # as models.build, and how the tables call it
"""

import diffusers
import torch
import torchvision
import transformers as hf
from torch.nn import functional as F

from . import Draw, Example
from .objectives import Dlrm

TRANSFORMERS = ("gpt2", "bert-base", "ernie-3.0-medium", "llama-100m", "vit-b-16")


def _decoder(draw: Draw, net: torch.nn.Module, batch: int, length: int) -> Example:
    tokens = draw.integers(3, net.config.vocab_size, batch, length)
    return Example(net, {"input_ids": tokens, "labels": tokens.clone()}, None)


def _masked(draw: Draw, net: torch.nn.Module, batch: int, length: int) -> Example:
    tokens = draw.integers(5, net.config.vocab_size, batch, length)
    chosen = draw.uniform(batch, length) < 0.15
    return Example(net, {"input_ids": tokens.masked_fill(chosen, 3), "attention_mask": torch.ones_like(tokens),
                         "labels": tokens.masked_fill(~chosen, -100)}, None)


def _classified(draw: Draw, net: torch.nn.Module, batch: int) -> Example:
    def loss(net, x, y):
        return F.cross_entropy(net(x), y)
    return Example(net, (draw.normal(batch, 3, 224, 224), draw.integers(0, 1000, batch)), loss)


def _unet(draw: Draw) -> Example:
    net = diffusers.UNet2DModel(
        sample_size=32, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(64, 128, 256),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"))

    def loss(net, noisy, steps, noise):
        return F.mse_loss(net(noisy, steps).sample, noise)
    return Example(net, (draw.normal(8, 3, 32, 32), draw.integers(0, 1000, 8), draw.normal(8, 3, 32, 32)), loss)


def _dlrm(draw: Draw) -> Example:
    def loss(net, dense, sparse, clicked):
        return F.binary_cross_entropy_with_logits(net(dense, sparse), clicked)
    net = Dlrm(sizes=(100_000,) * 8, width=64)
    batch = (draw.normal(2048, 5), draw.integers(0, 100_000, 2048, 8, 4), (draw.uniform(2048) < 0.3).float())
    return Example(net, batch, loss)


LLAMA = dict(vocab_size=32000, hidden_size=768, num_hidden_layers=10, num_attention_heads=12, num_key_value_heads=4,
             intermediate_size=2048, max_position_embeddings=1024)
ERNIE = dict(vocab_size=40000, num_hidden_layers=6, max_position_embeddings=2048, type_vocab_size=4, use_task_id=True, task_type_vocab_size=16)
SIZES = {
    "gpt2": ("GPT-2 small, 4 x 256 tokens", lambda draw: _decoder(draw, hf.GPT2LMHeadModel(hf.GPT2Config()), 4, 256)),
    "bert-base": ("BERT base, masked words, 8 x 128 tokens", lambda draw: _masked(draw, hf.BertForMaskedLM(hf.BertConfig()), 8, 128)),
    "ernie-3.0-medium": ("ERNIE 3.0 medium, masked words, 8 x 128 tokens",
                         lambda draw: _masked(draw, hf.ErnieForMaskedLM(hf.ErnieConfig(**ERNIE)), 8, 128)),
    "llama-100m": ("Llama of 100 M parameters, 2 x 512 tokens", lambda draw: _decoder(draw, hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)), 2, 512)),
    "vit-b-16": ("ViT-B/16, 4 x 224 x 224", lambda draw: _classified(draw, torchvision.models.vit_b_16(), 4)),
    "resnet18": ("ResNet-18, 16 x 224 x 224", lambda draw: _classified(draw, torchvision.models.resnet18(), 16)),
    "resnet50": ("ResNet-50, 8 x 224 x 224", lambda draw: _classified(draw, torchvision.models.resnet50(), 8)),
    "convnext-t": ("ConvNeXt-T, 4 x 224 x 224", lambda draw: _classified(draw, torchvision.models.convnext_tiny(), 4)),
    "mobilenetv3": ("MobileNetV3-Large, 16 x 224 x 224", lambda draw: _classified(draw, torchvision.models.mobilenet_v3_large(), 16)),
    "efficientnet-b0": ("EfficientNet-B0, 8 x 224 x 224", lambda draw: _classified(draw, torchvision.models.efficientnet_b0(), 8)),
    "unet": ("UNet2D of diffusers, 8 x 32 x 32", _unet),
    "dlrm": ("DLRM, 8 tables of 100,000 x 64, 2,048 examples", _dlrm),
}


def build(name: str) -> tuple[Example, str]:
    torch.manual_seed(0)
    what, builder = SIZES[name]
    example = builder(Draw(name))
    example.model.train()
    return example, what
