"""Run the rows of a paper's table, one run after the other.

    python recipes/papers/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
        --seeds 1 2 3 --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run starts the recipe of its row, with the row's configuration, on the first GPU or on the CPU. Running the same
command again goes on: the recipes reuse their finished runs, refuse runs of other settings, and resume the others. To
use several GPUs, start the command once for each of them, with its own `CUDA_VISIBLE_DEVICES` and its own rows or
seeds. `--dry_run` prints the plan. The papers' printed tables are in `recipes/papers/tables`;
`papers.pages.reproduction` writes our results beside them.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_focal.trainer.recipe_arguments import parse_arguments
from papers import checks as check
from papers.argument_fields import argument
from papers.pages.paper_tables import TABLES, PaperCell, read_paper_tables, read_rows, row_entry

RECIPES = Path(__file__).resolve().parent
# Arguments that overrides must not change.
RESERVED = ("config", "loss", "losses", "seed", "output_dir")


@dataclass
class ReproduceArguments:
    """The tables, and the parts of these tables to run."""

    table: list[str] = field(metadata={"help": "Paper and number: mukhoti2020:1. Several tables share runs."})
    output_dir: str = field(metadata={"help": "Runs are saved in DATASET/MODEL/LOSS/seed_N in it."})
    rows: list[str] | None = argument(None, "20_newsgroups/gp_cnn, or 20_newsgroups for all its models. Default: all.")
    losses: list[str] | None = argument(None, "Losses, under the table's names. Default: all.")
    seeds: list[int] = argument([1, 2, 3], "Seeds of the runs of each cell.")
    data: list[str] = argument([], "DATASET=FOLDER of parquet files, to use instead of the Hub.")
    overrides: list[str] = argument([], "NAME=VALUE, arguments of every run: num_train_epochs=15.")
    dry_run: bool = argument(False, "Only print the plan.")

    def __post_init__(self):
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, one at least, got {self.seeds}")


@dataclass(frozen=True)
class CellRun:
    """The run of one table cell with one seed.

    `name` is dataset, model, loss, and seed, as in the table. `options` are the arguments of the script `recipe`,
    without output_dir, which is `folder`.
    """

    name: str
    folder: Path
    recipe: Path
    options: Mapping[str, Any]

    @property
    def is_finished(self) -> bool:
        return (self.folder / "report" / "metrics.json").is_file()

    def command(self) -> list[str]:
        options = {**self.options, "output_dir": self.folder}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [sys.executable, str(self.recipe), *arguments]


def plan_runs(arguments: ReproduceArguments) -> list[CellRun]:
    """List the runs, one seed after the other: an interruption leaves complete tables with fewer seeds."""
    cells, rows_file = select_cells(arguments), read_rows(TABLES)
    data, overrides = named_values("data", arguments.data), named_values("overrides", arguments.overrides)
    for dataset in data:
        check.choice("data", dataset, [name for name, entry in rows_file["datasets"].items() if "files" in entry])
    for name in overrides:
        if name in RESERVED:
            raise ValueError(f"overrides must not name {name}, which is the run's own, got {name}={overrides[name]}")
    runs = []
    for seed in arguments.seeds:
        for dataset, model, loss in dict.fromkeys(cell.name for cell in cells):
            entry = row_entry(rows_file, dataset, model)
            files = data_files(entry, dataset, data)
            options = {"config": RECIPES / "configs" / entry["config"], **files}
            run = CellRun(
                f"{dataset}/{model} {loss} seed {seed}",
                folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
                recipe=RECIPES / entry["recipe"],
                options=options | options_of(entry, model, loss, overrides, from_hub=not files) | {"seed": seed},
            )
            runs.append(run)
    return runs


def select_cells(arguments: ReproduceArguments) -> list[PaperCell]:
    """Return the cells of the tables that the arguments `table`, `rows`, and `losses` select."""
    known = {
        f"{path.stem}:{number}": cells
        for path in sorted(TABLES.glob("*.csv"))
        for number, cells in read_paper_tables(path).items()
    }
    for table in arguments.table:
        check.choice("table", table, list(known))
    cells = [cell for table in arguments.table for cell in known[table]]
    choices = {"rows": [name for cell in cells for name in cell.row_names], "losses": [cell.loss for cell in cells]}
    for argument_name, names in choices.items():
        for name in getattr(arguments, argument_name) or ():
            check.choice(argument_name, name, list(dict.fromkeys(names)))
    selected = []
    for table in arguments.table:
        matching = [
            cell
            for cell in known[table]
            if (arguments.rows is None or set(cell.row_names) & set(arguments.rows))
            and (arguments.losses is None or cell.loss in arguments.losses)
        ]
        if not matching:
            raise ValueError(f"rows and losses must leave a cell of {table}, got {arguments.rows}, {arguments.losses}")
        selected += matching
    return selected


def data_files(entry: Mapping[str, Any], dataset: str, data: Mapping[str, str]) -> dict[str, Path]:
    """Return the data files of a dataset's row, given the folders of `data`; {} if the data come from the Hub."""
    if dataset not in data:
        if "hub" not in entry:
            raise ValueError(f"data must have {dataset}=FOLDER, as no copy on the Hub is known, got {list(data)}")
        return {}
    files = {key: Path(data[dataset]).absolute() / file for key, file in entry["files"].items()}
    for file in files.values():
        if not file.is_file():
            raise ValueError(
                f"data must be a folder with {', '.join(entry['files'].values())} for {dataset}, got "
                f"{data[dataset]!r}, which has no {file.name}"
            )
    return files


