"""Removal of headers, footers and quotes from posts of 20 Newsgroups, which reveal the group.

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
    """Remove the signature, the text after the last line that is blank or consists of hyphens.

    A post without such a line, or with no text before it, is returned unchanged.
    """
    lines = text.strip().split("\n")
    separators = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    if not separators or separators[-1] == 0:
        return text
    return "\n".join(lines[: separators[-1]])


def strip_quotes(text: str) -> str:
    """Remove lines that quote (">", "|") or introduce a quote ("In article", "... wrote:")."""
    return "\n".join(line for line in text.split("\n") if not _QUOTE.search(line))


_STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


def strip_posts(splits: DatasetDict, parts: str) -> DatasetDict:
    """Strip the posts in the column "text".

    Args:
        splits: splits of raw posts.
        parts: parts to remove, some of "headers,footers,quotes", or "none".

    Raises:
        ValueError: an unknown part, or most texts of a split become empty: they are not newsgroup posts.
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
        if 2 * empty > len(split):  # a few posts consist of nothing else
            raise ValueError(
                f"strip must be 'none' for texts that are not newsgroup posts, got {parts!r}, which leaves {empty} of "
                f"the {len(split)} texts of {name} empty"
            )
    return stripped
