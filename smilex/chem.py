"""Molecules: parsing with reasons, standard forms, other ways of writing, scaffolds, and who wrote which character.

Everything here wraps RDKit. Its log is captured: what it says about a string becomes the reason of an
`InvalidSmilesError`, and nothing reaches the terminal.
"""

import re
import threading
from collections.abc import Iterator

from rdkit import Chem, rdBase
from rdkit.Chem.MolStandardize import rdMolStandardize
from rdkit.Chem.Scaffolds import MurckoScaffold

from smilex.checks import count
from smilex.errors import InvalidSmilesError

MAX_SMILES_LENGTH = 5000
"""Longest SMILES that is parsed, in characters. RDKit writes SMILES by recursion and overflows the stack
(a crash, no exception) from some 20 000 atoms on."""

Owner = int | tuple[int, int] | None
"""What a piece of a SMILES string writes: an atom index, the two atom indices of a bond, or nothing."""

# RDKit's log switches belong to the whole process: without the lock, one thread would turn them on under another.
_log_lock = threading.RLock()

_LOG_TIME = re.compile(r"^\[\d\d:\d\d:\d\d\] *")
_LOG_TAIL = re.compile(r"( for input: '.*| while parsing: .*)$")
_BROKEN_RULE = re.compile(r"Violation\n(.+)\n")  # how RDKit reports what its authors did not foresee
_POSITION = re.compile(r"check for mistakes around position (\d+)")

_PIECE = re.compile(
    r"(?P<atom>\[[^\]]*\]|Br|Cl|[BCNOPSFIbcnops*])"
    r"|(?P<bond>->|<-|\\\\|[-=#$:/\\~])"
    r"|(?P<ring>%\(\d+\)|%\d\d|\d)"
    r"|(?P<other>[().])"
)


def parse(smiles: str) -> Chem.Mol:
    """Read a SMILES string, or say why it is no molecule.

    Blanks around the string are dropped, as many published tables have them.

    Parameters
    ----------
    smiles : str
        One molecule as SMILES, at most `MAX_SMILES_LENGTH` characters. A name after a blank is refused, not dropped.

    Returns
    -------
    rdkit.Chem.Mol
        The molecule, sanitized, as ``Chem.MolFromSmiles`` gives it.

    Raises
    ------
    InvalidSmilesError
        With RDKit's reason in one short line, for anything that is not the SMILES of a molecule.

    Examples
    --------
    >>> parse("CCO").GetNumAtoms()
    3
    >>> parse("C1CC")
    Traceback (most recent call last):
    smilex.errors.InvalidSmilesError: invalid SMILES 'C1CC': unclosed ring
    >>> parse("c1cccc1")
    Traceback (most recent call last):
    smilex.errors.InvalidSmilesError: invalid SMILES 'c1cccc1': can't kekulize mol.  Unkekulized atoms: 0 1 2 3 4
    """
    text = _clean(smiles)
    with _log_lock, rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(text)
        if mol is None:  # once more, listening: that is slower, and most strings are molecules
            with rdBase.CaptureErrorLog() as log:
                Chem.MolFromSmiles(text)
            raise InvalidSmilesError(smiles, _reason(log.messages))
    return mol


def _clean(smiles: str) -> str:
    """Strip a string and refuse what RDKit would crash on or read as something else."""
    if not isinstance(smiles, str):
        raise InvalidSmilesError(str(smiles), f"not a string but {type(smiles).__name__}")
    text = smiles.strip()
    if not text:
        raise InvalidSmilesError(smiles, "empty string")
    if len(text) > MAX_SMILES_LENGTH:
        reason = f"{len(text)} characters long, the limit is {MAX_SMILES_LENGTH}"
        raise InvalidSmilesError(smiles, reason)
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    position, character = next((i, c) for i, c in enumerate(text, start=1) if not "!" <= c <= "~")
    if character.isspace():
        reason = f"text after a blank at position {position}; give the SMILES alone, without a name"
    else:
        kind = "control" if character.isascii() else "non-ASCII"
        reason = f"{kind} character {character!a} at position {position}"
    raise InvalidSmilesError(smiles, reason)


def _reason(messages: str) -> str:
    """Make one short line of RDKit's log lines about one string."""
    broken = _BROKEN_RULE.search(messages)
    first = broken[1] if broken else _LOG_TIME.sub("", messages.partition("\n")[0])
    reason = _LOG_TAIL.sub("", first.removeprefix("SMILES Parse Error: ")).strip()
    if not reason:
        return "RDKit refuses it and gives no reason"
    position = _POSITION.search(messages)
    if position:
        reason += f" at position {position[1]}"
    return reason[0].lower() + reason[1:]


