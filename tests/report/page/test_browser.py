"""The page in Chromium, opened from disk: content, interaction and accessibility."""

import re

import numpy as np
import pytest
from browsing import DESKTOP, PHONE, Opened, launched_browser, serious
from page_runs import hashes, make_run
from statsmodels.stats.proportion import proportion_confint

from smoothcert.cli.report_page import find_test_images
from smoothcert.errors import SmoothcertError
from smoothcert.report.page import render_page
from smoothcert.report.page.radius_grid import grid_for
from smoothcert.report.page.votes import read_estimation, vote_shares
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.formats import FORMATS
from smoothcert.report.tables.table import build_table
from smoothcert.statistics import metrics

HOSTILE = """<script>alert("x")</script> & 'quotes' "too" </style>"""
CORRUPTIONS = {
    "ACR of CAT-RS": {("fog", 1): 0.5, ("fog", 2): 0.25, ("glass_blur", 1): 0.75},
    "accuracy": {("fog", "Gaussian"): 50.0, ("mean", "Gaussian"): 50.0, ("fog", HOSTILE): 75.0},
}


@pytest.fixture(scope="module")
def browser():
    with launched_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def runs(tmp_path_factory, mini):
    """Two methods at two noise levels and a hostile name, all with images; and a run on MNIST that the paper has."""
    root = tmp_path_factory.mktemp("runs")
    labels = mini.labels.numpy()[:300]
    here = {"sha256": mini.fingerprint}
    for method, skill in (("gaussian", 1.5), ("catrs", 2.2)):
        for sigma in (0.25, 0.5):
            make_run(root / f"{method}-{sigma}", labels, method=method, sigma=sigma, skill=skill, **here)
    make_run(root / "other", labels, method="own", sigma=0.5, skill=2.0, step=3, counts=False, **here)
    (root / "other/note.md").write_text(f"Not as\nexpected: {HOSTILE}")
    make_run(root / "mnist", labels, method="catrs", sigma=0.5, skill=3.0, dataset="mnist", sha256="unknown")
    return read_runs([f"{HOSTILE}={path}" if path.name == "other" else str(path) for path in sorted(root.iterdir())])


@pytest.fixture(scope="module")
def table(runs):
    return build_table([run.entry for run in runs], paper=True)


def images(name):
    if name == "mnist":
        raise SmoothcertError("mnist is not in the data folder.")
    return find_test_images(None)(name)


@pytest.fixture(scope="module")
def file(runs, table, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(runs, table, title=f"Title {HOSTILE}", load=images, corruptions=CORRUPTIONS))
    return path


@pytest.fixture(scope="module")
def opened(browser, file):
    page = Opened(browser, file, permissions=["clipboard-read", "clipboard-write"])
    yield page
    assert page.errors == [], "no error in any of the tests"
    assert page.outside() == []


@pytest.fixture
def tab(opened):
    opened.load()
    return opened.tab


def texts(tab, selector):
    return [text.strip() for text in tab.locator(selector).all_inner_texts()]


def run_rows(tab):
    return [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in tab.locator("#table tbody tr[data-run]").all()
    ]


def press(tab, name, within="body"):
    tab.locator(within).get_by_role("button", name=name, exact=True).click()


def test_it_opens_without_errors_or_requests(opened, tab, file):
    assert opened.errors == []
    assert {url.split(":")[0] for url in opened.requests} <= {"file", "data", "blob"}
    assert {url for url in opened.requests if url.startswith("file:")} == {file.as_uri()}


def test_hostile_names_are_text(tab):
    assert tab.locator("h1").inner_text() == f"Title {HOSTILE}"
    assert HOSTILE in [row[2] for row in run_rows(tab)]
    assert any(HOSTILE in text for text in texts(tab, ".provenance summary"))
    assert tab.evaluate("document.scripts.length") == 3, "no script but the page's own"


def test_the_table_has_the_values_of_metrics(tab, table):
    rows = run_rows(tab)
    assert len(rows) == len(table.rows) == 6
    for cells, row in zip(rows, table.rows, strict=True):
        some = row.entry.results
        acr = metrics.average_certified_radius(some.radius, some.correct)
        accuracy = 100 * metrics.certified_accuracy(some.radius, some.correct, table.radii)
        assert cells[3] == f"{acr:.3f}"
        assert cells[4] == f"{row.acr.low:.3f}–{row.acr.high:.3f}"  # noqa: RUF001
        assert cells[5:16] == [f"{value:.1f}" for value in accuracy]
        assert cells[16] == f"{100 * metrics.abstention_rate(some.predict):.1f}"


