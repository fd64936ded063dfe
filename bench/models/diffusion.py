"""Models of diffusers with the losses of its training scripts; timesteps and noise are part of the batch."""

import diffusers
import torch
import torch.nn.functional as F

from . import Draw, Example, model

BLOCKS = dict(block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8)


@model("autoencoder-kl", random="the sampled latent", rates=False)
def autoencoder_kl(draw: Draw) -> Example:
    net = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=32,
        **BLOCKS,
    )

    def loss(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        posterior = net.encode(x).latent_dist
        return F.mse_loss(net.decode(posterior.sample()).sample, x) + 1e-6 * posterior.kl().mean()

    return Example(net, (draw.normal(2, 3, 32, 32),), loss)


@model("unet2d")
def unet2d(draw: Draw) -> Example:
    net = diffusers.UNet2DModel(
        sample_size=16,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        **BLOCKS,
    )

    def loss(net: torch.nn.Module, noisy: torch.Tensor, steps: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(net(noisy, steps).sample, noise)

    batch = (draw.normal(2, 3, 16, 16), draw.integers(0, 1000, 2), draw.normal(2, 3, 16, 16))
    return Example(net, batch, loss)


def _conditional_unet() -> diffusers.UNet2DConditionModel:
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        attention_head_dim=8,
        cross_attention_dim=32,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        **BLOCKS,
    )


def _diffused(draw: Draw) -> dict[str, torch.Tensor]:
    return {
        "noisy": draw.normal(2, 4, 16, 16),
        "steps": draw.integers(0, 1000, 2),
        "text": draw.normal(2, 6, 32),
        "noise": draw.normal(2, 4, 16, 16),
    }


@model("unet2d-condition")
def unet2d_condition(draw: Draw) -> Example:
    def loss(net: torch.nn.Module, noisy, steps, text, noise) -> torch.Tensor:
        return F.mse_loss(net(noisy, steps, encoder_hidden_states=text).sample, noise)

    return Example(_conditional_unet(), _diffused(draw), loss)


@model("dit", random="labels dropped for guidance")
def dit(draw: Draw) -> Example:
    net = diffusers.DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=4,
        num_embeds_ada_norm=1000,
    )

    def loss(net: torch.nn.Module, noisy, steps, labels, noise) -> torch.Tensor:
        return F.mse_loss(net(noisy, timestep=steps, class_labels=labels).sample, noise)

    batch = (draw.normal(2, 4, 16, 16), draw.integers(0, 1000, 2), draw.integers(0, 1000, 2), draw.normal(2, 4, 16, 16))
    return Example(net, batch, loss)


@model("vqmodel")
def vqmodel(draw: Draw) -> Example:
    net = diffusers.VQModel(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        num_vq_embeddings=32,
        **BLOCKS,
    )

    def loss(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        output = net(x)
        return F.mse_loss(output.sample, x) + output.commit_loss.mean()

    return Example(net, (draw.normal(2, 3, 32, 32),), loss)


class Steered(torch.nn.Module):
    """A ControlNet trained beside the frozen UNet whose residuals it gives."""

    def __init__(self, unet: diffusers.UNet2DConditionModel) -> None:
        super().__init__()
        self.control = diffusers.ControlNetModel.from_unet(unet, conditioning_channels=3)
        self.unet = unet.requires_grad_(False)

    def forward(self, noisy, steps, text, picture):
        down, middle = self.control(
            noisy, steps, encoder_hidden_states=text, controlnet_cond=picture, return_dict=False
        )
        return self.unet(
            noisy,
            steps,
            encoder_hidden_states=text,
            down_block_additional_residuals=down,
            mid_block_additional_residual=middle,
        ).sample


@model("controlnet")
def controlnet(draw: Draw) -> Example:
    def loss(net: torch.nn.Module, noisy, steps, text, picture, noise) -> torch.Tensor:
        return F.mse_loss(net(noisy, steps, text, picture), noise)

    return Example(Steered(_conditional_unet()), _diffused(draw) | {"picture": draw.uniform(2, 3, 128, 128)}, loss)
