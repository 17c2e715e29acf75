"""What the names of columns say: which hold scores, of which kind and class, and which hold labels."""

import re
from typing import NamedTuple

from ..errors import InputError
from ..utils.names import column_option, normalized
from .meanings import StatedKind

# Names of scores as regular expressions, in the order in which they are looked for, and the kind that they state: ""
# leaves it to the values. "log_prob" comes before "prob".
_SEPARATOR = r"[-_. :/]"
KIND_OF_WORD: dict[str, StatedKind] = {
    "logits?": "logits",
    f"log{_SEPARATOR}?(?:prob(?:a|s|as|ability|abilities)?|p|likelihoods?)": "log-probabilities",
    "prob(?:a|s|as|ability|abilities)?|softmax|pr?": "probabilities",
    "scores?": "",
    "calibrated": "probabilities",  # what `correct_file` writes
}
_ANY = "|".join(KIND_OF_WORD)
_OF_PREDICTION = re.compile(
    rf"(?:confidences?|conf|(?:max|top|top1|best){_SEPARATOR}?(?:prob(?:a|ability)?|score|confidence))", re.IGNORECASE
)
_WHOLE = re.compile(rf"(?:(?:y|pred|predict|predicted|class|model){_SEPARATOR}?)*({_ANY})", re.IGNORECASE)
# What is between a kind and a class; a minus sign may begin the name of a class.
_BETWEEN = r"_|[-.:/]\s*|\s+[-.:/]\s+|\s"
_PREFIX = re.compile(rf"({_ANY})(?:[. ]*(\()(.+)\)|[. ]*(\[)(.+)\]|({_BETWEEN})(.+)|(\d+))", re.IGNORECASE)
_SUFFIX = re.compile(rf"(.+?)({_BETWEEN})({_ANY})", re.IGNORECASE)
# What the brackets of P(y=cat) or P(y=cat|x) hold.
_EVENT = re.compile(r"(?:y|label|class|target)\s*=\s*(.+?)(?:\s*\|\s*x)?", re.IGNORECASE)
# What a column beside those of the classes may hold instead, as logit_margin does.
_STATISTICS = re.compile(
    r"(?:margin|max|min|mean|avg|average|std|var|variance|sum|total|entropy|diff|difference|gap|delta|range|norm|top\d*"
    r"|best|argmax|rank|value|pred|prediction|predicted|correct|loss|nll|ratio|uncertainty|confidence|threshold)"
    r"(?:[-_. ]?\d+)?",
    re.IGNORECASE,
)

# Columns of labels, in the order in which they are looked for. Beside one of the first, "label" may be the prediction.
TRUE_LABELS = (
    *("y_true", "true_label", "true_labels", "gold_label", "gold_labels", "gold", "ground_truth", "true_class"),
    *("actual", "actual_label"),
)
LABELS = ("label", "labels", "label_ids", "label_id", "target", "targets", "y")
LIST_LABELS = "label_"  # begins the names of columns of several labels
PREDICTIONS = (
    *("prediction", "predictions", "predicted", "pred", "preds", "y_pred", "y_hat", "predicted_label"),
    *("predicted_labels", "pred_label", "pred_labels", "predicted_class", "pred_class", "scored_labels"),
)
# Beside confidences and labels, these are predictions; beside other scores, they may be inputs.
ANSWERS = ("answer", "answers", "model_answer", "response", "completion", "output")
CORRECT = ("correct", "is_correct")
_TEXT = {normalized(name) for name in (*TRUE_LABELS, *LABELS, *PREDICTIONS, *CORRECT)}
# Words of names that columns of labels may have, and names of inputs, which are not suggested as labels.
_WORDS_OF_LABELS = re.compile(
    r"(?<![^\W_])(?:labels?|true|truth|gold|targets?|class|actual|category|answer|y)(?![^\W_])", re.IGNORECASE
)
_INPUTS = {"text", "texts", "sentence", "input", "prompt", "question", "id", "index", "row", "name", "comment"}


class ScoreName(NamedTuple):
    """What a column of scores is called: with a class, a member of a `family` of columns, one for each class."""

    kind: StatedKind
    family: str = ""
    class_name: str = ""
    rank: int = 0  # the place of its kind among those that are looked for


def parse_score_name(column: str) -> ScoreName | None:
    """Return what the name of a column says, or None if it is not one of scores.

    Case does not matter, nor do spaces and punctuation, except in the name of the class.
    """
    column = re.sub(r"[\s.:]+$", "", column.strip())
    words = "_".join(re.findall(r"[^\W_]+", column))
    if _OF_PREDICTION.fullmatch(words):
        return ScoreName("confidence", rank=len(KIND_OF_WORD))
    if words.lower() == "predictions":  # what `Trainer.predict` returns; last, because it may hold predicted classes
        return ScoreName("logits", rank=len(KIND_OF_WORD) + 1)
    if whole := _WHOLE.fullmatch(words):
        kind, rank = _kind(whole[1])
        return ScoreName(kind, rank=rank)
    if found := _PREFIX.fullmatch(column):
        kind, rank = _kind(found[1])
        form = found[2] or found[4] or found[6] or ""
        inside = (found[3] or found[5] or "").strip()
        if inside and (event := _EVENT.fullmatch(inside)):
            inside = event[1]
        return ScoreName(kind, f"{found[1].lower()}{form}", found[7] or inside or found[8], rank)
    if found := _SUFFIX.fullmatch(column):
        kind, rank = _kind(found[3])
        return ScoreName(kind, f"{found[2]}{found[3].lower()}", found[1], rank)
    return None


def _kind(token: str) -> tuple[StatedKind, int]:
    patterns = [*KIND_OF_WORD]
    rank = next(i for i, pattern in enumerate(patterns) if re.fullmatch(pattern, token, re.IGNORECASE))
    return KIND_OF_WORD[patterns[rank]], rank


def is_statistic(class_name: str) -> bool:
    """Return whether a name such as margin or max is rather that of a statistic of the scores than that of a class."""
    return _STATISTICS.fullmatch(class_name) is not None


def is_text(column: str) -> bool:
    """Return whether the values of a column are compared by what is written, such as 007."""
    return normalized(column) in _TEXT or re.match(r"labels?[-_. (\[]", column.strip(), re.IGNORECASE) is not None


def known_columns(names: list[str], known: tuple[str, ...]) -> list[str]:
    """Return the `names` that are `known`, whatever their case, spaces, and punctuation, in the order of `known`."""
    places = {normalized(name): place for place, name in enumerate(known)}
    return sorted((name for name in names if normalized(name) in places), key=lambda name: places[normalized(name)])


def known_column(names: list[str], known: tuple[str, ...], argument: str, option: str = "") -> str | None:
    """Return the first of the `known_columns`, or None.

    Raises:
        InputError: two columns are called alike. The message names `argument` and, if there is one, the `option`.
    """
    found = known_columns(names, known)
    alike = [name for name in found if normalized(name) == normalized(found[0])]
    if len(alike) > 1:
        solution = f"give {column_option(option, alike[0])}" if option else "rename one"
        raise InputError(argument, f"must not have columns that are called alike, got {alike}: {solution}")
    return next(iter(found), None)


def suggested_label(names: list[str]) -> str | None:
    """Return which of some columns may have the labels, for an error to suggest; None if no name says so."""
    by_words = [name for name in names if _WORDS_OF_LABELS.search(name)]
    others = [name for name in names if normalized(name) not in _INPUTS]
    return by_words[0] if by_words else others[0] if len(others) == 1 else None
