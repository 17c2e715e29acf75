"""Statistics over the seeds of runs: tests of the papers' claims, paired by seed, and means with intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from hf_focal.reports.figures.figure_style import ACCURACY, OVER, clean_axes, finished, wrapped
from hf_focal.reports.wording.markdown_tables import MISSING, columns_table
from papers.pages.paper_tables import Runs, metric_value

_PANELS = {"ece": "ECE %", "adaece": "AdaECE %", "classwise_ece": "Classwise ECE %"}
_STAGES = {"pre_t": ("before T", OVER), "post_t": ("after T", ACCURACY)}


@dataclass(frozen=True)
class PairedTest:
    """One-sided tests of whether n paired differences are below a margin: the t-test and Wilcoxon's signed-rank test.

    `interval` is the two-sided 95% t interval of the mean. The p-value of Wilcoxon's test is at least 1 / 2^n. Numbers
    are NaN with fewer than two pairs; the mean, without pairs.
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
        mean = float(values.mean()) if len(values) else math.nan
        if len(values) < 2:
            return cls(len(values), mean, (math.nan, math.nan), math.nan, math.nan)
        test = stats.ttest_1samp(values, margin, alternative="less")
        interval = stats.ttest_1samp(values, margin).confidence_interval(0.95)
        # All signs are tried: what `stats.wilcoxon` does by default with ties differs from version to version.
        exact = stats.PermutationMethod(n_resamples=2**20)
        wilcoxon = stats.wilcoxon(values - margin, alternative="less", method=exact)
        bounds = float(interval.low), float(interval.high)
        return cls(len(values), mean, bounds, float(test.pvalue), float(wilcoxon.pvalue))


@dataclass(frozen=True)
class Claim:
    """The claim that the metric of a loss minus the same metric of a baseline loss is below a margin.

    `loss` and `baseline` are keys of `Runs`; `metric` and `stage` are as in `metric_value`, and `margin` is in the
    unit in which the metric is printed. 0 claims that the metric of the loss is smaller.
    """

    text: str
    loss: str
    baseline: str
    metric: str
    stage: str
    margin: float = 0.0

    def differences(self, runs: Runs) -> dict[int, float]:
        """Return seed -> the metric of the loss minus that of the baseline, for the seeds that both losses have."""
        loss_runs, baseline_runs = (runs.get(name, {}) for name in (self.loss, self.baseline))
        return {
            seed: metric_value(loss_runs[seed], self.metric, self.stage)
            - metric_value(record, self.metric, self.stage)
            for seed, record in sorted(baseline_runs.items())
            if seed in loss_runs
        }


# FLSD-53, which Mukhoti et al. recommend, represents the focal losses. (e) to (g) are no claims of the papers.
CLAIMS = (
    Claim("(a) ECE before T: FLSD-53 below cross-entropy", "flsd_53", "cross_entropy", "ece", "pre_t"),
    Claim("(b) ECE after T: FLSD-53 below cross-entropy", "flsd_53", "cross_entropy", "ece", "post_t"),
    Claim("(c) Error: FLSD-53 less than 1 point above", "flsd_53", "cross_entropy", "error", "pre_t", 1.0),
    Claim("(d) ECE before T: AdaFocal below FLSD-53", "adafocal_20", "flsd_53", "ece", "pre_t"),
    Claim("(d) with an update every epoch", "adafocal", "flsd_53", "ece", "pre_t"),
    Claim("(e) ECE before T: label smoothing below FLSD-53", "label_smoothing_0.05", "flsd_53", "ece", "pre_t"),
    Claim(
        "(f) ECE after T: label smoothing below cross-entropy",
        "label_smoothing_0.05",
        "cross_entropy",
        "ece",
        "post_t",
    ),
    Claim("(g) Error: label smoothing below cross-entropy", "label_smoothing_0.05", "cross_entropy", "error", "pre_t"),
)

# What Mukhoti et al. conclude from table 3.
TRANSLATION_CLAIMS = (
    Claim("ECE before T: focal loss below cross-entropy", "focal_1", "cross_entropy", "ece", "pre_t"),
    Claim("ECE before T: focal loss below label smoothing", "focal_1", "label_smoothing_0.1", "ece", "pre_t"),
    Claim("BLEU at T = 1: cross-entropy below focal loss", "cross_entropy", "focal_1", "bleu", "pre_t"),
    Claim("BLEU at T = 1: label smoothing below focal loss", "label_smoothing_0.1", "focal_1", "bleu", "pre_t"),
)


