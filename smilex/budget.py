"""How long a pretraining run lasts, and the learning rate along the way."""

import math
import time
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from smilex.errors import SmilexError
from smilex.processes import from_first

WARM_UP = 0.06
"""Share of the run during which the learning rate rises, as in the paper."""

EVALUATIONS = 10
"""Times that the held-out molecules are looked at, evenly over the run."""

UNBOUNDED_STEPS = 2**31 - 1
"""What the trainer is told when minutes bound the run."""


@dataclass(frozen=True)
class Budget:
    """The length of a run, in optimiser steps or in minutes of training.

    Parameters
    ----------
    max_steps : int or None
        Optimiser steps.
    minutes : float or None
        Minutes of training, evaluation and checkpoints included. The number of steps then depends on the machine.
    """

    max_steps: int | None
    minutes: float | None

    @classmethod
    def choose(cls, max_steps: int | None, minutes: float | None, epochs: float | None, per_epoch: float) -> "Budget":
        """Make a budget of the one setting that is given; an epoch has `per_epoch` steps.

        Raises
        ------
        SmilexError
            If none or several are given, or the one is not positive.

        Examples
        --------
        >>> Budget.choose(None, None, 2, per_epoch=50)
        Budget(max_steps=100, minutes=None)
        """
        given = {"max_steps": max_steps, "minutes": minutes, "epochs": epochs}
        chosen = {name: value for name, value in given.items() if value is not None}
        if len(chosen) != 1:
            raise SmilexError(
                f"say how long to train with one of max_steps, epochs or minutes; {len(chosen)} are given"
            )
        name, value = chosen.popitem()
        if not value > 0:
            raise SmilexError(f"{name} must be positive, not {value}")
        if name == "minutes":
            return cls(None, float(value))
        return cls(math.ceil(value * per_epoch) if name == "epochs" else int(value), None)

    @property
    def steps(self) -> int:
        """Steps that the trainer may take at most."""
        return self.max_steps or UNBOUNDED_STEPS


def learning_rate_factor(progress: float) -> float:
    """Linear warm-up, then linear decay to 0 at the end of the run.

    Examples
    --------
    >>> [round(learning_rate_factor(p), 3) for p in (0.0, 0.03, 0.06, 0.53, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return max(0.0, (1.0 - progress) / (1.0 - WARM_UP))


class BudgetCallback(TrainerCallback):
    """Watch the budget: stop when it is spent, and evaluate and save on the way.

    Parameters
    ----------
    budget : Budget
        The length of the run.
    checkpoint_steps : int
        Steps between checkpoints.
    elapsed : float, default 0.0
        Seconds that the run took before it was resumed.
    """

    def __init__(self, budget: Budget, checkpoint_steps: int, elapsed: float = 0.0) -> None:
        self._budget = budget
        self._checkpoint_steps = checkpoint_steps
        self._started = time.monotonic() - elapsed
        self._elapsed_at_step = elapsed
        self._evaluations = 0

    def elapsed(self) -> float:
        """Seconds of the run so far, those before a resume included."""
        return time.monotonic() - self._started

    def progress(self, step: int) -> float:
        """Share of the budget that is spent after `step` steps."""
        if self._budget.minutes is not None:
            return self._elapsed_at_step / (60 * self._budget.minutes)
        return step / self._budget.steps

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the evaluations that a resumed run has behind it."""
        self._evaluations = int(EVALUATIONS * self.progress(state.global_step))

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Read the clock once a step, for the learning rate and for what follows the step."""
        if self._budget.minutes is not None:
            # Processes whose clocks differ would differ in their learning rates, and in their weights at last.
            self._elapsed_at_step = from_first(self.elapsed)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Decide what to do after a step."""
        progress = self.progress(state.global_step)
        if progress >= 1:
            control.should_training_stop = True
        if int(EVALUATIONS * progress) > self._evaluations:
            self._evaluations = int(EVALUATIONS * progress)
            control.should_evaluate = True
        if state.global_step % self._checkpoint_steps == 0:
            control.should_save = True
        if control.should_save or control.should_evaluate:
            # The mean loss since the last log starts anew here, so that a resumed run logs the same means.
            control.should_log = True
