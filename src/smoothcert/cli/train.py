"""`smoothcert train`: recipes, with a flag for every field."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.common_options import add_data_dir, seconds
from smoothcert.cli.progress import duration, say
from smoothcert.cli.stages import Stages
from smoothcert.errors import UsageError
from smoothcert.training.config import TrainConfig, describe, make_config, to_toml

if TYPE_CHECKING:
    import torch

    from smoothcert.paper.timing import TrainingCost


def add_commands(commands: Any, arguments: Sequence[str]) -> None:
    """Add the command; the methods' own flags only when it is the one that is called, since they need torch."""
    train = commands.add_parser(
        "train",
        help="train a network to be smoothed",
        description="Train by a recipe, or from the flags alone. An interrupted run goes on when called again.",
    )
    train.add_argument("recipe", nargs="*", help="recipes (see `smoothcert list recipes`) or TOML files")
    train.add_argument("--recipe", dest="recipe_flag", action="append", metavar="NAME", help="the same, as a flag")
    train.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (default: runs)"
    )
    train.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    train.add_argument("--time-limit", type=seconds, metavar="TIME", help="save and stop after this time, such as 9m")
    train.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, help="compile steps (default: on a GPU, for long runs)"
    )
    train.add_argument(
        "--workers", type=int, metavar="N", help="processes that decode image folders (default: the cores' share)"
    )
    train.add_argument("--dry-run", action="store_true", help="print the configuration and an estimate of the cost")
    train.add_argument("--plan", action="store_true", help="print what a model of the cost says for 1, 8 and 64 GPUs")
    train.add_argument("--json", action="store_true", help="print the last metrics as JSON")
    add_data_dir(train)
    group = train.add_argument_group("the run")
    for field in dataclasses.fields(TrainConfig):
        if field.name != "options":
            _add_flag(
                group,
                field.name,
                type(field.default),
                f"{field.metadata['help']} (default: the recipe's, or {field.default!r})",
            )
    if "train" in arguments:
        group = train.add_argument_group("the method's options (default: the recipe's, or the method's own)")
        for name, (kind, texts) in _method_options().items():
            words = "; ".join(f"{', '.join(methods)}: {text}" for text, methods in texts.items())
            _add_flag(group, name, kind, words, prefix="option_")
    train.set_defaults(run=run)


def _method_options() -> dict[str, tuple[type, dict[str, list[str]]]]:
    """Return every option's type and, for each meaning it has, the methods where it has it."""
    from smoothcert.methods import METHODS

    found: dict[str, tuple[type, dict[str, list[str]]]] = {}
    for method in METHODS.values():
        for field in dataclasses.fields(method):
            if field.name != "sigma":
                kind = int if field.default is None else type(field.default)
                texts = found.setdefault(field.name, (kind, {}))[1]
                texts.setdefault(field.metadata.get("help", "its own option"), []).append(method.name)
    return found


