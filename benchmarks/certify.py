"""Measure noise samples per second in certification: smoothcert against the published loop, in the same run.

    python benchmarks/certify.py [--device cuda] [--networks lenet cifar_resnet20] [--seconds 3] [--json FILE]

The plain loop certifies like the published code (`published.py`): one image at a time, float32, eager, batches of 1,000
noisy copies (ResNet-50: 400, on a CPU 16), predictions copied to the host and counted there.
"""

import torch
from measuring import make_parser, print_header, speed, write_json
from published import as_published, certify_counts

import smoothcert
from smoothcert.runtime.environment import choose_device

SHAPES = {
    "lenet": (1, 28, 28),
    "cifar_resnet20": (3, 32, 32),
    "cifar_resnet110": (3, 32, 32),
    "resnet50": (3, 224, 224),
}
SIGMA = 0.25
CPU_FORMS = ("plain fp32", "folded fp32")
GPU_FORMS = ("plain fp32", "folded fp32", "folded bf16", "compiled bf16")


def measure(name, device, seconds):
    torch.manual_seed(0)
    model = smoothcert.create_model(name).to(device).eval()
    plain = as_published(smoothcert.create_model(name).to(device).eval())
    image = torch.rand(SHAPES[name], device=device)
    on_cpu = device.type == "cpu"
    batch = 1000 if name != "resnet50" else 16 if on_cpu else 400
    samples = batch * (1 if on_cpu else 10 if name == "resnet50" else 40)
    published, repeats = speed(lambda n: certify_counts(plain, image, SIGMA, n, batch), samples, seconds, device)
    row = {"network": name, "plain loop": published, "repeats": repeats}
    for label in CPU_FORMS if on_cpu else GPU_FORMS:
        form, precision = label.split()
        smoothed = smoothcert.SmoothedClassifier(model, SIGMA, model.num_classes, form=form, precision=precision)
        micro_batch = smoothed.micro_batch_for(image.shape, device)
        ours = micro_batch * max(1, samples // micro_batch)
        row[label], row["repeats"] = speed(lambda n, s=smoothed: s.counts(image, n), ours, seconds, device)
    if not on_cpu:  # the last form is the one that large jobs use
        torch.cuda.reset_peak_memory_stats()
        smoothed.counts(image, 100_100)
        row["memory"] = torch.cuda.max_memory_allocated()
    return row


def main():
    parser = make_parser(__doc__, seconds=3.0)
    parser.add_argument("--networks", nargs="+", default=list(SHAPES))
    args = parser.parse_args()
    device = choose_device(args.device)
    about = print_header(device, f"{torch.get_num_threads()} threads")
    rows = []
    for name in args.networks:
        row = measure(name, device, args.seconds)
        rows.append(row)
        ours = {key: value for key, value in row.items() if key in CPU_FORMS + GPU_FORMS}
        text = ", ".join(f"{key} {value:,.0f} ({value / row['plain loop']:.2f}x)" for key, value in ours.items())
        text += f", {row['memory'] / 2**30:.2f} GiB" if "memory" in row else ""
        print(f"{name:16} samples/s: plain loop {row['plain loop']:,.0f}, {text}", flush=True)
    write_json(args.json, {"about": about, "rows": rows})


if __name__ == "__main__":
    main()
