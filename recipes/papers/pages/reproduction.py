"""Write tables of our results beside the papers' results, tests over seeds, and figures, from the committed runs.

    python -m papers.pages.reproduction [--record cifar10 out/reproduce/cifar10]

This takes seconds. The numbers of each run are in recipes/papers/records/TASK.csv. `--record` adds the finished runs
below the given folders to the runs of a task, or of a dataset in the papers' tables, which are in
`recipes/papers/tables`.
"""

import argparse
import functools
import re
from pathlib import Path

from matplotlib.figure import Figure

from hf_focal import losses
from hf_focal.calibration.calibration_fit import scaling_name
from hf_focal.metrics import ReliabilityBins
from hf_focal.reports import RunResult
from hf_focal.reports.markdown_tables import MISSING, rows_table
from hf_focal.reports.reliability_figures import draw_reliability
from papers import checks as check
from papers.figures.dynamics_figures import dynamics_figure, reliability_by_epoch, write_dynamics_comparison
from papers.losses import published_mmce  # noqa: F401 (registers the loss)

from .paper_tables import TABLES, Runs, beside_the_paper, read_paper_tables, read_rows, row_of_run, write_comparison
from .records import add_records, bins_of, read_records, record_of
from .seed_statistics import TRANSLATION_CLAIMS, calibration_error_bars, claims_table, temperatures_table
from .tables import DOCS, RECORDS, fill_page

# Task -> its title, its row in the papers' tables, and the page with its tables.
CLASSIFICATION = {
    "20_newsgroups": ("20 Newsgroups", ("20_newsgroups", "gp_cnn"), "newsgroups.md"),
    "sst_binary": ("SST", ("sst_binary", "tree_lstm"), "sst.md"),
    "cifar10_overfit": ("CIFAR-10, 5,000 images", ("cifar10", "resnet50"), "cifar10.md"),
}
# Runs that have a table beside the paper, but are left out of the tests of its claims.
FINE_TUNED = {"20_newsgroups_encoder": ("20 Newsgroups, encoder", ("20_newsgroups", "bert"), "newsgroups.md")}
TRANSLATION = {
    "multi30k": ("Multi30k, 8 epochs", ("wmt14_en_de", "transformer"), "multi30k.md"),
    "multi30k_20_epochs": ("Multi30k, 20 epochs", ("wmt14_en_de", "transformer"), "multi30k.md"),
    "multi30k_28_epochs": ("Multi30k, 28 epochs", ("wmt14_en_de", "transformer"), "multi30k.md"),
}
# The other rows of the papers' tables, in the papers' settings; those with runs have a section in reproduction.md.
_HERE = {("20_newsgroups", "gp_cnn"), ("sst_binary", "tree_lstm")}
ROWS = {
    f"{dataset}_{model}": (f"{dataset}/{model}", (dataset, model), "reproduction.md")
    for dataset, entry in read_rows()["datasets"].items()
    for model in entry["models"]
    if (dataset, model) not in _HERE
}
TASKS = CLASSIFICATION | FINE_TUNED | TRANSLATION | ROWS
# How our runs of a task differ from the paper's row; the others have its setting, or were never run.
SMALL = {
    "cifar10_overfit": "small: ResNet-20, 5,000 images",
    "20_newsgroups_encoder": "small: another encoder",
    "multi30k": "small: Multi30k, 8 epochs",
    "multi30k_20_epochs": "small: Multi30k, 20 epochs",
    "multi30k_28_epochs": "small: Multi30k, 28 epochs",
}
# Runs with `--dynamics`, which have figures instead of tables.
DYNAMICS = {"cifar10_dynamics": ("CIFAR-10, dynamics", ("cifar10", "resnet50"), "dynamics.md")}
# The losses in the figure of gradient norms; histograms of more losses would hide each other.
WITH_GRADIENTS = ("cross_entropy", "focal_1", "focal_2", "focal_3")
LOSSES = {
    "cross_entropy": "cross-entropy",
    "brier": "Brier",
    "mmce": "MMCE, as the papers' code computes it",
    "published_mmce_lam_8": "MMCE, as the papers' code computes it, λ = 8",
    "mmce_lam_8_weighted_true": "MMCE by definition, weighted, λ = 8",
    "mmce_weighted_true": "MMCE by definition, weighted, λ = 2",
    "label_smoothing_0.05": "label smoothing 0.05",
    "label_smoothing_0.1": "label smoothing 0.1",
    "focal_1": "focal, γ = 1",
    "focal_2": "focal, γ = 2",
    "focal_3": "focal, γ = 3",
    "focal_gamma_4": "focal, γ = 4",
    "focal_gamma_5": "focal, γ = 5",
    "flsc_532": "FLSc-532",
    "flsc_531": "FLSc-531",
    "focal_schedule_5_3_2": "γ = 5, 3, 2, switched after 2/7 and 5/7",
    "focal_schedule_5_3_1": "γ = 5, 3, 1, switched after 2/7 and 5/7",
    "flsd_532": "FLSD-532",
    "flsd_53": "FLSD-53",
    "dual_focal_gamma_5": "dual focal, γ = 5",
    "adafocal": "AdaFocal, γ updated every epoch",
    "adafocal_20": "AdaFocal, γ updated every 20 steps",
    "adafocal_40": "AdaFocal, γ updated every 40 steps",
    "adafocal_10": "AdaFocal, γ updated every 10 steps",
}
# Task -> the losses of its figure, with short titles.
COMPARED = {
    "20_newsgroups": {"cross_entropy": "cross-entropy", "flsd_53": "FLSD-53", "adafocal_20": "AdaFocal"},
    "sst_binary": {
        "cross_entropy": "cross-entropy",
        "label_smoothing_0.05": "label smooth.",
        "focal_3": "focal, γ = 3",
    },
}

