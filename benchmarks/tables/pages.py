"""The pages, and the texts that are written between their comments."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from papers.pages.page import fill_page

from benchmarks.common.figures import RESULTS, read_figures
from benchmarks.tables import (
    exactness,
    gpu,
    large_tables,
    losses,
    metrics,
    peers,
    scaling,
    text_corrections,
    thresholds,
    training,
    zero_shot,
)
from benchmarks.tables.cells import with_machine

BENCHMARKS = RESULTS.parent
DOCS = BENCHMARKS.parent / "docs"
# The texts of README.md by the names of their places: the file of figures, and what makes the text of them.
README: dict[str, tuple[str, Callable[[Any], str]]] = {
    "losses": ("loss.json", lambda figures: losses.losses(figures["losses"])),
    "cpu_time": ("loss.json", lambda figures: losses.cpu_times(figures["cpu_time"])),
    "row_errors": ("loss.json", lambda figures: losses.row_errors(figures["row_errors_bfloat16"])),
    "mmce": ("loss.json", lambda figures: losses.mmce(figures["losses"])),
    "gamma": ("loss.json", lambda figures: losses.gamma(figures["gamma"])),
    "sigmoid": ("loss.json", lambda figures: losses.sigmoid_losses(figures["sigmoid"])),
    "small_batches": (
        "small_batches.json",
        lambda figures: losses.small_batches(figures["loss"], figures["training_step"]),
    ),
    "metrics": ("metrics.json", lambda figures: metrics.metrics(figures["lines"], figures["temperature_grid"])),
    "trainers": ("training_step.json", lambda figures: training.trainers(figures["lines"])),
    "commands": ("commands.json", training.commands),
    "command_memory": ("commands.json", training.command_memory),
    "start_times": ("commands.json", training.start_times),
    "token_times": ("token_calibration.json", lambda figures: metrics.token_times(figures["times"])),
    "token_memory": ("token_calibration.json", lambda figures: metrics.token_memory(figures["memory"])),
    "token_errors": ("token_calibration.json", lambda figures: metrics.token_errors(figures["accuracy"])),
    "scaling_fits": ("calibration.json", lambda figures: metrics.scaling_fits(figures["rows"])),
    "heads": ("linear_loss.json", lambda figures: training.heads(figures["losses"], figures["errors"])),
    "heads_sharded": ("linear_loss_sharded.json", lambda figures: training.heads(figures["losses"])),
    "gpu_losses": ("gpu_h200.jsonl", lambda lines: gpu.section(lines, "losses")),
    "gpu_heads": ("gpu_h200.jsonl", lambda lines: gpu.section(lines, "heads")),
    "gpu_metrics": ("gpu_h200.jsonl", lambda lines: gpu.section(lines, "metrics")),
    "gpu_images": ("gpu_h200.jsonl", lambda lines: gpu.section(lines, "images")),
    "trees": ("tree_lstm.json", lambda figures: training.trees(figures["steps"])),
    "dynamics": ("dynamics.json", lambda figures: training.dynamics(figures["results"])),
    "runtimes": ("serving.json", lambda figures: exactness.runtimes(figures["runtimes"])),
    "int8": ("serving.json", lambda figures: exactness.int8(figures["int8"])),
}


def read(name: str) -> Any:
    """Read a file of figures, or the lines of one."""
    if name.endswith(".json"):
        return read_figures(RESULTS / name)
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def readme_texts() -> dict[str, str]:
    """Return the tables of README.md; the first table of a file is followed by its machine."""
    records = [read_figures(file) for file in sorted(RESULTS.glob("processors/*.json"))]
    texts, seen = {"processors": losses.processors(records)}, set()
    for name, (file, text) in README.items():
        figures = read(file)
        machine = figures[0] if isinstance(figures, list) else figures.get("machine")
        texts[name] = with_machine(text(figures), machine) if machine and file not in seen else text(figures)
        seen.add(file)
    return texts


def write_readme(page: Path = BENCHMARKS / "README.md") -> None:
    fill_page(page, readme_texts())


def write_exactness(page: Path = DOCS / "exactness.md") -> None:
    figures = read("exactness.json")
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    fill_page(page, {"steps": exactness.optimizer_steps(figures["steps"]), "versions": versions})


def write_peers(page: Path = BENCHMARKS / "peers.md") -> None:
    peers.write_page(page, read("peers.json"))


def write_scaling(page: Path = DOCS / "research" / "scaling.md") -> None:
    fill_page(page, scaling.texts(read("scaling.json")))


def write_large_data(page: Path = DOCS / "guides" / "large_data.md") -> None:
    fill_page(page, large_tables.texts(read("large_tables.json")))


def write_thresholds(page: Path = DOCS / "research" / "thresholds.md") -> None:
    fill_page(page, thresholds.texts(read("thresholds.jsonl")))


def write_pages() -> None:
    for write in (write_readme, write_exactness, write_peers, write_scaling, write_large_data, write_thresholds):
        write()
    text_corrections.write_page()
    zero_shot.write_page()
