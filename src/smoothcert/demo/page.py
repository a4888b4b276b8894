"""Renders the demo page: template, styles, scripts, networks and digits in one HTML file."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

import numpy as np

from smoothcert import __version__
from smoothcert.demo.networks import METHODS, ORDINARY, SIGMAS, network_facts, network_names, packed_network

_ASSETS = Path(__file__).with_name("assets")
_STYLES = ("page", "cards", "board")
# In this order: all scripts share one scope. The page and its workers both have the engine.
_ENGINE = ("statistics", "philox", "kernel", "network", "attacks")
_SCRIPTS = ("dom", "readers", "pad", "cards", "board", "main")

DIGITS = (3, 716, 77, 874, 139, 952, 21, 36, 956, 20)
"""Test images of mnist-mini that the page offers, one of each digit."""
_FIRST = 8  # the digit that the page opens with


def render_demo() -> str:
    """Return the demo page "Attack this digit", a single HTML file that needs no network.

    Returns:
        The page.

    Example:
        >>> page = render_demo()
        >>> page.startswith("<!doctype html>"), len(page) < 2_000_000
        (True, True)
    """
    parts = {
        "version": __version__,
        "style": "\n".join(_read(f"css/{name}.css") for name in _STYLES),
        "facts": "\n".join(f"<li>{html.escape(fact, quote=False)}</li>" for fact in _facts()),
        "data": json.dumps(_content(), separators=(",", ":")),
        "engine": "\n".join(_read(f"js/{name}.js") for name in _ENGINE),
        "worker": _read("js/worker.js"),
        "scripts": "\n".join(_read(f"js/{name}.js") for name in _SCRIPTS),
    }
    page = _read("page.html")
    for name, text in parts.items():
        page = page.replace(f"@{name}@", text)
    return page


def _content() -> dict[str, object]:
    with np.load(_ASSETS.parents[1] / "data" / "mnist-mini.npz") as data:
        images, labels = data["test_images"], data["test_labels"]
    digits = [{"index": i, "label": int(labels[i]), "pixels": _text(images[i].tobytes())} for i in DIGITS]
    return {"digits": digits, "first": _FIRST, "networks": {name: _text(packed_network(name)) for name in network_names()}}


def _facts() -> list[str]:
    """Return what a careful reader wants to know: statistics, networks, digits."""
    return []


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
