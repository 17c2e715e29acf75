"""The language model, fine-tuned with LoRA from the zero-shot start."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    set_seed,
)

from benchmarks.text_logits.encoders import DEVICE, LogitsOf, outputs_by_length, training_arguments
from benchmarks.text_logits.language_model import shorten
from benchmarks.text_logits.prompts import PROMPTS
from benchmarks.text_logits.runs import Run
from benchmarks.text_logits.texts import splits_of, training_rows
from hf_focal import FocalTrainer, calibrate_model

LABELED, ROWS_LORA = 200, 500  # held-out samples for the temperature in the head before LoRA; of each split after it
TRAINED_LAYERS = 10  # the last ones, of 30
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def saved_language_model(path: Path) -> Path:
    """Return a folder with the model of a GGUF file, which Transformers can load, but not save."""
    folder = Path("out/text_logits") / path.stem
    if not folder.exists():
        source: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
        loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        settings = loaded.config.to_dict()
        del settings["quantization_config"]  # the weights are dequantized
        model = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(settings))
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    return folder


def shorten_texts(tokenizer: Any, rows: pd.DataFrame) -> pd.DataFrame:
    texts = {column: [shorten(tokenizer, text) for text in rows[column]] for column in {"text", "pair"} & {*rows}}
    return rows.assign(**texts)


def zero_shot_classifier(run: Run, data: Path, models: Path) -> Path:
    """Return a folder with the zero-shot classifier, with a temperature in its head."""
    folder = Path("out/text_logits") / f"classifier-{run.model}-{run.task}"
    if not folder.exists():
        words, prompt, _ = PROMPTS[run.task]
        language_model = saved_language_model(models / f"{run.model}.gguf")
        tokenizer = AutoTokenizer.from_pretrained(language_model)
        held_out = shorten_texts(tokenizer, splits_of(data, run.task)["validation"][:LABELED])
        held_out = held_out.assign(label=[words[label] for label in held_out["label"]])
        Dataset.from_pandas(held_out, preserve_index=False).to_csv(f"{folder}.csv")
        options: dict[str, Any] = {"labels": words, "prompt": prompt, "save_as": "classifier", "method": "temperature"}
        calibrate_model(language_model, f"{folder}.csv", output=folder, **options)
    return folder


def fine_tune_language_model(run: Run, data: Path, models: Path) -> LogitsOf:
    """Train LoRA and the head of the zero-shot classifier."""
    from peft import LoraConfig, get_peft_model

    folder = zero_shot_classifier(run, data, models)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)

    def encoded(rows: pd.DataFrame) -> list[dict[str, Any]]:
        rows = shorten_texts(tokenizer, rows)
        columns = [column for column in ("text", "pair") if column in rows]
        prompts = [model.config.prompt.format(**texts) for texts in rows[columns].to_dict("records")]
        return [{"input_ids": ids} for ids in tokenizer(prompts)["input_ids"]]

    rows = training_rows(data, run)
    columns = {"input_ids": [row["input_ids"] for row in encoded(rows)], "labels": rows["label"].tolist()}
    args = training_arguments(run, learning_rate=5e-4, per_device_train_batch_size=16, logging_steps=10)
    set_seed(run.seed)
    last = range(model.config.num_hidden_layers)[-TRAINED_LAYERS:]
    adapter = LoraConfig(task_type="SEQ_CLS", r=8, target_modules=ADAPTED, layers_to_transform=[*last])
    model, collate = get_peft_model(model, adapter), DataCollatorWithPadding(tokenizer)
    train_dataset = Dataset.from_dict(columns)
    FocalTrainer(model, args, collate, train_dataset, processing_class=tokenizer).train()
    model.eval()

    def logits(batch: Any) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return model(**batch).logits

    def logits_of(task: str, split: str) -> Tensor:
        return outputs_by_length(logits, encoded(splits_of(data, task)[split][:ROWS_LORA]), collate, 16)

    return logits_of
