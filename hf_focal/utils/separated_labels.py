"""Several labels in one text, such as "cat|dog", as csv files hold them."""

from collections.abc import Collection, Sequence

_SEPARATORS = "|;,"


def separated_labels(
    texts: Sequence[str | None], names: Collection[str], is_multi_label: bool = False
) -> list[list[str]] | None:
    """Split texts at the separator, "|", ";", or ",", between whose parts are only names of labels.

    Args:
        texts: the different texts; an empty one, or None, has no label.
        names: the names of the labels. A separator that a name has is not tried.
        is_multi_label: whether the labels are known to be several, so that no text needs to have more than one.

    Returns:
        The labels of each text; None if there is no such separator.
    """
    for separator in _SEPARATORS:
        if any(separator in name for name in names):
            continue
        parts = [[part.strip() for part in text.split(separator)] if text and text.strip() else [] for text in texts]
        has_several = is_multi_label or any(len(labels) > 1 for labels in parts)
        if has_several and {label for labels in parts for label in labels} <= {*names}:
            return parts
    return None
