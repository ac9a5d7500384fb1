"""The errors that smilex raises for input it cannot use.

Every message is one line that says what is wrong and what to do about it; the command line prints it and exits.
"""


class SmilexError(ValueError):
    """Input, settings or files that smilex cannot use."""


class OneProcessError(SmilexError):
    """What one of several processes that train together ran into, and the others cannot tell."""


class InvalidSmilesError(SmilexError):
    """A string that RDKit does not accept as a molecule.

    Parameters
    ----------
    smiles : str
        The string, as given.
    reason : str
        What RDKit said about it.

    Examples
    --------
    >>> str(InvalidSmilesError("C1CC", "unclosed ring"))
    "invalid SMILES 'C1CC': unclosed ring"
    """

    def __init__(self, smiles: str, reason: str) -> None:
        shown = smiles if len(smiles) <= 80 else f"{smiles[:77]}..."
        super().__init__(f"invalid SMILES {shown!r}: {reason}")
        self.smiles = smiles
        self.reason = reason

    def __reduce__(self) -> tuple[type["InvalidSmilesError"], tuple[str, str]]:
        # The default would call the constructor with the message alone, which breaks it in worker processes.
        return type(self), (self.smiles, self.reason)
