"""Stripping posts of 20 Newsgroups of headers, footers and quotes, which give their group away.

The rules are those of scikit-learn's `fetch_20newsgroups(remove=("headers", "footers", "quotes"))`, so that scores can
be compared: https://scikit-learn.org/stable/datasets/real_world.html#filtering-text-for-more-realistic-training.
"""

import re

from datasets import DatasetDict

_QUOTE = re.compile(r"writes in|(?:writes|wrote|says|said):|^(?:In article|Quoted from|\||>)")


def strip_headers(text: str) -> str:
    """What follows the first blank line, whatever the lines before it look like; "" where there is no blank line."""
    return text.partition("\n\n")[2]


def strip_footers(text: str) -> str:
    """The post without its signature: what follows the last line that is blank or made of hyphens.

    A post without such a line, or with nothing before it, is returned as it is.
    """
    lines = text.strip().split("\n")
    separators = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    if not separators or separators[-1] == 0:
        return text
    return "\n".join(lines[: separators[-1]])


def strip_quotes(text: str) -> str:
    """The post without lines that quote (">", "|") or that introduce a quote ("In article", "... wrote:")."""
    return "\n".join(line for line in text.split("\n") if not _QUOTE.search(line))


def strip_newsgroup(text: str) -> str:
    """The post without headers, then without signature, then without quotes; some posts end up empty."""
    return strip_quotes(strip_footers(strip_headers(text)))


_STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


def strip_posts(splits: DatasetDict, parts: str) -> DatasetDict:
    """Strip the posts in the column "text".

    Args:
        splits: of raw posts.
        parts: what to remove: some of "headers,footers,quotes", or "none".

    Raises:
        ValueError: an unknown part, or stripping leaves most texts of a split empty: they are no newsgroup posts.
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
