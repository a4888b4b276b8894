"""The output of `--dry-run` for commands that count votes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.certificate_options import choose_rule, largest_radius, most_samples
from smoothcert.cli.command_inputs import select_images
from smoothcert.cli.progress import duration

if TYPE_CHECKING:
    import torch

    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


def describe_run(
    args: argparse.Namespace,
    classifier: SmoothedClassifier,
    parts: Sequence[tuple[ImageData, list[int], Path]],
    device: torch.device,
) -> str:
    """Return the settings, the number of samples and a time estimate from a short trial, as text or JSON."""
    data, indices, _ = parts[0]
    samples_per_image = args.n + args.n0
    rules = [choose_rule(args, data.name, len(select_images(args, data))) for data, _, _ in parts]
    samples = sum(
        most_samples(rule, len(rows), samples_per_image) for rule, (_, rows, _) in zip(rules, parts, strict=True)
    )
    micro_batch = classifier.micro_batch_for(data.shape, device)
    image = data.floats(indices[:1], device)[0]
    classifier.counts(image, micro_batch)
    started = time.perf_counter()
    classifier.counts(image, 4 * micro_batch)
    speed = 4 * micro_batch / (time.perf_counter() - started)
    protocol: dict[str, Any] = {"n": args.n, "alpha": args.alpha}
    if args.task == "certify":
        largest = largest_radius(rules[0], args.n, args.alpha, classifier.noise)
        protocol = {"n0": args.n0, **protocol, "largest radius": largest}
        protocol |= {"noise": classifier.noise.name, "stop": args.stop}
    plan = {
        "task": args.task,
        "data": ", ".join(f"{data.name} {data.split}" for data, _, _ in parts),
        "images": sum(len(rows) for _, rows, _ in parts),
        "sigma": classifier.sigma,
        **protocol,
        "seed": args.seed,
        "precision": classifier.precision,
        "form": classifier.form,
        "micro-batch": micro_batch,
        "device": str(device),
        "samples": samples,
        "samples per second": round(speed),
        "time": duration(samples / speed),
        "out": ", ".join(str(out) for _, _, out in parts),
    }
    if args.json:
        return json.dumps(plan, indent=2)
    return "\n".join(
        f"{key:19} {value:,}" if isinstance(value, int) else f"{key:19} {value}" for key, value in plan.items()
    )
