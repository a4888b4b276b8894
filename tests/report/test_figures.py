"""Figures for papers, and the table in a terminal."""

import os
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
from page_runs import make_run

from smoothcert.cli import main
from smoothcert.errors import SmoothcertError
from smoothcert.report.figures.canvas import new_figure, save_all, save_figure
from smoothcert.report.figures.figure_set import own_figures, paper_figures
from smoothcert.report.figures.plots import Curves, Point, Tradeoff, draw_panels, plot_certified_accuracy
from smoothcert.report.sources import read_runs
from smoothcert.report.tables.paper_numbers import PAPER_METHODS
from smoothcert.statistics import metrics
from smoothcert.training.recipes import load_recipe, paper_tables

LABELS = np.arange(40) % 10


def recipes(root, *names):
    """Write and read runs of recipes, in folders as `smoothcert reproduce` creates them."""
    for name in names:
        config = load_recipe(name)
        settings = {"method": config.method, "sigma": config.sigma, "dataset": config.dataset}
        make_run(root / name, LABELS, options=dict(config.options), **settings)
    return read_runs([str(root)])


def test_the_published_results_give_figure_5(shared):
    named = paper_figures(read_runs([str(shared / "published/cifar10")]))
    assert list(named) == ["figure-5"]
    assert [len(panel.curves) for panel in named["figure-5"]] == [7, 7, 6]
    assert list(named["figure-5"][0].curves) == list(PAPER_METHODS.values()), "the paper's order"


def test_methods_that_the_paper_omits_are_no_curve_of_its_figures(tmp_path):
    make_run(tmp_path / "own", LABELS, method="first-failure", sigma=0.25, dataset="cifar10", options={})
    runs = recipes(tmp_path, "cifar10-gaussian-0.25", "cifar10-gaussian-0.25-m4", "cifar10-first-failure-0.25")
    assert [list(panel.curves) for panel in paper_figures(runs)["figure-5"]] == [["Gaussian"]]
    names = {run.entry.name for run in runs}
    assert {"First failure", "First failure, discard, reweight", "Gaussian, 4 noise samples"} <= names


def test_ablations_give_figure_2(tmp_path):
    weights = [recipe for recipe, _ in paper_tables()["ablation-lambda"].rows]
    runs = recipes(tmp_path, *weights, "cifar10-resnet20-catrs-0.50-m8")
    named = paper_figures(runs)
    assert list(named) == ["figure-2"], "ablations are not in figure 5"
    weights, noises = named["figure-2"]
    assert list(weights.curves) == [rf"$\lambda$={value}" for value in ("0.25", "0.50", "1.00", "2.00", "4.00")]
    assert list(noises.curves) == ["M=4", "M=8"]


def test_settings_give_figures_3_and_6(tmp_path):
    catrs = [f"mnist-catrs-1.00{setting}" for setting in ("-lambda4.00", "", "-lambda0.25")]
    runs = recipes(tmp_path, "mnist-gaussian-1.00", *catrs)
    named = paper_figures(runs)
    assert list(named) == ["figure-3", "figure-4", "figure-6"]
    assert [panel.radius for panel in named["figure-6"]] == [None, 1.0, 2.0]
    (panel,) = named["figure-3"]
    assert {name: len(line) for name, line in panel.lines.items()} == {"Gaussian": 1, r"CAT-RS, $\lambda$": 3}
    assert list(named["figure-4"][0].curves) == ["Gaussian", "CAT-RS"], "the row of the main table, not the others"
    own = own_figures(runs)
    assert list(own) == ["certified-accuracy-mnist-1.00", "p-a-mnist-1.00"]
    for (panel,) in own.values():
        assert sorted(panel.curves) == ["CAT-RS", "CAT-RS, λ = 0.25", "CAT-RS, λ = 4.00", "Gaussian"]


def test_tradeoff_points_have_their_settings_and_the_papers_points(tmp_path):
    runs = recipes(tmp_path, "mnist-gaussian-1.00", *(f"mnist-catrs-1.00{end}" for end in ("-lambda4.00", "")))
    (alone,), (beside,) = (paper_figures(runs, paper=paper)["figure-3"] for paper in (False, True))
    assert list(beside.lines) == ["Gaussian", r"CAT-RS, $\lambda$"]
    drawn = draw_panels([alone], (4, 3)).axes[0]
    assert {text.get_text() for text in drawn.texts} == {"1.00", "4.00"}
    assert len(drawn.lines) == 2
    drawn = draw_panels([beside], (4, 3)).axes[0]
    printed = [point.paper for point in beside.lines[r"CAT-RS, $\lambda$"]]
    rings = [line for line in drawn.lines if line.get_fillstyle() == "none"]
    assert rings[1].get_xydata().tolist() == [[row.accuracy[0.0], row.accuracy[2.0]] for row in printed]
    assert [text.get_text() for text in drawn.get_legend().get_texts()][-1] == "paper"


