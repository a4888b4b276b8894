"""Data of the page: curves, pairs, votes, gallery, training, provenance and heat maps."""

import dataclasses
import graphlib
import io
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.colors
import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_runs import make_run
from scipy.stats import norm

from smoothcert.cli import main
from smoothcert.cli.report_page import find_test_images
from smoothcert.report.corrupted.results import CorruptedResults, CorruptionPart
from smoothcert.report.figures import heatmap, plots
from smoothcert.report.page import Pictures, render_page
from smoothcert.report.page.bundle import bundle
from smoothcert.report.page.content import varied_options
from smoothcert.report.page.corruption_message import corruption_message, without_clean_run
from smoothcert.report.page.gallery import build_gallery
from smoothcert.report.page.heatmap import corruption_maps, heat_map
from smoothcert.report.page.image_choice import KINDS, candidates, choose, shown_images
from smoothcert.report.page.image_sheet import encode_png, shrink_images
from smoothcert.report.page.message import dataset_messages
from smoothcert.report.page.radius_grid import choose_grid, image_codes, radius_counts
from smoothcert.report.page.render import to_script
from smoothcert.report.page.run_history import provenance, training_curves
from smoothcert.report.page.votes import read_estimation, vote_shares
from smoothcert.report.palette import DARK, HEAT, LIGHT, METHOD_COLORS
from smoothcert.report.sources import read_findings, read_runs
from smoothcert.report.tables.formats import dataset_title
from smoothcert.report.tables.paired import compare_pairs
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.report.tables.table import build_table
from smoothcert.report.tables.winners import best_by_radius, comparable_rows, leads_by_sigma
from smoothcert.results.reader import read_results
from smoothcert.results.records import Results
from smoothcert.statistics import metrics
from smoothcert.training.passes import relative_cost
from smoothcert.training.recipes import load_recipe

RESULTS = Path(__file__).parents[3] / "results/mnist-c"
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
def test_curves_are_exact_on_the_grid(images):
    some = results(*zip(*images, strict=True))
    grid = choose_grid(float(some.radius.max()))
    assert grid.count <= 254
    assert grid.radii[-1] > some.radius.max(), "the grid ends beyond the largest radius"
    counts = np.array(radius_counts(some, grid, some.correct))
    curve = counts[::-1].cumsum()[::-1] / len(some)
    assert np.array_equal(curve, metrics.certified_accuracy(some.radius, some.correct, grid.radii))
    steps = image_codes(some, grid)
    for i in (0, grid.count // 2, grid.count - 1):
        assert (steps > i).mean() == curve[i], "the images' codes agree"


def test_image_codes_are_ordered_by_index():
    """The scripts compare the codes of two runs byte by byte, whatever the order of their files."""
    grid = choose_grid(1.0)
    some, reversed_ = results([0.1, 0.5, 1.0], [1, 0, 1]), results([1.0, 0.5, 0.1], [1, 0, 1], idx=[2, 1, 0])
    assert image_codes(some, grid).tolist() == image_codes(reversed_, grid).tolist()


@pytest.mark.parametrize("largest", [0.0, 0.95, 1.9, 3.81, 4.5, 40.0, 400.0])
def test_the_papers_radii_are_on_the_grid(largest):
    grid = choose_grid(largest)
    wanted = np.arange(0, min(largest, 10.0), max(0.25, grid.step))
    assert np.isin(wanted, grid.radii).all()
    assert grid.count <= 254


@given(st.integers(2, 30), st.integers(0, 99))
def test_pairs_agree_with_metrics(count, seed):
    rng = np.random.default_rng(seed)
    some = [results(rng.random(count), rng.random(count) < 0.8, idx) for idx in (None, np.arange(1, count + 1), None)]
    entries = [_Entry("mnist", one) for one in some]
    pairs = {(a, b): gap for a, b, gap in compare_pairs(entries)}
    for a, b in itertools.combinations(range(3), 2):
        shared = len(np.intersect1d(some[a].idx, some[b].idx))
        if shared < 2:
            assert (a, b) not in pairs
            continue
        expected = metrics.paired_difference(*((one.idx, one.radius, one.correct) for one in (some[a], some[b])))
        gap = pairs[a, b]
        assert (gap.value, gap.standard_error) == pytest.approx((expected.value, expected.standard_error), abs=1e-9)
        assert gap.high - gap.low == pytest.approx(2 * norm.ppf(0.975) * gap.standard_error)


class _Entry:
    def __init__(self, dataset, some, protocol=""):
        self.dataset, self.results, self.protocol = dataset, some, protocol


def test_runs_of_different_datasets_or_protocols_are_not_paired():
    some = results([1, 2], [1, 1])
    assert compare_pairs([_Entry("mnist", some), _Entry("cifar10", some)]) == []
    assert compare_pairs([_Entry("mnist", some), _Entry("mnist", some, "two-sided")]) == []
    assert len(compare_pairs([_Entry("mnist", some, "two-sided"), _Entry("mnist", some, "two-sided")])) == 1


@pytest.mark.parametrize("channels", [1, 3])
def test_png_round_trip(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, channels), dtype=np.uint8)
    pixels[10:30] = 200
    decoded = np.asarray(PIL.Image.open(io.BytesIO(encode_png(pixels))))
    assert np.array_equal(decoded.reshape(pixels.shape), pixels)


