"""The project's own results: every stored row follows from its votes, and the page shows what is stored."""

import dataclasses
import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import smoothcert
from kept.comparison import as_printed, distances, ranking, tolerance
from kept.page import means, results_page, verify_page
from kept.shelf import certificates, shown_tables
from kept.verifying import WrongResultError, certify_again, verify_all
from smoothcert.cli import main
from smoothcert.data.corruptions import make_corrupted
from smoothcert.paper.jobs import list_jobs
from smoothcert.report.corrupted.results import CorruptedResults, CorruptionPart
from smoothcert.report.tables.entries import describe
from smoothcert.report.tables.table import build_table
from smoothcert.results.reader import counts_path, read_counts, read_results, sidecar_path
from smoothcert.statistics.metrics import paired_difference
from smoothcert.training.config import read_config

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert (ROOT / "RESULTS.md").read_text() == results_page(ROOT / "results")


def test_rows_follow_from_their_votes(capsys):
    verify_all(ROOT / "results", images=0, n=0)
    assert "rows follow from their votes" in capsys.readouterr().out


@pytest.mark.slow
def test_kept_networks_vote_as_they_did(real_data, capsys):
    verify_all(ROOT / "results", images=2, n=2000)
    assert "2 images vote alike on the CPU" in capsys.readouterr().out


def test_methods_in_another_order_than_the_papers_are_shown():
    """Gaussian's certificates under CAT-RS's name, and the other way round."""
    names = {"gaussian": "mnist-catrs-0.25", "catrs": "mnist-gaussian-0.25"}
    entries = []
    for method, run in names.items():
        (path,) = certificates(ROOT / "results" / "mnist" / run)
        entries.append(dataclasses.replace(describe(read_results(path)), method=method, name=method))
    lines = ranking(build_table(entries, paper=True))
    assert "| 0.25 | catrs < gaussian | no |" in lines
    text = r"- sigma 0.25: gaussian is (.*) above catrs \((.*) to (.*), paired\), in the paper 0.023 below."
    value, low, high = map(float, re.fullmatch(text, lines[-1]).groups())
    assert 0 < low < value < high


def test_training_in_bfloat16_costs_nothing_that_counts():
    """CAT-RS on Fashion-MNIST, same seed, in bfloat16 and in float32: the figures of benchmarks/README.md."""
    name, folders = "fashion-mnist-catrs-0.50", (ROOT / "benchmarks/raw", ROOT / "results/fashion-mnist")
    short, full = (
        read_config(folder / run / "config.toml") for folder, run in zip(folders, (f"{name}-bf16", name), strict=True)
    )
    assert (short.precision, full.precision) == ("bf16", "fp32")
    assert dataclasses.replace(short, name=name, precision="fp32") == full
    verify_all(folders[0], images=0, n=0)
    paths = [certificates(folder / run)[0] for folder, run in zip(folders, (f"{name}-bf16", name), strict=True)]
    ours, theirs = ((one.idx, one.radius, one.correct) for one in map(read_results, paths))
    pair = paired_difference(ours, theirs)
    assert len(ours[0]) == 1000
    assert abs(pair.value) <= max(0.005, 2 * pair.standard_error)
    assert (round(pair.value, 4), round(pair.standard_error, 4)) == (0.0006, 0.0014)


def test_a_glob_over_results_prints_their_table(capsys):
    files = sorted(str(path) for path in (ROOT / "results" / "mnist").glob("*-0.25/certify-*.tsv*"))
    assert any(".counts.tsv" in file for file in files)
    assert main(["report", *files, "--paper"]) == 0
    assert "CAT-RS" in capsys.readouterr().out
    assert main(["report", *(file for file in files if ".counts.tsv" in file)]) == 1


def change(path, edit):
    """Change the lines of a packed table, the header aside; each is a list of fields."""
    header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    changed = ["\t".join(fields) for fields in edit([line.split("\t") for line in lines])]
    path.write_bytes(gzip.compress("\n".join([header, *changed, ""]).encode()))