def test_the_legend_of_many_runs_fits_and_their_styles_differ(tmp_path):
    make_run(tmp_path / "one", LABELS)
    (run,) = read_runs([str(tmp_path)])
    variants = [f"Consistency, lambda={weight}" for weight in (1, 5, 10, 15, 20)]
    names = [*PAPER_METHODS.values(), *variants, "a run of my own with a very long name", "b"]
    drawn = draw_panels([Curves("", dict.fromkeys(names, run.entry.results))], (4.2, 3.2))
    drawn.canvas.draw()
    (legend,) = drawn.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= drawn.bbox.width
    styles = {line.get_label(): (line.get_color(), str(line._unscaled_dash_pattern)) for line in drawn.axes[0].lines}
    methods = [styles[name] for name in PAPER_METHODS.values()]
    assert styles["Consistency"][0] == styles[variants[0]][0], "one method, one color"
    assert len({styles[name] for name in (*PAPER_METHODS.values(), *variants)}) == 12, "all styles differ"
    assert drawn.axes[0].get_window_extent().height > 200, "the legend leaves room for the curves"
    assert styles["CAT-RS"] == methods[-1]


@pytest.mark.slow
def test_figures_are_reproducible(tmp_path):
    (run,) = recipes(tmp_path / "runs", "mnist-catrs-1.00")
    panels = [Curves("title", {"one": run.entry.results})]
    for one, two in zip(*(save_all(draw_panels(panels), tmp_path / name) for name in "ab"), strict=True):
        assert one.read_bytes() == two.read_bytes(), f"{one.suffix} is not reproducible"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_a_full_disk_gives_one_clear_error(suffix, tmp_path):
    (tmp_path / f"a{suffix}.part").symlink_to("/dev/full")
    figure = new_figure(1, 1)
    figure.text(0.1, 0.5, "text embeds a font, which fills the buffer")
    with pytest.raises(SmoothcertError, match="cannot be written .No space left on device"):
        save_figure(figure, tmp_path / f"a{suffix}")


def test_curves_have_the_values_of_metrics(tmp_path):
    runs = recipes(tmp_path / "runs", "mnist-gaussian-1.00")
    results = runs[0].entry.results
    figure = save_all(draw_panels([Curves("", {"only": results})]), tmp_path / "x")
    assert {path.suffix for path in figure} == {".pdf", ".svg", ".png"}
    drawn = draw_panels([Curves("", {"only": results}), Tradeoff(None, {"only": [Point(results)]})], (6, 3))
    radii, accuracy = drawn.axes[0].lines[0].get_data()
    assert np.array_equal(accuracy, 100 * metrics.certified_accuracy(results.radius, results.correct, radii))
    (clean,), (acr,) = drawn.axes[1].lines[0].get_data()
    assert clean == pytest.approx(accuracy[0])
    assert acr == metrics.average_certified_radius(results.radius, results.correct)
    plot_certified_accuracy([runs[0].entry], tmp_path / "y.png", "title")
    assert PIL.Image.open(tmp_path / "y.png").size == (1040, 720)


def test_the_command_writes_figures(tmp_path, capsys):
    recipes(tmp_path / "runs", "mnist-gaussian-1.00")
    assert main(["report", str(tmp_path / "runs"), "--figures", str(tmp_path / "figures")]) == 0
    assert len(list((tmp_path / "figures").iterdir())) == 9
    assert "figure-4.pdf" in capsys.readouterr().err


def test_without_matplotlib_the_error_names_the_extra(tmp_path):
    recipes(tmp_path / "runs", "mnist-gaussian-1.00")
    code = "import sys; sys.modules['matplotlib'] = None; from smoothcert.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", str(tmp_path / "runs"), "--figures", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'smoothcert[plots]'" in done.stderr


def test_names_are_escaped_for_matplotlib(tmp_path):
    runs = recipes(tmp_path / "runs", "mnist-gaussian-1.00")
    (run,) = read_runs([f"_$x^^$/={runs[0].path}"])
    for panels in own_figures([run]).values():
        drawn = draw_panels(panels, (4, 3))
        drawn.canvas.draw()
        (text,) = drawn.axes[0].get_legend().get_texts()
        assert text.get_text() == r" _\$x^^\$/"
