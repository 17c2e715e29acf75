"""The page of a reproduction: how it was run, the paper's tables with our figures, tests of claims, missing runs."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...reports import read_result
from ..runs.launcher import Job, history
from .claims_tests import claims_section
from .paper_tables import PaperCell, reproduction_table, write_reproduction_csv

# Text above this line is written by hand, and kept.
MARK = "<!-- What follows is written by recipes/papers/reproduce.py. -->\n"


@dataclass(frozen=True)
class CellRun:
    """The run of a table's cell with one seed, under the names of the table."""

    dataset: str
    model: str
    loss: str
    seed: int
    job: Job

    @property
    def row(self) -> str:
        return f"{self.dataset}/{self.model}"


def write_pages(
    folder: Path,
    page: Path,
    tables: Mapping[str, Sequence[PaperCell]],
    runs: Sequence[CellRun],
    how: str,
    problems: Mapping[Job, str],
) -> list[Path]:
    """Write each table as Markdown and CSV, and the page with all of them; return the paths.

    Args:
        folder: for the tables.
        page: the page; text above `MARK` is kept.
        tables: "paper:number" -> its cells.
        runs: of the cells, finished or not.
        how: what `how_it_was_run` returns.
        problems: why jobs are not finished, as far as known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results: dict = {}
    for run in runs:
        if run.job.state == "finished":
            of_seed = results.setdefault((run.dataset, run.model, run.loss), {})
            of_seed[run.seed] = read_result(run.job.result)
    paths, sections = [], [how]
    for table, cells in tables.items():
        path = folder / f"{table.replace(':', '_')}.md"
        paper, number = table.split(":")
        text = f"## Table {number} of {paper}\n\n{reproduction_table(cells, results)}"
        path.write_text(text.removeprefix("#"), encoding="utf-8")
        write_reproduction_csv(path.with_suffix(".csv"), cells, results)
        paths += [path, path.with_suffix(".csv")]
        sections.append(text)
    above = page.read_text(encoding="utf-8").partition(MARK)[0] if page.is_file() else "# Reproduction\n\n"
    sections += [claims_section(results), _missing(runs, problems)]
    page.write_text(above + MARK + "\n" + "\n".join(filter(None, sections)), encoding="utf-8")
    return [*paths, page]


def how_it_was_run(
    options: Mapping[str, Iterable[Any] | None],
    runs: Sequence[CellRun],
    overridden: Iterable[str],
    datasets: Mapping[str, Mapping[str, Any]],
    without_recipe: Sequence[str],
) -> str:
    """The section with the command, and what differs from the paper.

    Args:
        options: of the command, without the folders of this machine.
        runs: planned.
        overridden: names of arguments that differ from the configurations.
        datasets: of rows.yaml.
        without_recipe: rows that cannot be run.
    """
    parts = [f"--{name} {shlex.join(map(str, values))}" for name, values in options.items() if values]
    command = " \\\n    ".join(["python recipes/papers/reproduce.py", *parts, "--output_dir out/reproduce"])
    lines = [f"## How it was run\n\n```\n{command}\n```\n"]
    finished = [run for run in runs if run.job.state == "finished"]
    hours = sum(seconds_of(history(run.job.folder)) for run in finished) / 3600
    took = f", which took {hours:.1f} hours in all" if hours else ""
    lines.append(f"{len(finished)} of {len(runs)} runs are finished{took}.\n")
    lines.append(
        '"ours" is the mean ± standard deviation over the seeds. A seed draws the weights, the order of the samples '
        "and, if the data have none of their own, the validation set.\n"
    )
    differs = []
    for run in {run.row: run for run in runs}.values():
        entry, config = datasets[run.dataset], run.job.options["config"]
        values = yaml.safe_load(config.read_text(encoding="utf-8"))
        changes = [
            f"{name} {run.job.options[name]} (the configuration: {values.get(name, 'its default')})"
            for name in overridden
        ]
        texts = [f"`recipes/configs/{entry['config']}`", *changes, *filter(None, [entry.get("differs")])]
        differs.append(f"- {run.row}: {'; '.join(texts)}\n")
    if differs:
        lines.append("What is trained, and what differs from the paper:\n\n" + "".join(differs))
    if without_recipe:
        lines.append(f"Without a recipe, and so without ours: {', '.join(without_recipe)}.\n")
    return "\n".join(lines)


def seconds_of(past: Mapping[str, Any]) -> float:
    """The time that all launches of a job took."""
    return sum(launch["seconds"] for launch in past["launches"])


def _missing(runs: Sequence[CellRun], problems: Mapping[Job, str]) -> str:
    lines = []
    for run in runs:
        if run.job.state != "finished":
            problem = problems.get(run.job)
            lines.append(f"- {run.job.name}: {run.job.state}{f' ({problem})' if problem else ''}\n")
    return "## Not finished\n\n" + "".join(lines) if lines else ""
