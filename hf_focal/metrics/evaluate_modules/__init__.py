"""The metrics as modules for `evaluate.load`: no copies, each calls the function of `hf_focal.metrics`."""

from pathlib import Path


def evaluate_module(name: str) -> str:
    """Return the path to give to `evaluate.load`.

    The names are "ece", "adaece", "classwise_ece", "mce", "ace", "rmsce", "nll" and "brier"; any other
    raises ValueError.

    `evaluate.load(evaluate_module("ece")).compute(predictions=probabilities, references=labels)` needs no network.
    """
    folder = Path(__file__).parent
    names = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    if name not in names:
        raise ValueError(f"name must be one of {', '.join(names)}, got {name!r}")
    return str(folder / name)
