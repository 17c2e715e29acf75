"""A trained model whose logits ONNX Runtime computes, from a file that the model was exported to."""

from pathlib import Path
from typing import Any

from ..calibration import Correction
from ..calibration.calibration_record import record_fold
from ..errors import InputError
from ..reports import RunResult
from .model import ModelSource
from .model_names import public_name
from .onnx_classifier import OnnxClassifier
from .source import Samples


class OnnxSource(ModelSource):
    """A `ModelSource` whose logits are those of an ONNX file; a correction becomes nodes of its graph."""

    has_bias = True
    is_published = False  # a model card would load the model with Transformers

    def __init__(
        self,
        name: str | Path,
        task: str | None,
        batch_size: int,
        num_bins: int,
        options: dict[str, Any],
        onnx: str | Path,
    ):
        super().__init__(name, task, batch_size, num_bins, options)
        if not self.task.takes_affine:
            expected = f"must not be given for {self.name!r}, of the task {self.task.name}"
            raise InputError("onnx", f"{expected}, got {onnx!r}")
        self.weights_file = str(onnx)
        self.args.remove_unused_columns = False  # `OnnxClassifier.forward` names no inputs

    def _load(self) -> OnnxClassifier:
        path = str(self.weights_file)
        inputs = self.encoder("a") if self.task.takes_texts else self.encoder.model_input_names
        return OnnxClassifier(path, self.config, {*inputs})

    def model_notes(self) -> list[str]:
        name, runtime = public_name(str(self.weights_file)), self.model.runtime
        notes = [f"the logits are those of {name!r}, which {runtime} computes"]
        if self.model.lacks("attention_mask"):
            notes.append(
                "the ONNX graph has no input attention_mask, so padding may change its logits: export it with "
                "attention_mask, or use --batch_size 1, which pads nothing"
            )
        return notes

    def can_fold(self, correction: Correction) -> bool:
        return True

    def _check_foldable(self) -> None:
        """Any correction can be appended to a graph."""

    def _fold_into_model(self, correction: Correction) -> None:
        self.model.fold_correction(correction)
        record_fold(self.config, correction, generates=False)

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        """Write no card."""
