"""Run the rows of a paper's table, and write the table with our figures beside the printed ones.

    python recipes/reproduce.py --table mukhoti2020:1 --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm --seeds 1 2 3 \
        --data 20_newsgroups=newsgroups sst_binary=sst --output_dir out/reproduce

Each run is one of the other recipes with its configuration, started with `accelerate launch`: a run on each GPU, or on the
CPU. The same command again skips what is finished and resumes the rest; a run that dies is started again. `--dry_run` shows
the plan and what it would take. The tables that the papers print are in `recipes/tables`.
"""

import fcntl
import json
import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

import torch
import yaml

from hf_focal.config_file import parse_arguments
from hf_focal.recipes import check_at_least, prepare_or_exit
from hf_focal.reports.reproduction import PaperCell, read_paper_tables

RECIPES = Path(__file__).resolve().parent
TABLES = RECIPES / "tables"
LAUNCHER = (sys.executable, "-m", "accelerate.commands.launch")
# What a run's arguments are made of, so that no override may say otherwise.
RESERVED = ("config", "loss", "compare", "seed", "output_dir")


@dataclass
class ReproduceArguments:
    """Which tables, which part of them, and how much of the machine and of the day they may take."""

    table: list[str] = field(metadata={"help": "Paper and number: mukhoti2020:1. Of several the runs are shared."})
    output_dir: str = field(metadata={"help": "DATASET/MODEL/LOSS/seed_N in it are the runs' folders."})
    rows: list[str] | None = field(
        default=None, metadata={"help": "20_newsgroups/gp_cnn, or 20_newsgroups for all its models; all if absent."}
    )
    losses: list[str] | None = field(default=None, metadata={"help": "As the table names them; all if absent."})
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"help": "Each run is made with each."})
    data: list[str] = field(
        default_factory=list,
        metadata={"help": "DATASET=FOLDER of parquet files, for those not to be taken from the Hub."},
    )
    overrides: list[str] = field(
        default_factory=list,
        metadata={
            "help": "NAME=VALUE of the recipes' arguments, for every run; the pages say so: num_train_epochs=15"
        },
    )
    processes_per_run: int = field(
        default=1, metadata={"help": "GPUs that train a run together; its batch stays that of the configuration."}
    )
    jobs: int | None = field(
        default=None, metadata={"help": "Runs at a time; if absent as many as the GPUs are enough for, or 1."}
    )
    attempts: int = field(default=3, metadata={"help": "How often a run is started that dies."})
    budget_minutes: float | None = field(default=None, metadata={"help": "After these no run is started any more."})
    timings: str | None = field(
        default=None,
        metadata={"help": "An output_dir whose finished runs the estimate is made from; its own if absent."},
    )
    dry_run: bool = field(default=False, metadata={"help": "Print the plan and the estimate, and do nothing."})
    report_only: bool = field(
        default=False, metadata={"help": "Write the pages of what is finished, and run nothing."}
    )

    def __post_init__(self):
        check_at_least(1, self, "processes_per_run", "jobs", "attempts")
        check_at_least(0, self, "budget_minutes")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, one at least, got {self.seeds}")


