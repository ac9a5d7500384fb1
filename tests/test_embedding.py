import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from smilex import SmilesTokenizer, embed
from smilex.chem import canonicalize, enumerate_smiles
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty, ExLMModel
from smilex.modeling.loading import quiet_transformers

MOLECULES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C)C(=O)N2C",
    "C[C@H](N)C(=O)O",
    "[Na+].[Cl-]",
    "C",
    "CCCCCCCCCCCCCCCC",
]
WIDTH = 32


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    # Weights much larger than those of a new model, so that a vector depends on its molecule strongly.
    config = ExLMConfig(**sizes, vocab_size=len(SmilesTokenizer()), initializer_range=0.3)
    with quiet_transformers():
        ExLMForMaskedLM(config).save_pretrained(directory)
    return directory


@contextmanager
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def by_hand(smiles, directory, pooling):
    """One molecule at a time through transformers alone, pooled from the definition."""
    tokenizer, model = SmilesTokenizer(), ExLMModel.from_pretrained(directory).eval()
    vectors = []
    for text in smiles:
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"))
        states = output.last_hidden_state[0]
        ordinary = output.state_index[0] == 0
        vectors.append(states[0] if pooling == "cls" else states[ordinary].mean(0))
    return torch.stack(vectors).numpy()


def test_one_row_of_float32_for_each_molecule(encoder):
    with no_warning():
        vectors = embed(MOLECULES, encoder)
    assert vectors.shape == (len(MOLECULES), WIDTH)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert vectors.flags.writeable


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_the_model_called_by_hand(encoder, pooling):
    expected = by_hand([canonicalize(smiles) for smiles in MOLECULES], encoder, pooling)
    np.testing.assert_allclose(embed(MOLECULES, encoder, pooling), expected, atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_mean_is_the_default_and_differs_from_cls(encoder):
    np.testing.assert_array_equal(embed(MOLECULES, encoder), embed(MOLECULES, encoder, "mean"))
    assert np.abs(embed(MOLECULES, encoder) - embed(MOLECULES, encoder, "cls")).max() > 0.1


@pytest.mark.parametrize("pooling", ["max", "MEAN", "", None, 1])
def test_an_unknown_pooling(encoder, pooling):
    with pytest.raises(SmilexError, match="pooling is 'mean' or 'cls', not"):
        embed(MOLECULES, encoder, pooling)


def test_the_order_of_rows_is_that_of_the_input(encoder):
    order = np.random.default_rng(0).permutation(len(MOLECULES))
    shuffled = embed([MOLECULES[index] for index in order], encoder)
    np.testing.assert_allclose(shuffled, embed(MOLECULES, encoder)[order], atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(MOLECULES), max_size=12), st.data())
def test_a_vector_does_not_depend_on_its_batch_mates(encoder, mates, data):
    place = data.draw(st.integers(0, len(mates)))
    alone = embed(["CC(=O)Oc1ccccc1C(=O)O"], encoder)
    together = embed([*mates[:place], "CC(=O)Oc1ccccc1C(=O)O", *mates[place:]], encoder)
    np.testing.assert_allclose(together[place], alone[0], atol=1e-5)


def test_many_batches_are_put_back_in_their_rows(encoder, monkeypatch):
    expected = embed(MOLECULES, encoder)
    monkeypatch.setattr("smilex.inference.TOKENS_PER_BATCH", 16)
    with pytest.warns(InvalidMoleculeWarning):
        vectors = embed([*MOLECULES, "nonsense", *reversed(MOLECULES)], encoder)
    np.testing.assert_allclose(vectors[: len(MOLECULES)], expected, atol=1e-5)
    np.testing.assert_allclose(vectors[len(MOLECULES) + 1 :], expected[::-1], atol=1e-5)


def test_a_vector_does_not_depend_on_how_the_molecule_is_written(encoder):
    for smiles in MOLECULES:
        spellings = [smiles, *enumerate_smiles(smiles, 5, seed=1)]
        vectors = embed(spellings, encoder)
        np.testing.assert_allclose(vectors, np.broadcast_to(vectors[0], vectors.shape), atol=1e-5)


def test_it_does_depend_on_the_spelling_when_asked_to(encoder):
    written = ["CCO", "OCC"]
    vectors = embed(written, encoder, canonical=False)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01
    np.testing.assert_allclose(vectors, by_hand(written, encoder, "mean"), atol=1e-5)


BAD = {
    "": "empty",
    "   ": "empty",
    "C1CC": "ring",
    "hello": "invalid SMILES",
    "CN(C)(C)(C)C": "valence",
    "C\x00C": "control character",
    "C\nC": "text after a blank",
    "CC–O": "non-ASCII",
    "C\udcff": "not UTF-8",
    "C" * 600: "the limit is 512",
    "C" * 10_000: "too long",
    "C" * 100_000: "too long",
    None: "NoneType where a SMILES string",
    float("nan"): "float where a SMILES string",
    7: "int where a SMILES string",
    b"CCO": "bytes where a SMILES string",
}


