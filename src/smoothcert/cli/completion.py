"""Shell completion through argcomplete, if it is installed."""

from __future__ import annotations

import argparse
import os


def complete_arguments(parser: argparse.ArgumentParser) -> None:
    """Print completions and exit if the shell asks for them and argcomplete is installed."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)