@dataclass(frozen=True, eq=False)
class Run:
    """A cell of a table and a seed: a recipe and its arguments.

    Attributes:
        dataset, model, loss: as the paper's table calls them.
        seed: of everything that is random.
        folder: the run's output_dir.
        recipe: the script.
        config: its YAML file.
        arguments: what is given beside that, but for the data's files and the folder.
        files: the data's files, by the recipe's arguments.
        num_processes: that train it.
    """

    dataset: str
    model: str
    loss: str
    seed: int
    folder: Path
    recipe: Path
    config: Path
    arguments: Mapping[str, Any]
    files: Mapping[str, str]
    num_processes: int = 1

    def __str__(self) -> str:
        return f"{self.dataset}/{self.model} {self.loss} seed {self.seed}"

    @property
    def log(self) -> Path:
        return self.folder / "launch.log"

    @property
    def result(self) -> Path:
        return self.folder / "report" / "metrics.json"

    @property
    def state(self) -> str:
        if self.result.is_file():
            return "finished"
        return "to resume" if any(self.folder.glob("checkpoint-*")) else "to run"

    @property
    def settings(self) -> dict[str, Any]:
        """What makes it this run, as JSON values; where its data lies does not."""
        settings = {"recipe": self.recipe.name, "config": "/".join(self.config.parts[-2:]), **self.arguments}
        return {name: str(value) for name, value in settings.items()} | {"num_processes": self.num_processes}

    def command(self) -> list[str]:
        """`accelerate launch` of the recipe."""
        launch = ["--num_machines", "1", "--num_processes", str(self.num_processes), "--dynamo_backend", "no"]
        launch += ["--mixed_precision", "no"]  # a recipe's own bf16 wins over it
        if not torch.cuda.is_available():
            launch.append("--cpu")
        if self.num_processes > 1:
            launch += ["--multi_gpu", "--main_process_port", "0"]  # a free one: there may be other runs
        given = {"config": self.config, **self.arguments, **self.files, "output_dir": self.folder}
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        return [*LAUNCHER, *launch, str(self.recipe), *options]


def main(argv: list[str]) -> int:
    return reproduce(prepare(argv))


def check_choice(argument: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        near = get_close_matches(value, choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument} must be one of {', '.join(choices)}, got {value!r}{hint}")


def pairs(argument: str, texts: Sequence[str]) -> dict[str, str]:
    """A mapping of texts NAME=VALUE."""
    mapping = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in mapping:
            raise ValueError(f"{argument} must be different names, each with =VALUE, got {text!r}")
        mapping[name] = value
    return mapping


@dataclass(frozen=True)
class Plan:
    """What `prepare` found in order: the cells of each table, the runs that give them, and rows without a recipe."""

    arguments: ReproduceArguments
    tables: Mapping[str, Sequence[PaperCell]]
    runs: Sequence[Run]
    without_recipe: Sequence[str]


def prepare(argv: list[str]) -> Plan:
    """Everything that can be wrong with the command line, before anything is started."""
    (arguments,) = parse_arguments((ReproduceArguments,), argv, description=__doc__.splitlines()[0])
    known = yaml.safe_load((TABLES / "rows.yaml").read_text(encoding="utf-8"))
    tables = {name: cells_of(name) for name in arguments.table}
    cells = [cell for table in tables.values() for cell in table]
    rows = list(dict.fromkeys(f"{cell.dataset}/{cell.model}" for cell in cells))
    losses = list(dict.fromkeys(cell.loss for cell in cells))
    for row in arguments.rows or ():
        check_choice("rows", row, [*rows, *dict.fromkeys(cell.dataset for cell in cells)])
    for loss in arguments.losses or ():
        check_choice("losses", loss, losses)

    def wanted(cell: PaperCell) -> bool:
        row = arguments.rows is None or {f"{cell.dataset}/{cell.model}", cell.dataset} & set(arguments.rows)
        return bool(row) and (arguments.losses is None or cell.loss in arguments.losses)

    tables = {name: [cell for cell in table if wanted(cell)] for name, table in tables.items()}
    cells = list(dict.fromkeys((cell.dataset, cell.model, cell.loss) for table in tables.values() for cell in table))
    data, overrides = pairs("data", arguments.data), pairs("overrides", arguments.overrides)
    for dataset in data:
        check_choice("data", dataset, [name for name, entry in known["datasets"].items() if "files" in entry])
    for name in overrides:
        if name in RESERVED:
            raise ValueError(f"overrides must not name {name}, which is the run's own, got {name}={overrides[name]}")
    runs, without = [], []
    # A seed after the other: a budget that ends early leaves whole tables of fewer seeds.
    for seed in arguments.seeds:
        for dataset, model, loss in cells:
            entry = known["datasets"].get(dataset, {"models": {}})
            if model in entry["models"]:
                runs.append(make_run(arguments, entry, (dataset, model, loss), seed, known["losses"], data, overrides))
            elif f"{dataset}/{model}" not in without:
                without.append(f"{dataset}/{model}")
    for run in runs:
        check_folder(run)
    return Plan(arguments, tables, runs, without)


def cells_of(name: str) -> list[PaperCell]:
    """The printed cells of a table, "mukhoti2020:1"."""
    available = {path.stem: read_paper_tables(path) for path in sorted(TABLES.glob("*.csv"))}
    names = [f"{paper}:{number}" for paper, numbers in available.items() for number in numbers]
    check_choice("table", name, names)
    paper, _, number = name.partition(":")
    return available[paper][int(number)]


def make_run(
    arguments: ReproduceArguments,
    entry: Mapping[str, Any],
    cell: tuple[str, str, str],
    seed: int,
    losses: Mapping[str, str],
    data: Mapping[str, str],
    overrides: Mapping[str, str],
) -> Run:
    """The run of a (dataset, model, loss) as rows.yaml has it."""
    dataset, model, loss = cell
    config = RECIPES / "configs" / entry["config"]
    name = {**losses, **entry.get("losses", {})}[loss]
    if loss == "mmce" and arguments.processes_per_run > 1:
        name += ",gather=true"
    files = {}
    if dataset in data:
        files = {key: str(Path(data[dataset]).absolute() / file) for key, file in entry["files"].items()}
        for file in files.values():
            if not Path(file).is_file():
                raise ValueError(
                    f"data must be a folder with {', '.join(entry['files'].values())} for {dataset}, got "
                    f"{data[dataset]!r} without {Path(file).name}"
                )
    elif "hub" not in entry:
        raise ValueError(f"data must have {dataset}=FOLDER, as no copy on the Hub is known, got {arguments.data}")
    values = {**({} if files else entry["hub"]), **entry["models"][model], **overrides}
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) | values
    values |= same_batch(settings, entry.get("devices", 1), arguments.processes_per_run)
    return Run(
        *cell,
        seed,
        folder=Path(arguments.output_dir).absolute() / dataset / model / loss / f"seed_{seed}",
        recipe=RECIPES / entry["recipe"],
        config=config,
        arguments=values | {"loss": name, "seed": seed},
        files=files,
        num_processes=arguments.processes_per_run,
    )


