"""Fitting a correction, chosen if wanted, and measuring it on samples that it was not fitted on."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from ..errors import InputError
from ..metrics.metrics_accumulator import CalibrationMetrics
from ..utils.caller_warnings import warn
from ..validation import Array, check_scores, check_sigmoid_scores
from .affine_scaling import AFFINE_METHODS, AffineFits, absent_classes
from .calibration_fit import CalibrationFit, scaling_name
from .clusters import are_clustered, cluster_keys, random_folds
from .correction_methods import CORRECTION_METHODS, METHODS, METHODS_OF_LINK, PER_LABEL
from .corrections import Correction
from .fitted_temperature import Temperature, as_correction
from .temperature_grid import CalibrationSamples
from .temperature_scaling import NoInformationWarning, NoTemperatureWarning

# What "auto" tries with a softmax, from the simplest on.
_SOFTMAX_CANDIDATES = ("none", "temperature", "bias", "vector", "matrix")
# How far "auto" goes from the logits as they are, 0, to the fitted correction, 1.
_STRENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# "auto" leaves logits alone unless the likelihood-ratio test of T rejects at this level that they are calibrated, or a
# correction lowers the cross-fitted NLL by so many standard errors. It then takes the lowest NLL plus one standard
# error or, if the p-value is clear, a quarter of one. docs/results/text_corrections.md compares other rules.
_TEST_LEVEL, _SHOWN_ERRORS = 0.05, 2.0
_CLEAR_P_VALUE, _NUM_ERRORS, _FEW_ERRORS = 0.001, 1.0, 0.25
_CPU_BLOCK, _DEVICE_BLOCK = 2**17, 2**24  # logits whose NLL is computed at once
# "auto" does not try matrix scaling with more classes, because its K² parameters would need as many samples, or with
# two classes, where it is the same as vector scaling.
_MOST_CLASSES = 100


def fit_correction(
    logits: Array,
    labels: Array,
    method: str = "auto",
    *,
    link: str = "softmax",
    per_label: bool = False,
    num_folds: int = 5,
    num_bins: int = 15,
    bias: bool = True,
    clusters: Any = None,
    ignore_index: int = -100,
) -> CalibrationFit:
    """Fit a correction by NLL, and measure it by cross-fitting.

    **The rule** of "auto":

    1. It tries the corrections of the link, each at ten strengths (`Correction.shrunk`). Matrix scaling needs 3 to 100
       classes. If any logit is infinite, only a temperature is tried. With a sigmoid and several labels, a temperature
       and Platt scaling are also tried per label, whatever `per_label` says.
    2. It corrects nothing unless the likelihood-ratio test of T shows at a level of 5% that the logits are not
       calibrated, or a correction lowers the cross-fitted NLL by more than two standard errors of the difference.
    3. Otherwise, it takes the correction and the strength with the lowest cross-fitted NLL plus its standard error, or
       plus a quarter of it if the p-value of the test is below 0.001. If this sum is not below the NLL without a
       correction, it corrects nothing.

    The folds are random by the order of the samples: the same samples in another order may give another T, or another
    kind of correction, unless `clusters` are given.

    Args:
        logits, labels, link, per_label, ignore_index: as for `fit_temperature`.
        method: "none", which only measures; "temperature"; or, with a softmax, "bias" (see `fit_bias_correction`),
            "vector" or "matrix"; or, with a sigmoid, "platt"; or "auto": see the rule above.
        num_folds: number of random folds, with whole clusters.
        num_bins: number of equal-width bins of the ECE.
        bias: whether to fit a bias; False for a model whose last layer has no bias.
        clusters: `(...)`, without the last dimension of the logits: numbers or strings, such as an id or a text, that
            say which samples may depend on each other. If given, the folds depend neither on the order of the samples
            nor on their number in a cluster.

    Returns:
        A `CalibrationFit`. Warns if its method is not a temperature, but the cross-fitted NLL of this method is not
        below that of a temperature. If all predictions are right, no T has the lowest NLL (see `fit_temperature`), but
        all other corrections are regularized, so "auto" may choose one; the `reason` says so.

    Raises:
        InputError: an unknown method, or one that the link does not have; `num_folds` below 2 or above the
            number of samples or clusters; what the function of the method raises, such as `fit_temperature` or
            `fit_platt_scaling`.

    Examples:
        >>> import torch
        >>> from hf_focal import fit_correction
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = 2 * torch.randn(500, 3, generator=generator)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        >>> fit = fit_correction(2 * logits, labels)  # twice as sure as it should be
        >>> fit.chosen, fit_correction(logits, labels).chosen
        ('temperature', 'none')
    """
    samples = _checked_samples(logits, labels, method, link, bias, clusters, num_folds, num_bins, ignore_index)
    candidates = _candidates(samples, method, per_label, bias)
    # Folds with the same share of every class would let a fit know the shares of the fold that it is measured on.
    folds = torch.from_numpy(random_folds(len(samples), num_folds, samples.clusters)).to(samples.labels.device)
    fits, fold_fits = _fit_candidates(samples, candidates, folds, num_folds, bias, skips_failures=method == "auto")
    measured = _measure_candidates(samples, fold_fits, folds, has_changes=method == "auto")
    chosen, strength, reason = candidates[-1], 1.0, ""
    if method == "auto":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoTemperatureWarning)  # the reason says it
            temperature = fits["temperature"] if fits else as_correction(samples.fit("temperature", bias))
        p_value = _p_value(temperature.apply(samples.logits.double()), samples)
        chosen, strength, reason = _choose_correction(measured.changes, p_value)
        reason += _simpler_alternative(measured, chosen, strength, samples.clusters)
        if samples.are_all_right():
            limit = "" if chosen == "none" else ", and only regularization limits the correction"
            reason += (
                f"; all {len(samples):,} samples are predicted correctly, so no T alone can be fitted{limit}: use a "
                "larger calibration set"
            )
    else:
        _warn_if_no_better(measured.scores, chosen, candidates[0])

    has_fit = chosen in fits and chosen != "temperature"  # whose `Temperature` also has metrics
    fitted = fits[chosen] if has_fit else samples.fit(chosen, bias)
    if strength < 1:
        fitted = _shrunk_fit(fitted, strength, samples)
    correction = as_correction(fitted)
    cross_fitted = _cross_fitted_logits(fold_fits[chosen], samples.logits, folds)
    cross_fitted = _interpolate(samples.logits, cross_fitted, strength)
    changed_predictions, changed_top_labels = _count_changes(samples, correction)
    return CalibrationFit(
        correction=correction,
        before=measured.before,
        after=measured.scores[chosen] if strength == 1 else samples.scores(cross_fitted),
        scores=measured.scores,
        excess_nll=_excess_nll(measured.nll, samples.clusters),
        reason=reason,
        changed_predictions=changed_predictions,
        num_samples=len(samples),
        num_folds=num_folds,
        chosen=chosen,
        strength=strength,
        changed_top_labels=changed_top_labels,
        temperature=fitted if isinstance(fitted, Temperature) else None,
        cross_fitted_logits=cross_fitted,
        labels=samples.labels_of_fit(),
        clusters=samples.clusters if are_clustered(samples.clusters) else None,
        absent_classes=samples.absent_classes(),
        link=link,
    )


@dataclass(frozen=True)
class _Samples:
    """Checked samples, to which corrections are fitted and on which they are measured.

    Attributes:
        logits: (N, K), without the ignored samples; float64 with a sigmoid.
        labels: int64, (N,) or, with a sigmoid, (N, K), 0 or 1, or `ignore_index` where unknown.
        clusters: a key of the cluster of each sample, int64 (N,); None if none are given.
    """

    logits: Tensor
    labels: Tensor
    clusters: np.ndarray | None
    link: str
    num_bins: int
    ignore_index: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_known(self) -> Tensor:
        return self.labels != self.ignore_index

    def labels_of_fit(self) -> Tensor:
        """Return the labels as `CalibrationFit` has them: with a sigmoid, float64, and NaN where unknown."""
        return self.labels.double().masked_fill(~self.is_known, torch.nan) if self.link == "sigmoid" else self.labels

    def absent_classes(self) -> tuple[int, ...]:
        """Return the classes of a softmax with too few samples for parameters of their own; () for a sigmoid."""
        return () if self.link == "sigmoid" else tuple(absent_classes(self.labels, self.logits.shape[1]))

    def are_all_right(self) -> bool:
        """Return whether all predictions are right, so that the NLL falls as T -> 0."""
        if self.link == "softmax":
            return bool((self.logits.gather(1, self.labels[:, None])[:, 0] == self.logits.amax(1)).all())
        return bool((torch.where(self.labels == 1, self.logits, -self.logits) >= 0)[self.is_known].all())

    def without(self, held_out: Tensor) -> "_Samples":
        """Return the samples that are not held out, without their clusters."""
        return replace(self, logits=self.logits[~held_out], labels=self.labels[~held_out], clusters=None)

    def metrics(self, logits: Tensor) -> CalibrationMetrics:
        """Return the metrics of the samples with these logits, (N, K)."""
        metrics = CalibrationMetrics(self.num_bins, ignore_index=self.ignore_index, classwise=False, link=self.link)
        metrics.update(logits, self.labels)
        return metrics

    def scores(self, logits: Tensor) -> dict[str, float]:
        """Return "nll", "brier", and "ece" of the samples with these logits, (N, K)."""
        return self.metrics(logits).scores()

    def fit(self, name: str, bias: bool) -> Correction | Temperature:
        """Fit the correction of a name such as "vector" or "platt per label" to all samples."""
        kind, suffix, _ = name.partition(PER_LABEL)
        if kind == "none":
            return Temperature.unfitted(self.metrics(self.logits).compute(), self.num_bins)
        options: dict[str, dict[str, Any]] = {
            "temperature": {
                "objective": "nll",
                "num_bins": self.num_bins,
                "link": self.link,
                "per_label": bool(suffix),
            },
            "platt": {"per_label": bool(suffix)},
            "vector": {"bias": bias},
            "matrix": {"bias": bias},
        }
        fit = CORRECTION_METHODS[kind].fit
        return fit(self.logits, self.labels, ignore_index=self.ignore_index, **options.get(kind, {}))


def _checked_samples(
    logits: Array,
    labels: Array,
    method: str,
    link: str,
    bias: bool,
    clusters: Any,
    num_folds: int,
    num_bins: int,
    ignore_index: int,
) -> _Samples:
    """Return the samples. Raise `InputError` if they, the method, or the number of folds are none that can be."""
    if method not in (*METHODS, "auto"):
        raise InputError("method", f"must be one of {', '.join((*METHODS, 'auto'))}, got {method!r}")
    if method not in METHODS_OF_LINK.get(link, (*METHODS, "auto")):
        *names, last = map(repr, METHODS_OF_LINK[link])
        raise InputError("method", f"must be {', '.join(names)}, or {last} with a {link}, got {method!r}")
    if link == "sigmoid":
        logits, is_one, known = check_sigmoid_scores("logits", logits, labels, ignore_index)
        labels = is_one.long().masked_fill(~known, ignore_index)
        keys = None if clusters is None else cluster_keys(clusters, len(labels))
    else:
        logits, labels = check_scores("logits", logits, labels, ignore_index)
        labeled = labels != ignore_index
        keys = None if clusters is None else cluster_keys(clusters, len(labels))[labeled.cpu().numpy()]
        logits, labels = logits[labeled], labels[labeled]
    if not bias and method in CORRECTION_METHODS and CORRECTION_METHODS[method].needs_bias:
        *names, last = (
            name for name, known in CORRECTION_METHODS.items() if link in known.links and not known.needs_bias
        )
        allowed = f"{', '.join(names)}, or {last}"
        raise InputError("method", f"must be {allowed} for a head without a bias, got {method!r}")
    if method != "none" and not (isinstance(num_folds, int) and 2 <= num_folds <= len(labels)):
        raise InputError("num_folds", f"must be from 2 to the number of samples, {len(labels)}, got {num_folds!r}")
    if keys is not None and num_folds > (most := len(np.unique(keys))):
        raise InputError("num_folds", f"must be at most the number of clusters, {most}, got {num_folds}")
    return _Samples(logits, labels, keys, link, num_bins, ignore_index)


def _fit_candidates(
    samples: _Samples, candidates: Sequence[str], folds: Tensor, num_folds: int, bias: bool, *, skips_failures: bool
) -> tuple[dict[str, Correction], dict[str, list[Correction]]]:
    """Fit each correction without each fold.

    With `skips_failures`, Platt scaling and a bias correction that have no fit are left out.

    Returns:
        The fits to all samples of those corrections whose folds are fitted at once, and the fits without each fold,
        which are small, unlike the logits that they correct.
    """
    affine = None
    if samples.link == "softmax" and tuple(candidates) != ("none",) and not samples.logits.isinf().any():
        affine = AffineFits(CalibrationSamples(samples.logits, samples.labels, samples.ignore_index), folds)
    fits: dict[str, Correction] = {}
    fold_fits: dict[str, list[Correction]] = {}
    for name in candidates:
        try:
            with warnings.catch_warnings():
                for category in (NoInformationWarning, NoTemperatureWarning):
                    warnings.simplefilter("ignore", category)  # it is said of the whole fit
                if name == "none":
                    fold_fits[name] = []
                elif affine is not None and name in AFFINE_METHODS:
                    fits[name], *fold_fits[name] = affine.fit(name, bias)
                else:
                    fold_fits[name] = [
                        _fit_without_fold(samples, name, bias, folds == fold) for fold in range(num_folds)
                    ]
        except InputError:  # such as logits that rank backwards, which neither corrects
            if not skips_failures or name.startswith("temperature"):
                raise
    return fits, fold_fits


class _Measured(NamedTuple):
    """What candidates do to samples that they were not fitted on, by name.

    Attributes:
        before: "nll", "brier", and "ece" without a correction.
        scores: the same for each candidate.
        nll: the NLL of each sample, (N,).
        changes: the `_nll_changes` of the candidates other than "none".
    """

    before: dict[str, float]
    scores: dict[str, dict[str, float]]
    nll: dict[str, Tensor]
    changes: dict[str, dict[float, tuple[float, float]]]


def _measure_candidates(
    samples: _Samples, fold_fits: Mapping[str, Sequence[Correction]], folds: Tensor, *, has_changes: bool
) -> _Measured:
    """Measure each candidate, corrected by the fits without each fold; only one has its corrected logits at a time."""
    measured = _Measured(samples.scores(samples.logits), {}, {}, {})
    for name, corrections in fold_fits.items():
        corrected = _cross_fitted_logits(corrections, samples.logits, folds)
        measured.scores[name] = measured.before if name == "none" else samples.scores(corrected)
        measured.nll[name] = _nll(corrected, samples.labels, samples.link)
        if has_changes and name != "none":
            measured.changes[name] = _nll_changes(samples, corrected, measured.nll["none"])
        del corrected
    return measured


def _count_changes(samples: _Samples, correction: Correction) -> tuple[int, int]:
    """Return how many predictions a correction changes and, with a sigmoid, how many most probable labels.

    The predictions of a sigmoid are the decisions on known labels at a probability of 1/2.
    """
    logits = samples.logits
    if samples.link == "sigmoid":
        corrected = correction.apply(logits)
        changed_decisions = ((corrected >= 0) != (logits >= 0))[samples.is_known]
        return int(changed_decisions.sum()), int((corrected.argmax(1) != logits.argmax(1)).sum())
    if correction.method == "temperature":
        return 0, 0
    return int((correction.apply(logits).argmax(1) != logits.argmax(1)).sum()), 0


def _candidates(samples: _Samples, method: str, per_label: bool, bias: bool) -> tuple[str, ...]:
    """Return the names of the corrections to try; the last one is that of a given `method`."""
    infinite, width = bool(samples.logits.isinf().any()), samples.logits.shape[1]
    if samples.link == "sigmoid":
        return _sigmoid_candidates(method, per_label, width, infinite)
    return _softmax_candidates(method, width, bias, infinite)


def _softmax_candidates(method: str, num_classes: int, bias: bool, infinite: bool) -> tuple[str, ...]:
    """Return the names of the corrections to try for a softmax; the last one is that of a given `method`."""
    if method != "auto":
        return _method_and_temperature(method)
    if infinite:  # masked classes
        return ("none", "temperature")
    left_out = {name for name, method in CORRECTION_METHODS.items() if method.needs_bias and not bias}
    left_out |= {"matrix"} if not 2 < num_classes <= _MOST_CLASSES else set()
    return tuple(name for name in _SOFTMAX_CANDIDATES if name not in left_out)


def _sigmoid_candidates(method: str, per_label: bool, num_labels: int, infinite: bool) -> tuple[str, ...]:
    """Return the names of the corrections to try for a sigmoid head; the last one is that of a given `method`."""
    if method != "auto":
        return _method_and_temperature(method, PER_LABEL if per_label else "")
    kinds = ("temperature", "platt")[: 1 if infinite else 2]
    return ("none", *kinds, *(f"{kind}{PER_LABEL}" for kind in kinds if num_labels > 1))


def _method_and_temperature(method: str, suffix: str = "") -> tuple[str, ...]:
    """Return a method that was asked for, after a temperature, to compare it with."""
    return ("none",) if method == "none" else tuple(dict.fromkeys([f"temperature{suffix}", f"{method}{suffix}"]))


def _warn_if_no_better(scores: Mapping[str, Mapping[str, float]], chosen: str, simple: str) -> None:
    if chosen not in (simple, "none") and scores[chosen]["nll"] >= scores[simple]["nll"]:
        warn(
            f"{scaling_name(chosen)} is no better than a temperature on samples that it was not fitted on: NLL "
            f"{scores[chosen]['nll']:.4f} against {scores[simple]['nll']:.4f}"
        )


def _p_value(scaled: Tensor, samples: _Samples) -> float:
    """Return the p-value of the likelihood-ratio test that logits are calibrated, given those at the fitted T.

    The statistic is divided by the design effect of samples, or labels of a sample, that depend on each other: how
    much larger the variance of the gain is than that of independent ones.
    """
    logits, labels, link = samples.logits, samples.labels, samples.link
    gains = _nll(logits, labels, link) - _nll(scaled, labels, link)
    gain, error = _mean_and_error(gains, samples.clusters)
    if link == "sigmoid":
        known = samples.is_known
        signs = (1 - 2 * labels[known]).double()
        gains = softplus(signs * logits[known]) - softplus(signs * scaled[known])
    alone = _mean_and_error(gains, None)[1]
    effect = max(1.0, (error / alone) ** 2) if alone > 0 else 1.0
    # That of a chi-squared variable with one degree of freedom; the statistic is not below 0 by rounding.
    return math.erfc(math.sqrt(max(0.0, gain * len(gains) / effect)))


def _nll_changes(samples: _Samples, corrected: Tensor, before: Tensor) -> dict[float, tuple[float, float]]:
    """Return, by strength, the change of the mean NLL by a correction, and its standard error.

    `before` is the NLL of each sample without it, (N,).
    """
    nll = _nll_of_strengths(samples.logits, corrected, samples.labels, samples.link)
    means, errors = _means_and_errors(nll.sub_(before), samples.clusters)
    return dict(zip(_STRENGTHS, zip(means, errors, strict=True), strict=True))


def _choose_correction(
    changes_of_methods: Mapping[str, Mapping[float, tuple[float, float]]], p_value: float
) -> tuple[str, float, str]:
    """Return the correction that "auto" takes, its strength, and the reason, given `_nll_changes` of each."""
    changes = {
        (name, strength): pair
        for name, by_strength in changes_of_methods.items()
        for strength, pair in by_strength.items()
    }
    is_shown = p_value < _TEST_LEVEL or any(
        change + _SHOWN_ERRORS * error < 0 for (_, strength), (change, error) in changes.items() if strength == 1
    )
    num_errors = _FEW_ERRORS if p_value < _CLEAR_P_VALUE else _NUM_ERRORS
    name, strength = min(changes, key=lambda key: changes[key][0] + num_errors * changes[key][1])
    change, error = changes[name, strength]
    best = scaling_name(name, strength)
    text = f"{'lowers' if change < 0 else 'raises'} the cross-fitted NLL by {abs(change):.4f} ± {error:.4f}"
    if is_shown and change + num_errors * error < 0:
        return name, strength, f"{'' if strength == 1 else f'at {100 * strength:.0f}% strength, '}it {text}"
    return "none", 1.0, f"no correction clearly lowers the NLL: {best} {text}, and the p-value of T is {p_value:.2g}"


def _simpler_alternative(measured: _Measured, chosen: str, strength: float, clusters: np.ndarray | None) -> str:
    """Return what the reason says of the simplest correction that helps and is not shown to be worse; "" without one.

    The candidates of `measured` come from the simplest on.
    """
    names = [*measured.changes]
    for name in names[: names.index(chosen)] if chosen in names else []:
        change = measured.changes[name][1.0][0]
        error = _mean_and_error(measured.nll[name] - measured.nll[chosen], clusters)[1]
        if change < 0 and change - measured.changes[chosen][strength][0] <= _SHOWN_ERRORS * error:
            return f"; {scaling_name(name)}, which is simpler and not shown to be worse, lowers it by {-change:.4f}"
    return ""


def _interpolate(logits: Tensor, corrected: Tensor, strength: float) -> Tensor:
    return corrected if strength == 1 else strength * corrected + (1 - strength) * logits  # 0 times -inf is NaN


def _shrunk_fit(fitted: Correction | Temperature, strength: float, samples: _Samples) -> Correction | Temperature:
    shrunk = as_correction(fitted).shrunk(strength)
    if not isinstance(fitted, Temperature):
        return shrunk
    after = samples.scores(shrunk.apply(samples.logits))
    value = 1 / (strength / fitted.value + 1 - strength)
    values = tuple((1 / shrunk.A).tolist()) if fitted.values else ()
    return replace(
        fitted, value=value, values=values, shrunk_from=fitted.value, ece_after=after["ece"], nll_after=after["nll"]
    )


def _nll(logits: Tensor, labels: Tensor, link: str) -> Tensor:
    """Return the NLL of each sample, (N,).

    With a sigmoid, it is the sum over its labels, which depend on each other, in units of the mean number of known
    labels of a sample.
    """
    if link == "softmax":
        return cross_entropy(logits, labels, reduction="none")
    known = (labels == 0) | (labels == 1)
    signs, mean_known = (1 - 2 * labels).double(), known.double().sum(1).mean()
    return softplus(signs * logits).masked_fill(~known, 0).sum(1) / mean_known


def _nll_of_strengths(logits: Tensor, corrected: Tensor, labels: Tensor, link: str) -> Tensor:
    """Return the NLL of each sample at each of `_STRENGTHS`, (S, N)."""
    if link == "sigmoid":
        logits = logits.double()
        return torch.stack([_nll(_interpolate(logits, corrected, strength), labels, link) for strength in _STRENGTHS])
    elements = _CPU_BLOCK if logits.device.type == "cpu" else _DEVICE_BLOCK
    nll = corrected.new_empty(len(_STRENGTHS), len(labels))
    for start in range(0, len(labels), step := max(1, elements // logits.shape[1])):
        part = slice(start, start + step)
        z, fitted = logits[part].T.double().contiguous(), corrected[part].T.contiguous()
        for row, strength in zip(nll[:, part], _STRENGTHS, strict=True):  # with the classes first, sums are faster
            log_p = _interpolate(z, fitted, strength).log_softmax(0)
            torch.neg(log_p.gather(0, labels[None, part])[0], out=row)
    return nll


def _mean_and_error(values: Tensor, clusters: np.ndarray | None) -> tuple[float, float]:
    """Return the mean of values (N,) and its standard error over the draw of samples or, if given, of clusters."""
    (mean,), (error,) = _means_and_errors(values[None], clusters)
    return mean, error


def _means_and_errors(values: Tensor, clusters: np.ndarray | None) -> tuple[list[float], list[float]]:
    """Return the means of the rows of values (S, N) and their standard errors."""
    largest = values.abs().amax(1, keepdim=True)  # its square may be infinite
    largest = torch.where(largest > 0, largest, 1.0)
    values = values / largest
    size, means = values.shape[1], values.mean(1, keepdim=True)
    if clusters is None or not are_clustered(clusters):
        errors = values.std(1, keepdim=True) / size**0.5
    else:
        numbers = torch.from_numpy(np.unique(clusters, return_inverse=True)[1]).to(values.device)
        count = int(numbers.max()) + 1
        sums = values.new_zeros(len(values), count).index_add_(1, numbers, values - means)
        errors = sums.std(1, keepdim=True) * count**0.5 / size
    return (largest * means).squeeze(1).tolist(), (largest * errors).squeeze(1).tolist()


def _excess_nll(nll: Mapping[str, Tensor], clusters: np.ndarray | None) -> dict[str, tuple[float, float]]:
    """Return each method's mean NLL minus the smallest one, and the standard error of the difference."""
    if len(nll) == 1:
        return dict.fromkeys(nll, (0.0, 0.0))
    best = min(nll.values(), key=lambda sample_nll: float(sample_nll.mean()))
    return {name: _mean_and_error(sample_nll - best, clusters) for name, sample_nll in nll.items()}


def _fit_without_fold(samples: _Samples, name: str, bias: bool, held_out: Tensor) -> Correction:
    """Return a fit to the samples that are not held out."""
    try:
        return as_correction(samples.without(held_out).fit(name, bias))
    except InputError as error:
        argument, problem = error.args
        raise type(error)(argument, f"{problem} (without the {int(held_out.sum())} samples of one fold)") from None


def _cross_fitted_logits(fold_fits: Sequence[Correction], logits: Tensor, folds: Tensor) -> Tensor:
    """Return the corrected logits (N, K), float64: those of each fold by the fit without it, if there are fits."""
    if not fold_fits:
        return logits.double()
    corrected = torch.empty_like(logits, dtype=torch.float64)
    for fold, correction in enumerate(fold_fits):
        corrected[folds == fold] = correction.apply(logits[folds == fold].double())
    return corrected