def test_large_images_are_averaged():
    pixels = np.arange(2 * 5 * 4 * 1, dtype=np.uint8).reshape(2, 5, 4, 1)
    small = shrink_images(pixels, 2)
    assert small.shape == (2, 2, 2, 1)
    assert small[0, 0, 0, 0] == round((0 + 1 + 4 + 5) / 4)


def test_votes_of_the_certified_class(folder):
    path = folder / "catrs-0.5" / "certify.tsv"
    some = read_results(path)
    votes = read_estimation(path, len(some))
    shares = vote_shares(some, votes, 0.5)
    row = int(np.flatnonzero(some.predict >= 0)[0])
    assert shares[row] == dict(votes[row])[some.predict[row]] / 1000
    bound = vote_shares(some, None, 0.5)
    sure = some.predict >= 0
    assert (bound[sure] <= shares[sure]).all(), "the bound from the radius is below the share"
    assert np.isnan(bound[~sure]).all()
    assert vote_shares(some, None, None) is None
    assert read_estimation(path, len(some) + 1) is None, "some images have no votes"


def test_the_single_varied_option_is_found(tmp_path, mini):
    labels = mini.labels.numpy()[:20]
    for weight in (1.0, 2.0):
        make_run(tmp_path / f"w{weight}", labels, method="catrs", options={"weight": weight, "num_noises": 4})
    runs = read_runs([str(tmp_path)])
    assert varied_options(runs) == [{"name": "weight", "value": 1.0}, {"name": "weight", "value": 2.0}]
    assert varied_options(runs[:1]) == [None]


@given(st.integers(1, 40), st.integers(1, 4))
def test_the_gallery_respects_its_limit_and_its_kinds(room, count):
    rng = np.random.default_rng(room)
    some = []
    for _ in range(count):
        one = results(rng.random(120).round(1), rng.random(120) < 0.7)
        one.predict[rng.random(120) < 0.1] = -1
        one = Results(one.name, one.idx, one.label, one.predict, one.radius, (one.predict == 0), one.seconds)
        some.append(one)
    chosen = choose(some, room)
    assert len(shown_images(some, chosen)) <= room
    for one, picks in zip(some, chosen, strict=True):
        assert set(picks) == set(KINDS)
        assert (one.predict[picks["abstained"]] == -1).all()
        assert (~one.correct[picks["wrong"]] & (one.predict[picks["wrong"]] >= 0)).all()
        right = np.sort(one.radius[one.correct])
        assert all(one.radius[row] >= right[-max(8, (right == right[-1]).sum())] for row in picks["most robust"])
        assert all(one.radius[row] <= right[7] for row in picks["least robust"])
        assert np.array_equal(np.sort(one.radius[picks["least robust"]]), one.radius[picks["least robust"]])