def test_best_and_second_are_marked_among_the_rows_shown(tab, table):
    def marked():
        rows = tab.locator("#table tr[data-run]").all()
        return [row.locator("td:has(+ td.quiet)").first.get_attribute("class") for row in rows]

    assert marked() == [row.marks.get("acr") for row in table.rows]
    press(tab, "CAT-RS", "#filters")
    assert "second" not in marked(), "a single row is not marked"


def test_rows_on_different_images_are_not_marked(tab, table):
    tab.locator("#filters select").select_option(label="MNIST, an excerpt")
    press(tab, "0.50", "#filters")
    assert tab.locator("#table td.best").count() == 0
    others = [i for i, row in enumerate(table.rows) if len(row.entry.results) == 100]
    assert len(others) == 1
    tab.locator(f'#legend input[value="{others[0]}"]').uncheck()
    assert tab.locator("#table td.best").count() > 0


def test_notes_of_runs_are_below_the_table(tab):
    assert texts(tab, "#notes li") == [f"{HOSTILE}, σ 0.50 · MNIST, an excerpt: Not as expected: {HOSTILE}"]  # noqa: RUF001
    press(tab, "0.25", "#filters")
    assert tab.locator("#notes").is_hidden()


def test_dashes_and_shapes_match_the_keys_of_noise_levels(tab, table):
    def dashes(selector):
        return [line.get_attribute("stroke-dasharray") for line in tab.locator(f"{selector} line").all()]

    quarter, half = dashes("#confidence-keys")[-2:]
    assert texts(tab, "#confidence-keys span")[-2:] == ["σ 0.25", "σ 0.50"]  # noqa: RUF001
    expected = [{0.25: quarter, 0.5: half}[row.entry.sigma] for row in table.rows]
    assert dashes("#legend") == dashes("#table") == expected, "even if two runs of CAT-RS at 0.50 look the same"
    shapes = {text: path.get_attribute("d") for text, path in zip(
        texts(tab, "#tradeoff-keys span:has(path)"), tab.locator("#tradeoff-keys path").all(), strict=True
    )}  # fmt: skip
    for i, row in enumerate(table.rows):
        drawn = tab.locator(f'#tradeoff .point[data-run="{i}"]').get_attribute("d")
        assert drawn == shapes[f"σ {row.entry.sigma:.2f}"]  # noqa: RUF001
    assert "paper" not in texts(tab, "#tradeoff-keys span")
    press(tab, "Paper's numbers", "#tradeoff-controls")
    assert "paper" in texts(tab, "#tradeoff-keys span")


def test_sorting(tab):
    for column, cell, falling in (("acr", 3, True), ("r2", 7, True), ("name", 2, False)):
        tab.locator(f'#table [data-column="{column}"] button').click()
        values = [row[cell].lower() if column == "name" else float(row[cell]) for row in run_rows(tab)]
        assert values == sorted(values, reverse=falling)
        sort = "descending" if falling else "ascending"
        assert tab.locator(f'#table [data-column="{column}"]').get_attribute("aria-sort") == sort
    tab.keyboard.press("Enter")
    assert [row[2].lower() for row in run_rows(tab)] == sorted((row[2].lower() for row in run_rows(tab)), reverse=True)
    tab.keyboard.press("Enter")
    assert tab.locator("#table [aria-sort]").count() == 0, "the third press undoes it"


def test_the_papers_numbers_and_differences_on_demand(tab, table):
    assert tab.locator("tr.paper").count() == 0
    press(tab, "With paper", "#table-controls")
    (row,) = [row for row in table.rows if row.paper]
    cells = texts(tab, "tr.paper td")
    assert f"{row.paper.acr:.3f}" in cells
    assert f"{row.paper.accuracy[0.5]:.1f}" in cells
    press(tab, "Difference from paper", "#table-controls")
    gap = row.acr.value - row.paper.acr
    assert f"{'−' if gap < 0 else '+'}{abs(gap):.3f}" in texts(tab, "tr.paper td")  # noqa: RUF001


def legend(tab):
    items = tab.locator("#legend li").all()
    return {item.locator(".name").inner_text(): item.locator("output").inner_text() for item in items}


def at_radius(tab):
    return float(tab.locator("#legend-radius").inner_text().removeprefix("r = "))


