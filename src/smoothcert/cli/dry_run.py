"""The output of `--dry-run` for commands that count votes."""

from __future__ import annotations

import argparse
import json
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
    from smoothcert.paper.timing import seconds_per_vote

    data, _, _ = parts[0]
    rules = [choose_rule(args, data.name, len(select_images(args, data))) for data, _, _ in parts]
    samples = sum(
        most_samples(rule, len(rows), args.n + args.n0) for rule, (_, rows, _) in zip(rules, parts, strict=True)
    )
    seconds = seconds_per_vote(classifier, data, device)
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
        "micro-batch": classifier.micro_batch_for(data.shape, device),
        "device": str(device),
        "samples": samples,
        "samples per second": round(1 / seconds),
        "time": duration(samples * seconds),
        "out": ", ".join(str(out) for _, _, out in parts),
    }
    if args.json:
        return json.dumps(plan, indent=2)
    return "\n".join(
        f"{key:19} {value:,}" if isinstance(value, int) else f"{key:19} {value}" for key, value in plan.items()
    )
