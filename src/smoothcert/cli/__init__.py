"""The command line: the only part that knows the terminal. Data goes to stdout, progress and messages to stderr."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoothcert import __version__
from smoothcert.cli import attack, certify, checkpoints, data, listing, precision, recertify, report, reproduce, train
from smoothcert.cli.parser import Parser
from smoothcert.cli.progress import say, short_notices
from smoothcert.errors import SmoothcertError, UsageError

_INTERRUPTED = "interrupted; the same command goes on from what is saved."


def build_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; it imports torch only for the command that needs it to parse."""
    parser = Parser(
        prog="smoothcert",
        description="Certified robustness by randomized smoothing: train, certify, and read the results.",
        epilog="Exit codes: 0 done, 1 something went wrong, 2 wrong usage, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"smoothcert {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    data.add_commands(commands)
    train.add_commands(commands, arguments)
    for module in (certify, recertify, precision, attack, reproduce, report, checkpoints, listing):
        module.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    try:
        args = build_parser(given).parse_args(given)
        with short_notices(), _terminated_as_interrupted():
            args.run(args)
        sys.stdout.flush()
    except SmoothcertError as error:
        if not _reported_by_another_rank(error):
            print(f"smoothcert: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as stop:  # which says more where work came to a good end first
        text = f"{stop} The same command goes on." if str(stop) else _INTERRUPTED
        say(f"\nsmoothcert: {text}")
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        _drop_output()
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename:
            print(f"smoothcert: {error.filename} cannot be opened ({error.strerror}).", file=sys.stderr)
            return 1
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        _drop_output()
        print(f"smoothcert: the output cannot be written ({error.strerror}).", file=sys.stderr)
        return 1
    finally:
        if "smoothcert.distributed.ranks" in sys.modules:
            sys.modules["smoothcert.distributed.ranks"].leave()
    return 0


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, which comes before a queue's kill, end a command as Ctrl-C does: with what it has made kept.

    The processes of a launched group are ended by it when one of them fails, and have nothing to say then.
    """
    if threading.current_thread() is not threading.main_thread() or "RANK" in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _open_streams() -> None:
    """Have somewhere to write where the caller closed stdout or stderr."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _drop_output() -> None:
    """Let what is still to be written to stdout go nowhere, so that the interpreter does not fail on it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reported_by_another_rank(error: SmoothcertError) -> bool:
    """Return True if another process of a launched group reports the error, so that users read it once."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    from smoothcert.distributed.launched import LaunchedRanks
    from smoothcert.distributed.peer_errors import rank0_reports
    from smoothcert.distributed.ranks import current_ranks

    ranks = current_ranks()
    if isinstance(ranks, LaunchedRanks):
        return rank0_reports(ranks, error)
    # It failed before joining the group: all processes of a machine got the same command, so one of them reports.
    return os.environ.get("LOCAL_RANK", "0") != "0"
