"""Measure noise samples per second in certification: smoothcert against the published loop, in the same run.

    python benchmarks/certify.py [--device cuda] [--networks lenet cifar_resnet20] [--seconds 3] [--json FILE]

The plain loop certifies like the published code (`published.py`): one image at a time, float32, eager, batches of 1,000
noisy copies (ResNet-50: 400, on a CPU 16), predictions copied to the host and counted there.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from published import certify_counts, published_lenet

import smoothcert
from smoothcert.runtime.environment import choose_device, describe_environment

SHAPES = {
    "lenet": (1, 28, 28),
    "cifar_resnet20": (3, 32, 32),
    "cifar_resnet110": (3, 32, 32),
    "resnet50": (3, 224, 224),
}
SIGMA = 0.25
CPU_FORMS = ("plain fp32", "folded fp32")
GPU_FORMS = ("plain fp32", "folded fp32", "folded bf16", "compiled bf16")


def speed(count, samples, seconds):
    """Call `count(samples)` until the time is up; return the median samples per second and the number of calls."""
    count(samples)
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates) < 3:
        started = time.perf_counter()
        count(samples)
        rates.append(samples / (time.perf_counter() - started))
    return statistics.median(rates), len(rates)


def measure(name, device, seconds):
    torch.manual_seed(0)
    model = smoothcert.create_model(name).to(device).eval()
    # Published networks use PyTorch's default memory layout, and separate layers in LeNet.
    plain = smoothcert.create_model(name).to(device).eval().to(memory_format=torch.contiguous_format)
    plain = published_lenet(plain) if name == "lenet" else plain
    image = torch.rand(SHAPES[name], device=device)
    on_cpu = device.type == "cpu"
    batch = 1000 if name != "resnet50" else 16 if on_cpu else 400
    samples = batch * (1 if on_cpu else 10 if name == "resnet50" else 40)
    published, repeats = speed(lambda n: certify_counts(plain, image, SIGMA, n, batch), samples, seconds)
    row = {"network": name, "plain loop": published, "repeats": repeats}
    for label in CPU_FORMS if on_cpu else GPU_FORMS:
        form, precision = label.split()
        smoothed = smoothcert.SmoothedClassifier(model, SIGMA, model.num_classes, form=form, precision=precision)
        micro_batch = smoothed.micro_batch_for(image.shape, device)
        ours = micro_batch * max(1, samples // micro_batch)
        row[label], row["repeats"] = speed(lambda n, s=smoothed: s.counts(image, n), ours, seconds)
    if not on_cpu:  # the last form is the one that large jobs use
        torch.cuda.reset_peak_memory_stats()
        smoothed.counts(image, 100_100)
        row["memory"] = torch.cuda.max_memory_allocated()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--networks", nargs="+", default=list(SHAPES))
    parser.add_argument("--seconds", type=float, default=3.0, help="time spent on each measurement")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    device = choose_device(args.device)
    about = describe_environment(device)
    print(f"{about['device']}, {about['threads']} threads, torch {about['versions']['torch']}, {about['started']}")
    rows = []
    for name in args.networks:
        row = measure(name, device, args.seconds)
        rows.append(row)
        ours = {key: value for key, value in row.items() if key in CPU_FORMS + GPU_FORMS}
        text = ", ".join(f"{key} {value:,.0f} ({value / row['plain loop']:.2f}x)" for key, value in ours.items())
        text += f", {row['memory'] / 2**30:.2f} GiB" if "memory" in row else ""
        print(f"{name:16} samples/s: plain loop {row['plain loop']:,.0f}, {text}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
