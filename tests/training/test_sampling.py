"""Discard and reweight: against brute force, resumed in every phase, with streamed data, and clear errors."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy import special
from training_child import SAMPLED, configure, train

import smoothcert
from smoothcert.distributed.ranks import Ranks
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.philox import Purpose, long_words, normal, permutation
from smoothcert.runtime.deadline import OutOfTimeError
from smoothcert.training.batches import AUGMENTATIONS, ResidentData
from smoothcert.training.config import TrainConfig, read_config, to_toml
from smoothcert.training.discard_file import read_shares
from smoothcert.training.fit import fit
from smoothcert.training.image_votes import count_correct
from smoothcert.training.passes import mean_passes, relative_cost
from smoothcert.training.run_folder import RunFolder
from smoothcert.training.sampling import ImageSampler, draw_images, radius_weights
from smoothcert.training.setup import setup_run
from smoothcert.training.teachers import teacher_config

KEPT = "sampling.weights"


def same(first, second):
    a, b = load_file(first), load_file(second)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def take_steps(config, folder, data, count):
    """Train for a number of steps, each in a run of its own that is then resumed."""
    for _ in range(count):
        with pytest.raises(OutOfTimeError):
            train(config, folder, data, time_limit=0.0)


def test_weights_are_the_radii_of_the_paper():
    assert radius_weights(np.arange(12, 17), 16) == pytest.approx(
        [0.15370, 0.32862, 0.52565, 0.76488, 1.10751], abs=1e-5
    )
    for samples in (16, 17, 19, 50, 100):
        found = radius_weights(np.arange(samples + 1), samples)
        k = np.array([math.floor(samples * min(max(c / samples + 1e-12, 0.75), 1)) for c in range(samples + 1)])
        assert found == pytest.approx(special.ndtri(special.betaincinv(k, samples + 1 - k, 0.1)), abs=1e-9)
        assert found.min() > 0, "an image that is kept is drawn"


def test_draws_follow_the_weights_and_their_address():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 2.0, 0.0] * 5000, dtype=torch.float64)
    drawn = draw_images(weights, seed=3, epoch=7)
    assert drawn.shape == weights.shape
    share = torch.bincount(drawn % 6, minlength=6) / len(drawn)
    assert share.tolist() == pytest.approx([0, 1 / 6, 3 / 6, 0, 2 / 6, 0], abs=0.01)
    words = long_words(3, (7, 1, Purpose.ORDER), len(weights))
    ends = np.cumsum(weights.numpy())
    for position in (0, 1, 1234, 29_999):  # one by one, in exact integers
        target = int(words[position]) / 2**60 * ends[-1]
        assert int(drawn[position]) == int(np.argmax(ends > target))
    assert not torch.equal(draw_images(weights, 3, 8), drawn)
    assert not torch.equal(draw_images(weights, 4, 7), drawn)
    only = torch.zeros(9, dtype=torch.float64)
    only[8] = 1e-9
    assert draw_images(only, 0, 0).tolist() == [8] * 9


def brute_force_shares(model, data, config, epoch, samples, view):
    """The share of correct votes of each image: one image and one noise sample at a time."""
    shares = []
    with torch.no_grad():
        for index in range(len(data)):
            x = data.images[index : index + 1]
            if config.augmentation != "none":
                x = AUGMENTATIONS[config.augmentation](x, config.seed, view, index)
            right = 0
            for sample in samples:
                noise = normal(config.seed, (sample, index, Purpose.SAMPLING + epoch), x[0].numel()).view(x.shape)
                right += int(model(x.float() / 255 + config.sigma * noise).argmax()) == int(data.labels[index])
            shares.append(right / len(samples))
    return np.array(shares)


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_choices_equal_brute_force(few, tmp_path, augmentation, monkeypatch):
    """The kept images, their weights and the images of every epoch, in a run that is resumed before every step."""
    monkeypatch.setattr("smoothcert.training.image_votes._IMAGES", 7)
    config = configure("first-failure", epochs=6, augmentation=augmentation, **SAMPLED)
    data, run, drawn = few.subset(range(30)), RunFolder(tmp_path / "run"), []
    stream = ResidentData.stream
    monkeypatch.setattr(
        ResidentData, "stream", lambda self, steps: (drawn.append(i[0].tolist()) or i for i in stream(self, steps))
    )
    expected, epoch_steps, orders = None, 2, []
    for step in range(epoch_steps * config.epochs - 1):
        epoch, number = divmod(step, epoch_steps)
        if number == 0 and config.chooses_images_at(epoch):
            model = smoothcert.create_model("lenet")
            tensors, saved = run.load_state()
            assert saved == step
            model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")})
            view = 0xFFFFFFFE - 2 * epoch
            if epoch == 2:
                shares = brute_force_shares(model.eval(), data, config, epoch, range(20), view)
                kept = shares >= 0.15
                assert 3 < kept.sum() < 27, "some are discarded"
            counts = 16 * brute_force_shares(model.eval(), data, config, epoch, range(20, 36), view - 1)
            k = np.clip(counts, 12, 16)
            expected = kept * special.ndtri(special.betaincinv(k, 17 - k, 0.1))
        drawn.clear()
        take_steps(config, run.path, data, 1)
        weights = run.load_state()[0].get(KEPT)
        assert (weights is None) == (epoch < 2)
        if weights is not None:
            assert weights.numpy() == pytest.approx(expected, abs=1e-12)
        orders += [drawn[-1]]
    monkeypatch.undo()
    for epoch in range(config.epochs - 1):
        order = orders[2 * epoch] + orders[2 * epoch + 1]
        if epoch < 2:
            assert order == permutation(0, (epoch, 0, Purpose.ORDER), 30).tolist()
        else:
            assert len(order) == 30
            assert kept[order].all()
            assert len(set(order)) < 30, "with replacement"
    train(config, run.path, data)
    train(config, tmp_path / "whole", data)
    assert same(run.model, tmp_path / "whole/model.safetensors"), "resumed in the middle of every phase"
    kept_images = [row.get("kept_images") for row in run.read_metrics()]
    assert kept_images == [None, None] + [int(kept.sum())] * 4


def test_votes_that_choose_images_show_their_progress(few, tmp_path, monkeypatch):
    monkeypatch.setattr("smoothcert.training.image_votes._IMAGES", 7)
    config, seen = configure("gaussian", epochs=3, **SAMPLED), []
    train(config, tmp_path / "run", few.subset(range(30)), on_progress=seen.append)
    votes = [(progress.step, progress.epoch, progress.votes) for progress in seen if progress.votes]
    assert votes[:5] == [(2, 2, (done, 30)) for done in (0, 7, 14, 21, 28)], "to discard"
    assert votes[5][2][0] == 0, "then to reweight"
    assert all(math.isnan(progress.loss) is bool(progress.votes) for progress in seen)


def test_a_state_without_its_weights_is_refused(few, tmp_path):
    """Otherwise the run would be shuffled again, as if no images had been chosen."""
    config, folder = configure("gaussian", epochs=4, **SAMPLED), RunFolder(tmp_path / "run")
    take_steps(config, folder.path, few.subset(range(30)), 3)
    tensors, step = folder.load_state()
    assert step == 3
    folder.save_state({name: value for name, value in tensors.items() if name != KEPT}, step)
    before = folder.state.read_bytes()
    with pytest.raises(SmoothcertError, match="does not have a weight for each training image; delete it"):
        train(config, folder.path, few.subset(range(30)))
    assert folder.state.read_bytes() == before
    folder.state.unlink()
    train(config, folder.path, few.subset(range(30)))
    train(config, tmp_path / "whole", few.subset(range(30)))
    assert same(folder.model, tmp_path / "whole/model.safetensors"), "resumed from the state before"


def test_ranks_share_the_votes(few):
    class Unsummed(Ranks):
        def total(self, value):
            return value

    torch.manual_seed(0)
    data, model = few.subset(range(50)), smoothcert.create_model("lenet").train()
    source = ResidentData(data.images, data.labels, None, "crop-flip")
    kept = torch.arange(50) % 3 != 0
    whole = count_correct(model, source, configure("gaussian"), 4, kept, range(5, 12))
    assert model.training
    assert 0 < int(whole.sum()) < 7 * int(kept.sum())
    assert not whole[~kept].any()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smoothcert.training.image_votes._IMAGES", 9)
        parts = [
            count_correct(model, source, configure("gaussian"), 4, kept, range(5, 12), Unsummed(rank, 2))
            for rank in range(2)
        ]
    assert torch.equal(parts[0] + parts[1], whole)
    assert all(part.any() for part in parts)


@pytest.mark.parametrize("method", ["consistency", "catrs"])
def test_any_method_can_discard_and_reweight(method, few, tmp_path):
    config = configure(method, epochs=4, **SAMPLED)
    take_steps(config, tmp_path / "run", few.subset(range(30)), 7)
    path = train(config, tmp_path / "run", few.subset(range(30)))
    assert same(path, train(config, tmp_path / "whole", few.subset(range(30))))
    assert RunFolder(path.parent).read_metrics()[-1]["kept_images"] < 30


def test_replacement_alone_and_a_file_of_shares(few, tmp_path):
    data = few.subset(range(30))
    plain = configure("gaussian", epochs=2, sampling="replacement")
    take_steps(plain, tmp_path / "plain", data, 1)
    assert RunFolder(tmp_path / "plain").load_state()[0][KEPT].tolist() == [1.0] * 30
    shares = torch.linspace(0, 1, 30, dtype=torch.float64).numpy()
    np.save(tmp_path / "shares.npy", shares)
    filed = dataclasses.replace(plain, discard_below=0.5, discard_file=str(tmp_path / "shares.npy"))
    take_steps(filed, tmp_path / "filed", data, 1)
    assert RunFolder(tmp_path / "filed").load_state()[0][KEPT].tolist() == (shares >= 0.5).astype(float).tolist()


@pytest.fixture
def photographs(tmp_path):
    """Two classes of eight small photographs, streamed from files."""
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for wnid in ("n01", "n02"):
            (tmp_path / "imagenet" / split / wnid).mkdir(parents=True)
            for number in range(8):
                pixels = generator.integers(256, size=(40, 44, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "imagenet" / split / wnid / f"{number}.png")
    return tmp_path


def test_streamed_data_is_read_no_further_than_a_choice(photographs, monkeypatch):
    """Worker processes read ahead, but never the images that the network has yet to choose."""
    monkeypatch.setattr("smoothcert.training.image_votes._IMAGES", 5)
    train_data, test = (
        smoothcert.load_dataset("imagenet", split, photographs, resize=36, crop=32) for split in ("train", "test")
    )
    config = configure(
        "gaussian", architecture="cifar_resnet8", epochs=5, batch=8, augmentation="resized-crop-flip",
        **{**SAMPLED, "discard_below": 0.3},
    )  # fmt: skip
    paths = []
    for workers in (0, 2):
        folder = photographs / f"workers{workers}"
        paths.append(fit(config, folder, train_data, test, workers=workers))
        kept = [row.get("kept_images", 16) for row in RunFolder(folder).read_metrics()]
        assert kept[:2] == [16, 16]
        assert kept[4] < 16
    assert same(*paths)


def test_the_text_of_a_configuration_holds_sampling_only_if_it_is_used(tmp_path):
    assert "sampling" not in to_toml(TrainConfig())
    config = configure("catrs", **SAMPLED)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert read_config(tmp_path / "config.toml") == config
    assert teacher_config(config) == teacher_config(configure("catrs")), "they share a teacher"


def test_cost_of_a_run():
    """The published means: 6.6, 9.4 and 7.8 passes per input, and 100 + 9 x 16 votes per image."""
    for sigma, passes in (("0.25", 6.6), ("0.50", 9.4), ("1.00", 7.8)):
        config = smoothcert.load_recipe(f"cifar10-first-failure-{sigma}")
        assert mean_passes(config) == pytest.approx(passes)
        votes = 100 + 16 * len(range(config.sampling_epoch, 150, 10))
        assert relative_cost(config) == pytest.approx((4 * passes + votes / 150) / 3)
    assert votes == 100 + 9 * 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discard_below": 0.4}, "Expected `sampling` to be 'replacement' when `discard_below` is set"),
        ({"reweight_every": 10}, "Expected `sampling` to be 'replacement' when `reweight_every`"),
        ({**SAMPLED, "discard_below": 1.5}, "Expected `discard_below` to be between 0 and 1, but got 1.5"),
        ({**SAMPLED, "discard_below": -0.1}, "Expected `discard_below` to be between 0 and 1, but got -0.1"),
        ({**SAMPLED, "reweight_samples": 8}, "Expected `reweight_samples` to be at least 16, but got 8"),
        ({**SAMPLED, "discard_below": 0.0, "discard_file": "p.npy"}, "Expected `discard_below` to be > 0"),
        ({**SAMPLED, "epochs": 1 << 17}, "Expected `epochs` to be at most 65,536"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(UsageError, match=message):
        configure("gaussian", **changes)


def test_a_discard_that_leaves_no_image(few, tmp_path):
    config = configure("gaussian", **{**SAMPLED, "sampling_epoch": 1, "discard_below": 0.5})
    text = "no training image has a share of correct votes of at least 0.5"
    message = f"test-gaussian: at epoch 1, {text}; set a lower `discard_below` or a later `sampling_epoch`"
    with pytest.raises(SmoothcertError, match=message):
        ImageSampler(config, 30).choose(1, lambda kept, samples: torch.full((30,), len(samples) // 2 - 1))
    np.save(tmp_path / "shares.npy", np.full(30, 0.49))
    with pytest.raises(SmoothcertError, match=message):
        train(
            dataclasses.replace(config, discard_file=str(tmp_path / "shares.npy")),
            tmp_path / "run",
            few.subset(range(30)),
        )


def test_files_of_shares(few, tmp_path):
    labels, path = torch.tensor([0, 1, 1]), tmp_path / "shares.npy"
    np.save(path, [0.0, 0.5, 1.0])
    assert read_shares(path, labels).tolist() == [0.0, 0.5, 1.0]
    counts = tmp_path / "predict.counts.tsv"
    counts.write_text("idx\tcounts\n0\t0:10\n1\t0:6 1:4\n2\t0:10\n")
    assert read_shares(counts, labels).tolist() == [1.0, 0.4, 0.0]
    for content, message in (
        ("", "does not"),
        ("idx\tcounts\n0\t0:10\n1\t0:6 1:4\n", r"each of the 3 training images, but its values have shape \[2\]"),
        ("idx\tcounts\n0\t0:10\n2\t0:6\n1\t0:6\n3\t0:1\n", "does not"),
        ("idx\tcounts\n0\t0:10\n2\t0:6\n", "does not"),
        ("idx\tcounts\n0\tmany\n", "Expected `discard_file` to contain a number or class counts for"),
    ):
        counts.write_text(content)
        if content:
            with pytest.raises(SmoothcertError, match=message):
                read_shares(counts, labels)
    np.save(path, [0.0, 1.5, 1.0])
    with pytest.raises(SmoothcertError, match="to be between 0 and 1, but the share of image 1 is 1.5"):
        read_shares(path, labels)
    for damaged in (b"no array", b"", b"PK\x03\x04 half an archive"):
        path.write_bytes(damaged)
        with pytest.raises(SmoothcertError, match="discard_file"):
            read_shares(path, labels)
    config = configure("gaussian", **SAMPLED, discard_file=str(tmp_path / "missing.npy"))
    with pytest.raises(SmoothcertError, match=r"Expected `discard_file` to be readable, but .*missing.npy is not \(No"):
        setup_run(config, tmp_path / "run", few, few)
    assert not (tmp_path / "run").exists(), "before anything is written"


def test_the_state_of_a_sampler_is_its_weights(few):
    config = configure("gaussian", **SAMPLED)
    first, second = (ImageSampler(config, 4) for _ in range(2))
    assert first.state() == {}
    first.choose(2, lambda kept, samples: torch.tensor([0, 20, 16, 3]) * len(samples) // 20)
    assert first.weights.tolist() == pytest.approx([0, 1.10751, 0.1537, 0.1537], abs=1e-5)
    second.restore(first.state())
    assert torch.equal(first.order(3), second.order(3))
