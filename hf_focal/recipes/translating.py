"""Translations of a test set, which are kept: beam search takes longer than what else is measured."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..generation import calibrated_generation
from ..trainer import FocalSeq2SeqTrainer
from ..whole_files import write_whole


def translate(
    name: str,
    encoded: Dataset,
    temperature: float,
    trainer: FocalSeq2SeqTrainer,
    tokenizer: PreTrainedTokenizerBase,
    **options: Any,
) -> list[str]:
    """The translations of a split at a temperature, kept in a file of `translations` in the run's folder.

    All processes must call.

    Args:
        name: the split's.
        encoded: its rows, as the trainer takes them.
        temperature: of `calibrated_generation`.
        trainer: of the model, with `predict_with_generate`.
        tokenizer: of both languages.
        **options: of `generate`, but for the temperature.
    """
    path = Path(trainer.args.output_dir) / "translations" / f"{name}_T{temperature}.txt"
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
    options |= calibrated_generation(temperature)
    ids = trainer.predict(sources.select(order), **options).predictions
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    lines = [" ".join(texts[place].split()) for place in np.argsort(order)]
    if trainer.args.process_index == 0:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, "\n".join(lines) + "\n")
    return lines
