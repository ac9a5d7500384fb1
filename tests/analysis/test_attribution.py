import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from smilex import SmilesTokenizer, analysis, finetune, predict
from smilex.analysis import attribute
from smilex.chem import canonicalize, enumerate_smiles, parse
from smilex.errors import InvalidSmilesError, SmilexError
from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty, ExLMModel
from smilex.modeling.loading import quiet_transformers
from smilex.modeling.molecule_property import CLASSIFICATION, REGRESSION
from smilex.prediction import predict_rows

MOLECULES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@H](N)C(=O)O",
    "C",
    "[Na+].[Cl-]",
    "CC(=O)[O-].[Na+]",
    "OCC%12CCC%12",
    "C[N+](C)(C)CC([O-])=O",
    "[123Xe].OC",
    "[H][H]",
    "[2H]C([2H])O",
    "[H]OC",
    "F/C=C/Cl",
    "O=C1C2CC3CC1CC(C2)C3Br",
]


def network(*, seed=0, tasks=("logS",), problem_type=REGRESSION, **changes):
    """A model with weights that were drawn, not trained."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    names = {"id2label": dict(enumerate(tasks)), "problem_type": problem_type}
    settings = {"vocab_size": len(SmilesTokenizer()), "initializer_range": 0.1, **changes}
    model = ExLMForMoleculeProperty(ExLMConfig(**sizes, **names, **settings))
    model.target_mean.copy_(torch.linspace(100, 200, len(tasks)))
    model.target_std.copy_(torch.linspace(50, 10, len(tasks)))
    return model.eval()


def save(directory, **changes):
    with quiet_transformers():
        network(**changes).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    for seed in range(3):
        save(directory / f"seed-{seed}", seed=seed, tasks=("logS", "logP"))
    (directory / "report.json").write_text(json.dumps({"models": 3}))
    return directory


MASKED = {  # SMILES → its canonical SMILES with each atom masked, in the order of the former
    "OCC": ["CC[MASK]", "C[MASK]O", "[MASK]CO"],
    "Cl[C@@H](C)N": ["C[C@@H](N)[MASK]", "C[MASK](N)Cl", "[MASK][C@@H](N)Cl", "C[C@@H]([MASK])Cl"],
    "[123Xe]": ["[MASK]"],  # six tokens
    "[123Xe].C": ["C.[MASK]", "[MASK].[123Xe]"],
    "F/C=C/Br": ["[MASK]/C=C/Br", "F/[MASK]=C/Br", "F/C=[MASK]/Br", "F/C=C/[MASK]"],
    "O1CC1C": ["CC1C[MASK]1", "CC1[MASK]O1", "C[MASK]1CO1", "[MASK]C1CO1"],
}


@pytest.mark.parametrize("problem_type", [REGRESSION, CLASSIFICATION])
@pytest.mark.parametrize("smiles", list(MASKED))
def test_an_atom_is_worth_what_the_prediction_loses_without_it(tmp_path, smiles, problem_type):
    save(tmp_path, problem_type=problem_type)
    texts = [canonicalize(smiles), *MASKED[smiles]]
    rows = [SmilesTokenizer()(text)["input_ids"] for text in texts]
    whole, *masked = predict_rows(network(problem_type=problem_type), rows)[:, 0].astype(float)
    found = attribute(tmp_path, smiles)
    scale = 100 if problem_type == REGRESSION else 1
    np.testing.assert_allclose(found.atom_values, whole - np.array(masked), atol=1e-5 * scale)
    assert found.prediction == pytest.approx(predict(tmp_path, [smiles])["logS"][0], rel=1e-5)


@pytest.mark.parametrize("head", ["linear", "random_forest"])
def test_heads_on_a_frozen_encoder_are_explained_too(model, tmp_path, head):
    table = pd.DataFrame({"smiles": ["C" * n + "O" for n in range(1, 21)], "logS": np.arange(20) / 7})
    finetune(table, tmp_path / "run", model, head=head, split="random", seeds=1, progress=False)
    found = attribute(tmp_path / "run", "CCO")
    # In a batch with the masked molecules the vector is rounded otherwise, which a linear model can amplify.
    assert found.prediction == pytest.approx(predict(tmp_path / "run", ["CCO"])["logS"][0], rel=1e-5, abs=1e-5)
    assert (found.atom_values != 0).any()


def test_models_that_average_random_smiles_are_read_on_the_canonical_one(model, tmp_path):
    save(tmp_path, averaged_smiles=3)
    np.testing.assert_array_equal(attribute(tmp_path, "CC(N)O").atom_values, attribute(model, "CC(N)O").atom_values)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_one_value_an_atom(model, smiles):
    found = attribute(model, smiles)
    assert (found.smiles, found.task, found.atom_sd) == (smiles, "logS", None)
    assert found.atom_values.shape == (parse(smiles).GetNumAtoms(),)
    assert found.atom_values.dtype == np.float64
    assert (found.atom_values != 0).all()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31 - 1), smiles=st.sampled_from(["CC(=O)OCCN", "OC(F)CCCl", "C[C@H](N)C(=O)O", "CCO.[Na+]"])
)
def test_values_follow_their_atoms_however_the_molecule_is_written(model, smiles, seed):
    (other,) = enumerate_smiles(smiles, 1, seed)
    # None of these molecules has two atoms that are alike, so that one match alone is possible.
    match = Chem.MolFromSmiles(other).GetSubstructMatch(Chem.MolFromSmiles(smiles))
    values = attribute(model, other).atom_values[list(match)]
    np.testing.assert_allclose(values, attribute(model, smiles).atom_values, rtol=1e-5)


def test_blanks_around_a_molecule_change_nothing(model):
    np.testing.assert_array_equal(attribute(model, " CCO ").atom_values, attribute(model, "CCO").atom_values)


def test_several_seeds_give_mean_and_spread(run):
    found = attribute(run, "CCO", "logP")
    single = [attribute(run / f"seed-{seed}", "CCO", "logP") for seed in range(3)]
    values = np.stack([one.atom_values for one in single])
    np.testing.assert_allclose(found.atom_values, values.mean(0))
    np.testing.assert_allclose(found.atom_sd, values.std(0, ddof=1))
    assert found.prediction == pytest.approx(predict(run, ["CCO"])["logP"][0], rel=1e-5)


def test_tasks_are_told_apart_by_name(run):
    names = [attribute(run, "CCO", task).task for task in ("logS", "logP")]
    assert names == ["logS", "logP"]
    assert not np.allclose(attribute(run, "CCO", "logS").atom_values, attribute(run, "CCO", "logP").atom_values)


@pytest.mark.parametrize(("task", "what"), [(None, "say which task"), ("logD", "no task 'logD'")])
def test_a_task_that_is_not_there(run, task, what):
    with pytest.raises(SmilexError, match=rf"^{what}; the model predicts 'logS', 'logP'$"):
        attribute(run, "CCO", task)


@pytest.mark.parametrize("smiles", ["", "C1CC", "no molecule", None, 7, ["CCO"]])
def test_what_is_no_molecule(model, smiles):
    with pytest.raises(InvalidSmilesError) as caught:
        attribute(model, smiles)
    assert "\n" not in str(caught.value)


def test_a_molecule_that_is_too_long(tmp_path):
    save(tmp_path, max_position_embeddings=10)
    assert len(attribute(tmp_path, "C" * 8).atom_values) == 8
    with pytest.raises(SmilexError, match="the limit is 10"):
        attribute(tmp_path, "C" * 9)


def test_a_directory_that_is_no_fine_tuned_model(tmp_path):
    with pytest.raises(SmilexError, match="there is no such directory"):
        attribute(tmp_path / "nowhere", "CCO")
    with quiet_transformers():
        ExLMModel(ExLMConfig.from_preset("tiny")).save_pretrained(tmp_path)
    with pytest.raises(SmilexError, match="was not saved as ExLMForMoleculeProperty"):
        attribute(tmp_path, "CCO")


def test_models_of_two_runs(tmp_path):
    for seed, task in enumerate(("logS", "logP")):
        save(tmp_path / f"seed-{seed}", tasks=(task,))
    (tmp_path / "report.json").write_text(json.dumps({"models": 2}))
    with pytest.raises(SmilexError, match="they are not of one run"):
        attribute(tmp_path, "CCO")


def drawn(values, smiles="CCO", task="logS"):
    return analysis.Attribution(smiles, task, np.array(values), None, 1.234)


def root_of(svg):
    return ET.fromstring(svg)  # noqa: S314 (RDKit wrote it)


def fills(svg):
    """Colour of the disc of each atom."""
    found = {}
    for disc in root_of(svg).iter("{http://www.w3.org/2000/svg}ellipse"):
        atom = int(re.search(r"atom-(\d+)", disc.get("class"))[1])
        found[atom] = re.search(r"fill:(#[0-9A-F]{6})", disc.get("style"))[1]
    return found


@pytest.mark.parametrize("smiles", MOLECULES)
def test_the_drawing_has_every_atom(model, smiles):
    found = attribute(model, smiles)
    assert sorted(fills(found.draw())) == list(range(len(found.atom_values)))
    assert found._repr_svg_() == found.draw()


def test_the_drawing_says_how_much_and_in_which_direction():
    colours = fills(drawn([2.0, 0.0, -2.0]).draw())
    assert colours[1] == "#FFFFFF"
    for atom, expected in ((0, (0x00, 0x72, 0xB2)), (2, (0xD5, 0x5E, 0x00))):
        shown = bytes.fromhex(colours[atom].removeprefix("#"))
        np.testing.assert_allclose(list(shown), expected, atol=1)  # RDKit cuts fractions off
    assert set(fills(drawn([0.0, 0.0, 0.0]).draw()).values()) == {"#FFFFFF"}


def test_the_size_of_the_drawing():
    root = root_of(drawn([1.0, 0.0, -1.0]).draw(width=250, height=150))
    assert (root.get("width"), root.get("height")) == ("250px", "150px")


@pytest.mark.parametrize("task", ["pIC50 (nM/µ)", "<a&b>", '"', ""])
def test_any_name_of_a_task_gives_a_drawing_that_can_be_read(task):
    assert len(fills(drawn([1.0, 0.0, -1.0], task=task).draw())) == 3
