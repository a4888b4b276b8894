"""Take the README's picture of the report page, with Chromium through Playwright.

python scripts/report_picture.py RUNS... [--sigma 0.50] [--out docs/images/report.png]

The picture in the README shows the per-image CIFAR-10 results that the paper's authors have published.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from smoothcert.cli import main as smoothcert


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--sigma", help="select this noise level first, such as 0.50")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--out", type=Path, default=Path("docs/images/report.png"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        if smoothcert(["report", *args.runs, "--html", str(page)]) == 0:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            take_picture(page, args.out, args.sigma, args.scheme)


def take_picture(page, out, sigma, scheme):
    """Save a screenshot of the page from its top to the end of the curves."""
    found = os.environ.get("SMOOTHCERT_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1240, "height": 1600}, color_scheme=scheme)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]:not([data-busy])")
        if sigma:
            tab.locator("#filters").get_by_role("button", name=sigma, exact=True).click()
        tab.wait_for_selector("html:not([data-busy])")
        end = tab.locator("#curves-plot").bounding_box()
        height = end["y"] + end["height"] + 20
        tab.screenshot(path=out, clip={"x": 0, "y": 0, "width": 1240, "height": height})
        browser.close()
    print(f"Wrote {out} ({out.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main()
