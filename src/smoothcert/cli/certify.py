"""`smoothcert certify` and `smoothcert predict`."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli import stopping
from smoothcert.cli.common_options import add_data_options, add_sample_options, batch_size
from smoothcert.cli.corrupted import add_corruption_options, choose_rows, results_suffix
from smoothcert.cli.dry_run import describe_job
from smoothcert.cli.job import load_job
from smoothcert.cli.progress import COMPILING, ProgressBar, say
from smoothcert.cli.report import print_table

if TYPE_CHECKING:
    from smoothcert.certification.job import Progress
    from smoothcert.checkpoints.checkpoint import Checkpoint
    from smoothcert.data import ImageData
    from smoothcert.smoothing.classifier import SmoothedClassifier


def add_commands(commands: Any) -> None:
    """Add both commands; they differ in the number of stages."""
    certify = commands.add_parser(
        "certify",
        help="prove a radius within which the prediction cannot change",
        description="Certify the images of a data set. Interrupted runs go on when the same command is given again.",
    )
    add_options(certify, n=100_000)
    certify.add_argument("--n0", "--N0", type=int, default=100, metavar="N0", help="noises that select (default: 100)")
    stopping.add_options(certify)
    certify.set_defaults(run=run, task="certify")
    predict = commands.add_parser(
        "predict",
        help="classify by majority vote under noise",
        description="Predict the images of a data set by majority vote, or abstain where the vote is unclear.",
    )
    add_options(predict, n=1000)
    predict.set_defaults(run=run, task="predict")


def add_options(parser: argparse.ArgumentParser, *, n: int, precision: str = "fp32 on the CPU, bf16 on a GPU") -> None:
    """Add what every command has that votes on images: checkpoint, data, protocol, execution, output."""
    parser.add_argument("checkpoint", nargs="?", help="a run folder, a .safetensors file, or a published checkpoint")
    parser.add_argument("--pretrained", metavar="NAME", help="a network of ours (see `smoothcert list pretrained`)")
    add_data_options(parser, default="the one the checkpoint was trained on")
    add_corruption_options(parser)
    group = parser.add_argument_group("protocol")
    group.add_argument("--sigma", type=float, help="standard deviation of the noise (default: the checkpoint's)")
    group.add_argument("--n", "--N", type=int, default=n, metavar="N", help=f"noises an image (default: {n:,})")
    group.add_argument("--alpha", type=float, default=0.001, help="probability of a wrong answer (default: 0.001)")
    add_sample_options(group)
    group = parser.add_argument_group("execution")
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    group.add_argument("--precision", help=f"fp32, tf32 or bf16 (default: {precision})")
    group.add_argument(
        "--form", help="plain, folded, compiled or pinned (default: folded; compiled for large GPU jobs)"
    )
    group.add_argument(
        "--batch",
        type=batch_size,
        metavar="B",
        help="noisy images in memory at once, or auto; changes no result (default: auto, halved until it fits)",
    )
    group.add_argument("--micro-batch", type=int, help="noisy images the network sees at once; part of the result")
    group.add_argument("--normalization", help="of a published checkpoint: none, cifar10, cifar10-center, ...")
    group = parser.add_argument_group("output")
    group.add_argument("--out", type=Path, metavar="FILE", help="results file (default: beside the checkpoint)")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and stop")


def run(args: argparse.Namespace) -> None:
    """Certify or predict."""
    from smoothcert.distributed.ranks import join
    from smoothcert.errors import UsageError
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.smoothing.deploy import COMPILED, choose_deployment
    from smoothcert.statistics import bounds

    ranks = join()
    # What is wrong with the numbers is said before anything large is read.
    certifying = args.task == "certify"
    if certifying:
        bounds.check_budget(args.n0, args.n, args.alpha, args.bound)
        stopping.check(args)
    else:
        bounds.check_prediction(args.n, args.alpha)
    job = load_job(args)
    model, sigma, shape = job.checkpoint.model, job.sigma, job.sets[0].shape
    # The choice must be the same for every shard, so it looks at all images.
    samples = sum(len(choose_rows(args, data)) for data in job.sets) * args.n
    form, precision = choose_deployment(model, shape, samples)
    if certifying and args.sound and form == "compiled":
        form = "pinned"
    classifier = SmoothedClassifier(
        model,
        sigma,
        model.num_classes,
        input_shape=shape,
        precision=args.precision or precision,
        form=args.form or form,
        micro_batch=args.micro_batch,
        noise=stopping.choose_noise(args, sigma, shape.numel()) if certifying else "gaussian",
    )
    if args.out and len(job.sets) > 1:
        raise UsageError(f"`--out` names one file, but {args.data} gives {len(job.sets)}; leave it out.")
    parts = [
        (data, choose_rows(args, data, args.shard), args.out or default_out(args, data, sigma)) for data in job.sets
    ]
    if args.dry_run:
        print(describe_job(args, classifier, parts, job.device))
        return
    if classifier.form in COMPILED:
        say(COMPILING.format("the network"))
    for part in parts:
        _run(args, job.checkpoint, classifier, *part)
    if not ranks.first:
        return
    if certifying:
        print_table([str(out) for _, _, out in parts], as_json=args.json)
    else:
        _print_predictions({data.name: out for data, _, out in parts}, as_json=args.json)


def _run(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    classifier: SmoothedClassifier,
    data: ImageData,
    indices: list[int],
    out: Path,
) -> None:
    from smoothcert.certification.dataset import certify_dataset, predict_dataset
    from smoothcert.distributed.ranks import current_ranks

    model = checkpoint.describe()
    images = len(choose_rows(args, data))
    rule = stopping.choose_rule(args, data.name, images)
    options: dict[str, Any] = {"n": args.n, "alpha": args.alpha, "seed": args.seed, "batch": args.batch}
    title = f"{args.task} {data.name}" if "/" in data.name else args.task
    with ProgressBar(title, len(indices), "images") as bar:
        options |= {"indices": indices, "model": model, "on_progress": _Watch(bar)}
        if args.task == "certify":
            made = len(certify_dataset(classifier, data, out, n0=args.n0, bound=args.bound, stop=rule, **options))
        else:
            made = len(predict_dataset(classifier, data, out, **options))
    if not current_ranks().first:
        return
    if made < len(indices):
        say(f"{len(indices) - made:,} of {len(indices):,} images were there already.")
    if rule:
        stopping.say_samples(out, args.n0 + args.n)
    say(f"Results: {out}")


class _Watch:
    """Shows each group of images as it is done, with what they have given so far."""

    def __init__(self, bar: ProgressBar) -> None:
        self.bar, self.images, self.right, self.radius = bar, 0, 0, 0.0

    def __call__(self, progress: Progress[Any]) -> None:
        if not self.images:
            self.bar.start = progress.done - len(progress.records)
        for record in progress.records:
            self.images += 1
            self.right += record.correct
            self.radius += record.correct * getattr(record, "radius", 0.0)
        note = f"accuracy {100 * self.right / self.images:.1f}%"
        self.bar.update(
            progress.done, f"ACR {self.radius / self.images:.3f}, certified {note}" if self.radius else note
        )


def _print_predictions(outs: Mapping[str, Path], *, as_json: bool) -> None:
    """Print what was predicted of each data set: a line, or one JSON object, or a list where there are several."""
    found: list[dict[str, Any]] = [{"data": name, **_summary(out)} for name, out in outs.items()]
    if as_json:
        print(json.dumps(found[0] if len(found) == 1 else found))
        return
    for summary in found:
        text = "images {images:,}, accuracy {accuracy:.2f}%, abstained {abstention:.2f}%".format(**summary)
        print(text if len(found) == 1 else f"{summary['data']}: {text}")


def _summary(out: Path) -> dict[str, Any]:
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        "images": len(rows),
        "accuracy": 100 * sum(row["correct"] == "1" for row in rows) / len(rows),
        "abstention": 100 * sum(row["predict"] == "-1" for row in rows) / len(rows),
    }


def default_out(args: argparse.Namespace, data: ImageData, sigma: float) -> Path:
    """Return a results file named by the protocol, beside the checkpoint; for one of ours, in a run's folder."""
    from smoothcert.results.naming import results_name

    name = results_name(
        args.task,
        data.name,
        data.split,
        sigma,
        args.n,
        skip=args.skip,
        most=args.max,
        shard=args.shard,
        severities=results_suffix(args),
    )
    name = "-".join([name.removesuffix(".tsv"), *stopping.name_parts(args)]) + ".tsv"
    if args.pretrained:
        return Path("runs", args.pretrained, name)
    checkpoint = Path(args.checkpoint)
    return checkpoint / name if checkpoint.is_dir() else checkpoint.with_name(f"{checkpoint.stem}.{name}")
