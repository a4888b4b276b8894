"""What crosses into the page: exact on its grid, small, and plain text."""

import io
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_runs import make_run

from smoothcert.cli import main
from smoothcert.cli.report_page import find_test_images
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.page import Pictures, render_page
from smoothcert.report.page.background import provenance, training
from smoothcert.report.page.content import settings
from smoothcert.report.page.curves import bins, choose_grid, codes
from smoothcert.report.page.gallery import KINDS, candidates, choose, pool, shrink_images
from smoothcert.report.page.heatmap import corruption_maps, heat_map
from smoothcert.report.page.pairs import compare_pairs
from smoothcert.report.page.pictures import gallery
from smoothcert.report.page.png import encode_png
from smoothcert.report.page.render import to_script
from smoothcert.report.page.votes import read_estimation, vote_shares
from smoothcert.report.sources import find_results, read_findings, read_runs
from smoothcert.report.tables.table import build_table
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.statistics import metrics

ASSETS = Path(render_page.__code__.co_filename).with_name("assets")


def results(radius, correct, idx=None, label=None):
    count = len(radius)
    right = np.array(correct, bool)
    return Results(
        "r", np.arange(count) if idx is None else np.array(idx), np.zeros(count, int) if label is None else label,
        np.where(right, 0, 1), np.array(radius, float), right, np.ones(count),
    )  # fmt: skip


radii = st.lists(st.tuples(st.floats(0, 4.5), st.booleans()), min_size=1, max_size=60)


@given(radii)
def test_a_curve_on_the_grid_is_exact(images):
    some = results(*zip(*images, strict=True))
    grid = choose_grid(float(some.radius.max()))
    assert grid.count <= 254
    assert grid.radii[-1] > some.radius.max(), "the grid ends where no image is left"
    counts = np.array(bins(some, grid, some.correct))
    curve = counts[::-1].cumsum()[::-1] / len(some)
    assert np.array_equal(curve, metrics.certified_accuracy(some.radius, some.correct, grid.radii))
    steps = codes(some, grid)
    for i in (0, grid.count // 2, grid.count - 1):
        assert (steps > i).mean() == curve[i], "a byte an image says the same"


def test_bytes_of_images_are_in_the_order_of_their_indices():
    """So that two runs on the same images can be compared byte by byte, however their files are sorted."""
    grid = choose_grid(1.0)
    some, turned = results([0.1, 0.5, 1.0], [1, 0, 1]), results([1.0, 0.5, 0.1], [1, 0, 1], idx=[2, 1, 0])
    assert codes(some, grid).tolist() == codes(turned, grid).tolist()


@pytest.mark.parametrize("largest", [0.0, 0.95, 1.9, 3.81, 4.5, 40.0, 400.0])
def test_the_papers_radii_are_on_the_grid(largest):
    grid = choose_grid(largest)
    wanted = np.arange(0, min(largest, 10.0), max(0.25, grid.step))
    assert np.isin(wanted, grid.radii).all()
    assert grid.count <= 254


@given(st.integers(2, 30), st.integers(0, 99))
def test_pairs_are_those_of_metrics(count, seed):
    rng = np.random.default_rng(seed)
    some = [results(rng.random(count), rng.random(count) < 0.8, idx) for idx in (None, np.arange(1, count + 1), None)]
    entries = [_Entry("mnist", one) for one in some]
    pairs = {(a, b): (gap, error, images) for a, b, gap, error, images in compare_pairs(entries)}
    for a, b in itertools.combinations(range(3), 2):
        shared = len(np.intersect1d(some[a].idx, some[b].idx))
        if shared < 2:
            assert (a, b) not in pairs
            continue
        expected = metrics.paired_difference(*((one.idx, one.radius, one.correct) for one in (some[a], some[b])))
        assert pairs[a, b] == pytest.approx((expected.value, expected.standard_error, shared), abs=1e-9)


class _Entry:
    def __init__(self, dataset, some, protocol=""):
        self.dataset, self.results, self.protocol = dataset, some, protocol


def test_runs_of_two_data_sets_or_protocols_are_no_pair():
    some = results([1, 2], [1, 1])
    assert compare_pairs([_Entry("mnist", some), _Entry("cifar10", some)]) == []
    assert compare_pairs([_Entry("mnist", some), _Entry("mnist", some, "two-sided")]) == []
    assert len(compare_pairs([_Entry("mnist", some, "two-sided"), _Entry("mnist", some, "two-sided")])) == 1


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_reads_back(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, channels), dtype=np.uint8)
    pixels[10:30] = 200
    decoded = np.asarray(PIL.Image.open(io.BytesIO(encode_png(pixels))))
    assert np.array_equal(decoded.reshape(pixels.shape), pixels)


