"""What scores and labels can mean: their kind, their link, and how labels name classes."""

from typing import Literal, get_args

Link = Literal["softmax", "sigmoid"]
ScoreKind = Literal["logits", "probabilities", "percentages", "log-probabilities", "confidence"]
StatedKind = ScoreKind | Literal[""]  # what names say; "" leaves the kind to the values
ConfidenceKind = Literal["probabilities", "percentages", "log-probabilities"]  # what a column of confidences holds
LabelMatching = Literal["names", "numbers", "places", ""]  # see `Schema`

LINKS: tuple[Link, ...] = get_args(Link)
KINDS: tuple[ScoreKind, ...] = get_args(ScoreKind)
