"""Run the rows of a paper's table, one run after the other.

    python recipes/papers/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
        --seeds 1 2 3 --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run starts the recipe of its row, with the row's configuration, on the first GPU or on the CPU, and adds what the
recipe prints to `launch.log` in the run's folder. Running the same command again skips finished runs and resumes the
other runs. To use several GPUs, start the command once for each of them, with its own `CUDA_VISIBLE_DEVICES` and its
own rows or seeds. `--dry_run` prints the plan. The papers' printed tables are in `recipes/papers/tables`;
recipes/papers/pages/reproduction.py writes our results beside them.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

import yaml

from hf_focal.cli.recipe_arguments import parse_arguments
from hf_focal.utils.atomic_write import write_whole
from papers.pages.paper_tables import TABLES, PaperCell, read_paper_tables, read_rows, row_entry
from papers.runs import checks as check
from papers.runs.arguments import named_values
from papers.runs.command import after_start, run_recipe
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

    Attributes:
        dataset, model, loss: their names in the table.
        seed: the run's seed.
        folder: the run's output_dir, which also holds `launch.log` and `launch.json`.
        recipe: the script of the recipe. A run is finished when the script has written `report/metrics.json`.
        options: the script's arguments, without output_dir.
        settings: JSON values that identify the run: the arguments and the configuration, and digests of the data
            instead of their location.
    """

    dataset: str
    model: str
    loss: str
    seed: int
    folder: Path
    recipe: Path
    options: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.model} {self.loss} seed {self.seed}"

    @property
    def state(self) -> str:
        """The run's state: "finished", "to resume", or "to run"."""
        if (self.folder / "report" / "metrics.json").is_file():
            return "finished"
        return "to resume" if any(self.folder.glob("checkpoint-*")) else "to run"

    def check(self) -> None:
        """Raise `ValueError` if the folder holds a run with other settings."""
        path = self.folder / "launch.json"
        if path.is_file() and self.state != "to run":
            refuse_other_settings(self.folder, json.loads(path.read_text(encoding="utf-8")), self.settings)

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
            if self.state == "finished":
                return None
            log.seek(before)
            lines = log.read().decode(errors="replace").split("\n")[::-1]
        # An error may be followed by notes.
        message = next((line for line in lines if "rror: " in line), next(filter(None, lines), "no output"))
        return f"exit code {code}: {shorten(message, 200)}"


@dataclass(frozen=True)
class Plan:
    """The cells of each table, the runs that produce the cells, and rows without a recipe."""

    tables: Mapping[str, Sequence[PaperCell]]
    runs: Sequence[CellRun]
    without_recipe: Sequence[str]
    dry_run: bool


def prepare(argv: list[str]) -> Plan:
    """Check the command line and plan the runs."""
    (arguments,) = parse_arguments((ReproduceArguments,), argv, description=__doc__.splitlines()[0])
    tables = select_cells(arguments)
    rows_file = read_rows(TABLES)
    data, overrides = named_values("data", arguments.data), named_values("overrides", arguments.overrides)
    for dataset in data:
        check.choice("data", dataset, [name for name, entry in rows_file["datasets"].items() if "files" in entry])
    for name in overrides:
        if name in RESERVED:
            raise ValueError(f"overrides must not name {name}, which is the run's own, got {name}={overrides[name]}")
    names = dict.fromkeys(cell.name for cells in tables.values() for cell in cells)
    entries = {(dataset, model): row_entry(rows_file, dataset, model) for dataset, model, _ in names}
    files = {row: data_files(arguments, entry, row[0], data) for row, entry in entries.items() if entry is not None}
    digests = {row: contents({key: str(file) for key, file in of_row.items()}) for row, of_row in files.items()}
    # One seed after the other: an interruption leaves complete tables with fewer seeds.
    runs = [
        make_run(arguments, entries[name[:2]], name, seed, files[name[:2]], digests[name[:2]], overrides)
        for seed in arguments.seeds
        for name in names
        if entries[name[:2]] is not None
    ]
    for run in runs:
        run.check()
    without_recipe = ["/".join(row) for row, entry in entries.items() if entry is None]
    return Plan(tables, runs, without_recipe, arguments.dry_run)


