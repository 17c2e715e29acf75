"""All metrics: what each is called, what it means, which values are better, where it is shown, and how to compute it.

Tables, pages, cards, and consoles, the accumulators and their intervals, the trainers' logs, and the module for
`evaluate` read this table. A metric is a function and an entry.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import calibration_errors as functions


@dataclass(frozen=True)
class Metric:
    """What is known of a metric, whose key is that of `CalibrationMetrics.compute`.

    Attributes:
        name: what sentences call it.
        meaning: what it is, for readers who do not know it.
        meaning_of_labels: the same for several labels per sample or a single logit, if it differs.
        percent: whether the value is a share, which is shown as a percentage.
        decimals: how many are shown.
        higher_is_better: None if neither higher nor lower values are better.
        is_of_decisions: whether it depends on the predictions only, which no temperature changes.
        is_gap: whether it compares confidence with accuracy: a model that is wrong more often is not the better one
            for a smaller gap.
        in_tables: whether tables of one result show it.
        is_compared: whether tables of several results show it, too.
        in_card: whether the metadata of a model card have it.
        has_interval: whether tables show its interval.
        binned: computes it from `count` and `gap`, (..., M), of bins; see `calibration_errors`.
        equal_mass: whether these bins have equal mass, rather than equal width.
        function: computes it from logits and labels; with `source`, its paper.
    """

    name: str
    meaning: str = ""
    meaning_of_labels: str = ""
    percent: bool = True
    decimals: int = 2
    higher_is_better: bool | None = False
    is_of_decisions: bool = False
    is_gap: bool = False
    in_tables: bool = True
    is_compared: bool = True
    in_card: bool = False
    has_interval: bool = False
    binned: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    equal_mass: bool = False
    function: Callable[..., float] | None = None
    source: str = ""

    @property
    def factor(self) -> int:
        return 100 if self.percent else 1

    @property
    def title(self) -> str:
        """The name with its unit, as in the first column of a table: "error %", "NLL"."""
        return f"{self.name} %" if self.percent else self.name

    @property
    def heading(self) -> str:
        """The title for the head of a column or a row: "Error %"."""
        return self.title[0].upper() + self.title[1:]

    def meaning_for(self, link: str) -> str:
        return self.meaning_of_labels if link == "sigmoid" and self.meaning_of_labels else self.meaning


# In the order in which tables show them.
METRICS = {
    "accuracy": Metric(
        "accuracy",
        "share of right predictions",
        higher_is_better=True,
        is_of_decisions=True,
        in_tables=False,
        in_card=True,
    ),
    "error": Metric(
        "error",
        "share of wrong predictions",
        "share of wrong yes-or-no answers at a probability of ½",
        is_of_decisions=True,
    ),
    "micro_f1": Metric(
        "micro F1", "F1 of all answers at a probability of ½", higher_is_better=True, is_of_decisions=True
    ),
    "macro_f1": Metric(
        "macro F1",
        "mean F1 of the classes",
        "mean F1 of the labels at a probability of ½",
        higher_is_better=True,
        is_of_decisions=True,
    ),
    "macro_recall": Metric(
        "macro recall",
        "mean share of the samples of a class that are found",
        "mean share of a label's ones that are found at a probability of ½",
        higher_is_better=True,
        is_of_decisions=True,
        is_compared=False,
    ),
    "auroc": Metric(
        "AUROC",
        "how often a positive sample ranks above a negative one; 50% is chance",
        "how often a label that applies ranks above one that does not; 50% is chance",
        higher_is_better=True,
        is_of_decisions=True,
    ),
    "nll": Metric(
        "NLL",
        "mean of −log p, where p is the probability of the right answer",
        percent=False,
        decimals=3,
        in_card=True,
        function=functions.negative_log_likelihood,
        source="Guo et al., On Calibration of Modern Neural Networks, ICML 2017",
    ),
    "entropy": Metric(
        "entropy",
        "mean of −Σ p log p over the classes of a sample",
        percent=False,
        decimals=3,
        higher_is_better=None,
        in_tables=False,
        function=functions.mean_entropy,
        source="Shannon, A Mathematical Theory of Communication, 1948",
    ),
    "ece": Metric(
        "ECE",
        "average gap between confidence and accuracy, in bins of equal width",
        "average gap between a label's probability and its frequency, in bins of equal width",
        is_gap=True,
        in_card=True,
        has_interval=True,
        binned=functions.weighted_mean_gap,
        function=functions.expected_calibration_error,
        source="Naeini et al., Obtaining Well Calibrated Probabilities, AAAI 2015",
    ),
    "adaece": Metric(
        "AdaECE",
        "the same in bins with equally many samples",
        is_gap=True,
        in_card=True,
        binned=functions.weighted_mean_gap,
        equal_mass=True,
        function=functions.adaptive_calibration_error,
        source="Mukhoti et al., Calibrating Deep Neural Networks, NeurIPS 2020",
    ),
    "smooth_ece": Metric(
        "smooth ECE",
        "the same without bins",
        is_gap=True,
        is_compared=False,
        in_card=True,
        function=functions.smooth_calibration_error,
        source="Błasiok and Nakkiran, Smooth ECE, ICLR 2024",
    ),
    "classwise_ece": Metric(
        "classwise ECE",
        "the same for the probabilities of all classes",
        is_gap=True,
        function=functions.classwise_calibration_error,
        source="Kull et al., Beyond Temperature Scaling, NeurIPS 2019",
    ),
    "macro_ece": Metric("macro ECE", "mean ECE of the labels", is_gap=True, in_card=True),
    "mce": Metric(
        "MCE",
        "the largest gap of a bin, which may be that of a few samples",
        is_gap=True,
        binned=functions.largest_gap,
        function=functions.maximum_calibration_error,
        source="Naeini et al., Obtaining Well Calibrated Probabilities, AAAI 2015",
    ),
    "ace": Metric(
        "ACE",
        "mean gap of the bins that have samples",
        is_gap=True,
        in_tables=False,
        binned=functions.mean_gap,
        function=functions.average_calibration_error,
        source="Neumann et al., Relaxed Softmax, 2018",
    ),
    "rmsce": Metric(
        "RMSCE",
        "root of the mean squared gap of the bins",
        is_gap=True,
        in_tables=False,
        binned=functions.root_mean_squared_gap,
        function=functions.root_mean_squared_calibration_error,
        source="Hendrycks et al., Outlier Exposure, ICLR 2019",
    ),
    "brier": Metric(
        "Brier score",
        "mean squared error of the probabilities",
        percent=False,
        decimals=3,
        is_compared=False,
        in_card=True,
        function=functions.brier_score,
        source="Brier, Verification of Forecasts, Monthly Weather Review 78, 1950",
    ),
    "aurc": Metric(
        "AURC",
        "error rate if only the most confident are answered, averaged over all coverages",
        is_compared=False,
        in_card=True,
        function=functions.aurc,
        source="Geifman and El-Yaniv, Selective Classification for Deep Neural Networks, NeurIPS 2017",
    ),
    "e_aurc": Metric(
        "E-AURC",
        "AURC minus that of the best order, in which all errors come last",
        in_tables=False,
        function=functions.e_aurc,
        source="Geifman et al., Bias-Reduced Uncertainty Estimation, ICLR 2019",
    ),
    "augrc": Metric(
        "AUGRC",
        "share of all samples with a wrong answer if only the most confident get one, averaged over all coverages",
        in_tables=False,
        function=functions.augrc,
        source="Traub et al., Overcoming Common Flaws in the Evaluation of Selective Classification, NeurIPS 2024",
    ),
    "bleu": Metric(
        "BLEU", "quality of the translations, from 0 to 100", percent=False, higher_is_better=True, in_card=True
    ),
}


def binned_errors(count: np.ndarray, gap: np.ndarray, equal_mass: bool = False) -> dict[str, np.ndarray]:
    """Compute each error, (...), of bins with `count` and `gap`, (..., M), which have equal width or equal mass."""
    return {
        key: metric.binned(count, gap)
        for key, metric in METRICS.items()
        if metric.binned and metric.equal_mass == equal_mass
    }


def ranked_errors(groups: np.ndarray, num_bins: int) -> dict[str, float]:
    """Compute each error of equal-mass bins from the sums (3, G) of `sum_ties`."""
    count, confidence, hits = groups
    bins = functions.equal_mass_bins(count, confidence - hits, num_bins)
    return {key: float(error) for key, error in binned_errors(*bins, equal_mass=True).items()}
