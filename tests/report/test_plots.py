import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from smilex.errors import SmilexError
from smilex.report import plots
from smilex.report.plots import plot_loss, plot_parity, plot_roc

NAN = float("nan")
ROWS = [{"step": step, "loss": 3 - step / 100} for step in range(0, 100, 10)]
HELD_OUT = [{"step": 50, "heldout_loss": 2.6, "heldout_accuracy": 0.4}, {"step": 100, "heldout_loss": 2.2}]


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures that are saved, so that tests can read what is drawn."""
    saved = []
    save = plots._save

    def record(figure, path):
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(plots, "_save", record)
    return saved


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_loss_curves_hold_the_rows_in_order_of_steps(tmp_path, figures):
    path = plot_loss([*HELD_OUT, *reversed(ROWS)], tmp_path / "loss.png")
    assert imread(path).shape[:2] == (640, 960)
    training, held_out = figures[0].axes[0].lines
    np.testing.assert_allclose(training.get_xydata(), [[row["step"], row["loss"]] for row in ROWS])
    np.testing.assert_allclose(held_out.get_xydata(), [[50, 2.6], [100, 2.2]])
    assert legend(figures[0].axes[0]) == ["training", "held out"]


def test_loss_of_training_alone(tmp_path, figures):
    plot_loss([*ROWS, {"step": 10, "loss": None}, {"step": 3, "note": "x"}], tmp_path / "loss.png")
    assert legend(figures[0].axes[0]) == ["training"]


def test_a_lone_loss_is_visible(tmp_path, figures):
    plot_loss(ROWS[:1], tmp_path / "loss.png")
    assert figures[0].axes[0].lines[0].get_marker() == "o"


def test_parity_has_equal_axes_identity_line_and_scores(tmp_path, figures):
    path = plot_parity([1, 2, 3, NAN], [1, 2, 4, 9], "logS", tmp_path / "p.png", unit="log mol/L")
    assert imread(path).shape[:2] == (760, 760)
    axes = figures[0].axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_aspect() == 1
    np.testing.assert_array_equal(axes.collections[0].get_offsets(), [[1, 1], [2, 2], [3, 4]])
    line = axes.lines[0].get_xydata()
    np.testing.assert_array_equal(line[:, 0], line[:, 1])
    assert texts(axes) == "RMSE = 0.577 log mol/L\nR² = 0.50\nn = 3"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("measured (log mol/L)", "predicted (log mol/L)")
    assert axes.get_title() == "logS"


def test_parity_with_error_bars_and_without_a_unit(tmp_path, figures):
    plot_parity([1, NAN, 3], [1, 2, 4], "pIC50", tmp_path / "p.png", y_std=[0.5, 9, 0.25])
    axes = figures[0].axes[0]
    bars = axes.collections[0].get_segments()
    np.testing.assert_allclose(bars, [[[1, 0.5], [1, 1.5]], [[3, 3.75], [3, 4.25]]])
    assert axes.get_xlabel() == "measured"


def test_parity_of_constant_values(tmp_path, figures):
    plot_parity([2, 2], [2, 2], "y", tmp_path / "p.png")
    axes = figures[0].axes[0]
    assert "R² = undefined" in texts(axes)
    assert axes.get_xlim() == (1, 3)


def test_roc_has_a_curve_and_an_area_for_each_task_with_both_classes(tmp_path, figures):
    true = np.array([[0, 1, 0], [0, 1, NAN], [1, 1, 1], [1, NAN, 1]])
    prob = np.array([[0.1, 0.5, 0.9], [0.4, 0.5, NAN], [0.35, 0.5, 0.2], [0.8, NAN, 0.1]])
    path = plot_roc(true, prob, ["a", "b", "a task with a very long name indeed"], tmp_path / "r.png")
    assert imread(path).shape[:2] == (760, 760)
    axes = figures[0].axes[0]
    assert legend(axes) == ["a, AUC 0.750", "a task with a very long…, AUC 0.000"]
    for line in axes.lines[1:]:
        np.testing.assert_array_equal(line.get_xydata()[[0, -1]], [[0, 0], [1, 1]])
    assert len({line.get_color() for line in axes.lines[1:]}) == 2


def test_roc_of_many_tasks_shows_their_mean(tmp_path, figures):
    rng = np.random.default_rng(0)
    true = np.tile([[0], [1]], (10, 40))
    plot_roc(true, rng.random((20, 40)), [f"t{i}" for i in range(40)], tmp_path / "r.png")
    (entry,) = legend(figures[0].axes[0])
    assert entry.startswith("40 tasks, mean AUC 0.")
    assert len(figures[0].axes[0].lines) == 42


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_file_formats(tmp_path, suffix):
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    path = plot_loss(ROWS, tmp_path / f"loss{suffix}")
    assert path.read_bytes().startswith(start)


def test_a_failed_plot_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = plot_loss(ROWS, tmp_path / "loss.png")
    before = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(SmilexError, match=r"cannot write .*loss.png.*No space left on device"):
        plot_loss(ROWS, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["loss.png"]


def test_places_and_formats_that_cannot_be_written(tmp_path):
    with pytest.raises(SmilexError, match=r"cannot write .*none.*loss.png"):
        plot_loss(ROWS, tmp_path / "none" / "loss.png")
    with pytest.raises(SmilexError, match=r"cannot write .*loss.xyz"):
        plot_loss(ROWS, tmp_path / "loss.xyz")
    assert list(tmp_path.iterdir()) == []


def test_plots_have_the_permissions_of_other_new_files(tmp_path):
    (tmp_path / "other").touch()
    assert plot_loss(ROWS, tmp_path / "loss.png").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_nothing_to_plot(tmp_path):
    path = tmp_path / "a.png"
    with pytest.raises(SmilexError, match="no loss to plot"):
        plot_loss([{"step": 1}], path)
    with pytest.raises(SmilexError, match="no label to compare with"):
        plot_parity([NAN], [1.0], "y", path)
    with pytest.raises(SmilexError, match="no finite prediction"):
        plot_parity([1.0, 2.0], [1.0, NAN], "y", path)
    with pytest.raises(SmilexError, match="no task has both classes"):
        plot_roc([[1], [1]], [[0.5], [0.5]], ["a"], path)
    with pytest.raises(SmilexError, match="without a finite prediction"):
        plot_roc([[1], [0]], [[NAN], [0.5]], ["a"], path)
    with pytest.raises(SmilexError, match="2 tasks, but"):
        plot_roc([[1], [0]], [[0.1], [0.5]], ["a", "b"], path)
    assert not path.exists()


def test_plots_touch_no_global_state(tmp_path):
    code = (
        "import sys; from smilex.report.plots import plot_loss; "
        f"plot_loss([{{'step': 1, 'loss': 2.0}}], {str(tmp_path / 'a.png')!r}); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    before = dict(mpl.rcParams)
    plot_loss(ROWS, tmp_path / "loss.png")
    assert dict(mpl.rcParams) == before
