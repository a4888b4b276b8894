"""Handle interrupts, also during imports.

This module imports as little as possible, so that the command line can load it first.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_IMPORT_MACHINERY = "<frozen importlib._bootstrap>"


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the process if an import is in progress.

    During an import, KeyboardInterrupt is not safe: extension modules such as NumPy's turn it into unrelated errors.
    """
    above = frame
    while above:
        if above.f_code.co_filename == _IMPORT_MACHINERY:
            if os.environ.get("RANK", "0") == "0":
                os.write(2, b"\nsmoothcert: interrupted.\n")
            os._exit(130)
        above = above.f_back
    signal.default_int_handler(number, frame)
