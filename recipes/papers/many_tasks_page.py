"""Write docs/results/fine_tuning.md, its appendix and figure, and text_ood.md from records/many_tasks.csv.

    python recipes/papers/many_tasks_page.py

The records are those of many_tasks.py and many_tasks_records.py. The appendix also shows the older runs in
recipes/papers/records/fine_tuning.csv.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import mean
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np

from hf_focal.reports.figure_style import COLORS, finished
from papers.figures.run_records import read_records
from papers.figures.tables import rows_table
from papers.many_tasks_evidence import (
    LOSSES,
    SELECTIONS,
    SIZES,
    TASKS,
    Evidence,
    ScoresByTask,
    among,
    average,
    by_task,
    count_lower,
    difference,
    flsd_gain,
    interval,
    load_records,
    negative,
    nll,
    of_classes,
    other_settings,
    rule_on_new_tasks,
    selected,
    uncorrected_after_long_training,
    usual,
)

OLDER = Path(__file__).parent / "records" / "fine_tuning.csv"
DOCS = Path(__file__).parents[2] / "docs" / "results"
NAMES = {"adafocal@10": "adafocal, every 10 steps", "none": "nothing", "temperature": "T"}


def shown(values: ScoresByTask, digits: int = 3) -> str:
    middle, low, high = (f"{number:.{digits}f}" for number in interval(values))
    return f"{middle} [{low}, {high}]"


# Tables


def named(strategy: tuple[str, str]) -> str:
    loss, correction = strategy
    return f"{NAMES.get(loss, loss)}, {NAMES.get(correction, correction)}"


def task_table(runs: list[dict], value: Callable[[dict], float], digits: int = 3, factor: float = 1) -> str:
    columns = {loss: by_task([run for run in runs if run["loss"] == loss], value) for loss in LOSSES}
    columns = {loss: values for loss, values in columns.items() if values}
    rows = []
    for task in TASKS:
        cells = [f"{factor * v[task]:.{digits}f}" if task in v else "–" for v in columns.values()]
        if set(cells) != {"–"}:
            rows.append([f"{TASKS[task][0]} ({TASKS[task][1]})", *cells])
    return rows_table(["Task (classes)", *(NAMES.get(loss, loss) for loss in columns)], rows)


def paragraph(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def items(*texts: str) -> str:
    return "\n".join(fill(f"- {text}", 120, subsequent_indent="  ", break_on_hyphens=False) for text in texts) + "\n"


def strategy_rows(evidence: Evidence) -> Iterator[list[str]]:
    """One row for each strategy: regret, and difference to cross-entropy with T, on all runs and on the kept ones."""
    reference = ("cross_entropy", "temperature")
    rules: dict[str, list[ScoresByTask | None]] = {}
    for title, groups in (
        ("chosen on the other tasks", False),
        ("chosen on other tasks of two or more classes", True),
    ):
        rules[title] = [rule_on_new_tasks(part, groups)[0] for part in (evidence.candidates(), evidence.kept)]
    strategies = {named(key): [evidence.all_runs.get(key), evidence.kept.get(key)] for key in
                  [*evidence.kept, *evidence.all_runs]}  # fmt: skip
    for title, parts in (rules | strategies).items():
        cells = []
        for values, regret in zip(parts, (evidence.all_runs, evidence.kept), strict=True):
            if values is None:
                cells += ["–", "–"]
                continue
            gain = difference(values, regret[reference])
            cells += [shown(values), "" if title == named(reference) else shown(gain)]
        yield [title, *cells]


def regret_figure(evidence: Evidence, path: Path) -> None:
    """Draw the mean regret of each strategy with its interval, and a dot for each task."""
    panels = []
    for regret, title in ((evidence.all_runs, "all losses"), (evidence.kept, "runs with kept logits")):
        rows = {named(key): values for key, values in regret.items()}
        candidates = evidence.candidates() if regret is evidence.all_runs else regret
        rows["rule, on tasks left out"] = rule_on_new_tasks(candidates, True)[0]
        panels.append((title, dict(sorted(rows.items(), key=lambda row: -average(row[1].values())))))
    figure, axes = plt.subplots(
        2, figsize=(6, 8), height_ratios=[len(rows) + 2 for _, rows in panels], layout="constrained", sharex=True
    )
    for axis, (title, rows) in zip(axes, panels, strict=True):
        for height, (name, values) in enumerate(rows.items()):
            color = COLORS[1] if name.startswith("rule") else COLORS[0]
            middle, low, high = interval(values)
            axis.plot([max(value, 1e-3) for value in values.values()], [height] * len(values), ".", color="#BBBBBB")
            axis.plot([max(low, 1e-3), high], [height] * 2, color=color, linewidth=2)
            axis.plot(middle, height, "o", color=color)
        axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
        axis.set_title(title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="#E0E0E0", linewidth=0.6)
        axis.set_xscale("log")
    figure.supxlabel("NLL regret: mean, 95% interval, and (grey) each task; 0.001 means at most 0.001", fontsize=9)
    finished(figure, path)
    plt.close(figure)


# The sections of the appendix


def auto_section(runs: list[dict]) -> str:
    """Compare what "auto" may choose with T, by the number of held-out samples."""
    softmax = [run for run in runs if "vector" in run]
    ways: dict[str, Callable[[dict, str], float]] = {
        "nothing": lambda run, size: nll(run, "none"),
        "always vector": lambda run, size: nll(run, "vector", size),
        "the smallest cross-fitted NLL": lambda run, size: nll(run, "auto", size, 0),
        "**within 1 standard error** (auto of 0.2)": lambda run, size: nll(run, "auto", size),
        "within 2 standard errors": lambda run, size: nll(run, "auto", size, 2),
    }
    text = ""
    for group, title in (("two", "Two classes"), ("more", "More classes")):
        own = [run for run in softmax if of_classes(run["task"]) == group]
        rows = []
        for name, value in ways.items():
            cells = []
            for size in SIZES:
                gain = by_task(own, lambda run, s=size, v=value: v(run, s) - nll(run, "temperature", s))
                cells.append(f"{average(gain.values()):+.3f} ({max(gain.values()):+.3f})")
            rows.append([name, *cells])
        tasks = len({run["task"] for run in own})
        text += f"{title}, {tasks} tasks, {len(own)} runs:\n\n"
        text += rows_table(["Held-out samples", *(f"{int(size):,}" for size in SIZES)], rows) + "\n"
    return text


def size_section(runs: list[dict], strategies: Iterable[tuple[str, str]]) -> str:
    """Compare strategies by the number of held-out samples, beside cross-entropy with a T of 1,000 samples."""
    reference = by_task((run for run in runs if run["loss"] == "cross_entropy"), lambda run: nll(run, "temperature"))
    text = ""
    for group, title in (("two", "Two classes"), ("more", "More classes")):
        rows = []
        for loss, correction in strategies:
            own = [run for run in runs if run["loss"] == loss and of_classes(run["task"]) == group]
            cells = []
            for size in SIZES:
                values = by_task(own, lambda run, c=correction, s=size: nll(run, c, s))
                cells.append(f"{average(difference(values, reference).values()):+.3f}")
            rows.append([named((loss, correction)), *cells])
        text += f"{title}:\n\n" + rows_table(["Held-out samples", *(f"{int(size):,}" for size in SIZES)], rows) + "\n"
    return text


def shift_section(runs: list[dict]) -> str:
    rows = []
    for loss in LOSSES:
        own = [run["shift"] for run in runs if run["loss"] == loss and "shift" in run]
        if own:
            cells = [f"{average(run[c]['nll'] for run in own):.3f}" for c in ("none", "temperature", "vector")]
            cells += [f"{100 * average(run[c]['ece'] for run in own):.1f}" for c in ("none", "temperature", "vector")]
            rows.append([NAMES.get(loss, loss), str(len(own)), *cells])
    header = ["Loss", "seeds", *(f"{m}, {c}" for m in ("NLL", "ECE %") for c in ("nothing", "T", "vector"))]
    return rows_table(header, rows)


def selection_rows(runs: list[dict]) -> Iterator[list[str]]:
    """Choose the epoch with the smallest metric of the held-out pool; measure its model on the test set."""
    for run in runs:
        figures = run["epochs_figures"]
        cells = []
        for position in SELECTIONS.values():
            best = len(figures) - 1
            if position is not None:
                best = min(range(len(figures)), key=lambda i, p=position: figures[i]["pool"][p])
            error, _, refined = figures[best]["test"]
            cells.append(f"{best + 1}: {100 * error:.1f}, {refined:.3f}")
        yield [f"{TASKS[run['task']][0]}, {run['loss']}", *cells]


def selection_differences(runs: list[dict]) -> str:
    """What selection by `nll_refined` changes, against the other choices, over tasks."""
    own = selected(runs, SELECTIONS["`nll_refined`"])
    rows = []
    for name, position in SELECTIONS.items():
        if name != "`nll_refined`":
            pairs = [difference(*both) for both in zip(own, selected(runs, position), strict=True)]
            lower = f"{count_lower(pairs[1])} of {len(pairs[1])}"
            rows.append([f"minus {name}", shown(pairs[0], 2), shown(pairs[1], 4), lower])
    return rows_table(["`nll_refined`", "error %", "NLL after T", "tasks where the NLL is lower"], rows)


def setting_rows(runs: list[dict]) -> Iterator[list[str]]:
    """One row for each run outside the usual setting, with error, NLL, and ECE before and after corrections."""
    for run in runs:
        cells = [f"{100 * run['none']['error']:.1f}"]
        cells += [
            f"{nll(run, c):.3f}" if c != "auto" or "draws" in run else "–" for c in ("none", "temperature", "auto")
        ]
        cells += [f"{100 * run[c]['ece']:.1f}" for c in ("none", "temperature")]
        samples = f"{run['train_samples']:,}"
        yield [f"{TASKS[run['task']][0]}, {run['loss']}, seed {run['seed']}", samples, *cells]


def loss_gains(runs: list[dict]) -> str:
    corrections = {"none": "without a correction", "temperature": "with T", "auto": "with `auto`"}
    if not all("draws" in run for run in runs):
        del corrections["auto"]
    parts = []
    for correction, words in corrections.items():
        gain = flsd_gain(runs, correction)
        parts.append(f"{shown(gain)} {words}, lower on {count_lower(gain)} of {len(gain)} tasks")
    return paragraph(f"The NLL of `flsd53` minus that of cross-entropy is {'; '.join(parts)}.")


def rerun_text(records: list[dict]) -> str:
    pairs = [(run["earlier"], run) for run in records if "earlier" in run]
    before = [abs(old["nll"] - run["none"]["nll"]) for old, run in pairs]
    after = [abs(old["nll_after_t"] - run["temperature"]["nll"]) for old, run in pairs]
    return paragraph(
        f"The logits of the first runs were lost. {len(pairs)} of them were run again, on another machine, and the "
        "reruns replace them in the tables. The NLL of a rerun differs from that of the first run by at most "
        f"{max(before):.4f} without a correction, and by at most {max(after):.4f} with T."
    )


def older_sections() -> str:
    """Show the older runs on three tasks, whose batches were of 32 and whose precision was bfloat16."""
    runs = read_records(OLDER)
    groups: dict[tuple, dict[str, list[dict]]] = {}
    for run in runs:
        loss = "adafocal, every few steps" if "@" in run["loss"] else run["loss"]
        key = run["task"], run["few_shot"], run["label_noise"], run["epochs"]
        groups.setdefault(key, {}).setdefault(loss, []).append(run)
    rows = []
    for (task, few, noise, epochs), losses in sorted(groups.items()):
        setting = f"{task}, {'500' if few else 'all'} samples, {epochs} epochs" + (
            ", 20% wrong labels" if noise else ""
        )
        for loss, own in losses.items():

            def cell(stage: str, measure: str, digits: int, factor: float, own: list[dict] = own) -> str:
                return f"{factor * average(run['test'][stage][measure] for run in own):.{digits}f}"

            cells = [cell(stage, "nll", 3, 1) for stage in ("before", "nll")]
            cells += [cell(stage, "ece", 1, 100) for stage in ("before", "nll")]
            rows.append([f"{setting}: {loss}", str(len(own)), cell("before", "error", 1, 100), *cells])
    measured = [run for run in runs if "1000" in run["curve"]["nll"] and run["loss"] != "dual_focal"]
    curve = [run["curve"] for run in measured]
    by_size = []
    for size in ("25", *SIZES):
        ece, value, worse, _ = np.mean([entry["nll"][size] for entry in curve], axis=0)
        other = np.mean([entry["ece"][size] for entry in curve], axis=0)
        by_size.append([size, f"{100 * ece:.2f}", f"{100 * other[0]:.2f}", f"{value:.4f}", f"{other[1]:.4f}",
                        f"{100 * worse:.0f}", f"{100 * other[2]:.0f}"])  # fmt: skip
    ece, value = (average(run["test"]["before"][name] for run in measured) for name in ("ece", "nll"))
    by_size.append(["without T", *[f"{100 * ece:.2f}"] * 2, *[f"{value:.4f}"] * 2, "", ""])
    header = ["Setting and loss", "seeds", "error %", "NLL", "NLL, T", "ECE %", "ECE %, T"]
    sizes = ["Held-out samples", "ECE %, T by NLL", "ECE %, T by ECE", "NLL, T by NLL", "NLL, T by ECE",
             "both worse by NLL, %", "both worse by ECE, %"]  # fmt: skip
    return (
        "## Older runs\n\n"
        + paragraph(
            f"An earlier version of this page had only these {len(runs)} runs: two on 20 Newsgroups, and the others "
            "on three tasks with two classes. They have batches of 32 and bfloat16 autocast. T was fitted to 500 "
            "held-out samples by NLL."
        )
        + "\n"
        + rows_table(header, rows)
        + "\n### How many calibration samples\n\n"
        + paragraph(
            f"For the {len(curve)} older runs on MPQA, T was fitted by NLL or by ECE to random held-out samples, in "
            '10 draws per run. The table has means. "Both worse" is the share of draws in which T makes both the ECE '
            "and the NLL of the test set worse."
        )
        + "\n"
        + rows_table(sizes, by_size)
    )


# The pages


def trained_well(values: ScoresByTask) -> float:
    return average(value for task, value in values.items() if task not in ("banking77", "clinc150"))


def main_page(evidence: Evidence) -> str:
    regret, kept = evidence.all_runs, evidence.kept
    reference, alternative = ("cross_entropy", "temperature"), ("cross_entropy", "auto")
    loss_gain = difference(regret["flsd53", "temperature"], regret[reference])
    two = among(loss_gain, "two")
    auto_gain = difference(kept[alternative], kept[reference])
    auto_two, auto_more = among(auto_gain, "two"), among(auto_gain, "more")
    auto_more.pop("goemotions", None)  # has several labels, so "auto" is T
    both_auto = difference(kept["flsd53", "auto"], kept[alternative])
    focal_two = among(difference(regret["focal:gamma=1", "none"], regret["cross_entropy", "none"]), "two")
    fixed, _ = rule_on_new_tasks(kept, groups=False)
    ruled, _ = rule_on_new_tasks(kept, groups=True)
    longer = uncorrected_after_long_training(evidence.records)
    of_setting = {
        name: f"{shown(gain)}, lower on {count_lower(gain)} of {len(gain)} tasks"
        for name, runs in other_settings(evidence.records).items()
        for gain in [flsd_gain(runs, "temperature")]
    }
    verdict = [
        "**With held-out samples, train with `flsd53` and fit a correction.** 100 samples are enough to gain from it, "
        "and 1,000 gain more. With a temperature T, the NLL of `flsd53` is lower than that of cross-entropy on "
        f"{count_lower(loss_gain)} of {len(loss_gain)} tasks. On the {len(two)} tasks with two classes, the mean gain "
        f"is {shown(negative(two))} nats.",
        "**With more than two classes, let `auto` choose the correction.** This gains more than any loss: its NLL is "
        f"lower than that of T on {count_lower(auto_more)} of {len(auto_more)} tasks, by {shown(negative(auto_more))} "
        "nats. The loss then matters little: over all tasks, the NLL of `flsd53` with `auto` minus that of "
        f"cross-entropy with `auto` is {shown(both_auto)}. With two classes, `auto` minus T is only "
        f"{average(auto_two.values()):+.3f}. This `auto` is that of 0.2; [today's](text_corrections.md) also leaves "
        "calibrated models alone.",
        "**Without held-out samples, train with `focal:gamma=1`.** Without a correction, its NLL is lower than that "
        f"of cross-entropy on {count_lower(focal_two)} of {len(focal_two)} tasks with two classes. With more classes, "
        "we found no loss that is better than cross-entropy. `flsd53` is underconfident after 3 epochs, but after 10, "
        f"its uncorrected NLL is lower than that of cross-entropy on {count_lower(longer)} of {len(longer)} tasks "
        "with two to four classes.",
        "**You need no rule that depends on the task.** If one strategy is chosen on the other tasks, its mean regret "
        f"on the task that was left out is {shown(fixed)}. If the choice may also depend on the number of classes, it "
        f"is {shown(ruled)}, so no better.",
        "**Train until the error stops falling.** banking77, clinc150, and 20 Newsgroups with 500 to 1,500 samples "
        "and 3 epochs are undertrained (errors of 50 to 67%). Only on the first two does cross-entropy with T have a "
        "lower NLL than `flsd53` with T, and with 5,000 samples `flsd53` is ahead there, too.",
        "**Other settings, with one seed.** The NLL of `flsd53` with T minus that of cross-entropy with T: with 10 "
        f"epochs, {of_setting['longer']}; with a larger encoder, MPNet, {of_setting['mpnet']}; with 20% wrong "
        f"training labels, {of_setting['noisy']}, which are too few tasks for advice. See [what was not "
        "run](fine_tuning_appendix.md#what-was-not-run).",
    ]
    rows = list(strategy_rows(evidence))
    header = [
        "Strategy",
        "all runs: regret",
        "minus cross-entropy, T",
        "kept logits: regret",
        "minus cross-entropy, T",
    ]
    kept_tasks = len(next(iter(kept.values())))
    return "\n".join(
        [
            "# What should you do if you fine-tune an encoder?\n",
            items(*verdict),
            paragraph(
                "`hf-focal recommend --num_classes 77 --train_samples 5000 --held_out_samples 500` gives this advice "
                "for your numbers, and so does `hf_focal.recommend` in Python."
            ),
            "## Regret by strategy\n",
            "![NLL regret by strategy](fine_tuning_regret.png)\n",
            paragraph(
                "A strategy is a loss and a correction, which is fitted to 1,000 held-out samples. Its regret is its "
                "NLL on the test set minus the smallest NLL of any strategy in the figure, for the same task and "
                f"seed. The upper part has all {len(evidence.runs)} runs of {len(LOSSES)} losses on {len(TASKS)} "
                f"tasks, with three seeds. The lower part has the {len(evidence.with_logits)} runs whose logits were "
                f"saved, on {kept_tasks} tasks, most with one seed. For these, `auto` of 0.2 can be measured: the "
                "simplest of temperature, vector, and matrix scaling whose cross-fitted NLL is within one standard "
                "error of the best. GoEmotions has several labels per sample, so it has only T. Each number is a mean "
                "over tasks, with a 95% interval from resampling the tasks; the two tasks of SST, and those of 20 "
                "Newsgroups, count as one. The rules are measured on the task that was left out of their choice."
            ),
            "## The table\n",
            rows_table(header, rows),
            paragraph(
                "Dual focal loss does not support several labels, so GoEmotions is left out of its rows, and the "
                "rules do not choose it. Its low regret with T comes from the undertrained tasks banking77 and "
                f"clinc150: without them, it is {trained_well(regret['dual_focal', 'temperature']):.3f}, and that of "
                f"cross-entropy {trained_well(regret[reference]):.3f}."
            ),
            paragraph(
                "[The appendix](fine_tuning_appendix.md) has the setting, every task, smaller numbers of held-out "
                "samples, shift, longer training, checkpoint selection, and the older runs. [Out-of-scope "
                "texts](text_ood.md) has results on texts that belong to no class. `python "
                "recipes/papers/many_tasks_page.py` writes all three pages from "
                "`recipes/papers/records/many_tasks.csv`."
            ),
        ]
    )


def appendix(evidence: Evidence) -> str:
    runs, records = evidence.runs, evidence.records
    hours = sum(run["seconds"]["training"] for run in records) / 3600
    longer = [run for run in records if "epochs_figures" in run]
    text = ["# Fine-tuning an encoder: the appendix\n"]
    text.append(
        paragraph(
            "These are the measurements behind [the advice](fine_tuning.md): "
            f"{len(records)} runs with {hours:.0f} core-hours of training."
        )
    )
    text += [
        "## How it was run\n",
        paragraph(
            "The model is all-MiniLM-L6-v2 (22.6 million parameters) with a new head, trained on one CPU core in "
            "float32: AdamW with learning rate 1e-4, warmup over the first tenth of the steps, linear decay, weight "
            "decay 0.01, gradients clipped at 1, batches of 16, 3 epochs, at most 128 tokens. Each seed draws 500 "
            "training samples (1,000 of banking77, 1,500 of clinc150), and 1,000 other samples are held out. All runs "
            "have the same test samples, at most 2,000. AdaFocal uses 500 of the held-out samples to update γ. "
            "GoEmotions has several labels per sample, so it has sigmoids, and one T for each label. TREC QA has "
            "pairs of a question and a sentence; 7% of the pairs match in the training set, and 19% in the test set. "
            "20 Newsgroups by date is tested on later posts."
        ),
        "```\npython recipes/papers/many_tasks.py --data DATA --encoders ENCODERS --blocks a --output_dir OUT\n"
        "python recipes/papers/many_tasks_records.py OUT\npython recipes/papers/many_tasks_page.py\n```\n",
        rerun_text(records),
        "## What was not run\n",
        items(
            "The second encoder (MPNet) beyond one seed of two losses on five tasks [below](#other-settings).",
            "Training from scratch: see [20 Newsgroups](newsgroups.md) and [CIFAR-10](cifar10.md).",
            "Vector and matrix scaling of the runs whose logits were lost: their records only have T.",
            "5,000 samples, 10 epochs, and wrong labels beyond the runs [below](#other-settings).",
            "Out-of-scope texts with losses that are not [on that page](text_ood.md): their logits were lost.",
            "GoEmotions with dual focal loss, which does not support several labels.",
        ),
        "## By task\n\nNLL of the test set after T, fitted to 1,000 held-out samples, averaged over three seeds:\n",
        task_table(runs, lambda run: run["temperature"]["nll"]),
        "NLL without a correction:\n",
        task_table(runs, lambda run: run["none"]["nll"]),
        "Error, %:\n",
        task_table(runs, lambda run: run["none"]["error"], 1, 100),
        "ECE without a correction, %:\n",
        task_table(runs, lambda run: run["none"]["ece"], 1, 100),
        "ECE after T, %:\n",
        task_table(runs, lambda run: run["temperature"]["ece"], 1, 100),
        "T:\n",
        task_table(runs, lambda run: run["temperature"]["T"], 2),
        "## The choice by auto\n",
        paragraph(
            "Each cell is the NLL of a correction minus that of T, both fitted to the same held-out samples: the mean "
            "over tasks and, in parentheses, the largest value of a task. The runs are those of cross-entropy and "
            "FLSD-53, with five draws of 50 and 100 samples, three of 200, two of 500, and one of 1,000."
        ),
        auto_section(evidence.with_logits),
        paragraph(
            "With two classes, there is little to gain over T. With few samples, choosing the smallest cross-fitted "
            "NLL then loses more than choosing within one standard error, so `auto` of 0.2 did the latter. With more "
            "classes, both gain much, with 100 samples or more in every task. In the undertrained tasks, vector "
            "and matrix scaling also lower the error, by up to 16 points, but their ECE is higher than that of T; the "
            "NLL takes both into account."
        ),
        "## Fewer held-out samples\n",
        paragraph(
            "Each cell is an NLL minus that of cross-entropy with a T that is fitted to 1,000 held-out samples, "
            "averaged over the tasks of the runs whose logits were saved:"
        ),
        size_section(evidence.with_logits, evidence.kept),
        "## Under shift\n",
        paragraph(
            "Here, models and corrections that were fitted to SST are tested on customer reviews. This is only one "
            "task, so our advice does not rest on it. Among the tasks above, 20 Newsgroups by date and TREC QA also "
            "have shifted test sets."
        ),
        shift_section(runs),
    ]
    text += ["## Other settings\n"]
    titles = {
        "5,000": "Training samples: 5,000",
        "mpnet": "all-mpnet-base-v2 (109 million parameters), learning rate 5e-5, bfloat16 autocast",
        "longer": "10 epochs",
        "noisy": "20% wrong training labels",
    }
    header = ["Task, loss", "samples", "error %", "NLL", "NLL, T", "NLL, auto", "ECE %", "ECE %, T"]
    for name, own in other_settings(records).items():
        text += [f"{titles[name]}:\n", rows_table(header, setting_rows(own)), loss_gains(own)]
    if longer:
        text += [
            "## Which epoch to keep\n",
            paragraph(
                "The runs of 10 epochs were measured after each epoch on the held-out samples and on the test set. "
                "Each cell has the epoch that the held-out metric selects, its test error in %, and its NLL after T."
            ),
            rows_table(["Task, loss", *SELECTIONS], selection_rows(longer)),
            "The difference over tasks, with 95% intervals:\n",
            selection_differences(longer),
            paragraph(
                "Selection by `nll_refined` has the lowest mean NLL after T, and neither interval contains 0. With "
                "cross-entropy, `nll` selects an epoch that is too early, which also raises the error. So "
                "`recipes/configs/own_texts.yaml` selects by `nll_refined`."
            ),
        ]
    text.append(older_sections())
    return "\n".join(text)


def ood_page(records: list[dict]) -> str:
    runs = [run for run in usual(records) if "out_of_scope" in run]
    rows = []
    for loss in LOSSES:
        own = [run for run in runs if run["loss"] == loss]
        for score in ("confidence", "energy") if own else ():
            cells = []
            for correction in ("none", "temperature", "vector"):
                for position in (0, 1):
                    values = [100 * run["out_of_scope"][correction][score][position] for run in own]
                    cells.append(f"{mean(values):.1f}")
            rows.append([f"{NAMES.get(loss, loss)}, {score}", str(len(own)), *cells])
    header = ["Loss, score", "seeds"]
    header += [f"{name}, {c}" for c in ("nothing", "T", "vector") for name in ("AUROC", "FPR")]
    return "\n".join(
        [
            "# Out-of-scope texts\n",
            paragraph(
                "**A correction makes the energy a much better score, and the confidence a worse one.** The energy "
                "after vector scaling is about as good as the confidence without a correction."
            ),
            paragraph(
                "clinc150 has questions to a voice assistant with 150 intents. Can a model detect the 1,000 questions "
                "in its test set that have none of these intents? The table has the AUROC, and the false positive "
                "rate (FPR) at a true positive rate of 95%, both in %; out of scope is the positive class. The score "
                "is either the confidence (the maximum probability) or the energy (minus the log of the sum of the "
                "exponentials of the logits). The corrections are fitted to 1,000 in-scope held-out samples."
            ),
            rows_table(header, rows),
            paragraph(
                "These models are undertrained (1,500 samples, 3 epochs, errors of about 55%), and this is only one "
                "task, so the numbers say little about good models. The two losses differ little; what matters is the "
                "score and the correction. The appendix describes [how the models were "
                "trained](fine_tuning_appendix.md#how-it-was-run), and `python recipes/papers/many_tasks_page.py` "
                "writes this page. For images, see [CIFAR-10](cifar10.md)."
            ),
        ]
    )


def main() -> None:
    evidence = Evidence(load_records())
    regret_figure(evidence, DOCS / "fine_tuning_regret.png")
    (DOCS / "fine_tuning.md").write_text(main_page(evidence), encoding="utf-8")
    (DOCS / "fine_tuning_appendix.md").write_text(appendix(evidence), encoding="utf-8")
    (DOCS / "text_ood.md").write_text(ood_page(evidence.records), encoding="utf-8")


if __name__ == "__main__":
    main()
