"""Pretraining in several processes: the runs that torchrun and accelerate launch start."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from rdkit import RDConfig
from safetensors.torch import load_file
from transformers import TrainingArguments

import smilex.pretraining
from smilex.data.corpus import load_corpus
from smilex.errors import OneProcessError, SmilexError
from smilex.modeling import ExLMConfig
from smilex.processes import from_first, process_count, refuse_many_processes, together
from smilex.tokenization import SmilesTokenizer

# Without dropout, whose random numbers differ between processes.
CONFIG = ExLMConfig(
    vocab_size=len(SmilesTokenizer()),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=100,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
LINES = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:300]
MOLECULES = [line.split()[0] for line in LINES]
STEPS = 50
SETTINGS = {"model": CONFIG, "tokens_per_batch": 1000, "checkpoint_steps": 10, "max_steps": STEPS, "progress": False}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ACCELERATE = [
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
    *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"),
]

SCRIPT = """
import json, sys
import smilex.pretraining, test_processes as t
from smilex.processes import process_index

taken = open(sys.argv[2] + f".{process_index()}", "a")
plain = smilex.pretraining.PretrainingTrainer.compute_loss

def compute_loss(self, model, inputs, *args, **kwargs):
    print(json.dumps([self.state.global_step, inputs["input_ids"].tolist()]), file=taken, flush=True)
    return plain(self, model, inputs, *args, **kwargs)

smilex.pretraining.PretrainingTrainer.compute_loss = compute_loss
smilex.pretraining.pretrain(t.MOLECULES, sys.argv[1], **{**t.SETTINGS, **json.loads(sys.argv[3])})
"""


@pytest.fixture(autouse=True, scope="module")
def environment(tmp_path_factory):
    """What the processes are started with: a cache of their own, and one thread each."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMILEX_CACHE", cache)
        patch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])]))
        load_corpus(MOLECULES, max_length=100, progress=False)
        yield


def script(directory, **settings):
    """Command that pretrains in two processes, and writes the batches of each beside the directory."""
    return [
        *TORCHRUN,
        "--no-python",
        sys.executable,
        "-c",
        SCRIPT,
        directory,
        f"{directory}.taken",
        json.dumps(settings),
    ]


