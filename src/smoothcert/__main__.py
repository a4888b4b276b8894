"""The program `smoothcert`, also `python -m smoothcert`."""

import signal
import sys

from smoothcert.runtime.interrupts import raise_interrupt


def main() -> int:
    """Run the command line, which takes a while to import; Ctrl-C works from the beginning."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)
    from smoothcert.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
