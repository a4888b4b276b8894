"""Run folders for tests: random votes for given labels, certified by the real bounds, in the real file formats."""

import json

import numpy as np

from smoothcert.results.reader import Record
from smoothcert.runtime.atomic_files import file_hash
from smoothcert.statistics.bounds import certify_counts
from smoothcert.training.config import TrainConfig, to_toml

CLASSES = 10


def draw_votes(labels, skill, n, rng):
    """Return votes of a classifier that is correct more often with larger skill, and sometimes confidently wrong."""
    labels = np.where(rng.random(len(labels)) < 0.06, (labels + 1) % CLASSES, labels)
    share = 1 / (1 + np.exp(-rng.normal(skill, 2.0, len(labels))))
    rest = rng.dirichlet(np.ones(CLASSES - 1) * 0.4, len(labels))
    chances = np.stack([np.insert(r * (1 - s), label, s) for r, s, label in zip(rest, share, labels, strict=True)])
    return np.stack([rng.multinomial(n, chance / chance.sum()) for chance in chances])


def make_run(
    folder, labels, *, method="gaussian", sigma=0.5, seed=0, skill=1.5, dataset="mnist-mini", sha256="", n=1000, step=1,
    network="", counts=True, options=None, epochs=4, name=None,
):  # fmt: skip
    """Write a run folder and return the path of its results file."""
    rng = np.random.default_rng([seed, round(100 * sigma), round(100 * skill)])
    folder.mkdir(parents=True, exist_ok=True)
    idx = np.arange(0, len(labels), step)
    estimation = draw_votes(labels[idx], skill, n, rng)
    selection = np.stack([rng.multinomial(100, votes / n) for votes in estimation])
    predict, radius, _ = certify_counts(selection, estimation, sigma, 0.001)
    records = [
        Record(int(i), int(labels[i]), int(p), float(r), 0.01, s.tolist(), e.tolist())
        for i, p, r, s, e in zip(idx, predict, radius, selection, estimation, strict=True)
    ]
    path = folder / "certify.tsv"
    path.write_text("\t".join(Record.columns) + "\n" + "".join(record.row() for record in records))
    if counts:
        text = "\t".join(Record.count_columns) + "\n" + "".join(record.count_row() for record in records)
        path.with_name("certify.counts.tsv").write_text(text)
    settings = {
        "sigma": sigma, "n0": 100, "n": n, "alpha": 0.001, "seed": seed, "images": f"0:{idx[-1] + 1}:{step}",
        "data": {"name": dataset, "split": "test", "sha256": sha256},
        "model": {"method": method, "name": name or folder.name, "architecture": "lenet", "sha256": "ab" * 32},
    }  # fmt: skip
    segment = {
        "device": "A fine processor",
        "versions": {"smoothcert": "0.1.0"},
        "seconds": 12.5,
        "started": "2026-01-02",
    }
    path.with_name("certify.json").write_text(json.dumps({"settings": settings, "segments": [segment]}))
    config = TrainConfig(
        name=name or folder.name, dataset=dataset, method=method, sigma=sigma, seed=seed, options=options or {}
    )
    (folder / "config.toml").write_text(to_toml(config))
    lines = [{"epoch": e, "loss": 2.0 / (e + 1), "test_accuracy": 90.0 + e, "seconds": 30.0} for e in range(epochs)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def hashes(path):
    return {file.name: file_hash(file) for file in path.parent.glob("certify*")}
