"""The copies of published data in tests/data are complete, unchanged, and say where they come from."""

import gzip
from pathlib import Path

KEPT = Path(__file__).parents[1] / "data/published"


def test_copies_equal_the_published_files(shared):
    """Compares with `$SMOOTHCERT_TEST_DATA`; if it is not set, with the files as other tests read them."""
    copies = {}
    for path in sorted(KEPT.glob("*/*")):
        packed = path.suffix == ".gz"
        if packed or path.suffix in (".npz", ".json"):
            name = path.relative_to(KEPT).as_posix().removesuffix(".gz")
            copies[name] = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    assert len(copies) == 20 + 2 * 12 + 2 * 3
    for name, content in copies.items():
        assert (shared / "published" / name).read_bytes() == content, name


def test_each_folder_names_its_source_and_license():
    for folder in KEPT.iterdir():
        if folder.is_dir():
            assert (folder / "README.md").is_file(), folder.name
    assert "Copyright (c) 2020 Jongheon Jeong" in (KEPT / "cifar10/LICENSE").read_text()
    assert all("MIT" in (KEPT / name / "README.md").read_text() for name in ("steps", "cifar10"))
