"""Geometry of the page in Chromium: names that do not overlap, nothing beyond its plot, controls for fingers."""

import io
import itertools
import json
import math
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from browsing import PHONE, Opened
from page_runs import make_run

from smoothcert.report.page import render_page
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.table import build_table

METHODS = ("gaussian", "stability", "smoothadv", "macer", "consistency", "smoothmix", "catrs")
PUBLISHED = Path(__file__).parents[2] / "data/published/cifar10"
RESULTS = Path(__file__).parents[3] / "results"
BOXES = """([selector]) => [...document.querySelectorAll(selector)].map((element) => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return { left, right, top, bottom, text: element.textContent };
})"""
CLIPPED = """() => [...document.querySelectorAll("svg.plot")].flatMap((plot) => {
  const frame = plot.getBoundingClientRect();
  const wide = (box) => box.left < frame.left - 1 || box.right > frame.right + 1;
  const outside = (box) => wide(box) || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  return [...plot.querySelectorAll("text")]
    .filter((text) => outside(text.getBoundingClientRect()))
    .map((text) => text.textContent);
})"""
TARGETS = """() => [...document.querySelectorAll("button, select, input, summary, #contents a")]
  .filter((element) => element.offsetParent)
  .map((element) => [element.textContent.trim(), (element.closest("label") ?? element).getBoundingClientRect()])
  .filter(([, box]) => box.width < 24 || box.height < 24)
  .map(([text, box]) => `${text}: ${box.width} x ${box.height}`)"""


@pytest.fixture(scope="module")
def file(tmp_path_factory, mini):
    """Nearly equal runs of all methods at three noise levels, and more settings of one method at the last."""
    root = tmp_path_factory.mktemp("crowd")
    labels = mini.labels.numpy()[:400]
    for i, method in enumerate(METHODS):
        for sigma in (0.25, 0.5, 1.0):
            make_run(root / f"{method}-{sigma}", labels, method=method, sigma=sigma, skill=2.5 + i / 50)
    for weight in (1.0, 15.0, 20.0, 25.0):
        run = {"method": "consistency", "sigma": 1.0, "skill": 2.4 + weight / 100, "options": {"weight": weight}}
        make_run(root / f"consistency-weight{weight}", labels, **run)
    failed = [{"epoch": epoch, "test_accuracy": 20.0 + epoch} for epoch in range(4)]
    (root / "consistency-weight25.0/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in failed))
    return write(root.parent / "crowd.html", read_runs([str(root)]))


def write(path, runs):
    path.write_text(render_page(runs, build_table([run.entry for run in runs])))
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The paper's results on CIFAR-10, with points of different methods close to each other."""
    return write(tmp_path_factory.mktemp("published") / "page.html", read_runs([str(PUBLISHED)]))


@pytest.fixture(params=(1440, 800, 390))
def page(browser, file, request):
    opened = Opened(browser, file, viewport={"width": request.param, "height": 900})
    yield opened.tab
    assert opened.errors == []
    opened.context.close()


def boxes(tab, selector):
    return tab.evaluate(BOXES, [selector])


def overlap(a, b):
    across = min(a["right"], b["right"]) - max(a["left"], b["left"])
    down = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
    return min(across, down)


def gap(a, b):
    across = max(a["left"], b["left"]) - min(a["right"], b["right"])
    down = max(a["top"], b["top"]) - min(a["bottom"], b["bottom"])
    return math.hypot(max(0, across), max(0, down))


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-").removesuffix(" %"))


def boxes_in(axes):
    """Return the numbers at the vertical ("top") and at the horizontal ("left") axis of a plot."""
    return {
        place: axes.locator(f"text[text-anchor={anchor}]:not([transform])").evaluate_all(
            "all => all.filter(text => /^[-+\u2212]?[0-9.]+( %)?$/.test(text.textContent))"
            ".map(text => ({ top: +text.getAttribute('y'), left: +text.getAttribute('x'), text: text.textContent }))"
        )
        for place, anchor in (("top", "end"), ("left", "middle"))
    }


def test_every_point_of_a_crowded_tradeoff_has_a_readable_name(page):
    names, points = boxes(page, "#tradeoff-plot .label"), boxes(page, "#tradeoff-plot [data-run]")
    assert len(points) == 25
    assert len(names) == 25, "no name is left out"
    for one, other in itertools.combinations(names, 2):
        assert overlap(one, other) <= 1, (one["text"], other["text"])
    for name, point in itertools.product(names, points):
        assert overlap(name, point) <= 1, name["text"]


@pytest.mark.parametrize("width", [1440, 800, 390])
def test_a_name_without_a_line_can_only_be_that_of_its_own_point(browser, published, width):
    opened = Opened(browser, published, viewport={"width": width, "height": 900})
    data = json.loads(opened.tab.locator("#data").inner_text())
    names = boxes(opened.tab, "#tradeoff-plot .label")
    points = boxes(opened.tab, "#tradeoff-plot [data-run]")
    ids = opened.tab.locator("#tradeoff-plot [data-run]").evaluate_all("all => all.map(point => +point.dataset.run)")
    lines = boxes(opened.tab, "#tradeoff-plot line[stroke-width='0.8']")
    assert len(names) == len(points) == len(data["runs"]) == 20
    alone = 0
    for point, run in zip(points, ids, strict=True):
        own = min((name for name in names if name["text"] == data["runs"][run]["name"]), key=lambda n: gap(n, point))
        if any(overlap(line, point) > 0 for line in lines):
            continue
        alone += 1
        for other in points:
            beside = min(own["bottom"], other["bottom"]) > max(own["top"], other["top"])
            assert other is point or gap(own, other) > (10 if beside else gap(own, point)), own["text"]
    assert alone > 10
    opened.context.close()


def test_numbers_at_an_axis_are_in_proportion_to_their_places(browser, published, tmp_path):
    """Numbers that are rounded too much would be wrong: 2.5 is not 2."""
    names = [f"fashion-mnist/fashion-mnist-{method}-1.00" for method in ("catrs", "smoothadv")]
    pair = write(tmp_path / "pair.html", read_runs([str(RESULTS / name) for name in names]))
    for path in (published, pair):
        opened = Opened(browser, path)
        for plot in ("ranking", "curves", "compare", "tradeoff"):
            for texts in opened.tab.locator(f"#{plot}-plot svg g[aria-hidden]").all():
                both = boxes_in(texts)
                for places in ("top", "left"):  # numbers of one axis are in a column or a row
                    numbers = [(box[places], number(box["text"])) for box in both[places]]
                    steps = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(sorted(numbers))]
                    assert np.allclose(steps, steps[:1] * len(steps), rtol=0.02), (plot, numbers)
        opened.context.close()


