"""Whole data sets: the same rows for any batch and shard, after any interruption; and nothing lost when things fail."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.results.naming import counts_path

OPTIONS = {"n0": 20, "n": 300, "indices": range(0, 200, 10)}


def rows(path):
    """The rows without their times, and the counts beside them, as bytes."""
    lines = path.read_bytes().splitlines()
    return [line.rsplit(b"\t", 1)[0] for line in lines], counts_path(path).read_bytes()


@pytest.fixture(scope="module")
def classifier(trained_lenet):
    return smoothcert.SmoothedClassifier(trained_lenet, 0.5, 10, micro_batch=64)


@pytest.fixture(scope="module")
def reference(classifier, mini, tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "whole.tsv"
    smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    return rows(path)


def test_files_hold_what_certify_says(classifier, mini, tmp_path):
    records = smoothcert.certify_dataset(classifier, mini, tmp_path / "a.tsv", **OPTIONS)
    images = mini.floats(OPTIONS["indices"])
    found = classifier.certify(images, n0=20, n=300, index=list(OPTIONS["indices"]))
    results = smoothcert.read_results(tmp_path / "a.tsv")
    assert results.idx.tolist() == list(OPTIONS["indices"])
    assert results.label.tolist() == mini.labels[:200:10].tolist()
    assert results.predict.tolist() == found.prediction.tolist() == [record.predict for record in records]
    assert results.radius.tolist() == found.radius.tolist(), "full precision survives the file"
    assert results.correct.tolist() == (found.prediction == mini.labels[:200:10]).tolist()
    selection, estimation = smoothcert.read_counts(tmp_path / "a.tsv", 10)
    assert selection.tolist() == found.selection_counts.tolist()
    assert estimation.tolist() == found.counts.tolist()
    settings = results.about["settings"]
    expected = {"sigma": 0.5, "n0": 20, "n": 300, "alpha": 0.001, "seed": 0}
    expected |= {"precision": "fp32", "device": "cpu", "micro_batch": 64}
    assert {key: settings[key] for key in expected} == expected
    assert settings["data"] == {"name": "mnist-mini", "split": "test", "sha256": mini.fingerprint}
    assert {"torch", "numpy", "smoothcert"} <= results.about["segments"][0]["versions"].keys()
    assert results.about["segments"][0]["threads"] >= 1


@pytest.mark.parametrize("batch", [1, 100, 640, 5000])
def test_rows_do_not_depend_on_the_batch(classifier, mini, tmp_path, reference, batch):
    smoothcert.certify_dataset(classifier, mini, tmp_path / "a.tsv", batch=batch, **OPTIONS)
    assert rows(tmp_path / "a.tsv") == reference


@pytest.mark.parametrize("parts", [2, 5])
def test_shards_join_to_the_same_rows(classifier, mini, tmp_path, reference, parts):
    from smoothcert.results.merge import merge_results

    for part in range(1, parts + 1):
        indices = smoothcert.select(len(mini), 10, 200, (part, parts))
        smoothcert.certify_dataset(classifier, mini, tmp_path / f"{part}.tsv", **{**OPTIONS, "indices": indices})
    files = [tmp_path / f"{part}.tsv" for part in range(1, parts + 1)]
    assert merge_results(files, tmp_path / "all.tsv") == 20
    assert rows(tmp_path / "all.tsv") == reference
    with pytest.raises(UsageError, match="exists"):
        merge_results(files, tmp_path / "all.tsv")
    with pytest.raises(UsageError, match="appears twice, the second time in .*; merge only files for different images"):
        merge_results([*files, files[0]], tmp_path / "twice.tsv")
    whole = files[0].read_text()
    files[0].write_text(whole[:-10])  # as a kill leaves it: the next file's first row would end it
    with pytest.raises(SmoothcertError, match="empty or ends in the middle of a row; finish every shard"):
        merge_results(files, tmp_path / "cut.tsv")
    files[0].write_text(whole[: whole.rindex("\n", 0, -1) + 1])
    counts = counts_path(files[0]).read_text()
    counts_path(files[0]).write_text(counts[: counts.rindex("\n", 0, -1) + 1])
    with pytest.raises(SmoothcertError, match="rows for 19 and counts for 19 of 20 images; finish each shard"):
        merge_results(files, tmp_path / "few.tsv")
    assert not (tmp_path / "few.tsv").exists()


def test_an_interruption_at_any_byte_is_healed(classifier, mini, tmp_path, reference):
    """Cut both files at random places, as a kill during a write would leave them, and go on."""
    path = tmp_path / "a.tsv"
    generator = random.Random(0)
    for _ in range(6):
        smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
        for file in (path, counts_path(path)):
            content = file.read_bytes()
            file.write_bytes(content[: generator.randrange(len(content) + 1)])
    smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    assert rows(path) == reference
    finished = path.read_bytes(), counts_path(path).read_bytes()
    assert len(smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)) == 20
    assert (path.read_bytes(), counts_path(path).read_bytes()) == finished, "a finished file is left alone"


def certify_command(checkpoint, out, skip=100):
    command = [sys.executable, "-m", "smoothcert", "certify", str(checkpoint), "--out", str(out), "--n", "1000"]
    return [*command, "--skip", str(skip), "--seed", "3", "--device", "cpu", "--batch", "1000"]  # an image at a time


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "skip"),
    [(signal.SIGKILL, 100), (signal.SIGTERM, 125), (signal.SIGINT, 125), (signal.SIGKILL, 40)],
)
def test_killed_and_resumed_rows_are_the_same(checkpoint, tmp_path, kind, skip):
    whole, broken = tmp_path / "whole.tsv", tmp_path / "broken.tsv"
    subprocess.run(certify_command(checkpoint, whole, skip), check=True, capture_output=True)
    generator, kills, codes = random.Random(skip), 0, []
    for _ in range(60):
        command = certify_command(checkpoint, broken, skip)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = broken.stat().st_size if broken.exists() else 0
        while process.poll() is None and (broken.stat().st_size if broken.exists() else 0) <= before + 40:
            time.sleep(0.01)
        time.sleep(generator.random() * 0.1)
        if process.poll() is not None:
            if kills >= 2:
                break
            for path in tmp_path.glob("broken*"):  # a busy machine: it was too fast for us, so from the start
                path.unlink()
            process.communicate()
            kills, codes = 0, []
            continue
        process.send_signal(kind)
        _, errors = process.communicate()
        if process.returncode == 130:
            assert b"interrupted." in errors
        codes.append(process.returncode)
        kills += process.returncode != 0
    process.communicate()
    assert process.returncode == 0
    assert kills >= 2
    assert (130 in codes) == (kind != signal.SIGKILL), "asked to end, it ends by itself"
    assert rows(broken) == rows(whole)
    assert len(json.loads(broken.with_suffix(".json").read_text())["segments"]) >= kills


def test_other_settings_are_refused_and_the_file_is_left_alone(classifier, trained_lenet, mini, tmp_path):
    path = tmp_path / "a.tsv"
    smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    before = rows(path)
    other = smoothcert.SmoothedClassifier(trained_lenet, 0.25, 10, micro_batch=64)
    for change, message in (
        ({"n": 301}, "n was 300, now 301"),
        ({"alpha": 0.01}, "alpha"),
        ({"seed": 1}, "seed"),
        ({"indices": range(0, 100, 10)}, "images"),
        ({"model": {"sha256": "1"}}, "model"),
    ):
        with pytest.raises(UsageError, match=message):
            smoothcert.certify_dataset(classifier, mini, path, **{**OPTIONS, **change})
    with pytest.raises(UsageError, match="sigma was 0.5, now 0.25"):
        smoothcert.certify_dataset(other, mini, path, **OPTIONS)
    with pytest.raises(UsageError, match="task was certify, now predict"):
        smoothcert.predict_dataset(classifier, mini, path, n=300, indices=OPTIONS["indices"])
    assert rows(path) == before


def test_a_network_of_ones_own_is_known_by_its_weights(mini, tmp_path):
    """A script that is run again after training went on must not be given the certificates of before."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).requires_grad_(False)
    smoothed = smoothcert.SmoothedClassifier(network, 0.5, 10)
    options = {"out": tmp_path / "a.tsv", "n": 20, "model": {"name": "mine"}}
    assert len(smoothcert.certify_dataset(smoothed, mini, indices=np.array([0, 5]), **options)) == 2
    before = (tmp_path / "a.tsv").read_bytes()
    assert len(smoothcert.certify_dataset(smoothed, mini, indices=torch.tensor([0, 5]), **options)) == 2
    assert (tmp_path / "a.tsv").read_bytes() == before
    network[1].bias[3] += 1.0
    with pytest.raises(UsageError, match=r"different settings .model\.weights was \w{64}, now \w{64}\)"):
        smoothcert.certify_dataset(smoothed, mini, indices=[0, 5], **options)
    network[1].bias[3] -= 1.0
    about = json.loads((tmp_path / "a.json").read_text())
    del about["settings"]["model"]["weights"]  # as of versions that did not write them
    (tmp_path / "a.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match=r"different settings .model\.weights was not set, now \w{64}\); move it"):
        smoothcert.certify_dataset(smoothed, mini, indices=[0, 5], **options)
    with pytest.raises(UsageError, match="to be unique"):
        smoothcert.certify_dataset(smoothed, mini, indices=[0, 0], n=20)
    with pytest.raises(UsageError, match="`seed`"):  # each group of images would have another, and no file would say so
        smoothcert.certify_dataset(smoothed, mini, indices=[0], n=20, seed=None)
    with pytest.raises(UsageError, match="`indices` to be whole numbers"):
        smoothcert.certify_dataset(smoothed, mini, indices=[0.5], n=20)
    for mask in ([True, False], torch.tensor([True, False]), mini.labels == 1, (mini.labels == 1).numpy()):
        with pytest.raises(UsageError, match="`indices` to be whole numbers, but got "):
            smoothcert.certify_dataset(smoothed, mini, n=20, indices=mask)
    for certify in (smoothcert.certify_dataset, smoothcert.predict_dataset):
        with pytest.raises(UsageError, match="`classifier` to be a SmoothedClassifier, but got a Sequential"):
            certify(network, mini)
    with pytest.raises(UsageError, match="`data` to be a dataset from `load_dataset`.*but got a str"):
        smoothcert.certify_dataset(smoothed, "mnist-mini", n=20)


