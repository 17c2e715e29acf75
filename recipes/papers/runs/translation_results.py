"""Results of translators: token metrics, translations at several temperatures, and their BLEU.

Translations are saved in the run's folder, because beam search takes longer than all other measurements.
"""

import itertools
import json
import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate.utils import broadcast_object_list
from datasets import Dataset, DatasetDict
from transformers.trainer_utils import TrainOutput

from hf_focal.calibration import Temperature, calibrated_generation
from hf_focal.reports import RunResult
from hf_focal.reports.run_results import sections_of
from hf_focal.trainer import FocalSeq2SeqTrainer, gamma_history
from hf_focal.utils.atomic_write import write_whole

if TYPE_CHECKING:  # reports of translations are read where sacreBLEU is not installed, too
    from sacrebleu.metrics import BLEU

_FOLDER = "translations"
_NUM_SAMPLES = 10  # translations to show in the report


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
    """Read the metrics.json of a report on any kind of run; raise an error as `RunResult.load` does."""
    values = json.loads(Path(path).read_text(encoding="utf-8"))
    return (TranslationResult if "bleu" in values else RunResult).load(path)


def measure_translator(
    trainer: FocalSeq2SeqTrainer,
    trained: TrainOutput,
    temperature: Temperature,
    encoded: DatasetDict,
    splits: DatasetDict,
    bleu: "BLEU",
    temperatures: Iterable[float],
    checkpoint: str | None,
) -> tuple[TranslationResult, list[dict[str, str]]]:
    """Measure a translator on "test". All processes must call this.

    Args:
        trainer: the trainer after training. Its `processing_class` is the tokenizer of both languages.
        trained: what the trainer's `train` returned.
        temperature: the temperature that was fitted on the validation set.
        encoded: the splits in the trainer's format.
        splits: the same splits with the columns "source" and "target".
        bleu: the BLEU metric of `sacrebleu`.
        temperatures: temperatures at which to translate, besides 1, the fitted temperature, and the temperatures in an
            earlier report of this run.
        checkpoint: the checkpoint that training resumed from, or None. Saved translations are reused only if training
            had already finished at this checkpoint.

    Returns the result, and sample translations of "test" for the report.
    """
    report = Path(trainer.args.output_dir) / "report" / "metrics.json"
    earlier = TranslationResult.load(report).bleu.keys() if report.exists() else ()
    was_finished = checkpoint is not None and Path(checkpoint).name == f"checkpoint-{trainer.state.global_step}"
    if trainer.args.process_index == 0 and not was_finished:
        shutil.rmtree(Path(trainer.args.output_dir) / _FOLDER, ignore_errors=True)
    before, after = trainer.measure(encoded["test"])
    test = splits["test"]
    sources, references = list(test["source"]), list(test["target"])
    tried = sorted({*temperatures, *earlier, 1.0, temperature.value})
    translations = {T: translate("test", encoded["test"], T, trainer) for T in tried}
    details = {
        "train_metrics": trained.metrics,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": trainer.args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
    }
    assert after is not None and trainer.fit is not None and trainer.fit.curves is not None  # T was fitted
    curves = trainer.fit.curves
    scores = {T: bleu.corpus_score(lines, [references]).score for T, lines in translations.items()}
    result = TranslationResult(
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
    keys = ("source", "reference", "before", "after")
    lines = zip(sources, references, translations[1.0], translations[temperature.value], strict=True)
    return result, [dict(zip(keys, sides, strict=True)) for sides in itertools.islice(lines, _NUM_SAMPLES)]


def translate(name: str, encoded: Dataset, temperature: float, trainer: FocalSeq2SeqTrainer) -> list[str]:
    """Translate a split, encoded for the trainer, at a temperature, or read the saved translations.

    All processes must call this. The generation config of the trainer's model has the other options of generation.
    Returns one translation for each sample, in the order of the samples.
    """
    path = Path(trainer.args.output_dir) / _FOLDER / f"{name}_T{temperature}.txt"
    stored: list[list[str] | None] = [None]  # from the first process only: others might look after it wrote the file
    if trainer.args.process_index == 0 and path.exists():
        stored = [path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    (lines,) = broadcast_object_list(stored)
    if lines is not None:
        return lines
    logging.info("translating %s at temperature %g", name, temperature)
    sources = encoded.remove_columns("labels")
    # Longest first: lengths within a batch are similar, and a batch that does not fit into memory fails at once.
    order = np.argsort([-len(ids) for ids in sources["input_ids"]], kind="stable")
    ids = trainer.predict(sources.select(order), **calibrated_generation(temperature)).predictions
    tokenizer: Any = trainer.processing_class
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    lines = [" ".join(texts[place].split()) for place in np.argsort(order)]
    if trainer.args.process_index == 0:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n")
    return lines
