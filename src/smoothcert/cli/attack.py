"""The command `smoothcert attack`."""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.command_inputs import CommandInputs, load_inputs, select_images
from smoothcert.cli.common_options import add_batch, add_device, add_input_options, add_sample_options
from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import ProgressBar, say
from smoothcert.errors import SmoothcertError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smoothcert.certification.attack import Trial
    from smoothcert.data import ImageData
    from smoothcert.results.records import Results

_TOO_UNLIKELY = 1e-3  # the command fails if the p-value of the number of broken certificates is below this


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "attack",
        help="attack a smoothed classifier within its certified radii",
        description="Attack the smoothed classifier on certified images by projected gradient ascent (SmoothAdv), "
        "and compare the accuracy under attack with the certified accuracy. Every broken certificate is reported; "
        "the command fails if more are broken than the failure probability alpha explains.",
    )
    add_input_options(parser)
    parser.add_argument(
        "--certificates", type=Path, metavar="FILE", help="results file from `certify` (default: the only one in RUN)"
    )
    group = parser.add_argument_group("protocol")
    add_several(group, "--radii", type=float, metavar="R", help="l2 radii of the attack (default: 0.25 0.5 1)")
    group.add_argument("--steps", type=int, default=20, metavar="N", help="steps of the attack (default: 20)")
    group.add_argument(
        "--noises", dest="num_noises", type=int, default=32, metavar="N", help="noise samples per step (default: 32)"
    )
    group.add_argument("--n", type=int, default=1000, metavar="N", help="votes per attacked image (default: 1,000)")
    group.add_argument("--alpha", type=float, default=0.001, help="failure probability per prediction (default: 0.001)")
    add_sample_options(group)
    group = parser.add_argument_group("execution and output")
    add_device(group)
    add_batch(group)
    group.add_argument("--out", type=Path, metavar="FILE", help="TSV file to write, with one row per attack")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run, sigma=None)


def run(args: argparse.Namespace) -> None:
    """Attack images, write every trial, print a summary, and raise if too many certificates were broken."""
    from smoothcert.certification.attack import COLUMNS, attack_dataset, surprise
    from smoothcert.results.reader import read_results
    from smoothcert.runtime.atomic_files import check_replaceable, write_text
    from smoothcert.statistics import bounds

    args.radii = args.radii or [0.25, 0.5, 1.0]
    for radius in args.radii:
        if not 0 < radius < math.inf:
            raise UsageError(f"Expected `--radii` to be finite and > 0, but got {radius}.")
    for name in ("steps", "num_noises"):
        bounds.check_count(name, getattr(args, name))
    bounds.check_prediction(args.n, args.alpha)
    if args.out:
        check_replaceable(args.out)
    inputs = load_inputs(args)
    if len(inputs.datasets) > 1:
        raise UsageError(
            f"Expected one corruption of {args.data}, but {len(inputs.datasets)} are selected; "
            "choose one with `--corruption`."
        )
    data = inputs.datasets[0]
    certificates = read_results(_find_certificates(args))
    settings = _check_settings(certificates, inputs, data)
    known = set(certificates.idx.tolist())
    indices = [index for index in select_images(args, data, args.shard) if index in known]
    if not indices:
        raise UsageError(
            f"{certificates.name} has no certificates for the selected images; select others with `--skip`, `--max` or "
            "`--shard`."
        )
    options = {"n": args.n, "alpha": args.alpha, "steps": args.steps, "num_noises": args.num_noises, "seed": args.seed}
    with ProgressBar("attack", len(indices), "images") as bar:
        options |= {"batch": args.batch, "on_progress": partial(_show_progress, bar)}
        trials = attack_dataset(_make_classifier(settings, inputs), data, certificates, indices, args.radii, **options)
    if args.out:
        write_text(args.out, "\t".join(COLUMNS) + "\n" + "".join(trial.row() for trial in trials))
        say(f"Attacks: {args.out}")
    count, broken, tail = surprise(trials, max(args.alpha, settings["alpha"]))
    _print_summary(trials, args, count, broken)
    if tail < _TOO_UNLIKELY:
        raise SmoothcertError(
            f"{broken} of {count} certificates were broken. If errors were as rare as alpha promises, the probability "
            f"of at least as many would be at most {tail:.1e}. Check the model, its precision and the certificates."
        )


def _find_certificates(args: argparse.Namespace) -> Path:
    from smoothcert.results.naming import certificates_in

    if args.certificates:
        return Path(args.certificates)
    if args.ensemble:
        raise UsageError("With `--ensemble`, name the results file with `--certificates`.")
    folder = Path(args.checkpoint or Path("runs", args.pretrained))
    files = certificates_in(folder)
    if len(files) != 1:
        raise UsageError(
            f"{folder} contains {len(files)} results files from `certify`; name one with `--certificates`."
        )
    return files[0]


def _check_settings(certificates: Results, inputs: CommandInputs, data: ImageData) -> dict[str, Any]:
    """Return the settings of the certificates; raise if they are for another model, other images or another norm."""
    settings: dict[str, Any] = dict(certificates.about.get("settings", {}))
    if settings.get("task") != "certify":
        raise UsageError(
            f"{certificates.name} has no sidecar from `certify` beside it; put the sidecar there, or name another file "
            "with `--certificates`."
        )
    if settings["model"].get("sha256") != inputs.checkpoint.sha256:
        raise UsageError(
            f"{certificates.name} was made with a different network; set `--certificates` to another file."
        )
    if settings["data"]["sha256"] != data.fingerprint:
        raise UsageError(f"{certificates.name} covers different images; set `--data` and `--split`.")
    if settings.get("norm", "l2") != "l2" or settings.get("top_k", 1) > 1:
        raise UsageError(
            "Expected `--certificates` to name a results file with l2 radii for the top class, but "
            f"{certificates.name} has radii in another norm or for the top k classes."
        )
    return settings


def _make_classifier(settings: dict[str, Any], inputs: CommandInputs) -> Any:
    from smoothcert.statistics.noise import noise_of

    device = inputs.device.type
    if settings["device"] != device:
        say(f"The certificates were made on {settings['device']}; on {device}, rounding differs slightly.")
    deployment = {key: settings[key] for key in ("precision", "form", "micro_batch")}
    return inputs.classifier(settings["sigma"], noise=noise_of(settings), **deployment)


def _show_progress(bar: ProgressBar, done: int, trials: Sequence[Trial]) -> None:
    bar.update(done)
    for trial in trials:
        if trial.broken:
            say(
                f"BROKEN: image {trial.idx}, certified as class {trial.certified} within {trial.radius:.4f}, "
                f"is predicted as class {trial.answer} at distance {trial.length:.4f}."
            )


def _print_summary(trials: Sequence[Trial], args: argparse.Namespace, count: int, broken: int) -> None:
    from smoothcert.certification.attack import accuracies

    rows = [(radius, *accuracies(trials, radius)) for radius in sorted(set(args.radii))]
    if args.json:
        shares = [{"radius": r, "certified_accuracy": 100 * c, "accuracy_under_attack": 100 * e} for r, c, e in rows]
        print(json.dumps({"radii": shares, "certificates": count, "broken": broken}, indent=2))
        return
    print("radius  certified  under attack")
    for radius, certified, empirical in rows:
        print(f"{radius:6.2f}  {100 * certified:8.1f}%  {100 * empirical:11.1f}%")
    print(f"certificates attacked within their own radius: {count}, broken: {broken}")
