"""Measure votes and training steps per second on the CPU, by number of threads and load of the machine.

    python benchmarks/cpu_load.py [--before SRC] [--loads 0 1 2 4] [--rounds 4] [--seconds 0.6] [--json FILE]

`--before` names the folder `src` of an earlier version, to measure it in the same run. Every setting has its own
process, which waits while other settings are measured. For each of the `--loads`, the settings take turns for several
rounds while that number of busy processes runs. The results are medians over the rounds. The published loop
(`published.py`) runs at the fastest of several batch sizes.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

NETWORKS = {"lenet": ((1, 28, 28), 2048), "cifar_resnet20": ((3, 32, 32), 512)}  # shape, and votes per call
BATCHES = (64, 256, 400, 1000)  # of the published loop
BUSY = "while True: sum(i * i for i in range(10_000))"
SIGMA = 0.25
OURS = Path(__file__).parents[1] / "src"


def voting(network):
    """Return a function that counts votes as `certify` does on the CPU, and the number of votes."""
    import torch

    import smoothcert

    shape, votes = NETWORKS[network]
    torch.manual_seed(0)
    model, image = smoothcert.create_model(network).eval(), torch.rand(shape)
    smoothed = smoothcert.SmoothedClassifier(model, SIGMA, model.num_classes, form="folded")
    return lambda: smoothed.counts(image, votes), votes


def published(network):
    """Return a function that runs the published loop at its fastest batch size, and the number of votes."""
    import torch
    from published import as_published, certify_counts

    import smoothcert

    torch.manual_seed(0)
    model, image = as_published(smoothcert.create_model(network).eval()), torch.rand(NETWORKS[network][0])
    rates = {batch: rate(lambda b=batch: certify_counts(model, image, SIGMA, b, b), batch, 0.3) for batch in BATCHES}
    batch = max(rates, key=rates.get)
    return lambda: certify_counts(model, image, SIGMA, batch, batch), batch


def training(network):
    """Return a function that takes one Gaussian training step on 256 images, and the number of steps, 1."""
    import torch

    import smoothcert
    from smoothcert.methods import create_method
    from smoothcert.training.batches import ResidentData
    from smoothcert.training.stepper import Stepper

    shape, size = NETWORKS[network][0], 256
    torch.manual_seed(0)
    model = smoothcert.create_model(network, in_channels=shape[0]).train()
    images, labels = torch.randint(256, (size, *shape), dtype=torch.uint8), torch.randint(10, (size,))
    data = ResidentData(images, labels, None, "none")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    stepper = Stepper(model, create_method("gaussian", SIGMA, {}), optimizer, data, seed=0, precision="fp32")
    indices = torch.arange(size)

    def step():
        stepper.set_position(0, 0, 0.01)
        stepper.take_step((indices,), size)

    return step, 1


KINDS = {"votes": voting, "published loop": published, "training": training}


def rate(work, amount, seconds):
    """Call `work` until the time is up; return the amount of work per second."""
    started, calls = time.perf_counter(), 0
    while time.perf_counter() < started + seconds or not calls:
        work()
        calls += 1
    return calls * amount / (time.perf_counter() - started)


def measure_on_request(kind, network, seconds):
    """Print a rate for every line on standard input."""
    work, amount = KINDS[kind](network)
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(rate(work, amount, seconds), flush=True)


class Setting:
    """A process that measures one setting on request."""

    def __init__(self, kind, network, version, threads, source, seconds):
        self.kind, self.network, self.version, self.threads = kind, network, version, threads
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(source)}
        if version == "now":
            environment["GOMP_SPINCOUNT"] = "1000"  # as the command line sets it
        command = [sys.executable, __file__, "--measure", kind, network, "--seconds", str(seconds)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.rates = {}

    def wait_until_ready(self):
        """Wait until the process can measure."""
        assert self.process.stdout.readline() == "ready\n"

    def measure(self, load):
        """Measure once, and file the rate under `load`, the number of busy processes."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.rates.setdefault(load, []).append(float(self.process.stdout.readline()))

    def median(self, load):
        """Return the median of the rounds."""
        return statistics.median(self.rates[load])


@contextlib.contextmanager
def busy_processes(count):
    """Keep `count` cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start_settings(args):
    """Start all processes; those of the published loop one by one, since they choose their batch size by timing."""
    versions = {"now": OURS} | ({"before": args.before.resolve()} if args.before else {})
    plan = [("votes", network, version) for network in NETWORKS for version in versions]
    plan += [("training", "lenet", version) for version in versions]
    kinds = [(*each, threads) for each in plan for threads in args.threads]
    settings = [Setting(*kind, versions[kind[2]], args.seconds) for kind in kinds]
    for each in settings:
        each.wait_until_ready()
    for network in NETWORKS:
        for threads in args.threads:
            settings.append(Setting("published loop", network, "published", threads, OURS, args.seconds))
            settings[-1].wait_until_ready()
    return settings


def print_table(settings, loads):
    titles = [f"{load} busy" if load else "idle" for load in loads]
    print(f"\n| per second | threads | {' | '.join(titles)} |\n| --- | --- |{' --- |' * len(loads)}")
    for each in settings:
        name = f"{each.network} {each.kind}" + (f", {each.version}" if each.version != "published" else "")
        rates = [
            f"{each.median(load):,.0f}" if each.median(load) >= 100 else f"{each.median(load):.1f}" for load in loads
        ]
        print(f"| {name} | {each.threads} | {' | '.join(rates)} |")


def print_ratios(settings, loads):
    print("\nratios (median, and the range over the rounds)")
    most = max(each.threads for each in settings)

    def find(kind, network, version):
        return {s.threads: s for s in settings if (s.kind, s.network, s.version) == (kind, network, version)}

    def show(text, load, ours, other):
        pairs = [a / b for a, b in zip(ours.rates[load], other.rates[load], strict=True)]
        print(f"{text:70} {ours.median(load) / other.median(load):5.2f} ({min(pairs):.2f} to {max(pairs):.2f})")

    for kind, network in dict.fromkeys((s.kind, s.network) for s in settings if s.version == "now"):
        now, before = (find(kind, network, version) for version in ("now", "before"))
        loop = find("published loop", network, "published")
        for load in loads:
            at = f"{network} {kind}, {load} busy: {most} threads now /"
            show(f"{at} 1 thread now", load, now[most], now[1])
            if before:
                best = max(before.values(), key=lambda s, at=load: s.median(at))
                show(f"{at} best before ({best.threads} threads)", load, now[most], best)
            if kind == "votes":
                show(f"{at} published loop, {most} threads", load, now[most], loop[most])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="SRC", help="folder `src` of an earlier version")
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 1, 2, 4], help="numbers of busy processes")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.6, help="time spent on each measurement")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "NETWORK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure_on_request(*args.measure, args.seconds)
        return
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start, {time.strftime('%Y-%m-%d %H:%M')}"
    )
    settings = start_settings(args)
    for load in args.loads:
        with busy_processes(load):
            for _ in range(args.rounds):
                for each in settings:
                    each.measure(load)
    print_table(settings, args.loads)
    print_ratios(settings, args.loads)
    if args.json:
        rows = [{key: value for key, value in vars(each).items() if key != "process"} for each in settings]
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    for each in settings:
        each.process.kill()


if __name__ == "__main__":
    main()
