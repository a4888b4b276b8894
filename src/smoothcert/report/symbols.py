"""Greek letters in the names of runs and settings."""

from __future__ import annotations

import re

_LETTERS = {"alpha": "α", "epsilon": "ε", "eta": "η", "lambda": "λ", "sigma": "σ"}


def with_symbols(text: str) -> str:
    """Replace names of Greek letters with the letters, if the name is a whole word or is followed by a number.

    >>> with_symbols("Consistency, lambda=10"), with_symbols("lambda10"), with_symbols("metadata")
    ('Consistency, λ = 10', 'λ = 10', 'metadata')
    """
    names = "|".join(_LETTERS)
    return re.sub(
        rf"(?<![a-zA-Z])({names})(?:\s*=?\s*(?=\d)|(?![a-zA-Z]))",
        lambda match: _LETTERS[match[1]] + (" = " if re.match(r"\d", text[match.end() :]) else ""),
        text,
    )
