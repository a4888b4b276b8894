"""The choices of `smoothcert certify` beyond CERTIFY as published: when to stop, which noise, which bound."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.cli.common_options import seconds
from smoothcert.cli.parser import Several
from smoothcert.cli.progress import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smoothcert.statistics.noise import Noise
    from smoothcert.statistics.stopping import StopRule

RULES = ("fixed", "table", "radius", "budget")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them; without any, the protocol is the published one."""
    group = parser.add_argument_group("stopping, all with the same guarantee")
    group.add_argument(
        "--stop",
        choices=RULES,
        default="fixed",
        help="fixed: --n samples an image (default); table: until no radius of the table is undecided; radius: until "
        "--radius is decided; budget: --budget in all, where it buys most",
    )
    group.add_argument(
        "--grid", type=float, action=Several, metavar="R ...", help="radii of the table (default: paper's)"
    )
    group.add_argument("--radius", type=float, metavar="R", help="the radius to decide")
    group.add_argument("--confidence", choices=("union", "betting"), help="of --stop radius (default: union)")
    group.add_argument(
        "--budget", metavar="B", help="for all images of a data set: samples (5e8) or time (90s, 9m, 1.5h)"
    )
    group.add_argument(
        "--skip-wrong", action="store_true", help="do not sample images whose selected class is wrong: for tables only"
    )
    group = parser.add_argument_group("kind of certificate")
    group.add_argument("--noise", default="gaussian", help="gaussian, for l2 (default), or uniform, for l1")
    group.add_argument("--sound", action="store_true", help="exact integer noise: holds for 8-bit images in floats too")
    group.add_argument("--bound", default="one-sided", help="one-sided (default), randomised or two-sided")


def check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything large is read."""
    from smoothcert.errors import UsageError, unknown_name
    from smoothcert.statistics.certify import BOUNDS
    from smoothcert.statistics.noise import make_noise

    make_noise(args.noise, 1.0)
    if args.bound not in BOUNDS:
        raise unknown_name("bound", args.bound, BOUNDS)
    if args.sound and args.noise != "gaussian":
        raise UsageError("`--sound` has a noise of its own, on the grid of 8-bit images; leave `--noise` away.")
    if args.sound and args.form == "compiled":
        raise UsageError("`--sound` needs the same kernels every time, and `--form compiled` times them; try `pinned`.")
    owners = {"grid": ("table", "budget"), "radius": ("radius",), "confidence": ("radius",), "budget": ("budget",)}
    for option, rules in owners.items():
        if getattr(args, option) is not None and args.stop not in rules:
            raise UsageError(f"`--{option}` goes with `--stop {' or '.join(rules)}`, not with `--stop {args.stop}`.")
    for option in ("radius", "budget"):
        if args.stop == option and getattr(args, option) is None:
            raise UsageError(f"`--stop {option}` needs `--{option}`.")
    if args.stop == "fixed" and args.skip_wrong:
        raise UsageError("`--skip-wrong` goes with `--stop table, radius or budget`; `fixed` is for comparison.")
    if args.stop != "fixed" and args.bound != "one-sided":
        raise UsageError("Stop with the one-sided bound, and read the votes anew with `smoothcert recertify --bound`.")
    if args.stop != "fixed":
        choose_rule(args, None, 1)


def choose_rule(args: argparse.Namespace, dataset: str | None, images: int) -> StopRule | None:
    """Return the rule that the options ask for, if any; `images` are those of a data set in all shards."""
    from smoothcert.statistics.metrics import radius_grid
    from smoothcert.statistics.stopping import BudgetStop, RadiusStop, TableStop

    if args.task != "certify" or args.stop == "fixed":
        return None
    if args.stop == "radius":
        return RadiusStop(args.skip_wrong, args.radius)
    radii = tuple(args.grid if args.grid is not None else radius_grid(dataset))
    if args.stop == "table":
        return TableStop(args.skip_wrong, radii)
    return BudgetStop(args.skip_wrong, radii, budget(args.budget)[0] or 0, images, args.shard)


def most_samples(rule: StopRule | None, images: int, each: int) -> int:
    """Return how many samples so many images take at most: `each`, unless a budget says less."""
    from smoothcert.statistics.stopping import BudgetStop

    if isinstance(rule, BudgetStop):
        return min(images * each, rule.samples * images // (rule.images or images))
    return images * each


def most_seconds(rules: Sequence[StopRule | None]) -> float:
    """Return the time that the rules allow for all data sets, endless without budgets of time."""
    return math.inf


def largest_radius(rule: StopRule | None, n: int, alpha: float, noise: Noise) -> float:
    """Return the radius that n votes out of n prove, rounded down to four digits."""
    from smoothcert.statistics.look_plan import fixed_plan

    plan = rule.plan(n, alpha) if rule else fixed_plan(n, alpha)
    radius = max(float(noise.radius(plan.failure(look, number))) for number, look in enumerate(plan.looks))
    return math.floor(radius * 1e4) / 1e4


def budget(text: str) -> tuple[int | None, float | None]:
    """Read a plain number as samples, and one with a unit as seconds.

    >>> budget("5e8"), budget("9m")
    ((500000000, None), (None, 540.0))
    """
    from smoothcert.errors import UsageError

    try:
        if text[-1:] in ("s", "m", "h"):
            return None, seconds(text)
        samples = int(float(text))
        if samples != float(text):
            raise ValueError(text)
        return samples, None
    except (ValueError, OverflowError, argparse.ArgumentTypeError):
        raise UsageError(f"Expected `--budget` as samples (5e8) or time (90s, 9m, 1.5h), but got {text!r}.") from None


def choose_noise(args: argparse.Namespace, sigma: float, dimensions: int) -> Noise:
    """Return the noise that the options ask for."""
    from smoothcert.statistics.integer_noise import grid_noise
    from smoothcert.statistics.noise import make_noise

    return grid_noise(sigma, dimensions) if args.sound else make_noise(args.noise, sigma)


def name_parts(args: argparse.Namespace) -> Sequence[str]:
    """Return what the name of a results file says of these choices: nothing, where it is the published protocol."""
    if args.task != "certify":
        return []
    rule = {"fixed": "", "radius": f"radius{args.radius}", "budget": f"budget{args.budget}"}.get(args.stop, args.stop)
    bound = "" if args.bound == "one-sided" else args.bound
    noise = "sound" if args.sound else "" if args.noise == "gaussian" else args.noise
    return [part for part in (rule, "skip-wrong" if args.skip_wrong else "", noise, bound) if part]


def say_samples(out: Path, fixed: int) -> None:
    """Say what a sequential run saved against the samples that `--stop fixed` takes."""
    from smoothcert.results.reader import read_results, sidecar_path

    images = len(read_results(out))
    drawn = json.loads(sidecar_path(out).read_text())["samples"]
    if drawn:
        each = drawn / images
        say(f"{each:,.0f} samples an image; fixed takes {fixed:,}, {fixed / each:.1f} times as many.")
    else:
        say("The budget was too small to select the class of any image: nothing was sampled.")
