"""What all reliability diagrams share: Matplotlib's, those in SVG, and those that the script of a page draws."""

from typing import NamedTuple

import numpy as np

FEW = 30  # bins, and classes, with fewer samples are marked: chance moves them
Z = 1.96  # standard errors of a 95% interval


class LinkWords(NamedTuple):
    """The titles of the axes, and the terms for bins whose confidence is above and below their accuracy."""

    horizontal: str
    vertical: str
    over: str
    under: str

    @property
    def percent_titles(self) -> tuple[str, str]:
        """The titles of the axes of a chart in percent."""
        return f"{self.horizontal}, %", f"{self.vertical}, %"


LINK_WORDS = {
    "softmax": LinkWords("Confidence", "Accuracy", "overconfident", "underconfident"),
    "sigmoid": LinkWords("P(label)", "Frequency", "P too high", "P too low"),
}


def wilson_interval(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of 95% intervals for each `share` of `count` samples [Wilson 1927]."""
    center = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z * np.sqrt(share * (1 - share) / count + (Z / (2 * count)) ** 2) / (1 + Z**2 / count)
    return center - half, center + half
