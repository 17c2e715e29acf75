"""Run the rows of a paper's table, and write the table with our figures beside the printed ones.

    python recipes/papers/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
        --seeds 1 2 3 --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run is one of the other recipes with its configuration, started with `accelerate launch`: a run on each GPU, or
one after the other on the CPU. The same command again skips what is finished and resumes the rest; a run that dies is
started again. `--dry_run` shows the plan and what it would take. The printed tables are in `recipes/papers/tables`.
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

from hf_focal.experiments.reports.claims_tests import claims_section
from hf_focal.experiments.reports.paper_tables import (
    PaperCell,
    read_paper_tables,
    reproduction_table,
    write_reproduction_csv,
)
from hf_focal.experiments.runs.launcher import ELSEWHERE, OUT_OF_TIME, Job, devices_of, execute, history
from hf_focal.experiments.runs.recipe_checks import check_at_least, check_choice
from hf_focal.experiments.runs.recipe_command import run_recipe
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import read_result

RECIPES = Path(__file__).resolve().parents[1]
TABLES = RECIPES / "papers" / "tables"
# What a run has of its own, so that no override may say otherwise.
RESERVED = ("config", "loss", "compare", "seed", "output_dir")
# What is written by hand stands above it in the page.
MARK = "<!-- What follows is written by recipes/papers/reproduce.py. -->\n"


@dataclass
class ReproduceArguments:
    """Which tables, which part of them, and how much of the machine and of the day they may take."""

    table: list[str] = field(metadata={"help": "Paper and number: mukhoti2020:1. Several share the runs."})
    output_dir: str = field(metadata={"help": "The runs' folders in it are DATASET/MODEL/LOSS/seed_N."})
    rows: list[str] | None = field(
        default=None, metadata={"help": "20_newsgroups/gp_cnn, or 20_newsgroups for all its models; all if absent."}
    )
    losses: list[str] | None = field(default=None, metadata={"help": "As the table names them; all if absent."})
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"help": "Of the runs of each cell."})
    data: list[str] = field(
        default_factory=list,
        metadata={"help": "DATASET=FOLDER of parquet files, for datasets that are not to come from the Hub."},
    )
    overrides: list[str] = field(
        default_factory=list,
        metadata={"help": "NAME=VALUE, arguments of every run: num_train_epochs=15. The page says so."},
    )
    processes_per_run: int = field(
        default=1, metadata={"help": "GPUs that train a run together; its batch stays that of the configuration."}
    )
    jobs: int | None = field(
        default=None, metadata={"help": "Runs at a time; if absent what there are GPUs for, or 1 on the CPU."}
    )
    attempts: int = field(default=3, metadata={"help": "How often a run that dies is started."})
    budget_minutes: float | None = field(default=None, metadata={"help": "After these no run is started any more."})
    timings: str | None = field(
        default=None, metadata={"help": "Estimate by the finished runs of this output_dir, if not by one's own."}
    )
    page: str | None = field(
        default=None, metadata={"help": "The page of all tables; OUTPUT_DIR/reproduction.md if absent."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Print the plan and the estimate, and run nothing."})
    report_only: bool = field(default=False, metadata={"help": "Write the pages of what is finished; run nothing."})

    def __post_init__(self):
        check_at_least(1, self, "processes_per_run", "jobs", "attempts")
        check_at_least(0, self, "budget_minutes")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, one at least, got {self.seeds}")


@dataclass(frozen=True)
class Run:
    """The run of a table's cell, named as the table does, and a seed."""

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
    """What `prepare` found in order: the cells of each table, the runs that give them, and rows without a recipe."""

    arguments: ReproduceArguments
    tables: Mapping[str, Sequence[PaperCell]]
    runs: Sequence[Run]
    without_recipe: Sequence[str]
    devices: Sequence[str | None]


def main(argv: list[str]) -> int:
    return reproduce(prepare(argv))


