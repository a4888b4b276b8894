"""Kept results: every row follows from its votes, networks reproduce them, and RESULTS.md matches the files."""

import dataclasses
import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import smoothcert
from kept.comparison import as_printed, distances, ranking
from kept.corruptions import against_paper, means, on_common_images, swapped_methods
from kept.costs import certification_seconds
from kept.page import results_page, verify_page
from kept.published import pair_with_published, published_lines
from kept.shelf import certificates, has_corrupted_images, network_of, shown_tables
from kept.verifying import WrongResultError, check_precision, replay_selection, verify_all, verify_rows, vote_again
from smoothcert.certification.cascade import certify_cascade
from smoothcert.checkpoints.pretrained import bundled_models
from smoothcert.cli import main
from smoothcert.data.corruptions import make_corrupted
from smoothcert.paper.jobs import list_jobs
from smoothcert.report.corrupted.results import CorruptedResults, CorruptionPart
from smoothcert.report.tables.entries import describe
from smoothcert.report.tables.table import build_table
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.statistics.metrics import average_certified_radius, paired_difference
from smoothcert.training.config import read_config

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert (ROOT / "RESULTS.md").read_text() == results_page(ROOT / "results")


def test_rows_follow_from_their_votes(capsys):
    verify_all(ROOT / "results", images=0, n=0)
    assert "rows follow from their votes" in capsys.readouterr().out


@pytest.mark.parametrize("name", smoothcert.list_pretrained())
def test_the_list_of_bundled_networks_has_the_acr_of_their_certificates(name):
    listed = bundled_models()[name]
    found = [
        (round(average_certified_radius(results), 4), len(results))
        for path in certificates(ROOT / "results")
        if not has_corrupted_images(path.parent.parent.name) and network_of(path) == listed["sha256"]
        for results in [read_results(path)]
    ]
    assert (listed["acr"], listed["images"]) in found


@pytest.mark.slow
def test_kept_networks_vote_as_they_did(real_data, capsys):
    verify_all(ROOT / "results", images=2, n=2000)
    assert "2 images agree on fresh noise" in capsys.readouterr().out


def test_methods_in_another_order_than_the_papers_are_shown():
    """Swap the certificates of Gaussian and CAT-RS."""
    names = {"gaussian": "mnist-catrs-0.25", "catrs": "mnist-gaussian-0.25"}
    entries = []
    for method, run in names.items():
        (path,) = certificates(ROOT / "results" / "mnist" / run)
        entries.append(dataclasses.replace(describe(read_results(path)), method=method, name=method))
    lines = ranking(build_table(entries, paper=True))
    assert "| 0.25 | catrs < gaussian | no |" in lines
    text = (
        r"- sigma 0.25: gaussian is (.*) above catrs \(95 % interval (.*) to (.*), paired\); "
        r"in the paper it is 0.023 below."
    )
    value, low, high = map(float, re.fullmatch(text, lines[-1]).groups())
    assert 0 < low < value < high


def test_rows_are_compared_with_published_results_on_the_same_images():
    """The results of one method as if they were ours of another, on every fifth image."""
    folder = ROOT / "tests/data/published/cifar10"
    ours, theirs = (read_results(folder / f"{name}-0.5.tsv.gz") for name in ("consistency", "cat-rs"))
    fifth = dataclasses.replace(ours, **{name: getattr(ours, name)[::5] for name in ("idx", "radius", "correct")})
    entry = dataclasses.replace(describe(fifth), method="catrs", name="CAT-RS", dataset="cifar10", sigma=0.5)
    pair = pair_with_published(entry)
    mine, published = ours.radius[::5] * ours.correct[::5], theirs.radius[::5] * theirs.correct[::5]
    assert len(mine) == 2000
    assert (pair.ours, pair.published) == pytest.approx((mine.mean(), published.mean()))
    assert pair.difference.value == pytest.approx((mine - published).mean())
    assert pair.difference.standard_error == pytest.approx((mine - published).std(ddof=1) / 2000**0.5, rel=1e-3)
    assert pair.spread == 0.0028
    assert not pair.agrees
    same = pair_with_published(dataclasses.replace(entry, method="consistency"))
    assert (same.agrees, same.difference.value) == (True, 0)
    lines = published_lines(build_table([entry], paper=True).rows)
    assert lines[2].startswith(
        f"| 0.50 | CAT-RS | {pair.ours:.4f} | {pair.published:.4f} | {pair.difference.value:+.4f}"
    )
    assert lines[2].endswith("| 0.0028 | no |")
    assert pair_with_published(dataclasses.replace(entry, sigma=0.7)) is None