def larger(rows):
    number = next(i for i, row in enumerate(rows) if row[4] == "1")
    rows[number][3] = repr(float(rows[number][3]) + 1e-9)
    return rows


def right(rows):
    """A wrong image is called right, by its own word or by another label."""
    next(row for row in rows if row[4] == "0")[4] = "1"
    return rows


def fewer_votes(rows):
    label, _, count = rows[7][2].split()[0].partition(":")
    rows[7][2] = f"{label}:{int(count) - 1}"
    return rows


@pytest.mark.parametrize(
    ("edited", "edit", "message"),
    [
        (["rows"], larger, "a radius does not follow from the votes"),
        (["rows"], right, "a row is right by its label, or is not"),
        (["rows"], lambda rows: rows[:-1], "rows and votes are not of the same images"),
        (["rows", "votes"], lambda rows: rows[:-1], "not the images that were to be certified"),
        (["votes"], fewer_votes, "not as many votes as there were noises"),
    ],
)
def test_what_was_changed_is_found(tmp_path, edited, edit, message):
    shutil.copytree(certificates(ROOT / "results" / "mnist")[0].parent, tmp_path / "run")
    (path,) = certificates(tmp_path)
    for name, file in (("rows", path), ("votes", counts_path(path))):
        if name in edited:
            change(file, edit)
    with pytest.raises(WrongResultError, match=message):
        verify_all(tmp_path, images=0, n=0)


def test_what_cannot_be_checked_is_no_result(tmp_path):
    with pytest.raises(WrongResultError, match="holds no certificates"):
        verify_all(tmp_path, images=0, n=0)
    shutil.copytree(certificates(ROOT / "results" / "mnist")[0].parent, tmp_path / "run")
    (path,) = certificates(tmp_path)
    sidecar_path(path).write_text(re.sub('"sha256": "[0-9a-f]+",(\\s+"arch)', r"\1", sidecar_path(path).read_text()))
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json does not say the hash of its network"):
        verify_all(tmp_path, images=0, n=0)
    sidecar_path(path).write_text('{"settings": {"n": 100000, "n0": 100, "alpha": 0.001, "data": {}, "images": []}}')
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json does not say model, sigma"):
        verify_all(tmp_path, images=0, n=0)
    sidecar_path(path).unlink()
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json cannot be read"):
        verify_all(tmp_path, images=0, n=0)


def test_another_network_and_labels_are_found(tmp_path, real_data):
    """The networks of two noise levels for one another, and digits under other labels than their own."""
    (path,) = certificates(ROOT / "results" / "mnist" / "mnist-catrs-0.25")
    results = read_results(path)
    votes = read_counts(path, 10)[1]
    with pytest.raises(WrongResultError, match="not the weights that were certified"):
        certify_again(path.parent.with_name("mnist-catrs-0.50"), results, votes, 1, 100)
    with pytest.raises(WrongResultError, match="its network is not kept"):
        certify_again(path.parent.with_name("mnist-catrs-0.75"), results, votes, 1, 100)
    with pytest.raises(WrongResultError, match="a label is not the image's"):
        certify_again(path.parent, dataclasses.replace(results, label=results.label[::-1]), votes, 1, 100)
    first, last = results.predict[0], results.predict[-1]
    assert first != last
    with pytest.raises(WrongResultError, match="votes otherwise"):
        certify_again(path.parent, results, votes[::-1], 1, 100)
    larger = dataclasses.replace(results, radius=results.radius + 1.0)
    assert certify_again(path.parent, results, votes, 2, 100) == "2 images vote alike on the CPU"
    with pytest.raises(WrongResultError, match="has another radius"):
        certify_again(path.parent, larger, votes[: len(votes)], 200, 100)


