"""Check the wheel that `make dist` built, before it is uploaded.

    python scripts/check_wheel.py dist/smoothcert-0.1.0-py3-none-any.whl --same-as OTHER.whl --environment FOLDER

1. The wheel is smaller than 25 MB, and contains exactly the package's files that Git tracks, and the licenses.
2. With `--same-as`: the other wheel, built from the checkout instead of the sdist, contains identical files.
3. With `--environment`: the wheel, installed in a new virtual environment, runs the code of README.md in an
   empty folder.
"""

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 25_000_000
EXTRAS = "images,plots,report"
NEEDED = {  # pattern: fewest files, in case the same rule drops files from both Git and the wheel
    "smoothcert/py.typed": 1,
    "smoothcert/training/recipe_files/*.toml": 100,
    "smoothcert/training/known_methods.json": 1,
    "smoothcert/checkpoints/zoo/*.safetensors": 7,
    "smoothcert/checkpoints/zoo/networks.json": 1,
    "smoothcert/data/mnist-mini.npz": 1,
    "smoothcert/report/page/assets/page.html.j2": 1,
    "smoothcert/report/page/assets/js/*.js": 10,
    "smoothcert/report/tables/paper.csv": 1,
    "smoothcert/kernels/*.cu": 1,
    "smoothcert/demo/assets/networks/*.safetensors.gz": 7,
    "smoothcert-*.dist-info/licenses/LICENSE": 1,
    "smoothcert-*.dist-info/licenses/src/smoothcert/data/mnist-mini.LICENSE": 1,
}


def tracked_files(root: Path = ROOT) -> set[str]:
    """Return the package's files that Git tracks, as they are named in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/smoothcert"], cwd=root, check=True, capture_output=True, text=True
    )
    return {name.removeprefix("src/") for name in listed.stdout.split("\0") if name}


def file_problems(wheel: Path, expected: set[str], most_bytes: int = MOST_BYTES) -> list[str]:
    """Return the problems with the size and the files of a wheel."""
    problems = []
    if (size := wheel.stat().st_size) >= most_bytes:
        problems.append(f"{size:,} bytes; expected fewer than {most_bytes:,}")
    names = set(read_wheel(wheel))
    package = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    problems += [f"missing: {name}" for name in sorted(expected - package)]
    problems += [f"not tracked by Git: {name}" for name in sorted(package - expected)]
    for pattern, fewest in NEEDED.items():
        if (found := len(fnmatch.filter(names, pattern))) < fewest:
            problems.append(f"{pattern}: {found} files; expected at least {fewest}")
    return problems


def different_files(wheel: Path, other: Path) -> list[str]:
    """Return the names of files that differ between two wheels or exist in one of them only."""
    files, others = read_wheel(wheel), read_wheel(other)
    return sorted(name for name in files.keys() | others.keys() if files.get(name) != others.get(name))


def read_wheel(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def run_quickstart(wheel: Path, environment: Path) -> None:
    """Install a wheel in a new virtual environment, and run the code of README.md and a report with pictures there."""
    sys.path.insert(0, str(ROOT / "tests/helpers"))
    from code_blocks import blocks, program

    bin_folder = environment.resolve() / "bin"
    python = str(bin_folder / "python")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SMOOTHCERT_"))}
    clean |= {"PATH": f"{bin_folder}:{os.environ['PATH']}", "MPLBACKEND": "agg"}

    def install(what: str) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "requirements.txt")]
        subprocess.run([python, "-m", "pip", "install", *options, what], check=True, env=clean)

    with tempfile.TemporaryDirectory() as empty:
        clean["SMOOTHCERT_DATA"] = str(Path(empty, "no-data"))
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install(str(wheel.resolve()))
        place = [python, "-c", "import smoothcert; print(smoothcert.__file__)"]
        found = subprocess.run(place, cwd=empty, env=clean, check=True, capture_output=True, text=True).stdout.strip()
        if not Path(found).is_relative_to(environment.resolve()):
            raise SystemExit(f"Expected to import smoothcert from {environment}, but got {found}.")
        subprocess.run([python, "-c", program(blocks(ROOT / "README.md"))], cwd=empty, env=clean, check=True)
        install(f"{wheel.resolve()}[{EXTRAS}]")
        report = "smoothcert report runs/first/certify-*.tsv --html report.html --figures figures"
        subprocess.run(["bash", "-euc", report], cwd=empty, env=clean, check=True)
        subprocess.run([python, "-m", "pip", "check"], env=clean, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Check a wheel before it is uploaded.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--same-as", type=Path, metavar="WHEEL", help="wheel that must contain identical files")
    parser.add_argument(
        "--environment", type=Path, metavar="FOLDER", help="virtual environment to create for running README.md"
    )
    arguments = parser.parse_args()
    wheel: Path = arguments.wheel
    problems = file_problems(wheel, tracked_files())
    if arguments.same_as:
        problems += [f"differs from {arguments.same_as}: {name}" for name in different_files(wheel, arguments.same_as)]
    if problems:
        raise SystemExit("\n".join(f"{wheel.name}: {problem}" for problem in problems))
    if arguments.environment:
        run_quickstart(wheel, arguments.environment)
    print(f"{wheel} passed: {len(read_wheel(wheel))} files, {wheel.stat().st_size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
