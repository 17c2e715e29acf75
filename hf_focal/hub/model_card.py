"""Model card: what a model is, how well calibrated it is, and how to use it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..calibration import Correction
from ..calibration.calibration_fit import scaling_name
from ..losses import LOSSES, LossConfig
from ..losses.loss_config import known_loss
from ..metrics.metric_table import METRICS
from ..reports.report_folder import diagrams_of
from ..reports.results.run_results import RunResult
from ..reports.wording.headlines import headline_of
from ..reports.wording.markdown_tables import escaped, label_table, results_notes
from ..reports.wording.model_warnings import warnings_of
from ..reports.wording.number_format import format_metric, format_number, sentence
from ..reports.wording.text_summary import metrics_table, prior_shift_sentence
from ..reports.wording.verdicts import (
    correction_verdict,
    is_better_calibrated,
    remaining_miscalibration,
    uncorrected_verdict,
)
from ..tasks.task import MULTIPLE_CHOICE, PIPELINES, Task, unit_of
from ..utils.constants import WEBSITE

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

_ALL = ", top_k=None"  # the argument of a pipeline that returns the probabilities of all labels
_PAIR = f'{{"text": "A first text.", "text_pair": "A second text."}}{_ALL}'
_MOST_NAMES = 12
# Software that applies a softmax to the logits even where several labels, or the only logit, need a sigmoid, by task;
# docs/serving.md has the sources.
_TAKES_SOFTMAX = {
    ("text-classification", "several"): "Text Embeddings Inference",
    ("text-classification", "one"): "Hugging Face's exporter to Core ML",
    ("image-classification", "several"): "Transformers.js",
    ("image-classification", "one"): "Transformers.js",
}
_SERVING = f"{WEBSITE}serving.html"
# Data that comes with a library, under names that could be Hub ids.
_BUILT_IN = ("digits",)
_DATA_FILES = (".csv", ".json", ".jsonl", ".parquet", ".txt", ".tsv", ".npz", ".npy", ".arrow", ".zip", ".gz")
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    finalize=lambda value: value if isinstance(value, Markup) else escaped(str(value)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_FEWEST_OF_BIN = 30  # labels of which a share is named as an example
_ENVIRONMENT.filters |= {"number": format_number, "sentence": sentence, "listed": lambda names: _listed(names)}


@dataclass(frozen=True)
class CardModel:
    """The model that a card is of, and what the code that loads it must know.

    Attributes:
        name: the model's Hub id, for the code that loads it, or the name of its folder. Since the id is then unknown,
            and the card is the same after `hf upload`, the code has "your-username" in front of that name.
        task: the Hub's pipeline tag, such as `"text-classification"`.
        base: the model that was fine-tuned or corrected, as a Hub id or a path; None for one trained from scratch.
        package: the package that must be imported before the model can be loaded; see `registering_package`.
        is_loadable: whether Transformers can load the model.
        is_adapter, num_labels: whether it is a PEFT adapter, and its number of classes.
        takes_pairs: whether a text classifier takes two texts; implied if the result has an option `text_pair_column`.
        folded_temperature: a T that has been in the weights since before the measured correction was fitted.
        is_correction: whether there is no model, but a file ``correction.json`` for scores.
        usage: Python code for the section "Use" of a model that takes prompts with label words. Thresholds are then in
            ``correction.json``; if the correction is not folded, the weights have its slopes, but no offsets.
    """

    name: str
    task: str
    base: str | None = None
    package: str | None = None
    is_loadable: bool = True
    is_adapter: bool = False
    num_labels: int | None = None
    takes_pairs: bool = False
    folded_temperature: float | None = None
    is_correction: bool = False
    usage: str = ""

    @property
    def is_id(self) -> bool:
        return re.fullmatch(r"[\w.-]+/[\w.-]+", self.name) is not None

    @property
    def quoted_id(self) -> str:
        """The Hub id as it stands inside the quotes of a Python string."""
        return json.dumps(self.name if self.is_id else f"your-username/{self.name}", ensure_ascii=False)[1:-1]

    @property
    def kind(self) -> Task:
        return PIPELINES.get(self.task, Task(name=self.task, pipeline=self.task))


@dataclass(frozen=True)
class CardData:
    """The data that a card names.

    Attributes:
        dataset: the training data or, for a model that was only corrected, the calibration data; a Hub id or a path.
        test_dataset: the data that the model was measured on, as a Hub id or a path; `dataset` if None.
        measured_on, fitted_on: the splits on which the model was measured and the correction was fitted; `fitted_on`
            may be a file.
        same_samples: whether the correction was fitted on the samples that were measured, which makes the results
            optimistic.
    """

    dataset: str | None = None
    test_dataset: str | None = None
    measured_on: str = "test"
    fitted_on: str = "validation"
    same_samples: bool = False

    @property
    def fit_is_file(self) -> bool:
        return self.fitted_on.lower().endswith(_DATA_FILES)

    @property
    def test_name(self) -> str | None:
        return _display_name(self.test_dataset or self.dataset)

    def samples(self, count: float, unit: str) -> str:
        """Return what was measured, such as "the 60 samples of the test set of org/data", as Markdown."""
        name = self.test_name or ""
        is_file = self.test_dataset is not None and name.lower().endswith(_DATA_FILES)
        split = "" if is_file else f"the {escaped(self.measured_on)} set"
        places = " of ".join(filter(None, (split, escaped(name))))
        return " ".join(filter(None, ("the", "" if isnan(count) else f"{int(count):,}", unit, "of", places)))


@dataclass(frozen=True)
class Training:
    """How a model was trained: settings to list, by name, and whether FocalSFTTrainer trained it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    is_sft: bool = False


