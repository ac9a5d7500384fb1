"""What a model directory, a fine-tuning run, a shipped encoder or a built-in set of molecules is."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from smilex.data.columns import column_names
from smilex.data.properties import MOLECULENET, load_properties
from smilex.data.sources import BUILT_IN, open_source
from smilex.errors import SmilexError

WEIGHTS = "model.safetensors"


def inspect(name_or_dir: str) -> dict[str, str]:
    """Describe a directory or a built-in name.

    Parameters
    ----------
    name_or_dir : str
        A directory that `smilex.pretrain` or `smilex.finetune` wrote; the name of an encoder that ships with the
        package; or of a built-in corpus ("nci5k", "moses") or property set ("nav17", "bbbp", …).

    Returns
    -------
    dict of str to str
        What there is to know, by name, in the order in which to show it.

    Raises
    ------
    SmilexError
        If it is none of these, or the directory cannot be read.

    Examples
    --------
    >>> inspect("nav17")["molecules"]
    '1017'
    """
    if not Path(name_or_dir).is_dir():
        if name_or_dir in BUILT_IN:
            return _corpus(name_or_dir)
        if name_or_dir.lower() in ("nav17", *MOLECULENET):
            return _properties(name_or_dir)
    from smilex.modeling.loading import find_encoder  # after the sets of molecules, which need no torch

    try:
        directory = find_encoder(name_or_dir)
    except SmilexError as error:
        names = ", ".join([*sorted(BUILT_IN), "nav17", *MOLECULENET])
        raise SmilexError(f"{error}; sets of molecules are {names}") from error
    return _directory(directory)


def _corpus(name: str) -> dict[str, str]:
    rows = [row for row in open_source(name).rows() if isinstance(row, str)]
    return {
        "kind": "corpus of unlabelled molecules",
        "rows": str(len(rows)),
        "longest": f"{max(map(len, rows))} characters",
        "first rows": ", ".join(rows[:3]),
        "files": ", ".join(str(path) for path in BUILT_IN[name]()),
    }


def _properties(name: str) -> dict[str, str]:
    data = load_properties(name)
    found = {
        "kind": f"measured properties, {data.kind}",
        "molecules": str(len(data)),
        "tasks": column_names(data.task_names),
    }
    for task, labels in zip(data.task_names[:12], data.targets.T, strict=False):
        present = labels[~np.isnan(labels)]
        if data.kind == "regression":
            spread = f"{present.min():.2f} to {present.max():.2f}, mean {present.mean():.2f}, sd {present.std():.2f}"
        else:
            spread = f"{int(present.sum())} of class 1, {int((present == 0).sum())} of class 0"
        found[task] = f"{len(present)} labels, {spread}"
    return found


def _directory(directory: Path) -> dict[str, str]:
    report = _json(directory / "report.json")
    settings = report.get("settings") or _json(directory / "settings.json")
    if settings and not report:
        way_out = "the same command with --resume goes on" if "corpus" in settings else "start it anew"
        return {"kind": f"unfinished run: {way_out}", **_training(settings)}
    from smilex.frozen import HEAD_REPORT
    from smilex.modeling.loading import load_config
    from smilex.prediction import model_directories

    models = model_directories(directory)
    config = load_config(models[0])
    found = {
        "kind": ", ".join(config.architectures or ["model"]) + (f", {len(models)} seeds" if len(models) > 1 else ""),
        "size": f"{config.num_hidden_layers} layers of width {config.hidden_size}, "
        f"{config.num_attention_heads} attention heads",
        "parameters": f"{_parameters(models[0] / WEIGHTS):,}",
        "states per mask (k)": str(config.num_states),
        "vocabulary": f"{config.vocab_size} tokens",
        "longest molecule": f"{config.max_position_embeddings} tokens, [CLS] and [SEP] included",
        "written by": f"smilex {config.smilex_version}",
    }
    if config.problem_type is not None:
        found["tasks"] = column_names(str(name) for name in (config.id2label or {}).values())
        found["pooling"] = config.pooling
        if heads := _json(models[0] / HEAD_REPORT):
            names = sorted({task["estimator"] for task in heads.values()})
            found["head on the frozen encoder"] = ", ".join(names)
    return found | _training(settings) | _amount(report) | _figures(report) | _card(directory)


def _training(settings: dict[str, Any]) -> dict[str, str]:
    """List the settings of a run that are plain values, under their own names."""
    shown = {name: value for name, value in settings.items() if isinstance(value, str | int | float)}
    if "dataset" in settings:  # its name stands inside
        shown = {"dataset": settings["dataset"]["name"], **shown}
    return {f"trained with {name}": str(value) for name, value in shown.items()}


def _amount(report: dict[str, Any]) -> dict[str, str]:
    """Say how many molecules a run learned from, and how long it took."""
    molecules = report.get("molecules", {}).get("training", report.get("rows", {}).get("train"))
    amount = {"training molecules": molecules, "steps": report.get("steps"), "seconds": report.get("seconds")}
    return {name: str(value) for name, value in amount.items() if value is not None}


def _figures(report: dict[str, Any]) -> dict[str, str]:
    """List the figures on the held-out molecules, or on the test part as mean over seeds."""
    metrics = report.get("metrics", {})
    if "test" in metrics:
        means = {name: figure["mean"] for name, figure in metrics["test"]["summary"].items()}
        return {f"test {name}": f"{value:.3f}" for name, value in means.items() if value is not None}
    return {f"held-out {name}": f"{value:.3f}" for name, value in metrics.items()}


def _card(directory: Path) -> dict[str, str]:
    """Point to the model card, and say what licence it names."""
    path = directory / "README.md"
    if not path.is_file():
        return {}
    licence = re.search(r"^license: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return ({"licence of the weights": licence[1]} if licence else {}) | {"model card": str(path)}


def _parameters(path: Path) -> int:
    """Count the weights from the file's header; weights that are tied are saved once."""
    try:
        with safe_open(path, framework="numpy") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118 (no dict)
    except (OSError, SafetensorError) as error:
        raise SmilexError(f"cannot read {path}: {error}; the model is not whole") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise SmilexError(f"cannot read {path}: {error}") from error
