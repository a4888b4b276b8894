"""Stopping rules, noises and bounds of `smoothcert certify`, and wrong combinations of them."""

import json

import pytest

import smoothcert
from smoothcert.cli import main
from smoothcert.results.naming import sidecar_path

QUICK = ["--n", "300", "--n0", "20", "--skip", "250", "--device", "cpu"]


@pytest.mark.parametrize(
    ("flags", "name", "protocol"),
    [
        (["--stop", "table", "--grid", "0", "0.25"], "table", "stop table at 0 0.25"),
        (["--stop", "table"], "table", "stop table"),
        (["--stop", "radius", "--radius", "0.25"], "radius0.25", "stop radius 0.25"),
        (
            ["--stop", "budget", "--budget", "1e3", "--skip-wrong"],
            "budget1e3-skip-wrong",
            "stop budget 1,000 samples, wrong skipped",
        ),
        (["--noise", "uniform"], "uniform", "uniform noise, l1"),
        (["--bound", "two-sided"], "two-sided", "two-sided"),
        (["--sound"], "sound", "sound"),
    ],
)
def test_options_are_in_the_sidecar_the_file_name_and_the_table(checkpoint, capsys, flags, name, protocol):
    assert main(["certify", str(checkpoint), *QUICK, *flags, "--json"]) == 0
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)
    assert row["protocol"] == protocol
    assert row["images"] == 4
    (out,) = checkpoint.parent.glob(f"*-{name}.tsv")
    assert len(smoothcert.read_results(out)) == 4
    if "--stop" in flags:
        assert "samples per image on average; `--stop fixed` draws 320" in captured.err
        assert json.loads(sidecar_path(out).read_text())["settings"]["stop"]["rule"] == flags[1]


def test_budgets_are_shared_by_shards(checkpoint, tmp_path, capsys):
    flags = ["--stop", "budget", "--budget", "1500"]
    files = [tmp_path / f"{part}.tsv" for part in (1, 2)]
    for part, file in enumerate(files, 1):
        assert main(["certify", str(checkpoint), *QUICK, *flags, "--shard", f"{part}/2", "--out", str(file)]) == 0
    whole = tmp_path / "whole.tsv"
    assert main(["certify", str(checkpoint), *QUICK, *flags, "--out", str(whole)]) == 0
    assert main(["merge", *map(str, files), "--out", str(tmp_path / "all.tsv")]) == 0
    results = [smoothcert.read_results(path) for path in (whole, tmp_path / "all.tsv")]
    assert results[0].radius.tolist() == results[1].radius.tolist()
    drawn = [json.loads(sidecar_path(path).read_text())["samples"] for path in (whole, tmp_path / "all.tsv")]
    assert drawn[0] == drawn[1] <= 1500
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--stop", "radius"], "requires `--radius`"),
        (["--stop", "budget"], "requires `--budget`"),
        (["--radius", "0.5"], "`--radius` requires `--stop radius`, but got `--stop fixed`"),
        (["--stop", "table", "--budget", "5"], "`--budget` requires `--stop budget`"),
        (["--stop", "budget", "--budget", "five"], "5e8"),
        (["--stop", "budget", "--budget", "1.5"], "5e8"),
        (["--stop", "budget", "--budget", "-5"], "> 0"),
        (["--stop", "budget", "--budget", "30s"], "whole number of samples > 0, such as 5e8, but got '30s'"),
        (["--stop", "budget", "--budget", "nan"], "such as 5e8"),
        (["--stop", "budget", "--budget", "inf"], "such as 5e8"),
        (["--stop", "budget", "--budget", "5e5", "--shard", "1/5"], "8, 12, 24 with a sample budget, but got 5"),
        (["--stop", "budget", "--budget", "5e5", "--shard", "0/0"], "1 <= i <= n, but got (0, 0)"),
        (["--stop", "radius", "--radius", "-1"], "at least 0"),
        (["--stop", "table", "--grid", "-1"], "at least 0"),
        (["--skip-wrong"], "fixed"),
        (["--noise", "laplac"], "Unknown noise"),
        (["--noise", "uniform", "--sound"], "its own integer noise"),
        (["--sound", "--form", "compiled"], "use `--form pinned`"),
        (["--bound", "two"], "did you mean 'two-sided'"),
        (["--stop", "table", "--bound", "two-sided"], "recertify"),
    ],
)
def test_wrong_combinations_are_rejected_before_loading(flags, message, capsys):
    assert main(["certify", "nowhere.safetensors", *flags]) == 2
    assert message in capsys.readouterr().err


def test_dry_run_prints_the_options(checkpoint, capsys):
    assert main(["certify", str(checkpoint), *QUICK, "--noise", "uniform", "--stop", "table", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert "uniform" in plan
    assert "table" in plan


def test_dry_run_accounts_for_the_stopping_rule(checkpoint, capsys):
    def plan(*flags):
        assert main(["certify", str(checkpoint), *QUICK, *flags, "--dry-run", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    fixed, budget = plan(), plan("--stop", "budget", "--budget", "1000")
    assert budget["samples"] == 1000 < fixed["samples"]
    assert plan("--stop", "budget", "--budget", "1000", "--shard", "1/2")["samples"] == 500
    assert budget["largest radius"] < fixed["largest radius"], "alpha is divided among looks"


def test_too_small_budget_prints_a_message(checkpoint, tmp_path, capsys):
    flags = ["--stop", "budget", "--budget", "1", "--out", str(tmp_path / "a.tsv")]
    assert main(["certify", str(checkpoint), *QUICK, *flags]) == 0
    assert "no samples were drawn" in capsys.readouterr().err
