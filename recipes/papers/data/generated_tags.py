"""Generated sentences with a tag for each word; some tags are a hundred times rarer than others.

``python -m papers.data.generated_tags DIR`` writes train.parquet, validation.parquet, test.parquet, and ``encoder``, a
small tagger with random weights, to DIR.
"""

import sys
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import BertConfig, BertForTokenClassification, set_seed

from papers.data.generated_topics import pseudo_word
from papers.data.label_options import label_options
from papers.data.tokenizer_training import train_tag_tokenizer

# Kinds of names, from the most to the least frequent, with the probability that such a name begins at a given word.
_KINDS = {"PER": 0.06, "LOC": 0.03, "ORG": 0.015, "PROD": 0.004, "EVENT": 0.0015}
TAG_NAMES = ("O", *(f"{place}-{kind}" for kind in _KINDS for place in "BI"))

# Vocabulary sizes: plain words, words that announce each kind of name, and words that names of each kind consist of.
_NUM_PLAIN, _NUM_ANNOUNCING, _NUM_NAMES = 300, 4, 60
_FIRST_NAME = _NUM_PLAIN + len(_KINDS) * _NUM_ANNOUNCING
_ANNOUNCED = 0.6  # share of the names with an announcing word before them
_BORROWED = 0.5  # share of the words in other kinds of names that are drawn from the words of person names
_LENGTHS = (0.5, 0.35, 0.15)  # probabilities of names of one, two, and three words


def generate_tags(num_samples: int, *, seed: int = 0) -> Dataset:
    """Draw sentences of 8 to 24 invented words, with names of five kinds tagged as in CoNLL-2003 (B- begins a name).

    The kinds are persons, locations, organizations, products, and events. Names of the last four kinds often contain
    words of person names, and the word before a name announces the kind only for some names, so the kind may be
    ambiguous. The rare kinds are the hardest to recognize. In ten thousand sentences, 85% of the words are outside
    names, 5% begin a person's name, and 0.12% begin an event's name.

    The columns are "tokens" (lists of strings) and "tags" (lists of `ClassLabel` of `TAG_NAMES`).
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, 25, size=num_samples)
    tokens, tags = zip(*(_sentence(length, rng) for length in lengths), strict=True)
    features = Features(tokens=List(Value("string")), tags=List(ClassLabel(names=list(TAG_NAMES))))
    return Dataset.from_dict({"tokens": tokens, "tags": tags}, features)


def _sentence(length: int, rng: np.random.Generator) -> tuple[list[str], list[int]]:
    words: list[int] = []
    tags: list[int] = []
    chances = np.cumsum(list(_KINDS.values()))
    while len(words) < length:
        kind = int(np.searchsorted(chances, rng.random(), side="right"))
        if kind == len(_KINDS):
            words.append(int(_NUM_PLAIN ** rng.random()) - 1)  # roughly by Zipf's law
            tags.append(0)
            continue
        if rng.random() < _ANNOUNCED:
            words.append(_NUM_PLAIN + kind * _NUM_ANNOUNCING + int(rng.integers(_NUM_ANNOUNCING)))
            tags.append(0)
        for place in range(1 + int(rng.choice(len(_LENGTHS), p=_LENGTHS))):
            owner = 0 if rng.random() < _BORROWED else kind
            words.append(_FIRST_NAME + owner * _NUM_NAMES + int(rng.integers(_NUM_NAMES)))
            tags.append(1 + 2 * kind + min(place, 1))
    return [pseudo_word(number) for number in words[:length]], tags[:length]


def write_tags(folder: Path, sizes: tuple[int, int, int] = (3000, 600, 3000)) -> None:
    """Write sentences to train, validate, and test with, and a Transformer encoder of 0.1 million random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = {
        name: generate_tags(size, seed=42 + number)
        for number, (name, size) in enumerate(zip(("train", "validation", "test"), sizes, strict=True))
    }
    for name, split in splits.items():
        split.to_parquet(folder / f"{name}.parquet")
    tokenizer = train_tag_tokenizer(splits["train"]["tokens"])
    tokenizer.save_pretrained(folder / "encoder")
    set_seed(42)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        **label_options(TAG_NAMES),
    )
    BertForTokenClassification(config).save_pretrained(folder / "encoder")


if __name__ == "__main__":
    write_tags(Path(sys.argv[1]))
