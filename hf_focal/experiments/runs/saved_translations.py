"""Translations of a test set, which are kept: beam search takes longer than what else is measured."""

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list
from datasets import Dataset

from ...calibration.calibrated_generation import calibrated_generation
from ...trainer import FocalSeq2SeqTrainer
from ...utils.atomic_write import write_whole

_FOLDER = "translations"


def forget_translations(trainer: FocalSeq2SeqTrainer, checkpoint: str | None) -> None:
    """Remove what is kept by other weights: unless the training was over at the checkpoint that it went on from."""
    was_finished = checkpoint is not None and Path(checkpoint).name == f"checkpoint-{trainer.state.global_step}"
    if trainer.args.process_index == 0 and not was_finished:
        shutil.rmtree(Path(trainer.args.output_dir) / _FOLDER, ignore_errors=True)


def translate(
    name: str,
    encoded: Dataset,
    temperature: float,
    trainer: FocalSeq2SeqTrainer,
) -> list[str]:
    """The translations of a split at a temperature, kept in a file of `translations` in the run's folder.

    All processes must call.

    Args:
        name: the split's.
        encoded: its rows, as the trainer takes them.
        temperature: of `calibrated_generation`.
        trainer: of the model, whose generation config says how, with `predict_with_generate`; its `processing_class`
            is the tokenizer of both languages.
    """
    path = Path(trainer.args.output_dir) / _FOLDER / f"{name}_T{temperature}.txt"
    kept: list[list[str] | None] = [None]  # what the first process finds: others may come when it has written the file
    if trainer.args.process_index == 0 and path.exists():
        kept = [path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    (lines,) = broadcast_object_list(kept)
    if lines is not None:
        return lines
    logging.info("translating %s at temperature %g", name, temperature)
    sources = encoded.remove_columns("labels")
    # Longest first: batches of one length, and what does not fit into memory shows at once.
    order = np.argsort([-len(ids) for ids in sources["input_ids"]], kind="stable")
    ids = trainer.predict(sources.select(order), **calibrated_generation(temperature)).predictions
    tokenizer: Any = trainer.processing_class
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    lines = [" ".join(texts[place].split()) for place in np.argsort(order)]
    if trainer.args.process_index == 0:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n")
    return lines
