"""Models exported to ONNX, in float32 and int8: they are measured like the model, and corrected in their graph."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from packaging.version import Version
from test_yes_or_no_models import biased_model, column_of
from trained_models import build, error_of
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
)

from hf_focal import InputError, NotPublishedError, calibrate, calibrate_model, evaluate_model
from hf_focal.calibration import Correction
from hf_focal.cli.main import main
from hf_focal.reports import read_runs
from hf_focal.sources import onnx_source
from hf_focal.sources.onnx_source import OnnxClassifier
from hf_focal.sources.onnx_source import _appended as appended

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Version(torch.__version__) < Version("2.9"), reason="older exporters refuse these models"),
]
SAME = ("ece", "nll", "brier", "error")


def export(model, inputs, path, **options):
    """Export a model with dynamic shapes of batches and, for texts, sequences."""
    dynamic = torch.export.Dim.DYNAMIC
    axes = {name: dict.fromkeys(range(2 if name != "pixel_values" else 1), dynamic) for name in inputs}
    options = {"dynamic_shapes": axes, "external_data": False, "verbose": False} | options
    torch.onnx.export(
        model.eval(), (), path, kwargs=inputs, input_names=[*inputs], output_names=["logits"], dynamo=True, **options
    )


def export_texts(folder, path, texts=("a", "a b c"), **options):
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    export(model, dict(tokenizer([*texts], padding=True, return_tensors="pt")), path, **options)


def quantize(path, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(path, target, weight_type=QuantType.QInt8)
    operations = {node.op_type for node in onnx.load(target).graph.node}
    assert operations & {"MatMulInteger", "DynamicQuantizeLinear"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The case "texts" with model.onnx, quantized to int8.onnx with its head."""
    folder = tmp_path_factory.mktemp("texts")
    case = build("texts", folder)
    export_texts(case.folder, folder / "model.onnx")
    quantize(folder / "model.onnx", folder / "int8.onnx")
    return case


def logits_of(path, case, count=40):
    tokenizer, rows = AutoTokenizer.from_pretrained(case.folder), Dataset.from_parquet(str(case.test))[:count]
    inputs = tokenizer(rows["premise"], rows["hypothesis"], padding=True, return_tensors="np")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {part.name: inputs[part.name] for part in session.get_inputs()})
    return logits


def test_a_float32_export_has_the_metrics_of_the_model(texts, tmp_path):
    expected = evaluate_model(texts.folder, str(texts.test), **texts.options)
    path = texts.folder.parent / "model.onnx"
    result = evaluate_model(texts.folder, str(texts.test), onnx=path, output=tmp_path / "out", **texts.options)
    assert {key: result.pre[key] for key in SAME} == pytest.approx({key: expected.pre[key] for key in SAME}, abs=1e-5)
    assert any("'model.onnx'" in note and runtime.__version__ in note for note in result.notes)
    (written,) = read_runs([tmp_path / "out"]).values()
    assert written.pre["nll"] == pytest.approx(result.pre["nll"])


def test_a_graph_without_a_mask_is_measured_with_a_note(texts, tmp_path):
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(texts.folder), texts.folder
    inputs = dict(AutoTokenizer.from_pretrained(tokenizer)(["a", "a b c"], padding=True, return_tensors="pt"))
    del inputs["attention_mask"]
    export(model, inputs, tmp_path / "maskless.onnx")
    note = "the ONNX graph has no input attention_mask"
    paths = path, _ = tmp_path / "maskless.onnx", texts.folder.parent / "model.onnx"
    results = [evaluate_model(texts.folder, str(texts.test), onnx=path, **texts.options) for path in paths]
    results.append(evaluate_model(texts.folder, str(texts.test), onnx=path, batch_size=1, **texts.options))
    assert [any(note in line for line in result.notes) for result in results] == [True, False, False]


