"""Corrections as ONNX graphs: ONNX Runtime computes the probabilities that `Correction.apply` gives."""

import sys

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

from hf_focal import InputError, calibrate_scores, read_scores
from hf_focal.cli.main import main
from hf_focal.scores import export_correction
from hf_focal.scores.correction_files.correction_json import read_correction

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(1500, 4)) * [2, 3, 4, 5] + [0, 1, 0, -1]
CLASS = (LOGITS / [1, 1.5, 2, 2.5] + RANDOM.gumbel(size=LOGITS.shape)).argmax(1)
ONES = (RANDOM.random(LOGITS.shape) < expit(LOGITS / [1, 2, 3, 4] + 0.5)).astype(int)
SINGLE = {"logits": LOGITS - 300, "label": CLASS}  # log-likelihoods have much in common
UNKNOWN = {"logprobs": np.where(LOGITS < -6, -np.inf, log_softmax(LOGITS, 1)), "label": CLASS}
SEVERAL = {"logits": LOGITS, "labels": ONES}
ROUNDED = {"probabilities": softmax(LOGITS, 1).round(3), "label": CLASS}
COARSE = {"probabilities": softmax(LOGITS, 1).round(1), "label": CLASS}  # with many zeros
YES = {"probability": expit(LOGITS[:, 3]), "label": ONES[:, 3]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "options"),
    [
        (SINGLE, {"method": "temperature"}),
        (SINGLE, {"method": "vector"}),
        (SINGLE, {"method": "matrix"}),
        (SINGLE, {"method": "temperature", "new_prior": [0.4, 0.3, 0.2, 0.1]}),
        (ROUNDED, {"method": "temperature"}),
        (ROUNDED, {"method": "matrix"}),
        (COARSE, {"method": "temperature"}),
        (UNKNOWN, {"method": "temperature", "floor": 0.02}),
        (SEVERAL, {"method": "temperature"}),
        (SEVERAL, {"method": "temperature", "per_label": True}),
        (SEVERAL, {"method": "platt"}),
        (SEVERAL, {"method": "platt", "per_label": True}),
        (YES, {"method": "platt"}),
        (YES, {"method": "temperature"}),
    ],
)
def test_the_graph_computes_what_the_correction_does(table, options, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    result = calibrate_scores(table, output=tmp_path / "out", classes="abcd" if table is not YES else (), **options)
    assert abs(result.post["nll"] - result.pre["nll"]) > 1e-3  # so that the identity would fail
    export_correction(tmp_path / "out" / "correction.json", tmp_path / "correction.onnx")
    session = runtime.InferenceSession(tmp_path / "correction.onnx", providers=["CPUExecutionProvider"])
    (given,) = (part.name for part in session.get_inputs())
    column, scores = next(iter(table.items()))
    scores = scores.astype(np.float32)
    (found,) = session.run(["calibrated"], {given: scores.reshape(len(scores), -1)})
    saved = read_correction(tmp_path / "out" / "correction.json")
    logits = read_scores({column: scores.astype(float)}, needs_labels=False, schema=saved.schema).logits
    corrected = saved.correction.apply(logits)
    expected = softmax(corrected, 1) if "label" in table and table is not YES else expit(corrected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert session.get_modelmeta().custom_metadata_map["classes"] == ("" if table is YES else "a\nb\nc\nd")


def test_the_command_writes_the_graph_and_never_replaces_a_file(tmp_path, capsys):
    pytest.importorskip("onnx")
    calibrate_scores(SINGLE, output=tmp_path / "out")
    arguments = ["apply", str(tmp_path / "out" / "correction.json"), "--onnx", str(tmp_path / "correction.onnx")]
    assert main(arguments) == 0
    assert "a graph from scores to calibrated probabilities" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "onnx must be a new file, got" in capsys.readouterr().err


def test_what_the_command_needs(tmp_path, monkeypatch, capsys):
    for arguments, message in (
        (["correction.json"], "the following arguments are required: scores, output"),
        (["correction.json", "scores.csv", "--onnx", "correction.onnx"], "with --onnx, scores must not be given"),
    ):
        with pytest.raises(SystemExit):
            main(["apply", *arguments])
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"onnx needs the package onnx, pip install hf_focal\[onnx\]"):
        export_correction(tmp_path / "correction.json", tmp_path / "correction.onnx")
