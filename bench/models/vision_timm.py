"""Architectures of timm: GhostNet and RepVGG whole, on small images; the others of few and narrow layers."""

import timm
import torch
from timm.models.convmixer import ConvMixer
from timm.models.metaformer import GroupNorm1, MetaFormer
from timm.models.mlp_mixer import MlpMixer
from timm.models.nfnet import NfCfg, NormFreeNet

from . import Draw, Example, model
from .losses import classification

CLASSES = 10


def _classifier(draw: Draw, net: torch.nn.Module, size: int, batch: int = 2) -> Example:
    return Example(net, (draw.normal(batch, 3, size, size), draw.integers(0, CLASSES, batch)), classification)


def _create(name: str, **changes) -> torch.nn.Module:
    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **changes)


@model("deit-ti")
def deit_ti(draw: Draw) -> Example:
    net = _create("deit_tiny_distilled_patch16_224", img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=4)
    return _classifier(draw, net, 32)


@model("mlp-mixer")
def mlp_mixer(draw: Draw) -> Example:
    return _classifier(draw, MlpMixer(CLASSES, img_size=32, patch_size=8, embed_dim=64, num_blocks=4), 32)


@model("beit", random="drop path")
def beit(draw: Draw) -> Example:
    net = _create(
        "beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=4, drop_path_rate=0.1
    )
    return _classifier(draw, net, 32)


@model("convmixer")
def convmixer(draw: Draw) -> Example:
    return _classifier(draw, ConvMixer(64, 4, patch_size=4, num_classes=CLASSES), 32)


@model("poolformer", random="drop path")
def poolformer(draw: Draw) -> Example:
    net = MetaFormer(
        depths=[2, 2, 6, 2],
        dims=[16, 32, 64, 128],
        downsample_norm=None,
        mlp_act=torch.nn.GELU,
        mlp_bias=True,
        norm_layers=GroupNorm1,
        layer_scale_init_values=1e-5,
        res_scale_init_values=None,
        use_mlp_head=False,
        drop_path_rate=0.1,
        num_classes=CLASSES,
    )
    return _classifier(draw, net, 64)


@model("xcit")
def xcit(draw: Draw) -> Example:
    return _classifier(draw, _create("xcit_nano_12_p16_224", img_size=64, embed_dim=64, depth=2, num_heads=4), 64)


@model("nfnet", random="drop path, dropout of the head")
def nfnet(draw: Draw) -> Example:
    config = NfCfg(
        depths=(1, 2, 2, 1),
        channels=(32, 64, 96, 96),
        stem_type="deep_quad",
        stem_chs=32,
        group_size=16,
        bottle_ratio=0.5,
        extra_conv=True,
        gamma_in_act=True,
        same_padding=True,
        skipinit=True,
        num_features=192,
        act_layer="gelu",
        attn_layer="se",
        attn_kwargs=dict(rd_ratio=0.5),
    )
    return _classifier(draw, NormFreeNet(config, num_classes=CLASSES, drop_rate=0.2, drop_path_rate=0.1), 64)


@model("ghostnet", random="dropout of the head")
def ghostnet(draw: Draw) -> Example:
    return _classifier(draw, _create("ghostnet_050", drop_rate=0.2), 64, batch=8)


@model("repvgg")
def repvgg(draw: Draw) -> Example:
    return _classifier(draw, _create("repvgg_a0"), 64, batch=8)
