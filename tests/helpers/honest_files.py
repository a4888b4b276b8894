"""Small honest files of every kind that smoothcert reads, and the calls that read them."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import smoothcert
from smoothcert.cli import main
from smoothcert.data.download import unpack_arrays
from smoothcert.stopping import TableStop
from smoothcert.training.packed_labels import PackedLabels
from smoothcert.training.recipes import load_recipe
from smoothcert.training.run_folder import RunFolder


@dataclass(frozen=True)
class Kind:
    """Files by name, the calls that read them from a folder, and the files that are damaged, by default all."""

    files: dict[str, bytes]
    calls: tuple
    damage: tuple[str, ...] = field(default=())

    @property
    def targets(self):
        return self.damage or tuple(self.files)

    @property
    def size(self):
        return sum(map(len, self.files.values()))


def command(*arguments):
    """Return a call that runs a command; `{}` stands for the folder."""
    return lambda folder: main([argument.replace("{}", str(folder)) for argument in arguments])


def read_state(folder):
    RunFolder(folder).load_state()


def read_labels(folder):
    labels = PackedLabels(folder / "labels.safetensors", 10)
    labels.dense()


def make_kinds(folder):
    """Return the kinds by name."""
    rng = np.random.default_rng(0)
    mini = smoothcert.load_dataset("mnist-mini", "test").subset(range(6))
    model = smoothcert.load_pretrained("mnist-catrs-0.50").model
    certified = certify(folder / "certified", mini, model)
    kinds = dict(results_kinds(certified))
    images, labels = mini.images[:, 0].numpy(), mini.labels.numpy()
    np.savez(
        folder / "set.npz", train_images=images, train_labels=labels, test_images=images[:5], test_labels=labels[:5]
    )
    np.savez_compressed(folder / "packed.npz", x=images, y=labels, classes=np.array(list("abcdefghij")))
    for name in ("set.npz", "packed.npz"):
        load = lambda folder, name=name: smoothcert.load_dataset(str(folder / name))  # noqa: E731
        kinds[name] = Kind({name: (folder / name).read_bytes()}, (load, command("data", "show", f"{{}}/{name}")))
    kinds |= dataset_kinds(rng, images, labels)
    kinds |= run_kinds(folder)
    smoothcert.save_checkpoint(folder / "model.safetensors", smoothcert.create_model("lenet"), sigma=0.5, epoch=3)
    smoothcert.export_checkpoint(smoothcert.load_checkpoint(folder / "model.safetensors"), folder / "old.pth.tar")
    torch.save(
        {"epoch": 3, "state_dict": smoothcert.create_model("lenet").network.state_dict()},
        folder / "legacy.pth",
        _use_new_zipfile_serialization=False,
    )
    for name in ("model.safetensors", "old.pth.tar", "legacy.pth"):
        load = lambda folder, name=name: smoothcert.load_checkpoint(folder / name)  # noqa: E731
        kinds[name] = Kind({name: (folder / name).read_bytes()}, (load,))
    recipe = Path(smoothcert.__file__).parent / "training/recipe_files/mnist/mnist-catrs-0.50.toml"
    text = recipe.read_bytes()
    kinds["recipe"] = Kind({"recipe.toml": text}, (lambda folder: load_recipe(str(folder / "recipe.toml")),))
    return kinds


def certify(folder, data, model):
    """Certify a few images, with a fixed number of samples and in sequence."""
    folder.mkdir()
    smoothed = smoothcert.SmoothedClassifier(model, sigma=0.5, num_classes=10)
    smoothcert.certify_dataset(smoothed, data, folder / "certify-fixed.tsv", n0=20, n=100)
    smoothcert.certify_dataset(smoothed, data, folder / "certify-table.tsv", n0=20, n=300, stop=TableStop())
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def results_kinds(files):
    fixed = {name: content for name, content in files.items() if "fixed" in name}
    table = {name: content for name, content in files.items() if "table" in name}
    outputs = ("--out", "{}/report.md", "--out", "{}/report.tex", "--json")
    for name, group in (("fixed", fixed), ("table", table)):
        file = f"{{}}/certify-{name}.tsv"
        yield (
            name,
            Kind(
                group,
                (
                    command("report", file, *outputs),
                    command("report", "{}", "--unverified"),
                    command("recertify", file, "--alpha", "0.01", "--out", "{}/again.tsv"),
                    command("recertify", file, "--bound", "two-sided", "--out", "{}/again.tsv", "--unverified"),
                    command("merge", file, "--out", "{}/joined.tsv"),
                    lambda folder, name=name: smoothcert.read_counts(folder / f"certify-{name}.tsv", 10),
                ),
            ),
        )
    packed = {name if name.endswith(".json") else f"{name}.gz": content for name, content in fixed.items()}
    packed |= {name: gzip.compress(content) for name, content in packed.items() if name.endswith(".gz")}
    yield "gzipped", Kind(packed, (command("report", "{}/certify-fixed.tsv.gz"), command("report", "{}")))


def dataset_kinds(rng, images, labels):
    raw = bytes((0, 0, 8, 3)) + b"".join(size.to_bytes(4, "big") for size in images.shape) + images.tobytes()
    named = bytes((0, 0, 8, 1)) + len(labels).to_bytes(4, "big") + labels.astype(np.uint8).tobytes()
    plain = {"mnist/t10k-images-idx3-ubyte": raw, "mnist/t10k-labels-idx1-ubyte": named}
    packed = {f"{name}.gz": gzip.compress(content) for name, content in plain.items()}
    mnist = lambda folder: smoothcert.load_dataset("mnist", "test", folder)  # noqa: E731
    yield_ = {"idx": Kind(plain, (mnist,)), "idx.gz": Kind(packed, (mnist,))}
    color = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = pickle.dumps({b"data": color, b"labels": [1, 2, 3, 4]}, protocol=2)
    cifar = lambda folder: smoothcert.load_dataset("cifar10", "test", folder)  # noqa: E731
    rows = b"".join(bytes([label]) + row.tobytes() for label, row in enumerate(color))
    yield_["cifar"] = Kind({"cifar-10-batches-py/test_batch": batch}, (cifar,))
    yield_["cifar.bin"] = Kind({"cifar-10-batches-bin/test_batch.bin": rows}, (cifar,))
    yield_["cifar.tar.gz"] = Kind({"cifar-10-python.tar.gz": gzip.compress(_tar(test_batch=batch))}, (cifar,))
    about = json.dumps({"made_from": {"name": "mnist", "split": "test", "sha256": "0"}, "classes": list("0123456789")})
    corrupted = {"set-c/fog.npy": _npy(images), "set-c/labels.npy": _npy(labels), "set-c/about.json": about.encode()}
    fog = lambda folder: smoothcert.load_dataset(f"{folder}/set-c/fog", "test")  # noqa: E731
    show = command("data", "show", "{}/set-c/fog")
    yield_["corrupted"] = Kind(corrupted, (fog, show))
    for suffix in ("png", "jpg", "bmp", "tiff", "webp", "ppm"):
        stream = io.BytesIO()
        Image.fromarray(np.repeat(images[0][..., None], 3, axis=2)).save(stream, {"jpg": "jpeg"}.get(suffix, suffix))
        folder_of_images = lambda folder: smoothcert.load_dataset(str(folder / "set")).floats([0])  # noqa: E731
        yield_[suffix] = Kind({f"set/a/one.{suffix}": stream.getvalue()}, (folder_of_images,))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("mnist_c/fog/test_images.npy", _npy(images))
    unpack = lambda suffix: lambda folder: unpack_arrays(folder / f"mnist_c{suffix}", folder / "mnist_c")  # noqa: E731
    yield_["zip"] = Kind({"mnist_c.zip": archive.getvalue()}, (unpack(".zip"),))
    yield_["tar"] = Kind({"mnist_c.tar": _tar(**{"fog.npy": _npy(images)})}, (unpack(".tar"),))
    return yield_


def run_kinds(folder):
    config = smoothcert.TrainConfig(
        name="run", dataset=str(folder / "set.npz"), epochs=1, batch=4, method="consistency", options={"weight": 2.0}
    )
    smoothcert.train_run(config, folder / "runs")
    run = folder / "runs/run"
    model = smoothcert.load_checkpoint(run).model
    state = {f"model.{name}": value for name, value in model.state_dict().items()} | {"sum.loss": torch.tensor(1.0)}
    RunFolder(run).save_state(state, 3)
    RunFolder(run).save_state(state, 4)
    data = smoothcert.load_dataset("mnist-mini", "test").subset(range(2))
    smoothed = smoothcert.SmoothedClassifier(smoothcert.load_pretrained("mnist-catrs-0.50").model, 0.5, num_classes=10)
    smoothcert.certify_dataset(smoothed, data, run / "certify-a.tsv", n0=20, n=100)
    (run / "note.md").write_text("A note.")
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != ".lock"}
    train = partial(smoothcert.train_run, config)
    damage = ("config.toml", "metrics.jsonl", "segments.json", "note.md")
    report = Kind(files, (command("report", "{}"), lambda place: train(place.parent / "other")), damage)
    states = {name: content for name, content in files.items() if name.startswith("state")}
    offsets, votes = np.arange(4), np.array([5, 6, 7], dtype=np.uint16)
    from safetensors.numpy import save

    labels = save({"offsets": offsets, "classes": np.array([1, 2, 3], dtype=np.uint16), "votes": votes})
    return {
        "run": report,
        "state": Kind(states, (read_state,)),
        "soft labels": Kind({"labels.safetensors": labels}, (read_labels,)),
    }


def _npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _tar(**members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"mnist_c/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()
