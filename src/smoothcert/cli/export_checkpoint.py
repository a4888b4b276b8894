"""The command `smoothcert export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smoothcert.cli.common_options import add_force, check_may_write
from smoothcert.cli.progress import say
from smoothcert.errors import UsageError


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="convert a checkpoint to .pth.tar, for published code",
        description="Convert a .safetensors checkpoint to a .pth.tar file that the published code of Cohen et al., "
        "SmoothAdv and CAT-RS can load.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="RUN", help="run folder or .safetensors file")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".pth.tar file to write")
    add_force(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Convert the checkpoint."""
    from smoothcert.checkpoints.checkpoint import export_checkpoint, load_checkpoint

    if args.checkpoint.is_file() and args.checkpoint.suffix != ".safetensors":
        raise UsageError(f"{args.checkpoint} is not a .safetensors checkpoint; convert it with `smoothcert import`.")
    check_may_write(args)
    export_checkpoint(load_checkpoint(args.checkpoint), args.out)
    say(f"Wrote {args.out}")