def test_large_images_are_averaged():
    pixels = np.arange(2 * 5 * 4 * 1, dtype=np.uint8).reshape(2, 5, 4, 1)
    small = shrink_images(pixels, 2)
    assert small.shape == (2, 2, 2, 1)
    assert small[0, 0, 0, 0] == round((0 + 1 + 4 + 5) / 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, mini):
    root = tmp_path_factory.mktemp("runs")
    labels = mini.labels.numpy()[:300]
    for method, skill in (("gaussian", 1.5), ("catrs", 2.2)):
        for sigma in (0.25, 0.5):
            make_run(
                root / f"{method}-{sigma}", labels, method=method, sigma=sigma, skill=skill, sha256=mini.fingerprint
            )
    return root


def test_folders_offer_their_results_and_nothing_else(folder, tmp_path):
    found = find_results([str(folder)])
    assert [path.parent.name for _, path in found] == ["catrs-0.25", "catrs-0.5", "gaussian-0.25", "gaussian-0.5"]
    assert find_results([f"mine={found[0][1]}"]) == [("mine", found[0][1])]
    (tmp_path / "soft-labels-x.tsv").write_text("idx\tlabel\tpredict\tcorrect\ttime\n")
    (tmp_path / "broken.tsv.gz").write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="holds no certification result"):
        find_results([str(tmp_path)])


def test_a_published_folder_names_its_data_set(shared):
    runs = read_runs([str(shared / "published/cifar10")])
    assert len(runs) == 20
    assert {run.entry.dataset for run in runs} == {"cifar10"}


def test_a_run_of_an_ablation_knows_its_row(tmp_path, mini):
    name = "cifar10-resnet20-catrs-0.50-lambda2.00-seed1"
    path = make_run(tmp_path / "x", mini.labels.numpy()[:50], name=name, dataset="cifar10", method="catrs")
    (run,) = read_runs([str(path)])
    assert run.entry.name == "CAT-RS, lambda=2.00"
    assert build_table([run.entry], paper=True).rows[0].paper is not None


def test_votes_of_the_certified_class(folder):
    path = folder / "catrs-0.5" / "certify.tsv"
    some = read_results(path)
    votes = read_estimation(path, len(some))
    shares = vote_shares(some, votes, 0.5)
    row = int(np.flatnonzero(some.predict >= 0)[0])
    assert shares[row] == dict(votes[row])[some.predict[row]] / 1000
    bound = vote_shares(some, None, 0.5)
    sure = some.predict >= 0
    assert (bound[sure] <= shares[sure]).all(), "the bound the radius rests on is below the share"
    assert np.isnan(bound[~sure]).all()
    assert vote_shares(some, None, None) is None
    assert read_estimation(path, len(some) + 1) is None, "votes that are not there for every image"


def test_names_that_clash_are_told_apart(folder):
    runs = read_runs(
        [f"same={folder / 'catrs-0.5' / 'certify.tsv'}", f"same={folder / 'gaussian-0.5' / 'certify.tsv'}"]
    )
    assert [run.entry.title for run in runs] == ["same (catrs-0.5)", "same (gaussian-0.5)"]


def test_runs_of_one_name_are_told_apart_by_what_differs(tmp_path, mini):
    labels = mini.labels.numpy()[:20]

    def titles():
        return [run.entry.title for run in read_runs([str(tmp_path)])]

    make_run(tmp_path / "one/net", labels)
    assert titles() == ["Gaussian"]
    make_run(tmp_path / "two/net-seed3", labels, seed=3)
    assert titles() == ["Gaussian, seed 0", "Gaussian, seed 3"]
    make_run(tmp_path / "two/net-seed3", labels, seed=3, options={"weight": 2.0})
    assert titles() == ["Gaussian (net)", "Gaussian (net-seed3)"], "they differ in more than their seed"
    make_run(tmp_path / "three/net", labels)
    assert titles() == ["Gaussian (one)", "Gaussian (three)", "Gaussian (two)"], "one network, certified again"
    make_run(tmp_path / "two/net", labels)
    assert titles()[2:] == ["Gaussian (two/net/certify.tsv)", "Gaussian (two/net-seed3/certify.tsv)"]


