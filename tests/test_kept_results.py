"""The project's own results: every stored row follows from its votes, and the page shows what is stored."""

import dataclasses
import gzip
import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import smoothcert
from smoothcert.cli import main
from smoothcert.report.corrupted import CorruptedResults, Part

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("kept_results", ROOT / "scripts" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_up_to_date(script):
    assert (ROOT / "RESULTS.md").read_text() == script.results_page(ROOT / "results")


def test_rows_follow_from_their_votes(script, capsys):
    script.verify_all(ROOT / "results", images=0, n=0)
    assert "rows follow from their votes" in capsys.readouterr().out


@pytest.mark.slow
def test_kept_networks_vote_as_they_did(script, real_data, capsys):
    script.verify_all(ROOT / "results", images=2, n=2000)
    assert "2 images vote alike on the CPU" in capsys.readouterr().out


def test_methods_in_another_order_than_the_papers_are_shown(script):
    """Gaussian's certificates under CAT-RS's name, and the other way round."""
    names = {"gaussian": "mnist-catrs-0.25", "catrs": "mnist-gaussian-0.25"}
    entries = []
    for method, run in names.items():
        (path,) = script.certificates(ROOT / "results" / "mnist" / run)
        entries.append(dataclasses.replace(script.describe(script.read_results(path)), method=method, name=method))
    lines = script.ranking(script.build_table(entries, paper=True))
    assert "| 0.25 | catrs, gaussian | no |" in lines
    text = r"- sigma 0.25: gaussian is (.*) above catrs \((.*) to (.*), paired\), in the paper 0.023 below."
    value, low, high = map(float, re.fullmatch(text, lines[-1]).groups())
    assert 0 < low < value < high


def test_training_in_bfloat16_costs_nothing_that_counts(script):
    """CAT-RS on Fashion-MNIST, same seed, in bfloat16 and in float32: the figures of benchmarks/README.md."""
    name, folders = "fashion-mnist-catrs-0.50", (ROOT / "benchmarks/raw", ROOT / "results/fashion-mnist")
    short, full = (
        script.read_config(folder / run / "config.toml")
        for folder, run in zip(folders, (f"{name}-bf16", name), strict=True)
    )
    assert (short.precision, full.precision) == ("bf16", "fp32")
    assert dataclasses.replace(short, name=name, precision="fp32") == full
    script.verify_all(folders[0], images=0, n=0)
    paths = [script.certificates(folder / run)[0] for folder, run in zip(folders, (f"{name}-bf16", name), strict=True)]
    ours, theirs = ((one.idx, one.radius, one.correct) for one in map(script.read_results, paths))
    pair = script.paired_difference(ours, theirs)
    assert len(ours[0]) == 1000
    assert abs(pair.value) <= max(0.005, 2 * pair.standard_error)
    assert (round(pair.value, 4), round(pair.standard_error, 4)) == (0.0006, 0.0014)


def test_a_glob_over_results_prints_their_table(capsys):
    files = sorted(str(path) for path in (ROOT / "results" / "mnist").glob("*-0.25/certify-*.tsv*"))
    assert any(".counts.tsv" in file for file in files)
    assert main(["report", *files, "--paper"]) == 0
    assert "CAT-RS" in capsys.readouterr().out
    assert main(["report", *(file for file in files if ".counts.tsv" in file)]) == 1


def test_a_changed_row_is_found(script, tmp_path):
    source = script.certificates(ROOT / "results")[0].parent
    shutil.copytree(source, tmp_path / "run")
    path = script.certificates(tmp_path)[0]
    read, write = (gzip.decompress, gzip.compress) if path.suffix == ".gz" else (bytes, bytes)
    lines = read(path.read_bytes()).decode().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if line.split("\t")[4] == "1")
    fields = lines[number].split("\t")
    fields[3] = repr(float(fields[3]) + 1e-9)
    lines[number] = "\t".join(fields)
    path.write_bytes(write("".join(lines).encode()))
    with pytest.raises(AssertionError, match="a radius does not follow from the votes"):
        script.verify_all(tmp_path, images=0, n=0)


