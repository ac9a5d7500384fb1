import pytest
import torch

from smilex.modeling import ExLMConfig, ExLMForMoleculeProperty

IDS = torch.tensor([[2, 10, 11, 3, 0], [2, 10, 11, 12, 3]])
NAN = float("nan")


def build(problem_type, tasks=2):
    torch.manual_seed(0)
    config = ExLMConfig.from_preset("tiny", vocab_size=40, num_labels=tasks, problem_type=problem_type)
    return ExLMForMoleculeProperty(config).eval()


def test_missing_labels_count_for_nothing():
    model = build("multi_label_classification")
    labels = torch.tensor([[1.0, NAN], [0.0, 1.0]])
    output = model(IDS, labels=labels)
    present = ~labels.isnan()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(output.logits[present], labels[present])
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_weights_of_labels_are_the_positive_weight_of_torch():
    model = build("multi_label_classification")
    labels = torch.tensor([[1.0, NAN], [0.0, 1.0]])
    positive = torch.tensor([3.0, 0.25])
    output = model(IDS, labels=labels, label_weights=torch.where(labels == 1, positive, 1.0))
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        output.logits, labels.nan_to_num(), pos_weight=positive, reduction="none"
    )
    torch.testing.assert_close(output.loss, losses[~labels.isnan()].mean())
    assert output.loss != model(IDS, labels=labels).loss


def test_weights_of_labels_scale_squared_errors():
    model = build("regression")
    labels, weights = torch.tensor([[1.0, NAN], [0.5, 2.0]]), torch.tensor([[2.0, 9.0], [0.0, 1.0]])
    output = model(IDS, labels=labels, label_weights=weights)
    expected = (2 * (output.logits[0, 0] - 1) ** 2 + (output.logits[1, 1] - 2) ** 2) / 3
    torch.testing.assert_close(output.loss, expected)


def test_batch_without_labels_has_loss_zero():
    output = build("regression")(IDS, labels=torch.full((2, 2), NAN))
    assert output.loss.item() == 0


def test_regression_is_standardised_inside():
    model = build("regression")
    model.target_mean.copy_(torch.tensor([5.0, -3.0]))
    model.target_std.copy_(torch.tensor([2.0, 0.5]))
    values = model.predict(IDS)
    torch.testing.assert_close(values, model(IDS).logits * model.target_std + model.target_mean)
    assert model(IDS, labels=values).loss.item() == pytest.approx(0, abs=1e-10)


def test_classification_predicts_probabilities():
    model = build("multi_label_classification")
    torch.testing.assert_close(model.predict(IDS), model(IDS).logits.sigmoid())


def test_saved_model_predicts_the_same(tmp_path):
    model = build("regression")
    model.target_mean.fill_(7.0)
    model.target_std.fill_(3.0)
    model.save_pretrained(tmp_path)
    again = ExLMForMoleculeProperty.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again.predict(IDS), model.predict(IDS), rtol=0, atol=0)
