"""Settings that must be of a type and in a range, also those that files and searches give."""

import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from smilex.errors import SmilexError


def count(name: str, value: object, at_least: int = 1) -> int:
    """Return a setting that counts something or is a seed, also one of numpy, as a plain int.

    Raises
    ------
    SmilexError
        If it is no whole number, or below `at_least`.

    Examples
    --------
    >>> import numpy as np
    >>> count("seeds", np.int64(3))
    3
    >>> count("seeds", "3")
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: seeds must be a whole number, not '3'
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise SmilexError(f"{name} must be a whole number, not {value!r}")
    if value < at_least:
        raise SmilexError(f"{name} must be at least {at_least}, not {value}")
    return int(value)


def number(name: str, value: object) -> float:
    """Return a setting that is any number, also one of numpy, as a plain float.

    Raises
    ------
    SmilexError
        If it is no number.

    Examples
    --------
    >>> import numpy as np
    >>> number("learning_rate", np.float64(0.5))
    0.5
    >>> number("learning_rate", None)
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: learning_rate must be a number, not None
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise SmilexError(f"{name} must be a number, not {value!r}")
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Return a setting that is on or off, also one of numpy, as a plain bool.

    Raises
    ------
    SmilexError
        If it is neither: the text "no" would count as on.

    Examples
    --------
    >>> import numpy as np
    >>> switch("random_smiles", np.True_)
    True
    >>> switch("random_smiles", "no")
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: random_smiles must be True or False, not 'no'
    """
    plain = value.item() if getattr(value, "shape", None) == () else value
    if not isinstance(plain, bool):
        raise SmilexError(f"{name} must be True or False, not {value!r}")
    return plain


def folder(name: str, value: object) -> Path:
    """Return a setting that names a directory, which need not exist, as a path.

    Raises
    ------
    SmilexError
        If it is no name.

    Examples
    --------
    >>> folder("output_dir", "runs/encoder").name
    'encoder'
    >>> folder("output_dir", None)
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: output_dir must be a directory, not None
    """
    if not isinstance(value, str | os.PathLike):
        raise SmilexError(f"{name} must be a directory, not {value!r}")
    return Path(value)
