"""BibTeX entries of the papers that a card cites."""

import re
from collections.abc import Sequence
from pathlib import Path

from ..calibration import Temperature
from ..losses import LOSSES, LossConfig


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
