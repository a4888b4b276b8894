"""Results files that were changed are noticed; those that any command writes are not suspected."""

import gzip
import json
import re
import shutil

import pytest

import smoothcert
from smoothcert.certification.cascade import certify_cascade, write_cascade
from smoothcert.certification.compare_precision import compare_precision
from smoothcert.certification.recertify import recertify, write_recertified
from smoothcert.cli import main
from smoothcert.results.merge import merge_results
from smoothcert.results.naming import counts_path, level_paths, looks_path, sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.results.verify import verify_results
from smoothcert.statistics.integer_noise import grid_noise
from smoothcert.statistics.noise import make_noise
from smoothcert.stopping import BudgetStop, RadiusStop, TableStop

SIGMA = 0.4
INDICES = list(range(0, 200, 10))
OPTIONS = {"n0": 20, "n": 600, "indices": INDICES}
RADII = (0.0, 0.25, 0.5)


@pytest.fixture(scope="module")
def files(tiny_model, tiny, tmp_path_factory):
    """Return a function that makes the results of a kind, once, and returns a fresh copy of them."""
    folder, numbers = tmp_path_factory.mktemp("made"), iter(range(1000))

    def classifier(noise=None, sigma=SIGMA):
        options = {"noise": noise} if noise else {}
        return smoothcert.SmoothedClassifier(tiny_model, sigma, 10, micro_batch=64, **options)

    def certify(path, noise=None, **options):
        smoothcert.certify_dataset(classifier(noise), tiny, path, **{**OPTIONS, **options})

    def again(path, source, **wanted):
        write_recertified(path, *recertify(of(source, fresh=False), **wanted))

    def merged(path, **options):
        shards = [path.with_name(f"{part}{path.name}") for part in range(2)]
        for part, shard in enumerate(shards):
            certify(shard, indices=INDICES[part::2], **options)
        merge_results(shards, path)

    def interrupted(path, **options):
        def stop(progress):
            if progress.done > 2 or "stop" in options:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            certify(path, on_progress=stop, **options)

    def compared(path):
        compare_precision(classifier(), classifier(), tiny, path, **OPTIONS)

    def without(path, source, *suffixes):
        copy_results(of(source, fresh=False), path)
        for suffix in suffixes:
            path.with_suffix(suffix).unlink()

    def cascade(path):
        lower = path.with_name("lower.tsv")
        smoothcert.certify_dataset(classifier(sigma=SIGMA / 4), tiny, lower, **OPTIONS)
        write_cascade(path, certify_cascade([of("fixed", fresh=False), lower]))

    def packed(path, source):
        copy_results(of(source, fresh=False), path)
        for file in [path, *path.parent.glob(f"{path.stem}.*counts.tsv")]:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()

    kinds = {
        "fixed": certify,
        "two-sided": lambda path: certify(path, bound="two-sided"),
        "randomised": lambda path: certify(path, bound="randomised", seed=5),
        "uniform": lambda path: certify(path, noise=make_noise("uniform", SIGMA)),
        "grid": lambda path: certify(path, noise=grid_noise(SIGMA, 49)),
        "table": lambda path: certify(path, stop=TableStop(radii=RADII)),
        "skip wrong": lambda path: certify(path, stop=TableStop(radii=RADII, skip_wrong=True)),
        "radius": lambda path: certify(path, stop=RadiusStop(radius=0.25)),
        "budget": lambda path: certify(path, stop=BudgetStop(radii=RADII, samples=4000)),
        "small budget": lambda path: certify(path, stop=BudgetStop(radii=RADII, samples=200)),
        "alpha": lambda path: again(path, "fixed", alpha=0.05),
        "linf": lambda path: again(path, "fixed", norm="linf"),
        "top 2": lambda path: again(path, "fixed", top=2),
        "table, alpha": lambda path: again(path, "table", alpha=0.01),
        "table, randomised": lambda path: again(path, "table", bound="randomised"),
        "table, two-sided, linf": lambda path: again(path, "table", bound="two-sided", norm="linf"),
        "merged": merged,
        "merged table": lambda path: merged(path, stop=TableStop(radii=RADII)),
        "merged, alpha": lambda path: again(path, "merged", alpha=0.01),
        "interrupted": interrupted,
        "interrupted table": lambda path: interrupted(path, stop=TableStop(radii=RADII)),
        "interrupted budget": lambda path: interrupted(path, stop=BudgetStop(radii=RADII, samples=9000)),
        "any order": lambda path: certify(path, indices=[30, 10, 20]),
        "compared precisions": compared,
        "packed": lambda path: packed(path, "fixed"),
        "without votes": lambda path: without(path, "fixed", ".counts.tsv"),
        "table without votes": lambda path: without(path, "table", ".looks.tsv", ".counts.tsv"),
        "top 2 without votes": lambda path: without(path, "top 2", ".counts.tsv"),
        "without sidecar": lambda path: without(path, "fixed", ".json", ".counts.tsv"),
        "cascade": cascade,
        "packed cascade": lambda path: packed(path, "cascade"),
        "cascade without votes": lambda path: without(path, "cascade", ".level1.counts.tsv", ".level2.counts.tsv"),
    }

    def of(kind, *, fresh=True):
        path = folder / f"{kind.replace(' ', '-')}.tsv"
        if not sidecar_path(path).exists() and not path.exists():
            kinds[kind](path)
        if fresh:
            new = folder / str(next(numbers)) / "certify.tsv"
            new.parent.mkdir()
            return copy_results(path, new)
        return path

    of.kinds = kinds
    return of


