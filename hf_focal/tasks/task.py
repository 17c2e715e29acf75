"""The tasks of models: what their data hold, which class loads their models, and what the Hub calls them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from . import batches


class ColumnType(StrEnum):
    """What a column must hold, in the words of the errors. `column_selection` checks it."""

    STRINGS = "strings"
    IMAGES = "images"
    LISTS = "lists"
    LISTS_OF_STRINGS = "lists of strings"
    LISTS_OF_NUMBERS = "lists of numbers"
    LABELS = "labels"  # of any type: they are checked when they are converted to numbers


class Input(NamedTuple):
    """A column of inputs in a task's data."""

    argument: str  # what the user gave, in errors; it is the name of the column, unless `column` is
    name: str  # its name once it is selected
    holds: ColumnType
    column: str | None = None  # its name in the data, if a source makes the column
    is_optional: bool = False


class LabelKind(Enum):
    """What the labels of a task are. The value is the argument that names their column."""

    CLASSES = "label_column"  # a class of each sample, or a set of labels
    ANSWERS = "answer_column"  # the right option of each question
    TAGS = "tag_column"  # a class of each word


class Modality(Enum):
    """What models read. The value is the class of Transformers that loads what encodes it."""

    TEXTS = "AutoTokenizer"
    IMAGES = "AutoImageProcessor"
    SOUNDS = "AutoFeatureExtractor"


