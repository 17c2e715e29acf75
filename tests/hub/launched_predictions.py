"""Predicts with checkpoints as anybody would: by plain Transformers, without hf_focal.

launched_predictions.py FOLDER [MODULE]: a folder in it has a checkpoint, and task.pt, which says what to do with it.
MODULE is imported first, for models whose code is not in Transformers. What was found is written to
FOLDER/predictions.pt, with the modules of hf_focal that were imported until then.
"""

import importlib
import sys
from pathlib import Path

import torch
import transformers


def predict(folder: Path) -> dict:
    task = torch.load(folder / "task.pt")
    model = getattr(transformers, task["auto"]).from_pretrained(folder)
    with torch.no_grad():
        found = {"probabilities": model(**task["inputs"]).logits.softmax(-1)}
    found |= {
        "class": type(model).__name__,
        "calibration": model.config.calibration,
        "num_parameters": model.num_parameters(),  # of tied weights one counts
    }
    if "texts" in task:
        found["scores"] = transformers.pipeline("text-classification", str(folder))(task["texts"], top_k=None)
    if "generate" in task:
        output = model.generate(**task["generate"])
        found |= {"sequences": output.sequences.tolist(), "sequences_scores": output.sequences_scores}
        found["generation_config"] = model.generation_config.to_dict()
    return found


root, *modules = sys.argv[1:]
for module in modules:
    importlib.import_module(module)
predictions = {path.parent.name: predict(path.parent) for path in Path(root).glob("*/task.pt")}
ours = sorted(name for name in sys.modules if name.split(".")[0] in ("hf_focal", "papers"))
torch.save({"predictions": predictions, "imported": ours}, Path(root) / "predictions.pt")
