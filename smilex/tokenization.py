"""SMILES as tokens: atoms, bonds, ring closures and branches, over a vocabulary that is fixed, closed and complete."""

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from smilex.chem import Owner, align
from smilex.writing import write_text

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

MAX_TOKENS = 512
"""Longest sequence, special tokens included, that the models are made for."""

# The last line has the provisional names of elements 110 to 118, which RDKit still reads.
_ELEMENTS = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr
Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu
Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr
Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
Uun Uuu Uub Uut Uuq Uup Uuh Uus Uuo
"""
_AROMATIC = ["b", "c", "n", "o", "p", "s", "si", "as", "se", "te"]

_SYNTAX = [
    *"-=#$:/\\~.()*?>",  # bonds, dots, branches, wildcards, reactions
    *["->", "<-", ">>"],
    *"[]+@",  # inside brackets
    *["++", "--", "@@"],
    *"0123456789",  # ring closures; inside brackets also isotopes, counts, charges and classes
    *(f"%{number}" for number in range(10, 100)),
    *["%", "%("],  # with digits and a parenthesis, any higher ring closure
]
_CHIRALITY = [
    f"@{kind}{number}"
    for kind, classes in {"TH": 2, "AL": 2, "SP": 3, "TB": 20, "OH": 30}.items()
    for number in ["", *range(1, classes + 1)]
]

# The bracket atoms that real molecules have most: counted over RDKit's NCI file, MoleculeNet and ChEMBL, as given,
# in RDKit's canonical form and in a random one. Every other bracket atom is written by its symbols.
_COMMON_BRACKET_ATOMS = """
[C@H] [C@@H] [C@] [C@@] [N@] [N@@] [N@+] [N@@+] [N@H+] [N@@H+] [S@] [S@@] [S@+] [S@@+] [P@] [P@@]
[nH] [n+] [nH+] [n-] [n] [o+] [s+] [c] [c-] [cH-] [b-] [se] [te] [si] [as]
[N+] [NH+] [NH2+] [NH3+] [NH4+] [N-] [NH-] [N] [NH] [NH2]
[O-] [OH-] [O+] [OH+] [O-2] [O] [OH] [S-] [SH-] [S-2] [S+] [SH+] [S] [SH] [Se] [SeH] [Se-] [Se+] [Te]
[C] [C-] [C+] [CH] [CH-] [CH+] [CH2] [CH2-] [CH3] [B-] [BH-] [B] [BH] [P+] [PH+] [P-] [P] [PH]
[Si] [SiH] [SiH2] [SiH3] [Ge] [Sn] [Pb] [As] [As+] [Sb] [Bi]
[F-] [Cl-] [Br-] [I-] [F] [Cl] [Br] [I] [I+] [Cl+3] [H] [H+] [H-] [2H] [3H] [18F] [11C] [13C] [14C] [125I]
[Li] [Li+] [Na] [Na+] [NaH] [K] [K+] [KH] [Rb+] [Cs+] [Mg] [Mg+2] [Ca] [Ca+2] [Sr+2] [Ba] [Ba+2] [Al] [Al+3]
[Ti] [Ti+4] [V] [Cr] [Cr+3] [Mn] [Mn+2] [Mn+3] [Fe] [Fe+2] [Fe+3] [Fe-2] [Co] [Co+] [Co+2] [Co+3] [Co-4]
[Ni] [Ni+2] [Ni-2] [Cu] [Cu+] [Cu+2] [Cu-3] [Zn] [Zn+2] [Zn-2] [Zr] [Mo] [Ru] [Ru+2] [Rh] [Pd] [Pd+2] [Pd-2]
[Ag] [Ag+] [Cd] [Cd+2] [In] [W] [Ir] [Pt] [Pt+2] [Pt-2] [Au] [Hg] [Hg+2] [Tl] [Gd+3]
"""

# The order is part of every saved model: new tokens only ever go to the end.
VOCABULARY = tuple(
    dict.fromkeys(
        chain(SPECIAL_TOKENS, _SYNTAX, _ELEMENTS.split(), _AROMATIC, _CHIRALITY, _COMMON_BRACKET_ATOMS.split())
    )
)

_PIECES = Regex(r"\[[^\[\]]+\]|Br|Cl|%\(\d+\)|%\d\d|->|<-|>>|.")
# A piece longer than this is given up as unknown; no bracket atom comes near it.
_MAX_PIECE_LENGTH = 200


_IDS = {token: index for index, token in enumerate(VOCABULARY)}


def _build(ids: dict[str, int]) -> Tokenizer:
    """Assemble the Rust tokenizer: cut into pieces, then match each piece greedily against the vocabulary."""
    tokenizer = Tokenizer(
        models.WordPiece(
            ids, unk_token=SPECIAL_TOKENS[1], continuing_subword_prefix="", max_input_chars_per_word=_MAX_PIECE_LENGTH
        )
    )
    tokenizer.normalizer = normalizers.Strip()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(_PIECES, behavior="isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


class SmilesTokenizer(PreTrainedTokenizerFast):
    """A transformers tokenizer for SMILES whose vocabulary is fixed, closed and complete.

    An atom, a bond symbol, a ring closure and a parenthesis are one token each [1]_. A bracket atom is one token where
    it is common, such as ``[C@@H]`` or ``[nH]``; every other one is written by its symbols: element, isotope digits,
    chirality class, hydrogen count, charge and atom class. So no SMILES has an unknown token, and decoding gives
    the string back. A string that is no SMILES may give ``[UNK]``; see `align_tokens` and `smilex.chem.parse` for an
    error that says why. Blanks around a string are dropped.

    ``[PAD]``, ``[UNK]``, ``[CLS]``, ``[SEP]`` and ``[MASK]`` have ids 0 to 4. A saved tokenizer is loaded
    by ``transformers.AutoTokenizer`` too, without smilex.

    Parameters
    ----------
    vocab : dict of str to int, optional
        Ids of the tokens; transformers hands in those of a saved tokenizer. By default those of `VOCABULARY`.
    **kwargs
        As for `transformers.PreTrainedTokenizerFast`.

    References
    ----------
    .. [1] Schwaller et al., ACS Cent. Sci. 2019, 5, 1572. https://doi.org/10.1021/acscentsci.9b00576

    Examples
    --------
    >>> tok = SmilesTokenizer()
    >>> tok.tokenize("C[C@H](Br)C%11[13CH2]C%11")
    ['C', '[C@H]', '(', 'Br', ')', 'C', '%11', '[', '1', '3', 'C', 'H', '2', ']', 'C', '%11']
    >>> tok.decode(tok("CCO").input_ids)
    '[CLS]CCO[SEP]'
    """

    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 (transformers' own attribute)

    def __init__(self, vocab: dict[str, int] | None = None, **kwargs: Any) -> None:
        kwargs["tokenizer_object"] = _build(_IDS if vocab is None else vocab)
        for token in SPECIAL_TOKENS:
            kwargs.setdefault(f"{token[1:-1].lower()}_token", token)
        kwargs.setdefault("model_max_length", MAX_TOKENS)
        kwargs.setdefault("clean_up_tokenization_spaces", False)
        kwargs.setdefault("padding_side", "right")
        super().__init__(**kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Save as `transformers.PreTrainedTokenizerFast.save_pretrained` does, for loading with or without smilex."""
        files = super().save_pretrained(save_directory, *args, **kwargs)
        path = next(Path(file) for file in files if file.endswith("tokenizer_config.json"))
        # The class name that transformers writes is ours, which AutoTokenizer cannot know.
        config = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
        write_text(path, json.dumps(config, indent=2, sort_keys=True) + "\n")
        return files


def align_tokens(smiles: str) -> list[Owner]:
    """Say for each token of a SMILES which atom or bond of ``Chem.MolFromSmiles(smiles)`` it writes.

    Parameters
    ----------
    smiles : str
        One molecule.

    Returns
    -------
    list of int, tuple of (int, int), or None
        One entry per token of ``SmilesTokenizer().tokenize(smiles)``, without special tokens: an atom index; for bond
        symbols and ring closures the two atom indices of the bond, the smaller one first; None for
        parentheses, dots, and hydrogen atoms that RDKit drops. See `smilex.chem.align`.

    Raises
    ------
    InvalidSmilesError
        If RDKit does not accept the string, with its reason.

    Examples
    --------
    >>> align_tokens("C=CO")
    [0, (0, 1), 1, 2]
    """
    owners = align(smiles)
    return [owners[start] for start, _ in _TOKENIZER.encode(smiles, add_special_tokens=False).offsets]


_TOKENIZER = _build(_IDS)