def claims_table(tasks: Mapping[str, Runs], claims: Iterable[Claim] = CLAIMS) -> str:
    """Test each claim on each task. Return a Markdown table of p-values and of differences, in the unit of the metric.

    If at least two tasks have two or more seeds, each claim also has a row "mean of the tasks". For this row, the
    differences are averaged over these tasks, separately for each seed that all these tasks have. A claim is "shown"
    if the p-value of its t-test is below 0.05.
    """
    rows = []
    for claim in claims:
        pairs_by_task = {title: pairs for title, runs in tasks.items() if (pairs := claim.differences(runs))}
        tested = {title: pairs for title, pairs in pairs_by_task.items() if len(pairs) > 1}
        if len(tested) > 1:
            shared = sorted(set.intersection(*map(set, tested.values())))
            pairs_by_task["mean of the tasks"] = {
                seed: float(np.mean([pairs[seed] for pairs in tested.values()])) for seed in shared
            }
        for title, pairs in pairs_by_task.items():
            test = PairedTest.of(pairs.values(), claim.margin)
            verdict = MISSING if math.isnan(test.p_t) else "shown" if test.p_t < 0.05 else "not shown"
            bounds = MISSING if math.isnan(test.interval[0]) else "{:+.2f} to {:+.2f}".format(*test.interval)
            mean = MISSING if math.isnan(test.mean) else f"{test.mean:+.2f}"
            numbers = [mean, bounds, _p(test.p_t), _p(test.p_wilcoxon)]
            rows.append([claim.text, title, str(test.size), *numbers, verdict])
    if not rows:
        return "No claim has runs of both of its losses.\n"
    titles = ["Claim", "Task", "seeds", "difference", "95% interval", "p, t-test", "p, Wilcoxon", ""]
    return columns_table(titles, list(zip(*rows, strict=True)))


def _p(value: float) -> str:
    return MISSING if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def mean_and_interval(values: np.ndarray, level: float = 0.9) -> tuple[float, float]:
    """Return the mean of values and half of the width of its two-sided t interval; NaN for a single value."""
    half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return float(values.mean()), float(half)


def calibration_error_bars(runs: Runs, titles: Mapping[str, str], path: str | Path | None = None) -> Figure:
    """Draw the ECE, AdaECE, and classwise ECE of each loss, before and after T, with intervals.

    A bar is the mean over the seeds of a loss, and a line its 90% t interval, cut off at 0; one seed has no line.
    `titles` are the losses' names on the axis, in order from the top; losses without runs are left out.
    """
    losses = [loss for loss in titles if runs.get(loss)]
    figure = Figure(figsize=(8.4, 1.2 + 0.42 * len(losses)), layout="constrained")
    rows = np.arange(len(losses))
    for axes, (metric, title) in zip(figure.subplots(1, len(_PANELS), sharey=True), _PANELS.items(), strict=True):
        for offset, (stage, (label, color)) in zip((-0.2, 0.2), _STAGES.items(), strict=True):
            bars = [
                mean_and_interval(np.array([metric_value(record, metric, stage) for record in runs[loss].values()]))
                for loss in losses
            ]
            means, halves = np.array(bars).T
            axes.barh(rows + offset, means, 0.38, color=color, label=label)
            below = np.minimum(halves, means)
            axes.errorbar(means, rows + offset, xerr=[below, halves], fmt="none", ecolor="black", elinewidth=0.9)
        axes.set_xlabel(title)
        axes.set_yticks(rows, [wrapped(titles[loss], 28) for loss in losses])
        clean_axes(axes)
        axes.grid(False)
        axes.margins(y=0.01)
    figure.axes[0].invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return finished(figure, path)


def temperatures_table(runs: Runs, titles: Mapping[str, str]) -> str:
    """Format a table of BLEU and ECE by temperature: means over the seeds ± half of the 95% t interval.

    A row is a temperature at which BLEU and ECE were measured in all runs. BLEU is the difference from that of the
    same run at T = 1, and ECE is that of the validation tokens in percent. `titles` are the losses' titles, in the
    order of the columns; losses and records without BLEU by temperature are left out.
    """
    records_by_title = {
        title: [record for record in runs.get(loss, {}).values() if "bleu" in record] for loss, title in titles.items()
    }
    records_by_title = {title: records for title, records in records_by_title.items() if records}
    every_record = [record for records in records_by_title.values() for record in records]
    temperatures = sorted(set.intersection(*(set(record["validation_ece"]) for record in every_record)), key=float)
    names, columns = ["T"], [temperatures]
    for title, records in records_by_title.items():
        names += [f"{title}: BLEU", "ECE %"]
        columns.append(
            [
                MISSING if value == "1.0" else _mean([run["bleu"][value] - run["bleu"]["1.0"] for run in records], "+")
                for value in temperatures
            ]
        )
        columns.append([_mean([100 * run["validation_ece"][value] for run in records]) for value in temperatures])
    return columns_table(names, columns)


def _mean(values: Sequence[float], sign: str = "") -> str:
    mean, half = mean_and_interval(np.array(values), level=0.95)
    return f"{mean:{sign}.2f}" if np.isnan(half) else f"{mean:{sign}.2f} ± {half:.2f}"
