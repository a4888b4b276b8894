"""Measure CAT-RS steps, training and certification of a network defined outside the package, a ResNet-18.

    python benchmarks/own_network.py [--device cuda] [--compile] [--images 10000] [--epochs 3] [--certify 100]

The script first measures milliseconds per CAT-RS step (64 images, 4 noise samples, 4 attack steps), all in the same
precision, bfloat16 autocast by default: eager PyTorch as published (`published.py`), `method.step` in an eager loop,
the step of `smoothcert.train` (on a GPU, a CUDA graph) and, with `--compile`, the compiled step. Then the network is
trained on CIFAR-10 and certified. With few label samples and a teacher trained for the same few epochs, this takes
about a minute on a GPU; the accuracy after such a short training means nothing.
"""

import itertools
import tempfile
import time

import torch
from measuring import make_parser, print_header, timed, write_json
from published import CatRsStep
from torch import nn
from torch.nn import functional as F

import smoothcert
from smoothcert.models import build_model
from smoothcert.runtime.environment import choose_device
from smoothcert.training.batches import ResidentData
from smoothcert.training.compute import method_of
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.setup import new_optimizer
from smoothcert.training.stepper import Stepper


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm_first, self.norm_second = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride > 1 or channels_in != channels:
            conv = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x):
        """Return the features of the next layer."""
        y = F.relu(self.norm_first(self.first(x)))
        return F.relu(self.norm_second(self.second(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """The ResNet-18 for images of 32x32 pixels."""

    def __init__(self, num_classes, channels=3, width=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        stages = zip(itertools.pairwise(widths), (1, 2, 2, 2), strict=True)
        blocks = [(Block(i, o, stride), Block(o, o, 1)) for (i, o), stride in stages]
        self.blocks = nn.Sequential(*itertools.chain(*blocks))
        self.head = nn.Linear(8 * width, num_classes)

    def forward(self, x):
        """Return the scores."""
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class Steps:
    """One CAT-RS step in several implementations; each returns a function that takes a step of its own network."""

    def __init__(self, factory, config, data, device, precision):
        self.config, self.device, self.precision = config, device, precision
        self.network = lambda: build_model("ResNet18", data.shape, len(data.classes), factory=factory).to(device)
        self.method, self.count = method_of(config), itertools.count()
        self.size = config.batch // self.method.split
        images, labels = data.images[torch.arange(len(data))].to(device), data.labels.to(device)
        soft = torch.softmax(torch.randn(len(data), len(data.classes), device=device), dim=1)
        self.source = ResidentData(images, labels, soft, config.augmentation)
        self.batch = data.floats(range(self.size), device), labels[: self.size], soft[: self.size]

    def autocast(self):
        """Return the context of the eager steps."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def published(self):
        """Return the published step."""
        network = self.network().train()
        network.normalize = nn.Identity()  # the published loop calls it
        published = CatRsStep(network, self.config.sigma, self.method.num_noises, self.method.attack_steps)

        def take():
            with self.autocast():
                published.step(*self.batch)

        return take

    def eager(self):
        """Return a step of the loop in docs/own-network.md."""
        network, (x, y, soft) = self.network().train(), self.batch
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

        def take():
            with self.autocast():
                draws = smoothcert.StepDraws(seed=0, step=next(self.count))
                loss = self.method.step(network, x, y, draws=draws, epoch=0, soft=soft).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return take

    def ours(self, compiled=False):
        """Return the step of `smoothcert.train`, including augmentation."""
        network, kind = self.network().train(), GraphStepper if self.device.type == "cuda" else Stepper
        optimizer = new_optimizer(network, self.config)
        stepper = kind(network, self.method, optimizer, self.source, seed=0, precision=self.precision)
        if compiled:
            stepper.compile(self.size)
        indices = torch.arange(self.size, device=self.device)

        def take():
            stepper.set_position(0, next(self.count), 0.01)
            stepper.take_step((indices,), self.size)

        return take


def measure_steps(steps, compiled, seconds):
    """Print and return the milliseconds per step of each implementation."""
    before = {"eager, as published": steps.published, "eager, method.step": steps.eager}
    after = {"train": steps.ours, **({"train, compiled": lambda: steps.ours(compiled=True)} if compiled else {})}
    on_gpu, spent = steps.device.type == "cuda", {}
    block = 10 if on_gpu else 1

    def take_block(take):
        for _ in range(block):
            take()

    for name, way in (before | after).items():
        started, take = time.perf_counter(), way()
        for _ in range(5 if on_gpu else 1):  # a graph is captured after a few steps
            take()
        warm_up = time.perf_counter() - started
        median, rounds = timed(lambda take=take: take_block(take), seconds, steps.device)
        spent[name] = 1000 * median / block
        print(f"{name:20} {spent[name]:9.2f} ms per step ({rounds * block} steps, {warm_up:.0f} s warm-up)", flush=True)
    for name, other in itertools.product(after, before):
        print(f"{name:16} {spent[other] / spent[name]:6.2f}x as fast as {other}", flush=True)
    return spent


def train_and_certify(factory, config, data, test, device, args):
    """Train with `smoothcert.train`, certify some test images, and print and return the numbers."""
    figures, fields = {}, ("sigma", "batch", "label_samples", "augmentation", "learning_rate")
    with tempfile.TemporaryDirectory() as folder:
        started, rows = time.perf_counter(), list[dict]()
        trained = smoothcert.train(
            factory, data, test_data=test, method="catrs", epochs=args.epochs, precision=args.precision, device=device,
            compile=args.compile or None, runs=folder, on_metrics=lambda metrics: rows.append({**metrics}),
            **{field: getattr(config, field) for field in fields},
        )  # fmt: skip
        figures["training seconds, teacher and soft labels included"] = time.perf_counter() - started
        figures["accuracy under noise, per epoch"] = [row["test_accuracy"] for row in rows]
        started = time.perf_counter()
        smoothed = smoothcert.SmoothedClassifier(trained.model.to(device), config.sigma)
        records = smoothcert.certify_dataset(smoothed, test, n=args.n, indices=range(args.certify))
        figures["certification seconds"] = time.perf_counter() - started
        figures["certified images"] = len(records)
        figures["ACR"] = smoothcert.metrics.average_certified_radius(records)
    for name, value in figures.items():
        print(f"{name}: {value if not isinstance(value, float) else round(value, 3)}", flush=True)
    return figures


def main():
    parser = make_parser(__doc__, seconds=3.0)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=10_000, help="training images (default: the first 10,000)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256, help="images per mini-batch, cut into 4 steps")
    parser.add_argument("--label-samples", type=int, default=64, help="noise samples per image for the soft labels")
    parser.add_argument("--certify", type=int, default=100, help="test images to certify")
    parser.add_argument("--n", type=int, default=1000, help="noise samples per certified image")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true", help="also measure compiled steps, and train with them")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage; use fewer on a CPU")
    args = parser.parse_args()
    device = choose_device(args.device)
    about = print_header(device, args.precision)
    data, test = (smoothcert.load_dataset(args.data, split) for split in ("train", "test"))
    data, test = data[: args.images], test[: max(args.certify, args.images // 10)]

    def resnet18(num_classes, input_shape):
        return ResNet18(num_classes, channels=input_shape[0], width=args.width)

    config = smoothcert.TrainConfig(
        method="catrs", sigma=0.25, batch=args.batch, label_samples=args.label_samples,
        augmentation="crop-flip", learning_rate=0.05,
    )  # fmt: skip
    steps = measure_steps(Steps(resnet18, config, data, device, args.precision), args.compile, args.seconds)
    figures = train_and_certify(resnet18, config, data, test, device, args)
    write_json(args.json, {"about": about, "ms per step": steps, **figures})


if __name__ == "__main__":
    main()
