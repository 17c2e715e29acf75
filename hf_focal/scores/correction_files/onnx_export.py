"""Corrections of scores as ONNX graphs, for programs without PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...utils.atomic_write import write_whole
from ..new_files import check_new_file, file_errors
from ..values.logits import Floor
from .correction_json import SavedCorrection, read_correction

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
    parts = _GraphParts(helper)
    _add_correction(parts, saved)
    shape = ["samples", saved.correction.size or "scores"]
    first, last = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (saved.kind, "calibrated")
    )
    arrays = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in parts.constants.items()]
    graph = helper.make_graph(parts.nodes, "correction", [first], [last], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    helper.set_model_props(model, {"classes": "\n".join(saved.classes)})
    checker.check_model(model)
    with file_errors("onnx", output):
        write_whole(output, model.SerializeToString())


class _GraphParts:
    """The nodes of a graph, and the constants that they take; `helper` is the module of onnx."""

    def __init__(self, helper: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._helper = helper

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        output = output or f"value_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, inputs, [output], **attributes))
        return output


def _add_correction(parts: _GraphParts, saved: SavedCorrection) -> None:
    """Add what makes corrected probabilities of scores."""
    A, b = saved.correction.dense()
    parts.constants |= {"factor": A.T, "offset": b}
    logits = _add_logits(parts, saved)
    if (
        saved.link == "softmax"
    ):  # it takes only differences, which are exact where logits have a large number in common
        logits = parts.add("Sub", logits, parts.add("ReduceMax", logits, axes=[-1], keepdims=1))
    scaled = parts.add("MatMul" if A.ndim == 2 else "Mul", logits, "factor")
    corrected = parts.add("Add", scaled, "offset")
    parts.add("Softmax" if saved.link == "softmax" else "Sigmoid", corrected, output="calibrated")


def _add_logits(parts: _GraphParts, saved: SavedCorrection) -> str:
    """Add what makes logits of scores of the correction's kind, and return their name."""
    is_sigmoid, probabilities = saved.link == "sigmoid", str(saved.kind)
    floor = Floor(saved.floor, None if saved.schema is None else saved.schema.decimals)
    if saved.kind == "log-probabilities" and not is_sigmoid and floor.value:
        parts.constants["floor"] = np.log(floor.value)
        return parts.add("Max", saved.kind, "floor")
    if saved.kind == "logits" or (saved.kind == "log-probabilities" and not is_sigmoid):
        return saved.kind
    if saved.kind == "log-probabilities":
        probabilities = parts.add("Exp", saved.kind)
    elif saved.kind == "percentages":
        parts.constants["total"] = np.array(100.0)
        probabilities = parts.add("Div", saved.kind, "total")
    parts.constants["floor"] = np.array(floor.value)
    if floor.is_shared(saved.link):
        return parts.add("Log", _add_shared_rest(parts, probabilities, floor))
    logits = parts.add("Log", parts.add("Max", probabilities, "floor"))
    if not is_sigmoid:
        return logits
    parts.constants["certain"] = np.array(1.0)
    others = parts.add("Sub", "certain", probabilities)
    return parts.add("Sub", logits, parts.add("Log", parts.add("Max", others, "floor")))


def _add_shared_rest(parts: _GraphParts, probabilities: str, floor: Floor) -> str:
    """Add what `Floor.raised` does with a shared floor, and return the name of the raised probabilities."""
    parts.constants |= {"zero": np.array(0.0), "one": np.array(1.0), "least_rest": np.array(floor.least_rest)}
    is_low = parts.add("Less", probabilities, "floor")
    others = parts.add("ReduceL1", parts.add("Where", is_low, "zero", probabilities), axes=[-1], keepdims=1)
    number = parts.add("ReduceL1", parts.add("Where", is_low, "one", "zero"), axes=[-1], keepdims=1)
    rest = parts.add("Max", parts.add("Sub", "one", others), "least_rest")
    share = parts.add("Min", parts.add("Div", rest, parts.add("Max", number, "one")), "floor")
    return parts.add("Where", is_low, share, probabilities)
