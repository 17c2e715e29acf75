"""A warning points to the line of the user, however the package got to it."""

import functools
from types import SimpleNamespace

import pytest
import torch

from hf_focal import fit_correction, fit_temperature
from hf_focal.calibration.affine_scaling import fit_bias_correction
from hf_focal.calibration.calibration_record import recorded_calibration

LABELS = torch.arange(99) % 3
RIGHT = 6.0 * torch.nn.functional.one_hot(LABELS, 3) + torch.arange(99)[:, None] / 99


@pytest.mark.parametrize(
    "call",
    [
        functools.partial(fit_temperature, RIGHT, LABELS),
        functools.partial(fit_correction, RIGHT, LABELS, "temperature"),
        functools.partial(fit_bias_correction, RIGHT, LABELS),  # by way of a cached property
        functools.partial(recorded_calibration, SimpleNamespace(calibration=3)),
    ],
)
def test_a_warning_points_to_the_line_of_the_call(call):
    with pytest.warns(UserWarning) as caught:
        call()
    assert {warning.filename for warning in caught} == {__file__}
