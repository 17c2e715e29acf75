"""Labels of models with a sigmoid for each label: from a column of lists or texts, or from one column per label."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError, some_of
from ..utils.column_names import column_option
from ..utils.separated_labels import separated_labels
from .input_options import InputOptions
from .label_lists import are_multi_hot, has_lists
from .label_numbers import ModelLabels, list_numbers
from .named_split import NamedSplit


def multi_hot_labels(labels: ModelLabels, split: NamedSplit, options: InputOptions) -> list[list[float]]:
    """Return a 0 or 1 for each sample and label, in the order of the model's labels; null becomes NaN.

    `options.label_column` is the name of a column of lists of labels, which are converted as by `class_numbers`, or of
    lists with a 0 or 1 for each label of the model (see `are_multi_hot`); or of texts of such names, as "cat|dog"; or
    the names, separated by commas, of one column of 0 and 1 per label (see `column_order`). A model with one logit
    needs only one such column, which may hold grades if `options.positive_from` says which ones are positive.
    """
    columns = options.label_column.split(",")
    if len(columns) == 1 and len(labels) > 1:
        split = _with_lists(labels, split, columns[0])
    if len(columns) == 1 and has_lists(split.rows, columns[0]):
        return _from_lists(labels, split, options)
    _check_columns(labels, split, options)
    numbers = column_order(labels, options.label_column) or range(len(columns))
    return _from_columns(split, [columns[position] for position in np.argsort(numbers)], options)


def column_order(labels: ModelLabels, label_column: str) -> list[int] | None:
    """Return the model's label number for each of the comma-separated columns in `label_column`.

    Returns:
        The label numbers, or None if no column has the name of a label. In that case, the columns are in the order of
        the model's labels.

    Raises:
        InputError: only some columns have the names of labels, or a column or label appears twice.
    """
    columns = label_column.split(",")
    order = labels.numbers_of(columns)
    is_named = max(order) >= 0
    if len({*columns}) < len(columns) or (is_named and {*order} != {*range(len(labels))}):
        names = some_of(labels.id2label.values())
        raise InputError("label_column", f"must name each label of the model once, {names}, got {label_column!r}")
    return order if is_named else None


def _with_lists(labels: ModelLabels, split: NamedSplit, column: str) -> NamedSplit:
    """Return a split whose texts of several labels, such as "cat|dog", are lists, if the column holds such texts."""
    if getattr(split.rows.features.get(column), "dtype", None) not in ("string", "large_string"):
        return split
    texts = split.column(column).dictionary_encode()
    names = {*map(str, labels.id2label.values()), *labels.label_map}
    lists = separated_labels([*texts.dictionary.to_pylist(), None], names, is_multi_label=True)
    if lists is None:
        return split
    rows = texts.indices.fill_null(len(lists) - 1)
    values = pa.array(lists, pa.list_(pa.string())).take(rows)
    name = "hf_focal labels"  # a split without columns would have no rows
    with_lists = split.rows.add_column(name, values).remove_columns(column).rename_column(name, column)
    return split._replace(rows=with_lists)


def _from_lists(labels: ModelLabels, split: NamedSplit, options: InputOptions) -> list[list[float]]:
    column = options.label_column
    if are_multi_hot(split, column, options.label_format, labels):
        lists = split.column(column)
        values = pc.cast(lists.flatten(), "float64").to_numpy(zero_copy_only=False)
        return values.reshape(-1, len(labels)).tolist()
    rows = list_numbers(labels, split, "label_column", column)
    return [[float(number in numbers) for number in range(len(labels))] for numbers in rows]


def _check_columns(labels: ModelLabels, split: NamedSplit, options: InputOptions) -> None:
    """Raise `InputError` unless the split has as many columns of labels as the model has labels."""
    columns, names = options.label_column.split(","), split.rows.column_names
    if len(columns) == len(labels) and {*columns} <= {*names}:
        return
    if len(columns) == 1 and columns[0] in names:
        example = next((value for value in split.rows[columns[0]][:1000] if value), None)
        raise InputError(
            "label_column",
            f"must be a column of lists for a model of several labels, or {len(labels)} columns of 0 and 1 "
            f"separated by commas, got values such as {example!r} in {split.where(columns[0])}: in a "
            f"csv, write the model's labels with | between them, as '{'|'.join([*labels.id2label.values()][:2])}'",
        )
    inputs = {options.text_column, options.text_pair_column, options.image_column, options.audio_column}
    others = [name for name in names if name not in inputs]
    hint = f": give {column_option('label_column', others[0])}" if len(others) == 1 else ""
    raise InputError(
        "label_column",
        f"must be a column of lists, or {len(labels)} columns separated by commas, the labels "
        f"of the model, got {options.label_column!r} for the columns {names} of {split.name}{hint}",
    )


def _from_columns(split: NamedSplit, columns: list[str], options: InputOptions) -> list[list[float]]:
    """Return the values of columns of 0 and 1 or, with `options.positive_from`, of grades."""
    wrong = f"must hold 0 and 1, got other values in {split.where(options.label_column)}"
    try:
        values = np.stack([split.rows.with_format("numpy")[:][name].astype(float) for name in columns], 1)
    except (TypeError, ValueError) as error:  # texts or lists
        raise InputError("label_column", wrong) from error
    if options.positive_from is not None:
        values = np.where(np.isnan(values), values, values >= options.positive_from)
    known = values[~np.isnan(values)]
    if not np.isin(known, (0, 1)).all():
        if len(columns) == 1:
            wrong = (
                f"must hold 0 and 1 for a model with one logit, got {some_of({*known.tolist()})} in "
                f"{split.where(options.label_column)}: give positive_from for grades; a regression has no "
                "probabilities to calibrate"
            )
        raise InputError("label_column", wrong)
    return values.tolist()
