"""All supported layouts in small, the real datasets where available, and damaged files."""

import dataclasses
import gzip
import io
import os
import pickle
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import smoothcert
from smoothcert.data.image_data import select
from smoothcert.data.registry import DATASETS
from smoothcert.errors import SmoothcertError, UsageError

PACKAGE = Path(smoothcert.data.registry.__file__).parent
RNG = np.random.default_rng(0)
GRAY, GRAY_LABELS = RNG.integers(0, 256, (12, 28, 28), dtype=np.uint8), RNG.integers(0, 10, 12, dtype=np.uint8)
COLOR, COLOR_LABELS = RNG.integers(0, 256, (20, 3072), dtype=np.uint8), RNG.integers(0, 10, 20)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, mark="-", pack=False):
    folder.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        for name, array in (
            (f"{prefix}-images{mark}idx3-ubyte", GRAY),
            (f"{prefix}-labels{mark}idx1-ubyte", GRAY_LABELS),
        ):
            content = idx(array)
            (folder / (name + ".gz" * pack)).write_bytes(gzip.compress(content) if pack else content)


def python2_pickle(data, labels, label_key):
    """Write a batch opcode by opcode like Python 2 for the official files: byte strings, old numpy names."""

    def text(value):
        return b"U" + bytes((len(value),)) + value

    def integer(value):
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
    dtype += b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + integer(0) + b"\x85" + text(b"b") + b"\x87R"
    )
    array += b"(" + integer(1) + integer(len(data)) + integer(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", data.nbytes) + data.tobytes() + b"tb"
    listed = b"](" + b"".join(integer(int(label)) for label in labels) + b"e"
    return (
        b"\x80\x02}("
        + text(b"batch_label")
        + text(b"batch 1")
        + text(label_key)
        + listed
        + text(b"data")
        + array
        + b"u."
    )


CIFAR_FILES = {
    "cifar10": (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
    "cifar100": ("train", "test"),
}


def cifar_files(name, version):
    key = b"labels" if name == "cifar10" else b"fine_labels"
    if version == "python":
        content = python2_pickle(COLOR, COLOR_LABELS, key)
    elif version == "python3":
        content = pickle.dumps({b"data": COLOR, key: COLOR_LABELS.tolist()}, protocol=2)
    else:
        coarse = np.full((20, 1), 99, np.uint8)[:, : len(key) // 11]
        content = np.concatenate([coarse, COLOR_LABELS[:, None].astype(np.uint8), COLOR], axis=1).tobytes()
    return {file + ".bin" * (version == "binary"): content for file in CIFAR_FILES[name]}


def write_cifar(root, name, version, packed):
    stem = name.replace("cifar", "cifar-")
    inner = {"cifar10python": "cifar-10-batches-py", "cifar10binary": "cifar-10-batches-bin"}
    folder = inner.get(name + version.rstrip("3"), f"{stem}-{version.rstrip('3')}")
    if not packed:
        (root / folder).mkdir(parents=True)
        for file, content in cifar_files(name, version).items():
            (root / folder / file).write_bytes(content)
        return
    with tarfile.open(root / f"{stem}-{version.rstrip('3')}.tar.gz", "w:gz") as tar:
        for file, content in cifar_files(name, version).items():
            member = tarfile.TarInfo(f"{folder}/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion_mnist", "FashionMNIST/raw"),
        ("mnist", "mnist/MNIST/raw"),
        ("fashion_mnist", "fashion-mnist"),
        ("fashion_mnist", "fashion_mnist/FashionMNIST/raw"),
    ],
)
def test_idx_files_as_users_have_them(tmp_path, name, folder, mark, pack):
    write_idx(tmp_path / folder, mark, pack)
    for split in ("train", "test"):
        data = smoothcert.load_dataset(name, split, tmp_path)
        assert torch.equal(data.images[:, 0], torch.from_numpy(GRAY))
        assert torch.equal(data.labels, torch.from_numpy(GRAY_LABELS).long())
        assert data.images.dtype == torch.uint8
    inside = smoothcert.load_dataset(name, "test", tmp_path / folder)
    assert torch.equal(inside.images, data.images), "the folder itself may be named"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("version", ["python", "python3", "binary"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_as_users_have_it(tmp_path, name, version, packed):
    write_cifar(tmp_path, name, version, packed)
    data = smoothcert.load_dataset(name, "test", tmp_path)
    assert torch.equal(data.images, torch.from_numpy(COLOR).view(20, 3, 32, 32))
    assert torch.equal(data.labels, torch.from_numpy(COLOR_LABELS))
    train = smoothcert.load_dataset(name, "train", tmp_path)
    assert len(train) == (100 if name == "cifar10" else 20)
    (tmp_path / "other" / name).mkdir(parents=True)
    write_cifar(tmp_path / "other" / name, name, version, packed)
    within = smoothcert.load_dataset(name, "test", tmp_path / "other")
    assert torch.equal(within.images, data.images), "they may lie in a folder of the data set's own"


def test_files_that_were_unpacked_or_packed_under_their_old_names(tmp_path):
    write_idx(tmp_path / "mnist", pack=True)
    for file in list((tmp_path / "mnist").glob("t10k-*.gz")):
        file.write_bytes(gzip.decompress(file.read_bytes()))
    for file in list((tmp_path / "mnist").glob("train-*.gz")):
        file.rename(file.with_suffix(""))
    for split in ("train", "test"):
        data = smoothcert.load_dataset("mnist", split, tmp_path)
        assert torch.equal(data.images[:, 0], torch.from_numpy(GRAY))


def test_the_two_mnists_are_not_confused(tmp_path):
    write_idx(tmp_path / "mnist")
    with pytest.raises(SmoothcertError, match="fashion_mnist is not in"):
        smoothcert.load_dataset("fashion_mnist", "test", tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_the_real_sets(real_data, name):
    train, test = (smoothcert.load_dataset(name, split, real_data) for split in ("train", "test"))
    assert len(test) == 10_000
    assert len(train) == (50_000 if name == "cifar10" else 60_000)
    assert torch.bincount(test.labels).tolist() == (
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if name == "mnist" else [1000] * 10
    )
    if name == "cifar10":  # the published normalization is the training set's own mean
        mean = train.images.float().mean(dim=(0, 2, 3)) / 255
        assert mean.tolist() == pytest.approx(train.mean, abs=2e-4)


def test_mnist_mini_is_mnist(real_data, mini):
    original = smoothcert.load_dataset("mnist", "test", real_data)
    with np.load(PACKAGE / "mnist-mini.npz") as archive:
        index = torch.from_numpy(archive["test_index"]).long()
    assert torch.equal(original.images[index], mini.images)
    assert torch.equal(original.labels[index], mini.labels)


def test_mnist_mini_is_balanced_and_small(mini):
    train = smoothcert.load_dataset("mnist-mini", "train")
    assert torch.bincount(train.labels).tolist() == [600] * 10
    assert torch.bincount(mini.labels).tolist() == [100] * 10
    assert (PACKAGE / "mnist-mini.npz").stat().st_size < 2_000_000
    assert "Attribution-Share Alike" in (PACKAGE / "mnist-mini.LICENSE").read_text()


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 3, 1)])
@pytest.mark.parametrize("keys", [("images", "labels"), ("x_test", "y_test"), ("test_images", "test_labels")])
def test_npz_of_any_layout(tmp_path, layout, keys):
    images = COLOR.reshape(20, 3, 32, 32)
    np.savez(tmp_path / "own.npz", **{keys[0]: images.transpose(layout), keys[1]: COLOR_LABELS})
    data = smoothcert.load_dataset(str(tmp_path / "own.npz"))
    assert torch.equal(data.images, torch.from_numpy(images))
    assert data.classes == tuple(str(i) for i in range(COLOR_LABELS.max() + 1))


def test_a_path_object_is_a_path_and_never_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.full((2, 4, 4), 7, np.uint8)
    np.savez("mine.npz", test_images=images, test_labels=[0, 1])
    by_path, by_text = smoothcert.load_dataset(Path("mine.npz")), smoothcert.load_dataset("mine.npz")
    assert by_path.fingerprint == by_text.fingerprint
    assert by_path.name == "mine"
    for label in ("0", "1"):
        (tmp_path / "mnist-mini" / label).mkdir(parents=True)
        Image.fromarray(images[0]).convert("RGB").save(tmp_path / "mnist-mini" / label / "a.png")
    assert len(smoothcert.load_dataset(Path("mnist-mini"))) == 2
    with pytest.raises(SmoothcertError, match="does not exist"):
        smoothcert.load_dataset(Path("absent"))


def test_the_folder_of_datasets_has_two_names(tmp_path):
    write_idx(tmp_path / "mnist")
    found = [smoothcert.load_dataset("mnist", **{name: tmp_path}) for name in ("data_dir", "root")]
    assert found[0].fingerprint == found[1].fingerprint


def test_image_folders(tmp_path):
    for split in ("train", "val"):
        for i, name in enumerate(("bee", "ant")):
            (tmp_path / split / name).mkdir(parents=True)
            for j, mode in enumerate(("RGB", "L", "CMYK")):
                image = Image.fromarray(np.full((40 + 8 * j, 60, 3), 80 * i + 20, np.uint8)).convert(mode)
                image.save(tmp_path / split / name / f"{j}.{'png' if mode != 'CMYK' else 'jpg'}")
    data = smoothcert.load_dataset(str(tmp_path), "test", resize=32, crop=32)
    assert data.classes == ("ant", "bee")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.images.shape == (6, 3, 32, 32)
    pixels = data.floats([0, 5])
    assert pixels[0].mean() == pytest.approx(100 / 255, abs=0.02)
    assert pixels[1].mean() == pytest.approx(20 / 255, abs=0.02)
    with pytest.raises(SmoothcertError, match="`resize` and `crop`"):
        smoothcert.load_dataset(str(tmp_path), "test").floats([0, 1])
    (tmp_path / "val/ant/3.png").write_bytes(b"no image")
    with pytest.raises(SmoothcertError, match="cannot be decoded"):
        smoothcert.load_dataset(str(tmp_path), "test", resize=32, crop=32).floats([3])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_in_an_image_folder_is_not_opened(tmp_path):
    (tmp_path / "test/ant").mkdir(parents=True)
    os.mkfifo(tmp_path / "test/ant/0.png")
    with pytest.raises(SmoothcertError, match="not a regular file"):
        smoothcert.load_dataset(str(tmp_path), "test")


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ({"resize": 32}, "Expected `crop` together with `resize`"),
        ({"resize": 16, "crop": 32}, "`resize` to be at least `crop`, but got 16 and 32"),
        ({"crop": -1}, "`crop` to be at least 1"),
        ({"crop": 32}, "0.png is 40x20, smaller than the `crop` of 32"),
    ],
)
def test_a_cut_that_gives_no_whole_images_is_refused(tmp_path, cut, message):
    (tmp_path / "ant").mkdir()
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(tmp_path / "ant/0.png")
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.load_dataset(str(tmp_path), "test", **cut).floats([0])