def copy_results(path, new):
    """Copy a results file with all files beside it; return the new path, which may be gzipped."""
    for file in path.parent.glob(f"{path.stem}.*"):
        shutil.copy(file, new.with_name(new.stem + file.name.removeprefix(path.stem)))
    return new if new.exists() else new.with_name(new.name + ".gz")


KINDS = (
    "fixed", "two-sided", "randomised", "uniform", "grid", "table", "skip wrong", "radius", "budget", "small budget",
    "alpha", "linf", "top 2", "table, alpha", "table, randomised", "table, two-sided, linf", "merged", "merged table",
    "merged, alpha", "interrupted", "interrupted table", "interrupted budget", "any order", "compared precisions",
    "packed", "without votes", "table without votes", "top 2 without votes", "without sidecar", "cascade",
    "packed cascade", "cascade without votes",
)  # fmt: skip


def test_every_kind_is_listed(files):
    assert set(files.kinds) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_every_command_are_accepted(files, kind, capsys):
    path = files(kind)
    verify_results(path, read_results(path))
    assert main(["report", str(path)]) == 0, capsys.readouterr().err


def change_row(column, change, *, correct=False):
    """Change a field of the first correct or wrong certified row."""

    def apply(path):
        header, *rows = (line.split("\t") for line in path.read_text().splitlines())
        names = {name: place for place, name in enumerate(header)}
        wanted = "1" if correct else "0"
        row = next(row for row in rows if row[names["correct"]] == wanted and float(row[names["radius"]]) > 0)
        row[names[column]] = str(change(row[names[column]]))
        path.write_text("".join("\t".join(row) + "\n" for row in (header, *rows)))

    return apply


def change_lines(companion, change):
    def apply(path):
        file = companion(path)
        header, *lines = file.read_text().splitlines(keepends=True)
        file.write_text(header + "".join(change(lines)))

    return apply


def change_settings(**changes):
    """Set settings to values, to functions of the old value, or delete those that are None."""

    def apply(path):
        about = json.loads(sidecar_path(path).read_text())
        for name, value in changes.items():
            *parents, key = name.split("__")
            place = about["settings"]
            for parent in parents:
                place = place[parent]
            place[key] = value(place[key]) if callable(value) else value
            if place[key] is None:
                del place[key]
        sidecar_path(path).write_text(json.dumps(about))

    return apply


def more(factor):
    return lambda value: float(value) * factor


def results_path(path):
    return path


