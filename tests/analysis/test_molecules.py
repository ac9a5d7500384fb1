import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem, RDConfig

import smilex
from smilex import SmilesTokenizer, analysis
from smilex.analysis import (
    alignment,
    alignment_and_uniformity,
    analyze,
    effective_rank,
    layer_ranks,
    neighbourhood_agreement,
    prediction_entropy,
    retrieval,
    retrieval_accuracy,
    subject,
    tanimoto_agreement,
    uniformity,
)
from smilex.baselines import ecfp4
from smilex.data.batching import pad
from smilex.data.rows import InvalidMoleculeWarning
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMModel
from smilex.modeling.loading import quiet_transformers

VOCABULARY = len(SmilesTokenizer())
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FIGURES = (layer_ranks, prediction_entropy, retrieval, alignment_and_uniformity, tanimoto_agreement)


def saved(model, directory):
    with quiet_transformers():
        model.save_pretrained(directory)
    return directory


def new_model(num_states=4, model_class=ExLMForMaskedLM, initializer_range=0.3):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "num_states": num_states, "initializer_range": initializer_range}
    return model_class(ExLMConfig(**SIZES, **sizes)).eval()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return saved(new_model(), tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def molecules():
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    mols = [Chem.MolFromSmiles(line.split()[0]) for line in lines[:60]]
    return sorted({Chem.MolToSmiles(mol) for mol in mols if mol is not None})


# Rank of each layer


def states_by_hand(directory, smiles):
    """The vectors of the molecule's own tokens in each layer, one molecule at a time, nothing masked."""
    model, tokenizer = ExLMModel.from_pretrained(directory).eval(), SmilesTokenizer()
    found = []
    for text in smiles:
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        found.append([hidden[0][output.state_index[0] == 0].numpy() for hidden in output.hidden_states])
    return [np.concatenate(layer) for layer in zip(*found, strict=True)]


@pytest.fixture
def hide(monkeypatch):
    """Choose the masks: these places of every molecule."""

    def choose(places):
        def collate(self, molecules, rng):
            rows = [molecule.input_ids for molecule in molecules]
            ids = torch.from_numpy(pad(rows, self.config.pad_token_id))
            labels = torch.full_like(ids, -100)
            labels[:, places] = ids[:, places]
            return {"input_ids": torch.where(labels == -100, ids, self.config.mask_token_id), "labels": labels}

        monkeypatch.setattr(subject.ExLMObjective, "collate", collate)

    return choose


def test_ranks_are_those_of_the_real_tokens_alone(encoder, molecules, hide):
    hide([])
    layers = states_by_hand(encoder, molecules)
    ranks = layer_ranks(molecules, encoder)
    assert ranks.without_masks == ranks.with_masks == tuple(effective_rank(layer) for layer in layers)
    assert ranks.tokens == len(layers[0])
    assert len(set(ranks.without_masks)) > 1


def test_the_same_tokens_are_measured_with_and_without_masks(encoder, molecules, hide):
    hide([1, 3])
    long = [text for text in molecules if len(SmilesTokenizer().tokenize(text)) > 4]
    model, tokenizer = ExLMModel.from_pretrained(encoder).eval(), SmilesTokenizer()
    alone, beside = [], []
    for text in long:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        masked = ids.clone()
        masked[0, [1, 3]] = tokenizer.mask_token_id
        for vectors, tokens in ((alone, ids), (beside, masked)):
            with torch.no_grad():
                output = model(tokens)
            real = (output.state_index[0] == 0) & (output.token_position[0] != 1) & (output.token_position[0] != 3)
            vectors.append(output.last_hidden_state[0][real].numpy())
    ranks = layer_ranks(long, encoder, threshold=0.8)
    assert ranks.without_masks[-1] == effective_rank(np.concatenate(alone), 0.8)
    assert ranks.with_masks[-1] == effective_rank(np.concatenate(beside), 0.8)
    assert ranks.without_masks[0] == ranks.with_masks[0]  # the embedding does not see its neighbours
    assert ranks.tokens == sum(map(len, alone)) == sum(map(len, beside))


def test_batches_do_not_change_ranks(encoder, molecules, hide, monkeypatch):
    hide([2])
    long = [text for text in molecules if len(SmilesTokenizer().tokenize(text)) > 4]
    ranks = layer_ranks(long, encoder)
    monkeypatch.setattr(subject, "TOKENS_PER_BATCH", 100)
    assert layer_ranks(long, encoder) == ranks


def test_masks_that_leave_no_token_are_an_error(encoder):
    with pytest.raises(SmilexError, match="leaves no token of these molecules unmasked"):
        layer_ranks(["CCO", "CCN"], encoder, mask_ratio=1.0)


# Entropy


def predicting(log_probs, num_states):
    """A model that predicts the same at every place."""
    model = new_model(num_states)
    with torch.no_grad():
        model.lm_head.norm.weight.zero_()
        model.lm_head.norm.bias.zero_()
        model.lm_head.bias.copy_(log_probs)
    return model


@pytest.mark.parametrize("num_states", [1, 4])
def test_entropy_of_known_predictions(num_states, tmp_path, molecules):
    uniform = torch.zeros(VOCABULARY)
    certain = torch.zeros(VOCABULARY)
    certain[20] = 200.0
    halves = torch.full((VOCABULARY,), -200.0)
    halves[[20, 21]] = torch.tensor([0.75, 0.25]).log()
    known = {
        "uniform": (uniform, math.log(VOCABULARY)),
        "certain": (certain, 0.0),
        "halves": (halves, -0.75 * math.log(0.75) - 0.25 * math.log(0.25)),
    }
    for name, (log_probs, entropy) in known.items():
        directory = saved(predicting(log_probs, num_states), tmp_path / name)
        assert prediction_entropy(molecules, directory) == pytest.approx(entropy, abs=1e-4), name


def test_entropy_of_a_masked_language_model_is_that_of_its_own_softmax(tmp_path, molecules, hide):
    hide([1])
    model, tokenizer = new_model(num_states=1, initializer_range=0.1), SmilesTokenizer()
    entropies = []
    for text in molecules:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        ids[0, 1] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(ids).logits[0, 1].double()  # [CLS], the mask, [SEP]
        entropies.append(torch.distributions.Categorical(logits=logits).entropy().item())
    found = prediction_entropy(molecules, saved(model, tmp_path / "model"))
    assert found == pytest.approx(np.mean(entropies), abs=1e-4)


def test_entropy_needs_the_head_that_predicts_tokens(tmp_path):
    directory = saved(new_model(model_class=ExLMModel), tmp_path / "bare")
    with pytest.raises(SmilexError, match="was not saved as ExLMForMaskedLM"):
        prediction_entropy(["CCO"], directory)
    assert analyze(directory, ["CCO", "CCN", "CCCO"]).entropy is None


# Retrieval and the rest


def test_figures_are_those_of_the_arrays(encoder, molecules):
    found = subject.Subject(molecules, encoder, seed=3)
    vectors, twins = smilex.embed(molecules, encoder, "cls"), found.twins("cls")
    bits, _ = ecfp4(molecules)
    assert np.abs(vectors - twins).max() > 1e-2
    assert found.vectors("cls") == pytest.approx(vectors, abs=1e-5)
    assert retrieval(molecules, encoder, "cls", seed=3) == pytest.approx(retrieval_accuracy(twins, vectors))
    figures = alignment_and_uniformity(molecules, encoder, "cls", seed=3)
    assert figures.alignment == pytest.approx(alignment(twins, vectors), rel=1e-4)
    assert figures.uniformity == pytest.approx(uniformity(vectors), rel=1e-4)
    agreement = tanimoto_agreement(molecules, encoder, "cls")
    assert agreement == pytest.approx(neighbourhood_agreement(vectors, bits), abs=1e-3)


def test_twins_are_other_writings_of_the_same_molecules(encoder, molecules, monkeypatch):
    found = subject.Subject(molecules, encoder, seed=1)
    written = []
    monkeypatch.setattr(found, "_embed", lambda ids, _: written.extend(ids))
    found.twins("mean")
    texts = SmilesTokenizer().batch_decode(written, skip_special_tokens=True)
    assert [smilex.chem.canonicalize(text) for text in texts] == molecules == found.smiles
    assert sum(text != molecule for text, molecule in zip(texts, molecules, strict=True)) > len(texts) / 2


def test_a_molecule_that_stands_twice_is_no_error(encoder):
    once, twice = ["C", "N", "O"], ["C", "N", "O", "O", "[H]O[H]"]
    assert retrieval(once, encoder) == retrieval(twice, encoder) == 1.0


def test_an_encoder_that_sees_nothing_is_right_by_chance(tmp_path):
    model = new_model(model_class=ExLMModel)
    with torch.no_grad():
        model.final_norm.weight.zero_()
        model.final_norm.bias.fill_(1.0)
    directory = saved(model, tmp_path / "blind")
    blind = analyze(directory, ["CCO", "CCN", "c1ccccc1", "CC(=O)O"])
    assert (blind.retrieval_accuracy, blind.retrieval_error) == (0.25, 0.75)
    assert (blind.alignment, blind.uniformity) == pytest.approx((0, 0))
    assert blind.neighbourhood_agreement is None
    assert blind.effective_rank[-1] == blind.effective_rank_with_masks[-1] == 1


def test_analyze_gives_every_figure(encoder, molecules):
    found = analyze(encoder, molecules, "cls", mask_ratio=0.3, seed=2)
    ranks = layer_ranks(molecules, encoder, mask_ratio=0.3, seed=2)
    figures = alignment_and_uniformity(molecules, encoder, "cls", seed=2)
    assert found.to_dict() == {
        "encoder": str(encoder),
        "molecules": len(molecules),
        "invalid": 0,
        "pooling": "cls",
        "mask_ratio": 0.3,
        "seed": 2,
        "effective_rank": ranks.without_masks,
        "effective_rank_with_masks": ranks.with_masks,
        "entropy": prediction_entropy(molecules, encoder, mask_ratio=0.3, seed=2),
        "retrieval_accuracy": retrieval(molecules, encoder, "cls", seed=2),
        "retrieval_error": 1 - retrieval(molecules, encoder, "cls", seed=2),
        "alignment": figures.alignment,
        "uniformity": figures.uniformity,
        "neighbourhood_agreement": tanimoto_agreement(molecules, encoder, "cls", seed=2),
    }
    assert found == analyze(encoder, molecules, "cls", mask_ratio=0.3, seed=2)
    assert found != analyze(encoder, molecules, "cls", mask_ratio=0.3, seed=3)


# Molecules and settings that cannot be used


@pytest.mark.parametrize("figure", [*FIGURES, lambda smiles, encoder, **settings: analyze(encoder, smiles, **settings)])
def test_invalid_molecules_are_left_out_and_reported(figure, encoder, molecules):
    mixed = [*molecules[:5], "C1CC", None, *molecules[5:10], ""]
    with pytest.warns(InvalidMoleculeWarning, match="3 of 13 rows hold no molecule") as caught:
        found = figure(mixed, encoder)
    assert len(caught) == 1
    assert "row 5: 'C1CC'" in str(caught[0].message)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = figure([Chem.MolFromSmiles(text) for text in molecules[:10]], encoder)
    if isinstance(found, analysis.Analysis):
        assert (found.invalid, found.molecules) == (3, 10)
    elif figure in (layer_ranks, prediction_entropy, tanimoto_agreement):  # the rest draws its SMILES by row
        assert found == expected
    with pytest.raises(SmilexError, match=r"row 5: 'C1CC' cannot be used"):
        figure(mixed, encoder, errors="raise")


@pytest.mark.parametrize("figure", FIGURES)
def test_what_cannot_be_analysed_is_an_error_of_one_line(figure, encoder, tmp_path):
    for smiles, message in (([], "none of 0 rows"), ("CCO", "in place of many molecules")):
        with pytest.raises(SmilexError, match=message):
            figure(smiles, encoder)
    with pytest.raises(SmilexError, match="no encoder"):
        figure(["CCO", "CCN"], tmp_path / "nothing")


@pytest.mark.parametrize("mask_ratio", [0, -1, 1.5])
def test_a_mask_ratio_out_of_range_is_an_error(encoder, mask_ratio):
    for figure in (layer_ranks, prediction_entropy):
        with pytest.raises(SmilexError, match="mask_ratio is a share above 0 and at most 1"):
            figure(["CCO"], encoder, mask_ratio=mask_ratio)


def test_an_unknown_pooling_is_an_error(encoder):
    with pytest.raises(SmilexError, match="pooling is 'mean' or 'cls', not 'max'"):
        retrieval(["CCO"], encoder, "max")


# The package


@pytest.mark.parametrize("name", analysis.__all__)
def test_every_public_name_resolves_and_says_what_it_is(name):
    value = getattr(smilex.analysis, name)
    assert value.__doc__
    assert value.__name__ == name
    assert name in dir(smilex.analysis)
    assert sorted(analysis._HOMES) == analysis.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'smilex.analysis' has no attribute 'pretend'"):
        smilex.analysis.pretend  # noqa: B018 (reading it is the test)
