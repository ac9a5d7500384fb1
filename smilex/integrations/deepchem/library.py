"""DeepChem itself, imported without its messages, or an error that says how to get it."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Hold back what is printed, logged and warned of.

    Examples
    --------
    >>> with silence():
    ...     print("no module named jax")
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        logging.disable(level)


try:
    with silence():
        import deepchem
except ImportError as error:
    raise ImportError(
        f"smilex.integrations.deepchem needs DeepChem ({error}): pip install 'smilex[deepchem]', with Python < 3.12, "
        "the newest that DeepChem 2.8 supports",
        name="deepchem",
    ) from error

__all__ = ["deepchem", "silence"]
