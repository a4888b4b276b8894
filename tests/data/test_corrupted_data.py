"""Corrupted datasets: supported layouts, making them, downloading them, and damaged files."""

import functools
import http.server
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from launching import HANGS

import smoothcert
from smoothcert.cli import main
from smoothcert.data import find_corrupted
from smoothcert.data.corruptions import corrupt, make_corrupted
from smoothcert.data.download import DownloadSource, KnownFile, fetch_dataset
from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.runtime.atomic_files import file_hash

RNG = np.random.default_rng(5)


@pytest.fixture
def cifar_c(tmp_path):
    """Three images at five severities, as published."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", RNG.integers(0, 256, (15, 32, 32, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", np.tile(np.array([3, 1, 4], dtype=np.uint8), 5))
    return folder


def test_the_published_layouts(tmp_path, cifar_c):
    data = smoothcert.load_dataset("cifar10-c/fog", "test", tmp_path)
    assert (data.name, data.severities, data.classes[3]) == ("cifar10-c/fog", 5, "cat")
    stored = np.load(cifar_c / "fog.npy")
    assert np.array_equal(data.images[[0, 7]].numpy(), stored[[0, 7]].transpose(0, 3, 1, 2))
    assert data.floats([2]).shape == (1, 3, 32, 32)
    assert data.subset([0, 7]).severities == 1, "rows in any order are no severities"
    found = find_corrupted("CIFAR-10-C", tmp_path)
    assert found.available == ["fog"]
    assert len(found.missing) == 14

    folder = tmp_path / "mnist_c" / "zigzag"
    folder.mkdir(parents=True)
    images = RNG.integers(0, 256, (10, 28, 28, 1), dtype=np.uint8)
    np.save(folder / "test_images.npy", images)
    np.save(folder / "test_labels.npy", np.arange(10))
    np.savez(tmp_path / "mnist_c" / "fog.npz", images=images[..., 0], labels=np.arange(10))
    for name in ("mnist-c/zigzag", "mnist-c/fog"):
        data = smoothcert.load_dataset(name, "test", tmp_path)
        assert (len(data), data.severities) == (10, 1)
        assert np.array_equal(data.images[[9]].numpy()[0, 0], images[9, ..., 0])
    assert smoothcert.load_dataset(str(tmp_path / "mnist_c/zigzag"), "test").labels.tolist() == list(range(10))


def test_only_the_rows_asked_for_are_read(tmp_path):
    """A sparse file of 2.5 GB loads as fast as a small one."""
    folder = tmp_path / "cifar10-c"
    folder.mkdir()
    large = np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(800_000, 32, 32, 3))
    large[799_999] = 7
    large.flush()
    np.save(folder / "labels.npy", np.zeros(800_000, dtype=np.uint8))
    data = smoothcert.load_dataset("cifar10-c/fog", "test", tmp_path)
    assert int(data.images[[799_999]].min()) == 7
    assert len(data.fingerprint) == 64


def test_archives_are_in_memory_one_at_a_time(tmp_path):
    """Archives and arrays have the same fingerprint, so that results of one can be resumed with the other."""
    names, labels = CORRUPTIONS["mnist-c"][:4], np.zeros(2000, dtype=np.uint8)
    for kind in ("npz", "npy"):
        (tmp_path / kind / "mnist-c").mkdir(parents=True)
    np.save(tmp_path / "npy" / "mnist-c" / "labels.npy", labels)
    for number, name in enumerate(names):
        images = np.full((2000, 28, 28, 1), number, dtype=np.uint8)
        np.savez_compressed(tmp_path / "npz" / "mnist-c" / f"{name}.npz", images=images, labels=labels)
        np.save(tmp_path / "npy" / "mnist-c" / f"{name}.npy", images)
    packed, plain = (find_corrupted("mnist-c", tmp_path / kind) for kind in ("npz", "npy"))
    tracemalloc.start()
    sets = [packed.load(name) for name in names]
    assert [int(data.floats([1999]).mean() * 255 + 0.5) for data in sets] == [0, 1, 2, 3]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * images.nbytes
    assert [data.fingerprint for data in sets] == [plain.load(name).fingerprint for name in names]


def test_the_samples_are_read(sample_data):
    data = smoothcert.load_dataset(str(sample_data / "cifar10-c-sample/frost"))
    assert (len(data), data.severities, tuple(data.shape)) == (500, 5, (3, 32, 32))
    assert find_corrupted("mnist-c", sample_data).available == list(CORRUPTIONS["mnist-c"])


def spoil(folder, what):
    labels, images = np.load(folder / "labels.npy"), np.load(folder / "fog.npy")
    if what == "rows":
        np.save(folder / "fog.npy", images[:14]), np.save(folder / "labels.npy", labels[:14])
    elif what == "labels":
        np.save(folder / "labels.npy", labels[:10])
    elif what == "order":
        np.save(folder / "labels.npy", np.sort(labels))
    elif what == "shape":
        np.save(folder / "fog.npy", images[:, :28])
    elif what == "type":
        np.save(folder / "fog.npy", images.astype(np.float32))
    elif what == "broken":
        (folder / "fog.npy").write_bytes(b"no array")
    elif what == "class":
        np.save(folder / "labels.npy", labels + 9)
    elif what == "about":
        (folder / "about.json").write_text("junk")
    elif what == "empty":
        np.save(folder / "fog.npy", images[:0]), np.save(folder / "labels.npy", labels[:0])
    elif what == "text":
        np.save(folder / "labels.npy", labels.astype(float))
    elif what == "unlabelled":
        (folder / "labels.npy").unlink()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("rows", "the same labels at all 5 severities"),
        ("labels", "15 images and 10 labels"),
        ("order", "the same labels at all 5 severities, but they differ"),
        ("shape", r"shape \[3, 32, 32\], but got \[3, 28, 32\]"),
        ("type", "expected uint8 images"),
        ("broken", "is damaged, or is not an .npy file"),
        ("class", "expected labels from 0 to 9, but got label 13"),
        ("text", "one integer label per image"),
        ("unlabelled", r"fog.npy has no labels: .*labels.npy does not exist\."),
    ],
)
def test_bad_files(tmp_path, cifar_c, what, message):
    spoil(cifar_c, what)
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.load_dataset("cifar10-c/fog", "test", tmp_path)


@pytest.mark.parametrize(("what", "message"), [("about", "about.json cannot be read"), ("empty", "contains no image")])
def test_bad_folders(cifar_c, what, message):
    spoil(cifar_c, what)
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.load_dataset(str(cifar_c / "fog"))


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("cifar10-c", "test", "has several corruptions; name one of them, such as cifar10-c/fog"),
        ("cifar10-c/frog", "test", "Unknown corruption 'frog'; did you mean 'fog'"),
        ("cifar10-c/snow", "test", "has no images for snow; available: fog"),
        ("cifar10-c/fog", "train", "has only a test split"),
        ("mnist-c/fog", "test", "mnist-c is not in .*smoothcert data make mnist-c"),
    ],
)
def test_bad_names(tmp_path, cifar_c, name, split, message):
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.load_dataset(name, split, tmp_path)


@pytest.mark.parametrize("sizes", [{"resize": 16, "crop": 8}, {"crop": 8}])
def test_corrupted_images_are_not_resized(cifar_c, tmp_path, sizes):
    for name in (str(cifar_c / "fog"), "cifar10-c/fog"):
        with pytest.raises(smoothcert.UsageError, match="`resize` and `crop` are for image folders, but .*fog is not"):
            smoothcert.load_dataset(name, "test", cifar_c.parent, **sizes)


def test_folders_with_nothing_to_certify(tmp_path, mini, capsys):
    """An empty folder is not a dataset; a folder of held-out corruptions is one, but has no mean."""
    (tmp_path / "mnist-mini-c").mkdir()
    certify = ["certify", "--pretrained", "mnist-catrs-0.25", "--n", "20", "--n0", "5", "--max", "1"]
    certify += ["--data", "mnist-mini-c", "--data-dir", str(tmp_path)]
    montage = ["data", "montage", "mnist-mini-c", "--data-dir", str(tmp_path), "--out", str(tmp_path / "a.png")]
    for arguments in (certify, montage):
        assert main(arguments) == 1
        assert "make it with `smoothcert data make mnist-mini-c`" in capsys.readouterr().err
    make_corrupted(mini.subset(range(3)), tmp_path / "mnist-mini-c", ["inverse"], workers=1)
    for arguments, message in ((certify, "select them with `--corruption`"), (montage, "none of the corruptions")):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert smoothcert.load_dataset(str(tmp_path / "mnist-mini-c/inverse")).images.shape == (3, 1, 28, 28)
    assert main([*certify, "--corruption", "inverse", "--out", str(tmp_path / "one.tsv")]) == 0
    assert "inverse" in capsys.readouterr().out


def test_unavailable_corruptions_are_reported_before_anything_is_made(tmp_path, mini, monkeypatch, capsys):
    """A missing dependency is an error for one corruption; of the whole suite, the others are made."""
    monkeypatch.setitem(sys.modules, "skimage.feature", None)
    few = tmp_path / "few.npz"
    np.savez(few, images=mini.images[:2].numpy(), labels=mini.labels[:2].numpy())
    arguments = ["data", "make", str(few), "--workers", "1", "--out"]
    assert main([*arguments, str(tmp_path / "one"), "--corruption", "stripe", "--corruption", "canny_edges"]) == 1
    assert "canny_edges needs scikit-image" in capsys.readouterr().err
    assert not (tmp_path / "one").exists()
    assert main([*arguments, str(tmp_path / "all")]) == 0
    assert "scikit-image: pip install 'smoothcert[corruptions]'. Skipping this corruption." in capsys.readouterr().err
    assert find_corrupted(str(tmp_path / "all")).missing == ["canny_edges"]
    assert main([*arguments, str(tmp_path / "two"), "--corruption", "stripe", "fog", "--corruption", "shear"]) == 0
    assert find_corrupted(str(tmp_path / "two")).available == ["shear", "stripe", "fog"], "named at once, or one by one"
    assert capsys.readouterr().err.count(" of 1 parts") == 3, "a line each"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "`--seed` to be a whole number between 0 and"),
        (["--workers", "0"], "`--workers` to be at least 1"),
    ],
)
def test_bad_options_for_making(tmp_path, options, message, capsys):
    assert main(["data", "make", "mnist-mini-c", "--data-dir", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_making_from_photographs_of_several_sizes(tmp_path, capsys):
    from PIL import Image

    for place, size in (("cat/a.png", (40, 36)), ("dog/b.png", (36, 50))):
        (tmp_path / "mine" / place).parent.mkdir(parents=True)
        Image.fromarray(RNG.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / "mine" / place)
    arguments = ["data", "make", str(tmp_path / "mine"), "--out", str(tmp_path / "mine-c"), "--corruption", "contrast"]
    assert main(arguments) == 1
    assert "images of several sizes need `--resize` and `--crop`" in capsys.readouterr().err
    assert main([*arguments, "--resize", "34", "--crop", "32", "--workers", "1"]) == 0
    data = smoothcert.load_dataset(str(tmp_path / "mine-c/contrast"))
    assert (len(data), tuple(data.shape), data.classes) == (10, (3, 32, 32), ("cat", "dog"))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux for the children of a process")
def test_no_process_outlives_a_kill(tmp_path):
    """If the parent process is killed, its workers end, too."""
    command = [sys.executable, "-m", "smoothcert", "data", "make", "mnist-mini-c", "--workers", "2"]
    making = subprocess.Popen([*command, "--out", str(tmp_path / "a"), "--corruption", "glass_blur"])
    listed = Path(f"/proc/{making.pid}/task/{making.pid}/children")
    while making.poll() is None and len(listed.read_text().split()) < 2:
        time.sleep(0.05)
    workers = [int(pid) for pid in listed.read_text().split()]
    making.kill()
    making.wait()
    assert len(workers) == 2

    def alive(pid):
        status = Path(f"/proc/{pid}/stat")
        return status.exists() and status.read_text().split()[2] != "Z"  # dead, but not yet reaped

    ends = time.monotonic() + HANGS
    while any(map(alive, workers)) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not any(map(alive, workers))
    assert not (tmp_path / "a" / "glass_blur.npy").exists()


def test_making_a_set(tmp_path, mini):
    few = mini.subset(range(300))
    made = make_corrupted(few, tmp_path / "mine-c", ["zigzag", "line"], seed=4, workers=2)
    assert [path.name for path in made] == ["zigzag.npy", "line.npy"]
    data = smoothcert.load_dataset(str(tmp_path / "mine-c/zigzag"))
    assert data.labels.tolist() == few.labels.tolist()
    pixels = few.images.numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(data.images[range(300)].numpy()[:, 0], corrupt(pixels, "zigzag", seed=4)[..., 0])
    assert make_corrupted(few, tmp_path / "mine-c", ["zigzag", "line"], seed=4) == []  # existing files are kept
    clean = find_corrupted(str(tmp_path / "mine-c")).find_clean()
    assert clean is None  # mnist-mini has a different number of images
    with pytest.raises(UsageError, match="with different images or a different seed"):
        make_corrupted(few, tmp_path / "mine-c", ["fog"], seed=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fog.npy").touch()
    with pytest.raises(UsageError, match="were not made by smoothcert"):
        make_corrupted(few, tmp_path / "other", ["fog"])
    with pytest.raises(UsageError, match="Unknown corruption 'snow'"):
        make_corrupted(few, tmp_path / "third", ["snow"])


@pytest.mark.parametrize("rows", [10, 1000])
def test_clean_images_are_found_only_of_a_whole_set(tmp_path, mini, rows):
    """Row 3 of a sample is not row 3 of the dataset that it was taken from."""
    folder = tmp_path / "mnist-mini-c"
    folder.mkdir()
    np.save(folder / "fog.npy", np.zeros((rows, 28, 28, 1), dtype=np.uint8))
    np.save(folder / "labels.npy", np.zeros(rows, dtype=np.uint8))
    clean = find_corrupted("mnist-mini-c", tmp_path).find_clean(tmp_path)
    assert (clean is not None) == (rows == len(mini))


def test_making_color_images_from_a_users_own_file(tmp_path, capsys):
    images = RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(4))
    arguments = ["data", "make", str(tmp_path / "mine.npz"), "--corruption", "contrast", "frost"]
    assert main(arguments) == 2
    assert "Expected `--out`, the folder for the corrupted images of" in capsys.readouterr().err
    assert main([*arguments, "--out", str(tmp_path / "mine-c"), "--workers", "1"]) == 0
    data = smoothcert.load_dataset(str(tmp_path / "mine-c/contrast"))
    assert (len(data), data.severities, data.labels.tolist()) == (20, 5, [0, 1, 2, 3] * 5)
    worst = data.images[range(16, 20)].numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(worst, corrupt(images, "contrast", 5))


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_fetching_and_unpacking(tmp_path, cifar_c, kind):
    served, home = tmp_path / "served", tmp_path / "home"
    served.mkdir()
    archive = served / f"set.{kind}"
    if kind == "tar":
        with tarfile.open(archive, "w") as tar:
            tar.add(cifar_c, "CIFAR-10-C")
    else:
        with zipfile.ZipFile(archive, "w") as out:
            for file in cifar_c.iterdir():
                out.write(file, f"CIFAR-10-C/{file.name}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=served)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = KnownFile(archive.stat().st_size, file_hash(archive, "md5"))
    address = f"http://127.0.0.1:{server.server_port}/"
    sources = {"cifar10-c": DownloadSource((address,), "", {archive.name: known}, unpacked="CIFAR-10-C")}
    files = fetch_dataset("cifar10-c", home, sources=sources)
    server.shutdown()
    assert [file.name for file in files] == ["fog.npy", "labels.npy"]
    assert [path.name for path in home.iterdir()] == ["CIFAR-10-C"]
    assert len(smoothcert.load_dataset("cifar10-c/fog", "test", home)) == 15
    assert fetch_dataset("cifar10-c", home, sources=sources) == files  # without network access


def test_getting_says_what_it_knows(tmp_path, cifar_c, capsys):
    """Existing files are not verified, missing ones are named; some datasets can only be made."""
    assert main(["data", "get", "cifar10-c", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "fog.npy: present\n" in said
    assert "cifar10-c: no gaussian_noise, shot_noise" in said
    assert "rename or remove the folder, and run the command again" in said
    assert main(["data", "get", "fashion-mnist-c"]) == 2
    assert "generate it with `smoothcert data make fashion_mnist-c`" in capsys.readouterr().err
    gone = {
        "mnist-c": DownloadSource(("http://127.0.0.1:9/",), "", {"mnist_c.zip": KnownFile(1, "")}, unpacked="mnist_c")
    }
    with pytest.raises(SmoothcertError, match="or make a similar dataset with `smoothcert data make mnist-c`"):
        fetch_dataset("mnist-c", tmp_path, sources=gone)


def test_a_damaged_archive(tmp_path):
    from smoothcert.data.download import unpack_arrays

    (tmp_path / "set.tar").write_bytes(b"no archive")
    with pytest.raises(SmoothcertError, match="cannot be unpacked"):
        unpack_arrays(tmp_path / "set.tar", tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar"]


def test_montage(tmp_path, cifar_c, capsys):
    out = tmp_path / "montage.png"
    assert main(["data", "montage", "cifar10-c", "--data-dir", str(tmp_path), "--image", "2", "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    for options, message in (
        (["--image", "3"], "`--image` to be from 0 to 2"),
        (["--severity", "6"], "`--severity` to be from 1 to 5"),
    ):
        assert main(["data", "montage", "cifar10-c", "--data-dir", str(tmp_path), *options, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    arguments = ["data", "montage", "cifar10-c", "--data-dir", str(tmp_path), "--out", str(tmp_path / "montage.pngg")]
    assert main(arguments) == 2
    assert "Unknown image format '.pngg'; did you mean '.png'?" in capsys.readouterr().err
    assert main(["data", "montage", "mnist-mini", "--out", str(out)]) == 2
    assert "is not a corrupted dataset" in capsys.readouterr().err


def test_the_list_shows_corrupted_sets(tmp_path, cifar_c, capsys):
    assert main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    there = {row["name"]: row["there"] for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert there["cifar10-c"] is True
    assert there["mnist-c"] is False
    shutil.rmtree(cifar_c)
