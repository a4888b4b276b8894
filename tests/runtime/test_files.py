"""Reading files of any size and content, and replacing files so that a crash leaves the old or the new one."""

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from damage import bomb

from smoothcert.errors import SmoothcertError
from smoothcert.results.image_lists import images_of
from smoothcert.results.sidecar import read_sidecar
from smoothcert.runtime.atomic_files import replacing, write_text
from smoothcert.runtime.bounded_files import SLACK, read_bytes
from smoothcert.runtime.typed_files import Count, check_type, read_json, read_toml


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ({"a": {"b": 0}}, dict[str, dict[str, Count]], r"expected `a.b` to be a whole number >= 1, but got 0"),
        ({"a": True}, dict[str, int], "expected `a` to be a whole number, but got True"),
        ({"a": "x"}, dict[str, float | None], "expected `a` to be a number or null, but got 'x'"),
        ([1, "2"], list[int], "expected `1` to be a whole number, but got '2'"),
        (3, list[int], "expected its content to be a list, but got 3"),
        ({"a": float("nan")}, dict[str, Count], "expected `a` to be a whole number"),
        pytest.param(10**5000, str, "expected its content to be text, but got an int", id="huge"),
    ],
)
def test_a_wrong_value_is_named(value, kind, message):
    with pytest.raises(SmoothcertError, match=message):
        check_type(value, kind, "file.json")


def test_right_values_are_accepted():
    check_type({"a": [1, 2.5], "b": [3]}, dict[str, list[float]], "file.json")
    check_type(list(range(1000)), list[int], "file.json")
    check_type(None, int | None, "file.json")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 40 + "]" * 40, "9" * 5000, "{", "\udcff"])
def test_text_that_is_too_deep_or_no_json(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SmoothcertError, match="cannot be read|at most 32 levels"):
        read_json(tmp_path / "a.json", dict)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "a.toml").open("wb") as file:
        file.truncate(1 << 34)  # a hole, which takes no space
    with pytest.raises(SmoothcertError, match="expected at most 64 MiB, but got 16,384 MiB"):
        read_toml(tmp_path / "a.toml")


def test_a_bomb_takes_little_memory(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(bomb(megabytes=200))
    tracemalloc.start()
    with pytest.raises(SmoothcertError, match="too much for its size"):
        read_bytes(tmp_path / "a.tsv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * SLACK
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(bytes(SLACK)))
    assert len(read_bytes(tmp_path / "b.tsv.gz")) == SLACK, "small files may hold as many equal values"


def test_an_endless_file_ends():
    with pytest.raises(SmoothcertError, match="contains more than"):
        read_bytes(Path("/dev/zero"))


@pytest.mark.parametrize(
    "images", ["0:5:0", "0:5", "x", 3, [None], ["0:99999999999:1", [1]], [-1], "-5:3:1", f"0:{10**30}:1"]
)
def test_images_that_a_sidecar_cannot_name(tmp_path, images):
    (tmp_path / "a.json").write_text(json.dumps({"settings": {"images": images}}))
    with pytest.raises(SmoothcertError, match=r"a.json: expected `settings.images` to"):
        read_sidecar(tmp_path / "a.json")


def test_a_progression_of_images_takes_no_memory():
    assert len(images_of("0:1000000000000000:1")) == 10**15


def test_what_replaces_a_file_is_on_the_disk_first(tmp_path, monkeypatch):
    """The order of events: content, then its name, then the folder."""
    events = []
    sync, replace = os.fsync, os.replace
    name_of = lambda handle: os.readlink(f"/proc/self/fd/{handle}")  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append(name_of(handle)), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    write_text(tmp_path / "a.txt", "new")
    assert events == [str(tmp_path / "a.txt.part"), "replace", str(tmp_path)]


def test_the_file_before_is_kept_under_another_name(tmp_path):
    for text in ("first", "second", "third"):
        with replacing(tmp_path / "a", tmp_path / "b") as part:
            part.write_text(text)
    assert [(tmp_path / name).read_text() for name in "ab"] == ["third", "second"]
