"""Hand-written models of images, volumes and points, as their users write them."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

from . import Draw, Example, model
from .losses import classification


@model("mlp-digits")
def mlp_digits(draw: Draw) -> Example:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return Example(net, (draw.uniform(16, 1, 8, 8), draw.integers(0, 10, 16)), classification)


class DigitsCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding="same")
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 2)
        x = F.max_pool2d(self.bn2(self.conv2(x)).relu_(), 2)
        return self.fc(x.view(x.size(0), -1))


@model("cnn-digits")
def cnn_digits(draw: Draw) -> Example:
    return Example(DigitsCnn(), (draw.uniform(16, 1, 8, 8), draw.integers(0, 10, 16)), classification)


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes=3, width=8):
        super().__init__()
        self.down1 = double_conv(1, width)
        self.down2 = double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="nearest")
        self.merge1 = double_conv(3 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([b, self.up2(c)], dim=1))
        return self.out(self.merge1(torch.cat([a, self.up1(b)], dim=1)))


@model("unet")
def unet(draw: Draw) -> Example:
    return Example(UNet(), (draw.normal(2, 1, 32, 32), draw.integers(0, 3, 2, 32, 32)), classification)


class Vae(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()
        )
        self.mean = nn.Linear(32 * 16, latent)
        self.log_variance = nn.Linear(32 * 16, latent)
        self.expand = nn.Linear(latent, 32 * 16)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(self.expand(z).view(-1, 32, 4, 4)), mean, log_variance


@model("vae", random="reparameterisation noise", rates=False)
def vae(draw: Draw) -> Example:
    def loss(net, x):
        logits, mean, log_variance = net(x)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp()) / x.size(0)
        return reconstruction + divergence, {"divergence": divergence.detach()}

    return Example(Vae(), (draw.uniform(4, 1, 16, 16),), loss)


class SsdHead(nn.Module):
    """Two feature maps, each with a convolution for classes and one for boxes; class 0 is the background."""

    def __init__(self, classes=4, anchors=3):
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU()
        )
        self.extra = nn.Sequential(nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU())
        self.confidence = nn.ModuleList(nn.Conv2d(c, anchors * classes, 3, padding=1) for c in (24, 32))
        self.location = nn.ModuleList(nn.Conv2d(c, anchors * 4, 3, padding=1) for c in (24, 32))

    def forward(self, x):
        maps = [self.stem(x)]
        maps.append(self.extra(maps[0]))
        confidence = [
            c(f).permute(0, 2, 3, 1).reshape(x.size(0), -1, self.classes) for c, f in zip(self.confidence, maps)
        ]
        location = [c(f).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4) for c, f in zip(self.location, maps)]
        return torch.cat(confidence, 1), torch.cat(location, 1)


def multibox_loss(net, x, labels, boxes):
    """Smooth L1 on the positives; cross entropy on them and on the three hardest negatives for each."""
    confidence, location = net(x)
    positive = labels > 0
    count = positive.sum(dim=1, keepdim=True)
    location_loss = (F.smooth_l1_loss(location, boxes, reduction="none").sum(-1) * positive).sum()
    entropy = F.cross_entropy(confidence.transpose(1, 2), labels, reduction="none")
    with torch.no_grad():
        negative = entropy.clone()
        negative[positive] = 0.0
        _, order = negative.sort(dim=1, descending=True)
        _, rank = order.sort(dim=1)
        hard = rank < 3 * count
    return (location_loss + (entropy * (positive | hard)).sum()) / count.sum().clamp(min=1)


@model("ssd")
def ssd(draw: Draw) -> Example:
    anchors = 3 * (8 * 8 + 4 * 4)
    labels = draw.integers(1, 4, 2, anchors) * (draw.uniform(2, anchors) < 0.1)
    return Example(SsdHead(), (draw.normal(2, 3, 32, 32), labels, draw.normal(2, anchors, 4)), multibox_loss)


class TransformNet(nn.Module):
    """A learnt k x k transform of the points, near the identity."""

    def __init__(self, k):
        super().__init__()
        self.k = k
        self.features = nn.Sequential(
            nn.Conv1d(k, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, k * k))

    def forward(self, x):
        x = torch.max(self.features(x), 2)[0]
        identity = torch.eye(self.k, dtype=x.dtype, device=x.device).flatten().repeat(x.size(0), 1)
        return (self.head(x) + identity).view(-1, self.k, self.k)


class PointNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.transform = TransformNet(3)
        self.features = nn.Sequential(
            nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 128, 1), nn.BatchNorm1d(128)
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x):
        transform = self.transform(x)
        x = torch.bmm(x.transpose(2, 1), transform).transpose(2, 1)
        x = torch.max(self.features(x), 2, keepdim=True)[0].view(x.size(0), -1)
        return self.head(x), transform


@model("pointnet")
def pointnet(draw: Draw) -> Example:
    def loss(net, x, y):
        logits, transform = net(x)
        identity = torch.eye(3, dtype=x.dtype)[None]
        distance = torch.norm(torch.bmm(transform, transform.transpose(2, 1)) - identity, dim=(1, 2)).mean()
        return F.nll_loss(F.log_softmax(logits, dim=-1), y) + 0.001 * distance

    return Example(PointNet(), (draw.normal(8, 3, 64), draw.integers(0, 5, 8)), loss)


class UNet3d(nn.Module):
    def __init__(self, classes=2, width=8):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(
                nn.Conv3d(inputs, outputs, 3, padding=1, bias=False),
                nn.InstanceNorm3d(outputs, affine=True),
                nn.LeakyReLU(0.01, inplace=True),
            )

        self.down = block(1, width)
        self.pool = nn.MaxPool3d(2)
        self.bottom = block(width, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.merge = block(2 * width, width)
        self.out = nn.Conv3d(width, classes, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.up(self.bottom(self.pool(a)))
        return self.out(self.merge(torch.cat((a, b), 1)))


@model("unet3d")
def unet3d(draw: Draw) -> Example:
    def loss(net, x, y):
        logits = net(x)
        probability = logits.softmax(dim=1)[:, 1]
        target = (y == 1).to(probability.dtype)
        overlap = (probability * target).sum((1, 2, 3))
        dice = 1 - (2 * overlap + 1) / (probability.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
        return F.cross_entropy(logits, y) + dice.mean()

    return Example(UNet3d(), (draw.normal(2, 1, 8, 16, 16), draw.integers(0, 2, 2, 8, 16, 16)), loss)


class ConvAutoencoder(nn.Module):
    """Denoises: the input is what the user has made noisy."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GELU()
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(16, 3, 3, stride=2, padding=1, output_padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


@model("conv-autoencoder")
def conv_autoencoder(draw: Draw) -> Example:
    clean = draw.uniform(4, 3, 32, 32)
    batch = {"noisy": (clean + 0.1 * draw.normal(4, 3, 32, 32)).clamp(0, 1), "clean": clean}
    return Example(ConvAutoencoder(), batch, lambda net, noisy, clean: F.mse_loss(net(noisy), clean))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x):
        return self.body(x).mul(0.1).add_(x)


