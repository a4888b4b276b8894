"""Results on corrupted images: reading, averaging and tables, and the whole path from generating to reporting."""

import dataclasses
import json

import numpy as np
import pytest

import smoothcert
from smoothcert.cli import main
from smoothcert.dataset_names import CORRUPTIONS
from smoothcert.errors import SmoothcertError
from smoothcert.report.corrupted.grouping import read_corrupted
from smoothcert.report.corrupted.means import summarize
from smoothcert.report.corrupted.tables import corruption_sheets
from smoothcert.report.figures.heatmap import draw_heat_map
from smoothcert.report.page import corruption_maps
from smoothcert.report.sources import find_results
from smoothcert.statistics import metrics

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


def write(path, idx, radius, correct):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (f"{i}\t1\t{int(c)}\t{r:.3g}\t{int(c)}\t0:00:01\n" for i, r, c in zip(idx, radius, correct, strict=True))
    path.write_text(HEADER + "".join(rows))


def read_folder(folder):
    return read_corrupted([path for _, path in find_results([str(folder)])])


@pytest.fixture
def published(tmp_path):
    """Published results of two methods, rows 0, 100, ... of 50,000, one file per corruption; and their values."""
    rng, values = np.random.default_rng(3), {}
    for method in ("cat-rs", "cohen"):
        for corruption in CORRUPTIONS["cifar10-c"]:
            radius, correct = rng.uniform(0, 1, 500).round(3), rng.random(500) < 0.7
            write(tmp_path / method / f"{corruption}.tsv", range(0, 50_000, 100), radius, correct)
            values[method, corruption] = (radius, correct)
        write(tmp_path / method / "clean.tsv", range(0, 10_000, 50), np.full(200, 0.25), np.arange(200) % 4 > 0)
    return tmp_path, values


