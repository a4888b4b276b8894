"""Train CAT-RS and a Gaussian baseline on a subset of MNIST and certify both, in about a minute on two CPU cores.

    python examples/demo.py [FOLDER]

Trains a Gaussian baseline until it has converged, uses its votes as soft labels to train CAT-RS for a few epochs,
certifies 100 test images, and prints a table and a figure. Interrupt it at any time, and run it again to resume.

This is a demonstration, not a measurement: the settings of both methods were chosen from a few candidates, by their
results on test images of the same subset. See RESULTS.md for measurements.
"""

import argparse
import time
from pathlib import Path

import smoothcert
from smoothcert.cli.progress import ProgressBar, duration, say
from smoothcert.cli.stages import Stages
from smoothcert.report.figures.plots import plot_certified_accuracy
from smoothcert.report.tables.entries import describe
from smoothcert.report.tables.formats import to_text
from smoothcert.report.tables.table import build_table

IMAGES, N = range(0, 1000, 10), 1000


def train(runs):
    gaussian = smoothcert.load_recipe("mnist-mini-gaussian-1.00")
    catrs = smoothcert.load_recipe("mnist-mini-catrs-1.00", teacher=str(runs / gaussian.name))
    with Stages() as stages:
        for config in (gaussian, catrs):
            smoothcert.train_run(config, runs, on_stage=stages.begin)
    return gaussian, catrs


def certify(runs, config):
    checkpoint = smoothcert.load_checkpoint(runs / config.name)
    smoothed = smoothcert.SmoothedClassifier(checkpoint.model, config.sigma, 10)
    out = runs / config.name / "certified.tsv"
    with ProgressBar(f"certify {config.name}", len(IMAGES), "images") as bar:
        smoothcert.certify_dataset(
            smoothed,
            smoothcert.load_dataset("mnist-mini", "test"),
            out,
            n=N,
            indices=IMAGES,
            model={"sha256": checkpoint.sha256, "method": config.method},
            on_progress=lambda progress: bar.update(progress.done),
        )
    return describe(smoothcert.read_results(out))


def main(runs):
    started = time.monotonic()
    configs = train(runs)
    entries = [certify(runs, config) for config in configs]
    table = build_table(entries, baseline="gaussian")
    figure = runs / "certified-accuracy.png"
    plot_certified_accuracy(entries, figure, f"mnist-mini, sigma 1, {len(IMAGES)} images, n = {N:,}")
    print(to_text(table))
    gap = table.rows[1].difference
    verdict = "better" if gap.low > 0 else "better, but not significantly" if gap.value > 0 else "not better"
    print(f"CAT-RS is {verdict}: ACR {gap.value:+.3f}, 95 % interval {gap.low:+.3f} to {gap.high:+.3f}, same images.")
    print(f"Figure: {figure}")
    say(f"Finished in {duration(time.monotonic() - started)}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/demo"), help="default: runs/demo")
    main(parser.parse_args().folder)
