"""Measure the time of two whole commands: certifying 100 images of MNIST, and training one epoch with CAT-RS.

    python benchmarks/whole.py [--device cuda] [--data mnist] [--n 100000] [--json FILE]

Each is compared with a script that works like the published code (`published.py`). Both run as new processes, so that
imports, loading data, GPU initialization and compilation are included. Computing soft labels is excluded on both sides.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import make_parser, print_header, write_json

import smoothcert
from smoothcert.runtime.environment import choose_device

HERE = Path(__file__).parent
RUN = "mnist-catrs-0.50"


def seconds(*command):
    """Return the seconds that a command takes."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed: {done.stderr}")
    return time.perf_counter() - started


def certify(place, args, folder):
    """Return the seconds to certify 100 images, published and ours."""
    skip = len(smoothcert.load_dataset(args.data, "test")) // 100
    common = ["--data", args.data, "--skip", skip, "--n", args.n, "--device", place]
    before = seconds(HERE / "published.py", "certify", *common)
    ours = ["-m", "smoothcert", "certify", "--pretrained", RUN, *common]
    return before, [seconds(*ours, "--out", folder / f"{number}.tsv") for number in range(2)]


def train(place, args, folder):
    """Return the seconds of one epoch, published and ours."""
    common = ["--device", place, "--epochs", 1]
    before = seconds(HERE / "published.py", "train", "--data", args.data, *common)
    ours = ["-m", "smoothcert", "train", RUN, "--dataset", args.data, "--label-samples", 100, *common]
    seconds(*ours, "--runs", folder / "0", "--precision", "tf32")  # makes teacher and soft labels; not timed
    teacher = next((folder / "0").glob("*teacher*"))
    again = [*ours, "--precision", "tf32", "--teacher", teacher]
    return before, [seconds(*again, "--runs", folder / str(number)) for number in (1, 2)]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--n", type=int, default=100_000, help="noise samples per image (default: 100,000)")
    args = parser.parse_args()
    device = choose_device(args.device)
    about, rows = print_header(device), []
    for what, measure in (("certify 100 images", certify), ("train one epoch", train)):
        with tempfile.TemporaryDirectory() as folder:
            before, ours = measure(device.type, args, Path(folder))
        rows.append({"what": what, "published": before, "ours": ours, "ratio": before / ours[-1]})
        text = f"{before:.1f} s as published, ours {ours[0]:.1f} s, again {ours[-1]:.1f} s"
        print(f"{what:20} {before / ours[-1]:6.2f}x: {text}", flush=True)
    write_json(args.json, {"about": about, "rows": rows})


if __name__ == "__main__":
    main()
