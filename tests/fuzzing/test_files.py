"""Damaged files of every kind: one sentence each, no traceback, little memory, nothing executed or overwritten."""

import contextlib
import io
import shutil

import pytest
from damage import damaged
from honest_files import make_kinds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from watching import watched

from smoothcert.errors import SmoothcertError

KINDS = (
    *("fixed", "table", "gzipped", "run", "state", "recipe", "soft labels"),
    *("model.safetensors", "old.pth.tar", "legacy.pth"),
    *("set.npz", "packed.npz", "idx", "idx.gz", "cifar", "cifar.bin", "cifar.tar.gz", "corrupted", "zip", "tar"),
    *("png", "jpg", "bmp", "tiff", "webp", "ppm"),
)
FEW, MANY = 12, 380
EXAMPLES = dict.fromkeys(("png", "jpg", "bmp", "tiff", "webp", "ppm", "cifar.bin", "idx"), 100)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    made = make_kinds(tmp_path_factory.mktemp("honest"))
    assert set(made) == set(KINDS)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def lay_out(files, folder):
    """Write files into an emptied folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def check(call, folder, size):
    """Make a call; raise AssertionError unless it succeeds or fails with one sentence."""
    out, err = io.StringIO(), io.StringIO()
    message = ""
    with watched(folder.parent, size), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = call(folder)
        except SmoothcertError as error:
            code, message = 1, str(error)
    if message:
        assert "\n" not in message.strip(), message
        assert len(message) < 1500, message[:300]
    said = err.getvalue() + message
    assert "Traceback" not in said
    assert not any(advice in said for advice in ("allow_pickle", "weights_only", "max_header_size"))
    if isinstance(code, int) and code and not message:
        assert [line for line in said.splitlines() if line.startswith("smoothcert")], said
    for text in (err.getvalue(), out.getvalue()):  # errors of functions are escaped by the command line
        assert all(letter.isprintable() or letter == "\n" for letter in text), ascii(text)
    return code


@pytest.mark.parametrize("name", KINDS)
def test_honest_files_are_read(name, kinds, folder):
    kind = kinds[name]
    for call in kind.calls:
        lay_out(kind.files, folder / "case")
        code = check(call, folder / "case", kind.size)
        assert not (isinstance(code, int) and code)


def fuzz(kind, folder, examples):
    options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=examples, phases=(Phase.generate, Phase.shrink), print_blob=False, **options)
    @given(st.data())
    def run(data):
        target = data.draw(st.sampled_from(kind.targets), label="file")
        content = data.draw(damaged(target, kind.files[target]), label="content")
        call = data.draw(st.sampled_from(kind.calls), label="call")
        lay_out({**kind.files, target: content}, folder / "case")
        check(call, folder / "case", kind.size)

    run()


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_give_one_sentence(name, kinds, folder):
    fuzz(kinds[name], folder, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_damaged_files_give_one_sentence(name, kinds, folder):
    fuzz(kinds[name], folder, EXAMPLES.get(name, MANY))
