"""Damage to the content of files, as hypothesis strategies: random bytes, hostile values, bombs."""

import gzip
import io
import json
import pickle
import re
import zipfile
import zlib
from pathlib import Path

from hypothesis import strategies as st

DEEP = 5000
HOSTILE_VALUES = [
    *(None, True, False, -1, 0, 1, 2, 0.5, -0.5, 10**6, 2_000_000, 10**9, 2**31, 2**53, 2**63, 2**64, 10**30, 10**400),
    *(1e-320, 1e308, float("inf"), float("nan"), "", "x", "0", "-1", "1e9", "0:1000000000000:1", "0:5:0", "9" * 5000),
    *("a" * 100_000, "\x1b[31mred\x07", "[bold]x[/bold]", "../../evil", "a\0b", "\u202egnirts", "| x | <b>", "\ud800"),
    *([], {}, [[]], [0], [-1, 10**30], [None], ["a"], {"a": 1}, {"sha256": 3}, [{"seconds": "x"}], [[1, [2, [3]]]]),
]
HOSTILE_BYTES = [
    *(b"", b"\0", b"\xff" * 40, b"\n", b"\t\t\t\n", b"{", b"[" * DEEP, b'{"a":' * DEEP, b"\x1f\x8b", b"PK\x03\x04"),
    *(b"PK\x05\x06" + bytes(18), b"\x80\x02.", b"\x93NUMPY\x01\x00", b"\x89PNG\r\n\x1a\n", b"\xff\xfe\x00", b"NaN"),
    pickle.dumps(print),
    b"cos\nsystem\n(S'touch executed'\ntR.",
    b"\x80\x02N" + b"r\xff\xff\xff\x7f" + b".",
    b"\x80\x04]r\xff\xff\xff\x0f.",
]
NUMBERS = ["0", "-1", "1e9", "10000000000", "9" * 40, "9" * 5000, "nan", "inf", "1e400", "0.5", "x", "", "1e-400"]


@st.composite
def damaged(draw, name, content):
    """Return damaged content of a file; its name tells the format."""
    structured = FORMATS.get("".join(Path(name).suffixes[-1:]))
    if structured and draw(st.integers(0, 2)):
        return draw(structured(name, content))
    return draw(spoiled_bytes(content))


@st.composite
def spoiled_bytes(draw, content):
    """Return bytes that are cut, changed, repeated, or of something else."""
    kind = draw(st.sampled_from(("cut", "flip", "junk", "number", "delete", "repeat", "replace")))
    size = len(content)
    at = draw(st.integers(0, max(0, size - 1)))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        spoiled = bytearray(content)
        for place in draw(st.lists(st.integers(0, max(0, size - 1)), min_size=1, max_size=4)) if size else ():
            spoiled[place] ^= draw(st.integers(1, 255))
        return bytes(spoiled)
    if kind == "junk":
        return content[:at] + draw(st.sampled_from(HOSTILE_BYTES)) + content[at:]
    if kind == "number":
        places = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", content[:20_000])]
        if not places:
            return content[:at]
        start, end = draw(st.sampled_from(places))
        return content[:start] + draw(st.sampled_from(NUMBERS)).encode() + content[end:]
    length = draw(st.integers(1, 200))
    if kind == "delete":
        return content[:at] + content[at + length :]
    if kind == "repeat":
        return content[: at + length] + content[at : at + length] * draw(st.integers(1, 50)) + content[at + length :]
    return draw(st.sampled_from(HOSTILE_BYTES))


@st.composite
def spoiled_json(draw, name, content):
    """Replace, add or remove one value of a JSON document, or of a line of one."""
    lines = content.decode().splitlines() if name.endswith(".jsonl") else [content.decode()]
    line = draw(st.integers(0, len(lines) - 1))
    lines[line] = json.dumps(draw(spoiled_tree(json.loads(lines[line]))))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


@st.composite
def spoiled_tree(draw, tree):
    """Return a copy of nested lists and dicts with a hostile value somewhere."""
    value = draw(st.sampled_from(HOSTILE_VALUES))
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 9)) == 0:
        return value
    keys = list(tree) if isinstance(tree, dict) else list(range(min(len(tree), 50)))
    key = draw(st.sampled_from(keys))
    copy = tree.copy()
    if isinstance(tree[key], dict | list) and draw(st.booleans()):
        copy[key] = draw(spoiled_tree(tree[key]))
    elif isinstance(tree, dict) and draw(st.integers(0, 4)) == 0:
        del copy[key]
    else:
        copy[key] = value
    return copy


