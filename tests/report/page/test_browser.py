"""The page in Chromium, opened from disk: content, interaction and accessibility."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import PIL.Image
import pytest
from browsing import DESKTOP, PHONE, Opened, serious
from page_runs import hashes, make_run
from statsmodels.stats.proportion import proportion_confint

from smoothcert.cli.report_page import find_test_images
from smoothcert.errors import SmoothcertError
from smoothcert.report.page import render_page
from smoothcert.report.page.radius_grid import grid_for
from smoothcert.report.page.votes import read_estimation, vote_shares
from smoothcert.report.palette import LIGHT, METHOD_COLORS
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.formats import FORMATS
from smoothcert.report.tables.table import build_table
from smoothcert.report.tables.winners import best_by_radius, comparable_rows, leads_by_sigma
from smoothcert.statistics import metrics

ASSETS = Path(render_page.__code__.co_filename).with_name("assets")
HOSTILE = """<script>alert("x")</script> & 'quotes' "too" </style>"""
CORRUPTIONS = {
    "ACR of CAT-RS": {("fog", 1): 0.5, ("fog", 2): 0.25, ("glass_blur", 1): 0.75},
    "accuracy": {("fog", "Gaussian"): 50.0, ("mean", "Gaussian"): 50.0, ("fog", HOSTILE): 75.0},
}


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
        raise SmoothcertError("mnist is not in the data folder; run `smoothcert data get mnist`.")
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
    return [text.strip() for text in tab.locator(selector).all_text_contents()]


def run_rows(tab):
    return [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in tab.locator("#table tbody tr[data-run]").all()
    ]


def settle(tab):
    tab.wait_for_selector("html:not([data-busy])")


def press(tab, name, within="body"):
    tab.locator(within).get_by_role("button", name=name, exact=True).click()
    settle(tab)


def test_it_opens_without_errors_or_requests(opened, tab, file):
    assert opened.errors == []
    assert {url.split(":")[0] for url in opened.requests} <= {"file", "data", "blob"}
    assert {url for url in opened.requests if url.startswith("file:")} == {file.as_uri()}


def test_hostile_names_are_text(tab):
    assert tab.locator("h1").inner_text() == f"Title {HOSTILE}"
    assert HOSTILE in [row[1] for row in run_rows(tab)]
    assert any(HOSTILE in text for text in texts(tab, ".provenance summary"))
    assert tab.evaluate("document.scripts.length") == 2, "no script but the page's own"


def test_the_first_sentences_name_the_winner_and_its_cost(tab, runs, table):
    rows = comparable_rows(table, "mnist-mini")
    first, half = leads_by_sigma(rows)
    headline = tab.locator("#message .headline").inner_text()
    assert headline == "CAT-RS has the largest average certified radius on MNIST subset at every σ."
    told = tab.locator("#message").inner_text()
    for lead in (first, half):
        ahead, first_acr = lead.ahead, lead.first.acr.value
        over = f"{ahead.value:.4f} above Gaussian (paired 95 % interval {ahead.low:.4f} to {ahead.high:.4f})"
        assert f"σ {lead.first.entry.sigma:.2f}: CAT-RS {first_acr:.3f}, {over}" in told.splitlines()
    gap = {id(lead): (lead.clean.accuracy[0] - lead.first.accuracy[0], lead.first.acr.value) for lead in (first, half)}
    clean = max((first, half), key=lambda lead: gap[id(lead)])
    assert f"CAT-RS classifies {clean.first.accuracy[0]:.1f} %" in told
    assert "CAT-RS takes 18.7 times the network passes of Gaussian training, Gaussian 1.0." in told, "4 x 14 and 3"
    assert "on the same 300 images" in told, "the run on 100 images is not compared"
    assert (
        "Intervals reflect the choice of test images, not the randomness of training: each run was trained once."
        in told
    )
    shown = tab.locator("#compare-interval").inner_text().replace("+", "")
    ahead = max((first, half), key=lambda lead: lead.first.acr.value).ahead
    assert shown == f"in ACR, 95 % interval {ahead.low:.4f} to {ahead.high:.4f}", "the same numbers in both places"
    press(tab, "MNIST", "#filters")
    assert tab.locator("#message .headline").inner_text().startswith("CAT-RS has an average certified radius of ")


def test_the_best_method_per_radius(tab, table):
    best = best_by_radius(comparable_rows(table, "mnist-mini"), table.radii)
    rows = [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in tab.locator("#best tbody tr").all()
    ]
    assert [row[:3] for row in rows] == [
        [f"{at.radius:.2f}", f"{at.first.entry.name} σ {at.first.entry.sigma:.2f}", f"{at.accuracy:.1f} %"]
        for at in best
    ]


def test_the_ranking_is_by_acr_with_intervals(tab, table):
    tab.locator("#ranking-plot svg").focus()
    rows = [row for row in comparable_rows(table, "mnist-mini") if row.entry.sigma == 0.25]
    for row in sorted(rows, key=lambda row: -row.acr.value):
        tip = tab.locator(".tip").inner_text()
        assert f"{row.entry.name}, σ 0.25" in tip
        assert f"ACR {row.acr.value:.3f}, 95 % interval {row.acr.low:.3f} to {row.acr.high:.3f}" in tip
        tab.keyboard.press("ArrowRight")


def in_dataset(table, dataset="mnist-mini"):
    return [row for row in table.rows if row.entry.dataset == dataset]


def test_the_table_has_the_values_of_metrics(tab, table):
    rows = run_rows(tab)
    assert len(rows) == len(in_dataset(table)) == 5
    for cells, row in zip(rows, in_dataset(table), strict=True):
        some = row.entry.results
        acr = metrics.average_certified_radius(some.radius, some.correct)
        accuracy = 100 * metrics.certified_accuracy(some.radius, some.correct, table.radii)
        assert cells[2] == f"{acr:.3f}"
        assert cells[3] == f"{row.acr.low:.3f}–{row.acr.high:.3f}"
        assert cells[4:15] == [f"{value:.1f}" for value in accuracy]
        assert cells[15] == f"{100 * metrics.abstention_rate(some.predict):.1f}"


IMPORT = "([source, values]) => import(`data:text/javascript,${encodeURIComponent(source)}`)"


def test_numbers_are_rounded_as_python_does(tab):
    """Tables are written by Python and plots by the page: one number must not appear as 29.5 and 29.6 %."""
    source = (ASSETS / "js/format.js").read_text()
    values = [100 * (count / 400) for count in range(401)] + [100 * (count / 10_000) for count in range(0, 10_000, 7)]
    values += [-0.25, 0.5, 1.5, 2.5, 1e-9, 0.0005, 0.00125]
    for digits in (0, 1, 2, 3):
        code = "([source, values, digits]) => import(`data:text/javascript,${encodeURIComponent(source)}`)"
        found = tab.evaluate(
            code + ".then(module => values.map(v => module.fixed(v, digits)))", [source, values, digits]
        )
        assert found == [f"{value:.{digits}f}" for value in values]


def test_times_have_fitting_units(tab):
    source = (ASSETS / "js/format.js").read_text()
    code = "([source, values]) => import(`data:text/javascript,${encodeURIComponent(source)}`)"
    found = tab.evaluate(
        code + ".then(module => values.map(module.duration))", [source, [0.004, 0.0041, 2e-5, 12, 1500, 14700, 3e5]]
    )
    assert found == ["4.0 ms", "4.1 ms", "20 µs", "12 s", "25 min", "4 h 05 min", "3.5 days"]


def test_best_and_second_are_marked_among_rows_on_the_same_images(tab, table):
    def marked():
        rows = tab.locator("#table tr[data-run]").all()
        return [row.locator("td").nth(1).get_attribute("class") for row in rows]

    assert marked() == [row.marks.get("acr") for row in in_dataset(table)]
    assert {"best", "second", None} == set(marked()), "the run on 100 images does not remove the marks of the others"
    press(tab, "CAT-RS", "#filters")
    assert set(marked()) == {None}, "a single row is not marked"


def test_notes_of_runs_are_below_the_table(tab):
    assert texts(tab, "#notes li") == [f"{HOSTILE}, σ 0.50: Not as expected: {HOSTILE}"]
    press(tab, "0.25", "#filters")
    assert tab.locator("#notes").is_hidden()


def test_sorting(tab):
    for column, cell, falling in (("acr", 2, True), ("r2", 6, True), ("name", 1, False)):
        tab.locator(f'#table [data-column="{column}"] button').click()
        values = [row[cell].lower() if column == "name" else float(row[cell]) for row in run_rows(tab)]
        assert values == sorted(values, reverse=falling)
        sort = "descending" if falling else "ascending"
        assert tab.locator(f'#table [data-column="{column}"]').get_attribute("aria-sort") == sort
    tab.keyboard.press("Enter")
    assert [row[1].lower() for row in run_rows(tab)] == sorted((row[1].lower() for row in run_rows(tab)), reverse=True)
    tab.keyboard.press("Enter")
    assert tab.locator("#table [aria-sort]").count() == 0, "the third press undoes it"


def test_the_papers_numbers_and_differences_on_demand(tab, table):
    press(tab, "MNIST", "#filters")
    assert tab.locator("tr.paper").count() == 0
    press(tab, "With paper", "#table-controls")
    (row,) = [row for row in table.rows if row.paper]
    cells = texts(tab, "tr.paper td")
    assert f"{row.paper.acr:.3f}" in cells
    assert f"{row.paper.accuracy[0.5]:.1f}" in cells
    press(tab, "Difference from paper", "#table-controls")
    gap = row.acr.value - row.paper.acr
    assert f"{'−' if gap < 0 else '+'}{abs(gap):.3f}" in texts(tab, "tr.paper td")


def _on_grid(runs, radius):
    radii = grid_for([run.entry for run in runs]).radii
    return radii[np.abs(radii - radius).argmin()]


CURVE = r"(.*), σ ([\d.]+)\nr = ([\d.]+)\s+([\d.]+) % \(([\d.]+) to ([\d.]+)\)"


def check_curve_tip(tab, runs):
    """Compare the tooltip of a curve with the run's certified accuracy and its Wilson interval."""
    label, sigma, radius, value, low, high = re.match(CURVE, tab.locator(".tip").inner_text(), re.S).groups()
    (some,) = [
        e.results
        for e in (run.entry for run in runs)
        if (e.name, e.sigma, e.dataset) == (label, float(sigma), "mnist-mini")
    ]
    share = metrics.certified_accuracy(some.radius, some.correct, _on_grid(runs, float(radius)))[0]
    expected = proportion_confint(round(share * len(some)), len(some), method="wilson")
    assert [value, low, high] == [f"{100 * number:.1f}" for number in (share, *expected)]
    return float(radius)