def prepare(argv: list[str]) -> Plan:
    """Everything that can be wrong with the command line, before anything is started."""
    (arguments,) = parse_arguments((ReproduceArguments,), argv, description=__doc__.splitlines()[0])
    tables = select_cells(arguments)
    rows_file = read_rows_file()
    data, overrides = pairs("data", arguments.data), pairs("overrides", arguments.overrides)
    for dataset in data:
        check_choice("data", dataset, [name for name, entry in rows_file["datasets"].items() if "files" in entry])
    for name in overrides:
        if name in RESERVED:
            raise ValueError(f"overrides must not name {name}, which is the run's own, got {name}={overrides[name]}")
    names = dict.fromkeys(cell.name for cells in tables.values() for cell in cells)
    entries = {(dataset, model): entry_of(rows_file, dataset, model) for dataset, model, _ in names}
    # A seed after the other: a budget that ends early leaves whole tables of fewer seeds.
    runs = [
        make_run(arguments, entries[name[:2]], name, seed, data, overrides)
        for seed in arguments.seeds
        for name in names
        if entries[name[:2]] is not None
    ]
    for run in runs:
        run.job.check()
    without_recipe = ["/".join(row) for row, entry in entries.items() if entry is None]
    devices = [] if arguments.report_only else devices_of(arguments.jobs, arguments.processes_per_run)
    return Plan(arguments, tables, runs, without_recipe, devices)


def pairs(argument: str, texts: Sequence[str]) -> dict[str, str]:
    """The mapping of texts NAME=VALUE."""
    mapping = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in mapping:
            raise ValueError(f"{argument} must be different names, each with =VALUE, got {text!r}")
        mapping[name] = value
    return mapping


def select_cells(arguments: ReproduceArguments) -> dict[str, list[PaperCell]]:
    """The wanted cells of the wanted tables."""
    papers = {path.stem: read_paper_tables(path) for path in sorted(TABLES.glob("*.csv"))}
    known = {f"{paper}:{number}": cells for paper, tables in papers.items() for number, cells in tables.items()}
    for table in arguments.table:
        check_choice("table", table, list(known))
    cells = [cell for table in arguments.table for cell in known[table]]
    for row in arguments.rows or ():
        check_choice("rows", row, list(dict.fromkeys(name for cell in cells for name in rows_of(cell))))
    for loss in arguments.losses or ():
        check_choice("losses", loss, list(dict.fromkeys(cell.loss for cell in cells)))
    tables = {}
    for table in arguments.table:
        tables[table] = [
            cell
            for cell in known[table]
            if (arguments.rows is None or set(rows_of(cell)) & set(arguments.rows))
            and (arguments.losses is None or cell.loss in arguments.losses)
        ]
        if not tables[table]:
            raise ValueError(f"rows and losses must leave a cell of {table}, got {arguments.rows}, {arguments.losses}")
    return tables


def rows_of(cell: PaperCell) -> tuple[str, str]:
    """What --rows may call a cell's row."""
    return f"{cell.dataset}/{cell.model}", cell.dataset


def read_rows_file() -> dict[str, Any]:
    return yaml.safe_load((TABLES / "rows.yaml").read_text(encoding="utf-8"))


def entry_of(rows_file: Mapping[str, Any], dataset: str, model: str) -> dict[str, Any] | None:
    """What rows.yaml has of a row, None where it has no recipe."""
    entry = rows_file["datasets"].get(dataset)
    if entry is None or model not in entry["models"]:
        return None
    return entry | {"model": entry["models"][model], "losses": rows_file["losses"] | entry.get("losses", {})}