def test_a_start_that_came_to_nothing_bars_no_other(classifier, mini, tmp_path):
    path = tmp_path / "a.tsv"
    with pytest.raises(UsageError, match="`seed`"):
        smoothcert.certify_dataset(classifier, mini, path, n=50, seed=-1, indices=[0, 1])
    assert len(smoothcert.certify_dataset(classifier, mini, path, n=60, seed=3, indices=[0, 5])) == 2
    assert json.loads((tmp_path / "a.json").read_text())["settings"]["n"] == 60
    with pytest.raises(UsageError, match="different settings"):
        smoothcert.certify_dataset(classifier, mini, path, n=50, indices=[0, 5])


def test_a_kill_before_the_sidecar_is_healed(classifier, mini, tmp_path):
    path, expected = tmp_path / "a.tsv", tmp_path / "b.tsv"
    smoothcert.certify_dataset(classifier, mini, expected, **OPTIONS)
    for left in ("", "idx\tlabel\tpredict", "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"):
        path.write_text(left)
        smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
        assert counts_path(path).read_bytes() == counts_path(expected).read_bytes()
        for file in (path, counts_path(path), path.with_suffix(".json")):
            file.unlink()


def test_foreign_and_edited_files_are_not_touched(classifier, mini, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("mine\n")
    with pytest.raises(UsageError, match="choose another `out`"):
        smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    assert path.read_text() == "mine\n"
    path.unlink()
    smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[2:]]))
    counts = counts_path(path).read_bytes()
    with pytest.raises(UsageError, match="the edited file"):
        smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    assert counts_path(path).read_bytes() == counts
    counts_path(path).unlink()
    with pytest.raises(UsageError, match="exists without a.counts.tsv beside it"):
        smoothcert.certify_dataset(classifier, mini, path, **OPTIONS)
    assert path.read_text() == "".join([lines[0], *lines[2:]]), "hours of rows are not cut off"
    with pytest.raises(UsageError, match="ending in .tsv"):
        smoothcert.certify_dataset(classifier, mini, tmp_path / "a.json", **OPTIONS)


