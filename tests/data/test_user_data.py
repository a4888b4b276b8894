"""Users' own data: every accepted kind gives the same rows, and wrong kinds one clear sentence."""

import functools

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import smoothcert
from smoothcert.data.user_data import as_image_data
from smoothcert.dataset_names import REGISTERED
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.report.tables.entries import describe

PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (7, 3, 8, 8), dtype=np.uint8))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 2])


class Pairs(Dataset):
    """A map-style dataset; `convert` turns each stored image into the item's input."""

    def __init__(self, convert=lambda x: x, labels=LABELS):
        self.convert, self.labels = convert, labels

    def __len__(self):
        return len(PIXELS)

    def __getitem__(self, place):
        return self.convert(PIXELS[place]), self.labels[place]


class WithTargets(Pairs):
    """A dataset that states its labels, as those of torchvision do, and counts its reads."""

    targets = LABELS.tolist()
    reads = 0

    def __getitem__(self, place):
        self.reads += 1
        return super().__getitem__(place)


def picture(x):
    return Image.fromarray(x.permute(1, 2, 0).numpy())


KINDS = {
    "tensors": (PIXELS, LABELS),
    "arrays": (PIXELS.numpy(), LABELS.numpy()),
    "lists of labels": [PIXELS, LABELS.tolist()],
    "floats": (PIXELS.float() / 255, LABELS),
    "double": (PIXELS.float().numpy() / np.float32(255), LABELS.to(torch.int32)),
    "TensorDataset": TensorDataset(PIXELS, LABELS),
    "dataset": Pairs(),
    "dataset of floats": Pairs(lambda x: x.float() / 255),
    "dataset of pictures": Pairs(picture),
    "dataset with targets": WithTargets(),
    "subset": Subset(Pairs(), range(7)),
    "loader": DataLoader(Pairs(lambda x: x.float() / 255), batch_size=3),
    "ImageData": smoothcert.ImageData("mine", "test", PIXELS, LABELS),
}


def model(x):
    """Return scores of three classes that depend on the channels' means."""
    return 9 * x.mean((2, 3))


class FirstValue(torch.nn.Module):
    """Votes for class 0 if the first value is positive."""

    def forward(self, x):
        return torch.cat([x[:, :1], -x[:, :1]], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_has_the_same_certificates(kind, tmp_path):
    data = as_image_data(KINDS[kind])
    assert len(data) == 7
    assert torch.equal(data.floats(range(7)), PIXELS.float() / 255)
    assert torch.equal(data.labels, LABELS)
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 3)
    expected = smoothed.certify(PIXELS.float() / 255, n0=10, n=50, index=range(7))
    records = smoothcert.certify_dataset(smoothed, KINDS[kind], tmp_path / "a.tsv", n0=10, n=50)
    assert [record.estimation for record in records] == expected.counts.tolist()
    assert [record.label for record in records] == LABELS.tolist()
    again = smoothcert.certify_dataset(smoothed, KINDS[kind], tmp_path / "a.tsv", n0=10, n=50)
    assert [record.estimation for record in again] == expected.counts.tolist()
    assert len(smoothcert.predict_dataset(smoothed, KINDS[kind], n=20)) == 7


def test_a_dataset_with_targets_is_read_on_demand():
    dataset = WithTargets()
    data = as_image_data(dataset)
    before = dataset.reads
    data.floats([3])
    assert before <= 3
    assert dataset.reads == before + 1


def test_transformed_targets_are_the_labels():
    dataset = WithTargets()
    dataset.target_transform = lambda label: 2 - label
    dataset.labels = dataset.target_transform(LABELS)  # torchvision transforms each item, and keeps `targets`
    assert as_image_data(dataset).labels.tolist() == (2 - LABELS).tolist()