def test_images_of_another_dataset_are_not_shown(folder, mini):
    runs = read_runs([str(folder / "catrs-0.5")])
    wrong = Pictures(lambda at: np.zeros((len(at), 28, 28, 1), np.uint8), mini.labels.numpy(), mini.classes, "another")
    found = build_gallery(runs, [None], lambda name: wrong)
    assert found["runs"] == [None]
    assert "certify was not certified on the images in the data folder" in found["missing"][0]["text"]
    text = f"No images of {dataset_title('mnist-mini')}: the page was made without images."
    assert build_gallery(runs, [None], None)["missing"] == [{"dataset": "mnist-mini", "text": text}]
    shown = build_gallery(runs, [read_estimation(runs[0].path, 300)], find_test_images(None))
    assert shown["missing"] == []
    assert candidates(runs[0].entry.results)["abstained"][:1]


def test_training_curves_are_thinned_and_keep_the_last_epoch(tmp_path, mini):
    make_run(tmp_path / "long", mini.labels.numpy()[:20], epochs=251)
    (run,) = read_runs([str(tmp_path / "long")])
    run.epochs[-1]["loss"] = math.nan
    curves = training_curves(run, 100)
    assert curves["curves"]["loss"][-1] is None, "NaN is not valid JSON"
    assert len(curves["epochs"]) <= 100
    assert curves["epochs"][-1] == 250
    assert set(curves["curves"]) == {"loss", "test_accuracy"}


def test_provenance_is_complete(folder):
    (run,) = read_runs([str(folder / "catrs-0.5")])
    shown = provenance(run, "x")
    facts = {"n0": "100", "n": "1000", "alpha": "0.001", "seed": "0", "certified on": "A fine processor"}
    assert facts.items() <= shown["facts"].items()
    assert [len(file["sha256"]) for file in shown["files"]] == [64, 64, 64]
    assert shown["config"]["learning_rate"] == "0.01"


def test_heat_maps_may_be_empty_or_have_gaps():
    assert heat_map("x", {})["kinds"] == []
    gaps = heat_map("x", {("fog", 3): 1.0, ("snow", 1): 3.0, ("fog", 1): 2.0})
    assert (gaps["columns"], gaps["means"]) == (["severity 1", "severity 3"], [1.5, 3.0])
    networks = heat_map("x", {("fog", "b"): 1.0, ("snow", "b"): 3.0, ("fog", "a"): 2.0})
    assert (networks["columns"], networks["means"]) == (["b", "a"], [])
    assert networks["values"] == [[1.0, 2.0], [3.0, None]]


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
    assert list(maps) == ["ACR: CAT-RS, σ 0.50, mnist-mini-c", "acc %: CAT-RS, σ 0.50, mnist-mini-c"]
    fog = read_results(corrupted / "fog.tsv")
    expected = metrics.average_certified_radius(fog.radius[60:], fog.correct[60:])
    acr = maps["ACR: CAT-RS, σ 0.50, mnist-mini-c"]
    assert acr["fog", 2] == pytest.approx(expected)
    assert set(acr) == {("fog", 1), ("fog", 2), ("zigzag", 1)}


