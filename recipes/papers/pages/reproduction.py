"""Write our results beside the papers', tests of the papers' claims over seeds, and figures, from the records.

    python -m papers.pages.reproduction [--record cifar10 out/reproduce/cifar10]

This takes seconds. `--record` first adds the finished runs below the given folders to the records of an experiment, or
of a dataset in the papers' tables.
"""

import argparse
from pathlib import Path

from hf_focal.reports.wording.markdown_tables import MISSING, rows_table
from papers.figures.dynamics_figures import dynamics_figure, reliability_by_epoch, write_dynamics_comparison
from papers.pages.page import DOCS, draw_panels, fill_page
from papers.pages.paper_runs import (
    CLASSIFICATION,
    DYNAMICS,
    EXPERIMENTS,
    FINE_TUNED,
    LOSSES,
    OTHER_ROWS,
    Experiment,
    read_runs,
    record_runs,
)
from papers.pages.paper_tables import TABLES, Runs, beside_the_paper, read_paper_tables, read_rows, write_comparison
from papers.pages.records import bins_of
from papers.pages.seed_statistics import TRANSLATION_CLAIMS, calibration_error_bars, claims_table, temperatures_table

# The losses in the figure of gradient norms; histograms of more losses would hide each other.
WITH_GRADIENTS = ("cross_entropy", "focal_1", "focal_2", "focal_3")
# Experiment -> the losses of its figure, with short titles.
COMPARED = {
    "20_newsgroups": {"cross_entropy": "cross-entropy", "flsd_53": "FLSD-53", "adafocal_20": "AdaFocal"},
    "sst_binary": {
        "cross_entropy": "cross-entropy",
        "label_smoothing_0.05": "label smooth.",
        "focal_3": "focal, γ = 3",
    },
}
# The columns of the papers' tables that only the CSV file of an experiment has.
OTHER_COLUMNS = [
    (metric, stage)
    for metric in ("ece_em", "adaece", "classwise_ece", "nll", "mce", "top1", "top5", "s99_fraction", "s99_accuracy")
    for stage in ("pre_t", "post_t")
]
CAPTION = (
    "*Means over the seeds; lines are 90% intervals of a mean, for two seeds or more. Figure 6 of the blog post of\n"
    "Mukhoti et al. has intervals over the test samples of one run instead.*"
)


def section_of(name: str, runs: Runs) -> str:
    """Return the table of an experiment beside the paper's, and write the CSV file and the figure that it names."""
    experiment = EXPERIMENTS[name]
    cells = {
        path.stem: [
            cell for table in read_paper_tables(path).values() for cell in table if cell.name[:2] == experiment.row
        ]
        for path in TABLES.glob("*.csv")
    }
    columns = [("ece", "pre_t"), ("ece", "post_t")]
    columns += [("bleu", "pre_t"), ("bleu", "post_t")] if experiment.is_translation else [("error", "pre_t")]
    text = beside_the_paper(runs, cells["mukhoti2020"], columns, LOSSES)
    if not experiment.is_translation:
        every_cell = [*cells["mukhoti2020"], *(cell for cell in cells["adafocal2022"] if cell.metric == "ece_em")]
        write_comparison(DOCS / f"{name}.csv", runs, every_cell, [*columns, *OTHER_COLUMNS], LOSSES)
        text += f"\n[{name}.csv]({name}.csv) also has AdaECE, NLL, MCE, bins of equal mass, and accuracies.\n"
    if name not in FINE_TUNED and not experiment.is_translation:
        calibration_error_bars(runs, LOSSES, DOCS / f"{name}_errors.png")
        text += f"\n![Three calibration errors of each loss, before and after T]({name}_errors.png)\n\n{CAPTION}\n"
    if any("bleu" in record for by_seed in runs.values() for record in by_seed.values()):
        claims = claims_table({experiment.title: runs}, claims=TRANSLATION_CLAIMS)
        text += f"\n{claims}\n{temperatures_table(runs, LOSSES)}"
    return text


