"""Entry point of `smoothcert` and `python -m smoothcert`."""

import signal
import sys

from smoothcert.runtime.interrupts import raise_interrupt


def main() -> int:
    """Run the command line and return its exit code. Ctrl-C also works while the package is being imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)
    from smoothcert.cli import main

    code = main()
    if ranks := sys.modules.get("smoothcert.distributed.ranks"):
        ranks.end_process_of_rank(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
