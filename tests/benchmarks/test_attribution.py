import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from smilex.baselines import ecfp4


@pytest.mark.parametrize("smiles", ["CCO", "CC(=O)Oc1ccccc1C(=O)O", "C[NH3+].[Cl-]", "FC(F)(F)c1ccncc1"])
def test_contributions_add_up_to_the_log_p(smiles):
    from attribution import contributions

    mol = Chem.MolFromSmiles(smiles)
    found = contributions(mol)
    assert found.shape == (mol.GetNumAtoms(),)
    assert found.sum() == pytest.approx(rdMolDescriptors.CalcCrippenDescriptors(mol)[0])


def test_an_atom_takes_its_bits_with_it():
    from attribution import without_each_atom

    rows = without_each_atom(Chem.MolFromSmiles("CCO"))
    np.testing.assert_array_equal(rows[0], ecfp4(["CCO"])[0][0])
    # Three atoms, two ends with radius 1, and their middle, whose radius 1 is the whole molecule.
    assert rows[0].sum() == 6
    # Each end takes itself, its environment and the middle's; the middle takes itself and every environment.
    assert rows[1:].sum(1).tolist() == [3, 2, 3]


def test_values_without_ranks_count_as_nothing():
    from attribution import rank_correlation

    truth = np.array([0.1, 0.2, 0.3])
    assert rank_correlation(np.zeros(3), truth) == 0
    assert rank_correlation(-truth, truth) == pytest.approx(-1)
