"""Render the demo page: template, styles, scripts, networks and digits in one HTML file."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

import numpy as np

from smoothcert import __version__
from smoothcert.demo.networks import DEMO_METHODS, ORDINARY, SIGMAS, network_facts, network_names, packed_network

_ASSETS = Path(__file__).with_name("assets")
_STYLES = ("page", "cards", "board")
# The order matters, since all scripts share one scope. Both the page and its workers load the engine.
_ENGINE = ("statistics", "philox", "kernel", "network", "attacks")
_SCRIPTS = ("dom", "readers", "pad", "cards", "board", "push", "main")

DIGITS = (3, 716, 77, 874, 139, 952, 21, 36, 956, 20)
"""Indices of the page's test images in mnist-mini, one image per digit from 0 to 9."""
_FIRST = 5  # the digit shown first: easy to read, and a push inside both certified balls fools the ordinary network
_ALPHA = 0.001  # a certificate is wrong with at most this probability


def render_demo() -> str:
    """Return the demo page "Attack this digit", a single HTML file that works offline."""
    parts = {
        "version": __version__,
        "confidence": f"{1 - _ALPHA:.1%}".replace("%", " %"),
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
    # Read the file directly, since smoothcert.data imports torch.
    with np.load(_ASSETS.parents[1] / "data" / "mnist-mini.npz") as data:
        images, labels = data["test_images"], data["test_labels"]
    digits = [{"index": i, "label": int(labels[i]), "pixels": _text(images[i].tobytes())} for i in DIGITS]
    return {
        "digits": digits,
        "first": _FIRST,
        "alpha": _ALPHA,
        "networks": {name: _text(packed_network(name)) for name in network_names()},
    }


def _facts() -> list[str]:
    """Return the notes on statistics, networks, noise, attacks and digits that the page lists."""
    epochs = {name: network_facts(name)["epochs"] for name in network_names()}
    trained = {method: epochs[f"{method}-{SIGMAS[0]:.2f}"] for method in DEMO_METHODS}
    return [
        "The certificates are real: 100 votes choose the answer, n fresh votes bound its probability with the exact "
        f"Clopper-Pearson bound, and a certificate is wrong with probability at most {_ALPHA}. Until all n votes are "
        "counted, the bound and the radius are only a preview.",
        f"All networks are LeNets with 431,080 weights of 8 bits, trained on MNIST: CAT-RS for {trained['catrs']} "
        f"epochs, Gaussian for {trained['gaussian']}, and the ordinary one for {epochs[ORDINARY]}. CAT-RS and "
        "Gaussian have one network per noise level. The certificates hold for the networks with 8-bit weights, "
        "computed in 32-bit floating point.",
        "The noise is the same as in the Python package smoothcert: with the seed in this page's address, the package "
        "counts the same votes, up to rounding.",
        "Distances are \N{SCRIPT SMALL L}\N{SUBSCRIPT TWO}: the root of the sum of the squared changes of all pixel "
        "values. Original values range from 0 to 1. A pushed pixel may leave this range: the guarantee still holds, "
        "and only the display clips the value.",
        "Each network is attacked separately, with full knowledge of it. To fool one prediction, the push crosses the "
        "nearest boundary between two answers. To fool the vote, or to push toward a digit, it follows gradients "
        "averaged over noisy copies. Along the push, a vote counts as decided if it passes a statistical test at "
        f"level {_ALPHA}; hatched parts are undecided.",
        "The digits are MNIST test images; all but the 0 were chosen because they are difficult. With noise 0.50, "
        "a push inside the certified ball fools a single prediction of a smoothed network on about 5 % of the test "
        "images, and the ordinary network on more than 30 %.",
    ]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