def test_seeds_are_summed_up_below_the_table(tmp_path, mini, capsys):
    for seed in (0, 1):
        make_run(tmp_path / f"net-seed{seed}", mini.labels.numpy()[:100], seed=seed)
    assert main(["report", str(tmp_path)]) == 0
    first, second, *_ = [line.split() for line in capsys.readouterr().out.splitlines() if "Gaussian" in line]
    assert main(["report", str(tmp_path), "--json"]) == 0
    *rows, mean = json.loads(capsys.readouterr().out)
    assert [row["title"] for row in rows] == ["Gaussian, seed 0", "Gaussian, seed 1"]
    assert [first[4][:5], second[4][:5]] == [f"{row['acr']['value']:.3f}" for row in rows]
    make_run(tmp_path / "mnist", mini.labels.numpy()[:100], dataset="mnist")
    assert main(["report", str(tmp_path)]) == 0
    assert re.search(r"^MNIST, an excerpt +0.50  Gaussian +2  ", capsys.readouterr().out, re.M), "of which data set"
    assert mean["acr_mean"] == pytest.approx(np.mean([row["acr"]["value"] for row in rows]))


def test_the_one_option_that_differs(tmp_path, mini):
    labels = mini.labels.numpy()[:20]
    for weight in (1.0, 2.0):
        make_run(tmp_path / f"w{weight}", labels, method="catrs", options={"weight": weight, "num_noises": 4})
    runs = read_runs([str(tmp_path)])
    assert settings(runs) == [{"name": "weight", "value": 1.0}, {"name": "weight", "value": 2.0}]
    assert settings(runs[:1]) == [None]


@given(st.integers(1, 40), st.integers(1, 4))
def test_the_gallery_fits_its_room_and_keeps_its_word(room, count):
    rng = np.random.default_rng(room)
    some = []
    for _ in range(count):
        one = results(rng.random(120).round(1), rng.random(120) < 0.7)
        one.predict[rng.random(120) < 0.1] = -1
        one = Results(one.name, one.idx, one.label, one.predict, one.radius, (one.predict == 0), one.seconds)
        some.append(one)
    chosen = choose(some, room)
    assert len(pool(some, chosen)) <= room
    for one, picks in zip(some, chosen, strict=True):
        assert set(picks) == set(KINDS)
        assert (one.predict[picks["abstained"]] == -1).all()
        assert (~one.correct[picks["wrong"]] & (one.predict[picks["wrong"]] >= 0)).all()
        right = np.sort(one.radius[one.correct])
        assert all(one.radius[row] >= right[-max(8, (right == right[-1]).sum())] for row in picks["most robust"])
        assert all(one.radius[row] <= right[7] for row in picks["least robust"])
        assert np.array_equal(np.sort(one.radius[picks["least robust"]]), one.radius[picks["least robust"]])


def test_images_of_another_data_set_are_refused(folder, mini):
    runs = read_runs([str(folder / "catrs-0.5")])
    wrong = Pictures(lambda at: np.zeros((len(at), 28, 28, 1), np.uint8), mini.labels.numpy(), mini.classes, "another")
    found = gallery(runs, [None], lambda name: wrong)
    assert found["runs"] == [None]
    assert "not those that certify was made with" in found["missing"][0]
    assert gallery(runs, [None], None)["missing"] == ["No images of mnist-mini: the page was made without images."]
    shown = gallery(runs, [read_estimation(runs[0].path, 300)], find_test_images(None))
    assert shown["missing"] == []
    assert candidates(runs[0].entry.results)["abstained"][:1]


def test_training_is_thinned_and_keeps_its_end(tmp_path, mini):
    make_run(tmp_path / "long", mini.labels.numpy()[:20], epochs=251)
    (run,) = read_runs([str(tmp_path / "long")])
    run.epochs[-1]["loss"] = math.nan
    curves = training(run, 100)
    assert curves["curves"]["loss"][-1] is None, "what is no number is not drawn, and is JSON"
    assert len(curves["epochs"]) <= 100
    assert curves["epochs"][-1] == 250
    assert set(curves["curves"]) == {"loss", "test_accuracy"}


def test_provenance_says_everything(folder):
    (run,) = read_runs([str(folder / "catrs-0.5")])
    said = provenance(run, "x")
    facts = {"n0": "100", "n": "1000", "alpha": "0.001", "seed": "0", "certified on": "A fine processor"}
    assert facts.items() <= said["facts"].items()
    assert [len(file["sha256"]) for file in said["files"]] == [64, 64, 64]
    assert said["config"]["learning_rate"] == "0.01"


