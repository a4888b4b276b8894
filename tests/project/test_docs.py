"""Test the documentation: code blocks run, generated tables and copies are up to date, the site builds."""

import ast
import dataclasses
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
from code_blocks import PAGES, ROOT, Block, blocks, blocks_of, program

import smoothcert
from smoothcert.cli import build_parser
from smoothcert.cli.train import resolve
from smoothcert.training.config import make_config

ALL = [block for page in PAGES for block in blocks(page)]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def parse_shell(block):
    done = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in re.split(r"\|\||&&|[|;]", line.partition(" #")[0].removeprefix("#")):
            words = shlex.split(re.sub(r"\d?>.*", "", command))
            while words and "=" in words[0]:  # an environment variable
                words = words[1:]
            if words[:1] == ["smoothcert"]:
                build_parser().parse_args(words[1:])
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
            elif words[:1] == ["python"] and words[1].endswith(".py"):
                assert (ROOT / words[1]).is_file(), words


PARSERS = {
    "python": lambda block: ast.parse(block.code),
    "sh": parse_shell,
    "toml": lambda block: make_config(tomllib.loads(block.code), block.where),
    "json": lambda block: json.loads(block.code),
    "text": lambda block: None,  # output of a command
}


@pytest.mark.parametrize("block", ALL, ids=[block.where for block in ALL])
def test_every_block_parses(block):
    assert block.language in PARSERS, f"{block.where}: name its language, one of {', '.join(PARSERS)}"
    PARSERS[block.language](block)
    assert block.to_run
    assert block.language in ("python", "sh") or not block.reason + "".join(block.smaller)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_runs(page, tmp_path):
    code = program(blocks(page))
    if "running" not in code:
        return
    for folder in ("examples", "results", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    scripts = os.path.dirname(sys.executable)
    settings = {"PATH": f"{scripts}:{os.environ['PATH']}", "SMOOTHCERT_DATA": str(tmp_path / "no-data")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **settings}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_blocks_are_found_and_run(tmp_path):
    text = """
<!-- not run: a download -->
```sh
exit 1
```
<!-- run smaller: 10 => 1; million => few -->
```python
total = 10
words = "a million"
```

- in a list:

  ```python
  open("seen", "w").write(f"{total} {words}")
  ```
"""
    found = blocks_of(text, "page.md")
    assert [(block.line, block.language, block.reason) for block in found] == [
        (3, "sh", "a download"),
        (7, "python", ""),
        (14, "python", ""),
    ]
    subprocess.run([sys.executable, "-c", program(found)], cwd=tmp_path, check=True)
    assert (tmp_path / "seen").read_text() == "1 a few"
    for broken in ("```python\n1 / 0\n```\n", "```sh\nfalse\ntrue\n```\n", "```sh\nfalse | true\n```\n"):
        done = subprocess.run([sys.executable, "-c", program(blocks_of(broken, "page.md"))], capture_output=True)
        assert done.returncode != 0
    with pytest.raises(AssertionError, match="is missing"):
        _ = Block("page.md", 1, "sh", "ls", smaller={"cat": "ls"}).to_run


@pytest.mark.parametrize("command", ["smoothcert certify runs/x --no-such-flag", "make nothing", "python missing.py"])
def test_commands_that_do_not_exist_are_noticed(command):
    with pytest.raises((AssertionError, SystemExit)):
        parse_shell(Block("page.md", 1, "sh", command))


def load(script):
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / f"{script}.py")))


def test_tables_of_options_are_those_of_the_code():
    tables = load("docs_tables")
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.render(page) == page, "run `python scripts/docs_tables.py`"
    assert {match[2] for match in tables.PART.finditer(page)} == {"run", *smoothcert.list_methods()}


def test_ablations_are_those_of_the_recipes():
    rows = re.findall(r"^\| .* \| `(--[^`]+)` \| `(-[^`]+)` \|$", (ROOT / "docs/methods.md").read_text(), re.MULTILINE)
    assert len(rows) == 7
    full = "cifar10-resnet20-catrs-0.50"
    for flags, ending in rows:
        arguments = ["train", full, *flags.split()]
        (config,) = resolve(build_parser().parse_args(arguments))
        assert dataclasses.replace(config, name=full + ending) == smoothcert.load_recipe(full + ending)


def test_copies_are_exact():
    example = (ROOT / "examples/own_method.py").read_text()
    assert f"```python\n{example}```" in (ROOT / "docs/own-method.md").read_text()


RESULTS_SECTIONS = {  # dataset in the README: part of the heading in RESULTS.md
    "MNIST": "\n## MNIST\n",
    "Fashion-MNIST": "\n## Fashion-MNIST\n",
    "CIFAR-10 (ResNet-20)": "\n## Ablation of the loss: ResNet-20 on CIFAR-10",
    "CIFAR-10 (ResNet-110)": "\n## CIFAR-10\n",
}