def test_curves_are_read_by_keyboard(tab, runs):
    tab.locator("#curves-plot svg").focus()
    check_curve_tip(tab, runs)
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowLeft"):
        tab.keyboard.press(key)
    radius = check_curve_tip(tab, runs)
    assert _on_grid(runs, radius) == 10 * grid_for([run.entry for run in runs]).step, "one step, ten more, and one back"
    before = tab.locator(".tip b").inner_text()
    tab.keyboard.press("ArrowDown")
    check_curve_tip(tab, runs)
    assert tab.locator(".tip b").inner_text() != before, "up and down lead to the other curves"
    tab.keyboard.press("Escape")
    assert tab.locator(".tip").is_hidden()


def test_curves_are_read_with_the_mouse(tab, runs):
    tab.locator("#curves-plot svg").scroll_into_view_if_needed()
    box = tab.locator("#curves-plot svg").bounding_box()
    for height in (60, 100, 140):
        tab.mouse.move(box["x"] + 70, box["y"] + height)
        if tab.locator(".tip").is_visible():
            break
    check_curve_tip(tab, runs)
    tab.mouse.move(5, 5)
    assert tab.locator(".tip").is_hidden()


def test_every_plot_is_read_by_touch(browser, file, runs):
    page = Opened(browser, file, PHONE, has_touch=True, is_mobile=True)
    tab = page.tab
    for plot in ("ranking", "curves", "distribution", "compare", "tradeoff", "training", "corruption"):
        svg = tab.locator(f"#{plot}-plot svg")
        svg.scroll_into_view_if_needed()
        box = svg.bounding_box()
        told = []
        for share in (0.4, 0.8):
            tab.touchscreen.tap(box["x"] + share * min(box["width"], 390), box["y"] + share * min(box["height"], 300))
            assert tab.locator(".tip").is_visible(), plot
            told.append(tab.locator(".tip").inner_text())
        assert told[0] != told[1], f"{plot}: another place, another mark"
        assert svg.locator("[data-passing]").count() == 1
    assert page.errors == []
    page.context.close()


