import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from rdkit.DataStructs import TanimotoSimilarity
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from smilex.analysis import alignment, neighbourhood_agreement, retrieval_accuracy, similarity, uniformity
from smilex.baselines import ecfp4
from smilex.errors import SmilexError

MOLECULES = [
    "CCO",
    "CCN",
    "CCCO",
    "c1ccccc1",
    "Cc1ccccc1",
    "CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)Nc1ccc(O)cc1",
    "CN1C=NC2=C1C(=O)N(C)C(=O)N2C",
    "C[C@H](N)C(=O)O",
    "CCCCCCCC",
]
SEEDS = st.integers(0, 1 << 20)


def random_vectors(seed, rows, columns=5):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def rotation(seed, size=5):
    return np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(size, size)))[0]


def scales(seed, rows):
    return np.random.default_rng(seed + 2).uniform(0.01, 100, size=(rows, 1))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("smilex.analysis.arrays.BLOCK_VALUES", 7)


# Retrieval


def retrieval_by_loops(queries, keys, molecules):
    right = 0
    for query, molecule in zip(queries, molecules, strict=True):
        cosines = [key @ query / np.linalg.norm(key) / np.linalg.norm(query) for key in keys]
        right += molecules[int(np.argmax(cosines))] == molecule
    return right / len(queries)


def test_equal_vectors_of_different_molecules_are_found():
    vectors = random_vectors(0, 40)
    assert retrieval_accuracy(vectors, vectors) == 1.0
    assert retrieval_accuracy(np.eye(6), np.eye(6)) == 1.0


def test_the_nearest_key_is_that_of_another_molecule():
    assert retrieval_accuracy(np.eye(4), np.roll(np.eye(4), 1, axis=0)) == 0.0


def test_part_of_the_queries_is_right():
    assert retrieval_accuracy([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]) == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_a_collapsed_encoder_is_right_by_chance_only(count):
    vectors = np.tile(random_vectors(1, 1), (count, 1))
    assert retrieval_accuracy(vectors, vectors) == pytest.approx(1 / count)
    assert retrieval_accuracy(vectors.astype(np.float32), vectors.astype(np.float32)) == pytest.approx(1 / count)


def test_a_tie_with_another_molecule_counts_half():
    keys = [[1, 0], [1, 0], [0, 1]]
    assert retrieval_accuracy([[1, 0.1], [1, 0.1], [0, 1]], keys) == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_a_molecule_that_stands_twice_is_no_error():
    keys = [[1, 0], [1, 0], [0, 1]]
    assert retrieval_accuracy(keys, keys, molecules=["CCO", "CCO", "CCN"]) == 1.0
    # Nor where the other row of the molecule is nearer.
    assert retrieval_accuracy([[1, 0.1], [1, 0.0], [0, 1]], [[1, 0], [1, 0.1], [0, 1]], ["a", "a", "b"]) == 1.0
    assert retrieval_accuracy([[1, 0.1], [1, 0.0], [0, 1]], [[1, 0], [1, 0.1], [0, 1]]) == pytest.approx(1 / 3)


