"""Ensembles: the mean of scores, and with consensus the same votes at a lower cost."""

import json

import pytest
import torch
from torch import nn

import smoothcert
from smoothcert.certification.model_hash import fingerprint_model
from smoothcert.checkpoints.checkpoint import save_checkpoint
from smoothcert.cli import main
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.naming import sidecar_path
from smoothcert.smoothing.deploy import choose_deployment


def lenets(count):
    torch.manual_seed(3)
    return [smoothcert.create_model("lenet", mean=(0.1307,), std=(0.3081,)).eval() for _ in range(count)]


class Ungathered(nn.Module):
    """The ensemble's `forward`, without its type: every member scores every input."""

    scores_rows_alone = True

    def __init__(self, ensemble):
        super().__init__()
        self.ensemble = ensemble

    def forward(self, x):
        return self.ensemble(x)


def by_row(ensemble, x):
    """Return the scores of the definition, one input at a time."""
    rows = []
    for row in x:
        scores = [member(row.unsqueeze(0))[0] for member in ensemble.members]
        first = scores[: ensemble.consensus or 0]
        agree = first and len({int(one.argmax()) for one in first}) == 1
        chosen = first if agree else scores
        rows.append(torch.stack(chosen).mean(dim=0))
    return torch.stack(rows)


@pytest.mark.parametrize("consensus", [None, 2, 3])
def test_scores_are_those_of_the_definition(consensus, mini):
    ensemble = smoothcert.Ensemble(lenets(4), consensus)
    x = mini.floats(range(40)) + 0.5 * torch.randn(40, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ensemble(x), by_row(ensemble, x), rtol=1e-4, atol=1e-6)
        _, agree = ensemble.first(x)
    assert bool(agree.any()) == (consensus == 2), "random networks rarely agree"
    assert not bool(agree.all())


@pytest.mark.parametrize("consensus", [2, 3])
def test_gathered_votes_equal_those_of_the_whole_ensemble(consensus, mini):
    ensemble, x = smoothcert.Ensemble(lenets(4), consensus), mini.floats(range(2))
    for options in ({"micro_batch": 37}, {"micro_batch": 16}):
        gathered = smoothcert.SmoothedClassifier(ensemble, 0.5, 10, **options)
        whole = smoothcert.SmoothedClassifier(Ungathered(ensemble), 0.5, 10, **options).counts(x, 400)
        assert len(whole.nonzero()) > 4, "several classes win"
        for batch in (1, 100):
            assert torch.equal(gathered.counts(x, 400, batch=batch), whole)
        several = smoothcert.SmoothedClassifier(ensemble, 0.5, 10, threads=3, **options)
        assert torch.equal(several.counts(x, 400), whole), "each thread gathers by itself"
        both = gathered.count_stages(x, (0, 150, 400), purpose=smoothcert.philox.Purpose.PREDICT)
        assert torch.equal(both.sum(dim=1), whole)


class RoundedByRow(nn.Module):
    """A linear classifier whose scores depend a little on the row of an input, as a kernel's rounding may."""

    scores_rows_alone = True

    def __init__(self, seed):
        super().__init__()
        self.linear, self.seen = nn.Linear(3, 4), []
        self.linear.weight.data = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))

    def forward(self, x):
        self.seen.append(tuple(x.shape))
        return self.linear(x) + torch.sin(torch.arange(4) + 0.1 * torch.arange(len(x)).unsqueeze(1))


def test_gathered_inputs_keep_their_row():
    members = [RoundedByRow(seed) for seed in range(4)]
    ensemble, x = smoothcert.Ensemble(members, consensus=2), torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.1, 0.0]])
    ensemble.scores_rows_alone = True
    gathered = smoothcert.SmoothedClassifier(ensemble, 1.0, 4, micro_batch=32).counts(x, 6400)
    calls = [len(member.seen) for member in members]
    assert {shape for member in members for shape in member.seen} == {(32, 3)}, "members see one shape only"
    assert calls[0] == calls[1] == 400
    assert 40 < calls[2] == calls[3] < 360, "others see fewer micro-batches"
    whole = smoothcert.SmoothedClassifier(Ungathered(ensemble), 1.0, 4, micro_batch=32).counts(x, 6400)
    assert torch.equal(gathered, whole)


def test_folded_ensembles_vote_like_their_members(mini):
    members, x = lenets(3), mini.floats(range(2))
    assert choose_deployment(smoothcert.Ensemble(members), (1, 28, 28), 1000) == ("folded", "fp32")
    votes = [
        smoothcert.SmoothedClassifier(smoothcert.Ensemble(members, 2), 0.5, 10, form=form, micro_batch=64).counts(
            x, 256
        )
        for form in ("plain", "folded")
    ]
    assert (votes[0] - votes[1]).abs().max() <= 2, "rounding may change a vote"
    single = smoothcert.SmoothedClassifier(smoothcert.Ensemble([members[0]] * 3, 2), 0.5, 10, micro_batch=64)
    assert torch.equal(
        single.counts(x, 256), smoothcert.SmoothedClassifier(members[0], 0.5, 10, micro_batch=64).counts(x, 256)
    )