def test_best_sigma_shows_bands_the_papers_numbers_and_missing_levels(tab, runs):
    press(tab, "Best σ", "#curves-controls")
    remark = "Not shown here: 1 run on other images or with another protocol (see the table)."
    assert tab.locator("#curves-remark").inner_text() == remark
    tab.get_by_label("Show Gaussian, σ 0.25").uncheck()
    settle(tab)
    assert "Gaussian has no run at σ 0.25." in tab.locator("#curves-remark").inner_text(), "its curve lacks a level"
    tab.get_by_label("Show Gaussian, σ 0.25").check()
    settle(tab)

    def shapes():
        return tab.locator("#curves-plot path[fill-opacity]").count(), tab.locator("#curves-plot circle").count()

    assert shapes() == (2, 0), "a band per method"
    press(tab, "95 % bands", "#curves-controls")
    assert shapes() == (0, 0)
    press(tab, "MNIST", "#filters")
    press(tab, "Paper's numbers", "#curves-controls")
    assert shapes()[1] > 3
    press(tab, "MNIST subset", "#filters")
    tab.locator("#curves-plot svg").focus()
    for _ in range(3):
        tab.keyboard.press("Shift+ArrowRight")
    tip = r"(.*)\nr = ([\d.]+)\s+([\d.]+) % with σ ([\d.]+)"
    name, radius, value, best = re.match(tip, tab.locator(".tip").inner_text()).groups()
    members = [run.entry for run in runs if (run.entry.name, run.entry.dataset) == (name, "mnist-mini")]
    at = _on_grid(runs, float(radius))
    shares = {e.sigma: metrics.certified_accuracy(e.results.radius, e.results.correct, at)[0] for e in members}
    assert float(best) == max(shares, key=shares.get)
    assert value == f"{100 * max(shares.values()):.1f}"


