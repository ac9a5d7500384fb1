"""What each atom of a molecule adds to a prediction: what the prediction loses when the atom is masked."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from smilex.chem import parse
from smilex.data.rows import encode_rows
from smilex.errors import SmilexError
from smilex.prediction import check_alike, load_predictor, model_directories, task_names
from smilex.tokenization import SmilesTokenizer, align_tokens

_RAISES, _LOWERS = (0.0, 0.447, 0.698), (0.835, 0.369, 0.0)  # Okabe and Ito's blue and vermilion, for colour-blind eyes


@dataclass(frozen=True)
class Attribution:
    """What each atom adds to a prediction.

    Attributes
    ----------
    smiles : str
        The molecule, as given.
    task : str
        What is predicted.
    atom_values : float64 array, shape (n_atoms,)
        For each atom of ``Chem.MolFromSmiles(smiles)``, in its order: what it adds, in the units of the prediction;
        with several seeds the mean over them.
    atom_sd : float64 array, shape (n_atoms,), or None
        Sample standard deviation over the seeds; None for one model.
    prediction : float
        For the whole molecule.
    """

    smiles: str
    task: str
    atom_values: NDArray[np.float64]
    atom_sd: NDArray[np.float64] | None
    prediction: float

    def draw(self, width: int = 400, height: int = 300) -> str:
        """Draw the molecule with its atoms coloured: blue ones raise the prediction, orange ones lower it.

        Parameters
        ----------
        width, height : int, default 400 and 300
            Size in pixels.

        Returns
        -------
        str
            An SVG. The atom of the largest absolute value has the full colour.
        """
        strongest = float(np.abs(self.atom_values).max()) or 1.0
        colours = {atom: _colour(value / strongest) for atom, value in enumerate(self.atom_values.tolist())}
        drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
        drawer.drawOptions().useBWAtomPalette()
        rdMolDraw2D.PrepareAndDrawMolecule(
            drawer,
            parse(self.smiles),
            legend=f"{self.task}: {self.prediction:.3g}",
            highlightAtoms=list(colours),
            highlightAtomColors=colours,
            highlightBonds=[],
        )
        drawer.FinishDrawing()
        return str(drawer.GetDrawingText())

    def _repr_svg_(self) -> str:
        """Show the drawing in a notebook."""
        return self.draw()


def attribute(model_dir: str | Path, smiles: str, task: str | None = None) -> Attribution:
    """Say what each atom of a molecule adds to a prediction, by occlusion [1]_.

    An atom's value is the prediction for the molecule, less the prediction for the molecule with [MASK] in the atom's
    place; bonds, ring closures and parentheses stay as they are. It is thus relative to an unknown atom, so that the
    values need not add up to the prediction. It tells what the model reads, which need not be what causes the property.

    Parameters
    ----------
    model_dir : str or Path
        What `smilex.finetune` wrote, with any head. With models of several seeds the values are their mean.
    smiles : str
        One molecule. As in `smilex.predict`, the models read its canonical SMILES, so that values belong to atoms,
        however the molecule is written. That is also the only SMILES that is looked at where the models average
        predictions over random ones.
    task : str, optional
        Which property; to be named where the models predict several.

    Returns
    -------
    Attribution
        With the values, in the units of `smilex.predict`: those of the data, or the probability of class 1; and a
        drawing, which notebooks show.

    Raises
    ------
    SmilexError
        If `smiles` is no molecule that the model takes, the directory holds no fine-tuned model, or there is no such
        task.

    References
    ----------
    .. [1] Zeiler, Fergus, ECCV 2014, arXiv 1311.2901.

    Examples
    --------
    >>> import tempfile
    >>> from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty
    >>> config = ExLMConfig.from_preset("tiny", problem_type="regression", id2label={0: "logS"})
    >>> directory = tempfile.mkdtemp()
    >>> ExLMForMoleculeProperty(config).save_pretrained(directory)
    >>> ethanol = attribute(directory, "OCC")
    >>> ethanol.task, ethanol.atom_values.shape, ethanol.draw().count("<ellipse")  # a coloured disc an atom
    ('logS', (3,), 3)
    """
    directories = model_directories(Path(model_dir))
    models = [load_predictor(directory) for directory in directories]
    check_alike(directories, models)
    config = models[0].config
    names = task_names(config)
    index = _find(task, names)
    rows = _rows(smiles, config.max_position_embeddings)
    for model in models:
        model.config.averaged_smiles = 1  # a molecule with a mask has no random SMILES
    predictions = np.stack([model.predict_rows(rows)[:, index] for model in models]).astype(np.float64)
    values = predictions[:, :1] - predictions[:, 1:]
    return Attribution(
        smiles=smiles,
        task=names[index],
        atom_values=values.mean(0),
        atom_sd=values.std(0, ddof=1) if len(models) > 1 else None,
        prediction=float(predictions[:, 0].mean()),
    )


def _find(task: str | None, names: list[str]) -> int:
    """Find the number of a task among those that the models have."""
    if task is None and len(names) == 1:
        return 0
    if task not in names:
        what = "say which task" if task is None else f"no task {task!r}"
        raise SmilexError(f"{what}; the model predicts {', '.join(map(repr, names))}")
    return names.index(task)


def _rows(smiles: str, max_length: int) -> list[list[int]]:
    """Token ids of a molecule as the models read it, then those of the molecule with each atom in turn masked."""
    mol = parse(smiles)
    tokenizer = SmilesTokenizer()
    (ids,) = encode_rows([smiles], tokenizer, max_length=max_length, errors="raise").input_ids
    canonical = Chem.MolToSmiles(mol)
    order = list(mol.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"])
    if ids is None or parse(canonical).GetNumAtoms() != len(order):
        raise SmilexError(
            f"{smiles!r} has atoms that its canonical SMILES loses: pass smilex.chem.canonicalize(smiles)"
        )
    places: list[list[int]] = [[] for _ in order]
    for place, owner in enumerate(align_tokens(canonical), start=1):  # after [CLS]
        if isinstance(owner, int):
            places[order[owner]].append(place)
    return [ids, *([*ids[: at[0]], tokenizer.mask_token_id, *ids[at[-1] + 1 :]] for at in places)]


def _colour(strength: float) -> tuple[float, ...]:
    """From white at 0 to blue at 1 and orange at −1."""
    full = _RAISES if strength > 0 else _LOWERS
    return tuple(1 - abs(strength) * (1 - channel) for channel in full)
