"""Checkpoints in smoothcert's own and in the published format, saved and loaded."""

import pickle
import zipfile

import pytest
import torch
from safetensors.torch import save_file

import smoothcert
from smoothcert.checkpoints.checkpoint import Checkpoint
from smoothcert.checkpoints.published import NORMALIZATIONS
from smoothcert.errors import SmoothcertError, UsageError

NORMALIZATION_OF = {"lenet": None, "cifar_resnet20": "cifar10", "cifar_resnet110": "cifar10", "resnet50": "imagenet"}


def make(name, classes=None, normalization="default"):
    torch.manual_seed(0)
    kind = NORMALIZATION_OF[name] if normalization == "default" else normalization
    mean, std = NORMALIZATIONS[kind] if kind else (None, None)
    model = smoothcert.create_model(name, classes, mean=mean, std=std)
    for name, buffer in model.network.named_buffers():
        if "running" in name:
            buffer.uniform_(*((0.5, 1.5) if name.endswith("var") else (-0.1, 0.1)))
    return model.eval()


def same(first, second):
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", NORMALIZATION_OF)
def test_ours_round_trips(tmp_path, name):
    model = make(name)
    smoothcert.save_checkpoint(tmp_path / "model.safetensors", model, sigma=0.25, dataset="cifar10")
    for path in (tmp_path / "model.safetensors", tmp_path):
        loaded = smoothcert.load_checkpoint(path)
        assert same(loaded.model, model)
        assert loaded.about == {"sigma": 0.25, "dataset": "cifar10"}
        assert len(loaded.sha256) == 64
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_run_that_is_not_finished_says_so(tmp_path):
    (tmp_path / "state.safetensors").touch()
    with pytest.raises(SmoothcertError, match="The run is not finished; resume it with the same `smoothcert train`"):
        smoothcert.load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", NORMALIZATION_OF)
def test_published_format_round_trips(tmp_path, name):
    model = make(name)
    smoothcert.save_checkpoint(tmp_path / "m.safetensors", model, epoch=150)
    smoothcert.export_checkpoint(
        smoothcert.load_checkpoint(tmp_path / "m.safetensors"), tmp_path / "checkpoint.pth.tar"
    )
    raw = torch.load(tmp_path / "checkpoint.pth.tar", weights_only=True)
    prefix = "1.module." if name == "resnet50" else "1."
    assert raw["arch"] == name
    assert raw["epoch"] == 150
    assert set(raw["state_dict"]) == {prefix + key for key in model.network.state_dict()}
    back = smoothcert.load_checkpoint(tmp_path / "checkpoint.pth.tar", normalization=NORMALIZATION_OF[name])
    assert same(back.model, model)
    assert back.about == {"epoch": 150}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old format"])
@pytest.mark.parametrize("prefix", ["1.", "1.module.", "module.1.", "module.", ""])
@pytest.mark.parametrize("holder", ["state_dict", "net", "model", None])
def test_every_published_wrapping(tmp_path, holder, prefix, zipped):
    model = make("cifar_resnet20")
    weights = {prefix + key: value for key, value in model.network.state_dict().items()}
    content = {holder: weights, "epoch": 3} if holder else weights
    torch.save(content, tmp_path / "c.pth", _use_new_zipfile_serialization=zipped)
    assert same(smoothcert.load_checkpoint(tmp_path / "c.pth", normalization="cifar10").model, model)


def test_normalisation_must_be_named_and_counts(tmp_path):
    torch.save({"net": make("cifar_resnet20").network.state_dict()}, tmp_path / "0.25.pth")
    with pytest.raises(UsageError, match="`normalization` to one of none, cifar10, cifar10-center"):
        smoothcert.load_checkpoint(tmp_path / "0.25.pth")
    x = torch.rand(2, 3, 32, 32)
    scores = [
        smoothcert.load_checkpoint(tmp_path / "0.25.pth", normalization=kind).model.eval()(x)
        for kind in ("none", "cifar10", "cifar10-center")
    ]
    assert not torch.allclose(scores[0], scores[1])
    assert not torch.allclose(scores[1], scores[2])


def test_hundred_classes_bear_the_published_name(tmp_path):
    model = make("cifar_resnet20", 100, "cifar100")
    smoothcert.export_checkpoint(smoothcert.checkpoints.checkpoint.Checkpoint(model), tmp_path / "c.pth.tar")
    assert torch.load(tmp_path / "c.pth.tar", weights_only=True)["arch"] == "cifar100_resnet20"
    back = smoothcert.load_checkpoint(tmp_path / "c.pth.tar", normalization="cifar100")
    assert back.model.num_classes == 100


def test_export_refuses_what_the_format_cannot_say(tmp_path):
    with pytest.raises(UsageError, match="the published format cannot store"):
        smoothcert.export_checkpoint(
            Checkpoint(make("cifar_resnet20", normalization="cifar10-center")),
            tmp_path / "c",
        )


class Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