@pytest.mark.parametrize(
    ("name", "share", "clean", "acr", "alone"),
    [
        ("mnist", 0.8, 96.5, 1.834, (93.0, 1.829)),
        ("mnist", 0.2, 96.5, 1.829, (93.0, 1.829)),
        ("fashion-mnist", 0.8, 77.5, 1.613, (73.9, 1.608)),
        ("fashion-mnist", 0.2, 77.5, 1.606, (73.9, 1.608)),
    ],
)
def test_cascades_classify_more_images_than_their_first_level(name, share, clean, acr, alone):
    """Numbers of an independent computation from the same votes, with p_0 = 0.5; 0.2 shares alpha equally."""
    paths = [certificates(ROOT / "results" / name / f"{name}-catrs-{sigma}")[0] for sigma in ("1.00", "0.50", "0.25")]
    made = certify_cascade(paths, first_share=share, unverified=True).records
    first = read_results(paths[0])
    correct = np.array([record.correct for record in made])
    assert len(made) == 10_000
    assert 100 * correct.mean() == pytest.approx(clean, abs=0.06)
    assert round(float(np.mean([record.radius for record in made] * correct)), 3) == acr
    assert 100 * first.correct.mean() == pytest.approx(alone[0], abs=0.06)
    assert round(average_certified_radius(first.radius, first.correct), 3) == alone[1]


def test_training_in_bfloat16_costs_nothing_that_counts():
    """Check benchmarks/README.md: CAT-RS on Fashion-MNIST, same seed, trained in bfloat16 and in float32."""
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
    """Edit the rows of a packed table, each as a list of fields."""
    header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    changed = ["\t".join(fields) for fields in edit([line.split("\t") for line in lines])]
    path.write_bytes(gzip.compress("\n".join([header, *changed, ""]).encode()))


def larger(rows):
    number = next(i for i, row in enumerate(rows) if row[4] == "1")
    rows[number][3] = repr(float(rows[number][3]) + 1e-9)
    return rows


def right(rows):
    """Mark a wrong prediction as correct."""
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
        (["rows"], right, "column `correct` contradicts the label"),
        (["rows"], lambda rows: rows[:-1], "rows and votes are not of the same images"),
        (["rows", "votes"], lambda rows: rows[:-1], "not the images that were to be certified"),
        (["votes"], fewer_votes, "not as many votes as noise samples"),
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
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json lacks the hash of its network"):
        verify_all(tmp_path, images=0, n=0)
    sidecar_path(path).write_text('{"settings": {"n": 100000, "n0": 100, "alpha": 0.001, "data": {}, "images": []}}')
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json lacks model, sigma"):
        verify_all(tmp_path, images=0, n=0)
    sidecar_path(path).unlink()
    with pytest.raises(smoothcert.SmoothcertError, match=r"\.json cannot be read"):
        verify_all(tmp_path, images=0, n=0)


def test_another_network_and_labels_are_found(tmp_path, real_data):
    """Exchange the networks of two noise levels, the labels, the votes and the radii."""
    (path,) = certificates(ROOT / "results" / "mnist" / "mnist-catrs-0.25")
    results, votes = verify_rows(path)
    with pytest.raises(WrongResultError, match="not the weights that were certified"):
        vote_again(path.parent.with_name("mnist-catrs-0.50"), results, votes, 1, 100)
    with pytest.raises(WrongResultError, match="its network is not kept"):
        vote_again(path.parent.with_name("mnist-catrs-0.75"), results, votes, 1, 100)
    with pytest.raises(WrongResultError, match="a label is not the image's"):
        vote_again(path.parent, dataclasses.replace(results, label=results.label[::-1]), votes, 1, 100)
    first, last = results.predict[0], results.predict[-1]
    assert first != last
    with pytest.raises(WrongResultError, match="fresh votes contradict the stored ones"):
        vote_again(path.parent, results, votes[:, ::-1], 1, 100)
    larger = dataclasses.replace(results, radius=results.radius + 1.0)
    assert vote_again(path.parent, results, votes, 2, 100) == "2 images agree on fresh noise"
    with pytest.raises(WrongResultError, match="has another radius"):
        vote_again(path.parent, larger, votes, 200, 100)


@pytest.mark.parametrize("run", ["mnist/mnist-catrs-0.25", "fashion-mnist/fashion-mnist-catrs-1.00"])
def test_votes_in_another_precision_are_found(real_data, run):
    """Votes of the other precision, and of another seed, must not pass for those of the recorded one."""
    (path,) = certificates(ROOT / "results" / run)
    results, votes = verify_rows(path)
    settings = results.about["settings"]
    data, model = (
        smoothcert.load_dataset(settings["data"]["name"], "test"),
        smoothcert.load_pretrained(path.parent.name).model,
    )
    text = replay_selection(path.parent, model, data, results, votes, 60)
    same, other = map(int, re.fullmatch(r"(\d+) of 6,000 replayed votes differ in bf16, (\d+) in fp32", text).groups())
    assert same <= 2
    assert other >= 20
    for change in ({"precision": "fp32"}, {"seed": 1}):
        about = {**results.about, "settings": {**settings, **change}}
        with pytest.raises(WrongResultError, match="votes are not of (bf16|fp32)"):
            replay_selection(path.parent, model, data, dataclasses.replace(results, about=about), votes, 60)


