import json
import statistics
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import smilex
from smilex.baselines import ecfp4_random_forest
from smilex.data.splits import split
from smilex.metrics import evaluate

INVALID, TOO_LONG = 3, 7
"""Rows of the tables below."""


def tables():
    """Chains, which share a scaffold, rings, each with a scaffold of its own, and two rows that nobody can use."""
    smiles = ["C" * size for size in range(1, 31)] + [f"C1{'C' * size}1" for size in range(2, 12)]
    smiles.insert(INVALID, "C1CC")
    smiles.insert(TOO_LONG, "C" * 600)
    rows = np.arange(len(smiles))
    return {
        "freesolv": pd.DataFrame({"smiles": smiles, "expt": 1000 + rows}),
        "bbbp": pd.DataFrame({"smiles": smiles, "p_np": rows % 2}),
    }


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The script on small tables: `run` calls it with arguments, `trained` lists what it trained."""
    import moleculenet
    import moleculenet_methods as methods

    for name, table in tables().items():
        (tmp_path / "data").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    monkeypatch.setenv("SMILEX_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(moleculenet, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(methods, "TREES", 5)
    methods.load_problem.cache_clear()
    trained = []
    forest = methods.forest

    def counted(problem, seeds, settings, directory):
        trained.append((problem.data.name, *seeds))
        return forest(problem, seeds, settings, directory)

    monkeypatch.setattr(methods, "forest", counted)

    def run(*arguments, datasets=("freesolv",), names=("ecfp4_rf",)):
        trained.clear()
        folders = ["--work-dir", str(tmp_path / "work"), "--encoders", str(tmp_path / "encoders")]
        places = [*folders, "--datasets", *datasets, "--methods", *names]
        moleculenet.main([*places, *map(str, arguments)])
        return list(trained)

    def cells():
        return json.loads((tmp_path / "results" / "moleculenet.json").read_text())["cells"]

    return SimpleNamespace(run=run, trained=trained, cells=cells, methods=methods, script=moleculenet, path=tmp_path)


def clear(folder):
    for path in folder.iterdir():
        path.unlink()


def test_finished_cells_are_not_run_again(bench):
    wanted = ("--seeds", 2)
    both = {"datasets": ("bbbp", "freesolv")}
    assert bench.run(*wanted, **both) == [("freesolv", 0), ("freesolv", 1), ("bbbp", 0), ("bbbp", 1)]
    made = bench.cells()
    assert [(cell["dataset"], cell["method"], cell["seed"]) for cell in made] == [
        ("freesolv", "ecfp4_rf", 0),
        ("freesolv", "ecfp4_rf", 1),
        ("bbbp", "ecfp4_rf", 0),
        ("bbbp", "ecfp4_rf", 1),
    ]
    assert bench.run(*wanted, **both) == []
    clear(bench.path / "work" / "cells")
    assert bench.run(*wanted, **both) == []
    assert bench.run("--seeds", 3, **both) == [("freesolv", 2), ("bbbp", 2)]
    (bench.path / "results" / "moleculenet.json").unlink()
    assert bench.run("--seeds", 3) == [("freesolv", 0), ("freesolv", 1)]


def test_cells_of_the_work_directory_come_back_into_the_results(bench):
    bench.run("--seeds", 1)
    made = bench.cells()
    (bench.path / "results" / "moleculenet.json").unlink()
    assert bench.run("--seeds", 1) == []
    assert bench.cells() == made


def test_a_cell_that_was_cut_off_starts_anew(bench, monkeypatch):
    counted = bench.methods.forest

    def cut(problem, seeds, settings, directory):
        directory.mkdir()
        (directory / "half").touch()
        if 1 in seeds:
            raise KeyboardInterrupt
        return counted(problem, seeds, settings, directory)

    monkeypatch.setattr(bench.methods, "forest", cut)
    with pytest.raises(KeyboardInterrupt):
        bench.run("--seeds", 3)
    assert (bench.path / "work" / "freesolv-ecfp4_rf" / "half").is_file()
    assert [cell["seed"] for cell in bench.cells()] == [0]
    monkeypatch.setattr(bench.methods, "forest", counted)
    assert bench.run("--seeds", 3) == [("freesolv", 1), ("freesolv", 2)]


def test_cells_of_other_settings_are_run_again_and_not_shown(bench, monkeypatch, capsys):
    bench.run("--seeds", 1)
    monkeypatch.setattr(bench.methods, "TREES", 6)
    capsys.readouterr()
    assert bench.run("--seeds", 1, "--budget", 0) == []
    printed = capsys.readouterr().out
    assert "freesolv ecfp4_rf 0: other settings now (trees: 5 before, 6 now)" in printed
    assert "| freesolv | – | – | – | – | – |" in printed
    assert bench.cells() == []
    assert bench.run("--seeds", 1) == [("freesolv", 0)]
    assert bench.cells()[0]["settings"]["trees"] == 6


def test_another_split_has_results_of_its_own(bench):
    bench.run("--seeds", 1)
    before = (bench.path / "results" / "moleculenet.json").read_text()
    assert bench.run("--seeds", 1, "--split", "chiral_scaffold") == [("freesolv", 0)]
    (cell,) = json.loads((bench.path / "results" / "moleculenet_chiral_scaffold.json").read_text())["cells"]
    assert cell["settings"]["split"] == "chiral_scaffold"
    assert "chiral scaffold split" in (bench.path / "results" / "moleculenet_chiral_scaffold.md").read_text()
    assert (bench.path / "results" / "moleculenet.json").read_text() == before


def test_the_chiral_split_is_deepchems_where_no_scaffold_has_stereochemistry(bench):
    smiles = ["CC1CCCO1"] * 10 + [f"C1{'C' * size}1" for size in range(2, 12)] + ["no molecule"]
    usable = np.array([*[True] * 20, False])
    deepchem, chiral = (part(smiles, usable).parts() for part in bench.methods.SPLITS.values())
    for name, rows in deepchem.items():
        assert rows.tolist() == chiral[name].tolist()


def test_the_chiral_split_tells_stereoisomers_of_a_scaffold_apart(bench):
    hands = ["O=C1N[C@@H]2CC[C@H]1C2"] * 9 + ["O=C1N[C@H]2CC[C@@H]1C2"] * 9 + ["C1CC1", "C1CCC1"]
    flat = [smiles.replace("@", "") for smiles in hands]
    usable = np.ones(20, dtype=bool)
    assert bench.methods.chiral_scaffold_split(flat, usable).valid.tolist() == [*range(18)]
    parts = bench.methods.chiral_scaffold_split(hands, usable)
    assert parts.train.tolist() == [*range(9, 20)]
    assert parts.valid.tolist() == [*range(9)]


def test_cells_of_other_data_are_run_again(bench):
    bench.run("--seeds", 1)
    table = tables()["freesolv"]
    table.loc[0, "expt"] = 7.0
    table.to_csv(bench.path / "data" / "freesolv.csv", index=False)
    bench.methods.load_problem.cache_clear()
    assert bench.run("--seeds", 1) == [("freesolv", 0)]


def test_no_cell_starts_after_the_budget(bench, monkeypatch, capsys):
    clock = [0.0]
    counted = bench.methods.forest

    def slow(*arguments):
        clock[0] += 50.0
        return counted(*arguments)

    monkeypatch.setattr(bench.methods, "forest", slow)
    monkeypatch.setattr(bench.script, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert bench.run("--seeds", 4, "--budget", 1.5) == [("freesolv", 0), ("freesolv", 1)]
    assert "the budget of 1.5 minutes is spent" in capsys.readouterr().out
    assert [cell["seconds"] for cell in bench.cells()] == [50.0, 50.0]
    assert bench.run("--seeds", 4) == [("freesolv", 2), ("freesolv", 3)]


def test_report_only_runs_nothing_and_writes_table_and_plot(bench):
    bench.run("--seeds", 2)
    results = bench.path / "results"
    table = (results / "moleculenet.md").read_text()
    for name in ("moleculenet.md", "moleculenet.png"):
        (results / name).unlink()
    clear(bench.path / "data")
    assert bench.run("--report-only") == []
    assert (results / "moleculenet.md").read_text() == table
    assert (results / "moleculenet.png").read_bytes().startswith(b"\x89PNG")


def test_the_legend_lies_within_the_plot(bench, monkeypatch):
    import moleculenet_report as report

    drawn = []
    monkeypatch.setattr(report.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    report.plot([], bench.path / "plot.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1


def test_every_method_gets_the_rows_of_the_scaffold_split_that_all_can_use(bench):
    problem = bench.methods.load_problem("bbbp")
    expected = split(tables()["bbbp"]["smiles"].tolist(), "scaffold").parts()
    for name, part in problem.parts.parts().items():
        assert part.tolist() == [row for row in expected[name] if row != TOO_LONG]
    assert problem.rows["left_out"] == 2


@pytest.mark.parametrize("dataset", ["freesolv", "bbbp"])
def test_the_forest_is_that_of_the_package(bench, dataset):
    bench.run("--seeds", 1, datasets=[dataset])
    cell = json.loads((bench.path / "work" / "cells" / f"{dataset}-ecfp4_rf-seed-0.json").read_text())["cells"][0]
    problem = bench.methods.load_problem(dataset)
    data, parts = problem.data, problem.parts
    train, targets = problem.smiles(parts.train), data.targets[parts.train]
    for name, part in (("valid", parts.valid), ("test", parts.test)):
        predicted = ecfp4_random_forest(train, targets, problem.smiles(part), data.kind, n_trees=5, seed=0)
        assert cell[name] == evaluate(data.kind, data.targets[part], predicted, data.task_names)


def test_fine_tuning_from_scratch_and_from_an_encoder(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench.methods, "RECIPE_CHANGES", {"freesolv": {"epochs": 1}})
    names = ("ecfp4_rf", "scratch", "mlm", "exlm")
    molecules = [f"{'C' * size}O" for size in range(1, 30)]
    smilex.pretrain(molecules, bench.path / "encoders" / "mlm", "mlm", "tiny", max_steps=1, progress=False)
    cut_off = bench.path / "work" / "freesolv-scratch"
    cut_off.mkdir(parents=True)
    (cut_off / "settings.json").write_text("{}")
    bench.run("--seeds", 2, names=names)
    assert "without exlm: there is no encoder in" in capsys.readouterr().out
    cells = {(cell["method"], cell["seed"]): cell for cell in bench.cells()}
    assert list(cells) == [(name, seed) for name in ("ecfp4_rf", "scratch", "mlm") for seed in (0, 1)]
    assert len({json.dumps(cell["rows"]) for cell in cells.values()}) == 1
    errors = [cells[name, seed]["test"]["mean"]["rmse"] for name in ("scratch", "mlm") for seed in (0, 1)]
    assert len(set(errors)) == 4
    assert cells["scratch", 0]["settings"]["recipe"]["epochs"] == 1
    (bench.path / "encoders" / "mlm" / "model.safetensors").write_bytes(b"other weights")
    bench.run("--seeds", 2, "--budget", 0, names=names)
    assert "freesolv mlm 1: other settings now (encoder_sha256: " in capsys.readouterr().out
    assert {cell["method"] for cell in bench.cells()} == {"ecfp4_rf", "scratch"}


def test_heads_on_a_frozen_encoder(bench):
    bench.run("--seeds", 2, names=("frozen_linear", "frozen_rf"))
    cells = {(cell["method"], cell["seed"]): cell for cell in bench.cells()}
    assert list(cells) == [(name, seed) for name in ("frozen_linear", "frozen_rf") for seed in (0, 1)]
    assert {cell["settings"]["head"] for cell in cells.values()} == {"linear", "random_forest"}
    linear, forest = ([cells[name, seed]["test"] for seed in (0, 1)] for name in ("frozen_linear", "frozen_rf"))
    assert linear[0] == linear[1]  # it holds no chance
    assert forest[0] != forest[1]


def test_chemprop_learns_in_the_units_of_the_labels_quietly_and_by_seed(bench, monkeypatch, capfd):
    pytest.importorskip("chemprop", reason="chemprop, the extra 'benchmarks', is not installed")
    problem = bench.methods.load_problem("freesolv")
    settings = {"epochs": 3, "batch_size": 8}
    capfd.readouterr()
    first, other = bench.methods.message_passing(problem, [0, 1], settings, bench.path / "first")
    assert capfd.readouterr() == ("", "")
    (again,) = bench.methods.message_passing(problem, [0], settings, bench.path / "again")
    assert first == again
    assert first != other
    # Labels lie around 1000.
    assert first["test"]["mean"]["rmse"] < 50


def test_chemprop_predicts_probabilities(bench):
    pytest.importorskip("chemprop", reason="chemprop, the extra 'benchmarks', is not installed")
    problem = bench.methods.load_problem("bbbp")
    (scores,) = bench.methods.message_passing(problem, [0], {"epochs": 3, "batch_size": 8}, bench.path / "first")
    assert scores["test"]["tasks"]["p_np"]["ece"] <= 1
    assert 0 <= scores["test"]["mean"]["roc_auc"] <= 1


def test_chemprop_that_is_not_installed_is_left_out(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench.methods, "find_spec", lambda _: None)
    bench.run("--seeds", 1, names=("ecfp4_rf", "chemprop"))
    assert "without chemprop: chemprop is not installed: pip install 'smilex[benchmarks]'" in capsys.readouterr().out
    assert [cell["method"] for cell in bench.cells()] == ["ecfp4_rf"]


def made_up(dataset, method, seed, value, valid=None):
    metric = "rmse" if dataset in ("esol", "freesolv", "lipophilicity") else "roc_auc"
    part = {"mean": {metric: value}, "tasks_scored": 1, "tasks_skipped": 3 if dataset == "toxcast" else 0}
    rows = {"left_out": 11 if dataset == "bbbp" else 0}
    judged = part | {"mean": {metric: value if valid is None else valid}}
    return {"dataset": dataset, "method": method, "seed": seed, "rows": rows, "valid": judged, "test": part}


def test_table_with_missing_cells():
    from moleculenet_report import markdown

    cells = [
        made_up("bbbp", "ecfp4_rf", 0, 0.7),
        made_up("bbbp", "ecfp4_rf", 1, 0.8),
        made_up("bbbp", "exlm", 0, 0.6),
        made_up("esol", "chemprop", 0, 1.0),
        made_up("esol", "mlm", 0, 0.9),
        made_up("toxcast", "mlm", 0, None),
    ]
    lines = markdown(cells).splitlines()
    ours = "smilex from scratch | smilex MLM | smilex ExLM | smilex-small"
    frozen = "smilex-small frozen + linear | smilex-small frozen + random forest"
    chosen = "whichever of the last three is best on validation"
    assert (
        lines[0] == f"| test part, scaffold split | ECFP4 + random forest | chemprop | {ours} | {frozen} | {chosen} |"
    )
    sets = ["bace", "bbbp", "clintox", "sider", "tox21", "toxcast", "muv", "mean of the seven", "esol", "freesolv"]
    assert [line.split(" | ")[0] for line in lines[2:13]] == [f"| {name}" for name in (*sets, "lipophilicity")]
    assert "| bbbp | **0.750 ± 0.071** | – | – | – | 0.600 | – | – | – | – |" in lines
    assert "| esol | – | 1.000 | – | **0.900** | – | – | – | – | – |" in lines
    assert "| toxcast" + 9 * " | –" + " |" in lines
    assert "| mean of the seven" + 9 * " | –" + " |" in lines
    assert lines[-3].endswith("too long): bbbp 11.")
    assert lines[-1].endswith("left out of the mean: toxcast 3.")


@pytest.mark.parametrize(("dataset", "best"), [("bace", max), ("esol", min)])
def test_the_head_is_chosen_on_validation_by_each_seed(dataset, best):
    from moleculenet_report import HEADS, figures

    judged = {0: (0.7, 0.8, 0.6), 1: (0.9, 0.5, 0.4), 2: (0.5, 0.6, 0.7)}
    cells = [
        made_up(dataset, head, seed, 0.1 * seed + 0.01 * place, valid)
        for seed, values in judged.items()
        for place, (head, valid) in enumerate(zip(HEADS, values, strict=True))
    ]
    expected = {seed: 0.1 * seed + 0.01 * values.index(best(values)) for seed, values in judged.items()}
    assert figures(cells)[dataset, "chosen"] == pytest.approx(expected)
    without = [cell for cell in cells if (cell["method"], cell["seed"]) != (HEADS[1], 1)]
    assert sorted(figures(without)[dataset, "chosen"]) == [0, 2]
    two = [cell for cell in cells if cell["method"] != HEADS[1]]
    expected = {seed: 0.1 * seed + 0.02 * (best(a, c) == c) for seed, (a, _, c) in judged.items()}
    assert figures(two)[dataset, "chosen"] == pytest.approx(expected)
    one = [cell for cell in cells if cell["method"] == HEADS[1]]
    assert (dataset, "chosen") not in figures(one)


def test_table_of_nothing():
    from moleculenet_report import markdown

    assert markdown([]).count("–") == 11 * 9


def test_the_mean_of_the_seven_takes_seeds_that_have_all_of_them():
    from moleculenet_report import CLASSES, figures, markdown, mean_of_classes

    assert len(CLASSES) == 7
    values = {(name, seed): 0.5 + 0.05 * index + 0.01 * seed for index, name in enumerate(CLASSES) for seed in range(3)}
    cells = [made_up(name, "exlm", seed, value) for (name, seed), value in values.items()]
    cells += [made_up(name, "mlm", 0, 0.9) for name in CLASSES[:-1]]
    cells += [made_up("esol", name, 0, 100.0) for name in ("mlm", "exlm")]
    expected = {seed: statistics.fmean(values[name, seed] for name in CLASSES) for seed in range(3)}
    assert mean_of_classes(figures(cells), "exlm") == pytest.approx(expected)
    assert "| mean of the seven | – | – | – | – | 0.660 ± 0.010 |" in markdown(cells)
    fewer = [cell for cell in cells if (cell["dataset"], cell["seed"]) != ("muv", 1)]
    assert sorted(mean_of_classes(figures(fewer), "exlm")) == [0, 2]


@pytest.mark.parametrize(("dataset", "published"), [("freesolv", 4.33), ("bace", 0.872)])
def test_forests_of_the_real_sets_agree_with_an_independent_run(bench, monkeypatch, shared_dir, dataset, published):
    monkeypatch.setenv("SMILEX_DATA", str(shared_dir / "data" / "moleculenet"))
    problem = bench.methods.load_problem(dataset)
    (scores,) = bench.methods.forest(problem, [0], {"trees": 100}, bench.path)
    metric = "rmse" if dataset == "freesolv" else "roc_auc"
    assert scores["test"]["mean"][metric] == pytest.approx(published, rel=0.02)