def test_runs_can_be_hidden(tab):
    before = tab.locator("#curves-plot svg").get_attribute("aria-label")
    assert "by radius, 4 curves" in before
    tab.locator("#table input").first.uncheck()
    settle(tab)
    assert "by radius, 3 curves" in tab.locator("#curves-plot svg").get_attribute("aria-label")
    assert tab.locator(".outcome:not(.head)").count() == 4
    assert tab.locator("#tradeoff-plot [data-run]").count() == 3, "one of the others is on other images"
    assert len(run_rows(tab)) == 5, "the row stays, so that its box can be checked again"
    tab.locator("#table input").first.check()
    settle(tab)
    assert tab.locator("#curves-plot svg").get_attribute("aria-label") == before


def test_filters(tab):
    press(tab, "0.50", "#filters")
    assert {row[0] for row in run_rows(tab)} == {"0.50"}
    press(tab, "CAT-RS", "#filters")
    assert [row[1] for row in run_rows(tab)] == ["CAT-RS"]
    press(tab, "MNIST", "#filters")
    assert len(run_rows(tab)) == 1, "one dataset at a time"
    press(tab, "MNIST subset", "#filters")
    assert len(run_rows(tab)) == 5, "another dataset resets the other filters"


def test_a_click_redraws_only_what_depends_on_it(tab):
    tab.evaluate("document.querySelectorAll('svg.plot').forEach((svg) => { svg.dataset.old = 'yes'; })")
    press(tab, "95 % bands", "#curves-controls")
    tab.locator('#table [data-column="acr"] button').click()
    settle(tab)
    redrawn = tab.evaluate("[...document.querySelectorAll('svg.plot:not([data-old])')].map((s) => s.parentNode.id)")
    assert redrawn == ["curves-plot"]


