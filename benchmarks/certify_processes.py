"""Measure the speedup of certification by several processes, each with one thread, in alternating rounds.

    python benchmarks/certify_processes.py [--processes 2] [--n 5000] [--rounds 3]

A LeNet with random weights is certified on mnist-mini. The times are read from the sidecar; they exclude
starting Python and joining the process group.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import smoothcert


def certify(count, checkpoint, out, n, skip):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "-m", "--", "smoothcert"]
    options = ["--n", str(n), "--skip", str(skip), "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "certify", str(checkpoint), *options], check=True, env=environment, capture_output=True)
    (segment,) = json.loads(out.with_suffix(".json").read_text())["segments"]
    return segment["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--skip", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "lenet.safetensors")
        smoothcert.save_checkpoint(checkpoint, smoothcert.create_model("lenet"), dataset="mnist-mini", sigma=0.25)
        for number in range(args.rounds):
            alone, several = (
                certify(count, checkpoint, Path(folder, f"{number}-{count}.tsv"), args.n, args.skip)
                for count in (1, args.processes)
            )
            ratios.append(alone / several)
            print(
                f"1 process {alone:.1f} s, {args.processes} processes {several:.1f} s: {ratios[-1]:.2f} times as fast"
            )
    print(f"median of {args.rounds}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
