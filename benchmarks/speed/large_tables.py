"""What large tables of scores cost: CPU time a row, peak memory, the size of what shards send, and a cluster.

    python -m benchmarks.speed.large_tables [--rows 1000000 4000000] [--classes 10] [--json FILE] [--folder FOLDER]

Tables are generated as Parquet files of a million rows. Each measurement runs in a process of its own, with one
thread, on the first files. Peak memory is beyond that after the imports. Polars, if installed, computes the ECE alone,
for comparison. 64 workers are simulated by 64 shards, whose statistics are merged one after the other.

With --workers, pools of processes measure the same files, and this process merges their statistics. On a busy machine,
look at the CPU time, not at the wall time: that of the busiest worker, plus that of this process, the serial part.

The table of a cluster multiplies: the time of a row by the rows of a worker, and the time and the size of a merge by
the number of files of ten million rows. It takes reading to be as fast for all workers as here for one.
"""

import argparse
import os
import pickle
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.figures import script_options, shown, write_figures
from benchmarks.common.lines import ClusterLine, Merges, Pool, TableLine
from benchmarks.common.processes import print_run, run_module
from benchmarks.common.timing import timed

PART = 1_000_000  # rows of a file
SHARD = 10_000_000  # rows of a file of the cluster
POLARS = "Polars, ECE alone"


def prepare() -> None:
    """Import what a measurement needs, which a long one does once."""
    import matplotlib.pyplot  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import scipy.interpolate  # noqa: F401
    import torch

    import hf_focal.scores.sets.measuring
    import hf_focal.workflow  # noqa: F401

    torch.set_num_threads(1)


def growth_of_memory(run: Callable[[], Any]) -> int:
    """Return by how much a run lets the memory of this process grow at most, in bytes, looking every 5 ms."""

    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before, peak = memory(), 0

    def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, memory() - before)
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    run()
    return peak


def tool(what: str, files: list[str]) -> Callable[[], Any]:
    """Return what is timed in a process of its own: a measurement, or a fit of a method."""
    if what == POLARS:
        import polars  # noqa: F401

        return partial(ece_by_polars, files)
    prepare()
    import hf_focal

    runs: dict[str, Callable[[], Any]] = {
        "evaluate": partial(hf_focal.evaluate_scores, files),
        "measure": partial(hf_focal.measure, files),
    }
    return partial(growth_of_memory, runs.get(what) or partial(hf_focal.calibrate_scores, files, method=what))


def ece_by_polars(files: list[str]) -> float:
    import polars as pl

    table = pl.scan_parquet(files)
    scores = [name for name in table.collect_schema().names() if name.startswith("logit_")]
    top = pl.max_horizontal(scores)
    total = pl.sum_horizontal((pl.col(name).cast(pl.Float64) - top.cast(pl.Float64)).exp() for name in scores)
    named = pl.coalesce(pl.when(pl.col(name) == top).then(pl.lit(name.removeprefix("logit_"))) for name in scores)
    samples = table.select(confidence=1 / total, hit=(named == pl.col("label").cast(pl.String)).cast(pl.Float64))
    bins = samples.group_by((pl.col("confidence") * 15).ceil().clip(1, 15)).agg(pl.len().alias("n"), pl.all().sum())
    sums = bins.collect(engine="streaming")
    return float((sums["confidence"] - sums["hit"]).abs().sum() / sums["n"].sum())