def one_vote_more(lines):
    """Give the leading class a vote of another, in the first row where another has one."""
    for i, line in enumerate(lines):
        fields = [field.split() for field in line.rstrip("\n").split("\t")]
        votes = [field for field in fields if field and all(pair.count(":") == 1 for pair in field)][-1:]
        votes = votes[0] if votes else []
        if len(votes) > 1:
            (top, most), (other, few) = (map(int, pair.split(":")) for pair in votes[:2])
            changed = line.replace(votes[0] + " ", f"{top}:{most + 1} ").replace(votes[1], f"{other}:{few - 1}")
            return [*lines[:i], changed, *lines[i + 1 :]]
    raise AssertionError


def change_selections(lines):
    fields = [line.split("\t") for line in lines]
    return [f"{idx}\t9:20\t{estimation}" for idx, _, estimation in fields]


def change_selection(lines):
    idx, _, estimation = lines[0].split("\t")
    return [f"{idx}\t9:20\t{estimation}", *lines[1:]]


def second_level(path):
    return level_paths(path, 2)[1]


def double_first(value):
    return [2 * value[0], *value[1:]]


def change_unsupported(path):
    """Claim a confidence sequence that is no longer supported, and a radius that only 10^7 votes prove."""
    change_settings(stop__confidence="betting")(path)
    change_row("radius", lambda radius: 3 * SIGMA, correct=True)(path)


