"""Shell completion through argcomplete, where it is installed."""

from __future__ import annotations

import argparse
import os


def complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; do nothing without argcomplete."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)
