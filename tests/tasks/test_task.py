"""The table of tasks: its names exist in Transformers and in the options, and results find their task."""

from dataclasses import fields

import pytest
import transformers

from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.task import LABEL_WORDS, MULTIPLE_CHOICE, PIPELINES, TASKS, unit_of

LOADED = [*TASKS.values(), MULTIPLE_CHOICE, LABEL_WORDS]


@pytest.mark.parametrize("task", LOADED, ids=lambda task: task.name)
def test_the_names_in_the_table_exist(task):
    assert {*task.column_arguments} <= {option.name for option in fields(InputOptions)}
    assert hasattr(transformers, task.auto_class) and hasattr(transformers, task.processor)


def test_each_task_has_a_pipeline_tag_of_its_own():
    assert [PIPELINES[task.pipeline] for task in TASKS.values()] == [*TASKS.values()]


@pytest.mark.parametrize(
    ("task", "unit"),
    [
        ("token-classification", "words"),
        ("causal-lm", "tokens"),
        ("text-generation", "tokens"),  # the pipeline tag
        ("multiple-choice", "questions"),
        ("multiple-choice-head", "samples"),
        ("image-segmentation", "pixels"),
        ("scores", "samples"),
        (None, "samples"),
    ],
)
def test_a_result_has_the_unit_of_its_task(task, unit):
    assert unit_of(task) == unit
