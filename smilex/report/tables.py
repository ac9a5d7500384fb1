"""Results as tables for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from smilex.data.cleaning import CleaningReport
from smilex.data.columns import column_names

if TYPE_CHECKING:
    from smilex.analysis import Analysis
    from smilex.filling import Filling
    from smilex.finetuning import FinetuneResult
    from smilex.pretraining import PretrainResult

NAMES = {
    "ece": "ECE",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "spearman": "Spearman ρ",
    "roc_auc": "ROC-AUC",
    "prc_auc": "PRC-AUC",
    "f1": "F1",
    "mcc": "MCC",
    "masked_accuracy": "masked tokens predicted right",
    "perplexity": "perplexity at masks",
    "entropy": "entropy at masks, nats",
    "retrieval_accuracy": "random SMILES retrieve their molecule",
    "retrieval_error": "retrieval error (1 − accuracy)",
    "alignment": "alignment of SMILES of a molecule",
    "uniformity": "uniformity of molecules",
    "neighbourhood_agreement": "agreement with Tanimoto (Spearman ρ)",
}
"""Figures as people write them; others are called by their key."""


def figure_name(key: str) -> str:
    """Return a figure's name as people write it.

    Examples
    --------
    >>> figure_name("r2"), figure_name("uniformity_of_pairs")
    ('R²', 'uniformity of pairs')
    """
    return NAMES.get(key, key.replace("_", " "))


def mean_sd(figure: Mapping[str, Any]) -> str:
    """Return a mean with its spread, where there is one.

    Examples
    --------
    >>> mean_sd({"mean": 0.71234, "sd": 0.0123, "n": 3}), mean_sd({"mean": 0.5, "sd": None, "n": 1})
    ('0.712 ± 0.012', '0.500')
    """
    if figure["mean"] is None:
        return "undefined"
    spread = "" if figure["sd"] is None else f" ± {figure['sd']:.3f}"
    return f"{figure['mean']:.3f}{spread}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Lay out a table; all but the first column are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def facts(rows: Mapping[str, str]) -> Table:
    """Lay out names and values."""
    made = Table(box=box.SIMPLE_HEAD, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows.items():
        made.add_row(name, value)
    return made


def pretraining_results(result: "PretrainResult") -> list[str | Table]:
    """Show what became of the corpus, the figures on the held-out molecules, and where the run lies."""
    report = result.report
    held_out = report["molecules"]["held_out"]
    title = f"{held_out} held-out molecules after {report['steps']} steps in {report['seconds']:.0f} s"
    figures = [(figure_name(name), f"{value:.3f}") for name, value in result.metrics.items()]
    return [
        str(CleaningReport.from_dict(report["corpus"])),
        title,
        table(("figure", "value"), figures),
        f"run directory: {result.output_dir} (loss.png, report.json, metrics.jsonl and the model)",
    ]


def finetuning_results(result: "FinetuneResult") -> list[str | Table]:
    """Show what was learned of which molecules, the figures on the test part, and where the run lies."""
    rows, settings = result.report["rows"], result.report["settings"]
    summary, ensemble = result.metrics, result.report["metrics"]["test"]["ensemble"]["mean"]
    models = result.report["models"]
    columns = ("figure", f"mean ± sd, seeds: {models}", "mean prediction of the seeds")
    figures = [
        (figure_name(name), mean_sd(summary[name]), mean_sd({"mean": ensemble[name], "sd": None})) for name in summary
    ]
    files = ", ".join(sorted(path.name for path in result.output_dir.iterdir() if path.suffix in {".csv", ".png"}))
    return [
        f"tasks: {column_names(settings['dataset']['tasks'])}",
        *_about_rows(rows, settings["split"]),
        *([f"one model: a {settings['head']} head holds no chance"] if models < settings["seeds"] else []),
        f"figures on the test part, {rows['test']} molecules",
        table(columns, figures),
        f"run directory: {result.output_dir} ({files} and a model for each seed)",
    ]


def _about_rows(rows: Mapping[str, Any], split: str) -> list[str]:
    parts = f"{rows['train']} train, {rows['valid']} validation, {rows['test']} test ({split} split)"
    lines = [f"rows: {rows['total']}, of which {parts}, {len(rows['invalid'])} invalid"]
    if rows["duplicates"]:
        lines.append(f"rows that repeat the molecule of an earlier row: {rows['duplicates']}")
    leaks = {pair: count for pair, count in rows["molecules_in_two_parts"].items() if count}
    if leaks:
        shown = ", ".join(f"{count} in {' and '.join(pair.split('_'))}" for pair, count in leaks.items())
        lines.append(f"molecules in two parts, whose labels leak: {shown}")
    return lines


def fillings(smiles: str, found: "Sequence[Filling]") -> list[str | Table]:
    """Lay out the completions of a SMILES with masks."""
    if not found:
        return [f"no valid completion of {smiles} was found"]
    rows = [(filling.smiles, f"{filling.probability:.4f}") for filling in found]
    return [f"valid completions of {smiles}", table(("completion", "probability"), rows)]


def analysis_results(analysis: "Analysis") -> list[str | Table]:
    """Lay out the figures of an encoder, and the rank of each layer."""
    names = (
        "retrieval_accuracy",
        "retrieval_error",
        "alignment",
        "uniformity",
        "neighbourhood_agreement",
        "entropy",
    )
    figures = {figure_name(name): getattr(analysis, name) for name in names}
    ranks = zip(analysis.effective_rank, analysis.effective_rank_with_masks, strict=True)
    return [
        f"{analysis.encoder} on {analysis.molecules} molecules",
        table(("figure", "value"), [(n, "undefined" if v is None else f"{v:.3f}") for n, v in figures.items()]),
        "effective rank of the tokens' vectors, alone and beside masks",
        table(
            ("layer", "without masks", "with masks"),
            [(str(layer) if layer else "embedding", *map(str, pair)) for layer, pair in enumerate(ranks)],
        ),
    ]
