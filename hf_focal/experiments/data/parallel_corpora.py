"""Splits of parallel corpora."""

import logging
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, Features, Value

from ...cli.column_selection import Column, flatten_translations, select_columns
from ...cli.dataset_loading import SUFFIXES, is_file, load_file
from .dataset_splits import check_disjoint, cut_validation, read_splits

_logger = logging.getLogger(__name__)


def load_parallel(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    train_file: str | Path | None = None,
    validation_file: str | Path | None = None,
    test_file: str | Path | None = None,
    other_test_file: str | Path | None = None,
    *,
    source_lang: str,
    target_lang: str,
    validation_size: int | None = None,
    seed: int = 42,
) -> DatasetDict:
    """Load the train, validation and test splits of a parallel corpus.

    A split has a column for each language, named by it (``en``, ``de``), or the column ``translation`` of mappings
    ``{"en": ..., "de": ...}``, as corpora on the Hub do.

    Training pairs with a blank sentence are dropped before validation is cut, since they teach nothing; their number
    is logged. Validation and test files are not changed.

    Args:
        dataset_name: a Hub id, or a folder that `load_dataset` understands; it must have the splits "train" and
            "test". Give this or `train_file`.
        dataset_config_name: its configuration ("de-en").
        train_file, validation_file, test_file: csv, json, jsonl or parquet files; or the common beginning of two text
            files of a sentence a line: ``corpus/train`` for ``corpus/train.en`` and ``corpus/train.de``. An empty cell
            of csv is null. Without `test_file` there is no "test".
        other_test_file: another test set, the split "other_test".
        source_lang, target_lang: the names of the two languages.
        validation_size: training pairs that become "validation" if none is given; by default a hundredth of them.
        seed: of that cut.

    Returns:
        `DatasetDict` of "train", "validation" and "test" with the columns "source" and "target" (string).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the arguments contradict each other; a file cannot be read; a split or a column is missing, or a
            split is empty; text files are not UTF-8 or have unequal numbers of lines; sentences are not strings, or
            all blank, or null; two splits hold the same pairs; or the validation split cannot be cut.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(
        dataset_name, dataset_config_name, files, lambda name, file: load_pairs(name, file, source_lang, target_lang)
    )
    splits = DatasetDict({s: select_pairs(sources[s], raw[s], source_lang, target_lang) for s in raw})
    check_disjoint(splits, sources, "pairs", "source", "target")
    splits["train"] = _drop_blank(sources["train"], splits["train"])
    splits = cut_validation(splits, sources["train"], validation_size, seed, part=100)
    if other_test_file is not None:
        other = load_pairs("other_test_file", other_test_file, source_lang, target_lang)
        where = f"other_test_file {str(other_test_file)!r}"
        splits["other_test"] = select_pairs(where, other, source_lang, target_lang)
    return splits


def load_pairs(argument: str, file: str | Path, source_lang: str, target_lang: str) -> Dataset:
    r"""Load a file, or the two text files whose names begin with its name, without changing it.

    Lines of text files end only with "\n" or "\r\n", so that both languages have the same number: other separators of
    Unicode, or a lone "\r", are part of a sentence. A byte order mark is dropped.

    Args:
        argument: the argument that errors name.
        file, source_lang, target_lang: as in `load_parallel`.

    Raises:
        FileNotFoundError, ValueError: as `load_parallel`.
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
    """Select the columns "source" and "target" of a split, which errors call `source`.

    Raises:
        ValueError: as `load_parallel`.
    """
    columns = (
        Column("source_lang", source_lang, "source", "strings"),
        Column("target_lang", target_lang, "target", "strings"),
    )
    return select_columns(source, flatten_translations(split, source_lang), *columns)


def _drop_blank(where: str, split: Dataset) -> Dataset:
    """Drop the pairs with a blank sentence."""
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
