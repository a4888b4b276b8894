"""Options of `smoothcert certify` that select a stopping rule, a type of noise, or a bound on the class probability."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.parser import add_several
from smoothcert.cli.progress import say
from smoothcert.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from smoothcert.statistics.noise import Noise
    from smoothcert.statistics.stopping import StopRule


def add_certificate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; their defaults select the algorithm of Cohen, Rosenfeld and Kolter (2019)."""
    group = parser.add_argument_group("stopping rule (all have the same guarantee)")
    group.add_argument(
        "--stop",
        choices=("fixed", "table", "radius", "budget"),
        default="fixed",
        help="fixed: draw --n noise samples per image (default); table: stop drawing for an image once it is clear, "
        "for every radius of the results table, whether the image is certified at this radius; radius: the same for "
        "--radius only; budget: draw --budget samples in total, on the most uncertain images",
    )
    text = "with --stop table or budget: radii of the results table (default: the CAT-RS paper's)"
    add_several(group, "--grid", dest="radii", type=float, metavar="R", help=text)
    group.add_argument("--radius", type=float, metavar="R", help="with --stop radius: the only radius to test")
    text = "with --stop budget: total number of samples for the dataset, such as 5e8"
    group.add_argument("--budget", dest="samples", metavar="B", help=text)
    text = (
        "stop drawing samples for an image if its selected class is wrong; certified accuracies and ACR stay the same"
    )
    group.add_argument("--skip-wrong", action="store_true", help=text)
    group = parser.add_argument_group("kind of certificate")
    group.add_argument("--noise", default="gaussian", help="gaussian (default), for l2 radii, or uniform, for l1 radii")
    text = "use integer noise, so that certificates of 8-bit images hold despite floating-point rounding"
    group.add_argument("--sound", action="store_true", help=text)
    text = "confidence bound: one-sided (default), randomised or two-sided"
    group.add_argument("--bound", default="one-sided", help=text)


def check_certificate_options(args: argparse.Namespace) -> None:
    """Raise if options contradict each other, before anything large is loaded."""
    from smoothcert.statistics.certify import BOUNDS
    from smoothcert.statistics.noise import make_noise

    make_noise(args.noise, 1.0)
    if args.bound not in BOUNDS:
        raise unknown_name("bound", args.bound, BOUNDS)
    if args.sound and args.noise != "gaussian":
        raise UsageError("`--sound` uses its own integer noise; omit `--noise`.")
    if args.sound and args.form == "compiled":
        raise UsageError(
            "`--sound` does not allow `--form compiled`, which selects kernels by timing; use `--form pinned`."
        )
    rules = {"radii": ("table", "budget"), "radius": ("radius",), "samples": ("budget",)}
    rules["skip_wrong"] = ("table", "radius", "budget")
    for option, names in rules.items():
        if getattr(args, option) not in (None, False) and args.stop not in names:
            stops = " or ".join(f"`--stop {name}`" for name in names)
            raise UsageError(f"`{option}` requires {stops}, but got `--stop {args.stop}`.")
    if (args.stop, args.radius) == ("radius", None) or (args.stop, args.samples) == ("budget", None):
        raise UsageError(f"`--stop {args.stop}` requires `--{args.stop}`.")
    if args.stop == "fixed":
        return
    if args.bound != "one-sided":
        raise UsageError(
            f"`--stop {args.stop}` needs the one-sided bound; omit `--bound`, then recompute the finished results with "
            f"`smoothcert recertify --bound {args.bound}`."
        )
    choose_rule(args, None, 1)


def choose_rule(args: argparse.Namespace, dataset: str | None, images: int) -> StopRule | None:
    """Return the stopping rule, or None for `--stop fixed`; `images` is the number of images in all shards together."""
    from smoothcert.statistics.metrics import radius_grid
    from smoothcert.statistics.stopping import BudgetStop, RadiusStop, TableStop

    if args.stop == "fixed":
        return None
    if args.stop == "radius":
        return RadiusStop(skip_wrong=args.skip_wrong, radius=args.radius)
    radii = tuple(args.radii if args.radii is not None else radius_grid(dataset))
    if args.stop == "table":
        return TableStop(skip_wrong=args.skip_wrong, radii=radii)
    samples = _read_budget(args.samples)
    return BudgetStop(skip_wrong=args.skip_wrong, radii=radii, samples=samples, images=images, shard=args.shard)


def _read_budget(text: str) -> int:
    """Parse a number of samples.

    >>> _read_budget("5e8")
    500000000
    """
    try:
        samples = int(float(text))
    except (ValueError, OverflowError):
        samples = 0
    if samples < 1 or samples != float(text):
        raise UsageError(f"Expected `--budget` to be a whole number of samples > 0, such as 5e8, but got {text!r}.")
    return samples


def most_samples(rule: StopRule | None, images: int, samples_per_image: int) -> int:
    """Return the largest number of samples that certifying `images` images can take."""
    from smoothcert.statistics.stopping import BudgetStop

    most = images * samples_per_image
    if isinstance(rule, BudgetStop):
        return min(most, rule.samples * images // (rule.images or images))
    return most


def largest_radius(rule: StopRule | None, n: int, alpha: float, noise: Noise) -> float:
    """Return the radius certified if all n votes agree, rounded down to four decimal places."""
    from smoothcert.statistics.look_plan import fixed_plan

    plan = rule.plan(n, alpha) if rule else fixed_plan(n, alpha)
    radius = max(float(noise.radius(plan.failure(look, number))) for number, look in enumerate(plan.looks))
    return math.floor(radius * 1e4) / 1e4


def choose_noise(args: argparse.Namespace, sigma: float, dimensions: int) -> Noise:
    """Return the noise that the options select."""
    from smoothcert.statistics.integer_noise import grid_noise
    from smoothcert.statistics.noise import make_noise

    return grid_noise(sigma, dimensions) if args.sound else make_noise(args.noise, sigma)


def name_parts(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the parts that these options add to a results file's name; default values add none."""
    rule = {"fixed": "", "radius": f"radius{args.radius}", "budget": f"budget{args.samples}"}.get(args.stop, args.stop)
    bound = "" if args.bound == "one-sided" else args.bound
    noise = "sound" if args.sound else "" if args.noise == "gaussian" else args.noise
    return tuple(part for part in (rule, "skip-wrong" if args.skip_wrong else "", noise, bound) if part)


def report_samples(outs: Collection[Path], fixed: int) -> None:
    """Print the mean number of samples per image in sequential runs, and the number that `--stop fixed` draws."""
    from smoothcert.results.naming import sidecar_path
    from smoothcert.results.reader import read_results
    from smoothcert.results.sidecar import read_sidecar

    drawn = sum(read_sidecar(sidecar_path(out))["samples"] for out in outs)
    if not drawn:
        say("The budget is too small to select the class of any image; no samples were drawn.")
        return
    mean = drawn / sum(len(read_results(out)) for out in outs)
    say(f"{mean:,.0f} samples per image on average; `--stop fixed` draws {fixed:,}, {fixed / mean:.1f} times as many.")
