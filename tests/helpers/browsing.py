"""Pages in Chromium: a browser for a module's tests, and a tab that records errors and requests."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def launched_browser():
    found = os.environ.get("SMOOTHCERT_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        pytest.skip("no Chromium to open the page with: install Debian's package chromium, or set SMOOTHCERT_BROWSER")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A tab with the page, and its errors and requests."""

    def __init__(self, browser, file, viewport=DESKTOP, scheme="light", address="", **options):
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, **options)
        self.tab, self.errors, self.requests = self.context.new_page(), [], []
        self.tab.set_default_timeout(120_000)
        self.tab.on("console", lambda message: self.errors.append(message.text) if message.type != "log" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.errors.append("dialog"), dialog.dismiss()))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.file, self.address = file, address
        self.load()

    def load(self):
        self.tab.goto("about:blank")  # a change of the fragment alone would not load the page again
        self.tab.goto(self.file.as_uri() + self.address)
        self.tab.wait_for_selector("html[data-ready]:not([data-busy])")

    def outside(self):
        """Return the addresses of requests to anything but the page itself."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


def serious(tab, where="body"):
    """Return the serious violations that axe-core finds below a selector."""
    tab.evaluate(AXE.read_text() + "; 0")
    found = tab.evaluate(
        "where => axe.run(where, {resultTypes: ['violations']})"
        ".then(done => done.violations.map(fault => [fault.impact, fault.id, fault.nodes[0].html.slice(0, 200)]))",
        where,
    )
    return [fault for fault in found if fault[0] in ("serious", "critical")]
