"""A process that certifies a few images as it is told: one line `KIND PATH` on stdin, one line of outcome on stdout."""

import sys
from pathlib import Path

import torch

import smoothcert
from smoothcert.certification.recertify import recertify, write_recertified
from smoothcert.errors import SmoothcertError
from smoothcert.stopping import BudgetStop, TableStop

KINDS = {
    "fixed": {},
    "other seed": {"seed": 1},
    "table": {"stop": TableStop(radii=(0.0, 0.5))},
    "budget": {"stop": BudgetStop(radii=(0.0, 0.5), samples=9000)},
}


def write(kind, path, source):
    """Write results of a kind; `source` is the file that `recertified` recomputes."""
    if kind == "recertified":
        write_recertified(path, *recertify(source, alpha=0.01))
        return
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    data = smoothcert.load_dataset("mnist-mini", "test")
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 10, micro_batch=64)
    smoothcert.certify_dataset(smoothed, data, path, n0=20, n=300, indices=range(30), **KINDS[kind])


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        kind, path = line.rstrip("\n").split("\t")
        try:
            write(kind, Path(path), Path(sys.argv[1]))
            print("done", flush=True)
        except SmoothcertError as error:
            print(f"refused: {error}", flush=True)


if __name__ == "__main__":
    main()