def test_heat_map_of_nothing_and_of_gaps():
    assert heat_map("x", {}).kinds == ()
    gaps = heat_map("x", {("fog", 3): 1.0, ("snow", 1): 3.0, ("fog", 1): 2.0})
    assert (gaps.columns, gaps.means) == (("severity 1", "severity 3"), (1.5, 3.0))
    networks = heat_map("x", {("fog", "b"): 1.0, ("snow", "b"): 3.0, ("fog", "a"): 2.0})
    assert (networks.columns, networks.values, networks.means) == (("b", "a"), ((1.0, 2.0), (3.0, None)), ())


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory, mini):
    """A run certified on clean images and on two corruptions, one of them at two severities, in one folder."""
    root, labels = tmp_path_factory.mktemp("corrupted"), mini.labels.numpy()[:60]
    make_run(root / "run", labels, method="catrs", sha256=mini.fingerprint)
    for name, severities in (("fog", 2), ("zigzag", 1)):
        path = make_run(
            root / name, np.tile(labels, severities), method="catrs", skill=0.5, dataset=f"mnist-mini-c/{name}"
        )
        about = json.loads(path.with_name("certify.json").read_text())
        about["settings"]["data"] |= {"rows": 60 * severities, "severities": severities}
        path.with_name("certify.json").write_text(json.dumps(about))
        for suffix in (".tsv", ".counts.tsv", ".json"):
            (root / name / f"certify{suffix}").rename(root / "run" / f"{name}{suffix}")
    return root / "run"


def test_corrupted_images_become_heat_maps(corrupted):
    found = read_findings([str(corrupted)])
    assert [run.path.name for run in found.runs] == ["certify.tsv"]
    (entry,) = found.corrupted
    assert entry.clean is not None
    maps = corruption_maps(found.corrupted)
    assert list(maps) == ["ACR: CAT-RS, sigma 0.50, mnist-mini-c", "acc %: CAT-RS, sigma 0.50, mnist-mini-c"]
    fog = read_results(corrupted / "fog.tsv")
    expected = metrics.average_certified_radius(fog.radius[60:], fog.correct[60:])
    acr = maps["ACR: CAT-RS, sigma 0.50, mnist-mini-c"]
    assert acr["fog", 2] == pytest.approx(expected)
    assert set(acr) == {("fog", 1), ("fog", 2), ("zigzag", 1)}


def test_the_command_puts_corruptions_on_the_page(corrupted, tmp_path, capsys):
    assert main(["report", str(corrupted), "--html", str(tmp_path / "page.html"), "--json"]) == 0
    corrupted_images, clean = json.loads(capsys.readouterr().out)
    assert (corrupted_images["dataset"], clean["dataset"]) == ("mnist-mini-c", "mnist-mini")
    assert "ACR: CAT-RS, sigma 0.50, mnist-mini-c" in (tmp_path / "page.html").read_text()
    assert main(["report", str(corrupted), "--html", f"{tmp_path}/."]) == 2
    assert capsys.readouterr().err.endswith(f"{tmp_path} is a folder; name a file.\n")
    alone = [str(path) for path in corrupted.glob("fog.tsv")]
    assert main(["report", *alone, "--html", str(tmp_path / "none.html")]) == 2
    assert "needs certificates on clean images" in capsys.readouterr().err


def test_no_text_ends_the_script():
    text = to_script({"name": "</script><!--\u2028"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><!--\u2028"}


def test_a_damaged_file_beside_the_results_is_named(tmp_path, mini):
    make_run(tmp_path / "run", mini.labels.numpy()[:20])
    (tmp_path / "run/metrics.jsonl").write_text("{")
    with pytest.raises(SmoothcertError, match=r"metrics\.jsonl cannot be read as JSON"):
        read_runs([str(tmp_path / "run")])


def test_the_page_needs_jinja2_and_says_so(folder):
    code = "import sys; sys.modules['jinja2'] = None; from smoothcert.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", str(folder), "--html", "x.html"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'smoothcert[report]'" in done.stderr


def test_the_command_writes_one_file_that_asks_for_nothing(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(folder), "--html", str(out), "--title", "<b>Mine</b>"]) == 0
    text = out.read_text()
    assert "Wrote" in capsys.readouterr().err
    assert "<h1>&lt;b&gt;Mine&lt;/b&gt;</h1>" in text
    outside = [
        match for match in re.findall(r"(?:src|href)=\"([^\"]*)\"", text) if not match.startswith(("#", "data:"))
    ]
    assert outside == []


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_colour_blind_can_tell_runs_apart(scheme, kind):
    part = (ASSETS / "css/page.css").read_text().split("@media screen")[scheme]
    colours = re.findall(r"--run-\d: (#\w{6})", part)
    paper = re.search(r"--paper: (#\w{6})", part)[1]
    assert len(set(colours)) == 8
    seen = [lab(BLINDNESS[kind] @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
    light = [TO_XYZ[1] @ linear(colour) for colour in (*colours, paper)]
    contrast = [(max(one, light[-1]) + 0.05) / (min(one, light[-1]) + 0.05) for one in light[:-1]]
    assert min(contrast) >= 3, "WCAG's least contrast of graphics"
