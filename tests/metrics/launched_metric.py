"""Uses the metric for `evaluate.load`; prints JSON.

launched_metric.py FOLDER NAME...: the metric's folder and its configurations. `evaluate` reads its settings at import,
so it needs a process of its own.
"""

import doctest
import json
import re
import sys
from pathlib import Path

import evaluate
import torch

WITHOUT_BINS = ("nll", "brier")
folder, names = Path(sys.argv[1]), sys.argv[2:]
logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
labels = torch.arange(50) % 6
labels[7] = -100


def use(name: str) -> dict:
    metric = evaluate.load(str(folder), name)
    found = {
        "features": list(metric.features),
        "description": metric.description,
        "citation": metric.citation,
        "inputs_description": metric.inputs_description,
        "value": metric.compute(predictions=logits.softmax(1).tolist(), references=labels.tolist())[name],
        "without_labels": metric.compute(predictions=[[0.5, 0.5]], references=[-100])[name],
    }
    metric.add_batch(predictions=logits[:30].tolist(), references=labels[:30].tolist())
    metric.add_batch(predictions=logits[30:].tolist(), references=labels[30:].tolist())
    options = {} if name in WITHOUT_BINS else {"num_bins": 7}
    return found | {"value_of_options": metric.compute(inputs="logits", **options)[name]}


def error(*configuration: str) -> str:
    try:
        evaluate.load(str(folder), *configuration)
    except ValueError as raised:
        return str(raised)
    return ""


def examples(readme: Path) -> dict:
    """Run the Python of a README, all in one go."""
    text = re.sub("^```.*$", "", readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parsed, report = doctest.DocTestParser().get_doctest(text, {}, readme.parent.name, str(readme), 0), []
    failed, attempted = doctest.DocTestRunner(verbose=False).run(parsed, out=report.append)
    return {"failed": failed, "attempted": attempted, "report": "".join(report)}


results = {"metrics": {name: use(name) for name in names}, "errors": [error(), error("accuracy")]}
print(json.dumps(results | {"examples": examples(folder / "README.md")}))
