"""Names that are imported on first use."""

import pytest

import hf_focal.scores
import hf_focal.tasks
from hf_focal.scores.sets.scores_in_memory import Scores


def test_a_name_is_that_of_its_module():
    assert hf_focal.scores.Scores is Scores


@pytest.mark.parametrize("package", [hf_focal.scores, hf_focal.tasks])
def test_other_names_raise_as_those_of_modules_do(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing
