import numpy as np
import pytest
from scipy import stats

from smoothcert.cli import main
from smoothcert.errors import SmoothcertError
from smoothcert.results.naming import counts_path, sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.results.records import Record, parse_seconds
from smoothcert.statistics import metrics

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00:14.2", 14.2),
        ("14.2", 14.2),
        ("1:02:03", 3723.0),
        ("2 days, 1:00:00.5", 176400.5),
        ("0:00:08.591588", 8.591588),
    ],
)
def test_times_are_parsed_in_every_published_form(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e13", "-1 day, 23:59:59"])
def test_impossible_times_are_named(text, tmp_path, capsys):
    (tmp_path / "a.tsv").write_text(HEADER + f"7\t3\t3\t0.5\t1\t{text}\n")
    assert main(["report", str(tmp_path / "a.tsv")]) == 1
    assert f"line 2: expected `time` to be a number, but got '{text}'" in capsys.readouterr().err


def test_a_record_round_trips_through_its_row(tmp_path):
    record = Record(7, 3, 3, 0.1 + 0.2, 1.5, [0, 0, 1, 99], [0, 1, 0, 9999])
    (tmp_path / "a.tsv").write_text(HEADER + record.row())
    results = read_results(tmp_path / "a.tsv")
    assert results.radius[0] == 0.1 + 0.2
    assert results.seconds[0] == 1.5
    assert record.count_row() == "7\t3:99 2:1\t3:9999 1:1\n"


def test_published_variants_are_read(tmp_path):
    """No extension, other column order, more columns, seconds as a float, a blank last line."""
    (tmp_path / "noise_0.25").write_text(
        "idx\tpredict\tlabel\tcorrect\tbasePredict\tradius\ttime\n0\t2\t2\t1\t2\t0.5\t3.25\n\n"
    )
    results = read_results(tmp_path / "noise_0.25")
    assert (results.name, results.label[0], results.radius[0], results.seconds[0]) == ("noise_0.25", 2, 0.5, 3.25)
    (tmp_path / "untimed.tsv").write_text("idx\tlabel\tpredict\tradius\tcorrect\n0\t2\t-1\t0.0\t0\n")
    assert read_results(tmp_path / "untimed.tsv").predict[0] == -1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "missing columns: idx"),
        (HEADER, "no rows yet"),
        ("a\tb\n", "missing columns: idx"),
        (HEADER + "0\t1\t1\tx\t1\t0:00:01\n", "line 2: expected `radius` to be a number, but got 'x'"),
        (HEADER + "0.5\t1\t1\t0.5\t1\t0:00:01\n", "expected `idx` to be a whole number"),
        (HEADER + "1e99\t1\t1\t0.5\t1\t0:00:01\n", "expected `idx` to be a whole number"),
        (HEADER + "7\t1\t1\tnan\t1\t0:00:01\n", "image 7 has a radius that is not a finite number"),
        (HEADER + "0\t1\t1\t0.5\t1\t0:00:01\n4\t1\t1\tinf\t1\t0:00:01\n", "image 4 has a radius"),
        (HEADER + "0\t1\t1\t-0.5\t1\t0:00:01\n", "image 0 has a radius"),
        (HEADER + "0\t1\t1\n", "line 2: expected 6 fields, but got 3"),
        (HEADER + "3\t1\t1\t0.5\t1\t0:00:01\n3\t1\t1\t0.9\t1\t0:00:01\n", "image 3 appears twice"),
        (HEADER + "3\t1\t-1\t0.5\t0\t0:00:01\n", "image 3 has a positive radius although the classifier abstained"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, message):
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(SmoothcertError, match=message):
        read_results(tmp_path / "a.tsv")


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(SmoothcertError, match="No such file"):
        read_results(tmp_path / "absent.tsv")
    (tmp_path / "a.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SmoothcertError, match="not a certification results file"):
        read_results(tmp_path / "a.tsv")


def test_metrics_by_hand():
    radius, correct = np.array([0.0, 0.5, 1.0, 2.0, 0.25]), np.array([0, 1, 1, 0, 1], bool)
    assert metrics.average_certified_radius(radius, correct) == pytest.approx(1.75 / 5)
    assert metrics.certified_accuracy(radius, correct, [0, 0.25, 0.26, 1.0, 1.01]).tolist() == [0.6, 0.6, 0.4, 0.2, 0.0]
    assert metrics.abstention_rate([-1, 0, 3, -1]) == 0.5
    assert metrics.linf_accuracy(radius, correct, [0.25, 0.26], 4).tolist() == [0.4, 0.2]


def test_high_probability_accuracy_by_hand():
    """Cohen et al. (2019), by Bernstein: acc - alpha - sqrt(2 alpha (1 - alpha) ln(1/rho) / N) - ln(1/rho) / (3N)."""
    expected = 0.6 - 0.001 - np.sqrt(2 * 0.001 * 0.999 * np.log(1000) / 500) - np.log(1000) / 1500
    assert metrics.high_probability_accuracy(0.6, 500, 0.001, 0.001) == pytest.approx(expected)
    assert metrics.high_probability_accuracy(0.0, 500, 0.001) == 0


@pytest.mark.parametrize("images", [100, 500, 10_000, 50_000])
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.3])
@pytest.mark.parametrize("rho", [0.001, 0.01])
def test_high_probability_accuracy_fails_with_probability_at_most_rho(images, alpha, rho):
    """Exact tail of the binomial number of false certificates, each with probability alpha."""
    deducted = 1 - float(metrics.high_probability_accuracy(1.0, images, alpha, rho))
    assert stats.binom.sf(int(deducted * images + 1e-9), images, alpha) <= rho


