"""Results of translators: token metrics, translations at several temperatures, and their BLEU."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from transformers.trainer_utils import TrainOutput

from hf_focal.calibration import Temperature, calibrated_generation
from hf_focal.errors import one_line
from hf_focal.reports import RunResult
from hf_focal.reports.results.run_results import READ_ERRORS, sections_of
from hf_focal.trainer import FocalSeq2SeqTrainer, gamma_history
from hf_focal.utils.atomic_write import write_whole

if TYPE_CHECKING:  # reports of translations are read where sacreBLEU is not installed, too
    from sacrebleu.metrics import BLEU


@dataclass(frozen=True, kw_only=True)
class TranslationResult(RunResult):
    """The result of a translation model. `pre` and `post` are measured on the reference tokens (teacher forcing).

    Attributes:
        bleu: temperature of beam search -> BLEU of the test set, from 0 to 100. The temperatures include 1.0, whose
            BLEU is also in `pre`, and the fitted T, whose BLEU is also in `post`.
        signature: sacreBLEU's signature, which identifies how BLEU was computed.
        validation_ece: each temperature of the grid -> ECE of the validation set's tokens, as a fraction.
    """

    bleu: dict[float, float]
    signature: str
    validation_ece: dict[float, float]


def read_result(path: str | Path) -> RunResult:
    """Read the metrics.json of a report on any kind of run; raise `ValueError` if it holds anything else."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return (TranslationResult if "bleu" in values else RunResult).load(path)
    except READ_ERRORS as error:
        raise ValueError(f"{str(path)!r} must hold the result of a run, and is damaged: {one_line(error)}") from error


def measure_translator(
    trainer: FocalSeq2SeqTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    encoded: Dataset,
    references: list[str],
    bleu: "BLEU",
    temperatures: Iterable[float],
) -> TranslationResult:
    """Measure a translator on test data. All processes must call this.

    Args:
        trainer: the trainer after training. Its `processing_class` is the tokenizer of both languages.
        trained: what the trainer's `train` returned.
        temperature: the temperature that was fitted on the validation set.
        encoded: the test data in the trainer's format.
        references: the translations of the test data.
        bleu: the BLEU metric of `sacrebleu`.
        temperatures: temperatures at which to translate, besides 1 and the fitted temperature.
    """
    before, after = trainer.measure(encoded)
    assert after is not None and trainer.fit is not None and trainer.fit.curves is not None  # T was fitted
    curves, scores = trainer.fit.curves, {}
    for T in sorted({*temperatures, 1.0, temperature.value}):
        scores[T] = bleu.corpus_score(translate(encoded, T, trainer), [references]).score
    details = {
        "train_metrics": trained.metrics,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": trainer.args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
    }
    return TranslationResult(
        name=trainer.args.loss,
        loss=trainer.args.loss,
        temperature=temperature,
        pre=before.compute() | {"bleu": scores[1.0]},
        post=after.compute() | {"bleu": scores[temperature.value]},
        pre_bins=before.bins(),
        post_bins=after.bins(),
        bleu=scores,
        signature=str(bleu.get_signature()),
        validation_ece=dict(zip(curves.temperatures.round(6).tolist(), curves.ece.tolist(), strict=True)),
        **sections_of(details),
    )


def translate(encoded: Dataset, temperature: float, trainer: FocalSeq2SeqTrainer) -> list[str]:
    """Translate test data, encoded for the trainer, at a temperature, and write the translations to the run's folder.

    All processes must call this. The generation config of the trainer's model has the other options of generation.
    Returns one translation for each sample, in the order of the samples.
    """
    logging.info("translating at temperature %g", temperature)
    sources = encoded.remove_columns("labels")
    # Longest first: lengths within a batch are similar, and a batch that does not fit into memory fails at once.
    order = np.argsort([-len(ids) for ids in sources["input_ids"]], kind="stable")
    ids = trainer.predict(sources.select(order), **calibrated_generation(temperature)).predictions
    tokenizer: Any = trainer.processing_class
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    lines = [" ".join(texts[place].split()) for place in np.argsort(order)]
    if trainer.args.process_index == 0:
        folder = Path(trainer.args.output_dir) / "translations"
        folder.mkdir(exist_ok=True)
        write_whole(folder / f"test_T{temperature}.txt", "\n".join(lines) + "\n")
    return lines
