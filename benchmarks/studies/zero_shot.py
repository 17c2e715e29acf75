"""Correct a language model's zero-shot logits: with labeled texts, and with no labels.

    OMP_NUM_THREADS=1 python -m benchmarks.studies.zero_shot --json benchmarks/results/zero_shot.json \
        --page docs/results/zero_shot.md

Each zero-shot set of text_logits is corrected by fits on 20 to 500 of its validation samples, in 10 random draws, and
measured on its test samples. `prior` is batch calibration [Zhou et al. 2023]: the logarithm of the mean probability of
each class over texts without labels is subtracted. `shares` is `match_shares` with the shares of all held-out labels.
`contextual` is contextual calibration [Zhao et al. 2021]: as `prior`, with the mean over three texts without content.
These need the model: `--data DATA --models MODELS`, the folders that text_logits/make.py takes, computes their logits.
Figures that the JSON file already has are not measured again.
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

from benchmarks.text_logits.load import FOLDER, load, sets
from hf_focal import CalibrationMetrics, fit_correction, fit_temperature
from hf_focal.calibration import match_shares
from hf_focal.calibration.affine_scaling import fit_bias_correction

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
    found = load(name)
    held_out, labels = torch.from_numpy(found.validation_logits).double(), torch.from_numpy(found.validation_labels)
    test, test_labels = torch.from_numpy(found.test_logits).double(), torch.from_numpy(found.test_labels)
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
            found = load(name)
            held_out, test = (
                torch.from_numpy(of[:ROWS_TUNED]).double() for of in (found.validation_logits, found.test_logits)
            )
            labels, test_labels = (
                torch.from_numpy(of[:ROWS_TUNED]) for of in (found.validation_labels, found.test_labels)
            )
            for method in ("none", "temperature", "auto"):
                metrics = CalibrationMetrics()
                metrics.update(fitted(method, held_out, labels, torch.empty(0), None)(test), test_labels)
                values = metrics.compute()
                row = {"task": task, "classifier": title, "method": method, "error": 1 - values["accuracy"]}
                rows.append(row | {key: values[key] for key in ("ece", "nll")})
    return rows


def summary(rows: list[dict[str, Any]], sizes: tuple[int, ...] = SIZES) -> dict[tuple[int, str], dict[str, float]]:
    """Return the mean of each measure over the draws, by size and method."""
    found = {}
    for size in sizes:
        for method in TITLES:
            own = [row for row in rows if row["samples"] == size and row["method"] == method]
            if own:
                found[size, method] = {
                    name: float(np.mean([row[name] for row in own])) for name in (*MEASURED, "harm")
                }
    return found


def over_tasks(results: dict[str, Any], tasks: dict[str, str], size: int, method: str) -> dict[str, float] | None:
    """Return the mean over tasks of the mean over their sets, of the sets that have the method at a size."""
    by_task: dict[str, list[dict[str, float]]] = {}
    for name, rows in results.items():
        if (means := summary(rows, (size,)).get((size, method))) is not None:
            by_task.setdefault(tasks[name], []).append(means)
    if not by_task:
        return None
    return {
        key: float(np.mean([np.mean([of[key] for of in own]) for own in by_task.values()]))
        for key in (*MEASURED, "harm")
    }


def errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean error of each method at the main size."""
    return {method: means["error"] for (_, method), means in summary(rows, (MAIN_SIZE,)).items()}


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def page(figures: dict[str, Any]) -> str:
    """Return the page of the results."""
    names = sorted(figures["sets"], key=lambda name: (figures["sets"][name]["classes"], name))
    results = {name: expanded(figures["columns"][name]) for name in names}
    tasks = {name: figures["sets"][name]["task"] for name in names}
    means = {
        (size, method): of
        for size in SIZES
        for method in TITLES
        if (of := over_tasks(results, tasks, size, method)) is not None
    }
    main = {method: means[MAIN_SIZE, method] for method in TITLES if (MAIN_SIZE, method) in means}
    worse = {
        method: sorted(
            name
            for name, rows in results.items()
            if (own := summary(rows, (MAIN_SIZE,)))
            and own[MAIN_SIZE, method]["error"] > own[MAIN_SIZE, "none"]["error"] + 0.02
        )
        for method in main
    }
    none = main["none"]

    def change(name: str, method: str) -> str:
        return f"{percent(main['none'][name])} → {percent(main[method][name])}%"

    def of(method: str, *names: str) -> str:
        shown = {"error": f"an error of {change('error', method)}", "ece": f"an ECE of {change('ece', method)}"}
        shown["nll"] = f"an NLL of {none['nll']:.3f} → {main[method]['nll']:.3f}"
        return " and ".join(shown[name] for name in names)

    def harmed(method: str) -> str:
        return f"raises the error by more than two points on {len(worse[method])} of the {len(results)} sets"

    lines = [
        "# Zero-shot classification by a language model",
        "",
        f"- **{MAIN_SIZE} labeled texts make the probabilities much better.** On {len({*tasks.values()})} tasks, "
        f"`auto`, the default, has {of('auto', 'error', 'ece', 'nll')}, and T with an offset for each label (`bias`) "
        f"has {of('bias', 'error', 'ece', 'nll')}.",
        f"- **A temperature changes no prediction.** It has {of('temperature', 'ece', 'nll')}.",
        f"- **With 20 texts**, the NLL is {means[20, 'auto']['nll']:.3f} with `auto`, {means[20, 'bias']['nll']:.3f} "
        f"with `bias`, and {means[20, 'temperature']['nll']:.3f} with T.",
        "- **Without labels, equal shares are not safe, so there is no `--calibration prior`.** Batch calibration "
        f"makes all labels about equally frequent. It has {of('prior', 'error', 'nll')}, {harmed('prior')}, and "
        f"raises the NLL in {percent(main['prior']['harm'])}% of the draws; `auto` with {MAIN_SIZE} labels in "
        f"{percent(main['auto']['harm'])}%.",
        "- **With the true shares of the labels**, the same idea (`hf_focal.calibration.match_shares`) has "
        f"{of('shares', 'error', 'ece', 'nll')}. It {harmed('shares')}, and raises the NLL in "
        f"{percent(main['shares']['harm'])}% of the draws.",
    ]
    if "contextual" in main:
        lines.append(
            f"- **Contextual calibration** has {of('contextual', 'error', 'nll')}, {harmed('contextual')}, and raises "
            f"the NLL in {percent(main['contextual']['harm'])}%."
        )
    if (many := "zero_shot-smollm2-banking77-plain") in results:
        means_of = summary(results[many], (MAIN_SIZE,))
        before, without, with_labels = (percent(means_of[MAIN_SIZE, of]["error"]) for of in ("none", "prior", "auto"))
        sets_worse = ", ".join(f"{tasks[name]} ({figures['sets'][name]['prompt']})" for name in worse["prior"])
        lines.append(
            f"- **Equal shares are unsafe on** {sets_worse}. They help on banking77, whose test texts have nearly "
            f"equal shares: an error of {before} → {without}% without labels, but {with_labels}% with `auto` and "
            f"{MAIN_SIZE} labels of its 77 classes."
        )
    lines += tuned_verdict(figures.get("tuned", []))
    summed = [task for task in ("banking77", "clinc150") if task in tasks.values()]
    several = (
        f"The labels of {' and '.join(summed)} have up to nine tokens, and their scores are the sums of the "
        "log-probabilities of these; there are only 100 held-out and 200 test texts. "
        if summed
        else ""
    )
    if "clinc150" not in tasks.values():
        several += "clinc150, with 150 classes, has not been measured. "
    lines += [
        "",
        "The model is SmolLM2-135M-Instruct, with 4-bit weights. The labels are single words after a prompt, and the "
        "logits those of their first tokens ([benchmarks/text_logits]"
        "(https://github.com/hf-focal/hf_focal/tree/main/benchmarks/text_logits) has them and the prompts). "
        f"{several}"
        "Corrections are fitted to random draws of held-out texts, 10 for each size and set, and measured on at most "
        "1,000 test texts. Figures are means over draws, then over the sets of a task, then over tasks. *Harm* is a "
        "draw whose test NLL is above that without a correction by more than 0.001 and by more than one standard "
        "error. Batch calibration [Zhou et al. 2023] subtracts the logarithm of the mean probabilities of as many "
        "texts, without their labels; contextual calibration [Zhao et al. 2021] takes the mean over the texts "
        f"{', '.join(map(repr, CONTENT_FREE))} instead.",
        "",
        "## By the number of samples",
        "",
        "| Samples | Correction | error % | ECE % | NLL | harm % |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for (size, method), found in means.items():
        if method in ("none", "contextual") and size != SIZES[0]:
            continue
        shown = "–" if method in ("none", "contextual") else str(size)
        cells = (percent(found["error"]), percent(found["ece"]), f"{found['nll']:.3f}", percent(found["harm"]))
        lines.append(f"| {shown} | {TITLES[method]} | {' | '.join(cells)} |")
    methods = [method for method in TITLES if method in main]
    lines += [
        "",
        f"## Each set, {MAIN_SIZE} samples",
        "",
        "Error % and NLL.",
        "",
        f"| Task | prompt | classes | {' | '.join(TITLES[method] for method in methods)} |",
        f"| --- | --- | ---: |{' ---: |' * len(methods)}",
    ]
    for name, rows in results.items():
        own = summary(rows, (MAIN_SIZE,))
        cells = [f"{percent(own[MAIN_SIZE, of]['error'])}, {own[MAIN_SIZE, of]['nll']:.3f}" for of in methods]
        described = figures["sets"][name]
        lines.append(f"| {tasks[name]} | {described['prompt']} | {described['classes']} | {' | '.join(cells)} |")
    lines += tuned_section(figures.get("tuned", []))
    failed = [row for rows in results.values() for row in rows if row["failed"]]
    fits = sum(map(len, results.values()))
    lines += [
        "",
        f"A fit that fails counts as no correction: {len(failed)} of {fits:,}"
        + (f", all of {', '.join(sorted({TITLES[row['method']] for row in failed}))}" if failed else "")
        + ". With fewer held-out texts than a size, a set is left out of its means. "
        "`benchmarks/studies/zero_shot.py` makes this page.",
        "",
    ]
    return "\n".join(lines)


def tuned_verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line on fine-tuning from the zero-shot start."""
    nll = {(row["task"], row["classifier"], row["method"]): row["nll"] for row in rows}
    plain, focal, encoder = "LoRA, cross-entropy", "LoRA, `focal:gamma=1`", "MiniLM, `focal:gamma=1`"
    parts = [
        f"from {nll[task, 'zero-shot', 'auto']:.3f} to {nll[task, plain, 'auto']:.3f} with cross-entropy and "
        f"{nll[task, focal, 'auto']:.3f} with `focal:gamma=1` on {task} (MiniLM, fine-tuned on 500 texts: "
        f"{nll[task, encoder, 'auto']:.3f})"
        for task in dict.fromkeys(row["task"] for row in rows)
        if {(task, plain, "auto"), (task, focal, "auto")} <= nll.keys()
    ]
    if not parts:
        return []
    return [
        "- **Fine-tuning from the zero-shot start**, with LoRA on 300 texts, and `auto`: the NLL goes "
        f"{', and '.join(parts)}. With two tasks and one seed, this does not show which loss is better."
    ]


def tuned_section(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines on fine-tuning from the zero-shot start."""
    if not rows:
        return []
    lines = [
        "",
        "## Fine-tuning from the zero-shot start",
        "",
        f"Error %, ECE %, and NLL on the first {ROWS_TUNED} test texts; corrections are fitted to at most "
        f"{ROWS_TUNED} held-out texts. The language model was made a classifier by `calibrate_model(..., "
        'save_as="classifier", method="temperature")` on 200 of these, and its head and LoRA (rank 8, in its last 10 '
        "layers) were trained by `FocalTrainer` on 300 texts for 2 epochs, with one seed. MiniLM, an encoder of 22 "
        "million parameters with a new head, was trained as a whole on 500 texts for 5 epochs.",
        "",
        "| Task | classifier | no correction | T | `auto` |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        shown = f"{percent(row['error'])}, {percent(row['ece'])}, {row['nll']:.3f}"
        cells.setdefault((row["task"], row["classifier"]), []).append(shown)
    lines += [f"| {task} | {title} | {' | '.join(values)} |" for (task, title), values in cells.items()]
    command = "benchmarks/text_logits/make.py --data DATA --models MODELS --only 'lora-*'"
    return [*lines, "", f"`python {command}` trains them; its sets are in text_logits, too."]


def compact(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows, with rounded figures."""
    return {
        name: [round(row[name], 5) if isinstance(row[name], float) else row[name] for row in rows] for name in rows[0]
    }


def expanded(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="the page to write")
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
            given = figures["content_free"].get(name)
            rows = measure(name, None if given is None else torch.tensor(given, dtype=torch.float64))
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
    if options.page is not None:
        options.page.write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
