"""20 Newsgroups: other splits and labels, and posts without headers, footers, and quotes, which reveal the newsgroup.

    python -m papers.data.newsgroups split train.parquet test.parquet --output_dir out/newsgroups_random
    python -m papers.data.newsgroups label train.parquet test.parquet --output_dir out/newsgroups_labels

Both take the files of the by-date split; see `write_random_split` and `write_labels`. The rules of removal are those
of scikit-learn's `fetch_20newsgroups(remove=("headers", "footers", "quotes"))`, so that scores can be compared:
https://scikit-learn.org/stable/datasets/real_world.html#filtering-text-for-more-realistic-training.
"""

import argparse
import re
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict, List, Value, concatenate_datasets

from hf_focal.tasks.dataset_loading import load_file

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


STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


def strip_posts(splits: DatasetDict, parts: str) -> DatasetDict:
    """Remove headers, footers, and quotes from the posts in the column "text".

    `parts` names them, as in "headers,footers,quotes"; "none" changes nothing. Raises `ValueError` if a part is
    unknown, or if most texts of a split become empty, a sign that the texts are not newsgroup posts.
    """
    if parts == "none":
        return splits
    names = [part.strip() for part in parts.split(",")]
    for name in names:
        if name not in STRIPPERS:
            raise ValueError(f"strip must name some of {', '.join(STRIPPERS)}, or be 'none', got {name!r}")

    def strip(sample: dict) -> dict:
        for name, stripper in STRIPPERS.items():
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


NUM_TEST, NUM_VALIDATION = 3999, 900


def write_random_split(train: Dataset, test: Dataset, folder: Path) -> None:
    """Split the posts at random, as Mukhoti et al. 2020 do, instead of by date.

    Pools the posts and writes train.parquet (13,947 posts), validation.parquet (900 posts), and test.parquet (3,999
    posts), and the same without headers, as train_body.parquet, validation_body.parquet, and test_body.parquet, for a
    recipe that does not strip them. The papers' archive has 19,997 posts; the by-date archive has 18,846, because
    duplicates were removed.
    """
    posts = concatenate_datasets([train, test])
    order = np.random.default_rng(0).permutation(len(posts))
    parts = np.split(order, [NUM_TEST, NUM_TEST + NUM_VALIDATION])
    for name, indices in zip(("test", "validation", "train"), parts, strict=True):
        part = posts.select(indices)
        part.to_parquet(folder / f"{name}.parquet")
        bodies = part.map(lambda post: {"text": strip_headers(post["text"])})
        bodies.to_parquet(folder / f"{name}_body.parquet")
        print(f"{name}: {len(indices)} posts")


def labels_of(group: str) -> list[str]:
    """Return the labels of a newsgroup, such as "rec", "sport", and "rec or sci" for "rec.sport.hockey"."""
    category, subject = group.split(".")[:2]
    return [category, subject, *(["rec or sci"] if category in ("rec", "sci") else [])]


def write_labels(train: Dataset, test: Dataset, folder: Path) -> None:
    """Give each post 2 or 3 of 23 labels: the top-level category, the subject, and, for some, "rec or sci".

    Writes train.parquet and test.parquet with the posts without headers, footers, and quotes in the column "text", and
    the lists of labels in the column "labels". The posts need the column "group".
    """
    for name, split in strip_posts(DatasetDict(train=train, test=test), "headers,footers,quotes").items():
        labels = [labels_of(group) for group in split["group"]]
        split = split.select_columns("text").add_column("labels", labels, feature=List(Value("string")))
        split.to_parquet(folder / f"{name}.parquet")
        print(f"{name}: {len(split)} posts, {sum(map(len, labels)) / len(split):.2f} labels each")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["split", "label"])
    parser.add_argument("train_file", type=Path, help="the training posts of the by-date split")
    parser.add_argument("test_file", type=Path, help="its test posts")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args(argv)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    write = write_random_split if args.what == "split" else write_labels
    write(load_file("train_file", args.train_file), load_file("test_file", args.test_file), args.output_dir)


if __name__ == "__main__":
    main()
