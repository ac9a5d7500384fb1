import pytest
import torch
from torch import nn

from smilex.modeling import ExLMConfig, ExLMModel
from smilex.modeling.masked_autoencoder import ExLMForMaskedAutoencoding

CLS, SEP, MASK, PAD = 2, 3, 4, 0
VISIBLE = [0, 1, 4, 5, 7]
WHOLE = [CLS, 10, 11, 12, 13, 14, 15, SEP]


@pytest.fixture(scope="module", params=[1, 4])
def model(request):
    torch.manual_seed(0)
    config = ExLMConfig.from_preset("tiny", vocab_size=40, initializer_range=0.2, num_states=request.param)
    return ExLMForMaskedAutoencoding(config).double().eval()


def masked(ids, visible=VISIBLE):
    return [token if place in visible else MASK for place, token in enumerate(ids)]


def test_the_encoder_sees_the_cut_sequence_at_the_old_positions(model):
    cut, places = torch.tensor([[WHOLE[place] for place in VISIBLE]]), torch.tensor([VISIBLE])
    expected = model.exlm(cut, token_position=places)
    found = model.encode(torch.tensor([masked(WHOLE)]))
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state)
    assert MASK not in found.input_ids
    assert sorted(set(found.token_position[0].tolist())) == VISIBLE


def test_positions_are_kept_and_not_closed_up(model):
    cut = torch.tensor([[WHOLE[place] for place in VISIBLE]])
    closed_up = model.exlm(cut).last_hidden_state
    assert not torch.allclose(model.encode(torch.tensor([masked(WHOLE)])).last_hidden_state, closed_up, atol=1e-3)


def test_without_masks_it_is_the_plain_encoder(model):
    ids = torch.tensor([WHOLE, [*WHOLE[:4], SEP, PAD, PAD, PAD]])
    found, plain = model.encode(ids), model.exlm(ids)
    real = plain.attention_mask
    torch.testing.assert_close(found.last_hidden_state[real], plain.last_hidden_state[real])
    output = model(ids, labels=torch.full_like(ids, -100))
    assert output.logits.shape == (0, 40)
    assert output.loss == 0


def test_padding_and_batch_mates_do_not_matter(model):
    short = [CLS, MASK, 10, SEP]
    together = model(torch.tensor([short + [PAD] * 4, masked(WHOLE)])).logits
    alone = [model(torch.tensor([ids])).logits for ids in (short, masked(WHOLE))]
    torch.testing.assert_close(together, torch.cat(alone))


def test_loss_is_the_mean_cross_entropy_at_the_masks(model):
    batch = torch.tensor([[CLS, MASK, 10, SEP] + [PAD] * 4, masked(WHOLE)])
    labels = torch.tensor([[-100, 21, -100, -100] + [-100] * 4, [-100, -100, 11, 12, -100, -100, 15, -100]])
    output = model(batch, labels=labels)
    log_probs = output.logits.log_softmax(-1)
    expected = -sum(log_probs[row, token] for row, token in enumerate([21, 11, 12, 15])) / 4
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=0)


def test_log_probs_of_masks_stand_at_their_molecule(model):
    batch = torch.tensor([[CLS, MASK, 10, SEP] + [PAD] * 4, masked(WHOLE)])
    output = model(batch)
    found = model.mask_log_probs(output, torch.tensor([1, 3]))
    assert found.shape == (2, 3, 40)
    torch.testing.assert_close(torch.cat([found[0, :1], found[1]]), output.logits.log_softmax(-1))


def test_the_decoder_knows_which_mask_is_where(model):
    logits = model(torch.tensor([masked(WHOLE)])).logits
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_a_third_of_the_layers_decode():
    for layers, expected in {1: 1, 2: 1, 4: 1, 6: 2, 12: 4}.items():
        config = ExLMConfig.from_preset("tiny", num_hidden_layers=layers)
        assert len(ExLMForMaskedAutoencoding(config).decoder.layers) == expected


def test_every_weight_learns(model):
    labels = torch.tensor([[-100, -100, 11, 12, -100, -100, 15, -100]])
    model.zero_grad()
    model(torch.tensor([masked(WHOLE)]), labels=labels).loss.backward()
    without = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert without == set()
    # The row of [MASK] in the embedding is a candidate of the prediction only; the encoder never reads it.
    embedding = model.exlm.word_embeddings
    seen = []
    hook = embedding.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    model(torch.tensor([masked(WHOLE)]))
    hook.remove()
    assert len(seen) == 1
    assert MASK not in seen[0]


def test_positions_given_in_order_change_nothing():
    torch.manual_seed(0)
    plain: nn.Module = ExLMModel(ExLMConfig.from_preset("tiny", vocab_size=40)).eval()
    ids = torch.tensor([[CLS, 10, MASK, SEP, PAD], [CLS, 10, 11, 12, SEP]])
    given = plain(ids, token_position=torch.arange(5).expand(2, -1))
    torch.testing.assert_close(given.last_hidden_state, plain(ids).last_hidden_state, rtol=0, atol=0)
    assert torch.equal(given.token_position, plain(ids).token_position)