# The columns of the papers' tables that only the CSV file of a task has.
OTHER_COLUMNS = [
    (metric, stage)
    for metric in ("ece_em", "adaece", "classwise_ece", "nll", "mce", "top1", "top5", "s99_fraction", "s99_accuracy")
    for stage in ("pre_t", "post_t")
]
CAPTION = (
    "*Means over the seeds; lines are 90% intervals of a mean, for two seeds or more. Figure 6 of the blog post of\n"
    "Mukhoti et al. has intervals over the test samples of one run instead.*"
)


@functools.cache
def printed_names(dataset: str) -> dict[str, str]:
    """Return the names of the losses in the papers' tables of a dataset, by their configurations."""
    rows = read_rows()
    specs = rows["losses"] | rows["datasets"][dataset].get("losses", {})
    names = {str(losses.LossConfig.parse(spec)): name for name, spec in specs.items()}
    # With thousands of classes, PyTorch's convention is the papers'.
    return names | {"label_smoothing:alpha=0.1": "label_smoothing_0.1"}


def name_of(task: str, record: dict) -> str:
    """Name the loss of a run as in the papers' tables or, if they do not have the loss, by its configuration.

    If AdaFocal updates γ every few steps, the number of steps is appended.
    """
    loss = str(losses.LossConfig.parse(record["loss"]))
    steps = record["settings"].get("gamma_update_steps")
    name = printed_names((TASKS | DYNAMICS)[task][1][0]).get(loss, re.sub(r"[^\w.]+", "_", loss))
    return name + (f"_{steps}" if steps else "")


def run_name(task: str, record: dict) -> str:
    return f"{name_of(task, record)}_s{record['seed']}"


def task_of(name: str, record: dict) -> str:
    """Return the task of a run that was recorded under a task's name, or under that of a dataset in rows.yaml."""
    if name not in read_rows()["datasets"]:
        check.choice("record", name, [*TASKS, *DYNAMICS, *read_rows()["datasets"]])
        return name
    row = row_of_run(name, record["settings"])
    return next((task for task in CLASSIFICATION if task == name and row in _HERE), "_".join(row))