def make_run(
    arguments: ReproduceArguments,
    entry: Mapping[str, Any],
    name: tuple[str, str, str],
    seed: int,
    data: Mapping[str, str],
    overrides: Mapping[str, str],
) -> Run:
    """The run of a (dataset, model, loss) whose row is `entry`."""
    dataset, model, loss = name
    files = {}
    if dataset in data:
        files = {key: Path(data[dataset]).absolute() / file for key, file in entry["files"].items()}
        for file in files.values():
            if not file.is_file():
                raise ValueError(
                    f"data must be a folder with {', '.join(entry['files'].values())} for {dataset}, got "
                    f"{data[dataset]!r}, which has no {file.name}"
                )
    elif "hub" not in entry:
        raise ValueError(f"data must have {dataset}=FOLDER, as no copy on the Hub is known, got {arguments.data}")
    config, processes = RECIPES / "configs" / entry["config"], arguments.processes_per_run
    options = {**({} if files else entry["hub"]), **entry["model"], **overrides}
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) | options
    options |= same_batch(settings, entry.get("devices", 1), processes)
    options |= {"loss": entry["losses"][loss], "seed": seed}
    if loss == "mmce" and processes > 1:
        options["loss"] += ",gather=true"
    told = {"recipe": entry["recipe"], "config": entry["config"], **options}
    job = Job(
        name=f"{dataset}/{model} {loss} seed {seed}",
        folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
        recipe=RECIPES / entry["recipe"],
        options={"config": config, **options, **files},
        settings={key: str(value) for key, value in told.items()} | {"num_processes": processes},
        num_processes=processes,
    )
    return Run(*name, seed, job)


