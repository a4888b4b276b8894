"""Baseline of the benchmarks: training and certification as published, written from the published description.

Eager, float32, one training step at a time, one image at a time, votes counted on the host.

    python benchmarks/published.py certify [--data mnist] [--skip 100] [--n 100000] [--device cuda]
    python benchmarks/published.py train [--data mnist] [--epochs 1] [--device cuda]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def certify_counts(model, image, sigma, n, batch):
    """Count the votes of n noisy copies of one image."""
    counts = [0] * model.num_classes
    with torch.no_grad():
        while n > 0:
            size = min(batch, n)
            n -= size
            copies = image.repeat(size, 1, 1, 1)
            noisy = copies + torch.randn_like(copies) * sigma
            for prediction in model.network(model.normalize(noisy)).argmax(1).cpu().numpy():
                counts[prediction] += 1
    return counts


class CatRsStep:
    """One SGD step of CAT-RS with M noise samples and T attack steps."""

    def __init__(self, model, sigma, noises=4, steps=4, radius=1.0, weight=1.0, learning_rate=0.01):
        self.model, self.sigma, self.noises, self.steps = model, sigma, noises, steps
        self.radius, self.weight = radius, weight
        self.optimizer = torch.optim.SGD(model.parameters(), learning_rate, momentum=0.9, weight_decay=1e-4)

    def scores(self, x, noise):
        """Return the scores of every image under every noise sample, computed in one batch."""
        return self.model.network(self.model.normalize(torch.cat([x + part for part in noise]))).chunk(self.noises)

    def attack(self, x, noise, soft):
        """Move each noise sample to increase the divergence from the soft label, within a ball, keeping its moments."""
        self.model.eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        shape = (-1,) + (1,) * (x.dim() - 1)
        start = torch.cat(noise)
        mean = start.flatten(1).mean(1).view(shape)
        size = start.flatten(1).square().mean(1).sqrt().view(shape)
        moved = start.clone()
        for _ in range(self.steps):
            moved.requires_grad_(True)
            scores = torch.cat(self.scores(x, moved.chunk(self.noises)))
            loss = F.kl_div(scores.log_softmax(1), soft.repeat(self.noises, 1), reduction="sum") / self.noises
            (uphill,) = torch.autograd.grad(loss, moved)
            with torch.no_grad():
                uphill = uphill / (uphill.flatten(1).norm(dim=1).view(shape) + 1e-8)
                moved = moved + 2 * self.radius / self.steps * uphill
                moved = start + (moved - start).renorm(2, 0, self.radius)
                now = moved.flatten(1)
                moved = mean + size * (moved - now.mean(1).view(shape)) / now.square().mean(1).sqrt().view(shape)
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
        self.model.train()
        return moved.chunk(self.noises)

    def step(self, x, y, soft):
        """Take one step; return its loss and the number of correct predictions, which the published loop logs."""
        noise = [torch.randn_like(x) * self.sigma for _ in range(self.noises)]
        scores = self.scores(x, noise)
        right = torch.stack([(part.argmax(1) == y).float() for part in scores]).mean(0)
        worst = self.scores(x, self.attack(x, noise, soft))
        losses = torch.stack([nn.functional.cross_entropy(part, y, reduction="none") for part in scores], dim=1)
        kept = torch.distributions.Binomial(self.noises, right).sample().clamp(min=1)
        ordered = losses.sort(dim=1).values
        low = (ordered * (torch.arange(self.noises, device=x.device) < kept.unsqueeze(1))).sum(1) / self.noises
        high = (
            torch.stack([F.kl_div(part.log_softmax(1), soft, reduction="none").sum(1) for part in worst]).max(0).values
        )
        loss = (low + self.weight * (kept == self.noises) * high).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), sum((part.argmax(1) == y).sum().item() for part in worst)


def as_published(model):
    """Return a network as published: PyTorch's default memory layout and, in a LeNet, separate layers."""
    model = model.to(memory_format=torch.contiguous_format)
    if model.architecture == "lenet":
        net = model.network
        pooled = (net.conv1, nn.ReLU(), nn.MaxPool2d(2), net.conv2, nn.ReLU(), nn.MaxPool2d(2))
        model.network = nn.Sequential(*pooled, nn.Flatten(), net.fc1, nn.ReLU(), net.fc2)
    return model


def main():
    import smoothcert

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["certify", "train"])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--skip", type=int, default=100)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.task == "certify":
        model = as_published(smoothcert.load_pretrained("mnist-catrs-0.50").model.to(args.device))
        data = smoothcert.load_dataset(args.data, "test")
        for index in range(0, len(data), args.skip):
            image = data.floats([index], args.device)[0]
            certify_counts(model, image, 0.5, 100, 1000)
            print(index, max(certify_counts(model, image, 0.5, args.n, 1000)))
        return
    data = smoothcert.load_dataset(args.data, "train")
    soft = torch.softmax(torch.randn(len(data), 10), dim=1)
    step = CatRsStep(as_published(smoothcert.create_model("lenet")).to(args.device).train(), 0.5)
    for _ in range(args.epochs):
        for chosen in torch.randperm(len(data)).split(64):
            x, y = data.floats(chosen, args.device), data.labels[chosen].to(args.device)
            loss, right = step.step(x, y, soft[chosen].to(args.device))
        print(loss, right)


if __name__ == "__main__":
    main()
