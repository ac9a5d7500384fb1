import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from smilex.errors import SmilexError
from smilex.modeling import ExLMConfig, ExLMForMaskedLM, ExLMModel

CLS, SEP, MASK, PAD = 2, 3, 4, 0


@pytest.fixture(scope="module", params=[0, 2], ids=["expanded", "expanded in the upper half"])
def model(request):
    torch.manual_seed(0)
    fields = {"vocab_size": 40, "initializer_range": 0.2, "first_expanded_layer": request.param}
    return ExLMModel(ExLMConfig.from_preset("tiny", **fields)).eval()


def encode_alone(model, ids):
    return model(torch.tensor([ids])).last_hidden_state[0]


def test_padding_and_batch_mates_do_not_matter(model):
    short, long = [CLS, 10, MASK, SEP], [CLS, 10, 11, 12, 13, 14, SEP]
    batch = torch.tensor([short + [PAD] * 3, long])
    together = model(batch)
    for row, ids in zip(together.last_hidden_state, (short, long), strict=True):
        alone = encode_alone(model, ids)
        torch.testing.assert_close(row[: len(alone)], alone, rtol=0, atol=1e-5)


def test_attention_mask_and_pad_ids_say_the_same(model):
    ids = torch.tensor([[CLS, 10, 11, SEP, 12]])
    by_mask = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1, 0]]))
    by_pad = model(torch.tensor([[CLS, 10, 11, SEP, PAD]]))
    torch.testing.assert_close(by_mask.last_hidden_state, by_pad.last_hidden_state)


def test_without_masks_only_the_ends_are_expanded(model):
    output = model(torch.tensor([[CLS, 10, 11, SEP]]))
    assert output.state_index.tolist() == [[1, 2, 3, 4, 0, 0, 1, 2, 3, 4]]


def test_pooling(model):
    output = model(torch.tensor([[CLS, 10, 11, SEP, PAD], [CLS, 10, 11, 12, SEP]]))
    first = output.last_hidden_state[0]
    torch.testing.assert_close(output.pool("cls")[0], first[0])
    torch.testing.assert_close(output.pool("mean")[0], first[4:6].mean(0))


def test_pooling_a_molecule_without_ordinary_tokens_is_finite(model):
    assert model(torch.tensor([[CLS, MASK, SEP]])).pool("mean").isfinite().all()


def test_order_of_tokens_matters(model):
    a, b = (encode_alone(model, [CLS, *ids, SEP])[0] for ids in ([10, 11, 12], [12, 11, 10]))
    assert not torch.allclose(a, b, atol=1e-3)


def test_states_of_one_mask_differ_by_their_state_index(model):
    output = encode_alone(model, [CLS, MASK, SEP])
    assert not torch.allclose(output[4], output[5], atol=1e-4)


def test_hidden_states_are_returned_when_asked_for(model):
    seen = []
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for layer in model.layers]
    output = model(torch.tensor([[CLS, 10, SEP]]), output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    assert len(output.hidden_states) == model.config.num_hidden_layers + 1
    for hidden, expected in zip(output.hidden_states, [*seen, output.last_hidden_state], strict=True):
        copies = [0, 0, 0, 0, 1, 2, 2, 2, 2] if expected.shape[1] == 3 else slice(None)  # below the expansion
        torch.testing.assert_close(hidden, expected[:, copies], rtol=0, atol=0)
    assert model(torch.tensor([[CLS, 10, SEP]])).hidden_states is None


def test_initial_weights():
    torch.manual_seed(0)
    model = ExLMForMaskedLM(ExLMConfig.from_preset("small", vocab_size=300))
    first = model.config.hidden_size  # of [h_u ; e_u], the first coordinate of e_u: how transitions start near
    for name, parameter in model.named_parameters():
        if name.startswith("transitions.") and name.endswith("weight"):
            rest = parameter[:, 1:] if "position" in name else parameter[:, [i for i in range(2 * first) if i != first]]
            assert rest.std().item() == pytest.approx(0.02, rel=0.05), name
        elif name == "transitions.query.bias":
            assert parameter.count_nonzero() == model.config.num_attention_heads
        elif "norm" in name:
            assert (parameter == (1.0 if name.endswith("weight") else 0.0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
            assert abs(parameter.mean().item()) < 1e-3, name


def test_auto_classes_load_a_saved_directory(tmp_path):
    model = ExLMForMaskedLM(ExLMConfig.from_preset("tiny", vocab_size=40)).eval()
    model.save_pretrained(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir() if "model" in path.name] == [".safetensors"]
    ids = torch.tensor([[CLS, 10, MASK, SEP]])
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ExLMConfig)
    torch.testing.assert_close(AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(ids).logits, model(ids).logits)
    encoder, found = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values())
    encoder.eval()
    assert isinstance(encoder, ExLMModel)
    torch.testing.assert_close(encoder(ids).last_hidden_state, model.exlm(ids).last_hidden_state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 100, "num_attention_heads": 8}, "head width"),
        ({"num_states": 0}, "num_states"),
        ({"pooling": "max"}, "'cls' or 'mean'"),
        ({"num_hidden_layers": 4, "first_expanded_layer": 4}, "one of the 4 layers"),
        ({"first_expanded_layer": -1}, "first_expanded_layer"),
    ],
)
def test_sizes_that_do_not_fit(settings, message):
    with pytest.raises(SmilexError, match=message):
        ExLMConfig(**settings)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(SmilexError, match="tiny, small, base"):
        ExLMConfig.from_preset("huge")


