"""The command `smilex analyze`; like the others, it imports what is heavy when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from smilex.options import Pooling, SmilesColumn
from smilex.terminal import progress, say, show


def analyze(
    encoder: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER", help="A directory that smilex pretrain or finetune wrote.", show_default=False
        ),
    ],
    corpus: Annotated[
        str,
        typer.Argument(
            metavar="[CORPUS]",
            help="Molecules: a .smi, .txt, .csv, .tsv, .parquet or .sdf file (also .gz), or a built-in name.",
        ),
    ] = "nci5k",
    *,
    molecules: Annotated[int, typer.Option(help="Random molecules of the corpus to take, at most.", min=2)] = 2000,
    pooling: Pooling = "mean",
    mask_ratio: Annotated[float, typer.Option(help="Share of the tokens to mask, for entropy and rank.")] = 0.15,
    seed: Annotated[int, typer.Option(help="Seed of the molecules, the masks and the random SMILES.", min=0)] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSON file for the figures.", show_default=False)
    ] = None,
    smiles_column: SmilesColumn = None,
) -> None:
    """Measure what an encoder has learned: retrieval, spread, neighbourhoods, entropy and rank.

    [bold]Examples[/bold]
      smilex analyze runs/nci
      smilex analyze runs/zinc zinc.smi.gz --molecules 10000 -o analysis.json
    """
    import numpy as np

    from smilex.analysis.summary import analyze as run
    from smilex.data.corpus import load_corpus
    from smilex.files import check_output
    from smilex.modeling.loading import find_encoder, load_config
    from smilex.report.tables import analysis_results
    from smilex.runs import write_json

    if output is not None:
        check_output(output, (".json",), corpus)
    max_length = load_config(find_encoder(encoder)).max_position_embeddings  # before the corpus, which takes longer
    clean = load_corpus(corpus, smiles_column=smiles_column, max_length=max_length, progress=progress())
    rows = np.random.default_rng(seed).permutation(len(clean.dataset))[:molecules]
    analysis = run(encoder, clean.dataset[np.sort(rows)]["smiles"], pooling, mask_ratio=mask_ratio, seed=seed)
    show(str(clean.report), *analysis_results(analysis))
    if output is not None:
        write_json(output, analysis.to_dict())
        say(f"figures written to {output}")
