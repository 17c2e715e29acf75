"""Parallel corpora: their splits, and their pairs as inputs of sequence-to-sequence models."""

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, Features, Value
from transformers import PreTrainedTokenizerBase

from hf_focal import load_splits
from hf_focal.tasks.column_selection import Column, flatten_translations, select_columns
from hf_focal.tasks.dataset_loading import load_file
from hf_focal.tasks.file_formats import SUFFIXES, is_file

_logger = logging.getLogger(__name__)


def load_parallel(
    *, source_lang: str, target_lang: str, other_test_file: str | None = None, **arguments: Any
) -> DatasetDict:
    """Load the train, validation, and test splits of a parallel corpus with `hf_focal.load_splits`.

    Pairs with a blank sentence are dropped from the training split, since they teach nothing; their number is logged.
    Files may also be the common prefix of two UTF-8 text files with one sentence per line: ``corpus/train`` for
    ``corpus/train.en`` and ``corpus/train.de``.

    Args:
        source_lang, target_lang: the names of the two languages, which are those of the columns, or the keys of a
            column "translation".
        other_test_file: a second test set, which becomes the split "other_test".
        **arguments: as for `load_splits`, which says what is raised.

    Returns:
        The splits, with the columns "source" and "target" (string).
    """
    for name in ("train_file", "validation_file", "test_file"):
        if (file := arguments.get(name)) is not None and not is_file(Path(file)):
            arguments[name] = load_pairs(name, file, source_lang, target_lang)
    splits, _ = load_splits("translation", source_column=source_lang, target_column=target_lang, **arguments)
    splits["train"] = _drop_blank("the training data", splits["train"])
    if other_test_file is not None:
        other = load_pairs("other_test_file", other_test_file, source_lang, target_lang)
        where = f"other_test_file {str(other_test_file)!r}"
        splits["other_test"] = select_pairs(where, other, source_lang, target_lang)
    return splits


def load_pairs(argument: str, file: str | Path, source_lang: str, target_lang: str) -> Dataset:
    r"""Load one data file, or the two text files whose common prefix is `file`, and keep all pairs.

    Errors call the file `argument`. In text files, only "\n" and "\r\n" end a line. Other Unicode line separators and
    a lone "\r" are part of a sentence, so that they do not make the two files differ in their numbers of lines. A byte
    order mark is dropped.
    """
    file = Path(file)
    if is_file(file):
        return load_file(argument, file)
    columns = {}
    for language in (source_lang, target_lang):
        path = file.with_name(f"{file.name}.{language}")
        if not path.is_file():
            raise FileNotFoundError(
                f"{argument} must end in {SUFFIXES}, or be the beginning of two text files, got "
                f"{str(file)!r}: there is no {str(path)!r}"
            )
        try:
            with path.open(encoding="utf-8-sig", newline="\n") as lines:
                columns[language] = [line.removesuffix("\n").removesuffix("\r") for line in lines]
        except UnicodeDecodeError as error:
            raise ValueError(f"{argument} must be UTF-8 text, got {str(path)!r}: {error}") from error
    sizes = {language: len(lines) for language, lines in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{argument} must have equally many lines in each language, got {sizes} in {str(file)!r}")
    return Dataset.from_dict(columns, features=Features(dict.fromkeys(columns, Value("string"))))


def select_pairs(source: str, split: Dataset, source_lang: str, target_lang: str) -> Dataset:
    """Return the two languages of a split, which errors call `source`, as the columns "source" and "target"."""
    columns = (
        Column("source_lang", source_lang, "source", "strings"),
        Column("target_lang", target_lang, "target", "strings"),
    )
    return select_columns(source, flatten_translations(split, source_lang), *columns)


def _drop_blank(where: str, split: Dataset) -> Dataset:
    """Drop the pairs with a blank sentence from a split, which messages call `where`."""
    table = split.with_format("arrow")[:]
    blank = np.zeros(len(split), dtype=bool)
    for column in table.columns:
        blank |= pc.or_(pc.equal(pc.binary_length(column), 0), pc.utf8_is_space(column)).to_numpy()
    if not blank.any():
        return split
    if blank.all():
        raise ValueError(f"{where} must have pairs without a blank sentence, got none")
    _logger.info("%s: dropped %d of %d pairs, which have a blank sentence", where, blank.sum(), len(split))
    return split.select(np.flatnonzero(~blank))


def encode_pairs(pairs: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, *, cut: bool) -> Dataset:
    """Tokenize the columns "source" and "target" into `input_ids` (and other columns of the tokenizer) and `labels`.

    With `cut`, sentences of more than `max_length` tokens are truncated, which suits held-out sets. Otherwise pairs
    with a longer sentence are dropped, which suits training, where a truncated sentence would not be a translation;
    `ValueError` if no pairs are left.
    """
    truncation = {"truncation": True, "max_length": max_length} if cut else {}

    def encode(samples: dict[str, list]) -> dict[str, list]:
        # Not verbose: a sentence that is longer than the tokenizer's limit is dropped below.
        tokens = tokenizer(samples["source"], text_target=samples["target"], verbose=False, **truncation)
        sides = zip(tokens["input_ids"], tokens["labels"], strict=True)
        fit = [max(len(source), len(target)) <= max_length for source, target in sides]
        return {name: list(itertools.compress(values, fit)) for name, values in tokens.items()}

    encoded = pairs.map(encode, batched=True, remove_columns=pairs.column_names, desc="tokenizing")
    if not len(encoded):
        raise ValueError(f"max_length must leave training pairs, got {max_length}: all of them are longer")
    if len(encoded) < len(pairs):
        _logger.info("dropped %d of %d training pairs: over max_length", len(pairs) - len(encoded), len(pairs))
    return encoded
