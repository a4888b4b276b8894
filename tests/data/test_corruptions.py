"""Corruptions against samples of both published datasets, made by the original generators with other random numbers."""

import numpy as np
import pytest

import smoothcert
from smoothcert.data.corruptions import corrupt, suite_for
from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.errors import UsageError

EXACT = {"stripe": 0.0, "canny_edges": 0.0, "scale": 0.02, "brightness": 0.02}
"""Deterministic corruptions of MNIST-C, and the mean difference (of 255) allowed for rounding."""

FEW = {"shear": (20, 0.02), "rotate": (20, 0.02), "translate": (40, 0.0), "zigzag": (2500, 0.02)}
FEW |= {"dotted_line": (6000, 0.02), "motion_blur": (800, 0.05)}
"""Corruptions with few possible outcomes: seeds to try until one matches, and the tolerance."""

DETERMINED = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")


@pytest.fixture(scope="module")
def mnist_c(sample_data):
    return {
        name: np.load(sample_data / f"mnist-c/{name}.npz")["images"] for name in (*CORRUPTIONS["mnist-c"], "identity")
    }


def statistics(images, clean):
    """Five statistics per image: mean, deviation, distance from the clean image, vertical and horizontal variation."""
    values, before = images.astype(float), clean.astype(float)
    axes = tuple(range(1, images.ndim))
    return {
        "mean": values.mean(axes),
        "spread": values.std(axes),
        "distance": np.abs(values - before).mean(axes),
        "down": np.abs(np.diff(values, axis=1)).mean(axes),
        "across": np.abs(np.diff(values, axis=2)).mean(axes),
    }


def furthest_apart(ours, theirs, clean):
    """Largest paired z-score of the statistics: the images are the same, only the random numbers differ."""
    scores = {}
    for name, values in statistics(ours, clean).items():
        gap = values - statistics(theirs, clean)[name]
        scores[name] = abs(gap.mean()) / max(gap.std(ddof=1) / np.sqrt(len(gap)), 1e-3)
    return max(scores.values())


@pytest.mark.parametrize("name", EXACT)
def test_determined_corruptions_of_mnist_c_are_the_same(mnist_c, name):
    ours = corrupt(mnist_c["identity"][:300, ..., None], name)[..., 0]
    assert np.abs(ours.astype(float) - mnist_c[name][:300]).mean() <= EXACT[name]


@pytest.mark.parametrize("name", FEW)
def test_corruptions_of_few_outcomes_have_theirs_among_them(mnist_c, name):
    seeds, near = FEW[name]
    for index in (3, 18):
        clean, theirs = mnist_c["identity"][index, None, ..., None], mnist_c[name][index].astype(float)
        gaps = (np.abs(corrupt(clean, name, seed=seed)[0, ..., 0] - theirs).mean() for seed in range(seeds))
        assert any(gap <= near for gap in gaps), (name, index)


@pytest.mark.parametrize(("name", "index"), [("scale", 262), ("rotate", 1152), ("shear", 1224)])
def test_ink_at_the_border_fades_out_as_in_theirs(mnist_c, name, index):
    """Pixels outside the image are black and take part in the interpolation."""
    clean, theirs = mnist_c["identity"][index, None, ..., None], mnist_c[name][index].astype(int)
    made = (corrupt(clean, name, seed=seed)[0, ..., 0] for seed in range(20))
    assert min(np.abs(image - theirs).max() for image in made) <= 1


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS["mnist-c"]) - set(EXACT)))
def test_random_corruptions_of_mnist_c_have_their_distribution(mnist_c, name):
    clean = mnist_c["identity"][:300]
    ours = corrupt(clean[..., None], name)[..., 0]
    assert furthest_apart(ours, mnist_c[name][:300], clean) < 4
    assert np.abs(ours.astype(float) - clean).mean() > 5  # of 255


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRUPTIONS["cifar10-c"])
def test_cifar10_c_at_every_severity(sample_data, real_data, name):
    clean = np.moveaxis(smoothcert.load_dataset("cifar10", "test", real_data).images[::100].numpy(), 1, -1)
    sample = np.load(sample_data / f"cifar10-c-sample/{name}.npy")
    before = 0.0
    for severity in range(1, 6):
        theirs = sample[100 * (severity - 1) : 100 * severity]
        ours = corrupt(np.ascontiguousarray(clean), name, severity)
        if name in DETERMINED:
            assert np.abs(ours.astype(float) - theirs).mean() < 0.05
        else:
            assert furthest_apart(ours, theirs, clean) < 4
        distance = np.abs(ours.astype(float) - clean).mean()
        if name not in (
            "glass_blur",
            "motion_blur",
            "elastic_transform",
            "frost",
        ):  # their published severities are not monotonic
            assert distance > before
        before = distance


def test_the_suites_are_the_published_ones():
    for channels, published in ((1, "mnist-c"), (3, "cifar10-c")):
        suite = suite_for(channels)
        assert tuple(suite.corruptions)[:15] == suite.counted == CORRUPTIONS[published]
        assert all(len(settings) == suite.severities for _, settings in suite.corruptions.values())


@pytest.mark.parametrize("channels", [1, 3])
def test_any_size_any_part_and_the_same_again(channels):
    """Every corruption on images of another size; corrupting a part gives the same images as corrupting all."""
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 36, channels), dtype=np.uint8)
    images[0] = 0  # a black image
    for name, (_, settings) in suite_for(channels).corruptions.items():
        whole = corrupt(images, name, len(settings))
        assert whole.shape == images.shape
        assert np.array_equal(corrupt(images[1:], name, len(settings), first=1), whole[1:])
        assert np.array_equal(corrupt(images, name, len(settings)), whole)


def test_saturate_against_the_standard_library():
    import colorsys

    image = np.random.default_rng(1).integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)
    ours = corrupt(image, "saturate", 4)[0]
    for pixel, made in zip(image[0].reshape(-1, 3), ours.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel / 255)
        expected = 255 * np.array(colorsys.hsv_to_rgb(hue, min(1.0, 2 * saturation + 0.1), value))
        assert np.abs(np.floor(expected + 1e-6) - made).max() <= 1


def test_snow_falls_from_above_and_once_more_upside_down():
    gray = np.full((1, 32, 32, 3), 50, dtype=np.uint8)
    for severity in range(1, 6):
        flakes = corrupt(gray, "snow", severity)[0]
        assert np.array_equal(flakes, np.rot90(flakes, 2)), "as published: a second time, turned by 180 degrees"
        assert flakes.max() > flakes.min()


def test_bad_values():
    gray = np.zeros((1, 28, 28, 1), dtype=np.uint8)
    with pytest.raises(UsageError, match="Unknown corruption 'fogg'; did you mean 'fog'"):
        corrupt(gray, "fogg")
    with pytest.raises(UsageError, match="severity of fog to be from 1 to 1, but got 2"):
        corrupt(gray, "fog", 2)
    with pytest.raises(UsageError, match="1 or 3 channels, but got 2"):
        corrupt(np.zeros((1, 28, 28, 2), dtype=np.uint8), "fog")


def test_frost_says_what_it_needs(monkeypatch):
    from smoothcert.data.corruptions import weather

    weather._photographs.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(smoothcert.errors.SmoothcertError, match="pip install --no-deps imagecorruptions"):
        corrupt(np.zeros((1, 32, 32, 3), dtype=np.uint8), "frost")
