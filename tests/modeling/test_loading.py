import json
import pickle
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging

import smilex
from smilex.embedding import embed
from smilex.errors import SmilexError
from smilex.filling import fill_mask
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMForMoleculeProperty, ExLMModel
from smilex.modeling.cross_unmasking import ExLMForCrossUnmasking
from smilex.modeling.loading import find_encoder, load_config, load_model, quiet_transformers, starting_config
from smilex.modeling.masked_autoencoder import ExLMForMaskedAutoencoding
from smilex.prediction import predict

CLASSES = [ExLMModel, ExLMForMaskedLM, ExLMForMoleculeProperty]


def tiny(**changes):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return ExLMConfig(**{**sizes, "vocab_size": 40, **changes})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One directory for each class of model."""
    folder = tmp_path_factory.mktemp("saved")
    for model_class in CLASSES:
        torch.manual_seed(0)
        with quiet_transformers():
            model_class(tiny()).save_pretrained(folder / model_class.__name__)
    return {model_class: folder / model_class.__name__ for model_class in CLASSES}


@pytest.fixture
def directory(saved, tmp_path):
    """A masked language model that a test may break."""
    return shutil.copytree(saved[ExLMForMaskedLM], tmp_path / "model")


def change_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(call, *parts):
    """The call must fail with one line that has these parts."""
    with pytest.raises(SmilexError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


def fill_in(directory):
    return fill_mask("C[MASK]", directory)


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_model_comes_back_as_it_was_saved_and_in_eval_mode(saved, model_class):
    model = load_model(model_class, saved[model_class])
    assert not model.training
    weights = load_file(saved[model_class] / "model.safetensors")
    state = model.state_dict()
    for name, value in weights.items():
        assert torch.equal(state[name], value)


@pytest.mark.parametrize("source", CLASSES)
def test_every_model_gives_its_encoder(saved, source):
    state = load_model(ExLMModel, saved[source]).state_dict()
    weights = load_file(saved[source] / "model.safetensors")
    for name, value in state.items():
        assert torch.equal(value, weights[name if source is ExLMModel else f"exlm.{name}"])


@pytest.mark.parametrize(
    ("source", "wanted", "head", "way_out"),
    [
        (ExLMModel, ExLMForMaskedLM, "lm_head", "; name a directory that smilex pretrain wrote"),
        (ExLMModel, ExLMForMoleculeProperty, "dense", "; fine-tune it first with smilex finetune"),
        (ExLMForMaskedLM, ExLMForMoleculeProperty, "dense", "; fine-tune it first with smilex finetune"),
        (ExLMForMoleculeProperty, ExLMForMaskedLM, "lm_head", "; name a directory that smilex pretrain wrote"),
    ],
)
def test_a_head_that_was_not_saved_is_never_made_up(saved, source, wanted, head, way_out):
    refused(lambda: load_model(wanted, saved[source]), wanted.__name__, f"lacks {head}", way_out)


@pytest.mark.parametrize("use", [lambda path: predict(path, ["C"]), lambda path: embed(["C"], path), fill_in])
def test_every_function_says_what_to_do_with_a_directory_without_a_model(tmp_path, use):
    refused(lambda: use(tmp_path), "name one that smilex pretrain or smilex finetune wrote")
    (tmp_path / "settings.json").write_text("{}")
    refused(lambda: use(tmp_path), "did not finish: run the same command to its end first")


@pytest.mark.parametrize("use", [lambda path: embed(["C"], path), fill_in])
def test_a_fine_tuning_run_leads_to_its_models(saved, use):
    folder = saved[ExLMModel].parent
    refused(lambda: use(folder), f"did you mean {folder / 'ExLMForMaskedLM'}?")


def test_new_heads_keep_the_encoder(saved):
    model = load_model(ExLMForMoleculeProperty, saved[ExLMForMaskedLM], new_heads=True)
    weights = load_file(saved[ExLMForMaskedLM] / "model.safetensors")
    for name, value in model.exlm.state_dict().items():
        assert torch.equal(value, weights[f"exlm.{name}"])


@pytest.mark.parametrize("model_class", [ExLMForMaskedLM, ExLMForMaskedAutoencoding, ExLMForCrossUnmasking])
def test_no_weight_of_a_new_head_is_what_the_memory_happened_to_hold(saved, model_class):
    torch.use_deterministic_algorithms(mode=True, warn_only=True)  # fills new memory with NaN
    try:
        model = load_model(model_class, saved[ExLMModel], config=tiny(num_states=1), new_heads=True)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    heads = {name: value for name, value in model.named_parameters() if not name.startswith("exlm.")}
    assert heads
    for name, value in heads.items():
        assert value.isfinite().all(), name
        if name.endswith("bias"):
            assert not value.any(), name


def test_new_heads_of_another_shape_start_anew(saved):
    three_tasks = tiny(num_labels=3)
    model = load_model(ExLMForMoleculeProperty, saved[ExLMForMoleculeProperty], config=three_tasks, new_heads=True)
    assert model.output.out_features == 3
    assert torch.isfinite(model.output.weight).all()


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 3}, {"hidden_size": 64}, {"vocab_size": 41}])
def test_an_encoder_is_never_made_up_not_even_beside_new_heads(directory, changes):
    change_config(directory, **changes)
    refused(lambda: load_model(ExLMModel, directory), "it lacks")
    refused(lambda: load_model(ExLMModel, directory, new_heads=True), "it lacks")
    refused(lambda: load_model(ExLMForMoleculeProperty, directory, new_heads=True), "it lacks exlm.")


def test_weights_of_another_model_are_refused(directory):
    save_file({"bert.embeddings.word_embeddings.weight": torch.zeros(3, 4)}, directory / "model.safetensors")
    refused(lambda: load_model(ExLMModel, directory), "was not saved as ExLMModel")
    refused(lambda: load_model(ExLMForMaskedLM, directory, new_heads=True), "it lacks exlm.")


def test_a_missing_directory(tmp_path):
    refused(lambda: load_config(tmp_path / "nowhere"), "nowhere", "there is no such directory")


def test_a_file_in_place_of_a_directory(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"")
    refused(lambda: load_config(tmp_path / "model.pt"), "there is no such directory")


def test_a_directory_that_is_no_model(tmp_path):
    refused(lambda: load_config(tmp_path), "is not a model directory", "config.json")


def test_a_directory_of_models_names_the_first(saved):
    folder = saved[ExLMModel].parent
    refused(lambda: load_config(folder), "is not a model directory", f"did you mean {folder / 'ExLMForMaskedLM'}?")


@pytest.mark.parametrize("kind", ["bert", "", None, 3])
def test_another_type_of_model(directory, kind):
    change_config(directory, model_type=kind)
    refused(lambda: load_config(directory), f"type {kind!r}", "'exlm'")


@pytest.mark.parametrize("content", ["[]", "3", "null", '"exlm"', "{}"])
def test_a_configuration_that_is_json_but_none_of_ours(directory, content):
    (directory / "config.json").write_text(content)
    refused(lambda: load_config(directory), "model of type None")


@pytest.mark.parametrize("content", [b"", b"{", b'{"model_type": "ex', b"\xff\xfe\x00", b"not json", b"\x00" * 100])
def test_a_configuration_that_is_cut_off_or_no_json(directory, content):
    (directory / "config.json").write_bytes(content)
    refused(lambda: load_config(directory), "cannot read", "config.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", "abc"),
        ("hidden_size", None),
        ("hidden_size", 32.0),
        ("hidden_size", 30),
        ("num_attention_heads", 0),
        ("num_hidden_layers", [2]),
        ("num_states", 0),
        ("pooling", "max"),
        ("pooling", 1),
        ("rope_base", "1e4"),
        ("max_position_embeddings", {}),
        ("dtype", "float31"),
        ("id2label", [1]),
    ],
)
def test_damaged_values_of_the_configuration(directory, field, value):
    change_config(directory, **{field: value})
    refused(lambda: load_model(ExLMModel, directory), str(directory))


@pytest.mark.parametrize(("field", "value"), [("vocab_size", 0), ("hidden_dropout_prob", 3.0), ("hidden_size", -32)])
def test_values_that_make_no_model(directory, field, value):
    change_config(directory, **{field: value})
    refused(lambda: load_model(ExLMModel, directory), str(directory))


def test_fields_of_others_and_whole_numbers_do_no_harm(directory):
    change_config(directory, rope_base=10000, note="mine")
    load_model(ExLMModel, directory)


@pytest.mark.parametrize("version", ["999.0", "1000", "999.0.dev3", "999!0"])
def test_a_model_of_a_newer_version(directory, version):
    change_config(directory, smilex_version=version)
    refused(lambda: load_config(directory), f"smilex {version}", smilex.__version__, "pip install --upgrade smilex")


@pytest.mark.parametrize("version", ["0.0.1", smilex.__version__])
def test_models_of_older_versions_and_of_this_one_load(directory, version):
    change_config(directory, smilex_version=version)
    assert load_config(directory).smilex_version == version


@pytest.mark.parametrize("version", ["latest", "", None, [1]])
def test_a_version_that_is_none(directory, version):
    change_config(directory, smilex_version=version)
    refused(lambda: load_config(directory), "which is no version")


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, 0.99, -1])
def test_truncated_weights(directory, kept):
    path = directory / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    refused(lambda: load_model(ExLMModel, directory), "cannot load the weights", str(directory))


@pytest.mark.parametrize("content", [b"garbage" * 100, pickle.dumps({"a": 1}), b"PK\x03\x04" + b"\0" * 64])
def test_weights_that_are_something_else(directory, content):
    (directory / "model.safetensors").write_bytes(content)
    refused(lambda: load_model(ExLMModel, directory), "cannot load the weights")


def test_missing_weights(directory):
    (directory / "model.safetensors").unlink()
    refused(lambda: load_model(ExLMModel, directory), "cannot load the weights", "model.safetensors")


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (self._path, "w")


def test_a_pickle_is_never_opened(directory, tmp_path):
    (directory / "model.safetensors").unlink()
    trap = tmp_path / "sprung"
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(str(trap))))
    refused(lambda: load_model(ExLMModel, directory), "cannot load the weights")
    assert not trap.exists()


def test_weights_in_a_pickle_are_refused_even_if_harmless(directory):
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    refused(lambda: load_model(ExLMModel, directory), "cannot load the weights")


@pytest.mark.parametrize("encoder", ["smilex-smal", "seyonec/ChemBERTa-zinc-base-v1", "../elsewhere", "x" * 5000, "\0"])
def test_an_encoder_that_does_not_exist(encoder):
    message = refused(lambda: find_encoder(encoder), "no encoder", "smilex pretrain", "encoder=DIRECTORY")
    assert re.search(r"this version ships \S", message)


def test_an_encoder_that_ships_is_found_by_its_name(directory, monkeypatch):
    monkeypatch.setattr("smilex.modeling.loading.SHIPPED", directory.parent)
    assert find_encoder("model") == directory
    refused(lambda: find_encoder("other"), "ships model")


def test_transformers_is_quiet_only_inside():
    def fail():
        with quiet_transformers():
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
            raise KeyError

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with pytest.raises(KeyError):
        fail()
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_nothing_is_printed_while_loading(saved, capfd):
    for source in CLASSES:
        load_model(ExLMForMoleculeProperty, saved[source], new_heads=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_load_as_float32(saved, tmp_path, model_class, dtype):
    whole = load_model(model_class, saved[model_class])
    with quiet_transformers():
        load_model(model_class, saved[model_class]).to(dtype).save_pretrained(tmp_path)
    loaded = load_model(model_class, tmp_path)
    assert (
        load_file(tmp_path / "model.safetensors")[
            "exlm.final_norm.weight" if model_class is not ExLMModel else "final_norm.weight"
        ].dtype
        == dtype
    )
    assert {weight.dtype for weight in loaded.state_dict().values()} == {torch.float32}
    for name, weight in whole.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(dtype).float())


@pytest.mark.parametrize("size", ["small", ""])
def test_a_size_beside_an_encoder_is_refused_even_where_it_is_the_default(saved, size):
    assert starting_config(saved[ExLMModel], None).hidden_size == 32
    with pytest.raises(SmilexError, match="is the size of a new encoder, and encoder has its own"):
        starting_config(saved[ExLMModel], size)
