"""What lists of numbers in a label column hold, which the whole column decides."""

import pytest
from datasets import Dataset

from hf_focal.tasks.input_options import InputOptions
from hf_focal.tasks.label_columns import LabelColumns
from hf_focal.tasks.label_numbers import ModelLabels
from hf_focal.tasks.multi_hot_labels import multi_hot_labels
from hf_focal.tasks.named_split import NamedSplit


def labels_read(lists, num_labels=3, **options):
    labels = ModelLabels.named([f"LABEL_{number}" for number in range(num_labels)])
    columns = LabelColumns.read(NamedSplit("data", Dataset.from_dict({"label": lists})), "label", labels)
    return multi_hot_labels(labels, columns, InputOptions(**options))


def test_the_whole_column_says_what_its_lists_hold():
    assert labels_read([[0, 1, 0], [1, 1, 1]]) == [[0, 1, 0], [1, 1, 1]]
    assert labels_read([[0, 1, 2], [1, 0], []]) == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert labels_read([[0, 1], [1, 0], [1, 1]], 2) == [[0, 1], [1, 0], [1, 1]]
    with pytest.raises(ValueError, match="label_format must be given, multi_hot or ids"):
        labels_read([[0, 1], [1, 0]], 2)
    assert labels_read([[0, 1], [1, 0]], 2, label_format="multi_hot") == [[0, 1], [1, 0]]
    assert labels_read([[0, 1], [1, 0]], 2, label_format="ids") == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("lists", "options", "message"),
    [
        ([[2, 0], [2, 2]], {}, "different label numbers below 3, got 2, 2 in row 1"),
        ([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0]], {}, "3 values 0 or 1, one for each label, got 0.5, 0.0, 0.0 in row 1"),
        ([[0, 1, 0], [0, 1]], {"label_format": "multi_hot"}, "3 values 0 or 1, one for each label, got 0, 1 in row 1"),
        ([[0, 1, 1], [0, 2]], {}, "got 0, 1, 1 in row 0"),
    ],
)
def test_lists_that_can_be_read_in_no_way(lists, options, message):
    with pytest.raises(ValueError, match=message):
        labels_read(lists, **options)
