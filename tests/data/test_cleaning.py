import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smilex.data.cleaning import CleaningReport, RemovalError, Removed, Settings, clean_chunk, clean_row
from smilex.data.readers import Unreadable
from smilex.tokenization import SmilesTokenizer


@pytest.fixture(scope="module")
def settings():
    return Settings(neutralize=False, max_length=512, tokenizer=SmilesTokenizer().backend_tokenizer.to_str())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("OCC", "CCO"),
        (" OCC\t", "CCO"),
        ("C1=CC=CC=C1", "c1ccccc1"),
        ("N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O"),
        ("[Na+].[O-]C(=O)C", "CC(=O)[O-]"),
        ("O.O.c1ccccc1", "c1ccccc1"),
        ("[2H]OC", "[2H]OC"),
    ],
)
def test_known_molecules(row, expected):
    assert clean_row(row) == expected


def test_charges_go_only_when_asked():
    assert clean_row("CC(=O)[O-].[Na+]") == "CC(=O)[O-]"
    assert clean_row("CC(=O)[O-].[Na+]", neutralize=True) == "CC(=O)O"


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ("", "empty", "there is no SMILES"),
        ("C1CC", "invalid SMILES", None),
        ("C(C)(C)(C)(C)C", "invalid SMILES", None),
        ("C\x07", "invalid SMILES", "control character '\\x07' at position 2"),
        ("C\x00C", "invalid SMILES", "control character '\\x00' at position 2"),
        ("C−C", "invalid SMILES", "non-ASCII character '\\u2212' at position 2"),
        ("C\udce9", "not UTF-8", "byte 0xe9 at position 2"),
        ("C" * 10_000, "too long", "10000 characters, the limit is 5000"),
        (Unreadable("smiles", "header line", "names the columns"), "header line", "names the columns"),
    ],
)
def test_each_reason(row, reason, detail):
    with pytest.raises(RemovalError) as caught:
        clean_row(row)
    assert caught.value.reason == reason
    assert detail is None or caught.value.detail == detail


@given(st.text(max_size=20) | st.text("CNO()[]=#123+-@", max_size=20))
def test_any_string_is_cleaned_or_removed_with_a_reason(text):
    try:
        canonical = clean_row(text)
    except RemovalError as removal:
        reason, detail = removal.reason, removal.detail
        assert all((reason, detail))
    else:
        assert clean_row(canonical) == canonical


def test_chunk_accounts_for_every_row(settings):
    rows = ["OCC", "C1CC", "", "CCO", "C" * 511, "C" * 10_000, "c1ccccc1", "C\udcff"]
    cleaned = clean_chunk(100, rows, settings)
    assert cleaned.batch["smiles"].to_pylist() == ["CCO", "CCO", "c1ccccc1"]
    assert cleaned.hashes[0] == cleaned.hashes[1] != cleaned.hashes[2]
    assert [row.row for row in cleaned.originals] == [100, 103, 106]
    assert cleaned.report.removed == {"invalid SMILES": 1, "empty": 1, "too long": 2, "not UTF-8": 1}
    assert cleaned.report.read == cleaned.report.kept + sum(cleaned.report.removed.values()) == 8
    first, second = cleaned.report.examples["too long"]
    assert first.detail == "513 tokens with [CLS] and [SEP], the limit is 512"
    assert second.detail == "10000 characters, the limit is 5000"
    json.dumps(cleaned.report.to_dict()).encode()


def test_ids_are_those_of_the_tokenizer(settings):
    smiles = ["C[C@H](N)C(=O)O", "c1ccc2[nH]ccc2c1", "[13CH4]", "F/C=C/Cl"]
    cleaned = clean_chunk(0, smiles, settings)
    tokenizer = SmilesTokenizer()
    assert cleaned.batch["input_ids"].to_pylist() == tokenizer(cleaned.batch["smiles"].to_pylist())["input_ids"]
    assert cleaned.batch["length"].to_pylist() == [len(ids) for ids in cleaned.batch["input_ids"].to_pylist()]
    assert tokenizer.unk_token_id not in cleaned.batch["input_ids"].flatten().to_pylist()


def test_molecule_at_the_limit_is_kept(settings):
    assert clean_chunk(0, ["CCCC", "CCC"], settings._replace(max_length=5)).batch["smiles"].to_pylist() == ["CCC"]


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 7))
def test_report_of_parts_is_the_report_of_the_whole(reasons, size):
    def report_of(part):
        report = CleaningReport(read=len(part))
        for row, reason in part:
            report.remove(reason, [Removed(row, "C1CC", "detail")])
        return report

    rows = list(enumerate(reasons))
    total = CleaningReport()
    for start in range(0, len(rows), size):
        total.add(report_of(rows[start : start + size]))
    assert total == report_of(rows)
    assert CleaningReport.from_dict(json.loads(json.dumps(total.to_dict()))) == total
    assert all(len(examples) == min(5, total.removed[reason]) for reason, examples in total.examples.items())


def test_report_shows_long_strings_in_one_line():
    report = CleaningReport(1, 0)
    report.remove("too long", [Removed(0, "C" * 10_000, "10000 characters")])
    assert max(map(len, str(report).splitlines())) < 150
    assert "[10000 characters]" in str(report)


def test_workers_import_neither_torch_nor_transformers():
    code = "import sys, smilex.data.cleaning; print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
