"""Which loss and which correction to use for fine-tuning an encoder, or a language model.

The evidence for encoders is docs/results/fine_tuning.md, whose numbers `papers.pages.fine_tuning` takes from committed
runs on thirteen tasks; that for language models is docs/results/sft.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .errors import InputError
from .utils.constants import FEWEST_RECOMMENDED, WEBSITE

FEWEST_FOR_AUTO = 10  # held-out samples from which "auto" is the default: two for each of its five folds
RECOMMENDED_TASKS = ("text-classification", "causal-lm")  # whose losses were compared


@dataclass(frozen=True)
class Recommendation:
    """A loss, as `LossConfig.parse` reads it; a correction: "auto" or "none"; and the evidence."""

    loss: str
    correction: str
    evidence: str

    def __str__(self) -> str:
        return f"loss: {self.loss}\ncorrection: {self.correction}\n{self.evidence}"


def default_correction(has_choice: bool, held_out_samples: int) -> str:
    """Return the correction of `calibrate_model` if none is given.

    It is "auto" for a model that more than a temperature can correct: with a softmax, it harms more rarely than a
    temperature (docs/results/text_corrections.md), and with sigmoids, no temperature corrects a wrong share of ones
    (docs/results/yes_or_no.md). It leaves the logits alone where few samples do not show that it helps.
    """
    return "auto" if has_choice and held_out_samples >= FEWEST_FOR_AUTO else "temperature"


class _Case(NamedTuple):
    """What was measured to be best where a condition holds: one on the classes, epochs, and held-out samples."""

    holds: Callable[[int, float, int], bool]
    loss: str
    correction: str
    evidence: str


_HOLD_OUT = f"A correction gains more: hold out at least {FEWEST_RECOMMENDED} samples."
_CASES = (  # of which the first that holds is recommended
    _Case(
        lambda num_classes, epochs, held_out_samples: held_out_samples >= FEWEST_RECOMMENDED,
        loss="flsd53",
        correction="auto",
        evidence="With T, flsd53 has a lower NLL than cross_entropy on 11 of 13 tasks. With auto, the loss matters "
        "little: the NLL of flsd53 minus that of cross_entropy is -0.004 [-0.018, 0.013], and the error 0.0 [-0.4, "
        "0.4] points. If you train only a linear head on a frozen encoder, use cross_entropy: its NLL with auto is "
        "lower on 11 of 12 tasks. T makes calibrated models worse; auto leaves them alone.",
    ),
    _Case(
        lambda num_classes, epochs, held_out_samples: epochs >= 10 and num_classes <= 4,
        loss="flsd53",
        correction="none",
        evidence="After 10 epochs, uncorrected, flsd53 has a lower NLL than cross_entropy on 6 of 6 tasks with 2 to 4 "
        f"classes. {_HOLD_OUT}",
    ),
    _Case(
        lambda *_: True,
        loss="focal:gamma=1",
        correction="none",
        evidence="After 3 epochs, uncorrected, focal:gamma=1 has a lower NLL than cross_entropy on 5 of 6 tasks with "
        f"two classes, and is about as good on 7 tasks with more. {_HOLD_OUT}",
    ),
)


def recommend(
    *,
    task: str = "text-classification",
    num_classes: int | None = None,
    train_samples: int | None = None,
    epochs: float = 3.0,
    held_out_samples: int,
) -> Recommendation:
    """Recommend a loss and a correction for fine-tuning a pretrained encoder, or a language model.

    On unseen tasks, no rule based on these numbers beat one fixed loss. So with at least 50 held-out samples, the
    fewest with which corrections of encoders were measured, the loss is always the same. With fewer, the advice is the
    best loss without a correction; if you call `calibrate_model` nevertheless, "auto" is its default from 10 samples
    on. The evidence says what was measured.

    Args:
        task: "text-classification" for an encoder and texts with one label each, or "causal-lm" for a language model
            (SFT), which needs only `held_out_samples`.
        num_classes: the number of classes, at least 2.
        train_samples: the number of training samples, at least 1.
        epochs: how often each of them is seen, above 0.
        held_out_samples: the number of labeled samples to fit a correction to, perhaps 0.

    Raises:
        InputError: an unknown task, or a number that is missing or below its range.

    Examples:
        >>> from hf_focal import recommend
        >>> advice = recommend(num_classes=2, train_samples=500, epochs=3, held_out_samples=500)
        >>> advice.loss, advice.correction
        ('flsd53', 'auto')
    """
    if task not in RECOMMENDED_TASKS:
        raise InputError("task", f"must be one of {', '.join(RECOMMENDED_TASKS)}, got {task!r}")
    if task == "causal-lm":
        for name, number in (("num_classes", num_classes), ("train_samples", train_samples)):
            if number is not None:
                raise InputError(name, f"must not be given for the task {task}, got {number}")
        return _recommend_for_language_model(held_out_samples)
    if num_classes is None or train_samples is None:
        name = "num_classes" if num_classes is None else "train_samples"
        raise InputError(
            name, f"must be given for the task {task}, got None; for a language model, use task='causal-lm'"
        )
    counts = {"num_classes": (num_classes, 2), "train_samples": (train_samples, 1)}
    for name, (value, least) in (counts | {"held_out_samples": (held_out_samples, 0)}).items():
        if value < least:
            raise InputError(name, f"must be at least {least}, got {value}")
    if not epochs > 0:
        raise InputError("epochs", f"must be above 0, got {epochs}")
    case = next(case for case in _CASES if case.holds(num_classes, epochs, held_out_samples))
    evidence = case.evidence
    if num_classes > 28 and train_samples < 20 * num_classes and epochs <= 3:
        evidence += " With 77 and 150 classes, so few samples and epochs left errors of 50 to 65%: train longer."
    return Recommendation(case.loss, case.correction, f"{evidence} See {WEBSITE}results/fine_tuning.html.")


def _recommend_for_language_model(held_out_samples: int) -> Recommendation:
    if held_out_samples < 0:
        raise InputError("held_out_samples", f"must be at least 0, got {held_out_samples}")
    evidence = (
        "Of a small language model, trained from scratch with three seeds, focal:gamma=1 has a lower ECE of the "
        "tokens than cross_entropy: 8.0 instead of 9.8%, and with T 3.5 instead of 4.9%. "
    )
    evidence += "Pretrained models were not compared. " + (
        "" if held_out_samples else "T gains more than the loss: hold out some texts. "
    )
    correction = "temperature" if held_out_samples else "none"
    guides = f"Train with FocalSFTTrainer: {WEBSITE}guides/sft.html. See {WEBSITE}results/sft.html."
    return Recommendation("focal:gamma=1", correction, f"{evidence}{guides}")
