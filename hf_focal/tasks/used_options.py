"""Which options of `InputOptions` a kind of model takes."""

from dataclasses import fields

from ..errors import InputError
from .input_options import InputOptions
from .task import LABEL_WORDS, MULTIPLE_CHOICE, LabelKind, Task

_OF_EVERY_TASK = {"cluster_column", "group", "max_samples", "trust_remote_code"}
_OF_LABELS: dict[LabelKind | None, set[str]] = {
    LabelKind.CLASSES: {"label_map", "label_format", "positive_from", "problem_type"},
    LabelKind.TAGS: {"label_map"},
    LabelKind.ANSWERS: {"letters"},
}
_OF_TASK = {
    MULTIPLE_CHOICE.name: {"score", "template", "chat", "scores_folder"},
    LABEL_WORDS.name: {"labels", "chat", "system", "save_as"},
}


def options_of(task: Task) -> set[str]:
    """Return the names of the options that models of a task take."""
    names = {*_OF_EVERY_TASK, *task.column_arguments, *_OF_LABELS.get(task.labels, ()), *_OF_TASK.get(task.name, ())}
    if task.takes_texts:
        names.add("max_length")
    if task.takes_translations:
        names |= {"source_prefix", "source_lang", "target_lang"}
    return names


def check_options(options: InputOptions, task: Task, model: str) -> None:
    """Raise `InputError` for an option that was changed from its default, but that models of this task do not take.

    `model` is the name of the model in the error.
    """
    for field in fields(options):
        name, value = field.name, getattr(options, field.name)
        if value == field.default or name in options_of(task):
            continue
        others = {"labels": LABEL_WORDS, "question_column": MULTIPLE_CHOICE} if task.is_causal else {}
        needed = " or ".join(option for option, other in others.items() if name in options_of(other))
        kind = f"of the task {task.name}" + (f" without {needed}" if needed else "")
        raise InputError(name, f"must not be given for {model!r}, {kind}, got {value!r}")