def test_a_file_that_wants_to_run_code_is_refused(tmp_path, capsys):
    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pth", "evil.pkl"):
        with pytest.raises(SmoothcertError, match="would run code"):
            smoothcert.load_checkpoint(tmp_path / name)
    assert "never" not in capsys.readouterr().out


@pytest.mark.parametrize("cut", [0, 10, 5000])
def test_damaged_files(tmp_path, cut):
    model = make("lenet")
    smoothcert.save_checkpoint(tmp_path / "m.safetensors", model)
    smoothcert.export_checkpoint(smoothcert.checkpoints.checkpoint.Checkpoint(model), tmp_path / "m.pth")
    for name in ("m.safetensors", "m.pth"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:cut])
        with pytest.raises(SmoothcertError, match=name):
            smoothcert.load_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("header", "absent"),
    [({"num_classes": "ten"}, ""), ({"about": "{"}, ""), ({"about": "[1]"}, ""), ({}, "conv1"), ({}, "normalize")],
)
def test_a_header_that_does_not_fit_its_layers(tmp_path, header, absent):
    told = {"format": "smoothcert-1", "architecture": "lenet", "num_classes": "10", "about": "{}"}
    weights = {key: value.contiguous() for key, value in make("lenet").state_dict().items()}
    weights = {key: value for key, value in weights.items() if not absent or absent not in key}
    save_file(weights, tmp_path / "m.safetensors", told | header)
    with pytest.raises(SmoothcertError, match="is damaged|`about`|does not match"):
        smoothcert.load_checkpoint(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "content",
    [{1: torch.zeros(2)}, {"conv1.weight": torch.zeros(3)}, {"state_dict": None}, {"fc2.weight": torch.tensor(1.0)}],
)
def test_tables_that_are_no_networks(tmp_path, content):
    network = make("lenet").network.state_dict() if "fc2.weight" in content else {}
    torch.save({**network, **content}, tmp_path / "odd.pth")
    with pytest.raises(SmoothcertError, match="odd.pth has"):
        smoothcert.load_checkpoint(tmp_path / "odd.pth")


def test_other_networks_are_told_apart(tmp_path):
    smoothcert.save_checkpoint(tmp_path / "m.safetensors", make("lenet"))
    with pytest.raises(UsageError, match="expected architecture resnet50, but got lenet"):
        smoothcert.load_checkpoint(tmp_path / "m.safetensors", architecture="resnet50")
    with pytest.raises(UsageError, match="contains its normalization"):
        smoothcert.load_checkpoint(tmp_path / "m.safetensors", normalization="cifar10")
    torch.save({"state_dict": {"1.features.0.weight": torch.zeros(3)}}, tmp_path / "vgg.pth")
    with pytest.raises(SmoothcertError, match="has an unknown architecture"):
        smoothcert.load_checkpoint(tmp_path / "vgg.pth")
    wide = {f"1.{key}": value for key, value in make("cifar_resnet20").network.state_dict().items()}
    wide["1.layer1.0.conv1.weight"] = torch.zeros(32, 16, 3, 3)
    torch.save({"state_dict": wide}, tmp_path / "wide.pth")
    with pytest.raises(SmoothcertError, match=r"cifar_resnet20: .* another shape: network.layer1.0.conv1.weight"):
        smoothcert.load_checkpoint(tmp_path / "wide.pth", normalization="cifar10")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(SmoothcertError, match="has no weights under"):
        smoothcert.load_checkpoint(tmp_path / "list.pth")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(SmoothcertError, match="not a smoothcert checkpoint"):
        smoothcert.load_checkpoint(tmp_path / "foreign.safetensors")
    with pytest.raises(SmoothcertError, match="no checkpoint"):
        smoothcert.load_checkpoint(tmp_path / "absent.pth")
    with pytest.raises(UsageError, match="did you mean 'cifar10'"):
        smoothcert.load_checkpoint(tmp_path / "wide.pth", normalization="cifar11")


def test_the_same_network_is_the_same_file(tmp_path):
    """Runs, results and soft labels identify a model by the hash of its file."""
    model, about = smoothcert.create_model("lenet"), {"name": "größer", "sigma": 0.25, "method": "gaussian"}
    files = [tmp_path / f"{number}.safetensors" for number in range(8)]
    for file in files:
        smoothcert.save_checkpoint(file, model, **about)
    assert len({file.read_bytes() for file in files}) == 1
    assert smoothcert.load_checkpoint(files[0]).about == about


def test_a_member_that_unpacks_to_more_than_the_file_is_refused(tmp_path):
    """PyTorch does not compress, so a checkpoint holds no more than its size; this one has 20 MB of zeros."""
    torch.save({"state_dict": {"conv1.weight": torch.zeros(20, 1, 5, 5)}}, tmp_path / "c.pth")
    with zipfile.ZipFile(tmp_path / "c.pth", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/extra", bytes(20_000_000))
    with pytest.raises(SmoothcertError, match="declares 20 MB of content; expected at most 0 MB"):
        smoothcert.load_checkpoint(tmp_path / "c.pth")
