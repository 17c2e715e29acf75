"""Which options of `InputOptions` a kind of model takes; each field says so."""

from dataclasses import fields

from ..errors import InputError
from .input_options import InputOptions
from .task import LABEL_WORDS, MULTIPLE_CHOICE, Task


def options_of(task: Task) -> set[str]:
    """Return the names of the options that models of a task take."""
    taken = set()
    for field in fields(InputOptions):
        takes = field.metadata["takes"]
        if field.name in task.column_arguments if takes is None else takes(task):
            taken.add(field.name)
    return taken


def check_options(options: InputOptions, task: Task, model: str) -> None:
    """Raise `InputError` for an option that was changed from its default, but that models of this task do not take.

    `model` is the name of the model in the error.
    """
    taken = options_of(task)
    for field in fields(options):
        name, value = field.name, getattr(options, field.name)
        if value == field.default or name in taken:
            continue
        others = {"labels": LABEL_WORDS, "question_column": MULTIPLE_CHOICE} if task.is_causal else {}
        needed = " or ".join(option for option, other in others.items() if name in options_of(other))
        kind = f"of the task {task.name}" + (f" without {needed}" if needed else "")
        raise InputError(name, f"must not be given for {model!r}, {kind}, got {value!r}")
