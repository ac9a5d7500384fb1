"""Dropout that does not hold up training on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zero a share of the values while training, and scale the others so that the mean stays.

    torch draws a random number for each value, on one core; with small models that takes a quarter of a training step
    on a CPU. Here a random byte decides on each value, so that one draw serves eight of them. On other devices it is
    torch's dropout.

    Parameters
    ----------
    p : float
        Probability of zeroing; on a CPU rounded to a multiple of 1/256 (0.1 becomes 26/256).

    Raises
    ------
    ValueError
        If it is no probability.

    Notes
    -----
    Srivastava et al., JMLR 2014, 15, 1929.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> dropped = Dropout(0.1)(torch.ones(100_000))
    >>> round((dropped == 0).double().mean().item(), 2), round(dropped.mean().item(), 2)
    (0.1, 1.0)
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"a dropout probability lies between 0 and 1, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return x of any shape with values zeroed; x itself in eval mode."""
        if not self.training or self.p == 0:
            return x
        threshold = round(256 * self.p)
        if x.device.type != "cpu" or threshold > 255:
            return F.dropout(x, self.p)
        # All 64 bits are random: the range is that of int64, but for its last value.
        words = torch.randint(-(2**63), 2**63 - 1, ((x.numel() + 7) // 8,))
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        return x * keep * (256 / (256 - threshold))
