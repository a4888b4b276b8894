"""Test the distribution: files and metadata of the wheel, the README on PyPI, and citations."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from check_wheel import NEEDED, different_files, file_problems, read_wheel, tracked_files
from code_blocks import ROOT
from pypi_readme import absolute_links

import smoothcert

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def write_wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def package_files():
    """Return the package's files on disk, so that the tests also pass before a new file is added to Git."""
    files = (path for path in (ROOT / "src/smoothcert").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if path.parent.name != "__pycache__"}


def test_the_wheel_has_the_files_of_the_package(wheel):
    assert file_problems(wheel, package_files()) == []


def test_tracked_files_are_those_of_the_package(tmp_path):
    for name in ("src/smoothcert/a é.py", "src/smoothcert/data/b.npz", "src/smoothcert/new.py", "tests/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for command in (["init", "--quiet"], ["add", "."], ["rm", "--quiet", "--cached", "src/smoothcert/new.py"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert tracked_files(tmp_path) == {"smoothcert/a é.py", "smoothcert/data/b.npz"}


def test_problems_of_a_wheel_are_found(wheel, tmp_path):
    files, expected = read_wheel(wheel), package_files()
    cache, data = "smoothcert/__pycache__/a.pyc", "smoothcert/data/mnist-mini.npz"
    license = "dist-info/licenses/LICENSE"
    added = write_wheel(tmp_path / "added.whl", {**files, cache: b"", "tests/test_a.py": b""})
    assert file_problems(added, expected) == [f"not tracked by Git: {cache}", "not tracked by Git: tests/test_a.py"]
    fewer = {name: content for name, content in files.items() if name != data and not name.endswith(license)}
    problems = file_problems(write_wheel(tmp_path / "fewer.whl", fewer), expected)
    assert problems[0] == f"missing: {data}"
    assert len(problems) == 3
    assert all(pattern in "".join(problems[1:]) for pattern in NEEDED if pattern.endswith((data, license)))
    assert file_problems(wheel, expected, most_bytes=1000)[0].endswith("bytes; expected fewer than 1,000")
    assert different_files(wheel, wheel) == []
    changed = write_wheel(tmp_path / "changed.whl", {**fewer, "smoothcert/py.typed": b"changed"})
    assert {data, "smoothcert/py.typed"} < set(different_files(wheel, changed))


def test_the_metadata_has_urls_and_a_readme_without_relative_links(wheel):
    (metadata,) = (content for name, content in read_wheel(wheel).items() if name.endswith(".dist-info/METADATA"))
    message = email.message_from_bytes(metadata)
    urls = dict(line.split(", ") for line in message.get_all("Project-URL"))
    assert urls == PROJECT["urls"]
    assert urls.keys() >= {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert message["Description-Content-Type"] == "text/markdown"
    readme = message.get_payload(decode=True).decode()
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(links) > 20
    for link in links:
        assert link.startswith("https://")
        if link.startswith(urls["Source"]):
            view, version, path = link.removeprefix(urls["Source"] + "/").split("/", 2)
            assert view == ("raw" if Path(path).suffix in (".png", ".svg") else "blob")
            assert version == f"v{smoothcert.__version__}"
            assert (ROOT / path).is_file()


def test_links_become_absolute():
    kept = "[top](#top) [site](https://x.org/docs) [mail](mailto:me@x.org)"
    text = f"![A curve.](docs/a.svg) [FAQ](docs/faq.md#gpu) {kept}"
    picture, page = "https://y.org/z/raw/v1.0/docs/a.svg", "https://y.org/z/blob/v1.0/docs/faq.md#gpu"
    assert absolute_links(text, "https://y.org/z", "1.0") == f"![A curve.]({picture}) [FAQ]({page}) {kept}"


def bibtex_entries():
    """Return the entries of the page on citing, as dicts of their fields."""
    page = (ROOT / "docs/cite.md").read_text()
    entries = re.findall(r"^@\w+\{\w+,\n(.*?)^\}$", page, re.MULTILINE | re.DOTALL)
    return [dict(re.findall(r"^ +(\w+) += \{(.*)\},?$", entry, re.MULTILINE)) for entry in entries]


def test_citation_file_and_bibtex_agree_with_each_other_and_with_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    software, *papers = bibtex_entries()
    assert citation["version"] == software["version"] == smoothcert.__version__
    assert citation["title"] == software["title"]
    assert software["author"] == "{" + citation["authors"][0]["name"] + "}"
    assert citation["title"].startswith(f"{PROJECT['name']}: ")
    assert str(citation.get("date-released", software["year"]))[:4] == software["year"]
    assert set(citation["keywords"]) <= set(PROJECT["keywords"])
    cited = [
        {
            "title": paper["title"],
            "author": " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]),
            "booktitle": paper["collection-title"],
            "year": str(paper["year"]),
        }
        for paper in citation["references"]
    ]
    assert sorted(papers, key=str) == sorted(cited, key=str)
