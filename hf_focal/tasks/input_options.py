"""Options for the data that a trained model is evaluated on, with their help texts."""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import InputError
from ..utils.constants import MULTI_LABEL
from .task import LABEL_WORDS, MULTIPLE_CHOICE, LabelKind, Task

Takes = Callable[[Task], bool]  # whether models of a task take an option


def _every_task(_: Task) -> bool:
    return True


def _has_classes(task: Task) -> bool:
    return task.labels is LabelKind.CLASSES


def _has_named_labels(task: Task) -> bool:
    return task.labels in (LabelKind.CLASSES, LabelKind.TAGS)


def _has_questions(task: Task) -> bool:
    return task.labels is LabelKind.ANSWERS


def _reads_texts(task: Task) -> bool:
    return task.takes_texts


def _translates(task: Task) -> bool:
    return task.takes_translations


def _scores_options(task: Task) -> bool:
    return task.name == MULTIPLE_CHOICE.name


def _scores_label_words(task: Task) -> bool:
    return task.name == LABEL_WORDS.name


def _has_prompts(task: Task) -> bool:
    return _scores_options(task) or _scores_label_words(task)


def _option(default: Any, help: str, section: str = "columns", *, takes: Takes | None = None, **parsing: Any) -> Any:
    """Return a field with what its option in the commands needs beside the annotation.

    Args:
        default: the value of the field without the option.
        help: the text in --help, in the `section` of options.
        takes: the tasks whose models take the option; by default, those with a column of the option's name.
        **parsing: `metavar`, the name of the value in --help, if it is not the last word of the option's name;
            `has_line_breaks`, whether \\n in its text is one; `may_be_file`, whether it may be the name of a file with
            the text; `is_for_saving`, whether only `calibrate` has it; `is_for_tables`, whether tables of scores have
            it, too.
    """
    return field(default=default, metadata={"help": help, "section": section, "takes": takes, **parsing})


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options for a model's data: columns of inputs and labels, languages, prompts, and limits on the amount of data.

    Raises:
        InputError: `max_length` or `max_samples` is below 1, or options that need each other do not come together.
    """

    text_column: str = _option("text", "column of texts [text]", is_for_tables=True)
    text_pair_column: str | None = _option(None, "column of second texts, for models of text pairs")
    label_column: str = _option(
        "label", "column of the labels of texts, images and sounds [label or labels]", is_for_tables=True
    )
    label_map: Mapping[str, str] | None = _option(
        None,
        "labels whose names differ, the data's name before the model's: neg=NEGATIVE",
        takes=_has_named_labels,
        metavar="DATA=MODEL",
    )
    cluster_column: str | None = _option(
        None,
        "column whose equal values say which samples may depend on each other [equal first texts]",
        takes=_every_task,
        is_for_tables=True,
    )
    group: str | None = _option(
        None, "measure the samples of each value of this column", takes=_every_task, is_for_tables=True
    )
    max_samples: int | None = _option(None, "samples of each dataset, drawn at random [all]", takes=_every_task)
    max_length: int | None = _option(
        None,
        "tokens after which a text is truncated [the model's limit; for language models at most 1024]",
        takes=_reads_texts,
    )
    positive_from: float | None = _option(
        None, "grade from which on a label is 1, for models with one logit", takes=_has_classes, metavar="GRADE"
    )
    label_format: str | None = _option(
        None, "multi_hot or ids: what lists of labels hold, where the data leave it open", takes=_has_classes
    )
    problem_type: str | None = _option(
        None,
        "multi_label_classification for a model with a sigmoid per label whose config does not say so, or with "
        "--labels no,yes for one logit",
        takes=_has_classes,
    )
    image_column: str = _option("image", "column of images, or paths to them [image]")
    audio_column: str = _option("audio", "column of sounds: lists of samples at the model's sampling rate [audio]")
    token_column: str = _option("tokens", "column of lists of words [tokens]")
    tag_column: str = _option("tags", "column of lists of the words' labels [tags]")
    source_column: str = _option("source", "column of sentences to translate, or their key in 'translation' [source]")
    target_column: str = _option("target", "column of translations, or their key in 'translation' [target]")
    source_prefix: str = _option(
        "", "text before each source, such as 'translate English to German: ' for T5", takes=_translates
    )
    source_lang: str | None = _option(
        None, "language code of the source for multilingual models: eng_Latn for NLLB", takes=_translates
    )
    target_lang: str | None = _option(None, "language code of the target for the same models", takes=_translates)
    question_column: str | None = _option(None, "column of questions with options, for multiple choice", "questions")
    choices_column: str = _option("choices", "column of lists of the questions' options [choices]", "questions")
    answer_column: str = _option(
        "answer", "column of the right options: index from 0, letter or text [answer]", "questions"
    )
    score: str = _option(
        "letters",
        "letters or text: what gives the probability of an option [letters]",
        "questions",
        takes=_scores_options,
    )
    letters: str | None = _option(None, "letters of the options [A,B,C, ...]", "questions", takes=_has_questions)
    template: str | None = _option(
        None,
        r"the prompt ['{question}\n{options}\nAnswer:', for --score text without the options]",
        "questions",
        takes=_scores_options,
        has_line_breaks=True,
    )
    chat: bool = _option(
        False, "pass the prompt through the tokenizer's chat template", "questions", takes=_has_prompts
    )
    labels: str | Sequence[str] | None = _option(
        None,
        "the words that a language model chooses from after the prompt: positive,negative",
        "prompt",
        takes=_scores_label_words,
    )
    prompt: str | None = _option(
        None,
        r"the text before them, with names of columns in braces: 'Review: {text}\nIt is', or a file",
        "prompt",
        takes=_scores_label_words,
        has_line_breaks=True,
        may_be_file=True,
    )
    system: str | None = _option(
        None,
        "with --chat, the text of the system's message",
        "prompt",
        takes=_scores_label_words,
        has_line_breaks=True,
    )
    save_as: str | None = _option(
        None,
        "classifier: save a small model with the labels' rows of the head, corrected",
        "prompt",
        takes=_scores_label_words,
        is_for_saving=True,
    )
    scores_folder: str | None = _option(
        None,
        "folder of the options' scores, from which an interrupted run continues",
        "questions",
        takes=_scores_options,
    )
    trust_remote_code: bool = _option(
        False,
        "run the Python code in the model's repository, with your rights: only for code that you have read",
        "others",
        takes=_every_task,
    )

    def __post_init__(self) -> None:
        for name in ("max_length", "max_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(name, f"must be at least 1, got {value}")
        if self.problem_type not in (None, MULTI_LABEL):
            raise InputError("problem_type", f"must be {MULTI_LABEL!r}, got {self.problem_type!r}")
        if (self.labels is None) != (self.prompt is None):
            missing, present = ("labels", "prompt") if self.labels is None else ("prompt", "labels")
            raise InputError(missing, f"must be given with {present}, got None")
        if self.labels is None and (
            alone := next((name for name in ("system", "save_as") if getattr(self, name)), None)
        ):
            raise InputError(alone, f"must come with labels and prompt, got {getattr(self, alone)!r} without them")
        if self.system is not None and not self.chat:
            raise InputError("system", f"must come with chat, got {self.system!r} without it")
        if self.save_as not in (None, "classifier"):
            raise InputError("save_as", f"must be 'classifier', got {self.save_as!r}")
        if self.label_format not in (None, "multi_hot", "ids"):
            raise InputError("label_format", f"must be 'multi_hot' or 'ids', got {self.label_format!r}")

    def column(self, argument: str) -> str | None:
        """Return the name of the column that an option, such as "text_column", gives."""
        return getattr(self, argument)

    @property
    def option_letters(self) -> Sequence[str]:
        """The letters of a question's options: `letters`, or A, B, C, ..."""
        return string.ascii_uppercase if self.letters is None else self.letters.split(",")

    def to_dict(self) -> dict[str, Any]:
        """Return name -> value of the options that differ from their defaults, except `scores_folder`, a path."""
        options = [f for f in fields(self) if f.name != "scores_folder"]
        return {f.name: getattr(self, f.name) for f in options if getattr(self, f.name) != f.default}


def options_of(task: Task) -> set[str]:
    """Return the names of the options that models of a task take."""
    taken = set()
    for option in fields(InputOptions):
        takes = option.metadata["takes"]
        if option.name in task.column_arguments if takes is None else takes(task):
            taken.add(option.name)
    return taken


def check_options(options: InputOptions, task: Task, model: str) -> None:
    """Raise `InputError` for an option that was changed from its default, but that models of this task do not take.

    `model` is the name of the model in the error.
    """
    taken = options_of(task)
    for option in fields(options):
        name, value = option.name, getattr(options, option.name)
        if value == option.default or name in taken:
            continue
        others = {"labels": LABEL_WORDS, "question_column": MULTIPLE_CHOICE} if task.is_causal else {}
        needed = " or ".join(option for option, other in others.items() if name in options_of(other))
        kind = f"of the task {task.name}" + (f" without {needed}" if needed else "")
        raise InputError(name, f"must not be given for {model!r}, {kind}, got {value!r}")
