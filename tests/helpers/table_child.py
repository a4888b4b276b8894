"""Reproduces three rows of the MNIST table with few images: alone or under torchrun."""

import dataclasses
import sys
from pathlib import Path

import numpy as np

import smoothcert
from smoothcert.distributed.ranks import join, leave
from smoothcert.paper.jobs import Workplace, list_jobs
from smoothcert.paper.reproduce import reproduce


def main(runs):
    ranks, data = join(), Path(f"{runs}-data") / "few.npz"
    if ranks.first:
        data.parent.mkdir(parents=True)
        mini = smoothcert.load_dataset("mnist-mini", "test")
        images, labels = mini.images.numpy(), mini.labels.numpy()
        np.savez(data, x_train=images[::5], y_train=labels[::5], x_test=images[:40], y_test=labels[:40])
    ranks.wait_for_rank0()
    small = {"epochs": 1, "label_samples": 4, "batch": 64, "dataset": str(data)}
    jobs = [dataclasses.replace(job, skip=5) for job in list_jobs("mnist", "*-0.25", **small)]
    chosen = [job for job in jobs if job.config.method in ("gaussian", "catrs", "consistency")]
    reproduce(chosen, Workplace(runs, n=500), on_stage=lambda kind, name: lambda progress: None)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
