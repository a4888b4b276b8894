"""Registry of datasets by name, and `load_dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from smoothcert.data.files import Arrays
from smoothcert.data.files import data_dir as find_data_dir
from smoothcert.data.image_data import ImageData
from smoothcert.data.readers.arrays import read_npz
from smoothcert.data.readers.cifar import CIFAR10, CIFAR100, find_cifar
from smoothcert.data.readers.folder import read_folder
from smoothcert.data.readers.idx import find_idx
from smoothcert.data.user_data import as_image_data
from smoothcert.dataset_names import CORRUPTED, DIMENSIONS, DOWNLOADABLE, REGISTERED, canonical_name
from smoothcert.errors import SmoothcertError, UsageError, first_line, quote, takes, unknown_name

SPLITS = ("train", "test")
_GRAY = ((0.0,), (1.0,))
_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_MNIST_PLACES = ("mnist", "MNIST/raw", "MNIST", "mnist/raw", "mnist/MNIST/raw")
_FASHION_PLACES = (
    *("fashion_mnist", "FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
    *("fashion_mnist/raw", "fashion_mnist/FashionMNIST/raw"),
)
_CIFAR100_NAMES = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man
maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain
plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm"""


@dataclass(frozen=True)
class Dataset:
    """A dataset that is read into memory.

    `find(root, split)` returns a function that reads the split, or None if the files of the split are not below `root`.
    `mean` and `std` are the input normalization of the published networks. `about` describes the dataset in one
    line. `files` states which files are needed and where to put them; it may contain the placeholders `{root}` and
    `{folder}`, the dataset's own folder below `root`.
    """

    find: Callable[[Path, str], Callable[[], Arrays] | None]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    about: str
    files: str


def _find_mini(root: Path, split: str) -> Callable[[], Arrays]:
    return lambda: read_npz(Path(__file__).with_name("mnist-mini.npz"), split)[:2]


_find_mnist, _find_fashion = partial(find_idx, _MNIST_PLACES), partial(find_idx, _FASHION_PLACES)
_IDX_FILES = "its four idx files, gzipped or not, into {folder}"
_CIFAR_FILES = "{0}-python.tar.gz or {0}-binary.tar.gz, unpacked or not, into {{root}}"
DATASETS = {
    "mnist": Dataset(_find_mnist, _DIGITS, *_GRAY, "handwritten digits, 28x28, 60,000 train + 10,000 test", _IDX_FILES),
    "mnist-mini": Dataset(
        _find_mini, _DIGITS, *_GRAY, "a bundled subset of MNIST, 28x28, 6,000 train + 1,000 test", ""
    ),
    "fashion_mnist": Dataset(
        _find_fashion, _CLOTHES, *_GRAY, "clothing, 28x28, 60,000 train + 10,000 test", _IDX_FILES
    ),
    "cifar10": Dataset(
        partial(find_cifar, CIFAR10),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        (0.4914, 0.4822, 0.4465),
        (0.2023, 0.1994, 0.2010),
        "color photographs of 10 classes, 32x32, 50,000 train + 10,000 test",
        _CIFAR_FILES.format("cifar-10"),
    ),
    "cifar100": Dataset(
        partial(find_cifar, CIFAR100),
        tuple(_CIFAR100_NAMES.split()),
        (0.5071, 0.4867, 0.4408),
        (0.2675, 0.2565, 0.2761),
        "color photographs of 100 classes, 32x32, 50,000 train + 10,000 test",
        _CIFAR_FILES.format("cifar-100"),
    ),
}
IMAGENET_NORMALIZATION = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_IMAGENET_PLACES = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", ".")
_IMAGENET_FILES = "its class folders into {folder}/train and {folder}/val"
IMAGENET_ABOUT = "photographs of 1,000 classes as image folders, 1,281,167 train + 50,000 test"


