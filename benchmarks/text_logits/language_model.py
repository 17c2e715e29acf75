"""A language model's logits of labels after a prompt: of their first tokens, or sums over all their tokens."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorWithPadding

from benchmarks.text_logits.encoders import DEVICE, MAX_LENGTH, LogitsOf, outputs_by_length
from benchmarks.text_logits.prompts import SUM_PROMPTS, filled, label_prompt
from benchmarks.text_logits.runs import Run
from benchmarks.text_logits.texts import splits_of
from hf_focal.choices import label_scores

ROWS_ZERO_SHOT = 1000  # of each split
ROWS_SUMS = {"validation": 100, "test": 200}  # of tasks whose labels have several tokens


@cache
def language_model(path: Path) -> tuple[Any, Any]:
    source: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**source, padding_side="left")
    return AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16).to(DEVICE).eval(), tokenizer


class Float32Head(torch.nn.Module):
    """The head of a language model in bfloat16, whose logits are computed in float32."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        return torch.nn.functional.linear(states.float(), self.weight)


def label_sums(file: Path, data: Path, task: str, texts: list[str]) -> Tensor:
    """Return the sums of the log-probabilities of the tokens of a task's labels after its prompt with each text."""
    model, tokenizer = language_model(file)
    names = Dataset.from_parquet(str(data / task / "test.parquet")).features["label"].names
    labels = [name.replace("_", " ") for name in names]
    head, rows = model.get_output_embeddings(), [{"text": text} for text in texts]
    model.set_output_embeddings(Float32Head(head))
    try:
        return label_scores(model, tokenizer, rows, labels, SUM_PROMPTS[task], batch_size=100)
    finally:
        model.set_output_embeddings(head)


def ask_by_sums(run: Run, data: Path, models: Path) -> LogitsOf:
    """Score labels of several tokens, some of which have the same first token."""
    file = models / f"{run.model}.gguf"
    _, tokenizer = language_model(file)

    def logits_of(task: str, split: str) -> Tensor:
        texts = [shorten(tokenizer, text) for text in splits_of(data, task)[split]["text"][: ROWS_SUMS[split]]]
        order = np.argsort([-len(text) for text in texts], kind="stable")  # similar lengths together
        return label_sums(file, data, task, [texts[row] for row in order])[torch.from_numpy(order.argsort())]

    return logits_of


def shorten(tokenizer: Any, text: str) -> str:
    encoded = tokenizer(" ".join(text.split()), add_special_tokens=False, truncation=True, max_length=MAX_LENGTH)
    return tokenizer.decode(encoded["input_ids"])


def ask(run: Run, data: Path, models: Path) -> LogitsOf:
    model, tokenizer = language_model(models / f"{run.model}.gguf")
    if run.task in SUM_PROMPTS:
        return ask_by_sums(run, data, models)
    prompt, first = label_prompt(tokenizer, run.task, run.prompt)
    head = model.get_output_embeddings().weight[first].detach().float().cpu()

    def prompts(rows: pd.DataFrame) -> list[dict[str, Any]]:
        texts = [
            filled(prompt, shorten(tokenizer, text), shorten(tokenizer, pair))
            for text, pair in zip(rows["text"], rows.get("pair", [""] * len(rows)), strict=True)
        ]
        return [{"input_ids": ids} for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]

    def last_state(batch: Any) -> Tensor:
        return model.model(**batch, use_cache=False).last_hidden_state[:, -1]

    collate = DataCollatorWithPadding(tokenizer)

    def logits_of(task: str, split: str) -> Tensor:
        rows = splits_of(data, task)[split][:ROWS_ZERO_SHOT]
        return outputs_by_length(last_state, prompts(rows), collate, 16) @ head.T

    return logits_of