def model_card(
    result: RunResult,
    model: CardModel,
    data: CardData | None = None,
    training: Training | None = None,
    *,
    language: str | list[str] | None = None,
    license: str | None = None,
) -> "ModelCard":
    """Return the card of a model: its loss, its results before and after a correction, and how to use it.

    The card's metadata contain the results that are finite. A dataset or base model that is not given as a Hub id
    appears only in the text, under the last part of its path. What the card of the base model says of the license, of
    the language, and of a base model of its own is taken from there, if it can be read.

    Args:
        result: the test set's results. Its report is expected beside the card, in the folder ``report``. If
            `result.fit.folded` is False, the card shows how to apply the correction.
        model: what is published.
        data: its data; by default, they have no names.
        training: None for a model that was only measured or corrected.
        language: ISO 639 codes; by default, those of the base model if it was only corrected.
        license: the Hub's name of the license; by default, that of the base model.
    """
    from huggingface_hub import ModelCard

    data = data or CardData()
    config = known_loss(result.loss) if training else None
    unit = unit_of(result.data.task or model.task, unit_of(model.task))
    samples = data.samples(result.pre.get("num_samples", nan), unit)
    metadata = _metadata(result, model, data, training, language, license)
    text = _ENVIRONMENT.get_template("model_card.md.jinja").render(
        result=result,
        model=model,
        data=data,
        training=training,
        kind=model.kind,
        folded=result.fit.folded is not False,
        unit=unit,
        samples=samples,
        has_sigmoid=result.link == "sigmoid",
        has_options=_has_options(result),
        correction=_correction_name(result),
        **_introduction(result, model, data, samples, unit),
        **_usage(result, model),
        **_results(result),
        **_calibration(result, data, unit),
        **_training(training, config, model.kind),
        limitations=_limitations(result, samples, unit),
        citations=citations(_sources(result, config)),
    )
    text = re.sub("\n{3,}", "\n\n", text)
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}")


def _introduction(result: RunResult, model: CardModel, data: CardData, samples: str, unit: str) -> dict[str, Any]:
    """Return the template's values for what the model is, and for the verdict; `samples` is escaped."""
    return {
        "base_name": _display_name(model.base),
        "data_name": _display_name(data.dataset),
        "names": _names(result),
        "purpose": "classification" if result.data.task == "scores" else model.task.replace("-", " "),
        "warnings": warnings_of(result),
        "verdict": _verdict(result, data, samples, unit),
    }