@pytest.mark.parametrize("name", ["model.onnx", "int8.onnx"])
def test_a_tokenizer_that_pads_on_the_left_changes_nothing(name, texts, tmp_path):
    folder = tmp_path / "left"
    shutil.copytree(texts.folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(folder)
    options = {**texts.options, "onnx": texts.folder.parent / name}
    expected, found = (evaluate_model(model, str(texts.test), **options) for model in (texts.folder, folder))
    assert {key: found.pre[key] for key in SAME} == {key: expected.pre[key] for key in SAME}
    assert any("the tokenizer pads on the left" in note for note in found.notes)


@pytest.mark.full
@pytest.mark.parametrize("calibration", ["temperature", "vector", "matrix"])
def test_an_int8_export_is_corrected_after_quantization(texts, calibration, tmp_path, capsys):
    path, output = texts.folder.parent / "int8.onnx", tmp_path / "out"
    data = ["--dataset", texts.validation, "--test_dataset", texts.test, *texts.arguments]
    command = ["calibrate", texts.folder, "--onnx", path, "--method", calibration, "--output", output, *data]
    assert main([str(argument) for argument in command]) == 0
    assert "int8.onnx" in capsys.readouterr().out
    assert not (output / "README.md").exists() and not list(output.glob("*.safetensors"))
    (fitted,) = read_runs([output]).values()
    before = evaluate_model(texts.folder, str(texts.test), onnx=path, **texts.options)
    after = evaluate_model(output, str(texts.test), onnx=output / "model.onnx", **texts.options)
    assert after.pre["nll"] < before.pre["nll"] - 0.1 and after.pre["ece"] < before.pre["ece"] / 2
    assert {key: after.pre[key] for key in SAME} == pytest.approx({key: fitted.post[key] for key in SAME}, abs=1e-5)
    # The new graph computes the correction of what the old one computes, so the head stays quantized.
    old, new = (logits_of(file, texts) for file in (path, output / "model.onnx"))
    if calibration == "temperature":
        value = json.loads((output / "temperature.json").read_text(encoding="utf-8"))["value"]
        np.testing.assert_allclose(new, old / value, rtol=0, atol=1e-5)
    else:
        design = np.c_[old - old.mean(1, keepdims=True), np.ones(len(old))].astype(float)
        residuals = new - design @ np.linalg.lstsq(design, new.astype(float), rcond=None)[0]
        assert np.abs(residuals).max() < 1e-5
    again = calibrate_model(output, str(texts.validation), onnx=output / "model.onnx", **texts.options)
    if calibration == "temperature":  # nothing is left to correct
        assert float(again.temperature) == pytest.approx(1, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("num_labels", "options"), [(1, {}), (3, {"per_label": True})])
def test_sigmoid_heads_get_slopes_and_intercepts(num_labels, options, tmp_path):
    folder, fit, test = biased_model(tmp_path, num_labels)
    export_texts(folder, tmp_path / "model.onnx", ("word1", "word2 word3"))
    quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    options |= {"label_column": column_of(num_labels)}
    files = {"onnx": tmp_path / "int8.onnx", "output": tmp_path / "out"}
    result = calibrate_model(folder, fit, test_dataset=test, method="platt", recall=0.5, **files, **options)
    options.pop("per_label", None)
    again = evaluate_model(tmp_path / "out", test, onnx=tmp_path / "out" / "model.onnx", **options)
    assert result.pre["ece"] > 0.1 and again.pre["ece"] < 0.03
    assert again.pre["nll"] == pytest.approx(result.post["nll"], abs=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["problem_type"] == "multi_label_classification" and config["calibration"]["method"] == "platt"
    assert config["thresholds"]["values"].keys() == {f"LABEL_{number}" for number in range(num_labels)}


@pytest.mark.parametrize("kind", ["images", "words"])
def test_images_and_words(kind, tmp_path):
    case = build(kind, tmp_path)
    if kind == "images":
        model = AutoModelForImageClassification.from_pretrained(case.folder)
        inputs = {"pixel_values": torch.zeros(2, 3, 8, 8)}
    else:
        model = AutoModelForTokenClassification.from_pretrained(case.folder)
        tokenizer = AutoTokenizer.from_pretrained(case.folder)
        inputs = dict(tokenizer(["ba", "ba be bi"], padding=True, return_tensors="pt"))
    export(model, inputs, tmp_path / "model.onnx")
    expected = evaluate_model(case.folder, str(case.test), **case.options)
    options = case.options | {"onnx": tmp_path / "model.onnx", "output": tmp_path / "out"}
    data = {"dataset": str(case.validation), "test_dataset": str(case.test)}
    result = calibrate_model(case.folder, **data, method="matrix", **options)
    assert {key: result.pre[key] for key in SAME} == pytest.approx({key: expected.pre[key] for key in SAME}, abs=1e-5)
    again = evaluate_model(tmp_path / "out", str(case.test), onnx=tmp_path / "out" / "model.onnx", **case.options)
    assert again.pre["nll"] == pytest.approx(result.post["nll"], abs=1e-5) and again.pre["nll"] < result.pre["nll"]


def graph(path, nodes, outputs, dtype=onnx.TensorProto.FLOAT):
    """A graph of nodes (operation, input, output, attributes) on the input "x", with outputs of `dtype`."""
    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node(step, [source], [to], **dict(*more)) for step, source, to, *more in nodes]
    infos = [value(name, dtype, ["n", 3]) for name in outputs]
    made = onnx.helper.make_graph(nodes, "graph", [value("x", onnx.TensorProto.FLOAT, ["n", 3])], infos)
    onnx.save(onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), path)
    return str(path)


