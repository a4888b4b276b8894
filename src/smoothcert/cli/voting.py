"""Options and steps shared by the commands that count votes: `certify`, `predict` and `compare-precision`."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.certificate_options import choose_noise, name_parts
from smoothcert.cli.command_inputs import CommandInputs, load_inputs, select_images
from smoothcert.cli.common_options import add_batch, add_device, add_input_options, add_sample_options
from smoothcert.cli.dry_run import describe_run
from smoothcert.cli.progress import COMPILING, ProgressBar, say
from smoothcert.errors import UsageError

if TYPE_CHECKING:
    from smoothcert.certification.job import Progress
    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


def add_voting_options(
    parser: argparse.ArgumentParser,
    *,
    n: int,
    selects: bool = False,
    precision: str = "fp32; bf16 on a GPU, except for networks of your own",
    form: str = "folded, or compiled for large runs on a GPU; plain for networks of your own",
) -> None:
    """Add the options of commands that count votes; `selects` adds `--n0`.

    `precision` and `form` are the defaults that the help shows.
    """
    # For commands without these options; the defaults of options that are added later replace these.
    parser.set_defaults(n0=0, stop="fixed", radius=None, samples=None, skip_wrong=False)
    parser.set_defaults(noise="gaussian", sound=False, bound="one-sided")
    add_input_options(parser)
    group = parser.add_argument_group("protocol")
    group.add_argument("--sigma", type=float, help="standard deviation of the noise (default: the checkpoint's)")
    group.add_argument("--n", "--N", type=int, default=n, metavar="N", help=f"noise samples per image (default: {n:,})")
    if selects:
        text = "noise samples per image that select the class (default: 100)"
        group.add_argument("--n0", "--N0", type=int, default=100, metavar="N0", help=text)
    group.add_argument("--alpha", type=float, default=0.001, help="failure probability per image (default: 0.001)")
    add_sample_options(group)
    group = parser.add_argument_group("execution")
    add_device(group)
    group.add_argument("--precision", metavar="NAME", help=f"fp32, tf32 or bf16 (default: {precision})")
    group.add_argument(
        "--form",
        metavar="NAME",
        help="how the network runs: plain, folded (BatchNorm merged into the convolutions), compiled, or pinned "
        f"(compiled with fixed kernels); default: {form}",
    )
    add_batch(group)
    text = "noisy images per forward pass; affects rounding (default: auto)"
    group.add_argument("--micro-batch", type=int, metavar="B", help=text)
    group = parser.add_argument_group("output")
    group.add_argument("--out", type=Path, metavar="FILE", help="results file (default: beside the checkpoint)")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("--dry-run", action="store_true", help="print the settings and a time estimate, and exit")


def run_on_datasets(args: argparse.Namespace, evaluate: Callable[..., object]) -> dict[str, Path]:
    """Call `evaluate`, which takes the arguments of `certify_dataset`, for every dataset that the options select.

    Return the results files by the names of their datasets; none with `--dry-run` and on ranks other than rank 0.
    """
    from smoothcert.distributed.ranks import join
    from smoothcert.smoothing.deploy import COMPILED

    ranks = join()
    inputs = load_inputs(args)
    classifier = _make_classifier(args, inputs)
    if args.out and len(inputs.datasets) > 1:
        raise UsageError(
            f"`--out` names one file, but {args.data} needs {len(inputs.datasets)}, one per corruption; omit `--out`."
        )
    outs = [args.out or _default_out(args, data, inputs.sigma) for data in inputs.datasets]
    selected = [select_images(args, data, args.shard) for data in inputs.datasets]
    parts = list(zip(inputs.datasets, selected, outs, strict=True))
    if args.dry_run:
        print(describe_run(args, classifier, parts, inputs.device))
        return {}
    if classifier.form in COMPILED:
        say(COMPILING.format("the model"))
    for data, indices, out in parts:
        title = f"{args.task} {data.name}" if "/" in data.name else args.task
        options: dict[str, Any] = {"n": args.n, "alpha": args.alpha, "seed": args.seed, "batch": args.batch}
        with ProgressBar(title, len(indices), "images") as bar:
            running = _RunningAccuracy(bar)
            options |= {"indices": indices, "model": inputs.checkpoint.describe(), "on_progress": running}
            evaluate(classifier, data, out, **options)
        if running.images < len(indices):
            say(f"{len(indices) - running.images:,} of {len(indices):,} images were already done.")
        say(f"Results: {out}")
    return {data.name: out for data, _, out in parts} if ranks.first else {}


def print_summaries(
    outs: Mapping[str, Path],
    summarize: Callable[[list[dict[str, str]]], dict[str, Any]],
    text: str,
    *,
    as_json: bool,
) -> None:
    """Print a summary of each results file: a line of text or, as JSON, an object (a list for several files).

    `summarize` computes the values of a summary from the rows of a file; `text` is the format string of the line.
    """
    summaries = []
    for name, out in outs.items():
        with out.open(newline="") as file:
            summaries.append({"data": name, **summarize(list(csv.DictReader(file, delimiter="\t")))})
    if as_json and summaries:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries))
        return
    for summary in summaries:
        line = text.format(**summary)
        print(line if len(summaries) == 1 else f"{summary['data']}: {line}")


def _make_classifier(args: argparse.Namespace, inputs: CommandInputs) -> SmoothedClassifier:
    from smoothcert.smoothing.deploy import choose_deployment

    shape = inputs.datasets[0].shape
    # The form must be the same for every shard, so it depends on all images.
    samples = sum(len(select_images(args, data)) for data in inputs.datasets) * args.n
    form, precision = choose_deployment(inputs.checkpoint.model, shape, samples)
    if args.sound and form == "compiled":
        form = "pinned"
    return inputs.classifier(
        inputs.sigma,
        precision=args.precision or precision,
        form=args.form or form,
        micro_batch=args.micro_batch,
        noise=choose_noise(args, inputs.sigma, shape.numel()),
    )


def _default_out(args: argparse.Namespace, data: ImageData, sigma: float) -> Path:
    """Return the path of the results file: beside the checkpoint or, for bundled models, below `runs`."""
    from smoothcert.results.naming import results_name

    severities = "-severity" + "".join(map(str, sorted(set(args.severities)))) if args.severities else ""
    options = {"skip": args.skip, "most": args.limit, "shard": args.shard, "severities": severities}
    name = results_name(args.task, data.name, data.split, sigma, args.n, **options)
    combined = [f"ensemble{len(args.ensemble)}"] if args.ensemble else []
    combined += [f"consensus{args.consensus}"] if args.consensus else []
    name = "-".join([name.removesuffix(".tsv"), *combined, *name_parts(args)]) + ".tsv"
    if args.pretrained:
        return Path("runs", args.pretrained, name)
    checkpoint = Path(args.checkpoint or args.ensemble[0])
    return checkpoint / name if checkpoint.is_dir() else checkpoint.with_name(f"{checkpoint.stem}.{name}")


class _RunningAccuracy:
    """Updates a progress bar with the ACR and accuracy of the images processed so far."""

    def __init__(self, bar: ProgressBar) -> None:
        self.bar, self.images, self.correct, self.radius = bar, 0, 0, 0.0

    def __call__(self, progress: Progress[Any]) -> None:
        if not self.images:
            self.bar.start = progress.done - len(progress.records)
        for record in progress.records:
            self.images += 1
            self.correct += record.correct
            self.radius += record.correct * getattr(record, "radius", 0.0)
        note = f"accuracy {100 * self.correct / self.images:.1f}%"
        self.bar.update(
            progress.done, f"ACR {self.radius / self.images:.3f}, certified {note}" if self.radius else note
        )