def _add_flag(group: Any, name: str, kind: type, help: str, prefix: str = "field_") -> None:
    flag, text = "--" + name.replace("_", "-"), help.replace("%", "%%")
    if kind is bool:
        group.add_argument(flag, dest=prefix + name, action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        group.add_argument(flag, dest=prefix + name, type=kind, metavar=kind.__name__.upper(), help=text)


def _given(args: argparse.Namespace, prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in vars(args).items() if k.startswith(prefix) and v is not None}


def resolve(args: argparse.Namespace) -> list[TrainConfig]:
    """Return the configurations that recipes and flags make together."""
    from smoothcert.training.compute import method_of
    from smoothcert.training.recipes import load_recipe

    overrides = {**_given(args, "field_"), "options": _given(args, "option_")}
    names = args.recipe + (args.recipe_flag or [])
    if not names and overrides == {"options": {}}:
        raise UsageError("Name a recipe (see `smoothcert list recipes`), or say what to train by flags.")
    configs = [load_recipe(name, **overrides) for name in names]
    configs = configs or [make_config({}, "the command line", **overrides)]
    if len({config.name for config in configs}) < len(configs):
        raise UsageError("Several runs need different names, and so different recipes.")
    for config in configs:
        method_of(config)  # which checks its options
    return configs


def run(args: argparse.Namespace) -> None:
    """Train, after whatever the runs need first."""
    from smoothcert.distributed.ranks import join
    from smoothcert.runtime.environment import choose_device, facts
    from smoothcert.training.run_folder import RunFolder
    from smoothcert.training.runs import train_runs

    if args.workers is not None and args.workers < 0:
        raise UsageError(f"Expected `--workers` to be at least 0, but got {args.workers}.")
    if args.plan:
        _print_plan(resolve(args), as_json=args.json)
        return
    if args.dry_run:
        _print_estimates(resolve(args), args, choose_device(args.device))
        return
    ranks = join()
    configs, device = resolve(args), choose_device(args.device)
    settings = {name: value for config in configs for name, value in describe(config).items()}
    ranks.require_same_on_all_ranks({**facts(device), **settings})
    ranks.require_shared_folder(args.runs)
    folders = [RunFolder(args.runs / config.name) for config in configs]
    for folder, config in zip(folders, configs, strict=True):
        if folder.finished and folder.read_config() == config:
            say(f"{folder.path} is finished.")
    options = {"data_dir": args.data_dir, "device": device, "compile": args.compile, "workers": args.workers}
    with Stages() as stages:
        train_runs(configs, args.runs, on_stage=stages.begin, time_limit=args.time_limit, **options)
    if not ranks.first:
        return
    for folder in folders:
        say(f"Network: {folder.model}")
    metrics = [(folder.read_metrics() or [{}])[-1] for folder in folders]
    if args.json:
        _print_json([{"run": config.name, **last} for config, last in zip(configs, metrics, strict=True)])
        return
    for last in metrics:
        print(", ".join(f"{k} {v:.4g}" for k, v in last.items()))


def _print_json(values: Sequence[Any]) -> None:
    """Print one JSON object, or a list where there are several."""
    print(json.dumps(values[0] if len(values) == 1 else values))


def _print_plan(configs: Sequence[TrainConfig], *, as_json: bool) -> None:
    """Print time and memory of runs on H200s that share every mini-batch, as docs/scaling.md explains them."""
    from smoothcert.paper.gpu_cost_model import GPUS, IMAGES, RATES, run_cost

    lines = []
    for config in configs:
        if config.dataset not in IMAGES or config.architecture not in RATES:
            raise UsageError(f"{config.name}: `--plan` knows the paper's data sets and networks; try `--dry-run`.")
        for gpus in GPUS:
            cost = run_cost(config, gpus, skip=100 if config.dataset == "imagenet" else 1)  # as the paper's tables
            parts = {key: round(getattr(cost, key)) for key in ("training", "labels", "certification")}
            lines.append({"run": config.name, "gpus": gpus, **parts, "memory": round(cost.memory / 2**30, 2)})
    if as_json:
        print(json.dumps(lines, indent=2))
        return
    for line in lines:
        times = ", ".join(
            f"{key} {duration(line[key])}" for key in ("training", "labels", "certification") if line[key]
        )
        print(f"{line['run']:32} {line['gpus']:3} GPUs: {times}; {line['memory']:.1f} GiB each")


def _print_estimates(configs: Sequence[TrainConfig], args: argparse.Namespace, device: torch.device) -> None:
    """Print each configuration in full; time a few steps on copies of the real thing, and say what it would take."""
    from smoothcert.paper.timing import estimate_training

    lines = []
    for config in configs:
        if not args.json:
            print(to_toml(config))
        cost = estimate_training(config, args.data_dir, device, runs=args.runs, compile=args.compile)
        parts = {"training": cost.training, "teacher": cost.teacher, "labels": cost.labels}
        lines.append({"config": dataclasses.asdict(config), "device": str(device), "steps": cost.steps, **parts})
        say(_describe_cost(cost, device))
    if args.json:
        _print_json(lines)


def _describe_cost(cost: TrainingCost, device: torch.device) -> str:
    text = f"{cost.steps:,} steps of {1000 * cost.seconds_per_step:.3g} ms: {duration(cost.training)} on {device}"
    if cost.labels:
        text += f"; before that its teacher ({duration(cost.teacher)}) and soft labels ({duration(cost.labels)})"
    return text
