"""Splits of parallel corpora."""

import logging
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, Features, Value

from hf_focal.tasks.column_selection import Column, flatten_translations, select_columns
from hf_focal.tasks.dataset_loading import load_file
from hf_focal.tasks.file_formats import SUFFIXES, is_file

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
    """Load the train, validation, and test splits of a parallel corpus.

    A split has either one column per language, named after the language (``en``, ``de``), or, as corpora on the Hub
    do, a column ``translation`` of mappings ``{"en": ..., "de": ...}``.

    Training pairs with a blank sentence are dropped before the validation split is cut, since such pairs teach
    nothing; the number of dropped pairs is logged. All pairs of given validation and test sets are kept.

    Args:
        dataset_name: a Hub id, or a folder that `load_dataset` understands; it must have the splits "train" and
            "test". Give this or `train_file`.
        dataset_config_name: configuration of the dataset, such as "de-en".
        train_file, validation_file, test_file: csv, json, jsonl, or parquet files; or the common prefix of two text
            files with one sentence per line: ``corpus/train`` for ``corpus/train.en`` and ``corpus/train.de``. Empty
            csv cells are null. Without `test_file`, there is no "test".
        other_test_file: a second test set, which becomes the split "other_test".
        source_lang, target_lang: the names of the two languages.
        validation_size: number of training pairs that become "validation" if the data has no validation split; a
            hundredth by default.
        seed: seed of the draw of these pairs.

    Returns:
        `DatasetDict` of "train", "validation", "test", and, if `other_test_file` is given, "other_test", with the
        columns "source" and "target" (string).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the arguments contradict each other; a file cannot be read; a split or a column is missing, or a
            split is empty; text files are not UTF-8 or have unequal numbers of lines; sentences are null, not strings,
            or all blank; two splits hold the same pairs; or the validation split cannot be cut.
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
    r"""Load one data file, or the two text files whose common prefix is `file`, and keep all pairs.

    In text files, only "\n" and "\r\n" end a line. Other Unicode line separators and a lone "\r" are part of a
    sentence, so that they do not make the two files differ in their numbers of lines. A byte order mark is dropped.

    Args:
        argument: name of the user's argument in error messages.
        file, source_lang, target_lang: as in `load_parallel`.

    Raises:
        FileNotFoundError, ValueError: as in `load_parallel`.
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
    """Return the two languages of a split as the columns "source" and "target".

    Error messages call the split `source`.

    Raises:
        ValueError: as in `load_parallel`.
    """
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
