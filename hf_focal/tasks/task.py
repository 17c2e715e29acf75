"""The tasks of models: what their data hold, which class loads their models, and what the Hub calls them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from . import batches


class Input(NamedTuple):
    """A column of inputs in a task's data."""

    argument: str  # the argument that names the column
    name: str  # its name once it is selected
    holds: str  # what it must hold, a key of `column_selection._HOLDS`
    is_optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """What loading, measuring, correcting, and publishing a model must know about its task.

    Args:
        name: the name of the task in `hf-focal --task` and in the results.
        pipeline: the Hub's pipeline tag.
        inputs: the columns of inputs.
        labels: the argument that names the column of labels; None if the labels are tokens or pixels of the inputs.
        auto_class, processor: the names of the classes of Transformers that load the model and what encodes its
            inputs; without an `auto_class`, `evaluate_model` does not load such models.
        class_endings: what the names of such models' classes end in.
        unit: what has one prediction.
        encode: a function of a tokenizer and a batch of selected columns that returns the encoded batch; None if the
            inputs are not texts.
        sequences: the token sequences of each encoded sample.
        collator: a function of a processor and a model that returns the function that makes a batch.
        has_equal_options: whether all questions must have the same number of options.
        first_label: of a task with a label for each token, the position of the first label that a model predicts.
        generates: whether the model is a language model, whose T can also be applied while it generates.
        trainer: the trainer's name, without "Trainer".
        takes_affine: whether vector and matrix scaling can be fitted and folded: each logit stands for one class.
        example: the argument of a pipeline in the model card, or the text that a language model continues.
    """

    name: str
    pipeline: str
    inputs: tuple[Input, ...] = ()
    labels: str | None = None
    auto_class: str = ""
    processor: str = "AutoTokenizer"
    class_endings: tuple[str, ...] = ()
    unit: str = "samples"
    encode: Callable[[Callable, batches.Columns], dict[str, Any]] | None = None
    sequences: Callable[[Any], Iterable[Sequence[list[int]]]] = batches.one_text
    collator: Callable[[Any, Any], batches.Collator] = batches.pad_texts_and_labels
    has_equal_options: bool = False
    first_label: int | None = None
    generates: bool = False
    trainer: str = "Focal"
    takes_affine: bool = False
    example: str | None = None

    @property
    def takes_texts(self) -> bool:
        return self.processor == "AutoTokenizer"

    @property
    def is_causal(self) -> bool:
        """Whether a model predicts each token from those before it."""
        return self.first_label == 1

    @property
    def peft_class(self) -> str | None:
        """The class of PEFT that loads an adapter, or None if PEFT has none for the task."""
        has_one = self.generates or self.name in ("text-classification", "token-classification")
        return self.auto_class.replace("Auto", "AutoPeft", 1) if has_one else None

    @property
    def has_independent_predictions(self) -> bool:
        """Whether bootstrap intervals are right: predictions of the same text or image are not independent."""
        return self.unit in ("samples", "questions")


