"""Shell completion through argcomplete, where it is installed."""

from __future__ import annotations

import argparse
import os


def words_to_complete() -> list[str]:
    """Return the command line that a shell asks to complete, empty if it does not ask."""
    return os.environ.get("COMP_LINE", "").split() if "_ARGCOMPLETE" in os.environ else []


def complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; do nothing without argcomplete."""
    if words_to_complete():
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)
