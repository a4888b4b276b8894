"""Host memory: keep freed memory in the process instead of returning it to the operating system."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # parameters of mallopt, from malloc.h
_LARGEST = 32 << 20  # bytes above which a tensor gets its own memory mapping; the maximum that glibc allows
_KEPT = 256 << 20  # bytes of free memory that are kept


@cache
def keep_freed_memory() -> bool:
    """Set the C library's allocator to keep up to 256 MiB of freed memory; return True on success.

    Networks allocate and free a few large tensors per layer. By default, glibc returns their memory to the system, and
    the system zeroes every page before its next use; zeroing takes a third of the time of a small network on the CPU.
    Nothing is changed if the user has set `MALLOC_...` or `GLIBC_TUNABLES`, or if the C library is not glibc.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if chosen or not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    values = {
        _MMAP_THRESHOLD: _LARGEST,
        _TRIM_THRESHOLD: _KEPT,
        _TOP_PAD: 2 * _LARGEST,  # for the heaps of threads
    }
    accepted = [set_option(option, value) for option, value in values.items()]
    return all(accepted)
