"""What a model is used for, and which source it is, before anything of it but its config is loaded."""

import pytest
from transformers import BertConfig, GPT2Config

from hf_focal import InputError
from hf_focal.sources.label_words import LabelWordsSource
from hf_focal.sources.model import ModelSource
from hf_focal.sources.model_opening import choose_task, open_model
from hf_focal.sources.multiple_choice import MultipleChoiceSource
from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.task import LABEL_WORDS, MULTIPLE_CHOICE, TASKS

CAUSAL = GPT2Config(architectures=["GPT2LMHeadModel"])
CHOICES = BertConfig(architectures=["BertForMultipleChoice"])
CLASSIFIER = BertConfig(architectures=["BertForSequenceClassification"])
WORDS = {"labels": "yes,no", "prompt": "{text} is"}


@pytest.mark.parametrize(
    ("config", "options", "task", "kind"),
    [
        (CAUSAL, {}, TASKS["causal-lm"], ModelSource),
        (CAUSAL, WORDS, LABEL_WORDS, LabelWordsSource),
        (CAUSAL, {"question_column": "q"}, MULTIPLE_CHOICE, MultipleChoiceSource),
        (CHOICES, {"question_column": "q"}, TASKS["multiple-choice-head"], ModelSource),
        (CLASSIFIER, {}, TASKS["text-classification"], ModelSource),
    ],
)
def test_the_options_say_what_a_language_model_is_used_for(config, options, task, kind, tmp_path):
    assert choose_task(config, None, InputOptions(**options)) is task
    config.save_pretrained(tmp_path)
    source = open_model(tmp_path, 15, **options)
    assert type(source) is kind and source.task is task
    assert source.classes == {LABEL_WORDS: ("yes", "no"), TASKS["text-classification"]: ("LABEL_0", "LABEL_1")}.get(
        task, ()
    )


@pytest.mark.parametrize(("config", "argument"), [(CLASSIFIER, "labels"), (CLASSIFIER, "question_column")])
def test_other_models_score_neither_label_words_nor_options(config, argument):
    options = InputOptions(**(WORDS if argument == "labels" else {"question_column": "q"}))
    with pytest.raises(InputError, match=f"^{argument} must not be given for .*, of the task text-classification"):
        choose_task(config, None, options)