def _usage(result: RunResult, model: CardModel) -> dict[str, Any]:
    """Return the template's values for the section "Use"."""
    kind, has_options = model.kind, _has_options(result)
    takes_pairs = model.takes_pairs or bool((result.data.options or {}).get("text_pair_column"))
    takes_pairs &= model.task == "text-classification"
    return {
        "peft_class": kind.peft_class if model.is_adapter else None,
        "example": _PAIR if takes_pairs else kind.example,
        "example_item": _PAIR.removesuffix(_ALL) if takes_pairs else '"A text to classify."',
        "scoring": _scoring(result) if has_options else "",
        "serving": _serving_note(result, model.task, kind.generates, has_options),
    }


def _results(result: RunResult) -> dict[str, Any]:
    """Return the template's values for the section "Results"."""
    count = result.pre.get("num_samples", nan)
    return {
        "headline": headline_of(result),
        "has_count": not isnan(count) and int(count) > 0,
        "has_intervals": "ece" in result.pre_intervals,
        "table": metrics_table(result),
        "notes": results_notes([result]),
        "label_table": label_table(result) if result.subsets.labels else "",
        "figures": [f"report/{name}" for name in diagrams_of(result)],
    }


def _calibration(result: RunResult, data: CardData, unit: str) -> dict[str, Any]:
    """Return the template's values for the sections "Calibration" and "Temperature"."""
    fitted, cross_fit = result.temperature, result.fit.cross_fit
    return {
        "calibration": cross_fit,
        "scaled": cross_fit is not None and cross_fit.method not in ("temperature", "none"),
        "scaling": scaling_name(result.method) if result.method else "",
        "platt": _slopes_and_intercepts(result),
        "divisor": f"torch.tensor({[*fitted.values]})" if fitted.values else f"{fitted.value}",
        "prior_shift": prior_shift_sentence(result.prior) if result.prior else "",
        "fitted_on": _display_name(data.fitted_on) if data.fit_is_file else data.fitted_on,
        "unit_of_fit": "labels" if result.link == "sigmoid" else unit,
    }


def _training(training: Training | None, config: LossConfig | None, kind: Task) -> dict[str, Any]:
    """Return the template's values for the section "Training"."""
    trainer = "FocalSeq2Seq" if kind.is_seq2seq else "Focal"
    return {
        "config": config,
        "spec": config and LOSSES[config.name],
        "trainer": "FocalSFT" if training and training.is_sft else trainer,
    }


def _metadata(
    result: RunResult,
    model: CardModel,
    data: CardData,
    training: Training | None,
    language: str | list[str] | None,
    license: str | None,
) -> "ModelCardData":
    """Return the card's front matter, with the base model's license and, if it was only corrected, its language."""
    from huggingface_hub import ModelCardData

    base = _metadata_of_base(model.base)
    if training is None:
        language = language or base.get("language")
    library = "hf_focal" if model.is_correction else "peft" if model.is_adapter else "transformers"
    return ModelCardData(
        model_name=model.name,
        language=language,
        license=license or base.get("license"),
        library_name=library,
        pipeline_tag=None if model.is_correction else model.task,
        base_model=_hub_id(model.base) or base.get("base_model"),
        datasets=_hub_id(data.dataset),
        tags=["hf_focal", "calibration", *(["temperature-scaling"] if result.temperature.is_fitted else [])],
        eval_results=_eval_results(result, model.task, data) or None,
    )


def _metadata_of_base(name: str | None) -> dict[str, Any]:
    """Return the metadata of the card of a base model, a Hub id or a folder; {} if it has none that can be read."""
    from huggingface_hub import ModelCard, model_info

    if name is None:
        return {}
    try:
        if (file := Path(name) / "README.md").is_file():
            return ModelCard(file.read_text(encoding="utf-8")).data.to_dict()
        data = model_info(name, timeout=10).card_data if _hub_id(name) else None
    except Exception:  # transport errors, the Hub's errors, and those of a card in YAML share no base class
        return {}
    return data.to_dict() if data else {}


