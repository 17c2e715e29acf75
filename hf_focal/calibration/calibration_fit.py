"""A fitted correction with its scores, and how sentences describe it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..utils.constants import FEWEST_RECOMMENDED
from .correction_methods import CORRECTION_METHODS, PER_LABEL
from .corrections import Correction
from .fitted_temperature import Temperature
from .temperature_scaling import NO_INFORMATION
from .temperature_stream import TemperatureCurves
from .thresholds import Thresholds, ThresholdSamples, fit_thresholds, threshold_samples


@dataclass(frozen=True)
class CalibrationFit:
    """A correction, fitted on all samples, and its cross-fitted scores: each fold is corrected by a fit on the others.

    The scores are "nll" (nats), "brier", and "ece" (a fraction).

    Attributes:
        correction: the fitted `Correction`.
        before: the scores without a correction.
        scores: the cross-fitted scores of each correction that was tried: "none", "temperature", "bias", "vector",
            "matrix", or "platt", at full strength; with values for each label of a sigmoid, names that end in
            " per label".
        excess_nll: for each correction that was tried, its cross-fitted NLL minus the smallest one, and the standard
            error of this difference over the samples.
        after: the cross-fitted scores with the correction at its `strength`.
        strength: how far "auto" goes from the logits as they are, 0, to the fitted correction, 1: `Correction.shrunk`.
        reason: why "auto" chose the correction, in one line, which also names a simpler one that is not shown to be
            worse; "" if the method was given.
        changed_predictions: how many of the samples' predictions the correction changes; with a sigmoid, how many of
            the decisions at a probability of ½.
        num_samples, num_folds: the size of the calibration set, and the number of folds into which it was split; 0
            folds, and no `scores`, for a temperature that is not cross-fitted.
        chosen: the key of the correction in `scores`.
        changed_top_labels: with a sigmoid, of how many samples the most probable label changes.
        temperature: if the correction is a temperature, its fit to all samples, at its strength, or else None.
        cross_fitted_logits: the samples' corrected logits, float64 (N, K); each fold's by a fit on the others.
        labels: their labels, (N,) or, with a sigmoid, (N, K) with NaN where unknown; without the ignored samples.
        clusters: a key of the cluster of each sample, int64 (N,); None if each sample is a draw of its own.
        absent_classes: with a softmax, the numbers of the classes that (nearly) no sample has, for which vector and
            matrix scaling fit no parameters of their own.
        curves: if a temperature was fitted to sums instead of logits, the scores at each temperature of the grid.
        dataset: the data that a trainer fitted it to.
        cluster_notes: what to know of the samples of `dataset` with the same input.
    """

    correction: Correction
    before: dict[str, float]
    after: dict[str, float]
    scores: dict[str, dict[str, float]]
    excess_nll: dict[str, tuple[float, float]]
    reason: str
    changed_predictions: int
    num_samples: int
    num_folds: int
    chosen: str
    strength: float = 1.0
    changed_top_labels: int = 0
    temperature: Temperature | None = None
    cross_fitted_logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0), repr=False, compare=False)
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64), repr=False, compare=False)
    clusters: np.ndarray | None = field(default=None, repr=False, compare=False)
    absent_classes: tuple[int, ...] = ()
    link: str = "softmax"
    curves: TemperatureCurves | None = field(default=None, repr=False, compare=False)
    dataset: Any = field(default=None, repr=False, compare=False)
    cluster_notes: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def from_temperature(cls, temperature: Temperature, link: str = "softmax") -> "CalibrationFit":
        """Return the fit of a temperature that is not cross-fitted, such as one fitted to sums: it has no scores."""
        before = {"nll": temperature.nll_before, "ece": temperature.ece_before}
        after = {"nll": temperature.nll_after, "ece": temperature.ece_after}
        size = temperature.num_samples
        fit = cls(temperature.correction, before, after, {}, {}, "", 0, size, 0, "temperature")
        return replace(fit, temperature=temperature, link=link)

    @property
    def is_cross_fitted(self) -> bool:
        return self.num_folds > 0

    def fit_thresholds(self, precision: float | None = None, **options: Any) -> Thresholds:
        """Choose thresholds of the corrected probabilities on the samples that the correction was fitted to.

        The scores are the cross-fitted ones, because the correction knows the labels of its own samples. Samples are
        drawn by the clusters of the fit. The arguments are `precision`, `recall`, `coverage`, `f1`, `cost`,
        `confidence`, and `simultaneous` of the function `fit_thresholds`.
        """
        arguments = {"clusters": self.clusters, "link": self.link, **options}
        return fit_thresholds(self.cross_fitted_logits, self.labels, precision, **arguments)

    def threshold_samples(self, are_independent: bool = True) -> ThresholdSamples:
        """Return the cross-fitted log-odds and the hits, on which `fit_thresholds` chooses.

        `are_independent` is False for samples that depend on each other in a way that clusters do not describe.
        """
        samples = threshold_samples(self.cross_fitted_logits, self.labels, self.link, clusters=self.clusters)
        return replace(samples, are_independent=are_independent)

    def notes(self, names: Sequence[str] = ()) -> list[str]:
        """Return what a reader of the fit should know, in sentences; `names` are those of the classes."""
        notes = []
        if self.temperature is not None and self.temperature.at_grid_end:
            notes.append(NO_INFORMATION[self.link])
        if self.absent_classes:
            classes = ", ".join(repr(names[number]) if names else str(number) for number in self.absent_classes[:10])
            more = ", ..." if len(self.absent_classes) > 10 else ""
            notes.append(
                f"the calibration data have no samples, or too few, of {len(self.absent_classes)} of the "
                f"{self.cross_fitted_logits.shape[1]} classes, {classes}{more}: these get no parameters of their own"
            )
        return notes

    @property
    def method(self) -> str:
        """The kind of correction; "none" if none was better, and `correction` is a T of 1."""
        kind, method = self.chosen.partition(PER_LABEL)[0], self.correction.method
        return method if kind in ("none", "temperature") and method != "temperature" else kind  # by a prior shift

    def decomposition(self) -> dict[str, tuple[float, float]]:
        """Split each of the scores "nll" and "brier" into a pair: (calibration part, refinement part).

        The two parts sum to the score before the correction. The calibration part is how much the correction improves
        the score on samples that it was not fitted on (0 if it does not). It is the gain possible without a new model.
        """
        names = [name for name in ("nll", "brier") if name in self.before]
        gains = {name: max(0.0, self.before[name] - self.after[name]) for name in names}
        return {name: (gain, self.before[name] - gain) for name, gain in gains.items()}

    def to_dict(self) -> dict[str, Any]:
        choice_fields, data_fields = (
            ("method", "chosen", "reason"),
            ("changed_predictions", "num_samples", "num_folds", "strength"),
        )
        names = (*choice_fields, "before", "after", "scores", *data_fields)
        pairs = {"excess_nll": self.excess_nll, "decomposition": self.decomposition()}
        lists = {name: {key: list(pair) for key, pair in by_method.items()} for name, by_method in pairs.items()}
        values = {name: getattr(self, name) for name in names} | lists  # lists, as JSON reads them
        if self.method == "platt":
            values |= {"description": self.correction.describe(), "correction": self.correction.to_dict()}
        if self.changed_top_labels:
            values["changed_top_labels"] = self.changed_top_labels
        return values

    def __str__(self) -> str:
        if not self.is_cross_fitted:
            return str(self.temperature)
        before, after = self.before, self.after
        if self.method == "none":
            scores = f"NLL {before['nll']:.3f}, Brier {before['brier']:.3f}, ECE {100 * before['ece']:.1f}%"
            if len(self.scores) == 1:
                return f"no correction, on {self.num_samples:,} samples: {scores}"
            size = "" if is_too_few(self.num_samples) else f", on {self.num_samples:,} samples"
            return f"no correction: {reason_for_none(self.num_samples)}{size}: {scores}"
        top_labels = f", {self.changed_top_labels:,} top labels" if self.changed_top_labels else ""
        trade = score_trade(before, after).rpartition(": ")[2]
        return (
            f"{scaling_name(self.chosen, self.strength)}, cross-fitted on {self.num_samples:,} samples: "
            f"NLL {before['nll']:.3f} -> {after['nll']:.3f}, Brier {before['brier']:.3f} -> {after['brier']:.3f}, "
            f"ECE {100 * before['ece']:.1f}% -> {100 * after['ece']:.1f}%; "
            f"{self.changed_predictions:,} predictions{top_labels} change"
        ) + (f"; {trade}" if trade else "")


def is_too_few(num_samples: int | None) -> bool:
    """Return whether samples are too few for the choice of no correction to say that a model is calibrated."""
    return num_samples is not None and num_samples < FEWEST_RECOMMENDED


def reason_for_none(num_samples: int | None) -> str:
    """Return why "auto" left logits alone: no correction was shown to help, of which few samples are no evidence."""
    if is_too_few(num_samples):
        return f"{num_samples:,} samples are too few to tell whether it is calibrated"
    return "none clearly helps"


def scaling_name(method: str, strength: float = 1.0) -> str:
    """Return what sentences call a correction, such as "vector scaling"; `method` is a key of `CalibrationFit.scores`.

    "platt per label" becomes "Platt scaling per label", and with a `strength` of 0.3, "at 30% strength" follows.
    """
    name, suffix, _ = method.partition(PER_LABEL)
    shrunk = "" if strength == 1 else f" at {100 * strength:.0f}% strength"
    return f"{CORRECTION_METHODS[name].title}{suffix}{shrunk}"


def score_trade(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return both scores of a correction that lowers one of "nll" and "ece" and raises the other, or else "".

    Each must change by a hundredth at least, so that rounding and noise of the last digit do not count.
    """
    sides = [(side.get("nll", np.nan), side.get("ece", np.nan)) for side in (before, after)]
    (nll, ece), (new_nll, new_ece) = sides
    if new_nll < 0.99 * nll and new_ece > 1.01 * ece + 5e-4:
        verdict = "better by NLL, worse by ECE"
    elif new_nll > 1.01 * nll and new_ece < 0.99 * ece - 5e-4:
        verdict = "better by ECE, worse by NLL"
    else:  # also with NaN
        return ""
    return f"NLL {nll:.3f} -> {new_nll:.3f}, ECE {100 * ece:.1f}% -> {100 * new_ece:.1f}%: {verdict}"