def start(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def rows(directory):
    return [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]


def batches(directory, rank):
    lines = Path(f"{directory}.taken.{rank}").read_text().splitlines()
    return dict(map(json.loads, lines))


@pytest.fixture(scope="module")
def pair(tmp_path_factory, environment):
    directory = tmp_path_factory.mktemp("runs") / "pair"
    done = start(script(directory))
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def alone(tmp_path_factory, environment):
    """The same in one process, which accumulates the gradients of two batches, and keeps the batches."""
    directory = tmp_path_factory.mktemp("runs") / "alone"
    taken = []
    plain = smilex.pretraining.PretrainingTrainer.compute_loss

    def compute_loss(self, model, inputs, *args, **kwargs):
        taken.append(inputs["input_ids"].tolist())
        return plain(self, model, inputs, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smilex.pretraining.PretrainingTrainer, "compute_loss", compute_loss)
        patch.setattr(smilex.pretraining, "process_count", lambda: 2)
        patch.setattr(
            smilex.pretraining, "TrainingArguments", partial(TrainingArguments, gradient_accumulation_steps=2)
        )
        smilex.pretraining.pretrain(MOLECULES, directory, **SETTINGS)
    return directory, taken


def test_a_job_leaves_its_group_before_the_interpreter_ends():
    script = """
import atexit, sys
import torch.distributed as dist
from smilex.processes import process_count, wait_for_all

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece, as two processes write

atexit.register(lambda: say(dist.is_initialized()))  # the last that is called
count = process_count()
wait_for_all()
say(count, dist.is_initialized())
"""
    done = start([*TORCHRUN, "--no-python", sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["2 True", "2 True", "False", "False"]


def test_two_processes_take_turns_at_the_batches_of_one(pair, alone):
    _, taken = alone
    first, second = batches(pair, 0), batches(pair, 1)
    assert [first[step] for step in range(STEPS)] == taken[::2]
    assert [second[step] for step in range(STEPS)] == taken[1::2]


def test_the_losses_of_two_processes_are_those_of_one_with_the_same_batches(pair, alone):
    mine, theirs = rows(pair), rows(alone[0])
    assert [sorted(row) for row in mine] == [sorted(row) for row in theirs]
    assert mine[-1]["step"] == STEPS
    for row, other in zip(mine, theirs, strict=True):
        losses = {name: value for name, value in row.items() if name.endswith(("loss", "entropy", "accuracy", "rate"))}
        # Gradients are summed in another order, which Adam's first steps magnify.
        assert losses == pytest.approx({name: other[name] for name in losses}, rel=1e-4)
    weights, others = (load_file(directory / "model.safetensors") for directory in (pair, alone[0]))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, others[name], atol=2e-3, rtol=0, msg=name)


def test_one_process_writes_for_all(pair, alone):
    assert {path.name for path in pair.iterdir()} == {path.name for path in alone[0].iterdir()}
    steps = [row["step"] for row in rows(pair) if "heldout_loss" in row]
    assert len(steps) == len(set(steps)) == 10
    assert json.loads((pair / "report.json").read_text())["settings"]["processes"] == 2


def test_a_run_of_two_processes_is_not_taken_up_by_one(pair):
    with pytest.raises(SmilexError, match="processes was 2 and is 1"):
        smilex.pretraining.pretrain(MOLECULES, pair, **SETTINGS, resume=True)


def descendants(process):
    """Processes of a job by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"SMILEX_TEST_JOB={process}".encode() in variables:
            found |= {int(name[5:]): int(folder.name) for name in variables if name.startswith(b"RANK=")}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes of a job in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_job_which_resumes_to_the_same_result(rank, pair, tmp_path):
    directory = tmp_path / "killed"
    environment = {**os.environ, "SMILEX_TEST_JOB": str(directory)}
    with subprocess.Popen(script(directory), env=environment, stderr=subprocess.PIPE, text=True) as job:
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and job.poll() is None:
            if list((directory / "checkpoints").glob("checkpoint-*/complete.json")):
                break
            time.sleep(0.01)
        os.kill(descendants(directory)[rank], signal.SIGKILL)
        _, stderr = job.communicate(timeout=100)
    assert job.returncode != 0
    assert f"OneProcessError: process {1 - rank} of 2 " in stderr
    assert "go on with resume=True" in stderr
    assert not (directory / "report.json").exists()
    done = start(script(directory, resume=True))
    assert done.returncode == 0, done.stderr
    assert rows(directory) == rows(pair)
    weights, others = (load_file(run / "model.safetensors") for run in (directory, pair))
    assert all(torch.equal(weights[name], others[name]) for name in others)
    assert batches(directory, rank) == batches(pair, rank)


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_the_command_line_prints_once(launcher, tmp_path):
    (tmp_path / "corpus.smi").write_text("\n".join(MOLECULES))
    command = [*launcher, "-m", "smilex", "pretrain", tmp_path / "corpus.smi", tmp_path / "run", "--model", "tiny"]
    done = start([*command, "--epochs", "1", "--tokens-per-batch", "10000"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out molecules after") == done.stdout.count("run directory:") == 1
    assert "smilex" not in done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["settings"]["processes"] == 2
    again = start([*command, "--epochs", "1"])
    assert again.returncode == 1
    assert again.stderr.count("error: ") == 1
    assert f"error: {tmp_path / 'run'} already holds a run: go on with --resume" in again.stderr


def test_processes_agree_on_minutes(tmp_path):
    done = start(script(tmp_path / "run", max_steps=None, minutes=0.05, checkpoint_steps=10_000))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["steps"] == len(batches(tmp_path / "run", 0)) == len(batches(tmp_path / "run", 1))


def test_fine_tuning_refuses_several_processes(tmp_path):
    done = start([*TORCHRUN, "-m", "smilex", "finetune", "nav17", tmp_path / "run", "--from-scratch", "tiny"])
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert "error: fine-tuning runs in one process: start it without torchrun or accelerate launch" in done.stderr
    assert not (tmp_path / "run").exists()


# accelerate leaves FSDP out on CPUs, so it has to take them for GPUs; and torch empties the weights that it moves to
# the CPU, where they are already.
FSDP = """
import os, contextlib, torch.distributed
os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
torch.distributed.init_process_group("gloo")
from accelerate import state
from accelerate.utils import DistributedType
from torch.distributed.fsdp._flat_param import FlatParamHandle
state.PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
FlatParamHandle.to_cpu = lambda _: contextlib.nullcontext()
"""


def start_sharded(directory, version):
    configuration = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": str(version),
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in configuration.items():
            patch.setenv(name, value)
        return start([FSDP + part if part == SCRIPT else part for part in script(directory)])


@pytest.mark.slow
def test_sharded_weights_learn_and_are_saved_whole(pair, tmp_path):
    done = start_sharded(tmp_path / "run", version=1)
    assert done.returncode == 0, done.stderr
    for row, other in zip(rows(tmp_path / "run"), rows(pair), strict=True):
        losses = {name: value for name, value in row.items() if name.endswith("loss")}
        # Gradients are summed in another order, which Adam's first steps magnify.
        assert losses == pytest.approx({name: other[name] for name in losses}, rel=1e-4)
    weights, others = (load_file(run / "model.safetensors") for run in (tmp_path / "run", pair))
    for name, weight in weights.items():
        torch.testing.assert_close(weight, others[name], atol=2e-3, rtol=0, msg=name)


@pytest.mark.slow
def test_a_second_version_of_fsdp_is_refused(tmp_path):
    done = start_sharded(tmp_path / "run", version=2)
    assert done.returncode != 0
    assert "set fsdp_version to 1" in done.stderr


def test_one_process_alone(monkeypatch):
    assert process_count() == 1
    refuse_many_processes("this")
    with pytest.raises(KeyError), together():
        from_first(lambda: {}["missing"])
    with pytest.raises(SmilexError, match="plain") as raised, together():
        raise SmilexError("plain")
    assert not isinstance(raised.value, OneProcessError)
