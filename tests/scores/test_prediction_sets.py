"""The guide on prediction sets, with MAPIE: its sets keep their promise with and without a correction."""

import re

import numpy as np
import pytest
from documented import ROOT, examples_of, run_example

pytestmark = [pytest.mark.full, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore::UserWarning:mapie")
@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_the_examples_of_the_guide(sharpness, capsys):
    pytest.importorskip("mapie")
    page = ROOT / "docs" / "guides" / "prediction_sets.md"
    random = np.random.default_rng(0)
    calibrated = random.normal(size=(4000, 6)) * 1.5
    labels = (calibrated + random.gumbel(size=calibrated.shape)).argmax(1)
    names = {"logits": calibrated * sharpness, "labels": labels}
    for example in examples_of(page):
        run_example(example, page, names)
    for line in capsys.readouterr().out.replace("\n ", " ").splitlines():
        score, *numbers = re.findall(r"lac|aps|[\d.]+", line)
        temperature, *of_sets = map(float, numbers)
        (size, covered, _), (new_size, newly_covered, _) = np.reshape(of_sets, (2, 3))
        assert temperature == pytest.approx(sharpness, rel=0.05)
        assert (covered, newly_covered) == pytest.approx((0.9, 0.9), abs=0.01)
        # A higher temperature makes adaptive sets larger.
        assert score == "lac" or (new_size > size) == (sharpness > 1)