def standardize(mol: Chem.Mol, *, neutralize: bool = False) -> Chem.Mol:
    """Keep the largest fragment of a molecule and, only when asked, take away its charges.

    Parameters
    ----------
    mol : rdkit.Chem.Mol
        The molecule; it is not changed.
    neutralize : bool, default False
        Add or remove protons until charges are gone where that is possible.

    Returns
    -------
    rdkit.Chem.Mol
        A new molecule.

    Examples
    --------
    >>> Chem.MolToSmiles(standardize(parse("CC(=O)[O-].[Na+]")))
    'CC(=O)[O-]'
    >>> Chem.MolToSmiles(standardize(parse("CC(=O)[O-].[Na+]"), neutralize=True))
    'CC(=O)O'
    """
    with _log_lock, rdBase.BlockLogs():
        largest = rdMolStandardize.LargestFragmentChooser().choose(mol)
        return rdMolStandardize.Uncharger().uncharge(largest) if neutralize else largest


def canonicalize(smiles: str) -> str:
    """Write a molecule in RDKit's canonical way, with stereochemistry and isotopes; nothing is standardized.

    Parameters
    ----------
    smiles : str
        As for `parse`.

    Returns
    -------
    str
        The canonical isomeric SMILES.

    Raises
    ------
    InvalidSmilesError
        As `parse`.

    Examples
    --------
    >>> canonicalize("OCC")
    'CCO'
    """
    mol = parse(smiles)
    with _log_lock, rdBase.BlockLogs():
        return Chem.MolToSmiles(mol)


def enumerate_smiles(smiles: str, n: int, seed: int = 0) -> list[str]:
    """Write a molecule in `n` random ways.

    Parameters
    ----------
    smiles : str
        As for `parse`.
    n : int
        How many strings; small molecules have few ways to be written, so that strings repeat.
    seed : int, default 0
        The same seed gives the same strings on each call; taken modulo 2**31 - 1.

    Returns
    -------
    list of str
        `n` SMILES of the same molecule.

    Raises
    ------
    InvalidSmilesError
        As `parse`.
    SmilexError
        If `n` is negative or no whole number.

    Examples
    --------
    >>> {canonicalize(s) for s in enumerate_smiles("CCO", 10)}
    {'CCO'}
    """
    n = count("n", n, at_least=0)
    mol = parse(smiles)
    with _log_lock, rdBase.BlockLogs():
        return list[str](Chem.MolToRandomSmilesVect(mol, n, randomSeed=seed % (2**31 - 1) + 1))


def murcko_scaffold(smiles_or_mol: str | Chem.Mol, *, include_chirality: bool = False) -> str:
    """Give the Bemis-Murcko scaffold: rings and the linkers between them [1]_.

    The string is the one by which DeepChem's ``ScaffoldSplitter`` groups molecules.

    Parameters
    ----------
    smiles_or_mol : str or rdkit.Chem.Mol
        A molecule.
    include_chirality : bool, default False
        Keep the stereochemistry of the scaffold.

    Returns
    -------
    str
        Canonical SMILES of the scaffold; empty for a molecule without rings.

    Raises
    ------
    InvalidSmilesError
        As `parse`, where a string was given.

    References
    ----------
    .. [1] Bemis, Murcko, J. Med. Chem. 1996, 39, 2887. https://doi.org/10.1021/jm9602928

    Examples
    --------
    >>> murcko_scaffold("CC(=O)Oc1ccccc1C(=O)O")
    'c1ccccc1'
    """
    mol = smiles_or_mol if isinstance(smiles_or_mol, Chem.Mol) else parse(smiles_or_mol)
    with _log_lock, rdBase.BlockLogs():
        return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=include_chirality)


# Atoms of functional groups: heteroatoms outside aromatic rings, carbons with a double or triple bond, acetal carbons,
# and carbons of three-membered rings with a heteroatom. Those that hang together are one group.
_FUNCTIONAL_ATOM = Chem.MolFromSmarts(
    "[$([!#6;!#1;!a]),$([#6]=[*]),$([#6]#[*]),$([CX4]([O,N,S])[O,N,S]),$([#6]1[#6][O,N,S]1)]"
)


def chemical_groups(mol: Chem.Mol) -> list[frozenset[int]]:
    """Find the functional groups [1]_ and the rings of a molecule.

    Parameters
    ----------
    mol : rdkit.Chem.Mol
        The molecule.

    Returns
    -------
    list of frozenset of int
        Atom indices of each group, in the order of their first atoms: the functional groups, then the rings of RDKit's
        smallest set. A ring may share atoms with others and with functional groups.

    References
    ----------
    .. [1] Ertl, J. Cheminform. 2017, 9, 36. https://doi.org/10.1186/s13321-017-0225-z

    Examples
    --------
    >>> [sorted(group) for group in chemical_groups(parse("CC(=O)Oc1ccccc1"))]
    [[1, 2, 3], [4, 5, 6, 7, 8, 9]]
    """
    functional = {atom for (atom,) in mol.GetSubstructMatches(_FUNCTIONAL_ATOM, maxMatches=mol.GetNumAtoms() + 1)}
    groups = []
    for first in sorted(functional):
        if first not in functional:
            continue
        functional.remove(first)
        group, border = {first}, [first]
        while border:
            neighbours = {atom.GetIdx() for atom in mol.GetAtomWithIdx(border.pop()).GetNeighbors()} & functional
            functional -= neighbours
            group |= neighbours
            border.extend(neighbours)
        groups.append(frozenset(group))
    rings = sorted(map(sorted, mol.GetRingInfo().AtomRings()))
    return groups + [frozenset(ring) for ring in rings]


def align(smiles: str) -> list[Owner]:
    """Say for each character of a SMILES which atom or bond of ``Chem.MolFromSmiles(smiles)`` it writes.

    Parameters
    ----------
    smiles : str
        As for `parse`.

    Returns
    -------
    list of int, tuple of (int, int), or None
        One entry per character. All characters of an atom (a bracket atom from ``[`` to ``]``) have its index. Bond
        symbols and ring-closure numbers, opening and closing, have the two atom indices of their bond, the smaller
        one first. Parentheses, dots, blanks, and hydrogen atoms that RDKit drops together with their bonds have None.

    Raises
    ------
    InvalidSmilesError
        As `parse`.

    Examples
    --------
    >>> align("C=CCl")
    [0, (0, 1), 1, 2, 2]
    >>> align("C1CC1.O")
    [0, (0, 2), 1, 2, (0, 2), None, 3]
    """
    index = _atom_indices(smiles)
    text = smiles.strip()
    owners: list[Owner] = [None] * len(smiles)
    offset = len(smiles) - len(smiles.lstrip())
    for start, end, written in _walk(text):
        if isinstance(written, tuple):
            first, second = sorted(index[atom] for atom in written)
            owner: Owner = (first, second) if first >= 0 else None
        else:
            owner = index[written] if index[written] >= 0 else None
        owners[offset + start : offset + end] = [owner] * (end - start)
    return owners


def _atom_indices(smiles: str) -> list[int]:
    """Give, for each atom in the order of writing, its index in the parsed molecule; -1 where RDKit drops it."""
    mol = parse(smiles)
    with _log_lock, rdBase.BlockLogs():
        written = Chem.MolFromSmiles(smiles.strip(), sanitize=False)
        count = written.GetNumAtoms()
        if count == mol.GetNumAtoms():
            return list(range(count))
        for atom in written.GetAtoms():
            atom.SetIntProp("written", atom.GetIdx())
        # This is the very step with which RDKit's parser ends.
        kept = Chem.RemoveHs(written, implicitOnly=False, updateExplicitCount=True)
    indices = [-1] * count
    for atom in kept.GetAtoms():
        indices[atom.GetIntProp("written")] = atom.GetIdx()
    return indices


def _walk(text: str) -> Iterator[tuple[int, int, int | tuple[int, int]]]:
    """Read a valid SMILES; yield start, end and the atom or bond written there, atoms counted in order of writing."""
    atoms = 0
    previous = -1
    branches: list[int] = []
    rings: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    symbols: list[tuple[int, int]] = []  # spans of the bond symbol whose far end is not read yet
    for match in _PIECE.finditer(text):
        span, piece = match.span(), match[0]
        if match.lastgroup == "atom":
            yield *span, atoms
            yield from ((*symbol, (previous, atoms)) for symbol in symbols)
            previous, atoms, symbols = atoms, atoms + 1, []
        elif match.lastgroup == "bond":
            symbols = [span]
        elif match.lastgroup == "ring":
            number = int(piece.strip("%()"))
            spans = [*symbols, span]
            symbols = []
            if number in rings:
                partner, opening = rings.pop(number)
                yield from ((*ring_span, (partner, previous)) for ring_span in [*opening, *spans])
            else:
                rings[number] = (previous, spans)
        elif piece == "(":
            branches.append(previous)
        elif piece == ")":
            previous = branches.pop()
