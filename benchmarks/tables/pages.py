"""The pages, and the texts that are written between their comments."""

import json
from pathlib import Path
from typing import Any

from papers.pages.page import fill_page

from benchmarks.common.figures import RESULTS, read_figures
from benchmarks.tables import (
    exactness,
    gpu,
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


def results(name: str) -> Any:
    return read_figures(RESULTS / f"{name}.json")


def read_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def readme_texts() -> dict[str, str]:
    """Return the tables of benchmarks/README.md."""
    loss, small, metric, heads = (results(name) for name in ("loss", "small_batches", "metrics", "linear_loss"))
    sharded, trainer, commands, serving = (
        results(name) for name in ("linear_loss_sharded", "training_step", "commands", "serving")
    )
    tokens, fits, trees, dynamics = (
        results(name) for name in ("token_calibration", "calibration", "tree_lstm", "dynamics")
    )
    gpu_machine, *gpu_lines = read_lines("gpu_h200")
    records = [read_figures(file) for file in sorted(RESULTS.glob("processors/*.json"))]
    small_losses = losses.small_batches(small["loss"], small["training_step"])
    measured = {
        "losses": (losses.losses(loss["losses"]), loss["machine"]),
        "cpu_time": (losses.cpu_times(loss["cpu_time"]), loss["machine"] | {"threads": 1}),
        "sigmoid": (losses.sigmoid_losses(loss["sigmoid"]), loss["machine"]),
        "small_batches": (small_losses, small["machine"]),
        "metrics": (metrics.metrics(metric["lines"], metric["temperature_grid"]), metric["machine"]),
        "trainers": (training.trainers(trainer["lines"]), trainer["machine"]),
        "token_times": (metrics.token_times(tokens["times"]), tokens["machine"]),
        "scaling_fits": (metrics.scaling_fits(fits["rows"]), fits["machine"]),
        "heads": (training.heads(heads["losses"], heads["errors"]), heads["machine"]),
        "heads_sharded": (training.heads(sharded["losses"]), sharded["machine"]),
        "trees": (training.trees(trees["steps"]), trees["machine"]),
        "dynamics": (training.dynamics(dynamics["results"]), dynamics["machine"]),
        "gpu_losses": (gpu.section(gpu_lines, "losses"), {name: gpu_machine[name] for name in ("torch", "device")}),
    }
    return {name: with_machine(*part) for name, part in measured.items()} | {
        "processors": losses.processors(records),
        "token_memory": metrics.token_memory(tokens["memory"]),
        "commands": training.commands(commands),
        "command_memory": training.command_memory(commands),
        "start_times": training.start_times(commands),
        "row_error_ours": f"{loss['row_errors_bfloat16']['ours']:.1e}",
        "row_error_theirs": f"{loss['row_errors_bfloat16']['F.cross_entropy']:.1e}",
        "mmce": losses.mmce(loss["losses"]),
        "gamma": losses.gamma(loss["gamma"]),
        "token_errors": metrics.token_errors(tokens["accuracy"]),
        "gpu_heads": gpu.section(gpu_lines, "heads"),
        "gpu_metrics": gpu.section(gpu_lines, "metrics"),
        "gpu_images": gpu.section(gpu_lines, "images"),
        "runtimes": exactness.runtimes(serving["runtimes"]),
        "int8": exactness.int8(serving["int8"]),
    }


def write_readme(page: Path = BENCHMARKS / "README.md") -> None:
    fill_page(page, readme_texts())


def write_exactness(page: Path = DOCS / "exactness.md") -> None:
    figures = results("exactness")
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    fill_page(page, {"steps": exactness.optimizer_steps(figures["steps"]), "versions": versions})


def write_peers(page: Path = BENCHMARKS / "peers.md") -> None:
    peers.write_page(page, results("peers"))


def write_scaling(page: Path = DOCS / "research" / "scaling.md") -> None:
    fill_page(page, scaling.texts(results("scaling")))


def write_thresholds(page: Path = DOCS / "research" / "thresholds.md") -> None:
    fill_page(page, thresholds.texts(read_lines("thresholds")))


def write_pages() -> None:
    for write in (write_readme, write_exactness, write_peers, write_scaling, write_thresholds):
        write()
    text_corrections.write_page()
    zero_shot.write_page()
