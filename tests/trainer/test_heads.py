"""docs/heads.md: every head of Transformers' Auto classes works, or gets the sentence that the page quotes."""

import re
from functools import cache

import pytest
import torch
import transformers
from documented import ROOT
from tiny_models import settings
from torch import nn
from transformers.models.auto import modeling_auto

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.trainer.head_kinds import check_model
from hf_focal.trainer.loss_function import logits_of

WORKS, REFUSED = (ROOT / "docs" / "heads.md").read_text(encoding="utf-8").split("## Is refused")
ROW = re.compile(r"^\| `(AutoModelFor\w+)` \| `(\w+)` \| (.+?) \|", re.MULTILINE)
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 30}


@cache
def shell(name):
    """A model of a class with its default configuration, and without its layers."""
    model_class = getattr(transformers, name, None)
    if model_class is None:
        pytest.skip(f"this release of Transformers has no {name}")
    model = model_class.__new__(model_class)
    nn.Module.__init__(model)
    model.config = model_class.config_class()
    return model


def test_every_auto_class_has_one_row():
    named = [auto for auto, *_ in ROW.findall(WORKS) + ROW.findall(REFUSED)]
    assert len(named) == len(set(named))
    assert {name for name in vars(modeling_auto) if name.startswith("AutoModelFor")} <= set(named)


@pytest.mark.parametrize(("auto", "name"), [row[:2] for row in ROW.findall(WORKS)])
def test_what_works_is_not_refused(auto, name):
    model = shell(name)
    assert type(model.config) in getattr(transformers, auto)._model_mapping
    check_model(model)


@pytest.mark.parametrize(("name", "sentence"), [row[1:] for row in ROW.findall(REFUSED)])
def test_what_is_refused_gets_the_sentence(name, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_model(shell(name))
        logits_of({"last_hidden_state": None})  # as of a model without a head


@pytest.mark.parametrize("name", ["BertForMultipleChoice", "BertForNextSentencePrediction", "BertForMaskedLM"])
def test_heads_of_other_shapes_train_and_are_measured(name, tmp_path):
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**SIZES, max_position_embeddings=16))
    shape = (3, 6) if name == "BertForMultipleChoice" else (6,)
    classes, own = (30, (6,)) if name == "BertForMaskedLM" else (shape[0] if shape[1:] else 2, ())

    def samples(count):
        return [{"input_ids": torch.randint(30, shape), "labels": torch.randint(classes, own)} for _ in range(count)]

    args = FocalTrainingArguments(**settings(tmp_path, loss="focal:gamma=2", max_steps=1))
    trainer = FocalTrainer(model, args, train_dataset=samples(8), eval_dataset=samples(20))
    trainer.train()
    assert trainer.evaluate()["eval_num_samples"] == 20 * (6 if own else 1)
    assert trainer.fit_temperature().num_samples == 20 * (6 if own else 1)
