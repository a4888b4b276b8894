"""`smoothcert import` and `smoothcert export`: published checkpoints in and out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.common_options import add_data_dir
from smoothcert.cli.progress import say


def add_commands(commands: Any) -> None:
    """Add both directions."""
    imported = commands.add_parser(
        "import",
        help="turn a published checkpoint into one of ours",
        description="Read a checkpoint of the published repositories and write it as safetensors with all it needs.",
    )
    imported.add_argument("checkpoint", type=Path)
    imported.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .safetensors file to write")
    imported.add_argument("--normalization", help="what the file cannot tell: none, cifar10, cifar10-center, ...")
    imported.add_argument("--architecture", help="refuse the file unless it holds this network")
    imported.add_argument("--dataset", help="note the data set it was trained on")
    imported.add_argument("--sigma", type=float, help="note the noise level it was trained with")
    imported.add_argument("--method", help="note the training method")
    imported.add_argument("--check", action="store_true", help="measure its accuracy on 200 images of --dataset first")
    add_data_dir(imported)
    imported.set_defaults(run=run_import)
    exported = commands.add_parser(
        "export",
        help="write a checkpoint for the published code",
        description="Write one of our checkpoints in the published repositories' format.",
    )
    exported.add_argument("checkpoint", type=Path)
    exported.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .pth.tar file to write")
    exported.set_defaults(run=run_export)


def run_import(args: argparse.Namespace) -> None:
    """Import, after a look at the accuracy if asked: a wrong normalisation shows there at once."""
    from smoothcert.checkpoints.checkpoint import load_checkpoint, save_checkpoint
    from smoothcert.dataset_names import canonical_name
    from smoothcert.errors import UsageError

    if args.out.suffix != ".safetensors":
        raise UsageError(f"Expected `--out` to end in .safetensors, but got {args.out}.")
    checkpoint = load_checkpoint(args.checkpoint, architecture=args.architecture, normalization=args.normalization)
    dataset = canonical_name(args.dataset) if args.dataset else None
    if args.check:
        if dataset is None:
            raise UsageError("`--check` needs `--dataset`.")
        _check(checkpoint.model, dataset, args.sigma or 0.0, args.data_dir)
    given = {"dataset": dataset, "sigma": args.sigma, "method": args.method}
    about = {**checkpoint.about, **{key: value for key, value in given.items() if value is not None}}
    save_checkpoint(args.out, checkpoint.model, **about)
    say(f"Wrote {args.out}: {checkpoint.model.architecture}, {checkpoint.model.num_classes} classes")


def _check(model: Any, dataset: str, sigma: float, data_dir: str | None) -> None:
    import torch

    from smoothcert.data import load_dataset
    from smoothcert.philox import Purpose, normal

    data = load_dataset(dataset, "test", data_dir)
    chosen = torch.arange(0, len(data), max(1, len(data) // 200))[:200]
    images = data.floats(chosen)
    noise = normal(0, (chosen, 0, Purpose.PREDICT), images[0].numel()).view_as(images)
    with torch.no_grad():
        right = model.eval()(images + sigma * noise).argmax(dim=1) == data.labels[chosen]
    accuracy = 100 * float(right.double().mean())
    say(f"Accuracy on {len(chosen)} images of {dataset} under noise of {sigma:g}: {accuracy:.1f}%")
    if accuracy < 200 / len(data.classes):
        say("That is hardly better than chance: is the normalisation right?")


def run_export(args: argparse.Namespace) -> None:
    """Export."""
    from smoothcert.checkpoints.checkpoint import export_checkpoint, load_checkpoint
    from smoothcert.errors import UsageError

    if args.checkpoint.is_file() and args.checkpoint.suffix != ".safetensors":
        raise UsageError(f"{args.checkpoint} is not one of our checkpoints, which are .safetensors; `import` it first.")
    export_checkpoint(load_checkpoint(args.checkpoint), args.out)
    say(f"Wrote {args.out}")
