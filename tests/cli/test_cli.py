"""The command line in a terminal, in a pipe, and with wrong arguments."""

import dataclasses
import json
import os
import pty
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from launching import HANGS

import smoothcert
from smoothcert import dataset_names
from smoothcert.checkpoints import published
from smoothcert.checkpoints.checkpoint import Checkpoint
from smoothcert.cli import build_parser, main
from smoothcert.cli.parser import Parser
from smoothcert.errors import Notice, UsageError
from smoothcert.methods import METHODS
from smoothcert.runtime.atomic_files import write_text
from smoothcert.training.config import TrainConfig
from smoothcert.training.known_methods import TABLE, known_methods
from smoothcert.training.settings import GROUPS


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "smoothcert", *map(str, arguments)], capture_output=True, text=True, **options
    )


def test_help_is_fast_and_does_not_import_torch():
    times = []
    for _ in range(3):
        before = os.times()
        assert run("--help").returncode == 0
        after = os.times()  # CPU time, independent of the load of the machine
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.5
    code = "import sys; from smoothcert.cli import build_parser; build_parser(); "
    code += "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


COMMANDS = list(build_parser()._subparsers._group_actions[0].choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert len(capsys.readouterr().out) > 200


def test_notices_are_one_line(monkeypatch):
    """A `Notice` is printed with flags and without its source location; other warnings are unchanged."""
    written = []

    def run(_):
        kinds = Notice, UserWarning
        written.extend(warnings.formatwarning("It is slow without `fast`.", kind, "stepping.py", 7) for kind in kinds)

    parser = Parser()
    parser.add_argument("--fast")
    parser.set_defaults(run=run)
    monkeypatch.setattr(smoothcert.cli, "build_parser", lambda: parser)
    assert main(["--fast", "1"]) == 0
    assert written[0] == "smoothcert: It is slow without `--fast`.\n"
    assert written[1].startswith("stepping.py:7: UserWarning: It is slow without `fast`.")
    assert warnings.formatwarning("It is slow.", Notice, "stepping.py", 7).startswith("stepping.py:7: ")


def test_certify_and_report(checkpoint, tmp_path, capsys):
    out = tmp_path / "sub/results.tsv"
    assert (
        main(["certify", str(checkpoint), "--N", "500", "--N0", "50", "--skip", "100", "--out", str(out), "--json"])
        == 0
    )
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)
    assert row["images"] == 10
    assert row["dataset"] == "mnist-mini"
    assert row["acr"]["value"] > 0.1
    assert "10 of 10 images" in captured.err
    assert "ACR" in captured.err
    assert main(["report", f"mine={out}", "--out", str(tmp_path / "t.md"), "--out", str(tmp_path / "t.tex")]) == 0
    table = capsys.readouterr().out
    assert "mine" in table
    assert f"{row['acr']['value']:.3f}" in (tmp_path / "t.md").read_text()
    assert r"\begin{tabular}" in (tmp_path / "t.tex").read_text()
    assert main(["certify", str(checkpoint), "--N", "500", "--N0", "50", "--skip", "100", "--out", str(out)]) == 0
    assert "10 of 10 images were already done" in capsys.readouterr().err


def test_default_output_is_beside_the_checkpoint(checkpoint, capsys):
    assert main(["certify", str(checkpoint), "--n", "50", "--max", "2"]) == 0
    name = "lenet.certify-mnist-mini-test-sigma0.25-n50-max2.tsv"
    assert (checkpoint.parent / name).is_file()
    assert main(["predict", str(checkpoint), "--n", "50", "--shard", "2/500", "--json"]) == 0
    assert (checkpoint.parent / "lenet.predict-mnist-mini-test-sigma0.25-n50-shard2of500.tsv").is_file()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["images"] == 2


def test_report_says_if_the_paper_has_no_row(checkpoint, tmp_path, capsys):
    assert main(["certify", str(checkpoint), "--n", "50", "--max", "2", "--out", str(tmp_path / "a.tsv")]) == 0
    assert main(["report", str(tmp_path / "a.tsv"), "--paper"]) == 0
    assert "The CAT-RS paper has no row for this dataset, noise level and method.\n" in capsys.readouterr().err