TABLE = {"rule": "table", "confidence": "union", "looks": [200, 500, 600], "alphas": [5e-5, 5e-5, 9e-4]}
MANIPULATIONS = [
    ("fixed", "a huge radius", change_row("radius", lambda radius: 100, correct=True), "is 100, but its votes prove"),
    ("fixed", "a radius slightly up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("fixed", "a radius down", change_row("radius", more(0.5), correct=True), "its votes prove"),
    ("fixed", "a class", change_row("predict", lambda predict: 9 - int(predict), correct=True), "column `correct`"),
    ("fixed", "a wrong image made correct", change_row("correct", lambda correct: 1), "column `correct`"),
    ("fixed", "a correct image made wrong", change_row("correct", lambda correct: 0, correct=True), "column `correct`"),
    ("fixed", "a label", change_row("label", lambda label: 9 - int(label), correct=True), "column `correct`"),
    ("fixed", "sigma", change_settings(sigma=0.5), "its votes prove"),
    ("fixed", "n", change_settings(n=100_000), "n in the sidecar is 100,000"),
    ("fixed", "n0", change_settings(n0=100), "n0 in the sidecar is 100"),
    ("fixed", "alpha", change_settings(alpha=0.0001), "its votes prove"),
    ("fixed", "an impossible alpha", change_settings(alpha=2.0), "expected `settings.alpha` to be"),
    ("fixed", "an infinite n", change_settings(n=float("inf")), "expected `settings.n` to be a whole number"),
    ("top 2", "a label beyond the classes", change_row("label", lambda label: 99, correct=True), ""),
    ("fixed", "no alpha", change_settings(alpha=None), "it lacks alpha"),
    ("fixed", "bound", change_settings(bound="two-sided"), "its votes"),
    ("fixed", "noise", change_settings(noise="uniform"), "its votes"),
    ("fixed", "norm", change_settings(norm="linf"), "its votes prove"),
    ("fixed", "top-k", change_settings(top_k=2), "its votes"),
    ("fixed", "images", change_settings(images="0:200:20"), "should be for image|rows, but"),
    ("fixed", "a row dropped", change_lines(results_path, lambda rows: [*rows[:3], *rows[4:]]), "should be for image"),
    ("fixed", "a row duplicated", change_lines(results_path, lambda rows: [rows[0], *rows]), "appears twice"),
    ("fixed", "rows swapped", change_lines(results_path, lambda rows: rows[::-1]), "should be for image"),
    ("fixed", "a vote", change_lines(counts_path, one_vote_more), "its votes prove"),
    ("fixed", "the selection", change_lines(counts_path, change_selection), "its votes"),
    ("fixed", "votes dropped", change_lines(counts_path, lambda rows: rows[1:]), "no votes for image 0"),
    ("fixed", "votes duplicated", change_lines(counts_path, lambda rows: [*rows, rows[0]]), "image 0 appears twice"),
    ("fixed", "no votes", change_lines(counts_path, lambda rows: ["0\tx\ty\n", *rows[1:]]), "line 2: expected"),
    ("fixed", "no sidecar", lambda path: sidecar_path(path).unlink(), "there are votes, but no settings"),
    ("fixed", "classes", change_settings(classes=2), "expected votes for 2 classes"),
    ("fixed", "a stopping rule", change_settings(stop=TABLE), "looks.tsv is missing"),
    ("fixed", "no settings", lambda path: sidecar_path(path).write_text("{}"), "there are votes, but no settings"),
    ("two-sided", "bound", change_settings(bound=None), "its votes"),
    ("two-sided", "a radius up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("two-sided", "classes", change_settings(classes=1000), "its votes"),
    ("randomised", "seed", change_settings(seed=6), "its votes prove"),
    ("randomised", "bound", change_settings(bound=None), "its votes"),
    ("uniform", "noise", change_settings(noise=None, norm=None), "its votes"),
    ("grid", "a radius up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("top 2", "top-k", change_settings(top_k=3), "its votes"),
    ("linf", "norm", change_settings(norm=None), "its votes prove"),
    ("linf", "dimensions", change_settings(data__dimensions=1), "its votes prove"),
    ("table", "a radius up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("table", "alpha", change_settings(alpha=0.01), "do not match its n and alpha"),
    ("table", "n", change_settings(n=100_000), "do not match its n and alpha"),
    ("table", "n0", change_settings(n0=100), "or do not add up to n0"),
    ("table", "shares of alpha", change_settings(stop__alphas=double_first), "do not match its|sum to at most"),
    ("table", "looks", change_settings(stop__looks=double_first), ""),
    ("table", "no confidence", change_settings(stop__confidence=None), "lacks confidence"),
    ("table", "confidence", change_settings(stop__confidence="other"), "no longer supported"),
    ("table", "no rule", change_settings(stop=None), "n in the sidecar is 600"),
    ("table", "a row dropped", change_lines(results_path, lambda rows: rows[1:]), "no row for image 0"),
    ("table", "votes of a look", change_lines(looks_path, one_vote_more), "line|differ between"),
    ("table", "votes", change_lines(counts_path, one_vote_more), "differ between"),
    ("table", "no looks", lambda path: looks_path(path).unlink(), "looks.tsv is missing"),
    ("table", "no counts", lambda path: counts_path(path).unlink(), "counts.tsv is missing"),
    ("table", "a radius beyond n", change_unsupported, "proves"),
    ("cascade", "no second level", lambda path: second_level(path).unlink(), "level2.counts.tsv is missing"),
    ("cascade", "a radius up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("cascade", "a class", change_row("predict", lambda predict: 9 - int(predict), correct=True), "column `correct`"),
    ("cascade", "p0", change_settings(cascade__p0=0.6), "its votes"),
    ("cascade", "an impossible p0", change_settings(cascade__p0=0.1), "`p0`"),
    ("cascade", "share of alpha", change_settings(cascade__first_share=0.9), "its votes prove"),
    ("cascade", "alpha", change_settings(alpha=0.01), "its votes"),
    ("cascade", "n", change_settings(n=500), "n in the sidecar is 500"),
    ("cascade", "sigma", change_settings(sigma=1.0), "cascade's first level"),
    ("cascade", "no cascade", change_settings(cascade=None), "it lacks `cascade`, although"),
    ("cascade", "no levels", change_settings(cascade__levels=None), "expected `settings.cascade.levels`"),
    ("cascade", "votes of a level", change_lines(second_level, lambda rows: rows[1:]), "for other images than"),
    ("cascade", "selection of a level", change_lines(second_level, change_selections), "its votes"),
    ("cascade without votes", "a huge radius", change_row("radius", lambda radius: 100), "is 100, but n = 600"),
    ("merged", "a row dropped", change_lines(results_path, lambda rows: rows[1:]), "should be for image"),
    ("interrupted", "a row dropped", change_lines(results_path, lambda rows: rows[1:]), "should be for image"),
    ("compared precisions", "a radius up", change_row("radius", more(1.0001), correct=True), "its votes prove"),
    ("without votes", "a huge radius", change_row("radius", lambda radius: 100), "is 100, but n = 600"),
    ("without votes", "n", change_settings(n=20), "n = 20"),
    ("without votes", "sigma", change_settings(sigma=0.01), "sigma 0.01 proves"),
    ("without votes", "correct", change_row("correct", lambda correct: 1), "column `correct`"),
    ("table without votes", "a huge radius", change_row("radius", lambda radius: 100), "is 100, but n = 600"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "apply", "message"),
    [pytest.param(kind, apply, message, id=f"{kind}: {what}") for kind, what, apply, message in MANIPULATIONS],
)
def test_changes_are_noticed(files, kind, apply, message, capsys):
    path = files(kind)
    apply(path)
    assert main(["report", str(path)]) == 1
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert re.search(message, said), said


def test_unverified_results_can_be_read_and_recertified(files, capsys):
    path = files("fixed")
    change_row("radius", lambda radius: 100, correct=True)(path)
    assert main(["recertify", str(path), "--alpha", "0.01"]) == 1
    assert "`--unverified` reads them anyway" in capsys.readouterr().err
    for command in (["report", str(path)], ["recertify", str(path), "--alpha", "0.01"]):
        assert main([*command, "--unverified"]) == 0
        assert "not checked" in capsys.readouterr().err
    assert main(["report", str(path.with_name("certify-alpha0.01.tsv"))]) == 0, "recomputed from the votes"


def test_a_missing_last_row_is_an_unfinished_run(files, capsys):
    path = files("fixed")
    change_lines(results_path, lambda rows: rows[:-1])(path)
    assert main(["report", str(path)]) == 0
    assert "19 of 20 images so far" in capsys.readouterr().err


def test_published_radii_must_be_possible_at_their_noise_level(tmp_path, shared, capsys):
    """Radii of published files are rounded, and n is unknown: none of these is refused."""
    assert main(["report", str(shared / "published/cifar10")]) == 0
    path = tmp_path / "cat-rs-0.25.tsv"
    shutil.copy(shared / "published/cifar10" / path.name, path)
    change_row("radius", lambda radius: 2.0, correct=True)(path)
    capsys.readouterr()
    assert main(["report", str(path)]) == 1
    assert "is 2, but noise of sigma 0.25 proves 1.219 at most" in capsys.readouterr().err
    assert main(["report", str(path), "--sigma", "0.5"]) == 0
    change_row("radius", lambda radius: 100, correct=True)(path)
    assert main(["report", str(path), "--sigma", "0.5"]) == 1
    change_row("correct", lambda correct: 1)(path)
    assert main(["report", str(path), "--unverified"]) == 0


def test_radii_on_corrupted_images_are_checked_by_the_name_of_their_folder(tmp_path, capsys):
    folder = tmp_path / "cat-rs-0.25"
    folder.mkdir()
    (folder / "fog.tsv").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t2.0\t1\t0:00:01\n")
    assert main(["report", str(folder)]) == 1
    assert "noise of sigma 0.25 proves 1.219 at most" in capsys.readouterr().err
    assert main(["report", str(folder), "--sigma", "0.5"]) == 0


def test_a_run_in_progress_is_read_twice_before_it_is_refused(files, monkeypatch, capsys):
    """It may replace its counts and its rows between our reading of one and the other."""
    path, calls = files("table"), []
    honest = path.read_text()
    change_row("radius", more(0.5), correct=True)(path)
    changed = path.read_text()

    def read(file):
        calls.append(file)
        file.write_text(changed if len(calls) == 1 else honest)
        return read_results(file)

    monkeypatch.setattr("smoothcert.results.verify.read_results", read)
    assert main(["report", str(path)]) == 0, capsys.readouterr().err
    assert len(calls) == 2


def test_merge_notices_changes(files, tmp_path, capsys):
    path, out = files("fixed"), tmp_path / "out.tsv"
    change_row("radius", more(1.0001), correct=True)(path)
    assert main(["merge", str(path), "--out", str(out)]) == 1
    assert "its votes prove" in capsys.readouterr().err
    assert not out.exists()
    assert main(["merge", str(path), "--out", str(out), "--unverified"]) == 0
    assert main(["report", str(out)]) == 1
