"""Corrections of scores as ONNX graphs, for programs without PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np

from ...utils.atomic_write import write_whole
from ...validation import InputError
from ..new_files import check_new_file, file_errors
from .correction_json import read_correction

# All that the graph needs; older runtimes do not read the newest versions.
_OPSET, _IR_VERSION = 17, 8


def export_correction(correction: str | Path, output: str | Path) -> None:
    """Write a correction as an ONNX graph from scores to calibrated probabilities, both float32, (N, K).

    The input is called as the kind of scores that the correction was fitted to, such as "logits"; the output is
    "calibrated". The classes' names are in the metadata "classes", separated by line breaks.

    Args:
        correction: the file ``correction.json`` that `calibrate_scores` wrote.
        output: the ONNX file to write, which must not exist.

    Raises:
        InputError: a file is wrong, or the package onnx is missing.

    Examples:
        >>> from hf_focal.scores import export_correction
        >>> export_correction("correction.json", "correction.onnx")
    """
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError as error:
        raise InputError("onnx", f"needs the package onnx, pip install hf_focal[onnx]: {error}") from error
    saved = read_correction(correction)
    check_new_file("onnx", output)
    is_softmax = saved.link == "softmax"
    A, b = saved.correction.dense()
    constants = {"factor": A.T, "offset": b}
    nodes: list[Any] = []

    def add(operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"value_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    logits = source = saved.kind
    if source == "log-probabilities" and not is_softmax:
        logits = add("Exp", source)
    elif source == "percentages":
        constants["total"] = np.array(100.0)
        logits = add("Div", source, "total")
    if source in ("probabilities", "percentages") or logits != source:
        probabilities = logits
        constants["floor"] = np.array(saved.floor)
        logits = add("Log", add("Max", probabilities, "floor"))
        if not is_softmax:
            constants["certain"] = np.array(1.0)
            logits = add("Sub", logits, add("Log", add("Max", add("Sub", "certain", probabilities), "floor")))
    if is_softmax:  # it takes only differences, which are exact where logits have a large number in common
        logits = add("Sub", logits, add("ReduceMax", logits, axes=[-1], keepdims=1))
    corrected = add("Add", add("MatMul" if A.ndim == 2 else "Mul", logits, "factor"), "offset")
    add("Softmax" if is_softmax else "Sigmoid", corrected, output="calibrated")

    shape = ["samples", saved.correction.size or "scores"]
    first, last = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (source, "calibrated"))
    arrays = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "correction", [first], [last], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    helper.set_model_props(model, {"classes": "\n".join(saved.classes)})
    checker.check_model(model)
    with file_errors("onnx", output):
        write_whole(output, model.SerializeToString())
