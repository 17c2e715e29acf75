"""A Space that measures and corrects a classifier's calibration, from its logits or from texts and a Hub model."""

import tempfile
from pathlib import Path

import gradio as gr
import numpy as np
import pandas as pd
import torch

from hf_focal import calibrate_model, fit_temperature, reliability_diagram
from hf_focal.reports import RunResult
from hf_focal.reports.wording.text_summary import summary

MAX_TEXTS = 2000
INTRO = """# Calibrate a classifier

Is a model that says 95% right 95 times out of 100? Upload held-out samples, which the model was **not trained on**.
One half is used to fit the temperature T, and the other half to measure the results."""


def read_logits(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Read logits, float64 (N, K), and labels, int64 (N,), from a csv or npz file."""
    if path.endswith(".npz"):
        with np.load(path) as arrays:
            missing = {"logits", "labels"} - set(arrays)
            if missing:
                raise ValueError(f"the file must have the arrays logits and labels, got {', '.join(arrays) or 'none'}")
            logits, labels = arrays["logits"], arrays["labels"]
    else:
        table = pd.read_csv(path)
        if "label" not in table:
            raise ValueError(f"the file must have the column label, got {', '.join(map(str, table.columns))}")
        labels, logits = table.pop("label").to_numpy(), table.to_numpy(np.float64)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(labels) < 4:
        raise ValueError(f"there must be N x K logits and N >= 4 labels, got shapes {logits.shape} and {labels.shape}")
    return logits.astype(np.float64), labels.astype(np.int64)


def halves(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the rows to fit T on and the rows to measure it on, the same ones each time."""
    rows = np.random.default_rng(0).permutation(size)
    return rows[: size // 2], rows[size // 2 :]


def calibrate_logits(file: str | None, objective: str) -> tuple:
    """Fit T to one half of uploaded logits and show the calibration of the other half."""
    if file is None:
        raise gr.Error("Upload a file first, or choose the example.")
    try:
        logits, labels = map(torch.from_numpy, read_logits(file))
        fit, test = halves(len(labels))
        temperature = fit_temperature(logits[fit], labels[fit], objective=objective)
        details = {"model": Path(file).name, "task": "logits", "notes": []}
        details |= {"fitted_on": "the first half", "measured_on": "the second half"}
        return shown(RunResult.measure("unknown", temperature, logits[test], labels[test], details=details))
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error)) from error


def calibrate_texts(file: str | None, model: str, objective: str) -> tuple:
    """Fit T of a Hub model to one half of uploaded texts and show the calibration on the other half."""
    if file is None or not model.strip():
        raise gr.Error("Upload a file and name a model first.")
    try:
        table = pd.read_csv(file)
        fit, test = (table.iloc[rows[:MAX_TEXTS]] for rows in halves(len(table)))
        with tempfile.TemporaryDirectory() as folder:
            fit.to_csv(Path(folder) / "fit.csv", index=False)
            test.to_csv(Path(folder) / "test.csv", index=False)
            data = {"dataset": f"{folder}/fit.csv", "test_dataset": f"{folder}/test.csv"}
            options = {"objective": objective, "method": "temperature", "task": "text-classification"}
            return shown(calibrate_model(model.strip(), **data, **options))
    except (ValueError, OSError) as error:
        raise gr.Error(str(error)) from error


def shown(result: RunResult) -> tuple:
    """Return what the page shows of a result: the summary, and the diagrams before and after T."""
    temperature = result.temperature.value
    return (
        f"{summary(result)}\n\nTo apply T to a model: `hf_focal.fold_correction(model, {temperature:.6g})`.",
        reliability_diagram(metrics=result.pre_bins, title="Before"),
        reliability_diagram(metrics=result.post_bins, title=f"After, T = {temperature:.3g}"),
    )


with gr.Blocks(title="Calibrate a classifier") as demo:
    gr.Markdown(INTRO)
    with gr.Tab("Logits"):
        gr.Markdown(
            "A csv file with the column `label` (0 to K - 1) and one column of logits per class, or an npz file with "
            "the arrays `logits` (N, K) and `labels` (N,)."
        )
        logits_file = gr.File(label="Logits and labels", file_types=[".csv", ".npz"])
        logits_objective = gr.Radio(["nll", "ece"], value="nll", label="T minimizes")
        gr.Examples([[str(Path(__file__).with_name("example.csv"))]], [logits_file])
        logits_button = gr.Button("Calibrate", variant="primary")
    with gr.Tab("Texts with a model"):
        gr.Markdown(
            "A csv file with the columns `text` and `label`; the labels are the model's names or numbers. At most "
            f"{MAX_TEXTS} texts are used to fit T, and {MAX_TEXTS} to measure it."
        )
        texts_file = gr.File(label="Texts and labels", file_types=[".csv"])
        model_name = gr.Textbox(label="Model", placeholder="cardiffnlp/twitter-roberta-base-sentiment-latest")
        texts_objective = gr.Radio(["nll", "ece"], value="nll", label="T minimizes")
        texts_button = gr.Button("Calibrate", variant="primary")
    text = gr.Markdown()
    with gr.Row():
        outputs = [text, gr.Plot(label="Before", show_label=False), gr.Plot(label="After", show_label=False)]
    logits_button.click(calibrate_logits, [logits_file, logits_objective], outputs, api_name="calibrate_logits")
    texts_button.click(calibrate_texts, [texts_file, model_name, texts_objective], outputs, api_name="calibrate_texts")

if __name__ == "__main__":
    demo.launch(max_file_size="20mb")
