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
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import write_measurements

PART = 1_000_000  # rows of a file
SHARD = 10_000_000  # rows of a file of the cluster
RUN = """
import sys, threading, time
import torch
import hf_focal.workflow, hf_focal.scores, pyarrow.dataset, scipy.interpolate, matplotlib.pyplot
torch.set_num_threads(1)
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
start, peak = memory(), [0]
def watch():
    while True:
        peak[0] = max(peak[0], memory() - start)
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
what, files = sys.argv[1], sys.argv[2:]
wall, cpu = time.perf_counter(), time.process_time()
if what == "evaluate":
    result = hf_focal.workflow.evaluate_scores(files)
elif what == "measure":
    result = hf_focal.scores.measure(files)
else:
    result = hf_focal.workflow.calibrate_scores(files, method=what)
print(time.perf_counter() - wall, time.process_time() - cpu, peak[0])
"""
POLARS = """
import sys, time
import polars as pl
wall, cpu = time.perf_counter(), time.process_time()
table = pl.scan_parquet(sys.argv[1:])
scores = [name for name in table.collect_schema().names() if name.startswith("logit_")]
top = pl.max_horizontal(scores)
total = pl.sum_horizontal((pl.col(name).cast(pl.Float64) - top.cast(pl.Float64)).exp() for name in scores)
named = pl.coalesce(pl.when(pl.col(name) == top).then(pl.lit(name.removeprefix("logit_"))) for name in scores)
samples = table.select(confidence=1 / total, hit=(named == pl.col("label").cast(pl.String)).cast(pl.Float64))
bins = samples.group_by((pl.col("confidence") * 15).ceil().clip(1, 15)).agg(pl.len().alias("n"), pl.all().sum())
sums = bins.collect(engine="streaming")
ece = (sums["confidence"] - sums["hit"]).abs().sum() / sums["n"].sum()
print(time.perf_counter() - wall, time.process_time() - cpu, ece)
"""


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


def run(code: str, *arguments: object) -> list[float]:
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return [
        float(value) for value in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ]


def parts_of(folder: Path, rows: int, classes: int) -> list[Path]:
    files = [folder / f"{classes}-{number}.parquet" for number in range(-(-rows // PART))]
    for number, path in enumerate(files):
        if not path.exists():
            write_part(path, classes, min(PART, rows - number * PART), number)
    return files


def lines_of(folder: Path, sizes: list[int], classes: int, methods: list[str]) -> list[dict]:
    lines = []
    for rows in sizes:
        files = parts_of(folder, rows, classes)
        for what in methods:
            wall, cpu, peak = run(RUN, what, *files)
            line = {"what": what, "rows": rows, "classes": classes, "seconds": wall, "cpu_seconds": cpu}
            lines.append(line | {"peak_mb": peak / 1e6})
            print(lines[-1], flush=True)
        try:
            wall, cpu, _ = run(POLARS, *files)
        except subprocess.CalledProcessError:
            continue
        lines.append(
            {"what": "Polars, ECE alone", "rows": rows, "classes": classes, "seconds": wall, "cpu_seconds": cpu}
        )
        print(lines[-1], flush=True)
    return lines


def merging(folder: Path, shards: int, classes: int = 10, rows: int = 20_000) -> dict:
    """Measure shards, each with a sample as large as that of any table, and merge their pickled statistics."""
    from hf_focal import measure
    from hf_focal.scores import ScoreStatistics

    path, parts = folder / "shard.parquet", []
    for number in range(shards):
        write_part(path, classes, rows if number else 300_000, 1000 + number)
        parts.append(pickle.dumps(measure(path)))
    cpu = time.process_time()
    merged = reduce(ScoreStatistics.merge, map(pickle.loads, parts))
    seconds = (time.process_time() - cpu) / shards
    return {"shards": shards, "rows": len(merged), "largest_mb": len(parts[0]) / 1e6, "seconds_a_merge": seconds}


def prepare() -> None:
    """Import in a worker what it needs, which a long measurement does once."""
    import torch

    import hf_focal.scores.sets.measuring  # noqa: F401

    torch.set_num_threads(1)


def measured_part(path: Path) -> tuple[bytes, int, float]:
    from hf_focal import measure

    cpu = time.process_time()
    statistics = pickle.dumps(measure(path))
    return statistics, os.getpid(), time.process_time() - cpu


def with_workers(files: list[Path], number: int) -> dict:
    """Measure files in a pool of `number` processes, and merge the statistics here."""
    from hf_focal.scores import ScoreStatistics

    with ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=prepare) as pool:
        [*pool.map(time.sleep, [1.0] * number)]  # starts all workers
        wall, cpu, worker_seconds = time.perf_counter(), time.process_time(), Counter[int]()
        merged = None
        for statistics, process, seconds in pool.map(measured_part, files):
            worker_seconds[process] += seconds
            part = pickle.loads(statistics)
            merged = part if merged is None else ScoreStatistics.merge(merged, part)
        wall, serial = time.perf_counter() - wall, time.process_time() - cpu
    seconds = sorted(worker_seconds.values())
    return {"workers": number, "rows": len(merged), "seconds": wall, "worker_cpu_seconds": seconds, "serial": serial}


def cluster(lines: list[dict], merges: dict) -> list[dict]:
    """Hours of each worker, and gigabytes that are sent, for rows on workers: two rounds, to fit and to measure."""
    costs = {line["what"]: line["cpu_seconds"] / line["rows"] for line in lines if line["rows"] == lines[-1]["rows"]}
    needs = []
    for rows in (10**8, 10**9, 10**10):
        for workers in (1, 8, 64):
            shards = rows // SHARD
            seconds = 2 * costs["measure"] * SHARD * -(-shards // workers) + 2 * shards * merges["seconds_a_merge"]
            sent = 2 * shards * merges["largest_mb"] / 1e3
            needs.append({"rows": rows, "workers": workers, "hours": seconds / 3600, "gigabytes_sent": sent})
    return needs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=["evaluate", "temperature", "auto", "measure"])
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[], help="pools for the last of the rows, such as 1 2"
    )
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        lines = lines_of(folder, options.rows, options.classes, options.methods)
        result: dict = {"lines": lines}
        if options.workers:
            files = parts_of(folder, options.rows[-1], options.classes)
            pools = [with_workers(files, number) for number in options.workers]
            first = pools[0]["worker_cpu_seconds"][-1] + pools[0]["serial"]
            for pool in pools:
                pool["speedup_wall"] = pools[0]["seconds"] / pool["seconds"]
                pool["speedup_cpu"] = first / (pool["worker_cpu_seconds"][-1] + pool["serial"])
            result["pools"] = pools
        if options.shards:
            merges = merging(Path(temporary), options.shards, options.classes)
            result |= {"merges": [merges]}
            if "measure" in options.methods:
                result["cluster"] = cluster([line for line in lines if line["what"] == "measure"], merges)
    write_measurements(options.json, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
