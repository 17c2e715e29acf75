"""Records of finished runs, kept in the repository as one table an experiment, from which pages are made.

A record is a nested dictionary of JSON values. NAME.csv has a row for each run and a column for each value, such as
"before/ece"; NAME.settings.json has the values that all runs share. A cell is JSON, or a string without its quotes; an
empty cell is a value that the run does not have.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from hf_focal.calibration import fit_temperature
from hf_focal.metrics import ReliabilityBins, adaptive_calibration_error
from hf_focal.reports import RunResult
from hf_focal.utils.atomic_write import write_whole
from papers.runs.translation_results import TranslationResult, read_result

_NOT_SET: tuple[Any, ...] = (None, "", [], {})


def record_of(folder: str | Path) -> dict[str, Any]:
    """Return a finished run's record: its settings, its metrics before and after T, and its reliability bins before T.

    `folder` has run.json and report/metrics.json. Floats are rounded to seven digits, and NaN becomes None. If the run
    fitted T by AdaECE or saved its logits, "equal_mass" has the T that minimizes the AdaECE of the validation set, and
    the AdaECE of the test set before and after this T, as in table 1 of Ghosh et al. 2022. If the run was measured by
    a `DynamicsCallback`, "dynamics_history" has the measurements.
    """
    folder = Path(folder)
    result = read_result(folder / "report" / "metrics.json")
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    bins = {name: getattr(result.pre_bins, name) for name in ("edges", "count", "confidence", "accuracy")}
    history = result.details.get("dynamics_history")
    record = {
        "loss": result.loss,
        "seed": run["seed"],
        "settings": {key: _without_folder(key, value) for key, value in run.items() if value not in _NOT_SET},
        "temperature": result.temperature.to_dict(),
        "before": dict(result.pre),
        "after": dict(result.post),
        "bins": {name: values.tolist() for name, values in bins.items()},
        "equal_mass": _equal_mass(folder / "logits.npz", result),
        **{key: result.details.get(key) for key in ("best_checkpoint", "best_validation_metric", "train_metrics")},
        **({"dynamics_history": history} if history else {}),
        **(_by_temperature(result) if isinstance(result, TranslationResult) else {}),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    return rounded(record)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of an experiment, given the path of its CSV file; none if there is no such file."""
    if not path.is_file():
        return []
    shared = json.loads(path.with_suffix(".settings.json").read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [_nested(shared | {name: _value(cell) for name, cell in row.items() if cell}) for row in rows]


def add_records(path: Path, records: Iterable[dict[str, Any]], name_of: Callable[[dict[str, Any]], Any]) -> None:
    """Add records to an experiment's CSV file, in the order of their names; those of the same name are replaced."""
    named = {name_of(record): record for record in (*read_records(path), *records)}
    rows = [{key: _cell(value) for key, value in _flat(named[name])} for name in sorted(named)]
    one = len(rows) == 1
    shared = {k: _value(v) for k, v in rows[0].items() if not one and all(row.get(k) == v for row in rows)}
    varying = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in shared]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path.with_suffix(".settings.json"), json.dumps(shared, indent=0, ensure_ascii=False) + "\n")
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(varying)
    writer.writerows([row.get(key, "") for key in varying] for row in rows)
    write_whole(path, table.getvalue())


def _flat(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in values.items():
        *folders, last = name.split("/")
        place = record
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return record


def _cell(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value if isinstance(value, str) and value and _value(value) is value else text


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def bins_of(record: dict[str, Any]) -> ReliabilityBins:
    """Return the reliability bins of a record that was read from its file."""
    return ReliabilityBins(**{name: np.array(values, dtype=float) for name, values in record["bins"].items()})


def _without_folder(key: str, value: Any) -> Any:
    is_local = key.endswith(("_file", "_dir")) or (key == "model_name_or_path" and Path(value).is_absolute())
    return Path(value).name if is_local else value


def _by_temperature(result: TranslationResult) -> dict[str, dict[str, float]]:
    ece = {str(value): result.validation_ece[value] for value in result.bleu if value in result.validation_ece}
    return {"bleu": {str(value): bleu for value, bleu in result.bleu.items()}, "validation_ece": ece}


def _equal_mass(path: Path, result: RunResult) -> dict[str, float] | None:
    if result.temperature.objective == "adaece":
        before, after = (metrics["adaece"] for metrics in (result.pre, result.post))
        return {"temperature": result.temperature.value, "before": before, "after": after}
    if not path.is_file():
        return None
    num_bins = result.temperature.num_bins
    with np.load(path) as saved:
        value = fit_temperature(saved["validation_logits"], saved["validation_labels"], "adaece", num_bins).value
        before, after = (
            adaptive_calibration_error(saved["test_logits"] / t, saved["test_labels"], num_bins) for t in (1, value)
        )
    return {"temperature": value, "before": before, "after": after}


def rounded(value: Any, digits: int = 7) -> Any:
    """Round the floats in a JSON value to a number of digits; NaN becomes None."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, list) else value
