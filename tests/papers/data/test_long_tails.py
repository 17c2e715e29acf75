"""Long-tailed subsets."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from papers.data.long_tails import long_tailed


def dataset(counts, column="labels"):
    """Rows 0, 1, ... of classes that alternate as long as they last."""
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = labels[np.random.default_rng(0).permutation(len(labels))]
    names = [f"class {k}" for k in range(len(counts))]
    return Dataset.from_dict(
        {"row": np.arange(len(labels)), column: labels},
        features=Features({"row": Value("int64"), column: ClassLabel(names=names)}),
    )


def sizes(data, num_classes, column="labels"):
    return np.bincount(data[column][:], minlength=num_classes).tolist()


@pytest.mark.parametrize(
    ("counts", "imbalance", "expected"),
    [
        # CIFAR-10-LT of Cui et al. 2019 and Cao et al. 2019
        ([5000] * 10, 0.01, [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]),
        ([500, 500, 500], 0.01, [500, 50, 5]),
        ([40, 30, 40], 1, [40, 30, 40]),
        ([30, 100, 3, 80], 0.125, [30, 50, 3, 12]),
    ],
)
def test_class_sizes_fall_exponentially(counts, imbalance, expected):
    data = dataset(counts)
    selected = long_tailed(data, imbalance)
    assert sizes(selected, len(counts)) == expected
    assert selected["row"][:] == sorted(set(selected["row"][:])) and selected.features == data.features
    assert [data[row]["labels"] for row in selected["row"][:50]] == selected["labels"][:50]


def test_the_seed_draws_the_rows_and_a_smaller_share_keeps_some_of_them():
    data = dataset([100, 100, 100])
    rows = set(long_tailed(data, 0.1, seed=1)["row"][:])
    assert rows == set(long_tailed(data, 0.1, seed=1)["row"][:]) != set(long_tailed(data, 0.1, seed=2)["row"][:])
    assert set(long_tailed(data, 0.05, seed=1)["row"][:]) < rows


def test_data_without_classes_is_refused():
    numbers = dataset([5, 5]).remove_columns("labels").rename_column("row", "labels")
    with pytest.raises(ValueError, match="label_column must hold class labels, got 'labels' of Value"):
        long_tailed(numbers, 0.5)
    with pytest.raises(ValueError, match="dataset must have samples of each class, got none of 'class 1'"):
        long_tailed(dataset([5, 0, 5]), 0.5)