def test_a_run_is_within_the_axes_if_the_others_have_room_beside_it(browser, tmp_path):
    folders = sorted(str(path) for path in (RESULTS / "fashion-mnist").glob("*-0.50"))
    opened = Opened(browser, write(tmp_path / "page.html", read_runs(folders)))
    assert opened.tab.locator("#tradeoff-remark").inner_text() == "", "Gaussian training is 3 points below the others"
    opened.context.close()


def test_names_in_the_table_take_one_line(browser, file):
    opened = Opened(browser, file, viewport={"width": 800, "height": 900})
    names = boxes(opened.tab, "#table tbody th span.short")
    assert len(names) == 25
    assert len({round(name["bottom"] - name["top"]) for name in names}) == 1
    opened.context.close()


def test_the_names_leave_room_for_the_table(browser, published):
    opened = Opened(browser, published, viewport={"width": 800, "height": 900})
    holder, *_ = boxes(opened.tab, "#table")
    heads = boxes(opened.tab, "#table thead th")
    assert [head["text"] for head in heads if head["right"] <= holder["right"]][-1] == "2.00"
    opened.context.close()


def test_the_table_and_the_outcomes_round_alike(browser, published):
    opened = Opened(browser, published)
    tab = opened.tab
    tab.locator("summary", has_text="Outcomes").click()
    table = tab.locator("#table tbody tr[data-run]").evaluate_all("all => all.map(row => row.cells[15].textContent)")
    bars = tab.locator("#outcomes [data-part=abstained]").all_inner_texts()
    assert [f"{text} %" for text in table] == bars
    assert "29.5 %" in bars, "2,955 of 10,000: the nearest double of 29.55 % is below"
    opened.context.close()


