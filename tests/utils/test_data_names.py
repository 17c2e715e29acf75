"""Names of data: what a result holds of them is read as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_focal.utils.data_names import DataName


@given(st.text(), st.none() | st.text())
def test_a_name_and_its_split_are_read_back(name, split):
    data = DataName("test_dataset", name, split)
    assert DataName.parse(str(data)) == data


def test_names_have_the_form_that_results_show():
    assert str(DataName("dataset", "a.csv")) == "dataset 'a.csv'"
    assert str(DataName("dataset", "org/d", "dev")) == "split 'dev' of dataset 'org/d'"
    assert DataName.parse('dataset "it\'s.csv"') == ("dataset", "it's.csv", None)


@pytest.mark.parametrize("text", ["june.csv", "", "scores", "dataset 'a'b'", "dataset '\\x'", "split 'a' of b"])
def test_other_texts_are_no_names(text):
    assert DataName.parse(text) is None
