"""File names that say how results were made."""

from __future__ import annotations


def results_name(
    task: str,
    dataset: str,
    split: str,
    sigma: float,
    n: int,
    *,
    skip: int = 1,
    most: int | None = None,
    shard: tuple[int, int] = (1, 1),
    severities: str = "",
) -> str:
    """Return the name of a results file.

    >>> results_name("certify", "mnist-c/fog", "test", 0.25, 1000, skip=20)
    'certify-mnist-c-fog-test-sigma0.25-n1000-skip20.tsv'
    """
    parts = [task, dataset.replace("/", "-") + severities, split, f"sigma{sigma:g}", f"n{n}"]
    parts += [f"skip{skip}"] if skip > 1 else []
    parts += [f"max{most}"] if most else []
    parts += ["shard{}of{}".format(*shard)] if shard[1] > 1 else []
    return "-".join(parts) + ".tsv"