def test_without_the_images_the_check_is_not_complete(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    shutil.copytree(ROOT / "results" / "mnist" / "mnist-catrs-0.25", tmp_path / "mnist-catrs-0.25")
    with pytest.raises(smoothcert.SmoothcertError, match=r"not certified again: mnist is not in .* data get mnist"):
        verify_all(tmp_path, images=1, n=100)
    assert "10,000 rows follow from their votes; not certified again" in capsys.readouterr().out


@pytest.mark.parametrize(("made", "told"), [(False, "is not here"), (True, "here is another draw")])
def test_corrupted_images_that_nobody_else_has_are_not_asked_for(tmp_path, monkeypatch, mini, made, told):
    """The published set, or one that is made here, has other random numbers."""
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    if made:
        make_corrupted(mini.subset(range(3)), tmp_path / "mnist-c", ["fog"], workers=1)
    run = ROOT / "results" / "mnist" / "mnist-catrs-0.25"
    (path,) = certificates(run)
    results = read_results(path)
    settings = {**results.about["settings"], "data": {"name": "mnist-c/fog", "sha256": ""}}
    corrupted = dataclasses.replace(results, about={**results.about, "settings": settings})
    assert certify_again(run, corrupted, None, 1, 100) == f"not certified again (mnist-c/fog {told})"


def test_a_page_that_is_not_up_to_date_is_found(tmp_path):
    shutil.copytree(ROOT / "results" / "mnist" / "mnist-catrs-0.25", tmp_path / "mnist" / "mnist-catrs-0.25")
    page = tmp_path / "RESULTS.md"
    page.write_text(results_page(tmp_path))
    verify_page(tmp_path, page)
    page.write_text(page.read_text().replace("0.9329", "0.9330"))
    with pytest.raises(WrongResultError, match="not up to date"):
        verify_page(tmp_path, page)


def kept_as(source, target):
    """Copy a kept run under another name, as if it were a run of another table."""
    shutil.copytree(ROOT / "results" / "mnist" / source, target)
    return target


def test_rows_of_other_settings_are_not_held_against_the_five_seeds(tmp_path):
    """CAT-RS at lambda 4 has a number of its own in the paper; the five seeds had lambda 1."""
    run = kept_as("mnist-catrs-1.00", tmp_path / "tradeoff" / "mnist-catrs-1.00-lambda4.00")
    (run / "note.md").write_text("Certificates of\nanother weight.\n")
    page = results_page(tmp_path)
    assert "| 1.00 | CAT-RS, lambda=4.00 | 1.8287 | 1.8287 | 1.777 | +0.0517 |  |  | no |" in page
    assert "- mnist-catrs-1.00-lambda4.00: Certificates of another weight." in page


def test_five_seeds_of_other_images_are_not_held_against_a_row():
    """The paper's seeds of CIFAR-10 are of 2,000 images, on which Gaussian has 0.541 and not 0.525."""
    (path,) = certificates(ROOT / "results" / "mnist" / "mnist-gaussian-0.50")
    entry = dataclasses.replace(describe(read_results(path)), paper=("tab:mnist", ""))
    rows = build_table([entry], paper=True).rows
    assert "| 1.5581 +- 0.0016 |" in distances(rows)[2]
    entry = dataclasses.replace(entry, dataset="cifar10", paper=("tab:cifar10", ""))
    rows = build_table([entry], paper=True).rows
    assert "| 0.525 | +1.0299 |  |  | no |" in distances(rows)[2]


def test_radii_are_rounded_as_the_published_ones_before_they_are_compared(shared):
    radii, printed = [0.0, 0.95291, 1.90582, 3.81164, 1.7449, 1.7451], [0.0, 0.953, 1.91, 3.81, 1.74, 1.75]
    assert as_printed(radii).tolist() == printed
    published = smoothcert.read_results(shared / "published" / "cifar10" / "cat-rs-0.5.tsv").radius
    assert np.array_equal(as_printed(published), published)
    assert published.max() == 1.91, "more than 100,000 noises can prove"


def test_seeds_are_summed_up_on_the_page(tmp_path):
    for name in ("mnist-gaussian-0.25", "mnist-gaussian-0.25-seed1"):
        kept_as("mnist-gaussian-0.25", tmp_path / "variance" / name)
    page = results_page(tmp_path)
    assert "| 0.25 | Gaussian | 2 | 0.9109 | 0.0000 | 0.9109 | 0.0003 |" in page
    assert "the paper's order" not in page


def test_a_table_of_others_runs_is_shown_when_all_are_there(tmp_path):
    """The l_inf table has no run of its own; the trade-off's has some, and is no table without them."""
    *first, last = [job.config.name for job in list_jobs("linf")]
    for name in first:
        kept_as("mnist-gaussian-0.25", tmp_path / "cifar10" / name)
    kept_as("mnist-gaussian-1.00", tmp_path / "mnist" / "mnist-gaussian-1.00")
    assert shown_tables(tmp_path) == ["cifar10", "mnist"]
    kept_as("mnist-gaussian-0.25", tmp_path / "cifar10" / last)
    page = results_page(tmp_path)
    assert shown_tables(tmp_path) == ["cifar10", "linf", "mnist"]
    table = page.split("## l_inf accuracy on CIFAR-10")[1].split("## MNIST")[0]
    assert "| l_inf 2/255 |" in table
    assert sum(line.startswith("| 0.25 |") for line in table.splitlines()) == 7


def test_a_table_of_corrupted_images_without_any_is_not_shown(tmp_path):
    (tmp_path / "mnist-c" / "mnist-catrs-0.25").mkdir(parents=True)
    (tmp_path / "mnist").mkdir()
    assert "##" not in results_page(tmp_path)


def test_two_networks_of_one_name_are_refused(tmp_path):
    kept_as("mnist-gaussian-0.25", tmp_path / "mnist" / "mnist-gaussian-0.25")
    kept_as("mnist-stability-0.25", tmp_path / "variance" / "mnist-gaussian-0.25")
    with pytest.raises(WrongResultError, match=r"variance.*: another network of that name is kept"):
        verify_all(tmp_path, images=0, n=0)


def test_resnet20_may_be_further_from_the_paper():
    (path,) = certificates(ROOT / "results" / "mnist" / "mnist-catrs-0.25")
    entry = describe(read_results(path))
    assert tolerance(entry) == 0.005
    assert tolerance(dataclasses.replace(entry, method="macer")) == 0.01
    network = smoothcert.load_recipe("cifar10-resnet20-catrs-0.50").architecture
    results = dataclasses.replace(entry.results, about={"settings": {"model": {"architecture": network}}})
    assert tolerance(dataclasses.replace(entry, results=results)) == 0.02


def test_packed_results_are_read(tmp_path):
    path = certificates(ROOT / "results")[0]
    plain = smoothcert.read_results(path)
    folder = path.parent
    for file in folder.glob("certify-*"):
        data = file.read_bytes()
        if file.suffix == ".tsv":
            (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(data))
        else:
            (tmp_path / file.name).write_bytes(data)
    (packed,) = certificates(tmp_path)
    assert packed.suffix == ".gz"
    again = smoothcert.read_results(packed)
    assert (again.name, again.about) == (plain.name, plain.about)
    assert (again.radius == plain.radius).all()
    assert (smoothcert.read_counts(packed, 10)[1] == smoothcert.read_counts(path, 10)[1]).all()
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(smoothcert.SmoothcertError, match="cannot be read"):
        smoothcert.read_results(packed)


def test_the_images_of_a_row_are_named():
    part = CorruptionPart(np.arange(0, 100, 10), np.full(10, 0.5), np.ones(10, dtype=bool))
    tenth = CorruptedResults("CAT-RS", "mnist-c", 0.25, "catrs", 100_000, "mnist-c", {("fog", 1): part})
    part = CorruptionPart(np.arange(100), np.full(100, 0.4), np.ones(100, dtype=bool))
    whole = CorruptedResults("Gaussian", "mnist-c", 0.25, "gaussian", 100_000, "mnist-c", {("fog", 1): part})
    first, second = means([tenth, whole])[2:4]
    assert first.startswith("| Gaussian | all 100 | 0.400 | 0.400 to 0.400 | 0.6")
    assert second.startswith("| CAT-RS | every tenth, 10 | 0.500 | 0.500 to 0.500 | 0.693 | 100.0 |")