def test_the_address_shows_what_the_sender_saw(browser, file, opened, tab):
    press(tab, "0.50", "#filters")
    press(tab, "Best σ", "#curves-controls")
    tab.locator('#table [data-column="r2"] button').click()
    press(tab, "Radius", "#distribution-controls")
    press(tab, "Wrong", "#distribution-controls")
    tab.locator("#table input").last.uncheck()
    tab.get_by_label("Second", exact=True).select_option(index=1)
    tab.locator("#tradeoff-controls input[type=range]").fill("3")
    tab.get_by_label("Run", exact=True).select_option(index=1)
    settle(tab)
    tab.locator(".card").nth(2).click()
    tab.locator("#detail-title").wait_for()
    address = tab.evaluate("location.hash")
    other = Opened(browser, file, address=address)
    other.tab.locator("#detail-title").wait_for()

    def seen(tab):
        plots = tab.locator("svg.plot").evaluate_all("all => all.map(svg => svg.getAttribute('aria-label'))")
        pressed = tab.locator("[aria-pressed=true]").all_inner_texts()
        chosen = tab.locator("select").evaluate_all("all => all.map(one => one.value)")
        checked = tab.locator("#table input").evaluate_all("all => all.map(one => one.checked)")
        return run_rows(tab), plots, pressed, chosen, checked, tab.locator("dialog").inner_text()

    assert seen(other.tab) == seen(tab)
    assert other.errors == []
    other.tab.keyboard.press("Escape")
    other.address = "#sort=nothing&radius=99&dataset=none&heat=77&image=abc&broken"
    other.load()
    assert len(run_rows(other.tab)) == 5, "an address that makes no sense shows the default"
    for address in ("#curves=none&paper=none&shares=none&outcome=none", "#methods=Gauss%2&curves=%", "#toString=x"):
        other.address = address
        other.load()
        groups = other.tab.locator(".segmented").evaluate_all(
            "all => all.map((one) => one.querySelectorAll('[aria-pressed=true]').length)"
        )
        assert len(groups) > 3
        assert set(groups) == {1}, address
    assert other.errors == []
    other.context.close()


@pytest.mark.parametrize("plot", ["ranking", "curves", "distribution", "compare", "tradeoff", "training", "corruption"])
def test_plots_are_saved_as_svg_and_png(tab, tmp_path, plot):
    for name, suffix in (("SVG", ".svg"), ("PNG", ".png")):
        with tab.expect_download() as waiting:
            tab.locator(f"#{plot}-plot").get_by_role("button", name=name).click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert path.suffix == suffix
        size = tab.locator(f"#{plot}-plot svg").evaluate("svg => [svg.width.baseVal.value, svg.height.baseVal.value]")
        if suffix == ".svg":
            root = ElementTree.parse(path).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert "var(" not in path.read_text(), "it needs no style sheet"
            assert sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}text")) > 3
        else:
            picture = PIL.Image.open(path)
            assert picture.size == pytest.approx([2 * side for side in size], abs=1)
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 3, "it is not blank"