def same_batch(settings: Mapping[str, Any], devices: int, processes: int) -> dict[str, int]:
    """What keeps the batch of a configuration made for so many devices on another number of processes."""
    if devices % processes == 0:
        steps = devices // processes * int(settings.get("gradient_accumulation_steps", 1))
        return {} if devices == processes else {"gradient_accumulation_steps": steps}
    name = "max_tokens_per_batch" if "max_tokens_per_batch" in settings else "per_device_train_batch_size"
    size = int(settings[name]) * devices
    if size % processes:
        raise ValueError(f"processes_per_run must divide the batch of {size}, got {processes}")
    return {name: size // processes}


def check_folder(run: Run) -> None:
    """Raise `ValueError` where the run's folder is that of a run with other arguments."""
    earlier = history(run.folder)["settings"]
    if earlier and run.state != "to run":
        for name in {**run.settings, **earlier}:
            if earlier.get(name) != run.settings.get(name):
                raise ValueError(
                    f"output_dir must hold runs with the same arguments, or be another, got {run} with {name} "
                    f"{earlier.get(name)} there, {run.settings.get(name)} now"
                )


def history(folder: Path) -> dict[str, Any]:
    """What is known of the starts of the run in a folder: its settings, and the seconds and exit code of each start."""
    path = folder / "launches.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"settings": {}, "launches": []}


def remember(run: Run, launches: Sequence[Mapping[str, Any]]) -> None:
    text = json.dumps({"settings": run.settings, "launches": launches}, indent=2) + "\n"
    (run.folder / "launches.json").write_text(text, encoding="utf-8")


def work(settings: Mapping[str, Any]) -> tuple[tuple[str, ...], float]:
    """The units that a run's training is counted in, and how many of them it has."""
    config = RECIPES / "configs" / settings["config"]
    values = yaml.safe_load(config.read_text(encoding="utf-8")) | dict(settings)
    units = [name for name in ("max_steps", "num_train_epochs") if name in values][:1]
    units += [name for name in ("max_train_samples",) if name in values]
    return tuple(units), math.prod(float(values[name]) for name in units)


def estimate(plan: Plan) -> dict[Run, float | None]:
    """Seconds that each unfinished run takes, None where nothing like it is finished.

    Finished runs of the same row say how long an epoch takes (a step, where the configuration counts steps), all from
    the first import to the report and with the starts that died; on the machine where they ran.
    """
    root = Path(plan.arguments.timings or plan.arguments.output_dir).absolute()
    seconds, unfinished = {}, [run for run in plan.runs if run.state != "finished"]
    for run in unfinished:
        units, amount = work(run.settings)
        rates = []
        for metrics in sorted((root / run.dataset / run.model).glob("*/seed_*/report/metrics.json")):
            past = history(metrics.parents[1])
            if past["launches"] and work(past["settings"])[0] == units:
                rates.append(sum(launch["seconds"] for launch in past["launches"]) / work(past["settings"])[1])
        seconds[run] = amount * sum(rates) / len(rates) if rates else None
    return seconds


def print_plan(plan: Plan, file: IO[str]) -> None:
    """What would be run, and what it would take."""
    jobs = len(slots(plan.arguments))
    for run in plan.runs:
        print(f"{run.state:10} {run}", file=file)
    for row in plan.without_recipe:
        print(f"no recipe  {row}: shown as printed, without ours", file=file)
    seconds = estimate(plan)
    known = [value for value in seconds.values() if value is not None]
    print(f"\n{len(seconds)} of {len(plan.runs)} runs to do, {jobs} at a time.", file=file)
    if known:
        hours = sum(known) / jobs / 3600
        print(f"{len(known)} of them: about {hours:.1f} hours, by the finished runs of their rows.", file=file)
    for row in dict.fromkeys(f"{run.dataset}/{run.model}" for run, value in seconds.items() if value is None):
        print(f"{row}: time unknown, no run of this row is finished.", file=file)
    for run in [run for run in seconds][:1]:
        print(f"\nThe first command:\n  {shlex.join(run.command())}", file=file)


def slots(arguments: ReproduceArguments) -> list[str | None]:
    """The CUDA_VISIBLE_DEVICES of the runs that are made at a time; None for one on the CPU."""
    if not torch.cuda.is_available():
        if arguments.processes_per_run > 1:
            raise ValueError(f"processes_per_run must be 1 without a GPU, got {arguments.processes_per_run}")
        return [None] * (arguments.jobs or 1)
    count, size = torch.cuda.device_count(), arguments.processes_per_run
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")[:count]
    groups = [",".join(visible[i : i + size]) for i in range(0, count - size + 1, size)]
    if len(groups) < (arguments.jobs or 1):
        raise ValueError(
            f"jobs times processes_per_run must be at most {count}, the GPUs, got {arguments.jobs} x {size}"
        )
    return groups[: arguments.jobs]


@dataclass
class Launch:
    """A process that was started."""

    run: Run
    process: subprocess.Popen
    log: IO[bytes]
    offset: int
    started: float
    earlier: list[dict[str, Any]]

    def end(self) -> None:
        """Stop what is still running: the launcher and what it has started."""
        if self.process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(self.process.pid, number)
                    self.process.wait(timeout=20)
        self.log.close()

    def message(self) -> str:
        """The last line of the log, or what the recipe says is wrong with its arguments."""
        with self.run.log.open("rb") as log:
            log.seek(self.offset)
            lines = log.read().decode(errors="replace").splitlines()
        refused = [line for line in lines if line.startswith(f"{self.run.recipe.name}: error: ")]
        return (refused or [line for line in lines if line.strip()] or ["no output"])[-1]


def launch(run: Run, device: str | None) -> Launch | None:
    """Start a run, its output in its log; None where another process is at it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    log = run.log.open("ab")
    try:
        # What is started inherits the file, and with it the lock, until its last process ends.
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.close()
        return None
    earlier = history(run.folder)["launches"]
    remember(run, earlier)
    environment = {**os.environ, "TQDM_DISABLE": "1"}  # a log is no terminal
    if device is None:
        environment.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other take many times as long
    else:
        environment["CUDA_VISIBLE_DEVICES"] = device
    offset = log.seek(0, os.SEEK_END)
    options = {"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(run.command(), env=environment, cwd=RECIPES.parent, **options)
    return Launch(run, process, log, offset, time.monotonic(), earlier)


def execute(
    runs: Sequence[Run],
    devices: Sequence[str | None],
    attempts: int,
    seconds: float | None = None,
    finished: Callable[[], None] = lambda: None,
) -> dict[Run, str]:
    """Run what is not finished yet, as many at a time as there are devices; a run that dies is started again.

    Args:
        runs: in this order.
        devices: `slots` of them.
        attempts: how often a run is started at most. One whose recipe refuses its arguments is started once.
        seconds: after these nothing is started any more; what runs then is waited for.
        finished: called after each run that was finished.

    Returns:
        Why runs are not finished, for each of them.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    waiting = deque((run, 1) for run in runs if run.state != "finished")
    free, active, problems = list(devices), [], {}
    try:
        while waiting or active:
            while waiting and free:
                run, attempt = waiting.popleft()
                if time.monotonic() >= end:
                    problems[run] = "not started within the budget" if attempt == 1 else problems[run]
                elif (started := launch(run, free[-1])) is None:
                    problems[run] = "another process is at it"
                else:
                    active.append((started, attempt, free.pop()))
                    logging.info("%s: started, see %s", run, run.log)
            time.sleep(0.2)
            for item in [item for item in active if item[0].process.poll() is not None]:
                active.remove(item)
                started, attempt, device = item
                free.append(device)
                problem = settle(started)
                if problem is None:
                    problems.pop(started.run, None)
                    finished()
                    continue
                problems[started.run] = problem
                if attempt < attempts and f"{started.run.recipe.name}: error: " not in problem:
                    waiting.appendleft((started.run, attempt + 1))
    finally:
        for started, _, _ in active:
            started.end()
    return problems


def settle(started: Launch) -> str | None:
    """Note how a start ended. Returns what went wrong, None where the run is finished."""
    run, seconds, code = started.run, time.monotonic() - started.started, started.process.returncode
    started.end()
    remember(run, [*started.earlier, {"seconds": round(seconds, 1), "exit_code": code}])
    if run.state == "finished":
        logging.info("%s: finished after %.1f minutes", run, seconds / 60)
        return None
    problem = f"died with exit code {code}: {started.message()}"
    logging.info("%s: %s", run, problem)
    return problem


def reproduce(plan: Plan) -> int:
    """Run the plan and write its pages. Returns 1 where a run that was started is not finished."""
    arguments = plan.arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if arguments.dry_run:
        print_plan(plan, sys.stdout)
        return 0
    problems = {}
    if not arguments.report_only:
        seconds = None if arguments.budget_minutes is None else 60 * arguments.budget_minutes
        problems = execute(plan.runs, slots(arguments), arguments.attempts, seconds, lambda: write_pages(plan))
    for path in write_pages(plan, problems):
        print(path)
    return int(any(problem.startswith("died") for problem in problems.values()))


def write_pages(plan: Plan, problems: Mapping[Run, str] | None = None) -> list[Path]:
    return []


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through `finally`, which ends what was started
    sys.exit(reproduce(prepare_or_exit(prepare)))
