"""Simulate how many noise samples sequential certification saves, with the published CIFAR-10 results of CAT-RS.

    SMOOTHCERT_TEST_DATA=FOLDER python benchmarks/sequential.py [--sigmas 0.25 0.5 1.0] [--no-radius] [--json FILE]

FOLDER contains published/cifar10/cat-rs-SIGMA.tsv as published by the authors of CAT-RS. The probability of a vote for
the predicted class is taken from the published radius; for abstentions, it is drawn from U(0.3, 0.5). Every stopping
rule certifies with votes drawn with these probabilities. Its results table is compared with the table from all 100,000
votes of the same draw ("fixed"; the largest difference in three draws) and with the published table.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

from smoothcert.certification.scheduler import InTurn, Tracker
from smoothcert.results.reader import read_results
from smoothcert.statistics import bounds, metrics
from smoothcert.statistics.noise import GaussianNoise
from smoothcert.statistics.stopping import RadiusStop, TableStop

N0, N, ALPHA = 100, 100_000, 0.001
GRID = tuple(metrics.radius_grid("cifar10"))
MOST = 1 << 40


def confidences(results, sigma, generator):
    """Return the share of votes from which each image's published radius follows."""
    votes = np.arange(N // 2, N + 1)
    radii = GaussianNoise(sigma).radius(bounds.failure_upper_bound(votes, N, ALPHA))
    after = np.clip(np.searchsorted(radii, results.radius), 1, len(radii) - 1)
    nearest = after - (results.radius - radii[after - 1] < radii[after] - results.radius)
    unknown = generator.uniform(0.3, 0.5, len(results))
    return np.where(results.predict >= 0, votes[nearest] / N, unknown)


def simulate(rule, probabilities, right, sigma, generator):
    """Certify every image with votes drawn with its probability.

    Returns the radii (-1 for abstentions), the radii from all N votes of the same draw, and the samples of each image.
    Class 0 is the selected one; it is the label if the published prediction is correct.
    """
    noise, plan = GaussianNoise(sigma), rule.plan(N, ALPHA)
    steps = np.diff([0, *plan.looks])
    votes = np.cumsum(generator.binomial(steps, probabilities[:, None]), axis=1)
    tracker = Tracker(plan, rule, noise, np.where(right, 0, 1), N0)
    schedule, samples = InTurn(tracker, MOST), np.zeros(len(right), dtype=np.int64)
    while wave := schedule.wave():
        places = np.array([place for place, _ in wave])
        stage = int(tracker.stage[places[0]])  # all images of a wave are at the same stage
        samples[places] += tracker.cost(places)
        won = votes[places, stage - 1] if stage else np.full(len(places), N0)
        tracker.observe(places, np.stack([won, (plan.looks[stage - 1] if stage else N0) - won], axis=1))
    failures = tracker.failure, bounds.failure_upper_bound(votes[:, -1], N, ALPHA)
    return *(np.where(failure <= 0.5, noise.radius(failure), -1.0) for failure in failures), samples


def table_row(folder, sigma, skip_wrong):
    results, sigma = read_results(folder / f"cat-rs-{sigma}.tsv"), float(sigma)
    rule, tables, fixed, samples = TableStop(skip_wrong=skip_wrong, radii=GRID), [], [], []
    for draw in range(3):
        generator = np.random.default_rng(draw)
        probabilities = confidences(results, sigma, generator)
        ours, all_votes, taken = simulate(rule, probabilities, results.correct, sigma, generator)
        tables.append(100 * metrics.certified_accuracy(ours, results.correct, GRID))
        fixed.append(100 * metrics.certified_accuracy(all_votes, results.correct, GRID))
        samples.append(taken.mean())
    published = 100 * metrics.certified_accuracy(results.radius, results.correct & (results.predict >= 0), GRID)
    return {
        "sigma": sigma,
        "skip_wrong": skip_wrong,
        "samples": float(np.mean(samples)),
        "saving": (N0 + N) / float(np.mean(samples)),
        "to_fixed": float(abs(np.array(tables) - fixed).max()),
        "to_published": float(abs(np.mean(tables, axis=0) - published).max()),
        "fixed_to_published": float(abs(np.mean(fixed, axis=0) - published).max()),
        "table": np.mean(tables, axis=0).tolist(),
        "published": published.tolist(),
    }


def radius_row(folder, sigma, radius):
    results, generator = read_results(folder / f"cat-rs-{sigma}.tsv"), np.random.default_rng(0)
    sigma = float(sigma)
    probabilities = confidences(results, sigma, generator)
    ours, fixed, samples = simulate(RadiusStop(radius=radius), probabilities, results.correct, sigma, generator)
    shares = [100 * metrics.certified_accuracy(found, results.correct, [radius])[0] for found in (ours, fixed)]
    return {
        "sigma": sigma,
        "radius": radius,
        "samples": float(samples.mean()),
        "to_fixed": float(shares[0] - shares[1]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigmas", nargs="+", default=["0.25", "0.5", "1.0"])
    parser.add_argument("--no-radius", action="store_true", help="simulate `--stop table` only")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    folder = Path(os.environ["SMOOTHCERT_TEST_DATA"]) / "published/cifar10"
    tables = [table_row(folder, sigma, skip) for sigma in args.sigmas for skip in (False, True)]
    print("--stop table          samples per image  saving  most points off: fixed; published (and fixed off that)")
    for row in tables:
        what = f"sigma {row['sigma']:.2f}" + (" skip-wrong" if row["skip_wrong"] else "")
        off = f"{row['to_fixed']:.2f}; {row['to_published']:.2f} ({row['fixed_to_published']:.2f})"
        print(f"{what:22} {row['samples']:16,.0f}  {row['saving']:5.2f}x  {off}")
    rows = []
    if not args.no_radius:
        print("--stop radius           samples per image  points off fixed")
        for sigma in args.sigmas:
            for radius in [r for r in GRID if r <= bounds.largest_radius(float(sigma), N, ALPHA)]:
                row = radius_row(folder, sigma, radius)
                rows.append(row)
                what = f"sigma {float(sigma):.2f} radius {radius:.2f}"
                print(f"{what:24} {row['samples']:16,.0f}  {row['to_fixed']:+.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"table": tables, "radius": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
