"""The header of a table: which column holds the SMILES, and what may be wrong with the names."""

from collections.abc import Iterable, Sequence

from smilex.errors import SmilexError

COLUMN_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "smi", "mol")
"""Names, in any case, under which a column (or the first line of a .smi file) is known to hold SMILES."""

SEPARATORS = {",": "','", ";": "';'", "\t": "tabs"}
"""What may stand between the cells of a text file, and how a message calls it."""


def column_names(names: Iterable[str], limit: int = 12) -> str:
    """Return names as they are listed in a message, the first ones of many.

    Examples
    --------
    >>> column_names(["a", "b"])
    "'a', 'b'"
    >>> column_names("abcd", limit=2)
    "'a', 'b' and 2 more"
    """
    shown = list(names)
    text = ", ".join(map(repr, shown[:limit]))
    return text if len(shown) <= limit else f"{text} and {len(shown) - limit} more"


def may_hold_smiles(column: str, smiles_column: str | None = None) -> bool:
    """Whether a column is the one asked for or, where none was, has a name that is known to hold SMILES.

    Examples
    --------
    >>> may_hold_smiles(" SMILES"), may_hold_smiles("smiles", "product")
    (True, False)
    """
    return column.strip().lower() in COLUMN_NAMES if smiles_column is None else column == smiles_column


def pick_column(columns: Iterable[str], smiles_column: str | None) -> str:
    """Return the name of the column that holds SMILES.

    Parameters
    ----------
    columns : iterable of str
        The header.
    smiles_column : str or None
        The column asked for, to the letter. None: the one called "smiles", or else the one with another of
        `COLUMN_NAMES`, in any case and with blanks around it.

    Raises
    ------
    SmilexError
        The column asked for is not there; none was asked for and none has a fitting name; or more than one fits.

    Examples
    --------
    >>> pick_column(["id", "SMILES"], None)
    'SMILES'
    """
    columns = list(columns)
    there = f"the columns are: {column_names(columns)}"
    fitting = [column for column in columns if may_hold_smiles(column, smiles_column)]
    if smiles_column is not None:
        if not fitting:
            raise SmilexError(f"no column is called {smiles_column!r} (smiles_column); {there}")
        if len(fitting) > 1:
            raise SmilexError(f"several columns are called {smiles_column!r} (smiles_column): rename all but one")
        return smiles_column
    fitting = [column for column in fitting if column.strip().lower() == COLUMN_NAMES[0]] or fitting
    if len(fitting) != 1:
        found = "several columns may hold" if fitting else "no column is known to hold"
        raise SmilexError(f"{found} SMILES: name one with smiles_column; {there}")
    return fitting[0]


def check_separator(columns: Sequence[str], separator: str, smiles_column: str | None = None) -> None:
    r"""Refuse a header whose cells are separated by something else than its file's suffix says.

    Such a table is not guessed at: where cells are separated by semicolons, numbers often have decimal commas.

    Raises
    ------
    SmilexError
        No column may hold SMILES, but one would at another separator, or the one column there is has another in it.

    Examples
    --------
    >>> check_separator(["smiles;y"], ",")
    Traceback (most recent call last):
    ...
    smilex.errors.SmilexError: its cells look separated by ';', not by ',': save it with ',' as .csv or tabs as .tsv
    """
    if any(may_hold_smiles(column, smiles_column) for column in columns):
        return
    for other, found in SEPARATORS.items():
        pieces = [piece for column in columns if other in column for piece in column.split(other)]
        if other != separator and pieces and (len(columns) == 1 or any(map(may_hold_smiles, pieces))):
            raise SmilexError(
                f"its cells look separated by {found}, not by {SEPARATORS[separator]}: "
                "save it with ',' as .csv or tabs as .tsv"
            )
