"""Pretraining an encoder on unlabelled molecules."""

import shutil
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from transformers import TrainingArguments, set_seed

from smilex.budget import Budget, BudgetCallback, learning_rate_factor
from smilex.checks import count, folder
from smilex.data.corpus import Corpus, load_corpus
from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.modeling.loading import load_model, starting_config
from smilex.objectives import Objective, get_objective
from smilex.objectives.base import Batch
from smilex.precision import Precision, choose_precision, trainer_precision
from smilex.pretraining_data import FirstBatches, PretrainingData
from smilex.processes import from_first, process_count, process_index, together
from smilex.report.plots import plot_loss
from smilex.report.progress import ProgressBar
from smilex.runs import Run, save_model, versions, writing_to
from smilex.tokenization import SmilesTokenizer
from smilex.trainer import QuietTrainer


@dataclass(frozen=True)
class PretrainResult:
    """What a pretraining run made.

    Parameters
    ----------
    output_dir : Path
        The run directory; it loads as a model wherever smilex takes an ``encoder``.
    metrics : dict
        Figures on the held-out molecules at the end.
    report : dict
        Content of report.json: settings, versions, corpus, steps, seconds and the figures.
    """

    output_dir: Path
    metrics: dict[str, float]
    report: dict[str, Any]


def pretrain(
    corpus: Any,
    output_dir: str | Path,
    objective: str = "exlm",
    model: str | ExLMConfig | None = None,
    *,
    encoder: str | Path | None = None,
    smiles_column: str | None = None,
    max_steps: int | None = None,
    minutes: float | None = None,
    epochs: float | None = None,
    tokens_per_batch: int | None = None,
    molecules_per_batch: int | None = None,
    learning_rate: float | None = None,
    mask_ratio: float | None = None,
    masking: Literal["random", "span", "group"] | None = None,
    random_smiles: bool = False,
    twins: Literal["same", "random"] | None = None,
    pooling: Literal["mean", "cls"] | None = None,
    precision: Precision | None = None,
    seed: int = 0,
    checkpoint_steps: int = 200,
    resume: bool = False,
    progress: bool = True,
) -> PretrainResult:
    """Train an encoder on unlabelled molecules.

    Started by torchrun or accelerate launch, several processes share the work: a step takes one batch for each of them
    and averages the gradients, every batch with the same weight. The first process writes.

    Parameters
    ----------
    corpus : path, str, list of str, iterable of str or datasets.Dataset
        Molecules: a file (.smi, .txt, .csv, .tsv, .parquet, .sdf, each also .gz), SMILES, or a built-in name ("nci5k",
        "moses"). They are cleaned and tokenised once, see `smilex.data.corpus.load_corpus`.
    output_dir : str or Path
        Run directory to make: config.json, model.safetensors, the tokenizer, metrics.jsonl, report.json, loss.png.
    objective : {"exlm", "mlm", "mae_lm", "descriptors", "mirror", "mexma"}, default "exlm"
        What to train on: hidden tokens with several states each, or one; hidden tokens that the encoder does not even
        see as [MASK]; RDKit's descriptors of a molecule; telling molecules apart; or hidden tokens and vectors of two
        ways of writing a molecule. Each can follow another one, with `encoder`; mirror and mexma are made to. exlm and
        mlm save their head, for `smilex.fill_mask`; the others the encoder alone. The descriptors of a corpus are
        computed once, some 250 molecules a second on each core.
    model : str or ExLMConfig, optional
        Size of a new encoder: "tiny" (4 layers of 128), "small" (6 × 256, the default), "base" (12 × 768).
    encoder : str or Path, optional
        A saved model to start from, instead of `model`.
    smiles_column : str, optional
        The column of a table with the SMILES, where it is not called smiles or the like.
    max_steps, minutes, epochs : number, optional
        How long to train; exactly one of them. Steps are those of the optimiser: with n processes, an epoch has n
        times fewer. With minutes, the result depends on the speed of the machine.
    tokens_per_batch : int, default 4096
        Positions that the encoder sees in a batch, expanded states and padding included; each process has a batch of
        its own. Not for mirror.
    molecules_per_batch : int, default 200
        Molecules in a batch. Only for mirror.
    learning_rate : float, default 5e-4, 2e-5 for mirror, 1e-4 for mexma
        Peak of the schedule: linear warm-up over 6 % of the run, then linear decay. Adam with β = (0.9, 0.98),
        ε = 1e-6 and weight decay 0.01.
    mask_ratio : float, default 0.15, 0.4 for mexma
        Share of the tokens to mask. Not for mirror and descriptors.
    masking : {"random", "span", "group"}, default "random"
        Which tokens to mask: any; runs of neighbours; or functional groups and rings, whole where they fit into the
        share. Not for mirror and descriptors.
    random_smiles : bool, default False
        Read a molecule in another random SMILES each time it is trained on, which may be a little longer than the
        canonical one; held-out molecules stay canonical. Not for mirror and mexma, which have random SMILES of their
        own.
    twins : {"same", "random"}, default "same"
        What a molecule is compared with: its own SMILES, or a random SMILES of it. Only for mirror.
    pooling : {"mean", "cls"}, default "mean"
        Vector that is trained, see `smilex.embed`. Only for mirror and descriptors; mexma trains that of [CLS].
    precision : {"fp32", "bf16"}, optional
        Arithmetic of training: by default bfloat16 on a GPU that computes in it, and single precision elsewhere.
        "bf16" is faster on CPUs with instructions for bfloat16, too, and slower on others. Weights, attention,
        transitions and losses are float32 in either.
    seed : int, default 0
        Seed of the weights, the held-out molecules, the batches, the masks and the dropout. The same seed gives the
        same weights on the same machine with the same number of threads.
    checkpoint_steps : int, default 200
        Steps between checkpoints.
    resume : bool, default False
        Go on with an interrupted run of the same settings from its last checkpoint; the result on the CPU is that of
        an uninterrupted run. A finished run is returned as it is. The number of processes is such a setting.
    progress : bool, default True
        Show progress bars on stderr.

    Returns
    -------
    PretrainResult

    Raises
    ------
    SmilexError
        If the corpus, a setting or the output directory cannot be used, or a setting means nothing to the objective.
    OneProcessError
        A SmilexError: if one of several processes fails, or another one has ended.

    Examples
    --------
    >>> import tempfile
    >>> molecules = ["C" * n + end for n in range(1, 9) for end in ("O", "N", "F", "Cl")]
    >>> run = pretrain(molecules, tempfile.mkdtemp(), model="tiny", max_steps=2, progress=False)
    >>> sorted(run.metrics)
    ['entropy', 'loss', 'masked_accuracy', 'perplexity']
    """
    seed = count("seed", seed, at_least=0)
    checkpoint_steps = count("checkpoint_steps", checkpoint_steps)
    output_dir = folder("output_dir", output_dir)
    given = {
        "tokens_per_batch": tokens_per_batch,
        "molecules_per_batch": molecules_per_batch,
        "learning_rate": learning_rate,
        "mask_ratio": mask_ratio,
        "masking": masking,
        "random_smiles": random_smiles or None,
        "twins": twins,
        "pooling": pooling,
    }
    given = {name: value for name, value in given.items() if value is not None}
    method = get_objective(objective)(_base_config(model, encoder), **given)
    clean = load_corpus(
        corpus, smiles_column=smiles_column, max_length=method.config.max_position_embeddings, progress=progress
    )
    data = PretrainingData(clean, method, seed)
    processes = process_count()
    budget = Budget.choose(max_steps, minutes, epochs, data.batches.per_epoch / processes)
    settings = {
        "objective": objective,
        "model": method.config.own_fields(),
        "encoder": None if encoder is None else str(encoder),
        "corpus": clean.fingerprint,
        "max_steps": budget.max_steps,
        "minutes": budget.minutes,
        **method.settings,
        "precision": choose_precision(precision),
        "seed": seed,
        "processes": processes,
    }
    with Run.open(output_dir, settings, resume=resume) as run, together(), writing_to(run.directory):
        report = run.report
        if report is None:
            data.add_targets(progress=progress)
            set_seed(seed)
            network = _network(method, encoder)
            trainer = PretrainingTrainer(network, data, run, budget, checkpoint_steps, progress=progress)
            trainer.train(resume_from_checkpoint=None if run.checkpoint is None else str(run.checkpoint))
            weights = trainer.accelerator.get_state_dict(trainer.model)  # they may lie in shards, one a process
            name = str(corpus) if isinstance(corpus, str | Path) else type(corpus).__name__
            report = from_first(lambda: _finish(trainer, weights, run, clean, name))
        return PretrainResult(run.directory, report["metrics"], report)


