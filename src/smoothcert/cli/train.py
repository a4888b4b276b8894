"""The command `smoothcert train`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_run_options
from smoothcert.cli.progress import duration, say
from smoothcert.cli.stages import Stages
from smoothcert.errors import UsageError, counted
from smoothcert.training.config import TrainConfig, make_config, to_toml
from smoothcert.training.known_methods import known_methods, option_type
from smoothcert.training.settings import GROUPS

if TYPE_CHECKING:
    import torch

_SHORT_FLAGS = {"learning_rate": ["--lr"]}


def add_command(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        help="train a base classifier",
        description="Train from recipes, from flags, or from both. Flags override recipes, and the defaults below "
        "apply to all other settings. Run the same command again to resume an interrupted run.",
    )
    parser.add_argument(
        "recipe", nargs="*", metavar="RECIPE", help="recipe name (see `smoothcert list recipes`) or TOML file"
    )
    parser.add_argument(
        "--recipe",
        dest="recipe_flag",
        action="append",
        metavar="RECIPE",
        help="same as the argument RECIPE; can be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the configuration and a time estimate, and exit")
    parser.add_argument(
        "--json", action="store_true", help="print the final metrics as JSON; test_accuracy is measured on noisy images"
    )
    group = parser.add_argument_group("execution")
    add_run_options(group)
    text = "compile training steps (default: only for long runs on a GPU)"
    group.add_argument("--compile", action=argparse.BooleanOptionalAction, help=text)
    text = "processes that decode the images of folders (default: the available CPU cores, at most 16)"
    group.add_argument("--workers", type=int, metavar="N", help=text)
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    for title, names in GROUPS.items():
        group = parser.add_argument_group(title)
        for name in names:
            default = fields[name].default
            _add_flag(group, name, type(default), fields[name].metadata["help"] + _describe_default(default))
    _add_method_flags(parser)
    parser.set_defaults(run=run)


def _describe_default(default: Any) -> str:
    if default is None or default == "":  # the help describes it in words
        return ""
    return f" (default: {('off', 'on')[default] if isinstance(default, bool) else default})"


def _add_method_flags(parser: argparse.ArgumentParser) -> None:
    """Add a group of flags per method, and one for flags that several methods share."""
    owners: dict[str, list[str]] = {}  # per option: the methods that have it
    methods = known_methods()
    for method, known in methods.items():
        for name in known.options:
            owners.setdefault(name, []).append(method)
    groups: dict[str, Any] = {}
    for name, names in sorted(owners.items(), key=lambda item: len(item[1]) == 1):
        helps = {method: methods[method].options[name]["help"] for method in names}
        default = methods[names[0]].options[name]["default"]
        if len(names) == 1:
            title, text = f"method {names[0]}", helps[names[0]] + _describe_default(default)
        else:
            title, text = "options of several methods", _shared_help(helps)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_flag(groups[title], name, option_type(default), text)


def _shared_help(helps: Mapping[str, str]) -> str:
    """Return the help of an option that several methods share, as `METHOD, METHOD: text; METHOD: text`."""
    meanings: dict[str, list[str]] = {}
    for method, text in helps.items():
        meanings.setdefault(text, []).append(method)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in meanings.items())


def _add_flag(group: Any, name: str, kind: type, help: str) -> None:
    flags, text = ["--" + name.replace("_", "-"), *_SHORT_FLAGS.get(name, [])], help.replace("%", "%%")
    if kind is bool:
        group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        metavar = {int: "N", float: "X"}.get(kind, "NAME")
        group.add_argument(*flags, type=kind, metavar=metavar, help=text)


def resolve(args: argparse.Namespace) -> list[TrainConfig]:
    """Return the configuration of each recipe with the flags applied, or of the flags alone if there is no recipe."""
    from smoothcert.training.compute import method_of
    from smoothcert.training.recipes import load_recipe

    given = {name: value for name, value in vars(args).items() if value is not None}
    fields = {name for names in GROUPS.values() for name in names}
    options = {name for method in known_methods().values() for name in method.options}
    overrides: dict[str, Any] = {name: value for name, value in given.items() if name in fields}
    overrides["options"] = {name: value for name, value in given.items() if name in options}
    names = args.recipe + (args.recipe_flag or [])
    if not names and overrides == {"options": {}}:
        raise UsageError("Expected a recipe (see `smoothcert list recipes`) or flags such as `--dataset`.")
    configs = [load_recipe(name, **overrides) for name in names]
    configs = configs or [make_config({}, "the command line", **overrides)]
    if len({config.name for config in configs}) < len(configs):
        raise UsageError("Expected runs with different names; list each recipe once, and omit `--name`.")
    for config in configs:
        method_of(config)  # raises if options of the method are wrong
    return configs


def run(args: argparse.Namespace) -> None:
    """Train all runs, including the teachers and soft labels they need."""
    from smoothcert.distributed.ranks import join
    from smoothcert.runtime.environment import choose_device
    from smoothcert.training.compute import different_fields
    from smoothcert.training.run_folder import RunFolder
    from smoothcert.training.runs import join_ranks, train_runs

    if args.workers is not None and args.workers < 0:
        raise UsageError(f"Expected `--workers` to be at least 0, but got {args.workers}.")
    if args.dry_run:
        _print_estimates(resolve(args), args, choose_device(args.device))
        return
    join()  # before anything can fail, so that users see an error only once
    configs, device = resolve(args), choose_device(args.device)
    ranks = join_ranks(configs, args.runs, device)
    folders = [RunFolder(args.runs / config.name) for config in configs]
    for folder, config in zip(folders, configs, strict=True):
        before = folder.read_config() if folder.finished else None
        if before is not None and not different_fields(before, config):
            say(f"{folder.path} is already finished.")
    options = {"data_dir": args.data_dir, "device": device, "compile": args.compile, "workers": args.workers}
    with Stages() as stages:
        train_runs(configs, args.runs, on_stage=stages.begin, time_limit=args.time_limit, **options)
    if not ranks.first:
        return
    for folder in folders:
        say(f"Model: {folder.model}")
    metrics = [(folder.read_metrics() or [{}])[-1] for folder in folders]
    if args.json:
        _print_json([{"run": config.name, **last} for config, last in zip(configs, metrics, strict=True)])
        return
    for last in metrics:
        print(", ".join(f"{k} {v:.4g}" for k, v in last.items()))


def _print_json(values: Sequence[Any]) -> None:
    """Print one value as an object, several as a list."""
    print(json.dumps(values[0] if len(values) == 1 else values))


def _print_estimates(configs: Sequence[TrainConfig], args: argparse.Namespace, device: torch.device) -> None:
    from smoothcert.paper.timing import estimate_labels, estimate_steps
    from smoothcert.training.compute import with_defaults

    lines = []
    for config in map(with_defaults, configs):
        if not args.json:
            print(to_toml(config))
        steps, seconds = estimate_steps(config, args.data_dir, device, args.compile)
        teacher, labels = estimate_labels(config, args.data_dir, device, args.runs, args.compile)
        parts = {"training": steps * seconds, "teacher": teacher, "labels": labels}
        lines.append({"config": dataclasses.asdict(config), "device": str(device), "steps": steps, **parts})
        text = f"{counted(steps, 'step')} of {duration(seconds)} take {duration(steps * seconds)} on {device}"
        if labels:
            text += f"; first, the teacher takes {duration(teacher)} and the soft labels {duration(labels)}"
        say(text)
    if args.json:
        _print_json(lines)
