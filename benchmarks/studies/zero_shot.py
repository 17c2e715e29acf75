"""Correct a language model's zero-shot logits: with labeled texts, and with no labels.

    OMP_NUM_THREADS=1 python -m benchmarks.studies.zero_shot

Each zero-shot set of text_logits is corrected by fits on 20 to 500 of its validation samples, in 10 random draws, and
measured on its test samples. `prior` is batch calibration [Zhou et al. 2023]: the logarithm of the mean probability of
each class over texts without labels is subtracted. `shares` is `match_shares` with the shares of all held-out labels.
`contextual` is contextual calibration [Zhao et al. 2021]: as `prior`, with the mean over three texts without content.
These need the model: `--data DATA --models MODELS`, the folders that text_logits/make.py takes, computes their logits.
Figures that the JSON file already has are not measured again. `zero_shot_page.py` writes them into the page.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measuring import RESULTS
from benchmarks.text_logits.load import FOLDER, load, sets
from hf_focal import CalibrationMetrics, fit_correction, fit_temperature
from hf_focal.calibration import match_shares
from hf_focal.calibration.affine_scaling import fit_bias_correction

FIGURES = RESULTS / "zero_shot.json"
SIZES, DRAWS, MAIN_SIZE = (20, 50, 100, 200, 500), 10, 100
CONTENT_FREE = ("", "N/A", "[MASK]")
MEASURED = ("nll", "error", "ece", "harm")
HARM = 0.001  # nats; and more than one standard error over the test samples
TITLES = {
    "none": "no correction",
    "temperature": "T",
    "bias": "T and offsets (`bias`)",
    "auto": "`auto`",
    "prior": "batch calibration, no labels",
    "shares": "`match_shares` with the true shares, no labels",
    "contextual": "contextual calibration, no labels",
}

# After the zero-shot start: what is compared on the same texts, and the names of the sets.
TUNED = {
    "zero-shot": "zero_shot-smollm2-{}-plain",
    "LoRA, cross-entropy": "lora-smollm2-{}-plain-cross_entropy-300x2-s42",
    "LoRA, `focal:gamma=1`": "lora-smollm2-{}-plain-focal_gamma1-300x2-s42",
    "MiniLM, cross-entropy": "fine_tuned-minilm-{}-cross_entropy-500x5-s42",
    "MiniLM, `focal:gamma=1`": "fine_tuned-minilm-{}-focal_gamma1-500x5-s42",
}
ROWS_TUNED = 500  # of each split at most

Map = Callable[[Tensor], Tensor]


def batch_calibration(logits: Tensor) -> Map:
    """Subtract the logarithm of the mean probabilities, so that the classes are about equally frequent."""
    offsets = logits.softmax(1).mean(0).log()
    return lambda others: others - offsets


def fitted(method: str, logits: Tensor, labels: Tensor, shares: Tensor, content_free: Tensor | None) -> Map:
    if method == "temperature":
        return fit_temperature(logits, labels, "nll").correction.apply
    if method == "bias":
        return fit_bias_correction(logits, labels).apply
    if method == "auto":
        return fit_correction(logits, labels, "auto").correction.apply
    if method == "prior":
        return batch_calibration(logits)
    if method == "shares":
        return match_shares(logits, shares).apply
    if method == "contextual":
        assert content_free is not None
        return batch_calibration(content_free)
    return lambda others: others


def measure(name: str, content_free: Tensor | None) -> list[dict[str, Any]]:
    """Return a row for each size, draw, and method."""
    logits = load(name)
    held_out, labels = torch.from_numpy(logits.validation_logits).double(), torch.from_numpy(logits.validation_labels)
    test, test_labels = torch.from_numpy(logits.test_logits).double(), torch.from_numpy(logits.test_labels)
    plain = cross_entropy(test, test_labels, reduction="none")
    size_of_classes = test.shape[1]
    shares = torch.bincount(labels, minlength=size_of_classes).double().clamp(min=0.5)
    shares /= shares.sum()
    rows = []
    for size in (size for size in SIZES if size <= len(labels)):
        for draw in range(DRAWS):
            chosen = torch.from_numpy(np.random.default_rng(draw).permutation(len(labels))[:size])
            for method in TITLES:
                if method == "contextual" and content_free is None:
                    continue
                failed = False
                try:
                    corrected = fitted(method, held_out[chosen], labels[chosen], shares, content_free)(test)
                except Exception:  # such as a head that ranks backwards in these samples; there is no correction then
                    failed, corrected = True, test
                nll = cross_entropy(corrected, test_labels, reduction="none")
                above = nll - plain
                metrics = CalibrationMetrics()
                metrics.update(corrected, test_labels)
                row = {"samples": size, "draw": draw, "method": method, "failed": failed}
                row |= {"nll": float(nll.mean()), "error": float((corrected.argmax(1) != test_labels).double().mean())}
                row |= {"ece": metrics.compute()["ece"]}
                row["harm"] = bool(above.mean() > max(HARM, float(above.std()) / len(above) ** 0.5))
                rows.append(row)
    return rows


def content_free_logits(name: str, data: Path, models: Path) -> Tensor:
    """Return the labels' logits after the prompt of a set with texts without content, (3, K)."""
    sys.path.insert(0, str(FOLDER))
    from make import PROMPTS, SUM_PROMPTS, label_sums, language_model

    run = sets().loc[name]
    if run["task"] in SUM_PROMPTS:
        return label_sums(models / f"{run['model']}.gguf", data, run["task"], [*CONTENT_FREE]).double()
    words, plain, turn = PROMPTS[run["task"]]
    model, tokenizer = language_model(models / f"{run['model']}.gguf")
    if run["prompt"] == "chat":
        turns = [{"role": "user", "content": turn}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    else:
        prompt, words = plain, [f" {word}" for word in words]
    first = [ids[0] for ids in tokenizer(list(words), add_special_tokens=False)["input_ids"]]
    rows = []
    for text in CONTENT_FREE:
        ids = tokenizer(prompt.replace("{text}", text).replace("{pair}", text), add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            rows.append(model(torch.tensor([ids], device=model.device)).logits[0, -1, first].double().cpu())
    return torch.stack(rows)


def measure_tuned() -> list[dict[str, Any]]:
    """Return a row for each task with LoRA, classifier, and correction fitted to held-out texts."""
    table, rows = sets(), []
    for task in table.loc[table["kind"] == "lora", "task"].unique():
        for title, pattern in TUNED.items():
            if (name := pattern.format(task)) not in table.index:
                continue
            loaded = load(name)
            held_out, labels = loaded.validation_logits[:ROWS_TUNED], loaded.validation_labels[:ROWS_TUNED]
            test, test_labels = loaded.test_logits[:ROWS_TUNED], loaded.test_labels[:ROWS_TUNED]
            held_out, test = (torch.from_numpy(logits).double() for logits in (held_out, test))
            labels, test_labels = map(torch.from_numpy, (labels, test_labels))
            for method in ("none", "temperature", "auto"):
                metrics = CalibrationMetrics()
                metrics.update(fitted(method, held_out, labels, torch.empty(0), None)(test), test_labels)
                values = metrics.compute()
                row = {"task": task, "classifier": title, "method": method, "error": 1 - values["accuracy"]}
                rows.append(row | {key: values[key] for key in ("ece", "nll")})
    return rows


def compact(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows, with rounded figures."""
    return {
        name: [round(row[name], 5) if isinstance(row[name], float) else row[name] for row in rows] for name in rows[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=FIGURES, help="the file of the figures")
    parser.add_argument("--data", type=Path, help="the folder of the datasets, for contextual calibration")
    parser.add_argument("--models", type=Path, help="the folder of the language model, for contextual calibration")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # such as "no better than a temperature", which the tables show
    figures: dict[str, Any] = {"sets": {}, "content_free": {}, "columns": {}}
    if options.json.exists():
        figures = json.loads(options.json.read_text(encoding="utf-8"))
    table = sets()
    table = table[table["kind"] == "zero_shot"].sort_values("classes", kind="stable")
    for name in table.index:
        if options.models is not None and name not in figures["content_free"]:
            figures["content_free"][name] = content_free_logits(name, options.data, options.models).tolist()
            figures["columns"].pop(name, None)
        if name not in figures["columns"]:
            logits = figures["content_free"].get(name)
            rows = measure(name, None if logits is None else torch.tensor(logits, dtype=torch.float64))
            figures["columns"][name] = compact(rows)
            row = table.loc[name]
            figures["sets"][name] = {"task": row["task"], "prompt": row["prompt"], "classes": int(row["classes"])}
            options.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")
            print(name, flush=True)
    figures["tuned"] = [
        {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
        for row in measure_tuned()
    ]
    options.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
