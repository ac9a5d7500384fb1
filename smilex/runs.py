"""A run directory: whole files only, checkpoints that can be trusted, and a log of figures."""

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from smilex.errors import SmilexError
from smilex.modeling.loading import quiet_transformers
from smilex.processes import from_first, is_first_process, wait_for_all
from smilex.tokenization import SmilesTokenizer
from smilex.writing import write_text

COMPLETE = "complete.json"
"""Written into a checkpoint after everything else: a checkpoint without it is half written."""

LOCK = ".lock"
"""Held by the process that writes into a run directory."""


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def save_model(model: PreTrainedModel, tokenizer: SmilesTokenizer, directory: Path) -> None:
    """Save weights (safetensors), configuration and tokenizer, each file whole."""
    partial = directory / ".model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with quiet_transformers():
        model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    # safetensors lets nobody but its writer read the weights; whoever may read the configuration may read them, too.
    permissions = (partial / "config.json").stat().st_mode
    for path in sorted(partial.iterdir()):
        path.chmod(permissions)
        path.replace(directory / path.name)
    partial.rmdir()


def versions() -> dict[str, str]:
    """Versions that the figures of a run depend on."""
    packages = ("smilex", "torch", "transformers", "tokenizers", "rdkit", "numpy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn a failure to write below `directory` into one line with the way out."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        # torch.save reports a failed write as a RuntimeError of its zip writer.
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):
            raise
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
        raise SmilexError(f"cannot write to {directory}: {reason}; free space or name another directory") from error


class Run:
    """The directory of one training run.

    Open it with `Run.open`. It holds settings.json from the start, checkpoints while it is going on, and the model,
    report.json and plots when it is finished.

    Parameters
    ----------
    directory : Path
        Where everything lies.
    settings : dict
        What the result depends on, a JSON object.
    """

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.directory = directory
        self.settings = settings
        self.checkpoints = directory / "checkpoints"
        self.checkpoint = _latest_checkpoint(self.checkpoints)
        mark = {} if self.checkpoint is None else _read_json(self.checkpoint / COMPLETE)
        self.step: int = mark.get("step", 0)
        self.elapsed: float = mark.get("elapsed", 0.0)
        report = directory / "report.json"
        self.report: dict[str, Any] | None = _read_json(report) if report.is_file() else None

    @classmethod
    @contextmanager
    def open(cls, directory: str | Path, settings: dict[str, Any], *, resume: bool) -> "Iterator[Run]":
        """Start a run, or take up one with the same settings.

        Of several processes the first one does it, and the others see what it saw.

        Raises
        ------
        SmilexError
            If the directory cannot be written, holds a run already and `resume` is off, holds a run of other settings,
            or another process is at work in it.
        """
        settings = json.loads(json.dumps(settings))
        with ExitStack() as stack, writing_to(Path(directory)):

            def take_up() -> Run:
                return cls(stack.enter_context(own_directory(directory, settings, resume=resume)), settings)

            yield from_first(take_up)

    def callbacks(self, elapsed: Callable[[], float]) -> list[TrainerCallback]:
        """Return what keeps the log and the checkpoints; `elapsed` tells the seconds of the run so far."""
        log = [MetricsLog(self.directory / "metrics.jsonl", self.step)] if is_first_process() else []
        return [*log, _CompleteCheckpoints(elapsed)]

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl."""
        return _read_json_lines(self.directory / "metrics.jsonl")

    def finish(self, report: dict[str, Any]) -> None:
        """Write report.json, which marks the run as finished."""
        write_json(self.directory / "report.json", report)
        self.report = report


@contextmanager
def own_directory(
    directory: str | Path, settings: dict[str, Any], *, resume: bool, settings_name: str = "settings.json"
) -> Iterator[Path]:
    """Make a directory for one run, or take up the one of a run with the same settings, which a file in it says.

    Parameters
    ----------
    directory : str or Path
        The directory; it belongs to this process for as long as the context is open.
    settings : dict
        What the result depends on, a JSON object.
    resume : bool
        Whether it may hold the run already.
    settings_name : str
        Name of the file with the settings.

    Raises
    ------
    SmilexError
        If the directory cannot be written, holds a run already and `resume` is off, holds something else, such as a run
        of other settings, or another process is at work in it.
    """
    path = Path(directory)
    with ExitStack() as stack, writing_to(path):
        path.mkdir(parents=True, exist_ok=True)
        _refuse_second_writer(path, stack)
        known = path / settings_name
        if known.is_file() and not resume:
            raise SmilexError(f"{path} already holds a run: go on with resume=True, or name another directory")
        if known.is_file():
            _check_same(path, _read_json(known), settings)
        elif any(entry.name != LOCK for entry in path.iterdir()):
            raise SmilexError(f"{path} is not empty and holds no run: name another directory")
        else:
            write_json(known, settings)
        yield path


def _refuse_second_writer(directory: Path, stack: ExitStack) -> None:
    """Hold a lock on the directory until the stack closes; the system lets go of it when the process dies."""
    lock = FileLock(directory / LOCK)
    try:
        stack.enter_context(lock.acquire(timeout=0))
    except Timeout:
        raise SmilexError(
            f"another process is at work in {directory}: wait for it, or name another directory"
        ) from None
    stack.callback((directory / LOCK).unlink, missing_ok=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SmilexError(f"{path} is damaged ({error}): name another directory for the run") from error


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file with one JSON object a line; a last line that was cut off is left out."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _check_same(directory: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        shown = ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in changed[:3])
        raise SmilexError(f"cannot resume {directory} with other settings ({shown}): name another directory")


def _latest_checkpoint(directory: Path) -> Path | None:
    """Newest complete checkpoint below `directory`; half-written ones are removed."""
    complete = []
    for path in directory.glob("checkpoint-*"):
        if (path / COMPLETE).is_file():
            complete.append(path)
        else:
            shutil.rmtree(path)
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


class _CompleteCheckpoints(TrainerCallback):
    """Mark each checkpoint as complete once everything in it has reached the disk."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Flush the checkpoint and write the mark, when every process has written its part."""
        wait_for_all()
        if not state.is_world_process_zero:
            return
        directory = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        for path in filter(Path.is_file, directory.rglob("*")):  # sharded weights lie in folders
            with path.open("rb") as file:
                os.fsync(file.fileno())
        write_json(directory / COMPLETE, {"step": state.global_step, "elapsed": self._elapsed()})


class MetricsLog(TrainerCallback):
    """Append what the trainer logs to a file, one JSON object a line; rows after `last_step` are removed first."""

    def __init__(self, path: Path, last_step: int) -> None:
        self._path = path
        kept = [row for row in _read_json_lines(path) if row["step"] <= last_step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append one row, without the trainer's own epoch and its summary at the end."""
        if not logs or "train_runtime" in logs:
            return
        figures = {name: value for name, value in logs.items() if name != "epoch"}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **figures}) + "\n")
