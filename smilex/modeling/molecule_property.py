"""ExLM with a head that predicts measured properties of a molecule."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from smilex.modeling.config import ExLMConfig
from smilex.modeling.dropout import Dropout
from smilex.modeling.encoder import _UNSET, ExLMModel, ExLMPreTrainedModel

REGRESSION = "regression"
CLASSIFICATION = "multi_label_classification"


@dataclass
class ExLMPropertyOutput(ModelOutput):
    """Predicted properties.

    Parameters
    ----------
    loss : Tensor, shape ()
        Mean over the labels that are present; only with labels.
    logits : Tensor, shape (B, tasks)
        Log-odds for classification, standardised values for regression.
    """

    loss: Tensor | None = None
    logits: Tensor = _UNSET


class ExLMForMoleculeProperty(ExLMPreTrainedModel):
    """Encoder, pooling and a head of one hidden layer for regression or multi-task binary classification.

    Parameters
    ----------
    config : ExLMConfig
        ``problem_type`` is "regression" or "multi_label_classification"; ``id2label`` names the tasks; ``pooling``
        says what a molecule is read from.

    Notes
    -----
    Regression targets are standardised inside: the mean and standard deviation of the training targets are buffers
    of the model, so that `predict` answers in the units of the data.

    Examples
    --------
    >>> config = ExLMConfig.from_preset("tiny", num_labels=2, problem_type="regression")
    >>> model = ExLMForMoleculeProperty(config).eval()
    >>> model.predict(torch.tensor([[2, 20, 21, 3]])).shape
    torch.Size([1, 2])
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__(config)
        num_tasks = config.num_labels or 1
        self.exlm = ExLMModel(config)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, num_tasks)
        self.register_buffer("target_mean", torch.zeros(num_tasks))
        self.register_buffer("target_std", torch.ones(num_tasks))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self and not getattr(self.target_mean, "_is_hf_initialized", False):
            self.target_mean.zero_()
            self.target_std.fill_(1.0)

    @torch.no_grad()
    def standardize_targets(self, labels: Tensor) -> None:
        """Take mean and standard deviation of each regression target from training labels, (n, tasks) with NaN."""
        present = ~labels.isnan()
        count = present.sum(0).clamp_min(1)
        mean = labels.nan_to_num().sum(0) / count
        variance = ((labels - mean).nan_to_num() ** 2).sum(0) / count
        self.target_mean.copy_(mean)
        # A target that does not vary in the training part is left in its own units.
        self.target_std.copy_(torch.where(variance > 0, variance.sqrt(), 1.0))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        label_weights: Tensor | None = None,
        **_: object,
    ) -> ExLMPropertyOutput:
        """Predict and, with labels, compute the loss.

        Parameters
        ----------
        input_ids : Tensor, int64, shape (B, L)
            Token ids, padded with [PAD].
        attention_mask : Tensor, shape (B, L), optional
            0 at padding.
        labels : Tensor, float, shape (B, tasks), optional
            Measured values or 0/1, in the units of the data; NaN where missing.
        label_weights : Tensor, float, shape (B, tasks), optional
            What each label counts in the loss, by default 1. Missing labels count for nothing.

        Returns
        -------
        ExLMPropertyOutput
            Squared error of standardised values, or binary cross-entropy, times its weight, averaged over the labels
            that are present.
        """
        pooled = self.dropout(self.exlm(input_ids, attention_mask).pool(self.config.pooling))
        logits = self.output(self.dropout(F.gelu(self.dense(pooled))))
        if labels is None:
            return ExLMPropertyOutput(logits=logits)
        present = ~labels.isnan()
        if self.config.problem_type == REGRESSION:
            labels = (labels - self.target_mean) / self.target_std
            loss = F.mse_loss(logits, labels.nan_to_num(), reduction="none")
        else:
            loss = F.binary_cross_entropy_with_logits(logits, labels.nan_to_num(), reduction="none")
        if label_weights is not None:
            loss = loss * label_weights
        return ExLMPropertyOutput(loss=(loss * present).sum() / present.sum().clamp_min(1), logits=logits)

    @torch.no_grad()
    def predict(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Values in the units of the data, or probabilities of the positive class, shape (B, tasks)."""
        logits = self(input_ids, attention_mask).logits
        if self.config.problem_type == REGRESSION:
            return logits * self.target_std + self.target_mean
        return logits.sigmoid()
