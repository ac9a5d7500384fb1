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