@pytest.mark.parametrize("images", [torch.zeros(2, 1, 28, 28, dtype=torch.int64), np.zeros((2, 1, 28, 28), np.uint8)])
def test_images_are_tensors_of_bytes_or_floats(images):
    with pytest.raises(UsageError, match="mine: expected images to be a uint8 or floating-point tensor"):
        smoothcert.ImageData("mine", "test", images, torch.arange(2), ("a", "b"), (0.0,), (1.0,))
    with pytest.raises(UsageError, match="mine: expected labels to be a tensor, but got a list"):
        smoothcert.ImageData("mine", "test", torch.zeros(2, 1, 4, 4).byte(), [0, 1], ("a", "b"), (0.0,), (1.0,))


def test_imagenet_is_cut_as_published(tmp_path, sample_data):
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet/val").symlink_to(sample_data / "imagenet-sample")
    data = smoothcert.load_dataset("imagenet", "test", tmp_path)
    assert len(data) == 40
    for number, path in enumerate(data.images.paths):
        pixels = data.images[torch.tensor([number])][0]
        assert pixels.shape == (3, 224, 224)
        with Image.open(path) as file:
            image = file.convert("RGB")
        sides = [int(256 * side / min(image.size)) for side in image.size]
        left, top = (round((side - 224) / 2) for side in sides)
        cut = image.resize(sides, Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
        assert torch.equal(pixels, torch.from_numpy(np.array(cut)).permute(2, 0, 1)), path.name


def test_tiny_imagenet_folder(sample_data):
    data = smoothcert.load_dataset(str(sample_data / "tiny-imagenet-sample"), "train")
    assert data.images.shape == (1000, 3, 64, 64)
    assert torch.bincount(data.labels).tolist() == [100] * 10


DAMAGE = {
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b"x",
    "another kind": lambda content: b"\x89PNG" + content[4:],
    "empty": lambda content: b"",
    "sizes whose product overflows": lambda content: content[:4] + struct.pack(">3I", 1 << 31, 1 << 31, 4),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_idx_files(tmp_path, damage):
    write_idx(tmp_path / "mnist")
    file = tmp_path / "mnist/t10k-images-idx3-ubyte"
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    with pytest.raises(SmoothcertError, match=r"t10k-images.*download it again"):
        smoothcert.load_dataset("mnist", "test", tmp_path)


def test_damaged_archives(tmp_path):
    write_idx(tmp_path / "mnist", pack=True)
    file = tmp_path / "mnist/t10k-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(SmoothcertError, match="download it again"):
        smoothcert.load_dataset("mnist", "test", tmp_path)
    write_cifar(tmp_path, "cifar10", "python", packed=True)
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(SmoothcertError, match="download it again"):
        smoothcert.load_dataset("cifar10", "test", tmp_path)


class Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({b"data": Evil(), b"labels": [1]}),
        pickle.dumps({b"data": COLOR[:, :100], b"labels": COLOR_LABELS.tolist()}),
        pickle.dumps({b"data": COLOR, b"labels": COLOR_LABELS.tolist()[:-1]}),
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": COLOR, b"labels": [0.5] * 20}),
        pickle.dumps({b"data": COLOR, b"labels": None}),
        pickle.dumps({b"data": COLOR, b"labels": [[1]] * 19 + [2]}),
        pickle.dumps({b"data": COLOR, b"labels": [[1]] * 20}),
        b"\x80\x02garbage",
    ],
    ids=["code", "short", "labels missing", "no table", "fractions", "no list", "ragged", "list of lists", "garbage"],
)
def test_tampered_pickles_are_refused(tmp_path, capsys, content):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(SmoothcertError, match="test_batch"):
        smoothcert.load_dataset("cifar10", "test", tmp_path)
    assert "never" not in capsys.readouterr().out