def test_the_command_adds_heat_maps_to_the_page(corrupted, tmp_path, capsys):
    assert main(["report", str(corrupted), "--html", str(tmp_path / "page.html"), "--json"]) == 0
    corrupted_images, clean = json.loads(capsys.readouterr().out)
    assert (corrupted_images["dataset"], clean["dataset"]) == ("mnist-mini-c", "mnist-mini")
    assert "ACR: CAT-RS, σ 0.50, mnist-mini-c" in (tmp_path / "page.html").read_text()
    assert main(["report", str(corrupted), "--html", f"{tmp_path}/."]) == 2
    assert capsys.readouterr().err.endswith(f"{tmp_path} is a folder; choose a file instead.\n")
    alone = [str(path) for path in corrupted.glob("fog.tsv")]
    assert main(["report", *alone, "--html", str(tmp_path / "none.html")]) == 2
    assert "Expected certificates on clean images for `--html`" in capsys.readouterr().err


def test_no_text_can_end_the_script():
    text = to_script({"name": "</script><!--\u2028"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><!--\u2028"}


def test_without_jinja2_the_error_names_the_extra(folder):
    code = "import sys; sys.modules['jinja2'] = None; from smoothcert.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", str(folder), "--html", "x.html"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'smoothcert[report]'" in done.stderr


def test_the_command_writes_one_self_contained_file(folder, tmp_path, capsys):
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


def linear(color):
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_colors_differ_for_the_color_blind(scheme, kind):
    part = (ASSETS / "css/page.css").read_text().split("@media screen")[scheme]
    colors = (LIGHT, DARK)[scheme]
    paper = re.search(r"--paper: (#\w{6})", part)[1]
    assert len(set(colors)) == 8
    seen = [lab(BLINDNESS[kind] @ linear(color)) for color in colors]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
    light = [TO_XYZ[1] @ linear(color) for color in (*colors, paper)]
    contrast = [(max(one, light[-1]) + 0.05) / (min(one, light[-1]) + 0.05) for one in light[:-1]]
    assert min(contrast) >= 3, "the minimum contrast of graphics in WCAG"


def test_a_method_has_one_color_on_the_page_and_in_figures(folder, tmp_path):
    assert set(METHOD_COLORS) == set(PAPER_METHODS)
    assert plots._COLORS[list(PAPER_METHODS).index("catrs")] == LIGHT[METHOD_COLORS["catrs"]]
    (run,) = read_runs([str(folder / "catrs-0.5")])
    page = render_page([run], build_table([run.entry]))
    assert f"--run-{METHOD_COLORS['catrs']}: {LIGHT[METHOD_COLORS['catrs']]};" in page
    heat = HEAT["light"]
    assert f"--heat-low: {heat[0]};--heat-high: {heat[1]};" in page
    drawn = [matplotlib.colors.to_hex(heatmap._color_map()(value)) for value in (0.0, 1.0)]
    assert drawn == list(heat)


def test_the_page_has_no_local_paths(tmp_path, mini):
    """The data folder, the folder of the results and absolute paths in the configuration must not be passed on."""
    labels = mini.labels.numpy()[:20]
    make_run(tmp_path / "private/one/net", labels, dataset="mnist")
    make_run(tmp_path / "private/two/net", labels, dataset="mnist")
    (tmp_path / "private/two/net/note.md").write_text(f"Compare with {tmp_path}/private/one/net/certify.tsv!")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "private"), "--html", str(out), "--data-dir", str(tmp_path / "data")]) == 0
    text = out.read_text()
    assert str(tmp_path) not in text
    assert "private" not in text
    assert "Compare with certify.tsv!" in text
    assert "No images of MNIST" in text


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    (tmp_path / "b.js").write_text('import { one } from "./a.js";\n\nconst own = 1;\nexport const two = one + own;\n')
    (tmp_path / "a.js").write_text("const own = 5;\nexport const one = own;\nexport async function three() {}\n")
    text = bundle(tmp_path)
    assert text.index('modules["a.js"]') < text.index('modules["b.js"]')
    assert "export" not in text
    assert "return { one, three };" in text
    assert 'const { one } = modules["a.js"];' in text
    for name in "fedc":
        (tmp_path / f"{name}.js").write_text("")
    (tmp_path / "0.js").write_text("".join(f'import "./{name}.js";\n' for name in "fedc"))
    assert re.findall(r'^modules\["(\w+)', bundle(tmp_path), re.M) == list("fedca0b")
    (tmp_path / "a.js").write_text('import { two } from "./b.js";\n')
    with pytest.raises(graphlib.CycleError):
        bundle(tmp_path)