def write_part(path: Path, classes: int, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    names = np.array([f"c{number}" for number in range(classes)])
    writer = None
    for start in range(0, rows, step := max(1, 2**21 // classes)):
        logits = 2.5 * random.standard_normal((min(step, rows - start), classes), dtype=np.float32)
        noise = -np.log(-np.log(random.random(logits.shape, dtype=np.float32).clip(1e-7, 1 - 1e-7)))
        labels = pa.DictionaryArray.from_arrays(pa.array((logits / 1.6 + noise).argmax(1).astype(np.int32)), names)
        table = pa.table({**{f"logit_{name}": logits[:, i] for i, name in enumerate(names)}, "label": labels})
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=["label"])
        writer.write_table(table)
    if writer is not None:
        writer.close()


def parts_of(folder: Path, rows: int, classes: int) -> list[Path]:
    files = [folder / f"{classes}-{number}.parquet" for number in range(-(-rows // PART))]
    for number, path in enumerate(files):
        if not path.exists():
            write_part(path, classes, min(PART, rows - number * PART), number)
    return files


def table_lines(folder: Path, sizes: list[int], classes: int, methods: list[str]) -> Iterator[TableLine]:
    for rows in sizes:
        files = parts_of(folder, rows, classes)
        for what in (*methods, *([POLARS] if find_spec("polars") else [])):
            arguments = ("--tool", what, "--files", *map(str, files))
            run = run_module("benchmarks.speed.large_tables", *arguments, PYTHONWARNINGS="ignore")
            line: TableLine = {
                "what": what,
                "rows": rows,
                "classes": classes,
                "seconds": run["wall_seconds"],
                "cpu_seconds": run["seconds"],
            }
            yield line if what == POLARS else {**line, "peak_mb": run["result"] / 1e6}


def measure_merging(folder: Path, shards: int, classes: int = 10, rows: int = 20_000) -> Merges:
    """Measure shards, each with a sample as large as that of any table, and merge their pickled statistics."""
    from hf_focal import measure
    from hf_focal.scores import ScoreStatistics

    path, parts = folder / "shard.parquet", []
    for number in range(shards):
        write_part(path, classes, rows if number else 300_000, 1000 + number)
        parts.append(pickle.dumps(measure(path)))
    merged, _, cpu = timed(lambda: reduce(ScoreStatistics.merge, map(pickle.loads, parts)))
    return {"shards": shards, "rows": len(merged), "largest_mb": len(parts[0]) / 1e6, "seconds_a_merge": cpu / shards}


def measured_part(path: Path) -> tuple[bytes, int, float]:
    from hf_focal import measure

    statistics, _, cpu = timed(lambda: pickle.dumps(measure(path)))
    return statistics, os.getpid(), cpu


def with_workers(files: list[Path], number: int) -> Pool:
    """Measure files in a pool of `number` processes, and merge the statistics here."""
    from hf_focal.scores import ScoreStatistics

    worker_seconds: dict[int, float] = defaultdict(float)
    with ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=prepare) as pool:
        [*pool.map(time.sleep, [1.0] * number)]  # starts all workers

        def measure_and_merge() -> ScoreStatistics:
            parts = []
            for statistics, process, seconds in pool.map(measured_part, files):
                worker_seconds[process] += seconds
                parts.append(pickle.loads(statistics))
                if len(parts) == 2:
                    parts = [ScoreStatistics.merge(*parts)]
            return parts[0]

        merged, wall, serial = timed(measure_and_merge)
    seconds = sorted(worker_seconds.values())
    return {"workers": number, "rows": len(merged), "seconds": wall, "worker_cpu_seconds": seconds, "serial": serial}


def pools(files: list[Path], numbers: Sequence[int]) -> Iterator[Pool]:
    """Measure with each number of workers, and how much faster that is than with the first of the numbers."""

    def busiest(pool: Pool) -> float:
        return pool["worker_cpu_seconds"][-1] + pool["serial"]

    first: Pool | None = None
    for number in numbers:
        pool = with_workers(files, number)
        first = first or pool
        speedups = first["seconds"] / pool["seconds"], busiest(first) / busiest(pool)
        yield {**pool, "speedup_wall": speedups[0], "speedup_cpu": speedups[1]}


def cluster(lines: list[TableLine], merges: Merges) -> Iterator[ClusterLine]:
    """Hours of each worker, and gigabytes that are sent, for rows on workers: two rounds, to fit and to measure."""
    line = [line for line in lines if line["what"] == "measure"][-1]
    cost = line["cpu_seconds"] / line["rows"]
    for rows in (10**8, 10**9, 10**10):
        for workers in (1, 8, 64):
            shards = rows // SHARD
            seconds = 2 * cost * SHARD * -(-shards // workers) + 2 * shards * merges["seconds_a_merge"]
            sent = 2 * shards * merges["largest_mb"] / 1e3
            yield {"rows": rows, "workers": workers, "hours": seconds / 3600, "gigabytes_sent": sent}


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=["evaluate", "temperature", "auto", "measure"])
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[], help="pools for the last of the rows, such as 1 2"
    )
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tool:
        return print_run(tool(options.tool, options.files))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        lines = shown(table_lines(folder, options.rows, options.classes, options.methods))
        result: dict[str, Any] = {"lines": lines}
        if options.workers:
            files = parts_of(folder, options.rows[-1], options.classes)
            result["pools"] = shown(pools(files, options.workers))
        if options.shards:
            merges = measure_merging(Path(temporary), options.shards, options.classes)
            result["merges"] = shown([merges])
            if "measure" in options.methods:
                result["cluster"] = shown(cluster(lines, merges))
    write_figures(options.json, result)


if __name__ == "__main__":
    main()
