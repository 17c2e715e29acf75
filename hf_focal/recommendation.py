"""Which loss and which correction to use for fine-tuning an encoder, as measured on thirteen tasks.

The evidence is docs/results/fine_tuning.md, whose numbers `papers.pages.fine_tuning` takes from committed runs.
"""

from dataclasses import dataclass

from .errors import InputError
from .utils.constants import WEBSITE

FEWEST_FOR_AUTO = 10  # held-out samples from which "auto" is the default: its ten folds need one each
FEWEST_RECOMMENDED = 50  # the smallest number of held-out samples that corrections of encoders were measured with
LONG, FEW_CLASSES, LONG_TASKS = 10, 4, "6 of 6"  # where uncorrected FLSD-53 was better than cross-entropy


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

    It is "auto" for a model that more than a temperature can correct: it harms more rarely than a temperature
    (docs/results/text_corrections.md), and leaves the logits alone where few samples do not show that it helps.
    """
    return "auto" if has_choice and held_out_samples >= FEWEST_FOR_AUTO else "temperature"


def recommend(*, num_classes: int, train_samples: int, epochs: float, held_out_samples: int) -> Recommendation:
    """Recommend a loss and a correction for fine-tuning a pretrained encoder on texts with one label each.

    No rule that chose by these numbers was better than one fixed loss on tasks that it had not seen. So with held-out
    samples to fit a correction to, the loss is always the same. The evidence says what was measured.

    Args:
        num_classes: the number of classes, at least 2.
        train_samples: the number of training samples, at least 1.
        epochs: how often each of them is seen, above 0.
        held_out_samples: the number of labeled samples to fit a correction to, perhaps 0.

    Raises:
        InputError: a number below its range.

    Examples:
        >>> from hf_focal import recommend
        >>> advice = recommend(num_classes=2, train_samples=500, epochs=3, held_out_samples=500)
        >>> advice.loss, advice.correction
        ('flsd53', 'auto')
    """
    counts = {"num_classes": (num_classes, 2), "train_samples": (train_samples, 1)}
    for name, (value, least) in (counts | {"held_out_samples": (held_out_samples, 0)}).items():
        if value < least:
            raise InputError(name, f"must be at least {least}, got {value}")
    if not epochs > 0:
        raise InputError("epochs", f"must be above 0, got {epochs}")
    if held_out_samples < FEWEST_RECOMMENDED:
        correction = "none"
        if epochs >= LONG and num_classes <= FEW_CLASSES:
            loss = "flsd53"
            evidence = (
                f"After 10 epochs, uncorrected, flsd53 has a lower NLL than cross_entropy on {LONG_TASKS} tasks "
            )
            evidence += f"with 2 to {FEW_CLASSES} classes. "
        else:
            loss = "focal:gamma=1"
            evidence = "After 3 epochs, uncorrected, focal:gamma=1 has a lower NLL than cross_entropy on 5 of 6 tasks "
            evidence += "with two classes, and is about as good on 7 tasks with more. "
        evidence += f"A correction gains more: hold out at least {FEWEST_RECOMMENDED} samples."
    else:
        loss, correction = "flsd53", default_correction(True, held_out_samples)
        evidence = "With T, flsd53 has a lower NLL than cross_entropy on 11 of 13 tasks. With auto, the loss matters "
        evidence += "little: the NLL of flsd53 minus that of cross_entropy is -0.015 [-0.032, 0.003]. Before a "
        evidence += "correction, its error minus that of cross_entropy is -0.47 [-1.05, 0.04] points. "
        evidence += "T makes calibrated models worse; auto leaves them alone."
    if num_classes > 28 and train_samples < 20 * num_classes and epochs <= 3:
        evidence += " With 77 and 150 classes, so few samples and epochs left errors of 50 to 65%: train longer."
    return Recommendation(loss, correction, f"{evidence} See {WEBSITE}results/fine_tuning.html.")
