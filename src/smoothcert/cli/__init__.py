"""The command line. Results go to stdout, progress and messages to stderr."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoothcert import __version__
from smoothcert.cli import (
    attack,
    certify,
    compare_precision,
    data,
    demo,
    export_checkpoint,
    import_checkpoint,
    list_names,
    merge,
    predict,
    recertify,
    report,
    reproduce,
    train,
)
from smoothcert.cli.parser import Parser, name_flags
from smoothcert.cli.progress import say, short_notices
from smoothcert.errors import SmoothcertError, UsageError, printable
from smoothcert.plugins import FLAG, load_plugins, plugin_files
from smoothcert.runtime.interrupts import raise_interrupt

_COMMANDS = (
    data,
    train,
    certify,
    predict,
    recertify,
    compare_precision,
    attack,
    reproduce,
    report,
    demo,
    merge,
    import_checkpoint,
    export_checkpoint,
    list_names,
)
_LONGEST = 4096  # characters per argument, the limit of a path on Linux
_RESUME = "Run the same command to resume."


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="smoothcert",
        description="Certified robustness by randomized smoothing: train, certify and report.",
        epilog="Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"smoothcert {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    _limit_spinning()
    parser = Parser()
    try:
        _check_arguments(given)
        plugins = plugin_files(given)
        load_plugins(plugins)
        top = build_parser()
        _complete_arguments(top)
        if not given:
            top.print_help()
            return 0
        args = top.parse_args(given)
        parser = args.parser
        if "" in (args.plugin or ()):
            raise UsageError(f"Expected `{FLAG}` to name a Python file, but got an empty value.")
        if not {*(args.plugin or ())} <= {*plugins}:
            raise UsageError(f"Expected `{FLAG}` to be written in full, but got an abbreviation.")
        with short_notices(parser), _sigterm_as_interrupt():
            args.run(args)
        sys.stdout.flush()
    except SmoothcertError as error:
        if not _reported_by_another_rank(error):
            _complain(name_flags(str(error), parser))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:  # training adds the message that its state is saved
        say(f"\nsmoothcert: {str(interrupt) or 'interrupted.'} {_RESUME}")
        return 130
    except BrokenPipeError:  # the program that reads stdout, such as `head`, has closed it
        _discard_stdout()
    except OSError as error:  # for example no permission, an invalid name, or too many open files
        if error.filename is not None:
            _complain(f"{_shorten(str(error.filename))} cannot be opened ({error.strerror}).")
        else:
            _discard_stdout()
            _complain(f"the output cannot be written ({error.strerror or error}).")
        return 1
    except MemoryError:
        _complain("out of memory; use fewer images or noise samples, smaller images or smaller batches.")
        return 1
    finally:
        if ranks := sys.modules.get("smoothcert.distributed.ranks"):
            ranks.leave()
    return 0


def _check_arguments(given: Sequence[str]) -> None:
    for argument in given:
        if "\0" in argument or len(argument) > _LONGEST:
            problem = "contains a NUL character" if "\0" in argument else f"has more than {_LONGEST:,} characters"
            raise UsageError(f"The argument {_shorten(argument)!r} {problem}.")
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            raise UsageError(f"The argument {argument!r} cannot be encoded as a file name.") from None


def _complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Print completions and exit if the shell asks for them and argcomplete is installed."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)


def _complain(text: str) -> None:
    print(printable(f"smoothcert: {text}"), file=sys.stderr, flush=True)


def _shorten(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:100]}...{name[-50:]}"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, which job queues send before SIGKILL, like Ctrl-C, so that work is saved.

    Do nothing if a launcher started this process: torchrun sends SIGTERM to all its processes when one of them fails.
    """
    if threading.current_thread() is not threading.main_thread() or "RANK" in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _limit_spinning() -> None:
    """Let idle OpenMP threads sleep early, unless the user has set a wait policy. Call this before torch is loaded.

    By default, idle threads spin for milliseconds. On a busy machine, this slows down the threads that they wait for.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "1000"  # read by libgomp, which PyTorch uses on Linux


def _open_streams() -> None:
    """Replace stdout and stderr with the null device if the caller closed them."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _discard_stdout() -> None:
    """Send buffered output to the null device, so that the interpreter does not fail to flush it on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reported_by_another_rank(error: SmoothcertError) -> bool:
    """Return True if another process of a launched group reports the error, so that users see it only once."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    from smoothcert.distributed.launched import LaunchedRanks
    from smoothcert.distributed.peer_errors import rank0_reports
    from smoothcert.distributed.ranks import current_ranks

    ranks = current_ranks()
    if isinstance(ranks, LaunchedRanks):
        return rank0_reports(ranks, error)
    # This process failed before joining the group. Of the processes on a machine, only local rank 0 reports errors.
    return os.environ.get("LOCAL_RANK", "0") != "0"