def test_intervals_have_their_nominal_coverage():
    generator = np.random.default_rng(0)
    hits = 0
    for seed in range(300):
        sample = generator.exponential(size=200) * (generator.random(200) < 0.7)
        found = metrics.estimate(sample, confidence=0.9, resamples=300, seed=seed)
        assert found.standard_error == pytest.approx(sample.std(ddof=1) / np.sqrt(200))
        hits += found.low <= 0.7 <= found.high
    assert 0.84 < hits / 300 < 0.95


def test_paired_differences_use_common_images():
    generator = np.random.default_rng(0)
    difficulty = generator.random(1000)
    first = (np.arange(1000), difficulty + 0.01, np.ones(1000, bool))
    second = (np.arange(1000)[::2], difficulty[::2] + 0.001 * generator.standard_normal(500), np.ones(500, bool))
    found = metrics.paired_difference(first, second)
    assert found.value == pytest.approx(0.01, abs=2e-4)
    assert found.high - found.low < 0.001, "far narrower than the spread of the images"
    with pytest.raises(ValueError, match="have images in common"):
        metrics.paired_difference((np.arange(5), np.ones(5), np.ones(5)), (np.arange(5) + 9, np.ones(5), np.ones(5)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"settings": 3}', "expected `settings` to be a table, but got 3"),
        ('{"settings": {"data": "mnist"}}', "expected `settings.data` to be a table, but got 'mnist'"),
        ('{"settings": {"sigma": "much", "data": {}}}', "expected `settings.sigma` to be a number > 0, but got 'much'"),
    ],
)
def test_a_sidecar_of_another_program_gives_one_clear_error(tmp_path, capsys, text, message):
    path = tmp_path / "a.tsv"
    path.write_text(HEADER + "0\t1\t1\t0.5\t1\t0:00:01\n")
    sidecar_path(path).write_text(text)
    assert main(["report", str(path)]) == 1
    assert message in capsys.readouterr().err


def test_recertify_needs_the_settings_in_the_sidecar(tmp_path, capsys):
    path = tmp_path / "a.tsv"
    path.write_text(HEADER + "0\t1\t1\t0.5\t1\t0:00:01\n")
    counts_path(path).write_text("idx\tselection\testimation\n0\t1:100\t1:100\n")
    sidecar_path(path).write_text('{"settings": {"task": "certify"}}')
    assert main(["recertify", str(path), "--alpha", "0.01"]) == 2
    assert "lacks data, sigma, n0, n, alpha, seed" in capsys.readouterr().err
