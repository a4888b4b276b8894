"""What MkDocs does beside its own work: pages from outside docs/, equations as MathML, pictures for a dark page."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
# Pages that are kept where people look for them in a checkout, and their names on the site.
OUTSIDE = {"RESULTS.md": "results.md", "CHANGELOG.md": "changelog.md", "benchmarks/README.md": "benchmarks.md"}


def on_files(files, config):
    """Add the pages from outside docs/."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, **_):
    """Lead links that are right in a checkout to the same pages of the site."""
    for path, name in OUTSIDE.items():
        markdown = markdown.replace(f"](../{path}", f"]({name}")
    return markdown


def on_page_content(content, page, config, **_):
    """Set equations, and give a picture its dark twin where there is one."""
    content = re.sub(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', _equation, content, flags=re.DOTALL)

    def twins(match):
        path = Path(config.docs_dir, page.file.src_uri).parent / match["path"]
        if not path.with_name(f"{path.stem}-dark.svg").is_file():
            return match[0]
        dark = match[0].replace(match["path"], match["path"].removesuffix(".svg") + "-dark.svg#only-dark")
        return match[0].replace(match["path"], match["path"] + "#only-light") + dark

    return re.sub(r'<img [^>]*?src="(?P<path>[^":#]+\.svg)"[^>]*>', twins, content)


def _equation(match):
    """Return MathML, which browsers set without any script; a display may scroll where the page is narrow."""
    text, display = html.unescape(match[3]).strip(), match[2] == "["
    found = convert(text, display="block" if display else "inline")
    if "\\" in found or text.count("{") != text.count("}"):
        raise PluginError(f"This equation cannot be set: {text}")
    found = found.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation, with space around it
    return f'<div class="equation" tabindex="0">{found}</div>' if display else found