def _sources(result: RunResult, config: LossConfig | None) -> list[str]:
    """Return the papers of the loss and of the temperature."""
    fitted = result.temperature
    sources = LOSSES[config.name].source.split("; ") if config else []
    sources += ["Guo et al. 2017"] * fitted.is_fitted
    return sources + ["Mukhoti et al. 2020"] * (fitted.objective in ("ece", "adaece"))


def _slopes_and_intercepts(result: RunResult) -> list[Any] | None:
    """Return the two numbers, or lists of numbers, of a correction of sigmoid logits; None without one."""
    cross_fit = result.fit.cross_fit
    if cross_fit is None or cross_fit.correction is None:
        return None
    return [part.tolist() for part in np.broadcast_arrays(*Correction.from_dict(cross_fit.correction).dense())]


def _has_options(result: RunResult) -> bool:
    """Return whether the model scored the options of questions."""
    return result.data.task == MULTIPLE_CHOICE.name


def _correction_name(result: RunResult) -> str:
    return "temperature" if result.temperature.is_fitted else result.correction


def _verdict(result: RunResult, data: CardData, samples: str, unit: str) -> str:
    """Return sentences on what the results show; `samples` is escaped."""
    if result.method is None:
        return uncorrected_verdict(result) or "The results below show how well calibrated it is."
    if data.same_samples:
        return (
            f"{sentence(scaling_name(result.method))} was fitted on the same samples as the results below, so they do "
            "not show whether it helps on other data."
        )
    confident = _at_confidence(result) if is_better_calibrated(result) else ""
    return " ".join(
        filter(None, [correction_verdict(result, samples, unit), remaining_miscalibration(result), confident])
    )