def same_batch(settings: Mapping[str, Any], devices: int, processes: int) -> dict[str, int]:
    """What keeps the batch of a configuration that was made for so many devices on so many processes."""
    if devices % processes == 0:
        steps = devices // processes * int(settings.get("gradient_accumulation_steps", 1))
        return {} if devices == processes else {"gradient_accumulation_steps": steps}
    name = "max_tokens_per_batch" if "max_tokens_per_batch" in settings else "per_device_train_batch_size"
    size = int(settings[name]) * devices
    if size % processes:
        raise ValueError(f"processes_per_run must divide the batch of {size}, got {processes}")
    return {name: size // processes}


def work(settings: Mapping[str, Any]) -> tuple[list[str], float]:
    """The units that the training of a run with these settings is counted in, and how many of them it has."""
    config = (RECIPES / "configs" / settings["config"]).read_text(encoding="utf-8")
    values = yaml.safe_load(config) | dict(settings)
    units = [name for name in ("max_steps", "num_train_epochs") if name in values][:1]
    units += [name for name in ("max_train_samples",) if name in values]
    return units, math.prod(float(values[name]) for name in units)


def seconds_of(past: Mapping[str, Any]) -> float:
    return sum(launch["seconds"] for launch in past["launches"])


def estimate(plan: Plan) -> dict[Run, float | None]:
    """Seconds that each unfinished run takes, None where no run like it is finished.

    The finished runs of its row say how long an epoch is (a step, where the configuration counts steps), everything
    from import to report and starts that died included.
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
            if not past["launches"]:  # it was not started here
                continue
            past_units, past_amount = work(past["settings"])
            if past_units == units:
                rates.append(seconds_of(past) / past_amount)
        seconds[run] = amount * sum(rates) / len(rates) if rates else None
    return seconds


def print_plan(plan: Plan) -> None:
    """Print what would be run, and what it would take."""
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


def reproduce(plan: Plan) -> int:
    """Run the plan and write its pages. Returns 1 where a run is not finished because it died."""
    arguments = plan.arguments
    if arguments.dry_run:
        print_plan(plan)
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    problems = {}
    if not arguments.report_only:
        problems = execute(
            [run.job for run in plan.runs],
            plan.devices,
            arguments.attempts,
            math.inf if arguments.budget_minutes is None else 60 * arguments.budget_minutes,
            finished=lambda job: write_pages(plan),
        )
    paths = write_pages(plan, problems)
    print("Written:", *paths, sep="\n  ")
    return int(any(problem not in (OUT_OF_TIME, ELSEWHERE) for problem in problems.values()))


def write_pages(plan: Plan, problems: Mapping[Job, str] | None = None) -> list[Path]:
    """Write each table as Markdown and CSV, and the page that has them all, the tests, and how it was run."""
    folder = Path(plan.arguments.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    results: dict = {}
    for run in plan.runs:
        if run.job.state == "finished":
            of_seed = results.setdefault((run.dataset, run.model, run.loss), {})
            of_seed[run.seed] = read_result(run.job.result)
    paths, sections = [], []
    for table, cells in plan.tables.items():
        path = folder / f"{table.replace(':', '_')}.md"
        paper, number = table.split(":")
        text = f"## Table {number} of {paper}\n\n{reproduction_table(cells, results)}"
        path.write_text(text.removeprefix("#"), encoding="utf-8")
        write_reproduction_csv(path.with_suffix(".csv"), cells, results)
        paths += [path, path.with_suffix(".csv")]
        sections.append(text)
    page = Path(plan.arguments.page or folder / "reproduction.md")
    above = page.read_text(encoding="utf-8").partition(MARK)[0] if page.is_file() else "# Reproduction\n\n"
    sections = [how_it_was_run(plan), *sections, claims_section(results), missing(plan, problems or {})]
    page.write_text(above + MARK + "\n" + "\n".join(filter(None, sections)), encoding="utf-8")
    return [*paths, page]


def how_it_was_run(plan: Plan) -> str:
    """The command without the folders of this machine, and what differs from the paper."""
    arguments, rows_file = plan.arguments, read_rows_file()
    given = {"table": arguments.table, "rows": arguments.rows, "losses": arguments.losses, "seeds": arguments.seeds}
    given["data"] = [f"{text.partition('=')[0]}=FOLDER" for text in arguments.data]
    given["overrides"] = arguments.overrides
    given["processes_per_run"] = [arguments.processes_per_run] if arguments.processes_per_run > 1 else []
    parts = [f"--{name} {shlex.join(map(str, values))}" for name, values in given.items() if values]
    command = " \\\n    ".join(["python recipes/papers/reproduce.py", *parts, "--output_dir out/reproduce"])
    lines = [f"## How it was run\n\n```\n{command}\n```\n"]
    finished = [run for run in plan.runs if run.job.state == "finished"]
    hours = sum(seconds_of(history(run.job.folder)) for run in finished) / 3600
    took = f", which took {hours:.1f} hours in all" if hours else ""
    lines.append(f"{len(finished)} of {len(plan.runs)} runs are finished{took}.\n")
    lines.append(
        'Under "ours" is the mean ± standard deviation over the seeds. These draw the weights, the order and, where '
        "the data has none of its own, the validation set.\n"
    )
    differs = []
    for run in {run.row: run for run in plan.runs}.values():
        entry, config = rows_file["datasets"][run.dataset], run.job.options["config"]
        values = yaml.safe_load(config.read_text(encoding="utf-8"))
        changes = [
            f"{name} {run.job.options[name]} (the configuration: {values.get(name, 'its default')})"
            for name in pairs("overrides", arguments.overrides)
        ]
        texts = [f"`recipes/configs/{entry['config']}`", *changes, *filter(None, [entry.get("differs")])]
        differs.append(f"- {run.row}: {'; '.join(texts)}\n")
    if differs:
        lines.append("What is trained, and what differs from the paper:\n\n" + "".join(differs))
    if plan.without_recipe:
        lines.append(f"Without a recipe, and so without ours: {', '.join(plan.without_recipe)}.\n")
    return "\n".join(lines)


def missing(plan: Plan, problems: Mapping[Job, str]) -> str:
    """What is not finished, and why, as far as that is known."""
    unfinished = [run for run in plan.runs if run.job.state != "finished"]
    lines = []
    for run in unfinished:
        problem = problems.get(run.job)
        lines.append(f"- {run.job.name}: {run.job.state}{f' ({problem})' if problem else ''}\n")
    return "## Not finished\n\n" + "".join(lines) if lines else ""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `execute` ends what it has started
    sys.exit(run_recipe(prepare, reproduce))
