"""Options that a kind of model does not take."""

from dataclasses import fields

import pytest
from transformers import BertConfig

from hf_focal import InputError
from hf_focal.sources.model_opening import open_model
from hf_focal.tasks.input_options import InputOptions, check_options, options_of
from hf_focal.tasks.task import LABEL_WORDS, MULTIPLE_CHOICE, TASKS

CLASSES = {"label_column", "label_map", "label_format", "positive_from", "problem_type"}
QUESTIONS = {"question_column", "choices_column", "answer_column", "letters"}
TAKEN = {  # besides those that every task takes
    "text-classification": {"text_column", "text_pair_column", "max_length", *CLASSES},
    "image-classification": {"image_column", *CLASSES},
    "audio-classification": {"audio_column", *CLASSES},
    "token-classification": {"token_column", "tag_column", "label_map", "max_length"},
    "multiple-choice-head": {"max_length", *QUESTIONS},
    "causal-lm": {"text_column", "max_length"},
    "seq2seq-lm": {"source_column", "target_column", "source_prefix", "source_lang", "target_lang", "max_length"},
    "multiple-choice": {"max_length", "score", "template", "chat", "scores_folder", *QUESTIONS},
    "label-words": {"labels", "prompt", "chat", "system", "save_as", "max_length", *CLASSES},
}


@pytest.mark.parametrize("task", [*TASKS.values(), MULTIPLE_CHOICE, LABEL_WORDS], ids=lambda task: task.name)
def test_what_each_task_takes(task):
    assert options_of(task) - {"cluster_column", "group", "max_samples", "trust_remote_code"} == TAKEN[task.name]
    check_options(InputOptions(), task, "model")


def test_every_option_is_taken_by_a_task():
    taken = set().union(*map(options_of, (*TASKS.values(), MULTIPLE_CHOICE, LABEL_WORDS)))
    assert taken == {field.name for field in fields(InputOptions)}


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("text-classification", {"letters": "a,b"}, "letters must not be given for 'm', of the task .*, got 'a,b'"),
        ("text-classification", {"chat": True}, "chat must not be given for 'm', of the task .*, got True"),
        ("text-classification", {"source_lang": "de"}, "source_lang must not be given for 'm', of the task text-.*"),
        (
            "image-classification",
            {"max_length": 9},
            "max_length must not be given for .*, of the task image-.*, got 9",
        ),
        ("token-classification", {"label_column": "y"}, "label_column must not be given for 'm', .*, got 'y'"),
        ("multiple-choice-head", {"score": "text"}, "score must not be given for .m., of the task multiple-choice-h"),
        ("causal-lm", {"audio_column": "y"}, "audio_column must not be given for 'm', of the task causal-lm, got 'y'"),
        ("causal-lm", {"template": "y"}, "template must not be .* of the task causal-lm without question_column, got"),
        ("causal-lm", {"label_map": {"a": "b"}}, "label_map must not be .* of the task causal-lm without labels, got"),
        ("causal-lm", {"chat": True}, "chat must not be .* causal-lm without labels or question_column, got True"),
    ],
)
def test_an_option_that_a_task_does_not_take(task, options, message):
    with pytest.raises(InputError, match=message) as caught:
        check_options(InputOptions(**options), TASKS[task], "m")
    assert caught.value.argument in options


def test_a_model_is_not_opened_with_such_an_option(tmp_path):
    BertConfig(architectures=["BertForSequenceClassification"]).save_pretrained(tmp_path)
    open_model(tmp_path, 15, label_column="label", audio_column="audio", score="letters")
    with pytest.raises(InputError, match=r"audio_column must not be given for .*, of the task text-.*, got"):
        open_model(tmp_path, 15, audio_column="sound")
