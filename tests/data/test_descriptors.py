import subprocess
import sys

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen, Descriptors, rdMolDescriptors

from smilex.data import descriptors
from smilex.data.descriptors import DESCRIPTOR_NAMES, LEFT_OUT, compute_descriptors

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
MOLECULES = [
    ASPIRIN,
    "C[C@H](N)C(=O)O",
    "CN1CCC[C@H]1c1cccnc1",
    "[13CH4]",
    "C[N+](C)(C)CC(=O)[O-]",
    "O=[N+]([O-])c1ccc(Cl)cc1",
    "C" * 60,
    "[Fe]",
    "[Na+]",
    "C[Hg]Cl",
    "*CC",
]


def test_all_of_rdkit_but_those_left_out():
    assert set(DESCRIPTOR_NAMES) | set(LEFT_OUT) == {name for name, _ in Descriptors.descList}
    assert len(DESCRIPTOR_NAMES) + len(LEFT_OUT) == len(Descriptors.descList)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_values_are_those_of_rdkit(smiles):
    expected = []
    for name, function in Descriptors.descList:
        if name not in LEFT_OUT:
            try:
                value = function(Chem.MolFromSmiles(smiles))
            except ZeroDivisionError:
                value = np.nan
            expected.append(value if np.isfinite(value) else np.nan)
    found = compute_descriptors([smiles])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], np.array(expected, dtype=np.float32))


def test_columns_have_the_names_of_what_they_hold():
    mol = Chem.MolFromSmiles(ASPIRIN)
    known = dict(zip(DESCRIPTOR_NAMES, compute_descriptors([ASPIRIN])[0].tolist(), strict=True))
    assert known["MolWt"] == pytest.approx(180.159, abs=1e-3)
    assert known["HeavyAtomCount"] == 13
    assert known["fr_ester"] == 1
    assert known["MolLogP"] == pytest.approx(Crippen.MolLogP(mol), rel=1e-6)
    assert known["TPSA"] == pytest.approx(rdMolDescriptors.CalcTPSA(mol), rel=1e-6)


def test_a_molecule_without_values_keeps_its_row():
    values = compute_descriptors(["CCO", "C1CC", "", "CCC"])
    assert np.isnan(values[1:3]).all()
    np.testing.assert_array_equal(values[[0, 3]], compute_descriptors(["CCO", "CCC"]))
    assert compute_descriptors([]).shape == (0, len(DESCRIPTOR_NAMES))


def test_a_descriptor_that_fails_or_is_infinite_is_unknown_for_that_molecule_alone(monkeypatch):
    def fail(mol):
        if mol.GetNumAtoms() == 3:
            raise RuntimeError("of any kind")
        return float("inf") if mol.GetNumAtoms() == 2 else 1e60  # beyond float32

    whole = compute_descriptors(["CCO", "CC", "C"])
    monkeypatch.setitem(descriptors._FUNCTIONS, "MolWt", fail)
    values = compute_descriptors(["CCO", "CC", "C"])
    place = DESCRIPTOR_NAMES.index("MolWt")
    assert np.isnan(values[:, place]).all()
    np.testing.assert_array_equal(np.delete(values, place, axis=1), np.delete(whole, place, axis=1))


def test_partial_charges_of_metals_are_unknown():
    values = dict(zip(DESCRIPTOR_NAMES, compute_descriptors(["C[Hg]Cl"])[0], strict=True))
    assert np.isnan(values["MaxPartialCharge"])
    assert values["MolWt"] == pytest.approx(251.08, abs=0.01)


def test_nothing_is_printed(capfd):
    compute_descriptors(MOLECULES)
    assert capfd.readouterr() == ("", "")


def test_workers_stay_small():
    code = "import sys, smilex.data.descriptors; print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