def test_two_processes_do_not_write_one_file(tmp_path):
    from smoothcert.results.records import Record
    from smoothcert.results.writer import ResultWriter

    settings = {"a": 1}
    with ResultWriter(tmp_path / "a.tsv", Record, [0], settings, {}):
        with pytest.raises(UsageError, match="another process"):
            ResultWriter(tmp_path / "a.tsv", Record, [0], settings, {})


def limit_files(size):
    """Make every write beyond this many bytes fail, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
def test_a_full_disk_loses_nothing(checkpoint, tmp_path):
    out = tmp_path / "a.tsv"
    command = certify_command(checkpoint, out, skip=25)
    failed = subprocess.run(command, preexec_fn=limit_files(1500), capture_output=True, text=True)
    assert failed.returncode == 1
    assert "cannot be written" in failed.stderr
    assert "images are safe" in failed.stderr
    assert "Traceback" not in failed.stderr
    whole = tmp_path / "whole.tsv"
    for target in (out, whole):
        subprocess.run(certify_command(checkpoint, target, skip=25), check=True, capture_output=True)
    assert rows(out) == rows(whole)


@pytest.mark.parametrize("place", ["/proc/nowhere/a.tsv", "{file}/a.tsv"])
def test_a_folder_that_cannot_be_written(checkpoint, place):
    out = place.format(file=checkpoint)
    failed = subprocess.run(certify_command(checkpoint, out), capture_output=True, text=True)
    assert failed.returncode == 1
    assert "cannot be written" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.skipif(os.name != "posix", reason="permissions are tested as an ordinary user of a POSIX system")
def test_a_read_only_folder(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.geteuid() == 0:
        for folder in (tmp_path, *tmp_path.parents):
            if str(folder).startswith("/tmp/"):
                folder.chmod(folder.stat().st_mode | 0o055)
    code = (
        "import sys; from pathlib import Path; from smoothcert.results.records import Record\n"
        "from smoothcert.results.writer import *\n"
        "from smoothcert.errors import SmoothcertError\n"
        "import os; os.geteuid() or os.setuid(65534)\n"
        "try: ResultWriter(Path(sys.argv[1]), Record, [0], {}, {})\n"
        "except SmoothcertError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(locked / "a.tsv")], capture_output=True, text=True)
    assert "cannot be written (Permission denied)" in done.stdout, done.stderr


def test_predictions_resume_too(classifier, mini, tmp_path):
    path = tmp_path / "p.tsv"
    options = {"n": 200, "indices": range(0, 100, 10)}
    records = smoothcert.predict_dataset(classifier, mini, path, **options)
    expected = classifier.predict(mini.floats(range(0, 100, 10)), n=200, index=list(range(0, 100, 10)))
    assert [record.predict for record in records] == expected.tolist()
    before = rows(path)
    path.write_bytes(path.read_bytes()[:60])
    smoothcert.predict_dataset(classifier, mini, path, **options)
    assert rows(path) == before
    assert before[0][0] == b"idx\tlabel\tpredict\tcorrect"


def test_progress_counts_every_image_once(classifier, mini):
    events = []
    smoothcert.certify_dataset(classifier, mini, n0=10, n=500, indices=range(7), on_progress=events.append)
    assert [event.done for event in events] == [2, 4, 6, 7]
    assert all(event.total == 7 and event.seconds > 0 for event in events)


def test_labels_the_model_does_not_have(trained_lenet, mini):
    narrow = smoothcert.SmoothedClassifier(lambda x: trained_lenet(x)[:, :5], 0.5, 5)
    with pytest.raises(UsageError, match="only 5 classes"):
        smoothcert.certify_dataset(narrow, mini)


def test_nan_scores_stop_the_run_and_keep_what_is_there(trained_lenet, mini, tmp_path):
    calls = []

    def sometimes_nan(x):
        calls.append(1)
        early = len(calls) <= 20 + 5 * 3  # the check, and 5 for each of 3 images
        return trained_lenet(x) * (1.0 if early else float("nan"))

    broken = smoothcert.SmoothedClassifier(sometimes_nan, 0.5, 10, micro_batch=64)
    with pytest.raises(SmoothcertError, match="NaN for"):
        smoothcert.certify_dataset(broken, mini, tmp_path / "a.tsv", **OPTIONS)
    assert len(smoothcert.read_results(tmp_path / "a.tsv")) == 3
