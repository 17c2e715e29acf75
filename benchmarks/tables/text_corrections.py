"""The page docs/results/text_corrections.md and its figure, from figures of `studies/text_corrections.py`.

Those of the simulation are from `studies/calibrated_logits.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from papers.pages.fine_tuning_evidence import interval as interval_over_tasks
from papers.pages.page import DOCS, fill_page

from benchmarks.common.correction_draws import HARM, MAIN_SIZE
from benchmarks.common.figures import RESULTS
from benchmarks.text_logits.load import sets
from hf_focal.reports.wording.markdown_tables import rows_table

FIGURES, PAGE = RESULTS / "text_corrections", DOCS / "text_corrections.md"
TIE = 1e-4  # nats: a smaller difference is half a win
# The sets on which the rule of "auto" was chosen. The others were made later.
RULE_SETS = (FIGURES / "rule_sets.txt").read_text(encoding="utf-8").split()
TITLES = {
    "none": "no correction",
    "temperature": "T",
    "bias": "bias correction",
    "vector": "vector scaling",
    "matrix": "matrix scaling",
    "svs": "SVS (probmetrics)",
    "sms": "SMS (probmetrics)",
    "quadratic": "quadratic scaling (probmetrics)",
    "isotonic": "isotonic regression (probmetrics)",
    "venn_abers": "Venn-Abers, one against the rest",
    "auto_0.2": "the rule of `auto` of 0.2",
    "auto": "**`auto`**",
}
LINES = {"temperature": "C1", "vector": "C2", "sms": "C3", "auto_0.2": "C4", "auto": "C0"}
# What the sets that compare losses are of: their kind, and its name in the table.
TRAINED = {"fine_tuned": "all weights", "probe": "linear head of a frozen encoder"}
COMPARED_LOSSES = ("flsd53", "focal:gamma=1")  # each with cross-entropy
SETTING = ["model", "task", "samples", "epochs", "seed", "ridge"]  # what both sets of a pair have in common
HARMS = ("auto", "temperature", "sms")  # whose harm the tables compare


def read_cells() -> pd.DataFrame:
    """Return a row for each set, size, draw, and method, with its harm, its win against SMS, and what its set is."""
    rows, table = pd.read_parquet(FIGURES / "cells.parquet"), sets()
    rows = rows.astype({"set": str, "method": str, "above_none": float, "standard_error": float})
    draw = ["set", "samples", "draw"]
    sms = rows[rows["method"] == "sms"].set_index(draw)["above_none"].rename("sms")
    rows = rows.join(sms, on=draw)
    rows["above_sms"] = rows["above_none"] - rows["sms"]
    rows["win"] = np.where(rows["above_sms"].abs() <= TIE, 0.5, rows["above_sms"] < 0)
    rows["harm"] = rows["above_none"] > HARM
    rows["clear_harm"] = rows["harm"] & (rows["above_none"] > rows["standard_error"])
    rows["task"], rows["kind"] = rows["set"].map(table["task"]), rows["set"].map(table["kind"])
    rows["shift"] = rows["set"].map(table["shift"])
    rows["is_new"] = ~rows["set"].isin(RULE_SETS)
    return rows


def interval(values: pd.Series, tasks: pd.Series) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean over tasks."""
    sums = values.groupby(tasks).agg(["sum", "count"]).query("count > 0").to_numpy()
    picks = np.random.default_rng(0).integers(len(sums), size=(2000, len(sums)))
    totals = sums[picks].sum(1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975])
    return float(low), float(high)


def mean_with_interval(values: pd.Series, tasks: pd.Series) -> str:
    low, high = interval(values, tasks)
    return f"{values.mean():.4f} [{low:.4f}, {high:.4f}]"


def percent(values: pd.Series) -> str:
    return f"{100 * values.mean():.1f}"


def percent_with_interval(values: pd.Series, tasks: pd.Series) -> str:
    low, high = interval(100 * values, tasks)
    return f"{100 * values.mean():.1f} [{low:.1f}, {high:.1f}]"


