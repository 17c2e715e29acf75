"""Run the rows of a paper's table, one run after the other.

    python recipes/papers/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
        --seeds 1 2 3 --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run starts the recipe of its row, with the row's configuration, on the first GPU or on the CPU, and adds what the
recipe prints to `launch.log` in the run's folder. Running the same command again skips finished runs, and the recipes
resume the others. To use several GPUs, start the command once for each of them, with its own `CUDA_VISIBLE_DEVICES`
and its own rows or seeds. `--dry_run` prints the plan. The papers' printed tables are in `recipes/papers/tables`;
`papers.pages.reproduction` writes our results beside them.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

import yaml

from hf_focal.cli.recipe_arguments import parse_arguments
from hf_focal.utils.atomic_write import write_whole
from papers import checks as check
from papers.pages.paper_tables import TABLES, PaperCell, read_paper_tables, read_rows, row_entry
from papers.runs.output_folders import contents, refuse_other_settings

RECIPES = Path(__file__).resolve().parent
# Arguments that overrides must not change.
RESERVED = ("config", "loss", "losses", "seed", "output_dir")


@dataclass
class ReproduceArguments:
    """The tables, and the parts of these tables to run."""

    table: list[str] = field(metadata={"help": "Paper and number: mukhoti2020:1. Several tables share runs."})
    output_dir: str = field(metadata={"help": "Runs are saved in DATASET/MODEL/LOSS/seed_N in it."})
    rows: list[str] | None = field(
        default=None, metadata={"help": "20_newsgroups/gp_cnn, or 20_newsgroups for all its models. Default: all."}
    )
    losses: list[str] | None = field(default=None, metadata={"help": "Losses, under the table's names. Default: all."})
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"help": "Seeds of the runs of each cell."})
    data: list[str] = field(
        default_factory=list, metadata={"help": "DATASET=FOLDER of parquet files, to use instead of the Hub."}
    )
    overrides: list[str] = field(
        default_factory=list, metadata={"help": "NAME=VALUE, arguments of every run: num_train_epochs=15."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Only print the plan."})

    def __post_init__(self):
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, one at least, got {self.seeds}")


@dataclass(frozen=True)
class CellRun:
    """The run of one table cell with one seed.

    `name` is dataset, model, loss, and seed, as in the table. `folder`, the run's output_dir, also holds `launch.log`
    and `launch.json`. `options` are the arguments of the script `recipe`, without output_dir. `settings` identify the
    run: its arguments, and digests of its files instead of their location.
    """

    name: str
    folder: Path
    recipe: Path
    options: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def is_finished(self) -> bool:
        return (self.folder / "report" / "metrics.json").is_file()

    def command(self) -> list[str]:
        options = {**self.options, "output_dir": self.folder}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [sys.executable, str(self.recipe), *arguments]

    def start(self) -> str | None:
        """Run the recipe to its end. Return its error if the run is not finished, or else None."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "launch.json", json.dumps(self.settings, indent=2) + "\n")
        # One GPU, because DataParallel changes the loss; one thread, because threads that wait for others are slow.
        environment = {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", **os.environ, "TQDM_DISABLE": "1"}
        with (self.folder / "launch.log").open("ab+") as log:
            before = log.seek(0, os.SEEK_END)
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            code = subprocess.run(self.command(), env=environment, check=False, **options).returncode
            if self.is_finished:
                return None
            log.seek(before)
            lines = log.read().decode(errors="replace").split("\n")[::-1]
        # An error may be followed by notes.
        message = next((line for line in lines if "rror: " in line), next(filter(None, lines), "no output"))
        return f"exit code {code}: {shorten(message, 200)}"


def plan_runs(arguments: ReproduceArguments) -> list[CellRun]:
    """List the runs, one seed after the other: an interruption leaves complete tables with fewer seeds."""
    cells, rows_file = select_cells(arguments), read_rows(TABLES)
    data, overrides = named_values("data", arguments.data), named_values("overrides", arguments.overrides)
    for dataset in data:
        check.choice("data", dataset, [name for name, entry in rows_file["datasets"].items() if "files" in entry])
    for name in overrides:
        if name in RESERVED:
            raise ValueError(f"overrides must not name {name}, which is the run's own, got {name}={overrides[name]}")
    names = dict.fromkeys(cell.name for cell in cells)
    entries = {name[:2]: row_entry(rows_file, *name[:2]) for name in names}
    files = {row: data_files(entry, row[0], data) for row, entry in entries.items()}
    digests = {
        row: contents({name: str(file) for name, file in row_files.items()}) for row, row_files in files.items()
    }
    runs = []
    for seed in arguments.seeds:
        for dataset, model, loss in names:
            row = dataset, model
            options = {"config": RECIPES / "configs" / entries[row]["config"], **files[row]}
            settings = options_of(entries[row], model, loss, overrides, from_hub=not files[row]) | {"seed": seed}
            run = CellRun(
                f"{dataset}/{model} {loss} seed {seed}",
                folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
                recipe=RECIPES / entries[row]["recipe"],
                options=options | settings,
                settings=settings | contents({"config": str(options["config"])}) | digests[row],
            )
            if run.is_finished and (run.folder / "launch.json").is_file():
                refuse_other_settings(run.folder, run.settings, "launch.json")
            runs.append(run)
    return runs


def select_cells(arguments: ReproduceArguments) -> list[PaperCell]:
    """Return the cells of the tables that the arguments `table`, `rows`, and `losses` select."""
    papers = {path.stem: read_paper_tables(path) for path in sorted(TABLES.glob("*.csv"))}
    known = {f"{paper}:{number}": cells for paper, tables in papers.items() for number, cells in tables.items()}
    for table in arguments.table:
        check.choice("table", table, list(known))
    cells = [cell for table in arguments.table for cell in known[table]]
    for row in arguments.rows or ():
        check.choice("rows", row, list(dict.fromkeys(name for cell in cells for name in cell.row_names)))
    for loss in arguments.losses or ():
        check.choice("losses", loss, list(dict.fromkeys(cell.loss for cell in cells)))
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
    unfinished = [run for run in runs if not run.is_finished]
    if arguments.dry_run:
        for run in runs:
            print(f"{'finished' if run.is_finished else 'to run':10} {run.name}")
        print(f"\n{len(unfinished)} of {len(runs)} runs to do.")
        if unfinished:
            print(f"\nThe first of them:\n  {shlex.join(unfinished[0].command())}")
        return 0
    failed = 0
    for run in unfinished:
        print(f"{run.name}: started, see {run.folder / 'launch.log'}", flush=True)
        problem = run.start()
        failed += problem is not None
        print(f"{run.name}: {problem or 'finished'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the recipe that runs, too
    sys.exit(main(sys.argv[1:]))