@st.composite
def spoiled_toml(draw, name, content):
    """Replace the value of a line by something else."""
    lines = content.decode().splitlines()
    numbers = [i for i, line in enumerate(lines) if " = " in line]
    number = draw(st.sampled_from(numbers))
    key = lines[number].split(" = ")[0]
    value = draw(st.sampled_from(HOSTILE_VALUES))
    texts = [json.dumps(value), "[" * DEEP, "{a = 1}", "1979-05-27", "nan", '"""\n"""', "0x" + "f" * 900]
    lines[number] = f"{draw(st.sampled_from([key, key, key, 'options', 'x' * 300]))} = {draw(st.sampled_from(texts))}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@st.composite
def spoiled_safetensors(draw, name, content):
    """Change the header of a safetensors file: names, types, shapes, offsets and metadata."""
    size = int.from_bytes(content[:8], "little")
    header = draw(spoiled_tree(json.loads(content[8 : 8 + size])))
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    length = len(text) if draw(st.integers(0, 3)) else draw(st.sampled_from([0, 7, 10**6, 2**40, 2**63]))
    return length.to_bytes(8, "little") + text + content[8 + size :]


@st.composite
def spoiled_gzip(draw, name, content):
    """Damage the content of a gzipped file, or blow it up."""
    inner = gzip.decompress(content)
    if draw(st.integers(0, 7)) == 0:
        return bomb(inner)
    return gzip.compress(draw(spoiled_bytes(inner)), 1)


def bomb(start=b"", megabytes=80):
    """Return a gzip file with `start` and many zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return packer.compress(start) + b"".join(packer.compress(zeros) for _ in range(megabytes)) + packer.flush()


@st.composite
def spoiled_zip(draw, name, content):
    """Damage a member of a zip archive: its bytes, the header of its array, its size, its name or its kind."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    chosen = draw(st.sampled_from(sorted(members)))
    kind = draw(st.sampled_from(("bytes", "header", "number", "bomb", "name", "link")))
    inner, attributes, new_name = members[chosen], 0, chosen
    if kind == "bytes":
        inner = draw(spoiled_bytes(inner))
    elif kind == "header" and inner.startswith(b"\x93NUMPY"):
        inner = draw(spoiled_npy("", inner))
    elif kind == "number":
        inner = inner[:10] + draw(spoiled_bytes(inner[10:]))
    elif kind == "bomb":
        inner += bytes(60 << 20)
    elif kind == "name":
        new_name = draw(st.sampled_from(("../evil.npy", "/evil", "a\x1b[31m", "x" * 300)))
    else:
        attributes = 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            entry = zipfile.ZipInfo(new_name if member == chosen else member)
            entry.external_attr = attributes if member == chosen else 0
            entry.compress_type = zipfile.ZIP_DEFLATED if kind == "bomb" else zipfile.ZIP_STORED
            archive.writestr(entry, inner if member == chosen else data)
    return out.getvalue()


@st.composite
def spoiled_tar(draw, name, content):
    """Change the kind, size or name of a member of a tar archive; PyTorch's `.pth.tar` are zip archives."""
    if content.startswith(b"PK"):
        return draw(spoiled_zip(name, content))
    header = bytearray(content[:512])
    kind = draw(st.sampled_from(("type", "size", "name")))
    if kind == "type":
        header[156:157] = draw(st.sampled_from((b"1", b"2", b"3", b"5", b"6", b"x", b"g", b"L", b"K", b"S", b"?")))
        header[157:165] = b"../evil\0"
    elif kind == "size":
        header[124:136] = draw(st.sampled_from((b"77777777777\0", b"00000000000\0", b"\x80" + b"\xff" * 11, b"x" * 12)))
    else:
        header[:12] = draw(st.sampled_from((b"../evil.npy\0", b"/evil.npy\0\0\0", b"\x1b[31m.npy\0\0\0", b"\0" * 12)))
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + content[512:]


@st.composite
def spoiled_npy(draw, name, content):
    """Change type, order or shape in the header of an .npy file."""
    size = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + size].decode("latin-1")
    shapes = [
        "(1000000000000,)",
        "(4, 1000000, 1000000)",
        "(-1,)",
        "(0,)",
        "()",
        "(4, 28)",
        "(10**9,)",
        "'x'",
        "(" * 99,
    ]
    types = ["'|O'", "'<f8'", "'|S1000000000'", "'<U9'", "'|V0'", "'<i8'", "'>u8'", "[('a', '<f8')]", "3", "'M8[ns]'"]
    if draw(st.booleans()):
        header = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {draw(st.sampled_from(shapes))}", header)
    else:
        header = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {draw(st.sampled_from(types))}", header)
    text = header.encode("latin-1")
    return content[:8] + len(text).to_bytes(2, "little") + text + content[10 + size :]


FORMATS = {
    ".json": spoiled_json,
    ".jsonl": spoiled_json,
    ".toml": spoiled_toml,
    ".safetensors": spoiled_safetensors,
    ".gz": spoiled_gzip,
    ".npz": spoiled_zip,
    ".zip": spoiled_zip,
    ".tar": spoiled_tar,
    ".npy": spoiled_npy,
}
