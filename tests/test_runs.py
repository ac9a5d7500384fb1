import errno
import json
import os
import subprocess
import sys

import pytest
import torch

from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMModel
from smilex.runs import COMPLETE, MetricsLog, Run, save_model, write_json, writing_to
from smilex.tokenization import SmilesTokenizer


def open_run(directory, settings=None, *, resume=False):
    return Run.open(directory, settings or {"seed": 0}, resume=resume)


def test_a_new_directory_keeps_its_settings(tmp_path):
    with open_run(tmp_path / "a" / "b") as run:
        assert json.loads((run.directory / "settings.json").read_text()) == {"seed": 0}
        assert (run.step, run.checkpoint, run.report) == (0, None, None)


def test_a_directory_that_holds_a_run_is_not_overwritten(tmp_path):
    with open_run(tmp_path):
        pass
    with pytest.raises(SmilexError, match="already holds a run"), open_run(tmp_path):
        pass


def test_a_directory_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for resume in (False, True):
        with pytest.raises(SmilexError, match="not empty and holds no run"), open_run(tmp_path, resume=resume):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_other_settings_are_not_resumed(tmp_path):
    with open_run(tmp_path):
        pass
    with pytest.raises(SmilexError, match="seed was 0 and is 1"), open_run(tmp_path, {"seed": 1}, resume=True):
        pass


def test_a_path_below_a_file_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SmilexError, match="cannot write to"), open_run(tmp_path / "file" / "run"):
        pass


def test_a_full_disk_says_what_to_do(tmp_path):
    with pytest.raises(SmilexError, match="No space left on device; free space"), writing_to(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"new": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}


def test_only_complete_checkpoints_count(tmp_path):
    for step in (9, 10, 11):
        (tmp_path / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
    for step in (9, 10):
        write_json(tmp_path / "checkpoints" / f"checkpoint-{step}" / COMPLETE, {"step": step, "elapsed": 2.5})
    write_json(tmp_path / "settings.json", {"seed": 0})
    with open_run(tmp_path, resume=True) as run:
        assert run.checkpoint.name == "checkpoint-10"
        assert (run.step, run.elapsed) == (10, 2.5)
    assert not (tmp_path / "checkpoints" / "checkpoint-11").exists()


def test_the_log_is_cut_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n{"step": 3, "lo')
    MetricsLog(path, last_step=1)
    assert path.read_text() == '{"step": 1, "loss": 3}\n'


def test_damaged_settings_are_named(tmp_path):
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(SmilexError, match=r"settings\.json is damaged"), open_run(tmp_path, resume=True):
        pass


def test_a_write_that_torch_could_not_finish(tmp_path):
    with pytest.raises(SmilexError, match="cannot write to"), writing_to(tmp_path), open("/dev/full", "wb") as full:  # noqa: PTH123
        torch.save({"weights": torch.zeros(100_000)}, full)


def test_other_errors_pass_through(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"), writing_to(tmp_path):
        raise RuntimeError("shapes do not fit")


def test_two_processes_do_not_write_into_one_directory(tmp_path):
    script = (
        "import sys; from smilex.runs import Run\n"
        "with Run.open(sys.argv[1], {'seed': 0}, resume=False):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, tmp_path / "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        for resume in (False, True):
            with (
                pytest.raises(SmilexError, match="another process is at work"),
                open_run(tmp_path / "run", resume=resume),
            ):
                pass
        other.kill()
        other.wait()
    with open_run(tmp_path / "run", resume=True) as run:  # a dead process holds nothing
        assert run.step == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["settings.json"]


def test_whoever_may_read_the_configuration_may_read_the_weights(tmp_path):
    old = os.umask(0o027)
    try:
        save_model(ExLMModel(ExLMConfig.from_preset("tiny", num_hidden_layers=1)), SmilesTokenizer(), tmp_path)
    finally:
        os.umask(old)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"), "0o640"
    )