def select_cells(arguments: ReproduceArguments) -> dict[str, list[PaperCell]]:
    """Return the cells of each table that the arguments `table`, `rows`, and `losses` select."""
    papers = {path.stem: read_paper_tables(path) for path in sorted(TABLES.glob("*.csv"))}
    known = {f"{paper}:{number}": cells for paper, tables in papers.items() for number, cells in tables.items()}
    for table in arguments.table:
        check.choice("table", table, list(known))
    cells = [cell for table in arguments.table for cell in known[table]]
    for row in arguments.rows or ():
        check.choice("rows", row, list(dict.fromkeys(name for cell in cells for name in cell.row_names)))
    for loss in arguments.losses or ():
        check.choice("losses", loss, list(dict.fromkeys(cell.loss for cell in cells)))
    tables = {}
    for table in arguments.table:
        tables[table] = [
            cell
            for cell in known[table]
            if (arguments.rows is None or set(cell.row_names) & set(arguments.rows))
            and (arguments.losses is None or cell.loss in arguments.losses)
        ]
        if not tables[table]:
            raise ValueError(f"rows and losses must leave a cell of {table}, got {arguments.rows}, {arguments.losses}")
    return tables


def data_files(
    arguments: ReproduceArguments, entry: Mapping[str, Any], dataset: str, data: Mapping[str, str]
) -> dict[str, Path]:
    """Return the data files of a dataset; {} if the dataset comes from the Hub.

    `entry` is the entry of the dataset's rows, as in `row_entry`, and `data` has the folders that the user gave.
    """
    if dataset not in data:
        if "hub" not in entry:
            raise ValueError(f"data must have {dataset}=FOLDER, as no copy on the Hub is known, got {arguments.data}")
        return {}
    files = {key: Path(data[dataset]).absolute() / file for key, file in entry["files"].items()}
    for file in files.values():
        if not file.is_file():
            raise ValueError(
                f"data must be a folder with {', '.join(entry['files'].values())} for {dataset}, got "
                f"{data[dataset]!r}, which has no {file.name}"
            )
    return files


def make_run(
    arguments: ReproduceArguments,
    entry: Mapping[str, Any],
    name: tuple[str, str, str],
    seed: int,
    files: Mapping[str, Path],
    digests: Mapping[str, str],
    overrides: Mapping[str, str],
) -> CellRun:
    """Make the run with one seed of `name`, which is a dataset, a model, and a loss.

    `entry` is the entry of the row, as in `row_entry`. `digests` are the digests of the data `files`.
    """
    dataset, model, loss = name
    config = RECIPES / "configs" / entry["config"]
    of_loss = entry.get("options", {})
    own = {**of_loss.get(loss, {}), **of_loss.get(f"{model} {loss}", {})}
    options = {**({} if files else entry["hub"]), **entry["model"], **own, **overrides}
    configured = yaml.safe_load(config.read_text(encoding="utf-8"))
    if (devices := entry.get("devices", 1)) > 1:  # one process accumulates the batches of as many
        steps = (configured | options).get("gradient_accumulation_steps", 1)
        options["gradient_accumulation_steps"] = devices * int(steps)
    options |= {"loss": entry["losses"][loss], "seed": seed}
    told = configured | {"recipe": entry["recipe"], "config": entry["config"]} | options
    return CellRun(
        *name,
        seed,
        folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
        recipe=RECIPES / entry["recipe"],
        options={"config": config, **options, **files},
        settings={key: str(value) for key, value in told.items()} | dict(digests),
    )


def print_plan(plan: Plan) -> None:
    """Print the runs with their states, and the command of the first unfinished run."""
    for run in plan.runs:
        print(f"{run.state:10} {run.name}")
    for row in plan.without_recipe:
        print(f"no recipe  {row}: shown as printed, without ours")
    unfinished = [run for run in plan.runs if run.state != "finished"]
    print(f"\n{len(unfinished)} of {len(plan.runs)} runs to do.")
    if unfinished:
        print(f"\nThe first of them:\n  {shlex.join(unfinished[0].command())}")


def main(argv: list[str]) -> int:
    """Run the plan. Return 1 if a run failed, and 0 otherwise."""
    plan = prepare(argv)
    if plan.dry_run:
        print_plan(plan)
        return 0
    failed = 0
    with after_start("reproducing"):
        for run in plan.runs:
            if run.state == "finished":
                continue
            print(f"{run.name}: started, see {run.folder / 'launch.log'}", flush=True)
            problem = run.start()
            failed += problem is not None
            print(f"{run.name}: {run.state}" + (f" ({problem})" if problem else ""), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the recipe that runs, too
    sys.exit(run_recipe(main))