def test_winners_have_the_largest_values_among_comparable_rows(tmp_path, mini):
    labels = mini.labels.numpy()[:200]
    for method, skill in (("gaussian", 1.0), ("macer", 1.6), ("catrs", 2.4)):
        for sigma in (0.25, 0.5):
            make_run(tmp_path / f"{method}-{sigma}", labels, method=method, sigma=sigma, skill=skill)
    make_run(tmp_path / "few", labels, method="smoothmix", skill=9.0, step=4)
    table = build_table([run.entry for run in read_runs([str(tmp_path)])])
    rows = comparable_rows(table, "mnist-mini")
    assert len(rows) == 6, "the run on other images is not compared"
    for lead in leads_by_sigma(rows):
        members = sorted(
            (row for row in rows if row.entry.sigma == lead.first.entry.sigma), key=lambda row: row.acr.value
        )
        assert (lead.second, lead.first) == (members[-2], members[-1])
        both = [(row.entry.results.radius, row.entry.results.correct) for row in (lead.first, lead.second)]
        gap = np.subtract(*(metrics.robust_radius(*columns) for columns in both))
        half = 1.96 * gap.std(ddof=1) / math.sqrt(len(gap))
        assert lead.ahead.value == pytest.approx(gap.mean())
        assert (lead.ahead.low, lead.ahead.high) == pytest.approx(
            (gap.mean() - half, gap.mean() + half), abs=0.2 * half
        )
    best = best_by_radius(rows, table.radii)
    assert [at.accuracy for at in best] == [
        value for value in np.max([row.accuracy for row in rows], axis=0) if value > 0
    ]
    assert all(at.second.entry.method != at.first.entry.method for at in best)


def shared_acr(networks, method):
    """Mean radius by corruption on the images that all networks have, computed image by image."""
    (network,) = [entry for entry in networks if entry.method == method]
    images = set.intersection(*(set(entry.images.tolist()) for entry in networks))
    rows = {
        kind: dict(zip(part.images.tolist(), part.radius.tolist(), strict=True))
        for (kind, _), part in network.parts.items()
    }
    return {kind: np.mean([row[image] for image in images]) for kind, row in rows.items()}


def test_networks_with_corrupted_results_only_are_named():
    found = read_findings([str(RESULTS)])
    entries = [run.entry for run in found.runs]
    assert without_clean_run(found.corrupted, entries) == {"mnist": ["CAT-RS"]}
    table = build_table(entries)
    page = render_page(found.runs, table, networks=found.corrupted)
    assert "plus 1 network with results on corrupted images only: CAT-RS</p>" in page
    assert "CAT-RS has no run on clean images here." in page
    assert without_clean_run(found.corrupted[1:], entries) == {}
    assert "on corrupted images only" not in render_page(found.runs, table, networks=found.corrupted[1:])


def test_heat_maps_compare_networks_on_shared_images():
    found = read_findings([str(RESULTS)])
    maps = corruption_maps(found.corrupted)
    acr = maps["ACR: \N{GREEK SMALL LETTER SIGMA} 0.25, mnist-c, n = 100,000, 1,000 shared images"]
    expected = shared_acr(found.corrupted, "catrs")
    assert {kind: acr[kind, "CAT-RS"] for kind in expected} == pytest.approx(expected)
    assert acr["mean", "CAT-RS"] == pytest.approx(np.mean(list(expected.values())))