def test_dry_run_writes_nothing(checkpoint, capsys):
    before = sorted(checkpoint.parent.iterdir())
    assert main(["certify", str(checkpoint), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["samples"] == 1000 * 100_100
    assert plan["largest radius"] == pytest.approx(0.9529, abs=1e-4)
    assert plan["samples per second"] > 0
    assert main(["predict", str(checkpoint), "--dry-run", "--json"]) == 0
    assert "largest radius" not in json.loads(capsys.readouterr().out), "predictions have no radius"
    assert sorted(checkpoint.parent.iterdir()) == before


def test_progress_in_a_pipe_is_lines_on_stderr(checkpoint, tmp_path):
    done = run("certify", checkpoint, "--n", 100, "--skip", 250, "--out", tmp_path / "a.tsv")
    assert done.returncode == 0
    assert "certify: 4 of 4 images" in done.stderr
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["sigma", "method", "ACR"]


def test_progress_on_a_terminal_is_a_bar(checkpoint, tmp_path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "smoothcert", "certify", str(checkpoint), "--n", "2000", "--skip", "100"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "a.tsv")], stderr=follower, stdout=subprocess.PIPE)
    os.close(follower)
    shown = b""
    try:
        while block := os.read(leader, 4096):
            shown += block
    except OSError:  # the process has closed the terminal
        pass
    assert process.wait() == 0
    assert b"images/s" in shown
    assert b"ACR" in shown
    assert b"10/10" in shown


