"""Releases of PyTorch and Transformers that drop a private name: an error or a slower path, never another number."""

import pytest
import torch
from tiny_models import rows, settings, tiny_bert
from transformers import Trainer

from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss
from hf_focal.losses import closed_form_gradients, dtypes_and_label_checks


def gradients(times):
    logits = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    loss = build_loss("focal:gamma=2")(logits, torch.tensor([0, 1, 3]))
    for number in range(times):
        loss.backward(retain_graph=number + 1 < times)
    return logits.grad


def test_backward_copies_where_pytorch_does_not_say_whether_it_is_repeated(monkeypatch):
    once, twice = gradients(1), gradients(2)
    monkeypatch.setattr(closed_form_gradients, "_backward_keeps_graph", lambda: True)
    assert torch.equal(gradients(1), once)
    assert torch.equal(gradients(2), twice) and torch.equal(twice, 2 * once)


def test_checks_on_an_accelerator_wait_without_the_asynchronous_assertion(monkeypatch):
    class OnDevice:
        device = torch.device("cuda")
        untyped_storage = print

        def __bool__(self):
            return False

    seen = []
    monkeypatch.setattr(dtypes_and_label_checks, "_assert_async", lambda *arguments: seen.append(arguments))
    dtypes_and_label_checks.raise_unless(OnDevice(), "labels must be classes")
    assert len(seen) == 1
    monkeypatch.setattr(dtypes_and_label_checks, "_assert_async", None)
    with pytest.raises(ValueError, match="labels must be classes"):
        dtypes_and_label_checks.raise_unless(OnDevice(), "labels must be classes")


def trainer_of(folder):
    args = FocalTrainingArguments(**settings(folder))
    return FocalTrainer(tiny_bert(), args, train_dataset=rows(8))


@pytest.mark.parametrize("name", ["_push_from_checkpoint", "save_model(_internal_call=...)"])
def test_a_trainer_needs_its_private_names(name, monkeypatch, tmp_path):
    if name.startswith("save_model"):
        monkeypatch.setattr(Trainer, "save_model", lambda self, output_dir=None: None)
    else:
        monkeypatch.delattr(Trainer, name)
    with pytest.raises(RuntimeError, match=r"transformers .* must have Trainer\.") as raised:
        trainer_of(tmp_path)
    assert name in str(raised.value)