@pytest.mark.parametrize(("item", "reason"), BAD.items())
def test_an_invalid_row_is_nan_and_its_reason_is_said(encoder, item, reason):
    with pytest.warns(InvalidMoleculeWarning) as caught:
        vectors = embed(["CCO", item, "CCN"], encoder)
    message = str(caught[0].message)
    assert len(caught) == 1
    assert "row 1:" in message
    assert reason in message
    assert len(message) < 500
    assert message.isprintable() or message.replace("\n", "").isprintable()
    assert np.isnan(vectors[1]).all()
    np.testing.assert_allclose(vectors[[0, 2]], embed(["CCO", "CCN"], encoder), atol=1e-5)


def test_nan_rows_stand_exactly_at_the_invalid_inputs(encoder):
    mixed = [item for pair in zip(BAD, MOLECULES * 2, strict=False) for item in pair]
    with pytest.warns(InvalidMoleculeWarning, match=f"{len(BAD)} of {2 * len(BAD)} rows"):
        vectors = embed(mixed, encoder)
    bad = np.arange(len(mixed)) % 2 == 0
    assert np.isnan(vectors[bad]).all()
    assert np.isfinite(vectors[~bad]).all()


def test_the_warning_points_at_the_caller(encoder):
    with pytest.warns(InvalidMoleculeWarning) as caught:
        embed(["nonsense"], encoder)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("item", BAD)
def test_an_invalid_row_is_an_error_when_asked_for(encoder, item):
    with pytest.raises(SmilexError, match=r"^row 1: .* cannot be used: ") as caught:
        embed(["CCO", item], encoder, errors="raise")
    assert "\n" not in str(caught.value)


def test_errors_is_one_of_two_words(encoder):
    with pytest.raises(SmilexError, match="errors is 'report' or 'raise', not 'ignore'"):
        embed(MOLECULES, encoder, errors="ignore")


def test_molecules_of_rdkit(encoder):
    mols = [Chem.MolFromSmiles(smiles) for smiles in MOLECULES]
    np.testing.assert_allclose(embed(mols, encoder), embed(MOLECULES, encoder), atol=1e-5)
    with pytest.warns(InvalidMoleculeWarning, match="NoneType"):
        assert np.isnan(embed([Chem.MolFromSmiles("CCO"), None], encoder)).all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize("wrap", [tuple, iter, np.array, pd.Series, lambda items: (item for item in items)])
def test_any_iterable(encoder, wrap):
    np.testing.assert_array_equal(embed(wrap(MOLECULES), encoder), embed(MOLECULES, encoder))


@pytest.mark.parametrize("empty", [[], (), iter([]), pd.Series([], dtype=object)])
def test_nothing_gives_no_rows(encoder, empty):
    vectors = embed(empty, encoder)
    assert vectors.shape == (0, WIDTH)
    assert vectors.dtype == np.float32


def test_invalid_rows_alone(encoder):
    with pytest.warns(InvalidMoleculeWarning, match="2 of 2 rows"):
        vectors = embed(["", "C1CC"], encoder)
    assert vectors.shape == (2, WIDTH)
    assert np.isnan(vectors).all()


@pytest.mark.parametrize("wrong", [None, 7, pd.DataFrame({"smiles": MOLECULES}), {"smiles": MOLECULES}])
def test_what_is_no_list_of_molecules(encoder, wrong):
    with pytest.raises(SmilexError, match=r"in place of many molecules|is no list of molecules"):
        embed(wrong, encoder)


@pytest.mark.parametrize("one", ["CCO", Chem.MolFromSmiles("CCO")])
def test_one_molecule_in_place_of_many(encoder, one):
    with pytest.raises(SmilexError, match="pass a list"):
        embed(one, encoder)


def test_the_vectors_of_a_fine_tuned_model_are_those_of_its_encoder(encoder, tmp_path):
    with quiet_transformers():
        model = ExLMForMoleculeProperty.from_pretrained(encoder)
        model.save_pretrained(tmp_path)
    np.testing.assert_allclose(embed(MOLECULES, tmp_path), embed(MOLECULES, encoder), atol=1e-5)


@pytest.mark.parametrize("encoder", ["no-such-encoder", "no/such/directory"])
def test_an_encoder_that_does_not_exist(encoder):
    with pytest.raises(SmilexError, match="no encoder"):
        embed(MOLECULES, encoder)


def test_a_directory_that_is_no_model(tmp_path):
    with pytest.raises(SmilexError, match="is not a model directory"):
        embed(MOLECULES, tmp_path)


def test_nothing_is_printed(encoder, capfd):
    embed(MOLECULES, encoder)
    assert capfd.readouterr() == ("", "")
