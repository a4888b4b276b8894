"""Ctrl-C while the command line is still importing its modules."""

from __future__ import annotations

import subprocess
import sys

import pytest
from launching import environment

INTERRUPTED_IMPORT = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt as error:  # as in NumPy, which has C code between the interrupt and the import
    raise ImportError("cannot be imported") from error
"""


@pytest.mark.parametrize("module", ["argparse", "torch"])
def test_interrupt_during_an_import_is_one_line(tmp_path, module):
    (tmp_path / f"{module}.py").write_text(INTERRUPTED_IMPORT)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from smoothcert.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler); {code}", "train"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nsmoothcert: interrupted.\n")
