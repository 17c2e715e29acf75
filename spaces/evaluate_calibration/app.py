"""A Space that computes the calibration metrics of samples typed or pasted into a table."""

import json
from pathlib import Path

import evaluate
import gradio as gr

from hf_focal.metrics import evaluate_module
from hf_focal.metrics.evaluate_calibration.evaluate_calibration import METRICS

MODULES = {name: evaluate.load(evaluate_module(), name) for name in METRICS}
EXAMPLE = [["[0.95, 0.05]", 0], ["[0.9, 0.1]", 1], ["[0.2, 0.8]", 1], ["[0.4, 0.6]", 0]]


def compute(samples: list[list], inputs: str) -> list[list]:
    """Return each metric's name and value for rows of a prediction, which is a JSON list, and its label."""
    try:
        predictions, references = [json.loads(row) for row, _ in samples], [int(label) for _, label in samples]
        data = {"predictions": predictions, "references": references, "inputs": inputs}
        return [[name, round(module.compute(**data)[name], 6)] for name, module in MODULES.items()]
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error)) from error


demo = gr.Interface(
    compute,
    [
        gr.Dataframe(EXAMPLE, headers=["predictions", "references"], datatype=["str", "number"], type="array"),
        gr.Radio(["probabilities", "logits"], value="probabilities", label="The predictions are"),
    ],
    gr.Dataframe(headers=["metric", "value"], label="Metrics"),
    title="Calibration metrics",
    article=Path(__file__).with_name("README.md").read_text(encoding="utf-8").split("---\n", 2)[2],
    flagging_mode="never",
    api_name="compute",
)

if __name__ == "__main__":
    demo.launch()
