"""Model card: what a model is, how well calibrated it is, and how to use it."""

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite, isnan, nan
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..calibration import Correction
from ..calibration.cross_fitting import scaling_name
from ..losses import LOSSES
from ..metrics.metric_table import METRICS
from ..reports.markdown_tables import escaped, label_table, results_notes
from ..reports.number_format import format_metric, format_number
from ..reports.run_results import RunResult, known_loss
from ..reports.text_summary import metrics_table, prior_shift_sentence
from ..reports.verdicts import correction_verdict, headline_of, is_better_calibrated, uncorrected_verdict, warnings_of
from ..tasks.task import MULTIPLE_CHOICE, PIPELINES, Task, unit_of

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard

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
_SERVING = "https://hf-focal.github.io/hf_focal/serving.html"
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
_ENVIRONMENT.filters |= {"number": format_number, "sentence": lambda text: f"{text[:1].upper()}{text[1:]}"}


def model_card(
    result: RunResult,
    *,
    model_name: str,
    task: str,
    base_model: str | None = None,
    dataset: str | None = None,
    language: str | list[str] | None = None,
    license: str | None = None,
    settings: Mapping[str, Any] | None = None,
    figures: Sequence[str] = (),
    folded: bool = True,
    fine_tuned: bool = True,
    own_code: str | None = None,
    loadable: bool = True,
    adapter: bool = False,
    num_labels: int | None = None,
    sft: bool = False,
    of_scores: bool = False,
    usage: str = "",
    measured_on: str = "test",
    fitted_on: str = "validation",
    test_dataset: str | None = None,
    same_rows: bool = False,
    earlier: float | None = None,
    pairs: bool = False,
) -> "ModelCard":
    """Return the card of a model: its loss, its results before and after T, and how to use it.

    The card's metadata contain the results that are finite. A dataset or base model that is not given as a Hub id
    appears only in the text, under the last part of its path.

    Args:
        result: the test set's results.
        model_name: the model's Hub id, for the code that loads it, or the name of its folder. Since the id is then
            unknown, and the card is the same after `hf upload`, the code has "your-username" in front of that name.
        task: the Hub's pipeline tag, such as `"text-classification"`.
        base_model: the model that was fine-tuned, or None for a model trained from scratch.
        dataset: the training data or, for a model that was only corrected, the calibration data; a Hub id or a path.
        language: ISO 639 codes.
        license: the Hub's name of the license.
        settings: training settings to list, by name.
        figures: paths of reliability diagrams, as `write_report` names them, relative to the card.
        folded: whether T is in the weights (`fold_correction`). If not, the card shows how to apply T.
        fine_tuned: whether `base_model` was trained, rather than only measured and corrected with `dataset`.
        own_code: the package that must be imported before the model can be loaded; see `registering_package`.
        loadable: whether Transformers can load the model.
        adapter, num_labels: whether the model is a PEFT adapter, and the model's number of classes.
        sft: whether FocalSFTTrainer trained the model.
        of_scores: whether there is no model, but a file ``correction.json`` for tables of its scores.
        usage: Python code for the section "Use" of a model that takes prompts with label words. Thresholds are then in
            ``correction.json``; if not `folded`, the weights have the slopes of the correction, but no offsets.
        measured_on, fitted_on: the splits on which the model was measured and the correction was fitted; `fitted_on`
            may be a file.
        test_dataset: the data that the model was measured on, as a Hub id or a path; `dataset` if None.
        same_rows: whether the correction was fitted on the samples that were measured, so the results are optimistic.
        earlier: a temperature that is already in the weights; `result.temperature` is then not a fitted one.
        pairs: whether a text classifier takes two texts; implied if the result has an option `text_pair_column`.
    """
    from huggingface_hub import ModelCard, ModelCardData

    arguments = dict(locals())
    fitted, fit_is_file = result.temperature, fitted_on.lower().endswith(_DATA_FILES)
    config = known_loss(result.loss) if fine_tuned else None
    data_name, data_id = _display_name(dataset), _hub_id(dataset)
    test_name, test_id = (_display_name(test_dataset), _hub_id(test_dataset)) if test_dataset else (data_name, data_id)
    data = ModelCardData(
        model_name=model_name,
        language=language,
        license=license,
        library_name="hf_focal" if of_scores else "peft" if adapter else "transformers",
        pipeline_tag=None if of_scores else task,
        base_model=_hub_id(base_model),
        datasets=data_id,
        tags=["hf_focal", "calibration", *(["temperature-scaling"] if fitted.is_fitted else [])],
        eval_results=_eval_results(result, task, test_name or "unknown", test_id or "unknown", measured_on, same_rows)
        or None,
    )
    sources = LOSSES[config.name].source.split("; ") if config else []
    sources += ["Guo et al. 2017"] * fitted.is_fitted
    sources += ["Mukhoti et al. 2020"] * (fitted.objective in ("ece", "adaece"))
    calibration = result.fit.cross_fit
    platt = None
    if calibration is not None and calibration.correction is not None:  # the slopes and the intercepts
        numbers = Correction.from_dict(calibration.correction).dense()
        platt = [part.tolist() for part in np.broadcast_arrays(*numbers)]
    scaled = calibration is not None and calibration.method not in ("temperature", "none")
    pairs |= bool((result.data.options or {}).get("text_pair_column"))
    pairs &= task == "text-classification"
    count, labels = result.pre.get("num_samples", nan), result.link == "sigmoid"
    options = result.data.task == MULTIPLE_CHOICE.name
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", model_name) is not None
    name_in_code = model_name if is_id else f"your-username/{model_name}"
    divisor = f"torch.tensor({[*fitted.values]})" if fitted.values else f"{fitted.value}"
    unit = unit_of(result.data.task or task, unit_of(task))
    of_task = PIPELINES.get(task, Task(name=task, pipeline=task))
    shown_count = "" if isnan(count) else f"{int(count):,}"
    test_is_file = bool(test_dataset) and (test_name or "").lower().endswith(_DATA_FILES)
    of_set = "" if test_is_file else f"the {escaped(measured_on)} set"
    places = " of ".join(filter(None, (of_set, escaped(test_name or ""))))
    samples = " ".join(filter(None, ("the", shown_count, unit, "of", places)))
    correction = "temperature" if fitted.is_fitted else result.correction
    if not correction:
        verdict = uncorrected_verdict(result) or "The results below show how well calibrated it is."
    elif same_rows:
        verdict = f"Its {correction} was fitted on the same samples as the results below, so they do not show whether "
        verdict += "it helps on other data."
    else:
        verdict = correction_verdict(result, samples, unit)
        verdict += f" {_at_confidence(result)}" if is_better_calibrated(result) else ""
    text = _ENVIRONMENT.get_template("model_card.md.jinja").render(
        arguments,
        generative=of_task.generates,
        auto_class=of_task.auto_class,
        peft_class=of_task.peft_class if adapter else None,
        example=_PAIR if pairs else of_task.example,
        example_item=_PAIR.removesuffix(_ALL) if pairs else '"A text to classify."',
        unit=unit,
        of_fit="labels" if labels else unit,
        labels=labels,
        label_table=label_table(result) if result.parts.labels else "",
        divisor=divisor,
        quoted_name=json.dumps(name_in_code, ensure_ascii=False)[1:-1],  # inside the quotes of a Python string
        is_id=is_id,
        options=options,
        scoring=_scoring(result) if options else "",
        base_model=_display_name(base_model),
        data_name=data_name,
        test_name=test_name,
        fit_is_file=fit_is_file,
        fitted_on=_display_name(fitted_on) if fit_is_file else fitted_on,
        count=shown_count,
        samples=samples,
        correction=correction,
        verdict=verdict,
        headline=headline_of(result),
        has_intervals="ece" in result.pre_intervals,
        names=_names(result),
        kind="classification" if result.data.task == "scores" else task.replace("-", " "),
        limitations=_limitations(result, samples, unit),
        scaling=scaling_name(result.method) if result.method else "",
        warnings=warnings_of(result),
        thresholds=result.thresholds,
        prior_shift=prior_shift_sentence(result.prior) if result.prior else "",
        platt=platt,
        serving=_serving_note(result, task, folded, of_task.generates, options),
        config=config,
        spec=config and LOSSES[config.name],
        trainer="FocalSFT" if sft else of_task.trainer,
        table=metrics_table(result),
        notes=results_notes([result]),
        balance=result.parts.class_balance,
        calibration=calibration,
        scaled=scaled,
        figures=[quote(path.replace("\\", "/")) for path in figures],
        citations=citations(sources),
    )
    text = re.sub("\n{3,}", "\n\n", text)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def _names(result: RunResult) -> list[str]:
    """Return the names of the classes or labels that a result holds, or [] if it holds none or too many to list."""
    confusion = result.parts.confusion
    names = result.parts.label_names or (confusion and confusion.names) or []
    return [*names] if len(names) <= _MOST_NAMES else []


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
    if groups := result.parts.groups:
        name, ece = escaped(groups.name[0]), format_metric("ece", {"ece": groups.ece[0]})
        sentences.append(f"The ECE is largest for the group {name}: {ece}%.")
    return sentences


