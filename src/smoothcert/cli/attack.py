"""`smoothcert attack`: empirical robustness beside the certificate."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_data_options, add_sample_options, batch_size
from smoothcert.cli.corrupted import add_corruption_options
from smoothcert.cli.parser import Several
from smoothcert.cli.progress import ProgressBar, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smoothcert.certification.attack import Trial
    from smoothcert.cli.job import Job
    from smoothcert.data import ImageData
    from smoothcert.results.records import Results

_TOO_UNLIKELY = 1e-3


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "attack",
        help="attack a smoothed classifier within its certificates",
        description="Attack the smoothed classifier by projected gradient ascent (SmoothAdv) on images that were "
        "certified, and set what survives beside the certified accuracy. A certificate that breaks is said loudly; "
        "more of them than alpha allows is an error.",
    )
    parser.add_argument("checkpoint", nargs="?", metavar="RUN", help="the run folder or checkpoint that was certified")
    parser.add_argument("--pretrained", metavar="NAME", help="a network of ours")
    parser.add_argument("--certificates", type=Path, metavar="FILE", help="its results (default: those in RUN)")
    add_data_options(parser, default="the one the checkpoint was trained on")
    add_corruption_options(parser)
    group = parser.add_argument_group("protocol")
    group.add_argument("--radii", type=float, action=Several, metavar="R ...", help="l2 (default: 0.25 0.5 1)")
    group.add_argument("--steps", type=int, default=20, help="steps of the attack (default: 20)")
    group.add_argument("--noises", type=int, default=32, help="noises a gradient is averaged over (default: 32)")
    group.add_argument("--n", type=int, default=1000, help="votes on what it found (default: 1,000)")
    group.add_argument("--alpha", type=float, default=0.001, help="of the vote (default: 0.001)")
    add_sample_options(group)
    group = parser.add_argument_group("execution and output")
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    group.add_argument("--batch", type=batch_size, metavar="B", help="noisy images in memory at once, or auto")
    group.add_argument("--normalization", help="of a published checkpoint: none, cifar10, cifar10-center, ...")
    group.add_argument("--out", type=Path, metavar="FILE", help="a row for every attack, as TSV")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run, sigma=None)


def run(args: argparse.Namespace) -> None:
    """Attack, write every trial, and print the summary; fail where too many certificates broke."""
    from smoothcert.certification.attack import COLUMNS, attack_dataset, surprise
    from smoothcert.cli.job import load_job
    from smoothcert.errors import SmoothcertError, UsageError
    from smoothcert.results.reader import read_results
    from smoothcert.runtime.atomic_files import check_replaceable, write_text
    from smoothcert.statistics import bounds

    args.radii = args.radii or [0.25, 0.5, 1.0]
    if not all(0 < radius < math.inf for radius in args.radii) or min(args.steps, args.noises, args.n) < 1:
        raise UsageError("Expected `--radii` to be numbers > 0, and `--steps`, `--noises` and `--n` to be at least 1.")
    bounds.check_prediction(args.n, args.alpha)
    if args.out:
        check_replaceable(args.out)
    job = load_job(args)
    data, chosen = job.only(args)
    certificates = read_results(_certificates(args))
    settings = _checked(certificates, job, data)
    known = set(certificates.idx.tolist())
    indices = [index for index in chosen if index in known]
    if not indices:
        raise UsageError(f"{certificates.name} has no certificate of the images that were asked for.")
    options = {"n": args.n, "alpha": args.alpha, "steps": args.steps, "num_noises": args.noises, "seed": args.seed}
    with ProgressBar("attack", len(indices), "images") as bar:
        options |= {"batch": args.batch, "on_progress": _watch(bar)}
        trials = attack_dataset(_classifier(settings, job), data, certificates, indices, args.radii, **options)
    if args.out:
        write_text(args.out, "\t".join(COLUMNS) + "\n" + "".join(trial.row() for trial in trials))
        say(f"Attacks: {args.out}")
    _print_summary(trials, args, settings["alpha"])
    count, broken, tail = surprise(trials, max(args.alpha, settings["alpha"]))
    if tail < _TOO_UNLIKELY:
        raise SmoothcertError(
            f"{broken} of {count} certificates broke, which has a probability of {tail:.1e} at most if they hold; "
            "something is wrong with the network, its precision or the certificates."
        )


def _certificates(args: argparse.Namespace) -> Path:
    from smoothcert.errors import UsageError
    from smoothcert.results.naming import certificates_in

    if args.certificates:
        return Path(args.certificates)
    folder = Path(args.checkpoint or Path("runs", args.pretrained))
    found = certificates_in(folder)
    if len(found) != 1:
        raise UsageError(f"{folder} holds {len(found)} results of `certify`; name one with `--certificates`.")
    return found[0]


def _checked(certificates: Results, job: Job, data: ImageData) -> dict[str, Any]:
    """Return how the certificates were made, or refuse what they do not speak of."""
    from smoothcert.errors import UsageError

    settings: dict[str, Any] = dict(certificates.about.get("settings", {}))
    if settings.get("task") != "certify":
        raise UsageError(f"{certificates.name} has no sidecar of a certification beside it.")
    if settings["model"].get("sha256") != job.checkpoint.sha256:
        raise UsageError(f"{certificates.name} is about another network; name this one's with `--certificates`.")
    if settings["data"]["sha256"] != data.fingerprint:
        raise UsageError(f"{certificates.name} is about other images; name those with `--data` and `--split`.")
    if settings.get("norm", "l2") != "l2" or settings.get("top_k", 1) > 1:
        raise UsageError(f"{certificates.name} holds no l2 certificates of one class.")
    return settings


def _classifier(settings: dict[str, Any], job: Job) -> Any:
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.statistics.noise import noise_of

    model, keys = job.checkpoint.model, ("precision", "form", "micro_batch")
    if settings["device"] != job.device.type:
        say(f"The certificates were made on another kind of device ({settings['device']}): another function, nearly.")
    return SmoothedClassifier(
        model,
        settings["sigma"],
        model.num_classes,
        noise=noise_of(settings),
        **{key: settings[key] for key in keys},
    )


def _watch(bar: ProgressBar) -> Any:
    def watch(done: int, trials: Sequence[Trial]) -> None:
        bar.update(done, "")
        for trial in trials:
            if trial.broken:
                say(
                    f"BROKEN: image {trial.idx}, certified as {trial.certified} within {trial.radius:.4f}, "
                    f"is {trial.answer} at a distance of {trial.length:.4f}."
                )

    return watch


def _print_summary(trials: Sequence[Trial], args: argparse.Namespace, alpha: float) -> None:
    from smoothcert.certification.attack import accuracies, surprise

    count, broken, _ = surprise(trials, max(args.alpha, alpha))
    rows = [(radius, *accuracies(trials, radius)) for radius in sorted(set(args.radii))]
    if args.json:
        shares = [{"radius": r, "certified_accuracy": 100 * c, "accuracy_under_attack": 100 * e} for r, c, e in rows]
        print(json.dumps({"radii": shares, "certificates": count, "broken": broken}, indent=2))
        return
    print("radius  certified  under attack")
    for radius, certified, empirical in rows:
        print(f"{radius:6.2f}  {100 * certified:8.1f}%  {100 * empirical:11.1f}%")
    print(f"certificates attacked within their own radius: {count}, broken: {broken}")
