"""Geometry of the page in Chromium: names that do not overlap, nothing beyond its plot, controls for fingers."""

import io
import itertools
import json

import PIL.Image
import pytest
from browsing import PHONE, Opened
from page_runs import make_run

from smoothcert.report.page import render_page
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.table import build_table

METHODS = ("gaussian", "stability", "smoothadv", "macer", "consistency", "smoothmix", "catrs")
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
    runs = read_runs([str(root)])
    path = root.parent / "crowd.html"
    path.write_text(render_page(runs, build_table([run.entry for run in runs])))
    return path


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


def test_every_point_of_a_crowded_tradeoff_has_a_readable_name(page):
    names, points = boxes(page, "#tradeoff-plot .label"), boxes(page, "#tradeoff-plot [data-run]")
    assert len(points) == 25
    assert len(names) == 25, "no name is left out"
    for one, other in itertools.combinations(names, 2):
        assert overlap(one, other) <= 1, (one["text"], other["text"])
    for name, point in itertools.product(names, points):
        assert overlap(name, point) <= 1, name["text"]


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
