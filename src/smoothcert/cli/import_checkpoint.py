"""The command `smoothcert import`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.common_options import add_data_dir, add_force, check_may_write
from smoothcert.cli.progress import say
from smoothcert.errors import UsageError

_CHECKED_IMAGES = 200


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "import",
        help="convert a published checkpoint to safetensors",
        description="Convert a .pth.tar checkpoint to a .safetensors file, which also stores the input normalization.",
    )
    text = "checkpoint in the format of the published code of Cohen et al., SmoothAdv, MACER or CAT-RS (.pth.tar)"
    parser.add_argument("checkpoint", type=Path, metavar="FILE", help=text)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".safetensors file to write")
    parser.add_argument(
        "--normalization", metavar="NAME", help="input normalization (see `smoothcert list normalizations`)"
    )
    parser.add_argument("--architecture", metavar="NAME", help="fail unless the checkpoint has this architecture")
    add_force(parser)
    group = parser.add_argument_group("facts to record in the file")
    group.add_argument("--dataset", metavar="NAME", help="training dataset")
    group.add_argument("--sigma", type=float, help="noise level used in training")
    group.add_argument("--method", metavar="NAME", help="training method")
    group = parser.add_argument_group("check")
    text = f"measure the accuracy on {_CHECKED_IMAGES} test images of --dataset, under noise of level --sigma"
    group.add_argument("--check", action="store_true", help=text)
    add_data_dir(group)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Convert the checkpoint; with `--check`, measure its accuracy first."""
    from smoothcert.checkpoints.checkpoint import load_checkpoint, save_checkpoint
    from smoothcert.dataset_names import canonical_name

    if args.out.suffix != ".safetensors":
        raise UsageError(f"Expected `--out` to end in .safetensors, but got {args.out}.")
    check_may_write(args)
    checkpoint = load_checkpoint(args.checkpoint, architecture=args.architecture, normalization=args.normalization)
    dataset = canonical_name(args.dataset) if args.dataset else None
    if args.check:
        if dataset is None:
            raise UsageError("`--check` requires `--dataset`.")
        _check_accuracy(checkpoint.model, dataset, args.sigma or 0.0, args.data_dir)
    given = {"dataset": dataset, "sigma": args.sigma, "method": args.method}
    about = {**checkpoint.about, **{key: value for key, value in given.items() if value is not None}}
    save_checkpoint(args.out, checkpoint.model, **about)
    say(f"Wrote {args.out}: {checkpoint.model.architecture}, {checkpoint.model.num_classes} classes")


def _check_accuracy(model: Any, dataset: str, sigma: float, data_dir: str | None) -> None:
    """Print the accuracy under noise; warn if it is close to chance, as it is with a wrong normalization."""
    import torch

    from smoothcert.data import load_dataset
    from smoothcert.philox import Purpose, normal

    data = load_dataset(dataset, "test", data_dir)
    chosen = torch.arange(0, len(data), max(1, len(data) // _CHECKED_IMAGES))[:_CHECKED_IMAGES]
    images = data.floats(chosen)
    noise = normal(0, (chosen, 0, Purpose.PREDICT), images[0].numel()).view_as(images)
    with torch.no_grad():
        correct = model.eval()(images + sigma * noise).argmax(dim=1) == data.labels[chosen]
    accuracy = 100 * float(correct.double().mean())
    say(f"Accuracy on {len(chosen)} images of {dataset} under noise with sigma {sigma:g}: {accuracy:.1f}%")
    if accuracy < 200 / len(data.classes):
        say("This is close to chance; check `--normalization`.")
