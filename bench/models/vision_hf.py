"""Vision models of transformers, two layers each; the loss is the output's."""

import transformers as hf

from . import Draw, Example, model

SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
IMAGE = dict(image_size=32, patch_size=8)
DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def _classifier(draw: Draw, net, size: int = 32) -> Example:
    batch = {"pixel_values": draw.normal(2, 3, size, size), "labels": draw.integers(0, 10, 2)}
    return Example(net, batch, None)


@model("vit-hf")
def vit(draw: Draw) -> Example:
    return _classifier(draw, hf.ViTForImageClassification(hf.ViTConfig(**SIZES, **IMAGE, num_labels=10)))


@model("deit-hf", random="dropout, attention dropout")
def deit(draw: Draw) -> Example:
    return _classifier(draw, hf.DeiTForImageClassification(hf.DeiTConfig(**SIZES, **IMAGE, **DROPOUT, num_labels=10)))


@model("swin-hf", random="drop path")
def swin(draw: Draw) -> Example:
    config = hf.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.1,
        num_labels=10,
    )
    return _classifier(draw, hf.SwinForImageClassification(config))


@model("convnext-hf", random="drop path")
def convnext(draw: Draw) -> Example:
    config = hf.ConvNextConfig(hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1], drop_path_rate=0.2, num_labels=10)
    return _classifier(draw, hf.ConvNextForImageClassification(config), 64)


@model("segformer", random="drop path, dropout of the decoder")
def segformer(draw: Draw) -> Example:
    config = hf.SegformerConfig(
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=32,
        num_attention_heads=[1, 2, 3, 4],
        drop_path_rate=0.1,
        num_labels=5,
    )
    batch = {"pixel_values": draw.normal(2, 3, 64, 64), "labels": draw.integers(0, 5, 2, 64, 64)}
    return Example(hf.SegformerForSemanticSegmentation(config), batch, None)


@model("vitmae", random="noise that chooses the masked patches", rates=False)
def vitmae(draw: Draw) -> Example:
    config = hf.ViTMAEConfig(
        **SIZES,
        **IMAGE,
        decoder_hidden_size=32,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=64,
    )
    return Example(hf.ViTMAEForPreTraining(config), {"pixel_values": draw.normal(2, 3, 32, 32)}, None)


@model("clip")
def clip(draw: Draw) -> Example:
    text = dict(SIZES, vocab_size=100, max_position_embeddings=16, bos_token_id=1, eos_token_id=99, pad_token_id=0)
    net = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=dict(SIZES, **IMAGE), projection_dim=32))
    tokens = draw.integers(2, 98, 4, 12)
    tokens[:, -1] = 99
    batch = {"input_ids": tokens, "pixel_values": draw.normal(4, 3, 32, 32)}
    return Example(net, batch, lambda m, **inputs: m(**inputs, return_loss=True).loss)
