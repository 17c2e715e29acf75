"""The numbers of docs/results/zero_shot.md, from the figures of `studies/zero_shot.py`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from papers.pages.page import DOCS, fill_page

from benchmarks.common.correction_draws import MAIN_SIZE
from benchmarks.common.figures import read_figures
from benchmarks.common.zero_shot_figures import FIGURES, SIZES, TITLES
from hf_focal.reports.wording.markdown_tables import rows_table

PAGE = DOCS / "zero_shot.md"
MEASURED = ("nll", "error", "ece", "harm")
# What the page tells of each method: its means beside those without a correction.
COMPARED = {
    "auto": ("error", "ece", "nll"),
    "bias": ("error", "ece", "nll"),
    "temperature": ("ece", "nll"),
    "prior": ("error", "nll"),
    "shares": ("error", "ece", "nll"),
    "contextual": ("error", "nll"),
}
WITHOUT_HELD_OUT_TEXTS = ("none", "contextual")  # these are the same for all sizes
WORSE = 0.02  # of the error, above that without a correction
CLASSIFIERS = {
    "start": "zero-shot",
    "lora": "LoRA, cross-entropy",
    "lora_focal": "LoRA, `focal:gamma=1`",
    "minilm": "MiniLM, `focal:gamma=1`",
}


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def sets_by_classes(figures: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the description of each set, those with few classes first."""
    return sorted(figures["sets"].items(), key=lambda item: (item[1]["classes"], item[0]))


def read_draws(figures: dict[str, Any]) -> pd.DataFrame:
    """Return a row for each set, size, draw, and method."""
    return pd.concat(
        pd.DataFrame(figures["columns"][name]).assign(set=name, task=described["task"])
        for name, described in sets_by_classes(figures)
    )


def means_by(rows: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Average each measure by the keys, adding in the order of the rows, so that means such as 8.75 round alike."""
    return rows.groupby([*keys], sort=False)[[*MEASURED]].agg(lambda values: np.mean(values.to_numpy(float)))


def size_rows(means: pd.DataFrame) -> Iterator[list[str]]:
    for size in SIZES:
        for method, title in TITLES.items():
            if method in WITHOUT_HELD_OUT_TEXTS and size != SIZES[0]:
                continue
            error, ece, nll, harm = means.loc[(size, method), ["error", "ece", "nll", "harm"]]
            shown = "–" if method in WITHOUT_HELD_OUT_TEXTS else str(size)
            yield [shown, title, percent(error), percent(ece), f"{nll:.3f}", percent(harm)]


def set_rows(figures: dict[str, Any], set_means: pd.DataFrame) -> Iterator[list[str]]:
    """One row for each set, with the error in % and the NLL of each method at the main size."""
    for name, described in sets_by_classes(figures):
        task, prompt, classes = (described[key] for key in ("task", "prompt", "classes"))
        means = (set_means.loc[(MAIN_SIZE, method, name, task)] for method in TITLES)
        yield [task, prompt, str(classes), *(f"{percent(mean['error'])}, {mean['nll']:.3f}" for mean in means)]


def tuned_rows(tuned: pd.DataFrame) -> Iterator[list[str]]:
    """One row for each task and classifier, with error %, ECE %, and NLL of each correction."""
    for names, rows in tuned.groupby(["task", "classifier"], sort=False):
        cells = (f"{percent(row.error)}, {percent(row.ece)}, {row.nll:.3f}" for row in rows.itertuples())
        yield [*names, *cells]


def page_texts(figures: dict[str, Any]) -> dict[str, str]:
    """Return the numbers and tables of the page by the names that it has for them in comments."""
    draws, tuned = read_draws(figures), pd.DataFrame(figures["tuned"])
    set_means = means_by(draws, "samples", "method", "set", "task")
    means = means_by(means_by(set_means, "samples", "method", "task"), "samples", "method")  # over tasks
    main = means.loc[MAIN_SIZE]
    errors = set_means["error"].loc[MAIN_SIZE].unstack("method")
    numbers = {"sets": str(len(figures["sets"])), "tasks": str(errors.index.unique("task").size)}
    for method, measures in COMPARED.items():
        for name in measures:
            before, after = (
                f"{main.loc[row, name]:.3f}" if name == "nll" else percent(main.loc[row, name])
                for row in ("none", method)
            )
            numbers[f"{method}_{name}"] = f"{before} → {after}{'' if name == 'nll' else '%'}"
    for method in ("auto", "bias", "temperature"):
        numbers[f"{method}_nll_20"] = f"{means.loc[(20, method), 'nll']:.3f}"
    for method in ("auto", "prior", "shares", "contextual"):
        numbers[f"{method}_harm"] = percent(main.loc[method, "harm"])
    for method in ("prior", "shares", "contextual"):
        numbers[f"{method}_worse"] = str((errors[method] > errors["none"] + WORSE).sum())
    worse = errors[errors["prior"] > errors["none"] + WORSE].index.sort_values()
    numbers["prior_worse_sets"] = ", ".join(f"{task} ({figures['sets'][name]['prompt']})" for name, task in worse)
    for method in ("none", "prior", "auto"):
        numbers[f"banking77_{method}"] = percent(errors.xs("banking77", level="task")[method].item())
    corrected = tuned[tuned["method"] == "auto"].set_index(["task", "classifier"])["nll"]
    for task in tuned["task"].unique():
        numbers |= {f"{task}_{name}": f"{corrected[task, title]:.3f}" for name, title in CLASSIFIERS.items()}
    failed = draws.loc[draws["failed"], "method"]
    return numbers | {
        "by_size": rows_table(
            ["Samples", "Correction", "error %", "ECE %", "NLL", "harm %"], size_rows(means), ["Correction"]
        ),
        "by_set": rows_table(
            ["Task", "prompt", "classes", *TITLES.values()], set_rows(figures, set_means), ["prompt"]
        ),
        "tuned": rows_table(["Task", "classifier", "no correction", "T", "`auto`"], tuned_rows(tuned), ["classifier"]),
        "failed": f"{len(failed)} of {len(draws):,}, all of {', '.join(TITLES[name] for name in failed.unique())}",
    }


def write_page() -> None:
    fill_page(PAGE, page_texts(read_figures(FIGURES)))