def test_packed_results_are_read(script, tmp_path):
    path = script.certificates(ROOT / "results")[0]
    plain = smoothcert.read_results(path)
    folder = path.parent
    for file in folder.glob("certify-*"):
        data = file.read_bytes()
        if file.suffix == ".tsv":
            (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(data))
        else:
            (tmp_path / file.name).write_bytes(data)
    (packed,) = script.certificates(tmp_path)
    assert packed.suffix == ".gz"
    again = smoothcert.read_results(packed)
    assert (again.name, again.about) == (plain.name, plain.about)
    assert (again.radius == plain.radius).all()
    assert (smoothcert.read_counts(packed, 10)[1] == smoothcert.read_counts(path, 10)[1]).all()
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(smoothcert.SmoothcertError, match="cannot be read"):
        smoothcert.read_results(packed)


def test_certificates_on_corrupted_images_are_kept_apart(script, tmp_path, monkeypatch):
    """A run with both kinds of certificates: each goes to its own table, and the page joins them again."""
    run = tmp_path / "runs" / "mnist-gaussian-0.25"
    model = smoothcert.create_model("lenet")
    smoothcert.save_checkpoint(tmp_path / "net.safetensors", model, dataset="mnist", sigma=0.25, method="gaussian")
    data = smoothcert.load_dataset("mnist-mini", "test")
    run.mkdir(parents=True)
    for name in ("config.toml", "metrics.jsonl", "segments.json"):
        (run / name).write_text("{}" if name == "segments.json" else "")
    shutil.copyfile(tmp_path / "net.safetensors", run / "model.safetensors")
    smoothed = smoothcert.SmoothedClassifier(model, 0.25, 10)
    about = {"method": "gaussian"}
    for name in ("mnist", "mnist-c/fog", "mnist-c/stripe"):
        named = dataclasses.replace(data, name=name)
        out = run / f"certify-{name.replace('/', '-')}.tsv"
        smoothcert.certify_dataset(smoothed, named, out, n0=5, n=10, indices=range(0, 1000, 250), model=about)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "ZOO", tmp_path)
    script.keep_table(tmp_path / "runs", "mnist")
    script.keep_table(tmp_path / "runs", "mnist-c")
    kept = {table: script.certificates(tmp_path / "results" / table) for table in ("mnist", "mnist-c")}
    assert [len(files) for files in kept.values()] == [1, 2]
    script.verify_all(tmp_path / "results", images=0, n=0)
    page = script.corruption_tables(tmp_path / "results" / "mnist-c")
    assert page.count("Gaussian") == 3
    assert "| mnist-c | sigma |" in page
    assert " fog |" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| Gaussian |"))
    assert re.fullmatch(
        r"\| Gaussian \| 4 \| 0\.\d{3} \| \S+ to \S+ \| 0\.6\d\d \| \S+ \| \S+ to \S+ \| \d+\.\d \|", row
    )
    torn = run / "certify-mnist-c-fog.tsv"
    torn.write_text("".join(torn.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SystemExit, match="certify-mnist-c-fog.tsv has 3 of 4 images; finish it first"):
        script.keep_table(tmp_path / "runs", "mnist-c")
    assert script.count_images(kept["mnist-c"][0]) == 4


def test_the_images_of_a_row_are_named(script):
    part = Part(np.arange(0, 100, 10), np.full(10, 0.5), np.ones(10, dtype=bool))
    tenth = CorruptedResults("CAT-RS", "mnist-c", 0.25, "catrs", 100_000, "mnist-c", {("fog", 1): part})
    part = Part(np.arange(100), np.full(100, 0.4), np.ones(100, dtype=bool))
    whole = CorruptedResults("Gaussian", "mnist-c", 0.25, "gaussian", 100_000, "mnist-c", {("fog", 1): part})
    first, second = script.means([tenth, whole])[2:4]
    assert first.startswith("| Gaussian | all 100 | 0.400 | 0.400 to 0.400 | 0.6")
    assert second.startswith("| CAT-RS | every tenth, 10 | 0.500 | 0.500 to 0.500 | 0.693 | 100.0 |")
