"""A trained model whose logits ONNX Runtime computes, from a file that the model was exported to."""

from pathlib import Path
from typing import Any

from ..calibration import Correction
from ..calibration.calibration_record import record_fold
from ..reports import RunResult
from ..validation import InputError
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
        model = OnnxClassifier(path, self.config, {*inputs})
        self.data_notes.append(f"the logits are those of {public_name(path)!r}, which {model.runtime} computes")
        if "attention_mask" in inputs and "attention_mask" not in {part.name for part in model.session.get_inputs()}:
            self.data_notes.append(
                "the ONNX graph has no input attention_mask, so padding may change its logits: export it with "
                "attention_mask, or use --batch_size 1, which pads nothing"
            )
        return model

    def can_fold(self, correction: Correction) -> bool:
        return True

    def _check_foldable(self) -> None:
        """Any correction can be appended to a graph."""

    def _fold_into_model(self, correction: Correction) -> None:
        self.model.fold_correction(correction)
        record_fold(self.config, correction, generates=False)

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        """Write no card."""
