"""Draw the figures of docs/idea.md, each in a light and a dark variant. All numbers in them are computed here.

python scripts/docs_pictures.py [FOLDER]
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from picture_style import save_pictures
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

import smoothcert
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.statistics import bounds, metrics

ROOT = Path(__file__).parent.parent
# From the color-blind safe palette of Okabe and Ito.
ORANGE, GREEN = "#E69F00", "#009E73"
BLUES = {"": "#0072B2", "-dark": "#56B4E9"}
SIGMA, POINT, SIDE, STEP = 0.4, (0.15, 0.1), 2.0, 0.01


def smoothing(ink, blue):
    """Draw a base classifier with a ragged boundary, the votes around a point, and the smoothed classifier."""
    axis = np.arange(-SIDE - 4 * SIGMA, SIDE + 4 * SIGMA, STEP)
    x, y = np.meshgrid(axis, axis)
    base = _base(x, y)
    probability = gaussian_filter(base.astype(float), SIGMA / STEP, truncate=4)
    p = float(probability[np.abs(axis - POINT[1]).argmin(), np.abs(axis - POINT[0]).argmin()])
    radius = SIGMA * float(ndtri(p))
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.5), layout="constrained")
    noisy = np.array(POINT)[:, None] + SIGMA * np.random.default_rng(3).normal(size=(2, 250))
    blue_points = _base(*noisy)
    titles = ("base classifier", f"votes under noise: {p:.0%} blue", f"smoothed: certified radius {radius:.2f}")
    for panel, title, region in zip(panels, titles, (base, base, probability > 0.5), strict=True):
        coarse = (slice(None, None, 3), slice(None, None, 3))  # keeps the file small
        panel.contourf(x[coarse], y[coarse], region[coarse], levels=[-0.5, 0.5, 1.5], colors=[ORANGE, blue], alpha=0.28)
        panel.plot(*POINT, marker="o", ms=5, color=ink)
        panel.set(title=title, xlim=(-SIDE, SIDE), ylim=(-SIDE, SIDE), xticks=[], yticks=[], aspect="equal")
        panel.title.set_fontsize(11)
    panels[1].scatter(*noisy[:, blue_points], s=7, color=blue, linewidths=0)
    panels[1].scatter(*noisy[:, ~blue_points], s=7, color=ORANGE, linewidths=0)
    panels[2].add_patch(plt.Circle(POINT, radius, fill=False, color=ink, linewidth=1.4))
    panels[0].annotate("x", POINT, (POINT[0] + 0.12, POINT[1] + 0.08), color=ink)
    return figure


def _base(x, y):
    """Return True for blue points: those left of a wavy line, except for a few holes."""
    inside = x < 0.75 + 0.28 * np.sin(4.5 * y) + 0.12 * np.sin(13 * y)
    for center_x, center_y, size in ((0.28, 0.42, 0.12), (-0.55, -0.3, 0.16), (-0.9, 1.1, 0.2), (1.5, -0.9, 0.22)):
        inside ^= np.hypot(x - center_x, y - center_y) < size
    return inside


def votes(ink, blue):
    """Draw a digit, three noisy copies, and the votes of 1,000 noise samples."""
    sigma, number = 1.0, 15  # a five that some noise samples turn into a three
    image = smoothcert.load_dataset("mnist-mini", "test").floats([number])[0]
    smoothed = smoothcert.SmoothedClassifier(smoothcert.load_pretrained("mnist-catrs-1.00").model, sigma, 10)
    counts = smoothed.certify(image, n=1000).counts.numpy()
    noise = np.random.default_rng(0).normal(size=(3, 28, 28))
    figure = plt.figure(figsize=(9.6, 2.7), layout="constrained")
    grid = figure.add_gridspec(1, 5, width_ratios=[1, 1, 1, 1, 2.2])
    digit = image[0].numpy()
    for place, shown in enumerate([digit, *(digit + sigma * noise)]):
        panel = figure.add_subplot(grid[place])
        panel.imshow(shown, cmap="gray", vmin=-1, vmax=2)
        panel.set(xticks=[], yticks=[], title="image" if place == 0 else f"noise sample {place}")
        panel.title.set_fontsize(11)
    panel = figure.add_subplot(grid[4])
    panel.bar(range(10), counts, color=[blue if count == counts.max() else ORANGE for count in counts])
    for label, count in enumerate(counts):
        if count:
            panel.text(label, count + 15, f"{count}", ha="center", fontsize=9)
    panel.set(title="votes of 1,000 noise samples", xticks=range(10), yticks=[], ylim=(0, 1.12 * counts.max()))
    panel.title.set_fontsize(11)
    panel.spines["left"].set_visible(False)
    return figure


def certificate(ink, blue):
    """Draw the lower bound as a function of the fraction of votes, and the radius as a function of the lower bound."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
    for n, color, dash in ((100, ORANGE, (0, (1, 1))), (1000, GREEN, "--"), (100_000, blue, "-")):
        k = np.unique(np.linspace(n // 2, n, 400).astype(int))
        left.plot(k / n, bounds.lower_bound(k, n, 0.001), color=color, linestyle=dash, label=f"n = {n:,}")
        cap = bounds.largest_radius(1.0, n, 0.001)
        right.axhline(cap, color=color, linestyle=dash, linewidth=1)
        right.text(0.502, cap + 0.06, f"largest radius for n = {n:,}: {cap:.2f} sigma", fontsize=9, color=ink)
    left.plot([0.5, 1], [0.5, 1], color=ink, linewidth=0.8)
    left.text(0.72, 0.745, "fraction itself", fontsize=9, rotation=38, ha="center", va="bottom", color=ink)
    left.legend(loc="upper left")
    left.set(xlabel="fraction of votes", ylabel="lower bound of p_A, alpha = 0.001", xlim=(0.5, 1), ylim=(0.3, 1.005))
    p = 1 - np.geomspace(0.5, 1e-5, 400)
    right.plot(p, ndtri(p), color=ink, linewidth=1.6)
    right.set(xlabel="lower bound of p_A", ylabel="radius / sigma", xlim=(0.5, 1.005), ylim=(0, 4.4))
    for panel in (left, right):
        panel.grid(linewidth=0.6)
    return figure


def curve(ink, blue):
    """Draw the certified accuracy of two CAT-RS networks by radius, with ACR as the area below."""
    figure, panel = plt.subplots(figsize=(9.6, 3.6), layout="constrained")
    radii = np.arange(0, 4.0, 0.01)
    for sigma, color in ((0.5, ORANGE), (1.0, blue)):
        folder = ROOT / f"results/mnist/mnist-catrs-{sigma:.2f}"
        paths = [path for path in folder.glob("certify-*.tsv*") if ".counts." not in path.name]
        results = max(map(smoothcert.read_results, paths), key=lambda candidate: len(candidate.radius))
        accuracy = 100 * metrics.certified_accuracy(results.radius, results.correct, radii)
        acr = metrics.estimate(metrics.robust_radius(results.radius, results.correct)).value
        panel.plot(radii, accuracy, color=color, label=f"sigma {sigma:g}: ACR {acr:.3f}")
        panel.fill_between(radii, accuracy, color=color, alpha=0.12, linewidth=0)
    panel.set(xlabel="l2 radius", ylabel="certified accuracy, %", xlim=(0, 4), ylim=(0, 100))
    panel.set_title(f"{PAPER_METHODS['catrs']} on {len(results.radius):,} images of MNIST, n = 100,000", fontsize=11)
    panel.legend(loc="upper right")
    panel.grid(linewidth=0.6)
    return figure


if __name__ == "__main__":
    for draw in (smoothing, votes, certificate, curve):
        save_pictures(f"idea-{draw.__name__}", lambda suffix, ink, draw=draw: draw(ink, BLUES[suffix]))