def test_nothing_reaches_beyond_its_plot_or_the_screen(page):
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_axis_names_do_not_cover_their_numbers(page):
    turned = boxes(page, "svg.plot text[transform*='rotate(-90)']")
    assert turned
    others = boxes(page, "svg.plot text:not([transform])")
    for name, other in itertools.product(turned, others):
        assert overlap(name, other) <= 0, (name["text"], other["text"])


def test_stacked_facets_have_no_gaps(browser, file):
    opened = Opened(browser, file, viewport=PHONE)
    titles = [box["top"] for box in boxes(opened.tab, "#distribution-plot text") if box["text"].startswith("σ ")]
    last = [box["bottom"] for box in boxes(opened.tab, "#distribution-plot text") if box["text"].startswith("vote")]
    assert len(titles) == len(last) == 3
    assert all(0 < below - above < 70 for above, below in zip(last, titles[1:], strict=False))
    opened.context.close()


def test_the_slider_can_be_dragged(browser, file):
    opened = Opened(browser, file)
    tab = opened.tab
    slider = tab.locator("#tradeoff-controls input[type=range]")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + 20, y)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 60, y)
    tab.wait_for_selector("html:not([data-busy])")
    tab.mouse.move(box["x"] + box["width"] - 2, y, steps=5)
    tab.mouse.up()
    assert slider.input_value() == slider.get_attribute("max")
    assert tab.locator("#tradeoff-controls output").inner_text() == "r = 2.50"
    opened.context.close()


def test_controls_are_large_enough_for_fingers(browser, file):
    opened = Opened(browser, file, viewport=PHONE, has_touch=True, is_mobile=True)
    opened.tab.evaluate("document.querySelectorAll('main > section > details').forEach((one) => (one.open = true))")
    assert opened.tab.evaluate(TARGETS) == []
    opened.context.close()


def test_rules_between_groups_continue_through_the_column_that_stays(browser, file):
    opened = Opened(browser, file, viewport=PHONE)
    opened.tab.locator("#table").evaluate("holder => holder.scrollBy(60, 0)")
    holder, *rows = (boxes(opened.tab, selector)[0] for selector in ("#table", "#table tr.first"))
    clip = {"x": holder["left"], "y": rows[0]["top"] - 1, "width": holder["right"] - holder["left"], "height": 3}
    shot = opened.tab.screenshot(clip=clip, full_page=True)
    image = PIL.Image.open(io.BytesIO(shot)).convert("L")
    lines = [{image.getpixel((x, y)) for x in range(image.width)} for y in range(image.height)]
    assert any(len(line) == 1 and max(line) < 240 for line in lines), lines
    opened.context.close()


def test_a_failed_training_does_not_flatten_the_others(page):
    remark = page.locator("#training-remark").inner_text()
    assert remark == "Beyond the axes, drawn at the edge: Consistency (weight25.0), σ 1.00 (last value 23.0)."
    assert "from 90.0 to 93.0" in page.locator("#training-plot svg").get_attribute("aria-label")


def test_costs_fit_a_phone(browser, file):
    opened = Opened(browser, file, viewport=PHONE)
    opened.tab.locator("#cost-section summary").click()
    cut = opened.tab.locator("#cost").evaluate(
        "cost => [cost, cost.parentElement].map((one) => one.scrollWidth - one.clientWidth)"
    )
    assert max(cut) <= 0
    opened.context.close()


def test_the_papers_numbers_end_with_the_best_sigma_that_a_method_has(browser, tmp_path, mini):
    labels = mini.labels.numpy()[:200]
    for method, sigma in (("gaussian", 1.0), ("smoothmix", 0.5)):
        make_run(tmp_path / method, labels, method=method, sigma=sigma, skill=3.0, dataset="mnist")
    runs = read_runs([str(tmp_path)])
    path = tmp_path / "page.html"
    path.write_text(render_page(runs, build_table([run.entry for run in runs], paper=True)))
    opened = Opened(browser, path, address="#curves=envelope&curvePaper=true")
    rings = boxes(opened.tab, "#curves-plot circle")
    (zero,) = (box for box in boxes(opened.tab, "#curves-plot text") if box["text"] == "0 %")
    assert len(rings) > 8
    assert max(ring["bottom"] for ring in rings) < (zero["top"] + zero["bottom"]) / 2, "no ring on the axis"
    opened.context.close()