def test_the_message_on_corruptions_compares_values_as_printed(tmp_path):
    """A difference of less than half a digit is a tie, and nothing is behind."""
    part = CorruptionPart(np.arange(4), np.full(4, 0.5), np.ones(4, dtype=bool))
    above = dataclasses.replace(part, radius=part.radius + 1e-4)
    about = {"dataset": "mnist-c", "sigma": 0.25, "n": 100, "suite": "mnist-c"}
    first = CorruptedResults("A", method="a", parts={("fog", 1): above, ("scale", 1): above}, **about)
    second = CorruptedResults("B", method="b", parts={("fog", 1): part, ("scale", 1): part}, **about)
    told = {detail["title"]: detail["text"] for detail in corruption_message([first, second])["details"]}
    assert told["Training cost"] == "Not recorded for these runs."
    assert told["By corruption"] == "A has the largest ACR on 0 of 2 corruptions and ties for the best on 2."
    assert told["Accuracy"] == "A classifies 100.0 % of corrupted images correctly."
    worse = dataclasses.replace(above, correct=np.arange(4) > 0)
    first = dataclasses.replace(first, parts=dict.fromkeys(first.parts, worse))
    accuracy = "A classifies 75.0 % of corrupted images correctly, B 100.0 %."
    before = f"{accuracy} Before corruption, A 75.0 % and B 100.0 % of these images."
    second = dataclasses.replace(second, clean=part)
    for clean, expected in ((None, accuracy), (worse, before)):
        message = corruption_message([dataclasses.replace(first, clean=clean), second])
        assert [detail["text"] for detail in message["details"] if detail["title"] == "Accuracy"] == [expected]


def test_the_message_names_missing_runs_and_unknown_costs(tmp_path, mini):
    labels = mini.labels.numpy()[:50]
    for method, sigma in (("gaussian", 0.25), ("gaussian", 0.5), ("smoothmix", 0.25)):
        make_run(tmp_path / f"{method}-{sigma}", labels, method=method, sigma=sigma)
    runs = read_runs([str(tmp_path)])
    by_entry = {id(run.entry): run for run in runs}
    table = build_table([run.entry for run in runs])
    ordered = [by_entry[id(row.entry)] for row in table.rows]
    (message,) = dataset_messages(table, ordered, {})
    assert message["missing"] == ["no SmoothMix run at \N{GREEK SMALL LETTER SIGMA} 0.50"]
    unknown = {"title": "Training cost", "text": "Not recorded for these runs."}
    (without,) = dataset_messages(table, [dataclasses.replace(run, config=None) for run in ordered], {})
    assert unknown in without["details"]
    assert unknown not in message["details"]


def test_costs_that_are_not_recorded_are_those_of_the_recipe(tmp_path, mini):
    labels = mini.labels.numpy()[:50]
    for method, skill in (("gaussian", 1.0), ("consistency", 3.0)):
        make_run(tmp_path / method, labels, method=method, sigma=0.5, skill=skill, dataset="mnist")
    runs = read_runs([str(tmp_path)])
    by_entry = {id(run.entry): run for run in runs}
    table = build_table([run.entry for run in runs])
    ordered = [dataclasses.replace(by_entry[id(row.entry)], config=None) for row in table.rows]
    (message,) = dataset_messages(table, ordered, {})
    (cost,) = (detail["text"] for detail in message["details"] if detail["title"] == "Training cost")
    ratio = relative_cost(load_recipe("mnist-consistency-0.50"))
    assert cost == (
        f"Consistency takes {ratio:.1f} times the network passes of Gaussian training, Gaussian 1.0 "
        "(Consistency and Gaussian: computed from the recipe)."
    )


def with_results(run, **columns):
    results = dataclasses.replace(run.entry.results, **columns)
    return dataclasses.replace(run, entry=dataclasses.replace(run.entry, results=results))


