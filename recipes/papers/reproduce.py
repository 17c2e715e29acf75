"""Run the rows of a paper's table.

    python recipes/papers/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
        --seeds 1 2 3 --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run starts the recipe of its row, with the row's configuration, using `accelerate launch`: one run per GPU, or one
after the other on the CPU. Running the same command again skips finished runs and resumes the other runs. A run that
dies is restarted. `--dry_run` prints the plan and estimates how long the runs take. The papers' printed tables are in
`recipes/papers/tables`; recipes/papers/results.py writes our results beside them.
"""

import logging
import math
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from papers.figures.paper_tables import TABLES, PaperCell, read_paper_tables, read_rows, row_entry
from papers.runs import recipe_checks as check
from papers.runs.launcher import ELSEWHERE, OUT_OF_TIME, Job, devices_of, execute, history, same_batch
from papers.runs.output_folders import contents
from papers.runs.recipe_arguments import named_values
from papers.runs.recipe_command import after_start, run_recipe
from papers.runs.yaml_arguments import parse_arguments

RECIPES = Path(__file__).resolve().parent
# Arguments that overrides must not change.
RESERVED = ("config", "loss", "compare", "seed", "output_dir")


@dataclass
class ReproduceArguments:
    """The tables, the parts of these tables to run, and the limits on devices and time."""

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
    processes_per_run: int = field(
        default=1, metadata={"help": "GPUs per run; the configuration's batch size is kept."}
    )
    jobs: int | None = field(
        default=None, metadata={"help": "Runs at a time. Default: as many as fit on the GPUs, or 1 on the CPU."}
    )
    attempts: int = field(default=3, metadata={"help": "How often to start a run that dies."})
    budget_minutes: float | None = field(default=None, metadata={"help": "Start no run after this time."})
    timings: str | None = field(
        default=None, metadata={"help": "An output_dir whose finished runs the estimate uses. Default: output_dir."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Only print the plan and the estimate."})

    def __post_init__(self):
        check.at_least(1, self, "processes_per_run", "jobs", "attempts")
        check.at_least(0, self, "budget_minutes")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, one at least, got {self.seeds}")


@dataclass(frozen=True)
class CellRun:
    """The run of one table cell with one seed. The dataset, the model, and the loss have their names in the table."""

    dataset: str
    model: str
    loss: str
    seed: int
    job: Job

    @property
    def row(self) -> str:
        return f"{self.dataset}/{self.model}"


@dataclass(frozen=True)
class Plan:
    """The cells of each table, the runs that produce the cells, rows without a recipe, and the devices to run on."""

    arguments: ReproduceArguments
    tables: Mapping[str, Sequence[PaperCell]]
    runs: Sequence[CellRun]
    without_recipe: Sequence[str]
    devices: Sequence[str | None]


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
    # One seed after the other: a budget that ends early leaves complete tables with fewer seeds.
    runs = [
        make_run(arguments, entries[name[:2]], name, seed, files[name[:2]], digests[name[:2]], overrides)
        for seed in arguments.seeds
        for name in names
        if entries[name[:2]] is not None
    ]
    for run in runs:
        run.job.check()
    without_recipe = ["/".join(row) for row, entry in entries.items() if entry is None]
    devices = devices_of(arguments.jobs, arguments.processes_per_run)
    return Plan(arguments, tables, runs, without_recipe, devices)


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
    config, processes = RECIPES / "configs" / entry["config"], arguments.processes_per_run
    of_loss = entry.get("options", {})
    own = {**of_loss.get(loss, {}), **of_loss.get(f"{model} {loss}", {})}
    options = {**({} if files else entry["hub"]), **entry["model"], **own, **overrides}
    configured = yaml.safe_load(config.read_text(encoding="utf-8"))
    options |= same_batch(configured | options, entry.get("devices", 1), processes)
    options |= {"loss": entry["losses"][loss], "seed": seed}
    if options["loss"].startswith("published_mmce") and processes > 1:
        raise ValueError(
            f"processes_per_run must be 1 for mmce, a term over the whole batch, got {processes}: leave mmce out with "
            "losses, or run it separately"
        )
    told = {"recipe": entry["recipe"], "config": entry["config"], **options}
    job = Job(
        name=f"{dataset}/{model} {loss} seed {seed}",
        folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
        recipe=RECIPES / entry["recipe"],
        options={"config": config, **options, **files},
        settings={
            **{key: str(value) for key, value in told.items()},
            "num_processes": processes,
            "contents": {key: str(value) for key, value in configured.items()} | digests,
        },
        num_processes=processes,
    )
    return CellRun(*name, seed, job)


def work(settings: Mapping[str, Any]) -> tuple[list[str], float]:
    """Return the settings that determine the length of a run (such as max_steps), and the product of their values."""
    config = (RECIPES / "configs" / settings["config"]).read_text(encoding="utf-8")
    values = yaml.safe_load(config) | dict(settings)
    units = [name for name in ("max_steps", "num_train_epochs") if name in values][:1]
    units += [name for name in ("max_train_samples",) if name in values]
    return units, math.prod(float(values[name]) for name in units)


def estimate(plan: Plan) -> dict[CellRun, float | None]:
    """Estimate the seconds that each unfinished run takes; None if no run of the same row is finished.

    The time per epoch (or per step) is the mean over the row's finished runs, including startup, the report, and
    launches that died.
    """
    root = Path(plan.arguments.timings or plan.arguments.output_dir)
    seconds = {}
    for run in plan.runs:
        if run.job.state == "finished":
            continue
        units, amount = work(run.job.settings)
        rates = []
        for result in sorted((root / run.row).glob("*/seed_*/report/metrics.json")):
            past = history(result.parents[1])
            if not past["launches"]:  # not started by this script
                continue
            past_units, past_amount = work(past["settings"])
            if past_units == units:
                rates.append(sum(launch["seconds"] for launch in past["launches"]) / past_amount)
        seconds[run] = amount * sum(rates) / len(rates) if rates else None
    return seconds


def print_plan(plan: Plan) -> None:
    """Print the runs with their states, and an estimate of the time that the unfinished runs take."""
    for run in plan.runs:
        print(f"{run.job.state:10} {run.job.name}")
    for row in plan.without_recipe:
        print(f"no recipe  {row}: shown as printed, without ours")
    seconds = estimate(plan)
    print(f"\n{len(seconds)} of {len(plan.runs)} runs to do, {len(plan.devices)} at a time.")
    for row in dict.fromkeys(run.row for run in seconds):
        of_row = [value for run, value in seconds.items() if run.row == row]
        if None in of_row:
            print(f"{row}: {len(of_row)} runs, time unknown, as no such run is finished")
        else:
            print(f"{row}: {len(of_row)} runs, about {sum(of_row) / 3600:.1f} hours, by those that are finished")
    known = [value for value in seconds.values() if value is not None]
    if known and len(known) == len(seconds):
        print(f"All: about {sum(known) / 3600 / len(plan.devices):.1f} hours")
    if seconds:
        print(f"\nThe first of them:\n  {shlex.join(next(iter(seconds)).job.command())}")


def main(argv: list[str]) -> int:
    """Run the plan. Return 1 if a run failed, and 0 otherwise."""
    plan = prepare(argv)
    arguments = plan.arguments
    if arguments.dry_run:
        print_plan(plan)
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with after_start("reproducing"):
        budget = math.inf if arguments.budget_minutes is None else 60 * arguments.budget_minutes
        problems = execute([run.job for run in plan.runs], plan.devices, arguments.attempts, budget)
    for job, problem in problems.items():
        print(f"{job.name}: {job.state} ({problem})")
    return int(any(problem not in (OUT_OF_TIME, ELSEWHERE) for problem in problems.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `execute` ends what it has started
    sys.exit(run_recipe(main))