def record_runs(name: str, folder: Path) -> None:
    """Write a record of each finished run below a folder to the runs of a task, or of the rows of a dataset."""
    new: dict[str, list[dict]] = {}
    for result in sorted(folder.rglob("report/metrics.json")):
        record = record_of(result.parents[1])
        new.setdefault(task_of(name, record), []).append(record)
    for task, records in new.items():
        add_records(RECORDS / f"{task}.csv", records, functools.partial(run_name, task))
        print(f"{task}: {', '.join(run_name(task, record) for record in records)}")


def read_runs(task: str) -> Runs:
    """Read the records of a task: loss -> seed -> the run's record."""
    runs: dict[str, dict] = {}
    for record in read_records(RECORDS / f"{task}.csv"):
        runs.setdefault(name_of(task, record), {})[record["seed"]] = record
    return runs


def is_translation(task: str) -> bool:
    return TASKS[task][1][0] == "wmt14_en_de"


def section_of(task: str, runs: Runs) -> str:
    """Return the table of a task's runs beside the paper's, and write the CSV file and the figure that it names."""
    title, row, _ = TASKS[task]
    cells = {
        path.stem: [cell for table in read_paper_tables(path).values() for cell in table if cell.name[:2] == row]
        for path in TABLES.glob("*.csv")
    }
    columns = [("ece", "pre_t"), ("ece", "post_t")]
    columns += [("bleu", "pre_t"), ("bleu", "post_t")] if is_translation(task) else [("error", "pre_t")]
    text = beside_the_paper(runs, cells["mukhoti2020"], columns, LOSSES)
    if not is_translation(task):
        every = [*cells["mukhoti2020"], *(cell for cell in cells["adafocal2022"] if cell.metric == "ece_em")]
        write_comparison(DOCS / f"{task}.csv", runs, every, [*columns, *OTHER_COLUMNS], LOSSES)
        text += f"\n[{task}.csv]({task}.csv) also has AdaECE, NLL, MCE, bins of equal mass, and accuracies.\n"
    if task not in FINE_TUNED and not is_translation(task):
        calibration_error_bars(runs, LOSSES, DOCS / f"{task}_errors.png")
        text += f"\n![Three calibration errors of each loss, before and after T]({task}_errors.png)\n\n{CAPTION}\n"
    if any("bleu" in record for of_seeds in runs.values() for record in of_seeds.values()):
        text += f"\n{claims_table({title: runs}, claims=TRANSLATION_CLAIMS)}\n{temperatures_table(runs, LOSSES)}"
    return text


def other_rows() -> str:
    """Write the sections of `ROWS`."""
    runs = {task: read_runs(task) for task in ROWS}
    sections = [f"### {ROWS[task][0]}\n\n{section_of(task, of_task)}" for task, of_task in runs.items() if of_task]
    return "\n".join(sections) or "There are no runs yet."


def runs_of_rows() -> str:
    """Write the table of what was run of each row of the papers' tables: the setting, the losses, and the seeds."""
    printed: dict[tuple[str, str], set[str]] = {}
    for path in sorted(TABLES.glob("*.csv")):
        for cells in read_paper_tables(path).values():
            for cell in cells:
                printed.setdefault(cell.name[:2], set()).add(cell.loss)
    lines = []
    for row, losses_of_row in printed.items():
        entry = read_rows()["datasets"].get(row[0], {"models": {}})
        tasks = {task: read_runs(task) for task in TASKS if TASKS[task][1] == row}
        for task, runs in tasks.items():
            if runs:
                setting = SMALL.get(task, "the paper's")
                # AdaFocal's updates have names of their own.
                done = {loss for loss in losses_of_row if any(name in (loss, f"{loss}_20") for name in runs)}
                seeds = sorted({len(of_loss) for of_loss in runs.values()})
                numbers = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
                missing = "; ".join(LOSSES[loss] for loss in LOSSES if loss in losses_of_row - done)
                page = TASKS[task][2]
                link = f"[{setting}]({page})"
                lines.append(
                    ["/".join(row), link, f"{len(done)} of {len(losses_of_row)}", numbers, missing or MISSING]
                )
        if not any(tasks.values()):
            why = "configured, never run: needs a GPU" if row[1] in entry["models"] else "no recipe"
            lines.append(["/".join(row), why, f"0 of {len(losses_of_row)}", MISSING, MISSING])
    titles = ["Row: dataset/network", "Setting", "losses", "seeds", "Not run"]
    return rows_table(titles, lines, texts=("Setting", "Not run"))