def test_precisions_that_cannot_be_told_apart_are_reported():
    assert check_precision("run", {"bf16": 1, "fp32": 4}, "bf16", 600).endswith("too few to tell the precisions apart")
    assert check_precision("run", {"bf16": 5, "fp32": 10}, "bf16", 600).endswith("in bf16, 10 in fp32")
    with pytest.raises(WrongResultError, match="run: votes are not of bf16: 6 of 600"):
        check_precision("run", {"bf16": 6, "fp32": 11}, "bf16", 600)


def test_time_before_an_interruption_counts():
    """The first segment of this certification was killed before it recorded its time."""
    (path,) = certificates(ROOT / "results/variance-fashion-mnist/fashion-mnist-macer-1.00-seed4")
    results = read_results(path)
    first, second = results.about["segments"]
    assert "seconds" not in first
    spent = results.seconds[: second["first_row"]].sum()
    assert spent > 3
    assert certification_seconds(results) == pytest.approx(spent + second["seconds"])


def test_without_the_images_the_check_is_not_complete(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    shutil.copytree(ROOT / "results" / "mnist" / "mnist-catrs-0.25", tmp_path / "mnist-catrs-0.25")
    with pytest.raises(smoothcert.SmoothcertError, match=r"not run again: mnist is not in .* data get mnist"):
        verify_all(tmp_path, images=1, n=100)
    assert "10,000 rows follow from their votes; images not found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("made", "reason"), [(False, "mnist-c/fog is not available"), (True, "another draw of mnist-c/fog")]
)
def test_corrupted_images_that_nobody_else_has_are_not_asked_for(tmp_path, monkeypatch, mini, made, reason):
    """The published images, or images made here, are another draw of the corruptions."""
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    if made:
        make_corrupted(mini.subset(range(3)), tmp_path / "mnist-c", ["fog"], workers=1)
    run = ROOT / "results" / "mnist" / "mnist-catrs-0.25"
    (path,) = certificates(run)
    results = read_results(path)
    settings = {**results.about["settings"], "data": {"name": "mnist-c/fog", "sha256": ""}}
    corrupted = dataclasses.replace(results, about={**results.about, "settings": settings})
    assert vote_again(run, corrupted, None, 1, 100) == f"network not run ({reason})"


def test_a_page_that_is_not_up_to_date_is_found(tmp_path):
    shutil.copytree(ROOT / "results" / "mnist" / "mnist-catrs-0.25", tmp_path / "mnist" / "mnist-catrs-0.25")
    page = tmp_path / "RESULTS.md"
    page.write_text(results_page(tmp_path))
    verify_page(tmp_path, page)
    page.write_text(page.read_text().replace("0.9329", "0.9330"))
    with pytest.raises(WrongResultError, match="not up to date"):
        verify_page(tmp_path, page)


def kept_as(source, target):
    """Copy a kept run under another name."""
    shutil.copytree(ROOT / "results" / "mnist" / source, target)
    return target


def test_rows_of_other_settings_are_not_held_against_the_five_seeds(tmp_path):
    """The paper has a number for CAT-RS at lambda 4, but its five seeds had lambda 1."""
    run = kept_as("mnist-catrs-1.00", tmp_path / "tradeoff" / "mnist-catrs-1.00-lambda4.00")
    (run / "note.md").write_text("Certificates of\nanother weight.\n")
    page = results_page(tmp_path)
    assert "| 1.00 | CAT-RS, lambda=4.00 | 1.8287 | 1.8287 | 1.777 | +0.0517 | no |  |  |" in page
    assert "- mnist-catrs-1.00-lambda4.00: Certificates of another weight." in page


def test_five_seeds_of_other_images_are_not_held_against_a_row():
    """The paper's seeds on CIFAR-10 are on 2,000 images, where Gaussian has 0.541 instead of 0.525."""
    (path,) = certificates(ROOT / "results" / "mnist" / "mnist-gaussian-0.50")
    entry = dataclasses.replace(describe(read_results(path)), paper=("tab:mnist", ""))
    rows = build_table([entry], paper=True).rows
    assert "| 1.5581 +- 0.0016 |" in distances(rows)[2]
    entry = dataclasses.replace(entry, dataset="cifar10", paper=("tab:cifar10", ""))
    rows = build_table([entry], paper=True).rows
    assert "| 0.525 | +1.0299 | no |  |  |" in distances(rows)[2]


