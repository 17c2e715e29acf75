"""Arguments of the translation recipe: losses, temperatures, beam search, and averaging of checkpoints."""

import math
from dataclasses import dataclass, field

from hf_focal.trainer import FocalSeq2SeqTrainingArguments

from . import checks as check
from .arguments import TemperatureArguments
from .checkpoint_averaging import check_averaging


@dataclass
class TranslationArguments(TemperatureArguments):
    """Arguments that say which losses to compare, how to fit the temperature, and how to translate."""

    bleu_temperatures: str = field(
        default="0.5,0.75,1,1.25,1.5,2",
        metadata={"help": "Temperatures at which to translate and compute BLEU, besides 1 and the fitted one."},
    )
    length_penalty: float = field(
        default=0.6,
        metadata={
            "help": "Beam search divides scores by the length to this power (the papers: by ((5 + length) / 6) to it)."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a finite number, got {self.length_penalty}")
        self.temperatures()

    def temperatures(self) -> set[float]:
        """Return the temperatures in `bleu_temperatures`, together with 1."""
        try:
            values = [float(text) for text in self.bleu_temperatures.split(",")]
        except ValueError:
            values = [math.nan]
        if not all(0 < value < math.inf for value in values):
            raise ValueError(f"bleu_temperatures must be positive numbers, got {self.bleu_temperatures!r}")
        return {*values, 1.0}


@dataclass
class TranslationTrainingArguments(FocalSeq2SeqTrainingArguments):
    """`FocalSeq2SeqTrainingArguments` with arguments for beam search and for averaging checkpoints."""

    predict_with_generate: bool = field(default=True, metadata={"help": "Translate with `generate`; must be true."})
    generation_num_beams: int | None = field(default=4, metadata={"help": "Beams of beam search."})
    average_checkpoints: int = field(
        default=1, metadata={"help": "Average the weights of this many of the last checkpoints."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.predict_with_generate = True
        check.at_least(1, self, "average_checkpoints")
        check_averaging(self.average_checkpoints, self)
        if self.generation_max_length is not None:
            raise ValueError(
                f"generation_max_length must not be given, got {self.generation_max_length}: use max_length"
            )