def _at_confidence(result: RunResult) -> str:
    """Say how often the corrected model is right at its most frequent confidence; "" if it has no bins."""
    bins = result.post_bins
    if not len(bins.count) or not bins.count.max() > 0:
        return ""
    most = int(bins.count.argmax())
    low, high = (f"{100 * edge:.3g}%" for edge in bins.edges[most : most + 2])
    mean, right = (f"{100 * side[most]:.1f}%" for side in (bins.confidence, bins.accuracy))
    if result.link == "sigmoid":
        return f"Of the labels with a probability from {low} to {high}, {mean} on average, {right} apply."
    return f"When it is {low} to {high} confident, {mean} on average, it is right {right} of the time."


def _scoring(result: RunResult) -> str:
    """Return the arguments of `score_choices` with which the options were scored, as Python code; "" for defaults."""
    given = result.data.options or {}
    values = {name: given[name] for name in ("score", "letters", "template", "chat") if name in given}
    if "letters" in values:
        values["letters"] = values["letters"].split(",")
    if "template" in values:
        values["template"] = values["template"].replace("\\n", "\n")
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _serving_note(result: RunResult, task: str, folded: bool, generates: bool, options: bool) -> str:
    """Return sentences on why servers would return other probabilities than the measured ones, or "" if none do."""
    sentences = []
    if options:
        sentences.append(
            "A server does not apply T: divide the log-probabilities that it returns for the options by T, and take "
            "their softmax. Do not send T as the temperature of requests, which is for text."
        )
    elif result.method is not None and not folded:
        sentences.append(
            "A server may not apply T by itself: to sample with T, send it as the temperature of each request."
            if generates
            else "No server applies this correction: apply it to the raw logits that the server returns."
        )
    if result.link == "sigmoid":
        has_one = len(result.parts.label_names) == 1
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


def _eval_results(
    result: RunResult, task: str, data_name: str, data_type: str, split: str, same_rows: bool
) -> list["EvalResult"]:
    from huggingface_hub import EvalResult

    optimistic = " (optimistic: T was fitted on these samples)" if same_rows else ""
    names = {key: metric.name[0].upper() + metric.name[1:] for key, metric in METRICS.items() if metric.in_card}
    values = [(key, name + optimistic, result.post.get(key)) for key, name in names.items()]
    if result.method is not None:
        before = f" before {scaling_name(result.method)}"
        changed = [key for key in names if key != "accuracy" or result.method != "temperature"]
        values += [(key, names[key] + before, result.pre.get(key)) for key in changed]
    common = {"task_type": task, "dataset_type": data_type, "dataset_name": data_name, "dataset_split": split}
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
