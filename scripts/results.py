"""Store the project's own results, generate RESULTS.md from them, and check both on the CPU.

python scripts/results.py round RUN...           round the weights of finished runs to bfloat16 before certifying them
python scripts/results.py keep RUNS TABLE...     copy finished runs of these tables from a folder of runs
python scripts/results.py write                  generate RESULTS.md
python scripts/results.py verify                 recompute every row and RESULTS.md, and run the kept networks again
"""

import argparse
from pathlib import Path

from kept.keeping import keep_runs
from kept.page import results_page, verify_page
from kept.rounding import round_run
from kept.verifying import verify_all
from smoothcert.checkpoints.pretrained import FOLDER as ZOO
from smoothcert.errors import SmoothcertError
from smoothcert.paper.jobs import Workplace, list_jobs
from smoothcert.runtime.atomic_files import write_text

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "RESULTS.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    rounding = verbs.add_parser("round")
    rounding.add_argument("runs", nargs="+", type=Path)
    keep = verbs.add_parser("keep")
    keep.add_argument("runs", type=Path)
    keep.add_argument("tables", nargs="+")
    verbs.add_parser("write")
    verify = verbs.add_parser("verify")
    verify.add_argument("--images", type=int, default=3, help="images per network to count votes on again (default: 3)")
    verify.add_argument("--n", type=int, default=10_000, help="fresh noise samples per image (default: 10,000)")
    verify.add_argument(
        "--replayed", type=int, default=100, help="images per network to check the precision on (default: 100)"
    )
    args = parser.parse_args()
    try:
        if args.verb == "round":
            for run in args.runs:
                round_run(run)
        elif args.verb == "keep":
            if not args.runs.is_dir():
                raise SmoothcertError(f"Expected `runs` to be a folder, but got {args.runs}.")
            for table in args.tables:
                keep_runs(Workplace(args.runs), list_jobs(table), RESULTS / table, ZOO)
        elif args.verb == "write":
            write_text(PAGE, results_page(RESULTS))
        else:
            for flag, value, least in (("images", args.images, 0), ("n", args.n, 1), ("replayed", args.replayed, 0)):
                if value < least:
                    raise SmoothcertError(f"Expected `--{flag}` to be at least {least}, but got {value}.")
            verify_page(RESULTS, PAGE)
            verify_all(RESULTS, args.images, args.n, args.replayed)
    except (SmoothcertError, OSError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