_QUESTION = (Input("question_column", "question", "strings"), Input("choices_column", "choices", "lists of strings"))
_IMAGE = Input("image_column", "image", "images")
_MEASURED = [  # by `evaluate_model`, and trained
    Task(
        name="text-classification",
        pipeline="text-classification",
        inputs=(Input("text_column", "text", "strings"), Input("text_pair_column", "text_pair", "strings", True)),
        labels="label_column",
        auto_class="AutoModelForSequenceClassification",
        class_endings=("ForSequenceClassification", "ForNextSentencePrediction"),
        takes_affine=True,
        example='"A text to classify.", top_k=None',
        encode=batches.encode_texts,
        collator=batches.pad_texts,
    ),
    Task(
        name="image-classification",
        pipeline="image-classification",
        inputs=(_IMAGE,),
        labels="label_column",
        auto_class="AutoModelForImageClassification",
        processor="AutoImageProcessor",
        class_endings=("ForImageClassification",),
        takes_affine=True,
        example='"image.png"',
        collator=batches.open_images,
    ),
    Task(
        name="audio-classification",
        pipeline="audio-classification",
        inputs=(Input("audio_column", "audio", "lists of numbers"),),
        labels="label_column",
        auto_class="AutoModelForAudioClassification",
        processor="AutoFeatureExtractor",
        takes_affine=True,
        collator=batches.extract_sounds,
    ),
    Task(
        name="token-classification",
        pipeline="token-classification",
        inputs=(Input("token_column", "tokens", "lists of strings"),),
        labels="tag_column",
        auto_class="AutoModelForTokenClassification",
        class_endings=("ForTokenClassification",),
        unit="words",
        takes_affine=True,
        example='"A text whose words are labeled."',
        encode=batches.encode_words,
        first_label=0,
    ),
    Task(
        name="multiple-choice-head",
        pipeline="multiple-choice",
        inputs=_QUESTION,
        labels="answer_column",
        auto_class="AutoModelForMultipleChoice",
        class_endings=("ForMultipleChoice",),
        encode=batches.encode_questions,
        sequences=batches.each_option,
        collator=batches.pad_questions,
        has_equal_options=True,
    ),
    Task(
        name="causal-lm",
        pipeline="text-generation",
        inputs=(Input("text_column", "text", "strings"),),
        auto_class="AutoModelForCausalLM",
        class_endings=("ForCausalLM", "LMHeadModel"),
        unit="tokens",
        generates=True,
        example="A text to continue",
        encode=batches.encode_tokens,
        first_label=1,  # no token predicts the first one
    ),
    Task(
        name="seq2seq-lm",
        pipeline="translation",
        inputs=(Input("source_column", "source", "strings"), Input("target_column", "target", "strings")),
        auto_class="AutoModelForSeq2SeqLM",
        unit="tokens",
        generates=True,
        trainer="FocalSeq2Seq",
        example="A sentence to translate.",
        encode=batches.encode_translations,
        sequences=batches.both_sides,
        collator=batches.pad_translations,
    ),
]
# The tasks that `evaluate_model` and `calibrate_model` find in a model's config, by name.
TASKS = {task.name: task for task in _MEASURED}
# Language models that score the options of questions.
MULTIPLE_CHOICE = Task(
    name="multiple-choice",
    pipeline="text-generation",
    inputs=_QUESTION,
    labels="answer_column",
    auto_class="AutoModelForCausalLM",
    unit="questions",
)
# Language models that score label words after a prompt, which the values of each row complete.
LABEL_WORDS = Task(
    name="label-words",
    pipeline="text-classification",
    inputs=(Input("prompt", "fields", "lists of strings"),),
    labels="label_column",
    auto_class="AutoModelForCausalLM",
    takes_affine=True,
    collator=batches.pad_texts,
)
SEGMENTATION = Task(
    name="semantic-segmentation",
    pipeline="image-segmentation",
    inputs=(_IMAGE, Input("mask_column", "mask", "images")),
    class_endings=("ForSemanticSegmentation",),
    unit="pixels",
)
_TRAINED_ONLY = [  # by the trainers; `evaluate_model` does not load their data
    SEGMENTATION,
    Task(name="fill-mask", pipeline="fill-mask", class_endings=("ForMaskedLM",), unit="tokens"),
    replace(TASKS["seq2seq-lm"], name="summarization", pipeline="summarization", example="A text to summarize."),
    *(
        Task(name=tag, pipeline=tag, unit="tokens", trainer="FocalSeq2Seq")
        for tag in ("automatic-speech-recognition", "image-to-text")
    ),
]
# Tasks of models that trainers train, by the Hub's pipeline tag.
PIPELINES = {task.pipeline: task for task in (*_MEASURED, *_TRAINED_ONLY)}


def task_of_class(class_name: str) -> Task | None:
    """Return the task that the name of a model's class implies, or None if it implies none."""
    return next((task for task in PIPELINES.values() if class_name.endswith(task.class_endings)), None)


def unit_of(task: str | None, default: str = "samples") -> str:
    """Return what has one prediction in the task named `task`, or `default` if the task is unknown."""
    known = PIPELINES | TASKS | {MULTIPLE_CHOICE.name: MULTIPLE_CHOICE}
    return known[task].unit if task in known else default
