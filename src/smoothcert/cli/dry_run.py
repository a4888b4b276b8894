"""What `--dry-run` says of `smoothcert certify` and `smoothcert predict`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli import stopping
from smoothcert.cli.corrupted import choose_rows
from smoothcert.cli.progress import duration

if TYPE_CHECKING:
    import torch

    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


def describe_job(
    args: argparse.Namespace,
    classifier: SmoothedClassifier,
    parts: Sequence[tuple[ImageData, list[int], Path]],
    device: torch.device,
) -> str:
    """Say what would be done: the settings, the number of samples, and what a short trial says of the time."""
    data, indices, _ = parts[0]
    images = sum(len(rows) for _, rows, _ in parts)
    each = args.n + (args.n0 if args.task == "certify" else 0)
    rules = [stopping.choose_rule(args, data.name, len(choose_rows(args, data))) for data, _, _ in parts]
    samples = sum(stopping.most_samples(rule, len(rows), each) for rule, (_, rows, _) in zip(rules, parts, strict=True))
    micro_batch = classifier.micro_batch_for(data.shape, device)
    classifier.counts(data.floats(indices[:1], device)[0], micro_batch)
    started = time.perf_counter()
    classifier.counts(data.floats(indices[:1], device)[0], 4 * micro_batch)
    speed = 4 * micro_batch / (time.perf_counter() - started)
    protocol: dict[str, Any] = {"n": args.n, "alpha": args.alpha}
    if args.task == "certify":
        largest = stopping.largest_radius(rules[0], args.n, args.alpha, classifier.noise)
        protocol = {"n0": args.n0, **protocol, "largest radius": largest}
        protocol |= {"noise": classifier.noise.name, "stop": args.stop}
    plan = {
        "task": args.task,
        "data": ", ".join(f"{data.name} {data.split}" for data, _, _ in parts),
        "images": images,
        "sigma": classifier.sigma,
        **protocol,
        "seed": args.seed,
        "precision": classifier.precision,
        "form": classifier.form,
        "micro-batch": micro_batch,
        "device": str(device),
        "samples": samples,
        "samples a second": round(speed),
        "time": duration(min(samples / speed, stopping.most_seconds(rules))),
        "out": ", ".join(str(out) for _, _, out in parts),
    }
    if args.json:
        return json.dumps(plan, indent=2)
    return "\n".join(
        f"{key:17} {value:,}" if isinstance(value, int) else f"{key:17} {value}" for key, value in plan.items()
    )