def identity(path, dtype, outputs=("logits",)):
    """A graph whose logits are its input "x", converted to `dtype`."""
    return graph(path, [("Cast", "x", name, {"to": dtype}) for name in outputs], outputs, dtype)


CORRECTIONS = [
    Correction.temperature(3.0),
    Correction.temperature((0.5, 2.0, 7.0)),
    Correction.platt(1.5, -0.3),
    Correction.platt((0.2, 1.0, 3.0), (-1.0, 0.0, 2.0)),
    Correction.bias(2.0, (0.1, -1, 2)),
    Correction.vector((0.5, -1.0, 2.0), (0.1, -1, 2)),
    Correction.matrix(torch.randn(3, 3), (0.1, -1, 2), 2.0),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("FLOAT", 1e-6), ("FLOAT16", 1e-3), ("DOUBLE", 1e-6)])
def test_graphs_compute_the_correction_in_every_dtype(dtype, tolerance, tmp_path):
    path = identity(tmp_path / "model.onnx", getattr(onnx.TensorProto, dtype))
    logits = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    for correction in CORRECTIONS:
        model = OnnxClassifier(path, BertConfig(num_labels=3), {"x"})
        before = model(x=logits)
        model.fold_correction(correction)
        model.fold_correction(Correction.temperature(0.5))
        model.save_pretrained(tmp_path)
        saved = OnnxClassifier(str(tmp_path / "model.onnx"), model.config, {"x"})
        assert saved.session.get_outputs()[0].type == {"FLOAT": "tensor(float)"}.get(dtype, f"tensor({dtype.lower()})")
        expected = correction.apply(before.double()) / 0.5
        for run in (model, saved):
            error = (run(x=logits) - expected).abs() / expected.abs().clamp(min=1)
            assert error.max() < tolerance, correction
        path = identity(tmp_path / "model.onnx", getattr(onnx.TensorProto, dtype))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_graph_that_does_not_compute_the_correction_is_refused_whatever_its_scale(scale, tmp_path, monkeypatch):
    logits = scale * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    model = OnnxClassifier(identity(tmp_path / "model.onnx", onnx.TensorProto.FLOAT), BertConfig(num_labels=3), {"x"})
    model(x=logits)
    for correction in (Correction.temperature(2.0), Correction.temperature(3 * scale)):
        wrong = Correction.temperature(1.5 * correction.T)
        with monkeypatch.context() as patch:
            patch.setattr(
                onnx_source, "_appended", lambda graph, output, _, wrong=wrong: appended(graph, output, wrong)
            )
            with pytest.raises(ValueError, match="does not compute the corrected logits"):
                model.fold_correction(correction)
    model.fold_correction(Correction.temperature(2 * scale))
    torch.testing.assert_close(model(x=logits), logits / (2 * scale))


@pytest.mark.parametrize("operation", ["Softmax", "Sigmoid"])
@pytest.mark.parametrize("after", [[], [("Identity", "p", "q"), ("Flatten", "q", "logits")]])
def test_graphs_that_end_in_probabilities_are_refused(operation, after, tmp_path):
    nodes = [(operation, "x", "p" if after else "logits"), *after]
    with pytest.raises(InputError, match=rf"onnx must compute logits, got .* ends in a {operation}"):
        OnnxClassifier(graph(tmp_path / "model.onnx", nodes, ["logits"]), BertConfig(num_labels=3), {"x"})


def test_probabilities_of_a_softmax_in_several_operations_are_refused(tmp_path):
    nodes = [("Softmax", "x", "p"), ("Abs", "p", "logits")]  # `Abs` stands for operations that are not recognized
    model = OnnxClassifier(graph(tmp_path / "model.onnx", nodes, ["logits"]), BertConfig(num_labels=3), {"x"})
    with pytest.raises(InputError, match=r"onnx must compute logits, got .* whose values are probabilities"):
        model(x=torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))


def test_log_probabilities_are_logits(tmp_path):
    path = graph(tmp_path / "model.onnx", [("Softmax", "x", "p"), ("Log", "p", "logits")], ["logits"])
    logits = OnnxClassifier(path, BertConfig(num_labels=3), {"x"})(x=torch.tensor([[1.0, 2.0, 4.0]]))
    torch.testing.assert_close(logits.exp().sum(), torch.tensor(1.0))


