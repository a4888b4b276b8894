"""Measure milliseconds per training step for each method and network, with the recipes for sigma 0.5.

    python benchmarks/train_step.py [--device cuda] [--networks lenet cifar_resnet20] [--precision tf32]
        [--together 1 2 4] [--json FILE]

A step includes everything: gathering and augmenting images, noise, attack, loss, backward pass, optimizer. On a CUDA
device it is replayed as a graph. Images are random. `--together` trains several runs at once, each on its own stream;
the time is then divided by the total number of steps of all runs.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import torch

import smoothcert
from smoothcert.methods import METHODS, create_method
from smoothcert.runtime.environment import choose_device, describe_environment
from smoothcert.training.batches import ResidentData
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.stepper import Stepper, new_stream

NETWORKS = {
    "lenet": ("mnist", (1, 28, 28)),
    "cifar_resnet20": ("cifar10", (3, 32, 32)),
    "cifar_resnet110": ("cifar10", (3, 32, 32)),
}


def measure(name, network, device, precision, seconds, together=1):
    """Return the median milliseconds per step, the images per step, and the number of timed steps."""
    group, shape = NETWORKS[network]
    config = smoothcert.load_recipe(f"{group}-{name}-0.50")
    method = create_method(name, config.sigma, config.options)
    torch.manual_seed(0)
    images = torch.randint(256, (4096, *shape), dtype=torch.uint8, device=device)
    labels = torch.randint(10, (4096,), device=device)
    soft = torch.softmax(torch.randn(4096, 10, device=device), dim=1)
    data = ResidentData(images, labels, soft, config.augmentation)
    lanes = [(make_stepper(network, method, data, precision, seed), new_stream(device)) for seed in range(together)]
    size, on_gpu = config.batch // method.split, device.type == "cuda"
    indices = torch.arange(size, device=device)

    def rounds(count, start):
        for step in range(start, start + count):
            for stepper, stream in lanes:
                with torch.cuda.stream(stream):
                    stepper.set_position(20, step, 0.01)
                    stepper.take_step((indices,), size)
        if on_gpu:
            torch.cuda.synchronize()

    step = 5 if on_gpu else 1  # a graph is captured after a few steps
    rounds(step, 0)
    block, fewest = (20, 3) if on_gpu else (1, 1)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < fewest:
        started = time.perf_counter()
        rounds(block, step)
        times.append((time.perf_counter() - started) / (block * together))
        step += block
    return 1000 * statistics.median(times), size, len(times) * block * together


def make_stepper(network, method, data, precision, seed):
    """Return a stepper for a new network; on a CUDA device one that replays graphs."""
    torch.manual_seed(seed)
    device, on_gpu = data.device, data.device.type == "cuda"
    model = smoothcert.create_model(network, in_channels=NETWORKS[network][1][0]).to(device).train()
    rate = torch.tensor(0.01, device=device) if on_gpu else 0.01
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4, fused=on_gpu)
    kind = GraphStepper if on_gpu else Stepper
    return kind(model, method, optimizer, data, seed=seed, precision=precision)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument(
        "--together", nargs="+", type=int, default=[1], help="numbers of runs to train at once (default: 1)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="time spent on each measurement")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    device = choose_device(args.device)
    about = describe_environment(device)
    print(f"{about['device']}, torch {about['versions']['torch']}, {args.precision}, {about['started']}")
    rows = []
    for network, name, together in itertools.product(args.networks, args.methods, args.together):
        milliseconds, images, repeats = measure(name, network, device, args.precision, args.seconds, together)
        row = {"network": network, "method": name, "together": together, "ms": milliseconds, "images": images}
        rows.append({**row, "steps": repeats})
        runs = f", {together} runs together" if together > 1 else ""
        print(f"{network:16} {name:22} {milliseconds:9.3f} ms per step of {images} images{runs}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"about": about, "precision": args.precision, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
