"""Splits of a parallel corpus, from the Hub or from files, checked before hours are spent on them."""

import logging
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, Features, Value

from .dataset_files import SUFFIXES, is_file, load_file
from .dataset_splits import check_column, check_disjoint, cut_validation, read_splits

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
    ``{"en": ..., "de": ...}``, as the Hub's corpora do.

    Training pairs with a blank sentence, one of nothing but white space, are dropped before anything is cut, since
    they teach nothing; their number is logged. Validation and test files are kept as they are.

    Args:
        dataset_name: an id on the Hub, or a folder that `load_dataset` understands; it must have the splits "train"
            and "test". Give this or `train_file`.
        dataset_config_name: its configuration ("de-en").
        train_file, validation_file, test_file: csv, json, jsonl or parquet files; or the common beginning of two text
            files of a sentence a line: ``corpus/train`` for ``corpus/train.en`` and ``corpus/train.de``. An empty cell
            of csv is null. Without `test_file` there is no "test".
        other_test_file: another test set, the split "other_test".
        source_lang, target_lang: the two languages' names.
        validation_size: training pairs that become "validation" where none is given; a hundredth of them if absent.
        seed: of that cut.

    Returns:
        `DatasetDict` of "train", "validation" and "test" with the columns "source" and "target" (string).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the arguments contradict each other; a file cannot be read; a split or a column is missing, or a
            split is empty; text files are not UTF-8 or have unequal numbers of lines; what should be a sentence is
            none, or null; two splits hold the same pairs; or the validation split cannot be cut.
    """
    if source_lang == target_lang:
        raise ValueError(f"target_lang must be another language than source_lang, got {target_lang!r} for both")
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    raw, sources = read_splits(
        dataset_name, dataset_config_name, files, lambda name, file: load_pairs(name, file, source_lang, target_lang)
    )
    splits = DatasetDict({s: select_pairs(sources[s], raw[s], source_lang, target_lang) for s in raw})
    check_disjoint(splits, sources, "pairs", lambda split: list(zip(split["source"], split["target"], strict=True)))
    splits["train"] = _drop_blank(sources["train"], splits["train"])
    splits = cut_validation(splits, sources["train"], validation_size, seed, part=100)
    if other_test_file is not None:
        other = load_pairs("other_test_file", other_test_file, source_lang, target_lang)
        where = f"other_test_file {str(other_test_file)!r}"
        splits["other_test"] = select_pairs(where, other, source_lang, target_lang)
    return splits


def load_pairs(argument: str, file: str | Path, source_lang: str, target_lang: str) -> Dataset:
    r"""A file, or the two text files that begin with its name, as it lies there.

    Lines of text files end with "\n" or "\r\n" and nowhere else, so that both languages count them alike: other
    separators of Unicode, or a lone "\r", are part of a sentence. A byte order mark is dropped.

    Args:
        argument: what an error calls it.
        file, source_lang, target_lang: as `load_parallel` takes them.

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
        raise ValueError(f"{argument} must have as many lines in each language, got {sizes} in {str(file)!r}")
    return Dataset.from_dict(columns, features=Features(dict.fromkeys(columns, Value("string"))))


def select_pairs(where: str, split: Dataset, source_lang: str, target_lang: str) -> Dataset:
    """The columns "source" and "target" of a split.

    Args:
        where: what an error calls the split.
        split: as `load_pairs` or the Hub has it.
        source_lang, target_lang: as `load_parallel` takes them.

    Raises:
        ValueError: as `load_parallel`.
    """
    if len(split) == 0:
        raise ValueError(f"{where} must have rows, got none")
    if "translation" in split.column_names:
        split = split.select_columns("translation").flatten()
        split = split.rename_columns({name: name.removeprefix("translation.") for name in split.column_names})
    for argument, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        check_column(argument, language, where, split, cutoff=0.51)  # "en" is half of "de" by this measure
    split = split.select_columns([source_lang, target_lang])
    for language, feature in split.features.items():
        if feature not in (Value("string"), Value("large_string")):
            raise ValueError(f"{where} must hold strings, got {feature} in {language!r}")
        nulls = split.with_format("arrow")[:].column(language).null_count
        if nulls:
            raise ValueError(f"{where} must have no nulls, got {nulls} of {len(split)} in {language!r}")
    split = split.rename_columns({source_lang: "source", target_lang: "target"})
    features = Features(source=Value("string"), target=Value("string"))
    return split if split.features == features else split.cast(features)  # a cast copies the corpus


def _drop_blank(where: str, split: Dataset) -> Dataset:
    """The pairs of which neither sentence is blank."""
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