@pytest.mark.parametrize(("button", "suffix"), [("LaTeX", ".tex"), ("Markdown", ".md"), ("CSV", ".csv")])
def test_the_copied_table_equals_the_output_of_the_command(tab, runs, button, suffix):
    tab.locator("#table-controls").get_by_role("button", name=button).click()
    tab.get_by_role("button", name="Copied").wait_for()
    ours = build_table([run.entry for run in runs if run.entry.dataset == "mnist-mini"])
    assert tab.evaluate("navigator.clipboard.readText()") == FORMATS[suffix](ours)


def test_copying_works_without_clipboard_permission(tab):
    tab.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); 0")
    tab.locator("#table-controls").get_by_role("button", name="CSV").click()
    tab.get_by_role("button", name="Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()").startswith("sigma,method,ACR")


def read_bins(tab, steps):
    """Walk along the first ridge with the arrow keys; return the count of images and the edges of each bin."""
    tab.locator("#distribution-plot svg").focus()
    found = []
    for _ in range(steps):
        tip = re.search(r"\(([\d,]+) images\) from ([\d.]+) to ([\d.]+)", tab.locator(".tip").inner_text())
        found.append([float(number.replace(",", "")) for number in tip.groups()])
        tab.keyboard.press("ArrowRight")
    return found


def test_ridges_count_votes_and_radii(tab, runs):
    press(tab, "MNIST", "#filters")
    (run,) = [run for run in runs if run.entry.dataset == "mnist"]
    some = run.entry.results
    shares = vote_shares(some, read_estimation(run.path, len(some)), 0.5)
    for which, chosen in (
        ("Correct", some.correct),
        ("Wrong", ~some.correct & (some.predict >= 0)),
        ("All", shares >= 0),
    ):
        press(tab, which, "#distribution-controls")
        for number, low, high in read_bins(tab, 10):
            inside = (shares[chosen] >= low - 1e-12) & ((shares[chosen] < high - 1e-12) | (high == 1.0))
            assert number == inside.sum()
    press(tab, "Correct", "#distribution-controls")
    press(tab, "Radius", "#distribution-controls")
    edges = grid_for([run.entry for run in runs]).radii
    for number, *ends in read_bins(tab, 5):
        low, high = (edges[np.abs(edges - end).argmin()] for end in ends)
        assert number == (some.correct & (some.radius >= low) & (some.radius < high)).sum()


def test_two_runs_are_compared_in_pairs(tab, runs):
    entries = {run.entry.method: run.entry for run in runs if run.entry.sigma == 0.25}
    first, second = entries["catrs"], entries["gaussian"]
    for label, entry in (("First", first), ("Second", second)):
        tab.get_by_label(label, exact=True).select_option(label=f"{entry.name}, σ 0.25")
    expected = metrics.paired_difference(
        *((e.results.idx, e.results.radius, e.results.correct) for e in (first, second))
    )
    tab.wait_for_function(f"document.querySelector('#compare-gap')?.textContent === '{expected.value:+.4f}'")
    interval = tab.locator("#compare-interval").inner_text().replace("−", "-")
    low, high = (float(text) for text in re.findall(r"[+-][\d.]+", interval))
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.1 * (expected.high - expected.low))
    wins = (first.results.radius * first.results.correct > second.results.radius * second.results.correct).mean()
    shown = float(re.search(r"Larger radius: first run on ([\d.]+) %", tab.locator("#compare-verdict").inner_text())[1])
    assert shown == pytest.approx(100 * wins, abs=1.5), "up to the resolution of the grid"
    other = next(run.entry for run in runs if run.entry.name == HOSTILE)
    tab.get_by_label("Second", exact=True).select_option(label=f"{other.name}, σ 0.50")
    tab.get_by_text("of 100 shared images").wait_for()


