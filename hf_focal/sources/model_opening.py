"""Which source a trained model is: what it is used for, and what computes its scores."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from ..errors import InputError
from ..tasks.heads import task_of_config
from ..tasks.input_options import InputOptions, check_options
from ..tasks.task import LABEL_WORDS, MULTIPLE_CHOICE, Task
from .label_words import LabelWordsSource
from .model import ModelSettings, ModelSource
from .model_loading import load_config
from .multiple_choice import MultipleChoiceSource
from .onnx_source import OnnxSource

_SOURCES = {LABEL_WORDS.name: LabelWordsSource, MULTIPLE_CHOICE.name: MultipleChoiceSource}


def open_model(
    name: str | Path,
    num_bins: int,
    /,
    task: str | None = None,
    batch_size: int = 16,
    onnx: str | Path | None = None,
    **options: Any,
) -> ModelSource:
    """Return the source of a model; the arguments are those of `evaluate_model`, with the fields of `InputOptions`.

    Raises:
        InputError: the model's config cannot be loaded, or an option is none of such models.
    """
    name = str(name)
    if onnx is not None:
        for argument in ("labels", "question_column"):
            if (value := options.get(argument)) is not None:
                raise InputError(argument, f"must not be given with onnx, got {value!r}")
    input_options = InputOptions(**options)
    config = load_config(name, input_options.trust_remote_code)
    chosen = choose_task(config, task, input_options)
    kind = _SOURCES.get(chosen.name, ModelSource) if onnx is None else OnnxSource
    source = kind(ModelSettings(name, config, chosen, input_options, batch_size, num_bins, onnx))
    check_options(input_options, chosen, name)
    return source


def choose_task(config: PreTrainedConfig, task: str | None, options: InputOptions) -> Task:
    """Return what a model is used for: label words or the options of questions if the user gives these, or else the
    task that is called `task` or, if this is None, that of the model's architecture.

    Raises:
        InputError: the task is not known, or the model cannot score what the user gives.
    """
    of_model = task_of_config(config, task)
    if options.labels is not None:
        argument, asked = "labels", LABEL_WORDS
    elif options.question_column is not None and not of_model.has_equal_options:
        argument, asked = "question_column", MULTIPLE_CHOICE
    else:
        return of_model
    if not of_model.is_causal:
        raise InputError(argument, f"must not be given for {config.name_or_path!r}, of the task {of_model.name}")
    return asked