def test_the_legend_shows_the_values_at_the_pointer(tab, runs):
    press(tab, "0.25", "#filters")
    box = tab.locator("#curves-plot .u-over").bounding_box()
    for share in (0.2, 0.5):
        tab.mouse.move(box["x"] + share * box["width"], box["y"] + 40)
        radius = at_radius(tab)
        for run in runs:
            if run.entry.sigma == 0.25:
                some = run.entry.results
                expected = metrics.certified_accuracy(some.radius, some.correct, _on_grid(runs, radius))[0]
                assert legend(tab)[run.entry.name] == f"{100 * expected:.1f} %"


def _on_grid(runs, radius):
    radii = grid_for([run.entry for run in runs]).radii
    return radii[np.abs(radii - radius).argmin()]


def test_curves_are_read_by_keyboard_with_their_bands(tab, runs):
    tab.locator("#curves-plot").focus()
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowLeft"):
        tab.keyboard.press(key)
    radius = _on_grid(runs, at_radius(tab))
    assert radius == 10 * grid_for([run.entry for run in runs]).step, "one step, ten more, and one back"
    box = tab.locator("#curves-plot .u-over").bounding_box()
    tab.mouse.move(box["x"] + 60, box["y"] + 60)
    tip = tab.locator("#curves-plot .tip").inner_text()
    name, radius, value, low, high = re.match(
        r"(.*)\nr = ([\d.]+)\s+([\d.]+) % \(([\d.]+) to ([\d.]+)\)", tip, re.S
    ).groups()
    label, sigma = re.match(r"(.*), σ ([\d.]+)", name).groups()  # noqa: RUF001
    wanted = (label, float(sigma), "mnist" if name.endswith("MNIST") else "mnist-mini")
    (some,) = [e.results for e in (run.entry for run in runs) if (e.name, e.sigma, e.dataset) == wanted]
    share = metrics.certified_accuracy(some.radius, some.correct, _on_grid(runs, float(radius)))[0]
    expected = proportion_confint(round(share * len(some)), len(some), method="wilson")
    assert [value, low, high] == [f"{100 * number:.1f}" for number in (share, *expected)]


def test_runs_can_be_hidden(tab):
    box = tab.locator("#legend li").first.locator("input")
    before = tab.locator("#curves-plot").get_attribute("aria-label")
    box.uncheck()
    assert len(run_rows(tab)) == 5
    assert "by radius, 5 curves" in tab.locator("#curves-plot").get_attribute("aria-label")
    assert tab.locator(".outcome:not(.head)").count() == 5
    assert tab.locator("#tradeoff .point").count() == 5
    tab.locator("#legend li").first.locator("input").check()
    assert tab.locator("#curves-plot").get_attribute("aria-label") == before


def test_filters(tab):
    press(tab, "0.50", "#filters")
    assert {row[1] for row in run_rows(tab)} == {"0.50"}
    press(tab, "CAT-RS", "#filters")
    assert {row[2] for row in run_rows(tab)} == {"CAT-RS"}
    assert tab.locator("#legend li").count() == 2
    tab.locator("#filters select").select_option(label="MNIST")
    assert tab.locator("#legend li").count() == len(run_rows(tab)) == 1
    assert "MNIST" not in tab.locator("#table").inner_text(), "a single dataset is not repeated in every row"
    tab.locator("#filters select").select_option(label="all")
    assert len(run_rows(tab)) == 6, "another dataset resets the other filters"


def test_the_best_noise_level_of_each_method(tab, runs):
    tab.locator("#filters select").select_option(label="MNIST, an excerpt")
    press(tab, "Best σ", "#curves-controls")  # noqa: RUF001
    box = tab.locator("#curves-plot .u-over").bounding_box()
    tab.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
    radius = _on_grid(runs, at_radius(tab))
    members = [run.entry for run in runs if run.entry.method == "gaussian"]
    shares = {e.sigma: metrics.certified_accuracy(e.results.radius, e.results.correct, radius)[0] for e in members}
    best = max(shares, key=shares.get)
    assert legend(tab)["Gaussian"] == f"{100 * shares[best]:.1f} % (σ {best:.2f})"  # noqa: RUF001


@pytest.mark.parametrize(("button", "suffix"), [("LaTeX", ".tex"), ("Markdown", ".md"), ("CSV", ".csv")])
def test_the_copied_table_equals_the_output_of_the_command(tab, runs, button, suffix):
    tab.locator("#filters select").select_option(label="MNIST, an excerpt")
    press(tab, button, "#table-controls")
    tab.get_by_role("button", name="Copied").wait_for()
    ours = build_table([run.entry for run in runs if run.entry.dataset == "mnist-mini"])
    assert tab.evaluate("navigator.clipboard.readText()") == FORMATS[suffix](ours)


