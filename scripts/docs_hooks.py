"""MkDocs hooks: add generated and live pages, render equations as MathML, and use dark variants of figures."""

import html
import posixpath
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from smoothcert.demo import render_demo
from smoothcert.report.page import render_page
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.table import build_table

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "scripts"))  # MkDocs loads this file by its path

from docs_commands import command_reference  # noqa: E402

# Files outside docs/ and the names of their pages.
OUTSIDE = {
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
_SOURCE_OF = {name: path for path, name in OUTSIDE.items()}
_IMAGE = re.compile(r"(?<=\]\()docs/(?=images/)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:]+)(?P<anchor>#[^)]*)?\)")


def on_files(files, config):
    """Add the pages from outside docs/, and the live pages that docs/ embeds."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    live = {
        "attack-this-digit.html": render_demo(),
        "live-report.html": _live_report(),
        "command-line.md": command_reference(),
    }
    for name, content in live.items():
        files.append(File.generated(config, name, content=content))
    return files


def _live_report():
    """Return the report page of the MNIST results, without images, which are not part of the repository."""
    runs = read_runs([str(ROOT / "results/mnist")])
    return render_page(runs, build_table([run.entry for run in runs], paper=True), title="MNIST, all methods")


def on_page_markdown(markdown, page, **_):
    """Make links between files of the repository work on the site.

    A link to a file that has no page, such as a source file, becomes plain text.
    """
    source = _SOURCE_OF.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def site_link(match):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        if path.startswith("docs/"):
            name = path.removeprefix("docs/")
        elif path in OUTSIDE:
            name = OUTSIDE[path]
        else:
            return match["text"] if (ROOT / path).exists() else match[0]
        return f"[{match['text']}]({name}{match['anchor'] or ''})"

    if source in OUTSIDE:
        markdown = _IMAGE.sub("", markdown)
    return _LINK.sub(site_link, markdown)


def on_page_content(content, page, config, **_):
    """Render equations, and add the dark variant of each figure that has one."""
    content = re.sub(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', _equation, content, flags=re.DOTALL)

    def with_dark_variant(match):
        path = Path(config.docs_dir, page.file.src_uri).parent / match["path"]
        if not path.with_name(f"{path.stem}-dark.svg").is_file():
            return match[0]
        dark = match[0].replace(match["path"], match["path"].removesuffix(".svg") + "-dark.svg#only-dark")
        return match[0].replace(match["path"], match["path"] + "#only-light") + dark

    return re.sub(r'<img [^>]*?src="(?P<path>[^":#]+\.svg)"[^>]*>', with_dark_variant, content)


def _equation(match):
    """Return an equation as MathML, which browsers render without JavaScript."""
    latex, display = html.unescape(match[3]).strip(), match[2] == "["
    mathml = convert(latex, display="block" if display else "inline")
    if "\\" in mathml or latex.count("{") != latex.count("}"):
        raise PluginError(f"Cannot render this equation: {latex}")
    mathml = mathml.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # an operator, with space around it
    return f'<div class="equation" tabindex="0">{mathml}</div>' if display else mathml
