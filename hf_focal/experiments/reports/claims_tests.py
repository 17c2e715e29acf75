"""Tests over seeds of what the papers claim of the focal losses."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ...reports.markdown_tables import MISSING, columns_table
from .paper_tables import Results, measured

FAMILY = "focal family"
# How much larger the error may be and still be called "not worse", in percentage points.
_ERROR_MARGIN = 1.0
_ABOUT_TESTS = """\
Differences from cross-entropy in percentage points, paired over seeds; one-sided tests. The focal family is the mean
of the row's focal, FLSc and FLSD losses. The t-test of the line "mean of the rows" decides (of one row: of "focal
family"), for these rows: a seed is one observation. With each row and seed as one there are more, but not of as many
tasks. The other lines are to be looked at: their p-values are not corrected for their number. With n pairs Wilcoxon's
p cannot be below 1 / 2ⁿ (0.125 for three).
"""


@dataclass(frozen=True)
class PairedTest:
    """Whether a difference between paired values is below a margin.

    Attributes:
        size: pairs.
        mean: of the differences; NaN without pairs.
        interval: two-sided 95 % t interval of the mean; NaN with fewer than two pairs.
        p_t: of the one-sided paired t-test of "the mean difference is below the margin"; NaN likewise.
        p_wilcoxon: of Wilcoxon's one-sided signed-rank test of the same. With n pairs it cannot be below 1 / 2^n.
    """

    size: int
    mean: float
    interval: tuple[float, float]
    p_t: float
    p_wilcoxon: float

    @classmethod
    def of(cls, differences: Iterable[float], margin: float = 0.0) -> "PairedTest":
        """The tests of differences, against a margin: 0 for "smaller", more for "not larger by so much"."""
        values = np.asarray(list(differences), dtype=float)
        nan = math.nan
        if len(values) < 2:
            return cls(len(values), float(values.mean()) if len(values) else nan, (nan, nan), nan, nan)
        test = stats.ttest_1samp(values, margin, alternative="less")
        interval = stats.ttest_1samp(values, margin).confidence_interval(0.95)
        wilcoxon = stats.wilcoxon(values - margin, alternative="less")
        bounds = float(interval.low), float(interval.high)
        return cls(len(values), float(values.mean()), bounds, float(test.pvalue), float(wilcoxon.pvalue))


def is_focal(loss: str) -> bool:
    """Whether a loss of the tables is of the focal family of Mukhoti et al. 2020: focal_N, flsc_N, flsd_N."""
    return loss.startswith(("focal_", "flsc_", "flsd_"))


def differences(results: Results, baseline: str, metric: str, stage: str) -> dict[tuple[str, str], dict]:
    """By how much losses exceed the baseline's value of a metric, for each row and seed that has both.

    Returns:
        (dataset, model) -> loss -> seed -> difference, in the unit of `METRICS`. "focal family" stands for the mean
        over the row's focal losses (`is_focal`), for seeds that have them all.
    """
    rows: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for (dataset, model, loss), runs in results.items():
        base = results.get((dataset, model, baseline), {})
        if loss != baseline and runs:
            rows.setdefault((dataset, model), {})[loss] = {
                seed: measured(run, metric, stage) - measured(base[seed], metric, stage)
                for seed, run in runs.items()
                if seed in base
            }
    for losses in rows.values():
        family = [of_seed for loss, of_seed in losses.items() if is_focal(loss)]
        if family:
            seeds = [seed for seed in family[0] if all(seed in of_seed for of_seed in family)]
            losses[FAMILY] = {seed: float(np.mean([of_seed[seed] for of_seed in family])) for seed in seeds}
    return rows


@dataclass(frozen=True)
class Comparison:
    """A test of one loss, or of their family, against the baseline, in one row of the tables or in all."""

    row: str
    loss: str
    test: PairedTest
    decides: bool


def compare_focal_losses(
    results: Results, metric: str, stage: str, margin: float = 0.0, baseline: str = "cross_entropy"
) -> list[Comparison]:
    """One-sided tests, paired over seeds, of the focal losses against the baseline.

    One for each focal loss (and AdaFocal) of each dataset and model, one for their family (`differences`), and last,
    of several datasets or models, two for all: of the mean over them for each seed that all have, which decides, and
    of every seed of each. Of a single one its family decides.

    Args:
        results: the runs.
        metric, stage: as `measured` takes them.
        margin: the difference that must be shown to be undercut; 0 for "smaller than the baseline".
        baseline: the loss that the others are compared with.

    Returns:
        The tests; none where no focal loss has a seed in common with the baseline.
    """
    rows = differences(results, baseline, metric, stage)
    families = [losses[FAMILY] for losses in rows.values() if losses.get(FAMILY)]
    single = len(families) == 1
    comparisons = [
        Comparison(", ".join(row), loss, PairedTest.of(of_seed.values(), margin), single and loss == FAMILY)
        for row, losses in rows.items()
        for loss, of_seed in losses.items()
        if of_seed and (is_focal(loss) or loss in ("adafocal", FAMILY))
    ]
    if families and not single:
        shared = [seed for seed in families[0] if all(seed in family for family in families)]
        means = PairedTest.of((np.mean([family[seed] for family in families]) for seed in shared), margin)
        pairs = PairedTest.of((value for family in families for value in family.values()), margin)
        comparisons.append(Comparison("all", f"{FAMILY}, mean of the rows", means, True))
        comparisons.append(Comparison("all", f"{FAMILY}, each row and seed", pairs, False))
    return comparisons


def significance_table(comparisons: Sequence[Comparison], level: float = 0.05) -> str:
    """The Markdown table of comparisons, and a line that says whether the deciding t-test is significant.

    Args:
        comparisons: as `compare_focal_losses` returns them.
        level: of significance.

    Raises:
        ValueError: no comparisons.
    """
    if not comparisons:
        raise ValueError("comparisons must hold at least one test, got none")
    cells = []
    for row in comparisons:
        numbers = [_signed(row.test.mean), _bounds(row.test.interval), _p(row.test.p_t), _p(row.test.p_wilcoxon)]
        cells.append([row.row, row.loss, str(row.test.size), *numbers])
    titles = ["Row", "Loss", "pairs", "mean difference", "95 % interval", "p, t-test", "p, Wilcoxon"]
    lines = [columns_table(titles, list(zip(*cells, strict=True)))]
    for row in comparisons:
        if row.decides and row.test.size > 1:
            shown = "Shown" if row.test.p_t < level else "Not shown"
            lines.append(f"**{shown}** at the {100 * level:g} % level by {row.loss} (p {_p(row.test.p_t, '= ')}).\n")
    return "\n".join(lines)


def claims_section(results: Results) -> str:
    """The Markdown section that tests the papers' claims: focal losses are better calibrated, and not less accurate.

    Args:
        results: the runs that there are.
    """
    claims = {
        "ECE before the temperature is smaller": ("ece", "pre_t", 0.0),
        "ECE after the temperature is smaller": ("ece", "post_t", 0.0),
        f"The error is not larger by {_ERROR_MARGIN:g} point or more": ("error", "pre_t", _ERROR_MARGIN),
    }
    lines = [f"## Tests over seeds: focal losses against cross-entropy\n\n{_ABOUT_TESTS}"]
    for title, (metric, stage, margin) in claims.items():
        comparisons = compare_focal_losses(results, metric, stage, margin)
        text = significance_table(comparisons) if comparisons else "There are no runs to compare yet.\n"
        lines.append(f"### {title}\n\n{text}")
    return "\n".join(lines)


def _signed(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:+.2f}"


def _bounds(bounds: tuple[float, float]) -> str:
    return MISSING if math.isnan(bounds[0]) else f"{bounds[0]:+.2f} to {bounds[1]:+.2f}"


def _p(value: float, equals: str = "") -> str:
    return MISSING if math.isnan(value) else "< 0.001" if value < 0.001 else f"{equals}{value:.3f}"