def test_labels_outside_the_classes(tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist/t10k-labels-idx1-ubyte").write_bytes(idx(GRAY_LABELS + np.uint8(200)))
    with pytest.raises(SmoothcertError, match="expected labels from 0 to 9, but got label"):
        smoothcert.load_dataset("mnist", "test", tmp_path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": GRAY.astype(np.int32), "labels": GRAY_LABELS}, "uint8"),
        ({"images": GRAY}, "labels"),
        ({"images": GRAY.reshape(12, 784), "labels": GRAY_LABELS}, "channels"),
        ({"images": np.zeros((12, 28, 28, 4), np.uint8), "labels": GRAY_LABELS}, "1 or 3 channels, but got"),
        ({"images": GRAY, "labels": GRAY_LABELS[:5]}, "12 images and 5 labels"),
        ({"images": GRAY, "labels": GRAY_LABELS.astype(float)}, "one integer label per image"),
        ({"images": GRAY, "labels": np.array([Evil()] * 12)}, "plain arrays"),
    ],
)
def test_bad_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(SmoothcertError, match=message):
        smoothcert.load_dataset(str(tmp_path / "own.npz"))


def test_damaged_npz(tmp_path):
    file = tmp_path / "own.npz"
    np.savez_compressed(file, images=GRAY // 64, labels=GRAY_LABELS, classes=np.array(list("0123456789")))
    content = np.frombuffer(file.read_bytes(), np.uint8)
    refused = 0
    for damage in range(100):
        rng = np.random.default_rng(damage)
        broken = content[: rng.integers(len(content))].copy() if damage % 4 == 0 else content.copy()
        for _ in range(damage % 4):
            broken[rng.integers(len(broken))] ^= rng.integers(1, 256, dtype=np.uint8)
        file.write_bytes(broken.tobytes())
        try:
            smoothcert.load_dataset(str(file))
        except SmoothcertError:
            refused += 1
    assert refused > 90, "all but those where the damage is in what nobody reads"


def test_a_new_dataset_names_its_own_missing_files(tmp_path, monkeypatch):
    new = dataclasses.replace(DATASETS["mnist"], find=lambda root, split: None, files="images.npy into {folder}")
    monkeypatch.setitem(DATASETS, "svhn", new)
    with pytest.raises(SmoothcertError) as caught:
        smoothcert.load_dataset("svhn", "test", tmp_path)
    assert str(caught.value) == f"svhn is not in {tmp_path}: put images.npy into {tmp_path / 'svhn'}."


def test_missing_and_unknown(tmp_path):
    with pytest.raises(SmoothcertError, match="smoothcert data get cifar10"):
        smoothcert.load_dataset("cifar10", "test", tmp_path)
    with pytest.raises(UsageError, match="did you mean 'cifar100'"):
        smoothcert.load_dataset("cifar1000", "test", tmp_path)
    with pytest.raises(UsageError, match="`split`"):
        smoothcert.load_dataset("mnist-mini", "validation")
    with pytest.raises(SmoothcertError, match="does not exist"):
        smoothcert.load_dataset(str(tmp_path / "no.npz"))


def test_where_data_is_looked_for(tmp_path, monkeypatch):
    write_idx(tmp_path / "a/mnist")
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "a"))
    assert len(smoothcert.load_dataset("mnist")) == 12
    monkeypatch.delenv("SMOOTHCERT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(SmoothcertError, match=str(tmp_path / "cache/smoothcert/data")):
        smoothcert.load_dataset("mnist")
    shutil.copytree(tmp_path / "a", tmp_path / "cache/smoothcert/data")
    assert len(smoothcert.load_dataset("mnist")) == 12


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_shards_are_a_partition(parts):
    together = sorted(i for part in range(parts) for i in select(103, 3, 90, (part + 1, parts)))
    assert together == list(range(0, 90, 3))


def test_class_names_that_are_no_unicode_are_refused(tmp_path):
    names = np.array([0x110000, 97], np.uint32).view("<U1")
    np.savez(tmp_path / "a.npz", images=GRAY, labels=GRAY_LABELS, classes=names)
    with pytest.raises(SmoothcertError, match="is damaged, or contains something other than plain arrays"):
        smoothcert.load_dataset(tmp_path / "a.npz")


def test_class_names_are_complete():
    assert [len(dataset.classes) for dataset in DATASETS.values()] == [10, 10, 10, 10, 100]


def test_the_text_of_a_data_set_fits_on_a_line(mini):
    assert repr(mini) == "<ImageData mnist-mini, test: 1,000 images of shape [1, 28, 28], 10 classes>"
