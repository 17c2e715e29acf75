"""Options for the data that a trained model is evaluated on, with their help texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import InputError
from ..utils.constants import MULTI_LABEL


def _option(default: Any, help: str, group: str = "columns", **parsing: Any) -> Any:
    """Return a field with what its option in the commands needs beside the annotation.

    Args:
        default: the value of the field without the option.
        help: the text in --help, in the `group` of options.
        **parsing: `metavar`, the name of the value in --help, if it is not the last word of the option's name;
            `has_line_breaks`, whether \\n in its text is one; `is_for_saving`, whether only `calibrate` has it.
    """
    return field(default=default, metadata={"help": help, "group": group, **parsing})


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options for a model's data: columns of inputs and labels, languages, prompts, and limits on the amount of data.

    Raises:
        InputError: `max_length` or `max_samples` is below 1, or options that need each other do not come together.
    """

    text_column: str = _option("text", "column of texts [text]")
    text_pair_column: str | None = _option(None, "column of second texts, for models of text pairs")
    label_column: str = _option("label", "column of the labels of texts, images and sounds [label or labels]")
    label_map: Mapping[str, str] | None = _option(
        None, "labels whose names differ, the data's name before the model's: neg=NEGATIVE", metavar="DATA=MODEL"
    )
    cluster_column: str | None = _option(
        None, "column whose equal values say which samples may depend on each other [equal first texts]"
    )
    group: str | None = _option(None, "measure the samples of each value of this column")
    max_samples: int | None = _option(None, "samples of each dataset, drawn at random [all]")
    max_length: int | None = _option(
        None, "tokens after which a text is truncated [the model's limit; for language models at most 1024]"
    )
    positive_from: float | None = _option(
        None, "grade from which on a label is 1, for models with one logit", metavar="GRADE"
    )
    label_format: str | None = _option(
        None, "multi_hot or ids: what lists of labels hold, where the data leave it open"
    )
    problem_type: str | None = _option(
        None,
        "multi_label_classification for a model with a sigmoid per label whose config does not say so, or with "
        "--labels no,yes for one logit",
    )
    image_column: str = _option("image", "column of images, or paths to them [image]")
    audio_column: str = _option("audio", "column of sounds: lists of samples at the model's sampling rate [audio]")
    token_column: str = _option("tokens", "column of lists of words [tokens]")
    tag_column: str = _option("tags", "column of lists of the words' labels [tags]")
    source_column: str = _option("source", "column of sentences to translate, or their key in 'translation' [source]")
    target_column: str = _option("target", "column of translations, or their key in 'translation' [target]")
    source_prefix: str = _option("", "text before each source, such as 'translate English to German: ' for T5")
    source_lang: str | None = _option(None, "language code of the source for multilingual models: eng_Latn for NLLB")
    target_lang: str | None = _option(None, "language code of the target for the same models")
    question_column: str | None = _option(None, "column of questions with options, for multiple choice", "questions")
    choices_column: str = _option("choices", "column of lists of the questions' options [choices]", "questions")
    answer_column: str = _option(
        "answer", "column of the right options: index from 0, letter or text [answer]", "questions"
    )
    score: str = _option("letters", "letters or text: what gives the probability of an option [letters]", "questions")
    letters: str | None = _option(None, "letters of the options [A,B,C, ...]", "questions")
    template: str | None = _option(
        None, r"the prompt ['{question}\n{options}\nAnswer:', for --score text without the options]", "questions"
    )
    chat: bool = _option(False, "pass the prompt through the tokenizer's chat template", "questions")
    labels: str | Sequence[str] | None = _option(
        None, "the words that a language model chooses from after the prompt: positive,negative", "prompt"
    )
    prompt: str | None = _option(
        None,
        r"the text before them, with names of columns in braces: 'Review: {text}\nIt is', or a file",
        "prompt",
        has_line_breaks=True,
    )
    system: str | None = _option(None, "with --chat, the text of the system's message", "prompt", has_line_breaks=True)
    save_as: str | None = _option(
        None,
        "classifier: save a small model with the labels' rows of the head, corrected",
        "prompt",
        is_for_saving=True,
    )
    scores_folder: str | None = _option(
        None, "folder of the options' scores, from which an interrupted run continues", "questions"
    )
    trust_remote_code: bool = _option(
        False,
        "run the Python code in the model's repository, with your rights: only for code that you have read",
        "others",
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

    def to_dict(self) -> dict[str, Any]:
        """Return name -> value of the options that differ from their defaults, except `scores_folder`, a path."""
        options = [f for f in fields(self) if f.name != "scores_folder"]
        return {f.name: getattr(self, f.name) for f in options if getattr(self, f.name) != f.default}
