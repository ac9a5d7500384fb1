"""Options and arguments that several commands of the command line take."""

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
        help="Pretrained encoder: a directory that smilex pretrain wrote, or a name that ships with smilex (none yet).",
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