def test_scores_that_are_not_numbers_are_reported():
    broken = smoothcert.Ensemble([RoundedByRow(0), RoundedByRow(1), lambda x: torch.full((len(x), 4), torch.nan)], 2)
    broken.scores_rows_alone = True
    with pytest.raises(SmoothcertError, match="NaN"):
        smoothcert.SmoothedClassifier(broken, 1.0, 4, micro_batch=32).counts(torch.zeros(3), 320)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: smoothcert.Ensemble(lenets(1)), "at least two `models`"),
        (lambda: smoothcert.Ensemble([*lenets(1), 3]), "to be callable, but got an int"),
        (
            lambda: smoothcert.Ensemble(lenets(3), 3),
            r"`consensus` to be a whole number, at least 2 and less than the number of members \(3\), but got 3",
        ),
        (lambda: smoothcert.Ensemble(lenets(3), 1), "`consensus` to be a whole number, at least 2"),
        (
            lambda: smoothcert.Ensemble([*lenets(1), smoothcert.create_model("lenet", 12)]),
            "members with the same number of classes, but got 10 and 12",
        ),
        (
            lambda: smoothcert.Ensemble([*lenets(1), smoothcert.create_model("cifar_resnet20")]),
            "members with the same number of channels, but got 1 and 3",
        ),
        (
            lambda: smoothcert.Ensemble([nn.Linear(3, 4), nn.Linear(3, 5)])(torch.zeros(2, 3)),
            "members with the same number of classes, but got 4 and 5",
        ),
        (lambda: smoothcert.Ensemble([lambda x: "yes"] * 2)(torch.zeros(2, 3)), "scores .* from every member"),
    ],
)
def test_members_that_do_not_fit(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_the_order_of_members_belongs_to_the_function(mini, tmp_path):
    members, path = lenets(3), tmp_path / "a.tsv"
    options = {"n0": 5, "n": 20, "indices": [0]}

    def certify(chosen, consensus):
        smoothed = smoothcert.SmoothedClassifier(smoothcert.Ensemble(chosen, consensus), 0.5, 10, micro_batch=32)
        smoothcert.certify_dataset(smoothed, mini, path, **options)

    certify(members, 2)
    model = json.loads(sidecar_path(path).read_text())["settings"]["model"]
    assert model["ensemble"] == {"members": [fingerprint_model(member) for member in members], "consensus": 2}
    certify(members, 2)
    for changed in ((members[::-1], 2), (members, None)):
        with pytest.raises(UsageError, match="was made with different settings"):
            certify(*changed)


@pytest.fixture
def runs(tmp_path):
    """Three networks in files, and one for another noise level."""
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(3)]
    for path, model in zip(paths, lenets(3), strict=True):
        save_checkpoint(path, model, sigma=0.5, dataset="mnist-mini", method="gaussian")
    save_checkpoint(tmp_path / "other.safetensors", lenets(1)[0], sigma=0.25, dataset="mnist-mini")
    return paths


def test_the_command_line_takes_several_checkpoints(runs, tmp_path, capsys):
    flags = ["--ensemble", *map(str, runs), "--consensus", "2", "--max", "20", "--skip", "10", "--n", "50"]
    assert main(["certify", *flags]) == 0
    assert "Gaussian, ensemble of 3, consensus 2" in capsys.readouterr().out
    (out,) = tmp_path.glob("*-ensemble3-consensus2.tsv")
    model = json.loads(sidecar_path(out).read_text())["settings"]["model"]
    assert [member["sha256"] for member in model["ensemble"]["members"]] == [
        smoothcert.load_checkpoint(path).sha256 for path in runs
    ]
    attack = ["attack", *flags[:6], "--skip", "10", "--max", "20", "--steps", "2", "--noises", "2", "--n", "50"]
    assert main([*attack, "--certificates", str(out)]) == 0
    assert "under attack" in capsys.readouterr().out
    swapped = ["attack", "--ensemble", *map(str, reversed(runs)), *attack[5:]]
    assert main([*swapped, "--certificates", str(out)]) == 2
    assert "different network" in capsys.readouterr().err, "in another order it is another function"
    assert main(["predict", *flags]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{0}", "--consensus", "2"], "`--consensus` needs `--ensemble`"),
        (["{0}", "--ensemble", "{1}", "{2}"], "Expected exactly one of a checkpoint (RUN), a bundled"),
        (["--ensemble", "{0}"], "at least two"),
        (
            ["--ensemble", "{0}", "{1}", "--consensus", "2"],
            "`--consensus` to be a whole number, at least 2 and less than the number of members (2)",
        ),
        (["--ensemble", "{0}", "{folder}/other.safetensors"], "to have the same noise level, but got 0.5 and 0.25"),
    ],
)
def test_flags_that_do_not_fit(runs, tmp_path, flags, message, capsys):
    texts = [flag.format(*runs, folder=tmp_path) for flag in flags]
    assert main(["certify", *texts, "--n", "50"]) == 2
    assert message in capsys.readouterr().err