class Edsr(nn.Module):
    """Twice the resolution: what is learnt is added to the bilinear picture."""

    def __init__(self, width=24, blocks=3):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(Residual(width) for _ in range(blocks)))
        self.tail = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.PReLU(width),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        features = self.head(x - self.mean)
        detail = self.tail(features + self.body(features))
        return detail + F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@model("super-resolution")
def super_resolution(draw: Draw) -> Example:
    def loss(net, small, large):
        return F.l1_loss(net(small), large)

    return Example(Edsr(), (draw.uniform(2, 3, 16, 16), draw.uniform(2, 3, 32, 32)), loss)


class Gan(nn.Module):
    """DCGAN with a hinge loss. Both sides in one loss: each is blind to the parameters of the other by detach or by a
    functional call with detached parameters."""

    def __init__(self, latent=16, width=16):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, 2 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            spectral_norm(nn.Conv2d(1, width, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            spectral_norm(nn.Conv2d(width, 2 * width, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 1),
        )

    def forward(self, latent, real):
        fake = self.generator(latent[:, :, None, None])
        on_real, on_fake = self.discriminator(real), self.discriminator(fake.detach())
        critic = {k: v.detach() for k, v in self.discriminator.named_parameters()}
        return on_real, on_fake, torch.func.functional_call(self.discriminator, critic, (fake,))


@model("gan")
def gan(draw: Draw) -> Example:
    def loss(net, latent, real):
        on_real, on_fake, fooled = net(latent, real)
        discriminator = F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
        generator = -fooled.mean()
        return discriminator + generator, {"discriminator": discriminator.detach(), "generator": generator.detach()}

    return Example(Gan(), (draw.normal(4, 16), draw.uniform(4, 1, 16, 16) * 2 - 1), loss)
