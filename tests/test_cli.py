import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem, RDConfig
from typer.testing import CliRunner

import smilex
from smilex import DEFAULT_ENCODER, SmilesTokenizer, cli
from smilex.data.corpus import load_corpus
from smilex.data.rows import InvalidMoleculeWarning
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty

SMILEX = [sys.executable, "-m", "smilex"]


def run(*arguments, code=0, stdin=None):
    """Run a command in this process; the standard streams are kept apart."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def error_of(*arguments, stdin=None):
    """Run a command that must fail with one line on stderr and nothing on stdout; return the line."""
    result = run(*arguments, code=1, stdin=stdin)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMILEX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def sizes():
    return {
        "vocab_size": len(SmilesTokenizer()),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }


@pytest.fixture(scope="module")
def encoder(sizes, tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder")
    ExLMForMaskedLM(ExLMConfig(**sizes)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def fine_tuned(sizes, tmp_path_factory):
    """Two seeds with one task each, laid out as `smilex.finetune` does."""
    directory = tmp_path_factory.mktemp("fine-tuned")
    config = ExLMConfig(**sizes, problem_type="regression", id2label={0: "logS"}, label2id={"logS": 0})
    for seed in range(2):
        torch.manual_seed(seed)
        ExLMForMoleculeProperty(config).save_pretrained(directory / f"seed-{seed}")
    (directory / "report.json").write_text('{"models": 2}')
    return directory


@pytest.fixture(scope="module")
def molecules():
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    return [smiles for line in lines[:60] if Chem.MolFromSmiles(smiles := line.split()[0])]


# Help and usage


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys, smilex.cli as cli\n"
        "from typer.testing import CliRunner\n"
        "for words in (['--help'], ['pretrain', '--help'], ['predict', '-h'], ['--version'], ['predict']):\n"
        "    CliRunner().invoke(cli.app, words)\n"
        "print(sorted({'torch', 'transformers', 'rdkit', 'pandas', 'numpy', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version():
    done = subprocess.run([*SMILEX, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"smilex {smilex.__version__}\n"


COMMANDS = ("pretrain", "finetune", "predict", "embed", "fill-mask", "info", "demo", "analyze")


def test_help_lists_every_command():
    listed = run("--help").stdout
    assert all(command in listed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example_that_parses(command):
    text = run(command, "--help").stdout
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith(f"smilex {command}")]
    assert examples
    options = set(text.split())
    for example in examples:
        assert {word for word in example.split() if word.startswith("--")} <= options


def test_mask_is_not_swallowed_as_markup_in_help():
    assert "C(=O)[MASK]" in run("fill-mask", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["predict"],
        ["predict", "model"],
        ["predict", "model", "in.smi", "--errors", "ignore"],
        ["embed", "in.smi", "out.npy", "--pooling", "max"],
        ["pretrain", "nci5k", "out"],
        ["pretrain", "nci5k", "out", "--epochs", "1", "--minutes", "1"],
        ["pretrain", "nci5k", "out", "--max-steps", "many"],
        ["finetune", "nav17", "out", "--encoder", "here", "--from-scratch", "tiny"],
    ],
)
def test_wrong_usage_ends_with_code_2_and_says_so_on_stderr(arguments):
    result = run(*arguments, code=2)
    if len(arguments) > 1:
        assert "Error" in result.stderr


def test_default_encoder_is_that_of_the_api():
    assert cli.DEFAULT_ENCODER == DEFAULT_ENCODER


# Predict


def test_predict_gives_a_row_for_each_row_of_the_input(fine_tuned, tmp_path):
    source = tmp_path / "in.smi"
    source.write_text("smiles name\nCCO ethanol\n\nC1CC broken\nc1ccccc1\n")
    result = run("predict", fine_tuned, source)
    (tmp_path / "out.csv").write_text(result.stdout)
    table = pd.read_csv(tmp_path / "out.csv", keep_default_na=False, na_values={"logS": ""})
    assert list(table.columns) == ["smiles", "logS", "logS_sd", "error"]
    assert list(table["smiles"]) == ["CCO", "", "C1CC", "c1ccccc1"]
    assert list(table["logS"].isna()) == [False, True, True, False]
    assert [bool(reason) for reason in table["error"]] == [False, True, True, False]
    expected = smilex.predict(fine_tuned, ["CCO", "c1ccccc1"])["logS"]
    assert table["logS"].dropna().to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-5)


def test_invalid_rows_are_a_short_report_on_stderr(fine_tuned):
    result = run("predict", fine_tuned, "-", stdin="CCO\nC1CC\n")
    assert result.stderr.startswith("1 of 2 rows holds no molecule")
    assert "row 1: 'C1CC'" in result.stderr
    assert "Warning" not in result.stderr
    assert ".py" not in result.stderr
    assert "Warning" not in result.stdout


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.parquet", "in.csv.gz", "in.smi.gz", "in.txt"])
def test_predict_reads_every_kind_of_file(fine_tuned, tmp_path, name):
    smiles = ["CCO", "CC(=O)O", "not a molecule", "CN"]
    table, source = pd.DataFrame({"id": range(4), "SMILES": smiles}), tmp_path / name
    if name == "in.parquet":
        table.to_parquet(source)
    elif ".csv" in name or ".tsv" in name:
        table.to_csv(source, index=False, sep="\t" if ".tsv" in name else ",")
    else:
        table["SMILES"].str.split().str[0].to_csv(source, index=False, header=False)
    run("predict", fine_tuned, source, "-o", tmp_path / "out.parquet")
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert [text.split()[0] for text in found["smiles"]] == ["CCO", "CC(=O)O", "not", "CN"]
    assert list(found["logS"].isna()) == [False, False, True, False]


def test_bytes_that_no_smiles_has_are_reported_in_their_row(fine_tuned):
    text = b"CCO\nC\xff\nC\x00C\nC\xe2\x82\xac\n" + b"C" * 10_001 + b"\nN\n"
    result = run("predict", fine_tuned, "-", stdin=text)
    rows = result.stdout.splitlines()
    assert len(rows) == 1 + 6
    assert "4 of 6 rows hold no molecule" in result.stderr
    assert [row.split(",")[0] for row in rows[1:3]] == ["CCO", r"C\xff"]
    assert "too long: 10001 characters" in rows[5]


def test_predict_raises_when_asked(fine_tuned):
    assert "row 1: 'C1CC'" in error_of("predict", fine_tuned, "-", "--errors", "raise", stdin="CCO\nC1CC\n")


def test_predict_takes_the_column_it_is_told(fine_tuned, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("structure,id\nCCO,1\n")
    message = error_of("predict", fine_tuned, source)
    assert "--smiles-column" in message
    assert "'structure', 'id'" in message
    assert "CCO" in run("predict", fine_tuned, source, "--smiles-column", "structure").stdout


# Embed and fill-mask


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_embed_writes_what_the_api_returns(encoder, tmp_path, suffix):
    smiles = ["OCC", "", "c1ccccc1", "C1CC"]
    source, output = tmp_path / "in.smi", tmp_path / f"out{suffix}"
    source.write_text("\n".join(smiles) + "\n")
    result = run("embed", source, output, "--encoder", encoder, "--pooling", "cls")
    assert "2 of 4 rows" in result.stderr
    with pytest.warns(InvalidMoleculeWarning):
        expected = smilex.embed(smiles, encoder, "cls")
    if suffix == ".npy":
        vectors = np.load(output)
    elif suffix == ".npz":
        with np.load(output) as arrays:
            assert list(arrays["smiles"]) == smiles
            vectors = arrays["vectors"]
    else:
        read = pd.read_parquet if suffix == ".parquet" else lambda path: pd.read_csv(path, keep_default_na=False)
        table = read(output)
        assert list(table.pop("smiles")) == smiles
        assert list(table.columns) == [f"v{index}" for index in range(32)]
        vectors = table.apply(pd.to_numeric).to_numpy(np.float32)
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.smi", output.name]


def test_fill_mask_shows_each_completion_whole(encoder):
    smiles = "CC(=O)Oc1ccccc1[nH]" + "C" * 120 + "[MASK]"
    smiles = smiles.replace("c1ccccc1[nH]", "c1ccc[nH]1")
    result = run("fill-mask", smiles, "--encoder", encoder, "--top-k", 3)
    rows = [line.split() for line in result.stdout.splitlines() if "0." in line]
    expected = smilex.fill_mask(smiles, encoder, 3)
    assert [row[0] for row in rows] == [filling.smiles for filling in expected]
    assert [float(row[1]) for row in rows] == pytest.approx([filling.probability for filling in expected], abs=1e-4)
    assert result.stderr == ""


def test_analyze_shows_and_writes_what_the_api_returns(encoder, molecules, tmp_path):
    source, output = tmp_path / "in.smi", tmp_path / "out.json"
    source.write_text("\n".join([*molecules, "C1CC"]) + "\n")
    result = run("analyze", encoder, source, "--pooling", "cls", "--seed", 5, "-o", output)
    found = json.loads(output.read_text())
    clean = load_corpus(source, progress=False)
    expected = smilex.analysis.analyze(encoder, clean.dataset["smiles"], "cls", seed=5).to_dict()
    assert found == json.loads(json.dumps(expected))
    assert f"{len(molecules) + 1} rows read" in result.stdout
    assert f"{encoder} on {clean.report.kept} molecules" in result.stdout
    for name in ("retrieval_accuracy", "retrieval_error", "alignment", "uniformity", "entropy"):
        assert f"{found[name]:.3f}" in result.stdout
    assert result.stderr == f"figures written to {output}\n"


def test_analyze_takes_as_many_molecules_as_it_is_told(encoder):
    shown = [run("analyze", encoder, "--molecules", 40, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert shown[0] == shown[1] != shown[2]
    assert f"{encoder} on 40 molecules" in shown[0]


def test_analyze_refuses_what_it_cannot_write_before_it_works(encoder, tmp_path):
    assert "its suffix must be one of .json" in error_of("analyze", encoder, "nci5k", "-o", tmp_path / "out.csv")
    assert "no encoder" in error_of("analyze", tmp_path / "nothing")


# The whole way, from a corpus to a model


def test_pretrain_and_finetune_and_info(molecules, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("corpus.smi").write_text("\n".join([*molecules, "C1CC"]) + "\n")
    table = pd.DataFrame({"smiles": [*molecules, molecules[0], "C1CC"]})
    table["atoms"] = [Chem.MolFromSmiles(s).GetNumAtoms() + 0.5 if s != "C1CC" else 1.5 for s in table["smiles"]]
    table.to_csv("table.csv", index=False)

    pretrained = run("pretrain", "corpus.smi", "encoder", "--model", "tiny", "--max-steps", 2)
    assert f"{len(molecules) + 1} rows read, {len(molecules)} molecules kept, 1 removed" in pretrained.stdout
    report = json.loads(Path("encoder/report.json").read_text())
    assert f"{report['metrics']['loss']:.3f}" in pretrained.stdout
    assert "run directory: encoder" in pretrained.stdout
    assert pretrained.stderr == ""

    arguments = ["table.csv", "model", "--encoder", "encoder", "--split", "random", "--seeds", 2, "--epochs", 1]
    tuned = run("finetune", *arguments)
    metrics = json.loads(Path("model/metrics.json").read_text())["test"]
    rmse = metrics["summary"]["rmse"]
    assert f"{rmse['mean']:.3f} ± {rmse['sd']:.3f}" in tuned.stdout
    assert f"{metrics['ensemble']['mean']['rmse']:.3f}" in tuned.stdout
    assert "tasks: 'atoms'" in tuned.stdout
    assert "1 invalid" in tuned.stdout
    assert "rows that repeat the molecule of an earlier row: 1" in tuned.stdout
    assert "C1CC" in tuned.stderr

    frozen = run("finetune", "table.csv", "frozen", "--encoder", "encoder", "--split", "random", "--head", "linear")
    rmse_frozen = json.loads(Path("frozen/metrics.json").read_text())["test"]["summary"]["rmse"]
    assert "one model: a linear head holds no chance" in frozen.stdout
    assert f"{rmse_frozen['mean']:.3f}" in frozen.stdout
    assert "Ridge" in run("info", "frozen").stdout
    predictions = pd.read_csv(io.StringIO(run("predict", "frozen", "table.csv").stdout))
    assert predictions["atoms"].notna().sum() == len(molecules) + 1
    assert "would have no effect" in error_of(
        "finetune", "table.csv", "other", "--encoder", "encoder", "--head", "linear", "--epochs", 1
    )

    about = run("info", "model").stdout
    for fact in ("2 seeds", "'atoms'", "128", "encoder", f"{rmse['mean']:.3f}"):
        assert fact in about
    weights = ExLMForMaskedLM.from_pretrained("encoder").num_parameters()
    about = run("info", "encoder").stdout
    for fact in ("ExLMForMaskedLM", f"{weights:,}", "exlm", "max_steps", str(len(SmilesTokenizer()))):
        assert fact in about

    assert "--resume" in error_of("pretrain", "corpus.smi", "encoder", "--model", "tiny", "--max-steps", 2)
    again = run("pretrain", "corpus.smi", "encoder", "--model", "tiny", "--max-steps", 2, "--resume")
    assert again.stdout == pretrained.stdout
    assert "was not saved as" in error_of("predict", "encoder", "corpus.smi")


def test_pretrain_passes_on_what_an_objective_takes(molecules, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("corpus.smi").write_text("\n".join(molecules) + "\n")
    run("pretrain", "corpus.smi", "first", "--model", "tiny", "--max-steps", 1, "--objective", "mae_lm",
        "--masking", "group", "--mask-ratio", 0.3)  # fmt: skip
    settings = json.loads(Path("first/settings.json").read_text())
    assert (settings["masking"], settings["mask_ratio"], settings["tokens_per_batch"]) == ("group", 0.3, 4096)
    mirror = ["corpus.smi", "second", "--encoder", "first", "--max-steps", 1, "--objective", "mirror"]
    run("pretrain", *mirror, "--twins", "random", "--pooling", "cls", "--molecules-per-batch", 20)
    settings = json.loads(Path("second/settings.json").read_text())
    assert (settings["twins"], settings["pooling"], settings["molecules_per_batch"]) == ("random", "cls", 20)
    assert settings["learning_rate"] == 2e-5
    assert "mask_ratio" not in settings
    assert "ExLMModel" in run("info", "second").stdout
    assert "--mask-ratio means nothing to mirror" in error_of("pretrain", *mirror, "--mask-ratio", 0.3)
    assert "--random-smiles means nothing to mirror" in error_of("pretrain", *mirror, "--random-smiles")
    shown = run("pretrain", "corpus.smi", "third", "--encoder", "first", "--max-steps", 1, "--objective", "descriptors",
                "--pooling", "cls", "--random-smiles").stdout  # fmt: skip
    settings = json.loads(Path("third/settings.json").read_text())
    assert (settings["pooling"], settings["random_smiles"], settings["learning_rate"]) == ("cls", True, 5e-4)
    assert "R²" in shown


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("nci5k", ["corpus", "first_5K.smi", "CC1=CC(=O)C=CC1=O"]),
        ("nav17", ["regression", "1017", "pIC50", "4.27 to 9.22"]),
    ],
)
def test_info_on_built_in_molecules(name, facts):
    about = run("info", name).stdout
    assert all(fact in about for fact in facts)


# Bad input, named


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file in.smi"),
        ("", "in.smi is empty"),
        ("C1CC\nnonsense\n", "none of 2 rows is a molecule"),
    ],
)
def test_corpora_that_cannot_be_used(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("in.smi").write_text(content)
    assert message in error_of("pretrain", "in.smi", "out", "--max-steps", 1)


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        ("mol_id,y\nCC,1.5\nCO,2.5\n", [], "name one with --smiles-column; the columns are: 'mol_id', 'y'"),
        (
            "smiles,y\nCC,low\nCO,high\n",
            [],
            "'y' is not numeric (row 0: 'low'): choose the numeric columns with --target",
        ),
        ("smiles,y\nCC,\nCO,\n", [], "all labels are missing"),
        ("smiles,y\nCC,1\nCO,1\n", [], "one class only"),
        ("smiles,y\nCC,1.5\nCO,2.5\n", ["--target", "z"], "no target column 'z'; the columns are 'y'"),
        ("", [], "is empty"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, table, arguments, message):
    source = tmp_path / "in.csv"
    source.write_text(table)
    assert message in error_of("finetune", source, tmp_path / "out", "--from-scratch", "tiny", *arguments)


def test_a_table_where_no_molecule_is_valid(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("smiles,y\nC1,1.5\nC1C,2.5\n")
    lines = run("finetune", source, tmp_path / "out", "--from-scratch", "tiny", code=1).stderr.splitlines()
    assert lines[0].startswith("2 of 2 rows hold no molecule")
    assert lines[-1].startswith("error: 0 of 2 rows hold a valid molecule")
    assert len(lines) == 4


def test_directories_that_are_no_model(tmp_path, encoder):
    assert "there is no such directory" in error_of("predict", tmp_path / "none", "-", stdin="C\n")
    assert "not a model directory" in error_of("predict", tmp_path, "-", stdin="C\n")
    assert "no encoder 'nowhere'" in error_of("fill-mask", "C[MASK]", "--encoder", "nowhere")
    config = json.loads((encoder / "config.json").read_text()) | {"smilex_version": "99.0"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = error_of("embed", "-", tmp_path / "out.npy", "--encoder", tmp_path, stdin="C\n")
    assert "was written by smilex 99.0" in message
    assert "pip install --upgrade" in message


def test_molecules_longer_than_the_limit(fine_tuned):
    result = run("predict", fine_tuned, "-", stdin="C" * 600 + "\n")
    assert "602 tokens with [CLS] and [SEP], the limit is 512" in result.stderr


def test_settings_that_cannot_be_used(encoder, tmp_path):
    assert "no [MASK] in 'CCO'" in error_of("fill-mask", "CCO", "--encoder", encoder)
    assert "--top-k must be at least 1" in error_of("fill-mask", "C[MASK]", "--encoder", encoder, "--top-k", 0)
    assert "there are exlm, mlm" in error_of("pretrain", "nci5k", tmp_path, "--objective", "x", "--max-steps", 1)
    assert "--mask-ratio is a share" in error_of("pretrain", "nci5k", tmp_path, "--mask-ratio", 2, "--max-steps", 1)
    assert "sets of molecules are moses, nci5k, nav17" in error_of("info", "nothing")


def test_empty_input(fine_tuned, tmp_path):
    assert "stdin is empty" in error_of("predict", fine_tuned, "-", stdin="")
    (tmp_path / "in.csv").write_text("smiles\n")
    assert "in.csv is empty" in error_of("predict", fine_tuned, tmp_path / "in.csv")


def test_embed_fills_a_directory_and_goes_on_where_it_ended(encoder, tmp_path):
    source, output = tmp_path / "in.smi", tmp_path / "vectors.v1"
    source.write_text("CCO\nC1CC\nCCN\n")
    command = ["embed", source, f"{output}/", "--encoder", encoder, "--rows-per-shard", 2]
    result = run(*command)
    assert "1 of 3 rows holds no molecule" in result.stderr
    assert "3 vectors of width 32 written to" in result.stderr
    assert pd.read_parquet(output)["smiles"].tolist() == ["CCO", "C1CC", "CCN"]
    assert "in 2 shards, 2 of them before" in run(*command[:2], output, *command[3:]).stderr
    assert "--rows-per-shard was 2 and is 3" in error_of(*command[:-1], 3)


def test_ray_does_not_write_single_files(encoder, tmp_path):
    result = run("embed", "in.smi", tmp_path / "out.npy", "--encoder", encoder, "--engine", "ray", code=2)
    assert "writes a directory" in result.stderr


def test_outputs_are_checked_before_any_work(tmp_path):
    # The input and the model are missing too: the output is looked at first.
    embed = ["embed", tmp_path / "none.smi"]
    assert "its suffix must be one of .npy, .npz, .csv, .parquet" in error_of(*embed, tmp_path / "out.txt")
    assert "there is no directory" in error_of(*embed, tmp_path / "none" / "out.npy")
    (tmp_path / "out.npy").mkdir()
    assert "it is a directory" in error_of(*embed, tmp_path / "out.npy")
    source = tmp_path / "in.csv"
    source.write_text("smiles\nC\n")
    assert "it is the input" in error_of("predict", tmp_path, source, "-o", source)
    assert source.read_text() == "smiles\nC\n"


def test_no_permission(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root, who often runs tests in containers, may write anywhere
    assert "no permission" in error_of("embed", "-", tmp_path / "out.npy", "--encoder", encoder, stdin="C\n")


# The process: exit codes, pipes, Ctrl-C


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_no_space_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*SMILEX, "info", "nav17"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_a_reader_that_goes_away_ends_the_command_quietly():
    with subprocess.Popen([*SMILEX, "info", "nci5k"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_interrupted_pretraining_says_how_to_go_on_and_goes_on(tmp_path):
    corpus = tmp_path / "corpus.smi"
    corpus.write_text("\n".join("C" * length + end for length in range(1, 9) for end in "ONF"))
    arguments = ["pretrain", corpus, tmp_path / "run", "--model", "tiny", "--max-steps", 100]
    arguments += ["--checkpoint-steps", 2, "--tokens-per-batch", 128]
    command = [*SMILEX, *map(str, arguments)]

    def listen_to_interrupts():  # a shell starts background jobs, such as a whole test run, deaf to them
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_interrupts,  # noqa: PLW1509 (no threads here)
    ) as process:
        while not (tmp_path / "run/checkpoints/checkpoint-2/complete.json").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert errors == "interrupted; the same command with --resume goes on\n"
    assert "unfinished run" in run("info", tmp_path / "run").stdout
    # Here the resumed run also shows that nothing of the libraries reaches the user.
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "after 100 steps" in done.stdout
