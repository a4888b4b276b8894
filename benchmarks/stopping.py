"""Measure time and noise samples of sequential and sound certification on a real network, in one run.

    python benchmarks/stopping.py [--device cuda] [--pretrained mnist-catrs-0.50] [--data mnist] [--skip 20]

Targets: the speedup of `--stop table` is at least 80 % of the factor by which it reduces the samples, and sound
certification takes less than 1.5 times as long as ordinary certification. (With `--form compiled`, sound certification
uses `pinned`.)
"""

import time

from measuring import make_parser, print_header, write_json

import smoothcert
from smoothcert.certification.dataset import certify_sequentially
from smoothcert.runtime.environment import choose_device
from smoothcert.statistics.integer_noise import grid_noise
from smoothcert.statistics.metrics import radius_grid
from smoothcert.statistics.stopping import TableStop


def timed(certify, **options):
    """Return the seconds and the noise samples of a run."""
    started = time.perf_counter()
    records = certify(**options)
    samples = sum(sum(record.selection) + sum(record.estimation) for record in records)
    return time.perf_counter() - started, samples


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--pretrained", default="mnist-catrs-0.50")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--precision", help="default: bf16 on a GPU, otherwise fp32")
    parser.add_argument("--form", default="folded", help="with `compiled`, the sound run uses `pinned`")
    parser.add_argument("--micro-batch", type=int, help="noisy inputs per forward pass")
    args = parser.parse_args()
    device = choose_device(args.device)
    checkpoint = smoothcert.load_pretrained(args.pretrained)
    model, sigma = checkpoint.model.to(device), checkpoint.about["sigma"]
    data = smoothcert.load_dataset(args.data, "test")
    precision = args.precision or ("bf16" if device.type == "cuda" else "fp32")
    common = {"model": model, "sigma": sigma, "num_classes": model.num_classes}
    common |= {"precision": precision, "micro_batch": args.micro_batch}
    ordinary = smoothcert.SmoothedClassifier(**common, form=args.form)
    form = "pinned" if args.form == "compiled" else args.form
    noise = grid_noise(sigma, data.shape.numel())
    sound = smoothcert.SmoothedClassifier(**common, form=form, noise=noise)
    for classifier in (ordinary, sound):
        classifier.certify(data.floats([0], device), n=10_000)
    options = {"data": data, "n": args.n, "indices": smoothcert.select(len(data), args.skip)}
    about = print_header(device, precision, f"{len(options['indices'])} images")
    seconds, samples = timed(smoothcert.certify_dataset, classifier=ordinary, **options)
    rows = [{"mode": "fixed", "seconds": seconds, "samples": samples}]
    print(f"{'fixed':20} {samples:15,} samples {seconds:8.2f} s", flush=True)
    for skip_wrong in (False, True):
        rule = TableStop(skip_wrong=skip_wrong, radii=tuple(radius_grid(data.name)))
        mode = "table" + (", skip-wrong" if skip_wrong else "")
        took, drawn = timed(certify_sequentially, classifier=ordinary, rule=rule, **options)
        saving, faster = samples / drawn, seconds / took
        rows.append({"mode": mode, "seconds": took, "samples": drawn, "saving": saving, "faster": faster})
        print(f"{mode:20} {drawn:15,} samples {took:8.2f} s: {saving:.2f}x fewer, {faster:.2f}x faster", flush=True)
        print(f"{'':20} {100 * faster / saving:.0f} % of the saving (at least 80 %)")
    took, _ = timed(smoothcert.certify_dataset, classifier=sound, **options)
    rows.append({"mode": "sound", "seconds": took, "samples": samples, "cost": took / seconds})
    print(f"{'sound':20} {samples:15,} samples {took:8.2f} s: {took / seconds:.2f}x the ordinary time (below 1.5x)")
    write_json(args.json, {"about": about, "rows": rows})


if __name__ == "__main__":
    main()