def other_rows() -> str:
    """Return a section for each of `OTHER_ROWS` that has runs."""
    sections = [
        f"### {experiment.title}\n\n{section_of(name, runs)}"
        for name, experiment in OTHER_ROWS.items()
        if (runs := read_runs(name))
    ]
    return "\n".join(sections) or "There are no runs yet."


def runs_of_rows() -> str:
    """Return a table of what was run of each row of the papers' tables: the setting, the losses, and the seeds."""
    printed: dict[tuple[str, str], set[str]] = {}
    for path in sorted(TABLES.glob("*.csv")):
        for cells in read_paper_tables(path).values():
            for cell in cells:
                printed.setdefault(cell.name[:2], set()).add(cell.loss)
    lines = []
    for row, printed_losses in printed.items():
        experiments = [
            (experiment, read_runs(name)) for name, experiment in EXPERIMENTS.items() if experiment.row == row
        ]
        with_runs = [(experiment, runs) for experiment, runs in experiments if runs]
        lines += [row_cells(experiment, runs, printed_losses) for experiment, runs in with_runs]
        if not with_runs:
            is_configured = row[1] in read_rows()["datasets"].get(row[0], {"models": {}})["models"]
            why = "configured, never run: needs a GPU" if is_configured else "no recipe"
            lines.append(["/".join(row), why, f"0 of {len(printed_losses)}", MISSING, MISSING])
    titles = ["Row: dataset/network", "Setting", "losses", "seeds", "Not run"]
    return rows_table(titles, lines, texts=("Setting", "Not run"))


def row_cells(experiment: Experiment, runs: Runs, printed_losses: set[str]) -> list[str]:
    """Return the cells of an experiment with runs in the table of `runs_of_rows`."""
    # AdaFocal's updates have names of their own.
    done = {loss for loss in printed_losses if any(name in (loss, f"{loss}_20") for name in runs)}
    seeds = sorted({len(by_seed) for by_seed in runs.values()})
    return [
        "/".join(experiment.row),
        f"[{experiment.setting}]({experiment.page})",
        f"{len(done)} of {len(printed_losses)}",
        str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
        "; ".join(LOSSES[loss] for loss in LOSSES if loss in printed_losses - done) or MISSING,
    ]


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


def draw_compared(name: str, runs: Runs) -> None:
    """Draw the reliability diagrams of an experiment's losses in `COMPARED`, with the first seed that all have."""
    losses = COMPARED[name]
    if losses.keys() <= runs.keys():
        seed = min(set.intersection(*(set(runs[loss]) for loss in losses)))
        draw_panels({title: bins_of(runs[loss][seed]) for loss, title in losses.items()}, DOCS / f"{name}.png")


def write_page() -> None:
    runs = {name: read_runs(name) for name in EXPERIMENTS}
    for name, experiment in EXPERIMENTS.items():
        if name not in OTHER_ROWS:
            text = section_of(name, runs[name]) if runs[name] else "There are no runs yet."
            fill_page(DOCS / experiment.page, {name: text})
    for name in COMPARED:
        draw_compared(name, runs[name])
    tested = {
        experiment.title: runs[name]
        for name, experiment in (CLASSIFICATION | OTHER_ROWS).items()
        if runs[name] and not experiment.is_translation
    }
    fill_page(DOCS / "reproduction.md", {"rows": other_rows(), "tests": claims_table(tested)})
    fill_page(DOCS / "claims.md", {"runs": runs_of_rows()})
    for name in DYNAMICS:
        draw_dynamics(read_runs(name), DOCS / name)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", default=[], action="append", metavar=("EXPERIMENT", "FOLDER"))
    for name, *folders in parser.parse_args(argv).record:
        for folder in folders:
            record_runs(name, Path(folder))
    write_page()


if __name__ == "__main__":
    main()
