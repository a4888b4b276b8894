"""Measure passes of attacks on CIFAR ResNets: one CUDA kernel for a stage against one Triton kernel per layer.

    python benchmarks/attack_pass.py [--images 256] [--layers 37] [--together 1 3] [--steps cifar_resnet110]

Each pass is replayed as a graph, on its own stream if several run together; times are divided by the number of passes.
The other tiles are for tuning: `smoothcert.kernels.resident_attack.SHAPES` has those in use. At the end, whole CAT-RS
steps of the given networks are measured both ways. Needs a CUDA device of the Hopper generation.
"""

import argparse
import statistics
import time

import torch
from train_step import measure

from smoothcert.kernels import resident_attack
from smoothcert.kernels.training_layers import folded_gradient, folded_layers
from smoothcert.runtime.environment import choose_device, describe_environment

OTHER_SHAPES = {
    16: ({"warps": 4, "lines": 16, "resident": 3, "ahead": 5}, {"warps": 8, "lines": 8, "resident": 3, "ahead": 1}),
    32: ({"warps": 8, "lines": 4, "resident": 2}, {"warps": 2, "lines": 16, "resident": 5}),
    64: (
        {"warps": 4, "tiles": 2, "ahead": 5},
        {"warps": 8, "tiles": 2, "lines": 4, "resident": 1},
        {"images": 4, "warps": 4, "tiles": 2, "ahead": 5},
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256, help="images per pass")
    parser.add_argument("--layers", type=int, default=37, help="layers per stage")
    parser.add_argument("--together", type=int, nargs="+", default=[1, 3], help="numbers of passes at once")
    parser.add_argument("--steps", nargs="*", default=["cifar_resnet110"], help="networks for whole CAT-RS steps")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each measurement")
    args = parser.parse_args()
    device = choose_device("cuda")
    about = describe_environment(device)
    print(f"{about['device']}, torch {about['versions']['torch']}, bf16, {about['started']}", flush=True)
    for channels, shape in resident_attack.SHAPES.items():
        given = some_layers(channels, shape.side, args.images, args.layers, device)
        candidates = {"layers": layered(*given), "stage": resident(shape, *given)}
        for changes in OTHER_SHAPES[channels]:
            candidates[f"stage, {changes}"] = resident(shape._replace(**changes), *given)
        for together in args.together:
            for name, passes in candidates.items():
                times = [milliseconds(work, together, args.seconds / 2) for work in passes]
                forward, gradient = (f"{time:.3f} ms" for time in times)
                print(f"{channels} channels, {together}: forward {forward}, gradient {gradient}, {name}", flush=True)
    resident_attack._usable = None
    if not resident_attack.attack_kernels(device):  # it has warned
        return
    for network in args.steps:
        for together in args.together:
            for usable, name in ((False, "layers"), (True, "stage")):
                resident_attack._usable = usable
                time, _, _ = measure("catrs", network, device, "bf16", args.seconds, together)
                print(f"{network}, {together} together: CAT-RS step {time:.2f} ms, attack by {name}", flush=True)


def some_layers(channels, side, images, layers, device):
    """Return images, shortcut, weights and biases, and a gradient of the output."""
    torch.manual_seed(0)
    shape = images, side, side, channels
    x, shortcut, gradient = (torch.randn(shape, device=device).bfloat16() for _ in range(3))
    weights = torch.randn(layers, channels, 3, 3, channels, device=device) / (9 * channels) ** 0.5
    return x, shortcut, weights.bfloat16(), torch.zeros(layers, channels, device=device), gradient


def layered(x, shortcut, weights, biases, gradient):
    """Return functions for the pass and its gradient, layer by layer."""
    out, left = folded_layers(x, shortcut, weights, biases, True)
    return (
        lambda: folded_layers(x, shortcut, weights, biases, True),
        lambda: folded_gradient(gradient, x, out, left, weights, True, False),
    )


def resident(shape, x, shortcut, weights, biases, gradient):
    """Return functions for the pass and its gradient, with a whole stage in shared memory."""
    out, kept = resident_attack.run_layers(x, shortcut, weights, biases, shape)

    def backward():
        masked = torch.ops.aten.threshold_backward(gradient, out, 0)
        return resident_attack.run_gradient(masked, kept, weights, shape)

    return lambda: resident_attack.run_layers(x, shortcut, weights, biases, shape), backward


def milliseconds(work, together, seconds):
    """Return the median milliseconds per call of a function that is replayed as a graph on several streams."""
    streams, graphs = [torch.cuda.Stream() for _ in range(together)], []
    work()
    for stream in streams:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], stream=stream):
            work()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(20):
            for stream, graph in zip(streams, graphs, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - started) / (20 * together))
    return statistics.median(times)


if __name__ == "__main__":
    main()
