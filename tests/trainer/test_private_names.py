"""Releases of PyTorch and Transformers that drop a private name: an error or a slower path, never another number."""

import pytest
import torch
from tiny_models import rows, settings, tiny_bert
from transformers import Trainer

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.losses import checks


def test_checks_on_an_accelerator_wait_without_the_asynchronous_assertion(monkeypatch):
    class OnDevice:
        device = torch.device("cuda")
        untyped_storage = print

        def __bool__(self):
            return False

    seen = []
    monkeypatch.setattr(checks, "_assert_async", lambda *arguments: seen.append(arguments))
    checks.raise_unless(OnDevice(), "labels", "must be classes")
    assert len(seen) == 1
    monkeypatch.setattr(checks, "_assert_async", None)
    with pytest.raises(ValueError, match="labels must be classes"):
        checks.raise_unless(OnDevice(), "labels", "must be classes")


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
