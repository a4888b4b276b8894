"""Flags, header, timing and output that the benchmarks share."""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from smoothcert.runtime.environment import describe_environment


def make_parser(doc, seconds=None):
    """Return a parser with `--device`, `--json` and, if it has a default, `--seconds`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds, help="time spent on each measurement")
    return parser


def print_header(device, *words):
    """Print the device, the version of torch, `words` and the time; return the whole description."""
    about = describe_environment(device)
    print(", ".join([about["device"], f"torch {about['versions']['torch']}", *words, about["started"]]), flush=True)
    return about


def timed(work, seconds, device, fewest=3):
    """Call `work` until the time is up; return the median seconds per call and the number of calls."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < fewest:
        started = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times), len(times)


def speed(count, samples, seconds, device):
    """Call `count(samples)` until the time is up; return the median samples per second and the number of calls."""
    count(samples)
    median, calls = timed(lambda: count(samples), seconds, device)
    return samples / median, calls


def write_json(path, numbers):
    """Write the numbers of a benchmark, if `path` is not None."""
    if path:
        path.write_text(json.dumps(numbers, indent=2) + "\n")
