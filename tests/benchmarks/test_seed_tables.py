import pytest


def cell(loss, rmse=None, auc=None):
    probe = {"esol": {"figure": "rmse", "test": rmse}, "bace": {"figure": "roc_auc", "test": auc}}
    return {"stages": [{"loss": 9.0}, {"loss": loss}], "probe": probe}


ROWS = {"first": [cell(1.0, 0.5, 0.6), cell(2.0, 0.7, 0.8)], "second": [cell(1.0, 0.9)]}


def test_a_table_of_means_and_spreads():
    from seed_tables import Column, markdown, probe_columns

    cells = [cell for row in ROWS.values() for cell in row]
    columns = [
        Column("loss", ("stages", -1, "loss"), min, 2),
        Column("gone", ("stages", 5, "loss")),
        *probe_columns(["bace", "esol", "bbbp"], cells, "test"),
    ]
    assert markdown("method", ROWS, columns).splitlines() == [
        "| method | seeds | loss | gone | bace ROC-AUC | esol RMSE |",
        "|---|---|---|---|---|---|",
        "| first | 2 | 1.50 ± 0.71 | – | 0.700 ± 0.141 | **0.600 ± 0.141** |",
        "| second | 1 | **1.00** | – | – | 0.900 |",
    ]


@pytest.mark.parametrize("groups", [{}, {"equal molecules": ROWS}, {"equal molecules": ROWS, "equal seconds": {}}])
def test_a_plot_of_any_cells(tmp_path, groups):
    from seed_tables import Column, plot

    plot(groups, [Column("loss", ("stages", -1, "loss"), min)] * 5, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