@takes(pattern=str)
def list_datasets(pattern: str = "*") -> list[str]:
    """Return the names of the datasets that match a pattern.

    Args:
        pattern: A glob pattern, such as `cifar*`.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_datasets("cifar*")
        ['cifar10', 'cifar100']
    """
    return [name for name in sorted((*DIMENSIONS, *REGISTERED)) if fnmatch(name, pattern)]


@takes(name=str)
def register_dataset(name: str, loader: Callable[[str], Any]) -> Callable[[str], Any]:
    """Register a dataset of your own under a name, for this process.

    `load_dataset`, recipes and commands then accept the name. For the command line, put the call into a Python file
    and pass this file as `--plugin FILE`.

    Args:
        name: The name of the dataset. It may contain letters, digits, "-", "_" and ".".
        loader: A function that takes the split, `train` or `test`, and returns its inputs and labels: a pair of arrays
            or tensors, a PyTorch dataset, or `ImageData`.

    Returns:
        The loader.

    Raises:
        UsageError: If the name is taken or invalid, or `loader` is not callable.

    Example:
        >>> import torch
        >>> _ = register_dataset("points", lambda split: (torch.rand(4, 2), torch.tensor([0, 1, 0, 1])))
        >>> load_dataset("points", "test")
        <ImageData points, test: 4 images of shape [2], 2 classes>
        >>> del REGISTERED["points"]
    """
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UsageError(f"Expected `name` to consist of letters, digits, '-', '_' and '.', but got {name!r}.")
    if not callable(loader):
        raise UsageError(f"Expected `loader` to be a function that takes the split, but got {quote(loader)}.")
    known = REGISTERED.get(name, loader)
    same = getattr(known, "__qualname__", known) == getattr(loader, "__qualname__", loader)
    if canonical_name(name) in (*DIMENSIONS, *CORRUPTED) or not same:
        raise UsageError(f"There is already a dataset {name!r}; choose another name.")
    REGISTERED[name] = loader
    return loader


def _load_registered(name: str, split: str) -> ImageData:
    try:
        found = REGISTERED[name](split)
    except SmoothcertError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise SmoothcertError(f"The {split} split of {name} cannot be loaded ({first_line(error)}).") from error
    return replace(as_image_data(found, split), name=name, split=split)


@takes(name=(str, Path), split=str, data_dir=(str, Path, type(None)), root=(str, Path, type(None)))
@takes(resize=(Integral, type(None)), crop=(Integral, type(None)))
def load_dataset(
    name: str | os.PathLike[str],
    split: str = "test",
    data_dir: str | Path | None = None,
    *,
    resize: int | None = None,
    crop: int | None = None,
    skip_broken: bool = False,
    root: str | Path | None = None,
) -> ImageData:
    """Load a dataset by name or path.

    Args:
        name: A name from `list_datasets`, a corrupted dataset such as `cifar10-c/fog`, or a path: to an .npz file, to a
            folder with one subfolder per class, or to corrupted images such as `./mine-c/fog`. A `Path` object is
            always treated as a path.
        split: `train` or `test`.
        data_dir: The folder with the datasets; default: $SMOOTHCERT_DATA, else the platform's cache folder.
        resize: For image folders, the length to which the shorter side is resized (default for ImageNet: 256).
        crop: For image folders, the side of the square that is then cut from the center (default for ImageNet: 224).
        skip_broken: For image folders, replace each image that cannot be decoded with the next one of its class.
        root: Former name of `data_dir`, still accepted.

    Returns:
        The images with their labels.

    Raises:
        SmoothcertError: If files are missing or damaged.
        UsageError: If there is no such dataset or split, or if `resize` or `crop` is given and the dataset is not an
            image folder.

    Example:
        >>> data = load_dataset("mnist-mini", "test")
        >>> data.images.shape, data.images.dtype, len(data.classes)
        (torch.Size([1000, 1, 28, 28]), torch.uint8, 10)
    """
    if split not in SPLITS:
        raise UsageError(f"Expected `split` to be one of {', '.join(SPLITS)}, but got {split!r}.")
    name = canonical_name(name) if isinstance(name, str) else os.path.join(".", Path(name).expanduser())
    path = Path(name).expanduser()
    datasets = find_data_dir(root if data_dir is None else data_dir)
    if name in DATASETS or name in REGISTERED or path.suffix == ".npz":
        _refuse_sizes(name, resize, crop)
    if name in REGISTERED:
        return _load_registered(name, split)
    if name in DATASETS:
        dataset = DATASETS[name]
        read = dataset.find(datasets, split)
        if read is None:
            raise SmoothcertError(missing(name, datasets))
        return ImageData(name, split, *read(), dataset.classes, dataset.mean, dataset.std)
    if name == "imagenet":
        folder = find_imagenet(datasets, split)
        if folder is None:
            raise SmoothcertError(missing("imagenet", datasets))
        return _load_folder("imagenet", folder, split, resize or 256, crop or 224, skip_broken)
    if (corrupted := _load_corrupted(name, split, datasets)) is not None:
        _refuse_sizes(name, resize, crop)
        return corrupted
    if path.suffix == ".npz" and path.is_file():
        return ImageData(path.stem, split, *read_npz(path, split))
    if path.is_dir():
        return _load_folder(path.resolve().name, _split_folder(path, split) or path, split, resize, crop, skip_broken)
    if path.is_file():
        raise UsageError(f"{name} is not a dataset; expected an .npz file or a folder with one subfolder per class.")
    if path.suffix == ".npz" or "/" in name:
        raise SmoothcertError(f"{name} does not exist; expected a dataset name, an .npz file or an image folder.")
    raise unknown_name("dataset", name, list_datasets())