def test_radii_are_rounded_as_the_published_ones_before_they_are_compared(shared):
    radii, printed = [0.0, 0.95291, 1.90582, 3.81164, 1.7449, 1.7451], [0.0, 0.953, 1.91, 3.81, 1.74, 1.75]
    assert as_printed(radii).tolist() == printed
    published = smoothcert.read_results(shared / "published" / "cifar10" / "cat-rs-0.5.tsv").radius
    assert np.array_equal(as_printed(published), published)
    assert published.max() == 1.91, "more than 100,000 votes can prove"


def test_seeds_are_summed_up_on_the_page(tmp_path):
    for name in ("mnist-gaussian-0.25", "mnist-gaussian-0.25-seed1"):
        kept_as("mnist-gaussian-0.25", tmp_path / "variance" / name)
    page = results_page(tmp_path)
    assert "| 0.25 | Gaussian | 2 | 0.9109 | 0.0000 | 0.9109 | 0.0003 |" in page
    assert "same order as the paper" not in page


def test_a_table_of_others_runs_is_shown_when_all_are_there(tmp_path):
    """The l_inf table has no runs of its own; the trade-off table has some and is not shown without them."""
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
    assert results_page(tmp_path).count("##") == 1, "the coverage alone"


def test_two_networks_of_one_name_are_refused(tmp_path):
    kept_as("mnist-gaussian-0.25", tmp_path / "mnist" / "mnist-gaussian-0.25")
    kept_as("mnist-stability-0.25", tmp_path / "variance" / "mnist-gaussian-0.25")
    with pytest.raises(WrongResultError, match=r"variance.*: another network of that name is kept"):
        verify_all(tmp_path, images=0, n=0)


def test_the_page_says_first_what_is_missing(tmp_path):
    """Coverage and headline are counted from the files."""
    kept_as("mnist-gaussian-1.00", tmp_path / "mnist" / "mnist-gaussian-1.00")
    kept_as("mnist-catrs-1.00", tmp_path / "tradeoff" / "mnist-catrs-1.00-lambda4.00")
    page = results_page(tmp_path)
    top = page.split("## Coverage")[0]
    assert "**The paper's main table, CIFAR-10 (ResNet-110), has not been reproduced: 0 of 21 rows.**" in top
    assert "Of 2 rows reproduced on clean images, 1 have an average certified radius (ACR) within 0.01" in top
    assert "CAT-RS, lambda=4.00 on MNIST at sigma 1.00 (1.8287, paper 1.777, +0.0517)" in top
    assert "| MNIST (LeNet) | `tab:mnist` | 1 of 21 | 1 of 1 | -0.0005 | Gaussian: sigma 0.25, sigma 0.50;" in page
    assert "| `tab:trends` | 2 of 19 | 1 of 2 | +0.0517 | Consistency: lambda=1, lambda=5," in page
    assert "(1 of 105 runs are kept)" in page
    assert "Training epochs, as published: 90 for Gaussian (LeNet); 150 for CAT-RS (LeNet)." in page


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


def test_networks_are_compared_on_common_images():
    part = CorruptionPart(np.arange(0, 100, 10), np.full(10, 0.5), np.ones(10, dtype=bool))
    tenth = CorruptedResults("CAT-RS", "mnist-c", 0.25, "catrs", 100_000, "mnist-c", {("fog", 1): part})
    part = CorruptionPart(np.arange(100), np.where(np.arange(100) % 10, 0.4, 0.6), np.ones(100, dtype=bool))
    whole = CorruptedResults("Gaussian", "mnist-c", 0.25, "gaussian", 100_000, "mnist-c", {("fog", 1): part})
    common = on_common_images([whole, tenth])
    lines = means(common)
    assert lines[0] == "Methods compared on the same images (every tenth, 10):"
    assert lines[4] == "| Gaussian | 0.600 | 0.600 to 0.600 | 100.0 | 100.0 to 100.0 |  |"
    assert lines[5] == "| CAT-RS | 0.500 | 0.500 to 0.500 | 100.0 | 100.0 to 100.0 | 0.1000 (0.1000 to 0.1000) |"
    (text,) = swapped_methods(common)
    assert text.startswith("Gaussian is 0.1000 above CAT-RS (95 % interval")
    lines = against_paper([whole, tenth])
    assert lines[4].startswith("| Gaussian | all 100 | 0.420 | 0.629 | -0.2090 | no | 100.0 | 87.0 | +13.0 |")
    assert lines[5].startswith("| CAT-RS | every tenth, 10 | 0.500 | 0.693 | -0.1930 | no |")
    assert (
        lines[-1]
        == "The common images differ from the rest: Gaussian has 0.6000 on the common images and 0.4200 on all."
    )
