"""The trainer's evaluations warn of a tokenizer whose padding changes the logits."""

import logging

import pytest
from checkpoints import save_tokenizer
from datasets import Dataset
from tiny_models import tiny_bert, trainer_of
from transformers import DataCollatorWithPadding


@pytest.mark.parametrize("given_as", ["processing_class", "data_collator"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_the_left_is_warned_of_once(given_as, side, tmp_path, caplog):
    tokenizer = save_tokenizer(tmp_path / "tokenizer", padding_side=side)
    texts = ["the new food was good", "bad art", "it is music", "they was old and bad"] * 5
    rows = Dataset.from_dict({**tokenizer(texts), "labels": [0, 1, 2, 3] * 5})
    given = {given_as: tokenizer if given_as == "processing_class" else DataCollatorWithPadding(tokenizer)}
    trainer = trainer_of(tmp_path, tiny_bert(), eval_dataset=rows, **given)
    with caplog.at_level(logging.WARNING):
        trainer.evaluate()
        trainer.evaluate()
    warned = [message for message in caplog.messages if "padded on the left, which changes" in message]
    assert len(warned) == (side == "left")


def test_texts_of_one_length_need_no_warning(tmp_path, caplog):
    tokenizer = save_tokenizer(tmp_path / "tokenizer", padding_side="left")
    rows = Dataset.from_dict({**tokenizer(["bad art", "old food"] * 5), "labels": [0, 1] * 5})
    trainer_of(tmp_path, tiny_bert(), eval_dataset=rows, processing_class=tokenizer).evaluate()
    assert "padded on the left" not in caplog.text