@given(seed=SEEDS, rows=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_retrieval_is_that_of_plain_loops_and_invariant(seed, rows):
    queries = random_vectors(seed, rows)
    keys = queries + random_vectors(seed + 7, rows)
    molecules = np.random.default_rng(seed).integers(0, max(1, rows // 2), size=rows)
    expected = retrieval_by_loops(queries, keys, molecules)
    turn, order = rotation(seed), np.random.default_rng(seed).permutation(rows)
    assert retrieval_accuracy(queries, keys, molecules) == pytest.approx(expected)
    assert retrieval_accuracy(queries @ turn, keys @ turn, molecules) == pytest.approx(expected)
    assert retrieval_accuracy(queries * scales(seed, rows), keys, molecules) == pytest.approx(expected)
    assert retrieval_accuracy(queries[order], keys[order], molecules[order]) == pytest.approx(expected)


def test_retrieval_in_blocks(small_blocks):
    queries, keys = random_vectors(3, 25), random_vectors(3, 25) + random_vectors(4, 25)
    assert retrieval_accuracy(queries, keys) == pytest.approx(retrieval_by_loops(queries, keys, range(25)))


def test_names_must_fit():
    with pytest.raises(SmilexError, match=r"molecules must be of shape \(3,\), not \(2,\)"):
        retrieval_accuracy(np.eye(3), np.eye(3), ["a", "b"])


# Alignment and uniformity


@given(seed=SEEDS, rows=st.integers(2, 20))
@settings(max_examples=40, deadline=None)
def test_alignment_and_uniformity_are_those_of_plain_loops_and_invariant(seed, rows):
    first, second = random_vectors(seed, rows), random_vectors(seed + 3, rows)
    one, other = ([row / math.sqrt(sum(row * row)) for row in vectors] for vectors in (first, second))
    aligned = sum(sum((x - y) ** 2) for x, y in zip(one, other, strict=True)) / rows
    kernels = [math.exp(-2 * sum((x - y) ** 2)) for x, y in itertools.combinations(one, 2)]
    uniform = math.log(sum(kernels) / len(kernels))
    turn, order = rotation(seed), np.random.default_rng(seed).permutation(rows)
    assert alignment(first, second) == pytest.approx(aligned)
    assert alignment(first[order] @ turn, second[order] @ turn) == pytest.approx(aligned)
    assert alignment(first * scales(seed, rows), second) == pytest.approx(aligned)
    assert uniformity(first) == pytest.approx(uniform)
    assert uniformity(first[order] @ turn * scales(seed, rows)) == pytest.approx(uniform)


def test_known_alignment_and_uniformity():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert alignment(vectors, vectors) == 0
    assert alignment(vectors, -vectors) == pytest.approx(4)
    assert alignment(vectors, vectors[::-1]) == pytest.approx(2)
    assert uniformity(np.tile(vectors[:1], (5, 1))) == 0
    assert uniformity([[1.0, 0.0], [-1.0, 0.0]]) == pytest.approx(-8)


def test_uniformity_in_blocks(small_blocks):
    vectors = random_vectors(5, 33)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert uniformity(vectors) == pytest.approx(np.log(np.exp(-2 * pdist(unit, "sqeuclidean")).mean()))


# Agreement with Tanimoto similarity


def agreement_by_loops(vectors, smiles):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    pairs = list(itertools.combinations(range(len(smiles)), 2))
    cosine = [vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j]) for i, j in pairs]
    return spearmanr(cosine, [TanimotoSimilarity(prints[i], prints[j]) for i, j in pairs]).statistic


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_agreement_is_that_of_rdkit_and_scipy_in_loops_and_invariant(seed):
    bits, _ = ecfp4(MOLECULES)
    vectors = random_vectors(seed, len(MOLECULES))
    expected = agreement_by_loops(vectors, MOLECULES)
    turn, order = rotation(seed), np.random.default_rng(seed).permutation(len(MOLECULES))
    assert neighbourhood_agreement(vectors, bits) == pytest.approx(expected)
    assert neighbourhood_agreement((vectors @ turn)[order], bits[order]) == pytest.approx(expected)
    assert neighbourhood_agreement(vectors * scales(seed, len(MOLECULES)), bits.astype(bool)) == pytest.approx(expected)


def test_tanimoto_similarity_is_that_of_rdkit(small_blocks):
    bits, _ = ecfp4([*MOLECULES, "C"])
    bits = np.vstack([bits, np.zeros((2, 2048), dtype=np.uint8)])  # no bit at all
    first, second = np.triu_indices(len(bits), k=1)
    packed = [Chem.DataStructs.CreateFromBitString("".join(map(str, row))) for row in bits]
    expected = [TanimotoSimilarity(packed[i], packed[j]) for i, j in zip(first, second, strict=True)]
    assert similarity._tanimoto(bits.astype(bool), first, second).tolist() == pytest.approx(expected, abs=0)


def test_fingerprints_as_vectors_agree_and_opposites_disagree():
    bits = np.tril(np.ones((6, 6)))  # the fewer bits two rows differ by, the nearer
    angles = np.array([0.0, 0.5, 0.2])
    assert neighbourhood_agreement(bits, bits) == pytest.approx(1)
    assert neighbourhood_agreement(
        np.column_stack([np.cos(angles), np.sin(angles)]), [[1, 1, 0], [1, 1, 1], [0, 0, 1]]
    ) == pytest.approx(-1)


def test_many_molecules_are_measured_on_random_pairs(monkeypatch):
    rng = np.random.default_rng(0)
    bits = rng.random((400, 64)) < 0.3
    vectors = bits + rng.normal(size=bits.shape)
    every = neighbourhood_agreement(vectors, bits)
    monkeypatch.setattr(similarity, "MOST_PAIRS", 40_000)  # of 79 800
    some = neighbourhood_agreement(vectors, bits, seed=1)
    assert some == neighbourhood_agreement(vectors, bits, seed=1) != neighbourhood_agreement(vectors, bits, seed=2)
    assert some == pytest.approx(every, abs=0.02)
    first, second = similarity._pairs(400, seed=3)
    assert (first != second).all()
    assert min(first.min(), second.min()) == 0
    assert max(first.max(), second.max()) == 399


def test_agreement_is_undefined_where_similarities_do_not_differ():
    bits, _ = ecfp4(MOLECULES)
    assert neighbourhood_agreement(np.ones((len(MOLECULES), 4)), bits) is None
    assert neighbourhood_agreement(random_vectors(0, 3), np.ones((3, 8))) is None
    assert neighbourhood_agreement(random_vectors(0, 2), np.eye(2)) is None


# Bad input


@pytest.mark.parametrize(
    "figure",
    [
        lambda vectors: retrieval_accuracy(vectors, vectors),
        lambda vectors: alignment(vectors, vectors),
        uniformity,
        lambda vectors: neighbourhood_agreement(vectors, np.eye(len(vectors))),
    ],
    ids=["retrieval", "alignment", "uniformity", "agreement"],
)
def test_vectors_without_a_direction_are_an_error(figure):
    vectors = np.eye(3)
    vectors[1] = 0
    with pytest.raises(SmilexError, match="row 1 is zero and has no direction"):
        figure(vectors)
    vectors[1] = np.nan
    with pytest.raises(SmilexError, match="NaN or infinity in 1 of 3 rows, first in row 1"):
        figure(vectors)


@pytest.mark.parametrize("figure", [retrieval_accuracy, alignment])
def test_twins_must_have_one_shape(figure):
    with pytest.raises(SmilexError, match=r"one shape, not \(3, 3\) and \(2, 3\)"):
        figure(np.eye(3), np.eye(3)[:2])


def test_one_vector_has_no_pairs():
    for figure in (uniformity, lambda vectors: neighbourhood_agreement(vectors, np.ones((1, 2)))):
        with pytest.raises(SmilexError, match="at least 2 vectors"):
            figure(np.ones((1, 3)))


def test_fingerprints_must_be_of_the_same_molecules():
    with pytest.raises(SmilexError, match="3 vectors, but fingerprints of 2 molecules"):
        neighbourhood_agreement(np.eye(3), np.eye(2))


def test_lengths_neither_overflow_nor_vanish():
    vectors = random_vectors(6, 10)
    assert uniformity(vectors * 1e200) == pytest.approx(uniformity(vectors))
    assert alignment(vectors * 1e-200, vectors) == pytest.approx(0)