def _refuse_sizes(name: str, resize: int | None, crop: int | None) -> None:
    if resize or crop:
        raise UsageError(f"`resize` and `crop` are for image folders, but {name} is not one.")


def path_of(name: str) -> Path | None:
    """Return the absolute path if `name` is an existing path and not the name of a dataset, else None."""
    path = Path(name).expanduser()
    known = canonical_name(name) in DIMENSIONS or name in REGISTERED
    return path.resolve() if path.exists() and not known else None


def _load_corrupted(name: str, split: str, data_dir: Path) -> ImageData | None:
    """Load SET/CORRUPTION, where SET is the name or folder of a corrupted dataset; return None for other names."""
    from smoothcert.data.corrupted import find_corrupted

    place, _, corruption = name.rpartition("/")
    if name in CORRUPTED:
        raise UsageError(f"{name} has several corruptions; name one of them, such as {name}/fog.")
    path = Path(name).expanduser()
    if not place or (path.exists() and not (path / "test_images.npy").is_file()):
        return None
    corrupted = find_corrupted(place, data_dir)
    if corrupted and split != "test":
        raise UsageError(f"{name} has only a test split; omit `split`.")
    return corrupted.load(corruption) if corrupted else None


def missing(name: str, root: Path) -> str:
    """Return a message that states which files a dataset needs and where to put them."""
    files = DATASETS[name].files if name in DATASETS else _IMAGENET_FILES
    command = f"run `smoothcert data get {name}`, or " if name in DOWNLOADABLE else ""
    return f"{name} is not in {root}: {command}put {files.format(root=root, folder=root / name)}."


def _load_folder(
    name: str, folder: Path, split: str, resize: int | None, crop: int | None, skip_broken: bool
) -> ImageData:
    normalization = IMAGENET_NORMALIZATION if name == "imagenet" else ()
    return ImageData(name, split, *read_folder(folder, resize, crop, skip_broken=skip_broken), *normalization)


def find_imagenet(root: Path, split: str) -> Path | None:
    """Return the folder of an ImageNet split below `root`, or None."""
    return next(filter(None, (_split_folder(root / place, split) for place in _IMAGENET_PLACES)), None)


def _split_folder(root: Path, split: str) -> Path | None:
    names = ("train",) if split == "train" else ("test", "val", "validation")
    return next((root / name for name in names if (root / name).is_dir()), None)
