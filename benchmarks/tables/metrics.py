"""The tables of metrics, temperatures, corrections, and token calibration."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.common.lines import GridLine, MetricLine, TokenErrors, TokenMemory, TokenTimes
from benchmarks.common.metric_functions import OURS
from benchmarks.tables.cells import number
from hf_focal.reports.wording.markdown_tables import MISSING, rows_table


def metrics(lines: Iterable[MetricLine], grid: Iterable[GridLine]) -> str:
    """Our milliseconds, and the others' time as multiples of it."""

    def multiple(line: MetricLine, start: str) -> str:
        return next((f"{ratio:.1f}×" for name, ratio in line["ratio"].items() if name.startswith(start)), MISSING)

    rows = [
        [line["name"], number(1e3 * line["seconds"][OURS]), multiple(line, "torchmetrics"), multiple(line, "loop")]
        for line in lines
    ]
    for fit in grid:
        name = f"temperature grid {fit['rows']:,} x {fit['classes']:,}"
        rows.append([name, number(1e3 * fit["ours_s"]), MISSING, f"{fit['ratio']:.1f}×"])
    return rows_table(["", "ours, ms", "torchmetrics", "loop"], rows)


def token_times(lines: Iterable[TokenTimes]) -> str:
    rows = [
        [
            f"{line['tokens']} tokens",
            f"{line['forward_ms']:.0f} ms",
            f"{line['one_pass_ms']:.0f} ms, {line['tokens_per_second']:,.0f} tokens/s",
            f"{line['one_pass_of_forward']:.2f}",
            f"{line['loop_ms'] / 1e3:.2f} s",
            f"{line['loop_of_one_pass']:.0f}",
        ]
        for line in lines
    ]
    return rows_table(["", "forward", "one pass", "of the forward", "loop", "times the one pass"], rows)


def token_memory(lines: Iterable[TokenMemory]) -> str:
    rows = [
        [f"{line['tokens']:,}", *(f"{line[key]:.1f}" for key in ("logits_mib", "batches_mib", "at_once_mib"))]
        for line in lines
    ]
    return rows_table(["tokens", "logits, MiB", "peak in batches of 128", "peak at once"], rows)


def scaling_fits(rows: Iterable[Mapping[str, Any]]) -> str:
    """Our seconds and NLL; of each peer, seconds, the ratio to ours, and NLL."""

    def cell(peer: Mapping[str, Any] | None) -> str:
        if peer is None:
            return MISSING
        if "ratio" not in peer:
            return f"stopped after {peer['stopped_after_s']:g} s"
        low, high = peer["ratio"]["least"], peer["ratio"]["most"]
        return f"{peer['cpu_s']:.2g} s, {peer['ratio']['median']:.1f}× ({low:.1f} to {high:.1f}), {peer['nll']:.2f}"

    names = ("probmetrics", "netcal")
    cells = [
        [
            f"{row['method']}, {row['samples']:,} × {row['classes']:,}",
            f"{row['cpu_s']:.2g} s, {row['nll']:.2f}",
            *(cell(row.get(name)) for name in names),
        ]
        for row in rows
    ]
    return rows_table(["", "hf_focal", *names], cells)


def token_errors(errors: TokenErrors) -> str:
    return f"{errors['ece_difference']:.1e} (ECE) and {errors['nll_difference']:.1e} (NLL)"
