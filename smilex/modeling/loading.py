"""Loading what smilex saved, with errors that say what is wrong with a directory."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from packaging.version import InvalidVersion, Version
from safetensors import SafetensorError
from transformers.utils import logging

import smilex
from smilex.errors import SmilexError
from smilex.modeling.config import ExLMConfig
from smilex.modeling.encoder import ExLMModel, ExLMPreTrainedModel
from smilex.modeling.masked_lm import ExLMForMaskedLM
from smilex.modeling.molecule_property import ExLMForMoleculeProperty
from smilex.tokenization import SmilesTokenizer

Model = TypeVar("Model", bound=ExLMPreTrainedModel)

SHIPPED = Path(smilex.__file__).parent / "pretrained"
"""Directory of the encoders that ship with the package."""

_HEADS: dict[type[ExLMPreTrainedModel], str] = {
    ExLMForMoleculeProperty: "fine-tune it first with smilex finetune",
    ExLMForMaskedLM: "name a directory that smilex pretrain wrote with the objective exlm or mlm",
}
"""Where the head of a model comes from, for a directory that holds an encoder without it."""

# What transformers and torch raise when a configuration makes no model, or the weights are not whole.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, SafetensorError, TypeError, ValueError)


def find_encoder(encoder: str | Path) -> Path:
    """Directory of an encoder: one that exists, or one that ships with the package under this name.

    Raises
    ------
    SmilexError
        If it is neither; the message lists those that ship.
    """
    if not isinstance(encoder, str | os.PathLike):
        raise SmilexError(f"encoder is a directory or a name, not {encoder!r}")
    for path in (Path(encoder), SHIPPED / encoder):
        if is_directory(path):
            return path
    names = sorted(path.name for path in SHIPPED.iterdir()) if SHIPPED.is_dir() else []
    raise SmilexError(
        f"no encoder {str(encoder)[:100]!r}: it is no directory, and this version ships {', '.join(names) or 'none'}; "
        "make one with smilex pretrain and pass encoder=DIRECTORY"
    )


def is_directory(path: Path) -> bool:
    """Whether this is a directory; a name that no file can have is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the messages and progress bars of transformers off the terminal."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_config(directory: str | Path) -> ExLMConfig:
    """Read the configuration of a saved model.

    Parameters
    ----------
    directory : str or Path
        Where `smilex.pretrain` or `save_pretrained` wrote a model.

    Raises
    ------
    SmilexError
        If there is no such directory, it holds no ExLM model, or a newer version of smilex wrote it.
    """
    path = Path(directory)
    if not is_directory(path):
        raise SmilexError(f"no model at {str(path)[:100]!r}: there is no such directory")
    try:
        content = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SmilexError(f"{path} is not a model directory: it has no config.json{_way_out(path)}") from None
    except (OSError, ValueError) as error:
        raise SmilexError(f"cannot read {path / 'config.json'}: {error}") from error
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind != ExLMConfig.model_type:
        raise SmilexError(
            f"{path} holds a model of type {kind!r}, not {ExLMConfig.model_type!r}: smilex did not write it"
        )
    _check_version(path, str(content.get("smilex_version", "0")))
    _check_types(path, content)
    try:
        with quiet_transformers():
            return ExLMConfig.from_pretrained(path)
    except _DAMAGE as error:
        raise SmilexError(f"{path / 'config.json'} is damaged: {_first_line(error)}") from error


def _way_out(directory: Path) -> str:
    """Say what to do about a directory that holds no model itself."""
    inside = sorted(directory.glob("*/config.json"))
    if inside:
        return f"; did you mean {inside[0].parent}?"
    if (directory / "settings.json").is_file():
        return ", as the run in it did not finish: run the same command to its end first"
    return "; name one that smilex pretrain or smilex finetune wrote"


