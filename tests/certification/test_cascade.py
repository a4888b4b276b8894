"""Cascades from stored votes and at prediction time."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from scipy.stats import norm

import smoothcert
from smoothcert.certification.cascade import certify_cascade
from smoothcert.cli import main
from smoothcert.errors import UsageError
from smoothcert.results.naming import counts_path, level_paths, sidecar_path
from smoothcert.statistics.cascade import CascadeRule
from smoothcert.stopping import TableStop

SIGMAS, INDICES = (0.8, 0.4, 0.1), list(range(0, 200, 5))
OPTIONS = {"n0": 50, "n": 1000, "indices": INDICES}


@pytest.fixture(scope="module")
def levels(tiny_model):
    return [smoothcert.SmoothedClassifier(tiny_model, sigma, 10, micro_batch=64) for sigma in SIGMAS]


@pytest.fixture(scope="module")
def files(levels, tiny, tmp_path_factory):
    """Results of every level."""
    folder = tmp_path_factory.mktemp("levels")
    paths = [folder / f"{place}.tsv" for place in range(len(SIGMAS))]
    for level, path in zip(levels, paths, strict=True):
        smoothcert.certify_dataset(level, tiny, path, **OPTIONS)
    return paths


def recertify(*flags):
    return main(["recertify", *map(str, flags)])


def test_stored_votes_and_classifiers_give_the_same_cascade(files, levels, tiny, tmp_path, capsys):
    out = tmp_path / "made.tsv"
    assert recertify("--cascade", *files, "--p0", "0.6", "--alpha", "0.01", "--out", out) == 0
    assert "[cascade 0.8 0.4 0.1, p0 0.6, alpha 0.01]" in capsys.readouterr().out
    made = smoothcert.read_results(out)
    cascade = smoothcert.Cascade(levels, p0=0.6)
    found = cascade.certify(tiny.floats(INDICES), n0=50, n=1000, alpha=0.01, index=INDICES)
    assert made.predict.tolist() == found.prediction.tolist()
    assert made.radius.tolist() == found.radius.tolist()
    assert set(found.level.tolist()) == {-1, 0, 1, 2}, "every level answers some image"
    single = cascade.certify(tiny.floats(INDICES)[3], n0=50, n=1000, alpha=0.01, index=INDICES[3])
    assert (single.prediction, single.radius) == (int(found.prediction[3]), float(found.radius[3]))
    assert cascade.predict(tiny.floats(INDICES), n0=50, n=1000, alpha=0.01, index=INDICES).tolist() == (
        found.prediction.tolist()
    )


def test_the_sidecar_names_the_sources(files, tmp_path):
    out = tmp_path / "made.tsv"
    assert recertify("--cascade", *files, "--out", out) == 0
    settings = json.loads(sidecar_path(out).read_text())["settings"]
    sources = [json.loads(sidecar_path(path).read_text())["settings"] for path in files]
    assert settings["cascade"]["p0"] == 0.5
    assert settings["cascade"]["first_share"] == 0.8
    for level, source, path in zip(settings["cascade"]["levels"], sources, files, strict=True):
        assert level["file"] == path.name
        assert level["model"] == source["model"]
        assert level["sigma"] == source["sigma"]
    for file, path in zip(level_paths(out, 3), files, strict=True):
        assert file.read_text() == counts_path(path).read_text(), "the votes lie beside the rows"
    assert recertify("--cascade", *files, "--out", out) == 2, "existing results are not replaced"


def test_images_may_be_in_another_order(files, levels, tiny, tmp_path):
    reversed_ = tmp_path / "reversed.tsv"
    smoothcert.certify_dataset(levels[1], tiny, reversed_, **{**OPTIONS, "indices": INDICES[::-1]})
    ordered, shuffled = (certify_cascade([files[0], middle, files[2]]).records for middle in (files[1], reversed_))
    assert [record.row().rsplit("\t", 1)[0] for record in ordered] == [
        record.row().rsplit("\t", 1)[0] for record in shuffled
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{1}", "{0}"], "order of decreasing sigma, but got 0.4 0.8"),
        (["{0}"], "at least two levels"),
        (["{0}", "{1}", "--p0", "0.4"], "`--p0` to be at least 0.5 and below 1, but got 0.4"),
        (["{0}", "{1}", "--p0", "0.999"], "prove a class probability above `--p0` = 0.999"),
        (["{0}", "{1}", "--first-share", "1"], "to be between 0 and 1, exclusive, but got 1"),
        (["{0}", "{1}", "--alpha", "0"], "`--alpha`"),
        (["{0}", "{1}", "--bound", "two-sided"], "`--bound` cannot be combined with `--cascade`"),
        (["{0}", "{folder}/other-n.tsv"], "different settings than .*0.tsv: n"),
        (["{0}", "{folder}/fewer.tsv"], "does not have the same images as"),
        (["{0}", "{folder}/labels.tsv"], "different settings than .*0.tsv: data"),
        (["{0}", "{folder}/stopped.tsv"], "made with a stopping rule"),
        (["{0}", "{folder}/uniform.tsv"], "not made with Gaussian noise"),
        (["{0}", "{folder}/no-votes.tsv"], "no file of votes"),
        (["{0}", "{folder}/no-sidecar.tsv"], "no sidecar from `certify`"),
        (["{0}", "{folder}/some-votes.tsv", "--unverified"], "no votes for image 195"),
        (["{folder}/cascade.tsv", "{2}"], "is itself a cascade"),
        (["{0}", "{1}", "--out", "some.json"], "to be a results file ending in .tsv"),
    ],
)
def test_files_that_make_no_cascade(others, files, flags, message, capsys):
    places = {"folder": str(others)}
    texts = [flag.format(*files, **places) for flag in flags]
    assert recertify("--cascade", *texts) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, said), said


@pytest.fixture(scope="module")
def others(files, tiny_model, tiny, tmp_path_factory):
    """Results that do not fit the levels."""
    folder = tmp_path_factory.mktemp("others")

    def certify(name, noise="gaussian", data=tiny, **options):
        level = smoothcert.SmoothedClassifier(tiny_model, 0.4, 10, micro_batch=64, noise=noise)
        smoothcert.certify_dataset(level, data, folder / name, **{**OPTIONS, **options})

    certify("other-n.tsv", n=500)
    certify("fewer.tsv", indices=INDICES[:-1])
    certify("uniform.tsv", noise="uniform")
    certify("stopped.tsv", stop=TableStop(radii=(0.0, 1.0)))
    certify("labels.tsv", data=dataclasses.replace(tiny, labels=(tiny.labels + 1) % 10))
    for name in ("no-votes", "no-sidecar", "some-votes"):
        for suffix in (".tsv", ".counts.tsv", ".json"):
            (folder / f"{name}{suffix}").write_text(files[1].with_name(f"1{suffix}").read_text())
    (folder / "no-votes.counts.tsv").unlink()
    (folder / "no-sidecar.json").unlink()
    counts = folder / "some-votes.counts.tsv"
    counts.write_text("".join(counts.read_text().splitlines(keepends=True)[:-1]))
    assert recertify("--cascade", *files, "--out", folder / "cascade.tsv") == 0
    return folder


def test_a_cascade_is_not_recertified_as_if_it_were_one_classifier(others, files, capsys):
    assert recertify(others / "cascade.tsv", "--alpha", "0.01") == 2
    assert "is a cascade" in capsys.readouterr().err
    assert recertify() == 2
    assert "Expected a results file, or several after `--cascade`" in capsys.readouterr().err
    assert recertify(files[0], "--p0", "0.5") == 2
    assert "`--p0` needs `--cascade`" in capsys.readouterr().err


class TestHalfSpaces:
    """Two half-spaces on the line: probabilities, and so the cascade itself, are known exactly."""

    SIGMAS, EDGES, P0 = (1.0, 0.25), (0.0, 0.3), 0.7

    def cascade(self):
        def above(edge):
            return lambda x: torch.cat([edge - x, x - edge], dim=1)

        levels = [
            smoothcert.SmoothedClassifier(above(edge), sigma, 2)
            for edge, sigma in zip(self.EDGES, self.SIGMAS, strict=True)
        ]
        return smoothcert.Cascade(levels, p0=self.P0)

    def answer(self, x):
        """Return the class of the exact cascade."""
        for edge, sigma in zip(self.EDGES, self.SIGMAS, strict=True):
            p = norm.cdf((x - edge) / sigma)
            if max(p, 1 - p) > self.P0:
                return int(p > 0.5)
        return -1

    def test_no_point_within_the_radius_has_another_class(self):
        points = np.linspace(-1.5, 1.5, 61)
        found = self.cascade().certify(torch.tensor(points).unsqueeze(1), n=4000, alpha=1e-6)
        certified = 0
        for x, prediction, radius in zip(points, found.prediction.tolist(), found.radius.tolist(), strict=True):
            near = np.linspace(x - radius, x + radius, 41)[1:-1] if radius > 0 else []
            assert all(self.answer(point) == prediction for point in near), x
            certified += radius > 0
        assert certified > 40

    def test_radii_approach_the_largest_true_ones(self):
        found = self.cascade().certify(torch.tensor([0.05]), n=200_000, alpha=1e-3)
        quantile = norm.ppf(self.P0)
        largest = min(0.25 * (0.25 / 0.25 - quantile), quantile - 0.05)
        assert (found.prediction, found.level) == (0, 1)
        assert largest - 0.01 < found.radius < largest


def test_classifiers_must_fit_each_other(levels, tiny_model):
    def smoothed(sigma, classes=10, **options):
        return smoothcert.SmoothedClassifier(tiny_model, sigma, classes, **options)

    for members, message in (
        ([levels[1], levels[0]], "decreasing sigma"),
        ([levels[0], tiny_model], "SmoothedClassifiers with Gaussian noise"),
        ([levels[0], smoothed(0.1, noise="uniform")], "SmoothedClassifiers with Gaussian noise"),
        ([levels[0], smoothed(0.1, 12)], "same `num_classes`, but got 10 and 12"),
        ([levels[0], smoothed(0.1, input_range=(0, 2))], "same `input_range`"),
    ):
        with pytest.raises(UsageError, match=message):
            smoothcert.Cascade(members)
    with pytest.raises(UsageError, match="`p0`"):
        smoothcert.Cascade(levels, p0=0.3)
    unknown = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x, x - 9], dim=1), 0.5)
    other = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], dim=1), 0.25)
    with pytest.raises(UsageError, match="same `num_classes`, but got 3 and 2"):
        smoothcert.Cascade([unknown, other], p0=0.9).certify(torch.tensor([0.0]), n=100)


def test_only_inputs_that_were_passed_on_are_voted_on_again(levels, tiny):
    asked = []

    class Counting(smoothcert.SmoothedClassifier):
        def count_stages(self, inputs, *args, **options):
            asked.append(len(inputs))
            return super().count_stages(inputs, *args, **options)

    members = [Counting(level.model, level.sigma, 10, micro_batch=64) for level in levels]
    found = smoothcert.Cascade(members).certify(tiny.floats(INDICES), n0=50, n=1000)
    answered = np.array([(found.level == level).sum() for level in range(3)])
    assert asked[0] == len(INDICES)
    assert asked[1] <= len(INDICES) - answered[0]
    assert asked == sorted(asked, reverse=True)
    assert math.isfinite(float(found.radius.max()))


def test_rule_and_votes_are_enough(files):
    """The command's rows follow from `read_counts` and `CascadeRule` alone."""
    votes = [smoothcert.read_counts(path, 10) for path in files]
    found = CascadeRule(SIGMAS).certify(votes)
    made = certify_cascade(files).records
    assert [record.radius for record in made] == found.radius.tolist()