def test_outcomes_and_tradeoff(tab, table):
    for i, row in enumerate(in_dataset(table)):
        some = row.entry.results
        parts = [some.correct.mean(), (some.predict < 0).mean(), (~some.correct & (some.predict >= 0)).mean()]
        shown = texts(tab, f".outcome:not(.head) >> nth={i} >> .number")
        assert shown == [f"{100 * part:.1f} %" for part in parts]
    tab.locator("#tradeoff-controls input[type=range]").fill("3")
    settle(tab)
    (remark,) = texts(tab, "#tradeoff-remark")
    assert "No image is certified at r = 0.75 with σ 0.25." in remark
    tab.locator("#tradeoff-plot svg").focus()
    row = next(row for row in comparable_rows(table, "mnist-mini") if row.entry.sigma == 0.5)
    tip = tab.locator(".tip").inner_text()
    assert tip.endswith(f"{row.accuracy[0]:.1f} % clean, {row.accuracy[3]:.1f} % at r = 0.75")


def cells(tab):
    return tab.locator("#corruption-plot [data-cell]").evaluate_all("all => all.map(cell => cell.dataset.cell)")


def test_corruptions_have_a_scale_winners_and_differences_to_gaussian(tab):
    assert cells(tab) == ["0.500", "0.250", "0.375", "0.750", "0.750"]
    tab.locator("#corruption-controls select").select_option(index=1)
    settle(tab)
    assert cells(tab) == ["50.0", "75.0", "50.0"]
    assert tab.locator('#corruption-plot [data-cell="75.0"]').get_attribute("stroke") != "none", "the best of its row"
    assert tab.locator('#corruption-plot [data-cell="50.0"]').first.get_attribute("stroke") == "none"
    shown = texts(tab, "#corruption-plot text")
    assert shown[-2:] == ["50.0", "75.0"], "the ends of the scale"
    press(tab, "Difference from Gaussian", "#corruption-controls")
    assert cells(tab) == ["0.0", "+25.0", "0.0"]


def test_training_starts_with_accuracy_by_method_and_cost_is_folded(tab):
    alt = tab.locator("#training-plot svg").get_attribute("aria-label")
    assert alt == "accuracy under noise, % by epoch in 5 training runs, from 90.0 to 93.0."
    titles = texts(tab, "#training-plot text[font-weight='600']")
    assert titles == ["Gaussian", "CAT-RS", HOSTILE]
    tab.get_by_label("Quantity", exact=True).select_option(label="loss")
    settle(tab)
    assert "from 0.500 to 2.00" in tab.locator("#training-plot svg").get_attribute("aria-label")
    assert not tab.locator("#cost").is_visible()
    tab.locator("#cost-section summary").click()
    row = tab.locator("#cost tbody tr").first.inner_text()
    assert "2 min" in row
    assert "42 ms" in row, "12.5 s for 300 images"
    assert "A fine processor" in row


def pixels(tab, selector):
    return tab.locator(selector).evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 0)"
    )


def test_the_gallery_shows_the_images_with_their_votes(tab, runs, mini):
    least = [run.entry for run in runs if (run.entry.dataset, run.entry.sigma) == ("mnist-mini", 0.25)]
    table = build_table(least)
    best = max(table.rows, key=lambda row: row.acr.value).entry
    run = next(run for run in runs if run.entry is best)
    assert tab.locator("#gallery .note").count() == 0, "this dataset's images are there"
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
    assert first.locator(".number").inner_text().replace(",", "") == count, "votes, so that no lost one is rounded away"
    bars = texts(tab, "dialog .votes >> nth=1 >> .number")
    assert any(re.fullmatch(r"as \d, radius \d\.\d{3}", bar) for bar in bars), "a class and a radius are told apart"