def select_method(rows: pd.DataFrame, method: str, size: int = MAIN_SIZE) -> pd.DataFrame:
    return rows[(rows["method"] == method) & (rows["samples"] == size)]


def table_of_methods(rows: pd.DataFrame, size: int) -> str:
    titles = ["Method", "NLL - without", "NLL - SMS", "wins against SMS %", "harm %", "harm above 0.001 %", "seconds"]
    lines = []
    for method, title in TITLES.items():
        part = select_method(rows, method, size)
        if part.empty:
            continue
        has_all_sets = part["set"].nunique() == select_method(rows, "none", size)["set"].nunique()
        lines.append(
            [
                title if has_all_sets else f"{title} *",
                f"{part['above_none'].mean():.4f}",
                mean_with_interval(part["above_sms"], part["task"]),
                percent_with_interval(part["win"], part["task"]),
                percent(part["clear_harm"]),
                percent(part["harm"]),
                f"{part['seconds'].mean():.2f}",
            ]
        )
    return rows_table(titles, lines)


def parts_of(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    is_plain, classes, new = rows["shift"] == "", rows["set"].map(sets()["classes"]), rows[rows["is_new"]]
    return {
        "the sets on which the rule was chosen": rows[~rows["is_new"]],
        "the other sets": new,
        "of these, up to 5 classes": new[classes[rows["is_new"]] <= 5],
        "of these, 20 or more classes": new[classes[rows["is_new"]] >= 20],
        "of these, shifted test sets": new[new["shift"] != ""],
        "all, shifted test sets": rows[~is_plain],
        "all, two classes, not shifted": rows[is_plain & (classes == 2)],
        "all, more classes, not shifted": rows[is_plain & (classes > 2)],
        "zero-shot language model": rows[rows["kind"] == "zero_shot"],
        "fine-tuned MPNet": rows[rows["set"].map(sets()["model"]) == "mpnet"],
    }


def table_of_parts(rows: pd.DataFrame) -> str:
    titles = ["Sets", "sets, tasks", "NLL - without", "NLL - SMS", "wins %", "harm %", "of T", "of SMS"]
    lines = []
    for title, part in parts_of(rows).items():
        auto = select_method(part, "auto")
        lines.append(
            [
                title,
                f"{auto['set'].nunique()}, {auto['task'].nunique()}",
                f"{auto['above_none'].mean():.4f}",
                mean_with_interval(auto["above_sms"], auto["task"]),
                percent(auto["win"]),
                *(percent(select_method(part, method)["clear_harm"]) for method in (*HARMS, "auto_0.2")),
            ]
        )
    return rows_table([*titles, "of `auto` of 0.2"], lines)


def table_of_sizes(rows: pd.DataFrame) -> str:
    titles = ["Samples", "sets", "draws", "NLL - without", "NLL - SMS", "wins %", "left alone %", "harm %", "of T"]
    lines = []
    for size in sorted(rows["samples"].unique()):
        auto = select_method(rows, "auto", size)
        lines.append(
            [
                f"{size:,}",
                str(auto["set"].nunique()),
                str(len(auto)),
                f"{auto['above_none'].mean():.4f}",
                mean_with_interval(auto["above_sms"], auto["task"]),
                percent(auto["win"]),
                percent(auto["above_none"] == 0),
                *(percent(select_method(rows, method, size)["clear_harm"]) for method in HARMS),
            ]
        )
    return rows_table([*titles, "of SMS"], lines)


def loss_differences(rows: pd.DataFrame, kind: str, loss: str) -> pd.DataFrame:
    """Return the figures of a loss minus those of cross-entropy in the same setting, as means of each task.

    The columns are "pairs", their number, and the NLL and the error of each correction, such as "nll auto".
    """
    table = sets()
    table = table[(table["kind"] == kind) & (table["shift"] == "") & (table["wrong_labels"] == 0)]
    figures = {}
    for method in ("none", "temperature", "auto"):
        means = select_method(rows, method).groupby("set")[["above_none", "wrong"]].mean().reindex(table.index)
        figures[f"nll {method}"] = means["above_none"] + table["test_nll"]
        figures[f"error {method}"] = means["wrong"]
    values = table[["loss", *SETTING]].join(pd.DataFrame(figures))
    one, reference = (values[values["loss"] == name].set_index(SETTING) for name in (loss, "cross_entropy"))
    difference = one[[*figures]].sub(reference[[*figures]]).dropna()
    by_task = difference.groupby("task").mean()
    return by_task.assign(pairs=difference.groupby("task").size())


def table_of_losses(rows: pd.DataFrame) -> str:
    titles = ["Trained", "Loss", "tasks, pairs", "NLL", "NLL after T", "NLL after `auto`", "lower on"]
    lines = []
    for kind, trained in TRAINED.items():
        for loss in COMPARED_LOSSES:
            values = loss_differences(rows, kind, loss)
            nll = [values[f"nll {method}"] for method in ("none", "temperature", "auto")]
            lines.append(
                [
                    trained,
                    f"`{loss}`",
                    f"{len(values)}, {values['pairs'].sum()}",
                    *(difference_with_interval(difference, 3) for difference in nll),
                    f"{(nll[-1] < 0).sum()} of {len(values)}",
                    *(difference_with_interval(100 * values[f"error {method}"], 1) for method in ("none", "auto")),
                ]
            )
    return rows_table([*titles, "error, points", "error after `auto`"], lines)


def difference_with_interval(values: pd.Series, digits: int) -> str:
    return "{:z.{digits}f} [{:z.{digits}f}, {:z.{digits}f}]".format(*interval_over_tasks(values), digits=digits)


def table_of_simulation(simulation: pd.DataFrame) -> str:
    titles = ["classes", "samples", "draws", "left alone %", "NLL added by `auto`", "by T"]
    lines = [
        [
            str(row.classes),
            f"{row.samples:,}",
            str(row.draws),
            f"{100 * row.left_alone:.0f}",
            f"{row.added:.4f} ± {row.added_error:.4f}",
            f"{row.added_by_temperature:.4f}",
        ]
        for row in simulation.itertuples()
    ]
    return rows_table(titles, lines)


def draw_figure(rows: pd.DataFrame, file: Path) -> None:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    all_sizes = sorted(rows["samples"].unique())
    for number, (method, color) in enumerate(LINES.items()):
        sizes = sorted(rows["samples"][rows["method"] == method].unique())
        parts = [select_method(rows, method, size) for size in sizes]
        style = {"color": color, "marker": "o", "markersize": 4, "label": TITLES[method].strip("*").replace("`", "")}
        style |= {"linewidth": 2.2} if method == "auto" else {}
        left.plot(sizes, [100 * part["clear_harm"].mean() for part in parts], **style)
        if method == "sms":
            continue
        means = np.array([part["above_sms"].mean() for part in parts])
        ends = np.array([interval(part["above_sms"], part["task"]) for part in parts])
        shift = 1.04 ** (number - 2)  # so that intervals do not hide each other
        right.errorbar(np.array(sizes) * shift, means, abs(ends.T - means), capsize=2, **style)
    right.axhline(0, color="C3", linewidth=1, label="SMS")
    left.set(title="Draws that a correction harms", ylabel="% of draws", ylim=(0, None))
    right.set(title="Mean NLL minus that of SMS", ylabel="nats")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="calibration samples", xticks=all_sizes, xticklabels=map(str, all_sizes))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.savefig(file, dpi=130)


