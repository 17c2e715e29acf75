"""Split 20 Newsgroups at random, as Mukhoti et al. 2020 do, instead of by date.

    python recipes/papers/split_newsgroups.py train.parquet test.parquet --output_dir out/newsgroups_random

This script pools the posts of both files and writes train.parquet (13,947 posts), validation.parquet (900 posts), and
test.parquet (3,999 posts). It also writes them without headers, as train_body.parquet, validation_body.parquet, and
test_body.parquet, for a recipe that does not strip them. The papers' archive has 19,997 posts; the by-date archive has
18,846 posts, because duplicates were removed.
"""

import argparse
from pathlib import Path

import numpy as np
from datasets import concatenate_datasets

from hf_focal.tasks.dataset_loading import load_file
from papers.data.newsgroups import strip_headers

NUM_TEST, NUM_VALIDATION = 3999, 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_file", type=Path, help="The training posts of the by-date split.")
    parser.add_argument("test_file", type=Path, help="Its test posts.")
    parser.add_argument("--output_dir", type=Path, required=True, help="Folder for the six files.")
    args = parser.parse_args()

    posts = concatenate_datasets([load_file("train_file", args.train_file), load_file("test_file", args.test_file)])
    order = np.random.default_rng(0).permutation(len(posts))
    test, validation, train = np.split(order, [NUM_TEST, NUM_TEST + NUM_VALIDATION])
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for name, indices in {"train": train, "validation": validation, "test": test}.items():
        part = posts.select(indices)
        part.to_parquet(args.output_dir / f"{name}.parquet")
        bodies = part.map(lambda post: {"text": strip_headers(post["text"])})
        bodies.to_parquet(args.output_dir / f"{name}_body.parquet")
        print(f"{name}: {len(indices)} posts")


if __name__ == "__main__":
    main()