def reproduced_rows():
    """Return (dataset, sigma, method): (ACR, paper's ACR) of the sections with rows in the README."""
    page = re.sub(r"\*\*|</?u>", "", (ROOT / "RESULTS.md").read_text())
    pair = r"^\| (\d\.\d\d) \| ([\w-]+)[^|]* \| (\d\.\d{3}) \|.*\n\| +\| paper \| (\d\.\d{3}) \|"
    rows = {}
    for dataset, heading in RESULTS_SECTIONS.items():
        section = page.partition(heading)[2].partition("\n## ")[0]
        for sigma, method, acr, paper in re.findall(pair, section, re.MULTILINE):
            rows[dataset, sigma, method] = acr, paper
    return rows


def test_results_in_the_readme_are_those_of_the_results_page():
    readme, results = (ROOT / "README.md").read_text(), reproduced_rows()
    row = r"^\| ([^|]+) \| (\d\.\d\d) \| ([^|]+) \| (\d\.\d{3}) \| (\d\.\d{3}) \|$"
    rows = {tuple(cells[:3]): tuple(cells[3:]) for cells in re.findall(row, readme, re.MULTILINE)}
    assert "CAT-RS" in {method for _, _, method in rows}
    assert rows.items() <= results.items()
    headline = r"Of (\d+) rows reproduced on clean images, (\d+) have an average certified radius \(ACR\) within 0.01"
    total, close = re.search(headline, (ROOT / "RESULTS.md").read_text()).groups()
    assert f"Of these {total} rows, {close} have an ACR within 0.01" in readme


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_public_name_is_in_the_reference():
    pages = [page.read_text() for page in (ROOT / "docs").glob("api*.md")]
    found = re.findall(r"^::: smoothcert\.(\w+)$", "\n".join(pages), re.MULTILINE)
    assert set(found) >= set(smoothcert.__all__)
    assert len(found) == len(set(found)), "each name on one page"
    overview = (ROOT / "docs/api.md").read_text()
    assert all(f"`{name}`" in overview or f"::: smoothcert.{name}\n" in overview for name in found)


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert set(listed) >= {page.name for page in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("MkDocs is not installed; `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert pages.keys() >= {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    assert pages["methods.html"].count("<math") > 30
    assert 'src="images/idea-votes-dark.svg#only-dark"' in pages["idea.html"]
    assert 'id="smoothcert.bounds.lower_bound"' in pages["api-statistics.html"]
    assert {"attack-this-digit.html", "live-report.html", "command-line.html"} <= pages.keys()
    reference = pages["command-line.html"]
    assert all(f"smoothcert {name}" in reference for name in ("certify", "train", "data get", "demo"))
    assert "--attack-radius" in reference, "options of the training methods"
    for name, text in pages.items():
        assert "arithmatex" not in text, name
        assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', text), name


@pytest.mark.slow
@pytest.mark.parametrize("equation", [r"\nosuch{1}", r"\frac{1"])
def test_equations_that_cannot_be_set_stop_the_build(site, equation):
    hooks = load("docs_hooks")
    with pytest.raises(Exception, match="Cannot render"):
        hooks.on_page_content(f'<p><span class="arithmatex">\\({equation}\\)</span></p>', None, None)


@pytest.mark.slow
def test_the_search_works_from_disk(site):
    browser = shutil.which(os.environ.get("SMOOTHCERT_BROWSER", "chromium"))
    if browser is None:
        pytest.skip("Chromium is not installed; SMOOTHCERT_BROWSER names another browser of its kind")
    options = ["--headless", "--no-sandbox", "--virtual-time-budget=8000", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, f"{(site / 'index.html').as_uri()}?q=Clopper"], capture_output=True, text=True
    )
    found = re.findall(r'href="[^"]+/([\w-]+\.html)[^"]*" class="md-search-result__link"', done.stdout)
    assert {"idea.html", "api-statistics.html"} <= set(found)


@pytest.mark.slow
def test_pictures_can_be_drawn_again(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/docs_pictures.py", tmp_path], check=True)
    kept = {path.name for path in (ROOT / "docs/images").glob("idea-*.svg")}
    assert {path.name for path in tmp_path.iterdir()} == kept
    page = (ROOT / "docs/idea.md").read_text()
    assert all(f"images/{name}" in page for name in kept if "-dark" not in name)


@pytest.mark.slow
def test_the_figure_of_the_results_is_up_to_date(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/docs_results.py", tmp_path], check=True)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ROOT / "docs/images" / path.name).read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    total = re.search(r"Of (\d+) rows reproduced on clean images", (ROOT / "RESULTS.md").read_text())[1]
    assert f"<!-- {total} runs" in (tmp_path / "results-paper.svg").read_text()
