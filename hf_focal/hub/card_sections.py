"""The sections of a model card: what its template shows of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..calibration import Correction
from ..calibration.thresholds import threshold_text
from ..losses import LOSSES
from ..reports.report_folder import diagrams_of
from ..reports.results.result_sections import CrossFit, LabelThreshold
from ..reports.wording.headlines import headline_of
from ..reports.wording.markdown_tables import escaped, label_table, results_notes
from ..reports.wording.number_format import format_number
from ..reports.wording.text_summary import metrics_table
from . import card_sentences as sentences
from .card_code import platt_code, temperature_code, threshold_code, training_code, use_code
from .card_contents import CardContents


@dataclass(frozen=True)
class UseSection:
    """How to use a model: Python code, whether what it gives is corrected, and what servers do."""

    code: str
    includes: str = ""
    serving: str = ""

    @classmethod
    def of(cls, card: CardContents) -> "UseSection | None":
        """Return the section of a model that can be loaded, or that has code of its own; None for other cards."""
        if card.model.usage:
            return cls(card.model.usage)
        if card.model.is_correction or not card.model.is_loadable:
            return None
        includes = sentences.what_includes_the_correction(card)
        return cls(use_code(card).rstrip(), includes, sentences.serving_note(card))


@dataclass(frozen=True)
class CardFigure:
    """A figure: its title in the table of figures, its alternative text, and its path beside the card."""

    title: str
    alt: str
    path: str


@dataclass(frozen=True)
class ResultsSection:
    """What was measured: a headline, what the table is of, tables, notes, and figures with their explanation."""

    headline: str
    measured: str
    table: str
    notes: list[str]
    label_title: str
    label_table: str
    figures: list[CardFigure]
    bars: str

    @classmethod
    def of(cls, card: CardContents) -> "ResultsSection":
        result = card.result
        return cls(
            headline=headline_of(result),
            measured=sentences.what_was_measured(card),
            table=metrics_table(result),
            notes=results_notes([result]),
            label_title=sentences.label_table_title(card),
            label_table=label_table(result) if result.subsets.labels else "",
            figures=_figures(card),
            bars=sentences.bars_explained(card),
        )


def _figures(card: CardContents) -> list[CardFigure]:
    figures = []
    for number, name in enumerate(diagrams_of(card.result)):
        title, alt = "reliability", "Reliability diagram"
        if "_labels." in name:
            title, alt = "the labels with the largest ECE", f"{alt}s of the labels with the largest ECE"
        elif card.result.method:
            title = f"{('before', 'after')[number]} {card.scaling}"
            alt = f"{alt} {title}"
        figures.append(CardFigure(title, alt, f"report/{name}"))
    return figures


@dataclass(frozen=True)
class CalibrationSection:
    """A correction that was cross-fitted.

    `changed` says where another one than a temperature is and what it changes, `description` and `code` are those of
    slopes and intercepts, and `rows` are the cells of a table of scores. Texts are "" where they do not apply.
    """

    changed: str
    description: str
    code: str
    prior_shift: str
    cross_fitted: str
    rows: list[list[str]]

    @classmethod
    def of(cls, card: CardContents) -> "CalibrationSection | None":
        fit = card.result.fit.cross_fit
        if fit is None:
            return None
        changed = sentences.what_the_correction_changes(card, fit) if card.is_scaled else ""
        description = code = ""
        if card.is_scaled and fit.correction is not None:
            description = escaped(str(fit.description))
            if not card.is_folded and not card.model.is_correction:
                code = platt_code(Correction.from_dict(fit.correction)).rstrip()
        return cls(
            changed,
            description,
            code,
            sentences.prior_shift(card),
            sentences.how_it_was_cross_fitted(card, fit),
            _cross_fitted_rows(fit),
        )


def _cross_fitted_rows(fit: CrossFit) -> list[list[str]]:
    """Return the cells of the scores before and after, and of the parts of the difference."""
    rows = []
    for name, title in (("nll", "NLL"), ("brier", "Brier score")):
        values = (fit.before[name], fit.after[name], *fit.decomposition[name])
        rows.append([title, *(format_number(value, 1, 3) for value in values)])
    ece = [format_number(side["ece"], 100, 2) for side in (fit.before, fit.after)]
    return [*rows, ["ECE %", *ece, "", ""]]


@dataclass(frozen=True)
class ThresholdsSection:
    """Thresholds: what they are for, the table of labels with a column `share`, where they are, and code."""

    goal: str
    share: str
    has_costs: bool
    rows: list[list[str]]
    place: str
    code: str
    applied: str

    @classmethod
    def of(cls, card: CardContents) -> "ThresholdsSection | None":
        thresholds = card.result.thresholds
        if thresholds is None:
            return None
        is_in_config = not (card.model.is_correction or card.model.usage)
        has_costs = thresholds.labels[0].cost is not None
        return cls(
            goal=sentences.what_thresholds_are_for(card, thresholds),
            share=thresholds.share,
            has_costs=has_costs,
            rows=[_threshold_cells(label, has_costs) for label in thresholds.labels],
            place=sentences.where_thresholds_are(card, thresholds),
            code=threshold_code(card, thresholds).rstrip() if is_in_config else "",
            applied="" if card.result.data.auto_class else sentences.what_applies_thresholds(thresholds),
        )


def _threshold_cells(label: LabelThreshold, has_costs: bool) -> list[str]:
    value = f"none: {label.reason}" if label.value is None else threshold_text(label.value, 4)
    cells = [label.name, value, format_number(label.precision, 100, 1), format_number(label.recall, 100, 1)]
    costs = (label.cost, label.cost_of_yes, label.cost_of_no) if has_costs else ()
    return [*cells, *(format_number(cost, 1, 4) for cost in costs)]


@dataclass(frozen=True)
class TemperatureSection:
    """How T was fitted, where it is, and code that applies it, if it must be applied; "" without one."""

    fitted: str
    place: str
    code: str

    @classmethod
    def of(cls, card: CardContents) -> "TemperatureSection | None":
        """Return the section of a card without another correction than a temperature."""
        if card.is_scaled:
            return None
        fitted, place, code = sentences.how_t_was_fitted(card), "", ""
        if card.result.temperature.is_fitted and card.model.folded_temperature is None:
            place = sentences.where_t_is(card)
            if not (card.model.is_correction or card.has_options or card.is_folded):
                code = temperature_code(card).rstrip()
        return cls(fitted, place, code)


@dataclass(frozen=True)
class TrainingSection:
    """How a model was trained: its loss, code with that loss, if it is one of this library, and settings by title."""

    loss: str
    code: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, card: CardContents) -> "TrainingSection | None":
        if card.training is None:
            return None
        if card.loss is None:
            return cls(f"Loss: {escaped(card.result.name)}.", "", card.training.settings)
        spec = LOSSES[card.loss.name]
        text = f"Loss: `{card.loss}`, {escaped(spec.summary)} ({escaped(spec.source)})."
        return cls(text, training_code(card, card.loss).rstrip(), card.training.settings)