def _check_version(path: Path, written_by: str) -> None:
    try:
        newer = Version(written_by) > Version(smilex.__version__)
    except InvalidVersion:
        raise SmilexError(f"{path} was written by smilex {written_by!r}, which is no version") from None
    if newer:
        raise SmilexError(
            f"{path} was written by smilex {written_by}, this is {smilex.__version__}: pip install --upgrade smilex"
        )


def _check_types(path: Path, content: dict[str, Any]) -> None:
    """Refuse values of another type than the default, which would fail somewhere deep inside."""
    for name in ExLMConfig.__annotations__:
        default = getattr(ExLMConfig, name)
        value = content.get(name, default)
        if not isinstance(value, int | float if isinstance(default, float) else type(default)):
            raise SmilexError(f"{path / 'config.json'} is damaged: {name} is {value!r}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def load_model(
    model_class: type[Model], directory: str | Path, *, config: ExLMConfig | None = None, new_heads: bool = False
) -> Model:
    """Load a model in eval mode, in float32 whatever precision its weights were saved in.

    Parameters
    ----------
    model_class : type
        The class to load the weights into.
    directory : str or Path
        Where the model was saved.
    config : ExLMConfig, optional
        Configuration to use instead of the saved one.
    new_heads : bool, default False
        Whether weights outside the encoder may start anew, where the directory lacks them or has them in another
        shape.

    Raises
    ------
    SmilexError
        If the directory is no such model, or lacks weights that `model_class` needs.
    """
    saved = load_config(directory)
    try:
        with quiet_transformers():
            loaded = model_class.from_pretrained(
                directory,
                config=config or saved,
                ignore_mismatched_sizes=True,  # we look at them below
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,  # never a pickle
                dtype=torch.float32,  # weights may be saved in half precision, for size
            )
    except _DAMAGE as error:
        raise SmilexError(f"cannot load the weights in {directory}: {_first_line(error)}") from error
    model, found = cast("tuple[Model, dict[str, Any]]", loaded)
    lacking = sorted({*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])})
    if new_heads and model.base_model is not model:
        lacking = [name for name in lacking if name.startswith(f"{model.base_model_prefix}.")]
    if lacking:
        shown = ", ".join(lacking[:3])
        whole_encoder = not any(name.startswith(f"{model.base_model_prefix}.") for name in lacking)
        way_out = f"; {_HEADS[model_class]}" if whole_encoder and model_class in _HEADS else ""
        name = model_class.__name__
        raise SmilexError(f"{directory} was not saved as {name}: it lacks {shown}, or has it in another shape{way_out}")
    return model.eval()


def starting_config(source: Path | None, size: str | None, **fields: Any) -> ExLMConfig:
    """Configure a new model: that of the encoder in `source`, or of a preset size where there is none.

    Parameters
    ----------
    source : Path or None
        Directory of a saved model.
    size : str or None
        Name of a preset, without a `source`; None is "small".
    **fields
        What to set besides.

    Raises
    ------
    SmilexError
        If there are both an encoder and a size, of which one would have no effect, or either cannot be used.

    Examples
    --------
    >>> starting_config(None, "tiny").hidden_size, starting_config(None, None).hidden_size
    (128, 256)
    >>> starting_config(Path("runs/encoder"), "base")
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: model='base' is the size of a new encoder, and encoder has its own: pass encoder=None \
    to start from scratch, or leave model out
    """
    if source is None:
        return ExLMConfig.from_preset("small" if size is None else size, vocab_size=len(SmilesTokenizer()), **fields)
    if size is not None:
        raise SmilexError(
            f"model={size!r} is the size of a new encoder, and encoder has its own: pass encoder=None to start from "
            "scratch, or leave model out"
        )
    return ExLMConfig(**{**load_config(source).own_fields(), "smilex_version": smilex.__version__, **fields})


def property_network(config: ExLMConfig, source: Path | None) -> ExLMForMoleculeProperty:
    """Make a model with a new head on a new encoder, or on the one in `source`."""
    network = ExLMForMoleculeProperty(config)
    if source is not None:
        network.exlm.load_state_dict(load_model(ExLMModel, source).state_dict())
    return network
