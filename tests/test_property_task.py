import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight
from torch.utils.data import DataLoader

from smilex import SmilesTokenizer
from smilex.chem import canonicalize
from smilex.data.properties import PropertyDataset
from smilex.data.random_smiles import RandomSmiles
from smilex.data.rows import encode_rows
from smilex.data.splits import Split
from smilex.property_task import PropertyTask, TrainingMolecules, collate, positive_weights

NAN = float("nan")
TOKENIZER = SmilesTokenizer()
MOLECULES = ["c1ccccc1" + "C" * length + "O" for length in range(12)]
LABELS = np.array([[row % 2, NAN if row == 5 else float(row == 3)] for row in range(12)])
NONE = np.array([], dtype=np.int64)


@pytest.fixture
def task():
    rows = encode_rows(MOLECULES, TOKENIZER, max_length=512)
    targets = LABELS.copy()
    targets[7] = NAN
    data = PropertyDataset("some", MOLECULES, targets, ["odd", "third"], "classification")
    return PropertyTask(data, rows, Split(np.arange(2, 12), np.arange(2), NONE))


def text(ids):
    return TOKENIZER.decode(ids, skip_special_tokens=True)


def test_weights_are_the_balanced_ones_of_sklearn():
    generator = np.random.default_rng(0)
    labels = (generator.random((200, 4)) < [0.5, 0.1, 0.9, 0.3]).astype(float)
    labels[generator.random(labels.shape) < 0.3] = NAN
    for task, weight in enumerate(positive_weights(labels)):
        known = labels[~np.isnan(labels[:, task]), task]
        negative, positive = compute_class_weight("balanced", classes=np.array([0.0, 1.0]), y=known)
        assert weight == pytest.approx(positive / negative)


def test_weights_of_tasks_with_one_class_no_label_or_hardly_a_positive():
    labels = np.zeros((1001, 4))
    labels[:, 1] = 1
    labels[:, 2] = NAN
    labels[0, 3] = 1
    assert positive_weights(labels).tolist() == [1, 1, 1, 100]


def test_molecules_are_the_labelled_ones_of_the_part(task):
    molecules = TrainingMolecules(task, task.parts.train, np.array([3.0, 5.0]))
    rows = [row for row in range(2, 12) if row != 7]
    assert len(molecules) == len(rows)
    for index, row in enumerate(rows):
        molecule = molecules[index]
        assert text(molecule["input_ids"]) == canonicalize(MOLECULES[row])
        np.testing.assert_array_equal(molecule["labels"], LABELS[row])
        expected = [3.0 if row % 2 else 1.0, 5.0 if row == 3 else 1.0]
        np.testing.assert_array_equal(molecule["label_weights"], expected)


def test_random_smiles_change_with_epoch_row_and_seed_alone(task):
    def read(epoch, seed=0):
        molecules = TrainingMolecules(task, task.parts.train, np.ones(2), RandomSmiles(512), seed)
        molecules.set_epoch(epoch)
        return [text(molecules[index]["input_ids"]) for index in range(len(molecules))]

    passes = [read(0), read(1), read(2), read(0, seed=1)]
    rows = [row for row in range(2, 12) if row != 7]
    for texts in passes:
        assert [canonicalize(smiles) for smiles in texts] == [canonicalize(MOLECULES[row]) for row in rows]
    assert read(1) == passes[1]
    assert min(len(set(ways)) for ways in zip(*passes, strict=True)) > 1
    twice = PropertyTask(task.data, encode_rows(12 * MOLECULES[:1], TOKENIZER, max_length=512), task.parts)
    molecules = TrainingMolecules(twice, task.parts.train, np.ones(2), RandomSmiles(512))
    assert len({text(molecules[index]["input_ids"]) for index in range(len(molecules))}) > 3


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_that_load_molecules_write_the_same(task, workers):
    molecules = TrainingMolecules(task, task.parts.train, np.ones(2), RandomSmiles(512), seed=4)
    for epoch in range(2):
        molecules.set_epoch(epoch)
        alone = list(DataLoader(molecules, batch_size=4, collate_fn=collate))
        helped = list(DataLoader(molecules, batch_size=4, collate_fn=collate, num_workers=workers))
        assert [batch["input_ids"].tolist() for batch in helped] == [batch["input_ids"].tolist() for batch in alone]


def test_a_batch(task):
    molecules = TrainingMolecules(task, np.array([2, 5]), np.array([3.0, 5.0]))
    batch = collate([molecules[0], molecules[1]])
    assert batch["input_ids"].shape == (2, len(molecules[1]["input_ids"]))
    assert batch["input_ids"][0].tolist() == [*molecules[0]["input_ids"], 0, 0, 0]
    np.testing.assert_array_equal(batch["labels"], np.array([[0, 0], [1, NAN]], dtype=np.float32))
    assert batch["label_weights"].tolist() == [[1, 1], [3, 1]]
