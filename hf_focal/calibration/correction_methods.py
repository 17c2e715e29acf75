"""The methods of `fit_correction`, and which link has which of them."""

from collections.abc import Callable
from typing import NamedTuple

from .affine_scaling import fit_bias_correction, fit_matrix_scaling, fit_vector_scaling
from .corrections import Correction
from .fitted_temperature import Temperature
from .platt_scaling import fit_platt_scaling
from .temperature_scaling import fit_temperature


class Method(NamedTuple):
    """A method of `fit_correction`.

    Attributes:
        links: those that have it.
        title: what sentences call it, in the singular.
        fit: function of logits, labels, and `ignore_index`, and of the options that `fit_correction` has for it, that
            returns a `Correction` or a `Temperature`.
        needs_bias: whether only a model whose last layer has a bias can take it.
    """

    links: tuple[str, ...]
    title: str
    fit: Callable[..., Correction | Temperature]
    needs_bias: bool = False


CORRECTION_METHODS = {
    "temperature": Method(("softmax", "sigmoid"), "temperature scaling", fit_temperature),
    "bias": Method(("softmax",), "bias correction", fit_bias_correction, needs_bias=True),
    "platt": Method(("sigmoid",), "Platt scaling", fit_platt_scaling),
    "vector": Method(("softmax",), "vector scaling", fit_vector_scaling),
    "matrix": Method(("softmax",), "matrix scaling", fit_matrix_scaling),
}
METHODS = ("none", *CORRECTION_METHODS)
METHODS_OF_LINK = {
    link: ("none", *(name for name, method in CORRECTION_METHODS.items() if link in method.links), "auto")
    for link in ("softmax", "sigmoid")
}
PER_LABEL = " per label"  # the end of the names of corrections with values for each label
