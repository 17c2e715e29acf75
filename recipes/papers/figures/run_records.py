"""Records of finished runs: small JSON files, kept in the repository, from which tables and figures are made."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from hf_focal.calibration import fit_temperature
from hf_focal.metrics import ReliabilityBins, adaptive_calibration_error
from hf_focal.reports import RunResult
from hf_focal.utils.atomic_write import write_whole

from .bleu_results import TranslationResult, read_result

_NOT_SET: tuple[Any, ...] = (None, "", [], {})


def record_of(folder: str | Path) -> dict[str, Any]:
    """Return a finished run's record: its settings, its metrics before and after T, and its reliability bins before T.

    If the run fitted T by AdaECE or saved its logits, "equal_mass" has the T that minimizes the AdaECE of the
    validation set, and the AdaECE of the test set before and after this T, as in table 1 of Ghosh et al. 2022. If the
    run was measured by a `DynamicsCallback`, "dynamics_history" has the measurements.

    Args:
        folder: the run's folder, with run.json and report/metrics.json.
    """
    folder = Path(folder)
    result = read_result(folder / "report" / "metrics.json")
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    bins = {name: getattr(result.pre_bins, name) for name in ("edges", "count", "confidence", "accuracy")}
    history = result.details.get("dynamics_history")
    return {
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


def write_record(record: dict[str, Any], path: str | Path) -> None:
    """Write a record as JSON, with one line per key. Floats are rounded to seven digits, and NaN becomes null."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(record), ensure_ascii=False, separators=(",", ":"))
    write_whole(path, text.replace(',"', ',\n"') + "\n")


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


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
