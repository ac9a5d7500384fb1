"""smilex: transformer encoders of molecules written as SMILES.

The names below are imported when they are first used, so that ``import smilex`` stays light.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smilex.embedding import embed
    from smilex.embedding_files import embed_file
    from smilex.errors import InvalidSmilesError, SmilexError
    from smilex.filling import fill_mask
    from smilex.finetuning import finetune
    from smilex.prediction import predict
    from smilex.pretraining import pretrain
    from smilex.tokenization import SmilesTokenizer, align_tokens

try:
    __version__ = version("smilex")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

DEFAULT_ENCODER = "smilex-small"
"""What is used where no encoder is named."""

_HOMES = {
    "InvalidSmilesError": "smilex.errors",
    "SmilesTokenizer": "smilex.tokenization",
    "SmilexError": "smilex.errors",
    "align_tokens": "smilex.tokenization",
    "embed": "smilex.embedding",
    "embed_file": "smilex.embedding_files",
    "fill_mask": "smilex.filling",
    "finetune": "smilex.finetuning",
    "predict": "smilex.prediction",
    "pretrain": "smilex.pretraining",
}

__all__ = [
    "InvalidSmilesError",
    "SmilesTokenizer",
    "SmilexError",
    "align_tokens",
    "embed",
    "embed_file",
    "fill_mask",
    "finetune",
    "predict",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name == "analysis":  # a package, so that smilex.analysis.X works after `import smilex`
        return import_module("smilex.analysis")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'smilex' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "analysis"})
