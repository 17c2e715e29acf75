"""A trained model whose logits ONNX Runtime computes, from a file that the model was exported to."""

from functools import cached_property
from pathlib import Path
from typing import Any

from ..calibration import CalibrationFit
from ..calibration.calibration_record import drop_calibration_entries, record_fold
from ..errors import InputError
from ..reports import RunResult
from .model import ModelSettings, ModelSource
from .model_names import public_name
from .model_output import ModelOutput, cannot_be_folded
from .onnx_classifier import OnnxClassifier
from .source import FoldOutcome, Samples


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
