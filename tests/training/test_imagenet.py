"""Training on ImageNet: photographs of all kinds, random crops per step, packed soft labels, and the recipe."""

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import smoothcert
from smoothcert.cli import main
from smoothcert.data.crops import DRAWS, random_box
from smoothcert.data.readers.folder import view_draws
from smoothcert.data.user_data import DatasetImages
from smoothcert.distributed.ranks import BatchShare, Ranks
from smoothcert.errors import SmoothcertError
from smoothcert.training.batches import ResidentData
from smoothcert.training.config import TrainConfig
from smoothcert.training.packed_labels import MOST_CLASSES, PackedLabels, pack_labels
from smoothcert.training.run_data import RunImages, load_images
from smoothcert.training.streaming import StreamedData, choose_source, usual_workers

CPU = torch.device("cpu")


@pytest.fixture
def photographs(tmp_path):
    """Two classes of four files: color, grayscale, CMYK and a palette, of several sizes."""
    generator = np.random.default_rng(0)
    for wnid in ("n01", "n02"):
        for split in ("train", "val"):
            (tmp_path / "imagenet" / split / wnid).mkdir(parents=True)
            for number, mode in enumerate(("RGB", "L", "CMYK", "P")):
                pixels = generator.integers(256, size=(40 + 9 * number, 70 - 8 * number, 3), dtype=np.uint8)
                suffix = "png" if mode == "P" else "JPEG"
                image = Image.fromarray(pixels).convert(mode)
                image.save(tmp_path / "imagenet" / split / wnid / f"{number}.{suffix}")
    return tmp_path


def load(folder, split="train", **more):
    return smoothcert.load_dataset("imagenet", split, folder, resize=36, crop=32, **more)


def test_random_crops_follow_the_usual_rule():
    boxes = [random_box(500, 375, row.tolist()) for row in view_draws(0, 0, torch.arange(2000))]
    areas, ratios = [], []
    for left, top, width, height in boxes:
        assert 0 <= left <= 500 - width
        assert 0 <= top <= 375 - height
        areas.append(width * height / (500 * 375))
        ratios.append(width / height)
    assert min(areas) == pytest.approx(0.08, abs=0.01)
    assert max(areas) > 0.95
    generator = np.random.default_rng(1)
    area, ratio = generator.uniform(0.08, 1, 20_000), np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3), 20_000))
    fits = (np.sqrt(area * 500 * 375 * ratio) <= 500) & (np.sqrt(area * 500 * 375 / ratio) <= 375)
    assert float(np.mean(areas)) == pytest.approx(float(area[fits].mean()), abs=0.02)
    assert min(ratios) == pytest.approx(3 / 4, abs=0.02)
    assert max(ratios) == pytest.approx(4 / 3, abs=0.02)
    assert random_box(1000, 10, [1.0] * DRAWS) == (493, 0, 13, 10), "nothing fits: the center, as wide as allowed"


def schedule(parts, size=6):
    for step in range(3):
        for part in parts:
            yield step, part, (torch.arange(size) + step)[part.first : part.first + part.size] % 8


def test_views_are_named_by_seed_step_and_position_not_by_rank_or_worker(photographs):
    data, soft = load(photographs), torch.softmax(torch.randn(8, 2), dim=1)

    def read(parts, workers, seed=3):
        source = StreamedData(data, CPU, "resized-crop-flip", soft, seed=seed, workers=workers)
        return [source.batch(inputs, seed, 0) for inputs in source.stream(schedule(parts))]

    whole = read([BatchShare(0, 6, 6)], 0)
    shared = read([Ranks(rank, 2).share_of(6) for rank in (0, 1)], 2)
    for step, (x, y, labels) in enumerate(whole):
        halves = shared[2 * step : 2 * step + 2]
        assert torch.equal(torch.cat([half[0] for half in halves]), x)
        assert torch.equal(torch.cat([half[1] for half in halves]), y)
        assert torch.equal(torch.cat([half[2] for half in halves]), labels)
        assert torch.equal(y, data.labels[(torch.arange(6) + step) % 8])
    assert x.shape == (6, 3, 32, 32)
    assert not torch.equal(read([BatchShare(0, 6, 6)], 0, seed=4)[0][0], whole[0][0])
    assert not torch.equal(whole[0][0][1], whole[1][0][0]), "another view of the same image"


def test_photographs_of_every_kind_become_rgb(photographs):
    pixels = load(photographs).images[torch.arange(8)].float()
    gray = (pixels[:, 0] == pixels[:, 1]).flatten(1).all(dim=1)
    assert gray.tolist() == [False, True, False, False] * 2
    with Image.open(photographs / "imagenet/train/n01/2.JPEG") as file:
        assert file.mode == "CMYK"
        colors = np.array(file.convert("RGB")).reshape(-1, 3).mean(axis=0)
    assert pixels[2].mean(dim=(1, 2)).tolist() == pytest.approx(colors.tolist(), abs=12)


