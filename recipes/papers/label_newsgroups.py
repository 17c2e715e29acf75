"""Give each post of 20 Newsgroups 2 or 3 labels: the top-level category, the subject, and, for some, "rec or sci".

    python recipes/papers/label_newsgroups.py train.parquet test.parquet --output_dir out/newsgroups_labels

comp.sys.mac.hardware becomes "comp" and "sys"; rec.sport.hockey becomes "rec", "sport", and "rec or sci". In the
output folder, train.parquet and test.parquet have the posts without headers, footers, and quotes in the column "text",
and lists of 2 or 3 of the 23 labels in the column "labels". Then train with

    python recipes/papers/text_classification.py --config recipes/papers/configs/newsgroups/multi_label.yaml \
        --train_file out/newsgroups_labels/train.parquet --test_file out/newsgroups_labels/test.parquet
"""

import argparse
from pathlib import Path

from datasets import DatasetDict, List, Value

from hf_focal.tasks.dataset_loading import load_file
from papers.data.newsgroups import strip_posts


def labels_of(group: str) -> list[str]:
    """Return the labels of a newsgroup, such as "rec", "sport", and "rec or sci" for "rec.sport.hockey"."""
    category, subject = group.split(".")[:2]
    return [category, subject, *(["rec or sci"] if category in ("rec", "sci") else [])]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_file", type=Path, help="The posts of the by-date split, with the column `group`.")
    parser.add_argument("test_file", type=Path, help="Its test posts.")
    parser.add_argument("--output_dir", type=Path, required=True, help="Folder for the two files.")
    args = parser.parse_args(argv)

    posts = {name: load_file(f"{name}_file", getattr(args, f"{name}_file")) for name in ("train", "test")}
    stripped = strip_posts(DatasetDict(posts), "headers,footers,quotes")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for name, split in stripped.items():
        labels = [labels_of(group) for group in split["group"]]
        split = split.select_columns("text").add_column("labels", labels, feature=List(Value("string")))
        split.to_parquet(args.output_dir / f"{name}.parquet")
        print(f"{name}: {len(split)} posts, {sum(map(len, labels)) / len(split):.2f} labels each")


if __name__ == "__main__":
    main()
