"""Options and arguments of the commands, so that the commands themselves stay short."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Errors = Annotated[
    Literal["report", "raise"],
    typer.Option(help="Invalid molecules: report them and leave their results empty, or raise an error and stop."),
]
Pooling = Annotated[
    Literal["mean", "cls"],
    typer.Option(help="Vector of a molecule: the mean over its tokens, or the first state of the opening token CLS."),
]
Encoder = Annotated[
    str,
    typer.Option(
        metavar="NAME|DIR",
        help="Pretrained encoder: a directory that smilex pretrain wrote, or a name that ships with smilex.",
    ),
]
Head = Annotated[
    Literal["network", "linear", "random_forest"],
    typer.Option(
        help="What predicts: network trains a head together with the encoder; linear and random_forest leave the "
        "encoder as it is and fit scikit-learn to its vectors, which suits few molecules."
    ),
]
SmilesColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column with the SMILES; by default the one called smiles (any case)."),
]
Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="Molecules: a .smi, .txt, .csv, .tsv, .parquet or .sdf file (also .gz), or - for stdin, one SMILES a "
        "line. Each row, counted from 0, gives one row of output; a blank line is a row without a molecule.",
        show_default=False,
    ),
]
Vectors = Annotated[
    str,
    typer.Argument(
        metavar="OUTPUT",
        help="File for the vectors: .npy (float32 array, a row for each molecule), .npz (arrays smiles and vectors), "
        ".csv or .parquet (columns smiles, v0, v1, …). Or a directory, for inputs larger than memory: Parquet files "
        "with the columns row, smiles, v0, v1, … and error.",
        show_default=False,
    ),
]
Canonical = Annotated[
    bool,
    typer.Option(
        "--canonical/--as-written",
        help="Encode the canonical SMILES of each molecule, so that its vector does not depend on how it is "
        "written, or the SMILES as it is written.",
    ),
]
Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Who fills a directory: this process, or the workers of Ray (pip install 'smilex\\[ray]')."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto",
        help="Ray cluster to connect to; its machines must share the input, the encoder and the output.",
        show_default="a new Ray on this machine",
    ),
]
RowsPerShard = Annotated[int, typer.Option(help="Rows of a Parquet file of a directory; memory grows with them.")]
LayerDecay = Annotated[
    float,
    typer.Option(help="Learning rate of each layer, from the head down, as a share of the one above it; 1 is off."),
]
Dropout = Annotated[float | None, typer.Option(help="Dropout while fine-tuning.", show_default="that of the encoder")]
BalanceClasses = Annotated[
    bool, typer.Option(help="Let both classes of a task count the same; this shifts the probabilities.")
]
RandomSmiles = Annotated[bool, typer.Option(help="Train on another random SMILES of each molecule in each pass.")]
AveragedSmiles = Annotated[
    int, typer.Option(help="SMILES of a molecule that a prediction is the mean over, now and in smilex predict.")
]
Corpus = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS",
        help="Molecules without labels: a .smi, .txt, .csv, .tsv, .parquet or .sdf file (also .gz), or a built-in "
        "name: nci5k (5 000 molecules inside RDKit), moses (1.9 million; pip install --no-deps molsets==0.3.1).",
        show_default=False,
    ),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="OUTPUT_DIR", help="Run directory to make.", show_default=False)]
Objective = Annotated[
    str,
    typer.Option(
        help="What to train on: exlm (expanded masks), mlm (plain masks), mae_lm (masks unseen by the encoder), "
        "descriptors (RDKit's, of the whole molecule); after one of them, with --encoder, mirror (telling molecules "
        "apart) or mexma (two SMILES of a molecule)."
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="Size of a new encoder: tiny (4 layers of width 128), small (6 of 256), base (12 of 768).",
        show_default="small",
    ),
]
StartFrom = Annotated[str | None, typer.Option(metavar="DIR", help="Go on from this saved model, in place of --model.")]
TokensPerBatch = Annotated[
    int | None,
    typer.Option(help="Tokens in a batch; lower it if memory runs out.", show_default="4096; not for mirror"),
]
MoleculesPerBatch = Annotated[int | None, typer.Option(help="Molecules in a batch of mirror.", show_default="200")]
PretrainingRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        help="Highest learning rate of the schedule.",
        show_default="5e-4, mirror 2e-5, mexma 1e-4",
    ),
]
MaskRatio = Annotated[
    float | None,
    typer.Option(
        help="Share of the tokens to mask, 0 to 1.", show_default="0.15, mexma 0.4; not for mirror, descriptors"
    ),
]
Masking = Annotated[
    Literal["random", "span", "group"] | None,
    typer.Option(
        help="Tokens to mask: any, runs of neighbours, or functional groups and rings.",
        show_default="random; not for mirror, descriptors",
    ),
]
PretrainingRandomSmiles = Annotated[
    bool,
    typer.Option(
        "--random-smiles",
        help="Read a molecule in another random SMILES each time it is trained on; not for mirror, mexma.",
    ),
]
Twins = Annotated[
    Literal["same", "random"] | None,
    typer.Option(help="What mirror compares a molecule with: its SMILES or a random one.", show_default="same"),
]
TrainedPooling = Annotated[
    Literal["mean", "cls"] | None,
    typer.Option(
        "--pooling", help="Vector that mirror and descriptors train, as for smilex embed.", show_default="mean"
    ),
]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="Measured molecules: a .csv, .tsv or .parquet file (also .gz) with a SMILES column and a column for "
        "each property; nav17 (1 017 activities inside RDKit); or a MoleculeNet name such as bbbp.",
        show_default=False,
    ),
]
DemoPretraining = Annotated[
    bool,
    typer.Option(
        "--pretrain",
        help="Pretrain an encoder, too, on 5 000 molecules inside RDKit, fine-tune it like the others, and let it "
        "complete a molecule; this takes two minutes more.",
    ),
]
FromScratch = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Start from random weights, in place of --encoder: tiny, small or base."),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column to learn, numbers or classes 0 and 1; repeat it for several. By default every column but the "
        "SMILES. Empty cells are missing labels.",
    ),
]
DataDirectory = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the MoleculeNet files NAME.csv.gz, by default SMILEX_DATA, "
        "or else a cache that they are downloaded into."
    ),
]
Split = Annotated[
    Literal["scaffold", "balanced_scaffold", "random", "stratified", "column", "time"],
    typer.Option(
        help="Who is tested (80:10:10): molecules with other ring frameworks than in training (scaffold, "
        "balanced_scaffold), any (random, stratified by label), or what --split-column says (column: the words "
        "train, valid and test; time: the newest)."
    ),
]
SplitColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column that --split column or time follows.")]
Precision = Annotated[
    Literal["fp32", "bf16"] | None,
    typer.Option(
        help="Arithmetic of training; bf16 is faster on CPUs with instructions for it.",
        show_default="bf16 on a GPU, or fp32",
    ),
]
Seeds = Annotated[int, typer.Option(help="Models to train, from different seeds.")]
Epochs = Annotated[int, typer.Option(help="Passes over the training molecules, at most.")]
Patience = Annotated[int, typer.Option(help="Stop after this many passes without progress.")]
BatchSize = Annotated[int, typer.Option(help="Molecules in a batch.")]
LearningRate = Annotated[float, typer.Option(help="Highest learning rate of the schedule.")]
