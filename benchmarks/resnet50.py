"""Measure ResNet-50 at 224x224: training steps per second of each ImageNet recipe, and votes per second.

    python benchmarks/resnet50.py [--device cuda] [--precision bf16] [--batch 256] [--steps 30] [--json FILE]
    torchrun --nproc-per-node 8 benchmarks/resnet50.py       # the mini-batch split over eight GPUs

Images are random and in memory; decode.py measures decoding.
"""

import time

import torch
from measuring import make_parser, speed, write_json

import smoothcert
from smoothcert.distributed.ranks import join, leave
from smoothcert.methods import create_method
from smoothcert.runtime.environment import choose_device, describe_environment
from smoothcert.smoothing.deploy import choose_deployment
from smoothcert.training.batches import ResidentData
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.stepper import Stepper

SHAPE = (3, 224, 224)


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def training(name, ranks, device, args):
    """Return the number of images and the seconds per step."""
    config = smoothcert.load_recipe(name)
    method = create_method(config.method, config.sigma, config.options)
    images = max(ranks.size, (args.batch or config.batch) // method.split)
    part = ranks.share_of(images)
    data = ResidentData(
        torch.randint(256, (part.size, *SHAPE), dtype=torch.uint8, device=device),
        torch.randint(1000, (part.size,), device=device),
        torch.softmax(torch.randn(part.size, 1000, device=device), dim=1),
        "none",
    )
    model = smoothcert.create_model("resnet50").to(device).train()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rate = torch.tensor(0.01, device=device) if on_gpu else 0.01
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4, fused=on_gpu)
    kind = GraphStepper if on_gpu and method.static else Stepper
    stepper = kind(model, method, optimizer, data, seed=0, precision=args.precision, ranks=ranks)
    if args.compile:
        stepper.compile(images)
    inputs = (torch.arange(part.size, device=device),)
    warm = 5 if on_gpu else 1
    for step in range(warm):
        stepper.set_position(20, step, 0.01)
        stepper.take_step(inputs, images)
    wait(device)
    began = time.perf_counter()
    for step in range(args.steps):
        stepper.set_position(20, warm + step, 0.01)
        stepper.take_step(inputs, images)
    wait(device)
    return images, (time.perf_counter() - began) / args.steps


def voting(device, seconds):
    """Return noise samples per second, in the form and precision that certification would choose."""
    model = smoothcert.create_model("resnet50").to(device).eval()
    form, precision = choose_deployment(model, SHAPE, 500 * 100_000)
    smoothed = smoothcert.SmoothedClassifier(model, 1.0, 1000, form=form, precision=precision)
    image = torch.rand(SHAPE, device=device)
    rate, _ = speed(lambda n: smoothed.counts(image, n), 2 * smoothed.micro_batch_for(SHAPE, device), seconds, device)
    return rate, f"{form}, {precision}"


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--batch", type=int, help="images in a mini-batch (default: the recipe's)")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=30, help="timed steps per recipe")
    parser.add_argument("--seconds", type=float, default=10.0, help="time spent on voting")
    parser.add_argument("--recipes", nargs="*", default=smoothcert.list_recipes("imagenet-*"))
    args = parser.parse_args()
    ranks, device = join(), choose_device(args.device)
    ranks.connect(device)
    about, rows = describe_environment(device), []
    for name in args.recipes:
        images, seconds = training(name, ranks, device, args)
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        rows.append({"recipe": name, "images": images, "seconds": seconds, "gibibytes": memory})
        if ranks.first:
            print(f"{name:28} {images:4} images per step: {1 / seconds:.3g} steps/s, {memory:.1f} GiB", flush=True)
    rate, form = voting(device, args.seconds)
    if ranks.first:
        print(f"certification ({form}): {rate:,.0f} noise samples/s in each of {ranks.size} processes")
        write_json(args.json, {**about, "steps": rows, "votes": rate, "form": form})
    leave()


if __name__ == "__main__":
    main()
