"""Statistical tests, paired over seeds, of the papers' claims about focal losses."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ...reports.markdown_tables import MISSING, columns_table
from .paper_tables import Results, measured

FAMILY = "focal family"
# The error counts as "not worse" if it is larger by less than this, in percentage points.
_ERROR_MARGIN = 1.0
_ABOUT_TESTS = """\
Differences from cross-entropy in percentage points, paired over seeds, with one-sided tests. The focal family is the
mean of the focal, FLSc and FLSD losses of a row. The t-test of the line "mean of the rows" decides (with a single row,
that of "focal family"): each seed is one observation. The line "each row and seed" has more observations, but they are
not independent tasks. All other lines are exploratory: their p-values are not corrected for multiple tests. With n
pairs, Wilcoxon's p is at least 1 / 2ⁿ (0.125 for three).
"""


@dataclass(frozen=True)
class PairedTest:
    """One-sided tests of whether a paired difference is below a margin.

    Attributes:
        size: number of pairs.
        mean: mean difference; NaN without pairs.
        interval: two-sided 95 % t interval of the mean; NaN with fewer than two pairs.
        p_t: p-value of the paired t-test; NaN with fewer than two pairs.
        p_wilcoxon: p-value of Wilcoxon's signed-rank test, at least 1 / 2^n with n pairs; NaN with fewer than two.
    """

    size: int
    mean: float
    interval: tuple[float, float]
    p_t: float
    p_wilcoxon: float

    @classmethod
    def of(cls, differences: Iterable[float], margin: float = 0.0) -> "PairedTest":
        """Test differences against a margin: 0 for "smaller", above 0 for "not larger by the margin"."""
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
    """Whether a loss of the tables belongs to the focal family of Mukhoti et al. 2020: focal_N, flsc_N, flsd_N."""
    return loss.startswith(("focal_", "flsc_", "flsd_"))


def differences(results: Results, baseline: str, metric: str, stage: str) -> dict[tuple[str, str], dict]:
    """Subtract the baseline's value of a metric from that of each loss, for each row and seed that has both.

    Returns:
        (dataset, model) -> loss -> seed -> difference, in the unit of `METRICS`. The loss "focal family" is the mean
        over the row's focal losses (`is_focal`), for seeds that have all of them.
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
    """A test of one loss, or of the focal family, against the baseline, in one row of the tables or in all rows."""

    row: str
    loss: str
    test: PairedTest
    decides: bool


def compare_focal_losses(
    results: Results, metric: str, stage: str, margin: float = 0.0, baseline: str = "cross_entropy"
) -> list[Comparison]:
    """Test the focal losses against the baseline, one-sided and paired over seeds.

    There is a test for each focal loss (and AdaFocal) of each dataset and model, and one for the focal family. With a
    single dataset and model, the test of the family decides. With several, two more tests cover all of them: one of
    the means over them, a pair for each seed that all have, which decides, and one of all seeds of each.

    Args:
        results: the runs.
        metric, stage: as in `measured`.
        margin: the difference to stay below; 0 for "smaller than the baseline".
        baseline: the loss to compare with.

    Returns:
        The tests; empty if no focal loss shares a seed with the baseline.
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
    """Format comparisons as a Markdown table, and a line that says whether the deciding t-test is significant.

    Args:
        comparisons: as `compare_focal_losses` returns them.
        level: significance level.

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
    """Test the papers' claims that focal losses are better calibrated and not less accurate.

    Args:
        results: the available runs.

    Returns:
        A Markdown section.
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