def test_closed_pipe_is_no_error():
    command = f"{sys.executable} -m smoothcert list models | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "lenet\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed):
    done = subprocess.run(f"{sys.executable} -m smoothcert list models {closed}", shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_a_one_line_error():
    command = f"{sys.executable} -m smoothcert list recipes > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "smoothcert: the output cannot be written (No space left on device).\n"


def test_empty_list_prints_a_message(capsys):
    assert main(["list", "recipes", "nothing-*"]) == 0
    assert capsys.readouterr() == ("", "No recipes match 'nothing-*'.\n")


def test_lists(capsys):
    assert main(["list", "datasets", "cifar*"]) == 0
    assert capsys.readouterr().out.split() == ["cifar10", "cifar100"]
    assert main(["list", "models", "--json"]) == 0
    assert "resnet50" in json.loads(capsys.readouterr().out)


def test_recipes_are_listed_with_the_papers_numbers_and_their_cost(capsys):
    assert main(["list", "recipes", "cifar10-*-0.50"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: line[1:] for line in lines[2:]}
    assert rows["cifar10-catrs-0.50"] == ["CAT-RS", "0.50", "0.757", "18.7x"]  # 4 noises x (6 + 2 x 4) / 3 passes
    assert rows["cifar10-gaussian-0.50"] == ["Gaussian", "0.50", "0.525", "1.0x"]
    assert rows["cifar10-smoothadv-consistency-0.50"][-2] == "-", "the paper has no such row"
    assert main(["list", "recipes", "cifar10-*-0.50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(rows)


def test_names_and_help_need_no_torch():
    code = f"""
import sys
from smoothcert.cli import main
for kind in {KINDS}:
    assert main(["list", kind]) == 0
for command in {[*COMMANDS, "data get", "data list"]}:
    try:
        main([*command.split(), "--help"])
    except SystemExit as stop:
        assert stop.code == 0
assert "torch" not in sys.modules
"""
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert {"--num-noises", "lenet", "mnist-mini", "cifar10-center", "catrs"} <= set(listed.split())


KINDS = ["datasets", "models", "methods", "recipes", "tables", "pretrained", "normalizations"]


def test_recipes_fit_a_narrow_terminal(capsys, monkeypatch):
    assert main(["list", "recipes"]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["list", "recipes"]) == 0
    narrow = capsys.readouterr().out
    assert max(map(len, wide.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    assert narrow.split()[:3] == ["recipe", "sigma", "paper's"]
    assert len(narrow.splitlines()) == len(wide.splitlines())


def test_the_list_of_recipes_has_the_titles_of_all_methods(capsys):
    assert main(["list", "recipes", "mnist-first-failure-0.25"]) == 0
    assert "First failure" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["datasets", "models", "methods", "pretrained"])
def test_listed_names_are_those_of_the_library(kind, capsys):
    assert main(["list", kind, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == getattr(smoothcert, f"list_{kind}")()


def test_listed_normalizations_are_those_of_checkpoints():
    assert tuple(published.NORMALIZATIONS) == dataset_names.NORMALIZATIONS


def test_the_table_of_methods_is_up_to_date():
    own, known = [name for name, method in METHODS.items() if "smoothcert." in method.__module__], known_methods()
    expected = {name: dataclasses.asdict(known[name]) for name in own}
    assert json.loads(TABLE.read_text()) == expected, "run scripts/write_known_methods.py"


def test_a_bare_command_prints_the_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: smoothcert")
    assert all(command in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [("smoothcert rep", {"report", "reproduce"}), ("smoothcert report --htm", {"--html"})],
)
def test_the_shell_completes_commands_and_flags(tmp_path, line, expected):
    found = tmp_path / "found"
    asking = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = os.environ | asking | {"_ARGCOMPLETE_STDOUT_FILENAME": str(found)}
    subprocess.run([sys.executable, "-m", "smoothcert"], env=environment, check=True, timeout=HANGS)
    assert {word.strip() for word in found.read_text().split()} == expected


def test_data_commands(tmp_path, capsys):
    assert main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["datasets"]
    there = {row["name"]: row["there"] for row in rows if not row["name"].endswith("-c")}
    assert there == {
        "mnist": False,
        "mnist-mini": True,
        "fashion_mnist": False,
        "cifar10": False,
        "cifar100": False,
        "imagenet": False,
    }
    assert main(["data", "show", "mnist-mini", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["images"], shown["shape"]) == (1000, [1, 28, 28])


@pytest.mark.parametrize("place", ["imagenet", "ILSVRC/Data/CLS-LOC", "."])
def test_data_list_finds_imagenet_where_it_is_loaded_from(place, tmp_path, capsys):
    (tmp_path / place / "val").mkdir(parents=True)
    assert main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    assert {row["name"]: row["there"] for row in json.loads(capsys.readouterr().out)["datasets"]}["imagenet"]


def test_data_get_without_internet(tmp_path):
    done = run(
        "data", "get", "cifar10", "--data-dir", tmp_path, env={**os.environ, "https_proxy": "http://127.0.0.1:9"}
    )
    assert done.returncode == 1
    assert "download cifar-10-python.tar.gz, copy to" in done.stderr
    assert not any(tmp_path.iterdir())


def test_import_and_export(tmp_path, capsys, trained_lenet):
    smoothcert.export_checkpoint(Checkpoint(trained_lenet, {"epoch": 5}), tmp_path / "c.pth.tar")
    ours = tmp_path / "ours.safetensors"
    arguments = [
        "import",
        str(tmp_path / "c.pth.tar"),
        "--out",
        str(ours),
        "--dataset",
        "mnist-mini",
        "--sigma",
        "0.25",
        "--check",
    ]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "Accuracy on 200 images of mnist-mini under noise with sigma 0.25: 9" in said
    loaded = smoothcert.load_checkpoint(ours)
    assert loaded.about == {"epoch": 5, "dataset": "mnist-mini", "sigma": 0.25}
    written = ours.read_bytes()
    assert main([*arguments[:4], "--sigma", "0.5"]) == 2
    said = capsys.readouterr().err
    assert "ours.safetensors already exists; choose another `--out`, or overwrite it with `--force`" in said
    assert ours.read_bytes() == written
    assert main([*arguments[:4], "--sigma", "0.5", "--force"]) == 0
    assert smoothcert.load_checkpoint(ours).about == {"epoch": 5, "sigma": 0.5}
    assert main(["export", str(tmp_path / "c.pth.tar"), "--out", str(tmp_path / "back.pth.tar")]) == 2
    assert "convert it with `smoothcert import`" in capsys.readouterr().err
    assert main(["export", str(ours), "--out", str(tmp_path / "back.pth.tar")]) == 0
    back = torch.load(tmp_path / "back.pth.tar", weights_only=True)
    assert torch.equal(back["state_dict"]["1.fc2.bias"], trained_lenet.network.fc2.bias)


def test_unreadable_folder_is_a_one_line_error(monkeypatch, capsys):
    def forbidden(args):
        raise PermissionError(13, "Permission denied", "runs/theirs")

    monkeypatch.setattr("smoothcert.cli.certify.run", forbidden)
    assert main(["certify", "runs/theirs"]) == 1
    assert capsys.readouterr().err == "smoothcert: runs/theirs cannot be opened (Permission denied).\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_special_files_are_neither_read_nor_replaced(checkpoint, tmp_path, capsys):
    """Replacing /dev/null would break other programs, and reading /dev/zero never ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["certify", str(checkpoint), "--n", "20", "--skip", "500", "--out", str(pipe)]) == 2
    assert "to be a results file ending in .tsv" in capsys.readouterr().err
    with pytest.raises(UsageError, match="is not a regular file"):
        write_text(pipe, "text")
    results = tmp_path / "results.tsv"
    os.mkfifo(results)
    assert main(["report", str(results)]) == 1
    assert f"{results} cannot be read: it is a pipe, not a file" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "contains no certification results file" in capsys.readouterr().err
    assert pipe.is_fifo()


BAD = [
    (["certify", "{c}", "--sigma", "0"], "`--sigma` to be > 0 and finite, but got 0"),
    (["certify", "{c}", "--sigma", "-0.25"], "`--sigma` to be > 0"),
    (["certify", "{c}", "--sigma", "nan"], "`--sigma` to be > 0"),
    (["certify", "{c}", "--sigma", "inf"], "`--sigma` to be > 0 and finite, but got inf"),
    (["train", "mnist-mini-gaussian-1.00", "--sigma", "inf"], "`--sigma` to be finite, but got inf"),
    (["train", "mnist-mini-gaussian-1.00", "--weight-decay", "inf"], "`--weight-decay` to be finite, but got inf"),
    (["train", "mnist-mini-gaussian-1.00", "--resize", "32"], "`--resize` and `--crop` are for image folders"),
    (["train", "mnist-mini-gaussian-1.00", "--workers", "-1", "--dry-run"], "`--workers` to be at least 0, but got -1"),
    (["certify", "{c}", "--alpha", "1"], "`--alpha` to be between 0 and 1"),
    (["certify", "{c}", "--alpha", "0"], "`--alpha` to be between 0 and 1"),
    (["certify", "{c}", "--n", "9"], "use n >= 10"),
    (["certify", "{c}", "--n0", "0"], "`--n0`"),
    (["certify", "{c}", "--skip", "0"], "`--skip`"),
    (["certify", "{c}", "--max", "0"], "`--max`"),
    (["certify", "{c}", "--shard", "3/2"], "`--shard`"),
    (["certify", "{c}", "--seed", "-1"], "`--seed`"),
    (["certify", "{c}", "--batch", "0"], "`--batch` to be at least 1"),
    (["certify", "{c}", "--micro-batch", "0"], "`--micro-batch`"),
    (["certify", "{c}", "--precision", "fp23"], "did you mean 'fp32'"),
    (["certify", "{c}", "--device", "warp"], "device 'warp' cannot be used here"),
    (["certify", "{c}", "--split", "dev"], "`--split`"),
    (["certify", "{c}", "--data", "cifar11"], "did you mean 'cifar10'"),
    (["certify", "{c}", "--resize", "32"], "`--resize` and `--crop` are for image folders, but mnist-mini is not one"),
    (["certify", "{c}", "--data", "{wide}", "--crop", "28"], "`--resize` and `--crop` are for image folders, but"),
    (["report", "--plugin=", "x"], "Expected `--plugin` to name a Python file, but got an empty value."),
    (["report", "--plug", "a.py", "x"], "Expected `--plugin` to be written in full, but got an abbreviation."),
    (["data", "show", "mnits"], "did you mean 'mnist'"),
    (["data", "make", "mnist-cc"], "Unknown corrupted dataset 'mnist-cc'; did you mean 'mnist-c'?"),
    (["data", "make", "{wide}"], "Expected `--out`, the folder for the corrupted images of"),
    (["certify", "{c}", "--data", "{wide}"], "Expected images of shape [1, 28, 28], but got [1, 40, 40]"),
    (["certify", "{c}", "--data", "{c}"], "is not a dataset; expected an .npz file"),
    (["certify", "{c}", "--n", "20", "--skip", "500", "--out", "{folder}"], "to be a results file ending in .tsv"),
    (
        ["certify", "{c}", "--n", "20", "--skip", "500", "--stop", "table", "--out", "{folder}"],
        "to be a results file ending in .tsv",
    ),
    (["predict", "{c}", "--n", "20", "--skip", "500", "--out", "{folder}"], "to be a results file ending in .tsv"),
    (["predict", "{c}", "--n", "0"], "`--n`"),
    (["predict", "{c}", "--n", "10", "--dry-run"], "every prediction abstains at alpha = 0.001; use n >= 11"),
    (["certify", "{c}", "--n", "10", "--bound", "two-sided"], "at alpha = 0.001; use n >= 11"),
    (["attack", "{c}", "--radii", "nan"], "`--radii` to be finite and > 0, but got nan"),
    (["attack", "{c}", "--noises", "0"], "`--noises` to be at least 1, but got 0"),
    (["attack", "{c}", "--out", "{folder}"], "folder.tsv is a folder; choose a file instead"),
    (["attack", "{c}", "--n", "10"], "every prediction abstains at alpha = 0.001; use n >= 11"),
    (["train"], "Expected a recipe (see `smoothcert list recipes`) or flags such as `--dataset`"),
    (["list", "modles"], "did you mean 'models'"),
    (["report", "{c}.tsv", "--out", "table.docx"], "Unknown extension"),
    (["import", "{c}", "--out", "x.pth"], ".safetensors"),
    (["certify", "--corruption", "fog", "{c}"], "; put RUN before options that take several values."),
    (["certify"], "Expected exactly one of a checkpoint (RUN), a bundled model (`--pretrained`) or"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a[2:]) or a[0] for a, _ in BAD])
def test_wrong_values_are_a_one_line_error_and_exit_code_2(checkpoint, tmp_path, capsys, arguments, message):
    wide = tmp_path / "wide.npz"
    np.savez(wide, images=np.zeros((3, 40, 40), np.uint8), labels=np.zeros(3, np.int64))
    folder = tmp_path / "folder.tsv"
    folder.mkdir()
    filled = [argument.format(c=checkpoint, wide=wide, folder=folder) for argument in arguments]
    assert main(filled) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("smoothcert: ")
    assert error.count("\n") == 1
    assert not [path for path in checkpoint.parent.glob("**/*.tsv") if path.is_file()], "a results file was created"


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        (["certify", "RUN", "--corruption", "fog", "--corruption", "snow"], "corruption", ["fog", "snow"]),
        (["certify", "RUN", "--corruption", "fog", "snow", "--json"], "corruption", ["fog", "snow"]),
        (["certify", "--severity", "3", "5", "--json", "RUN"], "severities", [3, 5]),
        (["certify", "RUN", "--severity=3", "--severity", "5"], "severities", [3, 5]),
        (["certify", "RUN", "--grid", "0", "-1"], "radii", [0.0, -1.0]),
        (["attack", "RUN", "--radii", "0.25", "1"], "radii", [0.25, 1.0]),
        (["data", "make", "mnist-c", "--corruption", "fog"], "corruption", ["fog"]),
        (["report", "a", "--linf", "2/255", "1/2"], "linf", [2 / 255, 0.5]),
        (["report", "a", "--radii", "0", "--radii", "1", "2"], "radii", [0.0, 1.0, 2.0]),
        (["report", "a"], "linf", []),
    ],
)
def test_options_of_several_values(arguments, name, expected):
    for _ in range(2):  # the first time leaves nothing behind
        assert getattr(build_parser().parse_args(arguments), name) == expected


def test_train_help_has_a_flag_for_every_field_and_option(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for owner in (TrainConfig, *METHODS.values()):
        for field in dataclasses.fields(owner):
            if field.name not in ("options", "network", "initial_weights"):
                assert f"\n  --{field.name.replace('_', '-')}" in text
    for title in (*GROUPS, "options of several methods", "method catrs"):
        assert f"\n{title}:\n" in text


def test_help_fits_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        assert text.index("\n\n") < 160, "the usage line names no optional flags"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certfy"], "invalid choice: 'certfy'"),
        (
            ["certify", "x", "--n", "many"],
            "argument --n/--N: invalid int value: 'many'. See `smoothcert certify --help`",
        ),
        (["certify", "x", "--shard", "3"], "expected I/N, such as 3/8, but got '3'"),
        (["certify", "x", "--skpi", "3"], "certify: unknown argument --skpi; did you mean --skip? See `smoothcert c"),
        (["certify", "x", "--skpi=3"], "did you mean --skip?"),
        (["data", "list", "mnist"], "smoothcert data list: unknown argument mnist. See `smoothcert data list --help`"),
        (["report"], "required: [NAME=]RUN"),
        (["report", "--radii", "0", "a.tsv"], "argument --radii: invalid float value: 'a.tsv'"),
    ],
)
def test_parse_errors_are_one_line_and_exit_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certify", "{d}/absent.safetensors"], "There is no checkpoint"),
        (["report", "{d}/absent.tsv"], "cannot be read (No such file"),
        (["certify", "{c}", "--data", "mnist", "--data-dir", "{d}"], "smoothcert data get mnist"),
        (["merge", "{d}/a.tsv", "{d}/b.tsv", "--out", "{d}/c.tsv"], "There is no results file {d}/a.tsv"),
        (["train", "{d}/absent.toml"], "absent.toml cannot be read (No such file or directory)"),
        (["data", "make", "mnist-mini", "--out", "{c}", "--corruption", "inverse"], "cannot be written (File exists)"),
    ],
)
def test_missing_files_are_exit_code_1(checkpoint, tmp_path, capsys, arguments, message):
    assert main([argument.format(c=checkpoint, d=tmp_path) for argument in arguments]) == 1
    assert message.format(d=tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(("given", "expected"), [({}, "1000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_waiting_threads_spin_briefly_unless_the_user_has_chosen(given, expected, monkeypatch, capsys):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that the variable is restored afterwards
    monkeypatch.delenv("GOMP_SPINCOUNT")
    assert main(["list", "models"]) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == expected
