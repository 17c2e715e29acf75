"""The result that a trainer measures on test data."""

from dataclasses import replace
from typing import Any

from ..calibration import CalibrationFit
from ..metrics import CalibrationMetrics, ConfusionMatrix
from ..reports import RunResult
from ..reports.results.result_sections import CrossFit, DataSection, FitSection, SubsetSection


def trained_result(
    loss: str,
    fit: CalibrationFit | None,
    before: CalibrationMetrics,
    after: CalibrationMetrics | None,
    confusion: ConfusionMatrix | None,
    gamma_history: list[dict[str, Any]],
    *,
    notes: tuple[str, ...] = (),
    measured_on: str | None,
    fitted_on: str | None,
    auto_class: str | None = None,
    **options: Any,
) -> RunResult:
    """Return the result of test data, measured before and after the correction of a fit.

    Args:
        confusion: that of words or pixels, whose predictions no temperature changes; None for samples.
        notes: what to know of the test data.
        measured_on, fitted_on: the names of the data, if they have one; the same if they are the same samples.
        auto_class: the `own_auto_class` of the model.
        **options: as for `RunResult.from_metrics`.
    """
    cross_fit = CrossFit(**fit.to_dict()) if fit is not None and fit.is_cross_fitted else None
    result = RunResult.from_metrics(
        loss,
        None if fit is None else fit.temperature,
        before,
        after,
        data=DataSection(measured_on=measured_on, auto_class=auto_class),
        fit=FitSection(fitted_on, cross_fit),
        subsets=SubsetSection(gamma_history=gamma_history),
        notes=list(notes if fit is None else dict.fromkeys([*fit.cluster_notes, *notes])),
        **options,
    )
    if confusion is None:
        return result
    means = confusion.compute()
    post = result.post | means if result.method in (None, "temperature") else result.post
    return replace(result, pre=result.pre | means, post=post)
