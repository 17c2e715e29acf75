"""`trained_model`: what a card says of a trained model and of its training."""

from torch import nn
from transformers import BertConfig, BertForSequenceClassification, TrainerState, TrainingArguments

from hf_focal.hub.trainer_card import trained_model, training_settings


class Arguments(TrainingArguments):
    loss_reduction = "mean"


def test_the_length_of_a_training_is_in_the_unit_that_was_asked_for(tmp_path):
    in_epochs = Arguments(str(tmp_path), num_train_epochs=3, report_to="none", use_cpu=True)
    settings = training_settings(in_epochs, TrainerState(global_step=7, epoch=2.5), pieces="all", nothing=None)
    assert settings["epochs"] == "2.5" and "steps" not in settings  # it stopped early
    assert settings["pieces"] == "all" and "nothing" not in settings
    assert settings["learning rate schedule"] == "linear" and settings["reduction of the loss"] == "mean"
    in_steps = Arguments(str(tmp_path), max_steps=9, report_to="none", use_cpu=True)
    assert training_settings(in_steps, TrainerState())["steps"] == 9
    settings = training_settings(in_steps, TrainerState(global_step=4, epoch=1.0))
    assert settings["steps"] == 4 and "epochs" not in settings


def test_a_card_knows_a_model_by_its_config():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=10, num_labels=3, **sizes))
    model.config.name_or_path = "org/encoder"
    known = trained_model(model, "org/mine", "text-classification", None, takes_pairs=True)
    assert (known.base, known.num_labels, known.is_loadable, known.is_adapter) == ("org/encoder", 3, True, False)
    assert known.package is None and known.takes_pairs
    assert trained_model(model, "mine", "text-classification", "org/other").base == "org/other"
    plain = trained_model(nn.Linear(1, 2), "mine", "text-classification", None)
    assert (plain.base, plain.num_labels, plain.is_loadable) == (None, None, False)