def test_clean_accuracy_is_a_cost_only_if_it_is_significantly_lower(tmp_path, mini):
    """It is the share of correct images, even if the table has no column for radius 0."""
    for method in ("gaussian", "catrs"):
        make_run(tmp_path / method, mini.labels.numpy()[:200], method=method, sigma=0.5)
    rival, winner = sorted(read_runs([str(tmp_path)]), key=lambda run: run.entry.method != "gaussian")
    rival = with_results(rival, radius=np.full(200, 0.5), correct=np.ones(200, dtype=bool))
    told = []
    for wrong in (1, 40):
        best = with_results(winner, radius=np.full(200, 2.0), correct=np.arange(200) >= wrong)
        table = build_table([rival.entry, best.entry], radii=(1.0,))
        (message,) = dataset_messages(table, [rival, best], {})
        told += [detail["text"] for detail in message["details"] if detail["title"] == "Clean accuracy"]
    at = "correctly at \N{GREEK SMALL LETTER SIGMA} 0.50, Gaussian 100.0 %"
    assert told == [
        f"CAT-RS classifies 99.5 % {at}, not significantly more.",
        f"CAT-RS classifies 80.0 % {at}: a larger radius costs clean accuracy.",
    ]


def test_methods_that_are_level_at_a_radius_are_both_named(tmp_path, mini):
    labels = mini.labels.numpy()[:50]
    for method in ("gaussian", "catrs"):
        make_run(tmp_path / method, labels, method=method, sigma=0.5, skill=2.0)
    runs = read_runs([str(tmp_path)])
    (message,) = dataset_messages(build_table([run.entry for run in runs]), runs, {})
    (text,) = (detail["text"] for detail in message["details"] if detail["title"] == "Most images certified")
    assert text == "Gaussian and CAT-RS at r = 0.00 to 1.00."


def test_the_best_sigma_is_named_only_among_several(tmp_path, mini):
    labels = mini.labels.numpy()[:50]
    for method, skill in (("gaussian", 1.0), ("catrs", 3.0)):
        make_run(tmp_path / method, labels, method=method, sigma=0.5, skill=skill)
    runs = read_runs([str(tmp_path)])
    (message,) = dataset_messages(build_table([run.entry for run in runs]), runs, {})
    (text,) = (detail["text"] for detail in message["details"] if detail["title"] == "Most images certified")
    assert "best" not in text


def test_corruption_leads_if_the_results_are_on_corrupted_images():
    found = read_findings([str(RESULTS / name) for name in ("mnist-catrs-0.25", "mnist-smoothadv-0.25")])
    message = corruption_message(found.corrupted)
    assert message["headline"].startswith(
        "CAT-RS has the largest average certified radius on the corrupted images of MNIST-C"
    )
    told = " ".join(detail["text"] for detail in message["details"])
    own, rival = (shared_acr(found.corrupted, method) for method in ("catrs", "smoothadv"))
    assert f"{np.mean(list(own.values())):.3f} over 15 corruptions" in told
    assert "on the 1,000 images that all networks share" in told
    printed = {kind: (float(f"{own[kind]:.3f}"), float(f"{rival[kind]:.3f}")) for kind in own}
    assert f"on {sum(a > b for a, b in printed.values())} of 15 corruptions" in told
    worst = max(printed, key=lambda kind: printed[kind][1] - printed[kind][0])
    behind = "{:.3f} against {:.3f} for SmoothAdv".format(*printed[worst])
    assert f"furthest behind on {worst.replace('_', ' ')}, {behind}." in told
    assert "CAT-RS takes 18.7 times the network passes of Gaussian training, SmoothAdv 30.7 (" in told
    told = " ".join(detail["text"] for detail in corruption_message(found.corrupted, found.runs)["details"])
    assert "SmoothAdv 30.7 (CAT-RS: computed from the recipe)." in told, "the other's configuration is in its folder"
    page = render_page(
        found.runs, build_table([run.entry for run in found.runs]), networks=found.corrupted,
        corruptions=corruption_maps(found.corrupted),
    )  # fmt: skip
    assert '"corruptionLeads":true' in page