def harm(rows: pd.DataFrame, method: str = "auto", size: int = MAIN_SIZE) -> str:
    return percent(select_method(rows, method, size)["clear_harm"])


def minus_sms(part: pd.DataFrame) -> str:
    return mean_with_interval(part["above_sms"], part["task"])


def wins(part: pd.DataFrame) -> str:
    return percent_with_interval(part["win"], part["task"])


def numbers_of_all_sets(rows: pd.DataFrame) -> dict[str, str]:
    auto, many = select_method(rows, "auto"), select_method(rows, "auto", 1000)
    is_left_alone = auto["above_none"] == 0
    failed = rows[rows["failed"]].groupby("method").size()
    return {
        "sets": str(rows["set"].nunique()),
        "tasks": str(rows["task"].nunique()),
        "fits": f"{len(rows):,}",
        "failed": ", ".join(f"{count:,} of {method}" for method, count in failed.items()),
        "harm_auto": harm(rows),
        "harm_temperature": harm(rows, "temperature"),
        "harm_sms": harm(rows, "sms"),
        "harm_earlier": harm(rows, "auto_0.2"),
        "minus_sms": minus_sms(auto),
        "minus_sms_earlier": minus_sms(select_method(rows, "auto_0.2")),
        "minus_sms_1000": minus_sms(many),
        "wins": wins(auto),
        "wins_1000": percent(many["win"]),
        "left_alone": percent(is_left_alone),
        "left_alone_wins": percent(auto[is_left_alone]["win"]),
        "corrected_wins": percent(auto[~is_left_alone]["win"]),
    }


