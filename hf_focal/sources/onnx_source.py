"""A trained model whose logits ONNX Runtime computes, from a file that the model was exported to."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from ..calibration import CalibrationFit, Correction
from ..calibration.calibration_record import drop_calibration_entries, record_fold
from ..errors import InputError, one_line
from ..reports import RunResult
from .model import ModelSettings, ModelSource
from .model_names import public_name
from .model_output import ModelOutput, cannot_be_folded
from .source import FoldOutcome, Samples

# What torch's integers and floats are converted to for the inputs of a graph.
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
_DTYPES |= {"tensor(float16)": np.float16}

# Operations that turn logits into probabilities, and those that may follow without changing what the values mean.
_PROBABILITIES = ("Softmax", "Sigmoid", "HardSigmoid")
_KEEPING = {"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Clip", "Round"}
_KEEPING |= {"QuantizeLinear", "DequantizeLinear"}


class OnnxClassifier(nn.Module):
    """A classifier whose logits ONNX Runtime computes on the CPU, for `FocalTrainer` to measure and correct.

    Args:
        path: the file. Its logits are the output "logits", or the only output.
        config: the config of the model that was exported.
        names: the names of the inputs that the tokenizer or image processor gives.

    Raises:
        InputError: onnx or onnxruntime is missing; the file does not exist, is not an ONNX model, needs other inputs,
            has other outputs, or ends in a softmax or sigmoid. `forward` raises it if the file cannot run on a batch,
            or if the logits of the first batch add up to 1 for each sample, as probabilities do.
    """

    def __init__(self, path: str, config: PreTrainedConfig, names: set[str]):
        super().__init__()
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise InputError(
                "onnx", f"needs the packages onnx and onnxruntime, pip install hf_focal[onnx]: {one_line(error)}"
            ) from error
        if not Path(path).is_file():
            raise InputError("onnx", f"must be a file that exists, got {path!r}")
        self.path, self.config, self._given = path, config, names
        self.runtime = f"ONNX Runtime {onnxruntime.__version__}"
        try:
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            self.graph_file = onnx.load(path)
        except Exception as error:  # ONNX and ONNX Runtime raise exceptions of their own types
            raise InputError("onnx", f"must be a file with an ONNX model, got {path!r}: {one_line(error)}") from error
        if unknown := [part.name for part in self.session.get_inputs() if part.name not in names]:
            raise InputError(
                "onnx",
                f"must need only the inputs {', '.join(sorted(names))}, got {path!r}, which needs {unknown[0]!r}",
            )
        outputs = {part.name: part.shape for part in self.session.get_outputs()}
        self.output = "logits" if "logits" in outputs else next(iter(outputs))
        if self.output != "logits" and len(outputs) > 1:
            raise InputError(
                "onnx", f"must have an output 'logits', or only one, got {path!r} with {', '.join(outputs)}"
            )
        (dtype,) = [part.type for part in self.session.get_outputs() if part.name == self.output]
        if dtype not in ("tensor(float)", "tensor(float16)", "tensor(double)"):
            raise InputError("onnx", f"must compute logits, which are floats, got {path!r}, which computes {dtype}")
        if operation := _ending(self.graph_file.graph, self.output):
            raise InputError(
                "onnx", f"must compute logits, got {path!r}, which ends in a {operation}: export the model without it"
            )
        if outputs[self.output] and isinstance(outputs[self.output][-1], int):
            self._check_size(outputs[self.output][-1])
        self._example: dict[str, np.ndarray] = {}  # two rows, on which a correction is tried

    def _check_size(self, size: int) -> None:
        if size != self.config.num_labels:
            raise InputError(
                "onnx",
                f"must have as many logits as the config has labels, {self.config.num_labels}, got {self.path!r} "
                f"with {size}",
            )

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return the logits (N, ..., K), float32, of the inputs that the file needs; others are ignored."""
        batch = {}
        for part in self.session.get_inputs():
            array = inputs[part.name].numpy(force=True)
            batch[part.name] = array.astype(_DTYPES.get(part.type, array.dtype))
        logits = torch.from_numpy(_run(self.session, self.output, batch, self.path))
        self._check_size(logits.shape[-1] if logits.ndim else 0)
        if not self._example:
            # Exporters may write a softmax as several operations, which `_ending` does not recognize.
            sums = logits.double().sum(-1)
            if sums.numel() > 1 and logits.shape[-1] > 1 and logits.min() >= 0 and (sums - 1).abs().max() < 1e-3:
                raise InputError(
                    "onnx",
                    f"must compute logits, got {self.path!r}, whose values are probabilities, since they add up to 1: "
                    "export the model without its softmax",
                )
            self._example = {name: array[:2] for name, array in batch.items()}
        return logits.to(next(iter(inputs.values())).device)

    def lacks(self, name: str) -> bool:
        """Return whether an input that the tokenizer or image processor gives is none of the graph."""
        return name in self._given - {part.name for part in self.session.get_inputs()}

    def num_parameters(self) -> None:
        """Return None: a graph does not tell weights from other constants."""

    def fold_correction(self, correction: Correction) -> None:
        """Append the correction to the graph, and try it on two rows of the data. T = 1 changes nothing.

        Raises:
            ValueError: the corrected graph cannot be loaded, or computes something else.
        """
        import onnxruntime

        if correction.is_identity:
            return
        corrected = _appended(self.graph_file, self.output, correction)
        try:
            session = onnxruntime.InferenceSession(corrected.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception as error:  # exceptions of ONNX Runtime's own types, for example above 2 GiB
            raise ValueError(f"the corrected {self.path!r} cannot be loaded: {one_line(error)}") from error
        if self._example:
            sessions = (self.session, session)
            before, after = (_run(each, self.output, self._example, self.path) for each in sessions)
            expected = correction.apply(before.astype(np.float64))
            weights = correction.fold_rows(torch.eye(before.shape[-1])).abs().sum(-1)
            largest = max(float(weights.max()) * float(np.abs(before).max()), float(np.abs(expected).max()))
            (dtype,) = [part.type for part in session.get_outputs() if part.name == self.output]
            rounding = 1e-5 if dtype in ("tensor(float)", "tensor(double)") else 1e-2
            if not np.allclose(after, expected, rtol=0, atol=rounding * largest):
                raise ValueError(f"the corrected graph of {self.path!r} does not compute the corrected logits")
        self.graph_file, self.session = corrected, session

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the graph to ``model.onnx``, with all its weights, and the config."""
        import onnx

        onnx.save(self.graph_file, str(Path(folder) / "model.onnx"))
        self.config.save_pretrained(folder)


def _run(session: Any, output: str, batch: dict[str, np.ndarray], path: str) -> np.ndarray:
    try:
        (logits,) = session.run([output], batch)
    except Exception as error:  # ONNX Runtime raises exceptions of its own types
        shapes = ", ".join(f"{name} of shape {array.shape}" for name, array in batch.items())
        raise InputError("onnx", f"must run on {shapes}, got {path!r}: {one_line(error)}") from error
    return np.asarray(logits, np.float32)


def _ending(graph: Any, output: str) -> str | None:
    """Return the softmax or sigmoid that computes `output`, perhaps followed by operations of `_KEEPING`, or None."""
    producers = {name: node for node in graph.node for name in node.output}
    while (node := producers.get(output)) is not None and node.op_type in _KEEPING:
        output = node.input[0]
    return node.op_type if node is not None and node.op_type in _PROBABILITIES else None


def _appended(graph_file: Any, output: str, correction: Correction) -> Any:
    """Return a copy of an ONNX model that corrects its output: z becomes z * factor + offset, or z @ factor + offset.

    Nodes that use z, such as those of an output with probabilities, then use the corrected values. This is exact
    whatever computes z, also if the last layer is quantized. It is computed in float32, or in float64 if z is float64,
    and has the type of z.
    """
    from onnx import ModelProto, TensorProto, helper, numpy_helper

    corrected = ModelProto()
    corrected.CopyFrom(graph_file)
    graph = corrected.graph
    A, b = correction.dense()
    constants = {"MatMul" if A.ndim == 2 else "Mul": A.T, "Add": b}
    (dtype,) = [part.type.tensor_type.elem_type for part in graph.output if part.name == output]
    wide = TensorProto.DOUBLE if dtype == TensorProto.DOUBLE else TensorProto.FLOAT

    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = next(name for count in range(len(taken) + 1) if (name := f"correction_{count}") not in taken)
    place = next(number for number, node in enumerate(graph.node) if output in node.output)
    computed = graph.node[place].output
    computed[:] = [prefix if name == output else name for name in computed]
    for operation, array in constants.items():
        array = array.astype(helper.tensor_dtype_to_np_dtype(wide))
        graph.initializer.append(numpy_helper.from_array(array, f"{prefix}_{operation}"))
    steps: list[tuple[str, dict[str, int]]] = [("Cast", {"to": wide}), *((name, {}) for name in constants)]
    steps.append(("Cast", {"to": dtype}))
    values = [prefix, *(f"{prefix}_{number}" for number in range(1, len(steps))), output]
    for number, (operation, attributes) in enumerate(steps):
        inputs = [values[number], *([f"{prefix}_{operation}"] if operation in constants else [])]
        node = helper.make_node(operation, inputs, [values[number + 1]], values[number], **attributes)
        graph.node.insert(place + 1 + number, node)
    return corrected


class GraphOutput(ModelOutput):
    """The graph of an ONNX file, to which a correction is appended as nodes."""

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        config = self.model.config
        drop_calibration_entries(config, quiet=True)
        try:
            self.model.fold_correction(fit.correction)
        except ValueError as error:
            raise cannot_be_folded(error, result) from error
        record_fold(config, fit.correction, generates=False)
        vars(config).update(config_entries)
        return FoldOutcome(pretrained=(self.model, self.processor), temperature=fit.temperature)


class OnnxSource(ModelSource):
    """A `ModelSource` whose logits are those of the ONNX file `settings.onnx`."""

    is_published = False  # a model card would load the model with Transformers

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        if not self.task.has_classes:
            expected = f"must not be given for {self.name!r}, of the task {self.task.name}"
            raise InputError("onnx", f"{expected}, got {settings.onnx!r}")

    def load_model(self) -> OnnxClassifier:
        inputs = self.encoder("a") if self.task.takes_texts else self.encoder.model_input_names
        return OnnxClassifier(str(self.onnx), self.config, {*inputs})

    @cached_property
    def output(self) -> GraphOutput:
        return GraphOutput(self.model, self.processor)

    @property
    def _checks_padding(self) -> bool:
        return super()._checks_padding and not self.model.lacks("attention_mask")  # of which there is a note

    def model_notes(self) -> list[str]:
        notes = [f"the logits are those of {public_name(str(self.onnx))!r}, which {self.model.runtime} computes"]
        if self.model.lacks("attention_mask") and self.args.per_device_eval_batch_size > 1:
            notes.append(
                "the ONNX graph has no input attention_mask, so padding may change its logits: export it with "
                "attention_mask, or use --batch_size 1, which pads nothing"
            )
        return [*super().model_notes(), *notes]

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        """Write no card."""
