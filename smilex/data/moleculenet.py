"""The MoleculeNet benchmark sets [1]_: what each one is.

=============== ===== ============== ========= ========== ======= =====================================================
name            tasks kind           molecules split      metric  what is predicted
=============== ===== ============== ========= ========== ======= =====================================================
bace            1     classification 1 513     scaffold   roc_auc inhibits human β-secretase 1
bace_regression 1     regression     1 513     scaffold   rmse    pIC50 of the same molecules
bbbp            1     classification 2 039     scaffold   roc_auc crosses the blood-brain barrier
clintox         2     classification 1 478     random     roc_auc approved by the FDA; failed a trial for toxicity
esol            1     regression     1 128     random     rmse    log10 of the solubility in water in mol/L
freesolv        1     regression     642       random     rmse    hydration free energy in kcal/mol
hiv             1     classification 41 127    scaffold   roc_auc inhibits replication of HIV
lipophilicity   1     regression     4 200     random     rmse    octanol/water log10 D at pH 7.4
muv             17    classification 93 087    random     prc_auc active in PubChem assays, chosen against bias
pcba            128   classification 437 929   random     prc_auc active in PubChem assays
qm7             1     regression     7 160     stratified mae     atomization energy in kcal/mol
qm8             12    regression     21 786    random     mae     excitation energies and oscillator strengths, a.u.
qm9             12    regression     133 885   random     mae     properties by density functional theory
sider           27    classification 1 427     random     roc_auc side effects of drugs by organ class
tox21           12    classification 7 831     random     roc_auc toxic in 12 assays
toxcast         617   classification 8 575     random     roc_auc toxic in 617 assays
=============== ===== ============== ========= ========== ======= =====================================================

Molecules, split and metric are those of the paper's table; a file has a few more rows where RDKit refuses some. The
paper scores pIC50 of BACE nowhere: its split is that of the classes, its metric that of the other measured values.
Of qm8 the file holds PBE0 in two basis sets under the same names; the first (def2SVP) counts. Of qm9 the file also
holds atomization energies and rotational constants, which ``target=`` chooses.

No SHA-256 of the public files was verified yet: each download keeps the one it found beside the file.

Examples
--------
>>> DATASETS["sider"].n_tasks, DATASETS["sider"].metric
(27, 'roc_auc')

References
----------
.. [1] Wu et al., MoleculeNet: a benchmark for molecular machine learning, Chem. Sci. 2018, 9, 513.
   doi:10.1039/C7SC02664A
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from smilex.data.columns import column_names

_ADDRESS = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/"


@dataclass(frozen=True)
class MoleculeNetSet:
    """What is known of one set.

    Parameters
    ----------
    name : str
        What `smilex.data.properties.load_properties` calls it.
    url : str
        Public address of the file.
    kind : {"classification", "regression"}
        What all tasks are.
    size : int
        Molecules according to the MoleculeNet paper.
    split : {"random", "scaffold", "stratified"}
        How the paper splits it.
    metric : {"roc_auc", "prc_auc", "rmse", "mae"}
        How the paper scores it, as `smilex.metrics` calls it.
    references : tuple of str
        Where the measurements come from.
    tasks : tuple of str
        Task columns. Empty (ToxCast, PCBA): every column but the SMILES and the molecule's id.
    n_tasks : int
        How many tasks there are. Default 1.
    rows : int, optional
        Rows of the file where they were counted; a download with fewer is refused as incomplete.
    renamed : mapping of str to str
        Columns of the public file that are called otherwise here.
    sha256 : str, optional
        SHA-256 (hex) of the public file where it was verified.
    """

    name: str
    url: str
    kind: Literal["classification", "regression"]
    size: int
    split: Literal["random", "scaffold", "stratified"]
    metric: Literal["roc_auc", "prc_auc", "rmse", "mae"]
    references: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    n_tasks: int = 1
    rows: int | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None

    @property
    def file(self) -> str:
        """Name of the public file."""
        return self.url.rpartition("/")[2]

    @property
    def file_names(self) -> list[str]:
        """Names under which the file is looked for, in this order."""
        stem = self.name.removesuffix("_regression")
        return list(dict.fromkeys([f"{stem}.csv.gz", f"{stem}.csv", self.file]))

    @property
    def contents(self) -> str:
        """Columns that the file must have, for a message."""
        if not self.tasks:
            return f"'smiles' and {self.n_tasks} task columns"
        return f"'smiles' and {column_names(self.tasks)}"

    def task_columns(self, columns: Iterable[str]) -> list[str]:
        """Which of the columns of the file are tasks."""
        return list(self.tasks) or [column for column in columns if column not in ("smiles", "mol_id")]


_CLINTOX = ("FDA_APPROVED", "CT_TOX")

_SIDER = (
    "Hepatobiliary disorders",
    "Metabolism and nutrition disorders",
    "Product issues",
    "Eye disorders",
    "Investigations",
    "Musculoskeletal and connective tissue disorders",
    "Gastrointestinal disorders",
    "Social circumstances",
    "Immune system disorders",
    "Reproductive system and breast disorders",
    "Neoplasms benign, malignant and unspecified (incl cysts and polyps)",
    "General disorders and administration site conditions",
    "Endocrine disorders",
    "Surgical and medical procedures",
    "Vascular disorders",
    "Blood and lymphatic system disorders",
    "Skin and subcutaneous tissue disorders",
    "Congenital, familial and genetic disorders",
    "Infections and infestations",
    "Respiratory, thoracic and mediastinal disorders",
    "Psychiatric disorders",
    "Renal and urinary disorders",
    "Pregnancy, puerperium and perinatal conditions",
    "Ear and labyrinth disorders",
    "Cardiac disorders",
    "Nervous system disorders",
    "Injury, poisoning and procedural complications",
)

_TOX21 = (
    *(f"NR-{assay}" for assay in ("AR", "AR-LBD", "AhR", "Aromatase", "ER", "ER-LBD", "PPAR-gamma")),
    *(f"SR-{assay}" for assay in ("ARE", "ATAD5", "HSE", "MMP", "p53")),
)

_MUV = tuple(
    f"MUV-{assay}" for assay in (466, 548, 600, 644, 652, 689, 692, 712, 713, 733, 737, 810, 832, 846, 852, 858, 859)
)

_QM8 = tuple(f"{property_}-{method}" for method in ("CC2", "PBE0", "CAM") for property_ in ("E1", "E2", "f1", "f2"))

_QM9 = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "cv", "u0", "u298", "h298", "g298")

_BACE_PAPER = "Subramanian et al., J. Chem. Inf. Model. 2016, 56, 1936. doi:10.1021/acs.jcim.6b00290"

_GDB_PAPER = "Ruddigkeit et al., J. Chem. Inf. Model. 2012, 52, 2864. doi:10.1021/ci300415d"


_RECORDS = (
    MoleculeNetSet(
        "bace",
        _ADDRESS + "bace.csv",
        "classification",
        1513,
        "scaffold",
        "roc_auc",
        (_BACE_PAPER,),
        tasks=("Class",),
        rows=1513,
        renamed={"mol": "smiles"},
    ),
    MoleculeNetSet(
        "bace_regression",
        _ADDRESS + "bace.csv",
        "regression",
        1513,
        "scaffold",
        "rmse",
        (_BACE_PAPER,),
        tasks=("pIC50",),
        rows=1513,
        renamed={"mol": "smiles"},
    ),
    MoleculeNetSet(
        "bbbp",
        _ADDRESS + "BBBP.csv",
        "classification",
        2039,
        "scaffold",
        "roc_auc",
        ("Martins et al., J. Chem. Inf. Model. 2012, 52, 1686. doi:10.1021/ci300124c",),
        tasks=("p_np",),
        rows=2050,
    ),
    MoleculeNetSet(
        "clintox",
        _ADDRESS + "clintox.csv.gz",
        "classification",
        1478,
        "random",
        "roc_auc",
        ("Gayvert et al., Cell Chem. Biol. 2016, 23, 1294. doi:10.1016/j.chembiol.2016.07.023",),
        tasks=_CLINTOX,
        n_tasks=len(_CLINTOX),
        rows=1491,
    ),
    MoleculeNetSet(
        "esol",
        _ADDRESS + "delaney-processed.csv",
        "regression",
        1128,
        "random",
        "rmse",
        ("Delaney, J. Chem. Inf. Comput. Sci. 2004, 44, 1000. doi:10.1021/ci034243x",),
        tasks=("logS",),
        rows=1128,
        renamed={"measured log solubility in mols per litre": "logS"},
    ),
    MoleculeNetSet(
        "freesolv",
        _ADDRESS + "SAMPL.csv",
        "regression",
        642,
        "random",
        "rmse",
        ("Mobley and Guthrie, J. Comput. Aided Mol. Des. 2014, 28, 711. doi:10.1007/s10822-014-9747-x",),
        tasks=("expt",),
        rows=642,
    ),
    MoleculeNetSet(
        "hiv",
        _ADDRESS + "HIV.csv",
        "classification",
        41_127,
        "scaffold",
        "roc_auc",
        ("AIDS Antiviral Screen Data, https://wiki.nci.nih.gov/display/NCIDTPdata/AIDS+Antiviral+Screen+Data",),
        tasks=("HIV_active",),
        rows=41_127,
    ),
    MoleculeNetSet(
        "lipophilicity",
        _ADDRESS + "Lipophilicity.csv",
        "regression",
        4200,
        "random",
        "rmse",
        ("Hersey, ChEMBL deposited data set AZ 2015. doi:10.6019/CHEMBL3301361",),
        tasks=("exp",),
        rows=4200,
    ),
    MoleculeNetSet(
        "muv",
        _ADDRESS + "muv.csv.gz",
        "classification",
        93_087,
        "random",
        "prc_auc",
        ("Rohrer and Baumann, J. Chem. Inf. Model. 2009, 49, 169. doi:10.1021/ci8002649",),
        tasks=_MUV,
        n_tasks=len(_MUV),
        rows=93_127,
    ),
    MoleculeNetSet(
        "pcba",
        _ADDRESS + "pcba.csv.gz",
        "classification",
        437_929,
        "random",
        "prc_auc",
        (
            "Wang et al., Nucleic Acids Res. 2012, 40, D400. doi:10.1093/nar/gkr1132",
            "Ramsundar et al., 2015. arXiv:1502.02072",
        ),
        n_tasks=128,
    ),
    MoleculeNetSet(
        "qm7",
        _ADDRESS + "qm7.csv",
        "regression",
        7160,
        "stratified",
        "mae",
        ("Rupp et al., Phys. Rev. Lett. 2012, 108, 058301. doi:10.1103/PhysRevLett.108.058301",),
        tasks=("u0_atom",),
    ),
    MoleculeNetSet(
        "qm8",
        _ADDRESS + "qm8.csv",
        "regression",
        21_786,
        "random",
        "mae",
        (
            "Ramakrishnan et al., J. Chem. Phys. 2015, 143, 084111. doi:10.1063/1.4928757",
            _GDB_PAPER,
        ),
        tasks=_QM8,
        n_tasks=len(_QM8),
    ),
    MoleculeNetSet(
        "qm9",
        _ADDRESS + "qm9.csv",
        "regression",
        133_885,
        "random",
        "mae",
        (
            "Ramakrishnan et al., Sci. Data 2014, 1, 140022. doi:10.1038/sdata.2014.22",
            _GDB_PAPER,
        ),
        tasks=_QM9,
        n_tasks=len(_QM9),
    ),
    MoleculeNetSet(
        "sider",
        _ADDRESS + "sider.csv.gz",
        "classification",
        1427,
        "random",
        "roc_auc",
        (
            "Kuhn et al., Nucleic Acids Res. 2016, 44, D1075. doi:10.1093/nar/gkv1075",
            "Altae-Tran et al., ACS Cent. Sci. 2017, 3, 283. doi:10.1021/acscentsci.6b00367",
        ),
        tasks=_SIDER,
        n_tasks=len(_SIDER),
        rows=1427,
    ),
    MoleculeNetSet(
        "tox21",
        _ADDRESS + "tox21.csv.gz",
        "classification",
        7831,
        "random",
        "roc_auc",
        ("Tox21 Data Challenge 2014, https://tripod.nih.gov/tox21/challenge/",),
        tasks=_TOX21,
        n_tasks=len(_TOX21),
        rows=7831,
    ),
    MoleculeNetSet(
        "toxcast",
        _ADDRESS + "toxcast_data.csv.gz",
        "classification",
        8575,
        "random",
        "roc_auc",
        ("Richard et al., Chem. Res. Toxicol. 2016, 29, 1225. doi:10.1021/acs.chemrestox.6b00135",),
        n_tasks=617,
        rows=8615,
    ),
)

DATASETS: dict[str, MoleculeNetSet] = {record.name: record for record in _RECORDS}
"""The registry: name → what is known of the set."""