def test_without_2d_rotary_positions_states_are_places_in_a_row():
    torch.manual_seed(0)
    fields = {"vocab_size": 40, "initializer_range": 0.2}
    states = ExLMModel(ExLMConfig.from_preset("tiny", num_states=3, rotary_2d=False, **fields)).eval()
    single = ExLMModel(ExLMConfig.from_preset("tiny", num_states=1, rotary_2d=False, **fields)).eval()
    single.load_state_dict(states.state_dict())
    expanded = states(torch.tensor([[CLS, 10, MASK, 11, SEP, PAD], [CLS, MASK, 12, 13, MASK, SEP]]))
    for row in range(2):
        copies = expanded.input_ids[row][expanded.attention_mask[row]].tolist()
        alone = single(torch.tensor([copies])).last_hidden_state[0]
        torch.testing.assert_close(expanded.last_hidden_state[row, : len(copies)], alone, rtol=0, atol=1e-5)


def test_without_2d_rotary_positions_gaps_between_tokens_stay():
    torch.manual_seed(0)
    flat = ExLMModel(ExLMConfig.from_preset("tiny", vocab_size=40, rotary_2d=False, initializer_range=0.2)).eval()
    ids = torch.tensor([[CLS, 10, 11, SEP]])
    near, far = (flat(ids, token_position=torch.tensor([places])) for places in ([0, 1, 2, 3], [0, 1, 5, 6]))
    assert not torch.allclose(near.last_hidden_state, far.last_hidden_state, atol=1e-3)


@pytest.mark.parametrize("token_position", [None, torch.tensor([[0, 1, 4, 5, 6]])], ids=["in a row", "with a gap"])
def test_layers_below_the_expansion_are_those_of_a_plain_encoder(token_position):
    torch.manual_seed(0)
    fields = {"vocab_size": 40, "initializer_range": 0.2}
    model = ExLMModel(ExLMConfig.from_preset("tiny", **fields, first_expanded_layer=3)).eval()
    plain = ExLMModel(ExLMConfig.from_preset("tiny", **fields, num_states=1)).eval()
    plain.load_state_dict(model.state_dict())
    ids = torch.tensor([[CLS, 10, MASK, 11, SEP]])
    output, expected = (
        each(ids, token_position=token_position, output_hidden_states=True).hidden_states for each in (model, plain)
    )
    copies = torch.tensor([0, 0, 0, 0, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4])
    for layer in range(4):
        torch.testing.assert_close(output[layer], expected[layer][:, copies])
    assert not torch.allclose(output[4], expected[4][:, copies], atol=1e-3)


def test_with_one_state_a_mask_it_does_not_matter_where_expansion_starts():
    torch.manual_seed(0)
    fields = {"vocab_size": 40, "initializer_range": 0.2, "num_states": 1}
    model = ExLMModel(ExLMConfig.from_preset("tiny", **fields)).eval()
    upper = ExLMModel(ExLMConfig.from_preset("tiny", **fields, first_expanded_layer=2)).eval()
    upper.load_state_dict(model.state_dict())
    ids = torch.tensor([[CLS, 10, MASK, SEP, PAD], [CLS, 10, 11, 12, SEP]])
    outputs = [each(ids) for each in (model, upper)]
    real = outputs[0].attention_mask
    torch.testing.assert_close(*(output.last_hidden_state[real] for output in outputs))