def numbers_of_parts(rows: pd.DataFrame) -> dict[str, str]:
    """Return the numbers of new sets, of those that the rule was chosen on, of shifted ones, and of zero-shot ones."""
    new, old, shifted = rows[rows["is_new"]], rows[~rows["is_new"]], rows[rows["shift"] != ""]
    zero_shot = rows[rows["kind"] == "zero_shot"]
    auto_on_new, auto_on_old = select_method(new, "auto"), select_method(old, "auto")
    return {
        "new_sets": str(new["set"].nunique()),
        "new_harm_auto": harm(new),
        "new_harm_temperature": harm(new, "temperature"),
        "new_harm_sms": harm(new, "sms"),
        "new_minus_sms": minus_sms(auto_on_new),
        "new_wins": wins(auto_on_new),
        "rule_sets": str(old["set"].nunique()),
        "rule_harm": harm(old),
        "rule_minus_sms": minus_sms(auto_on_old),
        "rule_wins": percent(auto_on_old["win"]),
        "shifted_sets": str(shifted["set"].nunique()),
        "shifted_harm": harm(shifted),
        "shifted_harm_1000": harm(shifted, size=1000),
        "zero_shot_wins": percent(select_method(zero_shot, "auto")["win"]),
        "zero_shot_harm": harm(zero_shot),
        "zero_shot_harm_sms": harm(zero_shot, "sms"),
    }


def numbers_of_simulation(simulation: pd.DataFrame) -> dict[str, str]:
    most = simulation.loc[simulation["added"].idxmax()]
    return {
        "least_left_alone": f"{100 * simulation['left_alone'].min():.0f}",
        "most_left_alone": f"{100 * simulation['left_alone'].max():.0f}",
        "most_added": f"{most['added']:.4f} ± {most['added_error']:.4f}",
        "most_added_classes": f"{most['classes']:.0f}",
        "most_added_samples": f"{most['samples']:.0f}",
        "most_added_by_temperature": f"{most['added_by_temperature']:.4f}",
    }


def page_texts(rows: pd.DataFrame, simulation: pd.DataFrame) -> Mapping[str, str]:
    """Return the numbers and tables of the page by the names that it has for them in comments."""
    tables = {
        "methods": table_of_methods(rows, MAIN_SIZE),
        "parts": table_of_parts(rows),
        "sizes": table_of_sizes(rows),
        "losses": table_of_losses(rows),
        "simulation": table_of_simulation(simulation),
    }
    return numbers_of_all_sets(rows) | numbers_of_parts(rows) | numbers_of_simulation(simulation) | tables


def write_page() -> None:
    rows, simulation = read_cells(), pd.read_csv(FIGURES / "simulation.csv")
    fill_page(PAGE, page_texts(rows, simulation))
    draw_figure(rows, PAGE.with_suffix(".png"))