def _base_config(model: str | ExLMConfig | None, encoder: str | Path | None) -> ExLMConfig:
    if encoder is not None and model is not None:
        raise SmilexError("encoder already has a size: give either model or encoder")
    if isinstance(model, ExLMConfig):
        return model
    return starting_config(None if encoder is None else Path(encoder), model)


def _network(objective: Objective, encoder: str | Path | None) -> ExLMPreTrainedModel:
    if encoder is None:
        return objective.model_class(objective.config)
    return load_model(objective.model_class, encoder, config=objective.config, new_heads=True)


class PretrainingTrainer(QuietTrainer):
    """transformers' Trainer with our batches, budget, loss and held-out figures; one epoch of it is the whole run.

    With n processes, step s takes the batches ns … ns + n − 1 of the run, and the mean of their gradients: what one
    process would do that accumulates gradients over them. Batches have like numbers of tokens, not of molecules, and
    each has the same weight, as the steps of one process have.
    """

    def __init__(
        self,
        model: ExLMPreTrainedModel,
        data: PretrainingData,
        run: Run,
        budget: Budget,
        checkpoint_steps: int,
        *,
        progress: bool,
    ) -> None:
        self.data = data
        self.figures: dict[str, float] = {}
        self._parts: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.budget = BudgetCallback(budget, checkpoint_steps, run.elapsed)
        callbacks = [self.budget, *run.callbacks(self.budget.elapsed)]
        processes: int = run.settings["processes"]
        on_gpu = torch.cuda.is_available()
        arguments = TrainingArguments(
            output_dir=str(run.checkpoints),
            max_steps=budget.steps,
            per_device_train_batch_size=1,
            learning_rate=data.objective.settings["learning_rate"],
            adam_beta2=0.98,
            adam_epsilon=1e-6,
            weight_decay=0.01,
            logging_steps=10,
            logging_nan_inf_filter=False,
            seed=run.settings["seed"] + process_index(),  # of dropout, which differs between processes
            save_strategy="no",
            save_total_limit=2,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=on_gpu,
            remove_unused_columns=False,
            **{"use_cpu": processes > 1 and not on_gpu, **trainer_precision(run.settings["precision"])},
        )
        if not arguments.bf16:
            arguments.mixed_precision = "no"  # accelerate launch might have said otherwise
        bar = ProgressBar("pretraining", self.budget.progress) if progress and process_index() == 0 else None
        batches = FirstBatches(data, budget.steps * processes)
        super().__init__(model, arguments, train_dataset=batches, callbacks=callbacks, bar=bar)
        self.model_accepts_loss_kwargs = False  # the loss is the mean over a batch, whatever its number of tokens
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version != 1:
            # accelerate would shard the token embedding apart from the heads that use its weights, too.
            raise SmilexError("the models of smilex train with version 1 of FSDP: set fsdp_version to 1")

    def get_train_dataloader(self) -> DataLoader:
        """Hand out the batches in order; several processes take turns, and none gets a batch of another."""
        loader = DataLoader(cast("Dataset", self.train_dataset), batch_size=1, shuffle=False, collate_fn=itemgetter(0))
        return self.accelerator.prepare(loader)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Follow the budget, in steps or in minutes."""
        if self.lr_scheduler is None:
            self.lr_scheduler = LambdaLR(
                cast("torch.optim.Optimizer", optimizer or self.optimizer),
                lambda step: learning_rate_factor(self.budget.progress(step)),
            )
        return self.lr_scheduler

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """Return the objective's loss, and remember its parts for the log."""
        parts = self.data.objective.losses(cast("ExLMPreTrainedModel", model), inputs)
        loss = parts.pop("loss")
        for name, part in parts.items():
            self._parts[name].append(part.detach())
        if not loss.isfinite():
            raise SmilexError(f"the loss is {loss.item()} at step {self.state.global_step + 1}: lower learning_rate")
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Put the parts of the loss, averaged over the same steps, beside the loss."""
        if "loss" in logs:
            for name, parts in self._parts.items():
                logs[name] = self.accelerator.gather(torch.stack(parts).mean()).mean().item()
            self._parts.clear()
        super().log(logs, start_time)

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Measure the held-out molecules and log the figures; every process measures all, for the same figures."""
        network = cast("ExLMPreTrainedModel", self.model)
        network.eval()
        batches = (self._prepare_inputs(batch) for batch in self.data.held_out())
        self.figures = self.data.objective.evaluate(network, batches)
        network.train()
        self.log({f"heldout_{name}": value for name, value in self.figures.items()})
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, self.figures)
        return self.figures


def _finish(
    trainer: PretrainingTrainer, weights: dict[str, Tensor], run: Run, corpus: Corpus, name: str
) -> dict[str, Any]:
    """Save what there is to keep of a trained model, write the report and return it."""
    objective = trainer.data.objective
    network = objective.model_class(objective.config)
    network.load_state_dict(weights)
    kept = network if objective.keeps_head else cast("ExLMPreTrainedModel", network.base_model)
    save_model(kept, SmilesTokenizer(), run.directory)
    plot_loss(run.metrics(), run.directory / "loss.png")
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    report = {
        "settings": run.settings,
        "versions": versions(),
        "corpus": {"fingerprint": corpus.fingerprint, **corpus.report.to_dict(), "name": name},
        "molecules": {"training": len(trainer.data.rows), "held_out": len(trainer.data.held_out_rows)},
        "steps": trainer.state.global_step,
        "seconds": round(trainer.budget.elapsed(), 1),
        "metrics": trainer.figures,
    }
    run.finish(report)
    return report