def test_random_views_are_mirrored_half_of_the_time(photographs):
    images, draws = load(photographs).images, torch.full((1, DRAWS), 0.5)
    straight, _ = images.views([0], draws)
    draws[0, -1] = 0.4
    mirrored, _ = images.views([0], draws)
    assert torch.equal(mirrored, straight.flip(3))
    assert not torch.equal(mirrored, straight)


def test_resize_and_crop_change_the_fingerprint(photographs):
    cuts = ((36, 32), (40, 32), (36, 24))
    hashes = {smoothcert.load_dataset("imagenet", "test", photographs, resize=r, crop=c).fingerprint for r, c in cuts}
    assert len(hashes) == 3


def test_processes_of_one_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(24)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert usual_workers() == 16, "more would not read faster"
    for processes, workers in ((4, 6), (24, 1), (48, 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert usual_workers() == workers


def test_choice_of_the_batch_source(photographs, few, monkeypatch):
    assert isinstance(choose_source(few, CPU, "crop-flip"), ResidentData)
    assert isinstance(choose_source(load(photographs), CPU, "none"), ResidentData)
    assert isinstance(choose_source(load(photographs), CPU, "resized-crop-flip"), StreamedData)
    monkeypatch.setattr("smoothcert.training.streaming._MOST_RESIDENT", 3 * 10 * 6)  # bytes
    for dtype, kind in ((torch.uint8, ResidentData), (torch.float32, StreamedData)):
        on_demand = DatasetImages([(torch.ones(6, dtype=dtype), 0)] * 10, torch.Size((10, 6)))
        data = smoothcert.ImageData("mine", "train", on_demand, torch.zeros(10, dtype=torch.long))
        assert isinstance(choose_source(data, CPU, "none"), kind), "float32 takes four bytes per value"


def test_a_broken_file_is_named_and_skipped_only_when_asked(photographs):
    broken = photographs / "imagenet/train/n01/1.JPEG"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(SmoothcertError, match=r"n01/1.JPEG cannot be decoded"):
        load(photographs).images[torch.tensor([1])]
    data = load(photographs, skip_broken=True)
    source = StreamedData(data, CPU, "resized-crop-flip", None, seed=0, workers=0)
    with pytest.warns(UserWarning, match=r"n01/1.JPEG cannot be decoded .* It is skipped"):
        pixels = data.images[torch.tensor([1])]
    assert torch.equal(pixels, data.images[torch.tensor([2])])
    last = photographs / "imagenet/train/n01/3.png"
    last.write_bytes(b"")
    with pytest.warns(UserWarning, match="3.png"):
        ((_, labels),) = source.stream([(0, BatchShare(0, 2, 2), torch.tensor([3, 0]))])
    assert labels.tolist() == [0, 0], "a class has its own replacements"
    assert torch.equal(data.images[torch.tensor([3])], data.images[torch.tensor([0])])


def test_a_class_without_images_that_can_be_decoded_is_named(photographs):
    for file in (photographs / "imagenet/train/n01").iterdir():
        file.write_bytes(b"")
    with pytest.warns(UserWarning, match="is skipped"), pytest.raises(SmoothcertError, match="None of the 4 images of"):
        load(photographs, skip_broken=True).images[torch.tensor([2])]


def test_no_test_image_is_skipped(photographs):
    """A replaced test image would get a certificate under the wrong index."""
    for split in ("train", "val"):
        (photographs / "imagenet" / split / "n01/0.JPEG").write_bytes(b"")
    config = TrainConfig(dataset="imagenet", resize=36, crop=32, skip_broken=True)
    with pytest.warns(UserWarning, match="train/n01/0.JPEG .* It is skipped"):
        load_images(config, "train", photographs).images[torch.tensor([0])]
    with pytest.raises(SmoothcertError, match="val/n01/0.JPEG cannot be decoded"):
        load_images(config, "test", photographs).images[torch.tensor([0])]


def test_runs_share_images_with_the_same_preprocessing(photographs):
    sets = RunImages(photographs)
    first, *others = (sets.of(TrainConfig(dataset="imagenet", resize=36, crop=crop)) for crop in (32, 32, 24))
    assert others[0][0] is first[0]
    assert others[1][0].shape == (3, 24, 24)


def test_classes_of_training_and_test_images_are_the_same(photographs):
    (photographs / "imagenet/val/n02").rename(photographs / "imagenet/val/n03")
    with pytest.raises(SmoothcertError, match="training images have a class n02, but the test images do not"):
        RunImages(photographs).of(TrainConfig(dataset="imagenet"))


@pytest.mark.parametrize("samples", [500, 100_000])
def test_packed_labels_are_the_votes(samples, tmp_path):
    generator = np.random.default_rng(0)
    votes = np.stack([generator.multinomial(samples, p) for p in generator.dirichlet(np.full(400, 0.05), size=30)])
    lines = ["idx\tcounts\n"]
    for number, row in enumerate(votes):
        present = sorted(np.flatnonzero(row), key=lambda label: -row[label])
        lines.append(f"{number}\t{' '.join(f'{label}:{row[label]}' for label in present)}\n")
    (tmp_path / "counts.tsv").write_text("".join(lines))
    pack_labels(tmp_path / "counts.tsv", 30, tmp_path / "labels.safetensors")
    labels = PackedLabels(tmp_path / "labels.safetensors", 400)
    assert len(labels) == 30
    torch.testing.assert_close(labels.dense(), torch.from_numpy(votes / samples).float())
    assert torch.equal(labels[torch.tensor([7, 2])], labels.dense()[[7, 2]])
    assert torch.equal(pickle.loads(pickle.dumps(labels)).dense(), labels.dense()), "in a worker process"
    (tmp_path / "labels.safetensors").write_bytes(b"12345678{")
    with pytest.raises(SmoothcertError, match="damaged, delete it to regenerate it"):
        PackedLabels(tmp_path / "labels.safetensors", 400)


def test_packed_labels_of_imagenet_fit_into_a_gigabyte_and_a_half(tmp_path):
    """A row with votes for all 1,000 classes keeps 272, which bounds the bytes per image."""
    row = " ".join(f"{label}:{2000 - label}" for label in range(1000))
    (tmp_path / "counts.tsv").write_text("idx\tcounts\n" + "".join(f"{n}\t{row}\n" for n in range(50)))
    pack_labels(tmp_path / "counts.tsv", 50, tmp_path / "labels.safetensors")
    labels = PackedLabels(tmp_path / "labels.safetensors", 1000)
    assert torch.allclose(labels.dense().sum(dim=1), torch.ones(50))
    assert int((labels.dense()[0] > 0).sum()) == MOST_CLASSES
    assert (tmp_path / "labels.safetensors").stat().st_size / 50 * 1_281_167 < 1.5e9


@pytest.mark.parametrize("place", ["imagenet", "ILSVRC/Data/CLS-LOC", "ILSVRC2012", "."])
def test_folders_as_users_have_them(photographs, place, tmp_path):
    target = tmp_path / "elsewhere" / place
    target.parent.mkdir(parents=True, exist_ok=True)
    (photographs / "imagenet").rename(target)
    assert len(load(tmp_path / "elsewhere", "test")) == 8


@pytest.mark.slow
def test_full_size_photographs_decode(sample_data, tmp_path):
    """All 40, center crops and random crops."""
    (tmp_path / "imagenet").mkdir()
    for split in ("train", "val"):
        (tmp_path / "imagenet" / split).symlink_to(sample_data / "imagenet-sample")
    data = smoothcert.load_dataset("imagenet", "train", tmp_path)
    source = StreamedData(data, CPU, "resized-crop-flip", None, seed=0, workers=1)
    batches = list(source.stream([(0, BatchShare(0, 40, 40), torch.arange(40))]))
    assert batches[0][0].shape == (40, 3, 224, 224)
    assert batches[0][0].float().std(dim=(1, 2, 3)).min() > 5
    assert data.images[torch.arange(40)].shape == (40, 3, 224, 224)


@pytest.mark.slow
def test_the_recipe_trains_and_certifies_end_to_end(sample_data, tmp_path, capsys):
    """The CAT-RS recipe with ResNet-50 on real photographs of 64x64 pixels, from the teacher to the certificates."""
    for split, most in (("train", 3), ("val", 5)):
        for wnid in sorted((sample_data / "tiny-imagenet-sample" / split).iterdir()):
            (tmp_path / "imagenet" / split / wnid.name).mkdir(parents=True)
            for image in sorted(wnid.iterdir())[:most]:
                (tmp_path / "imagenet" / split / wnid.name / image.name).symlink_to(image)
    cut = ["--resize", "64", "--crop", "64", "--workers", "1", "--data-dir", str(tmp_path)]
    small = ["--epochs", "2", "--late-epoch", "1", "--batch", "30", "--label-samples", "3", "--learning-rate", "0.01"]
    runs = tmp_path / "runs"
    assert main(["train", "imagenet-catrs-1.00", *cut, *small, "--runs", str(runs), "--json"]) == 0
    last = json.loads(capsys.readouterr().out)
    assert last["epoch"] == 1
    assert last["high"] >= 0
    checkpoint = smoothcert.load_checkpoint(runs / "imagenet-catrs-1.00")
    assert (checkpoint.model.architecture, checkpoint.model.num_classes) == ("resnet50", 10)
    run = str(runs / "imagenet-catrs-1.00")
    assert main(["certify", run, "--n", "30", "--n0", "10", "--skip", "10", "--data-dir", str(tmp_path), "--json"]) == 0
    results = smoothcert.read_results(next((runs / "imagenet-catrs-1.00").glob("certify-*skip10.tsv")))
    assert results.idx.tolist() == [0, 10, 20, 30, 40]
    assert len(list(runs.glob("imagenet-resnet50-teacher-*/soft-labels-*.safetensors"))) == 1
