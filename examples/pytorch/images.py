#!/usr/bin/env python3
"""A ResNet of torchvision that tells digits, and a UNet of diffusers that takes noise out of them; random weights.

usage: images.py resnet18|unet [--steps N]
"""
import argparse
import pathlib

import diffusers
import numpy as np
import torch
import torch.nn.functional as F
import torchvision

import trainc.torch

BATCH, SIDE = 16, 32
DATA = pathlib.Path(__file__).parents[1] / "data"


def resnet18():
    return torchvision.models.resnet18(num_classes=10), lambda net, x, y: F.cross_entropy(net(x), y)


def unet():
    net = diffusers.UNet2DModel(sample_size=SIDE, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8, attention_head_dim=8,
                                down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    kept = diffusers.DDPMScheduler().alphas_cumprod

    def loss(net, x, y):
        """Noise and its strength are drawn in the step."""
        noise, at = torch.randn_like(x), torch.randint(0, 1000, (x.shape[0],))
        share = kept[at].view(-1, 1, 1, 1)
        return F.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, at).sample, noise)
    return net, loss


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=["resnet18", "unet"])
    p.add_argument("--steps", type=int, default=100)
    a = p.parse_args()
    torch.manual_seed(0)
    x, y = (torch.from_numpy(np.load(DATA / f"digits_train_{name}.npy")) for name in "xy")
    x = F.interpolate(x.reshape(-1, 1, 8, 8), SIDE).expand(-1, 3, -1, -1)
    net, loss = resnet18() if a.model == "resnet18" else unet()
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    exported = trainc.torch.export(net, (x[:BATCH].contiguous(), y[:BATCH].long()), loss, optimizer)
    losses = []
    with exported.step() as step:
        for i in range(a.steps):
            chosen = torch.randint(len(x), (BATCH,))
            losses.append(step(x[chosen].contiguous(), y[chosen].long()).loss)
            if i % 20 == 19:
                print(f"step {i + 1}: loss {sum(losses[-20:]) / 20:.4f}", flush=True)
    first, last = (sum(part) / len(part) for part in (losses[:10], losses[-10:]))
    print(f"first losses {first:.4f}, last losses {last:.4f}")


if __name__ == "__main__":
    main()
