"""Record the figures of finished runs of many_tasks.py in recipes/papers/records/many_tasks/, one JSON file a task.

    python recipes/papers/many_tasks_records.py OUT

Each run is measured on its test set as trained and with T, fitted to its held-out pool by NLL: one T, or one for each
label if there are several labels.
"""

import json
import sys
from pathlib import Path

import numpy as np

from hf_focal import CalibrationMetrics, fit_temperature

RECORDS = Path(__file__).parent / "records" / "many_tasks"
METRICS = ("error", "nll", "brier", "ece", "adaece", "smooth_ece", "aurc")


def measured(logits: np.ndarray, labels: np.ndarray, link: str) -> dict[str, float]:
    metrics = CalibrationMetrics(link=link)
    metrics.update(logits, labels)
    values = metrics.compute()
    return {name: round(float(values[name]), 6) for name in METRICS if name in values}


def record(folder: Path) -> dict:
    """Return the settings of a run with its figures before and after T."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    saved = np.load(folder / "logits.npz")
    pool, labels, test, test_labels = (
        saved[name].astype(np.float32) if name.endswith("logits") else saved[name]
        for name in ("pool_logits", "pool_labels", "test_logits", "test_labels")
    )
    link = "sigmoid" if labels.ndim == 2 else "softmax"
    correction = fit_temperature(pool, labels, link=link, per_label=link == "sigmoid")
    run["none"] = measured(test, test_labels, link)
    run["temperature"] = measured(correction.apply(test), test_labels, link) | {"T": round(correction.value, 4)}
    del run["test"]
    return run


def main() -> None:
    runs: dict[str, list[dict]] = {}
    for path in sorted(Path(sys.argv[1]).glob("*/run.json")):
        run = record(path.parent)
        runs.setdefault(run["task"], []).append(run)
    RECORDS.mkdir(parents=True, exist_ok=True)
    for task, finished in runs.items():
        lines = ",\n".join(json.dumps(run) for run in finished)
        (RECORDS / f"{task}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        print(f"{task}: {len(finished)} runs")


if __name__ == "__main__":
    main()