def _names(result: RunResult) -> list[str]:
    """Return the names of the classes or labels that a result holds, or [] if it holds none or too many to list."""
    confusion = result.subsets.confusion
    names = result.subsets.label_names or (confusion and confusion.names) or []
    return [*names] if len(names) <= _MOST_NAMES else []


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: "a, b, and c"."""
    *others, last = names
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} and {last}" if others else last


def _limitations(result: RunResult, samples: str, unit: str) -> list[str]:
    """Return sentences on what the results do not show; `samples` is escaped."""
    sentences = [
        f"The results are those of {samples}. On other data, the probabilities may be worse calibrated: measure them "
        f"on labeled {unit} of your own."
    ]
    if interval := (result.post_intervals or result.pre_intervals).get("ece"):
        low, high = (format_metric("ece", {"ece": bound}) for bound in interval)
        sentences.append(f"With this number of {unit}, the 95% interval of the ECE is from {low}% to {high}%.")
    if result.link == "softmax" and "error" in result.post:
        sentences.append(f"{format_number(result.post['error'], 100, 1)}% of the predictions are wrong.")
    if groups := result.subsets.groups:
        name, ece = escaped(groups.name[0]), format_metric("ece", {"ece": groups.ece[0]})
        sentences.append(f"The ECE is largest for the group {name}: {ece}%.")
    return sentences


def _at_confidence(result: RunResult) -> str:
    """Say how often the corrected model is right at a frequent confidence; "" if it has no bins.

    Labels are mostly absent, so of a sigmoid a probability above a half is taken, if enough labels have one.
    """
    bins = result.post_bins
    if not len(bins.count) or not bins.count.max() > 0:
        return ""
    count = bins.count
    if result.link == "sigmoid" and (likely := np.where(bins.edges[:-1] >= 0.5, count, 0)).max() >= _FEWEST_OF_BIN:
        count = likely
    most = int(count.argmax())
    mean, right = 100 * bins.confidence[most], 100 * bins.accuracy[most]
    kind = "labels with a probability" if result.link == "sigmoid" else "answers with a confidence"
    about, outcome = f"{mean:.{0 if mean >= 1 else 1}f}%", "apply" if result.link == "sigmoid" else "are right"
    return f"For example, of the {int(bins.count[most]):,} {kind} of about {about}, {right:.1f}% {outcome}."


def _scoring(result: RunResult) -> str:
    """Return the arguments of `score_choices` with which the options were scored, as Python code; "" for defaults."""
    options = result.data.options or {}
    values = {name: options[name] for name in ("score", "letters", "template", "chat") if name in options}
    if "letters" in values:
        values["letters"] = values["letters"].split(",")
    if "template" in values:
        values["template"] = values["template"].replace("\\n", "\n")
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _serving_note(result: RunResult, task: str, generates: bool, has_options: bool) -> str:
    """Return sentences on why servers would return other probabilities than the measured ones, or "" if none do."""
    sentences = []
    if has_options:
        sentences.append(
            "A server does not apply T: divide the log-probabilities that it returns for the options by T, and take "
            "their softmax. Do not send T as the temperature of requests, which is for text."
        )
    elif result.method is not None and result.fit.folded is False:
        sentences.append(
            "A server may not apply T by itself: to sample with T, send it as the temperature of each request."
            if generates
            else "No server applies this correction: apply it to the raw logits that the server returns."
        )
    if result.link == "sigmoid":
        has_one = len(result.subsets.label_names) == 1
        software = _TAKES_SOFTMAX.get((task, "one" if has_one else "several"), "some software")
        sentences.append(
            f"The probability is the sigmoid of the only logit, but {software} takes a softmax, which is always 1: use"
            " its raw logits, and apply the sigmoid yourself."
            if has_one
            else f"The probability of each label is the sigmoid of its logit, but {software} takes a softmax over all "
            "labels: use its raw logits, and apply the sigmoid yourself."
        )
    return " ".join([*sentences, f"[More on servers]({_SERVING})."]) if sentences else ""


def citations(sources: Sequence[str]) -> str:
    """Return the BibTeX entries of `sources` such as "Guo et al. 2017", each once; a blog post has no entry."""
    text = Path(__file__).with_name("citations.bib").read_text(encoding="utf-8")
    entries = {re.findall(r"{(\D+\d+)\w*,", entry)[0]: entry.strip() for entry in text.split("\n\n")}
    keys = dict.fromkeys(f"{source.split()[0].lower()}{source.split()[-1]}" for source in sources)
    return "\n\n".join(entries[key] for key in keys if key in entries)


def _eval_results(result: RunResult, task: str, data: CardData) -> list["EvalResult"]:
    from huggingface_hub import EvalResult

    optimistic = " (optimistic: T was fitted on these samples)" if data.same_samples else ""
    names = {key: metric.name[0].upper() + metric.name[1:] for key, metric in METRICS.items() if metric.in_card}
    values = [(key, name + optimistic, result.post.get(key)) for key, name in names.items()]
    if result.method is not None:
        before = f" before {scaling_name(result.method)}"
        changed = [key for key in names if key != "accuracy" or result.method != "temperature"]
        values += [(key, names[key] + before, result.pre.get(key)) for key in changed]
    common = {
        "task_type": task,
        "dataset_type": _hub_id(data.test_dataset or data.dataset) or "unknown",
        "dataset_name": data.test_name or "unknown",
        "dataset_split": data.measured_on,
    }
    return [
        EvalResult(**common, metric_type=key, metric_name=name, metric_value=float(value))
        for key, name, value in values
        if value is not None and isfinite(value)
    ]


def _hub_id(name: str | None) -> str | None:
    """Return `name` if it is a Hub id, or None if it is a path or the name of data that come with a library."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not name or name in _BUILT_IN or name.lower().endswith(_DATA_FILES) or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def _display_name(name: str | None) -> str | None:
    """Return `name` unchanged if it is a Hub id, or its last part if it is a path."""
    return _hub_id(name) or (PureWindowsPath(name).name if name else None) or None


def registering_package(model: Any) -> str | None:
    """Return the package whose import registers a model's class with the Auto classes, or None if none is needed."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    config = getattr(model, "config", None)
    module = type(config).__module__
    if module.split(".")[0] in ("transformers", "transformers_modules", "__main__", "builtins"):
        return None
    return None if getattr(config, "model_type", None) in CONFIG_MAPPING_NAMES else module.rpartition(".")[0] or module
