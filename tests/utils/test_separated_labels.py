"""Texts of several labels are split only where every part is a name."""

import pytest

from hf_focal.utils.separated_labels import separated_labels

NAMES = ("cat", "dog", "big cat")


@pytest.mark.parametrize(
    ("texts", "is_multi_label", "expected"),
    [
        (["cat|dog", "", "dog | big cat"], False, [["cat", "dog"], [], ["dog", "big cat"]]),
        (["cat;dog", "dog"], False, [["cat", "dog"], ["dog"]]),
        (["cat,dog", None], False, [["cat", "dog"], []]),
        (["cat dog", "dog"], False, None),
        (["cat|cow"], False, None),
        (["cat|dog", "cat;dog"], False, None),
        (["cat", "dog"], False, None),
        (["cat", ""], False, None),
        (["cat", ""], True, [["cat"], []]),
        (["cow"], True, None),
    ],
)
def test_a_separator_is_one_between_names(texts, is_multi_label, expected):
    assert separated_labels(texts, NAMES, is_multi_label) == expected


def test_a_name_with_the_separator_is_no_list():
    assert separated_labels(["a|b", "a"], ("a", "b", "a|b")) is None
    assert separated_labels(["a|b;a", "b"], ("a", "b", "a|b")) == [["a|b", "a"], ["b"]]