def test_vectors_get_files_resume_and_report(tmp_path):
    x, y = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32), np.arange(20) % 2
    smoothed = smoothcert.SmoothedClassifier(FirstValue(), 0.5, 2)
    out = tmp_path / "vectors.tsv"

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smoothcert.certify_dataset(smoothed, (x, y), out, n0=10, n=100, indices=range(10), on_progress=interrupt)
    records = smoothcert.certify_dataset(smoothed, (x, y), out, n0=10, n=100, indices=range(10))
    whole = smoothcert.certify_dataset(smoothed, (x, y), n0=10, n=100, indices=range(10))
    assert [(r.idx, r.radius, r.estimation) for r in records] == [(r.idx, r.radius, r.estimation) for r in whole]
    results = smoothcert.read_results(out)
    acr = smoothcert.metrics.average_certified_radius(results)
    assert acr == smoothcert.metrics.average_certified_radius(records) > 0
    assert smoothcert.metrics.certified_accuracy(results, at=[0.0, 99.0])[1] == 0
    frame = smoothcert.to_frame(records)
    assert frame.loc[frame.correct, "radius"].sum() / len(frame) == pytest.approx(acr)
    assert smoothcert.to_frame(results)["radius"].tolist() == results.radius.tolist()
    entry = describe(results)
    assert (entry.title, entry.method) == ("FirstValue", "FirstValue"), "reports name a user's model"
    with pytest.raises(UsageError, match="different settings.*data.sha256"):
        smoothcert.certify_dataset(smoothed, (x + 1, y), out, n0=10, n=100, indices=range(10))


def test_float_archives_load(tmp_path):
    np.savez(tmp_path / "vectors.npz", x=np.ones((4, 5)), y=np.array([0, 1, 1, 0]))
    data = smoothcert.load_dataset(str(tmp_path / "vectors.npz"))
    assert data.shape == (5,)
    assert data[1][0].tolist() == [1.0] * 5
    assert data[1:3].labels.tolist() == [1, 1]
    assert [label for _, label in data] == [0, 1, 1, 0]
    with pytest.raises(IndexError):
        data[4]


class Endless(IterableDataset):
    def __iter__(self):
        yield PIXELS[0], 0


class Empty(Dataset):
    def __len__(self):
        return 0

    def __getitem__(self, place):
        raise IndexError


class Unlabeled(Pairs):
    def __getitem__(self, place):
        return PIXELS[place]


def augmented(x):
    return (x.float() / 255 + torch.rand(())).clamp(0, 1)


def ragged(x):
    return x[:, : 4 + int(x[0, 0, 0]) % 4]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((PIXELS, LABELS[:5]), "7 inputs and 5 labels"),
        ((PIXELS, LABELS.float()), "labels to be integers, one per input"),
        ((PIXELS, LABELS - 1), "label -1"),
        ((PIXELS.long(), LABELS), "uint8 or floats"),
        ((PIXELS, torch.eye(7)), "labels to be integers, one per input"),
        (("images", LABELS), "tensors or arrays"),
        (Endless(), "IterableDataset"),
        (Empty(), "empty"),
        (Unlabeled(), "pair \\(input, label\\), but got a Tensor"),
        (DataLoader(Unlabeled(), batch_size=2), "pairs \\(inputs, labels\\)"),
        (DataLoader(Pairs(), shuffle=True), "shuffle=False"),
        (Pairs(augmented), "random transforms"),
        (Pairs(ragged), "the same shape"),
        (PIXELS, "pairs, but got a Tensor"),
        ("mnist", "`data` to be a dataset from `load_dataset`.*but got a str"),
        (3, "but got an int"),
    ],
)
def test_wrong_data_is_one_sentence(data, message):
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 3)
    with pytest.raises(SmoothcertError, match=message) as caught:
        smoothcert.certify_dataset(smoothed, data, n=20)
    assert "\n" not in str(caught.value)


def test_floats_outside_the_range_are_refused():
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 3)
    with pytest.raises(UsageError, match="span"):
        smoothcert.certify_dataset(smoothed, (PIXELS.float(), LABELS), n=20)


def test_a_loader_may_be_any_callable():
    loader = functools.partial(lambda split, count: (PIXELS[:count], LABELS[:count]), count=3)
    try:
        for _ in range(2):  # as when a plugin is loaded twice
            assert smoothcert.register_dataset("few", loader) is loader
        assert len(smoothcert.load_dataset("few", "train")) == 3
        with pytest.raises(UsageError, match="There is already a dataset 'few'"):
            smoothcert.register_dataset("few", functools.partial(loader))
    finally:
        del REGISTERED["few"]