def test_missing_images_are_explained_for_the_chosen_dataset(tab):
    press(tab, "MNIST", "#filters")
    note = tab.locator("#gallery .note")
    assert note.inner_text() == "No images of MNIST: mnist is not in the data folder; run smoothcert data get mnist."
    assert note.locator("code").inner_text() == "smoothcert data get mnist"


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
    tab.get_by_label("Run", exact=True).select_option(label=f"{HOSTILE}, σ 0.50")
    settle(tab)
    tab.locator(".card").first.click()
    assert tab.locator("dialog .vote .number").first.inner_text().startswith("≥ "), "a bound, as votes were not saved"


def test_provenance_has_the_hash_of_every_file(tab, runs):
    tab.locator(".provenance > summary").click()
    tab.locator(".provenance details summary").first.click()
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
    assert page.tab.evaluate("document.querySelectorAll('*').length") < 6000, "it opens at once"
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
    page.tab.locator("#table input").first.uncheck()
    page.tab.locator("#compare-gap").wait_for()
    assert page.errors == []
    page.context.close()


def test_a_distant_run_does_not_stretch_the_axes_of_the_tradeoff(browser, tmp_path, mini):
    labels = mini.labels.numpy()[:200]
    for i, skill in enumerate((2.6, 2.7, 2.8, 2.9, 3.0, 0.3)):
        make_run(tmp_path / f"net{i}", labels, method="own", skill=skill)
    runs = read_runs([str(path) for path in sorted(tmp_path.iterdir())])
    path = tmp_path / "report.html"
    path.write_text(render_page(runs, build_table([run.entry for run in runs])))
    page = Opened(browser, path)
    page.load()
    settle(page.tab)
    (remark,) = texts(page.tab, "#tradeoff-remark")
    assert remark.startswith("Beyond the axes, drawn as triangles at the edge: own (net5), σ 0.50 (")
    assert "net4" not in remark
    points = page.tab.locator("#tradeoff-plot [data-run]")
    moves = points.evaluate_all("all => all.map(point => point.getAttribute('transform'))")
    across = sorted(float(move.removeprefix("translate(").split()[0]) for move in moves)
    assert across[0] == 68, "the left edge"
    assert page.tab.locator("#tradeoff-plot path[data-run]").count() == 1, "a triangle"
    assert across[-1] - across[1] > 200, "the others use the width"
    page.context.close()


def test_every_method_has_a_color_on_the_page(browser, tmp_path, mini):
    for method in ("catrs", "first-failure", "own"):
        make_run(tmp_path / method, mini.labels.numpy()[:100], method=method)
    runs = read_runs([str(path) for path in sorted(tmp_path.iterdir())])
    path = tmp_path / "report.html"
    path.write_text(render_page(runs, build_table([run.entry for run in runs])))
    page = Opened(browser, path)
    page.load()
    settle(page.tab)
    curves = page.tab.locator("#curves-plot path[stroke-width='1.8']")
    strokes = curves.evaluate_all("all => all.map(curve => curve.getAttribute('stroke'))")
    assert len(set(strokes)) == 3
    assert LIGHT[METHOD_COLORS["catrs"]] in strokes
    assert set(strokes) <= set(LIGHT)
    page.context.close()


def test_runs_are_not_beyond_the_axes_if_several_are(browser, tmp_path, mini):
    labels = mini.labels.numpy()[:200]
    for i, skill in enumerate((2.8, 2.85, 2.9, 2.95, 3.0, 0.3, 0.4)):
        make_run(tmp_path / f"net{i}", labels, method="own", skill=skill)
    runs = read_runs([str(path) for path in sorted(tmp_path.iterdir())])
    path = tmp_path / "report.html"
    path.write_text(render_page(runs, build_table([run.entry for run in runs])))
    page = Opened(browser, path)
    assert texts(page.tab, "#tradeoff-remark") == [""]
    page.context.close()


def test_chips_show_which_runs_are_on(tab):
    off = tab.locator("#filters .chip.off")
    assert off.count() == 0, "all are shown"
    press(tab, "0.25", "#filters")
    assert texts(tab, "#filters .chip.off") == ["0.50"]
    press(tab, "0.25", "#filters")
    assert off.count() == 0
