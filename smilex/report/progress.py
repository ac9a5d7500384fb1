"""A progress bar for the trainer."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class ProgressBar(TrainerCallback):
    """Show on stderr how much of a run is done, and the latest losses.

    Parameters
    ----------
    progress : callable
        Returns the share of the run that is done after a number of steps.
    title : str
        What is running.
    """

    def __init__(self, progress: Callable[[int], float], title: str) -> None:
        self._progress = progress
        self._figures: dict[str, float] = {}
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=1.0)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the bar."""
        if state.is_world_process_zero:
            self._bar.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar."""
        shown = ", ".join(f"{name.replace('_', '-')} {value:.3f}" for name, value in self._figures.items())
        self._bar.update(
            self._task, completed=self._progress(state.global_step), description=f"step {state.global_step} {shown}"
        )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Remember the latest losses."""
        self._figures |= {name: value for name, value in (logs or {}).items() if name in {"loss", "heldout_loss"}}

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop the bar."""
        self._bar.stop()
