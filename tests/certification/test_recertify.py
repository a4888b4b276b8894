"""Reading votes anew: another alpha, bound or norm, and never a table that mixes protocols silently."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import one_hot

import smoothcert
from smoothcert.certification.recertify import recertify
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.tables.entries import describe
from smoothcert.report.tables.table import build_table
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.results.records import Record
from smoothcert.results.writer import write_rows
from smoothcert.statistics import bounds
from smoothcert.statistics.look_plan import table_plan

SIGMA, N = 0.5, 1000
SETTINGS = {
    "task": "certify", "sigma": SIGMA, "n0": 100, "n": N, "alpha": 0.001, "seed": 3,
    "data": {"name": "cifar10"}, "model": {"method": "catrs"},
}  # fmt: skip


def votes(*counts):
    return [*counts, *[0] * (10 - len(counts))]


ESTIMATIONS = [votes(1000), votes(950, 50), votes(600, 400), votes(450, 300, 250), votes(300, 700)]


@pytest.fixture
def fixed(tmp_path):
    """A results file as `certify` writes it, of votes that we choose; labels 0, 0, 0, 0, 1."""
    path = tmp_path / "fixed.tsv"
    predict, radius, _ = bounds.certify_counts([votes(100)] * 5, ESTIMATIONS, SIGMA, 0.001)
    records = [
        Record(7 * i, int(i == 4), int(predict[i]), float(radius[i]), 0.5, votes(100), ESTIMATIONS[i]) for i in range(5)
    ]
    write_rows(path, records)
    sidecar_path(path).write_text(json.dumps({"settings": SETTINGS, "segments": []}))
    return path


@pytest.fixture
def sequential(tmp_path):
    """The same of a table rule: an image that stopped at 500 of 1,000, and one that was skipped."""
    path = tmp_path / "looks.tsv"
    plan = table_plan(N, 0.001)
    stop = {"rule": "table", "skip_wrong": True, "radii": [0, 1], **plan.settings()}
    sidecar_path(path).write_text(json.dumps({"settings": {**SETTINGS, "stop": stop}, "segments": [], "samples": 700}))
    rows = ["idx\tlook\tsamples\tvotes\ttime", "0\t0\t100\t3:100\t0:00:01", "0\t1\t200\t3:190 1:10\t0:00:01"]
    rows += ["0\t2\t500\t3:480 1:20\t0:00:01", "1\t0\t100\t4:100\t0:00:01"]
    path.with_name("looks.looks.tsv").write_text("\n".join(rows) + "\n")
    failure = min(float(plan.failure(190, 0)), float(plan.failure(480, 1)))
    last = votes(0, 20, 0, 480)
    first = Record(0, 3, 3, float(bounds.gaussian_radius(failure, SIGMA)), 3.0, votes(0, 0, 0, 100), last)
    write_rows(path, [first, Record(1, 0, -1, 0.0, 1.0, votes(0, 0, 0, 0, 100), votes())])
    return path, plan


def test_nothing_asked_is_nothing_changed(fixed):
    records, about, looks = recertify(fixed)
    results = smoothcert.read_results(fixed)
    assert [record.radius for record in records] == results.radius.tolist()
    assert [record.predict for record in records] == results.predict.tolist()
    assert about["settings"] == SETTINGS
    assert looks == {}


def test_another_alpha(fixed):
    records, about, _ = recertify(fixed, alpha=0.05)
    expected = SIGMA * stats.norm.ppf(stats.beta.ppf(0.05, 950, 51))
    assert records[1].radius == pytest.approx(expected)
    assert about["settings"]["alpha"] == 0.05
    with pytest.raises(UsageError, match="alpha"):
        recertify(fixed, alpha=0.0)


def test_linf_and_two_sided_and_top_k(fixed):
    plain = recertify(fixed)[0]
    cube, about, _ = recertify(fixed, norm="linf")
    assert cube[1].radius == pytest.approx(plain[1].radius / np.sqrt(3072))
    assert about["settings"]["norm"] == "linf"
    two = recertify(fixed, bound="two-sided")[0]
    assert plain[3].predict == -1
    assert (two[3].predict, two[4].predict) == (0, -1), "0.45 against 0.30 and 0.25 is proven, 0.3 against 0.7 is not"
    top, about, _ = recertify(fixed, top=2)
    assert about["settings"]["top_k"] == 2
    assert about["settings"]["bound"] == "two-sided"
    assert top[4].predict == 1, "the label, not the selected class"
    assert top[3].radius > two[3].radius


def test_the_randomized_bound_is_the_same_every_time(fixed):
    first, again = (recertify(fixed, bound="randomised")[0] for _ in range(2))
    plain = recertify(fixed)[0]
    assert [record.radius for record in first] == [record.radius for record in again]
    assert all(record.radius >= other.radius for record, other in zip(first, plain, strict=True))
    assert first[0].radius == plain[0].radius, "kept at the ordinary largest"
    assert first[1].radius > plain[1].radius


def test_stopped_votes_are_read_by_their_looks(sequential):
    """Clopper-Pearson of the last counts with the whole alpha would be peeking."""
    path, plan = sequential
    records, about, looks = recertify(path, alpha=0.01)
    expected = max(
        stats.beta.ppf(10 * plan.alphas[i], k, n - k + 1) for i, (k, n) in enumerate([(190, 200), (480, 500)])
    )
    assert records[0].radius == pytest.approx(SIGMA * stats.norm.ppf(expected))
    assert records[0].radius < SIGMA * stats.norm.ppf(stats.beta.ppf(0.01, 480, 21))
    assert records[1].predict == -1
    assert about["settings"]["stop"]["alphas"] == pytest.approx([10 * share for share in plan.alphas])
    assert set(looks) == {0, 1}
    two = recertify(path, bound="two-sided")[0]
    assert 0 < two[0].radius < records[0].radius


def test_a_pattern_may_match_the_votes_too(fixed, capsys):
    files = sorted(map(str, fixed.parent.glob("fixed*.tsv")))
    assert str(counts_path(fixed)) in files
    assert main(["recertify", *files, "--alpha", "0.01", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    both = [str(fixed), str(fixed.with_name("fixed-alpha0.01.tsv"))]
    assert main(["recertify", *both, "--out", str(fixed.with_name("one.tsv"))]) == 2
    assert "`--out` names one file, but 2 results files are given" in capsys.readouterr().err
    assert main(["recertify", *both, "--alpha", "0.02", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_the_command_writes_files_that_can_be_read_again(fixed, sequential, capsys):
    assert main(["recertify", str(fixed), "--alpha", "0.01", "--norm", "linf", "--bound", "two-sided"]) == 0
    out = fixed.with_name("fixed-alpha0.01-two-sided-linf.tsv")
    assert "two-sided" in capsys.readouterr().out
    assert counts_path(out).read_bytes() == counts_path(fixed).read_bytes()
    assert main(["recertify", str(fixed), "--alpha", "0.01", "--norm", "linf", "--bound", "two-sided"]) == 2
    assert "exists; choose another" in capsys.readouterr().err
    assert main(["recertify", str(out), "--norm", "l2", "--bound", "one-sided", "--alpha", "0.001"]) == 0
    back = fixed.with_name("fixed-alpha0.01-two-sided-linf-alpha0.001-one-sided-l2.tsv")
    assert smoothcert.read_results(back).radius.tolist() == smoothcert.read_results(fixed).radius.tolist()
    assert json.loads(sidecar_path(back).read_text())["settings"] == SETTINGS
    capsys.readouterr()
    assert main(["recertify", str(sequential[0]), "--alpha", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["protocol"] == "stop table at 0 1, wrong skipped, alpha 0.01"
    again = sequential[0].with_name("looks-alpha0.01.tsv")
    assert recertify(again)[0][0].radius == smoothcert.read_results(again).radius[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bound", "twosided"], "did you mean 'two-sided'"),
        (["--norm", "l3"], "Unknown norm"),
        (["--top-k", "0"], "at least 1"),
        (["--top-k", "12"], "at most 9"),
        (["--bound", "one-sided", "--top-k", "2"], "two-sided"),
        (["--norm", "linf", "--dimensions", "12"], "`--dimensions` to be 3072 for these results, but got 12"),
        (["--norm", "linf", "--dimensions", "-4"], "at least 1"),
        (["--norm", "linf", "--dimensions", "0"], "at least 1"),
        (["--classes", "3"], "`--classes` to be 10 for these results, but got 3"),
        (["--classes", "-3"], "at least 1"),
        (["--alpha", "1e-320"], "even unanimous votes certify nothing"),
        (["--out", "some.counts.tsv"], "to be a results file ending in .tsv"),
        (["--out", "some.json"], "to be a results file ending in .tsv"),
    ],
)
def test_wrong_wishes(fixed, capsys, flags, message):
    assert main(["recertify", str(fixed), *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_is_no_results_file(capsys):
    assert main(["recertify", "."]) == 1
    assert "cannot be read (Is a directory)" in capsys.readouterr().err


def test_images_are_as_large_as_the_sidecar_says(fixed):
    """A folder may be called cifar10 without having its images: 64 x 64 pixels prove a smaller cube."""
    settings = {**SETTINGS, "data": {"name": "cifar10", "dimensions": 4 * 3072}}
    ordinary = recertify(fixed, norm="linf")[0]
    assert recertify(fixed, norm="linf", dimensions=4 * 3072)[0][0].radius == ordinary[0].radius / 2
    sidecar_path(fixed).write_text(json.dumps({"settings": settings, "segments": []}))
    assert recertify(fixed, norm="linf")[0][0].radius == ordinary[0].radius / 2
    with pytest.raises(UsageError, match="12288 for these results, but got 3072"):
        recertify(fixed, norm="linf", dimensions=3072)
    at = ordinary[1].radius * 0.999  # images 0 and 1 would be certified there, were they as small as CIFAR-10's
    assert build_table([describe(smoothcert.read_results(fixed))], linf=[at / 2, at]).rows[0].linf == (40.0, 0.0)


def test_certificates_say_where_a_network_has_more_classes_than_the_data(mini, tmp_path):
    """Ten scores or twelve, of which the last two never win: alpha is shared among all."""
    edges, radii = torch.tensor([0.25, 0.84]) * SIGMA, {}  # by a black pixel's noise: 60, 20 and 20 % of the votes
    for classes in (10, 12):
        vote = lambda x, classes=classes: one_hot(torch.bucketize(x[:, 0, 0, 0].contiguous(), edges), classes).float()  # noqa: E731
        path = tmp_path / f"{classes}.tsv"
        smoothcert.certify_dataset(smoothcert.SmoothedClassifier(vote, SIGMA, classes), mini, path, n=N, indices=[0])
        (record,), about, _ = recertify(path, bound="two-sided")
        radii[about["settings"].get("classes", "as the data")] = record.radius
    assert radii.keys() == {"as the data", 12}
    assert 0 < radii[12] < radii["as the data"]


def test_the_network_may_have_more_classes_than_the_data(fixed):
    counts_path(fixed).write_text(counts_path(fixed).read_text().replace("1:50", "11:50"))
    with pytest.raises(SmoothcertError, match="line 3: expected votes for 10 classes"):
        recertify(fixed)
    assert recertify(fixed, classes=12)[0][1].radius == smoothcert.read_results(fixed).radius[1]


def test_votes_belong_to_the_image_they_name(fixed):
    """Counts are written before rows, so an interrupted file may have more of them, and half a line."""
    before = [record.radius for record in recertify(fixed, alpha=0.01)[0]]
    header, *lines = counts_path(fixed).read_text().splitlines(keepends=True)
    counts_path(fixed).write_text(header + "".join(reversed(lines)) + "35\t0:100\t0:1000\n42\t0:1")
    assert [record.radius for record in recertify(fixed, alpha=0.01)[0]] == before
    counts_path(fixed).write_text(header + "".join(lines[:-1]) + lines[-1][:-3])
    with pytest.raises(SmoothcertError, match="no votes for image 28"):
        recertify(fixed)
    counts_path(fixed).write_text(header + "0\t0:100\n" + "".join(lines[1:]))
    with pytest.raises(SmoothcertError, match="line 2: expected an image's votes"):
        recertify(fixed)


def test_a_look_that_was_not_written_in_full_is_left_out(sequential):
    looks = sequential[0].with_name("looks.looks.tsv")
    before = [record.radius for record in recertify(sequential[0])[0]]
    looks.write_text(looks.read_text() + "1\t1\t200\t4:1")
    assert [record.radius for record in recertify(sequential[0])[0]] == before


def test_images_left_out_for_their_class_say_nothing_of_the_likeliest(sequential, capsys):
    assert main(["recertify", str(sequential[0]), "--top-k", "2"]) == 2
    assert "was certified with `skip_wrong`" in capsys.readouterr().err


def test_files_without_votes_are_refused(fixed, capsys):
    counts_path(fixed).unlink()
    assert main(["recertify", str(fixed)]) == 2
    assert "its sidecar from `certify` or its file of votes is missing" in capsys.readouterr().err


def test_tables_name_other_protocols_and_refuse_unfair_comparisons(fixed, sequential, capsys):
    two = fixed.with_name("two.tsv")
    assert main(["recertify", str(fixed), "--bound", "two-sided", "--out", str(two)]) == 0
    capsys.readouterr()
    entries = [describe(smoothcert.read_results(path)) for path in (fixed, two, sequential[0])]
    assert [entry.protocol for entry in entries] == ["", "two-sided", "stop table at 0 1, wrong skipped"]
    table = build_table(entries)
    assert [row.entry.name for row in table.rows][1] == "CAT-RS [two-sided]"
    assert all(row.marks == {} for row in table.rows), "nobody is best among different protocols"
    for flags in (["--baseline", "CAT-RS"], ["--paper"]):
        assert main(["report", str(fixed), str(two), *flags]) == 2
    assert "with the paper's protocol" in capsys.readouterr().err
    cube = fixed.with_name("cube.tsv")
    assert main(["recertify", str(fixed), "--norm", "linf", "--out", str(cube)]) == 0
    assert main(["report", str(fixed), str(cube)]) == 2
    assert "cannot be in one table" in capsys.readouterr().err


def test_images_that_stopped_at_different_radii_are_not_compared(fixed):
    """The ACR of a file that asked for a larger radius is larger, with the same network."""
    results = smoothcert.read_results(fixed)
    stops = [{"rule": "radius", "skip_wrong": False, "radius": radius} for radius in (0.25, 0.75)]
    made = [replace(results, name=str(i), about={"settings": {**SETTINGS, "stop": s}}) for i, s in enumerate(stops)]
    entries = [describe(each) for each in made]
    assert [entry.name for entry in entries] == ["CAT-RS [stop radius 0.25]", "CAT-RS [stop radius 0.75]"]
    assert all(row.marks == {} for row in build_table(entries).rows)
    with pytest.raises(UsageError, match="different protocols"):
        build_table(entries, baseline="0")
