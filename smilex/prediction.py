"""Predicting properties with a fine-tuned model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from smilex.data.rows import InvalidRow, encode_rows, warn_invalid
from smilex.errors import SmilexError
from smilex.inference import default_device, run_rows
from smilex.modeling import ExLMForMoleculeProperty
from smilex.modeling.loading import load_model
from smilex.tokenization import SmilesTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rdkit import Chem


def predict(
    model_dir: str | Path,
    smiles: "Iterable[str | Chem.Mol]",
    *,
    errors: Literal["report", "raise"] = "report",
) -> pd.DataFrame:
    """Predict properties of molecules.

    Parameters
    ----------
    model_dir : str or Path
        What `smilex.finetune` wrote. With models of several seeds the prediction is their mean.
    smiles : iterable of str or rdkit.Chem.Mol
        The molecules.
    errors : {"report", "raise"}, default "report"
        What to do with an invalid molecule: NaN, its reason in the column `error` and a line in one
        `InvalidMoleculeWarning`; or an error.

    Returns
    -------
    pandas.DataFrame
        One row per input, in order: `smiles` as given; a column for each task, in the units of the training data or
        the probability of class 1; with several seeds TASK_sd, their sample standard deviation; `error`, empty where
        the molecule is valid.

    Raises
    ------
    SmilexError
        If the directory holds no fine-tuned model, `smiles` is a single string, or, with ``errors="raise"``, a
        molecule is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig
    >>> config = ExLMConfig.from_preset("tiny", problem_type="regression", id2label={0: "logS"})
    >>> directory = tempfile.mkdtemp()
    >>> ExLMForMoleculeProperty(config).save_pretrained(directory)
    >>> list(predict(directory, ["CCO", "c1ccccc1"]).columns)
    ['smiles', 'logS', 'error']
    """
    models = [load_model(ExLMForMoleculeProperty, directory) for directory in model_directories(Path(model_dir))]
    config = models[0].config
    molecules = smiles if isinstance(smiles, str) else list(smiles)
    rows = encode_rows(molecules, SmilesTokenizer(), max_length=config.max_position_embeddings, errors=errors)
    warn_invalid(rows.invalid, len(rows.input_ids))
    predictions = np.stack([predict_rows(model, rows.input_ids) for model in models])
    tasks = [config.id2label[index] for index in range(config.num_labels)]
    return prediction_table([_as_text(item) for item in molecules], predictions, tasks, rows.invalid)


def model_directories(model_dir: Path) -> list[Path]:
    """Directories of the single models in what `smilex.finetune` wrote; one model is itself."""
    seeds = sorted(model_dir.glob("seed-*"), key=lambda path: int(path.name.removeprefix("seed-")))
    if seeds and not (model_dir / "report.json").is_file():
        raise SmilexError(f"{model_dir} holds an unfinished fine-tuning run: finish it first")
    return seeds or [model_dir]


def predict_rows(model: ExLMForMoleculeProperty, rows: Sequence[Sequence[int] | None]) -> NDArray[np.float32]:
    """Predict tokenised molecules, (n, tasks) with NaN where a row is None."""
    device = default_device()
    model = model.to(device).eval()
    width = model.output.out_features
    return run_rows(model.predict, rows, width, pad_id=model.config.pad_token_id, device=device)


def prediction_table(
    smiles: Sequence[str], predictions: NDArray[np.float32], tasks: Sequence[str], invalid: Sequence[InvalidRow]
) -> pd.DataFrame:
    """Lay out predictions of one or several models, (models, n, tasks), as `predict` returns them."""
    table: dict[str, object] = {"smiles": smiles}
    for index, task in enumerate(tasks):
        values = predictions[:, :, index]
        table[task] = values.mean(0)
        if len(values) > 1:
            table[f"{task}_sd"] = values.std(0, ddof=1)
    reasons = {row.index: row.reason for row in invalid}
    table["error"] = [reasons.get(index, "") for index in range(len(smiles))]
    return pd.DataFrame(table)


def _as_text(item: "str | Chem.Mol") -> str:
    if isinstance(item, str):
        return item
    from rdkit import Chem

    return Chem.MolToSmiles(item) if isinstance(item, Chem.Mol) else str(item)
