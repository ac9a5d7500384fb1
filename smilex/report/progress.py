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
    title : str
        What is running.
    progress : callable, optional
        Returns the share of the run that is done after a number of steps; by default the share of the trainer's steps.
    """

    def __init__(self, title: str, progress: Callable[[int], float] | None = None) -> None:
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
        done = state.global_step / state.max_steps if self._progress is None else self._progress(state.global_step)
        shown = ", ".join(f"{name.replace('_', '-')} {value:.3f}" for name, value in self._figures.items())
        self._bar.update(self._task, completed=done, description=f"step {state.global_step} {shown}")

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

    def stop(self) -> None:
        """End the bar, and give the terminal its cursor back."""
        self._bar.stop()
