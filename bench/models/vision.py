"""Architectures of torchvision: real blocks and depths (but two layers of ViT, two stages of MaxViT), small images.

The widths of ConvNeXt, Swin, ViT and MaxViT are cut to a quarter or less.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision.models as tv
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.resnet import Bottleneck
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

from . import Draw, Example, model
from .losses import classification

CLASSES = 10


def _classifier(
    draw: Draw, net: torch.nn.Module, size: int = 64, batch: int = 8, loss: Callable[..., torch.Tensor] = classification
) -> Example:
    """With a batch of 2, training deep batch norms amplifies rounding until even float64 results say nothing."""
    return Example(net, (draw.normal(batch, 3, size, size), draw.integers(0, CLASSES, batch)), loss)


@model("resnet18")
def resnet18(draw: Draw) -> Example:
    return _classifier(draw, tv.resnet18(num_classes=CLASSES))


@model("resnet50")
def resnet50(draw: Draw) -> Example:
    return _classifier(draw, tv.resnet50(num_classes=CLASSES, zero_init_residual=True))


@model("densenet121")
def densenet121(draw: Draw) -> Example:
    return _classifier(draw, tv.densenet121(num_classes=CLASSES))


@model("vgg11", random="dropout of the head")
def vgg11(draw: Draw) -> Example:
    net = tv.vgg11(num_classes=CLASSES)
    net.avgpool = torch.nn.AdaptiveAvgPool2d(1)
    net.classifier = torch.nn.Sequential(
        torch.nn.Linear(512, 128), torch.nn.ReLU(True), torch.nn.Dropout(), torch.nn.Linear(128, CLASSES)
    )
    return _classifier(draw, net, batch=2)


@model("mobilenetv3-s", random="dropout of the head")
def mobilenetv3_s(draw: Draw) -> Example:
    return _classifier(draw, tv.mobilenet_v3_small(num_classes=CLASSES))


@model("shufflenet-v2")
def shufflenet_v2(draw: Draw) -> Example:
    return _classifier(draw, tv.shufflenet_v2_x0_5(num_classes=CLASSES))


@model("efficientnet-b0", random="stochastic depth, dropout of the head")
def efficientnet_b0(draw: Draw) -> Example:
    return _classifier(draw, tv.efficientnet_b0(num_classes=CLASSES))


@model("convnext-t", random="stochastic depth")
def convnext_t(draw: Draw) -> Example:
    blocks = [
        CNBlockConfig(24, 48, 3),
        CNBlockConfig(48, 96, 3),
        CNBlockConfig(96, 192, 9),
        CNBlockConfig(192, None, 3),
    ]
    return _classifier(draw, ConvNeXt(blocks, stochastic_depth_prob=0.1, num_classes=CLASSES), batch=2)


@model("swin-t", random="stochastic depth")
def swin_t(draw: Draw) -> Example:
    net = SwinTransformer(
        [4, 4], 24, [2, 2, 6, 2], [1, 2, 4, 8], [4, 4], stochastic_depth_prob=0.2, num_classes=CLASSES
    )
    return _classifier(draw, net, batch=2)


@model("vit-tv", random="dropout")
def vit_tv(draw: Draw) -> Example:
    net = tv.VisionTransformer(
        32, 8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, dropout=0.1, num_classes=CLASSES
    )
    torch.nn.init.trunc_normal_(net.heads.head.weight, std=0.02)  # zeros would stop the first gradients
    return _classifier(draw, net, 32, batch=2)


def _segmentation(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    outputs = net(x)
    loss = F.cross_entropy(outputs["out"], y, ignore_index=255)
    if "aux" in outputs:
        loss = loss + 0.5 * F.cross_entropy(outputs["aux"], y, ignore_index=255)
    return loss


def _segmenter(draw: Draw, net: torch.nn.Module) -> Example:
    labels = draw.integers(0, 5, 8, 64, 64)
    labels[:, :4] = 255  # the border that annotators leave out
    return Example(net, (draw.normal(8, 3, 64, 64), labels), _segmentation)


@model("deeplabv3", random="dropout of the heads")
def deeplabv3(draw: Draw) -> Example:
    net = tv.segmentation.deeplabv3_resnet50(weights_backbone=None, num_classes=5, aux_loss=True)
    for part in net.modules():
        if isinstance(part, Bottleneck):
            torch.nn.init.zeros_(part.bn3.weight)  # zero_init_residual, which this constructor does not pass on
    return _segmenter(draw, net)


@model("lraspp")
def lraspp(draw: Draw) -> Example:
    return _segmenter(draw, tv.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=5))


@model("resnext50")
def resnext50(draw: Draw) -> Example:
    return _classifier(draw, tv.resnext50_32x4d(num_classes=CLASSES, zero_init_residual=True))


@model("regnet-y")
def regnet_y(draw: Draw) -> Example:
    return _classifier(draw, tv.regnet_y_400mf(num_classes=CLASSES))


@model("googlenet", random="dropout of the three heads")
def googlenet(draw: Draw) -> Example:
    def loss(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits, aux2, aux1 = net(x)
        return F.cross_entropy(logits, y) + 0.3 * (F.cross_entropy(aux1, y) + F.cross_entropy(aux2, y))

    return _classifier(draw, tv.googlenet(num_classes=CLASSES, aux_logits=True, init_weights=False), loss=loss)


@model("mobilenet-v2", random="dropout of the head")
def mobilenet_v2(draw: Draw) -> Example:
    return _classifier(draw, tv.mobilenet_v2(num_classes=CLASSES))


@model("squeezenet", random="dropout of the head")
def squeezenet(draw: Draw) -> Example:
    return _classifier(draw, tv.squeezenet1_1(num_classes=CLASSES), batch=2)


@model("swin-v2-t", random="stochastic depth")
def swin_v2_t(draw: Draw) -> Example:
    net = SwinTransformer(
        [4, 4],
        24,
        [2, 2, 6, 2],
        [1, 2, 4, 8],
        [4, 4],
        stochastic_depth_prob=0.2,
        num_classes=CLASSES,
        block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    )
    return _classifier(draw, net, batch=2)


@model("maxvit-t", random="stochastic depth")
def maxvit_t(draw: Draw) -> Example:
    net = tv.MaxVit(
        (64, 64),
        stem_channels=16,
        partition_size=4,
        block_channels=[16, 32],
        block_layers=[2, 2],
        head_dim=8,
        stochastic_depth_prob=0.2,
        num_classes=CLASSES,
    )
    return _classifier(draw, net, batch=2)
