"""Statistics in one evaluation or calibration, which remembers what was made of them."""

from typing import Any

import numpy as np

from ...calibration import CalibrationFit, Correction
from ...calibration.thresholds import ThresholdSamples
from ...metrics import CalibrationMetrics
from .score_set import LargeTableScores
from .score_statistics import ScoreStatistics, Use
from .scores_in_memory import Scores


class StatisticsInUse(LargeTableScores):
    """`ScoreStatistics` as a `ScoreSet` of one result.

    Its notes say what was made of the statistics so far, in an order that does not depend on that of the uses. The
    statistics themselves stay as they are, so that another result can be made of them.
    """

    def __init__(self, statistics: ScoreStatistics) -> None:
        self.statistics, self.schema, self.data_name = statistics, statistics.schema, statistics.data_name
        self._uses: set[Use] = set()

    def __len__(self) -> int:
        return len(self.statistics)

    @property
    def groups(self) -> np.ndarray | None:
        """The groups of the sample."""
        return self.statistics.groups

    @property
    def label_counts(self) -> np.ndarray:
        """Those of all rows."""
        return self.statistics.label_counts

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know."""
        return *self.statistics.notes, *self.statistics.notes_on(self._uses)

    def collected(self) -> Scores:
        """Return the sample."""
        sample = self.statistics.collected()
        self._uses.add(Use.SAMPLE)
        return sample

    def measure(
        self, num_bins: int = 15, correction: Correction | None = None
    ) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Return the metrics before and after a correction; the second is None without one."""
        metrics = self.statistics.measure(num_bins, correction)
        is_of_all = self.statistics.has_measured(correction)
        self._uses |= {Use.METRICS} if is_of_all else {Use.METRICS_OF_SAMPLE, Use.SAMPLE}
        return metrics

    def fit(self, method: str = "auto", **options: Any) -> CalibrationFit:
        """Fit a correction, as `Scores.fit` does: to the sample, but a T by NLL to all rows."""
        fit = self.statistics.fit(method, **options)
        self._uses.add(Use.SAMPLE)
        if self.statistics.takes_t_of_all_rows(fit):
            self._uses.add(Use.SUMS_FOR_T)
        return fit

    def threshold_samples(self) -> ThresholdSamples:
        """Return the log-odds and the hits of the sample, on which thresholds are chosen."""
        return self.collected().threshold_samples()