def options_of(
    entry: Mapping[str, Any], model: str, loss: str, overrides: Mapping[str, str], from_hub: bool
) -> dict[str, Any]:
    """Return the arguments of a row's runs with a loss, besides their configuration, files, and seed."""
    loss_options = entry.get("options", {})
    options = {**(entry["hub"] if from_hub else {}), **entry["model"]}
    options |= loss_options.get(loss, {}) | loss_options.get(f"{model} {loss}", {}) | overrides
    if (devices := entry.get("devices", 1)) > 1:  # one process accumulates the batches of as many
        configured = yaml.safe_load((RECIPES / "configs" / entry["config"]).read_text(encoding="utf-8"))
        steps = (configured | options).get("gradient_accumulation_steps", 1)
        options["gradient_accumulation_steps"] = devices * int(steps)
    return options | {"loss": entry["losses"][loss]}


def named_values(argument: str, texts: list[str]) -> dict[str, str]:
    """Parse texts of the form NAME=VALUE into a dictionary. Error messages call the user's argument `argument`."""
    mapping = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in mapping:
            raise ValueError(f"{argument} must be different names, each with =VALUE, got {text!r}")
        mapping[name] = value
    return mapping


def main(argv: list[str]) -> int:
    """Run the plan. Return 1 if a run failed, and 0 otherwise."""
    (arguments,) = parse_arguments((ReproduceArguments,), argv, description=__doc__.splitlines()[0])
    runs = plan_runs(arguments)
    if arguments.dry_run:
        for run in runs:
            print(f"{'finished' if run.is_finished else 'to run':10} {run.name}")
        unfinished = [run for run in runs if not run.is_finished]
        print(f"\n{len(unfinished)} of {len(runs)} runs to do.")
        if unfinished:
            print(f"\nThe first of them:\n  {shlex.join(unfinished[0].command())}")
        return 0
    # One GPU, because DataParallel changes the loss; one thread, because threads that wait for others are slow.
    environment = {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", **os.environ, "TQDM_DISABLE": "1"}
    failed = 0
    for run in runs:
        print(f"{run.name}: starts", flush=True)
        code = subprocess.run(run.command(), env=environment, stdin=subprocess.DEVNULL, check=False).returncode
        failed += code != 0
        print(f"{run.name}: {'finished' if code == 0 else f'exit code {code}'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the recipe that runs, too
    sys.exit(main(sys.argv[1:]))
