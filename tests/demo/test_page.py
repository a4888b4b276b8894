"""The demo page in Chromium: votes and certificates equal ours, attacks, controls, accessibility."""

import re
import subprocess
import sys

import pytest
from browsing import DESKTOP, PHONE, Opened, serious
from demo_networks_in_torch import as_lenet

import smoothcert
from smoothcert.cli import main

SEED, N, DIGIT = 3, 1000, 956
# With `push`, the slider does not move by itself; with reduced motion, votes are not slowed down for the eyes.
ADDRESS = f"#seed={SEED}&n={N}&digit={DIGIT}&push=0"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    assert main(["demo", "--html", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def opened(browser, file):
    page = Opened(browser, file, address=ADDRESS, reduced_motion="reduce")
    yield page
    assert page.errors == [], "no error in any of the tests"
    assert page.outside() == []


@pytest.fixture
def tab(opened):
    opened.tab.goto("about:blank")
    opened.load()
    return opened.tab


def counts(tab, method):
    labels = tab.locator(f".card[data-network={method}] .bars li").evaluate_all(
        "bars => bars.map((bar) => bar.getAttribute('aria-label'))"
    )
    return [int(re.fullmatch(r"\d: ([\d,]+) votes", label)[1].replace(",", "")) for label in labels]


def radius(tab, method):
    return float(tab.locator(f".card[data-network={method}] .claim b").inner_text())


def push(tab, distance):
    tab.locator("#push").fill(f"{distance:.2f}")
    tab.wait_for_function("() => document.querySelector('#summary').textContent.includes('counting') === false")


def answer(tab, method, key):
    """Return the answer at the slider's place, after the last of its votes."""
    row = tab.locator(f".lane[data-network={method}] .outcome p").nth(0 if key == "look" else 1)
    return row.locator("b").inner_text()


def test_the_page_is_one_small_file(file):
    page = file.read_text()
    assert len(page.encode()) <= 2_000_000
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "@" not in re.sub(r"@media", "", page[: page.index("</style>")])


def test_the_command_needs_no_torch(tmp_path):
    code = f"""
import sys
from smoothcert.cli import main
assert main(["demo", "--html", {str(tmp_path / "demo.html")!r}]) == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("method", ["gaussian", "catrs"])
def test_votes_and_radius_are_those_of_smoothcert(tab, mini, method):
    smoothed = smoothcert.SmoothedClassifier(as_lenet(f"{method}-0.50"), 0.5, 10)
    expected = smoothed.certify(mini.floats([DIGIT])[0], n0=100, n=N, seed=SEED, index=DIGIT)
    found = counts(tab, method)
    assert sum(found) == N
    # Scores that are equal but for rounding may go to another class.
    assert sum(abs(a - b) for a, b in zip(found, expected.counts.tolist(), strict=True)) <= 4
    assert radius(tab, method) == pytest.approx(expected.radius, abs=0.02)
    votes = found[expected.prediction]
    exact = smoothcert.bounds.gaussian_radius(smoothcert.bounds.failure_upper_bound(votes, N, 0.001), 0.5)
    assert exact - 0.01 < radius(tab, method) <= exact, "rounded down"
    assert tab.locator(f".card[data-network={method}] .answer").inner_text() == str(expected.prediction)


@pytest.mark.parametrize("attack", ["Fool one prediction", "Fool the vote", "Toward a", "Random"])
def test_the_vote_holds_inside_the_ball(tab, attack):
    tab.locator("#kind label", has_text=attack).click(position={"x": 5, "y": 5})
    tab.wait_for_selector("html[data-ready]")
    for method in ("gaussian", "catrs"):
        push(tab, 0.8 * radius(tab, method))
        tab.wait_for_function(
            "method => document.querySelectorAll(`.lane[data-network=${method}] .outcome p.same`).length"
            " && document.querySelector(`.lane[data-network=${method}] .outcome p:last-child b`).textContent === '8'",
            arg=method,
        )
        assert re.search("votes? (of .*)?holds?", tab.locator("#summary").inner_text())


def test_one_prediction_is_fooled_inside_the_ball(tab):
    push(tab, 0.9 * radius(tab, "gaussian"))
    assert answer(tab, "gaussian", "look") != "8"
    assert answer(tab, "ordinary", "look") != "8"
    said = tab.locator("#summary").inner_text()
    assert re.search(
        r"One prediction is fooled: (Ordinary network(, | and )Gaussian.* read \d|.*Gaussian reads \d)", said
    )


def test_far_outside_the_vote_turns(tab):
    tab.locator("#kind label", has_text="Fool the vote").click()
    tab.wait_for_selector("html[data-ready]")
    push(tab, 3)
    tab.wait_for_function("() => document.querySelector('.lane[data-network=gaussian] .outcome p:last-child.turned')")


@pytest.mark.slow
def test_more_votes_give_a_larger_radius(tab):
    before = radius(tab, "catrs")
    tab.locator("#n label", has_text="10,000").click()
    tab.wait_for_selector("html[data-ready]")
    assert sum(counts(tab, "catrs")) == 10_000
    assert radius(tab, "catrs") > before


@pytest.mark.slow
def test_a_link_shows_what_its_sender_saw(opened, tab):
    tab.locator("#sigma label", has_text="0.25").click()
    push(tab, 0.4)
    tab.wait_for_selector("html[data-ready]")
    address, before = tab.evaluate("location.hash"), counts(tab, "gaussian")
    assert f"seed={SEED}" in address
    tab.goto("about:blank")
    tab.goto(opened.file.as_uri() + address)
    tab.wait_for_selector("html[data-ready]")
    assert counts(tab, "gaussian") == before
    assert float(tab.locator("#push").input_value()) == 0.4


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_first_screen_leads_to_the_attack(browser, file, viewport):
    page = Opened(browser, file, viewport, address=ADDRESS, reduced_motion="reduce")
    link, slider = page.tab.get_by_role("link", name="Attack it"), page.tab.locator("#push")
    place = link.bounding_box()
    assert place["y"] + place["height"] < viewport["height"] < slider.bounding_box()["y"]
    link.click()
    page.tab.wait_for_function("() => location.hash.includes('seed=')")
    assert 0 < slider.bounding_box()["y"] < viewport["height"]
    page.context.close()


@pytest.mark.slow
def test_the_keyboard_controls_everything(tab):
    tab.locator("#push").focus()
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    assert tab.locator("#push").input_value() == "0.05"
    tab.locator("#digits [aria-checked=true]").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#digits [aria-checked=true]").get_attribute("aria-label") == "A 9"
    tab.locator("#pad").focus()
    tab.keyboard.press(" ")
    for _ in range(9):
        tab.keyboard.press("ArrowDown")
    tab.wait_for_function("() => document.querySelector('#pad').getAttribute('aria-label') === 'Your drawing'")
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator("#digits [aria-checked=true]").count() == 0


@pytest.mark.slow
def test_touch_draws_a_digit(browser, file):
    page = Opened(browser, file, PHONE, address=ADDRESS, reduced_motion="reduce", has_touch=True, is_mobile=True)
    box = page.tab.locator("#pad").bounding_box()
    touch = page.context.new_cdp_session(page.tab)
    x, top, bottom = box["x"] + box["width"] / 2, box["y"] + 0.2 * box["height"], box["y"] + 0.8 * box["height"]
    for kind, y in [("touchStart", top), *[("touchMove", top + (bottom - top) * i / 9) for i in range(10)]]:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.tab.wait_for_function("() => document.querySelector('#pad').getAttribute('aria-label') === 'Your drawing'")
    page.tab.wait_for_selector("html[data-ready]")
    assert page.tab.locator(".card[data-network=catrs] .answer").inner_text() == "1"
    assert page.errors == []
    page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_is_accessible(browser, file, viewport, scheme):
    page = Opened(browser, file, viewport, scheme, address=ADDRESS, reduced_motion="reduce")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"], "no horizontal scrolling"
    push(page.tab, 0.5)
    assert serious(page.tab) == []
    assert page.errors == []
    page.context.close()
