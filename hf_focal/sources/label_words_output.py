"""What keeps a correction of label words: ``correction.json``, requests for servers, perhaps a small classifier."""

from typing import Any

from ..calibration import CalibrationFit, Correction
from ..choices.label_words_model import LabelWordsModel
from ..choices.openai_requests import openai_requests, vllm_classifier
from ..choices.sequence_classifier import sequence_classifier
from ..errors import InputError, NotPublishedError
from ..reports import RunResult
from .model_names import public_name
from .model_output import ModelOutput
from .model_scores import ModelScores
from .source import FoldOutcome

_MOST_TRIED = 8  # rows on which a classifier is tried before it is saved


class LabelWordsOutput(ModelOutput):
    """``correction.json``, with the prompt and the labels' tokens, and ``openai.json`` (see `openai_requests`).

    With `saves_classifier`, also a small classifier, whose head has no bias in most families: then its weights lack
    the offsets. `name` is the language model's Hub id or folder.
    """

    def __init__(self, model: LabelWordsModel, processor: Any, name: str, saves_classifier: bool) -> None:
        super().__init__(model, processor)
        self.public_name, self.saves_classifier = public_name(name), saves_classifier
        self._tried: list[list[str]] = []  # values for the prompt, on which a classifier is tried

    def check(self, fitted_on: ModelScores) -> None:
        self._tried = fitted_on.samples["fields"][:_MOST_TRIED]
        if self.saves_classifier:
            sequence_classifier(self.model, Correction(), self._tried)

    def saved_bytes(self) -> int:
        return super().saved_bytes() if self.saves_classifier else 0

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Make the classifier, if it is to be saved, and the requests for servers.

        Raises:
            NotPublishedError: no classifier can be made of the language model.
        """
        json_files, requests_note = self._requests(fit.correction)
        entries = {"label_words": {"model": self.public_name, **self.model.words.record()}}
        if not self.saves_classifier:
            note = (
                "the correction is in correction.json, with the prompt and the labels' tokens; the language model is "
                "not changed or copied"
            )
            return FoldOutcome(False, (requests_note, note), (), json_files, entries)
        try:
            classifier, missing = sequence_classifier(self.model, fit.correction, self._tried)
        except InputError as error:
            raise NotPublishedError(str(error), result) from error
        notes = [requests_note]
        if not missing.is_identity:
            notes.append(
                f"the head of {type(classifier).__name__} has no bias: its weights have the slopes of the "
                "correction, and the offsets are in config.calibration, to be added to its logits as README.md shows"
            )
        return FoldOutcome(missing.is_identity, tuple(notes), (classifier, self.processor), json_files, entries)

    def _requests(self, correction: Correction) -> tuple[dict[str, Any], str]:
        """Return ``openai.json``, if servers can score these labels, and a note on it."""
        try:
            classifier = self._vllm_classifier(correction)
            requests = openai_requests(self.model.words, correction, self.public_name, classifier)
        except ValueError as error:
            return {}, f"there is no openai.json: {error}"
        note = "openai.json has requests for OpenAI-compatible servers, and how to correct replies"
        return {"openai.json": requests}, note

    def _vllm_classifier(self, correction: Correction) -> dict[str, Any] | None:
        try:  # as vLLM's classifier takes the labels' rows of the head
            sequence_classifier(self.model, Correction(), self._tried)
        except Exception:  # a model of another kind, such as a quantized one, only gets no settings
            return None
        return vllm_classifier(self.model.words, correction, self.model.language_model)
