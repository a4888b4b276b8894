"""Docstrings of documented functions and classes have the sections that CONTRIBUTING.md names."""

import inspect
import re

import pytest
from public_calls import documented

import smoothcert

ABSTRACT = {"stopping.StopRule", "metrics.Certificates"}
"""Base classes and protocols; they have no examples."""


def find(name):
    owner, _, member = name.partition(".")
    return getattr(getattr(smoothcert, owner), member) if member else getattr(smoothcert, owner)


def parameters(thing):
    if getattr(thing, "_is_protocol", False):
        return set()
    return set(inspect.signature(thing).parameters) - {"self"}


def checks(thing):
    """Return True if the code of a function, or of a class's constructor, raises or checks something."""
    parts = [vars(thing).get(name) for name in ("__init__", "__post_init__")] if isinstance(thing, type) else [thing]
    written = [part for part in map(inspect.unwrap, filter(None, parts)) if part.__code__.co_filename != "<string>"]
    return any(re.search(r"\b(raise|check_\w+)\b", inspect.getsource(part)) for part in written)


def listed(text):
    """Return the names in the section of arguments; of a result, those in the section of attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?)+)", text, re.MULTILINE)
    return set(re.findall(r"^    \**(\w+): ", section[1], re.MULTILINE)) if section else set()


@pytest.mark.parametrize("name", documented())
def test_a_public_docstring_is_complete(name):
    thing = find(name)
    text = inspect.getdoc(thing)
    assert listed(text) == parameters(thing)
    if not isinstance(thing, type) and inspect.signature(thing).return_annotation != "None":
        assert "\nReturns:\n" in text
    if name not in ABSTRACT and checks(thing):
        assert "\nRaises:\n" in text
    if name not in ABSTRACT and (isinstance(thing, type) or not isinstance(find(name.partition(".")[0]), type)):
        assert "\nExample:\n" in text
