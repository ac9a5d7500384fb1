"""Pretraining step: ExLM and MLM beside transformers' RobertaForMaskedLM of the same size.

Every row trains for an epoch on the same molecules, with its own trainer, optimiser and data loader. RoBERTa is
trained as its users train it (Trainer, random batches of 128, dynamic padding), and on our batches of like lengths.
Operations are those of the matrix products and of attention, forward and backward, padding included, as
`torch.utils.flop_counter` counts them; a row's share of the limit is that of its own precision.
"""

import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from throughput_corpus import Mixture
from throughput_measure import PRECISIONS, Figures, Size, limits, split_limits, take_turns
from torch.utils.data import Dataset
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import (
    DataCollatorForLanguageModeling,
    RobertaConfig,
    RobertaForMaskedLM,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from smilex.budget import Budget
from smilex.data.corpus import load_corpus
from smilex.modeling import ExLMConfig
from smilex.modeling.encoder import ExLMPreTrainedModel
from smilex.objectives import get_objective
from smilex.precision import Precision, trainer_precision
from smilex.pretraining import PretrainingData, PretrainingTrainer
from smilex.runs import Run
from smilex.tokenization import SmilesTokenizer
from smilex.trainer import QuietTrainer

PEER_BATCH = 128
MASK_RATIO = 0.15
NUM_STATES = 4

aten = torch.ops.aten


class EpochClock(TrainerCallback):
    """Seconds from the moment the first batch is made to the end of the last step."""

    def __init__(self) -> None:
        self._start = 0.0
        self.seconds = 0.0

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start."""
        self._start = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Read the clock; whatever follows the last step is not counted."""
        self.seconds = time.perf_counter() - self._start


class StepTrainer(PretrainingTrainer):
    """Our trainer without its looks at the held-out molecules, which a run of one epoch would be full of."""

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Measure nothing."""
        return {}


class BucketedBatches(Dataset):
    """The batches of an epoch of our data, with the attention mask that RoBERTa asks for."""

    def __init__(self, data: PretrainingData) -> None:
        self._data = data

    def __len__(self) -> int:
        return self._data.batches.per_epoch

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        batch = self._data[index]
        pad = self._data.objective.config.pad_token_id
        return {**batch, "attention_mask": (batch["input_ids"] != pad).long()}


def roberta_config(config: ExLMConfig) -> RobertaConfig:
    """Configure a RoBERTa of the size of our encoder."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    # RoBERTa counts positions from the id after [PAD].
    longest = config.max_position_embeddings + config.pad_token_id + 1
    return RobertaConfig(
        **{name: getattr(config, name) for name in sizes},
        pad_token_id=config.pad_token_id,
        bos_token_id=config.cls_token_id,
        eos_token_id=config.sep_token_id,
        max_position_embeddings=longest,
        type_vocab_size=1,
    )


def our_epoch(data: PretrainingData, network: ExLMPreTrainedModel, precision: Precision, folder: Path) -> float:
    """Train for an epoch as `smilex.pretrain` does; return the seconds."""
    steps = data.batches.per_epoch
    clock = EpochClock()
    settings = {"precision": precision, "processes": 1, "seed": 0}
    with TemporaryDirectory(dir=folder) as place, Run.open(place, settings, resume=False) as run:
        trainer = StepTrainer(network, data, run, Budget(steps, None), steps + 1, progress=False)
        trainer.add_callback(clock)
        trainer.train()
    return clock.seconds


def peer_epoch(
    data: PretrainingData, rows: Any, network: RobertaForMaskedLM, precision: Precision, folder: Path, *, ours: bool
) -> float:
    """Train RoBERTa for an epoch, on random batches or on ours; return the seconds."""
    clock = EpochClock()
    if ours:
        settings: dict[str, Any] = {"data_collator": itemgetter(0), "train_dataset": BucketedBatches(data)}
    else:
        collator = DataCollatorForLanguageModeling(SmilesTokenizer(), mlm_probability=MASK_RATIO)
        settings = {"data_collator": collator, "train_dataset": rows}
    with TemporaryDirectory(dir=folder) as place:
        arguments = TrainingArguments(
            output_dir=place,
            num_train_epochs=1,
            per_device_train_batch_size=1 if ours else PEER_BATCH,
            learning_rate=data.objective.settings["learning_rate"],
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            remove_unused_columns=not ours,
            **trainer_precision(precision),
        )
        QuietTrainer(network, arguments, callbacks=[clock], **settings).train()
    return clock.seconds


def floating_point_operations(function: Callable[[], object]) -> int:
    """Count the operations of matrix products and attention while a function runs."""

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return sdpa_backward_flop_count(gradient, query, key, value)

    # The counter knows the attention of GPUs alone.
    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,  # noqa: SLF001 (that is the operator's name)
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,  # noqa: SLF001
    }
    with FlopCounterMode(display=False, custom_mapping=attention) as counter:
        function()
    return counter.get_total_flops()


