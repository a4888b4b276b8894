"""Compare speeds with their targets, as ratios to the reference (`published.py`) in the same run.

    python benchmarks/targets.py [--seconds 3] [--networks lenet cifar_resnet20] [--json FILE]

The script measures milliseconds per CAT-RS step (64 images, 4 noise samples, 4 attack steps), noise samples per second
in certification, and the speed of eight LeNet runs at once. On a GPU, smoothcert runs compiled in bfloat16 (TF32 for
LeNet's steps), the reference eager in float32. On a CPU, only LeNet's certification has a target. Both sides are warmed
up; warm-up, with compilation, is timed separately.
"""

import itertools
import time

import torch
from certify import SHAPES, SIGMA
from measuring import make_parser, print_header, timed, write_json
from published import CatRsStep, as_published, certify_counts
from train_step import make_stepper, random_data

import smoothcert
from smoothcert.methods import create_method
from smoothcert.runtime.environment import choose_device
from smoothcert.training.stepper import new_stream

TARGETS = {
    ("step", "lenet"): 10,
    ("step", "cifar_resnet20"): 8,
    ("step", "cifar_resnet110"): 8,
    ("certify", "lenet"): 10,
    ("certify", "cifar_resnet20"): 10,
    ("certify", "cifar_resnet110"): 10,
    ("certify", "resnet50"): 5,
    ("eight runs", "lenet"): 1.5,
}
CPU_TARGETS = {("certify", "lenet"): 1.5}
BATCHES = {"resnet50": (100, 400)}  # batch sizes of the published loop; the fastest counts
CPU_BATCHES = (64, 256, 400, 1000)


def main():
    parser = make_parser(__doc__, seconds=3.0)
    parser.add_argument("--networks", nargs="+", default=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", default=["step", "certify", "eight runs"])
    args = parser.parse_args()
    device = choose_device(args.device)
    about = print_header(device)
    rows = []
    for (kind, network), target in (CPU_TARGETS if device.type == "cpu" else TARGETS).items():
        if network in args.networks and kind in args.kinds:
            measured = MEASURE[kind](network, device, args.seconds)
            rows.append({"kind": kind, "network": network, "target": target, **measured})
            text = f"{measured['ratio']:6.2f}x of {target}x  {measured['text']}, {measured['warm_up']:.0f} s to warm up"
            print(f"{kind:12} {network:16} {text}", flush=True)
            write_json(args.json, {"about": about, "rows": rows})


def measure_step(network, device, seconds):
    """Compare a published CAT-RS step with ours: compiled, in TF32 for LeNet and bfloat16 for ResNets."""
    data, size = _data(network, device), 64
    published = CatRsStep(as_published(smoothcert.create_model(network).to(device).train()), SIGMA)
    x, y, soft = data.images[:size].float() / 255, data.labels[:size], data.soft[:size]
    for _ in range(3):
        published.step(x, y, soft)
    before, repeats = timed(lambda: published.step(x, y, soft), seconds, device)
    started = time.perf_counter()
    stepper = _stepper(network, device, data)
    counter = itertools.count()
    indices = torch.arange(size, device=device)

    def steps(count):
        for _ in range(count):
            stepper.set_position(0, next(counter), 0.01)
            stepper.take_step((indices,), size)

    steps(6)
    warm_up, block = time.perf_counter() - started, 20 if device.type == "cuda" else 1
    after, rounds = timed(lambda: steps(block), seconds, device)
    after /= block
    text = f"{1000 * before:.2f} -> {1000 * after:.3f} ms ({stepper.precision}, {repeats} and {rounds * block} steps)"
    return {"ratio": before / after, "text": text, "warm_up": warm_up, "published": before, "ours": after}


def measure_certify(network, device, seconds):
    """Compare the published loop, at its best batch size, with ours in the form that large jobs use."""
    image = torch.rand(SHAPES[network], device=device)
    plain, rates = as_published(smoothcert.create_model(network).to(device).eval()), []
    for batch in CPU_BATCHES if device.type == "cpu" else BATCHES.get(network, (400, 1000)):
        samples = batch if device.type == "cpu" else 10 * batch
        certify_counts(plain, image, SIGMA, samples, batch)
        spent, repeats = timed(lambda b=batch, s=samples: certify_counts(plain, image, SIGMA, s, b), seconds, device)
        rates.append(samples / spent)
    started = time.perf_counter()
    model = smoothcert.create_model(network).to(device).eval()
    form, precision = ("compiled", "bf16") if device.type == "cuda" else ("folded", "fp32")
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, model.num_classes, form=form, precision=precision)
    micro_batch = smoothed.micro_batch_for(image.shape, device)
    smoothed.counts(image, 2 * micro_batch)
    warm_up = time.perf_counter() - started
    samples = micro_batch * (1 if device.type == "cpu" else round(100_000 / micro_batch))  # as for one image
    spent, rounds = timed(lambda: smoothed.counts(image, samples), seconds, device)
    before, after = max(rates), samples / spent
    text = f"{before:,.0f} -> {after:,.0f} samples/s ({form} {precision}, {repeats} and {rounds} rounds)"
    return {"ratio": after / before, "text": text, "warm_up": warm_up, "published": before, "ours": after}


def measure_eight(network, device, seconds, runs=8):
    """Compare eight of our runs, each on its own stream, with one of them alone."""
    data, started = _data(network, device), time.perf_counter()
    steppers = [_stepper(network, device, data, seed) for seed in range(runs)]
    streams = [new_stream(device) for _ in steppers]
    indices, counter = torch.arange(64, device=device), itertools.count()

    def steps(members, count):
        for _ in range(count):
            for stepper, stream in members:
                with torch.cuda.stream(stream):
                    stepper.set_position(0, next(counter), 0.01)
                    stepper.take_step((indices,), len(indices))

    lanes = list(zip(steppers, streams, strict=True))
    steps(lanes, 6)
    warm_up, block = time.perf_counter() - started, 20 if device.type == "cuda" else 1
    alone, _ = timed(lambda: steps(lanes[:1], block), seconds, device)
    together, rounds = timed(lambda: steps(lanes, block), seconds, device)
    ratio = runs * alone / together
    text = f"{block / alone:,.0f} -> {runs * block / together:,.0f} steps/s in all ({rounds} rounds)"
    return {"ratio": ratio, "text": text, "warm_up": warm_up, "published": alone / block, "ours": together / block}


MEASURE = {"step": measure_step, "certify": measure_certify, "eight runs": measure_eight}


def _data(network, device):
    return random_data(network, device, "none" if network == "lenet" else "crop-flip")


def _stepper(network, device, data, seed=0):
    on_gpu = device.type == "cuda"
    precision = "fp32" if not on_gpu else "tf32" if network == "lenet" else "bf16"
    stepper = make_stepper(network, create_method("catrs", SIGMA, {}), data, precision, seed)
    if on_gpu:
        stepper.compile(64)
    return stepper


if __name__ == "__main__":
    main()
