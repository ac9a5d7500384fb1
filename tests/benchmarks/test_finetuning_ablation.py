import importlib

import pytest


@pytest.fixture
def ablation():
    return importlib.import_module("finetuning_ablation")


def cell(valid, test):
    return {"valid": {"roc_auc": {"mean": valid, "sd": None}}, "test": {"roc_auc": {"mean": test, "sd": 0.01}}}


def test_a_part_of_one_class_has_no_figure(ablation, capsys):
    """It neither stops the table nor counts in the gain."""
    change = next(name for name in ablation.CHANGES if name != ablation.BASE)
    cells = {
        ablation.BASE: {"a": cell(0.5, 0.8), "b": cell(None, 0.5)},
        change: {"a": cell(0.6, None), "b": cell(0.7, 0.6)},
    }
    ablation.show(cells)
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [text.strip() for text in rows[0].split("|")[2:-1]] == [
        "0.500 ± 0.000 (0.800 ± 0.010)",
        "– (0.500 ± 0.010)",
        "+0.0%",
        "+0.0%",
    ]
    assert [text.strip() for text in rows[1].split("|")[2:-1]] == [
        "0.600 ± 0.000 (–)",
        "0.700 ± 0.000 (0.600 ± 0.010)",
        "+20.0%",
        "+20.0%",
    ]
