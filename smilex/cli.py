"""The command line: each command parses its arguments, calls the Python function of the same name and prints.

Nothing heavy is imported before a command runs, so that ``smilex --help`` is quick.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import smilex
from smilex import DEFAULT_ENCODER
from smilex.analysis.command import analyze
from smilex.options import (
    Address,
    AveragedSmiles,
    BalanceClasses,
    BatchSize,
    Canonical,
    Corpus,
    DataDirectory,
    Dataset,
    DemoPretraining,
    Dropout,
    Encoder,
    Engine,
    Epochs,
    Errors,
    FromScratch,
    Head,
    Input,
    LayerDecay,
    LearningRate,
    Masking,
    MaskRatio,
    MoleculesPerBatch,
    Objective,
    Patience,
    Pooling,
    Precision,
    PretrainingRandomSmiles,
    PretrainingRate,
    RandomSmiles,
    RowsPerShard,
    RunDirectory,
    Seeds,
    Size,
    SmilesColumn,
    Split,
    SplitColumn,
    StartFrom,
    Target,
    TokensPerBatch,
    TrainedPooling,
    Twins,
    Vectors,
)
from smilex.recipe import Recipe
from smilex.terminal import Command, progress, quiet_libraries, say, show

app = typer.Typer(
    name="smilex",
    help="Transformer encoders of molecules written as SMILES: pretrain, fine-tune, predict. Start with: smilex demo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"smilex {smilex.__version__}")
        raise typer.Exit


@app.callback()
def _smilex(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command(cls=Command, no_args_is_help=True)
def pretrain(
    corpus: Corpus,
    output_dir: RunDirectory,
    *,
    objective: Objective = "exlm",
    model: Size = None,
    encoder: StartFrom = None,
    smiles_column: SmilesColumn = None,
    max_steps: Annotated[int | None, typer.Option(help="Train for this many optimiser steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for this many minutes.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Train for this many passes over the molecules.")] = None,
    tokens_per_batch: TokensPerBatch = None,
    molecules_per_batch: MoleculesPerBatch = None,
    learning_rate: PretrainingRate = None,
    mask_ratio: MaskRatio = None,
    masking: Masking = None,
    random_smiles: PretrainingRandomSmiles = False,
    twins: Twins = None,
    pooling: TrainedPooling = None,
    precision: Precision = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 200,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run of these settings.")] = False,
) -> None:
    """Train an encoder on molecules without labels.

    Say how long with one of --max-steps, --minutes and --epochs. A run that is
    interrupted goes on from its last checkpoint with --resume.

    [bold]Examples[/bold]
      smilex pretrain nci5k runs/nci --model tiny --epochs 3
      smilex pretrain zinc.smi.gz runs/zinc --minutes 480 --resume
      smilex pretrain nci5k runs/descriptors --objective descriptors --epochs 3
      smilex pretrain nci5k runs/mirror --objective mirror --encoder runs/nci --epochs 1
    """
    if sum(budget is not None for budget in (max_steps, minutes, epochs)) != 1:
        raise typer.BadParameter("say how long to train with one of --max-steps, --minutes and --epochs")
    from smilex.pretraining import pretrain as run
    from smilex.report.tables import pretraining_results

    result = run(
        corpus,
        output_dir,
        objective,
        model,
        encoder=encoder,
        smiles_column=smiles_column,
        max_steps=max_steps,
        minutes=minutes,
        epochs=epochs,
        tokens_per_batch=tokens_per_batch,
        molecules_per_batch=molecules_per_batch,
        learning_rate=learning_rate,
        mask_ratio=mask_ratio,
        masking=masking,
        random_smiles=random_smiles,
        twins=twins,
        pooling=pooling,
        precision=precision,
        seed=seed,
        checkpoint_steps=checkpoint_steps,
        resume=resume,
        progress=progress(),
    )
    show(*pretraining_results(result))


@app.command(cls=Command, no_args_is_help=True)
def finetune(
    dataset: Dataset,
    output_dir: RunDirectory,
    *,
    encoder: Encoder = DEFAULT_ENCODER,
    from_scratch: FromScratch = None,
    head: Head = "network",
    smiles_column: SmilesColumn = None,
    target: Target = None,
    data_dir: DataDirectory = None,
    split: Split = "scaffold",
    split_column: SplitColumn = None,
    pooling: Pooling = "mean",
    seeds: Seeds = 3,
    epochs: Epochs = Recipe.epochs,
    patience: Patience = Recipe.patience,
    batch_size: BatchSize = Recipe.batch_size,
    learning_rate: LearningRate = Recipe.learning_rate,
    layer_decay: LayerDecay = Recipe.layer_decay,
    dropout: Dropout = Recipe.dropout,
    balance_classes: BalanceClasses = Recipe.balance_classes,
    random_smiles: RandomSmiles = Recipe.random_smiles,
    averaged_smiles: AveragedSmiles = Recipe.averaged_smiles,
    precision: Precision = Recipe.precision,
) -> None:
    """Fit an encoder to measured properties, and test it on molecules it has not seen.

    The run directory holds a model for each seed, predictions.csv with every
    row of the dataset, metrics.json, report.json and plots.

    [bold]Examples[/bold]
      smilex finetune nav17 runs/nav17 --encoder runs/nci
      smilex finetune solubility.csv runs/logS --target logS --split random
    """
    if from_scratch is not None and encoder != DEFAULT_ENCODER:
        raise typer.BadParameter("give either --encoder or --from-scratch")
    from smilex.finetuning import finetune as run
    from smilex.report.tables import finetuning_results

    result = run(
        dataset,
        output_dir,
        encoder if from_scratch is None else None,
        head=head,
        model=from_scratch,
        smiles_column=smiles_column,
        target=target,
        data_dir=data_dir,
        split=split,
        split_column=split_column,
        pooling=pooling,
        seeds=seeds,
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        layer_decay=layer_decay,
        dropout=dropout,
        balance_classes=balance_classes,
        random_smiles=random_smiles,
        averaged_smiles=averaged_smiles,
        precision=precision,
        progress=progress(),
    )
    show(*finetuning_results(result))


@app.command(cls=Command, no_args_is_help=True)
def predict(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="Directory that smilex finetune wrote.", show_default=False)
    ],
    molecules: Input,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the predictions, .csv or .parquet.", show_default="CSV to stdout"
        ),
    ] = None,
    smiles_column: SmilesColumn = None,
    errors: Errors = "report",
) -> None:
    """Predict properties of molecules with a fine-tuned model.

    The output has a row for each row of the input, in order: the SMILES, a
    column for each property (the probability of class 1 for classes), its
    standard deviation over the models of several seeds, and what is wrong with
    an invalid molecule.

    [bold]Examples[/bold]
      smilex predict runs/nav17 library.smi -o predictions.csv
      echo CCO | smilex predict runs/nav17 -
    """
    from smilex.files import TABLES, check_output, csv_text, read_molecules, write_table
    from smilex.prediction import predict as run

    if output is not None:
        check_output(output, TABLES, molecules)
    table = run(model_dir, read_molecules(molecules, smiles_column), errors=errors)
    if output is None:
        typer.echo(csv_text(table), nl=False)
    else:
        write_table(table, output)
        say(f"{len(table)} rows written to {output}")


@app.command(cls=Command, no_args_is_help=True)
def embed(
    molecules: Input,
    output: Vectors,
    *,
    encoder: Encoder = DEFAULT_ENCODER,
    pooling: Pooling = "mean",
    canonical: Canonical = True,
    smiles_column: SmilesColumn = None,
    errors: Errors = "report",
    engine: Engine = "local",
    address: Address = None,
    rows_per_shard: RowsPerShard = 65_536,
) -> None:
    """Encode molecules as vectors, for clustering, similarity or other models.

    The vectors of invalid molecules are NaN. A directory as output takes
    libraries of any size: see --engine and --rows-per-shard. The same command
    goes on where it was interrupted.

    [bold]Examples[/bold]
      smilex embed library.smi library.npy --encoder runs/nci
      smilex embed assay.csv assay.parquet --smiles-column structure
      smilex embed big.parquet vectors/ --engine ray
    """
    from smilex.files import VECTORS, check_output, names_directory, read_molecules, write_vectors

    path = Path(output)
    if names_directory(output):
        from smilex.embedding_files import embed_file

        settings: dict[str, Any] = {"canonical": canonical, "smiles_column": smiles_column, "errors": errors}
        settings |= {"engine": engine, "address": address, "rows_per_shard": rows_per_shard, "progress": progress()}
        done = embed_file(molecules, path, encoder, pooling, **settings)
        before = f", {done.resumed} of them before" if done.resumed else ""
        say(f"{done.rows} vectors of width {done.width} written to {output} in {done.shards} shards{before}")
        return
    if engine != "local":
        raise typer.BadParameter(f"--engine {engine} writes a directory, not a file: give one as output, such as out/")
    from smilex.embedding import embed as run

    check_output(path, VECTORS, molecules)
    smiles = read_molecules(molecules, smiles_column)
    vectors = run(smiles, encoder, pooling, canonical=canonical, errors=errors)
    write_vectors(smiles, vectors, path)
    say(f"{len(vectors)} vectors of width {vectors.shape[1]} written to {path}")


@app.command(cls=Command, no_args_is_help=True)
def fill_mask(
    smiles: Annotated[
        str,
        typer.Argument(
            metavar="SMILES",
            help=r"SMILES with \[MASK] in place of one or more tokens (atoms, bonds, ring digits, brackets). Quote it.",
            show_default=False,
        ),
    ],
    *,
    encoder: Encoder = DEFAULT_ENCODER,
    top_k: Annotated[int, typer.Option(help="Completions to show, at most.")] = 5,
) -> None:
    r"""Complete a SMILES with what a pretrained encoder expects at the masks.

    Only completions that are valid molecules are shown, most probable first.

    [bold]Example[/bold]
      smilex fill-mask 'CC(=O)Oc1ccccc1C(=O)\[MASK]' --encoder runs/nci
    """
    from smilex.filling import fill_mask as run
    from smilex.report.tables import fillings

    show(*fillings(smiles, run(smiles, encoder, top_k)))


@app.command(cls=Command, no_args_is_help=True)
def info(
    name_or_dir: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_DIR",
            help="A directory that smilex pretrain or smilex finetune wrote, the name of an encoder that ships with "
            "smilex, or a built-in set of molecules: nci5k, moses, nav17 or a MoleculeNet name.",
            show_default=False,
        ),
    ],
) -> None:
    """Show what a model or a built-in set of molecules is.

    [bold]Examples[/bold]
      smilex info runs/nci
      smilex info nav17
    """
    from smilex.inspection import inspect
    from smilex.report.tables import facts

    show(name_or_dir, facts(inspect(name_or_dir)))


@app.command(cls=Command)
def demo(
    output_dir: Annotated[
        Path,
        typer.Argument(
            metavar="[OUTPUT_DIR]",
            help="Directory to make; where it exists, the next free number is added to its name.",
        ),
    ] = Path("demo-run"),
    *,
    pretrain: DemoPretraining = False,
) -> None:
    """Fine-tune the encoder of smilex on data inside RDKit, beside simpler predictors: a tour in 3 minutes on 2 cores.

    It compares the mean, a random forest on ECFP4 fingerprints, a network from
    scratch, the same network pretrained, and scikit-learn on its vectors, on
    Nav1.7 inhibitors. The code of the tour is smilex/demo.py.

    [bold]Examples[/bold]
      smilex demo
      smilex demo --pretrain
    """
    from smilex.demo import run_demo

    run_demo(output_dir, pretrain=pretrain, progress=progress())


app.command(cls=Command, no_args_is_help=True)(analyze)


def main() -> None:
    """Run the command line."""
    quiet_libraries()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # they are text files
    app(prog_name="smilex")
