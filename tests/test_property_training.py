"""What the settings of a recipe do to training and to predictions."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from safetensors.torch import load_file

from smilex import SmilesTokenizer, finetune, predict
from smilex.data.properties import load_properties
from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import InvalidMoleculeWarning, encode_rows
from smilex.data.splits import split
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty
from smilex.modeling.loading import property_network, quiet_transformers
from smilex.prediction import predict_rows
from smilex.property_task import PropertyTask
from smilex.property_training import PropertyTrainer, property_config
from smilex.recipe import Recipe

RINGS = ["C1CC1", "c1ccccc1", "c1ccncc1", "C1CCNCC1", "c1ccsc1", "C1CCOC1", "C1CCCCC1", "N", "O"]
MOLECULES = [Chem.CanonSmiles("C" * length + ring) for ring in RINGS for length in range(1, 10)]
CARBONS = np.array([text.upper().count("C") for text in MOLECULES], dtype=float)
QUICK = {"split": "random", "seeds": 1, "epochs": 2, "learning_rate": 2e-3, "progress": False}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ExLMConfig(**sizes, vocab_size=len(SmilesTokenizer()), max_position_embeddings=40)
    with quiet_transformers():
        ExLMForMaskedLM(config).save_pretrained(directory)
    return directory


def table_of(**columns):
    return pd.DataFrame({"smiles": MOLECULES, **columns})


def trainer_of(table, directory, encoder, **settings):
    """Make the trainer that `smilex.finetune` makes for one seed."""
    data = load_properties(table)
    rows = encode_rows(data.smiles, SmilesTokenizer(), max_length=40)
    task = PropertyTask(data, rows, split(MOLECULES, "random", targets=data.targets))
    recipe = Recipe(**settings)
    directory.mkdir(exist_ok=True)
    torch.manual_seed(0)
    network = property_network(property_config(data, encoder, None, "mean", recipe), encoder)
    return PropertyTrainer(network, task, recipe, directory, seed=0, progress=False)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_learning_rate_warms_up_and_falls_in_every_layer(encoder, tmp_path):
    trainer = trainer_of(table_of(carbons=CARBONS), tmp_path, encoder, learning_rate=0.01, layer_decay=0.5)
    trainer.create_optimizer_and_scheduler(num_training_steps=100)
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    depth = {"dense.weight": 0, "exlm.layers.1.attention.qkv.weight": 1, "exlm.layers.0.attention_norm.bias": 2}
    depth["exlm.word_embeddings.weight"] = 3
    rates = []
    for _ in range(101):
        groups = trainer.optimizer.param_groups
        rates.append({names[id(weight)]: group["lr"] for group in groups for weight in group["params"]})
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    for name, steps_down in depth.items():
        seen = np.array([rate[name] for rate in rates]) / (0.01 * 0.5**steps_down)
        np.testing.assert_allclose(seen[:11], np.linspace(0, 1, 11), atol=1e-9)
        np.testing.assert_allclose(seen[10:], np.linspace(1, 0, 91), atol=1e-9)


def test_weight_decay_is_that_of_transformers(encoder, tmp_path):
    trainer = trainer_of(table_of(carbons=CARBONS), tmp_path, encoder)
    expected = set(trainer.get_decay_parameter_names(trainer.model))
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    groups = trainer.create_optimizer().param_groups
    decayed = {names[id(weight)] for group in groups if group["weight_decay"] == 0.01 for weight in group["params"]}
    assert decayed == expected
    assert {"dense.weight", "exlm.word_embeddings.weight"} < decayed
    assert not any("norm" in name or "bias" in name for name in decayed)


def test_lower_layers_learn_slower(encoder, tmp_path):
    finetune(table_of(carbons=CARBONS), tmp_path, encoder, layer_decay=1e-4, **QUICK)
    start, end = load_file(encoder / "model.safetensors"), load_file(tmp_path / "seed-0" / "model.safetensors")
    moved = [
        (end[name] - start[name]).abs().max().item()
        for name in ("exlm.final_norm.weight", "exlm.layers.0.attention_norm.weight", "exlm.embedding_norm.weight")
    ]
    assert 2e-9 < moved[0] < 2e-5
    assert moved[1:] == [0, 0]  # 1e-8 and 1e-12 of the rate are less than float32 has digits for
    assert np.abs(predict(tmp_path, MOLECULES)["carbons"] - CARBONS.mean()).max() > 0.01


@pytest.mark.parametrize(("dropout", "expected"), [(None, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_dropout_of_encoder_and_head(encoder, tmp_path, dropout, expected):
    network = trainer_of(table_of(carbons=CARBONS), tmp_path, encoder, dropout=dropout).model
    modules = [network.dropout, network.exlm.embedding_dropout, *(layer.dropout for layer in network.exlm.layers)]
    assert {module.p for module in modules} == {expected}


def test_balanced_classes_move_probabilities_to_the_middle(encoder, tmp_path):
    """Of labels that no structure explains, each prediction is the share of class 1, or one half once balanced."""
    rare = (np.arange(len(MOLECULES)) % 8 == 3).astype(float)
    table = table_of(rare=rare, common=1 - rare)
    table.loc[::5, "common"] = np.nan
    means = {}
    for balance in (False, True):
        settings = {"epochs": 40, "patience": 40, "learning_rate": 2e-3, "balance_classes": balance}
        trainer = trainer_of(table, tmp_path / str(balance), encoder, **settings)
        trainer.args.load_best_model_at_end = False  # the best pass on noise is any of them
        trainer.train()
        ids = encode_rows(MOLECULES, SmilesTokenizer(), max_length=40).input_ids
        means[balance] = predict_rows(trainer.model, ids).mean(axis=0)
    assert means[False][0] < 0.3
    assert means[False][1] > 0.7
    assert 0.4 < means[True].min() < means[True].max() < 0.6


def test_the_loss_in_the_log_is_balanced_as_in_training(encoder, tmp_path):
    labels = (np.arange(len(MOLECULES)) % 4 == 0).astype(float)
    labels[::7] = np.nan
    trainer = trainer_of(table_of(quarter=labels), tmp_path, encoder, balance_classes=True)
    logged = trainer.evaluate()["eval_loss"]
    batch = trainer.data_collator([trainer.eval_dataset[index] for index in range(len(trainer.eval_dataset))])
    assert batch["label_weights"].max() > 1
    with torch.no_grad():
        assert trainer.model.eval()(**batch).loss.item() == pytest.approx(logged, rel=1e-5)


def test_classes_are_balanced_by_the_training_part(encoder, tmp_path):
    labels = np.zeros(len(MOLECULES))
    parts = split(MOLECULES, "random")
    labels[parts.train[::5]] = 1
    labels[parts.valid[::2]] = 1
    trainer = trainer_of(table_of(some=labels), tmp_path, encoder, balance_classes=True)
    ones = len(parts.train[::5])
    weights = [trainer.train_dataset[index]["label_weights"][0] for index in range(len(parts.train))]
    assert max(weights) == pytest.approx((len(parts.train) - ones) / ones)


def test_balanced_classes_leave_measured_values_alone(encoder, tmp_path):
    runs = [
        finetune(table_of(carbons=CARBONS), tmp_path / str(balance), encoder, balance_classes=balance, **QUICK)
        for balance in (False, True)
    ]
    pd.testing.assert_frame_equal(runs[0].predictions, runs[1].predictions)


def test_training_reads_other_smiles_in_each_epoch(encoder, tmp_path, monkeypatch):
    """And the validation part only canonical ones, as predictions do."""
    batches = []
    original = ExLMForMoleculeProperty.forward

    def listen(self, input_ids, *arguments, **settings):
        batches.append((self.training, input_ids.tolist()))
        return original(self, input_ids, *arguments, **settings)

    monkeypatch.setattr(ExLMForMoleculeProperty, "forward", listen)
    finetune(table_of(carbons=CARBONS), tmp_path, encoder, random_smiles=True, **QUICK | {"epochs": 3})
    tokenizer = SmilesTokenizer()

    def texts(training):
        rows = [row for mode, rows in batches if mode == training for row in rows]
        return [tokenizer.decode([token for token in row if token > 4]) for row in rows]

    trained, tested = texts(training=True), texts(training=False)
    assert set(tested) == set(MOLECULES)
    train = [MOLECULES[row] for row in split(MOLECULES, "random").train]
    assert sorted(map(Chem.CanonSmiles, trained)) == sorted(3 * train)
    epochs = [set(trained[start : start + len(train)]) for start in range(0, len(trained), len(train))]
    assert len(epochs) == 3
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert len(epochs[one] & epochs[other]) < 0.7 * len(train)


def test_training_on_random_smiles_is_repeatable(encoder, tmp_path):
    settings = QUICK | {"random_smiles": True, "averaged_smiles": 3, "seeds": 2}
    for name in ("a", "b"):
        finetune(table_of(carbons=CARBONS), tmp_path / name, encoder, **settings)
    for file in ("predictions.csv", "metrics.json", "seed-1/metrics.jsonl", "seed-1/model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_predictions_average_over_smiles_everywhere(encoder, tmp_path, monkeypatch, kind):
    """In the table of the run, in the figures of the validation part, in `predict`; rows stay rows."""
    monkeypatch.setattr("smilex.prediction.PIECE", 30)
    labels = CARBONS if kind == "regression" else np.array([float("N" in text.upper()) for text in MOLECULES])
    table = pd.DataFrame({"smiles": ["C1CC", *MOLECULES], "label": [1.0, *labels]})
    settings = QUICK | {"averaged_smiles": 4, "epochs": 8, "learning_rate": 5e-3}
    with pytest.warns(InvalidMoleculeWarning):
        result = finetune(table, tmp_path, encoder, **settings)
    assert read(tmp_path / "seed-0" / "config.json")["averaged_smiles"] == 4
    tokenizer, writer = SmilesTokenizer(), RandomSmiles(40)
    model = ExLMForMoleculeProperty.from_pretrained(tmp_path / "seed-0").eval()
    expected, canonical = [], []
    for smiles in MOLECULES:
        ways = writer.several(tokenizer(smiles)["input_ids"], 4)
        values = [model.predict(torch.tensor([ids])).item() for ids in ways]
        expected.append(np.mean(values))
        canonical.append(values[0])
    np.testing.assert_allclose(result.predictions["label"], [np.nan, *expected], rtol=1e-4, atol=1e-5)
    assert np.abs(np.subtract(expected, canonical)).max() > 1e-3
    with pytest.warns(InvalidMoleculeWarning):
        predicted = predict(tmp_path, [MOLECULES[5], "C1CC", MOLECULES[5], "OCC"])
    np.testing.assert_allclose(predicted["label"][[0, 1, 2]], [expected[5], np.nan, expected[5]], rtol=1e-4)
    log = [json.loads(line) for line in (tmp_path / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    name = "rmse" if kind == "regression" else "roc_auc"
    best = (min if kind == "regression" else max)(row[f"eval_{name}"] for row in log if f"eval_{name}" in row)
    assert result.report["metrics"]["valid"]["summary"][name]["mean"] == pytest.approx(best, rel=1e-5)


def test_a_new_head_has_settings_of_its_own(encoder, tmp_path):
    """The encoder in a fine-tuned model hands on neither how its head averaged nor what it was trained on."""
    finetune(table_of(carbons=CARBONS), tmp_path / "first", encoder, averaged_smiles=3, **QUICK | {"epochs": 1})
    finetune(table_of(carbons=CARBONS), tmp_path / "second", tmp_path / "first" / "seed-0", **QUICK | {"epochs": 1})
    assert read(tmp_path / "second" / "seed-0" / "config.json")["averaged_smiles"] == Recipe.averaged_smiles


def test_no_rows_to_average():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = ExLMForMoleculeProperty(ExLMConfig(**sizes, averaged_smiles=3, problem_type="regression", num_labels=2))
    assert predict_rows(model, []).shape == (0, 2)
    assert np.isnan(predict_rows(model, [None, None])).all()
