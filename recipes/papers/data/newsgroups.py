"""Removal of the headers, footers, and quotes of 20 Newsgroups posts, because these parts reveal the newsgroup.

The rules are those of scikit-learn's `fetch_20newsgroups(remove=("headers", "footers", "quotes"))`, so that scores can
be compared: https://scikit-learn.org/stable/datasets/real_world.html#filtering-text-for-more-realistic-training.
"""

import re

from datasets import DatasetDict

_QUOTE = re.compile(r"writes in|(?:writes|wrote|says|said):|^(?:In article|Quoted from|\||>)")


def strip_headers(text: str) -> str:
    """Return the text after the first blank line; "" if there is no blank line."""
    return text.partition("\n\n")[2]


def strip_footers(text: str) -> str:
    """Remove the signature: the text after the last line that is blank or consists of hyphens.

    A post without such a line, or without text before that line, is returned unchanged.
    """
    lines = text.strip().split("\n")
    separators = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    if not separators or separators[-1] == 0:
        return text
    return "\n".join(lines[: separators[-1]])


def strip_quotes(text: str) -> str:
    """Remove the lines that are quotes (they begin with ">" or "|") or introduce one ("In article", "... wrote:")."""
    return "\n".join(line for line in text.split("\n") if not _QUOTE.search(line))


_STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


def strip_posts(splits: DatasetDict, parts: str) -> DatasetDict:
    """Remove headers, footers, and quotes from the posts in the column "text".

    Args:
        splits: splits of raw posts.
        parts: the parts to remove, such as "headers,footers,quotes" or "headers"; "none" changes nothing.

    Raises:
        ValueError: a part is unknown, or most texts of a split become empty, a sign that the texts are not newsgroup
            posts.
    """
    if parts == "none":
        return splits
    names = [part.strip() for part in parts.split(",")]
    for name in names:
        if name not in _STRIPPERS:
            raise ValueError(f"strip must name some of {', '.join(_STRIPPERS)}, or be 'none', got {name!r}")

    def strip(sample: dict) -> dict:
        for name, stripper in _STRIPPERS.items():
            if name in names:
                sample["text"] = stripper(sample["text"])
        return sample

    stripped = splits.map(strip, desc="stripping")
    for name, split in stripped.items():
        empty = sum(not text.strip() for text in split["text"])
        if 2 * empty > len(split):  # a few real posts become empty too
            raise ValueError(
                f"strip must be 'none' for texts that are not newsgroup posts, got {parts!r}, which leaves {empty} of "
                f"the {len(split)} texts of {name} empty"
            )
    return stripped