def test_the_copied_table_of_several_datasets_has_a_dataset_column(tab, runs):
    press(tab, "CSV", "#table-controls")
    tab.get_by_role("button", name="Copied").wait_for()
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied == FORMATS[".csv"](build_table([run.entry for run in runs]))
    assert copied.startswith("dataset,sigma,method,ACR")
    assert '"MNIST, an excerpt",0.50,CAT-RS,' in copied
    assert "MNIST,0.50,CAT-RS," in copied


def test_copying_works_without_clipboard_permission(tab):
    tab.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); 0")
    press(tab, "CSV", "#table-controls")
    tab.get_by_role("button", name="Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()").startswith("dataset,sigma,method,ACR")


def read_bin(tab, holder, share):
    """Point at a histogram; return the share of images in that bin, in percent, and its edges."""
    tab.locator(holder).scroll_into_view_if_needed()
    box = tab.locator(f"{holder} .u-over").bounding_box()
    for height in (0.05, 0.3, 0.6, 0.9):  # values are shown only near a line
        tab.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])
        if tab.locator(f"{holder} .tip").is_visible():
            break
    found = re.search(r"([\d.]+) % from ([\d.]+) to ([\d.]+)", tab.locator(f"{holder} .tip").inner_text())
    return [float(number) for number in found.groups()]


def test_histograms_count_votes_and_radii(tab, runs):
    tab.locator("#filters select").select_option(label="MNIST")
    (run,) = [run for run in runs if run.entry.dataset == "mnist"]
    some = run.entry.results
    shares = vote_shares(some, read_estimation(run.path, len(some)), 0.5)
    for which, chosen in (
        ("Correct", some.correct),
        ("Wrong", ~some.correct & (some.predict >= 0)),
        ("All", shares >= 0),
    ):
        press(tab, which, "#confidence-controls")
        percent, low, high = read_bin(tab, "#votes-plot", 0.985)
        inside = (shares[chosen] >= low - 1e-9) & ((shares[chosen] < high - 1e-9) | (high == 1.0))
        assert percent == pytest.approx(100 * inside.sum() / len(some), abs=0.01)
    press(tab, "Correct", "#confidence-controls")
    percent, low, high = read_bin(tab, "#radius-plot", 0.5)
    edges = grid_for([run.entry for run in runs]).radii
    low, high = (edges[np.abs(edges - end).argmin()] for end in (low, high))
    inside = some.correct & (some.radius >= low) & (some.radius < high)
    assert percent == pytest.approx(100 * inside.mean(), abs=0.01)


def test_two_runs_are_compared_in_pairs(tab, runs):
    tab.locator("#filters select").select_option(label="MNIST, an excerpt")
    entries = {run.entry.method: run.entry for run in runs if run.entry.sigma == 0.25}
    first, second = entries["catrs"], entries["gaussian"]
    for label, entry in (("First", first), ("Second", second)):
        tab.get_by_label(label, exact=True).select_option(label=f"{entry.name}, σ 0.25")  # noqa: RUF001
    expected = metrics.paired_difference(
        *((e.results.idx, e.results.radius, e.results.correct) for e in (first, second))
    )
    tab.wait_for_function(f"document.querySelector('#compare-gap')?.textContent === '{expected.value:+.4f}'")
    interval = tab.locator("#compare-interval").inner_text().replace("−", "-")  # noqa: RUF001
    low, high = (float(text) for text in re.findall(r"[+-][\d.]+", interval))
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.1 * (expected.high - expected.low))
    wins = (first.results.radius * first.results.correct > second.results.radius * second.results.correct).mean()
    shown = float(re.search(r"Larger radius: first run on ([\d.]+) %", tab.locator("#compare-verdict").inner_text())[1])
    assert shown == pytest.approx(100 * wins, abs=1.5), "up to the resolution of the grid"
    other = next(run.entry for run in runs if run.entry.name == HOSTILE)
    tab.get_by_label("Second", exact=True).select_option(label=f"{other.name}, σ 0.50")  # noqa: RUF001
    tab.get_by_text("of 100 shared images").wait_for()


