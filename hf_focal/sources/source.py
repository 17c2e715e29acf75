"""The base classes of what gives scores, and the data of a user that it takes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..calibration import CalibrationFit, Correction, Temperature
from ..calibration.prior_shift import check_shares
from ..calibration.threshold_goal import ThresholdGoal
from ..errors import InputError
from ..reports import RunResult
from ..reports.results.result_sections import DataSection
from ..scores.correction_files.correction_json import write_correction
from ..scores.meanings import Link
from ..scores.sets.score_set import ScoreSet
from ..scores.sets.scores_in_memory import Scores
from ..utils.atomic_write import write_whole
from ..utils.json_values import write_json

if TYPE_CHECKING:
    from ..hub.card_contents import CardData, CardModel


class Data(NamedTuple):
    """Data of a user, for a source to read.

    Attributes:
        argument: the name of the user's argument in errors.
        value: a file, the name of a dataset, or whatever the source takes; None if the user gave none.
        split, default_split: of a dataset.
        groups: whether the column of groups is needed.
        clusters: whether the column of clusters is needed; otherwise, it is read where the data have it.
    """

    argument: str
    value: Any
    split: str | None = None
    default_split: str = "test"
    groups: bool = True
    clusters: bool = True

    @property
    def is_given(self) -> bool:
        return self.value is not None

    @classmethod
    def named(cls, argument: str, value: Any, default_split: str = "test") -> "Data":
        """Return `value` if it already is `Data`, with a name of its own, or else `Data` with this name."""
        return value if isinstance(value, Data) else cls(argument, value, None, default_split)


class Samples(NamedTuple):
    """Data of a user, and the scores that a source gives for them."""

    data: Data
    scores: ScoreSet


@dataclass(frozen=True)
class FoldOutcome:
    """What became of a correction that a source was to fold into itself.

    Attributes:
        is_in_weights: False if the saved weights lack the correction, or a part of it, so that whoever uses them must
            apply it; True also for a source that saves no weights.
        notes: what a reader of the result should know of it.
        pretrained: models and processors to save, by `save_pretrained`.
        json_files: other files to save: their names, and their contents.
        correction_entries: what ``correction.json`` has beside the correction.
        temperature: is saved as ``temperature.json``, if it is fitted.
    """

    is_in_weights: bool = True
    notes: tuple[str, ...] = ()
    pretrained: tuple[Any, ...] = ()
    json_files: Mapping[str, Any] = field(default_factory=dict)
    correction_entries: Mapping[str, Any] = field(default_factory=dict)
    temperature: Temperature | None = None


class BaseSource(ABC):
    """A source as the steps of `evaluate` and `calibrate` take it: it reads data, and keeps a correction.

    The sources of the library derive from it; for one of your own, derive from `Source`.

    Attributes:
        name: the name in errors and reports.
        has_independent_samples: whether samples are independent draws, unlike the words of a text.
        cross_fits_temperatures: whether a temperature is cross-fitted even if nothing needs its cross-fitted scores.
        is_main: whether this process writes files.
        is_published: whether what is saved can be published on the Hub.
    """

    name: str = "source"
    has_independent_samples: bool = True
    cross_fits_temperatures: bool = True
    is_main: bool = True
    is_published: bool = False

    @abstractmethod
    def read(self, data: Data, like: ScoreSet | None = None) -> ScoreSet:
        """Return the `Scores` of data, or an object that computes them when they are first used.

        `like` are the scores of the data that were read first, which say what the columns of further tables mean.
        """

    def inputs(self, samples: Samples, rows: np.ndarray) -> list[Any] | None:
        """Return what the page shows of some rows of the scores: texts, or PIL images; None shows their numbers."""
        return samples.scores.inputs(rows)

    def inputs_hint(self, samples: Samples) -> str:
        """Return a sentence on how the page can show more of the inputs than `inputs` gives; "" if it cannot."""
        return ""

    def title(self, scores: ScoreSet) -> str:
        """Return the name of a result in tables and figures; `scores` are those that were measured."""
        return self.name

    def data_section(self, scores: ScoreSet) -> DataSection:
        """Return what a result says of the source."""
        return DataSection(model=self.title(scores), task="scores")

    def notes(self, fit: CalibrationFit | None, config_entries: Mapping[str, Any]) -> list[str]:
        """Return what a reader of a result should know of the source.

        `fit` is None without a correction, and `config_entries` are what `fold` takes.
        """
        return []

    def default_method(self, scores: ScoreSet, objective: str, per_label: bool) -> str:
        """Return the method of `fit_correction` if none is given."""
        return "auto" if objective == "nll" and not per_label else "temperature"

    def check_fit(self, method: str | None, per_label: bool, goal: ThresholdGoal | None, new_prior: Any) -> None:  # noqa: B027
        """Raise `InputError`, before data are read, for what this kind of source does not support."""

    def check_saving(self, new_prior: Any, fitted_on: Samples) -> None:  # noqa: B027
        """Raise `InputError`, before anything is measured, if a correction fitted to these samples cannot be kept."""

    def saved_bytes(self) -> int:
        """Return the size of the weights that `save` writes."""
        return 0

    def check_prior(self, scores: ScoreSet, new_prior: Any) -> None:
        """Raise `InputError` unless `new_prior` has shares of the classes or labels."""
        check_shares("new_prior", new_prior, scores.num_classes, scores.link)

    def can_fold(self, correction: Correction) -> bool:
        """Return whether what `save` writes gives corrected probabilities."""
        return True

    def fold(self, fit: CalibrationFit, config_entries: dict[str, Any], result: RunResult) -> FoldOutcome:
        """Correct the source itself, if it can be, and keep the entries that hold for its corrected probabilities.

        Return what became of the correction, which `save` takes.

        Raises:
            NotPublishedError: the correction cannot be folded in.
        """
        return FoldOutcome()

    def save(
        self,
        folder: Path,
        fit: CalibrationFit,
        fitted_on: Samples,
        config_entries: dict[str, Any],
        outcome: FoldOutcome,
    ) -> None:
        """Write the correction, and what `fold` returned for saving; the report and the card are written later."""
        for name, content in outcome.json_files.items():
            write_json(folder / name, content)
        _save_whole(folder, outcome.pretrained)
        if outcome.temperature is not None and outcome.temperature.is_fitted:
            outcome.temperature.save(folder / "temperature.json")
        scores = fitted_on.scores
        write_correction(
            folder / "correction.json",
            fit,
            classes=scores.classes,
            schema=scores.schema,
            # Those of a model that cannot take the correction are for its own probabilities.
            thresholds=config_entries.get("thresholds") if self.can_fold(fit.correction) else None,
            source_entries=outcome.correction_entries,
        )

    def write_card(self, folder: Path, name: str, result: RunResult, fitted_on: Samples, measured_on: Samples) -> None:
        """Write ``README.md``, which calls the source `name`."""
        from ..hub.card_metadata import read_base_metadata
        from ..hub.model_card import model_card

        model, data = self.card_model(name, result), self.card_data(fitted_on, measured_on)
        card = model_card(result, model, data, base_metadata=read_base_metadata(model.base))
        write_whole(folder / "README.md", str(card))

    def card_model(self, name: str, result: RunResult) -> "CardModel":
        """Return what the card says of what `save` wrote, under the name `name`."""
        from ..hub.card_contents import CardModel

        return CardModel(name, "tabular-classification", is_correction=True)

    def card_data(self, fitted_on: Samples, measured_on: Samples) -> "CardData":
        """Return what the card says of the data."""
        from ..hub.card_contents import CardData

        names = (samples.scores.data_name for samples in (fitted_on, measured_on))
        file, test_file = (name if Path(name).suffix else None for name in names)
        same = measured_on.scores is fitted_on.scores
        return CardData(file, test_file, "calibration" if same else "test", file or "calibration", same)


class Source(BaseSource):
    """What gives scores for data, one logit for each class or label, and keeps a correction of them.

    Derive from it, or pass any object with `link`, `classes`, and `scores(data)` to `evaluate` and `calibrate`.

    Attributes:
        link: "softmax" or "sigmoid".
        classes: the names of the classes or labels, in the order of the logits; () if they have none.

    Examples:
        >>> import numpy as np
        >>> from hf_focal import Scores, Source, evaluate
        >>> class Lengths(Source):
        ...     classes = ("short", "long")
        ...     def scores(self, texts):
        ...         sizes = np.array([len(text) for text in texts])
        ...         labels = (sizes > 5).astype(int)
        ...         return Scores(np.stack([5.5 - sizes, sizes - 5.5], 1), labels, classes=self.classes)
        >>> evaluate(Lengths(), ["a", "a long text", "text", "sentence"] * 10).pre["error"]
        0.0
    """

    link: Link = "softmax"
    classes: tuple[str, ...] = ()

    @abstractmethod
    def scores(self, data: Any) -> Scores:
        """Return the scores and labels of data: whatever was passed to `evaluate` or `calibrate`."""

    def read(self, data: Data, like: ScoreSet | None = None) -> Scores:
        """Return the scores of data, once they are known to be those of `link` and `classes`."""
        scores = self.scores(data.value)
        if not isinstance(scores, Scores):
            expected = "must return hf_focal.Scores(logits, labels, link, classes) from scores(data)"
            raise InputError("source", f"{expected}, got a {type(scores).__name__}")
        _check_logits(scores)
        if scores.link != self.link:
            raise InputError("source", f"must give scores with its link, {self.link!r}, got {scores.link!r}")
        names = tuple(self.classes)
        if scores.classes and names and tuple(scores.classes) != names:
            raise InputError("source", f"must give scores of its classes, {names}, got {scores.classes}")
        sizes = (len(names), len(names) - (len(names) == 2))
        if names and scores.confidences is None and scores.num_classes not in sizes:
            expected = f"must give a score for each of its {len(names)} classes"
            raise InputError("source", f"{expected}, got {scores.num_classes}")
        if scores.data_name == "scores":  # it has no name of its own
            name = str(data.value) if isinstance(data.value, str | Path) else data.argument
            scores = replace(scores, data_name=name)
        return replace(scores, classes=names or scores.classes)


def _check_logits(scores: Scores) -> None:
    """Raise `InputError` unless a source of the user gives an array (N, K) of the logits of at least one sample."""
    if scores.confidences is not None:
        return
    shape = getattr(scores.logits, "shape", None)
    if shape is None or len(shape) != 2 or not shape[0]:
        found = f"a {type(scores.logits).__name__}" if shape is None else f"the shape {tuple(shape)}"
        raise InputError("source", f"must give an array of logits (N, K) of one or more samples, got {found}")


def _save_whole(folder: Path, parts: Sequence[Any]) -> None:
    """Save models and processors in a folder, by `save_pretrained`.

    A process that is killed leaves no half-written file under its final name, and no weights without a config.
    """
    with TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        for part in parts:
            part.save_pretrained(partial)
        for file in sorted(Path(partial).iterdir(), key=lambda file: file.suffix in (".safetensors", ".onnx")):
            file.rename(folder / file.name)


class _WrappedSource(Source):
    """An object with `link`, `classes`, and `scores(data)`, as a `Source`."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped, self.link, self.classes = wrapped, wrapped.link, tuple(wrapped.classes)
        self.name = getattr(wrapped, "name", type(wrapped).__name__)

    def scores(self, data: Any) -> Scores:
        return self.wrapped.scores(data)


def as_source(source: Any) -> BaseSource:
    """Return a `Source`, or wrap an object that has its `link`, `classes`, and `scores(data)`.

    Raises:
        InputError: the object lacks one of these, its link is neither "softmax" nor "sigmoid", or its name is no text.
    """
    if not isinstance(source, BaseSource):
        if missing := [name for name in ("link", "classes", "scores") if not hasattr(source, name)]:
            kind = type(source).__name__
            raise InputError("source", f"must have link, classes, and scores(data), got a {kind} without {missing[0]}")
        if source.link not in ("softmax", "sigmoid"):
            raise InputError("source", f"must have the link 'softmax' or 'sigmoid', got {source.link!r}")
    if not isinstance(name := getattr(source, "name", ""), str):
        raise InputError("source", f"must have a name that is a text, got {name!r}")
    return source if isinstance(source, BaseSource) else _WrappedSource(source)
