"""What a call does to the process and the machine: memory, files written, programs started."""

import os
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

BASE = 96 << 20
"""Bytes that any call may take, whatever the size of its files: libraries that are loaded on first use."""
MULTIPLE = 64
"""Times the honest size of its files that a call may take beyond that."""
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "pty.spawn")
_WRITES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
_watched: list[list] = []


def _hook(event, arguments):
    if _watched and event in _STARTS:
        _watched[-1].append((event, arguments, []))
    elif _watched and (event in _WRITES or event == "open"):
        _watched[-1].append((event, arguments, [_resolve(path, arguments) for path in _written(event, arguments)]))


sys.addaudithook(_hook)  # cannot be removed, so that it is silent unless a call is watched


@contextmanager
def watched(folder, honest_size):
    """Raise AssertionError if the block starts a program, writes outside the folder or takes too much memory."""
    events = []
    before, temporary = _reset_peak(), tempfile.tempdir
    _watched.append(events)
    tempfile.tempdir = str(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _watched.pop()
        tempfile.tempdir = temporary
    taken, allowed = _peak() - before, BASE + MULTIPLE * honest_size
    assert taken <= allowed, f"took {taken >> 20} MiB, where {allowed >> 20} MiB are allowed"
    own = Path(os.path.realpath(folder))
    for event, arguments, paths in events:
        assert event not in _STARTS, f"started something: {event} {arguments}"
        for path in paths:
            assert path.is_relative_to(own) or path == Path(os.devnull), f"wrote outside: {event} {arguments}"


def _written(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writing = any(letter in (mode or "") for letter in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        return [path] if writing and isinstance(path, str | bytes | os.PathLike) else []
    return [argument for argument in arguments[:2] if isinstance(argument, str | bytes | os.PathLike)]


def _resolve(path, arguments):
    """Return a path without links; the last argument of an event may be the folder it is relative to."""
    folder = arguments[-1] if isinstance(arguments[-1], int) and arguments[-1] > 2 and arguments[0] is path else None
    text = os.fsdecode(path)
    if folder is not None and not os.path.isabs(text):
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    return Path(os.path.realpath(text))


def _reset_peak():
    """Forget the largest memory so far, and return the current one."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def _peak():
    return _status("VmHWM")


def _status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))