def test_outcomes_and_tradeoff(tab, table):
    for i, row in enumerate(table.rows):
        some = row.entry.results
        parts = [some.correct.mean(), (some.predict < 0).mean(), (~some.correct & (some.predict >= 0)).mean()]
        shown = texts(tab, f".outcome:not(.head) >> nth={i} >> .number")
        assert shown == [f"{100 * part:.1f} %" for part in parts]
    tab.locator("#tradeoff-controls input[type=range]").fill("3")
    for i, row in enumerate(table.rows):
        label = tab.locator(f'#tradeoff .point[data-run="{i}"]').get_attribute("aria-label")
        assert label.endswith(f"{row.accuracy[0]:.1f} % clean, {row.accuracy[3]:.1f} % at r = 0.75")


def test_corruption_training_and_cost(tab):
    assert texts(tab, ".heatmap tbody tr >> nth=0 >> td") == ["0.500", "0.250", "0.375"]
    assert texts(tab, ".heatmap tbody tr >> nth=1 >> td") == ["0.750", "–", "0.750"]  # noqa: RUF001
    assert texts(tab, ".heatmap tbody th") == ["fog", "glass blur"]
    tab.locator("#corruption-controls select").select_option(index=1)
    assert texts(tab, ".heatmap thead th") == ["corruption", "Gaussian", HOSTILE]
    assert texts(tab, ".heatmap tbody td") == ["50.0", "75.0", "50.0", "–"]  # noqa: RUF001
    alt = tab.locator("#training-plot").get_attribute("aria-label")
    assert alt == "loss by epoch in 6 training runs, from 0.500 to 2.00."
    tab.get_by_label("Quantity").select_option(label="accuracy under noise, %")
    assert "from 90.0 to 93.0" in tab.locator("#training-plot").get_attribute("aria-label")
    assert "2 min" in tab.locator("#cost tbody tr").first.inner_text()
    assert "A fine processor" in tab.locator("#cost").inner_text()


def pixels(tab, selector):
    return tab.locator(selector).evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 0)"
    )


def test_the_gallery_shows_the_images_with_their_votes(tab, runs, mini):
    least = [run.entry for run in runs if (run.entry.dataset, run.entry.sigma) == ("mnist-mini", 0.25)]
    table = build_table(least)
    best = max(table.rows, key=lambda row: row.acr.value).entry
    run = next(run for run in runs if run.entry is best)
    assert tab.locator("#gallery .note").inner_text() == "No images of mnist: mnist is not in the data folder."
    kinds = [
        "Correct, largest radii",
        "Correct, smallest radii",
        "Wrong, largest radii",
        "Abstained",
    ]
    assert texts(tab, "#gallery h3") == kinds
    some, card = run.entry.results, tab.locator(".kind >> nth=2 >> .card").first
    wrong = np.flatnonzero((some.predict >= 0) & ~some.correct)
    card.click()
    title = tab.locator("#detail-title").inner_text()
    index = int(re.search(r"Image (\d+) of", tab.locator("dialog").inner_text())[1])
    row = int(np.flatnonzero(some.idx == index)[0])
    assert row in wrong
    assert (
        title
        == f"{some.label[row]} classified as {some.predict[row]}, radius {np.floor(some.radius[row] * 1000) / 1000:.3f}"
    )
    assert np.array_equal(pixels(tab, "dialog canvas >> nth=0"), mini.images[index].flatten().numpy())
    noisy = pixels(tab, "dialog canvas >> nth=1")
    assert np.abs(np.subtract(noisy, pixels(tab, "dialog canvas >> nth=0"))).mean() > 20
    press(tab, "New noise sample", "dialog")
    assert pixels(tab, "dialog canvas >> nth=1") != noisy
    votes = run.path.with_name("certify.counts.tsv").read_text().splitlines()[row + 1].split("\t")[2].split()
    label, count = votes[0].split(":")
    first = tab.locator("dialog .vote").first
    assert first.locator(".name").inner_text() == label
    assert float(first.locator(".number").inner_text().rstrip(" %")) == pytest.approx(int(count) / 10, abs=0.051)


def test_the_gallery_by_keyboard(tab):
    tab.locator(".card").first.focus()
    tab.keyboard.press("Enter")
    title = tab.locator("#detail-title").inner_text()
    tab.keyboard.press("ArrowRight")
    assert "Image" in tab.locator("dialog").inner_text()
    tab.keyboard.press("ArrowLeft")
    assert tab.locator("#detail-title").inner_text() == title
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog").is_visible()
    assert tab.evaluate("document.activeElement.className") == "card", "focus returns to the card"
    tab.get_by_label("Run", exact=True).select_option(label=f"{HOSTILE}, σ 0.50, MNIST, an excerpt")  # noqa: RUF001
    tab.locator(".card").first.click()
    assert tab.locator("dialog .vote .number").first.inner_text().startswith("≥ "), "a bound, as votes were not saved"