def draw_dynamics(runs: Runs, folder: Path) -> None:
    """Draw the figures of runs with `--dynamics`, seed 1 of each loss, and those of cross-entropy alone."""
    histories = {}
    for loss, title in LOSSES.items():
        if loss in runs:
            history = runs[loss][1]["dynamics_history"]
            if loss not in WITH_GRADIENTS:
                history = [{name: entry[name] for name in entry if name != "gradient_norms"} for entry in history]
            histories[title.partition(", γ updated")[0]] = history
    write_dynamics_comparison(folder, histories)
    history = histories["cross-entropy"]
    dynamics_figure(history).savefig(folder / "cross_entropy.png", dpi=150)
    diagrams = reliability_by_epoch([entry for entry in history if "train_bins" in entry], "train")
    diagrams.savefig(folder / "cross_entropy_train.png", dpi=150)


def draw_panels(panels: dict[str, ReliabilityBins], path: Path) -> None:
    """Draw reliability diagrams side by side, legible on a phone."""
    figure = Figure(figsize=(5.2, 2.7), layout="constrained")
    for axes, (title, bins) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        draw_reliability(axes, bins, font_size=11)
        axes.set_title(title, fontsize=12)
        axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=11)
    figure.supxlabel("Confidence", fontsize=12)
    figure.supylabel("Accuracy", fontsize=12)
    figure.savefig(path, dpi=200)


def write_page() -> None:
    tasks = {}
    for task, (title, _, page) in TASKS.items():
        runs = read_runs(task)
        if task not in ROWS:
            fill_page(DOCS / page, {task: section_of(task, runs) if runs else "There are no runs yet."})
        if runs and task in (CLASSIFICATION | ROWS) and not is_translation(task):
            tasks[title] = runs
        if task in COMPARED and COMPARED[task].keys() <= runs.keys():
            seed = min(set.intersection(*(set(runs[loss]) for loss in COMPARED[task])))
            panels = {name: bins_of(runs[loss][seed]) for loss, name in COMPARED[task].items()}
            draw_panels(panels, DOCS / f"{task}.png")
    fill_page(DOCS / "reproduction.md", {"rows": other_rows(), "tests": claims_table(tasks)})
    fill_page(DOCS / "claims.md", {"runs": runs_of_rows()})
    for task in DYNAMICS:
        draw_dynamics(read_runs(task), DOCS / task)
    calibrated = RunResult.load(RECORDS / "calibrate_existing" / "metrics.json")
    panels = {"as trained": calibrated.pre_bins, scaling_name(calibrated.method): calibrated.post_bins}
    draw_panels(panels, DOCS.parent / "guides" / "calibrate_existing.png")
    usual, focal = (RunResult.load(RECORDS / "csv_to_hub" / f"{loss}.json") for loss in ("cross_entropy", "flsd53"))
    panels = {"cross-entropy": usual.pre_bins, "cross-ent., T": usual.post_bins, "FLSD-53, T": focal.post_bins}
    draw_panels(panels, DOCS.parent / "guides" / "csv_to_hub.png")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", default=[], action="append", metavar=("TASK", "FOLDER"))
    for task, *folders in parser.parse_args(argv).record:
        for folder in folders:
            record_runs(task, Path(folder))
    write_page()


if __name__ == "__main__":
    main()
