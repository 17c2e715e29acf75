"""Statistical tests, paired by seed, of the papers' claims about focal losses."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hf_focal.reports.markdown_tables import MISSING, columns_table

from .paper_tables import Runs, measured


@dataclass(frozen=True)
class PairedTest:
    """Results of one-sided tests of whether paired differences are below a margin.

    Attributes:
        size: number of pairs.
        mean: mean difference; NaN without pairs.
        interval: two-sided 95% t interval of the mean; NaN with fewer than two pairs.
        p_t: p-value of the paired t-test; NaN with fewer than two pairs.
        p_wilcoxon: p-value of Wilcoxon's signed-rank test, at least 1 / 2^n with n pairs; NaN if n < 2.
    """

    size: int
    mean: float
    interval: tuple[float, float]
    p_t: float
    p_wilcoxon: float

    @classmethod
    def of(cls, differences: Iterable[float], margin: float = 0.0) -> "PairedTest":
        """Test whether differences are below a margin.

        A margin of 0 tests the claim "smaller", and a positive margin the claim "larger by less than the margin".
        """
        values = np.asarray(list(differences), dtype=float)
        nan = math.nan
        if len(values) < 2:
            return cls(len(values), float(values.mean()) if len(values) else nan, (nan, nan), nan, nan)
        test = stats.ttest_1samp(values, margin, alternative="less")
        interval = stats.ttest_1samp(values, margin).confidence_interval(0.95)
        wilcoxon = stats.wilcoxon(values - margin, alternative="less")
        bounds = float(interval.low), float(interval.high)
        return cls(len(values), float(values.mean()), bounds, float(test.pvalue), float(wilcoxon.pvalue))


@dataclass(frozen=True)
class Claim:
    """The claim that the metric of a loss minus the same metric of a baseline loss is below a margin.

    Attributes:
        text: the claim in words.
        loss, baseline: the names of the two losses, as keys of `Runs`.
        metric, stage: as in `measured`.
        margin: in the unit in which the metric is printed; 0 claims that the metric of the loss is smaller.
    """

    text: str
    loss: str
    baseline: str
    metric: str
    stage: str
    margin: float = 0.0

    def differences(self, runs: Runs) -> dict[int, float]:
        """Return seed -> the metric of the loss minus that of the baseline, for the seeds that both losses have."""
        of_loss, of_baseline = (runs.get(name, {}) for name in (self.loss, self.baseline))
        return {
            seed: measured(of_loss[seed], self.metric, self.stage) - measured(record, self.metric, self.stage)
            for seed, record in sorted(of_baseline.items())
            if seed in of_loss
        }


# FLSD-53, which Mukhoti et al. recommend, represents the focal losses.
CLAIMS = (
    Claim("(a) ECE before T: FLSD-53 below cross-entropy", "flsd_53", "cross_entropy", "ece", "pre_t"),
    Claim("(b) ECE after T: FLSD-53 below cross-entropy", "flsd_53", "cross_entropy", "ece", "post_t"),
    Claim("(c) Error: FLSD-53 less than 1 point above", "flsd_53", "cross_entropy", "error", "pre_t", 1.0),
    Claim("(d) ECE before T: AdaFocal below FLSD-53", "adafocal_20", "flsd_53", "ece", "pre_t"),
    Claim("(d) with an update every epoch", "adafocal", "flsd_53", "ece", "pre_t"),
)

# What Mukhoti et al. conclude from table 3.
TRANSLATION_CLAIMS = (
    Claim("ECE before T: focal loss below cross-entropy", "focal_1", "cross_entropy", "ece", "pre_t"),
    Claim("ECE before T: focal loss below label smoothing", "focal_1", "label_smoothing_0.1", "ece", "pre_t"),
    Claim("BLEU at T = 1: cross-entropy below focal loss", "cross_entropy", "focal_1", "bleu", "pre_t"),
    Claim("BLEU at T = 1: label smoothing below focal loss", "label_smoothing_0.1", "focal_1", "bleu", "pre_t"),
)


def claims_table(tasks: Mapping[str, Runs], level: float = 0.05, claims: Iterable[Claim] = CLAIMS) -> str:
    """Test each claim on each task. Return a Markdown table of p-values and of differences, in the unit of the metric.

    If at least two tasks have two or more seeds, each claim also has a row "mean of the tasks". For this row, the
    differences are averaged over these tasks, separately for each seed that all these tasks have.

    Args:
        tasks: title of the task -> loss -> seed -> the run's record.
        level: significance level. A claim is "shown" if the p-value of its t-test is smaller.
        claims: the claims to test.
    """
    rows = []
    for claim in claims:
        of_tasks = {title: pairs for title, runs in tasks.items() if (pairs := claim.differences(runs))}
        tested = {title: pairs for title, pairs in of_tasks.items() if len(pairs) > 1}
        if len(tested) > 1:
            shared = sorted(set.intersection(*map(set, tested.values())))
            of_tasks["mean of the tasks"] = {
                seed: float(np.mean([pairs[seed] for pairs in tested.values()])) for seed in shared
            }
        for title, pairs in of_tasks.items():
            test = PairedTest.of(pairs.values(), claim.margin)
            verdict = MISSING if math.isnan(test.p_t) else "shown" if test.p_t < level else "not shown"
            numbers = [_signed(test.mean), _bounds(test.interval), _p(test.p_t), _p(test.p_wilcoxon)]
            rows.append([claim.text, title, str(test.size), *numbers, verdict])
    if not rows:
        return "No claim has runs of both of its losses.\n"
    titles = ["Claim", "Task", "seeds", "difference", "95% interval", "p, t-test", "p, Wilcoxon", ""]
    return columns_table(titles, list(zip(*rows, strict=True)))


def _signed(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:+.2f}"


def _bounds(bounds: tuple[float, float]) -> str:
    return MISSING if math.isnan(bounds[0]) else f"{bounds[0]:+.2f} to {bounds[1]:+.2f}"


def _p(value: float) -> str:
    return MISSING if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"