def test_provenance_has_the_hash_of_every_file(tab, runs):
    tab.locator(".provenance summary").first.click()
    first = ".provenance details >> nth=0 >> "
    shown = dict(zip(texts(tab, first + "dt"), texts(tab, first + "dd"), strict=True))
    assert any(hashes(run.path).items() <= shown.items() for run in runs)
    assert {"n0": "100", "n": "1000", "alpha": "0.001", "architecture": "lenet"}.items() <= shown.items()


FORMS = [
    pytest.param(DESKTOP, "light", id="desktop-light"),
    pytest.param(PHONE, "dark", id="phone-dark"),
    pytest.param(DESKTOP, "dark", id="desktop-dark", marks=pytest.mark.slow),
    pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("viewport", "scheme"), FORMS)
def test_it_is_accessible_on_all_screens_and_schemes(browser, file, viewport, scheme):
    page = Opened(browser, file, viewport, scheme)
    tab = page.tab
    tab.wait_for_selector(".card")
    wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "no horizontal scrolling"
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    assert serious(tab) == []
    tab.locator(".card").first.click()
    assert serious(tab, "dialog") == []
    assert page.errors == []
    page.context.close()


def test_the_printed_page_is_light_and_has_no_controls(browser, file):
    page = Opened(browser, file, scheme="dark")
    page.tab.emulate_media(media="print")
    assert page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.tab.locator("#filters").is_visible()
    assert not page.tab.locator("#table-controls").is_visible()
    assert page.tab.locator("#table").is_visible()
    assert page.tab.pdf()[:4] == b"%PDF"
    page.context.close()


def test_without_scripts_the_table_is_shown(browser, file, table):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert f"{table.rows[0].acr.value:.3f}" in tab.locator("noscript pre").inner_text()
    context.close()


METHODS = ("gaussian", "stability", "smoothadv", "macer", "consistency", "smoothmix", "catrs")


def many_runs(root, count, labels, sha256):
    """Write and read full-size runs with votes: seven methods, three noise levels and several seeds."""
    for i in range(count):
        method, sigma = METHODS[i % 7], (0.25, 0.5, 1.0)[i // 7 % 3]
        folder = root / f"{method}-{sigma}-{i}"
        about = {"method": method, "sigma": sigma, "dataset": "cifar10", "sha256": sha256, "n": 100_000}
        make_run(folder, labels, seed=i, skill=1 + i % 7 / 5, epochs=150, **about)
    return read_runs([str(root)])


@pytest.mark.slow
def test_a_page_of_twenty_full_runs_is_small_and_opens_fast(browser, tmp_path, real_data):
    pictures = find_test_images(real_data)("cifar10")
    runs = many_runs(tmp_path / "runs", 20, pictures.labels, pictures.sha256)
    file = tmp_path / "page.html"
    file.write_text(render_page(runs, build_table([run.entry for run in runs]), load=lambda name: pictures))
    assert file.stat().st_size < 1_000_000
    page = Opened(browser, file)
    page.tab.wait_for_selector(".card")
    assert page.tab.evaluate("document.querySelectorAll('*').length") < 5000, "it opens at once"
    assert page.tab.locator("#table tr[data-run]").count() == 20
    assert page.tab.locator(".card").count() >= 4
    assert page.errors == []
    page.context.close()


@pytest.mark.slow
def test_a_page_of_two_hundred_runs_works(browser, tmp_path, real_data):
    pictures = find_test_images(real_data)("cifar10")
    runs = many_runs(tmp_path / "runs", 200, pictures.labels[:1000], "")
    file = tmp_path / "page.html"
    file.write_text(render_page(runs, build_table([run.entry for run in runs]), load=lambda name: pictures))
    page = Opened(browser, file)
    assert page.tab.locator("#table tr[data-run]").count() == 200
    press(page.tab, "CAT-RS", "#filters")
    assert 0 < page.tab.locator("#table tr[data-run]").count() < 200
    page.tab.locator("#legend li input").first.uncheck()
    page.tab.locator("#compare-gap").wait_for()
    assert page.errors == []
    page.context.close()