def training_data(mixture: Mixture, size: Size, objective: str, folder: Path) -> PretrainingData:
    """Make the batches of an objective; the same molecules for each."""
    corpus = load_corpus(mixture.smiles[: size.trained], cache_dir=folder / "cache", progress=False)
    config = ExLMConfig.from_preset(size.model, num_states=NUM_STATES)
    return PretrainingData(corpus, get_objective(objective)(config, mask_ratio=MASK_RATIO), seed=0)


def epochs(mixture: Mixture, size: Size, folder: Path) -> tuple[dict[str, Callable[[], float]], int]:
    """Return what trains each row for an epoch and says how long it took, and the molecules of an epoch."""
    data = {name: training_data(mixture, size, name, folder) for name in ("exlm", "mlm")}
    corpus = load_corpus(mixture.smiles[: size.trained], cache_dir=folder / "cache", progress=False)
    trained = np.delete(np.arange(len(corpus.dataset)), data["mlm"].held_out_rows)
    rows = corpus.dataset.select(trained).select_columns(["input_ids"])
    torch.manual_seed(0)
    found: dict[str, Callable[[], float]] = {}
    names: tuple[Precision, ...] = ("fp32", "bf16")
    for precision in names:
        for name, words in (("exlm", "ExLM"), ("mlm", "MLM")):
            own = data[name]
            network = own.objective.model_class(own.objective.config)
            found[f"{words} {precision}"] = partial(our_epoch, own, network, precision, folder)
        for ours, words in ((False, "as used"), (True, "our batches")):
            peer = RobertaForMaskedLM(roberta_config(data["mlm"].objective.config))
            train = partial(peer_epoch, data["mlm"], rows, peer, precision, folder, ours=ours)
            found[f"RoBERTa {words} {precision}"] = train
    return found, len(data["mlm"].rows)


def measure(mixture: Mixture, size: Size, folder: Path) -> Figures:
    """Measure molecules a second, and operations a second as a share of the limit."""
    trained, molecules = epochs(mixture, size, folder)
    operations = {name: floating_point_operations(train) for name, train in trained.items()}

    def molecules_per_second(train: Callable[[], float]) -> float:
        return molecules / train()

    measured = {name: partial(molecules_per_second, train) for name, train in trained.items()}
    rows, limit = split_limits(take_turns({**limits(size.gemm), **measured}, size.rounds))
    for name, row in rows.items():
        precision = name.rpartition(" ")[2]
        row["gflops"] = operations[name] / molecules * row["median"] / 1e9
        row["limit_share"] = row["gflops"] / limit[precision]["median"]
        row["times_roberta_as_used"] = row["median"] / rows[f"RoBERTa as used {precision}"]["median"]
    time_of_mlm = {
        precision: rows[f"MLM {precision}"]["median"] / rows[f"ExLM {precision}"]["median"] for precision in PRECISIONS
    }
    return {"unit": "molecules/s", "rows": rows, "limit_gflops": limit, "exlm_time_over_mlm_time": time_of_mlm}
