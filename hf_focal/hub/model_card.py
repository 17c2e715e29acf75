"""Model card: what a model is, how well calibrated it is, and how to use it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..calibration import Temperature
from ..command_lines import apply_command, suffix_of
from ..losses import LOSSES, LossConfig
from ..reports.results.run_results import RunResult
from ..reports.wording.markdown_tables import escaped
from ..reports.wording.model_warnings import warnings_of
from .card_contents import CardContents, CardData, CardModel, Training
from .card_metadata import card_metadata
from .card_sections import (
    CalibrationSection,
    ResultsSection,
    TemperatureSection,
    ThresholdsSection,
    TrainingSection,
    UseSection,
)
from .card_sentences import introduction, limitations, what_the_data_were, where_to_use

if TYPE_CHECKING:
    from huggingface_hub import ModelCard


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    finalize=lambda value: value if isinstance(value, Markup) else escaped(str(value)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_CODE = re.compile("(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def model_card(
    result: RunResult,
    model: CardModel,
    data: CardData | None = None,
    training: Training | None = None,
    *,
    base_metadata: Mapping[str, Any] | None = None,
    language: str | list[str] | None = None,
    license: str | None = None,
) -> "ModelCard":
    """Return the card of a model: its loss, its results before and after a correction, and how to use it.

    The card's metadata contain the results that are finite. A dataset or base model that is not given as a Hub id
    appears only in the text, under the last part of its path.

    Args:
        result: the test set's results. Its report is expected beside the card, in the folder ``report``. If
            `result.fit.folded` is False, the card shows how to apply the correction.
        model: what is published.
        data: its data; by default, they have no names.
        training: None for a model that was only measured or corrected.
        base_metadata: what the card of the base model says of the license, the language, and a base model of its own,
            as `hf_focal.hub.read_base_metadata` returns it.
        language: ISO 639 codes; by default, those of the base model if it was only corrected.
        license: the Hub's name of the license; by default, that of the base model.
    """
    from huggingface_hub import ModelCard

    card = CardContents(result, model, data or CardData(), training)
    metadata = card_metadata(card, base_metadata or {}, language, license)
    text = _ENVIRONMENT.get_template("model_card.md.jinja").render(
        model=model,
        warnings=warnings_of(result),
        introduction=introduction(card),
        use=UseSection.of(card),
        apply=str(apply_command("correction.json", f"scores{suffix_of(card.data.dataset)}", "calibrated")),
        where_to_use=where_to_use(card),
        results=ResultsSection.of(card),
        calibration=CalibrationSection.of(card),
        thresholds=ThresholdsSection.of(card),
        temperature=TemperatureSection.of(card),
        training=TrainingSection.of(card),
        data=what_the_data_were(card),
        limitations=limitations(card),
        citations=citations(papers_of(card.loss, result.temperature)),
    )
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{_without_extra_blank_lines(text)}")


def _without_extra_blank_lines(text: str) -> str:
    """Leave one blank line between paragraphs, some of which are empty; code stays as it is."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("```") else re.sub("\n{3,}", "\n\n", part) for part in parts)


def citations(sources: Sequence[str]) -> str:
    """Return the BibTeX entries of `sources` such as "Guo et al. 2017", each once; a blog post has no entry."""
    text = Path(__file__).with_name("citations.bib").read_text(encoding="utf-8")
    entries = {re.findall(r"{(\D+\d+)\w*,", entry)[0]: entry.strip() for entry in text.split("\n\n")}
    keys = dict.fromkeys(f"{source.split()[0].lower()}{source.split()[-1]}" for source in sources)
    return "\n\n".join(entries[key] for key in keys if key in entries)


def papers_of(loss: LossConfig | None, temperature: Temperature) -> list[str]:
    """Return the papers of a loss, if it is known, and of a fitted temperature."""
    sources = LOSSES[loss.name].source.split("; ") if loss else []
    sources += ["Guo et al. 2017"] * temperature.is_fitted
    return sources + ["Mukhoti et al. 2020"] * (temperature.objective in ("ece", "adaece"))