class Unit(StrEnum):
    """What has one prediction."""

    SAMPLES = "samples"
    QUESTIONS = "questions"
    WORDS = "words"
    TOKENS = "tokens"
    PIXELS = "pixels"

    @property
    def is_part_of_sample(self) -> bool:
        """Whether a sample has several. Their predictions are not independent, as bootstrap intervals assume."""
        return self in (Unit.WORDS, Unit.TOKENS, Unit.PIXELS)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What loading, measuring, correcting, and publishing a model must know about its task."""

    name: str  # in `hf-focal --task` and in the results
    pipeline: str  # the Hub's pipeline tag
    is_only_trained: bool = False  # whether `evaluate_model` knows neither such models nor their data

    inputs: tuple[Input, ...] = ()
    takes_translations: bool = False  # whether the inputs may be in a column "translation" of mappings
    has_equal_options: bool = False  # whether all questions must have the same number of options
    labels: LabelKind | None = None  # None if the labels are tokens or pixels of the inputs

    modality: Modality = Modality.TEXTS
    auto_class: str = ""  # the class of Transformers that loads the model
    peft_class: str | None = None  # the class of PEFT that loads an adapter, if PEFT has one for the task
    class_endings: tuple[str, ...] = ()  # what the names of such models' classes end in

    # A function of a tokenizer and a batch of selected columns that returns the encoded batch; None if the inputs are
    # not texts, or if their source encodes them.
    encode: Callable[[Callable, batches.Columns], dict[str, Any]] | None = None
    sequences: Callable[[Any], Iterable[Sequence[list[int]]]] = batches.one_text  # of the tokens of encoded samples
    has_token_labels: bool = False  # whether an encoded sample has a label for each token of its input
    is_causal: bool = False  # whether each token is predicted from those before it, and the first one from none
    # A function of a processor and a model that returns the function that makes a batch.
    collator: Callable[[Any, Any], batches.Collator] = batches.pad_texts_and_labels

    unit: Unit = Unit.SAMPLES
    generates: bool = False  # whether it is a language model, whose T can also be applied while it generates
    is_seq2seq: bool = False  # whether `FocalSeq2SeqTrainer` trains the model, which has an encoder and a decoder
    has_classes: bool = False  # whether each logit stands for a class; if not, only a temperature can be fitted
    example: str | None = None  # the argument of a pipeline in the card, or the text that a language model continues

    @property
    def column_arguments(self) -> list[str]:
        """The arguments that name the columns of inputs and of labels."""
        labels = [] if self.labels is None else [self.labels.value]
        return [*(column.argument for column in self.inputs if column.column is None), *labels]

    @property
    def labels_argument(self) -> str:
        """The argument that names the column of the labels, or that of the inputs whose tokens are the labels."""
        return self.column_arguments[-1]

    @property
    def takes_texts(self) -> bool:
        return self.modality is Modality.TEXTS

    @property
    def processor(self) -> str:
        return self.modality.value


_NEXT_SENTENCE = "ForNextSentencePrediction"
_QUESTION = (
    Input("question_column", "question", ColumnType.STRINGS),
    Input("choices_column", "choices", ColumnType.LISTS_OF_STRINGS),
)
_IMAGE = Input("image_column", "image", ColumnType.IMAGES)
_SEQ2SEQ = Task(
    name="seq2seq-lm",
    pipeline="translation",
    inputs=(
        Input("source_column", "source", ColumnType.STRINGS),
        Input("target_column", "target", ColumnType.STRINGS),
    ),
    takes_translations=True,
    auto_class="AutoModelForSeq2SeqLM",
    peft_class="AutoPeftModelForSeq2SeqLM",
    unit=Unit.TOKENS,
    generates=True,
    is_seq2seq=True,
    example="A sentence to translate.",
    encode=batches.encode_translations,
    sequences=batches.both_sides,
    collator=batches.pad_translations,
)
SEGMENTATION = Task(
    name="semantic-segmentation",
    pipeline="image-segmentation",
    is_only_trained=True,
    inputs=(_IMAGE, Input("mask_column", "mask", ColumnType.IMAGES)),
    modality=Modality.IMAGES,
    class_endings=("ForSemanticSegmentation",),
    unit=Unit.PIXELS,
)
_TASKS = (
    Task(
        name="text-classification",
        pipeline="text-classification",
        inputs=(
            Input("text_column", "text", ColumnType.STRINGS),
            Input("text_pair_column", "text_pair", ColumnType.STRINGS, is_optional=True),
        ),
        labels=LabelKind.CLASSES,
        auto_class="AutoModelForSequenceClassification",
        peft_class="AutoPeftModelForSequenceClassification",
        class_endings=("ForSequenceClassification", _NEXT_SENTENCE),
        has_classes=True,
        example='"A text to classify.", top_k=None',
        encode=batches.encode_texts,
        collator=batches.pad_texts,
    ),
    Task(
        name="image-classification",
        pipeline="image-classification",
        inputs=(_IMAGE,),
        labels=LabelKind.CLASSES,
        modality=Modality.IMAGES,
        auto_class="AutoModelForImageClassification",
        class_endings=("ForImageClassification",),
        has_classes=True,
        example='"image.png"',
        collator=batches.open_images,
    ),
    Task(
        name="audio-classification",
        pipeline="audio-classification",
        inputs=(Input("audio_column", "audio", ColumnType.LISTS_OF_NUMBERS),),
        labels=LabelKind.CLASSES,
        modality=Modality.SOUNDS,
        auto_class="AutoModelForAudioClassification",
        has_classes=True,
        collator=batches.extract_sounds,
    ),
    Task(
        name="token-classification",
        pipeline="token-classification",
        inputs=(Input("token_column", "tokens", ColumnType.LISTS_OF_STRINGS),),
        labels=LabelKind.TAGS,
        auto_class="AutoModelForTokenClassification",
        peft_class="AutoPeftModelForTokenClassification",
        class_endings=("ForTokenClassification",),
        unit=Unit.WORDS,
        has_classes=True,
        example='"A text whose words are labeled."',
        encode=batches.encode_words,
        has_token_labels=True,
    ),
    Task(
        name="multiple-choice-head",
        pipeline="multiple-choice",
        inputs=_QUESTION,
        has_equal_options=True,
        labels=LabelKind.ANSWERS,
        auto_class="AutoModelForMultipleChoice",
        class_endings=("ForMultipleChoice",),
        encode=batches.encode_questions,
        sequences=batches.each_option,
        collator=batches.pad_questions,
    ),
    Task(
        name="causal-lm",
        pipeline="text-generation",
        inputs=(Input("text_column", "text", ColumnType.STRINGS),),
        auto_class="AutoModelForCausalLM",
        peft_class="AutoPeftModelForCausalLM",
        class_endings=("ForCausalLM", "LMHeadModel"),
        unit=Unit.TOKENS,
        has_token_labels=True,
        is_causal=True,
        generates=True,
        example="A text to continue",
        encode=batches.encode_tokens,
    ),
    _SEQ2SEQ,
    SEGMENTATION,
    Task(
        name="fill-mask", pipeline="fill-mask", is_only_trained=True, class_endings=("ForMaskedLM",), unit=Unit.TOKENS
    ),
    replace(
        _SEQ2SEQ, name="summarization", pipeline="summarization", is_only_trained=True, example="A text to summarize."
    ),
    *(
        Task(name=tag, pipeline=tag, is_only_trained=True, modality=modality, unit=Unit.TOKENS, is_seq2seq=True)
        for tag, modality in (("automatic-speech-recognition", Modality.SOUNDS), ("image-to-text", Modality.IMAGES))
    ),
)
# Language models that score the options of questions.
MULTIPLE_CHOICE = Task(
    name="multiple-choice",
    pipeline="text-generation",
    inputs=_QUESTION,
    labels=LabelKind.ANSWERS,
    auto_class="AutoModelForCausalLM",
    unit=Unit.QUESTIONS,
)
# Language models that score label words after a prompt, which the values of each row complete: the source puts these
# into a column of its own.
PROMPT_VALUES = "hf_focal values of the prompt"
LABEL_WORDS = Task(
    name="label-words",
    pipeline="text-classification",
    inputs=(Input("prompt", "fields", ColumnType.LISTS_OF_STRINGS, PROMPT_VALUES),),
    labels=LabelKind.CLASSES,
    auto_class="AutoModelForCausalLM",
    has_classes=True,
    collator=batches.pad_texts,
)
# The tasks that `evaluate_model` and `calibrate_model` find in a model's config, by name.
TASKS = {task.name: task for task in _TASKS if not task.is_only_trained}
# The tasks of models that trainers train, by the Hub's pipeline tag.
PIPELINES = {task.pipeline: task for task in _TASKS}
# Results have the name of a task or, if a trainer measured them, its pipeline tag.
_TASKS_OF_RESULTS = PIPELINES | {task.name: task for task in (*_TASKS, MULTIPLE_CHOICE, LABEL_WORDS)}


def task_of_class(class_name: str) -> Task | None:
    """Return the task that the name of a model's class implies, or None if it implies none."""
    return next((task for task in _TASKS if class_name.endswith(task.class_endings)), None)


def own_auto_class(class_name: str) -> str | None:
    """Return the class of Transformers that loads the head of a model's class, if it is not that of its task.

    No pipeline loads such a head: the pipeline of the task gives the model a new, random one.
    """
    return f"AutoModel{_NEXT_SENTENCE}" if class_name.endswith(_NEXT_SENTENCE) else None


def unit_of(task: str | None, default: str = "samples") -> str:
    """Return what has one prediction in the results of a task, or `default` if the task is unknown."""
    known = _TASKS_OF_RESULTS.get(task or "")
    return default if known is None else known.unit.value


def classifies_samples(task: str | None) -> bool:
    """Return whether the results of a task are of samples that each have a class or a set of labels."""
    known = _TASKS_OF_RESULTS.get(task or "")
    return known is not None and known.labels is LabelKind.CLASSES