def test_published_results_pooled_over_severities(published, capsys):
    folder, values = published
    assert main(["report", str(folder), "--json", "--paper"]) == 0
    ours = {entry["method"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(ours) == {"catrs", "gaussian"}
    for method, name in (("cat-rs", "catrs"), ("cohen", "gaussian")):
        by_type = {c: values[method, c] for c in CORRUPTIONS["cifar10-c"]}
        acr = {c: (radius * correct).mean() for c, (radius, correct) in by_type.items()}
        assert ours[name]["mACR"]["value"] == pytest.approx(np.mean(list(acr.values())))
        assert ours[name]["mAcc"]["value"] == pytest.approx(100 * np.mean([c.mean() for _, c in by_type.values()]))
        assert ours[name]["acr"]["by_corruption"] == pytest.approx(acr)
        third = [(r * c)[200:300].mean() for r, c in by_type.values()]
        assert ours[name]["acr"]["by_severity"]["3"] == pytest.approx(np.mean(third))
        assert ours[name]["accuracy"]["clean"] == pytest.approx(50.0)  # every second clean row
        assert ours[name]["images"] == 100
        assert ours[name]["missing"] == []
    assert ours["catrs"]["acr"]["paper"]["mean"] == 0.475


def test_corrupted_and_clean_results_are_reported_together(published, shared, capsys, tmp_path):
    folder, _ = published
    plain = str(shared / "published/cifar10/cat-rs-0.25.tsv")
    arguments = ["report", str(folder), plain, "--dataset", "cifar10"]
    assert main([*arguments, "--json", "--out", str(tmp_path / "all.md")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert ["mACR" in row for row in rows] == [True, True, False]
    assert (tmp_path / "all.md").read_text().count("| :-- |") == 2
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("CAT-RS") == 3


def test_layouts_with_one_file_per_severity_give_the_same_numbers(published, tmp_path):
    folder, values = published
    for corruption in CORRUPTIONS["cifar10-c"]:
        radius, correct = values["cat-rs", corruption]
        for level in range(1, 6):
            rows = slice(100 * level - 100, 100 * level)
            indices = range(0, 10_000, 100)
            write(tmp_path / "names" / "cat-rs" / f"{corruption}-{level}.tsv", indices, radius[rows], correct[rows])
            write(
                tmp_path / "folders" / "cat-rs" / str(level) / f"{corruption}.tsv", indices, radius[rows], correct[rows]
            )
            long = tmp_path / "long" / "cat-rs" / f"{corruption}_severity_{level}.tsv"
            write(long, indices, radius[rows], correct[rows])
            write(
                tmp_path / "sev" / "cat-rs" / f"sev{level}" / f"{corruption}.tsv", indices, radius[rows], correct[rows]
            )
            above = tmp_path / "above" / f"severity_{level}" / "cat_rs" / f"{corruption}.tsv"
            write(above, range(10_000 * (level - 1), 10_000 * level, 100), radius[rows], correct[rows])
        write(tmp_path / "above" / "cat_rs" / f"{corruption}.tsv", range(0, 50_000, 100), radius, correct)
    (pooled,) = read_folder(folder / "cat-rs")
    for other in ("names", "folders", "long", "sev", "above"):  # the last is the layout of the paper's repository
        (separate,) = read_folder(tmp_path / other)
        assert separate.method == "catrs"
        for kind in ("acr", "accuracy"):
            assert summarize(separate, kind).cells == summarize(pooled, kind).cells
            assert summarize(separate, kind).mean == summarize(pooled, kind).mean


def test_the_current_folder_can_be_reported(published, monkeypatch, capsys):
    folder, _ = published
    monkeypatch.chdir(folder / "cat-rs")
    for named in (".", "../cat-rs"):
        assert main(["report", named, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["name"], row["accuracy"]["clean"]) == ("CAT-RS", 50.0)


def test_the_table(published, capsys, tmp_path):
    folder, _ = published
    assert main(["report", str(folder), "--paper", "--sigma", "0.25", "--out", str(tmp_path / "t.md")]) == 0
    text = capsys.readouterr().out
    assert text.count("CAT-RS") == text.count("Gaussian") == 2
    assert "sev 5" in text
    assert text.count("paper") == 4
    assert (tmp_path / "t.md").read_text().count("|") > 100
    (folder / "cohen" / "fog.tsv").unlink()
    assert main(["report", str(folder)]) == 0
    assert "Gaussian: no fog; the mean is over the other corruptions." in capsys.readouterr().err


def write_own(path, data, idx, correct, *, sigma=0.25, n=100, radius=0.25, **model):
    """Write results with a sidecar, for a dataset of 20 images at one severity."""
    write(path, idx, [radius] * len(idx), correct)
    settings = {
        "sigma": sigma,
        "n": n,
        "data": {"name": data, "rows": 20, "severities": 1},
        "model": {"method": "catrs", **model},
    }
    path.with_suffix(".json").write_text(json.dumps({"settings": settings}))


def test_clean_results_must_have_the_same_weights(tmp_path):
    """A retrained run has the same name, in the folder of another table."""
    for weights, right in (("a", True), ("b", False)):
        (tmp_path / weights / "run").mkdir(parents=True)
        write_own(tmp_path / weights / "run" / "clean.tsv", "mnist", range(20), [right] * 20, sha256=weights)
    write_own(tmp_path / "b" / "run" / "fog.tsv", "mnist-c/fog", range(20), [True] * 20, sha256="a")
    (entry,) = read_corrupted(tmp_path.glob("*/run/*.tsv"))
    assert summarize(entry, "accuracy").clean == 100.0
    (tmp_path / "a" / "run" / "clean.tsv").unlink()
    (entry,) = read_corrupted(tmp_path.glob("*/run/*.tsv"))
    assert entry.clean is None


def test_clean_results_must_be_on_the_same_images(tmp_path):
    """A subset of a corrupted dataset has its own indices, so its image 3 is another image of the full dataset."""
    write_own(tmp_path / "run" / "fog.tsv", "mnist-c/fog", range(4), [True] * 4)
    write_own(tmp_path / "run" / "clean.tsv", "mnist", range(20), [True] * 20)
    (found,) = read_folder(tmp_path)
    assert summarize(found, "accuracy").clean == 100.0
    rows = (tmp_path / "run" / "clean.tsv").read_text().replace("\n3\t1\t1\t", "\n3\t7\t7\t")
    (tmp_path / "run" / "clean.tsv").write_text(rows)
    (found,) = read_folder(tmp_path)
    assert found.clean is None


@pytest.mark.parametrize("key", ["sha256", "weights"])
def test_results_of_a_retrained_network_are_not_mixed(tmp_path, key):
    """The hash is that of the file, or of the weights for a network that was not read from a file."""
    names = {"fog": ("a", range(20), True), "fog-skip2": ("b", range(0, 20, 2), False), "shear": ("a", range(20), True)}
    for name, (weights, images, right) in names.items():
        data = f"mnist-c/{name.removesuffix('-skip2')}"
        write_own(tmp_path / "run" / f"{name}.tsv", data, images, [right] * len(images), **{key: weights})
    found = {tuple(entry.corruptions): summarize(entry, "accuracy").mean.value for entry in read_folder(tmp_path)}
    assert found == {("shear", "fog"): 100.0, ("fog",): 0.0}
    assert [entry.name for entry in read_folder(tmp_path)] == ["CAT-RS (run) 1", "CAT-RS (run) 2"]


def test_networks_of_one_method_get_unique_names(tmp_path, capsys):
    """Two seeds, one of them also with a larger n: three rows, in two heat maps on the page and two figures."""
    for run, n in (("first", 100), ("second", 100), ("second", 200)):
        write_own(tmp_path / run / f"fog-n{n}.tsv", "mnist-c/fog", range(20), [True] * 20, n=n, sha256=run)
    entries = read_folder(tmp_path)
    assert [entry.name for entry in entries] == ["CAT-RS (first)", "CAT-RS (second)", "CAT-RS"]
    maps = corruption_maps(entries)
    networks = [{network for _, network in map} for map in maps.values()]
    assert networks == 2 * [{"CAT-RS (first)", "CAT-RS (second)"}, {"CAT-RS"}]
    assert list(maps)[:2] == ["ACR: σ 0.25, mnist-c, n = 100", "ACR: σ 0.25, mnist-c, n = 200"]
    acr = maps["ACR: σ 0.25, mnist-c, n = 100"]
    assert [kind for kind, network in acr if network == "CAT-RS (first)"] == ["fog", "mean"]
    assert acr["mean", "CAT-RS (first)"] == summarize(entries[0], "acr").mean.value
    assert main(["report", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 0
    drawn = sorted(path.name for path in (tmp_path / "figures").glob("corruption-*.png"))
    assert drawn == ["corruption-mnist-c-0.25-n100.png", "corruption-mnist-c-CAT-RS-0.25-n200.png"]
    same = [dataclasses.replace(entry, name="CAT-RS", n=n) for entry, n in zip(entries, (100, 200), strict=False)]
    assert len(corruption_maps(same)) == 4


def test_heat_maps_of_networks_have_image_counts_and_the_papers_means(tmp_path):
    for run, images in (("first", 20), ("second", 10)):
        for kind in CORRUPTIONS["mnist-c"] if run == "first" else ("fog",):
            write_own(tmp_path / run / f"{kind}.tsv", f"mnist-c/{kind}", range(images), [True] * images, sha256=run)
    acr, accuracy = corruption_maps(read_folder(tmp_path)).values()
    first, second = "CAT-RS (first), 20 images", "CAT-RS (second), 10 images"
    assert {network for _, network in acr} == {first, second}
    assert acr["mean (paper)", first] == 0.693
    assert accuracy["mean (paper)", first] == 85.7
    assert ("mean (paper)", second) not in acr, "its mean is not over the same corruptions"


def test_networks_on_different_images_are_not_marked(tmp_path, capsys):
    for run, right in (("first", 20), ("second", 10)):
        outcome = [True] * right + [False] * (20 - right)
        write_own(tmp_path / run / "fog.tsv", "mnist-c/fog", range(20), outcome, sha256=run)

    def marks():
        (sheet,) = corruption_sheets(read_folder(tmp_path))
        return {cell.mark for line in sheet.lines for cell in line}

    assert marks() == {"best", "second", ""}
    write_own(tmp_path / "second/fog.tsv", "mnist-c/fog", range(10), [True] * 10, sha256="second")
    assert marks() == {""}
    assert main(["report", str(tmp_path)]) == 0
    assert "mark no best values: their rows cover different images" in capsys.readouterr().err


def test_figures_compare_networks_on_shared_images(tmp_path):
    for run, images in (("first", 20), ("second", 10)):
        for kind in ("fog", "stripe", "snow"):
            write_own(tmp_path / run / f"{kind}.tsv", f"mnist-c/{kind}", range(images), [True] * images, sha256=run)
    entries = read_folder(tmp_path)
    same = [entries[0], dataclasses.replace(entries[0], name="again")]
    drawn = [draw_heat_map(networks).axes[0] for networks in (entries, same)]
    uneven, even = ([label.get_text() for label in axes.get_xticklabels()] for axes in drawn)
    assert uneven == ["CAT-RS (first)", "CAT-RS (second)"]
    assert drawn[0].get_title().endswith(", 10 shared images")
    assert even == ["CAT-RS (first)", "again"]
    rows = [label.get_text() for label in drawn[0].get_yticklabels()]
    assert rows == ["stripe", "fog", "mean", "snow"], "the mean is below the corruptions that it averages"
    shown = [text.get_text() for text in drawn[0].texts]
    assert shown[4:6] == [f"{summarize(entry, 'acr').mean.value:.3f}" for entry in entries]


def test_files_of_one_corruption_are_joined(tmp_path, capsys):
    """Shards are merged; of duplicate images the larger file counts; a different n is kept separate."""
    odd, even, right = range(1, 20, 2), range(0, 20, 2), [True] * 10
    for name in ("fog", "stripe"):
        write_own(tmp_path / f"{name}-shard1of2.tsv", f"mnist-c/{name}", odd, right)
        write_own(tmp_path / f"{name}-shard2of2.tsv", f"mnist-c/{name}", even, [False] * 10)
        write_own(tmp_path / f"{name}-skip10.tsv", f"mnist-c/{name}", [0, 10], [True] * 2)
        write_own(tmp_path / f"{name}-more.tsv", f"mnist-c/{name}", odd, right, n=1000)
    write_own(tmp_path / "clean-skip10.tsv", "mnist", [0, 10], [True] * 2)
    write_own(tmp_path / "clean.tsv", "mnist", range(20), [True] * 19 + [False])
    write_own(tmp_path / "clean-more.tsv", "mnist", range(20), [False] * 20, n=1000)
    few, more = sorted(read_folder(tmp_path), key=lambda entry: entry.n)
    assert (few.n, len(few.images), more.n, len(more.images)) == (100, 20, 1000, 10)
    assert few.parts["fog", 1].images.tolist() == list(range(20))
    assert summarize(few, "accuracy").mean.value == 50.0
    assert summarize(few, "accuracy").clean == 95.0
    assert (summarize(more, "accuracy").mean.value, summarize(more, "accuracy").clean) == (100.0, 0.0)
    assert few.uneven == more.uneven == []
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("CAT-RS") == 4 + 3, "two measures of two results, and the clean images' rows"
    (tmp_path / "fog-shard2of2.tsv").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert "CAT-RS: some of the 20 images are not in fog;" in capsys.readouterr().err


def test_held_out_corruptions_are_not_in_the_mean(tmp_path, capsys):
    """They come last; without others they have their own mean. The corruption `identity` gives the column `clean`."""
    for name, right in (("gaussian_noise", 5), ("inverse", 15)):
        write_own(tmp_path / f"{name}.tsv", f"mnist-c/{name}", range(20), [i < right for i in range(20)])
    (alone,) = read_folder(tmp_path)
    assert (alone.suite, alone.corruptions, alone.missing) == ("mnist-c", ["gaussian_noise", "inverse"], [])
    assert summarize(alone, "accuracy").mean.value == 50.0
    write_own(tmp_path / "fog.tsv", "mnist-c/fog", range(20), [True] * 20)
    write_own(tmp_path / "identity.tsv", "mnist-c/identity", range(20), [i > 0 for i in range(20)])
    (entry,) = read_folder(tmp_path)
    summary = summarize(entry, "accuracy")
    assert (entry.corruptions, entry.held_out, len(entry.missing)) == (["fog"], ["gaussian_noise", "inverse"], 14)
    assert summary.mean.value == 100.0
    assert summary.by_corruption == {"fog": 100.0, "gaussian_noise": 25.0, "inverse": 75.0}
    assert summary.by_severity == {1: 100.0}
    assert summary.clean == 95.0
    assert main(["report", str(tmp_path), "--paper"]) == 0
    header = capsys.readouterr().out.splitlines()[0].split()
    assert header[5:9] == ["fog", "gaussian_noise", "inverse", "clean"]


def test_identity_alone_is_a_row_of_the_main_table(tmp_path, capsys):
    write_own(tmp_path / "identity.tsv", "mnist-c/identity", range(20), [True] * 20)
    assert main(["report", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["method"], row["acr"]["value"]) == ("catrs", 0.25)


def test_the_papers_numbers_are_added_for_its_datasets_only(tmp_path, capsys):
    for data, sigma in (("mnist-c", 0.25), ("mnist-c", 0.5), ("fashion_mnist-c", 0.25)):
        write_own(tmp_path / f"{data}-{sigma}" / "fog.tsv", f"{data}/fog", range(20), [True] * 20, sigma=sigma)
    assert main(["report", str(tmp_path), "--paper", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    beside = {(row["dataset"], row["sigma"]): row["acr"]["paper"].get("mean") for row in rows}
    assert beside == {("mnist-c", 0.25): 0.693, ("mnist-c", 0.5): None, ("fashion_mnist-c", 0.25): None}
    assert main(["report", str(tmp_path), "--paper"]) == 0
    text = capsys.readouterr().out
    assert text.count("paper") == 2
    assert "*" not in text  # rows on different images are not marked
    assert [line.split()[0] for line in text.splitlines() if "sigma" in line] == ["fashion_mnist-c", *["mnist-c"] * 2]


@pytest.mark.parametrize("dataset", ["cifar10", "CIFAR-10-C"])
def test_the_dataset_decides_between_suites(tmp_path, capsys, dataset):
    write(tmp_path / "cohen" / "fog.tsv", range(0, 10_000, 100), [0.5] * 100, [True] * 100)
    assert main(["report", str(tmp_path), "--json", "--dataset", dataset]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert set(row["missing"]) == {*CORRUPTIONS["cifar10-c"]} - {"fog"}


def test_unusable_files_raise(tmp_path, capsys):
    write(tmp_path / "a" / "fog.tsv", [50_000], [0.1], [True])
    with pytest.raises(SmoothcertError, match="5 severities of 10,000 images, but got image 50000"):
        read_folder(tmp_path / "a")
    write(tmp_path / "b" / "fig.tsv", [0], [0.1], [True])
    with pytest.raises(SmoothcertError, match="Expected fig to be named after a corruption"):
        read_folder(tmp_path / "b")
    write(tmp_path / "c" / "zigzag.tsv", [0], [0.1], [True])
    write(tmp_path / "c" / "snow.tsv", [0], [0.1], [True])
    with pytest.raises(SmoothcertError, match="Neither mnist-c nor cifar10-c contains all of .* snow, zigzag"):
        read_folder(tmp_path / "c")
    (tmp_path / "d").mkdir()
    assert main(["report", str(tmp_path / "d")]) == 2
    assert "contains no certification results file" in capsys.readouterr().err


def test_the_interval_accounts_for_repeated_images():
    """Values of one image are correlated: the error is that of 50 images, not of 750 rows."""
    rng = np.random.default_rng(0)
    each = rng.normal(size=50)
    totals = np.tile(each, (15, 1)) + 1e-3 * rng.normal(size=(15, 50))
    found = metrics.cluster_estimate(totals, np.ones_like(totals))
    assert found.value == pytest.approx(totals.mean())
    assert found.standard_error == pytest.approx(totals.mean(axis=0).std() / np.sqrt(50), rel=0.1)
    assert found.low < found.value < found.high
    # Groups of different sizes have equal weight.
    counts = np.ones_like(totals)
    counts[0, 10:] = 0
    expected = np.mean([totals[0, :10].mean(), *totals[1:].mean(axis=1)])
    assert metrics.cluster_estimate(totals * counts, counts).value == pytest.approx(expected)
    counts[0, 1:] = 0  # resamples without a group's only image do not count for it
    rare = metrics.cluster_estimate(totals * counts, counts)
    assert np.isfinite([rare.standard_error, rare.low, rare.high]).all()


def test_marks_compare_numbers_not_text(tmp_path):
    for run, right in (("one", 20), ("two", 1), ("three", 4)):
        write_own(tmp_path / run / "fog.tsv", "mnist-c/fog", range(20), [i < right for i in range(20)], sha256=run)
    (sheet,) = corruption_sheets(read_folder(tmp_path))
    marks = {line[3].text: line[3].mark for line in sheet.groups[1]}
    assert marks == {"100.0": "best", "20.0": "second", "5.0": ""}


@pytest.fixture(scope="module")
def mini_c(tmp_path_factory):
    """All corruptions of mnist-mini at the published severities."""
    root = tmp_path_factory.mktemp("data")
    assert main(["data", "make", "mnist-mini-c", "--data-dir", str(root)]) == 0
    return root


def test_generate_certify_and_read(mini_c, tmp_path, monkeypatch, capsys):
    """The whole path on all 15 corruptions of MNIST-C, with a bundled pretrained model and few noise samples."""
    monkeypatch.chdir(tmp_path)
    clean = smoothcert.load_dataset("mnist-mini", "test")
    for name in CORRUPTIONS["mnist-c"]:
        data = smoothcert.load_dataset(f"mnist-mini-c/{name}", "test", mini_c)
        assert data.labels.tolist() == clean.labels.tolist()
        change = (data.images[range(1000)].float() - clean.images.float()).abs().mean()
        assert 5 < change < 140, name
    arguments = ["certify", "--pretrained", "mnist-catrs-0.25", "--n", "50", "--n0", "10", "--skip", "100"]
    corrupted = [*arguments, "--data", "mnist-mini-c", "--data-dir", str(mini_c)]
    assert main([*arguments, "--data", "mnist-mini"]) == 0
    assert main([*corrupted, "--dry-run"]) == 0
    assert "150" in capsys.readouterr().out
    assert main([*corrupted, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["missing"] == []
    assert entry["images"] == 10
    run = tmp_path / "runs" / "mnist-catrs-0.25"
    before = {path.name: path.read_bytes() for path in run.glob("*.tsv")}
    assert len(before) == 32
    assert main(corrupted) == 0  # nothing is certified again
    assert {path.name: path.read_bytes() for path in run.glob("*.tsv")} == before
    capsys.readouterr()
    assert main(["report", str(run), "--json"]) == 0
    again, row = json.loads(capsys.readouterr().out)
    assert (row["dataset"], row["images"]) == ("mnist-mini", 10)
    assert again["mACR"] == entry["mACR"]
    assert again["accuracy"]["clean"] == 100.0
    assert main(["predict", *arguments[1:5], "--data", "mnist-mini-c", "--data-dir", str(mini_c), "--skip", "250"]) == 0
    assert "mnist-mini-c/zigzag: images 4, accuracy" in capsys.readouterr().out
    # As in the paper, fog and translation break the network, dotted lines and shot noise hardly do.
    assert again["accuracy"]["by_corruption"]["fog"] < 60 < again["accuracy"]["by_corruption"]["dotted_line"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "mnist-mini", "--corruption", "fog"], "requires a corrupted dataset, but mnist-mini is not"),
        (["--data", "mnist-mini", "--severity", "1"], "requires a corrupted dataset, but mnist-mini is not"),
        (["--data", "mnist-mini-c", "--severity", "2"], "`--severity` to be from 1 to 1, but got 2"),
        (["--data", "mnist-mini-c", "--corruption", "frog"], "Unknown corruption 'frog'"),
        (["--data", "mnist-mini-c", "--out", "a.tsv"], "but mnist-mini-c needs 15, one per corruption"),
        (["--data", "mnist-mini-c", "--split", "train"], "has only a test split"),
        (["--data", "mnist-mini-c", "--resize", "32"], "are for image folders, but mnist-mini-c is not one"),
    ],
)
def test_bad_options(mini_c, capsys, options, message):
    arguments = ["certify", "--pretrained", "mnist-catrs-0.25", "--n", "50", "--data-dir", str(mini_c)]
    assert main([*arguments, *options]) == 2
    assert message in capsys.readouterr().err


def test_severities_and_partial_sets(tmp_path, capsys, monkeypatch):
    """Five severities of color images: the same images are chosen at each, and files state their severities."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar10-c"
    folder.mkdir()
    np.save(folder / "fog.npy", rng.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", np.tile(np.arange(4, dtype=np.uint8), 5))
    model = smoothcert.create_model("cifar_resnet20")
    smoothcert.save_checkpoint(tmp_path / "net.safetensors", model, dataset="cifar10", sigma=0.25, method="gaussian")
    arguments = ["certify", str(tmp_path / "net.safetensors"), "--data", "cifar10-c", "--data-dir", str(tmp_path)]
    arguments += ["--n", "10", "--n0", "5", "--skip", "3"]
    assert main([*arguments, "--severity", "2", "5"]) == 0
    said = capsys.readouterr()
    assert "no gaussian_noise, shot_noise" in said.err
    results = smoothcert.read_results(next(tmp_path.glob("*severity25*n10-skip3.tsv")))
    assert results.idx.tolist() == [4, 7, 16, 19]
    (read,) = read_folder(tmp_path)
    assert sorted(read.parts) == [("fog", 2), ("fog", 5)]
    assert read.images.tolist() == [0, 3]
    assert (read.suite, read.dataset) == ("cifar10-c", "cifar10-c")