def test_integers_are_no_logits(tmp_path):
    path = graph(tmp_path / "model.onnx", [("Cast", "x", "logits", {"to": 7})], ["logits"], onnx.TensorProto.INT64)
    with pytest.raises(InputError, match=r"onnx must compute logits, which are floats, .* computes tensor\(int64\)"):
        OnnxClassifier(path, BertConfig(num_labels=3), {"x"})


def test_probabilities_beside_the_logits_are_corrected_too(tmp_path):
    nodes = [("Neg", "x", "logits"), ("Softmax", "logits", "probabilities")]
    path = graph(tmp_path / "model.onnx", nodes, ["logits", "probabilities"])
    model = OnnxClassifier(path, BertConfig(num_labels=3), {"x"})
    x = torch.tensor([[1.0, 2.0, 4.0], [0.0, -1.0, 5.0]])
    model(x=x)
    model.fold_correction(CORRECTIONS[-1])
    logits, probabilities = model.session.run(["logits", "probabilities"], {"x": x.numpy()})
    expected = CORRECTIONS[-1].apply(-x.double())
    torch.testing.assert_close(torch.from_numpy(logits), expected.float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(probabilities), expected.softmax(1).float(), rtol=0, atol=1e-5)


def test_a_graph_that_computes_something_else_is_not_saved(texts, tmp_path, monkeypatch):
    from hf_focal.sources import onnx_source as onnx_model

    append = onnx_model._appended
    monkeypatch.setattr(onnx_model, "_appended", lambda file, name, _: append(file, name, Correction.temperature(9.0)))
    files = {"onnx": texts.folder.parent / "model.onnx", "output": tmp_path / "out"}
    with pytest.raises(NotPublishedError, match="does not compute the corrected logits"):
        calibrate_model(texts.folder, str(texts.validation), **files, **texts.options)
    assert not (tmp_path / "out").exists()


def test_errors_name_the_file_and_what_is_wrong(texts, tmp_path, monkeypatch, capsys):
    def error(path, *more):
        data = ["--dataset", texts.test, "--onnx", path, *texts.arguments, *more]
        return error_of(capsys, ["evaluate", texts.folder, *data])

    (tmp_path / "text.onnx").write_text("no model", encoding="utf-8")
    assert "onnx must be a file with an ONNX model" in error(tmp_path / "text.onnx")
    missing = tmp_path / "missing.onnx"
    assert error(missing).strip().endswith(f"onnx must be a file that exists, got {str(missing)!r}")
    path = identity(tmp_path / "inputs.onnx", onnx.TensorProto.FLOAT)
    assert "onnx must need only the inputs attention_mask, input_ids" in error(path) and "'x'" in error(path)
    with pytest.raises(InputError, match=r"an output 'logits', or only one, got .* with a, b"):
        OnnxClassifier(
            identity(tmp_path / "outputs.onnx", onnx.TensorProto.FLOAT, ("a", "b")), BertConfig(num_labels=3), {"x"}
        )
    with pytest.raises(InputError, match=r"the config has labels, 2, got .* with 3"):
        OnnxClassifier(path, BertConfig(num_labels=2), {"x"})
    export_texts(texts.folder, tmp_path / "fixed.onnx", dynamic_shapes=None)
    assert "onnx must run on input_ids of shape (2, " in error(tmp_path / "fixed.onnx")
    assert "onnx must not be given" in error_of(capsys, ["evaluate", "--scores", texts.test, "--onnx", path])
    onto_hub = ["calibrate", texts.folder, "--dataset", texts.test, "--onnx", path, "--push_to_hub", "me/model"]
    assert "push_to_hub must not be given if onnx is given" in error_of(capsys, onto_hub)
    with pytest.raises(InputError, match=r"push_to_hub must not be given for .*: upload the folder"):
        calibrate(
            str(texts.folder),
            str(texts.validation),
            onnx=texts.folder.parent / "model.onnx",
            push_to_hub="me/model",
            **texts.options,
        )
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install hf_focal[onnx]" in error(texts.folder.parent / "model.onnx")


def test_language_models_are_refused(tmp_path, capsys):
    case = build("causal", tmp_path)
    command = ["evaluate", case.folder, "--dataset", case.test, "--onnx", tmp_path / "model.onnx"]
    assert "onnx must not be given for" in error_of(capsys, command)
