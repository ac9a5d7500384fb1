"""transformers' Trainer, quiet on the terminal but for a progress bar of ours."""

from typing import Any

from transformers import PrinterCallback, Trainer

from smilex.modeling.loading import quiet_transformers
from smilex.report.progress import ProgressBar


class QuietTrainer(Trainer):
    """Trainer that prints nothing but a progress bar, and ends the bar however training ends.

    Parameters
    ----------
    *args, **kwargs
        As for `transformers.Trainer`.
    bar : ProgressBar, optional
        The bar to show.
    """

    def __init__(self, *args: Any, bar: ProgressBar | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(PrinterCallback)
        self._bar = bar
        if bar is not None:
            self.add_callback(bar)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as `transformers.Trainer.train` does."""
        try:
            with quiet_transformers():
                result = super().train(*args, **kwargs)
            # Mixed precision wraps the model's forward; whoever applies the trained model wants it plain.
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
            return result
        finally:
            if self._bar is not None:
                self._bar.stop()
