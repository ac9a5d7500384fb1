"""ExLM with a head that predicts RDKit's descriptors of a molecule."""

from torch import Tensor, nn

from smilex.data.descriptors import DESCRIPTOR_NAMES
from smilex.modeling.config import ExLMConfig
from smilex.modeling.encoder import ExLMModel, ExLMPreTrainedModel


class ExLMForDescriptors(ExLMPreTrainedModel):
    """Encoder, pooling and one linear layer: what it learns to say has to be there, in a line, in the vector itself.

    Parameters
    ----------
    config : ExLMConfig
        Sizes and settings.

    Examples
    --------
    >>> import torch
    >>> model = ExLMForDescriptors(ExLMConfig.from_preset("tiny")).eval()
    >>> model(torch.tensor([[2, 20, 21, 3]])).shape == (1, len(DESCRIPTOR_NAMES))
    True
    """

    def __init__(self, config: ExLMConfig) -> None:
        super().__init__(config)
        self.exlm = ExLMModel(config)
        self.head = nn.Linear(config.hidden_size, len(DESCRIPTOR_NAMES))
        self.post_init()

    def forward(self, input_ids: Tensor, pooling: str = "mean") -> Tensor:
        """Predict the normalised descriptors, shape (B, len(DESCRIPTOR_NAMES)).

        Parameters
        ----------
        input_ids : Tensor, int64, shape (B, L)
            Token ids, padded with [PAD].
        pooling : {"mean", "cls"}, default "mean"
            Vector that they are read from, see `smilex.embed`.
        """
        return self.head(self.exlm(input_ids).pool(pooling))
