"""Correct a language model's zero-shot logits: with labeled texts, and with no labels.

    OMP_NUM_THREADS=1 python -m benchmarks.studies.zero_shot

Each zero-shot set of text_logits is corrected by fits on 20 to 500 of its validation samples, in 10 random draws, and
measured on its test samples. `prior` is batch calibration [Zhou et al. 2023]: the logarithm of the mean probability of
each class over texts without labels is subtracted. `shares` is `match_shares` with the shares of all held-out labels.
`contextual` is contextual calibration [Zhao et al. 2021]: as `prior`, with the mean over three texts without content.
These need the model: `--data DATA --models MODELS`, the folders that text_logits/make.py takes, computes their logits.
Figures that the JSON file already has are not measured again. `python -m benchmarks.tables` writes them into the page.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.common.correction_draws import HARM, Map, Split, read_splits
from benchmarks.common.figures import read_figures, script_options
from benchmarks.common.zero_shot_figures import FIGURES, SIZES, TITLES
from benchmarks.text_logits.language_model import label_sums, language_model
from benchmarks.text_logits.load import sets
from benchmarks.text_logits.prompts import SUM_PROMPTS, filled, label_prompt
from hf_focal import CalibrationMetrics, InputError, fit_correction, fit_temperature
from hf_focal.calibration import match_shares
from hf_focal.calibration.affine_scaling import fit_bias_correction

DRAWS = 10
CONTENT_FREE = ("", "N/A", "[MASK]")

# After the zero-shot start: what is compared on the same texts, and the names of the sets.
TUNED = {
    "zero-shot": "zero_shot-smollm2-{}-plain",
    "LoRA, cross-entropy": "lora-smollm2-{}-plain-cross_entropy-300x2-s42",
    "LoRA, `focal:gamma=1`": "lora-smollm2-{}-plain-focal_gamma1-300x2-s42",
    "MiniLM, cross-entropy": "fine_tuned-minilm-{}-cross_entropy-500x5-s42",
    "MiniLM, `focal:gamma=1`": "fine_tuned-minilm-{}-focal_gamma1-500x5-s42",
}
ROWS_TUNED = 500  # of each split at most


def batch_calibration(logits: Tensor) -> Map:
    """Subtract the logarithm of the mean probabilities, so that the classes are about equally frequent."""
    offsets = logits.softmax(1).mean(0).log()
    return lambda others: others - offsets


def contextual_calibration(content_free: Tensor | None) -> Map:
    assert content_free is not None
    return batch_calibration(content_free)


# Of calibration samples, the shares of the labels, and the logits of texts without content.
METHODS: dict[str, Callable[[Split, Tensor, Tensor | None], Map]] = {
    "none": lambda samples, shares, content_free: lambda others: others,
    "temperature": lambda samples, shares, content_free: (
        fit_temperature(samples.logits, samples.labels, "nll").correction.apply
    ),
    "bias": lambda samples, shares, content_free: fit_bias_correction(samples.logits, samples.labels).apply,
    "auto": lambda samples, shares, content_free: (
        fit_correction(samples.logits, samples.labels, "auto").correction.apply
    ),
    "prior": lambda samples, shares, content_free: batch_calibration(samples.logits),
    "shares": lambda samples, shares, content_free: match_shares(samples.logits, shares).apply,
    "contextual": lambda samples, shares, content_free: contextual_calibration(content_free),
}


def measure(name: str, content_free: Tensor | None) -> list[dict[str, Any]]:
    """Return a row for each size, draw, and method."""
    validation, test = read_splits(name)
    plain = cross_entropy(test.logits, test.labels, reduction="none")
    shares = torch.bincount(validation.labels, minlength=test.logits.shape[1]).double().clamp(min=0.5)
    shares /= shares.sum()
    cases = [
        (size, draw, method)
        for size in SIZES
        if size <= len(validation.labels)
        for draw in range(DRAWS)
        for method in TITLES
        if method != "contextual" or content_free is not None
    ]
    rows = []
    for size, draw, method in cases:
        failed, corrected = False, test.logits
        try:
            corrected = METHODS[method](validation.draw(size, draw), shares, content_free)(test.logits)
        except InputError:  # such as a head that ranks backwards in these samples; there is no correction then
            failed = True
        nll = cross_entropy(corrected, test.labels, reduction="none")
        above = nll - plain
        metrics = CalibrationMetrics()
        metrics.update(corrected, test.labels)
        row = {"samples": size, "draw": draw, "method": method, "failed": failed}
        row |= {"nll": float(nll.mean()), "error": float((corrected.argmax(1) != test.labels).double().mean())}
        row |= {"ece": metrics.compute()["ece"]}
        row["harm"] = bool(above.mean() > max(HARM, float(above.std()) / len(above) ** 0.5))
        rows.append(row)
    return rows


def content_free_logits(name: str, data: Path, models: Path) -> Tensor:
    """Return the labels' logits after the prompt of a set with texts without content, (3, K)."""
    run = sets().loc[name]
    file = models / f"{run['model']}.gguf"
    if run["task"] in SUM_PROMPTS:
        return label_sums(file, data, run["task"], [*CONTENT_FREE]).double()
    model, tokenizer = language_model(file)
    prompt, first = label_prompt(tokenizer, run["task"], run["prompt"])
    rows = []
    for text in CONTENT_FREE:
        ids = tokenizer(filled(prompt, text, text), add_special_tokens=False)["input_ids"]
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
            held_out, test = (split.first(ROWS_TUNED) for split in read_splits(name))
            for method in ("none", "temperature", "auto"):
                metrics = CalibrationMetrics()
                corrected = METHODS[method](held_out, torch.empty(0), None)(test.logits)
                metrics.update(corrected, test.labels)
                values = metrics.compute()
                row = {"task": task, "classifier": title, "method": method, "error": 1 - values["accuracy"]}
                rows.append(row | {key: values[key] for key in ("ece", "nll")})
    return rows


def compact(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows, with rounded figures."""
    rows = [rounded(row) for row in rows]
    return {name: [row[name] for row in rows] for name in rows[0]}


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.set_defaults(json=FIGURES)
    parser.add_argument("--data", type=Path, help="the folder of the datasets, for contextual calibration")
    parser.add_argument("--models", type=Path, help="the folder of the language model, for contextual calibration")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # such as "no better than a temperature", which the tables show
    figures: dict[str, Any] = {"sets": {}, "content_free": {}, "columns": {}}
    if options.json.exists():
        figures = read_figures(options.json)
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
            write_compact(options.json, figures)
            print(name, flush=True)
    figures["tuned"] = [rounded(row) for row in measure_tuned()]
    write_compact(options.json, figures)


def write_compact(file: Path, figures: dict[str, Any]) -> None:
    file.write_text(json.dumps(figures) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
