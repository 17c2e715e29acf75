"""Uses the modules for `evaluate.load` as a Space does, each from a folder that holds nothing else; prints JSON.

launched_modules.py FOLDER: copies of the modules' folders are in it. `evaluate` reads its settings at import, and so
needs a process of its own.
"""

import doctest
import json
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import evaluate
import pandas
import torch

WITHOUT_BINS = ("nll", "brier")
logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
labels = torch.arange(50) % 6
labels[7] = -100


class Interface:
    """Of Gradio's what `launch_gradio_widget` uses: the metric is computed from a table that somebody typed."""

    def __init__(self, fn, inputs, outputs, description, title, article):
        self.fn, self.shown = fn, {"headers": inputs, "description": description, "article": article}

    def launch(self):
        table = pandas.DataFrame({"predictions": ["[0.25, 0.75]", "[1.0, 0.0]"], "references": [1, 0]})
        pages.append(self.shown | {"result": self.fn(table)})


pages = []
sys.modules["gradio"] = SimpleNamespace(
    Interface=Interface,
    inputs=SimpleNamespace(Dataframe=lambda headers, col_count, row_count, datatype: headers),
    outputs=SimpleNamespace(Textbox=lambda label: label),
)


def examples(readme: Path) -> dict:
    """Run the Python of a README, all in one go."""
    text = re.sub("^```.*$", "", readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parsed, report = doctest.DocTestParser().get_doctest(text, {}, readme.parent.name, str(readme), 0), []
    failed, attempted = doctest.DocTestRunner(verbose=False).run(parsed, out=report.append)
    return {"failed": failed, "attempted": attempted, "report": "".join(report)}


def use(folder: Path) -> dict:
    name = folder.name
    module = evaluate.load(str(folder))
    found = {
        "classes": [type(module).__name__, type(evaluate.load(str(folder / f"{name}.py"))).__name__],
        "features": list(module.features),
        "description": module.description,
        "citation": module.citation,
        "inputs_description": module.inputs_description,
        "value": module.compute(predictions=logits.softmax(1).tolist(), references=labels.tolist())[name],
        "without_labels": module.compute(predictions=[[0.5, 0.5]], references=[-100])[name],
    }
    module.add_batch(predictions=logits[:30].tolist(), references=labels[:30].tolist())
    module.add_batch(predictions=logits[30:].tolist(), references=labels[30:].tolist())
    options = {} if name in WITHOUT_BINS else {"num_bins": 7}
    found["value_of_options"] = module.compute(inputs="logits", **options)[name]

    sys.path[0] = str(folder)  # where a script's own folder is; `evaluate` looks for the README there
    runpy.run_path(str(folder / "app.py"))
    return found | {"examples": examples(folder / "README.md"), "page": pages.pop()}


print(json.dumps({folder.name: use(folder) for folder in Path(sys.argv[1]).iterdir()}))
