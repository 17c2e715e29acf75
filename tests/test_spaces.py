"""The Spaces, asked over loopback as a browser would ask them."""

import contextlib
import importlib.util

import numpy as np
import pytest
import trained_models
from datasets import concatenate_datasets, load_dataset
from documented import ROOT

from hf_focal.metrics import metric_table

pytestmark = [pytest.mark.full, pytest.mark.slow]

FOLDER = ROOT / "spaces" / "calibrate"
METRICS = ROOT / "spaces" / "evaluate_calibration"


@contextlib.contextmanager
def served(folder):
    """A client of a folder's app."""
    from gradio_client import Client

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        spec = importlib.util.spec_from_file_location(f"{folder.name}_space", folder / "app.py")
        app = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(app)
        app.demo.launch(prevent_thread_lock=True, quiet=True)
        yield Client(app.demo.local_url, verbose=False)
        app.demo.close()


@pytest.fixture(scope="module")
def client():
    with served(FOLDER) as client:
        yield client


def test_the_metrics_of_a_table():
    with served(METRICS) as client:
        rows = {"headers": ["predictions", "references"], "data": [["[0.25, 0.75]", 1], ["[1.0, 0.0]", 0]]}
        values = dict(client.predict(rows, "probabilities", api_name="/compute")["data"])
        assert values.keys() == {key for key, metric in metric_table.METRICS.items() if metric.function}
        assert (values["ece"], values["brier"]) == pytest.approx((0.125, 0.0625))
        with pytest.raises(Exception, match="Expecting"):
            client.predict(rows | {"data": [["high", 1]]}, "probabilities", api_name="/compute")


def ask(client, api_name, path, *options):
    from gradio_client import handle_file

    return client.predict(handle_file(path), *options, "nll", api_name=api_name)


def test_the_example_is_twice_too_confident(client):
    text, before, after = ask(client, "/calibrate_logits", FOLDER / "example.csv")
    assert text.startswith("example.csv: logits\n\nOverconfident: says 71%, right 52%; after T = 1.9")
    assert "--output" not in text and "fold_correction(model, 1.9" in text
    assert "On the 300 samples of the second half:\n\n| " in text
    assert before["type"] == after["type"] == "matplotlib"
    assert before["plot"] != after["plot"]


def test_a_npz_file_gives_the_same_as_a_csv_file(client, tmp_path):
    table = np.loadtxt(FOLDER / "example.csv", delimiter=",", skiprows=1)
    np.savez(tmp_path / "example.npz", logits=table[:, 1:], labels=table[:, 0].astype(int))
    (text, *_), (same, *_) = (
        ask(client, "/calibrate_logits", path) for path in (FOLDER / "example.csv", tmp_path / "example.npz")
    )
    assert same == text.replace("example.csv", "example.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "the file must have the column label, got a, b"),
        ("label,a,b\n0,1,2\n", r"N >= 4 labels, got shapes \(1, 2\) and \(1,\)"),
        ("label,a,b\n" + "7,1,2\n" * 8, "labels must be"),
        ("", "No columns to parse"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(content, message, client, tmp_path):
    (tmp_path / "logits.csv").write_text(content)
    with pytest.raises(Exception, match=message):
        ask(client, "/calibrate_logits", tmp_path / "logits.csv")


def test_texts_with_a_model(client, tmp_path):
    case = trained_models.build("texts", tmp_path)
    parts = [load_dataset("parquet", data_files=str(file), split="train") for file in (case.validation, case.test)]
    rows = concatenate_datasets(parts).rename_column("premise", "text")
    names = rows.features["label"].int2str(rows["label"][:])
    rows.remove_columns("label").add_column("label", names).to_csv(tmp_path / "texts.csv")
    text, *_ = ask(client, "/calibrate_texts", tmp_path / "texts.csv", str(case.folder))
    assert "text-classification" in text
    assert "samples of test_dataset" in text
    with pytest.raises(Exception, match="no-such-model"):
        ask(client, "/calibrate_texts", tmp_path / "texts.csv", "no-such-model")
